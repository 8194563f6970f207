"""The Kafka transport: a member of a consumer group, and one writer per partition it was dealt.

A rebalance is eager: everything is revoked, then dealt out anew. On revoke the agent settles what is
finished, then the writers close. On assign a writer per partition opens (which fences its former
owner), the consumer seeks to the position read *after* that, and only then the agent is told and records
come. ``settle`` may be repeated with the same batch after a ``TransientError``; the records are not
delivered again meanwhile. Where another owner may have the partition, the transport writes nothing more
to it and has the group deal out anew: ``revoked`` follows, and the records come again to whoever owns them.
"""

import asyncio
from collections.abc import Sequence

from aiokafka import ConsumerRecord, TopicPartition

from deid_agent.agent.letterhead import PLAIN, Keeper
from deid_agent.agent.ports import Listener, Partition, Record, Settled
from deid_agent.errors import ConfigurationError, DeidError, LostError, OversizeError, TransientError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import TransactionAborted
from deid_agent.transport.kafka_calls import cut, uncut
from deid_agent.transport.kafka_consumer import Consumer, Rebalance, hush, make_consumer, to_record
from deid_agent.transport.kafka_errors import CLIENT_ERRORS, translate
from deid_agent.transport.kafka_messages import to_messages
from deid_agent.transport.kafka_probe import inspect
from deid_agent.transport.kafka_producer import PartitionWriter, TooLarge, make_writer
from deid_agent.transport.kafka_settings import Delivery, KafkaSettings

__all__ = ["Delivery", "KafkaSettings", "KafkaTransport"]

_POLL_S = 0.5
_STOP_S = 10.0
_OPEN_AT_ONCE = 16
_NOTHING = TopicPartition("", 0)
"""No partition: ``getmany`` takes an empty list for all of them."""

Fetched = dict[TopicPartition, list[ConsumerRecord]]


