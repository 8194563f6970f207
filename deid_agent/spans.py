"""Span algebra: half-open ranges of characters of one document.

Nothing here shows text: a span is coordinates, a type and a source.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deid_agent.phi import PhiType

KNOWN = "known:"
"""Prefix of the source of spans that the message's own structured part names."""


@dataclass(frozen=True, slots=True)
class Span:
    """One machine finding in a document.

    ``start`` and ``end`` are half-open character offsets; ``source`` is a rule
    id, lexicon or model tag, never text of the document.
    """

    start: int
    end: int
    type: PhiType
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"span [{self.start}, {self.end}) is empty or negative")

    def __len__(self) -> int:
        return self.end - self.start

    def covers(self, other: "Span") -> bool:
        """True where every character of ``other`` lies inside this span."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for characters ``[start, end)`` of a document."""

    start: int
    end: int
    text: str = field(repr=False)


def in_order(spans: Iterable[Span]) -> list[Span]:
    """Spans by start, longest first, then type and source: the one order in which results leave."""
    return sorted(spans, key=lambda s: (s.start, -s.end, s.type, s.source))


def is_disjoint(spans: Sequence[Span]) -> bool:
    """True where the spans are sorted and no two share a character."""
    return all(a.end <= b.start for a, b in pairwise(spans))


def splice(text: str, replacements: Iterable[Replacement]) -> str:
    """``text`` with each replacement put in place.

    Raises ``ValueError`` where replacements overlap or leave the text.
    """
    out: list[str] = []
    at = 0
    for item in sorted(replacements, key=lambda r: (r.start, r.end)):
        if item.start < at or item.end < item.start or item.end > len(text):
            raise ValueError(f"replacement [{item.start}, {item.end}) overlaps or leaves the text")
        out += (text[at : item.start], item.text)
        at = item.end
    out.append(text[at:])
    return "".join(out)
