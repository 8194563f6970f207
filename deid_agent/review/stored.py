"""The stored form of the records of a folder: JSON, before it is sealed."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from deid_agent.model import ANNOTATION, PhiType, Span, parse_source
from deid_agent.review.records import (
    Decision,
    Draw,
    NoteDecisions,
    Proposal,
    QueueEntry,
    ReviewIndex,
    ReviewNote,
)


def pack(record: ReviewIndex | ReviewNote | NoteDecisions) -> bytes:
    """The stored form of a record."""
    match record:
        case ReviewIndex():
            return orjson.dumps({"entries": list(record.entries), "draws": list(record.draws)})
        case ReviewNote():
            names = ("id", "patient", "name", "text", "kind", "date")
            spans = [[*_pack_span(each.span), str(each.span.source), each.uncertain] for each in record.proposals]
            return orjson.dumps({**{name: getattr(record, name) for name in names}, "proposals": spans})
        case NoteDecisions():
            sides = (("own", record.own), ("third", record.third))
            return orjson.dumps(
                {
                    side: {
                        name: {"finished": each.finished, "spans": [_pack_span(span) for span in each.spans]}
                        for name, each in decisions.items()
                    }
                    for side, decisions in sides
                }
            )


def _pack_span(span: Span) -> list[object]:
    return [span.start, span.end, span.type.value]


def unpack_index(data: bytes) -> ReviewIndex:
    """The index of a stored form. Raises ``ValueError``, as the other functions do, if it is none."""
    found = _load(data)
    try:
        entries = tuple(QueueEntry(**each | {"reasons": tuple(each["reasons"])}) for each in found["entries"])
        return ReviewIndex(entries, tuple(Draw(**each) for each in found["draws"]))
    except (KeyError, TypeError):
        raise ValueError("no index") from None


def unpack_note(data: bytes) -> ReviewNote:
    """The note of a stored form."""
    found = _load(data)
    try:
        proposals = tuple(
            Proposal(Span(begin, end, PhiType(kind), parse_source(source)), uncertain)
            for begin, end, kind, source, uncertain in found.pop("proposals")
        )
        return ReviewNote(**found, proposals=proposals)
    except (KeyError, TypeError):
        raise ValueError("no note") from None


def unpack_decisions(data: bytes) -> NoteDecisions:
    """The decisions of a stored form."""
    found = _load(data)
    try:
        own, third = (
            {name: Decision(_unpack_spans(each["spans"]), each["finished"]) for name, each in found[side].items()}
            for side in ("own", "third")
        )
        return NoteDecisions(own, third)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("no decisions") from None


def _unpack_spans(spans: Iterable[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple(Span(begin, end, PhiType(kind), ANNOTATION) for begin, end, kind in spans)


def _load(data: bytes) -> dict[str, Any]:
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no record")
    return found
