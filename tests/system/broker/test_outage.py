"""The broker dies, hangs and restarts; the transport loses nothing, duplicates nothing and does not hang."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.kafka_broker import KafkaBroker
from support.kafka_world import Copier, KafkaWorld, copied, read
from support.transport_contract import Given, Member, numbered

from deid_agent.agent.ports import Record
from deid_agent.config import Delivery
from deid_agent.model.errors import TransientError

pytestmark = pytest.mark.broker


@pytest.fixture
async def delivery() -> Delivery:
    return Delivery.EXACTLY_ONCE


@pytest.fixture
async def world(own_broker: KafkaBroker, delivery: Delivery) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(own_broker, delivery).create(partitions=2)
    yield world
    await world.close()


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_a_killed_broker_is_survived(world: KafkaWorld, own_broker: KafkaBroker) -> None:
    for number in range(2):
        await world.fill([Given(b"%d:%05d" % (number, n), b"key") for n in range(600)], number)
    copier = Copier(world.transport(commit_timeout_ms=2_000), batch=20)
    await copier.transport.start(copier)
    await copier.run(lambda: copier.finished >= 100)
    own_broker.kill()
    await copier.run(lambda: bool(copier.troubles))
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(own_broker.restart))
        group.create_task(copier.run(lambda: copier.finished >= 1200, within_s=40))
    found = await read(own_broker.bootstrap, world.out)
    for number in range(2):
        values = [m.value for m in found if m.partition == number]
        wanted = [b"%d:%05d" % (number, n) for n in range(600)]
        if world.settings.delivery is Delivery.EXACTLY_ONCE:
            assert values == wanted
        else:
            assert sorted(set(values)) == wanted


async def test_a_hanging_or_missing_broker_does_not_block_a_stop(world: KafkaWorld, own_broker: KafkaBroker) -> None:
    await world.fill(numbered(3))
    transport = world.transport(commit_timeout_ms=1_000, request_timeout_ms=2_000)
    await transport.start(Member())
    records: list[Record] = []
    while len(records) < 3:
        records += await transport.poll(3)
    batch = [copied(r) for r in records]
    own_broker.suspend()
    try:
        async with asyncio.timeout(6):
            with pytest.raises(TransientError, match="commit adt"):
                await transport.commit(world.stream, batch, 3)
        async with asyncio.timeout(1):
            assert await transport.poll(1) == []
    finally:
        own_broker.resume()
    async with asyncio.timeout(20):
        while True:
            try:
                await transport.commit(world.stream, batch, 3)
                break
            except TransientError:
                await transport.poll(1)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(3)]
    own_broker.kill()
    async with asyncio.timeout(12):
        await transport.stop()
