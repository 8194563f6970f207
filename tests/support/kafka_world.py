"""Topics of a test on a real broker: fill them, run transports on them, and read them as a consumer."""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError
from support.kafka_broker import Cluster
from support.kafka_internals import partition_numbers
from support.marks import published_output
from support.transport_contract import Given, Member, StoredDeadLetter, numbered

from deid_agent.agent.dead_letter_records import read_dead_letter_head, unpack_envelope
from deid_agent.agent.ports import FinishedRecord, Output, Partition, Record
from deid_agent.config import Delivery
from deid_agent.model.errors import TransientError
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.source import KafkaTransport

PATIENCE_S = 30.0
_numbers = itertools.count()


async def until(holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    """Return once the condition holds; ``TimeoutError`` if it never does."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  the broker sends no notification
            await asyncio.sleep(0.01)


async def _open_producer(bootstrap: str) -> AIOKafkaProducer:
    """A started producer, as soon as the broker answers: on a busy machine one that was restarted needs a while."""
    async with asyncio.timeout(2 * PATIENCE_S):
        while True:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=512 * 1024)
            try:
                await producer.start()
            except KafkaConnectionError:
                await producer.stop()
                await asyncio.sleep(0.2)
            else:
                return producer


async def produce(bootstrap: str, topic: str, partition: int, given: Sequence[Given]) -> list[int]:
    """Send the records; return their offsets. Each is written once, also while leaders move."""
    producer = await _open_producer(bootstrap)
    try:
        sent = [
            await producer.send(topic, g.payload, key=g.key, partition=partition, headers=list(g.headers))
            for g in given
        ]
        return [written.offset for written in await asyncio.gather(*sent)]
    finally:
        await producer.stop()


async def read(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[ConsumerRecord]:
    """All a reader sees up to the end now, by partition. Waits two seconds at most for open transactions."""
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest")
    every = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await reader.start()
    await every.start()
    try:
        partitions = [TopicPartition(topic, number) for number in await partition_numbers(reader, topic)]
        begins, ends = {}, {}
        for _ in range(100):
            begins, ends = await reader.beginning_offsets(partitions), await reader.end_offsets(partitions)
            if ends == await every.end_offsets(partitions):
                break
            await asyncio.sleep(0.02)
        reader.assign(partitions)
        found: list[ConsumerRecord] = []
        async with asyncio.timeout(PATIENCE_S):
            for tp in partitions:
                reader.seek(tp, begins[tp])
                while await reader.position(tp) < ends[tp]:
                    found += (await reader.getmany(tp, timeout_ms=200)).get(tp, [])
        return found
    finally:
        await reader.stop()
        await every.stop()


class KafkaWorld:
    """One route of its own on a shared broker, and the transports made over it."""

    def __init__(self, cluster: Cluster, delivery: Delivery = Delivery.EXACTLY_ONCE) -> None:
        self.cluster = cluster
        self.name = f"adt-{next(_numbers)}-{asyncio.get_running_loop().time():.6f}".replace(".", "-")
        self.out = f"{self.name}.out"
        self.stream = Partition(self.name, 0)
        self.settings = KafkaOptions(
            bootstrap_servers=cluster.bootstrap,
            group_id=f"group-{self.name}",
            routes={self.name: self.out},
            delivery=delivery,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=10_000,
            request_timeout_ms=5_000,
            commit_timeout_ms=8_000,
            transaction_timeout_ms=10_000,
        )
        self.transports: list[KafkaTransport] = []
        self.topic_id = ""
        """The id of the input topic, which its ``deid-id`` contain."""

    async def create(self, partitions: int = 1, outputs: int | None = None) -> "KafkaWorld":
        await self.cluster.create_topic(self.name, partitions)
        self.topic_id = await self.cluster.topic_id(self.name)
        await self.cluster.create_topic(self.out, outputs or partitions)
        await self.cluster.create_topic(self.settings.dead_letter_topic(self.name), partitions)
        return self

    async def fill(self, given: Sequence[Given], partition: int = 0) -> None:
        await produce(self.cluster.bootstrap, self.name, partition, given)

    def changed(self, **changes: object) -> KafkaOptions:
        return KafkaOptions.model_validate(dict(self.settings) | changes)

    def transport(self, **changes: object) -> KafkaTransport:
        self.transports.append(KafkaTransport(self.changed(**changes)))
        return self.transports[-1]

    async def outputs(self) -> Sequence[Output]:
        return [Output(m.value, m.key, tuple(m.headers)) for m in await read(self.cluster.bootstrap, self.out)]

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        found = await read(self.cluster.bootstrap, self.settings.dead_letter_topic(self.name))
        return [
            StoredDeadLetter(dict(m.headers), unpack_envelope(m.value, read_dead_letter_head(m.headers).at).payload)
            for m in found
        ]

    async def close(self) -> None:
        for transport in self.transports:
            await transport.stop()


class Copier:
    """An agent that publishes its input unchanged, retries after transient errors, and commits on revocation."""

    def __init__(self, transport: KafkaTransport, batch: int = 50) -> None:
        self.transport = transport
        self.batch = batch
        self.held: dict[Partition, list[Record]] = {}
        self.events: list[tuple[str, Sequence[Partition]]] = []
        self.troubles: list[TransientError] = []
        self.finished = 0

    async def assigned(self, streams: Sequence[Partition]) -> None:
        self.events.append(("assigned", streams))
        self.held = {stream: [] for stream in streams}

    async def revoked(self, streams: Sequence[Partition]) -> None:
        self.events.append(("revoked", streams))
        for stream in streams:
            await self.commit(stream)
        self.held = {}

    async def commit(self, stream: Partition) -> None:
        """Commit the held records; keep them if that fails for now."""
        if not (records := self.held.get(stream)):
            return
        position = records[-1].coordinates.offset + 1
        try:
            await self.transport.commit(stream, [copied(record) for record in records], position)
        except TransientError as trouble:
            self.troubles.append(trouble)
            await asyncio.sleep(0.02)
            return
        left = [record for record in records if record.coordinates.offset >= position]
        self.finished += len(records) - len(left)
        records[:] = left  # a revocation may have committed the same records meanwhile

    async def step(self) -> None:
        """Poll once and commit the held records."""
        try:
            for record in await self.transport.poll(self.batch):
                self.held[record.coordinates.stream].append(record)
        except TransientError as trouble:
            self.troubles.append(trouble)
        for stream in list(self.held):
            await self.commit(stream)

    async def run(self, enough: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Step until the condition holds."""
        async with asyncio.timeout(within_s):
            while not enough():
                await self.step()


async def started(world: KafkaWorld, **changes: object) -> KafkaTransport:
    """A new transport of the world that is a member of its group."""
    transport = world.transport(**changes)
    await transport.start(Member())
    return transport


async def take(transport: KafkaTransport, count: int) -> list[Record]:
    """The next ``count`` records."""
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await transport.poll(count - len(records))
    return records


async def started_with_records(world: KafkaWorld, count: int) -> tuple[KafkaTransport, list[Record]]:
    """Create the topics, fill the input with ``numbered(count)``, and have a new transport take all of it."""
    await world.create()
    await world.fill(numbered(count))
    transport = await started(world)
    return transport, await take(transport, count)


def copied(record: Record) -> FinishedRecord:
    return published_output(record, record.payload, record.key, record.headers)
