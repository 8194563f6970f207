"""Spans as one label for each unit of a text, and back.

Units are any disjoint ranges in order: tokens for the token model, characters for the character model. A unit
belongs to a span if they share a character. Source: Liu 2015 section 3.2.2 (BIO over tokens) and 3.2.3 (BIOES over
characters), Dehghan 2015 section 2.3 (I-O).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from deid_agent.phi import CATEGORY, PhiType
from deid_agent.spans import Span
from deid_agent.text import Range

OUTSIDE = "O"


class Schema(StrEnum):
    """How the labels of one span differ by place."""

    IO = "io"  # all alike; two spans of one type that touch become one
    BIO = "bio"  # the first apart
    BIOES = "bioes"  # the first, the last and a lone one apart
    EDGES = "edges"  # as BIOES, but first and last tell the category alone, and a span of one or two has no edges


def encode(spans: Iterable[Span], units: Sequence[Range], schema: Schema) -> list[str]:
    """One label for each unit, such as ``B-DOCTOR``; of two spans in one unit the first gives the label."""
    labels = [OUTSIDE] * len(units)
    starts = [start for start, _ in units]
    for span in spans:
        at = max(bisect_right(starts, span.start) - 1, 0)
        inside = []
        while at < len(units) and units[at][0] < span.end:
            if units[at][1] > span.start and labels[at] == OUTSIDE:
                inside.append(at)
            at += 1
        for place, unit in enumerate(inside):
            if schema is Schema.EDGES:
                labels[unit] = _edged(place, len(inside), span.type)
            else:
                labels[unit] = f"{_place(place, len(inside), schema)}-{span.type}"
    return labels


def _place(at: int, count: int, schema: Schema) -> str:
    if schema is Schema.IO:
        return "I"
    if schema is Schema.BIO:
        return "I" if at else "B"
    if count == 1:
        return "S"
    return "B" if at == 0 else "E" if at == count - 1 else "I"


def _edged(at: int, count: int, kind: PhiType) -> str:
    """28 types need 43 labels so and not 113: over characters the edges of all types of a category look alike."""
    if count < 3 or 0 < at < count - 1:
        return f"I-{kind}"
    return f"{'E' if at else 'B'}-{CATEGORY[kind]}"


def decode(labels: Sequence[str], units: Sequence[Range], source: str) -> Iterator[Span]:
    """The spans that labels of any schema tell. Whatever their order, no labelled unit is left out."""
    start = end = 0
    kind = ""
    open_ = False
    for (first, last), label in zip(units, labels, strict=True):
        place, _, type_ = label.partition("-")
        if open_ and (label == OUTSIDE or type_ != kind or place in {"B", "S"}):
            yield Span(start, end, PhiType(kind), source)
            open_ = False
        if label == OUTSIDE:
            continue
        if not open_:
            start, kind, open_ = first, type_, True
        end = last
        if place in {"E", "S"}:
            yield Span(start, end, PhiType(kind), source)
            open_ = False
    if open_:
        yield Span(start, end, PhiType(kind), source)


def decode_edges(labels: Sequence[str], units: Sequence[Range], source: str) -> Iterator[Span]:
    """The spans that labels of ``Schema.EDGES`` tell; an edge without an inside has the first type of its category."""
    start = end = 0
    category = kind = ""
    for (first, last), label in zip(units, labels, strict=True):
        place, _, name = label.partition("-")
        inside = name if place == "I" else ""
        group = _group(label)
        if category and (group != category or place == "B" or (kind and inside not in {"", kind})):
            yield Span(start, end, _typed(kind, category), source)
            category = ""
        if not group:
            continue
        if not category:
            start, category, kind = first, group, ""
        kind = kind or inside
        end = last
        if place == "E":
            yield Span(start, end, _typed(kind, category), source)
            category = ""
    if category:
        yield Span(start, end, _typed(kind, category), source)


def _group(label: str) -> str:
    """The category of a label of ``Schema.EDGES``; ``""`` outside."""
    place, _, name = label.partition("-")
    return "" if label == OUTSIDE else CATEGORY[PhiType(name)].value if place == "I" else name


def _typed(kind: str, category: str) -> PhiType:
    return PhiType(kind) if kind else next(t for t, c in CATEGORY.items() if c.value == category)
