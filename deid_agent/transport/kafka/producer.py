"""Writers: each assigned input partition has one, through which all its outputs and dead letters leave.

aiokafka 0.14 commits offsets in a transaction without the consumer's generation (TxnOffsetCommit v0), so the broker
does not connect a transaction with the group membership. The transactional id of the input partition provides the
fencing: opening a writer increases its epoch, which fences the former owner of the partition *and* completes or aborts
that owner's last transaction. Only then the committed position is read.

A producer is discarded after any error, and a new one is opened before the next attempt. ``abort_transaction`` is never
used: after an abortable error aiokafka sends no EndTxn, while the InitProducerId of the new producer aborts the open
transaction. The committed position then shows whether the failed attempt succeeded.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import OffsetAndMetadata

from deid_agent.agent import Partition
from deid_agent.config import Delivery
from deid_agent.model import AssignmentLostError, ConfigurationError, TransientError
from deid_agent.transport.kafka.client import root_cause, run_briefly, run_to_completion
from deid_agent.transport.kafka.client_internals import (
    abort_connections,
    close_sender,
    mark_closed,
    pending_futures,
    sender_task,
)
from deid_agent.transport.kafka.error_codes import INVALID_RECORD
from deid_agent.transport.kafka.messages import KafkaMessage, choose_partition, date_message
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.protocol import CommittedPosition, stable_position
from deid_agent.transport.kafka.queueing import Acknowledgment, queue_messages, small_limit

_CLOSE_S = 0.5

CommitPosition = Callable[[Partition, int, str], Awaitable[None]]
"""Moves the position of a partition with a commit of the consumer (at least once). The text is stored with it."""

AbortCallback = Callable[[Partition, str], None]
"""Called with the partition of a transaction that was given up, and the class name of the error."""


_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class TooLarge(MessageSizeTooLargeError):  # type: ignore[misc]
    """No broker or setting accepts this message."""

    def __init__(self, message: KafkaMessage) -> None:
        super().__init__()
        self.message = message


class NoKey(INVALID_RECORD):  # type: ignore[misc]
    """The topic of this message takes only messages with keys."""

    def __init__(self, message: KafkaMessage) -> None:
        super().__init__()
        self.message = message


class PartitionWriter(ABC):
    """Writes the finished records of one input partition. Raises aiokafka's errors, and ``AssignmentLostError``."""

    def __init__(self, settings: KafkaOptions, stream: Partition) -> None:
        self._settings = settings
        self._stream = stream
        self._producer: AIOKafkaProducer | None = None
        self._lost = False
        self._attempted: int | None = None
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._batch_bytes = settings.batch_bytes
        self._earliest = False
        self.position: int | None = None
        """The last known committed position; ``None`` if nothing was ever committed."""
        self.found: CommittedPosition | None = None
        """What ``open`` found."""
        self.failed_topic = ""
        """The topic that refused a message of the last ``commit``; empty if none did."""
        self.note = ""
        """The text that is stored with each position."""

    async def open(self) -> int | None:
        """Take over the partition with a new producer; return the position to read from."""
        await self._discard_producer()
        producer = self._make_producer()
        try:
            await run_to_completion(producer.start())
            self.found = await stable_position(producer.client, self._settings.group_id, self._stream)
        except BaseException:
            await discard_producer(producer)
            raise
        self._producer = producer
        self.position = None if self.found is None else self.found.offset
        return self.position

    async def move(self, position: int) -> None:
        """Commit this position, which may be an earlier one. Call it before any ``commit``."""
        async with self._lock:
            await self._write(self._producer or await self._reopen(), [], position)
            self.position = position

    async def commit(self, messages: Sequence[KafkaMessage], position: int) -> None:
        """Make the messages durable, then the position. May be repeated after any error, with the same or more
        messages.

        Leaves out messages below the committed position, because an earlier attempt may have succeeded although its
        answer was lost. Raises ``AssignmentLostError`` if another member moved the position.
        """
        async with self._lock:
            producer = self._producer or await self._reopen()
            finished = self.position or 0
            if position <= finished:
                return
            self._attempted, self.failed_topic = position, ""
            due = [message for message in messages if message.offset >= finished]
            try:
                self._writing = asyncio.create_task(self._write(producer, due, position))
                await self._await_write(self._writing)
            except BaseException as error:
                fatal = sender_error(producer)
                await self._discard_producer()
                if fatal is not None and isinstance(error, KafkaError) and not isinstance(error, NoKey):
                    raise fatal from error
                raise
            self.position = position

    async def _await_write(self, writing: "asyncio.Task[None]") -> None:
        """Wait for the write. ``close`` may cancel it; that must not look like a cancellation of the caller."""
        try:
            await asyncio.wait({writing})
        finally:
            writing.cancel()
            await asyncio.wait({writing})
        if writing.cancelled():
            raise AssignmentLostError(f"Kafka: {self._stream} was given up during a commit")
        writing.result()

    async def mark_lost(self) -> None:
        """Write nothing more: the group is about to rebalance."""
        self._lost = True
        await self._discard_producer()

    async def close(self) -> None:
        """Write nothing more and close. An open transaction is aborted by the next writer, or by its timeout."""
        if self._writing is not None:
            self._writing.cancel()
        await self.mark_lost()

    async def _discard_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard_producer(producer)

    async def _reopen(self) -> AIOKafkaProducer:
        if not self._lost:
            known = self.position
            found = await self.open()
            # If another member moved the position, this member was probably removed from the group and must not fence
            # its successor.
            self._lost = self._lost or found not in (known, self._attempted)
        if self._lost:
            await self._discard_producer()
            raise AssignmentLostError(f"Kafka: {self._stream} has another owner; the group rebalances")
        return self._producer

    @abstractmethod
    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[KafkaMessage], position: int) -> None:
        """Send the messages, then move the position."""

    def _make_producer(self, **options: object) -> AIOKafkaProducer:
        return make_producer(self._settings, batch_bytes=self._batch_bytes, **options)

    async def _deliver(self, producer: AIOKafkaProducer, messages: Sequence[KafkaMessage]) -> None:
        """Send in order and wait until all are acknowledged. Raises ``TooLarge`` if one is never accepted.

        ``commit_transaction`` waits for them as well, but ignores their errors: it would commit the rest.
        """
        acknowledged: list[Acknowledgment] = []
        messages = _by_topic(messages)
        try:
            await self._send(producer, messages, acknowledged)
            await asyncio.gather(*dict.fromkeys(acknowledged))
        except INVALID_RECORD as error:
            # The broker refuses the whole batch of the producer, with the messages that have keys.
            self.failed_topic = _failed_topic(messages, acknowledged)
            refused = [m for m in messages if m.topic == self.failed_topic and m.key is None]
            raise NoKey(refused[0]) if refused else error from None
        except _TOO_LARGE as error:
            refused = [m for m, f in zip(messages, acknowledged, strict=False) if _too_large(f)]
            # The producer's own limit refuses the message after those that were queued.
            largest = max(refused, key=KafkaMessage.size) if refused else messages[len(acknowledged)]
            if len(refused) <= 1 or largest.size() >= self._batch_bytes:
                raise TooLarge(largest) from error
            # The broker checks the size of the batch. A message that is alone in its batch is too large by itself.
            self._batch_bytes //= 4
            raise TransientError(
                f"Kafka: {largest.topic} accepts only smaller batches: sent again in smaller ones"
            ) from None
        except InvalidTimestampError:
            if self._earliest or all(message.timestamp_ms is not None for message in messages):
                raise
            self._earliest = True
            raise TransientError(
                f"Kafka: {self._stream}: the broker refuses the time of a dead letter or audit line, because the clock "
                "of this host or of a sender is ahead: sent again with the earlier time of the two"
            ) from None
        except KafkaError:
            self.failed_topic = _failed_topic(messages, acknowledged)
            raise

    async def _send(
        self, producer: AIOKafkaProducer, messages: Sequence[KafkaMessage], acknowledged: list[Acknowledgment]
    ) -> None:
        """Queue messages, topic by topic. Each future ends when its messages are acknowledged; await all of them."""
        outputs = {topic: len(await producer.partitions_for(topic)) for topic in {m.topic for m in messages}}
        now_ms, small = int(time.time() * 1000), small_limit(self._batch_bytes, self._settings.max_request_bytes)
        for topic, some in groupby(messages, lambda message: message.topic):
            dated = [date_message(message, now_ms, earliest=self._earliest) for message in some]
            partition = choose_partition(self._stream.number, outputs[topic])
            await queue_messages(producer, dated, partition, small, acknowledged)


