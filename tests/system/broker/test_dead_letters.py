"""Dead letters on a real broker: sealed, listed, opened, and replayed once in spite of faults."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, produce, read
from support.marks import MARKS
from support.replays import PRIVATE, Work
from support.transport_contract import CANARY, Given, refused

from deid_agent.agent.dead_letter_keys import PrivateKey
from deid_agent.agent.dead_letter_records import DeadLetterSealer, FoundDeadLetter
from deid_agent.agent.outcomes import REPLAY_ATTEMPTS, REPLAY_OF
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.http import dead_letter_view
from deid_agent.model.errors import ConfigurationError, UnsafeError
from deid_agent.transport.kafka.consumer import Consumer
from deid_agent.transport.kafka.dead_letters import REPLAYED, KafkaDeadLetters
from deid_agent.transport.kafka.source import KafkaTransport

pytestmark = pytest.mark.broker

NOON_MS = 1_700_000_000_000


class DeadLetterWorld(KafkaWorld):
    """A route on which all records are refused, unless a test changes that."""

    def box(self, **changed: object) -> KafkaDeadLetters:
        return KafkaDeadLetters(self.changed(**changed), [])

    async def refuse(self, sealer: DeadLetterSealer | None = None, *, by_topic: bool = False) -> list[Record]:
        """Have all input records refused, and return them. ``by_topic``: with ids that contain that of the topic."""
        transport = KafkaTransport(self.settings, sealer=sealer or DeadLetterSealer(PRIVATE.public))
        self.transports.append(transport)
        await transport.start(Nobody())
        found: list[Record] = []
        async with asyncio.timeout(30):
            while True:
                got = await transport.poll(500)
                for stream in {record.coordinates.stream for record in got}:
                    batch = [refused(r) for r in got if r.coordinates.stream == stream]
                    if by_topic:
                        batch = [replace(b, id=MARKS.id_of(b.record.coordinates, b.record.topic_id)) for b in batch]
                    await transport.commit(stream, batch, batch[-1].record.coordinates.offset + 1)
                found += got
                if found and not got:
                    break
        await transport.stop()
        return found

    async def replay(self, work: Work | None = None, **changed: object) -> Work:
        work = work or Work()
        await self.box(**changed).replay(work.pick, work.report)
        return work

    async def look(self) -> list[FoundDeadLetter]:
        return [found async for found in self.box().dead_letters() if isinstance(found, FoundDeadLetter)]

    async def inputs(self) -> list[ConsumerRecord]:
        return await read(self.cluster.bootstrap, self.name)

    async def marks(self) -> list[ConsumerRecord]:
        found = await read(self.cluster.bootstrap, self.settings.dead_letter_topic(self.name))
        return [m for m in found if REPLAYED in dict(m.headers)]


class Nobody:
    async def assigned(self, streams: object) -> None: ...

    async def revoked(self, streams: object) -> None: ...


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[DeadLetterWorld]:
    world = DeadLetterWorld(cluster)
    yield world
    await world.close()


def some(count: int) -> list[Given]:
    return [Given(b"payload %d " % n + CANARY, CANARY + b"-%d" % n, (("name", CANARY),)) for n in range(count)]


async def test_the_dead_letter_topic_reveals_no_refused_value(world: DeadLetterWorld) -> None:
    await world.create(partitions=2)
    await world.fill(some(3), 0)
    await world.fill(some(2), 1)
    await world.refuse()
    dead_letters = await read(world.cluster.bootstrap, world.settings.dead_letter_topic(world.name))
    assert len(dead_letters) == 5
    for dead_letter in dead_letters:
        headers = b"".join(name.encode() + value for name, value in dead_letter.headers)
        assert CANARY not in (dead_letter.value or b"") + (dead_letter.key or b"") + headers
        assert dict(dead_letter.headers)["deid.dead-letter.key"] == PRIVATE.id.encode()
    opened = [found.open_record(PRIVATE) for found in await world.look()]
    assert [(r.coordinates.partition, r.key, r.payload) for r in opened] == [
        (number, g.key, g.payload) for number, count in ((0, 3), (1, 2)) for g in some(count)
    ]


async def test_a_record_is_replayed_complete_and_once(world: DeadLetterWorld) -> None:
    await world.create(partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap)
    await producer.start()
    headers = [("trace", b"1"), ("twice", b"a"), ("twice", b"\xff")]
    await producer.send_and_wait(world.name, b"full", key=b"k", partition=1, headers=headers, timestamp_ms=NOON_MS)
    await producer.send_and_wait(world.name, None, key=b"grave", partition=1)
    await producer.send_and_wait(world.name, b"", partition=1)
    batch = producer.create_batch()
    batch.append(timestamp=NOON_MS, key=None, value=None)
    await (await producer.send_batch(batch, world.name, partition=1))
    await producer.stop()
    before = await world.inputs()
    await world.refuse()

    assert (await world.replay()).done == [0, 1, 2, 3]
    assert (await world.replay()).done == []
    found = await world.inputs()
    again = found[4:]
    assert {m.partition for m in found} == {1}
    assert [(m.key, m.value, m.timestamp) for m in again] == [(m.key, m.value, m.timestamp) for m in before]
    for old, new in zip(before, again, strict=True):
        lineage = ((REPLAY_OF, f"{world.name}/1/{old.offset}".encode()), (REPLAY_ATTEMPTS, b"2"))
        assert new.headers == (*old.headers, *lineage)
    marks = await world.marks()
    assert [dict(m.headers)[REPLAYED] for m in marks] == [f"{world.name}/1/{n}".encode() for n in range(4)]
    assert {(m.partition, m.key, m.value) for m in marks} == {(1, None, b"")}
    assert [found.replayed for found in await world.look()] == [1, 1, 1, 1]
    assert (await world.replay(Work(again=True))).done == [0, 1, 2, 3]
    assert len(await world.inputs()) == 12


async def test_attempts_accumulate_and_the_first_position_is_kept(world: DeadLetterWorld) -> None:
    await world.create()
    await world.fill(some(1))
    await world.refuse()
    for count in (4, 6):
        assert len((await world.replay()).done) == 1
        await world.refuse()
        last = (await world.look())[-1].head
        assert (last.first, last.attempts) == (Coordinates(world.name, 0, 0), count)
    newest = (await world.inputs())[-1]
    assert newest.headers == (("name", CANARY), (REPLAY_OF, f"{world.name}/0/0".encode()), (REPLAY_ATTEMPTS, b"4"))
    assert [found.replayed for found in await world.look()] == [1, 1, 0]


@pytest.mark.parametrize("before", [True, False])
async def test_a_repeated_replay_after_an_interruption_duplicates_nothing(
    world: DeadLetterWorld, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Interrupted before the commit, or after it with a lost response."""
    await world.create()
    await world.fill(some(4))
    await world.refuse()
    real = AIOKafkaProducer.commit_transaction
    commits = 0

    async def fail(self: AIOKafkaProducer) -> None:
        nonlocal commits
        commits += 1
        if commits != 3 or not before:
            await real(self)
        if commits == 3:
            raise KafkaConnectionError

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", fail)
    work = Work()
    with pytest.raises(UnsafeError, match="start again"):
        await world.replay(work)
    assert work.done == [0, 1]
    seen = 2 if before else 3
    assert len(await world.inputs()) == 4 + seen
    assert len(await world.marks()) == seen
    sent = await read(world.cluster.bootstrap, world.name, isolation="read_uncommitted")
    assert len(sent) == 7, "the third attempt must reach the broker, otherwise this test proves nothing"

    assert (await world.replay()).done == list(range(seen, 4))
    found = [m.value for m in await world.inputs()]
    assert found == 2 * [g.payload for g in some(4)]
    assert len(await world.marks()) == 4


