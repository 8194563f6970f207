"""One agent over the bus in memory: order, limits, batches and audit of committed records."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.executors import EagerExecutor
from support.marks import MARKS, id_header
from support.runner_bench import A, B, RunnerHarness, virtual
from support.virtual import pass_time, run_virtual

from deid_agent.agent.job import Processed, Refused, ResultCallback
from deid_agent.agent.outcomes import DEID_ID, OutputMarks
from deid_agent.agent.ports import Coordinates, FinishedRecord, Outcome, Record
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model.errors import ConfigurationError, Reason
from deid_agent.telemetry.metrics import DEAD_LETTERS, MESSAGES, PROJECT_MESSAGES


@virtual
async def test_the_agent_commits_a_finite_source_and_ends() -> None:
    bench = RunnerHarness()
    bench.executor = EagerExecutor()
    bench.fill(300)
    bench.fill(3, b"bad", B)
    await bench.start()
    assert bench.offsets() == list(range(300))
    assert [o.payload for o in bench.cluster.outputs(A)] == [b"clean good %d" % i for i in range(300)]
    assert bench.cluster.positions == {A: 300, B: 3}
    assert not bench.executor.running
    assert bench.telemetry.registry.value(MESSAGES, "adt", "published") == 300
    assert bench.telemetry.registry.value(MESSAGES, "adt", "dead_lettered") == 3
    assert bench.telemetry.registry.value(DEAD_LETTERS, "MALFORMED") == 3


@virtual
async def test_an_output_names_its_origin_once() -> None:
    bench = RunnerHarness()
    bench.cluster.produce(A, b"x", headers=((DEID_ID, b"forged"), ("x", b"00")))
    bench.executor = EagerExecutor()
    await bench.start()
    assert bench.cluster.outputs(A)[0].headers == (("x", b"00"), id_header(Coordinates("adt", 0, 0)))


class ProjectExecutor(EagerExecutor):
    """Notes the project of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.projects: list[str] = []

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        self.projects.append(project)
        super().submit(record, done, project)


@virtual
async def test_a_project_is_that_of_the_topic() -> None:
    marks = OutputMarks(b"p" * 32, project="registry")
    for projects, name, expected in (({"adt": marks}, "registry", marks), ({"other": marks}, "", MARKS)):
        bench = RunnerHarness(projects=projects)
        bench.executor = executor = ProjectExecutor()
        bench.fill(2)
        bench.fill(1, b"bad", B)
        await bench.start()
        assert executor.projects == [name] * 3
        assert [entry.project for entry in bench.audit.entries] == [name] * 3
        ids = {entry.coordinates: entry.id for entry in bench.audit.entries}
        assert ids == {at: expected.id_of(at) for at in ids}
        assert dict(bench.cluster.outputs(A)[0].headers)[DEID_ID].decode() == ids[Coordinates("adt", 0, 0)]
        counted = bench.telemetry.registry.value
        assert counted(PROJECT_MESSAGES, "registry", "published") == (2 if name else 0)
        assert counted(PROJECT_MESSAGES, "registry", "dead_lettered") == (1 if name else 0)


@virtual
async def test_nothing_is_committed_past_an_unfinished_record() -> None:
    bench = RunnerHarness()
    bench.fill(5)
    task = bench.start()
    await pass_time(1)
    for _ in range(4):
        bench.executor.finish(1)
    await pass_time(60)
    assert bench.offsets() == []
    bench.executor.finish()
    await task
    assert bench.offsets() == [0, 1, 2, 3, 4]


@virtual
async def test_the_audit_entry_is_written_before_the_commit() -> None:
    bench = RunnerHarness(RunnerSettings(batch_records=2, linger_s=0))
    bench.fill(5)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(
        result=Processed(b"y", None, remarks=b'[{"path":"PID-5"}]', input_digest="i", output_digest="o")
    )
    bench.executor.finish(result=Refused(Reason.LEAK, "OKONKWO^ADA", "guard", input_digest="j"))
    bench.executor.finish_all()
    await task
    assert bench.audit.committed_before == [0, 2, 4]
    assert [item.audit for item in bench.cluster.finished[A]] == [b"line of %d" % offset for offset in range(5)]
    first, second = bench.audit.entries[:2]
    assert (first.outcome, first.input_digest, first.output_digest) == (Outcome.PUBLISHED, "i", "o")
    assert first.remarks == b'[{"path":"PID-5"}]'
    assert (second.reason, second.where, second.stage, second.input_digest) == ("LEAK", "", "guard", "j")


