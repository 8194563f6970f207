"""The comparison of positions with the audit before a member joins, without a broker."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from deid_agent.agent import DEID_ID, AuditedBatch, AuditEntry, Coordinates, Outcome, Partition, ResumeFrom
from deid_agent.audit import read_last_batches
from deid_agent.audit.storage import encode_entry
from deid_agent.config import Delivery
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry
from deid_agent.transport.kafka import start_positions
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.positions import PositionNote
from deid_agent.transport.kafka.protocol import CommittedPosition, TopicIdentity
from deid_agent.transport.kafka.start_positions import StartPositions

FORMER = Path(__file__).resolve().parents[2] / "cases" / "audit-format-1"
NOTE = PositionNote("one", 0, 1.0).text()


def line(stream: Partition, offset: int, at: float) -> bytes:
    entry = AuditEntry(
        Coordinates(stream.topic, stream.number, offset), Outcome.PUBLISHED, id=f"{offset:032x}", topic_id="one"
    )
    return encode_entry(entry, "b" * 16, at)


@dataclass
class Message:
    partition: int
    value: bytes = b""
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Broker:
    """The topics and positions that a start reads. Each read of positions or tails first runs ``meanwhile`` once."""

    counts: dict[str, int]
    logs: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    positions: dict[Partition, CommittedPosition] = field(default_factory=dict)
    meanwhile: list[Callable[[], None]] = field(default_factory=list)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.counts.get(topic, 0)))

    def put(self, topic: str, number: int, *messages: bytes, ids: Sequence[int] = ()) -> None:
        log = self.logs.setdefault(TopicPartition(topic, number), [])
        log += [Message(number, value) for value in messages]
        log += [Message(number, headers=((DEID_ID, f"{offset:032x}".encode()),)) for offset in ids]

    async def tails(self, _: KafkaOptions, places: Iterable[TopicPartition], most: int) -> list[Message]:
        found = [message for tp in places for message in self.logs.get(tp, [])[-most:]]
        self.step()
        return found

    async def committed(
        self, _client: object, _group: str, streams: Collection[Partition]
    ) -> tuple[Mapping[Partition, CommittedPosition], frozenset[Partition]]:
        found = {stream: self.positions[stream] for stream in streams if stream in self.positions}
        self.step()
        return found, frozenset()

    def step(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()


@dataclass
class Starts:
    """Starts members against one broker."""

    broker: Broker
    delivery: Delivery = Delivery.EXACTLY_ONCE
    audit_topic: str | None = "audit"

    async def prepare(
        self, own: Mapping[Partition, AuditedBatch] | None = None, choice: ResumeFrom | None = None
    ) -> Mapping[Partition, AuditedBatch]:
        settings = KafkaOptions(
            bootstrap_servers="a:1",
            group_id="g",
            routes={"adt": "adt.out"},
            audit_topic=self.audit_topic,
            delivery=self.delivery,
        )
        self.positions = StartPositions(settings, lambda: own or {}, choice, Telemetry())
        await self.positions.prepare(None, self.broker, ["adt"])
        return self.positions._audited


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker({"adt": 1, "adt.out": 1, "adt.dlq": 1, "audit": 1})

    async def identities(_client: object, topics: Collection[str]) -> Mapping[str, TopicIdentity]:
        return {topic: TopicIdentity("one", {0: 0}) for topic in topics}

    monkeypatch.setattr(start_positions, "read_tails", made.tails)
    monkeypatch.setattr(start_positions, "settled_positions", made.committed)
    monkeypatch.setattr(start_positions, "topic_identities", identities)
    return made


ADT = Partition("adt", 0)


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_a_busy_member_is_not_taken_for_a_loss(broker: Broker, delivery: Delivery) -> None:
    """A second agent starts beside a busy one."""

    def commit(first: int) -> Callable[[], None]:
        def doing() -> None:
            broker.put("audit", 0, *(line(ADT, offset, first + 2.0) for offset in (first, first + 1)))
            broker.positions[ADT] = CommittedPosition(first + 2, NOTE)

        return doing

    commit(0)()
    broker.meanwhile = [commit(2), commit(4), commit(6), commit(8)]
    await Starts(broker, delivery).prepare()
    # The same while the broker has none of the positions yet.
    broker.positions.clear()
    broker.logs.clear()
    broker.meanwhile = [commit(0), commit(2), commit(4), commit(6)]
    await Starts(broker, delivery).prepare()


async def test_a_position_behind_the_audit_topic_is_still_refused(broker: Broker) -> None:
    broker.put("audit", 0, line(ADT, 7, 5.0))
    broker.positions[ADT] = CommittedPosition(3, NOTE)
    with pytest.raises(ConfigurationError, match="position of the group is 3, but the audit ends before offset 8"):
        await Starts(broker).prepare()
    del broker.positions[ADT]
    with pytest.raises(ConfigurationError, match="no position, but the audit ends before offset 8"):
        await Starts(broker).prepare()


async def test_an_audit_topic_that_got_more_partitions_is_read_by_time(broker: Broker) -> None:
    """Entries of one input partition are in two of its partitions, and the older ones may arrive last."""
    third = Partition("adt", 3)
    broker.counts |= {"adt": 4, "audit": 4}
    for number, offset in ((3, 20), (0, 10)):
        broker.put("audit", number, line(third, offset, float(offset)))
    broker.positions = {Partition("adt", n): CommittedPosition(21, NOTE) for n in range(4)}
    assert (await Starts(broker).prepare())[third].next == 21
    broker.logs = dict(reversed(broker.logs.items()))
    for number in (0, 3):
        broker.logs[TopicPartition("audit", number)], broker.logs[TopicPartition("audit", 3 - number)] = (
            broker.logs[TopicPartition("audit", 3 - number)],
            broker.logs[TopicPartition("audit", number)],
        )
        assert (await Starts(broker).prepare())[third].next == 21


async def test_a_former_topic_in_the_own_trail_does_not_hide_the_audit_topic(broker: Broker) -> None:
    own = {ADT: AuditedBatch(1.0, 900, 1000, "former")}
    broker.put("audit", 0, line(ADT, 7, 5.0))
    with pytest.raises(ConfigurationError, match="no position, but the audit ends before offset 8"):
        await Starts(broker).prepare(own)
    assert (await Starts(broker).prepare(own, ResumeFrom.AUDIT))[ADT].first == 8


async def test_a_batch_that_the_tail_cuts_off_keeps_its_begin(broker: Broker) -> None:
    """The outputs of its first records may be missing as well."""
    own = {ADT: AuditedBatch(2.0, 0, 4, "one", {n: f"{n:032x}" for n in range(4)})}
    broker.put("audit", 0, *(line(ADT, offset, 2.0) for offset in (2, 3)))
    starts = Starts(broker, Delivery.AT_LEAST_ONCE)
    assert (await starts.prepare(own, ResumeFrom.AUDIT))[ADT].first == 0
    # Another member has the trail: the whole topic counts, not its last 500 entries.
    broker.logs.clear()
    broker.counts["adt"] = 2
    broker.put("audit", 0, *(line(ADT, offset, 2.0) for offset in range(10)))
    broker.put("audit", 0, *(line(Partition("adt", 1), offset, 3.0) for offset in range(495)))
    assert (await starts.prepare({}, ResumeFrom.AUDIT))[ADT].first == 0


@pytest.mark.parametrize(("topic", "former"), [("adt.out", 2), ("adt.dlq", 0)])
async def test_outputs_from_before_their_topic_grew_are_found(broker: Broker, topic: str, former: int) -> None:
    fifth = Partition("adt", 5)
    broker.counts = {"adt": 6, "adt.out": 6, "adt.dlq": 6}
    broker.put(topic, former, ids=[8, 9])
    own = {fifth: AuditedBatch(2.0, 8, 11, "one", {n: f"{n:032x}" for n in (8, 9, 10)})}
    found = await Starts(broker, audit_topic=None).prepare(own, ResumeFrom.AUDIT)
    assert found[fifth].first == 10


class Ends:
    """A consumer that is asked for the bounds of partitions."""

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 50)


@dataclass
class Writer:
    """A writer that was opened."""

    found: CommittedPosition | None
    note: str = ""
    moved: list[int] = field(default_factory=list)

    async def move(self, position: int) -> None:
        self.moved.append(position)


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_a_group_of_a_former_version_continues_without_a_choice(broker: Broker, delivery: Delivery) -> None:
    """Its positions have no note, and its trail and audit topic no ids of topics. A quiet partition has no position."""
    own = read_last_batches(FORMER)
    assert own[ADT].next == 6
    broker.counts |= {"adt": 2, "adt.out": 2}
    for former in sorted(FORMER.glob("*.jsonl")):
        broker.put("audit", 0, *former.read_bytes().splitlines())
    quiet = Partition("adt", 1)
    for committed in (6, 3):  # a clean stop, and a crash between audit and commit
        broker.positions[ADT] = CommittedPosition(committed)
        starts = Starts(broker, delivery)
        await starts.prepare(own)
        writers = {ADT: Writer(broker.positions[ADT]), quiet: Writer(None)}
        identities = {"adt": TopicIdentity("one", {0: 0, 1: 0})}
        assert await starts.positions.settle(Ends(), writers, identities) == {ADT: committed, quiet: 0}  # type: ignore[arg-type]
        assert (writers[ADT].moved, writers[quiet].moved) == ([], [0])
        assert all("topic=one" in writer.note for writer in writers.values())
