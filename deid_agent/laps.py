"""Where the time of one message went, stage by stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter


class Laps:
    """A stopwatch whose stages nest: each moment counts for the innermost one, so that they add up to the whole.

    Of one message and one thread. Seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._spent: dict[str, float] = {}
        self._stages: list[str] = []
        self._since = 0.0

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Time what happens inside. Nothing that is timed may be left half-way (a generator that yields in it), but
        between ``leave`` and ``back``.
        """
        self._tick()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._tick()
            self._stages.pop()

    def leave(self) -> None:
        """What happens from here on is not the message's."""
        self._tick()

    def back(self, stage: str, seconds: float) -> None:
        """It goes on; ``seconds`` of what happened meanwhile were its own, as ``stage``."""
        self._spent[stage] = self._spent.get(stage, 0.0) + seconds
        self._since = self._clock()

    @property
    def timings(self) -> tuple[tuple[str, float], ...]:
        """Seconds by stage, in the order in which stages first ended."""
        return tuple(self._spent.items())

    def _tick(self) -> None:
        now = self._clock()
        if self._stages:
            stage = self._stages[-1]
            self._spent[stage] = self._spent.get(stage, 0.0) + now - self._since
        self._since = now
