"""One worker process: takes jobs off the queue that all share, with a deadline per job, restart and retry."""

import asyncio
import contextlib
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from typing import Final

from deid_agent.agent import child
from deid_agent.agent.frames import Frame, FrameKind, Inbox, job_frame, pack, result_of
from deid_agent.agent.job import Completed, Done, Factory, Refused, Result, job_for
from deid_agent.agent.ports import Partition, Record
from deid_agent.errors import ConfigurationError, Reason, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import WorkerRestarted

_WINDOW: Final = 2  # one job at work, one already in the worker's socket
_WIDEST: Final = 32
_AHEAD_NS: Final = 2_000_000  # short jobs go in bundles of so much work: a wake-up costs more than they do
_TOGETHER_NS: Final = 200_000_000  # the same for a worker that does jobs together: they must be there when it begins
_CHUNK: Final = 1 << 18
_START_FAILURES: Final = 3
_PATIENCE_S: Final = 0.5
_GRACE_S: Final = 0.1
_TOGETHER_S: Final = 2.0  # for jobs that are done together: ten times what they should take, or so many times
_TIMES: Final = 4  # what they would take at the pace of late


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How long a job and a start may take, and how often a job is tried before it counts as poison."""

    deadline_s: float = 60.0
    attempts: int = 3
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.deadline_s <= 0 or self.attempts < 1 or self.start_timeout_s <= 0:
            raise ConfigurationError("workers: deadline and start timeout must be above 0, attempts at least 1")


@dataclass(slots=True)
class Item:
    """A record that waits for a result: in the queue, at a worker, or at both where that worker is slow.

    ``behind`` is the lane in whose socket it waits behind a slow job. The first result counts. One that is ``alone``
    was with others at a worker that died: it goes to a worker that has nothing else, so that one is to blame.
    """

    record: Record = field(repr=False)
    done: Done
    failures: int = 0
    behind: int | None = None
    alone: bool = False
    forgotten: bool = False
    finished: bool = False

    def finish(self, completed: Completed) -> None:
        """Tell the result, once."""
        if not self.finished:
            self.finished = True
            self.done(self.record, completed)


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
        self._sent: deque[tuple[int, Item]] = deque()
        self._jobs = 0
        self._process: SpawnProcess | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._inbox = Inbox()
        self._ahead_ns = self._pace_ns = float(_AHEAD_NS)
        self._together = 0  # so many of the first jobs are done together, so that none can be blamed
        self._alarm: asyncio.TimerHandle | None = None
        self._since = 0.0  # when the job at work began
        self._slow: Item | None = None
        self._warned = False
        self._late: Item | None = None

    @property
    def up(self) -> bool:
        """True while the worker takes jobs."""
        return self._writer is not None

    @property
    def waiting(self) -> int:
        """Jobs in the worker's socket that it has not begun."""
        return max(0, len(self._sent) - self._begun)

    @property
    def load(self) -> int:
        """Jobs at the worker."""
        return len(self._sent)

    @property
    def room(self) -> int:
        """How many more jobs the worker may be given; none behind a job that is slow, or goes alone."""
        head = self._sent[0][1] if self._sent else None
        if self._writer is None or (head is not None and (head is self._slow or head.alone)):
            return 0
        return max(_WINDOW, min(_WIDEST, int(self._ahead_ns / self._pace_ns))) - len(self._sent)

    @property
    def _begun(self) -> int:
        """How many of the jobs at the worker are at work."""
        return max(1, self._together)

    def pull(self, most: int = _WIDEST) -> None:
        """Take jobs off the queue, as many as there is room for."""
        frames: list[bytes] = []
        idle, size = not self._sent, 0
        most = min(most, self.room)
        while self._queue and len(frames) < most and size < _CHUNK:
            item = self._queue[0]
            ours = item.behind == self._number  # it is still in our socket, and nobody else had time
            if item.alone and self._sent and not item.finished and not ours:
                break
            self._queue.popleft()
            if item.finished:
                continue
            if ours:
                item.behind = None
                continue
            self._jobs += 1
            try:
                frame = pack(job_frame(self._jobs, job_for(item.record)))
            except ValueError as error:
                refused = Completed(Refused(Reason.RESOURCE, stage="queue", fault=type(error).__name__))
                asyncio.get_running_loop().call_soon(item.finish, refused)
                continue
            self._sent.append((self._jobs, item))
            frames.append(frame)
            size += len(frame)
            if item.alone:
                break
        if frames and self._writer is not None:
            self._writer.writelines(frames)
            if idle:
                self._watch()

    def forget(self, stream: Partition) -> None:
        """Jobs of a partition that are at the worker are not tried again."""
        for _, item in self._sent:
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
            self._inbox = Inbox()
        except BaseException:
            # Closing our end is enough to end a child that starts after we gave up.
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                (frame,) = await self._read()
            if frame.kind is FrameKind.FAILED:
                raise ConfigurationError((frame.fields[0] or b"").decode())
            if frame.number > 1 and self._ahead_ns < _TOGETHER_NS:
                self._ahead_ns = self._pace_ns = float(_TOGETHER_NS)
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
                answers = [
                    (frame, None if frame.kind is FrameKind.TOGETHER else result_of(frame))
                    for frame in await self._read()
                ]
            except (EOFError, OSError, ValueError):
                await self._mourn()
                try:
                    await self.open(starting)
                except ConfigurationError as error:
                    raise UnsafeError(f"worker {self._number} does not come back: {error}") from None
            else:
                self._take(answers)

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

    async def _read(self) -> list[Frame]:
        """The next frames, at least one."""
        frames: list[Frame] = []
        while not frames:
            data = b"" if self._reader is None else await self._reader.read(_CHUNK)
            if not data:
                raise EOFError
            frames = self._inbox.feed(data)
        return frames

    def _watch(self) -> None:
        """Another job is at work. The clock looks at it when it rings; setting it anew for each would cost more."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._alarm is not None and self._slow is not None:
            self._alarm.cancel()
            self._alarm = None
        self._slow, self._warned = None, False
        if self._alarm is None:
            self._alarm = loop.call_later(min(_PATIENCE_S, self._settings.deadline_s), self._look)

    def _look(self) -> None:
        """How long has the job been at work? First those behind it go elsewhere, then it ends; jobs that are done
        together end soon, and go on one by one: one that hangs must not hold up the others until its deadline.
        """
        self._alarm = None
        if not self._sent:
            return
        loop = asyncio.get_running_loop()
        waited, deadline_s = loop.time() - self._since, self._settings.deadline_s
        if self._together:
            expected_s = self._together * self._pace_ns / 1e9
            deadline_s = min(deadline_s, max(_TOGETHER_S, _TIMES * expected_s))
        patience_s = min(_PATIENCE_S, deadline_s)
        if waited < patience_s:
            left = patience_s - waited
        else:
            if self._slow is not self._sent[0][1]:
                self._slow = self._sent[0][1]
                self._part()
            left = deadline_s - waited
            if left <= 0 and self._warned:
                self._late = self._sent[0][1]
                return self.kill()
            if left <= 0:
                # Where the loop itself was late, the answer may wait unread: a second look before the kill.
                self._warned, left = True, _GRACE_S
        self._alarm = loop.call_later(left, self._look)

    def _part(self) -> None:
        """What is behind a slow job goes to workers that have time."""
        for _, item in list(self._sent)[: self._begun - 1 : -1]:
            if not item.forgotten and not item.finished and item.behind is None:
                item.behind = self._number
                self._queue.appendleft(item)
        self._deal()

    def _take(self, answers: Sequence[tuple[Frame, Result | None]]) -> None:
        """The first jobs at the worker are done: give it others before anything else, then tell."""
        done = []
        for frame, result in answers:
            if result is None:
                self._together = frame.number
                continue
            number, item = self._sent.popleft() if self._sent else (0, None)
            if item is None or number != frame.number:
                raise UnsafeError(f"worker {self._number} answered a job that it was not asked")
            self._together = max(0, self._together - 1)
            self._pace_ns = max(1.0, 0.8 * self._pace_ns + 0.2 * frame.nanoseconds)
            done.append((item, Completed(result, item.failures + 1, frame.nanoseconds / 1e9)))
        if self._sent:
            self._watch()
        self.pull()
        for item, completed in done:
            item.finish(completed)

    async def _mourn(self) -> None:
        """The worker is gone: blame the job it had, put all jobs back where they were in the queue.

        Of jobs that were done together nobody knows which it was: each goes alone from here on.
        """
        late, self._late = self._late, None
        head = self._sent[0][1] if self._sent and not self._sent[0][1].finished else None
        # A worker killed for a job that answered at the last moment: nobody is to blame.
        blamed = head if not self._together and (late is None or late is head) else None
        for _, item in list(self._sent)[: self._together]:
            item.alone = True
        self._together = 0
        cause = "deadline" if late is not None else "died"
        await self._bury()
        where = str(blamed.record.coordinates) if blamed is not None else ""
        self._telemetry.emit(WorkerRestarted(self._number, cause, where))
        poisoned = False
        if blamed is not None:
            blamed.failures += 1
            blamed.alone = True
            poisoned = blamed.failures >= self._settings.attempts
        for _, item in reversed(self._sent):
            elsewhere, item.behind = item.behind is not None, None
            if not item.forgotten and not item.finished and not elsewhere and not (poisoned and item is blamed):
                self._queue.appendleft(item)
        self._sent.clear()
        self._deal()
        if blamed is not None and poisoned and not blamed.forgotten:
            fault = "DeadlineExceeded" if late is not None else "WorkerDied"
            refused = Refused(Reason.POISON, stage="worker", fault=fault)
            blamed.finish(Completed(refused, blamed.failures))

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
