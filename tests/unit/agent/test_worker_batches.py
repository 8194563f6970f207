"""Batches of jobs in a worker process, and the distribution of jobs over the workers."""

import asyncio
from pathlib import Path

import pytest
from support.jobs import Grouped, plain
from support.worker_pools import PATIENCE_S, Results, pool, record, serving

from deid_agent.agent import worker
from deid_agent.agent.job import Completed, Processed, Refused
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.model.errors import Reason
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import RESTARTS


async def test_small_records_form_one_batch(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    payloads = [b"%d" % n for n in range(200)]
    async with serving(executor := pool(Grouped(log))):
        for offset, payload in enumerate(payloads):
            executor.submit(record(offset, payload), results)
        done = await results.wait(len(payloads))
    assert [offset for offset, _ in done] == list(range(200))
    assert [c.result.payload for _, c in done if isinstance(c.result, Processed)] == payloads
    groups = [line.split(b"|") for line in log.read_bytes().splitlines()]
    assert [payload for group in groups for payload in group] == payloads
    assert 8 <= max(map(len, groups)) <= 16


async def test_a_record_refused_in_a_batch_is_refused_alone(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log))):
        for offset, payload in enumerate([b"raise Okonkwo", b"fine"]):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(2))
    assert log.read_bytes() == b"raise Okonkwo|fine\n"
    assert done[0].result == Refused(Reason.INTERNAL, fault="KeyError")
    assert isinstance(done[1].result, Processed)


async def test_the_records_of_a_crashed_batch_are_retried_one_by_one(tmp_path: Path) -> None:
    """The other records at a worker that dies are processed at their first attempt; the cause becomes poison."""
    results, telemetry, log = Results(), Telemetry(), tmp_path / "log"
    payloads = [b"a", b"die", *(b"%d" % n for n in range(20))]
    async with serving(executor := pool(Grouped(log), 1, telemetry, attempts=2)):
        for offset, payload in enumerate(payloads):
            executor.submit(record(offset, payload), results)
        done = await results.wait(len(payloads))
    assert [offset for offset, _ in done] == list(range(len(payloads)))
    assert done[1][1] == Completed(Refused(Reason.POISON, stage="worker", fault="WorkerDied"), 2)
    assert all(isinstance(c.result, Processed) and c.attempts == 1 for offset, c in done if offset != 1)
    assert log.read_bytes().splitlines()[:4] == [b"a|die", b"a", b"die", b"die"]
    assert telemetry.registry.value(RESTARTS) == 3


async def test_a_record_that_kills_every_worker_it_meets_poisons_no_other(tmp_path: Path) -> None:
    """Repeatedly, at any position of a group, with only one attempt."""
    results, log = Results(), tmp_path / "log"
    payloads = [b"die" if n in {3, 17, 18} else b"%d" % n for n in range(40)]
    async with serving(executor := pool(Grouped(log), 2, attempts=1)):
        for offset, payload in enumerate(payloads):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(len(payloads)))
    assert len(results.done) == len(payloads)
    assert {n for n, c in done.items() if isinstance(c.result, Refused)} == {3, 17, 18}
    assert all(c.attempts == 1 for c in done.values())


async def test_a_record_that_killed_its_worker_runs_alone(tmp_path: Path) -> None:
    """No record that arrived in the meantime joins it."""
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), attempts=2)):
        executor.submit(record(0, b"die"), results)
        while executor.up:  # noqa: ASYNC110 - the pool sends no notification
            await asyncio.sleep(0)
        for offset, payload in enumerate([b"a", b"b"], 1):
            executor.submit(record(offset, payload), results)
        await results.wait(3)
    assert log.read_bytes().splitlines() == [b"die", b"die", b"a|b"]


async def test_the_records_of_a_failed_batch_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_BATCH_DEADLINE_S", 2 * PATIENCE_S)
    results = Results()
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(executor := pool(Grouped(tmp_path / "log"), deadline_s=2 * PATIENCE_S)),
    ):
        for offset, payload in enumerate([b"a", b"hang", b"b"]):
            executor.submit(record(offset, payload), results)
        while executor.waiting != 1:  # noqa: ASYNC110 - the pool sends no notification
            await asyncio.sleep(0)


