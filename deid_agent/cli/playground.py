"""The job of the playground's process: one text before and after, each change with its type, source and confidence.

The text and the result are stored nowhere. ``deid_agent.http.PlaygroundProcess`` runs the job in its own process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import orjson

from deid_agent.agent import Job, Process, Processed, Result
from deid_agent.app import WorkerFactory
from deid_agent.model import (
    ATTACHMENT_URL_SOURCE,
    CATEGORY,
    Confidence,
    Document,
    MessageError,
    Reason,
    SourceKind,
    Span,
)
from deid_agent.nlp import LOW_CONFIDENCE_NAME, TokenCrf
from deid_agent.pipeline import NO_SHAPE, Cause, DocumentTrace, RecordingTracer
from deid_agent.recognize import Model, Tagger, load_rules

MESSAGE, NOTE = b"message", b"note"
_HL7 = ("MSH|", "FHS|", "BHS|")
_CATEGORIES = {kind.value: category.value for kind, category in CATEGORY.items()}
_KINDS = {
    SourceKind.KNOWN: "known",
    SourceKind.CONSISTENCY: "consistency",
    SourceKind.LOGIN: "login",
    SourceKind.DICTIONARY: "list",
    SourceKind.SITE: "list",
    SourceKind.SITE_NAME: "list",
    SourceKind.RULE: "rule",
    SourceKind.CUSTOM: "recognizer",
    **dict.fromkeys(
        (
            SourceKind.TOKEN_MODEL,
            SourceKind.CHARACTER_MODEL,
            SourceKind.NETWORK,
            SourceKind.NAME_FILTER,
            SourceKind.LOW_CONFIDENCE,
        ),
        "model",
    ),
}
_PARTS = {
    "structure": "field",
    ATTACHMENT_URL_SOURCE: "field",
    "guard": "guard",
    "pdf": "attachment",
    "attachment": "attachment",
}


@dataclass(frozen=True, slots=True)
class PlaygroundFactory:
    """Builds the job callable in the playground's process.

    ``parts`` must hold a key made for this process. With the agent's key, a person who tries a name here would learn
    the surrogate that the feed has for it, and could confirm a guess.
    """

    parts: WorkerFactory

    def __call__(self) -> Process:
        """Load the rules and models of the agent, and observe each change."""
        watch = _ModelWatch()
        # The page shows the changes of the policy at their places: a shape would move them, and refuse notes.
        deidentifier = replace(self.parts, shape=NO_SHAPE).deidentifier(watch.wrap_models)
        loaded = load_rules(self.parts.rules, self.parts.sites)
        confidences = {rule.id: rule.confidence for rule in loaded.every_rule}

        def process(job: Job) -> Result:
            watch.read.clear()
            tracer = RecordingTracer()
            text = job.payload.decode("utf-8", "replace")
            note = job.key == NOTE or (job.key != MESSAGE and not _is_message(text))
            try:
                if note:
                    deidentifier.text(text, document="playground", tracer=tracer)
                else:
                    deidentifier.message(_with_line_ends(text), tracer=tracer)
                body = {
                    "kind": "note" if note else "message",
                    "pages": [_describe_page(page, confidences, watch) for page in tracer.documents],
                }
            finally:
                watch.read.clear()
            data = orjson.dumps(body)
            if len(data) > 16 * self.parts.max_bytes:
                raise MessageError(Reason.RESOURCE, "text", "the result is too large to show")
            return Processed(data)

        return process


def _is_message(text: str) -> bool:
    return text.lstrip().startswith((*_HL7, "{", "[", "<"))


def _with_line_ends(text: str) -> bytes:
    """The text as bytes. A browser gives line feeds; HL7 v2 (chapter 2.5) ends segments with carriage returns."""
    if text.lstrip().startswith(_HL7):
        text = text.lstrip().replace("\r\n", "\r").replace("\n", "\r")
    return text.encode()


def _describe_page(page: DocumentTrace, confidences: dict[str, Confidence], watch: "_ModelWatch") -> dict[str, object]:
    before: list[tuple[str, int]] = []
    after: list[tuple[str, int]] = []
    old = new = 0
    for number, change in enumerate(page.changes):
        before += (
            (_decode(page.before[old : change.start]), -1),
            (_decode(page.before[change.start : change.end]), number),
        )
        after += (
            (_decode(page.after[new : change.new_start]), -1),
            (_decode(page.after[change.new_start : change.new_end]), number),
        )
        old, new = change.end, change.new_end
    before.append((_decode(page.before[old:]), -1))
    after.append((_decode(page.after[new:]), -1))
    return {
        "path": page.path,
        "before": [piece for piece in before if piece[0] or piece[1] >= 0],
        "after": [piece for piece in after if piece[0] or piece[1] >= 0],
        "marks": [_describe_cause(change.cause, confidences, watch) for change in page.changes],
    }


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _describe_cause(cause: Cause, confidences: dict[str, Confidence], watch: "_ModelWatch") -> dict[str, object]:
    found_by = cause.span.source if cause.span is not None else None
    kind = _PARTS.get(cause.source, "derived") if found_by is None else _KINDS.get(found_by.kind, "derived")
    low = found_by is not None and (found_by.kind is SourceKind.LOW_CONFIDENCE or found_by == LOW_CONFIDENCE_NAME)
    words = {
        "field": "certain: from the type of the field",
        "known": "certain: the message contains this value in a field",
        "guard": "certain: the message contains this value in a field",
        "consistency": "found elsewhere in the text",
        "model": "possible" if low else "likely",
    }
    return {
        "type": cause.type or "FOLLOWS",
        "category": _CATEGORIES.get(cause.type, "OTHER"),
        "method": cause.method,
        "source": cause.source or "an attachment's size, hash or type",
        "kind": kind,
        "path": cause.path,
        "confidence": confidences[cause.source].value if cause.source in confidences else words.get(kind, ""),
        "probability": watch.probability(cause.text, cause.span),
    }


@dataclass(slots=True)
class _ModelWatch:
    """Records the token model's probability, for each token of a text, that the token is PHI of any type."""

    read: dict[str, tuple[Document, Sequence[float]]] = field(default_factory=dict, repr=False)

    def wrap_models(self, tagger: Tagger) -> Tagger:
        """The same tagger with its models wrapped to record their probabilities."""
        return replace(tagger, models=tuple(_WatchedModel(model, self) for model in tagger.models))

    def probability(self, text: str | None, span: Span | None) -> float | None:
        """The mean over the tokens of a span; None if no model read its text."""
        if text is None or span is None or text not in self.read:
            return None
        doc, phi = self.read[text]
        found = [p for (a, b), p in zip(doc.tokens, phi, strict=True) if a < span.end and span.start < b]
        return round(sum(found) / len(found), 3) if found else None


@dataclass(frozen=True, slots=True)
class _WatchedModel:
    """Delegates to a model, and records its probabilities."""

    model: Model
    watch: _ModelWatch = field(repr=False)

    @property
    def name(self) -> str:
        """See ``Model.name``."""
        return self.model.name

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        """See ``Model.propose_all``."""
        self._record(asked)
        return self.model.propose_all(asked)

    def _record(self, asked: Iterable[tuple[Document, Sequence[Span]]]) -> None:
        if not isinstance(self.model, TokenCrf):
            return
        for doc, first in asked:
            if doc.tokens:
                _, prediction = self.model.predict(doc, first)
                phi = prediction.phi
                self.watch.read[doc.text] = (doc, [] if phi is None else [float(p) for p in phi])