class KafkaTransport:
    """Implements ``Transport`` and ``KnowsLag``. ``keeper`` makes every dead letter."""

    def __init__(self, settings: KafkaSettings, *, keeper: Keeper = PLAIN, telemetry: Telemetry | None = None) -> None:
        self._settings = settings
        self._keeper = keeper
        self._telemetry = telemetry or Telemetry()
        self._listener: Listener | None = None
        self._consumer: Consumer | None = None
        self._writers: dict[Partition, PartitionWriter] = {}
        self._begun: dict[Partition, int] = {}
        self._ready: frozenset[Partition] = frozenset()
        self._paused: set[Partition] = set()
        self._told: Sequence[Partition] = ()
        self._turn = 0
        self._joined = asyncio.Event()
        self._woken = asyncio.Event()
        self._fetching: asyncio.Task[Fetched] | None = None
        self._failure: DeidError | None = None

    async def start(self, listener: Listener) -> None:
        """Check the topics, join the group and wait for the first assignment as long as a rebalance may take.

        Raises ``ConfigurationError`` where a topic is missing or no broker answers or lets us in.
        """
        hush()
        if problems := await inspect(self._settings):
            raise ConfigurationError("Kafka: " + "; ".join(problems))
        self._listener, self._failure = listener, None
        self._joined.clear()
        self._consumer = make_consumer(self._settings)
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await uncut(self._consumer.start())
            self._subscribe(self._consumer)
            await self._first_assignment(self._consumer)
        except CLIENT_ERRORS as error:
            await self.stop()
            raise translate(error, "join the group", starting=True) from None
        except DeidError:
            await self.stop()
            raise

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``. Raises what the last rebalance could not do, too."""
        consumer, turn = self._consumer, self._turn
        if consumer is None or limit < 1:
            return []
        self._raise_failure()
        wanted = self._ready - self._paused
        try:
            consumer.raise_death()
            fetched = await self._fetch(consumer, wanted, limit)
        except CLIENT_ERRORS as error:
            raise translate(error, "read records") from None
        except UnicodeDecodeError:
            raise UnsafeError(await _no_header(consumer, wanted)) from None
        if self._turn != turn:
            return []  # fetched before a rebalance that began meanwhile
        return [to_record(got) for some in fetched.values() for got in some]

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._paused.add(stream)
        if self._consumer is not None and stream in self._ready:
            self._consumer.pause(_tp(stream))

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``; wakes a waiting ``poll``."""
        self._paused.discard(stream)
        if self._consumer is not None and stream in self._ready:
            self._consumer.resume(_tp(stream))
            self._woken.set()

    async def settle(self, stream: Partition, batch: Sequence[Settled], position: int) -> None:
        """See ``Transport.settle``. After a ``TransientError`` call it again with the same batch."""
        writer = self._writers.get(stream)
        if writer is None:
            raise LostError(f"Kafka: {_name(stream)} is not assigned to this member")
        if any(item.letter is not None for item in batch):
            # Sealing 50 MB takes a second, too long for the loop. A writer that closes meanwhile writes nothing.
            messages = await asyncio.to_thread(to_messages, batch, self._settings, self._keeper)
        else:
            messages = to_messages(batch, self._settings, self._keeper)
        try:
            async with asyncio.timeout(self._settings.settle_timeout_ms / 1000):
                await writer.settle(messages, position)
        except TooLarge as error:
            at, topic = error.message.offset, error.message.topic
            text = str(translate(error, f"settle {_name(stream)}/{at} to {topic}"))
            raise OversizeError(at, text) if topic in self._settings.routes.values() else UnsafeError(text) from None
        except CLIENT_ERRORS as error:
            ours = translate(error, f"settle {_name(stream)} up to {position}")
            if isinstance(ours, LostError):
                await self._lose(writer)
            raise ours from None
        except LostError:
            await self._lose(writer)
            raise

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``; counts offsets, so markers of transactions too."""
        writer = self._writers.get(stream)
        if self._consumer is None or writer is None or stream not in self._ready:
            return None
        at = self._begun.get(stream) if writer.position is None else writer.position
        end = self._consumer.highwater(_tp(stream))
        return None if end is None or at is None else max(0, end - at)

    @property
    def exhausted(self) -> bool:
        """Never: a topic has no end."""
        return False

    async def stop(self) -> None:
        """See ``Transport.stop``. Waits ten seconds at most for a broker that does not answer, less where cancelled."""
        consumer, self._consumer = self._consumer, None
        self._ready = frozenset()
        self._woken.set()
        leaving: asyncio.Task[None] | None = None
        try:
            await self._close_writers()
            if consumer is not None:
                # In a task of its own: with a dead broker the library lets the cancellation of its fetches out.
                leaving = asyncio.create_task(consumer.stop())
                await asyncio.wait({leaving}, timeout=_STOP_S)
        finally:
            if consumer is not None and (leaving is None or not _well(leaving)):
                if leaving is not None:
                    leaving.cancel()
                await consumer.abandon()  # the group finds out by the session timeout

    # --- joining and polling

    def _subscribe(self, consumer: Consumer) -> None:
        """Join, or give everything up and join again: a new subscription has the group deal out anew."""
        self._ready = frozenset()
        consumer.subscribe(list(self._settings.routes), listener=Rebalance(self._revoked, self._assigned))

    async def _first_assignment(self, consumer: Consumer) -> None:
        deadline = asyncio.get_running_loop().time() + self._settings.rebalance_timeout_ms / 1000
        while not self._joined.is_set() and asyncio.get_running_loop().time() < deadline:
            consumer.raise_death()
            await self._fetch(consumer, frozenset(), 1)  # brings up what the coordinator was told
        self._raise_failure()

    async def _fetch(self, consumer: Consumer, wanted: frozenset[Partition], limit: int) -> Fetched:
        """What is there of ``wanted`` within ``_POLL_S``; ends early when woken. Loses no record when cancelled."""
        self._woken.clear()
        partitions = [_tp(stream) for stream in sorted(wanted)] or [_NOTHING]
        call = consumer.getmany(*partitions, timeout_ms=int(_POLL_S * 1000), max_records=limit)
        fetch = self._fetching = asyncio.create_task(call)
        woken = asyncio.create_task(self._woken.wait())
        try:
            # ``getmany`` alone would wait without bound while the group deals out anew.
            await asyncio.wait({fetch, woken}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            await cut(fetch)
        except asyncio.CancelledError:
            await cut(fetch)
            self._put_back(consumer, fetch)
            raise
        finally:
            woken.cancel()
            self._fetching = None
        return {} if fetch.cancelled() else fetch.result()

    def _put_back(self, consumer: Consumer, fetch: "asyncio.Task[Fetched]") -> None:
        if fetch.cancelled() or fetch.exception() is not None:
            return
        for tp, records in fetch.result().items():
            if records and _stream(tp) in self._ready:
                consumer.seek(tp, records[0].offset)

    # --- rebalancing: called by the library's coordinator, which swallows exceptions

    async def _revoked(self, _streams: list[Partition]) -> None:
        self._ready = frozenset()
        self._turn += 1
        if self._fetching is not None:
            await cut(self._fetching)  # no fetch spans two assignments
        leaving, self._told = self._told, ()
        try:
            if self._listener is not None and leaving:
                async with asyncio.timeout(self._settings.rebalance_timeout_ms / 1000):
                    await self._listener.revoked(leaving)
        except TimeoutError:
            self._failure = TransientError("Kafka: the drain took longer than a rebalance may")
        except Exception as error:  # noqa: BLE001  the caller logs and swallows it: the next poll raises it
            self._failure = _as_ours(error, "give partitions up")
        finally:
            await self._close_writers()
            self._paused.clear()

    async def _assigned(self, streams: list[Partition]) -> None:
        consumer = self._consumer
        if consumer is None or self._listener is None:
            return
        try:
            # The library sends no heartbeats meanwhile.
            async with asyncio.timeout(self._settings.session_timeout_ms / 2000):
                await self._take_all(consumer, streams)
            if streams:
                self._told = tuple(streams)
                await self._listener.assigned(streams)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = _as_ours(error, "take partitions over")
        else:
            self._ready = frozenset(streams)
        self._woken.set()
        self._joined.set()

    async def _take_all(self, consumer: Consumer, streams: list[Partition]) -> None:
        opening = asyncio.Semaphore(_OPEN_AT_ONCE)
        taking = [asyncio.create_task(self._take(consumer, stream, opening)) for stream in streams]
        try:
            await asyncio.gather(*taking)
        finally:
            # One that is slow to open must not outlive a deal that failed: it would fence its own heir.
            await asyncio.gather(*map(cut, taking))

    async def _take(self, consumer: Consumer, stream: Partition, opening: asyncio.Semaphore) -> None:
        writer = make_writer(self._settings, stream, self._commit, self._aborted)
        async with opening:
            position = await writer.open()
            if self._consumer is not consumer:
                await writer.close()  # stopped meanwhile: nobody else would
                raise LostError("Kafka: the transport was stopped")
            self._writers[stream] = writer
            if position is None:
                begin = await consumer.beginning_offsets([_tp(stream)])
                position = begin[_tp(stream)]
            self._begun[stream] = position
            consumer.seek(_tp(stream), position)

    async def _commit(self, stream: Partition, position: int) -> None:
        consumer = self._consumer
        if consumer is None:
            raise LostError("Kafka: the transport was stopped")
        consumer.raise_outsider()
        await consumer.commit({_tp(stream): position})

    def _aborted(self, stream: Partition, error: str) -> None:
        self._telemetry.emit(TransactionAborted(stream.topic, stream.number, error))

    async def _lose(self, writer: PartitionWriter) -> None:
        """Write no more and have the group deal out anew, unless it is about to."""
        await writer.lose()
        if self._consumer is not None and self._ready:
            self._subscribe(self._consumer)

    def _raise_failure(self) -> None:
        """Raise what went wrong in the background: once and with a new deal where it may pass, else for ever."""
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


async def _no_header(consumer: Consumer, wanted: frozenset[Partition]) -> str:
    """Where a record may stand whose header the library cannot read. It does not say which partition it was reading."""
    places = [f"{_name(stream)} from offset {await consumer.position(_tp(stream))} on" for stream in sorted(wanted)]
    return (
        f"Kafka: a record has a header whose name is no UTF-8, in {' or '.join(places)}: look for it with "
        "kafka-console-consumer, save it, set the group behind it with kafka-consumer-groups and start again"
    )


def _as_ours(error: Exception, doing: str) -> DeidError:
    if isinstance(error, DeidError):
        return error
    if isinstance(error, CLIENT_ERRORS):
        return translate(error, doing)
    return UnsafeError(f"Kafka: {doing}: unexpected {type(error).__name__}")


def _well(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _tp(stream: Partition) -> TopicPartition:
    return TopicPartition(stream.topic, stream.number)


def _stream(tp: TopicPartition) -> Partition:
    return Partition(tp.topic, tp.partition)


def _name(stream: Partition) -> str:
    return f"{stream.topic}/{stream.number}"
