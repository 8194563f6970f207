"""Where events go: the log and the registry."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import PurePath

from deid_agent.telemetry.events import Event
from deid_agent.telemetry.metrics import Registry

LOGGER = "deid_agent"


class Telemetry:
    """Takes events: samples go to ``registry``, the line to the logger where its level is on.

    Nothing is set up here: the command line adds a handler, tests read ``registry``.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._logger = logging.getLogger(LOGGER)

    def emit(self, event: Event) -> None:
        """Count and log one event; never raises for want of a handler."""
        for sample in event.samples():
            self.registry.add(sample)
        for metric, labels in event.gone():
            self.registry.forget(metric, *labels)
        if self._logger.isEnabledFor(event.level):
            self._logger.log(event.level, type(event).__name__, extra={"event": event})


class JsonFormatter(logging.Formatter):
    """One JSON object a line, of typed fields only.

    A line of another library keeps its logger, level, place and exception class: its message may
    quote a payload, so it is left out.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
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
    """A handler that writes JSON lines to standard error; the command line puts it on the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    return handler
