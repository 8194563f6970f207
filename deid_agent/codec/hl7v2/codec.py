"""The HL7 v2 codec: one payload to its messages."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from deid_agent.codec.hl7v2 import charset, table, wire
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.leaves import leaves
from deid_agent.codec.hl7v2.message import Hl7Message
from deid_agent.codec.hl7v2.reader import Reader
from deid_agent.codec.hl7v2.wire import Segment
from deid_agent.errors import MessageError, Reason
from deid_agent.sites import Narrative

MAX_SEGMENTS = 200_000
"""Lines of one payload; the largest real batch seen has some thousand."""


class Hl7Codec:
    """Implements ``codec.base.Codec`` for HL7 v2.1 to v2.9, batches (FHS, BHS) and MLLP framing included.

    Cost is linear in the size of the payload. Its own size limit is the caller's, lines are limited here.
    """

    name = "hl7v2"

    def __init__(self, rules: Path, *, max_segments: int = MAX_SEGMENTS) -> None:
        """Reads ``rules/hl7``. Raises ``ConfigurationError`` naming the file and the key."""
        self._table = table.load(rules)
        self._max_segments = max_segments

    def detect(self, raw: bytes) -> bool:
        """True for MSH, FHS or BHS and a separator, after white space, a byte order mark or a start block."""
        return wire.opens(raw[:64].decode("latin-1"))

    def parse(self, raw: bytes) -> Sequence[Hl7Message]:
        """The messages of the payload; file and batch headers go with the message after them, trailers before."""
        return [Reader(self._table, view).read(lines) for view, lines, _ in self._views(raw)]

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every value of every message; raises as ``parse``."""
        return [leaf for view, lines, at in self._views(raw) for leaf in leaves(self._table, view, lines, at)]

    def _views(self, raw: bytes) -> Iterator[tuple[View, list[Segment], int]]:
        """Each message as characters, with its lines and its first byte."""
        text = raw.decode("latin-1")
        if not wire.opens(text[:64]):
            raise MessageError(Reason.MALFORMED, "byte 0", "neither MSH, FHS nor BHS with a separator")
        carriage = "\r" in text
        lines = list(islice(wire.segments(text, carriage=carriage), self._max_segments + 1))
        if len(lines) > self._max_segments:
            raise MessageError(Reason.RESOURCE, f"byte {lines[-1].start}", f"over {self._max_segments} segments")
        if not lines[0].header:
            raise MessageError(Reason.MALFORMED, "MSH-2", "letters or controls cannot separate")
        groups = _groups(lines)
        starts = [0, *(group[0].start for group in groups[1:]), len(raw)]
        for group, a, b in zip(groups, starts, starts[1:], strict=False):
            part, own = raw[a:b], [Segment(s.header, s.start - a, s.end - a) for s in group] if a else group
            view = charset.view(part, _declared(part, own))
            if view.starts is not None:  # decoded as a whole: other offsets
                own = list(wire.segments(view.text, carriage=b"\r" in part))
            yield view, own, a


def _groups(lines: Sequence[Segment]) -> list[list[Segment]]:
    """The lines of each message; framing before a header goes with the message before it."""
    groups: list[list[Segment]] = [[]]
    has_message = False
    for line in lines:
        if line.header and has_message:
            groups.append([])
            has_message = False
        groups[-1].append(line)
        has_message = has_message or line.header == "MSH"
    return groups


def _declared(raw: bytes, lines: Sequence[Segment]) -> str:
    """MSH-18 as it stands, its repetitions joined by ``~``."""
    for line in lines:
        if line.header == "MSH":
            text = raw[line.start : line.end].decode("latin-1")
            marks = wire.separators(text, Segment("MSH", 0, len(text)))
            fields = text.split(marks.field, 18)
            value = fields[17] if len(fields) > 17 else ""
            return value.replace(marks.repetition, "~") if marks.repetition else value
    return ""
