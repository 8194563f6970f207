"""The executors: a pool of worker processes, or one thread for tests and small machines."""

import asyncio
import atexit
import math
import multiprocessing.util  # noqa: F401 - registers its own exit handler, which must run after ours
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from deid_agent.agent.job import (
    Completed,
    Factory,
    Job,
    Process,
    QueuedJob,
    Result,
    ResultCallback,
    WorkerSettings,
    attempt,
    job_for,
)
from deid_agent.agent.ports import Partition, Record
from deid_agent.agent.worker import Worker
from deid_agent.model import ConfigurationError, DeidError, describe_exception, leading_error
from deid_agent.telemetry import Telemetry


class WorkerPool:
    """Worker processes that share one queue. See ``Executor`` for the guarantees.

    A worker that dies or exceeds its deadline is restarted and its job is tried again, at most ``settings.attempts``
    times in all; then the record is refused as ``POISON``. The other workers take the remaining jobs meanwhile: with
    one queue per worker, all jobs behind such a record would wait.
    """

    def __init__(
        self,
        factory: Factory,
        workers: int,
        telemetry: Telemetry,
        settings: WorkerSettings | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigurationError("a pool needs at least one worker; InlineExecutor works without")
        chosen = settings or WorkerSettings()
        self._queue: deque[QueuedJob] = deque()
        self._workers = [
            Worker(number, factory, chosen, telemetry, self._queue, self._distribute) for number in range(workers)
        ]
        self._starting: asyncio.Lock | None = None
        self._distributing = False

    @property
    def size(self) -> int:
        """The configured number of workers."""
        return len(self._workers)

    @property
    def up(self) -> int:
        """The number of workers that are ready."""
        return sum(worker.up for worker in self._workers)

    @property
    def waiting(self) -> int:
        """The number of records that wait for a worker."""
        return len(self._queue) + sum(worker.waiting for worker in self._workers)

    async def start(self) -> None:
        """Start all workers concurrently. Raises ``ConfigurationError`` if one cannot be built."""
        self._starting = asyncio.Lock()
        atexit.register(self._kill)
        outcomes = await asyncio.gather(
            *(worker.open(self._starting) for worker in self._workers), return_exceptions=True
        )
        if failures := [error for error in outcomes if error is not None]:
            await self.stop()
            raise failures[0]

    async def serve(self) -> None:
        """Read answers and restart workers, until cancelled."""
        starting = self._starting
        if starting is None:
            raise ConfigurationError("start() comes before serve()")
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(worker.run(starting))
        except BaseExceptionGroup as group_error:
            raise leading_error(group_error) from None

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        """See ``Executor.submit``."""
        self._queue.append(QueuedJob(record, done, project=project))
        if not self._distributing:
            self._distributing = True
            asyncio.get_running_loop().call_soon(self._distribute)

    def recall(self, stream: Partition) -> int | None:
        """See ``Executor.recall``."""
        waiting = [item for item in self._queue if not item.finished]
        recalled = [item for item in waiting if item.record.coordinates.stream == stream]
        for item in recalled:
            item.finished = True  # it may also be in the socket of a slow worker
        self._queue.clear()  # in place: the workers share it
        self._queue.extend(item for item in waiting if not item.finished)
        return min((item.record.coordinates.offset for item in recalled), default=None)

    def forget(self, stream: Partition) -> None:
        """See ``Executor.forget``."""
        self.recall(stream)
        for worker in self._workers:
            worker.forget(stream)

    async def stop(self) -> None:
        """Kill all workers and wait for them."""
        await asyncio.gather(*(worker.close() for worker in self._workers))
        atexit.unregister(self._kill)

    def _distribute(self) -> None:
        """Distribute the queue so that all workers have the same load, the least loaded first."""
        self._distributing = False
        free = sorted((worker for worker in self._workers if worker.room > 0), key=lambda worker: -worker.load)
        left, held, shares = len(self._queue), sum(worker.load for worker in free), list[int]()
        for place, worker in enumerate(free):
            level = math.ceil((left + held) / (len(free) - place))
            shares.append(max(0, min(level - worker.load, worker.room)))
            left, held = left - shares[-1], held - worker.load
        for worker, share in reversed(list(zip(free, shares, strict=True))):
            worker.take_jobs(share)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


class InlineExecutor:
    """An executor with one thread of this process; see ``Executor``. It has no deadline: a job that hangs cannot be
    killed.
    """

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self._process: Process | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inline")
        self._queue: deque[tuple[Record, ResultCallback, str]] = deque()
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
        """The number of records that wait for the thread."""
        return len(self._queue)

    async def start(self) -> None:
        """Build the callable in the thread."""
        try:
            self._process = await asyncio.get_running_loop().run_in_executor(self._thread, self._factory)
        except DeidError as error:
            raise ConfigurationError(" ".join(str(error).split())) from None
        except Exception as error:  # noqa: BLE001 - reported as by the pool
            raise ConfigurationError(f"the worker could not be built: {describe_exception(error)}") from None

    async def serve(self) -> None:
        """Run jobs one after another, until cancelled."""
        loop = asyncio.get_running_loop()
        process = self._process
        if process is None:
            raise ConfigurationError("start() comes before serve()")
        while True:
            await self._filled.wait()
            while self._queue:
                record, done, project = self._queue.popleft()
                result, seconds = await loop.run_in_executor(self._thread, _timed, process, job_for(record, project))
                done(record, Completed(result, 1, seconds))
            self._filled.clear()

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        """See ``Executor.submit``."""
        self._queue.append((record, done, project))
        self._filled.set()

    def recall(self, stream: Partition) -> int | None:
        """See ``Executor.recall``."""
        recalled = [record.coordinates.offset for record, *_ in self._queue if record.coordinates.stream == stream]
        self._queue = deque(item for item in self._queue if item[0].coordinates.stream != stream)
        return min(recalled, default=None)

    def forget(self, stream: Partition) -> None:
        """See ``Executor.forget``."""
        self.recall(stream)

    async def stop(self) -> None:
        """Let the thread end after its current job, without waiting for it."""
        self._process = None
        self._thread.shutdown(wait=False, cancel_futures=True)


def _timed(process: Process, job: Job) -> tuple[Result, float]:
    begin = perf_counter()
    return attempt(process, job), perf_counter() - begin
