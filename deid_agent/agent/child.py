"""What runs inside a worker process: one callable, one socket, one job after another, or small ones together."""

import os
import signal
import socket
import time
from collections import deque

from deid_agent.agent.faults import describe
from deid_agent.agent.frames import Frame, FrameKind, Inbox, job_of, pack, result_frame
from deid_agent.agent.job import Factory, Process, Refused, Result, Together, attempt
from deid_agent.errors import DeidError, Reason
from deid_agent.telemetry.quiet import no_core

_CHUNK = 1 << 18
_MOST = 16
_MOST_BYTES = 1 << 14  # of jobs that are done together: about what models read at once


def main(sock: socket.socket, factory: Factory, job_limit_s: float) -> None:
    """Serve jobs until the other end closes. Never returns, never prints: what happens here may hold PHI.

    SIGINT and SIGTERM are the parent's to answer (a terminal and systemd signal the whole group, which
    would end the workers before the drain); the parent ends a worker by SIGKILL.
    """
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        no_core()
        _silence()
        if (process := _build(sock, factory)) is not None:
            _serve(sock, process, job_limit_s)
        code = 0
    except OSError:
        code = 0
    finally:
        # Neither a traceback nor an exit handler of a library gets a word.
        os._exit(code)


def _silence() -> None:
    with open(os.devnull, "w", encoding="ascii") as nowhere:  # noqa: PTH123 - a device, not a path of ours
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def _build(sock: socket.socket, factory: Factory) -> Process | None:
    try:
        process = factory()
    except DeidError as error:
        text = " ".join(str(error).split())
    except Exception as error:  # noqa: BLE001 - reported to the parent, which stops the start
        text = f"the worker could not be built: {describe(error)}"
    else:
        sock.sendall(pack(Frame(FrameKind.READY, _MOST if isinstance(process, Together) else 1)))
        return process
    sock.sendall(pack(Frame(FrameKind.FAILED, fields=(text.encode(),))))
    return None


def _serve(sock: socket.socket, process: Process, job_limit_s: float) -> None:
    inbox, waiting = Inbox(), deque[Frame]()
    several = process if isinstance(process, Together) else None
    while True:
        try:
            data = sock.recv(_CHUNK, socket.MSG_DONTWAIT if waiting else 0)
        except BlockingIOError:
            pass
        else:
            if not data:
                return
            waiting.extend(inbox.feed(data))
        if not waiting:
            continue
        # Each answer leaves before the next job begins: the parent blames the first job without one.
        first = waiting.popleft()
        if several is not None and len(group := _group(first, waiting)) > 1:
            # Said before they begin: none of them can then be blamed.
            sock.sendall(pack(Frame(FrameKind.TOGETHER, len(group))))
            sock.sendall(_answers(several, group, job_limit_s))
        else:
            sock.sendall(_answer(process, first, job_limit_s))


def _group(first: Frame, waiting: deque[Frame]) -> list[Frame]:
    """The first job with those behind it that are done together with it, taken off ``waiting``: few bytes in all."""
    group, size = [first], _size(first)
    while waiting and len(group) < _MOST and (size := size + _size(waiting[0])) <= _MOST_BYTES:
        group.append(waiting.popleft())
    return group


def _size(frame: Frame) -> int:
    return sum(len(item) for item in frame.fields if item is not None)


def _answers(process: Together, group: list[Frame], job_limit_s: float) -> bytes:
    signal.setitimer(signal.ITIMER_REAL, job_limit_s)  # see below
    results = process.together([job_of(frame) for frame in group])
    signal.setitimer(signal.ITIMER_REAL, 0)
    return b"".join(
        _packed(frame.number, result, int(seconds * 1e9))
        for frame, (result, seconds) in zip(group, results, strict=True)
    )


def _answer(process: Process, frame: Frame, job_limit_s: float) -> bytes:
    # An orphan in an endless regular expression holds the GIL and never sees the closed socket:
    # the kernel's alarm ends it, handlers or not. The parent kills earlier.
    signal.setitimer(signal.ITIMER_REAL, job_limit_s)
    begin = time.perf_counter_ns()
    result = attempt(process, job_of(frame))
    spent = time.perf_counter_ns() - begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    return _packed(frame.number, result, spent)


def _packed(number: int, result: Result, nanoseconds: int) -> bytes:
    try:
        return pack(result_frame(number, result, nanoseconds))
    except (ValueError, TypeError) as error:
        fault = Refused(Reason.INTERNAL, stage="answer", fault=type(error).__name__)
        return pack(result_frame(number, fault, nanoseconds))
