"""One agent over the bus in memory, with a clock that jumps."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from support.executors import ChoosyExecutor, EagerExecutor
from support.virtual import pass_time, run_virtual

from deid_agent.agent.audit import Entry, NoAudit
from deid_agent.agent.deadletter import LetterLimit
from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.health import Health
from deid_agent.agent.job import Processed, Refused
from deid_agent.agent.outcomes import DEID_ID
from deid_agent.agent.ports import DeadLetter, Outcome, Partition, Record, Settled
from deid_agent.agent.runner import Runner
from deid_agent.errors import (
    ConfigurationError,
    DeidError,
    LostError,
    OversizeError,
    Reason,
    TransientError,
    UnsafeError,
)
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import Event, RecordSettled, Retrying
from deid_agent.telemetry.metrics import (
    INFLIGHT,
    LAG,
    LETTERS,
    MESSAGES,
    PHI,
    QUEUE,
    READY,
    REBALANCES,
    SETTLE_SECONDS,
    STAGE_SECONDS,
    WORKERS,
)
from deid_agent.transport.memory import Cluster, MemoryTransport

A, B = Partition("adt", 0), Partition("adt", 1)


class ListAudit:
    """Keeps entries, and what had settled when each batch came."""

    def __init__(self, cluster: Cluster) -> None:
        self.entries: list[Entry] = []
        self.settled_before: list[int] = []
        self.error: DeidError | None = None
        self._cluster = cluster

    async def append(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        if self.error is not None:
            raise self.error
        self.settled_before.append(len(self._cluster.settled[A]))
        self.entries += entries
        return [b"line of %d" % entry.coordinates.offset for entry in entries]

    async def close(self) -> None:
        pass


class Recording(Telemetry):
    """Keeps the events too."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)
        super().emit(event)


@dataclass
class Bench:
    """One agent and its world."""

    settings: RunnerSettings = field(default_factory=RunnerSettings)
    finite: bool = True

    def __post_init__(self) -> None:
        self.cluster = Cluster(A, B)
        self.transport = MemoryTransport(self.cluster, finite=self.finite)
        self.executor: ChoosyExecutor = ChoosyExecutor()
        self.audit = ListAudit(self.cluster)
        self.telemetry = Recording()
        self.health = Health(lambda: asyncio.get_running_loop().time())

    def fill(self, count: int, payload: bytes = b"good", stream: Partition = A) -> None:
        for number in range(count):
            self.cluster.produce(stream, b"%s %d" % (payload, number), key=b"%d" % (number % 3))

    def start(self) -> asyncio.Task[None]:
        self.runner = Runner(
            self.transport, self.executor, self.audit, self.settings, telemetry=self.telemetry, health=self.health
        )
        return asyncio.create_task(self.runner.run())

    def offsets(self, stream: Partition = A) -> list[int]:
        return [item.record.coordinates.offset for item in self.cluster.settled[stream]]


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """The test, run on a loop whose clock jumps."""

    async def body() -> None:
        await test()

    def run() -> None:
        run_virtual(body)

    run.__name__ = getattr(test, "__name__", "test")
    return run


@virtual
async def test_a_finite_source_is_settled_and_the_agent_ends() -> None:
    bench = Bench()
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
    assert bench.telemetry.registry.value(LETTERS, "MALFORMED") == 3


@virtual
async def test_an_output_says_where_it_came_from_once() -> None:
    bench = Bench()
    bench.cluster.produce(A, b"x", headers=((DEID_ID, b"forged"), ("x", b"00")))
    bench.executor = EagerExecutor()
    await bench.start()
    assert bench.cluster.outputs(A)[0].headers == (("x", b"00"), (DEID_ID, b"adt/0/0"))