class TransactionalWriter(PartitionWriter):
    """Exactly once: messages and position become visible together or not at all."""

    def __init__(self, settings: KafkaOptions, stream: Partition, aborted: AbortCallback | None = None) -> None:
        super().__init__(settings, stream)
        self._aborted = aborted

    def _make_producer(self, **options: object) -> AIOKafkaProducer:
        settings, stream = self._settings, self._stream
        return super()._make_producer(
            transactional_id=settings.transactional_id(stream.topic, stream.number),
            transaction_timeout_ms=settings.transaction_timeout_ms,
            **options,
        )

    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[KafkaMessage], position: int) -> None:
        offsets = {TopicPartition(self._stream.topic, self._stream.number): OffsetAndMetadata(position, self.note)}
        try:
            await producer.begin_transaction()
            await self._deliver(producer, messages)
            await producer.send_offsets_to_transaction(offsets, self._settings.group_id)
            await producer.commit_transaction()
        except BaseException as error:  # a cancellation too: the commit timed out, or the partition was given up
            if self._aborted is not None:
                self._aborted(self._stream, type(sender_error(producer) or root_cause(error)).__name__)
            raise


class AcknowledgingWriter(PartitionWriter):
    """At least once: all in-sync replicas acknowledge the messages, then the position is committed."""

    def __init__(self, settings: KafkaOptions, stream: Partition, commit: CommitPosition) -> None:
        super().__init__(settings, stream)
        self._commit = commit
        self._written = -1

    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[KafkaMessage], position: int) -> None:
        # Messages that an earlier attempt got acknowledged are not sent again when only its commit failed.
        await self._deliver(producer, [m for m in messages if m.offset > self._written])
        self._written = position - 1
        await self._commit(self._stream, position, self.note)


