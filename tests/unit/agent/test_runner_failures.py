"""What fails outside and inside: tried again, refused, or the end of the agent."""

import asyncio

import pytest
from support.executors import EagerExecutor
from support.runner_bench import A, Bench, virtual
from support.virtual import pass_time

from deid_agent.agent.deadletter import LetterLimit
from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.ports import DeadLetter, Record
from deid_agent.errors import ConfigurationError, OversizeError, Reason, TransientError, UnsafeError
from deid_agent.telemetry.events import Retrying


@virtual
async def test_a_failing_audit_settles_nothing_and_stops() -> None:
    bench = Bench()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.audit.error = UnsafeError("the audit file cannot be written")
    with pytest.raises(UnsafeError, match="audit file"):
        await bench.start()
    assert bench.offsets() == []


@virtual
async def test_a_transient_failure_is_tried_again_with_growing_delays() -> None:
    bench = Bench(RunnerSettings(linger_s=0, retry_first_s=1, retry_most_s=4))
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("start", TransientError("away"))
    bench.cluster.fail("poll", TransientError("away"), TransientError("away"))
    bench.cluster.fail("settle", *[TransientError("away")] * 4)
    await bench.start()
    assert bench.offsets() == [0, 1, 2]
    assert len(bench.audit.entries) == 3
    told = [e for e in bench.telemetry.events if isinstance(e, Retrying)]
    assert {e.why for e in told} == {"away"}
    retries = [(e.operation, e.attempt, e.delay_s) for e in told]
    settles = [("settle", 1, 1), ("settle", 2, 2), ("settle", 3, 4), ("settle", 4, 4)]
    assert retries == [("start", 1, 1), ("poll", 1, 1), ("poll", 2, 2), *settles]
    # The first wait for a settle is cut short: the source has run dry, so draining begins.
    assert asyncio.get_running_loop().time() == pytest.approx(1 + 3 + 2 + 4 + 4, abs=0.5)


@virtual
async def test_an_unsafe_failure_stops_the_agent() -> None:
    bench = Bench()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("settle", UnsafeError("fenced"))
    with pytest.raises(UnsafeError, match="fenced"):
        await bench.start()
    assert bench.offsets() == []
    assert not bench.executor.running


@virtual
async def test_an_output_that_nobody_takes_is_refused_and_audited_so() -> None:
    bench = Bench()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("settle", OversizeError(1, "raise the limit"))
    await bench.start()
    settled = bench.cluster.settled[A]
    assert [item.outcome for item in settled] == ["published", "dead_lettered", "published"]
    assert settled[1].letter == DeadLetter(Reason.RESOURCE, "publish", "output")
    last = {entry.coordinates.offset: (entry.outcome, entry.reason) for entry in bench.audit.entries}
    assert last == {0: ("published", ""), 1: ("dead_lettered", "RESOURCE"), 2: ("published", "")}


@virtual
async def test_a_dead_letter_that_nobody_takes_stops_the_agent() -> None:
    bench = Bench()
    bench.fill(1, b"bad")
    bench.executor = EagerExecutor()
    bench.cluster.fail("settle", OversizeError(0, "raise the limit"))
    with pytest.raises(UnsafeError, match="raise the limit"):
        await bench.start()
    assert bench.offsets() == []


@virtual
async def test_too_many_refusals_stop_the_agent_before_they_settle() -> None:
    limit = LetterLimit(run=3, ratio=1.0, window=100)
    bench = Bench(RunnerSettings(letters=limit, batch_records=2, linger_s=0))
    bench.executor = EagerExecutor()
    bench.fill(10, b"bad")
    with pytest.raises(UnsafeError, match="too many records refused at adt/0/3"):
        await bench.start()
    assert bench.offsets() == [0, 1]


@virtual
async def test_a_settle_without_an_end_stops_the_agent() -> None:
    bench = Bench(RunnerSettings(settle_timeout_s=7))
    bench.fill(1)
    bench.executor = EagerExecutor()
    bench.cluster.hold("settle")
    with pytest.raises(UnsafeError, match="settle of adt/0 took too long"):
        await bench.start()


@virtual
async def test_a_poll_without_an_end_stops_the_agent_since_it_may_have_lost_records() -> None:
    bench = Bench(RunnerSettings(poll_timeout_s=7))
    bench.cluster.hold("poll")
    bench.fill(1)
    with pytest.raises(UnsafeError, match="poll of the transport"):
        await bench.start()


@virtual
async def test_an_unexpected_fault_stops_the_agent_without_its_text() -> None:
    bench = Bench(finite=False)
    bench.fill(1)
    task = bench.start()
    await pass_time(1)

    def burst(record: Record, done: object) -> None:
        raise KeyError("Okonkwo")

    bench.executor.submit = burst  # type: ignore[method-assign]
    bench.cluster.produce(A, b"x")
    with pytest.raises(UnsafeError, match=r"KeyError at test_runner_failures\.py:\d+") as caught:
        await task
    assert "Okonkwo" not in str(caught.value)
    assert caught.value.__cause__ is None


@virtual
async def test_a_factory_that_fails_stops_the_start() -> None:
    bench = Bench()

    async def start() -> None:
        raise ConfigurationError("bad rules")

    bench.executor.start = start  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="bad rules"):
        await bench.start()
    assert bench.cluster.members == []


@virtual
async def test_a_start_that_stays_away_is_given_up_with_what_was_wrong() -> None:
    bench = Bench(RunnerSettings(start_timeout_s=20))
    bench.cluster.fail("start", *[TransientError("no leader yet")] * 99)
    task = bench.start()
    await pass_time(21)
    with pytest.raises(UnsafeError, match="within 20 s: no leader yet"):
        await task
