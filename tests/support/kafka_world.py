"""Topics of a test on a real broker: fill them, run transports over them, read what a reader sees."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from support.kafka_broker import Cluster
from support.transport_contract import FoundLetter, Given

from deid_agent.agent.envelope import unpack
from deid_agent.agent.letterhead import read_head
from deid_agent.agent.ports import Outcome, Output, Partition, Record, Settled
from deid_agent.errors import TransientError
from deid_agent.transport.kafka import Delivery, KafkaSettings, KafkaTransport

PATIENCE_S = 30.0
_numbers = itertools.count()


async def until(holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    """Return once it holds; ``TimeoutError`` where it does not."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  the broker tells nobody
            await asyncio.sleep(0.01)


async def produce(bootstrap: str, topic: str, partition: int, given: Sequence[Given]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_batch_size=512 * 1024)
    await producer.start()
    try:
        sent = [
            await producer.send(topic, g.payload, key=g.key, partition=partition, headers=list(g.headers))
            for g in given
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def read(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[ConsumerRecord]:
    """All a reader sees up to the end now, by partition. Waits two seconds at most for open transactions."""
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest")
    every = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await reader.start()
    await every.start()
    try:
        numbers = await reader._client._wait_on_metadata(topic)
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
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
        self.settings = KafkaSettings(
            bootstrap_servers=cluster.bootstrap,
            group_id=f"group-{self.name}",
            routes={self.name: self.out},
            delivery=delivery,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=10_000,
            request_timeout_ms=5_000,
            settle_timeout_ms=8_000,
            transaction_timeout_ms=10_000,
        )
        self.transports: list[KafkaTransport] = []

    async def create(self, partitions: int = 1, outputs: int | None = None) -> "KafkaWorld":
        await self.cluster.create_topic(self.name, partitions)
        await self.cluster.create_topic(self.out, outputs or partitions)
        await self.cluster.create_topic(self.settings.letters_of(self.name), partitions)
        return self

    async def fill(self, given: Sequence[Given], partition: int = 0) -> None:
        await produce(self.cluster.bootstrap, self.name, partition, given)

    def transport(self, **changes: object) -> KafkaTransport:
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]  # checked by the dataclass
        self.transports.append(KafkaTransport(settings))
        return self.transports[-1]

    async def outputs(self) -> Sequence[Output]:
        return [Output(m.value, m.key, tuple(m.headers)) for m in await read(self.cluster.bootstrap, self.out)]

    async def letters(self) -> Sequence[FoundLetter]:
        found = await read(self.cluster.bootstrap, self.settings.letters_of(self.name))
        return [FoundLetter(dict(m.headers), unpack(m.value, read_head(m.headers).at).payload) for m in found]

    async def close(self) -> None:
        for transport in self.transports:
            await transport.stop()


class Copier:
    """An agent that publishes what it reads: tries again after transient errors, settles what it has on revoke."""

    def __init__(self, transport: KafkaTransport, batch: int = 50) -> None:
        self.transport = transport
        self.batch = batch
        self.held: dict[Partition, list[Record]] = {}
        self.told: list[tuple[str, Sequence[Partition]]] = []
        self.troubles: list[TransientError] = []
        self.settled = 0

    async def assigned(self, streams: Sequence[Partition]) -> None:
        self.told.append(("assigned", streams))
        self.held = {stream: [] for stream in streams}

    async def revoked(self, streams: Sequence[Partition]) -> None:
        self.told.append(("revoked", streams))
        for stream in streams:
            await self.settle(stream)
        self.held = {}

    async def settle(self, stream: Partition) -> None:
        """Settle what is held; held on to where that fails for now."""
        if not (records := self.held.get(stream)):
            return
        position = records[-1].coordinates.offset + 1
        try:
            await self.transport.settle(stream, [copied(record) for record in records], position)
        except TransientError as trouble:
            self.troubles.append(trouble)
            await asyncio.sleep(0.02)
            return
        left = [record for record in records if record.coordinates.offset >= position]
        self.settled += len(records) - len(left)
        records[:] = left  # a revoke may have settled the same meanwhile

    async def step(self) -> None:
        """Poll once and settle what is held."""
        try:
            for record in await self.transport.poll(self.batch):
                self.held[record.coordinates.stream].append(record)
        except TransientError as trouble:
            self.troubles.append(trouble)
        for stream in list(self.held):
            await self.settle(stream)

    async def run(self, enough: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Step until it is enough."""
        async with asyncio.timeout(within_s):
            while not enough():
                await self.step()


def copied(record: Record) -> Settled:
    return Settled(record, Outcome.PUBLISHED, Output(record.payload, record.key, record.headers))
