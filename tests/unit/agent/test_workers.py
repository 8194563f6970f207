"""Worker processes, real ones: order, death, deadline, poison, start, end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.jobs import DiesFirst, FailsLater, Grouped, Logged, Once, bad_rules, broken, exits, plain

from deid_agent.agent import lane
from deid_agent.agent.job import Completed, Executor, Factory, Processed, Refused, Suppressed
from deid_agent.agent.lane import LaneSettings
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.agent.workers import InlineExecutor, WorkerPool
from deid_agent.errors import ConfigurationError, Reason, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import RESTARTS

PATIENCE_S = 60.0


def record(offset: int, payload: bytes, key: bytes | None = b"k", partition: int = 0) -> Record:
    return Record(Coordinates("adt", partition, offset), payload, key, (("h", b"\xff"),))


class Results:
    """Collects what is done, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[int, Completed]] = []
        self._more = asyncio.Event()

    def __call__(self, record: Record, completed: Completed) -> None:
        self.done.append((record.coordinates.offset, completed))
        self._more.set()

    async def wait(self, count: int) -> list[tuple[int, Completed]]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.done) < count:
                self._more.clear()
                await self._more.wait()
        return self.done


@asynccontextmanager
async def serving(executor: Executor) -> AsyncIterator[asyncio.Task[None]]:
    await executor.start()
    task = asyncio.create_task(executor.serve())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        await executor.stop()


def pool(factory: Factory, workers: int = 1, telemetry: Telemetry | None = None, **settings: float) -> WorkerPool:
    chosen = LaneSettings(settings.get("deadline_s", 30.0), int(settings.get("attempts", 3)), PATIENCE_S)
    return WorkerPool(factory, workers, telemetry or Telemetry(), chosen)


Make = Callable[[Factory], Executor]


@pytest.fixture(params=["pool", "inline"])
def make(request: pytest.FixtureRequest) -> Make:
    return pool if request.param == "pool" else InlineExecutor


async def test_a_result_comes_back_whole(make: Make) -> None:
    results = Results()
    async with serving(executor := make(plain)):
        assert executor.up == executor.size == 1
        executor.submit(record(7, b"ada\x00\xff"), results)
        ((offset, completed),) = await results.wait(1)
    assert offset == 7
    assert completed.result == Processed(
        b"ADA\x00\xff",
        b"k",
        (("h", b"\xff"),),
        b'[{"path": "PID-5"}]',
        "in",
        "out",
        (("PATIENT", 2),),
        (("parse", 0.5),),
    )
    assert completed.attempts == 1
    assert 0 < completed.seconds < PATIENCE_S


async def test_every_kind_of_result(make: Make) -> None:
    results = Results()
    payloads = [b"refuse", b"leak", b"leave", b"raise Okonkwo", b"nothing", b""]
    async with serving(executor := make(plain)):
        for offset, payload in enumerate(payloads):
            executor.submit(record(offset, payload, None), results)
        done = [completed.result for _, completed in await results.wait(len(payloads))]
    assert done[:5] == [
        Refused(Reason.MALFORMED, "PID-3"),
        Refused(Reason.LEAK, "OBX-5", "guard", input_digest="d1"),
        Suppressed("d2"),
        Refused(Reason.INTERNAL, fault="KeyError"),
        Refused(Reason.INTERNAL, fault="NoResult"),
    ]
    assert isinstance(done[5], Processed)
    assert (done[5].payload, done[5].key) == (b"", None)


async def test_bad_rules_stop_the_start_with_one_line(make: Make) -> None:
    executor = make(bad_rules)
    with pytest.raises(ConfigurationError, match=r"^rules/patterns/x\.toml: the pattern does not compile; mend it$"):
        await executor.start()
    await executor.stop()


async def test_an_unexpected_fault_of_the_start_keeps_its_text_to_itself(make: Make) -> None:
    executor = make(broken)
    with pytest.raises(ConfigurationError, match=r"KeyError at jobs\.py:\d+$") as caught:
        await executor.start()
    assert "secret" not in str(caught.value)
    await executor.stop()


async def test_a_worker_that_dies_at_the_start_stops_it() -> None:
    executor = pool(exits)
    with pytest.raises(UnsafeError, match="did not start"):
        await executor.start()


async def test_forgotten_records_are_not_done(make: Make) -> None:
    results, first = Results(), asyncio.Event()
    executor = make(plain)
    async with serving(executor):
        for offset in range(20):
            executor.submit(record(offset, b"x", partition=offset % 2), results)
        executor.forget(record(0, b"", partition=0).coordinates.stream)
        executor.submit(record(100, b"last", partition=1), lambda *_: first.set())
        async with asyncio.timeout(PATIENCE_S):
            await first.wait()
    odd = [offset for offset, _ in results.done if offset % 2]
    assert odd == list(range(1, 20, 2))
    assert len([offset for offset, _ in results.done if offset % 2 == 0]) <= 2


