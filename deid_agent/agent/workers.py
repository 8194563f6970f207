"""Executors: worker processes, or one thread for tests and small machines."""

import asyncio
import atexit
import math
import multiprocessing.util  # noqa: F401 - registers its own exit handler, which must run after ours
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from deid_agent.agent.faults import describe, leading
from deid_agent.agent.job import Completed, Done, Factory, Job, Process, Result, attempt, job_for
from deid_agent.agent.lane import Item, Lane, LaneSettings
from deid_agent.agent.ports import Partition, Record
from deid_agent.errors import ConfigurationError, DeidError
from deid_agent.telemetry.emit import Telemetry


class WorkerPool:
    """Worker processes that share one queue; see ``Executor`` for what it guarantees.

    A worker that dies or passes its deadline is started again and its job tried anew, at most
    ``settings.attempts`` times in all; then the record is refused as ``POISON``. Meanwhile the others take what
    it would have taken: a queue for each worker would hold up all that stand behind such a record.
    """

    def __init__(
        self,
        factory: Factory,
        workers: int,
        telemetry: Telemetry,
        settings: LaneSettings | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigurationError("a pool needs at least one worker; InlineExecutor works without")
        chosen = settings or LaneSettings()
        self._queue: deque[Item] = deque()
        self._lanes = [Lane(number, factory, chosen, telemetry, self._queue, self._deal) for number in range(workers)]
        self._starting: asyncio.Lock | None = None
        self._dealing = False

    @property
    def size(self) -> int:
        """How many workers there should be."""
        return len(self._lanes)

    @property
    def up(self) -> int:
        """How many workers are ready."""
        return sum(lane.up for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """How many records wait for a worker."""
        return len(self._queue) + sum(lane.waiting for lane in self._lanes)

    async def start(self) -> None:
        """Start all workers side by side; ``ConfigurationError`` where one can't be built."""
        self._starting = asyncio.Lock()
        atexit.register(self._kill)
        outcomes = await asyncio.gather(*(lane.open(self._starting) for lane in self._lanes), return_exceptions=True)
        if failures := [error for error in outcomes if error is not None]:
            await self.stop()
            raise failures[0]

    async def serve(self) -> None:
        """Read answers and bring workers back, until cancelled."""
        starting = self._starting
        if starting is None:
            raise ConfigurationError("start() comes before serve()")
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes:
                    group.create_task(lane.run(starting))
        except BaseExceptionGroup as group_error:
            raise leading(group_error) from None

    def submit(self, record: Record, done: Done) -> None:
        """See ``Executor.submit``."""
        self._queue.append(Item(record, done))
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def recall(self, stream: Partition) -> int | None:
        """See ``Executor.recall``."""
        waiting = [item for item in self._queue if not item.finished]
        recalled = [item for item in waiting if item.record.coordinates.stream == stream]
        for item in recalled:
            item.finished = True  # it may also be in the socket of a slow worker
        self._queue.clear()  # in place: the lanes hold it too
        self._queue.extend(item for item in waiting if not item.finished)
        return min((item.record.coordinates.offset for item in recalled), default=None)

    def forget(self, stream: Partition) -> None:
        """See ``Executor.forget``."""
        self.recall(stream)
        for lane in self._lanes:
            lane.forget(stream)

    async def stop(self) -> None:
        """Kill all workers and wait for them."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        atexit.unregister(self._kill)

    def _deal(self) -> None:
        """Give out what waits, so that no worker has more than another; first to those that have least."""
        self._dealing = False
        free = sorted((lane for lane in self._lanes if lane.room > 0), key=lambda lane: -lane.load)
        left, held, shares = len(self._queue), sum(lane.load for lane in free), list[int]()
        for place, lane in enumerate(free):
            level = math.ceil((left + held) / (len(free) - place))
            shares.append(max(0, min(level - lane.load, lane.room)))
            left, held = left - shares[-1], held - lane.load
        for lane, share in reversed(list(zip(free, shares, strict=True))):
            lane.pull(share)

    def _kill(self) -> None:
        for lane in self._lanes:
            lane.kill()


class InlineExecutor:
    """One thread of this process; see ``Executor``. A job that hangs can't be killed here: there is no deadline."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self._process: Process | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inline")
        self._queue: deque[tuple[Record, Done]] = deque()
        self._filled = asyncio.Event()

    @property
    def size(self) -> int:
        """Always one."""
        return 1

    @property
    def up(self) -> int:
        """One, once started."""
        return int(self._process is not None)

    @property
    def waiting(self) -> int:
        """How many records wait for the thread."""
        return len(self._queue)

    async def start(self) -> None:
        """Build the callable in the thread."""
        try:
            self._process = await asyncio.get_running_loop().run_in_executor(self._thread, self._factory)
        except DeidError as error:
            raise ConfigurationError(" ".join(str(error).split())) from None
        except Exception as error:  # noqa: BLE001 - told as the pool tells it
            raise ConfigurationError(f"the worker could not be built: {describe(error)}") from None

    async def serve(self) -> None:
        """Run jobs one after another, until cancelled."""
        loop = asyncio.get_running_loop()
        process = self._process
        if process is None:
            raise ConfigurationError("start() comes before serve()")
        while True:
            await self._filled.wait()
            while self._queue:
                record, done = self._queue.popleft()
                result, seconds = await loop.run_in_executor(self._thread, _timed, process, job_for(record))
                done(record, Completed(result, 1, seconds))
            self._filled.clear()

    def submit(self, record: Record, done: Done) -> None:
        """See ``Executor.submit``."""
        self._queue.append((record, done))
        self._filled.set()

    def recall(self, stream: Partition) -> int | None:
        """See ``Executor.recall``."""
        recalled = [record.coordinates.offset for record, _ in self._queue if record.coordinates.stream == stream]
        self._queue = deque(item for item in self._queue if item[0].coordinates.stream != stream)
        return min(recalled, default=None)

    def forget(self, stream: Partition) -> None:
        """See ``Executor.forget``."""
        self.recall(stream)

    async def stop(self) -> None:
        """Let the thread end after its job; does not wait for it."""
        self._process = None
        self._thread.shutdown(wait=False, cancel_futures=True)


def _timed(process: Process, job: Job) -> tuple[Result, float]:
    begin = perf_counter()
    return attempt(process, job), perf_counter() - begin
