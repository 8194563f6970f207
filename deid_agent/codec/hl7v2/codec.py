"""The HL7 v2 codec: one payload to its messages."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from deid_agent.codec.hl7v2 import charset, table, wire
from deid_agent.codec.hl7v2.message import Hl7Message
from deid_agent.codec.hl7v2.reader import Reader
from deid_agent.codec.hl7v2.wire import Segment
from deid_agent.errors import MessageError, Reason

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
        text = raw.decode("latin-1")
        if not wire.opens(text[:64]):
            raise MessageError(Reason.MALFORMED, "byte 0", "neither MSH, FHS nor BHS with a separator")
        carriage = "\r" in text
        lines = list(islice(wire.segments(text, carriage=carriage), self._max_segments + 1))
        if len(lines) > self._max_segments:
            raise MessageError(Reason.RESOURCE, f"byte {lines[-1].start}", f"over {self._max_segments} segments")
        starts = _starts(lines)
        return [
            self._message(raw[a:b], carriage=carriage) for a, b in zip(starts, [*starts[1:], len(raw)], strict=True)
        ]

    def _message(self, raw: bytes, *, carriage: bool) -> Hl7Message:
        view = charset.view(raw, _declared(raw.decode("latin-1"), carriage=carriage))
        return Reader(self._table, view).read(list(wire.segments(view.text, carriage=carriage)))


def _starts(lines: Sequence[Segment]) -> list[int]:
    """Byte offsets at which messages begin; framing before a header goes with the message before it."""
    starts = [0]
    has_message = False
    for line in lines:
        if line.header and has_message:
            starts.append(line.start)
            has_message = False
        has_message = has_message or line.header == "MSH"
    return starts


def _declared(text: str, *, carriage: bool) -> str:
    """MSH-18 as it stands, its repetitions joined by ``~``."""
    for line in wire.segments(text, carriage=carriage):
        if line.header == "MSH":
            marks = wire.separators(text, line)
            fields = text[line.start : line.end].split(marks.field)
            value = fields[17] if len(fields) > 17 else ""
            return value.replace(marks.repetition, "~") if marks.repetition else value
    return ""
