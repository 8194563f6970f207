"""Traces: which bytes of one message changed and why, for the playground.

``Tracer`` and ``DocumentTracer`` do nothing: the stream runs with them. ``RecordingTracer`` keeps the text before and
after each change, so it is as confidential as the message. The audit is made from ``Remark`` alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deid_agent.model import Edit, Span


class Cause(NamedTuple):
    """The reason for a change. ``text`` and ``span`` are set for a finding of a recognizer in a narrative."""

    path: str
    type: str
    method: str
    source: str
    text: str | None = None
    span: Span | None = None

    def __repr__(self) -> str:
        """All fields except the text and the span."""
        return f"Cause(path={self.path!r}, type={self.type!r}, method={self.method!r}, source={self.source!r})"


UNKNOWN_CAUSE = Cause("", "", "", "")


class DocumentTracer:
    """Receives the changes of one document; this base class ignores them."""

    def explain(self, start: int, end: int, cause: Cause) -> None:
        """Name the cause of any edit of bytes ``[start, end)`` of the original document."""

    def explain_scrub(self, start: int, end: int, cause: Cause) -> None:
        """Name the cause of an edit by the leak guard; the bytes are those of the text that the guard read."""

    def record_edits(self, edits: Sequence[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """Take the edits of the original and the byte range of each in the result of ``apply_edits``."""

    def record_scrubs(self, edits: Sequence[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """Take the edits of the leak guard and the new byte range of each. They include all earlier edits."""

    def finish(self, after: bytes) -> None:
        """Take the finished document."""


NO_DOCUMENT_TRACE = DocumentTracer()


class Tracer:
    """Opens a ``DocumentTracer`` for each document of a message; this base class records nothing."""

    def open_document(self, path: str, before: bytes) -> DocumentTracer:  # noqa: ARG002
        """Start a document: the message itself (``path`` is empty), or an attachment at ``path``."""
        return NO_DOCUMENT_TRACE


NO_TRACE = Tracer()


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes ``[start, end)`` of a trace's ``before`` became ``[new_start, new_end)`` of its ``after``."""

    start: int
    end: int
    new_start: int
    new_end: int
    cause: Cause


@dataclass(slots=True)
class DocumentTrace(DocumentTracer):
    """The recorded changes of one document, in order and disjoint."""

    path: str
    before: bytes = field(repr=False)
    after: bytes = field(default=b"", repr=False)
    changes: list[Change] = field(default_factory=list, repr=False)
    _causes: list[tuple[int, int, Cause]] = field(default_factory=list, repr=False)
    _scrub_causes: list[tuple[int, int, Cause]] = field(default_factory=list, repr=False)
    _originals: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict, repr=False)

    def explain(self, start: int, end: int, cause: Cause) -> None:
        """See ``DocumentTracer``."""
        self._causes.append((start, end, cause))

    def explain_scrub(self, start: int, end: int, cause: Cause) -> None:
        """See ``DocumentTracer``."""
        self._scrub_causes.append((start, end, cause))

    def record_edits(self, edits: Sequence[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """See ``DocumentTracer``."""
        for edit, (new_start, new_end) in zip(_in_byte_order(edits), ranges, strict=True):
            self._originals[new_start, new_end] = (edit.start, edit.end)
            if edit.data != self.before[edit.start : edit.end]:
                cause = _find_cause(self._causes, edit.start, edit.end)
                self.changes.append(Change(edit.start, edit.end, new_start, new_end, cause))

    def record_scrubs(self, edits: Sequence[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """See ``DocumentTracer``."""
        known, self.changes = {(c.new_start, c.new_end): c for c in self.changes}, []
        edited = sorted((new_start, new_end, *old) for (new_start, new_end), old in self._originals.items())
        for edit, (new_start, new_end) in zip(_in_byte_order(edits), ranges, strict=True):
            earlier = known.get((edit.start, edit.end))
            if earlier is not None:
                self.changes.append(Change(earlier.start, earlier.end, new_start, new_end, earlier.cause))
            elif (edit.start, edit.end) not in self._originals:
                shift = next((old - new for _, new, _, old in reversed(edited) if new <= edit.start), 0)
                cause = _find_cause(self._scrub_causes, edit.start, edit.end)
                self.changes.append(Change(edit.start + shift, edit.end + shift, new_start, new_end, cause))

    def finish(self, after: bytes) -> None:
        """See ``DocumentTracer``."""
        self.after = after


@dataclass(slots=True)
class RecordingTracer(Tracer):
    """Records every document of a message; an attachment follows the document that holds it."""

    documents: list[DocumentTrace] = field(default_factory=list, repr=False)

    def open_document(self, path: str, before: bytes) -> DocumentTrace:
        """See ``Tracer``."""
        self.documents.append(DocumentTrace(path, before))
        return self.documents[-1]


def _in_byte_order(edits: Iterable[Edit]) -> list[Edit]:
    return sorted(edits, key=lambda e: (e.start, e.end))


def _find_cause(causes: Sequence[tuple[int, int, Cause]], start: int, end: int) -> Cause:
    """The first cause that touches ``[start, end)``."""
    for first, last, cause in causes:
        if first < end and start < last:
            return cause
    return UNKNOWN_CAUSE
