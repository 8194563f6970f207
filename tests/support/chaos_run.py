"""Runs agents on one broker or on three, kills and disturbs everything, and prints the outcome of the records.

``PYTHONPATH=.:tests python -m support.chaos_run --brokers 3 --records 5000 --times 3``
"""

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from support.agent_process import AgentProcess
from support.chaos import PARTITIONS, Chaos, Fault, Verdict, judge
from support.cluster_chaos import ClusterChaos, ClusterFault
from support.kafka_broker import KafkaBroker, find_classpath
from support.kafka_cluster import ThreeBrokers
from support.kafka_world import KafkaWorld

LIMIT_S = 3_000
ON_ONE: tuple[StrEnum, ...] = tuple(Fault)
ON_THREE: tuple[StrEnum, ...] = (*ClusterFault, *(fault for fault in Fault if fault is not Fault.BROKER))
HEAD = ("Brokers", "Agents", "Faults", "Records", "Lost", "Doubled", "Out of order", "Not audited", "Leaks", "Duration")


async def run_storm(
    brokers: KafkaBroker | ThreeBrokers,
    folder: Path,
    faults: Iterable[StrEnum],
    *,
    agents: int,
    times: int,
    count: int,
    seed: int,
) -> tuple[Chaos, Verdict, list[str]]:
    """Inject each fault ``times`` times; return the run, its verdict and the locations of PHI outside its messages."""
    world = await KafkaWorld(brokers).create(PARTITIONS)
    members = [AgentProcess(folder / f"agent-{number}", world) for number in range(agents)]
    wanted = dict.fromkeys(faults, times)
    chaos: Chaos
    if isinstance(brokers, ThreeBrokers):
        chaos = ClusterChaos(world, brokers, members, faults=wanted, count=count, seed=seed)
    else:
        chaos = Chaos(world, brokers, members, faults=wanted, count=count, seed=seed)
    async with asyncio.timeout(LIMIT_S):
        await chaos.run()
    out, dead_letters = await chaos.found()
    return chaos, judge(chaos, out, dead_letters), chaos.leaks((*out, *dead_letters))


async def main(arguments: Sequence[str]) -> int:
    """Run, print the table, and return 1 if a record was lost, doubled, out of order, unaudited or leaked."""
    parser = argparse.ArgumentParser(prog="support.chaos_run", allow_abbrev=False)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument("--agents", type=int, choices=(2, 3), default=3)
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=3, help="how often each fault is injected")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", type=Path, help="an empty folder for the logs of agents and brokers")
    given = parser.parse_args(arguments)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it reports each connection that a fault refuses
    with contextlib.nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as name:
        folder, three = Path(name), given.brokers == 3
        brokers = (ThreeBrokers if three else KafkaBroker)(folder, find_classpath())
        try:
            brokers.start()
            begin = time.monotonic()
            chaos, verdict, leaks = await run_storm(
                brokers,
                folder,
                ON_THREE if three else ON_ONE,
                agents=given.agents,
                times=given.times,
                count=given.records,
                seed=given.seed,
            )
            seconds = time.monotonic() - begin
        finally:
            brokers.kill()
    for fault, took in sorted(chaos.seconds.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{took:6.1f} s  {fault}\n")
    sys.stdout.write(f"seed {given.seed}: {dict(chaos.done)}; ended by themselves: {chaos.unforced}\n")
    counts = (verdict.records, verdict.lost, verdict.doubled, verdict.disordered, verdict.unaudited, len(leaks))
    row = (given.brokers, given.agents, chaos.faults, *counts, f"{seconds:.0f} s")
    for cells in (HEAD, ["---"] * len(HEAD), row):
        sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    return 0 if verdict.faultless and not leaks else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
