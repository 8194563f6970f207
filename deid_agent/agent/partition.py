"""Processes the records of one partition during one assignment: records in, committed batches out."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from deid_agent.agent.deferrals import Deferrals
from deid_agent.agent.job import DEFAULT_PROJECT, Completed, Deferred, Processed, Refused
from deid_agent.agent.ledger import CommitBatch, PartitionLedger
from deid_agent.agent.outcomes import (
    RefusalCounter,
    WaitingResult,
    attach_audit_lines,
    finish_record,
    make_audit_entry,
    processed_event,
    refusal_event,
    trace_id_of,
)
from deid_agent.agent.ports import (
    AuditEntry,
    FinishedRecord,
    Outcome,
    Partition,
    Record,
    SignsHeads,
)
from deid_agent.agent.runner_context import RunnerContext
from deid_agent.model import AssignmentLostError, TransientError, UndeliverableError, UnsafeError
from deid_agent.telemetry import BatchCommitted, Gauged, RecordFinished, Retrying

T = TypeVar("T")

_RETURN_AFTER_S = 1.0


class _DrainDeadlineError(Exception):
    """The deadline of the drain has passed."""


class PartitionProcessor:
    """Passes the records of one partition through the executor and commits them in order.

    At most one commit is in flight. ``run()`` ends after ``drain()``: when everything is committed, or at its deadline.
    Records that have not begun after a quarter of that time, at most a second, go back to the next owner of the
    partition, because the whole group waits for this drain. After ``close()`` late results are ignored.
    """

    def __init__(self, stream: Partition, context: RunnerContext) -> None:
        self.stream = stream
        self.closed = asyncio.Event()
        self.unfinished = 0
        self._context = context
        self._settings = context.settings
        self._marks = context.projects.get(stream.topic, context.marks)
        self._crosswalk = context.crosswalks.get(self._marks.project or DEFAULT_PROJECT)
        self._ledger = PartitionLedger(stream)
        self._results: dict[int, WaitingResult] = {}
        self._taken_at: dict[int, float] = {}  # of records that are not processed
        self._dead_letters = RefusalCounter(context.settings.dead_letters)
        self._deferrals = Deferrals(stream, self._submit, context.settings.delay_s, context.telemetry)
        self._bytes = 0
        self._paused = False
        self._deadline: float | None = None
        self._timeout: asyncio.Timeout | None = None
        self._return_timer: asyncio.TimerHandle | None = None
        self._returned = False
        self._drain_requested = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._lingering = False
        self._committed_at = -math.inf

    def __len__(self) -> int:
        """The number of records taken and not yet committed."""
        return len(self._ledger)

    def take(self, record: Record) -> None:
        """Start a record. Ignored during a drain: no later position is committed, so the record is delivered again."""
        if self._deadline is not None or self.closed.is_set():
            return
        self._ledger.start(record.coordinates.offset)
        self._taken_at[record.coordinates.offset] = asyncio.get_running_loop().time()
        self._bytes += len(record.payload)
        self._submit(record)
        self._throttle()

    def _submit(self, record: Record) -> None:
        self._context.executor.submit(record, self._on_completed, self._marks.project)

    def drain(self, deadline: float) -> None:
        """Take no more records and end by ``deadline`` (loop time), or by an earlier deadline if one was given."""
        self._deadline = min(deadline, self._deadline if self._deadline is not None else math.inf)
        if self._return_timer is None and math.isfinite(deadline):
            loop = asyncio.get_running_loop()
            self._return_timer = loop.call_later(
                min(_RETURN_AFTER_S, (deadline - loop.time()) / 4), self._return_unstarted
            )
        self._context.transport.pause(self.stream)
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(min(self._deadline, self._timeout.when() or math.inf))
        self._drain_requested.set()
        self._wakeup.set()

    def _return_unstarted(self) -> None:
        """Leave the records that have not begun, or wait to be tried again, to the next owner."""
        if self.closed.is_set():
            return
        self._returned = True
        recalled = (self._context.executor.recall(self.stream), self._deferrals.recall())
        if (lowest := min((offset for offset in recalled if offset is not None), default=None)) is not None:
            self.unfinished += self._ledger.abandon_from(lowest)
            self._wakeup.set()

    def close(self) -> None:
        """The assignment is over: forget everything that is not committed. Safe to call twice."""
        if self.closed.is_set():
            return
        if self._return_timer is not None:
            self._return_timer.cancel()
        self.unfinished += len(self)
        self._ledger.revoke()
        self._results.clear()
        self._taken_at.clear()
        self._context.executor.forget(self.stream)
        self._deferrals.recall()
        self.closed.set()

    def report_gauges(self, lag: int | None) -> None:
        """Report lag and the number of records in flight."""
        self._context.health.lag(self.stream, lag)
        self._context.telemetry.emit(Gauged(self.stream.topic, self.stream.number, len(self), lag))

    async def run(self) -> None:
        """Commit batches until drained. Raises ``UnsafeError`` if continuing could lose or duplicate a record."""
        while True:
            await self._wait_until_due()
            batch = self._ledger.take_batch(self._settings.batch_records)
            if batch is None:
                return
            if not await self._commit(batch):
                return
            self._throttle()

    async def _wait_until_due(self) -> None:
        """Return when a batch should be committed, or when the drain is over."""
        loop = asyncio.get_running_loop()
        while True:
            ready, now = self._ledger.ready, loop.time()
            until: float | None = None
            if self._deadline is not None:
                if ready or not len(self) or now >= self._deadline:
                    return
                until = None if math.isinf(self._deadline) else self._deadline
            elif ready:
                until = self._committed_at + self._settings.linger_s
                if ready >= self._settings.batch_records or now >= until:
                    return
            self._lingering = until is not None and self._deadline is None
            self._wakeup.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
            finally:
                self._lingering = False

    def _on_completed(self, record: Record, completed: Completed) -> None:
        if self.closed.is_set():
            return
        if isinstance(completed.result, Deferred):
            self._defer(record, completed.result)
            return
        self._deferrals.reset()
        offset, now = record.coordinates.offset, asyncio.get_running_loop().time()
        self._ledger.finish(offset, finish_record(record, completed, self._marks))
        result = self._results[offset] = WaitingResult(completed, now, trace_id_of(record))
        waited = max(0.0, now - self._taken_at.pop(offset) - completed.seconds)
        self._context.telemetry.emit(processed_event(record, completed, waited, result.trace))
        # During a linger a single result does not have to wake ``run()``.
        if not self._lingering or self._ledger.ready >= self._settings.batch_records:
            self._wakeup.set()

    def _defer(self, record: Record, result: Deferred) -> None:
        """Try a record again later, or leave it to the next owner if the drain no longer waits for it."""
        if not self._returned:
            self._deferrals.add(record, result.why)
        else:
            self.unfinished += self._ledger.abandon_from(record.coordinates.offset)
            self._wakeup.set()

    def _throttle(self) -> None:
        """Pause at the limit and resume at half of it, so that one more poll always fits."""
        most, held = self._settings.max_in_flight - self._settings.poll_limit, len(self._ledger)
        if not self._paused and (held > most or self._bytes > self._settings.max_in_flight_bytes):
            self._paused = True
            self._context.transport.pause(self.stream)
        elif self._paused and held <= most // 2 and self._bytes <= self._settings.max_in_flight_bytes // 2:
            self._paused = False
            if self._deadline is None:
                self._context.transport.resume(self.stream)

    async def _commit(self, batch: CommitBatch) -> bool:
        """Make a batch durable. Returns False if the drain ended before the transport recovered."""
        try:
            return await self._make_durable(batch)
        except _DrainDeadlineError:
            return False

    async def _make_durable(self, batch: CommitBatch) -> bool:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        entries = [self._make_entry(item) for item in batch.records]
        dead_letters = self._dead_letters.with_records(batch.records)
        await self._keep_pairs(batch)
        lines = await self._within_timeout("audit", self._context.audit.append(entries))
        head = self._context.audit.take_head() if isinstance(self._context.audit, SignsHeads) else b""
        batch = replace(batch, records=attach_audit_lines(batch.records, lines, head))
        attempt = 0
        while True:
            try:
                committing = self._context.transport.commit(self.stream, batch.records, batch.position)
                await self._within_timeout("commit", committing)
                break
            except UndeliverableError as error:
                index, finished = self._refuse(batch, error)
                before, after = batch.records[:index], batch.records[index + 1 :]
                dead_letters = self._dead_letters.with_records((*before, finished, *after))
                lines = await self._within_timeout("audit", self._context.audit.append([self._make_entry(finished)]))
                head = batch.records[index].head  # still to be published
                batch = replace(batch, records=(*before, *attach_audit_lines((finished,), lines, head), *after))
            except TransientError as error:
                attempt += 1
                if isinstance(error, AssignmentLostError) and self._deadline is not None:
                    return False  # the new owner has it; continuing the drain would only delay the group
                if not await self._wait_before_retry(attempt, error):
                    return False
        self._ledger.confirm()
        self._dead_letters = dead_letters
        self._committed_at = loop.time()
        self._record_commit(batch, self._committed_at - begin)
        return True

    async def _keep_pairs(self, batch: CommitBatch) -> None:
        """Make the sealed pairs of a batch durable, before its audit entries and outputs.

        After a crash in between the records are processed again: their lines come twice, with the same codes.
        """
        if self._crosswalk is None:
            return
        found = [
            (item.id, result.sealed)
            for item in batch.records
            if item.output is not None
            and isinstance(result := self._results[item.record.coordinates.offset].completed.result, Processed)
            and result.sealed
        ]
        if found:
            await self._within_timeout("crosswalk", self._crosswalk.append(found))

    def _make_entry(self, item: FinishedRecord) -> AuditEntry:
        return make_audit_entry(item, self._results[item.record.coordinates.offset].completed, self._marks.project)

    def _refuse(self, batch: CommitBatch, error: UndeliverableError) -> tuple[int, FinishedRecord]:
        """Refuse the record whose output nobody accepts; return its index in the batch and its dead letter."""
        for index, item in enumerate(batch.records):
            known = self._results[item.record.coordinates.offset]
            done = known.completed
            if item.record.coordinates.offset == error.offset and isinstance(done.result, Processed):
                refusal = Refused(error.reason, "output", "publish", input_digest=done.result.input_digest)
                completed = Completed(refusal, done.attempts, done.seconds)
                self._results[error.offset] = replace(known, completed=completed)
                return index, finish_record(item.record, completed, self._marks)
        raise error

    async def _within_timeout(self, name: str, work: Awaitable[T]) -> T:
        """Await ``work`` within the commit timeout and the drain's deadline.

        Raises ``_DrainDeadlineError`` if the deadline came first: the next owner finds out whether the work was done.
        """
        now = asyncio.get_running_loop().time
        try:
            end = math.inf if self._deadline is None else self._deadline
            async with asyncio.timeout_at(min(end, now() + self._settings.commit_timeout_s)) as self._timeout:
                return await work
        except TimeoutError:
            if self._deadline is not None and now() >= self._deadline:
                raise _DrainDeadlineError from None
            raise UnsafeError(
                f"{name} of {self.stream} took too long; whether it happened is unknown: start again"
            ) from None
        finally:
            self._timeout = None

    async def _wait_before_retry(self, attempt: int, error: TransientError) -> bool:
        """Wait before the next attempt, or until a drain begins. Returns False once the drain's deadline has passed."""
        loop = asyncio.get_running_loop()
        delay = self._settings.delay_s(attempt)
        self._context.telemetry.emit(
            Retrying("commit", str(self.stream), attempt, delay, type(error).__name__, str(error))
        )
        left = math.inf if self._deadline is None else self._deadline - loop.time()
        self._drain_requested.clear()
        try:
            async with asyncio.timeout(max(0.0, min(delay, left))):
                await self._drain_requested.wait()
        except TimeoutError:
            pass
        return self._deadline is None or loop.time() < self._deadline

    def _record_commit(self, batch: CommitBatch, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        counts = dict.fromkeys(Outcome, 0)
        for item in batch.records:
            at = item.record.coordinates
            counts[item.outcome] += 1
            self._bytes -= len(item.record.payload)
            waiting = self._results.pop(at.offset)
            result = waiting.completed.result
            if self._context.on_published is not None and item.output is not None and isinstance(result, Processed):
                self._context.on_published(result)
            self._context.telemetry.emit(RecordFinished(str(at), item.outcome, now - waiting.at, waiting.trace))
            if (dead_letter := item.dead_letter) is not None:
                self._context.telemetry.emit(refusal_event(item, dead_letter, waiting.trace))
        self._context.health.moved(self.stream, batch.position)
        self._context.telemetry.emit(
            BatchCommitted(
                self.stream.topic,
                self.stream.number,
                batch.position,
                counts[Outcome.PUBLISHED],
                counts[Outcome.SUPPRESSED],
                counts[Outcome.DEAD_LETTERED],
                seconds,
                self._marks.project,
                counts[Outcome.REFUSED],
            )
        )
