"""Positions that expired or that belong to a former topic: the agent refuses, and the operator's choice is exact."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DeleteGroupsRequest
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, copied, take
from support.marks import MARKS
from support.transport_contract import Member, numbered

from deid_agent.agent import AuditedBatch, Partition, Record, ResumeFrom
from deid_agent.agent.job import Completed, Processed
from deid_agent.agent.outcomes import make_audit_entry
from deid_agent.audit.storage import encode_entry
from deid_agent.config import Delivery
from deid_agent.model.errors import ConfigurationError
from deid_agent.telemetry import PositionChosen, Telemetry
from deid_agent.telemetry.events import Event
from deid_agent.transport.kafka.admin import open_client
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.source import KafkaTransport
from deid_agent.transport.kafka.start_positions import StartPositions

pytestmark = pytest.mark.broker


class Trail:
    """The content of the trail of an agent: the last batch of each partition."""

    def __init__(self) -> None:
        self.batches: dict[Partition, AuditedBatch] = {}

    def __call__(self) -> dict[Partition, AuditedBatch]:
        return self.batches

    def add(self, records: Sequence[Record]) -> None:
        at = [record.coordinates for record in records]
        ids = {each.offset: MARKS.id_of(each) for each in at}
        first, last = at[0].offset, at[-1].offset
        self.batches[at[0].stream] = AuditedBatch(time.time(), first, last + 1, records[0].topic_id, ids)


class Kept(Telemetry):
    """Keeps the choices that were reported."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[tuple[str, int]] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, PositionChosen):
            self.chosen.append((event.choice, event.position))


async def start(
    world: KafkaWorld, trail: Trail, choice: ResumeFrom | None = None, telemetry: Telemetry | None = None
) -> KafkaTransport:
    transport = KafkaTransport(world.settings, history=trail, resume_from=choice, telemetry=telemetry)
    world.transports.append(transport)
    await transport.start(Member())
    return transport


async def process(world: KafkaWorld, trail: Trail, transport: KafkaTransport, count: int) -> list[Record]:
    """Take, audit and commit this many records, then stop."""
    records = await take(transport, count)
    trail.add(records)
    await transport.commit(world.stream, [copied(r) for r in records], records[-1].coordinates.offset + 1)
    await transport.stop()
    return records


async def delete_group(world: KafkaWorld) -> None:
    """As the broker does when the positions of a group expire."""
    admin = AIOKafkaAdminClient(bootstrap_servers=world.cluster.bootstrap)
    await admin.start()
    node = await admin.find_coordinator(world.settings.group_id)
    async with asyncio.timeout(20):
        while (await admin._send_request(DeleteGroupsRequest([world.settings.group_id]), node)).results[0][1]:  # noqa: ASYNC110  no notification
            await asyncio.sleep(0.1)
    await admin.close()


@pytest.fixture(params=list(Delivery))
async def delivery(request: pytest.FixtureRequest) -> Delivery:
    return Delivery(request.param)


async def test_expired_positions_are_refused_and_resumed_exactly(cluster: Cluster, delivery: Delivery) -> None:
    """Before, the agent published all records once more and exited with 0."""
    world, trail, telemetry = await KafkaWorld(cluster, delivery).create(), Trail(), Kept()
    await world.fill(numbered(6))
    await process(world, trail, await start(world, trail), 4)
    await delete_group(world)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"no position, but the audit ends before offset 4.*--resume-from"):
            await start(world, trail)
    # The trail of a crash: its last batch was not published in full.
    await process(world, trail, await start(world, trail, ResumeFrom.AUDIT, telemetry), 2)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(6)]
    assert telemetry.chosen == [("audit", 4)]
    (await (await start(world, trail)).stop())  # the choice is needed once
    await world.close()


async def test_a_batch_that_was_audited_but_never_published_is_not_lost(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(3))
    trail = Trail()
    crashed = await start(world, trail)
    trail.add(await take(crashed, 3))
    await crashed.stop()
    await delete_group(world)
    await process(world, trail, await start(world, trail, ResumeFrom.AUDIT), 3)
    assert len(await world.outputs()) == 3


