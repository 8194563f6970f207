"""Queues messages in a producer.

``producer.send`` makes two coroutines, a future and its callback for each message, which costs more than the message
itself. Small messages of one topic are therefore put into batches, and a batch has one future.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from deid_agent.transport.kafka.messages import KafkaMessage

Acknowledgment = asyncio.Future[object]

_MOST_SMALL: Final = 64 * 1024
_HEADER_BYTES: Final = 16  # more than the lengths of a header take


def small_limit(batch_bytes: int, request_bytes: int) -> int:
    """The largest message that needs no check of its own, with batches and requests of these sizes."""
    return min(batch_bytes // 4, request_bytes // 2, _MOST_SMALL)


async def queue_message(producer: AIOKafkaProducer, message: KafkaMessage, partition: int) -> Acknowledgment:
    """Queue a message. The future ends when it is acknowledged, and its result must be retrieved.

    Raises ``MessageSizeTooLargeError`` if it is larger than a request of this producer may be.
    """
    if message.key is None and message.value is None:  # ``producer.send`` asserts that the message has a key or a value
        batch = producer.create_batch()
        _append(batch, message)
        return await _queue_batch(producer, batch, message.topic, partition)
    queued: Acknowledgment = await producer.send(
        message.topic,
        value=message.value,
        key=message.key,
        partition=partition,
        timestamp_ms=message.timestamp_ms,
        headers=list(message.headers),
    )
    return queued


async def queue_messages(
    producer: AIOKafkaProducer,
    messages: Sequence[KafkaMessage],
    partition: int,
    small: int,
    acknowledged: list[Acknowledgment],
) -> None:
    """Queue messages of one topic in order, and append the future of each to ``acknowledged``.

    The messages of a batch have one future. A message above ``small`` bytes is queued by itself, and the producer
    checks its size. After an error ``acknowledged`` ends before the first message that is not queued.
    """
    batch: BatchBuilder | None = None
    held = 0
    for message in messages:
        fits = _size(message) <= small
        if batch is not None and not (fits and _append(batch, message)):
            acknowledged += [await _queue_batch(producer, batch, message.topic, partition)] * held
            batch, held = None, 0
        if not fits:
            acknowledged.append(await queue_message(producer, message, partition))
            continue
        if batch is None:
            batch = producer.create_batch()
            _append(batch, message)  # the first one always fits
        held += 1
    if batch is not None:
        acknowledged += [await _queue_batch(producer, batch, messages[-1].topic, partition)] * held


def _append(batch: BatchBuilder, message: KafkaMessage) -> bool:
    """Append a message to a batch; False if the batch is full."""
    appended = batch.append(
        timestamp=message.timestamp_ms, key=message.key, value=message.value, headers=list(message.headers)
    )
    return appended is not None


async def _queue_batch(producer: AIOKafkaProducer, batch: BatchBuilder, topic: str, partition: int) -> Acknowledgment:
    queued: Acknowledgment = await producer.send_batch(batch, topic, partition=partition)
    return queued


def _size(message: KafkaMessage) -> int:
    """Bytes of the message with its headers, rounded up."""
    return message.size() + sum(_HEADER_BYTES + 4 * len(name) + len(value) for name, value in message.headers)
