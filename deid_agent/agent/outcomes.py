"""How a record ends: published, suppressed or a dead letter, with its headers, its audit entry and its event.

Header names follow Kafka Connect (KIP-298), so that tools for Connect's dead letters can read them. The headers hold
coordinates, codes and paths, never a message, a value or a stack trace.

A replay puts a record back into its input with two headers that name its original coordinates and count its attempts.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from deid_agent import __version__
from deid_agent.agent.job import DEFAULT_PROJECT, Completed, Deferred, Processed, Refused, Suppressed
from deid_agent.agent.ports import AuditEntry, Coordinates, DeadLetter, FinishedRecord, Headers, Outcome, Output, Record
from deid_agent.model import TRACEPARENT, RecordTime, UnsafeError, read_trace
from deid_agent.telemetry import RecordDeadLettered, RecordProcessed, RecordRefused

REPLAY_OF: Final = "deid-replay-of"
"""Names the original record: its coordinates on replayed inputs and their dead letters, its id on outputs."""
REPLAY_ATTEMPTS: Final = "deid-replay-attempts"
"""The number of attempts before the replay; on inputs only."""

_OFFSET = re.compile(rb"0|[1-9][0-9]{0,18}")
_COUNT = re.compile(rb"[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The original coordinates of a record and the attempts before its replay; ``first`` is None for a new record."""

    first: Coordinates | None = None
    attempts: int = 0

    def headers(self) -> Headers:
        """The headers that carry the lineage to a dead letter."""
        return () if self.first is None else ((REPLAY_OF, str(self.first).encode()),)


NO_REPLAY: Final = Lineage()


def is_replay_header(name: str) -> bool:
    """True for the name of a header that only a replay may write."""
    return name.lower() in {REPLAY_OF, REPLAY_ATTEMPTS}


def read_lineage(record: Record) -> Lineage:
    """The lineage that the headers of a record declare.

    Any sender can write a header, and a header may hold PHI. It is therefore accepted only if a replay could have
    written it: exactly once, in plain digits, for an earlier offset of the record's own partition.
    """
    values = _header_values(record.headers, REPLAY_OF) if record.headers else ()
    if len(values) != 1:
        return NO_REPLAY
    at = record.coordinates
    before = f"{at.topic}/{at.partition}/".encode()
    if not values[0].startswith(before):
        return NO_REPLAY
    digits = values[0][len(before) :]
    if not _OFFSET.fullmatch(digits) or int(digits) >= at.offset:
        return NO_REPLAY
    counts = _header_values(record.headers, REPLAY_ATTEMPTS)
    attempts = int(counts[0]) if len(counts) == 1 and _COUNT.fullmatch(counts[0]) else 0
    return Lineage(Coordinates(at.topic, at.partition, int(digits)), attempts)


def replay_headers(record: Record, attempts: int, *, linked: bool = True) -> Headers:
    """The headers of a replayed record: its own, its original coordinates and the attempts so far.

    One that is not ``linked`` comes from a former topic: in the present one its coordinates are those of another
    record, and its output must not name that one. It is a new record there.
    """
    first = read_lineage(record).first or record.coordinates
    kept = tuple(item for item in record.headers if not is_replay_header(item[0]))
    if not linked:
        return kept
    return (*kept, (REPLAY_OF, str(first).encode()), (REPLAY_ATTEMPTS, str(max(1, attempts)).encode()))


def _header_values(headers: Headers, name: str) -> list[bytes]:
    return [value for other, value in headers if other == name]


_PATH = re.compile(r"[A-Za-z0-9_.:*\[\]/ -]{0,128}")


def safe_path(where: str) -> str:
    """``where`` if it has the form of a path or an offset, else an empty string. A value that got into it by mistake
    stops here.
    """
    return where if _PATH.fullmatch(where) else ""


def dead_letter_headers(coordinates: Coordinates, dead_letter: DeadLetter, lineage: Lineage = NO_REPLAY) -> Headers:
    """The headers of a dead letter. Attempts include those before a replay."""
    values = (
        ("__connect.errors.topic", coordinates.topic),
        ("__connect.errors.partition", str(coordinates.partition)),
        ("__connect.errors.offset", str(coordinates.offset)),
        ("__connect.errors.stage", dead_letter.stage),
        ("__connect.errors.exception.class.name", dead_letter.fault or "MessageError"),
        ("deid.error.code", str(dead_letter.reason)),
        ("deid.error.where", safe_path(dead_letter.where)),
        ("deid.attempts", str(lineage.attempts + dead_letter.attempts)),
        ("deid.version", __version__),
        *((("traceparent", dead_letter.traceparent),) if dead_letter.traceparent else ()),
    )
    return (*((name, value.encode()) for name, value in values), *lineage.headers())


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """The number of refusals in one partition that are still blamed on the messages.

    ``run`` is the number of refusals in a row, ``ratio`` the share of refusals among the last ``window`` records
    (checked once ``window`` records are finished). Both are the last values that are tolerated.
    """

    run: int = 500
    ratio: float = 0.5
    window: int = 1000

    def __post_init__(self) -> None:
        if self.run < 1 or self.window < 1 or not 0 <= self.ratio <= 1:
            raise ValueError("a dead-letter limit needs run >= 1, window >= 1 and 0 <= ratio <= 1")


