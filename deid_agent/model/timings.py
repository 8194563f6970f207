"""Seconds of one message by stage, and the one form of a time that people read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Literal


class Timings:
    """A stopwatch with nested stages.

    Each moment counts for the innermost stage only, so the stages add up to the whole.
    One instance serves one message in one thread.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._spent: dict[str, float] = {}
        self._stages: list[str] = []
        self._since = 0.0

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time inside the ``with`` block for ``stage``."""
        self._tick()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._tick()
            self._stages.pop()

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere: the message's share of work done for several messages at once."""
        self._spent[stage] = self._spent.get(stage, 0.0) + seconds

    @property
    def seconds_by_stage(self) -> tuple[tuple[str, float], ...]:
        """Each stage with its seconds, in the order in which the stages first ended."""
        return tuple(self._spent.items())

    def _tick(self) -> None:
        now = self._clock()
        if self._stages:
            self.add(self._stages[-1], now - self._since)
        self._since = now


def format_time(seconds: float, precision: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Unix time in ISO 8601, UTC: ``2026-11-23T23:59:59Z``. A question mark for a time outside the calendar."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec=precision)}Z"
    except (OverflowError, ValueError, OSError):
        return "?"
