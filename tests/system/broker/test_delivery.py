"""No loss, no duplicates, order kept: during rebalances, fencing, aborted transactions and lost responses."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from support.kafka_broker import Cluster
from support.kafka_world import Copier, KafkaWorld, copied, read, started, started_with_records, take, until
from support.marks import MARKS
from support.transport_contract import Given, Member, numbered, refused

from deid_agent.agent.ports import Coordinates, FinishedRecord, Partition, Record
from deid_agent.config import Delivery
from deid_agent.model.errors import OversizeError, TransientError
from deid_agent.telemetry.metrics import TXN_ABORTS
from deid_agent.transport.kafka import probe_broker
from deid_agent.transport.kafka.producer import TransactionalWriter
from deid_agent.transport.kafka.source import KafkaTransport

pytestmark = pytest.mark.broker


def many(count: int, partition: int) -> list[Given]:
    return [Given(b"%d:%05d" % (partition, n), b"key-%d" % n) for n in range(count)]


async def assert_each_once_in_order(world: KafkaWorld, partitions: int, count: int) -> None:
    found = await read(world.cluster.bootstrap, world.out)
    for number in range(partitions):
        values = [m.value for m in found if m.partition == number]
        assert values == [g.payload for g in many(count, number)]
    assert len(found) == partitions * count


def end_of(records: Sequence[Record]) -> int:
    return records[-1].coordinates.offset + 1


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_a_thousand_messages_over_three_partitions(cluster: Cluster, delivery: Delivery) -> None:
    world = await KafkaWorld(cluster, delivery).create(partitions=3)
    for number in range(3):
        await world.fill(many(334, number), number)
    copier = Copier(world.transport())
    await copier.transport.start(copier)
    await copier.run(lambda: copier.finished >= 1002)
    await assert_each_once_in_order(world, 3, 334)
    await world.close()


async def test_members_join_and_leave_without_loss_or_duplicates(world: KafkaWorld) -> None:
    """Records arrive until each member has joined, worked and left, however long that takes."""
    await world.create(partitions=4)
    copiers = [Copier(world.transport(), batch=7) for _ in range(3)]
    leaves = [asyncio.Event() for _ in copiers]
    ended = asyncio.Event()

    async def fill() -> int:
        count = 0
        while not ended.is_set():
            for number in range(4):
                await world.fill(many(count + 20, number)[count:], number)
            count += 20
        return count

    async def member(copier: Copier, leave: asyncio.Event) -> None:
        await copier.transport.start(copier)
        await copier.run(leave.is_set, within_s=90)
        await copier.transport.stop()

    async def works(copier: Copier) -> None:
        target = copier.finished + 50
        await until(lambda: copier.finished >= target)

    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        filled = group.create_task(fill())
        for copier, leave in zip(copiers, leaves, strict=True):
            group.create_task(member(copier, leave))
            await works(copier)
        for leave, copier in zip(leaves, copiers[1:], strict=False):
            leave.set()
            await works(copier)
        ended.set()
        count = await filled
        await until(lambda: sum(copier.finished for copier in copiers) >= 4 * count)
        leaves[-1].set()
    assert [event for event, _ in copiers[0].events[:2]] == ["assigned", "revoked"]
    await assert_each_once_in_order(world, 4, count)


async def test_a_fenced_member_writes_nothing_and_the_new_owner_continues(world: KafkaWorld) -> None:
    await world.create()
    await world.fill(numbered(6))
    member = Member()
    zombie = world.transport()
    await zombie.start(member)
    records = await take(zombie, 6)
    owner = TransactionalWriter(world.settings, world.stream)
    assert await owner.open() == 0
    await owner.commit([], 2)
    batch = [copied(r) for r in records[:3]]
    with pytest.raises(TransientError, match="ProducerFenced"):
        await zombie.commit(world.stream, batch, 3)
    with pytest.raises(TransientError):
        await zombie.commit(world.stream, batch, 3)
    await owner.close()
    # The group rebalances. Here the same member gets the partition again, and starts at the former owner's position.
    again = await take(zombie, 4)
    assert [r.coordinates.offset for r in again] == [2, 3, 4, 5]
    assert member.calls == ["assigned", "revoked", "assigned"]
    assert await world.outputs() == []
    await zombie.commit(world.stream, [copied(r) for r in again], 6)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(6)[2:]]


async def test_a_position_moved_by_another_owner_is_never_overwritten(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, records = await started_with_records(world, 4)
    fail_once(monkeypatch, "commit_transaction", before=True)
    with pytest.raises(TransientError):
        await transport.commit(world.stream, [copied(r) for r in records[:3]], 3)
    other = TransactionalWriter(world.settings, world.stream)
    await other.open()
    await other.commit([], 2)
    await other.close()
    with pytest.raises(TransientError, match="another owner"):
        await transport.commit(world.stream, [copied(r) for r in records[:3]], 3)
    assert await world.outputs() == []


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, *, before: bool) -> None:
    """The next call of this method of a producer ends in a lost connection, before or after it did its work."""
    real = getattr(AIOKafkaProducer, name)

    async def fail(*arguments: object, **options: object) -> None:
        monkeypatch.setattr(AIOKafkaProducer, name, real)
        if not before:
            await real(*arguments, **options)
        raise KafkaConnectionError

    monkeypatch.setattr(AIOKafkaProducer, name, fail)


def hang(monkeypatch: pytest.MonkeyPatch, name: str) -> asyncio.Event:
    """Calls of this method of a producer never return; the event is set at the first."""
    reached = asyncio.Event()

    async def wait(*_arguments: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaProducer, name, wait)
    return reached


async def test_an_aborted_transaction_is_counted(world: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    await world.fill(numbered(1))
    transport = world.transport()
    counted = transport._telemetry.registry
    await transport.start(Member())
    (record,) = await take(transport, 1)
    fail_once(monkeypatch, "commit_transaction", before=True)
    with pytest.raises(TransientError):
        await transport.commit(world.stream, [copied(record)], 1)
    assert counted.value(TXN_ABORTS) == 1
    await transport.commit(world.stream, [copied(record)], 1)
    assert counted.value(TXN_ABORTS) == 1


async def test_a_batch_interrupted_before_its_commit_is_sent_again_and_visible_once(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, records = await started_with_records(world, 3)
    fail_once(monkeypatch, "commit_transaction", before=True)
    batch = [copied(r) for r in records]
    with pytest.raises(TransientError):
        await transport.commit(world.stream, batch, 3)
    assert await world.outputs() == []
    await transport.commit(world.stream, batch, 3)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(3)]
    sent = await read(world.cluster.bootstrap, world.out, isolation="read_uncommitted")
    assert len(sent) == 6, "the first attempt must reach the broker, otherwise this test proves nothing"


async def test_a_commit_with_a_lost_response_is_not_repeated(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, records = await started_with_records(world, 3)
    batch = [copied(r) for r in records]
    fail_once(monkeypatch, "commit_transaction", before=False)
    with pytest.raises(TransientError):
        await transport.commit(world.stream, batch, 3)
    await transport.commit(world.stream, batch, 3)
    await transport.commit(world.stream, batch, 3)
    sent = await read(world.cluster.bootstrap, world.out, isolation="read_uncommitted")
    assert [m.value for m in sent] == [g.payload for g in numbered(3)]


async def test_uncommitted_records_of_a_dead_member_go_to_the_next(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, records = await started_with_records(world, 4)
    await first.commit(world.stream, [copied(records[0])], 1)
    fail_once(monkeypatch, "commit_transaction", before=True)
    with pytest.raises(TransientError):
        await first.commit(world.stream, [copied(r) for r in records[1:]], 4)
    await first.stop()
    second = Copier(world.transport())
    await second.transport.start(second)
    await second.run(lambda: second.finished == 3)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(4)]


async def test_a_cancelled_commit_can_be_repeated(world: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    transport, records = await started_with_records(world, 3)
    batch = [copied(r) for r in records]
    with monkeypatch.context() as patch:
        reached = hang(patch, "commit_transaction")
        task = asyncio.create_task(transport.commit(world.stream, batch, 3))
        async with asyncio.timeout(10):
            await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await transport.commit(world.stream, batch, 3)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(3)]


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_an_output_that_is_too_large_is_named_and_not_committed_with_the_rest(
    cluster: Cluster, delivery: Delivery
) -> None:
    """aiokafka's commit waits for the sends but ignores their errors. The broker refuses whole batches."""
    world = KafkaWorld(cluster, delivery)
    await world.cluster.create_topic(world.out, 1, {"max.message.bytes": "2000"})
    await world.cluster.create_topic(world.name, 1)
    await world.cluster.create_topic(world.settings.dead_letter_topic(world.name), 1)
    await world.fill([*many(40, 0), Given(bytes(range(256)) * 20), *many(40, 0)])
    transport = await started(world)
    records = await take(transport, 81)
    batch = [copied(r) for r in records]

    async def finished(these: Sequence[FinishedRecord]) -> None:
        while True:
            try:
                return await transport.commit(world.stream, these, 81)
            except TransientError:
                continue

    async with asyncio.timeout(20):
        with pytest.raises(OversizeError, match=r"/0/40 to .*max\.message\.bytes") as caught:
            await finished(batch)
        assert caught.value.offset == 40
        if delivery is Delivery.EXACTLY_ONCE:
            assert await world.outputs() == []
        await finished([*batch[:40], refused(records[40]), *batch[41:]])
    found = [o.payload for o in await world.outputs()]
    if delivery is Delivery.EXACTLY_ONCE:
        assert found == [g.payload for g in many(40, 0)] * 2
    assert set(found) == {g.payload for g in many(40, 0)}
    assert {dead_letter.headers["deid-id"] for dead_letter in await world.dead_letters()} == {
        MARKS.id_of(Coordinates(world.name, 0, 40)).encode()
    }
    await world.close()


