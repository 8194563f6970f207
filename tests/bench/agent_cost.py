"""CPU of the agent for one record of 1 KB without recognition and without a broker.

    python tests/bench/agent_cost.py [--records 6000] [--rounds 3]

Records come from memory and go nowhere; between them are the ledger, a worker process that copies, the audit trail with
its sync, headers, events and metrics. ``bench_delivery.py`` measures the same on a real broker.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.reference_loop import reference_loop

from deid_agent.agent import (
    AssignmentListener,
    Coordinates,
    FinishedRecord,
    Job,
    OutputMarks,
    Partition,
    Process,
    Processed,
    Record,
    Runner,
    WorkerPool,
)
from deid_agent.audit import AuditTrail, Signer, TrailSettings
from deid_agent.telemetry import Telemetry

STREAM = Partition("adt", 0)
BYTES = 1_000
LINES = TrailSettings(return_lines=False)  # as in an agent without an audit topic


@dataclass(frozen=True, slots=True)
class AgentCost:
    """Microseconds of CPU for one record."""

    agent_us: float
    worker_us: float

    @property
    def total_us(self) -> float:
        return self.agent_us + self.worker_us


class Feed:
    """A ``Transport`` that makes so many records and drops their outputs."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0
        self._paused = False
        self._room = asyncio.Event()
        self._payload = os.urandom(BYTES)
        self.committed = 0
        self.half = asyncio.Event()

    async def start(self, listener: AssignmentListener) -> None:
        await listener.assigned([STREAM])

    async def poll(self, limit: int) -> Sequence[Record]:
        if self._paused:
            self._room.clear()
            await self._room.wait()
            return []
        first, self._next = self._next, min(self._count, self._next + limit)
        await asyncio.sleep(0)
        return [
            Record(Coordinates("adt", 0, at), self._payload, b"key-%d" % (at % 50), (("a", b"1"),), 1_700_000_000_000)
            for at in range(first, self._next)
        ]

    def pause(self, stream: Partition) -> None:
        assert stream == STREAM
        self._paused = True

    def resume(self, stream: Partition) -> None:
        assert stream == STREAM
        self._paused = False
        self._room.set()

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        assert (stream, position) == (STREAM, batch[-1].record.coordinates.offset + 1)
        self.committed += len(batch)

    @property
    def exhausted(self) -> bool:
        return self._next >= self._count

    async def stop(self) -> None:
        pass


def copied(job: Job) -> Processed:
    return Processed(job.payload, job.key, job.headers, b"[]", "0" * 32, "0" * 32)


def copying() -> Process:
    """A job without work: the remaining cost is that of the agent."""
    return copied


def cpu_of(pid: int) -> float:
    """Seconds of CPU of another process, from the scheduler's own clock."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class _Begun(Telemetry):
    """Takes the clocks when the first partition is assigned: the start is no cost of a record."""

    begun: tuple[float, float] = (0.0, 0.0)

    def emit(self, event: object) -> None:
        super().emit(event)  # type: ignore[arg-type]
        if type(event).__name__ == "PartitionsAssigned":
            self.begun = (time.process_time(), _workers_cpu())


def _workers_cpu() -> float:
    return sum(cpu_of(child.pid) for child in multiprocessing.active_children() if child.pid is not None)


async def _measure(records: int) -> AgentCost:
    telemetry = _Begun()
    feed, pool = Feed(records), WorkerPool(copying, 1, telemetry)
    ended: list[float] = []
    stop = pool.stop

    async def stop_measured() -> None:
        ended.append(_workers_cpu())
        await stop()

    pool.stop = stop_measured  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        audit = AuditTrail(Path(folder) / "audit", {"version": "bench"}, Signer(bytes(32)), telemetry, LINES)
        runner = Runner(feed, pool, audit, marks=OutputMarks(bytes(32)), telemetry=telemetry)
        await runner.run()
        own = time.process_time() - telemetry.begun[0]
        await audit.close()
    assert feed.committed == records
    return AgentCost(1e6 * own / records, 1e6 * (ended[0] - telemetry.begun[1]) / records)


def measure(records: int) -> AgentCost:
    """One run over so many records."""
    return asyncio.run(_measure(records))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one object for each round, for suite.py")
    options = parser.parse_args()
    for _ in range(options.rounds):
        before = reference_loop()
        cost = measure(options.records)
        line = f"agent {cost.agent_us:.1f} us, worker {cost.worker_us:.1f} us, {cost.total_us:.1f} us"
        if options.json:
            beside = (before + reference_loop()) / 2
            line = json.dumps({"total_us": cost.total_us, "worker_us": cost.worker_us, "reference": beside})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
