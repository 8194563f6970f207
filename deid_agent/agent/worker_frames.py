"""The frames that the agent and its workers exchange.

They are length-prefixed and never pickled, so that no message is interpreted on the way.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, assert_never

import orjson

from deid_agent.agent.job import (
    Deferred,
    DocumentCounts,
    Job,
    JobPosition,
    Processed,
    Refused,
    Result,
    Suppressed,
)
from deid_agent.agent.ports import Headers
from deid_agent.model import Reason

MAX_FRAME = 1 << 30
SIZE = struct.Struct("!I")
_HEAD = struct.Struct("!BQQH")


@lru_cache(maxsize=64)
def _lengths_struct(count: int) -> struct.Struct:
    return struct.Struct(f"!{count}i")


@lru_cache(maxsize=64)
def _front_struct(count: int) -> struct.Struct:
    """The struct of everything before the fields."""
    return struct.Struct(f"!IBQQH{count}i")


class FrameKind(IntEnum):
    """The kinds of frames."""

    JOB = 1
    READY = 2
    FAILED = 3
    PROCESSED = 4
    REFUSED = 5
    SUPPRESSED = 6
    BATCH = 7
    DEFERRED = 8


_KINDS = {int(kind): kind for kind in FrameKind}
"""For each frame: the call of an enumeration takes longer than the rest of a frame."""


class Frame(NamedTuple):
    """One frame: ``size | kind | number | nanoseconds | count | count lengths | fields``.

    A field of length -1 is None. Payloads are copied, never parsed. ``number`` identifies the job and ``nanoseconds``
    is the time it took. In ``READY`` ``number`` is the largest batch of the worker, in ``BATCH`` the number of jobs in
    the batch that it begins now.
    """

    kind: FrameKind
    number: int = 0
    fields: tuple[bytes | None, ...] = ()
    nanoseconds: int = 0

    def __repr__(self) -> str:
        """Without the fields, which hold messages."""
        return f"Frame({self.kind.name}, number={self.number}, fields={len(self.fields)})"


def pack_frame(frame: Frame) -> bytes:
    """The bytes of a frame, with its size in front. Raises ``ValueError`` above ``MAX_FRAME`` or 65,535 fields."""
    parts = [item for item in frame.fields if item is not None]
    count = len(frame.fields)
    size = _HEAD.size + 4 * count + sum(map(len, parts))
    if count >= 1 << 16 or size > MAX_FRAME:
        raise ValueError("a frame is too large")
    lengths = [-1 if item is None else len(item) for item in frame.fields]
    front = _front_struct(count).pack(size, frame.kind, frame.number, frame.nanoseconds, count, *lengths)
    return b"".join((front, *parts))


def unpack_frame(body: bytes, begin: int = 0, end: int | None = None) -> Frame:
    """The frame in ``body[begin:end]``, without its size. Raises ``ValueError`` if the lengths do not add up."""
    kind, number, nanoseconds, count = _HEAD.unpack_from(body, begin)
    at = begin + _HEAD.size
    lengths = _lengths_struct(count).unpack_from(body, at)
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
    return Frame(_KINDS.get(kind) or FrameKind(kind), number, tuple(fields), nanoseconds)


class FrameBuffer:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._due = 0  # bytes needed until the next frame is complete

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now. Raises ``ValueError`` for invalid bytes."""
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
            frames.append(unpack_frame(data, at + SIZE.size, end))
            at = end
        self._rest += data[at:]
        return frames


def encode_job(number: int, job: Job) -> Frame:
    """The frame that sends a job to a worker."""
    payload = None if job.tombstone else job.payload
    return Frame(
        FrameKind.JOB,
        number,
        (
            payload,
            job.key,
            job.source.encode(),
            job.project.encode(),
            job.task.encode(),
            _encode_position(job.position),
            job.code_key,
            *_flatten_headers(job.headers),
        ),
    )


def decode_job(frame: Frame) -> Job:
    """The job in a frame of ``encode_job``."""
    payload, key, source, project, task, position, code_key, *headers = frame.fields
    topic, name, work = ((word or b"").decode() for word in (source, project, task))
    at = _decode_position(position)
    paired = _pair_headers(headers)
    return Job(payload or b"", key, paired, payload is None, topic, name, work, at, code_key or b"")


def _encode_position(position: JobPosition | None) -> bytes | None:
    if position is None:
        return None
    partition, offset, time_ms, topic_id = position
    return f"{partition} {offset} {'' if time_ms is None else time_ms} {topic_id}".encode()


def _decode_position(data: bytes | None) -> JobPosition | None:
    if data is None:
        return None
    partition, offset, time_ms, topic_id = data.decode().split(" ", 3)
    return JobPosition(int(partition), int(offset), int(time_ms) if time_ms else None, topic_id)


def encode_result(number: int, result: Result, nanoseconds: int) -> Frame:
    """The frame that returns a result to the agent."""
    match result:
        case Processed():
            digests = (result.input_digest, result.output_digest)
            counts = None if result.document is None else tuple(result.document)
            meta = orjson.dumps([*digests, result.found, result.timings, result.unexamined, result.patients, counts])
            fields = (
                result.payload,
                result.key,
                result.remarks,
                meta,
                result.provenance,
                result.sealed,
                *_flatten_headers(result.headers),
            )
            return Frame(FrameKind.PROCESSED, number, fields, nanoseconds)
        case Refused():
            texts = (result.reason, result.where, result.stage, result.fault, result.input_digest)
            return Frame(FrameKind.REFUSED, number, tuple(t.encode() for t in texts), nanoseconds)
        case Suppressed():
            return Frame(FrameKind.SUPPRESSED, number, (result.input_digest.encode(),), nanoseconds)
        case Deferred():
            return Frame(FrameKind.DEFERRED, number, (result.why.encode(),), nanoseconds)
        case _:
            assert_never(result)


def decode_result(frame: Frame) -> Result:
    """The result in a frame of ``encode_result``."""
    fields = frame.fields
    if frame.kind is FrameKind.REFUSED:
        reason, where, stage, fault, digest = ((item or b"").decode() for item in fields)
        return Refused(Reason(reason), where, stage, fault, digest)
    if frame.kind is FrameKind.SUPPRESSED:
        return Suppressed((fields[0] or b"").decode())
    if frame.kind is FrameKind.DEFERRED:
        return Deferred((fields[0] or b"").decode())
    payload, key, remarks, meta, provenance, sealed, *headers = fields
    before, after, found, timings, unexamined, patients, counts = orjson.loads(meta or b"")
    return Processed(
        payload or b"",
        key,
        _pair_headers(headers),
        remarks or b"",
        before,
        after,
        tuple([(str(name), int(n)) for name, n in found]),
        tuple([(str(name), float(s)) for name, s in timings]),
        tuple([(str(name), str(path), str(why), int(n)) for name, path, why, n in unexamined]) if unexamined else (),
        tuple([(str(listing), int(n)) for listing, n in patients]),
        provenance=provenance or b"",
        sealed=sealed or b"",
        document=None if counts is None else _read_counts(counts),
    )


def _read_counts(counts: Sequence[Any]) -> DocumentCounts:
    *numbers, types, confidence = counts
    pairs = [tuple((str(name), int(n)) for name, n in each) for each in (types, confidence)]
    return DocumentCounts(*numbers, *pairs)


def _flatten_headers(headers: Headers) -> tuple[bytes, ...]:
    return tuple([item for name, value in headers for item in (name.encode(), value)])


def _pair_headers(items: Sequence[bytes | None]) -> Headers:
    return tuple([((name or b"").decode(), value or b"") for name, value in zip(items[::2], items[1::2], strict=True)])
