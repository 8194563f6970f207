"""Runs units in supervised worker processes, and writes their outputs.

Results are written in the order of the rows: an output has the same bytes in each run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deid_agent.agent import Factory, WorkerPool, WorkerSettings
from deid_agent.batch.arrow import decode_type, load_arrow
from deid_agent.batch.audit_parts import Digests, RowAuditor, UnitAudit
from deid_agent.batch.cells import read_cells
from deid_agent.batch.identities import Identities
from deid_agent.batch.jobs import FinishedRows, RefusedRows, RowJobs
from deid_agent.batch.manifest import AUDIT, OpenManifest, UnitEntry
from deid_agent.batch.outputs import OutputFormat, UnitFile, remove_unfinished
from deid_agent.batch.pacing import Pace
from deid_agent.batch.row_state import REFUSED
from deid_agent.batch.sampling import Sampler, refuse_missing_sampler
from deid_agent.batch.schema import check_schema, make_output_schema
from deid_agent.batch.sources import RowChunk, Unit, find_codec, name_faults, read_chunks, read_schema
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry

if TYPE_CHECKING:
    pass

_IN_FLIGHT = 3
"""Jobs for each worker that are read ahead."""
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class UnitReport:
    """The end of a unit: its entry, or why it has none. ``skipped`` was finished before.

    ``left_out`` is after the limit of rows.
    """

    unit: Unit
    entry: UnitEntry | None = None
    fault: str = ""
    skipped: bool = False
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The units of one run and everything that they share. ``again`` allows inputs that have changed since.

    With a ``limit`` in ``pace`` only the first rows of the units are read, and units after them are left out.
    """

    table: Table
    build: str
    folder: Path
    format: OutputFormat
    digests: Digests
    identities: Identities = field(default_factory=Identities)
    identities_digest: str = ""
    again: bool = False
    sampler: Sampler | None = None
    pace: Pace | None = None

    def run(
        self,
        units: Sequence[Unit],
        manifest: OpenManifest,
        factory: Factory,
        workers: int,
        report: Callable[[UnitReport], None],
        settings: WorkerSettings | None = None,
    ) -> None:
        """Process the units that are not finished, and report the end of each.

        Raises ``ConfigurationError`` if an input has changed, before anything is written, or if no worker starts.
        """
        for folder in (self.folder, self.folder / AUDIT):
            remove_unfinished(folder)
        if self.sampler is not None:
            self.sampler.open(manifest.manifest)
        else:
            refuse_missing_sampler(self.folder)
        left = self._select(units, manifest, report)
        if self.again:
            self._retire(units, manifest)
        if left:
            chosen = settings or WorkerSettings(deadline_s=_DEADLINE_S, attempts=1)
            asyncio.run(self._run(left, manifest, WorkerPool(factory, workers, Telemetry(), chosen), report))

    def _select(
        self, units: Sequence[Unit], manifest: OpenManifest, report: Callable[[UnitReport], None]
    ) -> list["_Work"]:
        """The units to process."""
        digests: dict[int, str] = {}
        left = []
        before = 0
        for unit in units:
            number = unit.source.number
            try:
                digests[number] = digests.get(number) or self.digests.digest_file(unit.source.path)
            except UnreadableError as problem:
                report(UnitReport(unit, fault=str(problem)))
                continue
            name = self.digests.name_unit(unit)
            entry = manifest.manifest.units.get(name)
            if entry is not None and entry.source != digests[number] and not self.again:
                raise ConfigurationError(
                    f"{unit.source.shown}: changed since its output was written; use --again to replace the output, "
                    "or rename the input"
                )
            if entry is not None and entry.source == digests[number] and entry.is_in(self.folder):
                report(UnitReport(unit, entry, skipped=True))
                before += entry.rows
            else:
                left.append(_Work(unit, name, digests[number], before))
        return left

    def _retire(self, units: Sequence[Unit], manifest: OpenManifest) -> None:
        """Remove the outputs of parts that a changed input no longer has."""
        names = {self.digests.name_unit(unit) for unit in units}
        sources = {name.partition("-")[0] for name in names}
        for name, entry in list(manifest.manifest.units.items()):
            if name not in names and name.partition("-")[0] in sources and entry.file:
                sample = self.sampler.commit(name) if self.sampler is not None else ""
                manifest.add(entry.removed(sample))
                for path in (self.folder / entry.file, self.folder / AUDIT / entry.audit):
                    path.unlink(missing_ok=True)

    async def _run(
        self,
        units: Sequence["_Work"],
        manifest: OpenManifest,
        pool: WorkerPool,
        report: Callable[[UnitReport], None],
    ) -> None:
        pace = self.pace or Pace(self.folder)
        try:
            await pool.start()
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(pool.serve())
                jobs = RowJobs(pool, RowAuditor(self.digests, self.table.document))
                pace.begin([work.unit for work in units])
                made = 0
                for work in units:
                    left = None if pace.limit is None else pace.limit - work.before - made
                    if left is not None and left <= 0:
                        report(UnitReport(work.unit, left_out=True))
                        continue
                    try:
                        entry = await self._run_unit(work, jobs, pace, left)
                    except UnreadableError as problem:
                        pace.end(work.unit)
                        report(UnitReport(work.unit, fault=str(problem)))
                        continue
                    finally:
                        if self.sampler is not None:
                            self.sampler.discard()
                    made += entry.rows
                    await asyncio.to_thread(manifest.add, entry)
                    pace.end(work.unit)
                    report(UnitReport(work.unit, entry))
                serving.cancel()
        except BaseExceptionGroup as group_error:
            raise _first_error(group_error) from None
        finally:
            await pool.stop()

    async def _run_unit(self, work: "_Work", jobs: RowJobs, pace: Pace, most: int | None) -> UnitEntry:
        unit = work.unit
        signature = sign_file(unit.source.path)
        schema = await asyncio.to_thread(read_schema, unit.source, self.table)
        check_schema(self.table, schema)
        output = make_output_schema(self.table, schema)
        stem = f"part-{work.name}-{self.build[:8]}"
        file = UnitFile(self.folder, f"{stem}.{self.format}", output, self.format, find_codec(unit.source))
        chunks = _limit_rows(read_chunks(unit, self.table, schema), most)
        refused = RefusedRows(output, self.build)
        no_patient = 0
        with file, UnitAudit.begin(self.folder, stem) as audit:
            waiting: deque[tuple[RowChunk, asyncio.Future[FinishedRows]]] = deque()
            while True:
                chunk = await asyncio.to_thread(next, chunks, None)
                if chunk is not None:
                    await pace.wait(chunk.batch.num_rows)
                    patients = self._list_patients(chunk)
                    no_patient += sum(patient is None for patient in patients)
                    contexts = [self.identities.find(patient) for patient in patients]
                    waiting.append((chunk, asyncio.ensure_future(jobs.process(chunk, contexts, refused))))
                while waiting and (chunk is None or len(waiting) >= _IN_FLIGHT * jobs.pool.size):
                    done, future = waiting.popleft()
                    rows = await future
                    await asyncio.to_thread(self._write, work, done, rows, file, audit)
                    pace.add(unit, rows.output.num_rows, _count_refused(rows), done.batch.nbytes)
                if chunk is None:
                    break
            if sign_file(unit.source.path) != signature:
                raise UnreadableError("the file was changed while it was read")
            digest = await asyncio.to_thread(file.finish)
            await asyncio.to_thread(audit.finish)
        return UnitEntry(
            work.name,
            work.source,
            file.name,
            digest,
            audit.rows,
            dict(sorted(audit.refused.items())),
            no_patient,
            self.identities_digest,
            audit=audit.part.name,
            audit_digest=audit.digest,
            root=audit.tree.root.hex(),
            words=audit.words,
            in_texts=audit.in_texts,
            counts=audit.counts,
            sample=await asyncio.to_thread(self.sampler.commit, work.name) if self.sampler is not None else "",
        )

    def _write(self, work: "_Work", chunk: RowChunk, rows: FinishedRows, file: UnitFile, audit: UnitAudit) -> None:
        if self.sampler is not None:
            self.sampler.offer(work.name, audit.rows, chunk.batch, rows)
        audit.add(rows.audit, rows.changes)
        file.write(rows.output, ends_group=chunk.ends_group)

    def _list_patients(self, chunk: RowChunk) -> list[object]:
        """The patient of each row; None for an unknown one."""
        for column, array in zip(chunk.batch.schema, chunk.batch.columns, strict=True):
            if column.name.lower() == self.table.patient:
                values = read_cells(array, decode_type(column.type), column.name, [None] * len(array))
                return [None if value == "" else value for value in values]
        return [None] * chunk.batch.num_rows


def sign_file(path: Path) -> tuple[int, ...]:
    """Numbers that are others once a file was changed or replaced. Raises ``UnreadableError``."""
    with name_faults():
        found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class _Work:
    """A unit to process: its name, the digest of its input, and the rows of the finished units before it."""

    unit: Unit
    name: str
    source: str
    before: int


def _limit_rows(chunks: Iterator[RowChunk], most: int | None) -> Iterator[RowChunk]:
    """The chunks up to ``most`` rows."""
    for chunk in chunks:
        if most is not None and chunk.batch.num_rows >= most:
            # Not slice: it would send bytes of the rows beside it.
            batch = chunk.batch.take(load_arrow().array(range(most)))
            yield RowChunk(batch, chunk.faults[:most], ends_group=True)
            return
        most = None if most is None else most - chunk.batch.num_rows
        yield chunk


def _count_refused(rows: FinishedRows) -> int:
    return sum(outcome == REFUSED for outcome in rows.audit.column("outcome").to_pylist())


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def describe_refusals(refused: Mapping[str, int]) -> str:
    """Refused rows by reason in one line."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(refused.items())) or "none"
