"""A stop and a revocation: records committed by the deadline, and records left to the next owner."""

import asyncio
from collections.abc import Sequence

from support.executors import ChoosyExecutor, EagerExecutor
from support.memory_transport import MemoryTransport
from support.runner_bench import A, B, RunnerHarness, virtual
from support.virtual import pass_time

from deid_agent.agent.ports import AssignmentListener, Partition
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model.errors import AssignmentLostError, TransientError
from deid_agent.telemetry.metrics import REBALANCES


@virtual
async def test_stop_and_revoke_cancel_a_commit_at_their_deadline() -> None:
    """A silent broker must not keep a container past its grace period, nor its group from rebalancing."""
    for how in ("stop", "revoke"):
        bench = RunnerHarness(RunnerSettings(drain_s=10, commit_timeout_s=1000), finite=False)
        bench.fill(1)
        bench.executor = EagerExecutor()
        bench.cluster.hold("commit")
        task = bench.start()
        await pass_time(1)
        if how == "revoke":
            async with asyncio.timeout(11):
                await bench.runner.revoked([A])
        bench.runner.request_stop()
        await pass_time(11)
        assert task.done()
        await task
        assert bench.offsets() == []


@virtual
async def test_stop_commits_the_records_finished_by_the_deadline() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=10), finite=False)
    bench.fill(6)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish()
    bench.runner.request_stop()
    await pass_time(3)
    assert not bench.health.ready().ok
    bench.executor.finish()
    bench.executor.finish(1)
    await pass_time(4)
    assert not task.done()
    await pass_time(3)
    assert task.done(), "two of ten seconds are reserved for leaving the group"
    await task
    assert bench.offsets() == [0, 1]
    assert bench.cluster.positions[A] == 2
    assert bench.cluster.members == []


@virtual
async def test_stop_does_not_wait_longer_than_the_work_needs() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=1000), finite=False)
    bench.fill(2)
    task = bench.start()
    await pass_time(1)
    bench.runner.request_stop()
    await pass_time(1)
    bench.executor.finish_all()
    await task
    assert asyncio.get_running_loop().time() < 5
    assert bench.offsets() == [0, 1]


@virtual
async def test_stop_works_while_the_broker_is_unavailable() -> None:
    for operation in ("start", "poll", "commit"):
        bench = RunnerHarness(RunnerSettings(drain_s=10, retry_first_s=500, retry_most_s=500), finite=False)
        bench.executor = EagerExecutor()
        bench.fill(1)
        bench.cluster.fail(operation, *[TransientError("away")] * 99)
        task = bench.start()
        await pass_time(1)
        bench.runner.request_stop()
        await pass_time(11)
        assert task.done()
        await task
        assert bench.offsets() == []


@virtual
async def test_a_drain_does_not_wait_for_a_partition_that_is_lost() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=10, retry_first_s=500, retry_most_s=500), finite=False)
    bench.executor = EagerExecutor()
    bench.fill(1)
    bench.cluster.fail("commit", *[AssignmentLostError("another owner")] * 99)
    task = bench.start()
    await pass_time(1)
    bench.runner.request_stop()
    await pass_time(1)
    assert task.done()
    await task
    assert bench.offsets() == []


@virtual
async def test_a_stop_at_the_end_of_a_finite_source_has_its_deadline() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=10))
    bench.fill(2)
    task = bench.start()
    await pass_time(1000)
    assert not task.done()
    bench.runner.request_stop()
    await pass_time(11)
    assert task.done()
    await task


@virtual
async def test_revoke_commits_the_finished_prefix_and_ignores_late_results() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=10, linger_s=1000), finite=False)
    bench.fill(5)
    bench.fill(5, stream=B)
    bench.executor = ChoosyExecutor(deaf=True)
    task = bench.start()
    await pass_time(1)
    other = MemoryTransport(bench.cluster, finite=False, join=False)

    class Silent:
        async def assigned(self, streams: Sequence[Partition]) -> None: ...
        async def revoked(self, streams: Sequence[Partition]) -> None: ...

    await other.start(Silent())
    for _ in range(3):
        bench.executor.finish()
    moving = asyncio.create_task(bench.cluster.assign({other: [A], bench.transport: [B]}))
    await pass_time(9)
    assert not moving.done()
    await pass_time(2)
    await moving
    assert bench.offsets() == [0, 1, 2]
    bench.executor.finish_all()
    await pass_time(1100)
    assert bench.offsets() == [0, 1, 2]
    assert bench.cluster.positions[A] == 3
    bench.executor.finish_all()
    await pass_time(1100)
    assert bench.offsets(B) == list(range(5))
    assert bench.telemetry.registry.value(REBALANCES) == 1
    bench.runner.request_stop()
    await task


@virtual
async def test_a_drain_returns_records_not_started_without_waiting() -> None:
    bench = RunnerHarness(RunnerSettings(drain_s=20), finite=False)
    bench.fill(10)
    bench.executor = ChoosyExecutor(begun=4)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(2)
    bench.runner.request_stop()
    await pass_time(0.5)
    assert len(bench.executor.pending) == 9, "short jobs are finished"
    await pass_time(0.6)
    assert len(bench.executor.pending) == 4
    bench.executor.finish_all()
    await pass_time(0.1)
    assert task.done()
    await task
    assert bench.offsets() == [0, 1, 2, 3, 4]
    assert bench.cluster.positions[A] == 5


class Deaf(MemoryTransport):
    """Ignores the first cancellation of its start, as a client library may."""

    async def start(self, listener: AssignmentListener) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await super().start(listener)


@virtual
async def test_a_transport_that_ignores_a_stop_does_not_keep_the_agent_running() -> None:
    """It would keep its partitions and never commit."""
    bench = RunnerHarness(RunnerSettings(drain_s=10), finite=False)
    bench.transport = Deaf(bench.cluster, finite=False)
    bench.fill(3)
    task = bench.start()
    await pass_time(1)
    bench.runner.request_stop()
    await pass_time(11)
    assert task.done()
    await task
    assert bench.cluster.members == []


@virtual
async def test_a_stop_does_not_wait_for_workers_that_start() -> None:
    """Each worker loads its models, which takes minutes with many workers on few cores."""

    class Slow(EagerExecutor):
        async def start(self) -> None:
            await asyncio.sleep(100)

    bench = RunnerHarness(RunnerSettings(drain_s=10), finite=False)
    bench.executor = Slow()
    task = bench.start()
    await pass_time(1)
    bench.runner.request_stop()
    await pass_time(1)
    assert task.done()
    await task


@virtual
async def test_a_processor_that_outlives_its_drain_does_not_disturb_its_successor() -> None:
    """With a dead broker a commit may take longer than the rebalance timeout; then the partition is assigned again."""
    bench = RunnerHarness(RunnerSettings(drain_s=2), finite=False)
    bench.fill(3)
    task = bench.start()
    await pass_time(1)
    runner = bench.runner
    old = runner._processors[A]
    await runner.assigned([A])
    successor = runner._processors[A]
    assert successor is not old
    successor.take(bench.cluster.logs[A][0])
    assert bench.executor.waiting == 1
    old.close()
    assert bench.executor.waiting == 1, "the record of the new processor"
    runner.request_stop()
    await pass_time(5)
    await task
