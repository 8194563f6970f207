"""Blocking work in daemon threads, away from the agent's event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from deid_agent.model import DeidError, describe_exception

T = TypeVar("T")
_REST_FACTOR = 20
"""A result that took n seconds to compute is kept for at least 20 n seconds."""


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a daemon thread and return its result, or raise its exception.

    The process waits for the threads of ``asyncio.to_thread`` when it ends. A page of the console must not delay that.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def set_outcome(result: T | None, error: BaseException | None) -> None:
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
        except BaseException as problem:  # noqa: BLE001 - re-raised in the waiting task
            error = problem
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(set_outcome, result, error)

    threading.Thread(target=run, name="console", daemon=True).start()
    return await done


class CachedResult(Generic[T]):
    """The result of slow work, computed in the background when it is requested and missing or old.

    One computation runs at a time. The lifetime of a result is ``fresh_s``, or longer if the computation took long:
    an open page must not cause a whole topic to be read again and again.
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
        self._expired = False

    def request(self) -> tuple[str, float | None, T | None, str]:
        """The state, without waiting: ``running``, ``done`` or ``failed``; the time, result and error of the last run.

        Starts a computation if the last result is missing or old. The result of the last run stays available until
        then; the error is one line, empty if the run succeeded.
        """
        lifetime_s = max(self._fresh_s, _REST_FACTOR * self._took_s)
        old = self._at is None or self._expired or self._clock() - self._at > lifetime_s
        if old and not self.running:
            self._task = asyncio.create_task(self._run())
        state = "running" if self.running else "failed" if self._error else "done"
        return state, self._at, self._result, self._error

    @property
    def running(self) -> bool:
        """True while the result is being computed."""
        return self._task is not None and not self._task.done()

    async def wait(self, patience_s: float = 2.0) -> tuple[str, float | None, T | None, str]:
        """As ``request``, after waiting for a running computation for up to ``patience_s`` seconds."""
        self.request()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_s)
        return self.request()

    def expire(self) -> None:
        """Treat the result as old, also that of a computation that runs now: it may have read the previous state."""
        self._expired = True

    def close(self) -> None:
        """Stop waiting for a running computation."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        began, self._expired = self._clock(), False
        try:
            self._result, self._error = await run_in_thread(self._work), ""
        except DeidError as problem:
            self._error = str(problem)
        except Exception as problem:  # noqa: BLE001 - its text may quote the data that was read
            self._error = describe_exception(problem)
        self._at = self._clock()
        self._took_s = self._at - began
