"""Overhead of the agent over a bare consume-produce loop: throughput, CPU, latency, both guarantees, one broker.

The loop is aiokafka alone with the guarantees of the agent: a transactional producer per partition and a
transaction a batch, or an idempotent producer and a commit a batch. The agent does the same around a job that copies
bytes: a worker process, ledger, audit with fsync, telemetry. They take turns over the same messages; the result
is the median of the ratios. A last column has the share of the time in which the agent's event loop ran and in which it
was ready but waited for a processor. If it waits, throughput is that of the neighbours: compare CPU. Run it on an idle
machine:

    python tests/bench/bench_delivery.py [--rounds 3] [--messages 10000] [--only "exactly_once 1 KB"]
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import struct
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from support.kafka_broker import Cluster, KafkaBroker, find_classpath
from support.kafka_world import KafkaWorld
from support.marks import MARKS
from support.reference_loop import reference_loop
from support.transport_contract import Given

from deid_agent.agent.job import Job, Process, Processed
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.audit.storage import Signer
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.config import Delivery
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import BatchCommitted, Event, PartitionsAssigned
from deid_agent.transport.kafka.source import KafkaTransport

BATCH = 100
RATE = 200  # messages a second while latency is measured
PACED = 600
LINES = TrailSettings(return_lines=False)  # as in an agent without an audit topic
_TIME = struct.Struct("!d")


def copied(job: Job) -> Processed:
    return Processed(job.payload, job.key, job.headers, b"[]", "0" * 32, "0" * 32)


def copying() -> Process:
    """A job without work: the remaining cost is that of the agent."""
    return copied


@dataclass(frozen=True)
class LoopTime:
    """Seconds in which the thread of the event loop ran, and in which it was ready but had no processor."""

    runs_s: float
    waits_s: float

    def __sub__(self, other: "LoopTime") -> "LoopTime":
        return LoopTime(self.runs_s - other.runs_s, self.waits_s - other.waits_s)


def loop_time() -> LoopTime:
    """The time of the calling thread so far, from the scheduler."""
    runs, waits, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return LoopTime(int(runs) / 1e9, int(waits) / 1e9)


@dataclass(frozen=True)
class Cost:
    """Seconds for all messages, and latencies in milliseconds."""

    wall_s: float
    cpu_s: float
    p50_ms: float
    p99_ms: float
    reference_s: float
    loop: "LoopTime"


class Contender(ABC):
    """Copies a topic into another. ``done`` counts; ``began`` is set with the first assignment."""

    def __init__(self, world: KafkaWorld, partitions: int) -> None:
        self.world = world
        self.partitions = partitions
        self.done = 0
        self.goal = 0
        self.reached = asyncio.Event()
        self.began = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Until cancelled."""

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return time.process_time()

    def finished(self, count: int) -> None:
        self.done += count
        if self.done >= self.goal:
            self.reached.set()


class Bare(Contender):
    """aiokafka alone."""

    async def run(self) -> None:
        topic, settings = self.world.name, self.world.settings
        consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap_servers,
            group_id=settings.group_id,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.subscribe([topic])
        partitions = [TopicPartition(topic, number) for number in range(self.partitions)]
        producers = {tp: self._producer(tp) for tp in partitions}
        await asyncio.gather(*(producer.start() for producer in producers.values()))
        try:
            while consumer.assignment() != set(partitions):  # noqa: ASYNC110  the library notifies only a listener
                await asyncio.sleep(0.01)
            self.began.set()
            async with asyncio.TaskGroup() as group:
                for tp, producer in producers.items():
                    group.create_task(self._copy(consumer, producer, tp))
        finally:
            await asyncio.gather(*(producer.stop() for producer in producers.values()))
            await consumer.stop()

    def _producer(self, tp: TopicPartition) -> AIOKafkaProducer:
        settings = self.world.settings
        name = f"bare-{settings.group_id}-{tp.partition}"
        return AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            max_batch_size=settings.batch_bytes,
            transactional_id=name if settings.delivery is Delivery.EXACTLY_ONCE else None,
        )

    async def _copy(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, tp: TopicPartition) -> None:
        while True:
            found = await consumer.getmany(tp, timeout_ms=500, max_records=BATCH)
            if records := found.get(tp, []):
                await self._commit(consumer, producer, tp, records)
                self.finished(len(records))

    async def _commit(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, tp: TopicPartition, records: list[ConsumerRecord]
    ) -> None:
        group, position = self.world.settings.group_id, {tp: records[-1].offset + 1}
        exactly_once = self.world.settings.delivery is Delivery.EXACTLY_ONCE
        if exactly_once:
            await producer.begin_transaction()
        sent = [
            await producer.send(
                self.world.out,
                record.value,
                record.key,
                partition=tp.partition,
                headers=[*record.headers, ("deid-id", f"{tp.topic}/{tp.partition}/{record.offset}".encode())],
            )
            for record in records
        ]
        await asyncio.gather(*sent)
        if exactly_once:
            await producer.send_offsets_to_transaction(position, group)
            await producer.commit_transaction()
        else:
            await consumer.commit(position)


