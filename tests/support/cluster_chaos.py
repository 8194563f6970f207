"""Agents on three brokers: leaders and coordinators move, brokers die and freeze, topics grow, clocks are set."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import assert_never

from support.agent_process import AgentProcess
from support.chaos import Chaos
from support.follow import Follower
from support.kafka_cluster import OFFSETS, TRANSACTIONS, KafkaNode, ThreeBrokers, retried
from support.kafka_world import KafkaWorld

HOUR_S = 3_600
_MORE = 2  # partitions that a fault adds
_FREEZE_S = 6.0  # longer than the session of an agent (4 s) and of a broker (2 s)
_OUTAGE_S = 2.0
_PROGRESS = 20  # records that are published while a broker is down


class ClusterFault(StrEnum):
    """The faults that need more than one broker, each with an agent or a worker that fails meanwhile."""

    LEADERS = "the leaders of all partitions move; a worker is killed"
    COORDINATORS = "the coordinators of the group and of transactions move; an agent is stopped and started again"
    NODE = "a broker is killed, too few replicas are in sync for a while, the others go on; an agent is killed"
    FREEZE = "the coordinator of the group and an agent are suspended for longer than their sessions"
    QUORUM = "two of three brokers are killed and come back; an agent is killed and started again"
    GROWTH = "the topics get more partitions while the leaders move"
    CLOCKS = "the clock of one agent is set hours ahead, that of another hours behind; a worker is killed"


class ClusterChaos(Chaos):
    """As ``Chaos``, on three brokers, with the faults of ``ClusterFault`` and all of ``Fault`` except ``BROKER``."""

    def __init__(
        self,
        world: KafkaWorld,
        brokers: ThreeBrokers,
        agents: Sequence[AgentProcess],
        *,
        faults: Mapping[StrEnum, int],
        count: int,
        seed: int,
    ) -> None:
        super().__init__(world, brokers, agents, faults=faults, count=count, seed=seed)
        self._brokers = brokers
        self._topics = [world.name, world.out, self._dead_letters]

    async def _do(self, fault: StrEnum, sent: Follower, seen: Follower) -> None:
        """See ``Chaos._do``. Returns when all replicas are in sync again."""
        if not isinstance(fault, ClusterFault):
            await super()._do(fault, sent, seen)
            return
        one, other, *_ = self._random.sample(self.agents, len(self.agents))
        match fault:
            case ClusterFault.LEADERS:
                await self._kill_worker(one)
                self.done["moved leaders"] += await self._brokers.move_leaders(self._topics)
            case ClusterFault.COORDINATORS:
                self._wanted.discard(one)
                stopping = asyncio.create_task(asyncio.to_thread(one.stop))
                await self._brokers.move_leaders([OFFSETS, TRANSACTIONS])
                self.done["moved coordinators"] += 1
                assert await stopping == 0
                self.done["stopped agents"] += 1
                one.start()
                self._wanted.add(one)
            case ClusterFault.NODE:
                node = self._random.choice(self._brokers.nodes)
                self._kill_node(node)
                self._kill(one)
                one.start()
                await self._starve()
                goal = min(len(self.numbers), len(seen.seen) + _PROGRESS)
                await seen.reach(lambda: len(seen.seen) >= goal)
                await asyncio.to_thread(node.start)
            case ClusterFault.FREEZE:
                await self._freeze(one)
            case ClusterFault.QUORUM:
                nodes = self._random.sample(self._brokers.nodes, 2)
                for node in nodes:
                    self._kill_node(node)
                self._kill(one)
                one.start()
                await asyncio.sleep(_OUTAGE_S)
                for node in nodes:
                    node.launch()
                for node in nodes:
                    await asyncio.to_thread(node.await_port)
            case ClusterFault.GROWTH:
                await self._grow(sent, seen)
            case ClusterFault.CLOCKS:
                one.set_clock(self._random.randint(2, 40) * HOUR_S)
                other.set_clock(-self._random.randint(2, 40) * HOUR_S)
                self.done["set clocks"] += 2
                await self._kill_worker(other)
            case _:
                assert_never(fault)
        await self._brokers.recovered([*self._topics, OFFSETS, TRANSACTIONS])

    async def _starve(self) -> None:
        """Require more replicas of outputs than are in sync, for a while."""
        for settings in ({"min.insync.replicas": "3"}, {}):
            await retried(partial(self._brokers.configure_topic, self.world.out, settings))
            await asyncio.sleep(_OUTAGE_S if settings else 0)

    async def _grow(self, sent: Follower, seen: Follower) -> None:
        """Add partitions: outputs and dead letters first, then the input."""
        moving = asyncio.create_task(self._brokers.move_leaders([self.world.name]))
        more = self._partitions + _MORE
        for topic in (self.world.out, self._dead_letters):
            await self._brokers.grow_topic(topic, more)
        for follower in (sent, seen):
            await follower.find_partitions(more)
        self.done["moved leaders"] += await moving
        await self._brokers.grow_topic(self.world.name, more)
        self._partitions = more
        self.done["added partitions"] += _MORE

    async def _freeze(self, agent: AgentProcess) -> None:
        node = self._brokers.node(await self._brokers.coordinator())
        node.suspend()
        agent.suspend()
        try:
            await asyncio.sleep(_FREEZE_S)
        finally:
            agent.resume()
            node.resume()
        self.done["suspended"] += 1
        self.done["frozen brokers"] += 1

    async def _kill_worker(self, agent: AgentProcess) -> None:
        await self._until(lambda: bool(agent.workers()))
        os.kill(self._random.choice(agent.workers()), signal.SIGKILL)
        self.done["workers"] += 1

    def _kill_node(self, node: KafkaNode) -> None:
        node.kill()
        self.done["brokers"] += 1
