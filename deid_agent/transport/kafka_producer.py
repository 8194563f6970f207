"""One writer per assigned input partition: what is settled of that partition leaves through it alone.

aiokafka 0.14 commits offsets in a transaction without the consumer's generation (TxnOffsetCommit v0), so
nothing at the broker ties a transaction to the membership in the group. The transactional id of the
input partition does: opening a writer bumps its epoch, which fences whoever owned the partition before
*and* settles what became of his last transaction; only then is the committed position read.

A producer is thrown away after any error and a new one opened before the next try. ``abort_transaction``
is never used: after an abortable error aiokafka sends no EndTxn, while the new producer's InitProducerId
aborts what is open. The committed position then says whether the failed attempt went through.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import OffsetAndMetadata

from deid_agent.agent.ports import Partition
from deid_agent.errors import ConfigurationError, LostError, TransientError
from deid_agent.transport.kafka_calls import briefly, uncut
from deid_agent.transport.kafka_errors import cause_of
from deid_agent.transport.kafka_messages import Message, place
from deid_agent.transport.kafka_offsets import stable_position
from deid_agent.transport.kafka_settings import Delivery, KafkaSettings

_CLOSE_S = 0.5

Commit = Callable[[Partition, int], Awaitable[None]]
"""Moves the position of a partition by the consumer's own commit (at least once)."""

Aborted = Callable[[Partition, str], None]
"""Is told that a transaction of a partition was given up, and the class of the error."""


_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class TooLarge(MessageSizeTooLargeError):  # type: ignore[misc]
    """No broker or setting lets this message through."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message


class PartitionWriter(ABC):
    """Writes what is settled of one input partition. Raises the client's errors, and ``LostError``."""

    def __init__(self, settings: KafkaSettings, stream: Partition) -> None:
        self._settings = settings
        self._stream = stream
        self._producer: AIOKafkaProducer | None = None
        self._lost = False
        self._attempted: int | None = None
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._batch_bytes = settings.batch_bytes
        self.position: int | None = None
        """The committed position as last known; ``None`` where nothing was ever committed."""

    async def open(self) -> int | None:
        """Take the partition over with a fresh producer; returns the position to read from."""
        await self._drop()
        producer = self._make()
        try:
            await uncut(producer.start())
            self.position = await stable_position(producer.client, self._settings.group_id, self._stream)
        except BaseException:
            await discard(producer)
            raise
        self._producer = producer
        return self.position

    async def settle(self, messages: Sequence[Message], position: int) -> None:
        """Make the messages durable, then the position. May be called again after any error, with the same or more.

        Leaves out what the committed position says is settled: an earlier attempt may have gone through
        though its answer got lost. Raises ``LostError`` where somebody else moved the position.
        """
        async with self._turn:
            producer = self._producer or await self._reopen()
            settled = self.position or 0
            if position <= settled:
                return
            self._attempted = position
            due = [message for message in messages if message.offset >= settled]
            try:
                self._writing = asyncio.create_task(self._write(producer, due, position))
                await self._ended(self._writing)
            except BaseException as error:
                fatal = death(producer)
                await self._drop()
                if fatal is not None and isinstance(error, KafkaError):
                    raise fatal from error
                raise
            self.position = position

    async def _ended(self, writing: "asyncio.Task[None]") -> None:
        """Wait for it. ``close`` may cancel it, which is not a cancellation of ours."""
        try:
            await asyncio.wait({writing})
        finally:
            writing.cancel()
            await asyncio.wait({writing})
        if writing.cancelled():
            raise LostError(f"Kafka: {self._name} was given up while it was being settled")
        writing.result()

    async def lose(self) -> None:
        """Write nothing any more: the group is about to deal the partition out anew."""
        self._lost = True
        await self._drop()

    async def close(self) -> None:
        """Write nothing any more and end. What was not committed is aborted by the next writer, or by its timeout."""
        if self._writing is not None:
            self._writing.cancel()
        await self.lose()

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard(producer)

    async def _reopen(self) -> AIOKafkaProducer:
        if not self._lost:
            known = self.position
            found = await self.open()
            # Moved by somebody else, we may be the member that was thrown out, and in the way of its heir.
            self._lost = self._lost or found not in (known, self._attempted)
        if self._lost:
            await self._drop()
            raise LostError(f"Kafka: {self._name} has another owner; it is dealt out anew")
        return self._producer

    @property
    def _name(self) -> str:
        return f"{self._stream.topic}/{self._stream.number}"

    @abstractmethod
    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[Message], position: int) -> None:
        """Send, then move the position."""

    def _make(self, **options: object) -> AIOKafkaProducer:
        return make_producer(self._settings, batch_bytes=self._batch_bytes, **options)

    async def _deliver(self, producer: AIOKafkaProducer, messages: Sequence[Message]) -> None:
        """Send in order and wait until all are acknowledged. Raises ``TooLarge`` where one can't be.

        ``commit_transaction`` waits for them too but does not mind their errors: it would commit the rest.
        """
        acknowledged: list[asyncio.Future[object]] = []
        try:
            await self._send(producer, messages, acknowledged)
            await asyncio.gather(*acknowledged)
        except _TOO_LARGE as error:
            refused = [m for m, f in zip(messages, acknowledged, strict=False) if _too_large(f)]
            # Our own limit refuses the one behind those that were queued.
            largest = max(refused, key=Message.size) if refused else messages[len(acknowledged)]
            if len(refused) <= 1 or largest.size() >= self._batch_bytes:
                raise TooLarge(largest) from error
            # What the broker measures is a batch. One that is alone in its batch is too large by itself.
            self._batch_bytes //= 4
            raise TransientError(f"Kafka: {largest.topic} takes smaller batches: sent again in smaller ones") from None

    async def _send(
        self, producer: AIOKafkaProducer, messages: Sequence[Message], acknowledged: list[asyncio.Future[object]]
    ) -> None:
        """Queue messages in order; the futures end when they are acknowledged, and must be looked at."""
        inputs = len(await producer.partitions_for(self._stream.topic))
        outputs = {topic: len(await producer.partitions_for(topic)) for topic in {m.topic for m in messages}}
        for message in messages:
            partition = place(message.key, self._stream.number, inputs, outputs[message.topic])
            acknowledged.append(await send(producer, message, partition))