async def test_a_later_replay_ends_an_earlier_one_and_duplicates_nothing(world: DeadLetterWorld) -> None:
    await world.create()
    await world.fill(some(6))
    await world.refuse()
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(KafkaDeadLetters):
        async def _put_back(self, *arguments: object) -> None:
            if len(first.done) == 2:
                reached.set()
                await go_on.wait()
            await super()._put_back(*arguments)  # type: ignore[arg-type]

    first = Work()
    earlier = asyncio.create_task(Slow(world.settings, []).replay(first.pick, first.report))
    async with asyncio.timeout(30):
        await reached.wait()
    second = await world.replay()
    assert second.done == [2, 3, 4, 5]
    go_on.set()
    with pytest.raises(UnsafeError, match="another replay took over"):
        await earlier
    assert first.done == [0, 1]
    assert [m.value for m in (await world.inputs())[6:]] == [g.payload for g in some(6)]


async def test_replay_waits_for_marks_behind_an_open_transaction(world: DeadLetterWorld) -> None:
    """An agent's open transaction hides all later messages from readers of committed messages."""
    await world.create()
    await world.fill(some(2))
    await world.refuse()
    agent = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, transactional_id=f"{world.name}-agent")
    await agent.start()
    work = Work()
    begun: list[None] = []

    class Between(KafkaDeadLetters):
        """The agent opens its transaction between two dead letters."""

        async def _put_back(self, *arguments: object) -> None:
            if not begun:
                begun.append(None)
                await agent.begin_transaction()
                await agent.send_and_wait(world.settings.dead_letter_topic(world.name), b"letter", partition=0)
            await super()._put_back(*arguments)  # type: ignore[arg-type]

    await Between(world.settings, []).replay(work.pick, work.report)
    assert work.done == [0, 1]
    looks = 0
    waiting = asyncio.Event()

    class Looking(KafkaDeadLetters):
        async def _bounds(self, reader: Consumer, tp: TopicPartition) -> tuple[int, int]:
            nonlocal looks
            looks += 1
            if looks == 4:  # the end of all messages, the end of committed ones, and both again
                waiting.set()
            return await super()._bounds(reader, tp)

    late = Work()
    second = asyncio.create_task(Looking(world.settings, []).replay(late.pick, late.report))
    async with asyncio.timeout(20):
        await waiting.wait()
        assert not second.done()
        await agent.abort_transaction()
        await second
    assert late.done == []
    await agent.stop()
    assert len(await world.inputs()) == 4