async def test_what_has_not_begun_can_be_recalled(make: Make) -> None:
    results = Results()
    executor = make(plain)
    async with serving(executor):
        for offset in range(20):
            executor.submit(record(offset, b"x", partition=offset % 2), results)
        assert executor.recall(record(0, b"", partition=1).coordinates.stream) == 1
        assert executor.recall(record(0, b"", partition=1).coordinates.stream) is None
        await results.wait(10)
    assert sorted(offset for offset, _ in results.done) == list(range(0, 20, 2))


async def test_workers_share_what_there_is() -> None:
    results = Results()
    async with serving(executor := pool(plain, 2)):
        for offset in range(60):
            executor.submit(record(offset, b"pid"), results)
        done = await results.wait(60)
    assert len({c.result.payload for _, c in done if isinstance(c.result, Processed)}) == 2
    assert sorted(offset for offset, _ in done) == list(range(60))


async def test_a_poison_record_is_refused_and_the_rest_goes_on_in_order(tmp_path: Path) -> None:
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


async def test_a_record_that_hangs_is_killed_at_its_deadline_while_other_lanes_go_on() -> None:
    """Also what stood behind it in its worker's socket, and whatever shares its key."""
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


async def test_a_lone_worker_goes_on_after_a_record_that_hangs() -> None:
    results = Results()
    async with serving(executor := pool(plain, deadline_s=0.3, attempts=2)):
        for offset, payload in enumerate([b"hang", b"x", b"hang", b"y"]):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(4))
    assert [isinstance(done[offset].result, Processed) for offset in range(4)] == [False, True, False, True]
    assert [done[offset].attempts for offset in range(4)] == [2, 1, 2, 1]


async def test_a_lone_worker_goes_on_after_records_that_are_slow(tmp_path: Path) -> None:
    """Whether or not another stands behind them; nothing is done twice."""
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


async def test_small_records_are_done_together(tmp_path: Path) -> None:
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


async def test_what_is_refused_in_a_group_is_refused_alone(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log))):
        for offset, payload in enumerate([b"raise Okonkwo", b"fine"]):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(2))
    assert log.read_bytes() == b"raise Okonkwo|fine\n"
    assert done[0].result == Refused(Reason.INTERNAL, fault="KeyError")
    assert isinstance(done[1].result, Processed)


async def test_nobody_is_blamed_for_a_group_and_each_goes_on_alone(tmp_path: Path) -> None:
    """Whoever stands beside a record that kills its worker is done at its first attempt; that one ends as poison."""
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
    """Again and again, at any place of a group, with one attempt only."""
    results, log = Results(), tmp_path / "log"
    payloads = [b"die" if n in {3, 17, 18} else b"%d" % n for n in range(40)]
    async with serving(executor := pool(Grouped(log), 2, attempts=1)):
        for offset, payload in enumerate(payloads):
            executor.submit(record(offset, payload), results)
        done = dict(await results.wait(len(payloads)))
    assert len(results.done) == len(payloads)
    assert {n for n, c in done.items() if isinstance(c.result, Refused)} == {3, 17, 18}
    assert all(c.attempts == 1 for c in done.values())


async def test_one_that_is_to_blame_goes_alone_too(tmp_path: Path) -> None:
    """Nothing that came meanwhile is put beside it."""
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), attempts=2)):
        executor.submit(record(0, b"die"), results)
        while executor.up:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0)
        for offset, payload in enumerate([b"a", b"b"], 1):
            executor.submit(record(offset, payload), results)
        await results.wait(3)
    assert log.read_bytes().splitlines() == [b"die", b"die", b"a|b"]


async def test_those_of_a_group_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "_TOGETHER_S", 2 * PATIENCE_S)
    results = Results()
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(executor := pool(Grouped(tmp_path / "log"), deadline_s=2 * PATIENCE_S)),
    ):
        for offset, payload in enumerate([b"a", b"hang", b"b"]):
            executor.submit(record(offset, payload), results)
        while executor.waiting != 1:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0)