class TransactionalWriter(PartitionWriter):
    """Exactly once: messages and position come to stand together or not at all."""

    def __init__(self, settings: KafkaSettings, stream: Partition, aborted: Aborted | None = None) -> None:
        super().__init__(settings, stream)
        self._aborted = aborted

    def _make(self, **options: object) -> AIOKafkaProducer:
        settings, stream = self._settings, self._stream
        return super()._make(
            transactional_id=settings.transactional_id(stream.topic, stream.number),
            transaction_timeout_ms=settings.transaction_timeout_ms,
            **options,
        )

    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[Message], position: int) -> None:
        offsets = {TopicPartition(self._stream.topic, self._stream.number): OffsetAndMetadata(position, "")}
        try:
            await producer.begin_transaction()
            await self._deliver(producer, messages)
            await producer.send_offsets_to_transaction(offsets, self._settings.group_id)
            await producer.commit_transaction()
        except BaseException as error:  # a cancellation too: it took too long, or the partition was given up
            if self._aborted is not None:
                self._aborted(self._stream, type(death(producer) or cause_of(error)).__name__)
            raise


class AcknowledgingWriter(PartitionWriter):
    """At least once: messages are acknowledged by all replicas in sync, then the position is committed."""

    def __init__(self, settings: KafkaSettings, stream: Partition, commit: Commit) -> None:
        super().__init__(settings, stream)
        self._commit = commit
        self._written = -1

    async def _write(self, producer: AIOKafkaProducer, messages: Sequence[Message], position: int) -> None:
        # What an earlier attempt got acknowledged is not sent again only because its commit failed.
        await self._deliver(producer, [m for m in messages if m.offset > self._written])
        self._written = position - 1
        await self._commit(self._stream, position)


def make_producer(settings: KafkaSettings, *, batch_bytes: int | None = None, **options: object) -> AIOKafkaProducer:
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
        # Messages of the constructor name settings only.
        raise ConfigurationError(f"kafka: {problem}; snappy, lz4 and zstd need cramjam") from None


async def send(producer: AIOKafkaProducer, message: Message, partition: int) -> asyncio.Future[object]:
    """Queue a message; the future ends when it is acknowledged, and must be looked at."""
    headers = list(message.headers)
    if message.key is None and message.value is None:  # ``producer.send`` asserts that one is there
        batch = producer.create_batch()
        batch.append(timestamp=message.timestamp_ms, key=None, value=None, headers=headers)
        queued: asyncio.Future[object] = await producer.send_batch(batch, message.topic, partition=partition)
    else:
        queued = await producer.send(
            message.topic,
            value=message.value,
            key=message.key,
            partition=partition,
            timestamp_ms=message.timestamp_ms,
            headers=headers,
        )
    return queued


def make_writer(settings: KafkaSettings, stream: Partition, commit: Commit, aborted: Aborted) -> PartitionWriter:
    """The writer that keeps the promise of ``settings.delivery``."""
    if settings.delivery is Delivery.EXACTLY_ONCE:
        return TransactionalWriter(settings, stream, aborted)
    return AcknowledgingWriter(settings, stream, commit)


def _too_large(future: "asyncio.Future[object]") -> bool:
    return future.done() and not future.cancelled() and isinstance(future.exception(), _TOO_LARGE)


def death(producer: AIOKafkaProducer) -> BaseException | None:
    """What the sender died of. The futures hold copies of it, and copying drops the cause that says what it was."""
    task = producer._sender.sender_task
    if task is None or not task.done() or task.cancelled() or (error := task.exception()) is None:
        return None
    return cause_of(error)


def abort(client: AIOKafkaClient) -> None:
    """Drop what stands in its sockets: to close them would send that first, for minutes where the broker is gone."""
    for connection in client._conns.values():
        if connection._writer is not None:
            connection._writer.transport.abort()


async def discard(producer: AIOKafkaProducer) -> None:
    """Close without flushing: a producer in an unknown state must let nothing more out.

    ``stop()`` would wait for what is unsent, with a dead broker for ever. A first cancellation of the sender
    makes it wait for its requests, which look for a coordinator for ever; the second one ends those.
    """
    producer._closed = True
    abort(producer.client)
    await briefly(producer.client.close())
    closing = asyncio.create_task(producer._sender.close())
    await asyncio.wait({closing}, timeout=_CLOSE_S)
    closing.cancel()
    await asyncio.wait({closing}, timeout=_CLOSE_S)
    await briefly(producer.client.close())
    _look_at_errors(producer)


def _look_at_errors(producer: AIOKafkaProducer) -> None:
    """Take the errors that nobody else asks for; asyncio would log each with a trace."""
    batches = [batch for queue in producer._message_accumulator._batches.values() for batch in queue]
    futures = [producer._txn_manager.wait_for_transaction_end(), *(batch._drain_waiter for batch in batches)]
    for future in futures:
        if future is not None and future.done() and not future.cancelled():
            future.exception()
