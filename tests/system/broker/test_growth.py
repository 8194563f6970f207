"""Topics get more partitions while agents run."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from support.kafka_broker import Cluster
from support.kafka_world import Copier, KafkaWorld, read
from support.transport_contract import Given

from deid_agent.config import Delivery
from deid_agent.model.errors import TransientError
from deid_agent.transport.kafka import KafkaTransport, probe_broker

pytestmark = pytest.mark.broker


async def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(partitions)}, timeout_ms=10_000)
    finally:
        await admin.close()


async def joined(world: KafkaWorld, listener: Copier) -> KafkaTransport:
    """A new transport; started again if a busy machine takes too long to open its writers, as the agent does."""
    async with asyncio.timeout(60):
        while True:
            try:
                transport = world.transport()
                await transport.start(listener)
                return transport
            except TransientError:
                await transport.stop()


@pytest.mark.parametrize("input_first", [False, True])
@pytest.mark.parametrize("delivery", Delivery)
async def test_new_partitions_are_read_from_their_beginning(
    world: KafkaWorld, delivery: Delivery, input_first: bool
) -> None:
    """Records of an old partition stay in the output partition with its number, whichever topic grows first."""
    world.settings = world.changed(delivery=delivery, metadata_max_age_ms=300)
    await world.create(partitions=1)
    copier = Copier(world.transport(), batch=10)
    copier.transport = await joined(world, copier)

    async def fill(partitions: int, begin: int) -> None:
        for number in range(partitions):
            given = [Given(b"%d:%05d" % (number, n), b"key-%d" % (n % 3)) for n in range(begin, begin + 10)]
            await world.fill(given, number)

    topics = [world.name, world.out, world.settings.dead_letter_topic(world.name)]
    for turn, topic in enumerate(topics if input_first else reversed(topics)):
        if topic == world.name and not input_first:  # a restart while the output has more partitions
            await copier.transport.stop()
            copier.transport = await joined(world, copier)
        await fill(1, turn * 10)
        await copier.run(lambda turn=turn: copier.finished >= turn * 10 + 5)  # type: ignore[misc]
        await grow(world.cluster, topic, 3)
    await fill(3, 30)
    await copier.run(lambda: copier.finished >= 60)
    assert [len(streams) for event, streams in copier.events if event == "assigned"][-1] == 3
    found = await read(world.cluster.bootstrap, world.out)
    old = [m.value for m in found if m.partition == 0 and m.value.startswith(b"0:")]
    assert old == [b"0:%05d" % n for n in range(40)], "in order, each once"
    assert sorted(m.value for m in found if not m.value.startswith(b"0:")) == [
        b"%d:%05d" % (number, n) for number in (1, 2) for n in range(30, 40)
    ]
    if not input_first:
        assert {(m.partition, m.value[:1]) for m in found} == {(0, b"0"), (1, b"1"), (2, b"2")}


async def test_outputs_may_have_more_partitions_than_inputs_but_not_fewer(world: KafkaWorld) -> None:
    """Outputs grow first, and an agent may restart meanwhile."""
    await world.create(partitions=2)
    await grow(world.cluster, world.out, 3)
    assert await probe_broker(world.settings) == []
    await grow(world.cluster, world.name, 4)
    (problem,) = await probe_broker(world.settings)
    assert f"add partitions to '{world.out}'" in problem
