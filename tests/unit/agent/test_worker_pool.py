"""Real worker processes: start, results, order, end."""

import asyncio
import json
from collections.abc import Callable

import pytest
from support.jobs import bad_rules, broken, exits, plain, thread_variables
from support.worker_pools import PATIENCE_S, Results, pool, record, serving

from deid_agent.agent.job import Executor, Factory, Processed, Refused, Suppressed, WorkerSettings
from deid_agent.agent.worker_pool import InlineExecutor
from deid_agent.model.errors import ConfigurationError, Reason, UnsafeError

Make = Callable[[Factory], Executor]


@pytest.fixture(params=["pool", "inline"])
def make(request: pytest.FixtureRequest) -> Make:
    return pool if request.param == "pool" else InlineExecutor


async def test_a_result_is_returned_complete(make: Make) -> None:
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
        (("hl7v2", "OBX-5", "code", 3),),
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


async def test_an_unexpected_fault_of_the_start_hides_its_text(make: Make) -> None:
    executor = make(broken)
    with pytest.raises(ConfigurationError, match=r"KeyError at jobs\.py:\d+$") as caught:
        await executor.start()
    assert "secret" not in str(caught.value)
    await executor.stop()


async def test_a_worker_that_dies_at_the_start_stops_it() -> None:
    executor = pool(exits)
    with pytest.raises(UnsafeError, match="did not start"):
        await executor.start()


async def test_forgotten_records_are_not_processed(make: Make) -> None:
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


async def test_records_not_started_can_be_recalled(make: Make) -> None:
    results = Results()
    executor = make(plain)
    async with serving(executor):
        for offset in range(20):
            executor.submit(record(offset, b"x", partition=offset % 2), results)
        assert executor.recall(record(0, b"", partition=1).coordinates.stream) == 1
        assert executor.recall(record(0, b"", partition=1).coordinates.stream) is None
        await results.wait(10)
    assert sorted(offset for offset, _ in results.done) == list(range(0, 20, 2))


async def test_workers_share_the_load() -> None:
    results = Results()
    async with serving(executor := pool(plain, 2)):
        for offset in range(60):
            executor.submit(record(offset, b"pid"), results)
        done = await results.wait(60)
    assert len({c.result.payload for _, c in done if isinstance(c.result, Processed)}) == 2
    assert sorted(offset for offset, _ in done) == list(range(60))


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


async def test_a_large_payload_passes_in_both_directions() -> None:
    results, payload = Results(), b"x" * 3_000_000
    async with serving(executor := pool(plain)):
        for offset in range(3):
            executor.submit(record(offset, payload), results)
        done = await results.wait(3)
    assert all(isinstance(c.result, Processed) and c.result.payload == payload.upper() for _, c in done)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        WorkerSettings(deadline_s=0)
    with pytest.raises(ConfigurationError):
        pool(plain, 0)


async def test_a_worker_has_one_blas_thread_unless_the_environment_sets_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several threads cost up to three times the CPU for each message and save no time."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    for given, expected in ({}, ["1", "1", "1"]), ({names[2]: "3"}, [None, None, "3"]):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        results = Results()
        executor = pool(thread_variables)
        async with serving(executor):
            executor.submit(record(0, b""), results)
            ((_, completed),) = await results.wait(1)
        assert isinstance(completed.result, Processed)
        assert json.loads(completed.result.payload) == expected
