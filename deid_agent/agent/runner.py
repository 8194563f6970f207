"""The agent's main loop: takes records from a transport, processes them in an executor, and commits them."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from deid_agent import __version__
from deid_agent.agent.health import Health
from deid_agent.agent.job import Executor, Processed
from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.partition import PartitionProcessor
from deid_agent.agent.ports import AuditLog, CrosswalkLog, KnowsLag, KnowsOutage, Partition, Record, Transport
from deid_agent.agent.runner_context import RunnerContext, RunnerSettings
from deid_agent.model import DeidError, TransientError, UnsafeError, describe_exception, leading_error
from deid_agent.telemetry import (
    AgentFailed,
    AgentStarted,
    AgentStopped,
    HealthReported,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordStale,
    Retrying,
    Telemetry,
)

T = TypeVar("T")


class Runner:
    """Runs one agent on one event loop. It is also the ``AssignmentListener`` of its transport.

    Every delivered record is either committed once, in offset order per partition, or left to the next owner. None is
    dropped. The runner starts and stops the transport and the executor; the caller opens and closes the audit log.
    """

    def __init__(
        self,
        transport: Transport,
        executor: Executor,
        audit: AuditLog,
        settings: RunnerSettings | None = None,
        *,
        marks: OutputMarks,
        telemetry: Telemetry | None = None,
        health: Health | None = None,
        on_published: Callable[[Processed], None] | None = None,
        projects: Mapping[str, OutputMarks] | None = None,
        crosswalks: Mapping[str, CrosswalkLog] | None = None,
    ) -> None:
        """``on_published`` receives each result whose output is durable.

        ``projects`` are the marks of the topics that belong to another project than ``marks``. ``crosswalks`` are
        those of projects by name; the caller opens and closes them.
        """
        self._context = RunnerContext(
            transport,
            executor,
            audit,
            settings or RunnerSettings(),
            telemetry or Telemetry(),
            health or Health(),
            marks,
            on_published,
            projects or {},
            crosswalks or {},
        )
        self._processors: dict[Partition, PartitionProcessor] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._closing = False
        self._stop_deadline = math.inf
        self._last_error = "it did not answer"

    def request_stop(self) -> None:
        """Drain, commit and leave. Call it from the loop, for example in a signal handler. Safe to call twice."""
        self._stop.set()

    async def run(self) -> None:
        """Work until stopped, or until the transport is exhausted and everything is committed.

        Raises ``ConfigurationError`` if the start fails permanently, ``UnsafeError`` if continuing could lose or
        duplicate a record. Transport and executor are stopped in every case.
        """
        try:
            if not await self._start_executor():
                self._context.telemetry.emit(AgentStopped("requested", 0))
                return
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._tasks += [
                    group.create_task(self._context.executor.serve()),
                    group.create_task(self._report_health()),
                ]
                try:
                    await self._work(group)
                finally:
                    # A task group that is being torn down does not cancel a task that joins it late.
                    self._closing = True
                    for task in self._tasks:
                        task.cancel()
        except Exception as error:  # noqa: BLE001 - the text of an unexpected exception may quote a message
            cause = leading_error(error)
            self._context.telemetry.emit(AgentFailed(type(cause).__name__))
            raise cause from None
        finally:
            await self._close()

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """See ``AssignmentListener.assigned``."""
        if self._closing or self._group is None:
            return
        self._tasks = [task for task in self._tasks if not task.done()]
        for stream in streams:
            if (predecessor := self._processors.get(stream)) is not None:
                # its drain was cut off: when it ends by itself it must not forget the records of its successor
                predecessor.close()
            processor = self._processors[stream] = PartitionProcessor(stream, self._context)
            self._context.health.assigned(stream)
            # A task that is cancelled before its first step never reaches its own ``finally``.
            task = self._group.create_task(processor.run())
            task.add_done_callback(_close_callback(processor))
            self._tasks.append(task)
        self._context.telemetry.emit(PartitionsAssigned(_stream_names(streams)))

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """See ``AssignmentListener.revoked``. All partitions drain until one deadline; later results are ignored."""
        processors = [self._processors[stream] for stream in streams if stream in self._processors]
        unfinished = await self._drain(processors, asyncio.get_running_loop().time() + self._context.settings.drain_s)
        for stream in streams:
            self._processors.pop(stream, None)
            self._context.health.revoked(stream)
        self._context.telemetry.emit(PartitionsRevoked(_stream_names(streams), unfinished))

    async def _start_executor(self) -> bool:
        """Start the executor; return False if a stop was requested first, since loading models can take long."""
        starting = asyncio.create_task(self._context.executor.start())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                return True
            self._set_stop_deadline()
            return False
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.wait({starting, stopping})

    async def _work(self, group: asyncio.TaskGroup) -> None:
        taking = group.create_task(self._poll_records())
        stopping = group.create_task(self._stop.wait())
        await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self._closing = True
        self._context.health.stopping()
        self._set_stop_deadline()
        # Records of a poll that is cancelled here were never started, so no position passes them.
        taking.cancel()
        await asyncio.wait({taking})
        processors = list(self._processors.values())
        ending = group.create_task(self._drain(processors, math.inf))
        await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            self._set_stop_deadline()
            for processor in processors:
                processor.drain(self._stop_deadline - self._context.settings.leave_s)
        unfinished = await ending
        cause = "requested" if self._stop.is_set() else "exhausted"
        stopping.cancel()
        self._context.telemetry.emit(AgentStopped(cause, unfinished))

    def _set_stop_deadline(self) -> None:
        """After a stop request, set one deadline for all remaining work, counted from the moment of the request."""
        if self._stop.is_set() and math.isinf(self._stop_deadline):
            self._stop_deadline = asyncio.get_running_loop().time() + self._context.settings.drain_s

    async def _drain(self, processors: Sequence[PartitionProcessor], deadline: float) -> int:
        """Drain these processors until the deadline; return how many records they leave uncommitted."""
        for processor in processors:
            processor.drain(deadline)
        for processor in processors:
            await processor.closed.wait()
        return sum(processor.unfinished for processor in processors)

    async def _poll_records(self) -> None:
        transport, settings = self._context.transport, self._context.settings
        await self._start_transport(settings.start_timeout_s)
        self._context.health.started()
        self._context.telemetry.emit(AgentStarted(__version__, self._context.executor.size))
        # A transport that ignored its cancellation must not keep reading for an agent that leaves.
        while not (transport.exhausted or self._closing):
            # Awaited here, not in a separate task (as wait_for would do): between the transport's last check of the
            # assignment and our lookup of the processors nothing else may run.
            records = await self._retry("poll", settings.poll_timeout_s, lambda: transport.poll(settings.poll_limit))
            self._take(records)
            if not records:
                await asyncio.sleep(0)

    def _take(self, records: Sequence[Record]) -> None:
        """Start these records. The processor is looked up once for consecutive records of one partition."""
        topic, number, processor = "", -1, None
        for record in records:
            at = record.coordinates
            if at.partition != number or at.topic != topic:
                topic, number, processor = at.topic, at.partition, self._processors.get(at.stream)
            if processor is None:
                self._context.telemetry.emit(RecordStale(str(at)))
            else:
                processor.take(record)

    async def _start_transport(self, timeout_s: float) -> None:
        """Start the transport. Give up after ``timeout_s``, because a wrong address looks like an outage."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._retry("start", timeout_s, lambda: self._context.transport.start(self))
        except TimeoutError:
            raise UnsafeError(f"the transport did not start within {timeout_s:g} s: {self._last_error}") from None

    async def _retry(self, name: str, timeout_s: float, call: Callable[[], Awaitable[T]]) -> T:
        """Return the call's result; repeat it as long as it raises ``TransientError``."""
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    return await call()
            except TransientError as error:
                attempt += 1
                self._last_error = str(error)
                delay = self._context.settings.delay_s(attempt)
                self._context.telemetry.emit(Retrying(name, "", attempt, delay, type(error).__name__, self._last_error))
                # A stop does not wait for this: it cancels the task.
                await asyncio.sleep(delay)
            except TimeoutError:
                # A poll that was cut off may have lost records, and the client's position may already be past them.
                raise UnsafeError(f"{name} of the transport took more than {timeout_s:g} s: start again") from None

    async def _report_health(self) -> None:
        transport, health, executor = self._context.transport, self._context.health, self._context.executor
        while True:
            health.beat()
            health.workers(executor.up, executor.size)
            health.outage(transport.outage if isinstance(transport, KnowsOutage) else "")
            for stream, processor in self._processors.items():
                processor.report_gauges(transport.lag(stream) if isinstance(transport, KnowsLag) else None)
            self._context.telemetry.emit(
                HealthReported(health.ready().ok, executor.waiting, executor.up, executor.size)
            )
            await asyncio.sleep(self._context.settings.beat_s)

    async def _close(self) -> None:
        self._context.health.closing()
        left = max(0.0, self._stop_deadline - asyncio.get_running_loop().time())
        for name, stop in (("transport", self._context.transport.stop), ("executor", self._context.executor.stop)):
            try:
                async with asyncio.timeout(min(left, self._context.settings.stop_timeout_s)):
                    await stop()
            except (DeidError, TimeoutError, OSError) as error:
                # Everything that could be committed is committed. The rest is for the next start.
                self._context.telemetry.emit(AgentFailed(f"stop of {name}: {describe_exception(error)}"))


def _stream_names(streams: Sequence[Partition]) -> tuple[str, ...]:
    return tuple(str(stream) for stream in sorted(streams))


def _close_callback(processor: PartitionProcessor) -> Callable[[asyncio.Task[None]], None]:
    return lambda _: processor.close()