async def test_a_dead_letter_that_does_not_open_is_named_and_the_others_continue(world: DeadLetterWorld) -> None:
    await world.create()
    await world.fill(some(1))
    await world.refuse(sealer=DeadLetterSealer(PrivateKey(os.urandom(32)).public))
    await world.fill(some(1))
    await world.refuse()
    dlq = world.settings.dead_letter_topic(world.name)
    whole = (await read(world.cluster.bootstrap, dlq))[-1]
    spoilt = whole.value[:-1] + bytes([whole.value[-1] ^ 1])
    await produce(world.cluster.bootstrap, dlq, 0, [Given(spoilt, None, whole.headers), Given(b"of another tool")])
    await world.fill(some(1))
    (last,) = (await world.refuse())[-1:]

    work = await world.replay()
    assert work.done == [whole_offset(whole), last.coordinates.offset]
    assert [why.split(",")[0].split(" to key")[0] for _, why in work.failed] == [
        "it is sealed",
        "it is damaged",
        "its headers were not written by this program",
    ]
    assert work.failed[0][0] == f"{world.name}/0/0"
    assert work.failed[2][0].startswith(f"{dlq}/0/")
    assert not any(CANARY.decode() in why for _, why in work.failed)


def whole_offset(dead_letter: ConsumerRecord) -> int:
    return int(dict(dead_letter.headers)["__connect.errors.offset"])


async def test_a_record_that_the_broker_rejects_is_named_and_the_others_continue(world: DeadLetterWorld) -> None:
    await world.cluster.create_topic(world.name, 1)
    await world.cluster.create_topic(world.out, 1)
    await world.cluster.create_topic(world.settings.dead_letter_topic(world.name), 1)
    large = Given(os.urandom(5_000), b"large")
    await world.fill([some(1)[0], large, some(2)[1]])
    await world.refuse()
    await world.cluster.configure_topic(world.name, {"max.message.bytes": "2000"})
    work = await world.replay()
    assert work.done == [0, 2]
    ((at, why),) = work.failed
    assert at == f"{world.name}/0/1"
    assert "max.message.bytes" in why
    await world.cluster.configure_topic(world.name, {"max.message.bytes": "20000"})
    assert (await world.replay(max_request_bytes=3_000)).failed[0][0] == f"{world.name}/0/1"
    assert (await world.replay()).done == [1]
    assert [m.value for m in (await world.inputs())[3:]] == [some(1)[0].payload, some(2)[1].payload, large.payload]