async def test_a_transient_crash_of_a_batch_costs_no_record_an_attempt(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), attempts=1)):
        for offset, payload in enumerate([b"once", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(3)
    assert all(isinstance(c.result, Processed) and c.attempts == 1 for _, c in done)
    assert log.read_bytes().splitlines()[:3] == [b"once|b", b"once", b"b"]


async def test_a_record_that_hangs_delays_its_batch_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not until its deadline: all others are processed before that, and only it is poison."""
    monkeypatch.setattr(worker, "_BATCH_DEADLINE_S", 0.8)
    results, telemetry, log = Results(), Telemetry(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), 2, telemetry, deadline_s=5.0, attempts=1)):
        for offset, payload in enumerate([b"a", b"b", b"c", b"hang", *[b"beside"] * 20]):
            executor.submit(record(offset, payload), results)
        begin = asyncio.get_running_loop().time()
        await results.wait(23)
        assert asyncio.get_running_loop().time() - begin < 5.0
        assert {offset for offset, _ in results.done} == set(range(24)) - {3}
        done = dict(await results.wait(24))
    assert done[3] == Completed(Refused(Reason.POISON, stage="worker", fault="DeadlineExceeded"), 1)
    assert all(c.attempts == 1 for c in done.values())
    assert len(results.done) == 24
    assert any(b"|hang" in line or b"hang|" in line for line in log.read_bytes().splitlines())
    assert telemetry.registry.value(RESTARTS) == 2


async def test_a_single_worker_continues_after_a_batch_that_hangs(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), deadline_s=0.4, attempts=2)):
        for offset, payload in enumerate([b"a", b"hang", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(4)
    assert [offset for offset, _ in done] == [0, 1, 2, 3]
    assert [c.attempts for _, c in done] == [1, 2, 1, 1]
    assert log.read_bytes().splitlines()[:4] == [b"a|hang", b"a", b"hang", b"hang"]


async def test_a_slow_batch_is_processed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is always slow gets more time; the jobs of its batch do not go to other workers."""
    monkeypatch.setattr(worker, "_BATCH_DEADLINE_S", 0.1)
    results, telemetry, log = Results(), Telemetry(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), 2, telemetry)):
        for offset, payload in enumerate([b"slow", b"a", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(4)
    assert sorted(offset for offset, _ in done) == [0, 1, 2, 3]
    assert all(c.attempts == 1 for _, c in done)
    begun = [payload for line in log.read_bytes().splitlines() for payload in line.split(b"|")]
    assert sorted(begun) == [b"a", b"b", b"c", b"slow"]
    assert telemetry.registry.value(RESTARTS) == 0


class Loaded:
    """A worker with this load and room for ten more jobs."""

    def __init__(self, executor: WorkerPool, load: int) -> None:
        self._executor = executor
        self.load = load
        self._most = load + 10

    @property
    def room(self) -> int:
        return self._most - self.load

    def take_jobs(self, most: int) -> None:
        for _ in range(min(most, len(self._executor._queue))):
            self._executor._queue.popleft()
            self.load += 1


@pytest.mark.parametrize(
    ("loads", "records", "then"),
    [
        ([0, 0], 1, [1, 0]),
        ([1, 0], 1, [1, 1]),
        ([1, 3, 0], 1, [1, 3, 1]),
        ([10, 0, 0], 4, [10, 2, 2]),
        ([2, 0, 1], 7, [4, 3, 3]),
        ([12, 3], 40, [22, 13]),  # as much as there is room for
    ],
)
async def test_a_record_goes_to_the_least_loaded_worker(loads: list[int], records: int, then: list[int]) -> None:
    executor = pool(plain, len(loads))
    workers = [Loaded(executor, load) for load in loads]
    executor._workers = workers  # type: ignore[assignment]
    for offset in range(records):
        executor.submit(record(offset, b"x"), Results())
    executor._distribute()
    assert sorted(worker.load for worker in workers) == sorted(then)


async def test_no_record_joins_one_that_runs_alone(tmp_path: Path) -> None:
    """No record queues behind it, and it does not queue behind others at a busy worker."""
    results, log = Results(), tmp_path / "log"
    async with asyncio.timeout(PATIENCE_S), serving(executor := pool(Grouped(log), 2, attempts=1)):
        for offset in range(100):  # until both workers process batches
            executor.submit(record(offset, b"warm"), results)
        await results.wait(100)
        executor.submit(record(100, b"slow"), results)
        while b"slow" not in log.read_bytes():  # noqa: ASYNC110 - the worker sends no notification
            await asyncio.sleep(0)
        for offset, payload in enumerate([b"die", b"a", b"b"], 101):
            executor.submit(record(offset, payload), results)
        while executor.up == 2:  # noqa: ASYNC110 - the pool sends no notification
            await asyncio.sleep(0)
        for offset in range(104, 107):
            executor.submit(record(offset, b"late"), results)
        await results.wait(107)
    assert [line for line in log.read_bytes().splitlines() if b"die" in line] == [b"die|a", b"die"]


async def test_a_worker_that_runs_one_record_alone_accepts_no_other(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(Grouped(tmp_path / "log"), attempts=1)):
        for offset, payload in enumerate([b"once", b"hang"]):
            executor.submit(record(offset, payload), results)
        await results.wait(1)
        assert (executor._workers[0].load, executor._workers[0].room) == (1, 0)
