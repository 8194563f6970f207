"""The playground's process: started when an operator opens the page, ended ten minutes after its last use.

The agent's event loop only waits for it. A text that takes too long ends with the process, which is then restarted.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import orjson

from deid_agent.agent import Completed, Coordinates, Factory, Processed, Record, Refused, WorkerPool, WorkerSettings
from deid_agent.model import DeidError, leading_error
from deid_agent.telemetry import Telemetry

PLAYGROUND_BYTES: Final = 256 * 1024
"""The largest text that the playground accepts, in bytes."""
DEADLINE_S = 8.0
"""The time for one text. It is shorter than the lifetime of a connection (``ServerLimits.lifetime_s``)."""
_IDLE_S = 600.0


class BusyError(Exception):
    """The process is starting, or is working on another text."""


class PlaygroundProcess:
    """Processes one text at a time with the job that ``factory`` builds in the process."""

    def __init__(self, factory: Factory, *, deadline_s: float = DEADLINE_S, idle_s: float = _IDLE_S) -> None:
        self.factory = factory
        self._limits = WorkerSettings(deadline_s=deadline_s, attempts=1, start_timeout_s=120.0)
        self._idle_s = idle_s
        self._pool: WorkerPool | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._problem = ""
        self._started = asyncio.Event()
        self._count = 0
        self.busy = False

    @property
    def running(self) -> bool:
        """True while the process exists or is starting."""
        return self._task is not None

    def start(self) -> tuple[str, str]:
        """Start the process if it does not run. Returns ``ready``, ``starting`` or ``failed``, and the error's line."""
        if self._task is not None and self._task.done():
            self._task = self._pool = None
            if self._problem:
                return "failed", self._problem
        if self._task is None:
            self._problem = ""
            self._started.clear()
            self._task = asyncio.create_task(self._run())
        self._restart_idle_timer()
        return "ready" if self._pool is not None and self._pool.up else "starting", ""

    async def wait_started(self, patience_s: float = 2.0) -> tuple[str, str]:
        """As ``start``, after waiting for a starting process for up to ``patience_s`` seconds."""
        state = self.start()
        if state[0] == "starting":
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._started.wait()
            state = self.start()
        return state

    async def process_text(self, payload: bytes, kind: bytes) -> Mapping[str, object]:
        """The result for one text: its ``pages``, or ``refused`` with the reason.

        Raises ``BusyError`` if the process is not ready.
        """
        state, _ = self.start()
        if state != "ready" or self._pool is None or self.busy:
            raise BusyError
        self.busy = True
        done: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

        def set_result(_: Record, completed: Completed) -> None:
            if not done.done():
                done.set_result(completed)

        try:
            self._count += 1
            self._pool.submit(Record(Coordinates("playground", 0, self._count), payload, kind), set_result)
            async with asyncio.timeout(self._limits.deadline_s + 1):
                result = (await done).result
        except TimeoutError:
            raise BusyError from None
        finally:
            self.busy = False
        if isinstance(result, Processed):
            found: Mapping[str, object] = orjson.loads(result.payload)
            return found
        if isinstance(result, Refused):
            return {"refused": result.reason.value, "where": result.where, "fault": result.fault}
        return {"refused": "SUPPRESSED", "where": "", "fault": ""}

    async def close(self) -> None:
        """End the process now."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        # A separate Telemetry: restarts that a playground text causes must not count as restarts of the feed's workers.
        self._pool = pool = WorkerPool(self.factory, 1, Telemetry(), self._limits)
        try:
            await pool.start()
            self._started.set()
            await pool.serve()
        except DeidError as problem:
            self._problem = str(problem)
        except Exception as problem:  # noqa: BLE001 - a fault of the playground must not end the agent
            self._problem = str(leading_error(problem))
        finally:
            self._pool = None
            await pool.stop()
            self._started.set()

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._stop_when_idle)

    def _stop_when_idle(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
