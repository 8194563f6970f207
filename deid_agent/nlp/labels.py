"""Conversion between spans and one label for each unit of a text.

Units are disjoint ranges in order: tokens for the token model, characters for the character model. A unit belongs to a
span if they share a character. Source: Liu 2015 section 3.2.2 (BIO over tokens) and 3.2.3 (BIOES over characters),
Dehghan 2015 section 2.3 (I-O).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from deid_agent.model import CATEGORY, PhiType, Range, Source, Span

OUTSIDE = "O"


class Schema(StrEnum):
    """How the labels of one span depend on the position of the unit in the span."""

    IO = "io"  # one label for all units; two adjacent spans of one type become one span
    BIO = "bio"  # a separate label for the first unit
    BIOES = "bioes"  # separate labels for the first, the last and a single unit
    EDGES = "edges"  # as BIOES, but the first and last unit have the category only; spans of 1 or 2 units have no edges


def encode_labels(spans: Iterable[Span], units: Sequence[Range], schema: Schema) -> list[str]:
    """One label for each unit, such as ``B-DOCTOR``. If two spans share a unit, the first one gives the label."""
    labels = [OUTSIDE] * len(units)
    starts = [start for start, _ in units]
    for span in spans:
        at = max(bisect_right(starts, span.start) - 1, 0)
        inside = []
        while at < len(units) and units[at][0] < span.end:
            if units[at][1] > span.start and labels[at] == OUTSIDE:
                inside.append(at)
            at += 1
        for position, unit in enumerate(inside):
            if schema is Schema.EDGES:
                labels[unit] = _edge_label(position, len(inside), span.type)
            else:
                labels[unit] = f"{_prefix(position, len(inside), schema)}-{span.type}"
    return labels


def find_sources(spans: Iterable[Span], units: Sequence[Range]) -> list[str]:
    """For each unit the source of the span that covers it, ``""`` without one. ``spans`` are in order."""
    found = [""] * len(units)
    at = 0
    for span in spans:
        while at < len(found) and units[at][1] <= span.start:
            at += 1
        while at < len(found) and units[at][0] < span.end:
            found[at] = str(span.source)
            at += 1
    return found


def _prefix(at: int, count: int, schema: Schema) -> str:
    if schema is Schema.IO:
        return "I"
    if schema is Schema.BIO:
        return "I" if at else "B"
    if count == 1:
        return "S"
    return "B" if at == 0 else "E" if at == count - 1 else "I"


def _edge_label(at: int, count: int, kind: PhiType) -> str:
    """28 types need 43 labels in this schema instead of 113: the edges of all types of a category look alike."""
    if count < 3 or 0 < at < count - 1:
        return f"I-{kind}"
    return f"{'E' if at else 'B'}-{CATEGORY[kind]}"


def decode_labels(labels: Sequence[str], units: Sequence[Range], source: Source) -> Iterator[Span]:
    """The spans that the labels of ``units`` describe, in any schema but ``EDGES``.

    Every labelled unit is part of a span, even if the labels are in an impossible order.
    """
    start = end = 0
    kind = ""
    is_open = False
    for (first, last), label in zip(units, labels, strict=True):
        if label == OUTSIDE and not is_open:
            continue
        prefix, _, type_ = label.partition("-")
        if is_open and (label == OUTSIDE or type_ != kind or prefix in {"B", "S"}):
            yield Span(start, end, PhiType(kind), source)
            is_open = False
        if label == OUTSIDE:
            continue
        if not is_open:
            start, kind, is_open = first, type_, True
        end = last
        if prefix in {"E", "S"}:
            yield Span(start, end, PhiType(kind), source)
            is_open = False
    if is_open:
        yield Span(start, end, PhiType(kind), source)


def decode_edge_labels(labels: Sequence[str], units: Sequence[Range], source: Source) -> Iterator[Span]:
    """The spans that labels of ``Schema.EDGES`` describe.

    A span of edge labels alone has the first type of its category.
    """
    start = end = 0
    category = kind = ""
    for (first, last), label in zip(units, labels, strict=True):
        prefix, _, name = label.partition("-")
        inside = name if prefix == "I" else ""
        group = _category_of(label)
        if category and (group != category or prefix == "B" or (kind and inside not in {"", kind})):
            yield Span(start, end, _choose_type(kind, category), source)
            category = ""
        if not group:
            continue
        if not category:
            start, category, kind = first, group, ""
        kind = kind or inside
        end = last
        if prefix == "E":
            yield Span(start, end, _choose_type(kind, category), source)
            category = ""
    if category:
        yield Span(start, end, _choose_type(kind, category), source)


def _category_of(label: str) -> str:
    """The category of a label of ``Schema.EDGES``; ``""`` for ``OUTSIDE``."""
    prefix, _, name = label.partition("-")
    return "" if label == OUTSIDE else CATEGORY[PhiType(name)].value if prefix == "I" else name


def _choose_type(kind: str, category: str) -> PhiType:
    return PhiType(kind) if kind else next(t for t, c in CATEGORY.items() if c.value == category)
