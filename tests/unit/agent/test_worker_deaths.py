"""Real worker processes that die, hang or are slow: restart, retry, poison."""

import asyncio
import os
from pathlib import Path

import pytest
from support.jobs import DiesFirst, FailsLater, Logged, Once, plain
from support.worker_pools import PATIENCE_S, Results, pool, record, serving

from deid_agent.agent.job import Processed, Refused
from deid_agent.model.errors import Reason, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import RESTARTS


async def test_a_poison_record_is_refused_and_the_others_continue_in_order(tmp_path: Path) -> None:
    results, telemetry = Results(), Telemetry()
    log = tmp_path / "log"
    async with serving(executor := pool(Logged(log), 1, telemetry, attempts=2)):
        for offset, payload in enumerate([b"a", b"die", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(4)
    assert [offset for offset, _ in done] == [0, 1, 2, 3]
    poison = done[1][1]
    assert poison.result == Refused(Reason.POISON, stage="worker", fault="WorkerDied")
    assert poison.attempts == 2
    assert [isinstance(c.result, Processed) for _, c in done] == [True, False, True, True]
    assert log.read_bytes().split() == [b"a", b"die", b"die", b"b", b"c"]
    assert telemetry.registry.value(RESTARTS) == 2


async def test_a_record_that_hangs_is_killed_at_its_deadline_while_other_workers_continue() -> None:
    """This includes the jobs behind it in its worker's socket, and jobs with the same key."""
    results = Results()
    async with serving(executor := pool(plain, 2, deadline_s=3.0, attempts=1)):
        executor.submit(record(0, b"hang"), results)
        for offset in range(1, 30):
            executor.submit(record(offset, b"beside"), results)
        await results.wait(29)
        assert {offset for offset, _ in results.done} == set(range(1, 30))
        done = dict(await results.wait(30))
    assert done[0].result == Refused(Reason.POISON, stage="worker", fault="DeadlineExceeded")
    assert all(isinstance(done[offset].result, Processed) and done[offset].attempts == 1 for offset in range(1, 30))
    assert len(results.done) == 30


async def test_a_single_worker_continues_after_a_record_that_hangs() -> None:
    results = Results()
    async with serving(executor := pool(plain, deadline_s=0.3, attempts=2)):
        for offset, payload in enumerate([b"hang", b"x", b"hang", b"y"]):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(4))
    assert [isinstance(done[offset].result, Processed) for offset in range(4)] == [False, True, False, True]
    assert [done[offset].attempts for offset in range(4)] == [2, 1, 2, 1]


async def test_a_single_worker_continues_after_slow_records(tmp_path: Path) -> None:
    """Whether or not another job waits behind them; no job is processed twice."""
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Logged(log))):
        for offset, payload in enumerate([b"slow 0", b"slow 1", b"a"]):
            executor.submit(record(offset, payload), results)
        await results.wait(3)
        executor.submit(record(3, b"slow 2"), results)
        await results.wait(4)
        executor.submit(record(4, b"b"), results)
        done = await results.wait(5)
    assert sorted(offset for offset, _ in done) == [0, 1, 2, 3, 4]
    assert all(completed.attempts == 1 for _, completed in done)
    assert log.read_bytes().splitlines() == [b"slow 0", b"slow 1", b"a", b"slow 2", b"b"]


async def test_a_worker_that_dies_before_it_is_ready_is_restarted(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(DiesFirst(tmp_path))):
        executor.submit(record(0, b"x"), results)
        ((_, completed),) = await results.wait(1)
    assert isinstance(completed.result, Processed)
    assert (completed.result.payload, completed.attempts) == (b"X", 1)


async def test_a_transient_crash_costs_only_an_attempt(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(Once(tmp_path))):
        executor.submit(record(0, b"die once"), results)
        ((_, completed),) = await results.wait(1)
    assert completed.result == Processed(b"DIE ONCE")
    assert completed.attempts == 2


async def test_a_worker_that_cannot_restart_stops_the_agent(tmp_path: Path) -> None:
    async with serving(executor := pool(FailsLater(tmp_path))) as task:
        executor.submit(record(0, b"die"), Results())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({task})
        with pytest.raises(UnsafeError, match="the rules are gone"):
            task.result()


async def test_workers_are_gone_after_stop_even_when_they_hang() -> None:
    results = Results()
    executor = pool(plain)
    async with serving(executor):
        executor.submit(record(0, b"pid"), results)
        ((_, completed),) = await results.wait(1)
        executor.submit(record(1, b"hang"), results)
    assert isinstance(completed.result, Processed)
    with pytest.raises(ProcessLookupError):
        os.kill(int(completed.result.payload), 0)
    assert executor.up == 0
    await executor.stop()
