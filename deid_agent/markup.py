"""Guideline markup: ``[[TYPE|text]]`` to plain text and spans.

Used by the samples inside rule files and by everything that reads annotated
notes. Stripping the markup gives the note back byte for byte; spans are never nested.
"""

import re
from dataclasses import dataclass, field

from deid_agent.phi import PhiType
from deid_agent.spans import Span

_OPEN = re.compile(r"\[\[([A-Z][A-Z-]*)\|")


class MarkupError(ValueError):
    """Markup that does not parse. ``line`` counts from 1; the message holds no text of the note."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(line, detail)
        self.line = line
        self.detail = detail

    def __str__(self) -> str:
        return f"line {self.line}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Annotated:
    """A text and its annotations, in order and disjoint."""

    text: str = field(repr=False)
    spans: tuple[Span, ...]


def parse(marked: str, source: str = "gold") -> Annotated:
    """Plain text and spans of ``marked``.

    Raises ``MarkupError`` for an unknown type, an empty or nested span and one that is never closed.
    """
    out: list[str] = []
    spans: list[Span] = []
    at = length = 0
    for found in _OPEN.finditer(marked):
        line = marked.count("\n", 0, found.start()) + 1
        if found.start() < at:
            raise MarkupError(line, "a span inside a span: close the first with ]]")
        close = marked.find("]]", found.end())
        if close < 0:
            raise MarkupError(line, "a span is never closed: add ]]")
        before, inside = marked[at : found.start()], marked[found.end() : close]
        if "[[" in inside:
            raise MarkupError(line, "a span inside a span: close the first with ]]")
        try:
            kind = PhiType(found.group(1))
        except ValueError:
            raise MarkupError(line, f"unknown type {found.group(1)}") from None
        if not inside:
            raise MarkupError(line, "an empty span")
        out += (before, inside)
        start = length + len(before)
        length = start + len(inside)
        spans.append(Span(start, length, kind, source))
        at = close + 2
    out.append(marked[at:])
    return Annotated("".join(out), tuple(spans))
