"""One text tried: before and after cut into pieces, each changed one with its type, its source and how sure that is.

Runs in a process of its own (``console.room``). What goes in comes out again and is kept nowhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from deid_agent.agent.job import Job, Process, Processed, Result
from deid_agent.changes import Cause, Observer, Page
from deid_agent.crf.columns import View
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import CATEGORY
from deid_agent.recognize import registry
from deid_agent.recognize.tokencrf import TokenCrf
from deid_agent.ruleset import Confidence
from deid_agent.sites import ELSEWHERE
from deid_agent.spans import Span
from deid_agent.tagger import Model, Tagger
from deid_agent.text import Document
from deid_agent.wiring import Workshop

MOST: Final = 256 * 1024
"""Bytes of a text that is tried."""
MESSAGE, NOTE = b"message", b"note"
_HL7 = ("MSH|", "FHS|", "BHS|")
_CATEGORIES = {kind.value: category.value for kind, category in CATEGORY.items()}
_MODELS = ("crf", "char-crf", "neural", "filter", "weak")
_PREFIXES = {
    **{"known": "known", "again": "again", "login": "login", "lexicon": "list"},
    **dict.fromkeys(_MODELS, "model"),
}
_PARTS = {"structure": "field", ELSEWHERE: "field", "guard": "guard", "pdf": "attachment", "attachment": "attachment"}


@dataclass(frozen=True, slots=True)
class Trial:
    """The callable of the process. ``parts`` hold a key of the process's own: with the agent's, whoever tries a name
    here would learn its surrogate there, and could confirm a guess.
    """

    parts: Workshop

    def __call__(self) -> Process:
        """Load what the agent has loaded, and look on."""
        watch = _Watch()
        deidentifier = self.parts.deidentifier(watch.around)
        sure = {rule.id: rule.confidence for rule in registry.load_rules(self.parts.rules).patterns}

        def process(job: Job) -> Result:
            watch.read.clear()
            seen = Observer()
            text = job.payload.decode("utf-8", "replace")
            note = job.key == NOTE or (job.key != MESSAGE and not _is_message(text))
            try:
                if note:
                    deidentifier.text(text, document="playground", seen=seen)
                else:
                    deidentifier.message(_with_line_ends(text), seen=seen)
                body = {
                    "kind": "note" if note else "message",
                    "pages": [_told(page, sure, watch) for page in seen.pages],
                }
            finally:
                watch.read.clear()
            data = orjson.dumps(body)
            if len(data) > 16 * MOST:
                raise MessageError(Reason.RESOURCE, "text", "too much to be shown")
            return Processed(data)

        return process


def _is_message(text: str) -> bool:
    return text.lstrip().startswith((*_HL7, "{", "[", "<"))


def _with_line_ends(text: str) -> bytes:
    """A text field of a page gives a line feed for each line end; HL7 has carriage returns."""
    if text.lstrip().startswith(_HL7):
        text = text.lstrip().replace("\r\n", "\r").replace("\n", "\r")
    return text.encode()


def _told(page: Page, sure: dict[str, Confidence], watch: "_Watch") -> dict[str, object]:
    before: list[tuple[str, int]] = []
    after: list[tuple[str, int]] = []
    old = new = 0
    for number, change in enumerate(page.changes):
        before += (
            (_text(page.before[old : change.start]), -1),
            (_text(page.before[change.start : change.end]), number),
        )
        after += ((_text(page.after[new : change.begin]), -1), (_text(page.after[change.begin : change.stop]), number))
        old, new = change.end, change.stop
    before.append((_text(page.before[old:]), -1))
    after.append((_text(page.after[new:]), -1))
    return {
        "path": page.path,
        "before": [piece for piece in before if piece[0] or piece[1] >= 0],
        "after": [piece for piece in after if piece[0] or piece[1] >= 0],
        "marks": [_mark(change.cause, sure, watch) for change in page.changes],
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _mark(cause: Cause, sure: dict[str, Confidence], watch: "_Watch") -> dict[str, object]:
    prefix = cause.source.partition(":")[0]
    kind = "rule" if cause.source in sure else _PARTS.get(cause.source) or _PREFIXES.get(prefix, "derived")
    words = {
        "field": "certain: the field's type says it",
        "known": "certain: the message itself names it",
        "guard": "certain: the message itself names it",
        "again": "found elsewhere in the text",
        "model": "possible" if prefix == "weak" or cause.source.endswith("-weak") else "likely",
    }
    return {
        "type": cause.type or "FOLLOWS",
        "category": _CATEGORIES.get(cause.type, "OTHER"),
        "method": cause.method,
        "source": cause.source or "an attachment's size, hash or type",
        "kind": kind,
        "path": cause.path,
        "confidence": sure[cause.source].value if cause.source in sure else words.get(kind, ""),
        "probability": watch.probability(cause.document, cause.span),
    }


@dataclass(slots=True)
class _Watch:
    """Hears what the token model makes of each text: the probability that a token is PHI of any type."""

    read: dict[str, tuple[Document, Sequence[float]]] = field(default_factory=dict, repr=False)

    def around(self, tagger: Tagger) -> Tagger:
        """The tagger with its models watched."""
        return replace(tagger, models=tuple(_Watched(model, self) for model in tagger.models))

    def probability(self, document: Document | None, span: Span | None) -> float | None:
        """The mean over the tokens of a finding; None where no model read its text."""
        if document is None or span is None or document.text not in self.read:
            return None
        doc, phi = self.read[document.text]
        found = [p for (a, b), p in zip(doc.tokens, phi, strict=True) if a < span.end and span.start < b]
        return round(sum(found) / len(found), 3) if found else None


@dataclass(frozen=True, slots=True)
class _Watched:
    """A model that does as it did."""

    model: Model
    watch: _Watch = field(repr=False)

    @property
    def name(self) -> str:
        """See ``Model.name``."""
        return self.model.name

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        """See ``Model.propose_all``."""
        self._listen(asked)
        return self.model.propose_all(asked)

    def _listen(self, asked: Iterable[tuple[Document, Sequence[Span]]]) -> None:
        if not isinstance(self.model, TokenCrf):
            return
        for doc, first in asked:
            if doc.tokens:
                phi = self.model.read(View(doc, first, self.model.dictionaries), doubts=True).phi
                self.watch.read[doc.text] = (doc, [] if phi is None else [float(p) for p in phi])
