"""Where events go: to the log as JSON lines, and to the metrics. Also the hooks for exceptions that nothing caught."""

import asyncio
import ctypes
import json
import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import PurePath

from deid_agent.model import describe_exception
from deid_agent.telemetry.events import Event, Uncaught
from deid_agent.telemetry.metrics import Registry

LOGGER = "deid_agent"
_PR_SET_DUMPABLE = 4


class Telemetry:
    """Receives events. Applies their samples to ``registry`` and logs them if the logger is enabled for their level.

    This class configures no handler: the command line adds one, and tests read ``registry``.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._logger = logging.getLogger(LOGGER)

    def emit(self, event: Event) -> None:
        """Count and log one event. Does not raise if no handler is configured."""
        add = self.registry.add
        for sample in event.samples():
            add(sample)
        for metric, labels in event.removed():
            self.registry.forget(metric, *labels)
        if self._logger.isEnabledFor(event.level):
            self._logger.log(event.level, type(event).__name__, extra={"event": event})


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line, from typed fields only.

    A record of another library keeps its logger, level, source line and exception class. Its message may quote a
    payload, so the message is omitted.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        """The JSON object, without a line end."""
        line: dict[str, object] = {"time": round(self._clock(), 3), "level": record.levelname.lower()}
        event = getattr(record, "event", None)
        if isinstance(event, Event):
            line["event"] = type(event).__name__
            line |= {f.name: getattr(event, f.name) for f in fields(event)}
        else:
            line |= {"event": "Foreign", "logger": record.name}
            line["place"] = f"{PurePath(record.pathname).name}:{record.lineno}"
            if record.exc_info and record.exc_info[0] is not None:
                line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


def stream_handler() -> logging.Handler:
    """A handler that writes JSON lines to standard error. The command line adds it to the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    return handler


@contextmanager
def quiet(telemetry: Telemetry) -> Iterator[None]:
    """Emit an ``Uncaught`` event for each exception that threads and finalizers would print with its text.

    The text of an exception often quotes a message, so only the class and the source line are logged. Warnings become
    log lines. The previous hooks are restored at the end. Exceptions of the block itself propagate to the caller.
    """

    def emit_uncaught(source: str, error: BaseException | None) -> None:
        telemetry.emit(Uncaught(source, describe_exception(error) if error is not None else ""))

    def on_thread_exception(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is not SystemExit:
            emit_uncaught("thread", arguments.exc_value)

    hooks = threading.excepthook, sys.unraisablehook, logging.raiseExceptions
    threading.excepthook = on_thread_exception
    sys.unraisablehook = lambda arguments: emit_uncaught("finalizer", arguments.exc_value)
    # The library would print a line that cannot be formatted or written, with its arguments.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook, logging.raiseExceptions = hooks


def quiet_loop(loop: asyncio.AbstractEventLoop, telemetry: Telemetry) -> None:
    """Emit an ``Uncaught`` event for each exception of a callback or of a task of this loop that nobody awaited."""

    def handler(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        error = context.get("exception")
        telemetry.emit(Uncaught("loop", describe_exception(error) if isinstance(error, BaseException) else ""))

    loop.set_exception_handler(handler)


def no_core() -> None:
    """Forbid core files of this process, and (on Linux) access to its memory by other processes of this user.

    A core file would hold messages, keys and passwords. The resource limit is inherited, but it does not apply to a
    core that the kernel pipes to a program, so the process is made undumpable too (prctl(2), PR_SET_DUMPABLE). That
    attribute is reset by ``exec``, so each worker process calls this function itself.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
