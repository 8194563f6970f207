"""The code that runs inside a worker process, and the frames that it exchanges with the agent.

A worker has one callable and one socket. It processes one job after another, or small jobs in a batch. Frames are
length-prefixed and never pickled, so that no message is interpreted on the way.
"""

import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, assert_never

import orjson

from deid_agent import pause_gc
from deid_agent.agent.job import (
    BatchProcess,
    Deferred,
    Factory,
    Job,
    JobPosition,
    Process,
    Processed,
    Refused,
    Result,
    Suppressed,
    attempt,
)
from deid_agent.agent.ports import Headers
from deid_agent.model import DeidError, Reason, describe_exception
from deid_agent.telemetry import no_core

MAX_FRAME = 1 << 30
_CHUNK = 1 << 18
_MAX_BATCH_JOBS = 16
# For all jobs of a batch together. The agent bounds the time of a batch: it sends a fifth of a second of work ahead.
_MAX_BATCH_BYTES = 1 << 16
_LARGE_JOB_BYTES = 1 << 14  # a larger job runs alone: it gains nothing, and the answers of the others would wait for it
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
            meta = orjson.dumps([*digests, result.found, result.timings, result.unexamined, result.patients])
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
    before, after, found, timings, unexamined, patients = orjson.loads(meta or b"")
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
    )


def _flatten_headers(headers: Headers) -> tuple[bytes, ...]:
    return tuple([item for name, value in headers for item in (name.encode(), value)])


def _pair_headers(items: Sequence[bytes | None]) -> Headers:
    return tuple([((name or b"").decode(), value or b"") for name, value in zip(items[::2], items[1::2], strict=True)])


def run_worker(sock: socket.socket, factory: Factory, job_limit_s: float) -> None:
    """Process jobs until the other end closes. Never returns and never prints, because its output could contain PHI.

    SIGINT and SIGTERM are ignored: a terminal and systemd signal the whole process group, which would end the workers
    before the drain. The parent ends a worker with SIGKILL.
    """
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        no_core()
        _discard_output()
        if (process := _build_process(sock, factory)) is not None:
            _serve(sock, process, job_limit_s)
        code = 0
    except OSError:
        code = 0
    finally:
        # Skip tracebacks and the exit handlers of libraries: they may print.
        os._exit(code)


def _discard_output() -> None:
    with open(os.devnull, "w", encoding="ascii") as null:  # noqa: PTH123 - a device, not a path of ours
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)


def _build_process(sock: socket.socket, factory: Factory) -> Process | None:
    try:
        with pause_gc():
            process = factory()
    except DeidError as error:
        text = " ".join(str(error).split())
    except Exception as error:  # noqa: BLE001 - reported to the parent, which stops the start
        text = f"the worker could not be built: {describe_exception(error)}"
    else:
        sock.sendall(pack_frame(Frame(FrameKind.READY, _MAX_BATCH_JOBS if isinstance(process, BatchProcess) else 1)))
        return process
    sock.sendall(pack_frame(Frame(FrameKind.FAILED, fields=(text.encode(),))))
    return None


def _serve(sock: socket.socket, process: Process, job_limit_s: float) -> None:
    buffer, waiting = FrameBuffer(), deque[Frame]()
    batch_process = process if isinstance(process, BatchProcess) else None
    while True:
        try:
            data = sock.recv(_CHUNK, socket.MSG_DONTWAIT if waiting else 0)
        except BlockingIOError:
            pass
        else:
            if not data:
                return
            waiting.extend(buffer.feed(data))
        if not waiting:
            continue
        # Each answer is sent before the next job begins: the parent blames the first job without an answer.
        first = waiting.popleft()
        if batch_process is not None and len(batch := _take_batch(first, waiting)) > 1:
            # Announced before the batch begins, so that the parent blames none of its jobs.
            sock.sendall(pack_frame(Frame(FrameKind.BATCH, len(batch))))
            sock.sendall(_answer_batch(batch_process, batch, job_limit_s))
        else:
            sock.sendall(_answer_job(process, first, job_limit_s))


def _take_batch(first: Frame, waiting: deque[Frame]) -> list[Frame]:
    """The first job and those waiting jobs that fit into one batch with it, removed from ``waiting``."""
    batch, size = [first], _payload_size(first)
    if size > _LARGE_JOB_BYTES:
        return batch
    while waiting and len(batch) < _MAX_BATCH_JOBS:
        following = _payload_size(waiting[0])
        if following > _LARGE_JOB_BYTES or (size := size + following) > _MAX_BATCH_BYTES:
            break
        batch.append(waiting.popleft())
    return batch


def _payload_size(frame: Frame) -> int:
    return sum(len(item) for item in frame.fields if item is not None)


def _answer_batch(process: BatchProcess, batch: list[Frame], job_limit_s: float) -> bytes:
    signal.setitimer(signal.ITIMER_REAL, job_limit_s)  # the alarm of ``_answer_job``
    results = process.process_batch([decode_job(frame) for frame in batch])
    signal.setitimer(signal.ITIMER_REAL, 0)
    return b"".join(
        _pack_result(frame.number, result, int(seconds * 1e9))
        for frame, (result, seconds) in zip(batch, results, strict=True)
    )


def _answer_job(process: Process, frame: Frame, job_limit_s: float) -> bytes:
    # If the agent dies while a job hangs in an endless regular expression, which holds the GIL, the worker never sees
    # the closed socket. The kernel's alarm ends it, whether or not handlers can run. The parent kills earlier.
    signal.setitimer(signal.ITIMER_REAL, job_limit_s)
    begin = time.perf_counter_ns()
    result = attempt(process, decode_job(frame))
    spent = time.perf_counter_ns() - begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    return _pack_result(frame.number, result, spent)


def _pack_result(number: int, result: Result, nanoseconds: int) -> bytes:
    try:
        return pack_frame(encode_result(number, result, nanoseconds))
    except (ValueError, TypeError) as error:
        fault = Refused(Reason.INTERNAL, stage="answer", fault=type(error).__name__)
        return pack_frame(encode_result(number, fault, nanoseconds))
