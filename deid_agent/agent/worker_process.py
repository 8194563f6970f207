"""The code that runs inside a worker process.

A worker has one callable and one socket. It processes one job after another, or small jobs in a batch.
"""

import os
import signal
import socket
import time
from collections import deque

from deid_agent import pause_gc
from deid_agent.agent.job import BatchProcess, Factory, Process, Refused, Result, attempt
from deid_agent.agent.worker_frames import Frame, FrameBuffer, FrameKind, decode_job, encode_result, pack_frame
from deid_agent.model import DeidError, Reason, describe_exception
from deid_agent.telemetry import no_core

_CHUNK = 1 << 18
_MAX_BATCH_JOBS = 16
# For all jobs of a batch together. The agent bounds the time of a batch: it sends a fifth of a second of work ahead.
_MAX_BATCH_BYTES = 1 << 16
_LARGE_JOB_BYTES = 1 << 14  # a larger job runs alone: it gains nothing, and the answers of the others would wait for it


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
