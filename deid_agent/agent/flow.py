"""One partition during one assignment: records in, batches out, the position behind them."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deid_agent.agent.audit import AuditLog
from deid_agent.agent.deadletter import LetterCount, LetterLimit
from deid_agent.agent.health import Health
from deid_agent.agent.job import Completed, Executor, Processed, Refused
from deid_agent.agent.ledger import Batch, PartitionLedger
from deid_agent.agent.outcomes import entry_of, processed_event, settled_as, trace_of, with_lines
from deid_agent.agent.ports import Outcome, Partition, Record, Settled, Transport
from deid_agent.errors import ConfigurationError, LostError, TransientError, UnsafeError, UnwantedError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import (
    BatchSettled,
    Gauged,
    RecordDeadLettered,
    RecordSettled,
    Retrying,
)

T = TypeVar("T")

_GIVE_BACK_S = 1.0


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Bounds and times of the agent. Records and bytes are per partition, ``_s`` are seconds.

    ``drain_s`` is the one deadline of a revoke or a stop; it must stay well under the group's rebalance timeout.
    Work that has begun is settled by then, or left to the next owner; a stop keeps the last of it (``leave_s``)
    for leaving the group. A settle that takes ``settle_timeout_s`` stops the agent, since nobody knows what it did.
    """

    poll_limit: int = 128
    max_in_flight: int = 512
    max_in_flight_bytes: int = 64 << 20
    batch_records: int = 200
    linger_s: float = 0.05
    drain_s: float = 20.0
    start_timeout_s: float = 120.0
    poll_timeout_s: float = 60.0
    settle_timeout_s: float = 60.0
    stop_timeout_s: float = 30.0
    retry_first_s: float = 0.1
    retry_most_s: float = 30.0
    beat_s: float = 1.0
    letters: LetterLimit = field(default_factory=LetterLimit)

    def __post_init__(self) -> None:
        if self.poll_limit < 1 or self.batch_records < 1 or self.max_in_flight_bytes < 1:
            raise ConfigurationError("poll limit, batch size and bytes in flight must be at least 1")
        if self.max_in_flight < 2 * self.poll_limit:
            raise ConfigurationError("records in flight must be at least twice the poll limit")
        if self.linger_s < 0 or self.drain_s < 0 or not 0 < self.retry_first_s <= self.retry_most_s:
            raise ConfigurationError("linger and drain must not be negative, retry times must rise from above 0")

    @property
    def leave_s(self) -> float:
        """How much of ``drain_s`` a stop keeps for leaving the group and closing connections."""
        return min(2.0, self.drain_s / 4)

    def delay_s(self, attempt: int) -> float:
        """How long to wait after the ``attempt``-th failure in a row."""
        return min(self.retry_most_s, self.retry_first_s * 2.0 ** min(attempt - 1, 32))


@dataclass(frozen=True, slots=True)
class Outside:
    """What every flow of one agent shares."""

    transport: Transport
    executor: Executor
    audit: AuditLog
    settings: RunnerSettings
    telemetry: Telemetry
    health: Health


class _CutOffError(Exception):
    """The drain's deadline has passed."""