def make_producer(settings: KafkaOptions, *, batch_bytes: int | None = None, **options: object) -> AIOKafkaProducer:
    """An idempotent producer, not started. Raises ``ConfigurationError``."""
    try:
        return AIOKafkaProducer(
            **settings.connection(),
            acks="all",
            enable_idempotence=True,
            max_batch_size=batch_bytes or settings.batch_bytes,
            max_request_size=settings.max_request_bytes,
            linger_ms=settings.linger_ms,
            compression_type=settings.compression,
            request_timeout_ms=settings.request_timeout_ms,
            **options,
        )
    except (RuntimeError, ValueError) as problem:
        # Messages of the constructor contain setting names only.
        raise ConfigurationError(f"kafka: {problem}; snappy, lz4 and zstd need cramjam") from None


def make_writer(
    settings: KafkaOptions, stream: Partition, commit: CommitPosition, aborted: AbortCallback
) -> PartitionWriter:
    """The writer for the delivery guarantee in ``settings.delivery``."""
    if settings.delivery is Delivery.EXACTLY_ONCE:
        return TransactionalWriter(settings, stream, aborted)
    return AcknowledgingWriter(settings, stream, commit)


def _by_topic(messages: Sequence[KafkaMessage]) -> list[KafkaMessage]:
    """The messages of each topic together, in their order."""
    found: dict[str, list[KafkaMessage]] = {}
    for message in messages:
        found.setdefault(message.topic, []).append(message)
    return [message for some in found.values() for message in some]


def _failed_topic(messages: Sequence[KafkaMessage], acknowledged: Sequence[Acknowledgment]) -> str:
    for message, future in zip(messages, acknowledged, strict=False):
        if future.done() and not future.cancelled() and future.exception() is not None:
            return message.topic
    return messages[len(acknowledged)].topic if len(acknowledged) < len(messages) else ""


def _too_large(future: Acknowledgment) -> bool:
    return future.done() and not future.cancelled() and isinstance(future.exception(), _TOO_LARGE)


def sender_error(producer: AIOKafkaProducer) -> BaseException | None:
    """The error that ended the producer's sender task; None if the task is alive or was cancelled.

    The futures of messages hold copies of this error, and copying drops the cause that names the reason.
    """
    task = sender_task(producer)
    if task is None or not task.done() or task.cancelled() or (error := task.exception()) is None:
        return None
    return root_cause(error)


async def discard_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer in an unknown state without flushing: nothing more may leave it.

    ``stop()`` would wait for unsent messages, and never return with a dead broker. The first cancellation of the
    sender makes it wait for its requests, which may look for a coordinator for ever; the second one ends those.
    """
    mark_closed(producer)
    abort_connections(producer.client)
    await run_briefly(producer.client.close())
    closing = asyncio.create_task(close_sender(producer))
    await asyncio.wait({closing}, timeout=_CLOSE_S)
    closing.cancel()
    await asyncio.wait({closing}, timeout=_CLOSE_S)
    await run_briefly(producer.client.close())
    for future in pending_futures(producer):
        if future.done() and not future.cancelled():
            future.exception()  # nobody else retrieves it, and asyncio would log it with a traceback
