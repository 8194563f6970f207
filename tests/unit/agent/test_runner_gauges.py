"""The gauges that a running agent reports."""

import pytest
from support.runner_bench import A, RunnerHarness, virtual
from support.virtual import pass_time

from deid_agent.agent.job import Processed
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.telemetry.events import RecordFinished
from deid_agent.telemetry.metrics import COMMIT_SECONDS, INFLIGHT, LAG, PHI, QUEUE, READY, STAGE_SECONDS, WORKERS


@virtual
async def test_health_and_gauges_follow() -> None:
    bench = RunnerHarness(RunnerSettings(linger_s=0), finite=False)
    bench.fill(3)
    task = bench.start()
    await pass_time(2.5)
    registry = bench.telemetry.registry
    assert bench.health.ready().ok
    assert registry.value(LAG, "adt", "0") == 3
    assert registry.value(INFLIGHT, "adt", "0") == 3
    await pass_time(400)
    assert bench.health.ready().reasons == ("stalled adt/0",)
    bench.executor.finish(result=Processed(b"", found=(("DATE", 4),)))
    await pass_time(2)
    assert bench.health.ready().ok
    assert registry.value(PHI, "DATE") == 4
    bench.executor.finish_all()
    bench.runner.request_stop()
    await task


@virtual
async def test_waiting_is_timed_and_counted() -> None:
    bench = RunnerHarness(RunnerSettings(linger_s=0.5), finite=False)
    bench.fill(3)
    running = bench.start()
    await pass_time(2.1)
    registry = bench.telemetry.registry
    assert registry.value(QUEUE) == 3
    assert (registry.value(WORKERS, "up"), registry.value(WORKERS, "wanted"), registry.value(READY)) == (1, 1, 1)
    bench.executor.finish_all()
    bench.runner.request_stop()
    await running
    queued, finished = registry.histogram(STAGE_SECONDS, "queue"), registry.histogram(STAGE_SECONDS, "commit")
    assert queued.count == 3
    assert queued.sum == pytest.approx(3 * 2.1, abs=0.1)
    assert finished.count == 3
    assert registry.histogram(COMMIT_SECONDS).count == 1
    assert [e.outcome for e in bench.telemetry.events if isinstance(e, RecordFinished)] == ["published"] * 3


@virtual
async def test_a_partition_that_is_taken_away_leaves_no_gauge() -> None:
    bench = RunnerHarness(finite=False)
    bench.fill(3)
    running = bench.start()
    await pass_time(2)
    labelled = {labels for metric, labels, _ in bench.telemetry.registry.collect() if metric in (LAG, INFLIGHT)}
    assert ("adt", "0") in labelled
    await bench.runner.revoked([A])
    await pass_time(2)
    labelled = {labels for metric, labels, _ in bench.telemetry.registry.collect() if metric in (LAG, INFLIGHT)}
    assert labelled == {("adt", "1")}
    bench.runner.request_stop()
    await running
