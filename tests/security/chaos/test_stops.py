"""Agents that are asked to stop, cannot write their audit, restart within their session, or have a slow broker."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.agent_process import AgentProcess
from support.audits import verify
from support.chaos import message, patient_of
from support.follow import ID, Follower
from support.kafka_broker import Cluster, KafkaBroker
from support.kafka_world import KafkaWorld, read, until
from support.marks import MARKS
from support.slow_proxy import SlowProxy
from support.transport_contract import Given

from deid_agent.agent import Coordinates
from deid_agent.audit.reading import read_entries as read_audit

pytestmark = pytest.mark.broker

PARTITIONS = 2
PATIENCE_S = 120.0
Make = Callable[..., AgentProcess]


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    yield await KafkaWorld(cluster).create(PARTITIONS)


@pytest.fixture
async def own_world(own_broker: KafkaBroker) -> AsyncIterator[KafkaWorld]:
    yield await KafkaWorld(own_broker).create(PARTITIONS)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Agents that have ended when the test has."""
    made: list[AgentProcess] = []

    def one(name: str, world: KafkaWorld, **options: object) -> AgentProcess:
        made.append(AgentProcess(tmp_path / name, world, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for agent in made:
        agent.end()


async def fill(world: KafkaWorld, count: int, begin: int = 0) -> None:
    for number in range(PARTITIONS):
        mine = [n for n in range(begin, begin + count) if n % PARTITIONS == number]
        await world.fill([Given(message(n), patient_of(n)) for n in mine], number)


@asynccontextmanager
async def following(world: KafkaWorld, isolation: str = "read_committed") -> AsyncIterator[Follower]:
    topics = [world.out, world.settings.dead_letter_topic(world.name)]
    async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, topics, isolation) as seen:
        yield seen


async def assert_each_once(world: KafkaWorld, count: int) -> None:
    found = await read(world.cluster.bootstrap, world.out)
    found += await read(world.cluster.bootstrap, world.settings.dead_letter_topic(world.name))
    names = Counter(dict(record.headers)[ID].decode() for record in found)
    coordinates = [Coordinates(world.name, n % PARTITIONS, n // PARTITIONS) for n in range(count)]
    assert names == Counter(MARKS.id_of(at, world.topic_id) for at in coordinates)


async def test_a_stop_commits_the_started_records_and_exits_with_zero(world: KafkaWorld, make: Make) -> None:
    await fill(world, 400)
    # So few that all have begun: queued records are returned after a second, and a machine may be slow.
    agent = make("a", world, agent={"max_in_flight": 4, "drain_s": 60})
    async with following(world) as seen:
        for goal in (1, 100, 200):
            agent.start()
            await until(lambda: agent.owned() == PARTITIONS)
            await seen.reach(lambda goal=goal: len(seen.seen) >= goal)  # type: ignore[misc]
            assert agent.stop(within_s=90) == 0
            assert [line["unfinished"] for line in agent.events("AgentStopped")] == [0]
        agent.start()
        await until(lambda: agent.owned() == PARTITIONS)
        await seen.reach(lambda: len(seen.seen) >= 400)
        assert agent.stop() == 0
    await assert_each_once(world, 400)


async def test_a_stop_during_the_start_exits_with_zero(world: KafkaWorld, make: Make) -> None:
    agent = make("a", world)
    agent.start()
    await until(agent.handles_sigterm)
    assert agent.owned() == 0
    assert agent.stop() == 0


async def test_a_stop_ends_in_time_if_the_broker_does_not_respond(
    own_world: KafkaWorld, own_broker: KafkaBroker, make: Make
) -> None:
    await fill(own_world, 2_000)
    agent = make("a", own_world, agent={"drain_s": 4.0})
    async with following(own_world) as seen:
        agent.start()
        await seen.reach(lambda: len(seen.seen) >= 100)
        own_broker.suspend()
        begin = time.monotonic()
        code = agent.stop(60)
        took = time.monotonic() - begin
        own_broker.resume()
        assert code == 0
        assert took < 4.0 + 1.0  # the interpreter's own end takes a while, too
        agent.start()
        await seen.reach(lambda: len(seen.seen) >= 2_000)
        assert agent.stop() == 0
    await assert_each_once(own_world, 2_000)


async def test_a_full_disk_for_the_audit_stops_the_agent_and_loses_nothing(world: KafkaWorld, make: Make) -> None:
    await fill(world, 1_000)
    agent = make("a", world)
    async with following(world) as seen:
        agent.start(file_limit=200_000)
        await until(lambda: agent.code is not None, within_s=60)
        assert agent.code == 3
        assert b"audit" in agent.log.read_bytes().splitlines()[-1]
        finished = len(await read(world.cluster.bootstrap, world.out))
        assert 0 < finished < 1_000
        # Restarted on a disk that is still full, it stops again and commits nothing.
        agent.start(file_limit=200_000)
        await until(lambda: agent.code is not None, within_s=60)
        assert agent.code == 3
        assert len(await read(world.cluster.bootstrap, world.out)) == finished
        agent.start()
        await seen.reach(lambda: len(seen.seen) >= 1_000)
        assert agent.stop() == 0
    await assert_each_once(world, 1_000)
    verify(agent.audit)
    assert len({(entry["partition"], entry["offset"]) for entry in read_audit(agent.audit)}) == 1_000


async def test_a_restart_within_the_session_disturbs_no_other_member(world: KafkaWorld, make: Make) -> None:
    """Static membership (KIP-345): after a stop and after a kill, the other keeps its partitions."""
    one, other = (make(name, world, kafka={"instance_id": name, "session_timeout_ms": 30_000}) for name in ("a", "b"))
    one.start()
    other.start()
    async with following(world) as seen:
        await until(lambda: one.owned() == other.owned() == 1, within_s=60)
        dealt = len(other.events("PartitionsRevoked"))
        for begin, end in ((0, 200), (200, 400), (400, 600)):
            await fill(world, 200, begin)
            await seen.reach(lambda end=end: len(seen.seen) >= end)  # type: ignore[misc]
            if begin == 0:
                assert one.stop() == 0
            else:
                one.kill()
            one.start()
            await until(lambda: one.owned() == 1, within_s=60)
        assert len(other.events("PartitionsRevoked")) == dealt
        assert one.stop() == other.stop() == 0
    await assert_each_once(world, 600)


async def test_a_slow_broker_only_reduces_throughput(
    own_world: KafkaWorld, own_broker: KafkaBroker, make: Make
) -> None:
    """Every answer is late: no rebalance, no restart, each message once."""
    # Taking over partitions waits for a dozen late answers, within half of the session timeout.
    agent = make("a", own_world, bootstrap=f"127.0.0.1:{own_broker.proxy}", kafka={"session_timeout_ms": 10_000})
    async with SlowProxy(own_broker.proxy, own_broker.behind, delay_s=0.05) as proxy, following(own_world) as seen:
        agent.start()
        await until(lambda: agent.owned() == PARTITIONS, within_s=60)
        await fill(own_world, 1_000)
        await seen.reach(lambda: len(seen.seen) >= 1_000)
        assert agent.stop() == 0
        assert proxy.passed > 100_000
    assert agent.events("PartitionsRevoked") == agent.events("Retrying") == []
    await assert_each_once(own_world, 1_000)


async def test_late_bytes_of_a_former_owner_change_nothing(
    own_world: KafkaWorld, own_broker: KafkaBroker, make: Make
) -> None:
    """The connection of one agent stalls during its transactions; its bytes reach the broker after the test."""
    cut = make("cut", own_world, bootstrap=f"127.0.0.1:{own_broker.proxy}")
    successor = make("heir", own_world)
    async with (
        SlowProxy(own_broker.proxy, own_broker.behind) as proxy,
        following(own_world, "read_uncommitted") as sent,
        following(own_world) as seen,
    ):
        cut.start()
        successor.start()
        await until(lambda: cut.owned() == successor.owned() == 1, within_s=60)
        await fill(own_world, 2_000)
        await sent.reach(lambda: len(sent.seen) >= 300)
        proxy.stall()
        await until(lambda: successor.owned() == PARTITIONS, within_s=60)
        await seen.reach(lambda: len(seen.seen) >= 2_000)
        proxy.release()
        await until(lambda: cut.owned() == successor.owned() == 1, within_s=60)
        await fill(own_world, 200, 2_000)
        await seen.reach(lambda: len(seen.seen) >= 2_200)
        assert cut.stop() == successor.stop() == 0
    await assert_each_once(own_world, 2_200)
