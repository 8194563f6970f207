"""One worker process as the agent sees it: takes jobs off the shared queue, with a deadline, restart and retry."""

import asyncio
import contextlib
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.context import SpawnProcess
from typing import Final

from deid_agent.agent.job import Completed, Factory, QueuedJob, Refused, Result, WorkerSettings, job_for
from deid_agent.agent.ports import Partition
from deid_agent.agent.worker_frames import Frame, FrameBuffer, FrameKind, decode_result, encode_job, pack_frame
from deid_agent.agent.worker_process import run_worker
from deid_agent.config import limit_blas_threads
from deid_agent.model import ConfigurationError, Reason, UnsafeError
from deid_agent.telemetry import Telemetry, WorkerRestarted

_WINDOW: Final = 2  # one job being processed, one already in the worker's socket
_MAX_WINDOW: Final = 32
# send this much work ahead in short jobs, because waking the worker up costs more than such a job
_AHEAD_NS: Final = 2_000_000
# the same for a worker that processes batches: the jobs of a batch must be there when it begins
_BATCH_AHEAD_NS: Final = 200_000_000
_CHUNK: Final = 1 << 18
_START_FAILURES: Final = 3
_GRACE_S: Final = 0.1
_BATCH_DEADLINE_S: Final = 2.0  # limit for a batch of jobs, or
_BATCH_DEADLINE_FACTOR: Final = 4  # this many times what the batch should take at the worker's recent pace


