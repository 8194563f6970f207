"""The playground's process: begun when somebody comes, ended when nobody came for a while. The agent's loop only waits.

A text that takes too long is ended with the process, which begins anew; nothing else notices.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import orjson

from deid_agent.agent.faults import leading
from deid_agent.agent.job import Completed, Factory, Processed, Refused
from deid_agent.agent.lane import LaneSettings
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.agent.workers import WorkerPool
from deid_agent.errors import DeidError
from deid_agent.telemetry.emit import Telemetry

DEADLINE_S = 8.0
"""Less than a connection lives."""
_IDLE_S = 600.0


class BusyError(Exception):
    """Another text is at work, or the process is not there yet."""


class Room:
    """Takes one text at a time."""

    def __init__(self, factory: Factory, *, deadline_s: float = DEADLINE_S, idle_s: float = _IDLE_S) -> None:
        self.factory = factory
        self._limits = LaneSettings(deadline_s=deadline_s, attempts=1, start_timeout_s=120.0)
        self._idle_s = idle_s
        self._pool: WorkerPool | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._problem = ""
        self._there = asyncio.Event()
        self._count = 0
        self.at_work = False

    @property
    def open(self) -> bool:
        """True while there is a process, or one begins."""
        return self._task is not None

    def enter(self) -> tuple[str, str]:
        """``ready``, ``starting`` or ``failed``, and one line of what is wrong; begins what has not begun."""
        if self._task is not None and self._task.done():
            self._task = self._pool = None
            if self._problem:
                return "failed", self._problem
        if self._task is None:
            self._problem = ""
            self._there.clear()
            self._task = asyncio.create_task(self._run())
        self._stay()
        return "ready" if self._pool is not None and self._pool.up else "starting", ""

    async def soon(self, patience_s: float = 2.0) -> tuple[str, str]:
        """As ``enter``, after a short wait for a process that begins."""
        said = self.enter()
        if said[0] == "starting":
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._there.wait()
            said = self.enter()
        return said

    async def try_(self, payload: bytes, kind: bytes) -> Mapping[str, object]:
        """What became of a text: ``pages``, or ``refused`` with a reason. Raises ``BusyError``."""
        state, _ = self.enter()
        if state != "ready" or self._pool is None or self.at_work:
            raise BusyError
        self.at_work = True
        done: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

        def tell(_: Record, completed: Completed) -> None:
            if not done.done():
                done.set_result(completed)

        try:
            self._count += 1
            self._pool.submit(Record(Coordinates("playground", 0, self._count), payload, kind), tell)
            async with asyncio.timeout(self._limits.deadline_s + 1):
                result = (await done).result
        except TimeoutError:
            raise BusyError from None
        finally:
            self.at_work = False
        if isinstance(result, Processed):
            found: Mapping[str, object] = orjson.loads(result.payload)
            return found
        if isinstance(result, Refused):
            return {"refused": result.reason.value, "where": result.where, "fault": result.fault}
        return {"refused": "SUPPRESSED", "where": "", "fault": ""}

    async def close(self) -> None:
        """End the process now."""
        if self._idle is not None:
            self._idle.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        # Its own numbers: a text of somebody who tries things is none of the feed's restarts.
        self._pool = pool = WorkerPool(self.factory, 1, Telemetry(), self._limits)
        try:
            await pool.start()
            self._there.set()
            await pool.serve()
        except DeidError as problem:
            self._problem = str(problem)
        except Exception as problem:  # noqa: BLE001 - the console's fault is not the agent's
            self._problem = str(leading(problem))
        finally:
            self._pool = None
            await pool.stop()
            self._there.set()

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._leave)

    def _leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
