"""One worker process: takes jobs off the queue that all share, with a deadline per job, restart and retry."""

import asyncio
import contextlib
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from typing import Final

from deid_agent.agent import child
from deid_agent.agent.frames import SIZE, Frame, FrameKind, job_frame, pack, result_of, unpack
from deid_agent.agent.job import Completed, Done, Factory, Refused, Result, job_for
from deid_agent.agent.ports import Partition, Record
from deid_agent.errors import ConfigurationError, Reason, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import WorkerRestarted

WINDOW: Final = 2
"""Most jobs that a worker has: one at work, one already in its socket."""
_START_FAILURES: Final = 3
_PATIENCE_S: Final = 0.5
_GRACE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How long a job and a start may take, and how often a job is tried before it counts as poison."""

    deadline_s: float = 30.0
    attempts: int = 3
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.deadline_s <= 0 or self.attempts < 1 or self.start_timeout_s <= 0:
            raise ConfigurationError("workers: deadline and start timeout must be above 0, attempts at least 1")


@dataclass(slots=True)
class Item:
    """A record that waits for a result. ``moved``: another item has it now, and whatever comes of this one is idle."""

    record: Record = field(repr=False)
    done: Done
    failures: int = 0
    number: int = 0
    forgotten: bool = False
    moved: bool = False


class Lane:
    """A worker process and the jobs that it has taken off ``queue``.

    ``open()`` brings the process up, ``run()`` reads its answers and brings it back when it dies. ``deal`` is called
    when jobs have come back to the queue. All methods belong to one event loop; nothing here blocks it.
    """

    def __init__(
        self,
        number: int,
        factory: Factory,
        settings: LaneSettings,
        telemetry: Telemetry,
        queue: deque[Item],
        deal: Callable[[], None],
    ) -> None:
        self._number = number
        self._factory = factory
        self._settings = settings
        self._telemetry = telemetry
        self._queue = queue
        self._deal = deal
        self._sent: deque[Item] = deque()
        self._jobs = 0
        self._process: SpawnProcess | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._slow = False
        self._late: Item | None = None

    @property
    def up(self) -> bool:
        """True while the worker takes jobs."""
        return self._writer is not None

    @property
    def waiting(self) -> int:
        """Jobs in the worker's socket that it has not begun."""
        return max(0, len(self._sent) - 1)

    def pull(self, most: int = WINDOW) -> None:
        """Take jobs off the queue until the worker has ``most``; nothing behind a job that is slow."""
        while self._writer is not None and self._queue and len(self._sent) < most and not self._slow:
            item = self._queue.popleft()
            self._jobs += 1
            item.number = self._jobs
            try:
                frame = pack(job_frame(item.number, job_for(item.record)))
            except ValueError as error:
                refused = Completed(Refused(Reason.RESOURCE, stage="queue", fault=type(error).__name__))
                asyncio.get_running_loop().call_soon(item.done, item.record, refused)
                continue
            self._sent.append(item)
            self._writer.write(frame)
            if len(self._sent) == 1:
                self._watch()

    def forget(self, stream: Partition) -> None:
        """Jobs of a partition that are at the worker are not tried again."""
        for item in self._sent:
            item.forgotten = item.forgotten or item.record.coordinates.stream == stream

    async def open(self, starting: asyncio.Lock) -> None:
        """Bring a process up; one that dies before it is ready is started again.

        ``ConfigurationError`` with the worker's own words where it can't build its callable, ``UnsafeError`` where
        it does not live long enough to say so. ``starting`` keeps two starts apart: multiprocessing's bookkeeping
        is not made for several threads.
        """
        for failures in range(1, _START_FAILURES + 1):
            try:
                return await self._open(starting)
            except UnsafeError:
                await self._bury()
                if failures == _START_FAILURES:
                    raise

    async def _open(self, starting: asyncio.Lock) -> None:
        ours, theirs = socket.socketpair()
        try:
            context = multiprocessing.get_context("spawn")
            limit = 2 * self._settings.deadline_s + 5
            arguments = (theirs, self._factory, limit)
            process = context.Process(target=child.main, args=arguments, daemon=True, name=f"lane-{self._number}")
            async with starting:
                await asyncio.to_thread(process.start)
            self._process = process
            theirs.close()
            self._reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        except BaseException:
            # Closing our end is enough to end a child that starts after we gave up.
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                frame = await self._read()
            if frame.kind is FrameKind.FAILED:
                raise ConfigurationError((frame.fields[0] or b"").decode())
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            writer.close()
            raise UnsafeError(f"worker {self._number} did not start: {type(error).__name__}") from None
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self.pull()

    async def run(self, starting: asyncio.Lock) -> None:
        """Read answers until cancelled. ``UnsafeError`` where the worker can't be brought back."""
        while True:
            try:
                frame = await self._read()
                result = result_of(frame)
            except (EOFError, OSError, ValueError):
                await self._mourn()
                try:
                    await self.open(starting)
                except ConfigurationError as error:
                    raise UnsafeError(f"worker {self._number} does not come back: {error}") from None
            else:
                self._answer(frame, result)

    async def close(self) -> None:
        """End the process now."""
        if self._alarm is not None:
            self._alarm.cancel()
        self.kill()
        await self._bury()

    def kill(self) -> None:
        """SIGKILL; harmless where there is no process."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()

    async def _read(self) -> Frame:
        reader = self._reader
        if reader is None:
            raise EOFError
        (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
        return unpack(await reader.readexactly(size))

    def _watch(self) -> None:
        """(Re)start the clock of the job that is at work."""
        self._slow = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._sent:
            patience = min(_PATIENCE_S, self._settings.deadline_s)
            self._alarm = asyncio.get_running_loop().call_later(patience, self._part, self._sent[0], patience)

    def _part(self, item: Item, waited: float) -> None:
        """The job at work is slow: the one behind it goes to a worker that has time."""
        self._alarm = asyncio.get_running_loop().call_later(self._settings.deadline_s - waited, self._expire, item)
        self._slow = True
        for behind in list(self._sent)[:0:-1]:
            if not behind.forgotten and not behind.moved:
                behind.moved = True
                self._queue.appendleft(Item(behind.record, behind.done, behind.failures))
        self._deal()

    def _expire(self, item: Item, warned: bool = False) -> None:
        if not self._sent or self._sent[0] is not item:
            return
        if not warned:
            # Where the loop itself was late, the answer may wait unread: a second look before the kill.
            self._alarm = asyncio.get_running_loop().call_later(_GRACE_S, self._expire, item, True)
            return
        self._late = item
        self.kill()

    def _answer(self, frame: Frame, result: Result) -> None:
        if not self._sent or self._sent[0].number != frame.number:
            raise UnsafeError(f"worker {self._number} answered a job that it was not asked")
        item = self._sent.popleft()
        self._watch()
        self.pull()
        if not item.moved:
            item.done(item.record, Completed(result, item.failures + 1, frame.nanoseconds / 1e9))

    async def _mourn(self) -> None:
        """The worker is gone: blame the job it had, put all jobs back where they were in the queue."""
        late, self._late = self._late, None
        head = self._sent[0] if self._sent and not self._sent[0].moved else None
        # A worker killed for a job that answered at the last moment: nobody is to blame.
        blamed = head if late is None or late is head else None
        cause = "deadline" if late is not None else "died"
        await self._bury()
        where = str(blamed.record.coordinates) if blamed is not None else ""
        self._telemetry.emit(WorkerRestarted(self._number, cause, where))
        poisoned = False
        if blamed is not None:
            blamed.failures += 1
            poisoned = blamed.failures >= self._settings.attempts
        for item in reversed(self._sent):
            if not item.forgotten and not item.moved and not (poisoned and item is blamed):
                self._queue.appendleft(item)
        self._sent.clear()
        self._watch()
        self._deal()
        if blamed is not None and poisoned and not blamed.forgotten:
            fault = "DeadlineExceeded" if late is not None else "WorkerDied"
            refused = Refused(Reason.POISON, stage="worker", fault=fault)
            blamed.done(blamed.record, Completed(refused, blamed.failures))

    async def _bury(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        process, self._process = self._process, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        if process is not None:
            if process.is_alive():
                process.kill()
            await asyncio.to_thread(process.join)
            process.close()