class Worker:
    """A worker process and the jobs that it has taken off ``queue``.

    ``open()`` starts the process, ``run()`` reads its answers and restarts it when it dies. ``distribute`` is called
    when jobs have returned to the queue. All methods belong to one event loop and never block it.
    """

    def __init__(
        self,
        number: int,
        factory: Factory,
        settings: WorkerSettings,
        telemetry: Telemetry,
        queue: deque[QueuedJob],
        distribute: Callable[[], None],
    ) -> None:
        self._number = number
        self._factory = factory
        self._settings = settings
        self._telemetry = telemetry
        self._queue = queue
        self._distribute = distribute
        self._sent: deque[tuple[int, QueuedJob]] = deque()
        self._jobs = 0
        self._process: SpawnProcess | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._buffer = FrameBuffer()
        self._ahead_ns = self._pace_ns = float(_AHEAD_NS)
        self._batch_left = 0  # unanswered jobs of the batch being processed: none of them can be blamed alone
        self._timer: asyncio.TimerHandle | None = None
        self._job_started = 0.0  # when the current job began
        self._slow: QueuedJob | None = None
        self._deadline_seen = False
        self._timed_out: QueuedJob | None = None

    @property
    def up(self) -> bool:
        """True while the worker takes jobs."""
        return self._writer is not None

    @property
    def waiting(self) -> int:
        """The number of jobs in the worker's socket that it has not begun."""
        return max(0, len(self._sent) - self._at_work)

    @property
    def load(self) -> int:
        """The number of jobs at the worker."""
        return len(self._sent)

    @property
    def room(self) -> int:
        """How many more jobs the worker may take; none behind a slow or isolated job."""
        head = self._sent[0][1] if self._sent else None
        if self._writer is None or (head is not None and (head is self._slow or head.isolated)):
            return 0
        return max(_WINDOW, min(_MAX_WINDOW, int(self._ahead_ns / self._pace_ns))) - len(self._sent)

    @property
    def _at_work(self) -> int:
        """How many of the jobs at the worker are being processed."""
        return max(1, self._batch_left)

    def take_jobs(self, most: int = _MAX_WINDOW) -> None:
        """Take jobs off the queue, as many as there is room for."""
        frames: list[bytes] = []
        idle, size = not self._sent, 0
        most = min(most, self.room)
        while self._queue and len(frames) < most and size < _CHUNK:
            item = self._queue[0]
            ours = item.parked_at == self._number  # it is still in our socket, and no other worker took it
            if item.isolated and self._sent and not item.finished and not ours:
                break
            self._queue.popleft()
            if item.finished:
                continue
            if ours:
                item.parked_at = None
                continue
            self._jobs += 1
            try:
                frame = pack_frame(encode_job(self._jobs, job_for(item.record, item.project)))
            except ValueError as error:
                refused = Completed(Refused(Reason.RESOURCE, stage="queue", fault=type(error).__name__))
                asyncio.get_running_loop().call_soon(item.finish, refused)
                continue
            self._sent.append((self._jobs, item))
            frames.append(frame)
            size += len(frame)
            if item.isolated:
                break
        if frames and self._writer is not None:
            self._writer.writelines(frames)
            if idle:
                self._start_timer()

    def forget(self, stream: Partition) -> None:
        """Do not retry the jobs of this partition that are at the worker."""
        for _, item in self._sent:
            item.discarded = item.discarded or item.record.coordinates.stream == stream

    async def open(self, starting: asyncio.Lock) -> None:
        """Start the process; one that dies before it is ready is started again.

        Raises ``ConfigurationError`` with the worker's own message if it cannot build its callable, ``UnsafeError`` if
        it dies before it can report that. ``starting`` serializes starts: the bookkeeping of multiprocessing is not
        thread-safe.
        """
        for failures in range(1, _START_FAILURES + 1):
            try:
                return await self._start_process(starting)
            except UnsafeError:
                await self._reap_process()
                if failures == _START_FAILURES:
                    raise

    async def _start_process(self, starting: asyncio.Lock) -> None:
        ours, theirs = socket.socketpair()
        try:
            limit_blas_threads()  # the child inherits the environment
            context = multiprocessing.get_context("spawn")
            limit = 2 * self._settings.deadline_s + 5
            arguments = (theirs, self._factory, limit)
            process = context.Process(target=run_worker, args=arguments, daemon=True, name=f"worker-{self._number}")
            async with starting:
                await asyncio.to_thread(process.start)
            self._process = process
            theirs.close()
            self._reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
            self._buffer = FrameBuffer()
        except BaseException:
            # Closing our end also ends a child that starts after we gave up.
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                (frame,) = await self._read()
            if frame.kind is FrameKind.FAILED:
                raise ConfigurationError((frame.fields[0] or b"").decode())
            if frame.number > 1 and self._ahead_ns < _BATCH_AHEAD_NS:
                self._ahead_ns = self._pace_ns = float(_BATCH_AHEAD_NS)
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            writer.close()
            raise UnsafeError(f"worker {self._number} did not start: {type(error).__name__}") from None
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self.take_jobs()

    async def run(self, starting: asyncio.Lock) -> None:
        """Read answers until cancelled. Raises ``UnsafeError`` if the worker cannot be restarted."""
        while True:
            try:
                answers = [
                    (frame, None if frame.kind is FrameKind.BATCH else decode_result(frame))
                    for frame in await self._read()
                ]
            except (EOFError, OSError, ValueError):
                await self._handle_exit()
                try:
                    await self.open(starting)
                except ConfigurationError as error:
                    raise UnsafeError(f"worker {self._number} cannot be restarted: {error}") from None
            else:
                self._handle_answers(answers)

    async def close(self) -> None:
        """Kill the process and wait for it."""
        if self._timer is not None:
            self._timer.cancel()
        self.kill()
        await self._reap_process()

    def kill(self) -> None:
        """Send SIGKILL. Does nothing if there is no process."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()

    async def _read(self) -> list[Frame]:
        """Return the next frames, at least one."""
        frames: list[Frame] = []
        while not frames:
            data = b"" if self._reader is None else await self._reader.read(_CHUNK)
            if not data:
                raise EOFError
            frames = self._buffer.feed(data)
        return frames

    def _start_timer(self) -> None:
        """Note that another job has begun. A running timer is kept: setting a new one for each job would cost more."""
        loop = asyncio.get_running_loop()
        self._job_started = loop.time()
        if self._timer is not None and self._slow is not None:
            self._timer.cancel()
            self._timer = None
        self._slow, self._deadline_seen = None, False
        if self._timer is None:
            self._timer = loop.call_later(
                min(self._settings.slow_after_s, self._settings.deadline_s), self._check_deadline
            )

    def _check_deadline(self) -> None:
        """Check how long the current job has been running: first move the jobs behind it to other workers, then kill
        the worker.

        A batch has a short deadline and its jobs are retried one by one, because a job that hangs must not hold up the
        others until its own deadline.
        """
        self._timer = None
        if not self._sent:
            return
        loop = asyncio.get_running_loop()
        waited, deadline_s = loop.time() - self._job_started, self._settings.deadline_s
        if self._batch_left:
            expected_s = self._batch_left * self._pace_ns / 1e9
            deadline_s = min(deadline_s, max(_BATCH_DEADLINE_S, _BATCH_DEADLINE_FACTOR * expected_s))
        slow_after_s = min(self._settings.slow_after_s, deadline_s)
        if waited < slow_after_s:
            left = slow_after_s - waited
        else:
            if self._slow is not self._sent[0][1]:
                self._slow = self._sent[0][1]
                self._requeue_waiting()
            left = deadline_s - waited
            if left <= 0 and self._deadline_seen:
                self._timed_out = self._sent[0][1]
                return self.kill()
            if left <= 0:
                # If the event loop itself was late, the answer may wait unread. Check again before the kill.
                self._deadline_seen, left = True, _GRACE_S
        self._timer = loop.call_later(left, self._check_deadline)

    def _requeue_waiting(self) -> None:
        """Return the jobs behind a slow one to the queue, for workers that have time."""
        for _, item in list(self._sent)[: self._at_work - 1 : -1]:
            if not item.discarded and not item.finished and item.parked_at is None:
                item.parked_at = self._number
                self._queue.appendleft(item)
        self._distribute()

    def _handle_answers(self, answers: Sequence[tuple[Frame, Result | None]]) -> None:
        """Handle answers: give the worker new jobs first, then report the results."""
        done = []
        for frame, result in answers:
            if result is None:
                self._batch_left = frame.number
                continue
            number, item = self._sent.popleft() if self._sent else (0, None)
            if item is None or number != frame.number:
                raise UnsafeError(f"worker {self._number} answered a job that it was not given")
            self._batch_left = max(0, self._batch_left - 1)
            self._pace_ns = max(1.0, 0.8 * self._pace_ns + 0.2 * frame.nanoseconds)
            done.append((item, Completed(result, item.failures + 1, frame.nanoseconds / 1e9)))
        if self._sent:
            self._start_timer()
        self.take_jobs()
        for item, completed in done:
            item.finish(completed)

    async def _handle_exit(self) -> None:
        """Handle the death of the worker: blame the job it was processing, and return all jobs to their places in the
        queue.

        In a batch the job to blame is unknown. Each job of the batch is isolated from now on.
        """
        timed_out, self._timed_out = self._timed_out, None
        head = self._sent[0][1] if self._sent and not self._sent[0][1].finished else None
        # If the worker was killed for a job that answered at the last moment, no job is blamed.
        blamed = head if not self._batch_left and (timed_out is None or timed_out is head) else None
        for _, item in list(self._sent)[: self._batch_left]:
            item.isolated = True
        self._batch_left = 0
        cause = "deadline" if timed_out is not None else "died"
        await self._reap_process()
        where = str(blamed.record.coordinates) if blamed is not None else ""
        self._telemetry.emit(WorkerRestarted(self._number, cause, where))
        poisoned = False
        if blamed is not None:
            blamed.failures += 1
            blamed.isolated = True
            poisoned = blamed.failures >= self._settings.attempts
        for _, item in reversed(self._sent):
            elsewhere, item.parked_at = item.parked_at is not None, None
            if not item.discarded and not item.finished and not elsewhere and not (poisoned and item is blamed):
                self._queue.appendleft(item)
        self._sent.clear()
        self._distribute()
        if blamed is not None and poisoned and not blamed.discarded:
            fault = "DeadlineExceeded" if timed_out is not None else "WorkerDied"
            refused = Refused(Reason.POISON, stage="worker", fault=fault)
            blamed.finish(Completed(refused, blamed.failures))

    async def _reap_process(self) -> None:
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