async def test_at_least_once_does_not_resend_acknowledged_records(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await KafkaWorld(cluster, Delivery.AT_LEAST_ONCE).create()
    await world.fill(numbered(3))
    transport = await started(world)
    records = await take(transport, 3)
    real = KafkaTransport._commit

    async def fail(self: KafkaTransport, stream: Partition, position: int, note: str) -> None:
        monkeypatch.setattr(KafkaTransport, "_commit", real)
        raise KafkaConnectionError

    transport._writers[world.stream]._commit = fail.__get__(transport)  # type: ignore[attr-defined]
    batch = [copied(r) for r in records]
    with pytest.raises(TransientError):
        await transport.commit(world.stream, batch, 3)
    transport._writers[world.stream]._commit = transport._commit  # type: ignore[attr-defined]
    await transport.commit(world.stream, batch, 3)
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(3)]
    await world.close()


async def test_concurrent_commits_of_one_partition_run_in_sequence(world: KafkaWorld) -> None:
    transport, records = await started_with_records(world, 4)
    batch = [copied(r) for r in records]
    async with asyncio.TaskGroup() as group:
        group.create_task(transport.commit(world.stream, batch[:2], 2))
        group.create_task(transport.commit(world.stream, batch, 4))
        group.create_task(transport.commit(world.stream, batch, 4))
    assert [o.payload for o in await world.outputs()] == [g.payload for g in numbered(4)]