async def test_a_crash_of_a_group_that_goes_away_costs_nobody_an_attempt(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), attempts=1)):
        for offset, payload in enumerate([b"once", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(3)
    assert all(isinstance(c.result, Processed) and c.attempts == 1 for _, c in done)
    assert log.read_bytes().splitlines()[:3] == [b"once|b", b"once", b"b"]


async def test_a_record_that_hangs_holds_up_its_group_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not until its deadline: all others are done before that, and it alone is poison."""
    monkeypatch.setattr(lane, "_TOGETHER_S", 0.8)
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


async def test_a_lone_worker_goes_on_after_a_group_that_hangs(tmp_path: Path) -> None:
    results, log = Results(), tmp_path / "log"
    async with serving(executor := pool(Grouped(log), deadline_s=0.4, attempts=2)):
        for offset, payload in enumerate([b"a", b"hang", b"b", b"c"]):
            executor.submit(record(offset, payload), results)
        done = await results.wait(4)
    assert [offset for offset, _ in done] == [0, 1, 2, 3]
    assert [c.attempts for _, c in done] == [1, 2, 1, 1]
    assert log.read_bytes().splitlines()[:4] == [b"a|hang", b"a", b"hang", b"hang"]


async def test_a_group_that_is_slow_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is slow throughout has its time; what is in the group does not go elsewhere."""
    monkeypatch.setattr(lane, "_TOGETHER_S", 0.1)
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
    """A lane that has so many jobs and takes ten more."""

    def __init__(self, executor: WorkerPool, load: int) -> None:
        self._executor = executor
        self.load = load
        self._most = load + 10

    @property
    def room(self) -> int:
        return self._most - self.load

    def pull(self, most: int) -> None:
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
async def test_a_record_goes_to_the_worker_that_has_least(loads: list[int], records: int, then: list[int]) -> None:
    executor = pool(plain, len(loads))
    lanes = [Loaded(executor, load) for load in loads]
    executor._lanes = lanes  # type: ignore[assignment]
    for offset in range(records):
        executor.submit(record(offset, b"x"), Results())
    executor._deal()
    assert sorted(lane.load for lane in lanes) == sorted(then)


async def test_nothing_is_put_beside_one_that_goes_alone(tmp_path: Path) -> None:
    """Neither behind it at its worker, nor is it put behind others at a worker that is busy."""
    results, log = Results(), tmp_path / "log"
    async with asyncio.timeout(PATIENCE_S), serving(executor := pool(Grouped(log), 2, attempts=1)):
        for offset in range(100):  # until both lanes take several
            executor.submit(record(offset, b"warm"), results)
        await results.wait(100)
        executor.submit(record(100, b"slow"), results)
        while b"slow" not in log.read_bytes():  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0)
        for offset, payload in enumerate([b"die", b"a", b"b"], 101):
            executor.submit(record(offset, payload), results)
        while executor.up == 2:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0)
        for offset in range(104, 107):
            executor.submit(record(offset, b"late"), results)
        await results.wait(107)
    assert [line for line in log.read_bytes().splitlines() if b"die" in line] == [b"die|a", b"die"]


async def test_a_worker_with_one_that_goes_alone_has_no_room(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(Grouped(tmp_path / "log"), attempts=1)):
        for offset, payload in enumerate([b"once", b"hang"]):
            executor.submit(record(offset, payload), results)
        await results.wait(1)
        assert (executor._lanes[0].load, executor._lanes[0].room) == (1, 0)


async def test_a_worker_that_dies_before_it_is_ready_is_started_again(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(DiesFirst(tmp_path))):
        executor.submit(record(0, b"x"), results)
        ((_, completed),) = await results.wait(1)
    assert completed.result == Processed(
        b"X", b"k", (("h", b"\xff"),), b'[{"path": "PID-5"}]', "in", "out", (("PATIENT", 2),), (("parse", 0.5),)
    )


async def test_a_crash_that_goes_away_costs_an_attempt_and_nothing_else(tmp_path: Path) -> None:
    results = Results()
    async with serving(executor := pool(Once(tmp_path))):
        executor.submit(record(0, b"die once"), results)
        ((_, completed),) = await results.wait(1)
    assert completed.result == Processed(b"DIE ONCE")
    assert completed.attempts == 2


async def test_a_worker_that_cannot_come_back_stops_the_agent(tmp_path: Path) -> None:
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


async def test_workers_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    results = Results()
    async with serving(executor := pool(plain)):
        executor.submit(record(0, b"print Okonkwo"), results)
        await results.wait(1)
    assert "Okonkwo" not in "".join(capfd.readouterr())


async def test_the_loop_stays_free_while_workers_work() -> None:
    results, turns = Results(), 0
    async with serving(executor := pool(plain, deadline_s=0.5, attempts=1)):
        executor.submit(record(0, b"hang"), results)
        while not results.done:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 1000


async def test_a_big_payload_goes_both_ways() -> None:
    results, payload = Results(), b"x" * 3_000_000
    async with serving(executor := pool(plain)):
        for offset in range(3):
            executor.submit(record(offset, payload), results)
        done = await results.wait(3)
    assert all(isinstance(c.result, Processed) and c.result.payload == payload.upper() for _, c in done)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        LaneSettings(deadline_s=0)
    with pytest.raises(ConfigurationError):
        pool(plain, 0)