@pytest.mark.parametrize(("choice", "offsets"), [(ResumeFrom.EARLIEST, [0, 1]), (ResumeFrom.LATEST, [2])])
async def test_the_other_choices(world: KafkaWorld, choice: ResumeFrom, offsets: list[int]) -> None:
    await world.create()
    await world.fill(numbered(2))
    trail = Trail()
    await process(world, trail, await start(world, trail), 2)
    await delete_group(world)
    transport = await start(world, trail, choice)
    await transport.stop()
    transport = await start(world, trail)  # the choice is durable before the first record
    await world.fill(numbered(1))
    assert [r.coordinates.offset for r in await take(transport, len(offsets))] == offsets


async def test_a_position_behind_the_audit_is_refused_unless_a_tool_set_it(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(4))
    trail = Trail()
    for _ in range(2):
        await process(world, trail, await start(world, trail), 2)
    transport = await start(world, trail)
    consumer = transport._consumer
    assert consumer is not None
    note = transport._writers[world.stream].note
    await consumer.commit({TopicPartition(world.name, 0): (1, note)})  # a broker restored from an older copy
    await transport.stop()
    with pytest.raises(ConfigurationError, match="position of the group is 1, but the audit ends before offset 4"):
        await start(world, trail)
    transport = await start(world, trail, ResumeFrom.AUDIT)
    assert transport._consumer is not None
    await transport._consumer.commit({TopicPartition(world.name, 0): 1})  # as kafka-consumer-groups does it
    await transport.stop()
    assert [r.coordinates.offset for r in await take(await start(world, trail), 3)] == [1, 2, 3]


async def test_a_topic_that_was_created_again_is_refused(cluster: Cluster, world: KafkaWorld) -> None:
    """The broker forgets the positions of a deleted topic. Its offsets begin again, the ids of its records do not."""
    await world.create()
    await world.fill(numbered(2))
    trail = Trail()
    before = await process(world, trail, await start(world, trail), 2)
    await cluster.recreate_topic(world.name)
    await world.fill(numbered(3))
    with pytest.raises(ConfigurationError, match="deleted and created again"):
        await start(world, trail)
    with pytest.raises(ConfigurationError, match=r"audit is not possible: the audit is one of the former topic"):
        await start(world, trail, ResumeFrom.AUDIT)
    transport = await start(world, trail, ResumeFrom.EARLIEST)
    after = await take(transport, 3)
    ids = {MARKS.id_of(r.coordinates, r.topic_id) for r in (*before, *after)}
    assert len(ids) == 5
    await transport.commit(world.stream, [copied(r) for r in after], 3)
    await transport.stop()
    await start(world, trail)


async def test_partitions_without_an_audit_of_their_own_are_lost_with_the_others(world: KafkaWorld) -> None:
    """Another member processed them. A partition that was added to the topic starts without a choice."""
    await world.create(partitions=2)
    await world.fill(numbered(2))
    await world.fill(numbered(2), partition=1)
    trail = Trail()
    transport = await start(world, trail)
    records = [r for r in await take(transport, 4) if r.coordinates.partition == 0]
    trail.add(records)
    await transport.commit(world.stream, [copied(r) for r in records], 2)
    await transport.stop()
    await delete_group(world)
    with pytest.raises(ConfigurationError, match=f"{world.name}/1: the group has no position, as in other partitions"):
        await start(world, trail)


async def test_an_agent_starts_beside_a_busy_one(cluster: Cluster, delivery: Delivery) -> None:
    """It reads the audit topic and the positions while both move: it must not take one for a loss of the other."""
    world = await KafkaWorld(cluster, delivery).create(partitions=2)
    audit = f"{world.name}.audit"
    await cluster.create_topic(audit, 1)
    world.settings = world.changed(audit_topic=audit)
    busy = await start(world, Trail())
    await world.fill(numbered(1000))
    beside = asyncio.create_task(compare(world.settings, times=6))
    while not beside.done():
        for record in await busy.poll(1):
            done = copied(record)
            entry = make_audit_entry(done, Completed(Processed(b"", None)))
            audited = replace(done, audit=encode_entry(entry, "b" * 16, time.time()))
            await busy.commit(world.stream, [audited], record.coordinates.offset + 1)
    await beside
    await world.close()


async def compare(settings: KafkaOptions, times: int) -> None:
    """The comparison that a start makes before it joins the group."""
    for _ in range(times):
        async with open_client(settings) as client:
            cluster = await client.fetch_all_metadata()
            await StartPositions(settings, None, None, Telemetry()).prepare(client, cluster, settings.routes)