class RefusalCounter:
    """Counts the refusals of one partition against a ``DeadLetterLimit``."""

    def __init__(self, limit: DeadLetterLimit) -> None:
        self._limit = limit
        self._recent: deque[bool] = deque(maxlen=limit.window)
        self._refused = 0
        self._run = 0

    def with_records(self, records: Iterable[FinishedRecord]) -> "RefusalCounter":
        """Return a counter that includes these records, in offset order. Raises ``UnsafeError`` if the limit is
        exceeded.

        The counter itself does not change: the outcome of a record may change until it is committed, and it counts
        once.
        """
        count = RefusalCounter(self._limit)
        count._recent, count._refused, count._run = self._recent.copy(), self._refused, self._run
        for finished in records:
            count._add(finished)
        return count

    def _add(self, finished: FinishedRecord) -> None:
        refused = finished.outcome is Outcome.DEAD_LETTERED
        if len(self._recent) == self._limit.window:
            self._refused -= self._recent[0]
        self._recent.append(refused)
        self._refused += refused
        self._run = self._run + 1 if refused else 0
        over_run = self._run > self._limit.run
        full = len(self._recent) == self._limit.window
        over_ratio = full and self._refused > self._limit.ratio * self._limit.window
        if over_run or over_ratio:
            count = f"{self._run} in a row" if over_run else f"{self._refused} of the last {self._limit.window}"
            raise UnsafeError(
                f"too many records refused at {finished.record.coordinates} ({count}): look at the dead letters, "
                "fix the configuration or raise the limit, then start again; nothing was lost"
            )


# From here on: pure functions that turn a worker's result into the finished record, the audit entry and the event.

DEID_ID = "deid-id"
"""Header of every output: the id of its input. A reader can use it to drop duplicates."""


@dataclass(frozen=True, slots=True)
class OutputMarks:
    """The id and the time of outputs.

    The id is a keyed digest of the record's coordinates and of the id of its topic: the same whenever the record is
    delivered again, and different under every key, so that two feeds of one topic cannot be joined by it. A topic that
    is created again counts offsets anew, but has another id: a reader that drops duplicates must not drop its records.
    The audit entry has both.

    ``project`` is the project whose key this is; it is empty in an agent without projects. Outputs of every project
    except ``DEFAULT_PROJECT`` leave their trace: two feeds of one record would be joined by the id of its trace.
    """

    secret: bytes = field(repr=False)
    time: RecordTime = RecordTime.DAY
    project: str = ""
    _key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = hashlib.blake2b(self.secret, person=b"deid-id", digest_size=32).digest()
        object.__setattr__(self, "_key", key)

    @property
    def is_traced(self) -> bool:
        """True if outputs belong to the trace of their record."""
        return self.project in {"", DEFAULT_PROJECT}

    def id_of(self, coordinates: Coordinates, topic_id: str = "") -> str:
        """The id of the record: 128 bits in hex."""
        named = f"{topic_id} {coordinates}" if topic_id else str(coordinates)
        return hashlib.blake2b(named.encode(), key=self._key, digest_size=16).hexdigest()


_WRITTEN_HERE = frozenset({TRACEPARENT, REPLAY_OF, REPLAY_ATTEMPTS})
_TRACE_STATE = "tracestate"
"""The values of vendors that belong to a ``traceparent`` (W3C Trace Context, 3.3)."""


def trace_id_of(record: Record) -> str:
    """The id of the trace that a record belongs to; empty if it has no valid ``traceparent`` header."""
    found = read_trace(record.headers)
    return found.id if found else ""


def refusal_event(finished: FinishedRecord, dead_letter: DeadLetter, trace: str) -> RecordDeadLettered | RecordRefused:
    """The event of a record that was refused: it is a dead letter, or its sender is informed."""
    at = str(finished.record.coordinates)
    kind = RecordRefused if finished.outcome is Outcome.REFUSED else RecordDeadLettered
    return kind(
        at, dead_letter.reason, dead_letter.stage, dead_letter.where, dead_letter.fault, dead_letter.attempts, trace
    )


