"""The contract of a transport: inherit ``TransportContract``, provide a ``world``, name the tests that you waive.

    class TestMemory(TransportContract):
        @pytest.fixture
        async def world(self) -> AsyncIterator[World]: ...

A ``World`` is a source that outlives the transports over it, with a view of their output.
All tests use one partition. Payloads and keys carry canaries, so that a test can look for them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import pytest
from support.marks import MARKS, published_output

from deid_agent.agent.ports import (
    Coordinates,
    DeadLetter,
    FinishedRecord,
    Headers,
    KnowsLag,
    Outcome,
    Output,
    Partition,
    Record,
    Transport,
)
from deid_agent.config import DirectorySettings
from deid_agent.model.errors import Reason, TransportError

CANARY = b"Okonkwo-Featherstonehaugh"


@dataclass(frozen=True, slots=True)
class Given:
    """A record to put into the source."""

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)


def folder_settings(root: Path, **values: object) -> DirectorySettings:
    """Folders of a test, below ``root``."""
    folders = {"input": "in", "output": "out", "dead_letters": "letters", "state": "state"}
    return DirectorySettings.model_validate({name: root / path for name, path in folders.items()} | values)


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A stored dead letter; ``payload`` is None if it is sealed."""

    headers: Mapping[str, bytes]
    payload: bytes | None = field(repr=False)


class World(Protocol):
    """A source with one partition, and a view of its results."""

    @property
    def stream(self) -> Partition:
        """The partition that ``fill`` fills."""

    async def fill(self, given: Sequence[Given]) -> None:
        """Put records in, in this order; called before a transport starts."""

    def transport(self) -> Transport:
        """A fresh transport over this source, as a restarted process has it. The world stops those left open."""

    async def outputs(self) -> Sequence[Output]:
        """Everything a reader sees now, in order (with Kafka: read committed, up to the end)."""

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        """All dead letters, in order."""

    def fail_commit(self) -> None:
        """The next ``commit`` raises a ``TransportError`` before anything is durable; the one after it works."""


class Member:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.streams: set[Partition] = set()
        self.calls: list[str] = []

    async def assigned(self, streams: Sequence[Partition]) -> None:
        self.calls.append("assigned")
        self.streams |= set(streams)

    async def revoked(self, streams: Sequence[Partition]) -> None:
        self.calls.append("revoked")
        self.streams -= set(streams)


def numbered(count: int) -> list[Given]:
    """Records whose keys sort in the order in which they are given."""
    return [Given(b"payload %03d " % i + CANARY, b"key-%03d" % i) for i in range(count)]


def published(record: Record) -> FinishedRecord:
    """A published record."""
    return published_output(record, b"clean " + record.payload[:11], record.key, record.headers)


def refused(record: Record, reason: Reason = Reason.MALFORMED) -> FinishedRecord:
    """A refused record."""
    dead_letter = DeadLetter(reason, stage="parse", where="PID-7", attempts=2)
    return FinishedRecord(record, Outcome.DEAD_LETTERED, dead_letter=dead_letter, id=MARKS.id_of(record.coordinates))


def after(records: Sequence[Record]) -> int:
    """The position after the last of these."""
    return records[-1].coordinates.offset + 1


