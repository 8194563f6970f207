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

    def __init__(self, registry: Registry | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry or Registry()
        self._logger = logging.getLogger(LOGGER)
        self._clock = clock
        self._logged_at: dict[tuple[str, ...], float] = {}

    def emit(self, event: Event) -> None:
        """Count and log one event. Does not raise if no handler is configured."""
        add = self.registry.add
        for sample in event.samples():
            add(sample)
        for metric, labels in event.removed():
            self.registry.forget(metric, *labels)
        level = logging.DEBUG if event.repeat_s and self._is_repetition(event) else event.level
        if self._logger.isEnabledFor(level):
            self._logger.log(level, type(event).__name__, extra={"event": event})

    def _is_repetition(self, event: Event) -> bool:
        key, now = (type(event).__name__, *event.repeat_key()), self._clock()
        last = self._logged_at.get(key)
        if last is not None and now - last < event.repeat_s:
            return True
        self._logged_at[key] = now
        return False


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


class RepeatFilter(logging.Filter):
    """Passes a line of another library once in ``interval_s``, and later lines of the same place not at all.

    The Kafka client writes dozens of lines a second while no broker answers; our own event reports that once.
    """

    def __init__(self, interval_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._clock = clock
        self._passed_at: dict[tuple[str, str, int, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the line is ours, or the first of its place for a while."""
        if getattr(record, "event", None) is not None:
            return True
        key, now = (record.name, record.pathname, record.lineno, record.levelno), self._clock()
        last = self._passed_at.get(key)
        if last is not None and now - last < self._interval_s:
            return False
        self._passed_at[key] = now
        return True


def stream_handler() -> logging.Handler:
    """A handler that writes JSON lines to standard error. The command line adds it to the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepeatFilter())
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
