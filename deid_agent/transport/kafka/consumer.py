"""The consumer of the Kafka transport, and the setting that keeps aiokafka from logging PHI."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from deid_agent.agent import Coordinates, Partition, Record
from deid_agent.model import AssignmentLostError, TransientError, UnsafeError
from deid_agent.transport.kafka.client import run_briefly, run_to_completion
from deid_agent.transport.kafka.client_internals import (
    cancel_consumer_tasks,
    client_of,
    find_dead_task,
    is_group_member,
)
from deid_agent.transport.kafka.options import KafkaOptions

_READER_STOP_S = 5.0
_WAIT_MS = 200

PartitionsCallback = Callable[[list[Partition]], Awaitable[None]]


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """An aiokafka consumer that reports the loss of its background tasks and of its group membership."""

    def raise_if_dead(self) -> None:
        """Raise ``UnsafeError`` if a background task that must live as long as the consumer has ended.

        aiokafka then keeps answering polls with nothing, or repeats the same error for ever.
        """
        if (task := find_dead_task(self)) is not None:
            error = None if task.cancelled() else task.exception()
            cause = error and (error.__cause__ or error)
            raise UnsafeError(f"Kafka: the consumer died ({type(cause).__name__}): start the agent again")

    def raise_if_not_member(self) -> None:
        """Raise ``AssignmentLostError`` unless this consumer is a member of its group.

        If the group is empty, the broker accepts a commit with generation -1 and no member id: fencing does not help.
        """
        if not is_group_member(self):
            raise AssignmentLostError("Kafka: this member is no longer in the consumer group; it joins again")

    async def abandon(self) -> None:
        """Cancel the background tasks and close the connections without asking the broker, after ``stop`` timed out."""
        cancel_consumer_tasks(self)
        await run_briefly(client_of(self).close())


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes aiokafka's two rebalance calls on. aiokafka swallows what they raise, so the callbacks must not raise."""

    def __init__(self, revoked: PartitionsCallback, assigned: PartitionsCallback) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoked(sorted(Partition(tp.topic, tp.partition) for tp in revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._assigned(sorted(Partition(tp.topic, tp.partition) for tp in assigned))


def make_consumer(settings: KafkaOptions) -> Consumer:
    """A consumer, not started, that never commits by itself and never skips records silently."""
    return Consumer(
        **settings.connection(),
        group_id=settings.group_id,
        group_instance_id=settings.instance_id,
        # aiokafka speaks the eager protocol only: every rebalance revokes all partitions first.
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        enable_auto_commit=False,
        isolation_level="read_committed",
        # "earliest" would skip records that retention has deleted. The transport seeks explicitly.
        auto_offset_reset="none",
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=max(100, settings.session_timeout_ms // 10),
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        # The broker answers JoinGroup only after all other members have drained.
        request_timeout_ms=settings.rebalance_timeout_ms + settings.request_timeout_ms,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        # aiokafka has one fetch at a time for each broker. A partition that is resumed, or whose records are all taken,
        # is not fetched before the fetch of the other partitions returns, which waits this long if they have nothing
        # new. The default is 500 ms.
        fetch_max_wait_ms=settings.fetch_wait_ms,
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.fetch_partition_bytes,
    )


def make_reader(settings: KafkaOptions, isolation: str, group_id: str | None = None) -> Consumer:
    """A consumer that commits nothing. With ``group_id`` it can ask for the positions of that group."""
    return Consumer(
        **settings.connection(),
        group_id=group_id,
        enable_auto_commit=False,
        isolation_level=isolation,
        auto_offset_reset="earliest",  # retention may delete records while they are read
        request_timeout_ms=settings.request_timeout_ms,
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.fetch_partition_bytes,
    )


@asynccontextmanager
async def open_reader(
    settings: KafkaOptions, partitions: Iterable[TopicPartition], isolation: str = "read_committed"
) -> AsyncIterator[Consumer]:
    """A consumer of these partitions without a group. One that is reassigned may not notice the end of its fetches."""
    reader = make_reader(settings, isolation)
    try:
        await run_to_completion(reader.start())
        reader.assign(list(partitions))
        yield reader
    finally:
        await stop_consumer(reader, _READER_STOP_S)


async def read_tails(settings: KafkaOptions, partitions: Iterable[TopicPartition], most: int) -> list[ConsumerRecord]:
    """The last records of these partitions, ``most`` offsets of each, in order per partition.

    Raises ``TransientError`` if the broker returns nothing for as long as a request may take, and aiokafka's errors.
    """
    found: list[ConsumerRecord] = []
    left = list(partitions)
    if not left:
        return found
    async with open_reader(settings, left) as reader:
        begins, ends = await reader.beginning_offsets(left), await reader.end_offsets(left)
        for tp in left:
            reader.seek(tp, max(begins[tp], ends[tp] - most))
        quiet_ms, before = 0, None
        while left := [tp for tp in left if await reader.position(tp) < ends[tp]]:
            for tp, records in (await reader.getmany(*left, timeout_ms=_WAIT_MS)).items():
                found += (record for record in records if record.offset < ends[tp])
            now = [await reader.position(tp) for tp in left]
            quiet_ms = quiet_ms + _WAIT_MS if now == before else 0
            before = now
            if quiet_ms > settings.request_timeout_ms:
                raise TransientError(f"Kafka: {left[0].topic}/{left[0].partition} returns no more records")
    return found


def to_record(received: ConsumerRecord, topic_id: str = "") -> Record:
    """The record that aiokafka delivered. A null value is a tombstone; an unknown timestamp (-1) becomes None."""
    timestamp_ms = received.timestamp
    return Record(
        coordinates=Coordinates(received.topic, received.partition, received.offset),
        payload=received.value or b"",
        key=received.key,
        headers=tuple((name, value or b"") for name, value in received.headers),
        timestamp_ms=timestamp_ms if timestamp_ms is not None and timestamp_ms >= 0 else None,
        tombstone=received.value is None,
        topic_id=topic_id,
    )


async def describe_bad_header(consumer: Consumer, wanted: frozenset[Partition]) -> str:
    """The message for a record whose header aiokafka cannot decode. It does not report the partition."""
    places = [
        f"{stream} from offset {await consumer.position(TopicPartition(stream.topic, stream.number))} on"
        for stream in sorted(wanted)
    ]
    return (
        f"Kafka: a record has a header whose name is not UTF-8, in {' or '.join(places)}: find it with "
        "kafka-console-consumer, save it, move the group past it with kafka-consumer-groups and start again"
    )


async def stop_consumer(consumer: Consumer, timeout_s: float) -> None:
    """Stop a consumer; abandon it if it does not stop within ``timeout_s``, or if the caller is cancelled.

    ``stop`` runs in a task of its own: with a dead broker aiokafka lets the cancellation of its fetches escape.
    """
    stopping: asyncio.Task[None] = asyncio.create_task(consumer.stop())
    try:
        await asyncio.wait({stopping}, timeout=timeout_s)
    finally:
        if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
            stopping.cancel()
            await consumer.abandon()  # the group notices when the session times out


def limit_client_logging() -> None:
    """Raise the level of all aiokafka loggers to INFO at least: at DEBUG they log keys and values.

    Called at every start.
    """
    library = logging.getLogger("aiokafka")
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("aiokafka.")]
    for logger in (library, *named):
        if logger is library or logger.level != logging.NOTSET:
            logger.setLevel(max(logging.INFO, logger.level))
