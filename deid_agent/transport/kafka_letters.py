"""The dead letters of the Kafka transport: read, opened, put back into their input topic.

A record is put back and its letter marked in one transaction. The mark is an empty record in the letter's
partition whose header names the record, so that reading a partition twice, first the marks, then the
letters, says which were put back; nothing but the places of marks is held meanwhile.

One transactional id per group and topic of letters keeps two replays apart. Whoever starts fences the
one before and ends its transaction, and reads the marks only then, up to an end that no open transaction
hides: so he sees all that the other has done, and the other does nothing more.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Final

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka import errors as theirs

from deid_agent import __version__
from deid_agent.agent.letterbox import Damaged, Found, Pick, Told
from deid_agent.agent.letterhead import LetterHead, coordinates_of, open_letter, read_head
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.lineage import headers_of_replay
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.errors import ConfigurationError, LetterError, LostError, TransientError, UnsafeError
from deid_agent.transport.kafka_calls import uncut
from deid_agent.transport.kafka_consumer import Consumer, hush
from deid_agent.transport.kafka_errors import CLIENT_ERRORS, translate
from deid_agent.transport.kafka_messages import Message
from deid_agent.transport.kafka_probe import metadata
from deid_agent.transport.kafka_producer import death, discard, make_producer, send
from deid_agent.transport.kafka_settings import KafkaSettings

REPLAYED: Final = "deid.replayed"
"""Header of a mark: the coordinates of the record that was put back."""

_SLACK: Final = 1 << 20  # an envelope's head beside the payload
_AT_ONCE: Final = 100
_WAIT_MS: Final = 200
_STOP_S: Final = 5.0
_REFUSED = (
    theirs.MessageSizeTooLargeError,
    theirs.RecordListTooLargeError,
    theirs.InvalidTimestampError,
)
"""The broker takes this record never; others it may take."""

Marks = dict[tuple[int, int], list[int]]
"""Offsets of marks in a partition of letters, by partition and offset of the record."""


class KafkaLetters:
    """Implements ``LetterBox`` for the letters of these input topics. Waits no longer than a transaction may take."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        if unknown := sorted(set(topics) - set(settings.routes)):
            raise ConfigurationError(f"topic {unknown[0]!r}: no input topic of kafka.routes")
        self._settings = settings
        self._topics = [topic for topic in settings.routes if topic in topics or not topics]
        self._limit_s = settings.transaction_timeout_ms / 1000 + settings.request_timeout_ms / 1000

    async def letters(self) -> AsyncIterator[Found | Damaged]:
        """See ``LetterBox.letters``."""
        with _told("read the dead letters"):
            counts = await self._partitions()
            for topic in self._topics:
                for number in range(counts[topic]):
                    tp = TopicPartition(self._settings.letters_of(topic), number)
                    async with aclosing(self._letters(topic, tp, 0)) as letters:
                        async for _, found in letters:
                            yield found

    async def replay(self, pick: Pick, told: Told) -> None:
        """See ``LetterBox.replay``. ``UnsafeError`` where another replay takes over; what was told stands."""
        with _told("put records back"):
            counts = await self._partitions()
            for topic in self._topics:
                run = _Run(self._settings, topic, counts[topic])
                # A record that the broker refuses spoils its producer; the next pass goes on behind its letter.
                while not await self._pass(run, pick, told):
                    pass

    async def _pass(self, run: "_Run", pick: Pick, told: Told) -> bool:
        """Put back from where ``run`` has got to; False where a record was refused and another pass is due."""
        producer = make_producer(
            self._settings,
            transactional_id=self._settings.replay_id(run.topic),
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
        )
        try:
            async with asyncio.timeout(self._limit_s):
                await uncut(producer.start())
            for tp in run.partitions:
                await self._closed(tp)
                async with aclosing(self._letters(run.topic, tp, run.next[tp.partition])) as letters:
                    async for offset, found in letters:
                        run.next[tp.partition] = offset + 1
                        record = pick(found)
                        if record is None or not isinstance(found, Found) or record.coordinates in run.done:
                            continue
                        try:
                            await self._put_back(producer, tp, found, record)
                        except LetterError as problem:
                            told(found, str(problem))
                        except _REFUSED as refusal:
                            told(found, _advice(refusal))
                            return False
                        else:
                            run.done.add(record.coordinates)
                            told(found, "")
            return True
        finally:
            await discard(producer)

    async def _put_back(self, producer: AIOKafkaProducer, tp: TopicPartition, found: Found, record: Record) -> None:
        at = record.coordinates
        async with asyncio.timeout(self._settings.settle_timeout_ms / 1000):
            if at.partition not in await producer.partitions_for(at.topic):
                raise LetterError(f"topic {at.topic!r} has no partition {at.partition} any more")
            value = None if record.tombstone else record.payload
            headers = headers_of_replay(record, found.head.attempts)
            back = Message(at.topic, at.offset, value, record.key, headers, record.timestamp_ms)
            said = ((REPLAYED, str(at)), ("deid.replayed.letter", found.place), ("deid.version", __version__))
            marks = tuple((name, text.encode()) for name, text in said)
            mark = Message(tp.topic, at.offset, b"", None, marks, None)
            try:
                await producer.begin_transaction()
                sent = [await send(producer, back, at.partition), await send(producer, mark, tp.partition)]
                await asyncio.gather(*sent)
                await producer.commit_transaction()
            except theirs.KafkaError as error:
                raise death(producer) or error from error

    async def _letters(self, topic: str, tp: TopicPartition, begin: int) -> AsyncGenerator[tuple[int, Found | Damaged]]:
        """Letters of a partition from an offset on, each with its own offset."""
        marks: Marks = {}
        async with self._reader(tp) as reader:
            first, end = await self._bounds(reader, tp)
            async for got in self._read(reader, tp, first, end):
                if (at := _marked(got)) is not None:
                    marks.setdefault((at.partition, at.offset), []).append(got.offset)
            async for got in self._read(reader, tp, max(first, begin), end):
                if _marked(got) is None:
                    yield got.offset, self._found(topic, got, marks)

    def _found(self, topic: str, got: ConsumerRecord, marks: Marks) -> Found | Damaged:
        place = f"{got.topic}/{got.partition}/{got.offset}"
        try:
            head = read_head((name, value or b"") for name, value in got.headers)
            if head.at.topic != topic:
                raise LetterError("it is of a topic that does not send its letters here")
        except LetterError as problem:
            return Damaged(place, str(problem))
        # A mark stands behind the letters that it is of; a topic that was made anew counts its offsets anew.
        replayed = sum(mark > got.offset for mark in marks.get((head.at.partition, head.at.offset), ()))
        most = self._settings.max_request_bytes + _SLACK
        return Found(head, place, replayed, partial(_opened, head, got.value or b"", most))

    async def _read(self, reader: Consumer, tp: TopicPartition, begin: int, end: int) -> AsyncIterator[ConsumerRecord]:
        reader.seek(tp, begin)
        quiet_s = 0.0
        while await reader.position(tp) < end:
            before = await reader.position(tp)
            got = (await reader.getmany(tp, timeout_ms=_WAIT_MS, max_records=_AT_ONCE)).get(tp, [])
            for record in got:
                if record.offset < end:
                    yield record
            quiet_s = 0.0 if await reader.position(tp) > before else quiet_s + _WAIT_MS / 1000
            if quiet_s > self._limit_s:
                raise TransientError(f"Kafka: {tp.topic}/{tp.partition} gives no more records")

    async def _bounds(self, reader: Consumer, tp: TopicPartition) -> tuple[int, int]:
        """The first offset, and the end of what is committed."""
        begins, ends = await reader.beginning_offsets([tp]), await reader.end_offsets([tp])
        return begins[tp], ends[tp]

    async def _closed(self, tp: TopicPartition) -> None:
        """Wait until all that stands in the partition now is committed or aborted: a mark may be among it."""
        async with self._reader(tp, "read_uncommitted") as every, self._reader(tp) as reader:
            _, end = await self._bounds(every, tp)
            try:
                async with asyncio.timeout(self._limit_s):
                    while (await self._bounds(reader, tp))[1] < end:  # noqa: ASYNC110  the broker tells nobody
                        await asyncio.sleep(_WAIT_MS / 1000)
            except TimeoutError:
                raise TransientError(f"Kafka: a transaction stays open in {tp.topic}/{tp.partition}") from None

    @asynccontextmanager
    async def _reader(self, tp: TopicPartition, isolation: str = "read_committed") -> AsyncIterator[Consumer]:
        """A reader of one partition. Given another one, the library may sleep through its own end."""
        settings = self._settings
        reader = Consumer(
            **settings.connection(),
            enable_auto_commit=False,
            isolation_level=isolation,
            auto_offset_reset="earliest",  # retention may take letters away while they are read
            request_timeout_ms=settings.request_timeout_ms,
            fetch_max_bytes=settings.fetch_max_bytes,
            max_partition_fetch_bytes=settings.fetch_partition_bytes,
        )
        try:
            await uncut(reader.start())
            reader.assign([tp])
            yield reader
        finally:
            leaving = asyncio.create_task(reader.stop())
            await asyncio.wait({leaving}, timeout=_STOP_S)
            if not leaving.done() or leaving.cancelled() or leaving.exception() is not None:
                leaving.cancel()
                await reader.abandon()

    async def _partitions(self) -> dict[str, int]:
        """How many partitions of letters each topic has."""
        hush()
        cluster = await metadata(self._settings)
        counts = {}
        for topic in self._topics:
            name = self._settings.letters_of(topic)
            if not (numbers := cluster.partitions_for_topic(name)):
                raise ConfigurationError(f"Kafka: topic {name!r} does not exist, or may not be described")
            counts[topic] = len(numbers)
        return counts