class Counting(Telemetry):
    """Reports assignments to the contender."""

    def __init__(self, contender: "Agent") -> None:
        super().__init__()
        self._contender = contender

    def emit(self, event: Event) -> None:
        super().emit(event)
        if isinstance(event, BatchCommitted):
            self._contender.finished(event.published)
        elif isinstance(event, PartitionsAssigned):
            self._contender.began.set()


class Agent(Contender):
    """The agent as ``deid-agent run`` builds it, with one worker that copies."""

    def __init__(self, world: KafkaWorld, partitions: int) -> None:
        super().__init__(world, partitions)
        self._pool = WorkerPool(copying, 1, Counting(self))

    async def run(self) -> None:
        telemetry = Counting(self)
        with tempfile.TemporaryDirectory() as folder:
            audit = AuditTrail(Path(folder) / "audit", {"version": "bench"}, Signer(bytes(32)), telemetry, LINES)
            settings = RunnerSettings(batch_records=BATCH)
            runner = Runner(
                KafkaTransport(self.world.settings), self._pool, audit, settings, marks=MARKS, telemetry=telemetry
            )
            running = asyncio.create_task(runner.run())
            try:
                await asyncio.Event().wait()
            finally:
                runner.request_stop()
                await asyncio.wait({running})
                await audit.close()

    def cpu(self) -> float:
        ticks = 0
        for child in multiprocessing.active_children():
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


