"""Rows as jobs of supervised worker processes.

A job is some rows. A job whose worker dies or hangs is divided into jobs of one row, and the row that loses a second
worker is refused as POISON.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from deid_agent.agent import Completed, Coordinates, Job, Process, Processed, Record, Refused, Result, WorkerPool
from deid_agent.app import WorkerFactory
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.audit_parts import Digests, RowAuditor, sum_changes
from deid_agent.batch.outputs import decode_batch, encode_batch
from deid_agent.batch.row_state import ChangeKey, RowCounts
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.schema import RefusedRows
from deid_agent.batch.sources import RowChunk
from deid_agent.batch.tables import Table
from deid_agent.model import Listing, Reason, UnsafeError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowWorkerFactory:
    """Builds the job callable of a worker for the rows of a table."""

    parts: WorkerFactory
    table: Table
    build: str

    def __call__(self) -> Process:
        """The loaded job callable."""
        load_arrow().set_cpu_count(1)
        rows = RowDeidentifier.of(self.table, self.parts.deidentifier(notes_only=True), self.build)
        return RowWorker(rows, RowAuditor(Digests(self.parts.key), self.table.document))


@dataclass(frozen=True, slots=True)
class RowWorker:
    """De-identifies rows in the form of jobs."""

    rows: RowDeidentifier
    auditor: RowAuditor

    def __call__(self, job: Job) -> Result:
        """The sanitized rows of one job, their audit, and the sum of their replacements."""
        end = 4 + int.from_bytes(job.payload[:4], "big")
        contexts, faults = orjson.loads(job.payload[4:end])
        batch = decode_batch(job.payload[end:])
        output, counts = self.rows.process_counted(Rows(batch, contexts, faults))
        data = encode_batch(output)
        audit = encode_batch(self.auditor.audit(batch, output, counts))
        changes = orjson.dumps(list(sum_changes(counts).items()))
        patients = tuple(count_listings(counts).items())
        return Processed(len(data).to_bytes(8, "big") + data + audit, remarks=changes, patients=patients)


@dataclass(frozen=True, slots=True)
class FinishedRows:
    """The sanitized rows of a job, their audit, and the sum of their replacements.

    ``listings`` counts the rows by the listing of their patients in the scope table.
    """

    output: "pa.RecordBatch"
    audit: "pa.RecordBatch"
    changes: Sequence[tuple[ChangeKey, int]] = ()
    listings: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, result: Processed) -> "FinishedRows":
        """The rows in the answer of a ``RowWorker``."""
        end = 8 + int.from_bytes(result.payload[:8], "big")
        changes = [(tuple(key), count) for key, count in orjson.loads(result.remarks)]
        listings = Counter(dict(result.patients))
        return cls(decode_batch(result.payload[8:end]), decode_batch(result.payload[end:]), changes, listings)

    @classmethod
    def join(cls, parts: Sequence["FinishedRows"]) -> "FinishedRows":
        """The rows of several jobs in their order."""
        pa = load_arrow()
        output, audit = ([getattr(part, name) for part in parts] for name in ("output", "audit"))
        changes = [change for part in parts for change in part.changes]
        listings = Counter[str]()
        for part in parts:
            listings.update(part.listings)
        return cls(pa.concat_batches(output), pa.concat_batches(audit), changes, listings)


def count_listings(counts: Iterable[RowCounts]) -> Counter[str]:
    """The rows of patients by their listing; none without a scope table."""
    found = (each.listing for each in counts)
    return Counter(each.value for each in found if each is not None and each is not Listing.NOBODY)


@dataclass(slots=True)
class RowJobs:
    """Submits jobs to the pool."""

    pool: WorkerPool
    auditor: RowAuditor
    number: int = 0

    async def process(
        self, chunk: RowChunk, contexts: Sequence[Mapping[str, object] | object], refused: RefusedRows
    ) -> FinishedRows:
        """The sanitized rows of a chunk."""
        batch = chunk.batch
        result = await self._submit(batch, contexts, chunk.faults)
        if isinstance(result, Processed):
            done = FinishedRows.read(result)
            same = done.output.num_rows == done.audit.num_rows == batch.num_rows
            if not same or done.output.schema != refused.schema:
                raise UnsafeError("a worker answered with other rows than it was given")
            return done
        if batch.num_rows == 1:
            reason = result.reason if isinstance(result, Refused) else Reason.INTERNAL
            output = refused.make(reason, "row")
            return FinishedRows(output, self.auditor.audit(batch, output))
        # Not slice: it would send bytes of the rows beside it.
        return FinishedRows.join(
            [
                await self.process(
                    RowChunk(batch.take(load_arrow().array([n])), chunk.faults[n : n + 1]), contexts[n : n + 1], refused
                )
                for n in range(batch.num_rows)
            ]
        )

    async def _submit(
        self, batch: "pa.RecordBatch", contexts: Sequence[object], faults: Sequence[str | None]
    ) -> Result:
        head = orjson.dumps([contexts, faults])
        payload = len(head).to_bytes(4, "big") + head + encode_batch(batch)
        done: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

        def finish(_: Record, completed: Completed) -> None:
            if not done.done():
                done.set_result(completed)

        self.number += 1
        self.pool.submit(Record(Coordinates("rows", 0, self.number), payload), finish)
        return (await done).result