@virtual
async def test_nothing_settles_past_an_unfinished_record() -> None:
    bench = Bench()
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
async def test_the_audit_stands_before_a_record_settles() -> None:
    bench = Bench(RunnerSettings(batch_records=2, linger_s=0))
    bench.fill(5)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(
        result=Processed(b"y", None, remarks=b'[{"path":"PID-5"}]', input_digest="i", output_digest="o")
    )
    bench.executor.finish(result=Refused(Reason.LEAK, "OKONKWO^ADA", "guard", input_digest="j"))
    bench.executor.finish_all()
    await task
    assert bench.audit.settled_before == [0, 2, 4]
    assert [item.audit for item in bench.cluster.settled[A]] == [b"line of %d" % offset for offset in range(5)]
    first, second = bench.audit.entries[:2]
    assert (first.outcome, first.input_digest, first.output_digest) == (Outcome.PUBLISHED, "i", "o")
    assert first.remarks == b'[{"path":"PID-5"}]'
    assert (second.reason, second.where, second.stage, second.input_digest) == ("LEAK", "", "guard", "j")


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
async def test_records_in_flight_are_bounded_and_flow_again() -> None:
    bench = Bench(RunnerSettings(poll_limit=4, max_in_flight=12))
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
    bench = Bench(RunnerSettings(poll_limit=1, max_in_flight=50, max_in_flight_bytes=1000))
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
async def test_a_partition_at_its_bound_does_not_hold_up_the_other() -> None:
    bench = Bench(RunnerSettings(poll_limit=2, max_in_flight=4))
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
    bench = Bench(RunnerSettings(batch_records=3, linger_s=0))
    bench.fill(8)
    bench.cluster.hold("settle")
    task = bench.start()
    await pass_time(1)
    bench.executor.finish_all()
    await pass_time(10)
    assert [len(bench.audit.entries)] == [3]
    bench.cluster.release("settle")
    await task
    assert bench.audit.settled_before == [0, 3, 6]


@virtual
async def test_single_records_linger_so_that_batches_form() -> None:
    bench = Bench(RunnerSettings(linger_s=5), finite=False)
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
    retries = [(e.operation, e.attempt, e.delay_s) for e in bench.telemetry.events if isinstance(e, Retrying)]
    settles = [("settle", 1, 1), ("settle", 2, 2), ("settle", 3, 4), ("settle", 4, 4)]
    assert retries == [("start", 1, 1), ("poll", 1, 1), ("poll", 2, 2), *settles]
    # The first wait for a settle is cut short: the source has run dry, so draining begins.
    assert asyncio.get_running_loop().time() == pytest.approx(1 + 3 + 2 + 4 + 4, abs=0.5)


@virtual
async def test_a_stop_and_a_revoke_cut_a_settle_off_at_their_deadline() -> None:
    """A broker that says nothing must not keep a container past its grace, nor its group from dealing out anew."""
    for how in ("stop", "revoke"):
        bench = Bench(RunnerSettings(drain_s=10, settle_timeout_s=1000), finite=False)
        bench.fill(1)
        bench.executor = EagerExecutor()
        bench.cluster.hold("settle")
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
    with pytest.raises(UnsafeError, match=r"KeyError at test_runner\.py:\d+") as caught:
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
async def test_stop_settles_what_is_finished_by_the_deadline_and_leaves_the_rest() -> None:
    bench = Bench(RunnerSettings(drain_s=10), finite=False)
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
    assert task.done(), "of ten seconds two are kept for leaving the group"
    await task
    assert bench.offsets() == [0, 1]
    assert bench.cluster.positions[A] == 2
    assert bench.cluster.members == []


@virtual
async def test_stop_does_not_wait_longer_than_the_work_needs() -> None:
    bench = Bench(RunnerSettings(drain_s=1000), finite=False)
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
async def test_stop_works_while_the_outside_is_away() -> None:
    for operation in ("start", "poll", "settle"):
        bench = Bench(RunnerSettings(drain_s=10, retry_first_s=500, retry_most_s=500), finite=False)
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
    bench = Bench(RunnerSettings(drain_s=10, retry_first_s=500, retry_most_s=500), finite=False)
    bench.executor = EagerExecutor()
    bench.fill(1)
    bench.cluster.fail("settle", *[LostError("another owner")] * 99)
    task = bench.start()
    await pass_time(1)
    bench.runner.request_stop()
    await pass_time(1)
    assert task.done()
    await task
    assert bench.offsets() == []


