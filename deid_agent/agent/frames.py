"""Frames between the agent and its workers: length-prefixed fields, no pickle.

A frame is ``size | kind | number | nanoseconds | count | count lengths | fields``; a field
of length -1 is None. Payloads are copied, never parsed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import assert_never

import orjson

from deid_agent.agent.job import Job, Processed, Refused, Result, Suppressed
from deid_agent.agent.ports import Headers
from deid_agent.errors import Reason

SIZE = struct.Struct("!I")
_HEAD = struct.Struct("!BQQH")
MAX_FRAME = 1 << 30


@lru_cache(maxsize=64)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"!{count}i")


@lru_cache(maxsize=64)
def _front(count: int) -> struct.Struct:
    """All that stands before the fields, in one."""
    return struct.Struct(f"!IBQQH{count}i")


class FrameKind(IntEnum):
    """What a frame says."""

    JOB = 1
    READY = 2
    FAILED = 3
    PROCESSED = 4
    REFUSED = 5
    SUPPRESSED = 6
    TOGETHER = 7


@dataclass(frozen=True, slots=True)
class Frame:
    """``number`` names the job; ``nanoseconds`` is how long it took.

    Of ``READY`` ``number`` says how many jobs the worker does together at most, of ``TOGETHER`` how many it now begins.
    """

    kind: FrameKind
    number: int = 0
    fields: tuple[bytes | None, ...] = field(default=(), repr=False)
    nanoseconds: int = 0


def pack(frame: Frame) -> bytes:
    """The frame with its size in front. Raises ``ValueError`` past ``MAX_FRAME`` or 65,535 fields."""
    parts = [item for item in frame.fields if item is not None]
    count = len(frame.fields)
    size = _HEAD.size + 4 * count + sum(map(len, parts))
    if count >= 1 << 16 or size > MAX_FRAME:
        raise ValueError("a frame is too large")
    lengths = [-1 if item is None else len(item) for item in frame.fields]
    front = _front(count).pack(size, frame.kind, frame.number, frame.nanoseconds, count, *lengths)
    return b"".join((front, *parts))


def unpack(body: bytes, begin: int = 0, end: int | None = None) -> Frame:
    """The frame in ``body[begin:end]`` (without its size)."""
    kind, number, nanoseconds, count = _HEAD.unpack_from(body, begin)
    at = begin + _HEAD.size
    lengths = _lengths(count).unpack_from(body, at)
    at += 4 * count
    fields: list[bytes | None] = []
    for length in lengths:
        if length < 0:
            fields.append(None)
        else:
            fields.append(body[at : at + length])
            at += length
    if at != (len(body) if end is None else end):
        raise ValueError("a frame is torn")
    return Frame(FrameKind(kind), number, tuple(fields), nanoseconds)


class Inbox:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._due = 0  # bytes without which nothing more is whole

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now. ``ValueError`` for one that is none."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._due:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames, at = [], 0
        self._due = SIZE.size
        while len(data) >= at + SIZE.size:
            end = at + SIZE.size + SIZE.unpack_from(data, at)[0]
            if len(data) < end:
                self._due = end - at
                break
            frames.append(unpack(data, at + SIZE.size, end))
            at = end
        self._rest += data[at:]
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
