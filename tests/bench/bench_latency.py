"""Latency of the agent with recognition on a real broker, at 80 % of its capacity: from send to receipt.

    python tests/bench/bench_latency.py [--messages 200] [--workers 1] [--system default] [--share 0.8]

The capacity is measured first, with waiting messages; then messages are sent at that share of it. Messages are the
package's admission, each with identifiers of its own. The load of the machine is part of the result: other work on
the same cores lowers the capacity and delays messages.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_delivery import Agent, pace
from support.kafka_broker import Cluster, KafkaBroker, find_classpath
from support.kafka_world import KafkaWorld
from support.transport_contract import Given

from deid_agent.agent import WorkerPool
from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import Telemetry

SAMPLE = Path(__file__).resolve().parents[2] / "deid_agent" / "samples" / "01-adt-a01.hl7"


def make_message(number: int) -> bytes:
    """The admission with a record number of its own."""
    return re.sub(rb"\b4471902\b", b"%d" % (4_000_000 + 37 * number), SAMPLE.read_bytes())


async def measure(cluster: Cluster, options: argparse.Namespace) -> str:
    """One line with the capacity and the latencies."""
    world = await KafkaWorld(cluster).create()
    await world.fill([Given(make_message(number), b"k") for number in range(options.messages)])
    rules = data_folder("rules", None)
    parts = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules), system=options.system)
    agent = Agent(world, 1)
    agent._pool = WorkerPool(parts, options.workers, Telemetry())
    # The first messages meet cold tables: the clock starts after a quarter of them.
    agent.goal = options.messages // 4
    running = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(600):
            await agent.reached.wait()
            begun, done = time.perf_counter(), agent.done
            agent.reached.clear()
            agent.goal = options.messages
            await agent.reached.wait()
            capacity = (options.messages - done) / (time.perf_counter() - begun)
            late = sorted(await paced(world, options.messages, capacity * options.share))
    finally:
        running.cancel()
        await asyncio.wait({running})
    p50, p99 = (1000 * late[len(late) * share // 100] for share in (50, 99))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{capacity:.1f}/s at most; at {options.share:.0%} p50 {p50:.0f} ms, p99 {p99:.0f} ms; load {load}"


async def paced(world: KafkaWorld, count: int, rate: float) -> list[float]:
    """Seconds for each message. There is one partition, so outputs arrive in the order of the sends."""
    begins: list[float] = []

    def make(number: int) -> bytes:
        message = make_message(1_000_000 + number)
        begins.append(time.perf_counter())
        return message

    return await pace(world, 1, count, rate, make=make, sent=lambda place, _: begins[place])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--system", default="default")
    parser.add_argument("--share", type=float, default=0.8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder), find_classpath())
        broker.start()
        try:
            sys.stdout.write(await measure(broker, options) + "\n")
        finally:
            broker.kill()


if __name__ == "__main__":
    asyncio.run(main())
