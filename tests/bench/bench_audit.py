"""Entries per second into an audit trail, beside a plain file with the same bytes and syncs, and how fast it verifies.

    python tests/bench/bench_audit.py [folder on the disk to measure]

The two take turns within one run, because the sync time of a disk varies from minute to minute.
"""

import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.trails import SIGNER, TRUSTED, entry

from deid_agent.audit.examine import examine_trail
from deid_agent.audit.reading import verify_trail
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.telemetry.emit import Telemetry

BATCH, BATCHES, ROUNDS, PARTITIONS = 100, 60, 5, 12
REMARK = b'{"path":"PID-5[1].1","type":"PATIENT","method":"surrogate","source":"structure","count":1}'
REMARKS = b"[" + b",".join([REMARK] * 30) + b"]"


def plain(path: Path, batches: list[bytes]) -> float:
    """Seconds to append the batches to a file and sync after each."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begin = time.perf_counter()
    for data in batches:
        os.write(file, data)
        os.fsync(file)
    seconds = time.perf_counter() - begin
    os.close(file)
    return seconds


async def chained(log: AuditTrail, first: int) -> tuple[float, list[bytes]]:
    """Seconds to append batches to the trail one after another, and the bytes written."""
    out, seconds = [], 0.0
    for number in range(BATCHES):
        batch = [entry(first + number * BATCH + n, remarks=REMARKS, input_digest="a" * 32) for n in range(BATCH)]
        begin = time.perf_counter()
        lines = await log.append(batch)
        seconds += time.perf_counter() - begin
        out.append(b"\n".join(lines) + b"\n")
    return seconds, out


async def at_once(log: AuditTrail, first: int) -> float:
    """Seconds for the same number of entries from many partitions that do not wait for each other."""

    async def one(partition: int) -> None:
        for number in range(BATCHES // PARTITIONS):
            begin = first + number * BATCH
            await log.append([entry(begin + n, partition, remarks=REMARKS) for n in range(BATCH)])

    begin = time.perf_counter()
    await asyncio.gather(*(one(partition) for partition in range(PARTITIONS)))
    return time.perf_counter() - begin


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as where:
        folder, rates = Path(where) / "audit", []
        log = AuditTrail(folder, {"version": "bench"}, SIGNER, Telemetry(), TrailSettings())
        await log.append([entry(0)])
        for number in range(ROUNDS):
            chain, data = await chained(log, number * BATCH * BATCHES)
            rates.append((chain, plain(Path(where) / "plain", data), await at_once(log, 10**6 * (number + 1))))
        await log.close()
        chain, bare, many = (statistics.median(column) for column in zip(*rates, strict=True))
        size = sum(path.stat().st_size for path in folder.glob("*.jsonl")) / 1e6
        begin = time.perf_counter()
        report = verify_trail(folder, TRUSTED)
        whole = time.perf_counter() - begin
        last = max(folder.glob("*.jsonl"))
        begin = time.perf_counter()
        examine_trail(folder)
        opening = last.stat().st_size / 1e6 / (time.perf_counter() - begin)
    count = BATCH * BATCHES
    sys.stdout.write(
        f"{platform.python_version()} {platform.machine()}, batches of {BATCH}, {size * 1e6 / report.lines:.0f} bytes "
        f"an entry:\n  trail {count / chain:,.0f} entries/s, plain file {count / bare:,.0f}/s ({chain / bare:.2f} "
        f"times as long), {PARTITIONS} partitions at once {count / many:,.0f}/s\n  verify {size / whole:.0f} MB/s "
        f"({report.lines / whole:,.0f} lines/s, {len(report.faults)} faults), a start {opening:.0f} MB/s\n"
    )


asyncio.run(main())