async def test_two_dead_letters_of_one_record_replay_it_once(world: DeadLetterWorld) -> None:
    """At-least-once delivery may store the dead letter of a record twice."""
    await world.create()
    await world.fill(some(1))
    await world.refuse()
    dlq = world.settings.dead_letter_topic(world.name)
    (dead_letter,) = await read(world.cluster.bootstrap, dlq)
    await produce(world.cluster.bootstrap, dlq, 0, [Given(dead_letter.value, None, dead_letter.headers)])
    assert (await world.replay()).done == [0]
    assert (await world.replay()).done == []
    assert len(await world.inputs()) == 2


async def test_a_mark_of_a_deleted_topic_does_not_apply_to_a_new_topic_of_its_name(world: DeadLetterWorld) -> None:
    await world.create()
    mark = Given(b"", None, ((REPLAYED, f"{world.name}/0/0".encode()),))
    await produce(world.cluster.bootstrap, world.settings.dead_letter_topic(world.name), 0, [mark])
    await world.fill(some(1))
    await world.refuse()
    assert [found.replayed for found in await world.look()] == [0]
    assert (await world.replay()).done == [0]


async def test_configuration_errors_are_reported(world: DeadLetterWorld) -> None:
    with pytest.raises(ConfigurationError, match="not an input topic"):
        KafkaDeadLetters(world.settings, ["nowhere"])
    with pytest.raises(ConfigurationError, match=rf"{world.name}\.dlq' does not exist"):
        await world.look()
    with pytest.raises(ConfigurationError, match="no bootstrap server"):
        await world.replay(bootstrap_servers="127.0.0.1:1")


async def test_the_console_lists_and_replays_dead_letters_off_the_agents_loop(world: DeadLetterWorld) -> None:
    await world.create(partitions=2)
    await world.fill(some(2), 0)
    await world.fill(some(1), 1)
    await world.refuse()
    found = await asyncio.to_thread(dead_letter_view.list_dead_letters, world.box)
    assert (found.total, found.counts, found.cut) == (3, {"MALFORMED": 3}, False)
    assert [one["record"] for one in found.dead_letters] == [f"{world.name}/{at}" for at in ("1/0", "0/1", "0/0")]
    assert CANARY.decode() not in str(found)
    wanted = [Coordinates(world.name, 0, 1), Coordinates(world.name, 1, 7)]
    replayed = await asyncio.to_thread(dead_letter_view.replay_dead_letters, world.box, wanted, PRIVATE, again=False)
    assert replayed.done == (f"{world.name}/0/1",)
    assert [one["record"] for one in replayed.failed] == [f"{world.name}/1/7"]
    assert len(await world.inputs()) == 4
    again = await asyncio.to_thread(dead_letter_view.replay_dead_letters, world.box, wanted[:1], PRIVATE, again=False)
    assert again.failed == ({"record": f"{world.name}/0/1", "why": "it was replayed before"},)


async def test_records_of_a_former_topic_are_replayed_as_well(cluster: Cluster, world: DeadLetterWorld) -> None:
    """The new topic counts offsets anew, so two dead letters name the same coordinates."""
    await world.create()
    await world.fill([Given(b"former", b"k")])
    await world.refuse(by_topic=True)
    await cluster.recreate_topic(world.name)
    await world.fill([Given(b"present", b"k")])
    await world.refuse(by_topic=True)
    assert [found.replayed for found in await world.look()] == [0, 0]
    assert (await world.replay()).done == [0, 0]
    found = await world.inputs()
    assert [m.value for m in found] == [b"present", b"former", b"present"]
    named = [dict(m.headers).get(REPLAY_OF) for m in found]
    assert named == [None, None, f"{world.name}/0/0".encode()], "the first one of the present topic is another record"
    assert [found.replayed for found in await world.look()] == [1, 1]
    assert (await world.replay()).done == []
