"""Rebalances, with a scripted client."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition, errors
from support.runner_bench import A, B, virtual
from support.transport_contract import Member

from deid_agent.agent.ports import Partition
from deid_agent.model.errors import TransientError, UnsafeError
from deid_agent.transport.kafka import source as kafka
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.protocol import CommittedPosition, TopicIdentity
from deid_agent.transport.kafka.source import KafkaTransport

SETTINGS = KafkaOptions(bootstrap_servers="localhost:9", group_id="g", routes={"adt": "out"})


class Writer:
    """Opens after ``takes_s``, at ``position``, or fails."""

    def __init__(self, takes_s: float = 0.0, position: int | None = 100, error: Exception | None = None) -> None:
        self._takes_s, self._error = takes_s, error
        self.position, self.note = position, ""
        self.found = None if position is None else CommittedPosition(position)
        self.closed = self.cancelled = False

    async def open(self) -> int | None:
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self._error is not None:
            raise self._error
        return self.position

    async def move(self, position: int) -> None:
        self.position = position

    async def close(self) -> None:
        self.closed = True


class Consumer:
    """Records the position that it was set to."""

    def __init__(self) -> None:
        self.seeks: list[tuple[int, int]] = []
        self.error: Exception | None = None

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.seeks.append((tp.partition, offset))

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 40)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1_000)

    def pause(self, *_: TopicPartition) -> None:
        pass

    def resume(self, *_: TopicPartition) -> None:
        pass

    def highwater(self, tp: TopicPartition) -> int:
        return 1_000

    async def position(self, tp: TopicPartition) -> int:
        return 7 + int(tp.partition)

    def raise_if_dead(self) -> None:
        pass

    def subscribe(self, *_: object, **__: object) -> None:
        pass

    async def getmany(self, *_: object, **__: object) -> dict[TopicPartition, list[SimpleNamespace]]:
        if self.error is not None:
            raise self.error
        return {}


async def no_identities(*_: object) -> dict[str, TopicIdentity]:
    return {}


@pytest.fixture
def deal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaTransport]:
    """A transport in its group, whose partitions get these writers one after another."""

    def dealt(*writers: Writer) -> KafkaTransport:
        made = iter(writers)
        monkeypatch.setattr(kafka, "make_writer", lambda *_: next(made))
        monkeypatch.setattr(kafka, "topic_identities", no_identities)
        monkeypatch.setattr(kafka, "client_of", lambda consumer: consumer)
        transport = KafkaTransport(SETTINGS)
        transport._consumer, transport._listener = Consumer(), Member()  # type: ignore[assignment]
        return transport

    return dealt


def test_a_slow_writer_does_not_outlive_a_failed_assignment(deal: Callable[..., KafkaTransport]) -> None:
    """It would replace and fence its successor, and move the consumer back."""
    slow, successor = Writer(takes_s=0.4, position=50), Writer()
    transport = deal(Writer(error=errors.KafkaConnectionError()), slow, Writer(), successor)

    @virtual
    async def ask() -> None:
        await transport._assigned([A, B])
        assert slow.cancelled
        with pytest.raises(TransientError):
            await transport.poll(1)  # triggers a rebalance
        await transport._revoked([A, B])
        await transport._assigned([A, B])
        await asyncio.sleep(1.0)
        assert transport._writers[B] is successor  # type: ignore[comparison-overlap]
        assert transport._consumer.seeks == [(0, 100), (1, 100)]  # type: ignore[union-attr]

    ask()


def test_lag_is_known_before_the_first_commit(deal: Callable[..., KafkaTransport]) -> None:
    """Otherwise a new group whose transactions never succeed would always look healthy."""
    transport = deal(Writer(position=None))

    @virtual
    async def ask() -> None:
        assert transport.lag(A) is None
        await transport._assigned([A])
        assert transport.lag(A) == 1_000 - 40

    ask()


def test_an_unreadable_header_is_reported_with_its_position(deal: Callable[..., KafkaTransport]) -> None:
    """Other clients send names in any bytes; the library reads UTF-8 alone and would meet the record at every start."""
    transport = deal(Writer(), Writer())

    @virtual
    async def ask() -> None:
        await transport._assigned([A, B])
        transport._consumer.error = UnicodeDecodeError("utf-8", b"Gr\xfc\xdfe", 2, 3, "invalid start byte")  # type: ignore[union-attr]
        with pytest.raises(UnsafeError, match=r"adt/0 from offset 7 on or adt/1 from offset 8 on: find it") as caught:
            await transport.poll(1)
        assert "Gr" not in str(caught.value)

    ask()


def test_a_stopped_transport_keeps_no_writer_that_opens_late(deal: Callable[..., KafkaTransport]) -> None:
    """The library ends its rebalance before it leaves the group."""
    late = Writer(takes_s=0.4)
    transport = deal(late)

    @virtual
    async def ask() -> None:
        dealing = asyncio.create_task(transport._assigned([Partition("adt", 0)]))
        await asyncio.sleep(0.1)
        transport._consumer = None
        await dealing
        assert late.closed
        assert transport._writers == {}

    ask()
