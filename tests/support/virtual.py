"""An event loop with a virtual clock: hours pass at once, and a deadlock is an error instead of a hang."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")
_AGES_S = 20_000.0


class Deadlock(AssertionError):
    """A deadlock: no task can run and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            if timeout is None:
                raise Deadlock("every task waits for something that nobody will do")
            self.now += timeout
            if self.now > _AGES_S:
                raise Deadlock("only timers are left, and none of them ends anything")
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is frozen while there is work, and jumps to the next timer when there is none. No threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """The coroutine's result, on its own loop with a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def pass_time(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)
