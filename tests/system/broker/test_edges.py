"""Starting with a wrong configuration, and edge cases of records, positions and logs."""

import asyncio
import logging
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from support.kafka_broker import Cluster, free_port
from support.kafka_internals import out_of_group
from support.kafka_world import KafkaWorld, copied, produce, read, started, started_with_records, take, until
from support.marks import MARKS, id_header, published_output
from support.transport_contract import CANARY, Given, Member, after, numbered, refused

from deid_agent.agent.dead_letter_keys import generate_keys, load_private_key
from deid_agent.agent.dead_letter_records import DeadLetterSealer, open_dead_letter, read_dead_letter_head
from deid_agent.agent.ports import Record
from deid_agent.config import Delivery
from deid_agent.model.errors import AssignmentLostError, ConfigurationError
from deid_agent.transport.kafka.admin import probe_broker
from deid_agent.transport.kafka.protocol import CommittedPosition, stable_position
from deid_agent.transport.kafka.source import KafkaTransport

pytestmark = pytest.mark.broker


# --- the set-up


async def test_a_missing_topic_is_named_at_the_start(world: KafkaWorld) -> None:
    await world.cluster.create_topic(world.name)
    async with asyncio.timeout(5):
        with pytest.raises(ConfigurationError, match=rf"'{world.out}' does not exist.*create it"):
            await world.transport().start(Member())


async def test_probe_names_every_fault(world: KafkaWorld) -> None:
    await world.cluster.create_topic(world.name, 3)
    await world.cluster.create_topic(world.out, 2)
    problems = await probe_broker(world.settings)
    assert len(problems) == 2
    assert f"'{world.name}.dlq' does not exist" in problems[0]
    assert "has 3 partitions" in problems[1]
    await world.cluster.create_topic(world.settings.dead_letter_topic(world.name), 3)
    assert len(await probe_broker(world.settings)) == 1


async def test_probe_reports_no_fault_for_a_complete_setup(world: KafkaWorld) -> None:
    await world.create(partitions=2)
    assert await probe_broker(world.settings) == []


async def test_a_missing_broker_is_named(world: KafkaWorld) -> None:
    settings = world.changed(bootstrap_servers=f"127.0.0.1:{free_port()}")
    (problem,) = await probe_broker(settings)
    assert "no bootstrap server answers" in problem
    with pytest.raises(ConfigurationError, match=settings.bootstrap_servers):
        await KafkaTransport(settings).start(Member())


async def test_rejected_credentials_are_a_configuration_error(world: KafkaWorld) -> None:
    settings = world.changed(security_protocol="SASL_PLAINTEXT", sasl_username="deid", sasl_password="secret")
    with pytest.raises(ConfigurationError, match="rejected the connection") as caught:
        await KafkaTransport(settings).start(Member())
    assert "secret" not in str(caught.value)


async def test_a_transport_can_be_restarted(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(2))
    transport = world.transport()
    for offset in range(2):
        await transport.start(Member())
        (record,) = await take(transport, 1)
        await transport.commit(world.stream, [copied(record)], offset + 1)
        await transport.stop()
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(2)]


async def test_more_members_than_partitions_leaves_one_idle(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(1))
    first, second = await started(world), await started(world)
    got: list[Record] = []
    async with asyncio.timeout(20):
        while not got:
            got = [*await first.poll(1), *await second.poll(1)]
    assert len(got) == 1
    await first.stop()
    await second.stop()


# --- records


async def test_tombstones_pass_under_the_new_key(world: KafkaWorld) -> None:
    await world.create()
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap)
    await producer.start()
    await producer.send_and_wait(world.name, value=None, key=b"patient")
    batch = producer.create_batch()
    batch.append(timestamp=1_700_000_000_000, key=None, value=None)
    await (await producer.send_batch(batch, world.name, partition=0))
    await producer.send_and_wait(world.name, value=b"last", key=b"k", timestamp_ms=1_700_000_000_001)
    await producer.stop()
    transport = await started(world)
    records = await take(transport, 3)
    assert [(r.tombstone, r.payload) for r in records] == [(True, b""), (True, b""), (False, b"last")]
    keys = (b"surrogate", None, b"k")
    done = [published_output(r, r.payload, key) for r, key in zip(records, keys, strict=True)]
    await transport.commit(world.stream, done, after(records))
    found = await read(world.cluster.bootstrap, world.out)
    assert [(m.key, m.value) for m in found] == [(b"surrogate", None), (None, None), (b"k", b"last")]
    assert [m.timestamp for m in found[1:]] == [1_699_920_000_000] * 2, "the start of the day"


async def test_outputs_of_all_sizes_keep_their_order(world: KafkaWorld) -> None:
    """Small outputs share a batch of the producer, large ones do not, and batches of half a MiB fill up."""
    await world.create()
    sizes = (10, 10, 700_000, 10, 65_000, *[60_000] * 12, 80_000, 10)
    given = [Given(b"%05d" % number + b"x" * size, b"k") for number, size in enumerate(sizes)]
    await world.fill(given)
    transport = await started(world)
    records = await take(transport, len(sizes))
    await transport.commit(world.stream, [copied(record) for record in records], after(records))
    assert [o.payload for o in await world.outputs()] == [g.payload for g in given]


async def test_records_of_an_aborted_transaction_are_not_read(world: KafkaWorld) -> None:
    await world.create()
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, transactional_id=f"{world.name}-in")
    await producer.start()
    for value, end in ((b"taken back", producer.abort_transaction), (b"meant", producer.commit_transaction)):
        await producer.begin_transaction()
        await producer.send_and_wait(world.name, value)
        await end()
    await producer.stop()
    transport = await started(world)
    records = await take(transport, 1)
    assert [r.payload for r in records] == [b"meant"]
    await transport.commit(world.stream, [copied(records[0])], after(records))
    assert [o.payload for o in await world.outputs()] == [b"meant"]


