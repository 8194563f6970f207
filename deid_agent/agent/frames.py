"""Frames between the agent and its workers: length-prefixed fields, no pickle.

A frame is ``size | kind | number | nanoseconds | count | count lengths | fields``; a field
of length -1 is None. Payloads are copied, never parsed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import assert_never

import orjson

from deid_agent.agent.job import Job, Processed, Refused, Result, Suppressed
from deid_agent.agent.ports import Headers
from deid_agent.errors import Reason

SIZE = struct.Struct("!I")
_HEAD = struct.Struct("!BQQH")
MAX_FRAME = 1 << 30


class FrameKind(IntEnum):
    """What a frame says."""

    JOB = 1
    READY = 2
    FAILED = 3
    PROCESSED = 4
    REFUSED = 5
    SUPPRESSED = 6


@dataclass(frozen=True, slots=True)
class Frame:
    """``number`` names the job; ``nanoseconds`` is how long it took."""

    kind: FrameKind
    number: int = 0
    fields: tuple[bytes | None, ...] = field(default=(), repr=False)
    nanoseconds: int = 0


def pack(frame: Frame) -> bytes:
    """The frame with its size in front. Raises ``ValueError`` past ``MAX_FRAME`` or 65,535 fields."""
    lengths = [-1 if item is None else len(item) for item in frame.fields]
    head = _HEAD.pack(frame.kind, frame.number, frame.nanoseconds, len(lengths)) if len(lengths) < 1 << 16 else b""
    size = len(head) + 4 * len(lengths) + sum(n for n in lengths if n > 0)
    if not head or size > MAX_FRAME:
        raise ValueError("a frame is too large")
    parts = [SIZE.pack(size), head, struct.pack(f"!{len(lengths)}i", *lengths)]
    return b"".join(parts + [item for item in frame.fields if item is not None])


def unpack(body: bytes | memoryview) -> Frame:
    """The frame in ``body`` (without its size)."""
    kind, number, nanoseconds, count = _HEAD.unpack_from(body)
    at = _HEAD.size
    lengths = struct.unpack_from(f"!{count}i", body, at)
    at += 4 * count
    fields: list[bytes | None] = []
    for length in lengths:
        fields.append(None if length < 0 else bytes(body[at : at + length]))
        at += max(length, 0)
    if at != len(body):
        raise ValueError("a frame is torn")
    return Frame(FrameKind(kind), number, tuple(fields), nanoseconds)


class Inbox:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now. ``ValueError`` for one that is none."""
        self._data += data
        frames, at = [], 0
        with memoryview(self._data) as view:
            while len(view) >= at + SIZE.size:
                end = at + SIZE.size + SIZE.unpack_from(view, at)[0]
                if len(view) < end:
                    break
                frames.append(unpack(view[at + SIZE.size : end]))
                at = end
        del self._data[:at]
        return frames


def job_frame(number: int, job: Job) -> Frame:
    """A job on its way to a worker."""
    payload = None if job.tombstone else job.payload
    return Frame(FrameKind.JOB, number, (payload, job.key, *_flat(job.headers)))


def job_of(frame: Frame) -> Job:
    """The job that ``job_frame`` packed."""
    payload, key, *headers = frame.fields
    return Job(payload or b"", key, _paired(headers), payload is None)


def result_frame(number: int, result: Result, nanoseconds: int) -> Frame:
    """A result on its way back."""
    match result:
        case Processed():
            meta = orjson.dumps([result.input_digest, result.output_digest, result.found, result.timings])
            fields = (result.payload, result.key, result.remarks, meta, *_flat(result.headers))
            return Frame(FrameKind.PROCESSED, number, fields, nanoseconds)
        case Refused():
            texts = (result.reason, result.where, result.stage, result.fault, result.input_digest)
            return Frame(FrameKind.REFUSED, number, tuple(t.encode() for t in texts), nanoseconds)
        case Suppressed():
            return Frame(FrameKind.SUPPRESSED, number, (result.input_digest.encode(),), nanoseconds)
        case _:
            assert_never(result)


def result_of(frame: Frame) -> Result:
    """The result that ``result_frame`` packed."""
    fields = frame.fields
    if frame.kind is FrameKind.REFUSED:
        reason, where, stage, fault, digest = ((item or b"").decode() for item in fields)
        return Refused(Reason(reason), where, stage, fault, digest)
    if frame.kind is FrameKind.SUPPRESSED:
        return Suppressed((fields[0] or b"").decode())
    payload, key, remarks, meta, *headers = fields
    before, after, found, timings = orjson.loads(meta or b"")
    return Processed(
        payload or b"",
        key,
        _paired(headers),
        remarks or b"",
        before,
        after,
        tuple((str(name), int(n)) for name, n in found),
        tuple((str(name), float(s)) for name, s in timings),
    )


def _flat(headers: Headers) -> tuple[bytes, ...]:
    return tuple(item for name, value in headers for item in (name.encode(), value))


def _paired(items: Sequence[bytes | None]) -> Headers:
    return tuple(((name or b"").decode(), value or b"") for name, value in zip(items[::2], items[1::2], strict=True))