class Flow:
    """Takes the records of one partition through the executor and settles them in order.

    One settle is in flight at a time. ``run()`` ends after ``drain()``: when everything is settled, or at its
    deadline. What has not begun by a quarter of that time, a second at most, goes back: the group waits for this
    drain, and whoever has the partition next may as well do it. After ``end()`` late results change nothing.
    """

    def __init__(self, stream: Partition, outside: Outside) -> None:
        self.stream = stream
        self.closed = asyncio.Event()
        self.unsettled = 0
        self._out = outside
        self._settings = outside.settings
        self._ledger = PartitionLedger(stream)
        self._results: dict[int, Completed] = {}
        self._since: dict[int, float] = {}  # when a record was taken, then when its worker was done with it
        self._letters = LetterCount(outside.settings.letters)
        self._bytes = 0
        self._paused = False
        self._deadline: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._recall: asyncio.TimerHandle | None = None
        self._urged = asyncio.Event()
        self._woken = asyncio.Event()
        self._lingering = False
        self._settled_at = -math.inf

    def __len__(self) -> int:
        """Records taken and not yet settled."""
        return len(self._ledger)

    def take(self, record: Record) -> None:
        """Start a record. While draining it is left alone: nothing behind it moves, so it comes again."""
        if self._deadline is not None or self.closed.is_set():
            return
        self._ledger.start(record.coordinates.offset)
        self._since[record.coordinates.offset] = asyncio.get_running_loop().time()
        self._bytes += len(record.payload)
        self._out.executor.submit(record, self._done)
        self._throttle()

    def drain(self, deadline: float) -> None:
        """Take nothing more and end by ``deadline`` (loop time); an earlier one that was given stands."""
        self._deadline = min(deadline, self._deadline if self._deadline is not None else math.inf)
        if self._recall is None and math.isfinite(deadline):
            loop = asyncio.get_running_loop()
            self._recall = loop.call_later(min(_GIVE_BACK_S, (deadline - loop.time()) / 4), self._give_back)
        self._out.transport.pause(self.stream)
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(min(self._deadline, self._limit.when() or math.inf))
        self._urged.set()
        self._woken.set()

    def _give_back(self) -> None:
        """Leave to the next owner what has not begun."""
        if not self.closed.is_set() and (lowest := self._out.executor.recall(self.stream)) is not None:
            self.unsettled += self._ledger.cut(lowest)
            self._woken.set()

    def end(self) -> None:
        """The assignment is over: forget all that is not settled. Ending twice changes nothing."""
        if self.closed.is_set():
            return
        if self._recall is not None:
            self._recall.cancel()
        self.unsettled += len(self)
        self._ledger.revoke()
        self._results.clear()
        self._since.clear()
        self._out.executor.forget(self.stream)
        self.closed.set()

    def gauge(self, lag: int | None) -> None:
        """Tell how things stand."""
        self._out.health.lag(self.stream, lag)
        self._out.telemetry.emit(Gauged(self.stream.topic, self.stream.number, len(self), lag))

    async def run(self) -> None:
        """Settle until drained. Raises ``UnsafeError`` where going on could lose or double a record."""
        while True:
            await self._due()
            batch = self._ledger.take(self._settings.batch_records)
            if batch is None:
                return
            if not await self._settle(batch):
                return
            self._throttle()

    async def _due(self) -> None:
        """Return when there is something to settle, or when draining is over."""
        loop = asyncio.get_running_loop()
        while True:
            ready, now = self._ledger.ready, loop.time()
            until: float | None = None
            if self._deadline is not None:
                if ready or not len(self) or now >= self._deadline:
                    return
                until = None if math.isinf(self._deadline) else self._deadline
            elif ready:
                until = self._settled_at + self._settings.linger_s
                if ready >= self._settings.batch_records or now >= until:
                    return
            self._lingering = until is not None and self._deadline is None
            self._woken.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._woken.wait()
            except TimeoutError:
                pass
            finally:
                self._lingering = False

    def _done(self, record: Record, completed: Completed) -> None:
        if self.closed.is_set():
            return
        offset, now = record.coordinates.offset, asyncio.get_running_loop().time()
        self._ledger.settle(offset, settled_as(record, completed))
        self._results[offset] = completed
        waited = max(0.0, now - self._since[offset] - completed.seconds)
        self._since[offset] = now
        self._out.telemetry.emit(processed_event(record, completed, waited))
        # While a linger runs, single results need not wake the settler.
        if not self._lingering or self._ledger.ready >= self._settings.batch_records:
            self._woken.set()

    def _throttle(self) -> None:
        """Pause at the bound, resume at half of it, so that one more poll always fits."""
        most = self._settings.max_in_flight - self._settings.poll_limit
        if not self._paused and (len(self) > most or self._bytes > self._settings.max_in_flight_bytes):
            self._paused = True
            self._out.transport.pause(self.stream)
        elif self._paused and len(self) <= most // 2 and self._bytes <= self._settings.max_in_flight_bytes // 2:
            self._paused = False
            if self._deadline is None:
                self._out.transport.resume(self.stream)

    async def _settle(self, batch: Batch) -> bool:
        """Make a batch durable; False where draining ended before the outside came back."""
        try:
            return await self._made_durable(batch)
        except _CutOffError:
            return False

    async def _made_durable(self, batch: Batch) -> bool:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        entries = [entry_of(item, self._results[item.record.coordinates.offset]) for item in batch.records]
        letters = self._letters.after(batch.records)
        lines = await self._in_time("audit", self._out.audit.append(entries))
        batch = replace(batch, records=with_lines(batch.records, lines))
        attempt = 0
        while True:
            try:
                settling = self._out.transport.settle(self.stream, batch.records, batch.position)
                await self._in_time("settle", settling)
                break
            except UnwantedError as error:
                place, settled = self._refuse(batch, error)
                before, behind = batch.records[:place], batch.records[place + 1 :]
                letters = self._letters.after((*before, settled, *behind))
                entry = entry_of(settled, self._results[error.offset])
                lines = await self._in_time("audit", self._out.audit.append([entry]))
                batch = replace(batch, records=(*before, *with_lines((settled,), lines), *behind))
            except TransientError as error:
                attempt += 1
                if isinstance(error, LostError) and self._deadline is not None:
                    return False  # the new owner has it; a drain that went on would only delay the group
                if not await self._wait(attempt, error):
                    return False
        self._ledger.confirm()
        self._letters = letters
        self._settled_at = loop.time()
        self._account(batch, self._settled_at - begin)
        return True

    def _refuse(self, batch: Batch, error: UnwantedError) -> tuple[int, Settled]:
        """Which record of the batch has an output that nobody takes, and the dead letter in its place."""
        for place, item in enumerate(batch.records):
            done = self._results[item.record.coordinates.offset]
            if item.record.coordinates.offset == error.offset and isinstance(done.result, Processed):
                refusal = Refused(error.reason, "output", "publish", input_digest=done.result.input_digest)
                completed = Completed(refusal, done.attempts, done.seconds)
                self._results[error.offset] = completed
                return place, settled_as(item.record, completed)
        raise error

    async def _in_time(self, what: str, work: Awaitable[T]) -> T:
        """Raises ``_CutOffError`` where the drain was over first: what was cut off is the next owner's to find out."""
        now = asyncio.get_running_loop().time
        try:
            end = math.inf if self._deadline is None else self._deadline
            async with asyncio.timeout_at(min(end, now() + self._settings.settle_timeout_s)) as self._limit:
                return await work
        except TimeoutError:
            if self._deadline is not None and now() >= self._deadline:
                raise _CutOffError from None
            name = f"{self.stream.topic}/{self.stream.number}"
            raise UnsafeError(f"{what} of {name} took too long and may or may not have happened: start again") from None
        finally:
            self._limit = None

    async def _wait(self, attempt: int, error: TransientError) -> bool:
        """Wait before another try, or until a drain begins; False where the drain's deadline has passed."""
        loop = asyncio.get_running_loop()
        delay = self._settings.delay_s(attempt)
        name = f"{self.stream.topic}/{self.stream.number}"
        self._out.telemetry.emit(Retrying("settle", name, attempt, delay, type(error).__name__, str(error)))
        left = math.inf if self._deadline is None else self._deadline - loop.time()
        self._urged.clear()
        try:
            async with asyncio.timeout(max(0.0, min(delay, left))):
                await self._urged.wait()
        except TimeoutError:
            pass
        return self._deadline is None or loop.time() < self._deadline

    def _account(self, batch: Batch, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        counts = dict.fromkeys(Outcome, 0)
        for item in batch.records:
            at = item.record.coordinates
            counts[item.outcome] += 1
            self._bytes -= len(item.record.payload)
            del self._results[at.offset]
            known = trace_of(item.record)
            waited = now - self._since.pop(at.offset)
            self._out.telemetry.emit(RecordSettled(str(at), item.outcome, waited, known))
            if (letter := item.letter) is not None:
                self._out.telemetry.emit(
                    RecordDeadLettered(
                        str(at), letter.reason, letter.stage, letter.where, letter.fault, letter.attempts, known
                    )
                )
        self._out.health.moved(self.stream, batch.position)
        self._out.telemetry.emit(
            BatchSettled(
                self.stream.topic,
                self.stream.number,
                batch.position,
                counts[Outcome.PUBLISHED],
                counts[Outcome.SUPPRESSED],
                counts[Outcome.DEAD_LETTERED],
                seconds,
            )
        )
