"""What a record comes to: how it settles, what the audit keeps of it, what is told of it. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from deid_agent import trace
from deid_agent.agent.audit import Entry
from deid_agent.agent.deadletter import safe_path
from deid_agent.agent.job import Completed, Processed, Refused, Suppressed
from deid_agent.agent.lineage import lineage_of, ours
from deid_agent.agent.ports import DeadLetter, Outcome, Output, Record, Settled
from deid_agent.telemetry.events import RecordProcessed

DEID_ID = "deid-id"
"""Header of every output: ``topic/partition/offset`` of its input, so that a reader can drop a duplicate."""


def trace_of(record: Record) -> str:
    """The id of the trace that a record belongs to; empty where it tells none."""
    found = trace.of(record.headers)
    return found.id if found else ""


def processed_event(record: Record, completed: Completed, waited: float = 0.0) -> RecordProcessed:
    """What is told of a record that a worker is done with. ``waited``: seconds for a worker, retries included."""
    at, result = str(record.coordinates), completed.result
    timings, found = (result.timings, result.found) if isinstance(result, Processed) else ((), ())
    stages = (("queue", waited), *timings)
    return RecordProcessed(at, completed.seconds, completed.attempts, stages, found, trace_of(record))


def settled_as(record: Record, completed: Completed) -> Settled:
    """How a record settles, given what the worker made of it.

    What leaves belongs to the trace that the record came with, below a span of ours: readers see who sent it to them.
    """
    known = trace.of(record.headers)
    traceparent = known.below(str(record.coordinates)).header() if known else b""
    match completed.result:
        case Processed(payload=payload, key=key, headers=headers):
            # A policy may let these names through; what a sender wrote under them is dropped all the same.
            kept = [i for i in headers if i[0] != DEID_ID and i[0].lower() != trace.HEADER and not ours(i[0])]
            if traceparent and any(name.lower() == trace.HEADER for name, _ in headers):
                kept.append((trace.HEADER, traceparent))
            marks = (*lineage_of(record).headers(), (DEID_ID, str(record.coordinates).encode()))
            return Settled(record, Outcome.PUBLISHED, output=Output(payload, key, (*kept, *marks)))
        case Refused(reason=reason, where=where, stage=stage, fault=fault):
            letter = DeadLetter(reason, stage, safe_path(where), completed.attempts, fault, traceparent.decode())
            return Settled(record, Outcome.DEAD_LETTERED, letter=letter)
        case Suppressed():
            return Settled(record, Outcome.SUPPRESSED)
        case _:
            assert_never(completed.result)


def entry_of(settled: Settled, completed: Completed) -> Entry:
    """What the audit keeps of a settled record."""
    at, result, letter = settled.record.coordinates, completed.result, settled.letter
    first = lineage_of(settled.record).first
    if isinstance(result, Processed):
        return Entry(
            at,
            settled.outcome,
            attempts=completed.attempts,
            input_digest=result.input_digest,
            output_digest=result.output_digest,
            remarks=result.remarks,
            replay_of=first,
        )
    if letter is None:
        attempts, digest = completed.attempts, result.input_digest
        return Entry(at, settled.outcome, attempts=attempts, input_digest=digest, replay_of=first)
    return Entry(
        at,
        settled.outcome,
        reason=letter.reason,
        where=letter.where,
        stage=letter.stage,
        attempts=letter.attempts,
        input_digest=result.input_digest,
        replay_of=first,
    )


def with_lines(records: Sequence[Settled], lines: Sequence[bytes]) -> tuple[Settled, ...]:
    """The records with what the audit wrote of each; a log that keeps nothing wrote nothing."""
    if not lines:
        return tuple(records)
    return tuple(replace(item, audit=line) for item, line in zip(records, lines, strict=True))
