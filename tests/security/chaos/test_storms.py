"""Members join and leave in quick succession: each message is published once, in order, by any owner."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from support.audits import NoAudit
from support.executors import EagerExecutor
from support.follow import ID, Follower
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, read
from support.marks import MARKS
from support.transport_contract import Given

from deid_agent.agent import Coordinates
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.config import Delivery
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import REBALANCES

pytestmark = pytest.mark.broker

PARTITIONS, COUNT, MEMBERS, TURNS = 4, 8_000, 3, 6
PATIENCE_S = 120.0


@pytest.fixture(params=list(Delivery))
async def world(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(cluster, request.param).create(PARTITIONS)
    yield world
    await world.close()


async def test_many_rebalances_lose_and_duplicate_nothing(world: KafkaWorld, seed: int) -> None:
    """Each of three members joins and leaves six times, at random counts; a fourth one stays."""
    chance = random.Random(seed)
    for number in range(PARTITIONS):
        given = [Given(b"%d %d" % (number, n), b"key-%d" % (n % 9)) for n in range(COUNT // PARTITIONS)]
        await world.fill(given, number)
    moments = [sorted(chance.sample(range(COUNT - 400), 2 * TURNS)) for _ in range(MEMBERS)]
    telemetry = Telemetry()

    def member() -> Runner:
        settings = RunnerSettings(poll_limit=8, max_in_flight=32, batch_records=10, linger_s=0, drain_s=5)
        return Runner(world.transport(), EagerExecutor(), NoAudit(), settings, marks=MARKS, telemetry=telemetry)

    async def come_and_go(seen: Follower, at: list[int]) -> None:
        for begin, end in zip(at[::2], at[1::2], strict=True):
            await seen.reach(lambda begin=begin: len(seen.seen) >= begin)  # type: ignore[misc]
            runner = member()
            running = asyncio.create_task(runner.run())
            await seen.reach(lambda end=end: len(seen.seen) >= end)  # type: ignore[misc]
            runner.request_stop()
            await running

    stays = member()
    async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, [world.out]) as seen:
        staying = asyncio.create_task(stays.run())
        async with asyncio.TaskGroup() as group:
            for at in moments:
                group.create_task(come_and_go(seen, at))
        await seen.reach(lambda: len(seen.seen) >= COUNT)
        stays.request_stop()
        await staying
    assert telemetry.registry.value(REBALANCES) > TURNS  # members that come together share one
    found = await read(world.cluster.bootstrap, world.out)
    for number in range(PARTITIONS):
        names = [dict(r.headers)[ID].decode() for r in found if r.partition == number]
        first = list(dict.fromkeys(names)) if world.settings.delivery is Delivery.AT_LEAST_ONCE else names
        coordinates = [Coordinates(world.name, number, n) for n in range(COUNT // PARTITIONS)]
        assert first == [MARKS.id_of(at, world.topic_id) for at in coordinates]
