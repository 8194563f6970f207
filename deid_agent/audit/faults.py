"""The faults of a trail, and the members of its lines as a verifier reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

Fields = Mapping[str, object]
"""The members of a line."""


class FaultCode(StrEnum):
    """The kind of a fault; part of the interface."""

    CHAIN = "CHAIN"
    """A line does not follow the line before: one of them was changed, or lines between them."""
    LINE = "LINE"
    """A line that is chained but has no known kind."""
    COUNT = "COUNT"
    """A signed count of lines differs from the lines present: lines were dropped or added."""
    SIGNATURE = "SIGNATURE"
    """The lines before a checkpoint differ from the signed ones."""
    KEY = "KEY"
    """A segment is signed by a key that is not trusted."""
    SEGMENT = "SEGMENT"
    """A segment is missing, or its first line belongs to another one."""
    TRAIL = "TRAIL"
    """A line belongs to another trail, or to another epoch of its keys."""
    TREE = "TREE"
    """A signed root differs from that of the entries present."""
    TRUNCATED = "TRUNCATED"
    """The trail has fewer lines than a signed head states."""
    HEAD = "HEAD"
    """A head is missing, not signed by a key of this trail, signs a different line, or is too old."""
    UNSIGNED = "UNSIGNED"
    """Entries after the last checkpoint: they are chained, but anyone who can write the file can change them."""
    TORN = "TORN"
    """The last line is incomplete: a crash, or a write in progress."""


@dataclass(frozen=True, slots=True)
class TrailFault:
    """One fault. ``line`` counts from 1 within the segment; ``coordinates`` is empty if they are unknown."""

    code: FaultCode
    detail: str
    segment: str = ""
    line: int = 0
    coordinates: str = ""

    @property
    def missing_segment(self) -> bool:
        """True if whole segments are not here: archived, erased or stolen. It changes no line of the others."""
        return self.code is FaultCode.SEGMENT and self.detail.startswith("missing: ")

    @property
    def where(self) -> str:
        """Segment and line as ``file:line``, a form that editors accept."""
        return f"{self.segment}:{self.line}" if self.line else self.segment


def read_fields(line: bytes) -> Fields:
    """The members of a line; empty if it is not a JSON object."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def int_member(fields: Fields, name: str) -> int:
    """An integer member of a line; -1 if it has none of that name."""
    value = fields.get(name)
    return value if type(value) is int else -1


def coordinates_of(fields: Fields) -> str:
    """The coordinates in an entry; empty if the line cannot be read."""
    if not fields:
        return ""
    return f"{fields.get('topic')}/{fields.get('partition')}/{fields.get('offset')}"