class _Run:
    """What one replay of a topic has got to."""

    def __init__(self, settings: KafkaSettings, topic: str, count: int) -> None:
        self.topic = topic
        self.partitions = [TopicPartition(settings.letters_of(topic), number) for number in range(count)]
        self.next = dict.fromkeys(range(count), 0)
        self.done: set[Coordinates] = set()
        """At least once may keep two letters of one record; it is put back once."""


def _opened(head: LetterHead, body: bytes, most: int, private: PrivateKey | None) -> Record:
    return open_letter(head, body, private, most)


def _advice(refusal: theirs.KafkaError) -> str:
    if isinstance(refusal, theirs.InvalidTimestampError):
        return "the input topic takes no record that old: raise its message.timestamp.before.max.ms"
    return "too large to be put back: raise kafka.max_request_bytes and max.message.bytes of the input topic"


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Errors of the client in our tree. Nothing is tried again here: to start again is safe."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads our output went away
    except (*CLIENT_ERRORS, TransientError) as error:
        ours = error if isinstance(error, TransientError) else translate(error, doing, starting=True)
        if isinstance(ours, LostError):
            raise UnsafeError(f"{ours}: another replay took over; what was put back is marked") from None
        if isinstance(ours, TransientError):
            raise UnsafeError(f"{ours}: start again; what was put back is marked and stays so") from None
        raise ours from None


def _marked(got: ConsumerRecord) -> Coordinates | None:
    """The record that a mark is of; None for a letter, or for a mark that nobody of us wrote."""
    for name, value in got.headers:
        if name == REPLAYED:
            try:
                return coordinates_of((value or b"").decode("ascii", "replace"))
            except ValueError:
                return None
    return None