async def measured(kind: type[Contender], cluster: Cluster, case: "Case", messages: int) -> Cost:
    """One round of one contender over topics of its own."""
    world = await KafkaWorld(cluster, case.delivery).create(case.partitions)
    payload = os.urandom(case.size)
    share = [Given(payload, b"key-%d" % (number % 50)) for number in range(messages // case.partitions)]
    for number in range(case.partitions):
        await world.fill(share, number)
    reference = reference_loop()
    contender = kind(world, case.partitions)
    contender.goal = len(share) * case.partitions
    running = asyncio.create_task(contender.run())
    try:
        async with asyncio.timeout(300):
            await contender.began.wait()
            wall, cpu, loop = time.perf_counter(), contender.cpu(), loop_time()
            await contender.reached.wait()
            wall, cpu, loop = time.perf_counter() - wall, contender.cpu() - cpu, loop_time() - loop
            late = sorted(await latencies(world, case))
    finally:
        running.cancel()
        await asyncio.wait({running})
    reference = (reference + reference_loop()) / 2
    return Cost(wall, cpu, late[len(late) // 2] * 1000, late[len(late) * 99 // 100] * 1000, reference, loop)


async def latencies(world: KafkaWorld, case: "Case") -> list[float]:
    """Seconds from the send of a message to the arrival of its output at a reader, at a steady rate."""
    filler = os.urandom(max(0, case.size - _TIME.size))
    return await pace(
        world,
        case.partitions,
        PACED,
        RATE,
        make=lambda _: _TIME.pack(time.perf_counter()) + filler,
        sent=lambda _, value: float(_TIME.unpack_from(value)[0]),
    )


async def pace(
    world: KafkaWorld,
    partitions: int,
    count: int,
    rate: float,
    *,
    make: Callable[[int], bytes],
    sent: Callable[[int, bytes], float],
) -> list[float]:
    """Seconds for each of ``count`` messages that are sent ``rate`` times a second, in the order of arrival.

    ``make`` makes a message by its number; ``sent`` returns when an output was sent, by its place and value.
    """
    reader = AIOKafkaConsumer(bootstrap_servers=world.cluster.bootstrap, isolation_level="read_committed")
    sender = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, acks="all")
    await reader.start()
    await sender.start()
    reader.assign([TopicPartition(world.out, number) for number in range(partitions)])
    await reader.seek_to_end()

    async def send() -> None:
        begin = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            await sender.send(world.name, make(number), b"key", partition=number % partitions)

    sending = asyncio.create_task(send())
    found: list[float] = []
    try:
        while len(found) < count:
            for records in (await reader.getmany(timeout_ms=500)).values():
                now = time.perf_counter()
                found += [now - sent(len(found) + place, record.value) for place, record in enumerate(records)]
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        await sender.stop()
        await reader.stop()
    return found


@dataclass(frozen=True)
class Case:
    """A measured case."""

    delivery: Delivery
    partitions: int
    size: int

    def __str__(self) -> str:
        return f"{self.delivery} {self.size // 1000} KB {self.partitions}p"


async def compare(cluster: Cluster, case: Case, rounds: int, messages: int, *, as_json: bool) -> str:
    """One line of the table, or one object for ``suite.py``."""
    pairs: list[tuple[Cost, Cost]] = []
    for turn in range(rounds):
        kinds = (Bare, Agent) if turn % 2 else (Agent, Bare)
        costs = {kind: await measured(kind, cluster, case, messages) for kind in kinds}
        pairs.append((costs[Bare], costs[Agent]))
    runs, waits = (
        round(100 * statistics.median(seconds / agent.wall_s for seconds, agent in some))
        for some in (
            [(agent.loop.runs_s, agent) for _, agent in pairs],
            [(agent.loop.waits_s, agent) for _, agent in pairs],
        )
    )
    if as_json:
        bare, agent = ([pair[side] for pair in pairs] for side in (0, 1))
        found = {
            "case": str(case),
            "cpu_us": [1e6 * cost.cpu_s / messages for cost in agent],
            "reference": [cost.reference_s for cost in agent],
            "per_s": round(messages / statistics.median(cost.wall_s for cost in agent)),
            "p99_ms": round(statistics.median(cost.p99_ms for cost in agent)),
            "loop_us": round(1e6 * statistics.median(cost.cpu_s for cost in bare) / messages),
            "runs_percent": runs,
            "waits_percent": waits,
            "loop_per_s": round(messages / statistics.median(cost.wall_s for cost in bare)),
        }
        return json.dumps(found)
    wall = statistics.median(agent.wall_s / bare.wall_s for bare, agent in pairs)
    cpu = statistics.median(agent.cpu_s / bare.cpu_s for bare, agent in pairs)
    cells = [f"{case!s:26}"]
    for side in (0, 1):
        cost = [pair[side] for pair in pairs]
        cells.append(f"{messages / statistics.median(c.wall_s for c in cost):7.0f}/s")
        cells.append(f"{1e6 * statistics.median(c.cpu_s for c in cost) / messages:6.0f} us")
        cells.append(f"{statistics.median(c.p50_ms for c in cost):6.1f}")
        cells.append(f"{statistics.median(c.p99_ms for c in cost):6.1f}")
    return " ".join([*cells, f"x{wall:.2f} wall", f"x{cpu:.2f} CPU", f"runs {runs} %, waits {waits} %"])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true", help="one object for each case")
    options = parser.parse_args()
    cases = [Case(d, p, s) for s in (1_000, 20_000) for d in Delivery for p in (1, 2, 4)]
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder), find_classpath())
        broker.start()
        try:
            names = f"{'loop':>9} {'CPU':>9} {'p50':>6} {'p99':>6} {'agent':>9} {'CPU':>9} {'p50':>6} {'p99':>6} ms"
            if not options.json:
                print(f"{'':26} {names}")  # noqa: T201
            for case in cases:
                if options.only in str(case):
                    line = await compare(broker, case, options.rounds, options.messages, as_json=options.json)
                    print(line, flush=True)  # noqa: T201
        finally:
            broker.kill()


if __name__ == "__main__":
    asyncio.run(main())
