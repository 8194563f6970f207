"""The Kafka transport: a member of a consumer group, with one writer for each assigned partition.

A rebalance is eager: all partitions are revoked, then assigned again. On revocation the agent commits finished records,
then the writers close. On assignment a writer is opened for each partition, which fences its former owner; the consumer
compares the position read *after* that with the audit and seeks to it; only then the agent is notified and records are
delivered. ``commit`` may be repeated with the same batch after a ``TransientError``; the records are not delivered
again meanwhile. If another member may own a partition, the transport writes nothing more to it and triggers a
rebalance: ``revoked`` follows, and its next owner receives the records again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata

from deid_agent.agent import (
    UNSEALED,
    AssignmentListener,
    AuditHistory,
    DeadLetterSealer,
    FinishedRecord,
    Partition,
    Record,
    ResumeFrom,
)
from deid_agent.model import (
    AssignmentLostError,
    ConfigurationError,
    DeidError,
    KeylessError,
    OversizeError,
    TransientError,
    UnsafeError,
)
from deid_agent.telemetry import Telemetry, TransactionAborted
from deid_agent.transport.kafka.admin import open_client, topic_problems
from deid_agent.transport.kafka.client import (
    CLIENT_ERRORS,
    cancel_and_wait,
    run_to_completion,
    to_deid_error,
    translate_error,
)
from deid_agent.transport.kafka.client_internals import client_of
from deid_agent.transport.kafka.consumer import (
    Consumer,
    RebalanceListener,
    describe_bad_header,
    limit_client_logging,
    make_consumer,
    stop_consumer,
    to_record,
)
from deid_agent.transport.kafka.fetching import Fetcher
from deid_agent.transport.kafka.messages import COMPACTED, KafkaMessage, to_messages, undeliverable
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.producer import NoKey, PartitionWriter, TooLarge, make_writer
from deid_agent.transport.kafka.protocol import TopicIdentity, topic_identities
from deid_agent.transport.kafka.routes import follow_pattern
from deid_agent.transport.kafka.start_positions import StartPositions
from deid_agent.transport.kafka.watch import BrokerWatch

_STOP_S = 10.0
_OPEN_AT_ONCE = 16


class KafkaTransport:
    """Implements ``Transport`` and ``KnowsLag``. ``sealer`` builds all dead letters.

    ``history`` reads what was processed before, from the agent's own audit trail; ``resume_from`` is the operator's
    choice for positions that are gone.
    """

    def __init__(
        self,
        settings: KafkaOptions,
        *,
        sealer: DeadLetterSealer = UNSEALED,
        telemetry: Telemetry | None = None,
        history: AuditHistory | None = None,
        resume_from: ResumeFrom | None = None,
    ) -> None:
        self._settings = settings
        self._sealer = sealer
        self._telemetry = telemetry or Telemetry()
        self._positions = StartPositions(settings, history, resume_from, self._telemetry)
        self._listener: AssignmentListener | None = None
        self._consumer: Consumer | None = None
        self._writers: dict[Partition, PartitionWriter] = {}
        self._start_positions: dict[Partition, int] = {}
        self._ready: frozenset[Partition] = frozenset()
        self._paused: set[Partition] = set()
        self._keyed_topics: set[str] = set()
        self._announced: Sequence[Partition] = ()
        self._generation = 0
        self._joined = asyncio.Event()
        self._fetcher = Fetcher(lambda stream: stream in self._ready)
        self._watch = BrokerWatch(settings, self._telemetry, self._check_identities, self._follow_pattern)
        self._failure: DeidError | None = None

    async def start(self, listener: AssignmentListener) -> None:
        """Check the topics, join the group, and wait up to the rebalance timeout for the first assignment.

        Raises ``ConfigurationError`` if a topic is missing, no broker answers, or the broker rejects the connection,
        and if the positions of the group contradict the audit and the operator has made no choice.
        """
        limit_client_logging()
        async with open_client(self._settings) as client:
            cluster = await client.fetch_all_metadata()
            self._settings = follow_pattern(self._settings, cluster, self._telemetry)
            if problems := topic_problems(self._settings, cluster):
                raise ConfigurationError("Kafka: " + "; ".join(problems))
            await self._positions.prepare(client, cluster, self._settings.routes)
        self._listener, self._failure = listener, None
        self._joined.clear()
        self._consumer = make_consumer(self._settings)
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await run_to_completion(self._consumer.start())
            self._subscribe(self._consumer)
            await self._first_assignment(self._consumer)
            self._watch.begin(client_of(self._consumer), lambda: list(self._settings.routes))
        except CLIENT_ERRORS as error:
            await self.stop()
            raise translate_error(error, "join the group", starting=True) from None
        except DeidError:
            await self.stop()
            raise

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``. Also raises the error of a failed rebalance."""
        consumer, generation = self._consumer, self._generation
        if consumer is None or limit < 1:
            return []
        self._raise_failure()
        wanted = self._ready - self._paused
        try:
            consumer.raise_if_dead()
            fetched = await self._fetcher.fetch(consumer, wanted, limit)
        except CLIENT_ERRORS as error:
            raise translate_error(error, "read records") from None
        except UnicodeDecodeError:
            raise UnsafeError(await describe_bad_header(consumer, wanted)) from None
        if fetched:
            self._watch.answered()
        if self._generation != generation:
            return []  # fetched before a rebalance that has begun since
        return [to_record(got, self._positions.topic_id(got.topic)) for some in fetched.values() for got in some]

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._paused.add(stream)
        if self._consumer is not None and stream in self._ready:
            self._consumer.pause(_topic_partition(stream))

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``; wakes a waiting ``poll``."""
        self._paused.discard(stream)
        if self._consumer is not None and stream in self._ready:
            self._consumer.resume(_topic_partition(stream))
            self._fetcher.wake()

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """See ``Transport.commit``. After a ``TransientError`` call it again with the same batch."""
        writer = self._writers.get(stream)
        if writer is None:
            raise AssignmentLostError(f"Kafka: {stream} is not assigned to this member")
        if any(item.dead_letter is not None for item in batch):
            # Sealing 50 MB takes a second, too long for the loop. A writer that closes meanwhile writes nothing.
            messages = await asyncio.to_thread(to_messages, batch, self._settings, self._sealer)
        else:
            messages = to_messages(batch, self._settings, self._sealer)
        for message in messages:
            if message.key is None and message.topic in self._keyed_topics and message.offset >= (writer.position or 0):
                raise self._keyless(stream, message)
        try:
            async with asyncio.timeout(self._settings.commit_timeout_ms / 1000):
                await writer.commit(messages, position)
        except TooLarge as error:
            refused = error.message
            text = str(translate_error(error, f"publish {stream}/{refused.offset} to {refused.topic}"))
            raise undeliverable(OversizeError, refused, self._settings, text) from None
        except NoKey as error:
            raise self._keyless(stream, error.message) from None
        except CLIENT_ERRORS as error:
            where = f", publish to {writer.failed_topic}" if writer.failed_topic else ""
            ours = translate_error(error, f"commit {stream} up to {position}{where}")
            if isinstance(ours, AssignmentLostError):
                await self._give_up_writer(writer)
            raise ours from None
        except AssignmentLostError:
            await self._give_up_writer(writer)
            raise
        self._positions.note_commit(stream, position)

    def _keyless(self, stream: Partition, message: KafkaMessage) -> UnsafeError:
        """The refusal of a message without a key. Its topic is remembered: no other one is sent there."""
        self._keyed_topics.add(message.topic)
        doing = f"Kafka: publish {stream}/{message.offset} to {message.topic}"
        return undeliverable(KeylessError, message, self._settings, f"{doing}: {COMPACTED}")

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``. Counts offsets, including those of transaction markers."""
        writer = self._writers.get(stream)
        if self._consumer is None or writer is None or stream not in self._ready:
            return None
        at = self._start_positions.get(stream) if writer.position is None else writer.position
        end = self._consumer.highwater(_topic_partition(stream))
        return None if end is None or at is None else max(0, end - at)

    @property
    def outage(self) -> str:
        """See ``KnowsOutage.outage``."""
        return "broker" if self._watch.outage else ""

    @property
    def exhausted(self) -> bool:
        """Never: a topic has no end."""
        return False

    async def stop(self) -> None:
        """See ``Transport.stop``. Waits at most ten seconds for a broker that does not answer, less if cancelled."""
        consumer, self._consumer = self._consumer, None
        self._ready = frozenset()
        self._fetcher.wake()
        try:
            await self._watch.end()
            await self._close_writers()
        except BaseException:
            if consumer is not None:
                await consumer.abandon()
            raise
        if consumer is not None:
            await stop_consumer(consumer, _STOP_S)

    # --- joining and polling

    def _subscribe(self, consumer: Consumer) -> None:
        """Join the group, or give up all partitions and join again: a new subscription triggers a rebalance."""
        self._ready = frozenset()
        consumer.subscribe(list(self._settings.routes), listener=RebalanceListener(self._revoked, self._assigned))

    async def _first_assignment(self, consumer: Consumer) -> None:
        deadline = asyncio.get_running_loop().time() + self._settings.rebalance_timeout_ms / 1000
        while not self._joined.is_set() and asyncio.get_running_loop().time() < deadline:
            consumer.raise_if_dead()
            await self._fetcher.fetch(consumer, frozenset(), 1)  # raises the errors of the coordinator
        self._raise_failure()

    # --- rebalancing: called by the library's coordinator, which swallows exceptions

    async def _revoked(self, _streams: list[Partition]) -> None:
        self._ready = frozenset()
        self._generation += 1
        await self._fetcher.cancel()
        leaving, self._announced = self._announced, ()
        try:
            if self._listener is not None and leaving:
                async with asyncio.timeout(self._settings.rebalance_timeout_ms / 1000):
                    await self._listener.revoked(leaving)
        except TimeoutError:
            self._failure = TransientError("Kafka: the drain took longer than kafka.rebalance_timeout_ms")
        except Exception as error:  # noqa: BLE001  the caller logs and swallows it: the next poll raises it
            self._failure = to_deid_error(error, "give up partitions")
        finally:
            await self._close_writers()
            self._paused.clear()

    async def _assigned(self, streams: list[Partition]) -> None:
        consumer = self._consumer
        if consumer is None or self._listener is None:
            return
        try:
            # aiokafka sends no heartbeats meanwhile.
            async with asyncio.timeout(self._settings.session_timeout_ms / 2000):
                await self._open_writers(consumer, streams)
            if streams:
                self._announced = tuple(streams)
                await self._listener.assigned(streams)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = to_deid_error(error, "take over partitions")
        else:
            self._ready = frozenset(streams)
        self._fetcher.wake()
        self._joined.set()

    async def _open_writers(self, consumer: Consumer, streams: list[Partition]) -> None:
        # Otherwise the library fetches from the old position, and each of our requests waits half a second behind that.
        consumer.pause(*map(_topic_partition, streams))
        opening = asyncio.Semaphore(_OPEN_AT_ONCE)
        taking = [asyncio.create_task(self._open_writer(consumer, stream, opening)) for stream in streams]
        try:
            await asyncio.gather(*taking)
        finally:
            # A writer that opens slowly must not outlive a failed assignment: it would fence its own successor.
            await asyncio.gather(*map(cancel_and_wait, taking))
        identities = await topic_identities(client_of(consumer), {stream.topic for stream in streams})
        starts = await self._positions.settle(consumer, {s: self._writers[s] for s in streams}, identities)
        for stream, position in starts.items():
            self._start_positions[stream] = position
            consumer.seek(_topic_partition(stream), position)
        consumer.resume(*(_topic_partition(stream) for stream in streams if stream not in self._paused))

    async def _open_writer(self, consumer: Consumer, stream: Partition, opening: asyncio.Semaphore) -> None:
        writer = make_writer(self._settings, stream, self._commit, self._aborted)
        async with opening:
            await writer.open()
            if self._consumer is not consumer:
                await writer.close()  # stopped meanwhile: nobody else would close it
                raise AssignmentLostError("Kafka: the transport was stopped")
            self._writers[stream] = writer

    def _check_identities(self, found: Mapping[str, TopicIdentity]) -> None:
        """Stop if a topic was created again: the consumer would skip the first records of the new one."""
        if recreated := self._positions.recreated(found):
            self._failure = UnsafeError(
                f"Kafka: topic {recreated[0]!r} was deleted and created again while it was read: start again, which "
                "offers the choices"
            )
            self._fetcher.wake()

    def _follow_pattern(self, cluster: ClusterMetadata) -> None:
        """Join the group again if the topics of the pattern have changed."""
        before = self._settings
        with suppress(ConfigurationError):  # all of them are gone for now: continue to wait for those known
            self._settings = follow_pattern(before, cluster, self._telemetry)
        if self._settings is not before and self._consumer is not None:
            self._subscribe(self._consumer)

    async def _commit(self, stream: Partition, position: int, note: str) -> None:
        consumer = self._consumer
        if consumer is None:
            raise AssignmentLostError("Kafka: the transport was stopped")
        consumer.raise_if_not_member()
        await consumer.commit({_topic_partition(stream): (position, note)})

    def _aborted(self, stream: Partition, error: str) -> None:
        self._telemetry.emit(TransactionAborted(stream.topic, stream.number, error))

    async def _give_up_writer(self, writer: PartitionWriter) -> None:
        """Write nothing more and trigger a rebalance, unless one is in progress."""
        await writer.mark_lost()
        if self._consumer is not None and self._ready:
            self._subscribe(self._consumer)

    def _raise_failure(self) -> None:
        """Raise the error of a background call.

        A transient error is raised once, together with a rebalance. Any other error is raised at every call.
        """
        failure = self._failure
        if failure is None:
            return
        if isinstance(failure, TransientError) and self._consumer is not None:
            self._failure = None
            self._subscribe(self._consumer)
        raise failure

    async def _close_writers(self) -> None:
        writers, self._writers = list(self._writers.values()), {}
        await asyncio.gather(*(writer.close() for writer in writers))


def _topic_partition(stream: Partition) -> TopicPartition:
    return TopicPartition(stream.topic, stream.number)