class TransportContract:
    """The suite. ``waived`` names tests that do not apply, each with its reason."""

    waived: ClassVar[Mapping[str, str]] = {}
    patience_s: ClassVar[float] = 30.0

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        """Override this: each transport has its own world."""
        raise NotImplementedError  # abstract: each test class that inherits the contract provides its world
        yield

    @pytest.fixture(autouse=True)
    def _waive(self, request: pytest.FixtureRequest) -> None:
        name = request.node.name.split("[")[0]
        if name in self.waived:  # a capability that the transport does not have, such as headers in a folder
            pytest.skip(f"waived: {self.waived[name]}")

    def test_waivers_name_tests(self) -> None:
        assert not [name for name in self.waived if not hasattr(self, name)]

    async def take(self, transport: Transport, count: int) -> list[Record]:
        """Poll until ``count`` records arrived; fail if fewer or more arrive."""
        records: list[Record] = []
        async with asyncio.timeout(self.patience_s):
            while len(records) < count:
                records += await transport.poll(count - len(records))
        assert len(records) == count
        return records

    async def delivers_nothing(self, transport: Transport, polls: int = 3) -> bool:
        async with asyncio.timeout(self.patience_s):
            return not [record for _ in range(polls) for record in await transport.poll(10)]

    def assert_delivered_again(self, again: Sequence[Record], records: Sequence[Record]) -> None:
        """Assert that these are the uncommitted records, from their position on."""
        assert [(r.coordinates, r.key, r.payload) for r in again] == [
            (r.coordinates, r.key, r.payload) for r in records
        ]

    async def started(self, world: World) -> Transport:
        transport = world.transport()
        async with asyncio.timeout(self.patience_s):
            await transport.start(Member())
        return transport

    async def test_records_are_delivered_in_order_with_their_coordinates(self, world: World) -> None:
        given = numbered(7)
        await world.fill(given)
        transport = await self.started(world)
        records = await self.take(transport, 7)
        assert [(r.key, r.payload) for r in records] == [(g.key, g.payload) for g in given]
        assert {r.coordinates.stream for r in records} == {world.stream}
        offsets = [r.coordinates.offset for r in records]
        assert offsets == sorted(set(offsets))
        assert offsets[0] >= 0
        await transport.stop()

    async def test_poll_respects_its_limit(self, world: World) -> None:
        await world.fill(numbered(5))
        transport = await self.started(world)
        seen: list[Record] = []
        async with asyncio.timeout(self.patience_s):
            while len(seen) < 5:
                got = await transport.poll(2)
                assert len(got) <= 2
                seen += got
        assert [r.key for r in seen] == [g.key for g in numbered(5)]
        await transport.stop()

    async def test_a_partition_is_assigned_before_its_first_record(self, world: World) -> None:
        await world.fill(numbered(1))
        member = Member()
        transport = world.transport()
        async with asyncio.timeout(self.patience_s):
            await transport.start(member)
        await self.take(transport, 1)
        assert member.streams == {world.stream}
        await transport.stop()

    async def test_committed_outputs_are_published_in_order(self, world: World) -> None:
        await world.fill(numbered(4))
        transport = await self.started(world)
        records = await self.take(transport, 4)
        assert list(await world.outputs()) == []
        await transport.commit(world.stream, [published(r) for r in records[:3]], after(records[:3]))
        assert [o.payload for o in await world.outputs()] == [b"clean payload %03d" % i for i in range(3)]
        await transport.commit(world.stream, [published(records[3])], after(records))
        assert [o.payload for o in await world.outputs()] == [b"clean payload %03d" % i for i in range(4)]
        await transport.stop()

    async def test_only_uncommitted_records_are_delivered_again(self, world: World) -> None:
        await world.fill(numbered(5))
        first = await self.started(world)
        records = await self.take(first, 5)
        await first.commit(world.stream, [published(r) for r in records[:2]], after(records[:2]))
        await first.stop()
        second = await self.started(world)
        again = await self.take(second, 3)
        self.assert_delivered_again(again, records[2:])
        await second.commit(world.stream, [published(r) for r in again], after(again))
        await second.stop()
        third = await self.started(world)
        assert await self.delivers_nothing(third)
        assert [o.payload for o in await world.outputs()] == [b"clean payload %03d" % i for i in range(5)]
        await third.stop()

    async def test_stop_commits_nothing(self, world: World) -> None:
        await world.fill(numbered(2))
        first = await self.started(world)
        await self.take(first, 2)
        await first.stop()
        assert list(await world.outputs()) == []
        second = await self.started(world)
        await self.take(second, 2)
        await second.stop()

    async def test_dead_letters_give_reason_and_position_but_no_value(self, world: World) -> None:
        await world.fill(numbered(3))
        transport = await self.started(world)
        records = await self.take(transport, 3)
        batch = [published(records[0]), refused(records[1]), refused(records[2], Reason.POISON)]
        await transport.commit(world.stream, batch, after(records))
        assert [o.payload for o in await world.outputs()] == [b"clean payload 000"]
        dead_letters = await world.dead_letters()
        assert len(dead_letters) == 2
        for dead_letter, record, reason in zip(dead_letters, records[1:], ("MALFORMED", "POISON"), strict=True):
            assert self.coordinates(dead_letter) == record.coordinates
            assert dead_letter.headers["deid.error.code"] == reason.encode()
            assert dead_letter.headers["__connect.errors.stage"] == b"parse"
            assert dead_letter.headers["deid.attempts"] == b"2"
            assert dead_letter.headers["deid.version"]
            assert dead_letter.payload is None or dead_letter.payload == record.payload
            text = b" ".join(name.encode() + b"=" + value for name, value in dead_letter.headers.items())
            assert CANARY not in text
            assert record.key is None or record.key not in text
        await transport.stop()

    @staticmethod
    def coordinates(dead_letter: StoredDeadLetter) -> Coordinates:
        topic, partition, offset = (
            dead_letter.headers[f"__connect.errors.{name}"].decode() for name in ("topic", "partition", "offset")
        )
        return Coordinates(topic, int(partition), int(offset))

    async def test_a_refused_record_is_not_delivered_again(self, world: World) -> None:
        await world.fill(numbered(1))
        first = await self.started(world)
        records = await self.take(first, 1)
        await first.commit(world.stream, [refused(records[0])], after(records))
        await first.stop()
        second = await self.started(world)
        assert await self.delivers_nothing(second)
        await second.stop()

    async def test_a_suppressed_record_publishes_nothing_and_is_not_delivered_again(self, world: World) -> None:
        await world.fill(numbered(2))
        first = await self.started(world)
        records = await self.take(first, 2)
        batch = [FinishedRecord(records[0], Outcome.SUPPRESSED), published(records[1])]
        await first.commit(world.stream, batch, after(records))
        await first.stop()
        assert [o.payload for o in await world.outputs()] == [b"clean payload 001"]
        assert list(await world.dead_letters()) == []
        second = await self.started(world)
        assert await self.delivers_nothing(second)
        await second.stop()

    async def test_pause_holds_records_back_and_resume_delivers_them(self, world: World) -> None:
        await world.fill(numbered(3))
        transport = await self.started(world)
        first = await self.take(transport, 1)
        transport.pause(world.stream)
        transport.pause(world.stream)
        assert await self.delivers_nothing(transport, polls=2)
        await transport.commit(world.stream, [published(first[0])], after(first))
        transport.resume(world.stream)
        rest = await self.take(transport, 2)
        assert [r.key for r in rest] == [b"key-001", b"key-002"]
        await transport.stop()

    async def test_a_failed_commit_changes_nothing(self, world: World) -> None:
        await world.fill(numbered(3))
        first = await self.started(world)
        records = await self.take(first, 3)
        world.fail_commit()
        batch = [published(records[0]), refused(records[1]), published(records[2])]
        with pytest.raises(TransportError):
            await first.commit(world.stream, batch, after(records))
        assert list(await world.outputs()) == []
        assert list(await world.dead_letters()) == []
        await first.stop()
        second = await self.started(world)
        again = await self.take(second, 3)
        self.assert_delivered_again(again, records)
        batch = [published(again[0]), refused(again[1]), published(again[2])]
        await second.commit(world.stream, batch, after(again))
        assert [o.payload for o in await world.outputs()] == [b"clean payload 000", b"clean payload 002"]
        assert len(await world.dead_letters()) == 1
        await second.stop()

    async def test_an_empty_source_delivers_nothing(self, world: World) -> None:
        await world.fill([])
        transport = await self.started(world)
        assert await self.delivers_nothing(transport)
        await transport.stop()

    async def test_a_record_without_a_key(self, world: World) -> None:
        await world.fill([Given(b"payload 000", None)])
        transport = await self.started(world)
        (record,) = await self.take(transport, 1)
        assert record.key is None
        await transport.commit(world.stream, [published(record)], after([record]))
        assert [o.key for o in await world.outputs()] == [None]
        await transport.stop()

    async def test_headers_are_passed_through_unchanged(self, world: World) -> None:
        headers = (("traceparent", b"00-a-b-01"), ("twice", b"1"), ("twice", b"\xff\x00"))
        await world.fill([Given(b"payload 000", b"k", headers)])
        transport = await self.started(world)
        (record,) = await self.take(transport, 1)
        assert record.headers == headers
        await transport.commit(world.stream, [published(record)], after([record]))
        (output,) = await world.outputs()
        assert [h for h in output.headers if h[0] != "deid-id"] == list(headers)
        await transport.stop()

    async def test_a_payload_of_a_megabyte(self, world: World) -> None:
        payload = bytes(range(256)) * 4000
        await world.fill([Given(payload, b"big")])
        transport = await self.started(world)
        (record,) = await self.take(transport, 1)
        assert record.payload == payload
        output = Output(payload[::-1], record.key, record.headers)
        await transport.commit(world.stream, [FinishedRecord(record, Outcome.PUBLISHED, output)], after([record]))
        assert [o.payload for o in await world.outputs()] == [payload[::-1]]
        await transport.stop()

    async def test_an_empty_payload(self, world: World) -> None:
        await world.fill([Given(b"", b"empty")])
        transport = await self.started(world)
        (record,) = await self.take(transport, 1)
        assert record.payload == b""
        await transport.commit(world.stream, [refused(record)], after([record]))
        assert len(await world.dead_letters()) == 1
        await transport.stop()

    async def test_stop_can_be_called_twice_and_before_start(self, world: World) -> None:
        await world.fill(numbered(1))
        idle = world.transport()
        await idle.stop()
        transport = await self.started(world)
        await transport.stop()
        await transport.stop()

    async def test_repr_shows_no_value(self, world: World) -> None:
        await world.fill(numbered(2))
        transport = await self.started(world)
        records = await self.take(transport, 2)
        batch = [published(records[0]), refused(records[1])]
        for value in (transport, records, batch, await world.outputs()):
            assert CANARY.decode() not in repr(value)
        await transport.stop()

    async def test_lag_counts_uncommitted_records(self, world: World) -> None:
        await world.fill(numbered(3))
        transport = await self.started(world)
        if not isinstance(transport, KnowsLag):
            pytest.skip("this transport does not report its lag")
        records = await self.take(transport, 3)
        await transport.commit(world.stream, [published(records[0])], after(records[:1]))
        assert transport.lag(world.stream) in {2, None}
        await transport.stop()