async def test_outputs_and_dead_letters_name_their_input(world: KafkaWorld, tmp_path: Path) -> None:
    await world.create(partitions=3)
    await world.fill(numbered(2), partition=2)
    transport = await started(world)
    good, bad = await take(transport, 2)
    public = generate_keys(tmp_path / "key")
    sealed = KafkaTransport(world.settings, sealer=DeadLetterSealer(public))
    sealed._writers = transport._writers
    await sealed.commit(good.coordinates.stream, [copied(good), refused(bad)], 2)
    (output,) = await read(world.cluster.bootstrap, world.out)
    (dead_letter,) = await read(world.cluster.bootstrap, world.settings.dead_letter_topic(world.name))
    assert (output.partition, dead_letter.partition) == (2, 2)
    assert id_header(good.coordinates) in output.headers
    assert id_header(bad.coordinates) in dead_letter.headers
    assert output.timestamp == MARKS.time.coarsen(good.timestamp_ms)
    assert dead_letter.key is None
    assert dead_letter.timestamp > bad.timestamp_ms, "retention counts from the refusal"
    assert CANARY not in dead_letter.value
    head = read_dead_letter_head(dead_letter.headers)
    assert (head.form, head.key) == ("sealed-1", public.id)
    assert open_dead_letter(head, dead_letter.value, load_private_key(tmp_path / "key"), 1 << 20) == bad


async def test_fifty_megabytes(world: KafkaWorld) -> None:
    size = 50 * 1024 * 1024
    for topic in (world.name, world.out, world.settings.dead_letter_topic(world.name)):
        await world.cluster.create_topic(topic, 1, {"max.message.bytes": str(size + 10_000)})
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, max_request_size=size + 10_000)
    await producer.start()
    await producer.send_and_wait(world.name, bytes(size))
    await producer.stop()
    transport = await started(world, request_timeout_ms=15_000)
    records = await take(transport, 1)
    await transport.commit(world.stream, [copied(records[0])], 1)
    (found,) = await read(world.cluster.bootstrap, world.out)
    assert len(found.value) == size


# --- positions


async def test_a_position_is_read_after_its_open_transaction_ends(world: KafkaWorld) -> None:
    """aiokafka's own answer is the position before the transaction: its records would be read again."""
    await world.create()
    group, tp = world.settings.group_id, TopicPartition(world.name, 0)
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, transactional_id="somebody")
    await producer.start()
    assert await stable_position(producer.client, group, world.stream) is None
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({tp: 5}, group)
    asked = asyncio.create_task(stable_position(producer.client, group, world.stream))
    reader = AIOKafkaConsumer(bootstrap_servers=world.cluster.bootstrap, group_id=group)
    await reader.start()
    assert await reader.committed(tp) is None
    assert not asked.done()
    await producer.commit_transaction()
    async with asyncio.timeout(10):
        assert await asked == CommittedPosition(5)
    await reader.stop()
    await producer.stop()


async def test_records_that_were_deleted_unread_stop_the_agent(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(5))
    first = await started(world)
    records = await take(first, 2)
    await first.commit(world.stream, [copied(r) for r in records], 2)
    await first.stop()
    admin = AIOKafkaAdminClient(bootstrap_servers=world.cluster.bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(world.name, 0): RecordsToDelete(before_offset=4)})
    await admin.close()
    with pytest.raises(ConfigurationError, match="deleted before they were read, those from offset 2 to 3"):
        await started(world)


async def test_a_member_without_a_group_commits_nothing(cluster: Cluster) -> None:
    """If the group is empty, the broker accepts a commit with generation -1 and no member id: fencing does not help."""
    world = await KafkaWorld(cluster, Delivery.AT_LEAST_ONCE).create()
    await world.fill(numbered(2))
    transport = await started(world)
    records = await take(transport, 2)
    assert transport._consumer is not None
    async with out_of_group(transport._consumer, world.settings.group_id):
        with pytest.raises(AssignmentLostError):
            await transport.commit(world.stream, [copied(r) for r in records], 2)
    assert await transport._consumer.committed(TopicPartition(world.name, 0)) == 0, "the start"
    await world.close()


async def test_lag_follows_the_end_of_the_partition(world: KafkaWorld) -> None:
    transport, records = await started_with_records(world, 2)
    assert transport.lag(world.stream) is None or transport.lag(world.stream) == 2
    await transport.commit(world.stream, [copied(r) for r in records], 2)
    assert transport.lag(world.stream) == 0
    await world.fill(numbered(3))
    await take(transport, 3)
    await until(lambda: transport.lag(world.stream) == 3)


async def test_a_static_member_resumes_its_partitions(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(2))
    for _ in range(2):
        transport = await started(world, instance_id="agent-1")
        (record,) = await take(transport, 1)
        await transport.commit(world.stream, [copied(record)], after([record]))
        await transport.stop()
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(2)]


# --- logs


async def test_the_library_logs_no_key_and_no_value(world: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.create()
    await produce(world.cluster.bootstrap, world.name, 0, [Given(CANARY, b"key " + CANARY)])
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="aiokafka"):
        logging.getLogger("aiokafka.producer.producer").setLevel(logging.DEBUG)
        transport = await started(world)
        records = await take(transport, 1)
        await transport.commit(world.stream, [refused(records[0])], 1)
        await transport.stop()
    assert CANARY.decode() not in caplog.text
    assert logging.getLogger("aiokafka.conn").getEffectiveLevel() >= logging.INFO