@virtual
async def test_a_start_that_stays_away_is_given_up_with_what_was_wrong() -> None:
    bench = Bench(RunnerSettings(start_timeout_s=20))
    bench.cluster.fail("start", *[TransientError("no leader yet")] * 99)
    task = bench.start()
    await pass_time(21)
    with pytest.raises(UnsafeError, match="within 20 s: no leader yet"):
        await task


@virtual
async def test_a_stop_while_a_finite_source_runs_dry_has_its_deadline() -> None:
    bench = Bench(RunnerSettings(drain_s=10))
    bench.fill(2)
    task = bench.start()
    await pass_time(1000)
    assert not task.done()
    bench.runner.request_stop()
    await pass_time(11)
    assert task.done()
    await task


@virtual
async def test_revoke_settles_the_finished_prefix_and_late_results_are_mute() -> None:
    bench = Bench(RunnerSettings(drain_s=10, linger_s=1000), finite=False)
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
async def test_a_drain_gives_back_what_has_not_begun_and_does_not_wait_for_it() -> None:
    bench = Bench(RunnerSettings(drain_s=20), finite=False)
    bench.fill(10)
    bench.executor = ChoosyExecutor(begun=4)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(2)
    bench.runner.request_stop()
    await pass_time(0.5)
    assert len(bench.executor.pending) == 9, "what is short is finished"
    await pass_time(0.6)
    assert len(bench.executor.pending) == 4
    bench.executor.finish_all()
    await pass_time(0.1)
    assert task.done()
    await task
    assert bench.offsets() == [0, 1, 2, 3, 4]
    assert bench.cluster.positions[A] == 5


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
async def test_a_record_of_a_partition_that_is_not_ours_is_left_alone() -> None:
    bench = Bench()
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


@virtual
async def test_health_and_gauges_follow() -> None:
    bench = Bench(RunnerSettings(linger_s=0), finite=False)
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
    bench = Bench(RunnerSettings(linger_s=0.5), finite=False)
    bench.fill(3)
    running = bench.start()
    await pass_time(2.1)
    registry = bench.telemetry.registry
    assert registry.value(QUEUE) == 3
    assert (registry.value(WORKERS, "up"), registry.value(WORKERS, "wanted"), registry.value(READY)) == (1, 1, 1)
    bench.executor.finish_all()
    bench.runner.request_stop()
    await running
    queued, settled = registry.histogram(STAGE_SECONDS, "queue"), registry.histogram(STAGE_SECONDS, "settle")
    assert queued.count == 3
    assert queued.sum == pytest.approx(3 * 2.1, abs=0.1)
    assert settled.count == 3
    assert registry.histogram(SETTLE_SECONDS).count == 1
    assert [e.outcome for e in bench.telemetry.events if isinstance(e, RecordSettled)] == ["published"] * 3


@virtual
async def test_a_partition_that_is_taken_away_leaves_no_gauge() -> None:
    bench = Bench(finite=False)
    bench.fill(3)
    running = bench.start()
    await pass_time(2)
    told = {labels for metric, labels, _ in bench.telemetry.registry.collect() if metric in (LAG, INFLIGHT)}
    assert ("adt", "0") in told
    await bench.runner.revoked([A])
    await pass_time(2)
    told = {labels for metric, labels, _ in bench.telemetry.registry.collect() if metric in (LAG, INFLIGHT)}
    assert told == {("adt", "1")}
    bench.runner.request_stop()
    await running


def test_settings_that_make_no_sense_are_refused() -> None:
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
        bench = Bench()
        bench.cluster.produce(A, b"Okonkwo")
        bench.executor = EagerExecutor()
        await bench.start()
        items: list[Settled] = bench.cluster.settled[A]
        assert "Okonkwo" not in repr((bench.runner, items, bench.audit.entries, bench.cluster.letters(A)))

    run_virtual(check)


async def test_no_audit_keeps_nothing() -> None:
    audit = NoAudit()
    await audit.append([])
    await audit.close()