async def test_stop_ends_a_commit_at_once(world: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    transport, records = await started_with_records(world, 1)
    batch = [copied(r) for r in records]
    reached = hang(monkeypatch, "commit_transaction")
    committing = asyncio.create_task(transport.commit(world.stream, batch, 1))
    async with asyncio.timeout(10):
        await reached.wait()
    await transport.stop()
    async with asyncio.timeout(2):
        with pytest.raises(TransientError, match="given up"):
            await committing


async def test_a_provenance_is_visible_with_its_output_or_not_at_all(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is too large refuses its record and stops nothing."""
    made = f"{world.name}.provenance"
    await world.cluster.create_topic(made, 2, {"max.message.bytes": "2000", "cleanup.policy": "compact"})
    world.settings = world.changed(provenance_topics={world.name: made})
    transport, records = await started_with_records(world, 3)
    batch = [replace(copied(r), id=f"{n:032x}", provenance=b'{"id":%d}' % n) for n, r in enumerate(records)]
    fail_once(monkeypatch, "commit_transaction", before=True)
    with pytest.raises(TransientError):
        await transport.commit(world.stream, batch[:2], 2)
    assert await read(world.cluster.bootstrap, made) == []
    await transport.commit(world.stream, batch[:2], 2)
    found = await read(world.cluster.bootstrap, made)
    assert [(m.key, m.value) for m in found] == [(item.id.encode(), item.provenance) for item in batch[:2]]
    assert len(await world.outputs()) == 2
    large = replace(batch[2], provenance=bytes(range(256)) * 20)
    async with asyncio.timeout(20):
        while True:
            try:
                await transport.commit(world.stream, [large], 3)
            except TransientError:
                continue
            except OversizeError as error:
                assert error.offset == 2
                break
    assert len(await world.outputs()) == 2


async def test_a_topic_for_provenance_must_exist(world: KafkaWorld) -> None:
    await world.create()
    settings = world.changed(provenance_topics={world.name: f"{world.name}.none"})
    (problem,) = await probe_broker(settings)
    assert f"topic '{world.name}.none' does not exist" in problem