@virtual
async def test_records_in_flight_are_bounded_and_polling_resumes() -> None:
    bench = RunnerHarness(RunnerSettings(poll_limit=4, max_in_flight=12))
    bench.fill(100)
    task = bench.start()
    most = 0
    while not task.done():
        await pass_time(1)
        most = max(most, len(bench.executor.pending))
        bench.executor.finish_all()
    await task
    assert 8 < most <= 12
    assert bench.offsets() == list(range(100))


@virtual
async def test_bytes_in_flight_are_bounded_and_one_large_record_still_passes() -> None:
    bench = RunnerHarness(RunnerSettings(poll_limit=1, max_in_flight=50, max_in_flight_bytes=1000))
    for _ in range(6):
        bench.cluster.produce(A, b"x" * 700)
    bench.cluster.produce(A, b"x" * 5000)
    task = bench.start()
    seen: list[int] = []
    while not task.done():
        await pass_time(1)
        seen.append(len(bench.executor.pending))
        bench.executor.finish_all()
    await task
    assert max(seen) == 2
    assert len(bench.offsets()) == 7


@virtual
async def test_a_partition_at_its_bound_does_not_delay_the_other() -> None:
    bench = RunnerHarness(RunnerSettings(poll_limit=2, max_in_flight=4))
    bench.fill(20)
    bench.fill(20, stream=B)
    task = bench.start()
    for _ in range(60):
        await pass_time(1)
        for index in reversed(range(len(bench.executor.pending))):
            if bench.executor.pending[index][0].coordinates.stream == B:
                bench.executor.finish(index)
    assert bench.offsets(B) == list(range(20))
    assert bench.offsets(A) == []
    assert 0 < len(bench.executor.pending) <= 4
    while not task.done():
        bench.executor.finish_all()
        await pass_time(1)


@virtual
async def test_one_batch_at_a_time_and_never_larger_than_the_limit() -> None:
    bench = RunnerHarness(RunnerSettings(batch_records=3, linger_s=0))
    bench.fill(8)
    bench.cluster.hold("commit")
    task = bench.start()
    await pass_time(1)
    bench.executor.finish_all()
    await pass_time(10)
    assert [len(bench.audit.entries)] == [3]
    bench.cluster.release("commit")
    await task
    assert bench.audit.committed_before == [0, 3, 6]


@virtual
async def test_single_records_wait_so_that_batches_form() -> None:
    bench = RunnerHarness(RunnerSettings(linger_s=5), finite=False)
    bench.fill(10)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish()
    await pass_time(0.1)
    assert bench.offsets() == [0]
    for _ in range(8):
        bench.executor.finish()
        await pass_time(0.1)
    assert bench.offsets() == [0]
    await pass_time(5)
    assert bench.offsets() == list(range(9))
    bench.executor.finish()
    bench.runner.request_stop()
    await task


@virtual
async def test_a_record_of_an_unassigned_partition_is_ignored() -> None:
    bench = RunnerHarness()
    bench.executor = EagerExecutor()
    bench.fill(2)
    bench.fill(2, stream=B)
    poll = bench.transport.poll

    async def strange(limit: int) -> Sequence[Record]:
        found = await poll(limit)
        return [*found, *(replace(r, coordinates=replace(r.coordinates, topic="other")) for r in found)]

    bench.transport.poll = strange  # type: ignore[method-assign]
    await bench.start()
    assert bench.offsets() == [0, 1]


def test_invalid_settings_are_refused() -> None:
    for bad in (
        {"poll_limit": 0},
        {"max_in_flight": 100},
        {"linger_s": -1},
        {"retry_first_s": 0},
        {"max_in_flight_bytes": 0},
    ):
        with pytest.raises(ConfigurationError):
            RunnerSettings(**bad)  # type: ignore[arg-type]


def test_repr_holds_no_payload() -> None:
    async def check() -> None:
        bench = RunnerHarness()
        bench.cluster.produce(A, b"Okonkwo")
        bench.executor = EagerExecutor()
        await bench.start()
        items: list[FinishedRecord] = bench.cluster.finished[A]
        assert "Okonkwo" not in repr((bench.runner, items, bench.audit.entries, bench.cluster.dead_letters(A)))

    run_virtual(check)
