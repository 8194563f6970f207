"""Messages that break workers, on the real broker: each becomes a dead letter, and no other message waits for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from support.audits import NoAudit
from support.follow import ID, Follower
from support.jobs import Grouped, Once, plain
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld
from support.marks import MARKS, ids_of
from support.transport_contract import Given

from deid_agent.agent import Coordinates
from deid_agent.agent.job import Factory, WorkerSettings
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import RESTARTS

pytestmark = pytest.mark.broker

PATIENCE_S = 120.0
COUNT = 120  # messages of each partition


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(cluster).create(3)
    yield world
    await world.close()


@asynccontextmanager
async def agent(world: KafkaWorld, factory: Factory, deadline_s: float = 30.0) -> AsyncIterator[Telemetry]:
    """An agent with two workers in this process; asked to stop at the end."""
    telemetry = Telemetry()
    pool = WorkerPool(factory, 2, telemetry, WorkerSettings(deadline_s=deadline_s, attempts=2))
    settings = RunnerSettings(poll_limit=16, max_in_flight=64, batch_records=20)
    runner = Runner(world.transport(), pool, NoAudit(), settings, marks=MARKS, telemetry=telemetry)
    running = asyncio.create_task(runner.run())
    try:
        yield telemetry
    finally:
        runner.request_stop()
        async with asyncio.timeout(PATIENCE_S):
            await running


@asynccontextmanager
async def following(world: KafkaWorld) -> AsyncIterator[Follower]:
    dead_letters = world.settings.dead_letter_topic(world.name)
    async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, [world.out, dead_letters]) as seen:
        yield seen


async def fill(world: KafkaWorld, bad: Mapping[tuple[int, int], bytes]) -> None:
    """Three partitions of messages, each with its own key; ``bad`` maps positions to payloads."""
    for number in range(3):
        payloads = [bad.get((number, n), b"fine %d" % n) for n in range(COUNT)]
        await world.fill([Given(payload, b"key-%d" % n) for n, payload in enumerate(payloads)], number)


def assert_each_once_in_order(world: KafkaWorld, records: Sequence[ConsumerRecord]) -> None:
    names = Counter(dict(record.headers)[ID].decode() for record in records)
    coordinates = ids_of(world.name, 3, COUNT, world.topic_id)
    assert names == Counter(coordinates.keys())
    for topic, number in {(record.topic, record.partition) for record in records}:
        mine = [dict(r.headers)[ID].decode() for r in records if (r.topic, r.partition) == (topic, number)]
        assert mine == sorted(mine, key=lambda name: coordinates[name].offset)


def refused(world: KafkaWorld, seen: Follower) -> dict[str, dict[str, str]]:
    """The headers of the dead letters by the ids of their input."""
    found = [{n: v.decode() for n, v in r.headers} for r in seen.records if r.topic != world.out]
    return {headers[ID]: headers for headers in found}


async def test_a_worker_that_never_returns_delays_no_other_record(world: KafkaWorld) -> None:
    """Other partitions finish before the record that hangs is refused; its own partition continues after it."""
    await fill(world, {(0, 10): b"hang"})
    async with following(world) as seen, agent(world, plain, deadline_s=4.0) as telemetry:
        await seen.reach(lambda: len(seen.seen) == 3 * COUNT)
    assert_each_once_in_order(world, seen.records)
    (dead_letter,) = refused(world, seen).values()
    assert (dead_letter["deid.error.code"], dead_letter["deid.attempts"]) == ("POISON", "2")
    assert dead_letter["__connect.errors.exception.class.name"] == "DeadlineExceeded"
    assert (dead_letter["__connect.errors.partition"], dead_letter["__connect.errors.offset"]) == ("0", "10")
    assert telemetry.registry.value(RESTARTS) == 2
    at = next(n for n, record in enumerate(seen.records) if record.topic != world.out)
    others = Counter(record.partition for record in seen.records[:at])
    assert (others[1], others[2]) == (COUNT, COUNT)


async def test_messages_that_kill_their_worker_are_retried_and_then_refused(world: KafkaWorld) -> None:
    """One in each partition, two consecutive ones in one partition, and the first and the last record."""
    bad = [(0, 0), (0, 60), (0, 61), (1, 50), (2, COUNT - 1)]
    await fill(world, dict.fromkeys(bad, b"die"))
    async with following(world) as seen, agent(world, plain) as telemetry:
        await seen.reach(lambda: len(seen.seen) == 3 * COUNT)
    assert_each_once_in_order(world, seen.records)
    dead_letters = refused(world, seen)
    assert dead_letters.keys() == {MARKS.id_of(Coordinates(world.name, *at), world.topic_id) for at in bad}
    for dead_letter in dead_letters.values():
        assert (dead_letter["deid.error.code"], dead_letter["deid.attempts"]) == ("POISON", "2")
        assert dead_letter["__connect.errors.exception.class.name"] == "WorkerDied"
    assert telemetry.registry.value(RESTARTS) == 2 * len(bad)


async def test_only_messages_that_kill_or_block_their_batch_are_refused(world: KafkaWorld, tmp_path: Path) -> None:
    """Small messages are batched: the others of such a batch are processed as if the faulty one were absent."""
    dies, hangs = [(0, 0), (0, 60), (0, 61), (1, 50), (2, COUNT - 1)], (1, 20)
    await fill(world, {**dict.fromkeys(dies, b"die"), hangs: b"hang"})
    async with following(world) as seen, agent(world, Grouped(tmp_path / "log"), deadline_s=4.0):
        await seen.reach(lambda: len(seen.seen) == 3 * COUNT)
    assert_each_once_in_order(world, seen.records)
    dead_letters = refused(world, seen)
    assert dead_letters.keys() == {MARKS.id_of(Coordinates(world.name, *at), world.topic_id) for at in (*dies, hangs)}
    assert {
        (dead_letter["deid.error.code"], dead_letter["deid.attempts"]) for dead_letter in dead_letters.values()
    } == {("POISON", "2")}
    assert any(b"|" in line for line in (tmp_path / "log").read_bytes().splitlines())


async def test_a_transient_crash_leaves_no_dead_letter(world: KafkaWorld, tmp_path: Path) -> None:
    await fill(world, {(0, 30): b"die once"})
    async with following(world) as seen, agent(world, Once(tmp_path)) as telemetry:
        await seen.reach(lambda: len(seen.seen) == 3 * COUNT)
    assert_each_once_in_order(world, seen.records)
    assert refused(world, seen) == {}
    assert telemetry.registry.value(RESTARTS) == 1
