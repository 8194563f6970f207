"""What runs inside a worker process: one callable, one socket, one job after another."""

import os
import signal
import socket
import time

from deid_agent.agent.faults import describe
from deid_agent.agent.frames import Frame, FrameKind, Inbox, job_of, pack, result_frame
from deid_agent.agent.job import Factory, Process, Refused, attempt
from deid_agent.errors import DeidError, Reason
from deid_agent.telemetry.quiet import no_core

_CHUNK = 1 << 18


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
        sock.sendall(pack(Frame(FrameKind.READY)))
        return process
    sock.sendall(pack(Frame(FrameKind.FAILED, fields=(text.encode(),))))
    return None


def _serve(sock: socket.socket, process: Process, job_limit_s: float) -> None:
    inbox = Inbox()
    while data := sock.recv(_CHUNK):
        for frame in inbox.feed(data):
            # Each answer leaves before the next job begins: the parent blames the first job without one.
            sock.sendall(_answer(process, frame, job_limit_s))


def _answer(process: Process, frame: Frame, job_limit_s: float) -> bytes:
    # An orphan in an endless regular expression holds the GIL and never sees the closed socket:
    # the kernel's alarm ends it, handlers or not. The parent kills earlier.
    signal.setitimer(signal.ITIMER_REAL, job_limit_s)
    begin = time.perf_counter_ns()
    result = attempt(process, job_of(frame))
    spent = time.perf_counter_ns() - begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        return pack(result_frame(frame.number, result, spent))
    except (ValueError, TypeError) as error:
        fault = Refused(Reason.INTERNAL, stage="answer", fault=type(error).__name__)
        return pack(result_frame(frame.number, fault, spent))
