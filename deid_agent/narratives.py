"""Free text: what is found in it, and what stands in its place."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deid_agent.case import Case, Notes
from deid_agent.changes import Cause
from deid_agent.errors import MessageError, Reason
from deid_agent.laps import Laps
from deid_agent.policy import Policy
from deid_agent.replacer import Replacer, day_first_of
from deid_agent.sites import Edit
from deid_agent.spans import Replacement, Span
from deid_agent.surrogate import Scope
from deid_agent.text import Document
from deid_agent.together import Asking, asked

MAX_TEXT = 1_000_000
"""Characters of one narrative: 250 pages. Reading takes 200 bytes for each of prose, 900 where each sign is a token."""


@dataclass(frozen=True, slots=True)
class Narratives:
    """Has texts read, and replaces what policy does not keep.

    Raises ``MessageError(RESOURCE)`` for one of more than ``MAX_TEXT`` characters.
    """

    policy: Policy = field(repr=False)
    replacer: Replacer = field(repr=False)

    def of_text(
        self,
        path: str,
        document: Document,
        scope: Scope,
        notes: Notes,
        laps: Laps,
        causes: list[Cause] | None = None,
    ) -> Asking[tuple[tuple[Span, ...], list[Replacement]]]:
        """The findings of one document and what to write in their places."""
        if not _worth_reading(path, document):
            return (), []
        (found,) = yield from asked([document], laps)
        spans = tuple(found)
        with laps.of("surrogate"):
            return spans, self._replaced(path, document, spans, scope, notes, causes)

    def edits(self, case: Case) -> Asking[list[Edit]]:
        """The edits of all narratives of a message, which are read together and agree on the order of day and month."""
        documents = [(n, Document(n.mapped.text, case.facts)) for n in case.message.narratives]
        documents = [(n, document) for n, document in documents if _worth_reading(n.path, document)]
        found = yield from asked([document for _, document in documents], case.laps)
        texts = [(document.text, spans) for (_, document), spans in zip(documents, found, strict=True)]
        # A short comment says 03/05 alone; the report beside it tells which of the two is the month.
        scope = replace(case.scope, day_first=day_first_of(texts, case.scope))
        edits: list[Edit] = []
        for (narrative, document), spans in zip(documents, found, strict=True):
            causes: list[Cause] | None = None if case.page is None else []
            with case.laps.of("surrogate"):
                replacements = self._replaced(narrative.path, document, spans, scope, case.notes, causes)
            if case.page is not None:
                starts, ends = narrative.mapped.starts, narrative.mapped.ends
                for item, cause in zip(replacements, causes or (), strict=True):
                    case.page.because(starts[item.start], ends[item.end - 1], cause)
            placed = narrative.mapped.place(replacements)
            edits += [Edit(start, end, case.message.encode(text)) for start, end, text in placed]
        return edits

    def _replaced(
        self,
        path: str,
        document: Document,
        spans: Sequence[Span],
        scope: Scope,
        notes: Notes,
        causes: list[Cause] | None = None,
    ) -> list[Replacement]:
        replacements: list[Replacement] = []
        methods = [self.policy.method(span.type, path) for span in spans]
        found = self.replacer.findings(document.text, spans, methods, scope)
        for span, method, new in zip(spans, methods, found, strict=True):
            if new != document.text[span.start : span.end]:
                notes[path, span.type, method, span.source] += 1
                replacements.append(Replacement(span.start, span.end, new))
                if causes is not None:
                    causes.append(Cause(path, span.type, method, span.source, document, span))
        return replacements


def _worth_reading(path: str, document: Document) -> bool:
    """False for an empty text. Raises ``MessageError(RESOURCE)`` for one that is too long."""
    if len(document.text) > MAX_TEXT:
        raise MessageError(Reason.RESOURCE, path, f"a text of more than {MAX_TEXT} characters")
    return bool(document.text.strip())
