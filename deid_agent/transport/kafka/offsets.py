"""Reads which offsets of topics hold records, for an account of a feed. Takes part in no group and commits nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiokafka import ConsumerRecord, TopicPartition

from deid_agent.agent import DEID_ID, Coordinates, Partition, read_dead_letter_head
from deid_agent.model import ConfigurationError, DeadLetterError, TransientError, UnsafeError
from deid_agent.transport.kafka.admin import fetch_metadata, resolve_routes
from deid_agent.transport.kafka.client import CLIENT_ERRORS, run_to_completion, translate_error
from deid_agent.transport.kafka.client_internals import client_of
from deid_agent.transport.kafka.consumer import Consumer, limit_client_logging, make_reader, stop_consumer
from deid_agent.transport.kafka.dead_letters import REPLAYED
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.protocol import TopicIdentity, topic_identities

_WAIT_MS: Final = 200
_MAX_RECORDS: Final = 2_000
_STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """One input partition: its bounds, the committed position of the group, and the offsets that hold a record.

    Records of aborted transactions are not among them. A group that has committed nothing is at the beginning and has
    no ``position``.
    """

    stream: Partition
    begin: int
    committed: int
    end: int
    offsets: Sequence[int]
    position: int | None


class KafkaOffsets:
    """Reads a feed with one consumer. Use it as ``async with open_offsets(settings) as offsets``.

    Every method raises ``UnsafeError`` if the broker cannot be read.
    """

    def __init__(
        self,
        settings: KafkaOptions,
        reader: Consumer,
        every: Consumer,
        counts: dict[str, int],
        identities: Mapping[str, TopicIdentity],
    ) -> None:
        self._settings, self._reader, self._every, self._counts = settings, reader, every, counts
        self.routes = dict(settings.routes)
        """The output topics by input topic; those of a pattern as they are now."""
        self.topic_ids = {topic: identity.id for topic, identity in identities.items()}
        """The ids of the input topics, without those that the broker does not know."""
        self._limit_s = (settings.transaction_timeout_ms + settings.request_timeout_ms) / 1000

    async def input_offsets(self, topic: str) -> list[TopicOffsets]:
        """The partitions of an input topic. Only offsets before the committed position are read."""
        found = []
        for number in range(self._counts[topic]):
            tp = TopicPartition(topic, number)
            self._reader.assign([tp])
            begin, end = await self._bounds(tp)
            position = await self._reader.committed(tp)
            committed = min(end, begin if position is None else max(position, begin))
            offsets = [record.offset async for record in self._records(tp, begin, committed)]
            found.append(TopicOffsets(Partition(topic, number), begin, committed, end, offsets, position))
        return found

    async def output_ids(self, topic: str) -> Counter[str]:
        """The number of outputs by ``deid-id``. Messages without one are of somebody else."""
        return Counter(
            [
                value.decode("ascii", "replace")
                async for record in self._all(topic)
                for name, value in record.headers
                if name == DEID_ID and value
            ]
        )

    async def dead_letters(self, topic: str) -> dict[Coordinates, Counter[str]]:
        """The number of dead letters by record and ``deid-id``. Marks of replays are none.

        A topic that was created again has other ids for the same coordinates. A dead letter of an older version has an
        empty id.
        """
        found: dict[Coordinates, Counter[str]] = {}
        async for record in self._all(self._settings.dead_letter_topic(topic)):
            if any(name == REPLAYED for name, _ in record.headers):
                continue
            try:
                at = read_dead_letter_head((name, value or b"") for name, value in record.headers).at
            except DeadLetterError:
                continue  # `dead-letters list` reports it
            ids = [value.decode("ascii", "replace") for name, value in record.headers if name == DEID_ID and value]
            found.setdefault(at, Counter())[ids[0] if ids else ""] += 1
        return found

    async def _all(self, topic: str) -> AsyncIterator[ConsumerRecord]:
        """All committed records now in a topic. Waits for transactions in progress, which may hold results."""
        for number in range(self._counts[topic]):
            tp = TopicPartition(topic, number)
            self._reader.assign([tp])
            self._every.assign([tp])
            wanted = (await self._every.end_offsets([tp]))[tp]
            try:
                async with asyncio.timeout(self._limit_s):
                    while (await self._bounds(tp))[1] < wanted:  # noqa: ASYNC110  the broker sends no notification
                        await asyncio.sleep(_WAIT_MS / 1000)
            except TimeoutError:
                raise UnsafeError(f"Kafka: a transaction stays open in {topic}/{number}: try again") from None
            begin, end = await self._bounds(tp)
            async for record in self._records(tp, begin, end):
                yield record

    async def _records(self, tp: TopicPartition, begin: int, end: int) -> AsyncIterator[ConsumerRecord]:
        if begin >= end:
            return
        self._reader.seek(tp, begin)
        quiet_s = 0.0
        while (before := await self._reader.position(tp)) < end:
            got = (await self._reader.getmany(tp, timeout_ms=_WAIT_MS, max_records=_MAX_RECORDS)).get(tp, [])
            for record in got:
                if record.offset < end:
                    yield record
            quiet_s = 0.0 if await self._reader.position(tp) > before else quiet_s + _WAIT_MS / 1000
            if quiet_s > self._limit_s:
                raise UnsafeError(f"Kafka: {tp.topic}/{tp.partition} returns no more records")

    async def _bounds(self, tp: TopicPartition) -> tuple[int, int]:
        begins, ends = await self._reader.beginning_offsets([tp]), await self._reader.end_offsets([tp])
        return int(begins[tp]), int(ends[tp])


@asynccontextmanager
async def open_offsets(settings: KafkaOptions) -> AsyncIterator[KafkaOffsets]:
    """The reader of a feed. Raises ``ConfigurationError`` if a topic does not exist or the broker refuses.

    An output of a pattern need not exist: the agent does not read its input then.
    """
    limit_client_logging()
    cluster = await fetch_metadata(settings)
    pattern, settings = settings.topics_pattern, resolve_routes(settings, cluster)
    if not settings.routes:
        raise ConfigurationError(f"Kafka: no topic matches kafka.topics_pattern {pattern!r}")
    outputs = [topic for topic in settings.routes.values() if topic]
    counts = {}
    for topic in (*settings.routes, *outputs, *map(settings.dead_letter_topic, settings.routes)):
        if not (numbers := cluster.partitions_for_topic(topic)) and pattern is None:
            raise ConfigurationError(f"Kafka: topic {topic!r} does not exist, or may not be described")
        counts[topic] = len(numbers or ())
    # With the id of the group its positions can be asked for. An assigned consumer does not join the group.
    reader, every = (
        make_reader(settings, isolation, settings.group_id) for isolation in ("read_committed", "read_uncommitted")
    )
    try:
        await run_to_completion(reader.start())
        await run_to_completion(every.start())
        yield KafkaOffsets(settings, reader, every, counts, await topic_identities(client_of(reader), settings.routes))
    except (*CLIENT_ERRORS, TransientError) as error:
        ours = error if isinstance(error, TransientError) else translate_error(error, "read the feed", starting=True)
        raise (UnsafeError(f"{ours}: try again") if isinstance(ours, TransientError) else ours) from None
    finally:
        await stop_consumer(reader, _STOP_S)
        await stop_consumer(every, _STOP_S)
