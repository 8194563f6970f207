"""What nobody caught is told by class and place: the text of an exception often quotes a message.

A core file would hold messages, keys and passwords as they are, so none is written.
"""

import asyncio
import ctypes
import logging
import resource
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deid_agent.agent.faults import describe
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import Uncaught

_PR_SET_DUMPABLE = 4


@contextmanager
def quiet(telemetry: Telemetry) -> Iterator[None]:
    """Inside, what threads and finalizers would print becomes an ``Uncaught`` event, and a warning a line of the log.

    The former hooks come back at the end. What the block itself raises is for whoever called it.
    """

    def tell(source: str, error: BaseException | None) -> None:
        telemetry.emit(Uncaught(source, describe(error) if error is not None else ""))

    def thread(told: threading.ExceptHookArgs) -> None:
        if told.exc_type is not SystemExit:
            tell("thread", told.exc_value)

    hooks = threading.excepthook, sys.unraisablehook, logging.raiseExceptions
    threading.excepthook = thread
    sys.unraisablehook = lambda told: tell("finalizer", told.exc_value)
    # A line that cannot be formatted or written would be printed with its arguments.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook, logging.raiseExceptions = hooks


def quiet_loop(loop: asyncio.AbstractEventLoop, telemetry: Telemetry) -> None:
    """What callbacks and forgotten tasks of this loop raise becomes an ``Uncaught`` event."""

    def handler(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        error = context.get("exception")
        telemetry.emit(Uncaught("loop", describe(error) if isinstance(error, BaseException) else ""))

    loop.set_exception_handler(handler)


def no_core() -> None:
    """Let the kernel write no core file of this process, and other processes of this user not look into it.

    The limit is inherited; being undumpable (Linux) ends with ``exec``, so each worker says so itself. The limit
    alone would not do: a core that is piped to a program is not bound by it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
