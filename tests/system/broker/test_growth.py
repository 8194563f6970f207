"""Topics get more partitions while agents run."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from support.kafka_broker import Cluster
from support.kafka_world import Copier, KafkaWorld, read
from support.transport_contract import Given

from deid_agent.config import Delivery
from deid_agent.transport.kafka import probe_broker

pytestmark = pytest.mark.broker


async def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(partitions)}, timeout_ms=10_000)
    finally:
        await admin.close()


@pytest.mark.parametrize("input_first", [False, True])
@pytest.mark.parametrize("delivery", Delivery)
async def test_new_partitions_are_read_from_their_beginning(
    world: KafkaWorld, delivery: Delivery, input_first: bool
) -> None:
    """Records of an old partition stay in the output partition with its number, whichever topic grows first."""
    world.settings = world.changed(delivery=delivery, metadata_max_age_ms=300)
    await world.create(partitions=1)
    copier = Copier(world.transport(), batch=10)
    await copier.transport.start(copier)

    async def fill(partitions: int, begin: int) -> None:
        for number in range(partitions):
            given = [Given(b"%d:%05d" % (number, n), b"key-%d" % (n % 3)) for n in range(begin, begin + 30)]
            await world.fill(given, number)

    topics = [world.name, world.out, world.settings.dead_letter_topic(world.name)]
    await fill(1, 0)
    await copier.run(lambda: copier.finished >= 10)
    for topic in topics if input_first else reversed(topics):
        await grow(world.cluster, topic, 3)
        await copier.run(lambda: copier.finished >= 10)
    await fill(3, 30)
    await copier.run(lambda: copier.finished >= 120)
    assert [len(streams) for event, streams in copier.events if event == "assigned"][-1] == 3
    found = await read(world.cluster.bootstrap, world.out)
    old = [m.value for m in found if m.partition == 0 and m.value.startswith(b"0:")]
    assert old == [b"0:%05d" % n for n in range(60)], "in order, each once"
    assert sorted(m.value for m in found if not m.value.startswith(b"0:")) == [
        b"%d:%05d" % (number, n) for number in (1, 2) for n in range(30, 60)
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
