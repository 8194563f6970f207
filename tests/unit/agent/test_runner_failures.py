"""Failures outside and inside the agent: retried, refused, or the end of the agent."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.executors import EagerExecutor
from support.memory_transport import MemoryTransport
from support.runner_bench import A, RunnerHarness, virtual
from support.virtual import pass_time

from deid_agent.agent.outcomes import DeadLetterLimit
from deid_agent.agent.ports import DeadLetter, FinishedRecord, Partition, Record
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model.errors import (
    ConfigurationError,
    OversizeError,
    Reason,
    RejectedError,
    TransientError,
    UnsafeError,
)
from deid_agent.telemetry.events import Retrying


@virtual
async def test_a_failing_audit_commits_nothing_and_stops_the_agent() -> None:
    bench = RunnerHarness()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.audit.error = UnsafeError("the audit file cannot be written")
    with pytest.raises(UnsafeError, match="audit file"):
        await bench.start()
    assert bench.offsets() == []


@virtual
async def test_a_transient_failure_is_retried_with_growing_delays() -> None:
    bench = RunnerHarness(RunnerSettings(linger_s=0, retry_first_s=1, retry_most_s=4))
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("start", TransientError("away"))
    bench.cluster.fail("poll", TransientError("away"), TransientError("away"))
    bench.cluster.fail("commit", *[TransientError("away")] * 4)
    await bench.start()
    assert bench.offsets() == [0, 1, 2]
    assert len(bench.audit.entries) == 3
    retrying = [e for e in bench.telemetry.events if isinstance(e, Retrying)]
    assert {e.why for e in retrying} == {"away"}
    retries = [(e.operation, e.attempt, e.delay_s) for e in retrying]
    commits = [("commit", 1, 1), ("commit", 2, 2), ("commit", 3, 4), ("commit", 4, 4)]
    assert retries == [("start", 1, 1), ("poll", 1, 1), ("poll", 2, 2), *commits]
    # The first wait of a commit is cut short: the source is exhausted, so the drain begins.
    assert asyncio.get_running_loop().time() == pytest.approx(1 + 3 + 2 + 4 + 4, abs=0.5)


@virtual
async def test_an_unsafe_failure_stops_the_agent() -> None:
    bench = RunnerHarness()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("commit", UnsafeError("fenced"))
    with pytest.raises(UnsafeError, match="fenced"):
        await bench.start()
    assert bench.offsets() == []
    assert not bench.executor.running


@virtual
async def test_a_record_with_a_rejected_output_is_refused_and_audited() -> None:
    bench = RunnerHarness()
    bench.fill(3)
    bench.executor = EagerExecutor()
    bench.cluster.fail("commit", OversizeError(1, "raise the limit"))
    await bench.start()
    finished = bench.cluster.finished[A]
    assert [item.outcome for item in finished] == ["published", "dead_lettered", "published"]
    assert finished[1].dead_letter == DeadLetter(Reason.RESOURCE, "publish", "output")
    last = {entry.coordinates.offset: (entry.outcome, entry.reason) for entry in bench.audit.entries}
    assert last == {0: ("published", ""), 1: ("dead_lettered", "RESOURCE"), 2: ("published", "")}


@virtual
async def test_a_head_of_the_trail_outlives_a_refusal_and_a_retry() -> None:
    """It leaves with the last record of a batch, once, whatever happens to that record."""
    bench = RunnerHarness()
    bench.fill(2)
    bench.executor = EagerExecutor()
    bench.audit.heads = [b"head"]
    bench.cluster.fail("commit", OversizeError(1, "raise the limit"), TransientError("away"))
    await bench.start()
    finished = bench.cluster.finished[A]
    assert [(item.outcome, item.audit, item.head) for item in finished] == [
        ("published", b"line of 0", b""),
        ("dead_lettered", b"line of 1", b"head"),
    ]


@virtual
async def test_a_rejected_dead_letter_stops_the_agent() -> None:
    bench = RunnerHarness()
    bench.fill(1, b"bad")
    bench.executor = EagerExecutor()
    bench.cluster.fail("commit", OversizeError(0, "raise the limit"))
    with pytest.raises(UnsafeError, match="raise the limit"):
        await bench.start()
    assert bench.offsets() == []


@virtual
async def test_too_many_refusals_stop_the_agent_before_their_commit() -> None:
    limit = DeadLetterLimit(run=3, ratio=1.0, window=100)
    bench = RunnerHarness(RunnerSettings(dead_letters=limit, batch_records=2, linger_s=0))
    bench.executor = EagerExecutor()
    bench.fill(10, b"bad")
    with pytest.raises(UnsafeError, match="too many records refused at adt/0/3"):
        await bench.start()
    assert bench.offsets() == [0, 1]


class Picky(MemoryTransport):
    """Its receiver rejects the output of a payload that begins with ``unwanted``."""

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        for item in batch:
            if item.output is not None and item.output.payload.startswith(b"clean unwanted"):
                raise RejectedError(item.record.coordinates.offset, "the receiver says no")
        await super().commit(stream, batch, position)


KINDS = {".": b"good", "x": b"bad", "o": b"unwanted"}


def committed_of(feed: str, limit: DeadLetterLimit, batch: int) -> tuple[str, str]:
    """The outcomes of a feed (``x`` refused by a worker, ``o`` by the receiver) as letters, and why it ended."""
    bench = RunnerHarness(RunnerSettings(dead_letters=limit, batch_records=batch, linger_s=0 if batch == 1 else 0.05))
    why = ""

    @virtual
    async def run() -> None:
        nonlocal why
        bench.transport = Picky(bench.cluster)
        bench.executor = EagerExecutor()
        for kind in feed:
            bench.fill(1, KINDS[kind])
        try:
            await bench.start()
        except UnsafeError as error:
            why = str(error)

    run()
    finished = bench.cluster.finished[A]
    assert [item.outcome == "dead_lettered" for item in finished] == [kind != "." for kind in feed[: len(finished)]]
    return feed[: len(finished)], why


@pytest.mark.parametrize("batch", [1, 7, 200])
@pytest.mark.parametrize(
    ("limit", "feed", "at"),
    [
        (DeadLetterLimit(run=20, ratio=1.0, window=1000), "o" * 400, 20),
        (DeadLetterLimit(run=20, ratio=1.0, window=1000), ".." + "ox" * 200, 22),
        (DeadLetterLimit(run=400, ratio=0.5, window=40), "o" * 400, 39),
        (DeadLetterLimit(run=400, ratio=0.9, window=40), "o" * 400, 39),
        (DeadLetterLimit(run=400, ratio=0.5, window=40), "o." * 60 + "oo" * 100, 121),
    ],
)
def test_refusals_of_the_receiver_and_of_workers_count_alike(
    limit: DeadLetterLimit, feed: str, at: int, batch: int
) -> None:
    finished, why = committed_of(feed, limit, batch)
    assert f"too many records refused at adt/0/{at} (" in why
    assert at - batch < len(finished) <= at
    workers, _ = committed_of(feed.replace("o", "x"), limit, 1)
    assert len(workers) == at, "the same limit"


@pytest.mark.parametrize("batch", [1, 7, 200])
@pytest.mark.parametrize("feed", ["ooo." * 100, "o.x." * 100, "." * 30 + "o" * 20, "o" * 20])
def test_refusals_within_the_limit_stop_nothing(feed: str, batch: int) -> None:
    assert committed_of(feed, DeadLetterLimit(run=20, ratio=0.75, window=40), batch) == (feed, "")


@settings(max_examples=100)
@given(st.text("..xo", max_size=60), st.integers(1, 6), st.sampled_from([0.3, 0.6, 1.0]), st.integers(1, 9))
def test_only_the_outcomes_of_records_stop_the_agent(feed: str, run: int, ratio: float, batch: int) -> None:
    """Compared with a count over the feed itself, which is independent of the refusing side and the moment."""
    finished, why = committed_of(feed, DeadLetterLimit(run, ratio, window=10), batch)
    refused = [kind != "." for kind in feed]
    over = (
        end
        for end in range(1, len(feed) + 1)
        if (end > run and all(refused[end - run - 1 : end]))
        or (end >= 10 and sum(refused[end - 10 : end]) > ratio * 10)
    )
    if (first := next(over, None)) is None:
        assert (finished, why) == (feed, "")
    else:
        assert "too many records refused" in why
        assert first - 1 - batch < len(finished) < first


@virtual
async def test_a_commit_that_hangs_stops_the_agent() -> None:
    bench = RunnerHarness(RunnerSettings(commit_timeout_s=7))
    bench.fill(1)
    bench.executor = EagerExecutor()
    bench.cluster.hold("commit")
    with pytest.raises(UnsafeError, match="commit of adt/0 took too long"):
        await bench.start()


@virtual
async def test_a_poll_that_hangs_stops_the_agent() -> None:
    bench = RunnerHarness(RunnerSettings(poll_timeout_s=7))
    bench.cluster.hold("poll")
    bench.fill(1)
    with pytest.raises(UnsafeError, match="poll of the transport"):
        await bench.start()


@virtual
async def test_an_unexpected_fault_stops_the_agent_and_its_text_is_hidden() -> None:
    bench = RunnerHarness(finite=False)
    bench.fill(1)
    task = bench.start()
    await pass_time(1)

    def burst(record: Record, done: object, project: str = "") -> None:
        raise KeyError("Okonkwo")

    bench.executor.submit = burst  # type: ignore[method-assign]
    bench.cluster.produce(A, b"x")
    with pytest.raises(UnsafeError, match=r"KeyError at test_runner_failures\.py:\d+") as caught:
        await task
    assert "Okonkwo" not in str(caught.value)
    assert caught.value.__cause__ is None


@virtual
async def test_a_factory_that_fails_stops_the_start() -> None:
    bench = RunnerHarness()

    async def start() -> None:
        raise ConfigurationError("bad rules")

    bench.executor.start = start  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="bad rules"):
        await bench.start()
    assert bench.cluster.members == []


@virtual
async def test_a_start_that_times_out_reports_the_last_error() -> None:
    bench = RunnerHarness(RunnerSettings(start_timeout_s=20))
    bench.cluster.fail("start", *[TransientError("no leader yet")] * 99)
    task = bench.start()
    await pass_time(21)
    with pytest.raises(UnsafeError, match="within 20 s: no leader yet"):
        await task
