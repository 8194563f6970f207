"""The agent: takes records from a transport through an executor and settles them, until it is told to stop."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from deid_agent import __version__
from deid_agent.agent.audit import AuditLog
from deid_agent.agent.faults import describe, leading
from deid_agent.agent.flow import Flow, Outside, RunnerSettings
from deid_agent.agent.health import Health
from deid_agent.agent.job import Executor
from deid_agent.agent.ports import KnowsLag, Partition, Transport
from deid_agent.errors import DeidError, TransientError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import (
    AgentFailed,
    AgentStarted,
    AgentStopped,
    Beaten,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordStale,
    Retrying,
)

T = TypeVar("T")


class Runner:
    """Runs one agent on one event loop; also the ``Listener`` of its transport.

    Every record that the transport brings settles once, in offset order per partition, or is left for the
    next owner; none is dropped. Starts and stops the transport and the executor; the audit log is
    opened and closed by whoever passes it.
    """

    def __init__(
        self,
        transport: Transport,
        executor: Executor,
        audit: AuditLog,
        settings: RunnerSettings | None = None,
        *,
        telemetry: Telemetry | None = None,
        health: Health | None = None,
    ) -> None:
        self._out = Outside(
            transport,
            executor,
            audit,
            settings or RunnerSettings(),
            telemetry or Telemetry(),
            health or Health(),
        )
        self._flows: dict[Partition, Flow] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._closing = False
        self._leave_by = math.inf
        self._away = "it did not answer"

    def request_stop(self) -> None:
        """Drain, settle, leave. Call it from the loop (a signal handler of it); calling it again changes nothing."""
        self._stop.set()

    async def run(self) -> None:
        """Work until stopped, or until the transport is exhausted and everything has settled.

        Raises ``ConfigurationError`` where the start fails for good, ``UnsafeError`` where going on could
        lose or double a record. Whatever it raises, transport and executor are down when it returns.
        """
        try:
            if not await self._ready_to_work():
                self._out.telemetry.emit(AgentStopped("requested", 0))
                return
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._tasks += [group.create_task(self._out.executor.serve()), group.create_task(self._beat())]
                try:
                    await self._work(group)
                finally:
                    # A group that is being torn down does not cancel a task that joins it late.
                    self._closing = True
                    for task in self._tasks:
                        task.cancel()
        except Exception as error:  # noqa: BLE001 - an unexpected exception must not carry its text upward
            cause = leading(error)
            self._out.telemetry.emit(AgentFailed(type(cause).__name__))
            raise cause from None
        finally:
            await self._close()

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """See ``Listener.assigned``."""
        if self._closing or self._group is None:
            return
        self._tasks = [task for task in self._tasks if not task.done()]
        for stream in streams:
            if (late := self._flows.get(stream)) is not None:
                late.end()  # its drain was cut off: when it ends by itself it must not forget its heir's records
            flow = self._flows[stream] = Flow(stream, self._out)
            self._out.health.assigned(stream)
            # A task that is cancelled before its first step never reaches a ``finally`` of its own.
            task = self._group.create_task(flow.run())
            task.add_done_callback(_ending(flow))
            self._tasks.append(task)
        self._out.telemetry.emit(PartitionsAssigned(_names(streams)))

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """See ``Listener.revoked``: all partitions drain to one deadline, then late results are mute."""
        flows = [self._flows[stream] for stream in streams if stream in self._flows]
        unsettled = await self._drain(flows, asyncio.get_running_loop().time() + self._out.settings.drain_s)
        for stream in streams:
            self._flows.pop(stream, None)
            self._out.health.revoked(stream)
        self._out.telemetry.emit(PartitionsRevoked(_names(streams), unsettled))

    async def _ready_to_work(self) -> bool:
        """True once the executor is up; False where a stop came first: a worker may load its models for long."""
        starting = asyncio.create_task(self._out.executor.start())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                return True
            self._expect_end()
            return False
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.wait({starting, stopping})

    async def _work(self, group: asyncio.TaskGroup) -> None:
        taking = group.create_task(self._take())
        stopping = group.create_task(self._stop.wait())
        await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self._closing = True
        self._out.health.stopping()
        self._expect_end()
        # Records of a poll that is cut off here were never started: no position passes them.
        taking.cancel()
        await asyncio.wait({taking})
        flows = list(self._flows.values())
        ending = group.create_task(self._drain(flows, math.inf))
        await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            self._expect_end()
            for flow in flows:
                flow.drain(self._leave_by - self._out.settings.leave_s)
        unsettled = await ending
        cause = "requested" if self._stop.is_set() else "exhausted"
        stopping.cancel()
        self._out.telemetry.emit(AgentStopped(cause, unsettled))

    def _expect_end(self) -> None:
        """A stop was asked for: one deadline for all that is left to do, from the moment we hear of it."""
        if self._stop.is_set() and math.isinf(self._leave_by):
            self._leave_by = asyncio.get_running_loop().time() + self._out.settings.drain_s

    async def _drain(self, flows: Sequence[Flow], deadline: float) -> int:
        """End these flows by the deadline; how many records they left unsettled."""
        for flow in flows:
            flow.drain(deadline)
        for flow in flows:
            await flow.closed.wait()
        return sum(flow.unsettled for flow in flows)

    async def _take(self) -> None:
        transport, settings = self._out.transport, self._out.settings
        await self._begin(settings.start_timeout_s)
        self._out.health.started()
        self._out.telemetry.emit(AgentStarted(__version__, self._out.executor.size))
        # A transport that overheard its cancellation must not go on reading for an agent that leaves.
        while not (transport.exhausted or self._closing):
            # Awaited here, not in a task of its own (as wait_for would): between the transport's
            # last look at the assignment and ours at the flows nothing else may run.
            records = await self._insist("poll", settings.poll_timeout_s, lambda: transport.poll(settings.poll_limit))
            for record in records:
                if (flow := self._flows.get(record.coordinates.stream)) is None:
                    self._out.telemetry.emit(RecordStale(str(record.coordinates)))
                else:
                    flow.take(record)
            if not records:
                await asyncio.sleep(0)

    async def _begin(self, patience_s: float) -> None:
        """Start the transport; give up where it stays away, since a wrong address looks like that too."""
        try:
            async with asyncio.timeout(patience_s):
                await self._insist("start", patience_s, lambda: self._out.transport.start(self))
        except TimeoutError:
            raise UnsafeError(f"the transport did not start within {patience_s:g} s: {self._away}") from None

    async def _insist(self, name: str, timeout_s: float, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, tried again for as long as the outside is only away for a while."""
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    return await call()
            except TransientError as error:
                attempt += 1
                self._away = str(error)
                delay = self._out.settings.delay_s(attempt)
                self._out.telemetry.emit(Retrying(name, "", attempt, delay, type(error).__name__, self._away))
                # A stop does not wait for this: it cancels the task.
                await asyncio.sleep(delay)
            except TimeoutError:
                # A poll that was cut off may have lost records, with the client's position already past them.
                raise UnsafeError(f"{name} of the transport took more than {timeout_s:g} s: start again") from None

    async def _beat(self) -> None:
        transport, health, executor = self._out.transport, self._out.health, self._out.executor
        while True:
            health.beat()
            health.workers(executor.up, executor.size)
            for stream, flow in self._flows.items():
                flow.gauge(transport.lag(stream) if isinstance(transport, KnowsLag) else None)
            self._out.telemetry.emit(Beaten(health.ready().ok, executor.waiting, executor.up, executor.size))
            await asyncio.sleep(self._out.settings.beat_s)

    async def _close(self) -> None:
        self._out.health.closing()
        left = max(0.0, self._leave_by - asyncio.get_running_loop().time())
        for name, stop in (("transport", self._out.transport.stop), ("executor", self._out.executor.stop)):
            try:
                async with asyncio.timeout(min(left, self._out.settings.stop_timeout_s)):
                    await stop()
            except (DeidError, TimeoutError, OSError) as error:
                # Everything that could settle has; the rest is for the next start.
                self._out.telemetry.emit(AgentFailed(f"stop of {name}: {describe(error)}"))


def _names(streams: Sequence[Partition]) -> tuple[str, ...]:
    return tuple(f"{stream.topic}/{stream.number}" for stream in sorted(streams))


def _ending(flow: Flow) -> Callable[[asyncio.Task[None]], None]:
    return lambda _: flow.end()
