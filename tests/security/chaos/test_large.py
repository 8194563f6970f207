"""Fifty megabytes in one message, and outputs that the broker rejects."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from aiokafka import AIOKafkaProducer
from support.agent_process import AgentProcess
from support.audits import verify
from support.chaos import message
from support.follow import ID, Follower
from support.kafka_broker import KafkaBroker
from support.kafka_world import KafkaWorld, read, until
from support.marks import MARKS
from support.transport_contract import Given

from deid_agent.agent import Coordinates

pytestmark = pytest.mark.broker

SIZE = 50 << 20
PATIENCE_S = 240.0


def padded(number: int, size: int) -> bytes:
    """A message of about ``size`` bytes, nearly all of them in one field."""
    raw, line = message(number), b"OBX|2|ST|2^Wave^L||%s||||||F\r"
    field = Random(number).randbytes((size - len(raw) - len(line)) // 2).hex()  # incompressible
    return raw + line % field.encode()


@asynccontextmanager
async def running(agent: AgentProcess, world: KafkaWorld) -> AsyncIterator[Follower]:
    topics = [world.out, world.settings.dead_letter_topic(world.name)]
    agent.start()
    try:
        async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, topics) as seen:
            yield seen
    finally:
        agent.end()


async def test_fifty_megabytes_are_processed_in_bounded_memory(own_broker: KafkaBroker, tmp_path: Path) -> None:
    """Four of them between small ones: the agent holds only a few at a time."""
    world = KafkaWorld(own_broker)
    for topic in (world.name, world.out, world.settings.dead_letter_topic(world.name)):
        await own_broker.create_topic(topic, 1, {"max.message.bytes": str(SIZE + 10_000)})
    payloads = [padded(number, SIZE if number % 4 == 0 else 500) for number in range(16)]
    producer = AIOKafkaProducer(bootstrap_servers=own_broker.bootstrap, max_request_size=SIZE + 10_000)
    await producer.start()
    for payload in payloads:
        await producer.send_and_wait(world.name, payload)
    await producer.stop()
    agent = AgentProcess(tmp_path / "a", world, top={"policy": "keep"}, agent={"deadline_s": 120.0})
    async with running(agent, world) as seen:
        await seen.reach(lambda: len(seen.seen) >= len(payloads))
        assert agent.most_memory() < 14 * SIZE
        assert agent.stop() == 0
    assert [record.value for record in seen.records] == payloads


async def test_a_record_with_an_output_that_the_broker_rejects_is_refused_and_the_others_continue(
    own_broker: KafkaBroker, tmp_path: Path
) -> None:
    world = KafkaWorld(own_broker)
    await own_broker.create_topic(world.name, 1)
    await own_broker.create_topic(world.out, 1, {"max.message.bytes": "20000"})
    await own_broker.create_topic(world.settings.dead_letter_topic(world.name), 1)
    large = {3: 40_000, 4: 21_000, 9: 600_000}
    await world.fill([Given(padded(number, large.get(number, 500)), b"k") for number in range(12)])
    agent = AgentProcess(tmp_path / "a", world, top={"policy": "keep"})
    async with running(agent, world) as seen:
        await seen.reach(lambda: len(seen.seen) >= 12)
        await until(lambda: agent.owned() == 1)
        assert agent.stop() == 0
    names = Counter((record.topic == world.out, dict(record.headers)[ID]) for record in seen.records)
    topic_id = await own_broker.topic_id(world.name)
    ids = [MARKS.id_of(Coordinates(world.name, 0, n), topic_id).encode() for n in range(12)]
    assert names == Counter((n not in large, ids[n]) for n in range(12))
    dead_letters = [dict(record.headers) for record in seen.records if record.topic != world.out]
    assert {dead_letter["deid.error.code"] for dead_letter in dead_letters} == {b"RESOURCE"}
    assert {dead_letter["__connect.errors.stage"] for dead_letter in dead_letters} == {b"publish"}
    assert len(agent.events("RecordDeadLettered")) == 3
    verify(agent.audit)


async def test_a_dead_letter_that_the_broker_rejects_stops_the_agent(own_broker: KafkaBroker, tmp_path: Path) -> None:
    world = KafkaWorld(own_broker)
    await own_broker.create_topic(world.name, 1)
    await own_broker.create_topic(world.out, 1, {"max.message.bytes": "20000"})
    await own_broker.create_topic(world.settings.dead_letter_topic(world.name), 1, {"max.message.bytes": "20000"})
    await world.fill([Given(message(0), b"k"), Given(padded(1, 60_000), b"k")])
    agent = AgentProcess(tmp_path / "a", world, top={"policy": "keep"}, agent={"batch": 1})
    async with running(agent, world) as seen:
        await until(lambda: agent.code is not None, within_s=60)
        assert agent.code == 3
        await seen.reach(lambda: len(seen.seen) == 1)
    last = agent.log.read_text().splitlines()[-1]
    assert f"{world.name}/0/1 to {world.name}.dlq" in last
    assert "raise max.message.bytes" in last
    assert len(await read(own_broker.bootstrap, world.out)) == 1
