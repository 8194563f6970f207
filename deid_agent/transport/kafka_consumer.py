"""aiokafka's consumer with what it does not tell by itself, and the guard that keeps it from logging PHI."""

import logging
from collections.abc import Awaitable, Callable, Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from deid_agent.agent.ports import Coordinates, Partition, Record
from deid_agent.errors import LostError, UnsafeError
from deid_agent.transport.kafka_calls import briefly
from deid_agent.transport.kafka_settings import KafkaSettings

Told = Callable[[list[Partition]], Awaitable[None]]


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """The consumer, and the only place that looks at its inside."""

    def raise_death(self) -> None:
        """Raise ``UnsafeError`` where a task that the library should keep alive has ended.

        The library goes on answering polls with nothing then, or repeats the same error for ever.
        """
        tasks = (
            self._coordinator and self._coordinator._coordination_task,
            self._fetcher and self._fetcher.error_future,
        )
        for task in tasks:
            if task and task.done() and not self._closed:
                error = None if task.cancelled() else task.exception()
                cause = error and (error.__cause__ or error)
                raise UnsafeError(f"Kafka: the consumer died ({type(cause).__name__}): start the agent again")

    def raise_outsider(self) -> None:
        """Raise ``LostError`` without a valid membership in the group.

        A commit with generation -1 and no member id passes the broker's fencing where the group is empty.
        """
        if self._coordinator is None or self._coordinator.generation < 0 or not self._coordinator.member_id:
            raise LostError("Kafka: the group has thrown this member out; it joins again")

    async def abandon(self) -> None:
        """End its tasks without asking the broker, after ``stop`` took too long."""
        coordinator, fetcher = self._coordinator, self._fetcher
        tasks = [
            coordinator and coordinator._coordination_task,
            coordinator and coordinator._heartbeat_task,
            coordinator and coordinator._commit_refresh_task,
            fetcher and fetcher.error_future,
            *(fetcher._pending_tasks if fetcher else ()),
        ]
        for task in tasks:
            if task:
                task.cancel()
        await briefly(self._client.close())


class Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands the library's two calls on. It swallows what they raise, so they must not."""

    def __init__(self, revoked: Told, assigned: Told) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoked(sorted(Partition(tp.topic, tp.partition) for tp in revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._assigned(sorted(Partition(tp.topic, tp.partition) for tp in assigned))


def make_consumer(settings: KafkaSettings) -> Consumer:
    """A consumer that commits nothing by itself and skips nothing silently."""
    return Consumer(
        **settings.connection(),
        group_id=settings.group_id,
        group_instance_id=settings.instance_id,
        # The eager protocol is the only one the library speaks: everything is revoked first.
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        enable_auto_commit=False,
        isolation_level="read_committed",
        # "earliest" would step over records that retention deleted; the transport seeks by itself.
        auto_offset_reset="none",
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=max(100, settings.session_timeout_ms // 10),
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        # The broker answers a JoinGroup only when all others have drained.
        request_timeout_ms=settings.rebalance_timeout_ms + settings.request_timeout_ms,
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.fetch_partition_bytes,
    )


def to_record(got: ConsumerRecord) -> Record:
    """The library's record as ours; a null value is a tombstone, an unknown timestamp (-1) none."""
    return Record(
        coordinates=Coordinates(got.topic, got.partition, got.offset),
        payload=got.value or b"",
        key=got.key,
        headers=tuple((name, value or b"") for name, value in got.headers),
        timestamp_ms=got.timestamp if got.timestamp is not None and got.timestamp >= 0 else None,
        tombstone=got.value is None,
    )


def hush() -> None:
    """Keep the library from logging keys and values, which it does at DEBUG; called at every start."""
    library = logging.getLogger("aiokafka")
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("aiokafka.")]
    for logger in (library, *named):
        if logger is library or logger.level != logging.NOTSET:
            logger.setLevel(max(logging.INFO, logger.level))
