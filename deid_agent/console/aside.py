"""Work away from the agent's loop: in threads that no stop waits for, one at a time for each thing."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from deid_agent.agent.faults import describe
from deid_agent.errors import DeidError

T = TypeVar("T")
_REST = 20


async def aside(work: Callable[[], T]) -> T:
    """What ``work`` gives, in a thread of its own.

    A daemon: the threads of ``asyncio.to_thread`` are waited for at the end, and a stop must not wait for a page.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # T may be None itself

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as problem:  # noqa: BLE001 - told to whoever waits
            error = problem
        with suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="console", daemon=True).start()
    return await done


class Kept(Generic[T]):
    """A result that takes a while to get: asked for, begun where it is missing or old, one run at a time.

    What took long is kept long: no page that somebody leaves open may have a topic read again and again.
    """

    def __init__(
        self, work: Callable[[], T], fresh_s: float = float("inf"), clock: Callable[[], float] = time.time
    ) -> None:
        self._work = work
        self._fresh_s = fresh_s
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._at: float | None = None
        self._result: T | None = None
        self._error = ""
        self._took_s = 0.0

    def ask(self) -> tuple[str, float | None, T | None, str]:
        """``running``, ``done`` or ``failed``; when that was; the last result there is; one line of what is wrong."""
        old = self._at is None or self._clock() - self._at > max(self._fresh_s, _REST * self._took_s)
        if old and not self.running:
            self._task = asyncio.create_task(self._run())
        state = "running" if self.running else "failed" if self._error else "done"
        return state, self._at, self._result, self._error

    @property
    def running(self) -> bool:
        """True while it is being got."""
        return self._task is not None and not self._task.done()

    async def soon(self, patience_s: float = 2.0) -> tuple[str, float | None, T | None, str]:
        """As ``ask``, after a short wait for what is being got."""
        self.ask()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_s)
        return self.ask()

    def close(self) -> None:
        """Wait for nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        began = self._clock()
        try:
            self._result, self._error = await aside(self._work), ""
        except DeidError as problem:
            self._error = str(problem)
        except Exception as problem:  # noqa: BLE001 - its text may quote what it read
            self._error = describe(problem)
        self._at = self._clock()
        self._took_s = self._at - began
