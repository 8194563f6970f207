"""The consumer of the Kafka transport, and the setting that keeps aiokafka from logging PHI."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from deid_agent.agent import Coordinates, Partition, Record
from deid_agent.model import AssignmentLostError, UnsafeError
from deid_agent.transport.kafka.client import run_briefly
from deid_agent.transport.kafka.client_internals import (
    cancel_consumer_tasks,
    client_of,
    find_dead_task,
    is_group_member,
)
from deid_agent.transport.kafka.options import KafkaOptions

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
        # aiokafka has one fetch at a time for each broker. A partition that is resumed, or whose records are all taken,
        # is not fetched before the fetch of the other partitions returns, which waits this long if they have nothing
        # new. With the default of 500 ms four partitions were slower than two.
        fetch_max_wait_ms=settings.fetch_wait_ms,
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.fetch_partition_bytes,
    )


def to_record(received: ConsumerRecord) -> Record:
    """The record that aiokafka delivered. A null value is a tombstone; an unknown timestamp (-1) becomes None."""
    timestamp_ms = received.timestamp
    return Record(
        coordinates=Coordinates(received.topic, received.partition, received.offset),
        payload=received.value or b"",
        key=received.key,
        headers=tuple((name, value or b"") for name, value in received.headers),
        timestamp_ms=timestamp_ms if timestamp_ms is not None and timestamp_ms >= 0 else None,
        tombstone=received.value is None,
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
