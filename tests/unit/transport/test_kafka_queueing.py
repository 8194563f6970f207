"""Messages in a producer: small ones share a batch and its future, large ones are checked by the producer."""

import asyncio
from typing import cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder

from deid_agent.transport.kafka.messages import KafkaMessage
from deid_agent.transport.kafka.queueing import Acknowledgment, queue_message, queue_messages, small_limit

BATCH_BYTES = 4_000
SMALL = small_limit(BATCH_BYTES, 1 << 20)


class Producer:
    """Notes what is queued: the number of messages of a batch, or the value of a single message."""

    def __init__(self, largest: int = 1 << 20) -> None:
        self.queued: list[int | bytes | None] = []
        self._largest = largest

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(BATCH_BYTES, 0)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Acknowledgment:
        assert (topic, partition) == ("out", 3)
        self.queued.append(batch.record_count())
        return asyncio.get_running_loop().create_future()

    async def send(self, topic: str, *, value: bytes, **options: object) -> Acknowledgment:
        assert (topic, options["partition"]) == ("out", 3)
        if len(value) > self._largest:
            raise MessageSizeTooLargeError
        self.queued.append(value)
        return asyncio.get_running_loop().create_future()


def message(offset: int, size: int) -> KafkaMessage:
    return KafkaMessage("out", offset, b"x" * size, b"k", (("deid-id", b"%d" % offset),), 1)


async def queued(producer: Producer, messages: list[KafkaMessage]) -> list[Acknowledgment]:
    acknowledged: list[Acknowledgment] = []
    await queue_messages(cast(AIOKafkaProducer, producer), messages, 3, SMALL, acknowledged)
    return acknowledged


async def test_small_messages_share_a_batch_and_its_future() -> None:
    producer = Producer()
    acknowledged = await queued(producer, [message(offset, 100) for offset in range(9)])
    assert producer.queued == [9]
    assert len(acknowledged) == 9
    assert len(set(acknowledged)) == 1


async def test_a_full_batch_is_queued_before_the_next_one() -> None:
    producer = Producer()
    acknowledged = await queued(producer, [message(offset, 900) for offset in range(9)])
    assert producer.queued == [4, 4, 1]
    assert [acknowledged.index(future) for future in acknowledged] == [0, 0, 0, 0, 4, 4, 4, 4, 8]


async def test_a_large_message_keeps_its_place() -> None:
    producer = Producer()
    large = message(2, SMALL + 1)
    acknowledged = await queued(producer, [message(0, 10), message(1, 10), large, message(3, 10)])
    assert producer.queued == [2, large.value, 1]
    assert [acknowledged.index(future) for future in acknowledged] == [0, 0, 2, 3]


async def test_the_first_message_without_a_future_is_the_refused_one() -> None:
    producer = Producer(largest=2_000)
    messages = [message(0, 10), message(1, 10), message(2, 2_001), message(3, 10)]
    acknowledged: list[Acknowledgment] = []
    with pytest.raises(MessageSizeTooLargeError):
        await queue_messages(cast(AIOKafkaProducer, producer), messages, 3, SMALL, acknowledged)
    assert len(acknowledged) == 2


async def test_headers_count_as_bytes_of_a_message() -> None:
    producer = Producer()
    headed = KafkaMessage("out", 0, b"x", b"k", (("name", b"v" * SMALL),), 1)
    await queued(producer, [headed])
    assert producer.queued == [headed.value]


@pytest.mark.parametrize("value", [None, b""])
async def test_a_message_without_key_is_queued_alone_or_among_others(value: bytes | None) -> None:
    producer = Producer()
    bare = KafkaMessage("out", 0, value, None, (), 1)
    assert len(await queued(producer, [bare, bare])) == 2
    assert producer.queued == [2]
    await queue_message(cast(AIOKafkaProducer, producer), bare, 3)
    assert producer.queued == [2, 1 if value is None else value]


@pytest.mark.parametrize(
    ("batch_bytes", "request_bytes", "most"),
    [(512 * 1024, 1 << 26, 65_536), (8_192, 1 << 26, 2_048), (8_192, 1_024, 512)],
)
def test_no_small_message_can_be_too_large(batch_bytes: int, request_bytes: int, most: int) -> None:
    assert small_limit(batch_bytes, request_bytes) == most
