"""A pool of real worker processes with the settings of a test, and the results it reports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deid_agent.agent.job import Completed, Executor, Factory, WorkerSettings
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.telemetry.emit import Telemetry

PATIENCE_S = 60.0


def record(offset: int, payload: bytes, key: bytes | None = b"k", partition: int = 0) -> Record:
    return Record(Coordinates("adt", partition, offset), payload, key, (("h", b"\xff"),))


class Results:
    """Collects results in order."""

    def __init__(self) -> None:
        self.done: list[tuple[int, Completed]] = []
        self._more = asyncio.Event()

    def __call__(self, record: Record, completed: Completed) -> None:
        self.done.append((record.coordinates.offset, completed))
        self._more.set()

    async def wait(self, count: int) -> list[tuple[int, Completed]]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.done) < count:
                self._more.clear()
                await self._more.wait()
        return self.done


@asynccontextmanager
async def serving(executor: Executor) -> AsyncIterator[asyncio.Task[None]]:
    await executor.start()
    task = asyncio.create_task(executor.serve())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        await executor.stop()


def pool(factory: Factory, workers: int = 1, telemetry: Telemetry | None = None, **settings: float) -> WorkerPool:
    chosen = WorkerSettings(settings.get("deadline_s", 30.0), int(settings.get("attempts", 3)), PATIENCE_S)
    return WorkerPool(factory, workers, telemetry or Telemetry(), chosen)
