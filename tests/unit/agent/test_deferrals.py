"""Records that an external system holds up are tried again, and never become dead letters."""

from support.executors import ChoosyExecutor
from support.jobs import plain
from support.recording import Recording
from support.runner_bench import A, B, RunnerHarness, virtual
from support.virtual import pass_time

from deid_agent.agent.job import Deferred, Job, Processed, attempt
from deid_agent.agent.ports import Outcome
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model import TransientError
from deid_agent.telemetry import Retrying

AWAY = Deferred("the schema registry answers 503")


def retries(telemetry: Recording) -> list[Retrying]:
    return [event for event in telemetry.events if isinstance(event, Retrying)]


@virtual
async def test_deferred_records_are_published_in_order_once_the_system_is_back() -> None:
    bench = RunnerHarness(RunnerSettings(retry_first_s=1, retry_most_s=8), finite=True)
    bench.fill(3)
    task = bench.start()
    await pass_time(0.5)
    for _ in range(6):
        for _ in range(len(bench.executor.pending)):
            bench.executor.finish(result=AWAY)
        await pass_time(8)
    assert bench.offsets() == [] and not task.done()
    assert [event.delay_s for event in retries(bench.telemetry)] == [1, 2, 4, 8, 8, 8]
    assert "503" in retries(bench.telemetry)[0].why

    bench.executor.finish_all()
    await task
    assert [item.outcome for item in bench.cluster.finished[A]] == [Outcome.PUBLISHED] * 3
    assert bench.offsets() == [0, 1, 2]
    assert len(bench.audit.entries) == 3


@virtual
async def test_other_records_wait_for_a_deferred_one_and_other_partitions_do_not() -> None:
    bench = RunnerHarness(RunnerSettings(retry_first_s=5), finite=True)
    bench.fill(2)
    bench.fill(1, stream=B)
    task = bench.start()
    await pass_time(0.5)
    bench.executor.finish(result=AWAY)
    bench.executor.finish_all()
    await pass_time(2)
    assert bench.offsets() == [] and bench.offsets(B) == [0]
    await pass_time(4)
    bench.executor.finish_all()
    await task
    assert bench.offsets() == [0, 1]


@virtual
async def test_a_stop_leaves_deferred_records_to_the_next_owner() -> None:
    for finished_late in (False, True):
        bench = RunnerHarness(RunnerSettings(drain_s=10, retry_first_s=500, retry_most_s=500), finite=False)
        bench.executor = ChoosyExecutor(begun=9)
        bench.fill(3)
        task = bench.start()
        await pass_time(0.5)
        bench.executor.finish()
        if not finished_late:
            bench.executor.finish(result=AWAY)
        await pass_time(0.5)
        bench.runner.request_stop()
        await pass_time(2)
        if finished_late:
            bench.executor.finish(result=AWAY)
        bench.executor.finish_all()
        await pass_time(4)
        assert task.done(), "it does not wait for the retry"
        await task
        assert bench.offsets() == [0] and bench.cluster.positions[A] == 1


@virtual
async def test_a_revoked_partition_forgets_its_deferred_records() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=4, retry_first_s=20), finite=False)
    bench.fill(1)
    task = bench.start()
    await pass_time(0.5)
    bench.executor.finish(result=AWAY)
    await bench.runner.revoked([A])
    await pass_time(60)
    assert bench.executor.pending == [] and bench.offsets() == []
    bench.runner.request_stop()
    await pass_time(5)
    await task


def test_a_transient_error_of_a_job_defers_it() -> None:
    def away(job: Job) -> Processed:
        raise TransientError("the schema registry answers 503")

    assert attempt(away, Job(b"x")) == AWAY
    assert isinstance(attempt(plain(), Job(b"x")), Processed)
