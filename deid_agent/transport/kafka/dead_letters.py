"""The dead letters of the Kafka transport: read, opened, and put back into their input topic.

A record is put back and its dead letter marked in one transaction. The mark is an empty message in the partition of the
dead letter, with a header that names the record. Each partition is read twice, first for the marks and then for the
dead letters, so only the positions of marks are held in memory.

One transactional id for each group and dead-letter topic keeps two replays apart. A new replay fences the one before
and ends its transaction. It reads the marks only then, up to an end that no open transaction hides, so it sees
everything that the other replay has done, and the other does nothing more.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Final

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka import errors as kafka_errors

from deid_agent import __version__
from deid_agent.agent import (
    Coordinates,
    DamagedDeadLetter,
    DeadLetterHead,
    FoundDeadLetter,
    PrivateKey,
    Record,
    ReplayChooser,
    ReplayReport,
    open_dead_letter,
    parse_coordinates,
    read_dead_letter_head,
    replay_headers,
)
from deid_agent.model import AssignmentLostError, ConfigurationError, DeadLetterError, TransientError, UnsafeError
from deid_agent.transport.kafka.admin import fetch_metadata, resolve_routes
from deid_agent.transport.kafka.client import CLIENT_ERRORS, run_to_completion, translate_error
from deid_agent.transport.kafka.consumer import Consumer, limit_client_logging, open_reader
from deid_agent.transport.kafka.messages import KafkaMessage
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.producer import discard_producer, make_producer, sender_error
from deid_agent.transport.kafka.protocol import TopicIdentity, topic_identities
from deid_agent.transport.kafka.queueing import queue_message

REPLAYED: Final = "deid.replayed"
"""Header of a mark: the coordinates of the replayed record."""
_REPLAYED_ID: Final = "deid.replayed.id"
"""Header of a mark: the ``deid-id`` of the record. Marks of older versions have none."""

_SLACK: Final = 1 << 20  # the envelope's header next to the payload
_MAX_RECORDS: Final = 100
_WAIT_MS: Final = 200
_UNACCEPTABLE = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidTimestampError,
)
"""The broker never accepts this record. It may accept others."""

Marks = dict[tuple[int, int, str], list[int]]
"""The offsets of marks in a partition of dead letters, by partition, offset and ``deid-id`` of the record."""


class KafkaDeadLetters:
    """A ``DeadLetterStore`` for these input topics. Waits no longer than a transaction may take."""

    def __init__(self, settings: KafkaOptions, topics: Sequence[str]) -> None:
        if unknown := sorted(topic for topic in topics if settings.route(topic) is None):
            raise ConfigurationError(
                f"topic {unknown[0]!r}: not an input topic of kafka.routes or kafka.topics_pattern"
            )
        self._settings = settings
        self._topics = [topic for topic in settings.routes if topic in topics or not topics] or list(topics)
        self._limit_s = settings.transaction_timeout_ms / 1000 + settings.request_timeout_ms / 1000

    async def dead_letters(self) -> AsyncIterator[FoundDeadLetter | DamagedDeadLetter]:
        """See ``DeadLetterStore.dead_letters``."""
        with _client_errors("read the dead letters"):
            counts = await self._partitions()
            for topic in self._topics:
                for number in range(counts[topic]):
                    tp = TopicPartition(self._settings.dead_letter_topic(topic), number)
                    async with aclosing(self._read_dead_letters(topic, tp, 0)) as dead_letters:
                        async for _, found in dead_letters:
                            yield found

    async def replay(self, choose: ReplayChooser, report: ReplayReport) -> None:
        """See ``DeadLetterStore.replay``. Raises ``UnsafeError`` if another replay takes over; reported records remain
        replayed.
        """
        with _client_errors("replay records"):
            counts = await self._partitions()
            for topic in self._topics:
                progress = _ReplayProgress(self._settings, topic, counts[topic])
                # A record that the broker refuses breaks its producer. The next pass continues after its dead letter.
                while not await self._replay_pass(progress, choose, report):
                    pass

    async def _replay_pass(self, progress: "_ReplayProgress", choose: ReplayChooser, report: ReplayReport) -> bool:
        """Replay from the position of ``progress``. Return False if a record was refused and another pass is needed."""
        producer = make_producer(
            self._settings,
            transactional_id=self._settings.replay_id(progress.topic),
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
        )
        try:
            async with asyncio.timeout(self._limit_s):
                await run_to_completion(producer.start())
            for tp in progress.partitions:
                await self._wait_for_transactions(tp)
                async with aclosing(
                    self._read_dead_letters(progress.topic, tp, progress.next[tp.partition])
                ) as dead_letters:
                    async for offset, found in dead_letters:
                        progress.next[tp.partition] = offset + 1
                        record = choose(found)
                        if (
                            record is None
                            or not isinstance(found, FoundDeadLetter)
                            or (record.coordinates, found.head.id) in progress.done
                        ):
                            continue
                        try:
                            await self._put_back(producer, tp, found, record)
                        except DeadLetterError as problem:
                            report(found, str(problem))
                        except _UNACCEPTABLE as refusal:
                            report(found, _replay_advice(refusal))
                            return False
                        else:
                            progress.done.add((record.coordinates, found.head.id))
                            report(found, "")
            return True
        finally:
            await discard_producer(producer)

    async def _put_back(
        self, producer: AIOKafkaProducer, tp: TopicPartition, found: FoundDeadLetter, record: Record
    ) -> None:
        at = record.coordinates
        async with asyncio.timeout(self._settings.commit_timeout_ms / 1000):
            if at.partition not in await producer.partitions_for(at.topic):
                raise DeadLetterError(f"topic {at.topic!r} has no partition {at.partition} any more")
            value = None if record.tombstone else record.payload
            present = (await topic_identities(producer.client, [at.topic])).get(at.topic, TopicIdentity()).id
            former = bool(found.head.topic_id and present) and found.head.topic_id != present
            headers = replay_headers(record, found.head.attempts, linked=not former)
            restored = KafkaMessage(at.topic, at.offset, value, record.key, headers, record.timestamp_ms)
            named = (
                (REPLAYED, str(at)),
                (_REPLAYED_ID, found.head.id),
                ("deid.replayed.letter", found.location),
                ("deid.version", __version__),
            )
            marks = tuple((name, text.encode()) for name, text in named)
            mark = KafkaMessage(tp.topic, at.offset, b"", None, marks, None)
            try:
                await producer.begin_transaction()
                sent = [
                    await queue_message(producer, restored, at.partition),
                    await queue_message(producer, mark, tp.partition),
                ]
                await asyncio.gather(*sent)
                await producer.commit_transaction()
            except kafka_errors.KafkaError as error:
                raise sender_error(producer) or error from error

    async def _read_dead_letters(
        self, topic: str, tp: TopicPartition, begin: int
    ) -> AsyncGenerator[tuple[int, FoundDeadLetter | DamagedDeadLetter]]:
        """Yield the dead letters of a partition from an offset on, each with its own offset."""
        marks: Marks = {}
        async with open_reader(self._settings, [tp]) as reader:
            first, end = await self._bounds(reader, tp)
            async for got in self._read(reader, tp, first, end):
                if (at := _marked_record(got)) is not None:
                    marks.setdefault((at.partition, at.offset, _marked_id(got)), []).append(got.offset)
            async for got in self._read(reader, tp, max(first, begin), end):
                if _marked_record(got) is None:
                    yield got.offset, self._found(topic, got, marks)

    def _found(self, topic: str, got: ConsumerRecord, marks: Marks) -> FoundDeadLetter | DamagedDeadLetter:
        location = f"{got.topic}/{got.partition}/{got.offset}"
        try:
            head = read_dead_letter_head((name, value or b"") for name, value in got.headers)
            if head.at.topic != topic:
                raise DeadLetterError("it belongs to a topic that does not send its dead letters here")
        except DeadLetterError as problem:
            return DamagedDeadLetter(location, str(problem))
        # A mark comes after the dead letters that it marks. A topic that was created anew counts offsets anew.
        ids = {head.id, ""}
        named = [mark for id_ in ids for mark in marks.get((head.at.partition, head.at.offset, id_), ())]
        replayed = sum(mark > got.offset for mark in named)
        max_bytes = self._settings.max_request_bytes + _SLACK
        return FoundDeadLetter(head, location, replayed, partial(_open_body, head, got.value or b"", max_bytes))

    async def _read(self, reader: Consumer, tp: TopicPartition, begin: int, end: int) -> AsyncIterator[ConsumerRecord]:
        reader.seek(tp, begin)
        quiet_s = 0.0
        while await reader.position(tp) < end:
            before = await reader.position(tp)
            got = (await reader.getmany(tp, timeout_ms=_WAIT_MS, max_records=_MAX_RECORDS)).get(tp, [])
            for record in got:
                if record.offset < end:
                    yield record
            quiet_s = 0.0 if await reader.position(tp) > before else quiet_s + _WAIT_MS / 1000
            if quiet_s > self._limit_s:
                raise TransientError(f"Kafka: {tp.topic}/{tp.partition} returns no more records")

    async def _bounds(self, reader: Consumer, tp: TopicPartition) -> tuple[int, int]:
        """The first offset, and the end of the committed messages."""
        begins, ends = await reader.beginning_offsets([tp]), await reader.end_offsets([tp])
        return begins[tp], ends[tp]

    async def _wait_for_transactions(self, tp: TopicPartition) -> None:
        """Wait until all messages now in the partition are committed or aborted: a mark may be among them."""
        async with (
            open_reader(self._settings, [tp], "read_uncommitted") as every,
            open_reader(self._settings, [tp]) as reader,
        ):
            _, end = await self._bounds(every, tp)
            try:
                async with asyncio.timeout(self._limit_s):
                    while (await self._bounds(reader, tp))[1] < end:  # noqa: ASYNC110  the broker sends no notification
                        await asyncio.sleep(_WAIT_MS / 1000)
            except TimeoutError:
                raise TransientError(f"Kafka: a transaction stays open in {tp.topic}/{tp.partition}") from None

    async def _partitions(self) -> dict[str, int]:
        """The number of dead-letter partitions of each topic."""
        limit_client_logging()
        cluster = await fetch_metadata(self._settings)
        counts = {}
        if not self._topics:
            routes = resolve_routes(self._settings, cluster).routes
            dead = self._settings.dead_letter_topic
            self._topics = [topic for topic in routes if cluster.partitions_for_topic(dead(topic))]
        for topic in self._topics:
            name = self._settings.dead_letter_topic(topic)
            if not (numbers := cluster.partitions_for_topic(name)):
                raise ConfigurationError(f"Kafka: topic {name!r} does not exist, or may not be described")
            counts[topic] = len(numbers)
        return counts


class _ReplayProgress:
    """The progress of one replay of a topic."""

    def __init__(self, settings: KafkaOptions, topic: str, count: int) -> None:
        self.topic = topic
        self.partitions = [TopicPartition(settings.dead_letter_topic(topic), number) for number in range(count)]
        self.next = dict.fromkeys(range(count), 0)
        self.done: set[tuple[Coordinates, str]] = set()
        """With at-least-once delivery a record can have two dead letters; it is replayed once."""


def _open_body(head: DeadLetterHead, body: bytes, max_bytes: int, private: PrivateKey | None) -> Record:
    return open_dead_letter(head, body, private, max_bytes)


def _replay_advice(refusal: kafka_errors.KafkaError) -> str:
    if isinstance(refusal, kafka_errors.InvalidTimestampError):
        return "the input topic rejects records of that age: raise its message.timestamp.before.max.ms"
    return "too large to be replayed: raise kafka.max_request_bytes and max.message.bytes of the input topic"


@contextmanager
def _client_errors(doing: str) -> Iterator[None]:
    """Translate aiokafka's errors. Nothing is retried here, because starting the replay again is safe."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output closed it
    except (*CLIENT_ERRORS, TransientError) as error:
        ours = error if isinstance(error, TransientError) else translate_error(error, doing, starting=True)
        if isinstance(ours, AssignmentLostError):
            raise UnsafeError(f"{ours}: another replay took over; replayed records are marked") from None
        if isinstance(ours, TransientError):
            raise UnsafeError(f"{ours}: start again; replayed records are marked and not replayed twice") from None
        raise ours from None


def _marked_record(got: ConsumerRecord) -> Coordinates | None:
    """The record that a mark names; None for a dead letter, and for a mark that this program did not write."""
    for name, value in got.headers:
        if name == REPLAYED:
            try:
                return parse_coordinates((value or b"").decode("ascii", "replace"))
            except ValueError:
                return None
    return None


def _marked_id(got: ConsumerRecord) -> str:
    """The ``deid-id`` that a mark names; empty if it names none."""
    return next((value.decode("ascii", "replace") for name, value in got.headers if name == _REPLAYED_ID and value), "")