def processed_event(
    record: Record, completed: Completed, waited: float = 0.0, trace: str | None = None
) -> RecordProcessed:
    """The event for a record that a worker has finished. ``waited``: seconds before a worker took it, with retries.

    ``trace`` is the id of its trace, if the caller has read it.
    """
    at, result = str(record.coordinates), completed.result
    done = result if isinstance(result, Processed) else Processed(b"")
    stages = (("queue", waited), *done.timings)
    known = trace_id_of(record) if trace is None else trace
    return RecordProcessed(at, completed.seconds, completed.attempts, stages, done.found, known, done.patients)


def finish_record(record: Record, completed: Completed, marks: OutputMarks) -> FinishedRecord:
    """The finished record for a worker's result.

    The id of a replayed record is its own; its output also names the id that the original had. The output belongs to
    the trace of its record, as a child span of the agent, so that readers can see the sender, unless ``marks`` are
    those of a project: see ``OutputMarks``.
    """
    known = read_trace(record.headers)
    id_ = marks.id_of(record.coordinates, record.topic_id)
    traceparent = known.child(id_).to_header() if known else b""
    match completed.result:
        case Processed(payload=payload, key=key, headers=headers, provenance=provenance):
            # A policy may let headers with these names through. Values that a sender wrote under them are dropped.
            dropped = _WRITTEN_HERE if marks.is_traced else _WRITTEN_HERE | {_TRACE_STATE}
            kept = [item for item in headers if item[0] != DEID_ID and item[0].lower() not in dropped]
            if traceparent and marks.is_traced and any(name.lower() == TRACEPARENT for name, _ in headers):
                kept.append((TRACEPARENT, traceparent))
            first = read_lineage(record).first
            replayed = () if first is None else ((REPLAY_OF, marks.id_of(first, record.topic_id).encode()),)
            named = (*kept, *replayed, (DEID_ID, id_.encode()))
            output = Output(payload, key, named, marks.time.coarsen(record.timestamp_ms))
            return FinishedRecord(record, Outcome.PUBLISHED, output=output, id=id_, provenance=provenance)
        case Refused(reason=reason, where=where, stage=stage, fault=fault):
            dead_letter = DeadLetter(reason, stage, safe_path(where), completed.attempts, fault, traceparent.decode())
            outcome = Outcome.DEAD_LETTERED if record.request is None else Outcome.REFUSED
            return FinishedRecord(record, outcome, dead_letter=dead_letter, id=id_)
        case Suppressed():
            return FinishedRecord(record, Outcome.SUPPRESSED, id=id_)
        case Deferred():
            raise ValueError("a deferred record is not finished")
        case _:
            assert_never(completed.result)


@dataclass(frozen=True, slots=True)
class WaitingResult:
    """The result of a record that is not committed yet, when its worker finished it, and the id of its trace."""

    completed: Completed
    at: float
    trace: str


def make_audit_entry(finished: FinishedRecord, completed: Completed, project: str = "") -> AuditEntry:
    """The audit entry of a finished record of a project."""
    record, result, dead_letter = finished.record, completed.result, finished.dead_letter
    processed = result if isinstance(result, Processed) else Processed(b"")
    # ``dataclasses.replace`` of an entry without these fields takes longer than all else here.
    return AuditEntry(
        record.coordinates,
        finished.outcome,
        reason="" if dead_letter is None else dead_letter.reason,
        where="" if dead_letter is None else dead_letter.where,
        stage="" if dead_letter is None else dead_letter.stage,
        attempts=completed.attempts if dead_letter is None else dead_letter.attempts,
        input_digest=result.input_digest,
        output_digest=processed.output_digest,
        remarks=processed.remarks,
        replay_of=read_lineage(record).first,
        id=finished.id,
        topic_id=record.topic_id,
        project=project,
        client="" if record.request is None else record.request.client,
    )


def attach_audit_lines(
    records: Sequence[FinishedRecord], lines: Sequence[bytes], head: bytes = b""
) -> tuple[FinishedRecord, ...]:
    """The records with their audit lines, the last one also with a head; unchanged if the audit log keeps no lines."""
    if not lines:
        return tuple(records)
    # ``dataclasses.replace`` takes five times as long, and every record of a feed passes here.
    *most, last = (
        FinishedRecord(
            item.record, item.outcome, item.output, item.dead_letter, line, item.id, provenance=item.provenance
        )
        for item, line in zip(records, lines, strict=True)
    )
    return (*most, replace(last, head=head) if head else last)
