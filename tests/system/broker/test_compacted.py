"""A compacted output topic, which takes no message without a key."""

import json

import pytest
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, copied, read, take
from support.transport_contract import Given, Member, numbered, refused

from deid_agent.config import Delivery
from deid_agent.model import KeylessError, Reason, UnsafeError
from deid_agent.transport.kafka import probe_compaction, probe_retention

pytestmark = pytest.mark.broker

COMPACT = {"cleanup.policy": "compact"}
GIVEN = [*numbered(2), Given(b"no key"), *numbered(2), Given(b"no key either")]


async def compacted(cluster: Cluster, delivery: Delivery = Delivery.EXACTLY_ONCE) -> KafkaWorld:
    world = KafkaWorld(cluster, delivery)
    await cluster.create_topic(world.name)
    await cluster.create_topic(world.out, settings=COMPACT)
    await cluster.create_topic(world.settings.dead_letter_topic(world.name))
    await world.fill(GIVEN)
    return world


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_records_without_a_key_are_refused_and_the_others_published(cluster: Cluster, delivery: Delivery) -> None:
    """Before, the broker refused the whole transaction, and every start of the agent ended at the same record."""
    world = await compacted(cluster, delivery)
    transport = world.transport()
    await transport.start(Member())
    records = await take(transport, len(GIVEN))
    batch = [copied(record) for record in records]
    for offset in (2, 5):
        with pytest.raises(KeylessError, match=f"{world.out}: the topic is compacted") as caught:
            await transport.commit(world.stream, batch, 6)
        assert (caught.value.offset, caught.value.reason) == (offset, Reason.KEYLESS)
        batch[offset] = refused(records[offset], Reason.KEYLESS)
    await transport.commit(world.stream, batch, 6)
    assert {o.payload for o in await world.outputs()} == {g.payload for g in GIVEN if g.key}
    assert [d.headers["deid.error.code"] for d in await world.dead_letters()] == [b"KEYLESS"] * 2
    await world.close()


async def test_a_compacted_topic_of_dead_letters_is_named(cluster: Cluster) -> None:
    world = await compacted(cluster)
    dead_letters = world.settings.dead_letter_topic(world.name)
    await cluster.configure_topic(dead_letters, COMPACT)
    problems, warnings = await probe_compaction(world.settings)
    assert [json.dumps(dead_letters)[1:-1] in line for line in problems] == [True]
    assert [f"'{world.out}'" in line and "KEYLESS" in line for line in warnings] == [True]
    transport = world.transport()
    await transport.start(Member())
    (first, *_) = await take(transport, 1)
    with pytest.raises(UnsafeError, match=f"{dead_letters}: the topic is compacted.*cleanup.policy to delete"):
        await transport.commit(world.stream, [refused(first)], 1)
    assert await read(cluster.bootstrap, dead_letters) == []
    await world.close()


async def test_the_retention_of_positions_is_compared_with_the_longest_stop(world: KafkaWorld) -> None:
    (warning,) = await probe_retention(world.changed(longest_stop_hours=169))
    assert "offsets.retention.minutes is 10080" in warning and "raise it to 10140" in warning
    assert await probe_retention(world.settings) == []
