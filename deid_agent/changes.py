"""Where one message was changed and why, byte by byte: for a person who looks at it, never for the stream.

An observer is handed to ``Deidentifier`` on request. It holds the text before and after, so it is as confidential as
the message; the audit is made of ``Remark`` alone and knows nothing of this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deid_agent.sites import Edit
from deid_agent.spans import Replacement, Span
from deid_agent.text import Document


@dataclass(frozen=True, slots=True)
class Cause:
    """What stands behind a change; ``document`` and ``span`` where it was found in a narrative."""

    path: str
    type: str
    method: str
    source: str
    document: Document | None = field(default=None, repr=False)
    span: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes ``[start, end)`` of a page's ``before`` became ``[begin, stop)`` of its ``after``."""

    start: int
    end: int
    begin: int
    stop: int
    cause: Cause


@dataclass(slots=True)
class Page:
    """One document: the message itself, or (``path``) an attachment in it. ``changes`` are in order and disjoint."""

    path: str
    before: bytes = field(repr=False)
    after: bytes = field(default=b"", repr=False)
    changes: list[Change] = field(default_factory=list, repr=False)
    _causes: list[tuple[int, int, Cause]] = field(default_factory=list, repr=False)
    _scrubbed: list[tuple[int, int, Cause]] = field(default_factory=list, repr=False)
    _decided: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict, repr=False)

    def because(self, start: int, end: int, cause: Cause) -> None:
        """Whatever is written over ``[start, end)`` of ``before`` is written for this cause."""
        self._causes.append((start, end, cause))

    def scrubbed(self, start: int, end: int, cause: Cause) -> None:
        """The same for the leak guard, which reads what was written: bytes of the text as it stood then."""
        self._scrubbed.append((start, end, cause))

    def placed(self, edits: Iterable[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """The edits of ``before`` and where they stand now (as ``sites.place`` gives them)."""
        for edit, (begin, stop) in zip(_sorted(edits), ranges, strict=True):
            self._decided[begin, stop] = (edit.start, edit.end)
            if edit.data != self.before[edit.start : edit.end]:
                cause = _of(self._causes, edit.start, edit.end)
                self.changes.append(Change(edit.start, edit.end, begin, stop, cause))

    def moved(self, edits: Iterable[Edit], ranges: Sequence[tuple[int, int]]) -> None:
        """The leak guard's edits of what stood there, and where all of them stand now."""
        before, self.changes = {(c.begin, c.stop): c for c in self.changes}, []
        behind = sorted((begin, stop, *old) for (begin, stop), old in self._decided.items())
        for edit, (begin, stop) in zip(_sorted(edits), ranges, strict=True):
            known = before.get((edit.start, edit.end))
            if known is not None:
                self.changes.append(Change(known.start, known.end, begin, stop, known.cause))
            elif (edit.start, edit.end) not in self._decided:
                shift = next((old - new for _, new, _, old in reversed(behind) if new <= edit.start), 0)
                cause = _of(self._scrubbed, edit.start, edit.end)
                self.changes.append(Change(edit.start + shift, edit.end + shift, begin, stop, cause))

    def spliced(self, document: Document, causes: Sequence[Cause], replacements: Sequence[Replacement]) -> None:
        """The replacements of a plain text, each with its cause."""
        grown = 0
        for item, cause in zip(replacements, causes, strict=True):
            start, end, size = document.byte(item.start), document.byte(item.end), len(item.text.encode())
            self.changes.append(Change(start, end, start + grown, start + grown + size, cause))
            grown += size - (end - start)


@dataclass(slots=True)
class Observer:
    """Told of every document of a message, attachments after what holds them."""

    pages: list[Page] = field(default_factory=list, repr=False)

    def page(self, path: str, before: bytes) -> Page:
        """A new page, in the order of asking."""
        self.pages.append(Page(path, before))
        return self.pages[-1]


def _sorted(edits: Iterable[Edit]) -> list[Edit]:
    return sorted(edits, key=lambda e: (e.start, e.end))


def _of(causes: Sequence[tuple[int, int, Cause]], start: int, end: int) -> Cause:
    """The first cause that touches ``[start, end)``."""
    for first, last, cause in causes:
        if first < end and start < last:
            return cause
    return Cause("", "", "", "")
