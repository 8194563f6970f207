"""Random schedules of two agents over two partitions with failures, rebalances and kills: nothing is lost,
duplicated or reordered. The cluster itself refuses a batch that skips, repeats or reorders."""

import asyncio
import contextlib
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from support.audits import NoAudit
from support.executors import ChoosyExecutor, EagerExecutor
from support.marks import MARKS
from support.memory_transport import Cluster, MemoryTransport
from support.virtual import pass_time, run_virtual

from deid_agent.agent.ports import Outcome, Partition
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model.errors import TransientError, UnsafeError

STREAMS = (Partition("adt", 0), Partition("adt", 1))
SETTINGS = RunnerSettings(
    poll_limit=3,
    max_in_flight=8,
    batch_records=4,
    linger_s=0.5,
    drain_s=2.0,
    commit_timeout_s=9999,
    poll_timeout_s=9999,
    retry_most_s=1.0,
)


@dataclass
class Agent:
    transport: MemoryTransport
    executor: ChoosyExecutor
    runner: Runner
    task: asyncio.Task[None]


class World:
    """The cluster, its agents, and the events of a schedule."""

    def __init__(self, deaf: bool, begun: int | None) -> None:
        self.cluster = Cluster(*STREAMS)
        self.agents: list[Agent] = []
        self.deaf = deaf
        self.begun = begun
        self.serial = 0
        self.shares: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        transport = MemoryTransport(self.cluster, finite=False)
        executor = ChoosyExecutor(deaf=self.deaf, begun=self.begun)
        runner = Runner(transport, executor, NoAudit(), SETTINGS, marks=MARKS)
        self.agents.append(Agent(transport, executor, runner, asyncio.create_task(runner.run())))
        await pass_time(0)

    async def apply(self, step: tuple[str, int]) -> None:
        name, number = step
        agent = self.agents[number % len(self.agents)] if self.agents else None
        match name:
            case "produce":
                self.serial += 1
                payload = b"%s %d" % (b"bad" if number % 5 == 0 else b"good", self.serial)
                self.cluster.produce(STREAMS[number % 2], payload, skip=number // 2 % 3)
            case "time":
                await pass_time(number / 4)
            case "finish" if agent:
                agent.executor.finish(number // 2)
            case "finish all" if agent:
                agent.executor.finish_all()
            case "fail":
                self.cluster.fail(("commit", "poll")[number % 2], TransientError("away"))
            case "share" if agent:
                # In the background: it waits for drains, which wait for work that later steps may finish.
                self.shares.append(asyncio.create_task(self.cluster.share()))
            case "begin" if len(self.agents) < 2:
                await self.begin()
            case "stop" if agent:
                agent.runner.request_stop()
            case "kill" if agent:
                self.cluster.kill(agent.transport)
                agent.task.cancel()
                # Its last error may be that it was fenced.
                with contextlib.suppress(asyncio.CancelledError, UnsafeError):
                    await agent.task
                self.agents.remove(agent)
        for gone in [a for a in self.agents if a.task.done()]:
            if not gone.task.cancelled():
                gone.task.result()
            self.agents.remove(gone)

    async def drain(self) -> None:
        """Stop all agents, then let a last agent finish the remaining records."""
        for agent in self.agents:
            agent.runner.request_stop()
        await asyncio.gather(*(agent.task for agent in self.agents))
        await asyncio.gather(*self.shares)
        last = Runner(MemoryTransport(self.cluster), EagerExecutor(), NoAudit(), SETTINGS, marks=MARKS)
        await last.run()

    def check(self) -> None:
        for stream in STREAMS:
            log, finished = self.cluster.logs[stream], self.cluster.finished[stream]
            assert [item.record.coordinates for item in finished] == [record.coordinates for record in log]
            for item in finished:
                bad = item.record.payload.startswith(b"bad")
                assert item.outcome is (Outcome.DEAD_LETTERED if bad else Outcome.PUBLISHED)
                assert bad or (item.output is not None and item.output.payload == b"clean " + item.record.payload)


NAMES = ("produce", "produce", "produce", "time", "finish", "finish", "finish", "finish all", "fail", "share", "begin")
STEPS = st.lists(st.tuples(st.sampled_from((*NAMES, "stop", "kill")), st.integers(0, 11)), max_size=60)


@settings(max_examples=150)
@given(steps=STEPS, deaf=st.booleans(), begun=st.sampled_from([None, 0, 1, 3]))
def test_nothing_is_lost_duplicated_or_reordered(steps: list[tuple[str, int]], deaf: bool, begun: int | None) -> None:
    async def schedule() -> None:
        world = World(deaf, begun)
        await world.begin()
        for step in steps:
            await world.apply(step)
        await world.drain()
        world.check()

    run_virtual(schedule)
