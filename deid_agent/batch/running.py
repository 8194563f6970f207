"""Runs units in supervised worker processes, and writes their outputs.

Results are written in the order of the rows: an output has the same bytes in each run.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from deid_agent.agent import Factory, WorkerPool, WorkerSettings
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.audit_parts import Digests, RowAuditor, UnitAudit
from deid_agent.batch.identities import Identities, list_patients
from deid_agent.batch.jobs import FinishedRows, RowJobs
from deid_agent.batch.manifest import AUDIT, OpenManifest, UnitEntry
from deid_agent.batch.output_tables import OutputTable
from deid_agent.batch.outputs import OutputFormat, UnitFile, remove_unfinished
from deid_agent.batch.pacing import Pace
from deid_agent.batch.sampling import Sampler, commit_sample, open_sample
from deid_agent.batch.schema import REFUSED, RefusedRows, check_schema, make_output_schema
from deid_agent.batch.sources import RowChunk, Unit, find_codec, name_faults, read_chunks, read_schema
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError
from deid_agent.model import ConfigurationError, Listing
from deid_agent.telemetry import Telemetry

_IN_FLIGHT = 3
"""Jobs for each worker that are read ahead."""
_DEADLINE_S = 300.0
_SLOW_AFTER_S = 30.0
"""A job of many rows takes seconds: those behind it would be done twice."""
_NOT_TAKEN_BACK = (
    "rows that are in the output table are changed or gone in the input: its old versions keep them, so write to "
    "another table"
)


@dataclass(frozen=True, slots=True)
class UnitTask:
    """A unit to process: its name, the digest of its input, and the numbers of the file when that was computed.

    ``before`` are the rows of the finished units before it.
    """

    unit: Unit
    name: str
    digest: str
    signature: tuple[int, ...]
    before: int = 0


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
    ``output`` is the table to which the outputs are added.
    ``unmatched`` are the identities that no row has.
    """

    table: Table
    build: str
    folder: Path
    format: OutputFormat
    digests: Digests
    identities: Identities = field(default_factory=Identities)
    identities_digest: str = ""
    unmatched: int = 0
    again: bool = False
    sampler: Sampler | None = None
    pace: Pace | None = None
    output: OutputTable | None = None

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
        tasks = self.select(units, manifest, report)
        if tasks:
            self.process(tasks, factory, workers, partial(self.finish, manifest), report, settings)

    def finish(self, manifest: OpenManifest, entry: UnitEntry) -> None:
        """Add a unit to the output table, if there is one, and write its line.

        A kill in between leaves a unit in the table without a line: it is made again, and not added again.
        """
        if self.output is not None:
            self.output.commit(entry)
        manifest.add(entry)

    def process(
        self,
        tasks: Sequence[UnitTask],
        factory: Factory,
        workers: int,
        add: Callable[[UnitEntry], None],
        report: Callable[[UnitReport], None],
        settings: WorkerSettings | None = None,
    ) -> None:
        """Write the outputs of units; pass the entry of each to ``add``, then its end to ``report``."""
        pool = make_pool(factory, workers, settings)
        jobs = RowJobs(pool, RowAuditor(self.digests, self.table.document))
        pace = self.pace or Pace(self.folder)

        async def process(task: UnitTask, most: int | None) -> UnitEntry:
            return await self._run_unit(task, jobs, pace, most)

        asyncio.run(run_units(tasks, process, pool, pace, self.sampler, add, report))

    def select(
        self, units: Sequence[Unit], manifest: OpenManifest, report: Callable[[UnitReport], None]
    ) -> list[UnitTask]:
        """The units that are not finished. Removes unfinished files of earlier runs; raises as ``run``."""
        for folder in (self.folder, self.folder / AUDIT):
            remove_unfinished(folder)
        open_sample(self.sampler, self.folder, manifest.manifest)
        signed: dict[int, tuple[tuple[int, ...], str]] = {}
        left = []
        before = 0
        names = {self.digests.name_unit(unit) for unit in units}
        self._check_versions(units, manifest, names)
        for unit in units:
            number, path = unit.source.number, unit.source.path
            try:
                signed[number] = signed.get(number) or (sign_file(path), self.digests.digest_source(unit.source))
            except UnreadableError as problem:
                report(UnitReport(unit, fault=str(problem)))
                continue
            signature, digest = signed[number]
            name = self.digests.name_unit(unit)
            entry = manifest.find_finished(name, digest, unit.source.shown, again=self.again)
            if entry is not None:
                report(UnitReport(unit, entry, skipped=True))
                self._pin(unit, entry, manifest)
                before += entry.rows
            else:
                self._refuse_replacement(manifest.manifest.units.get(name), digest)
                left.append(UnitTask(unit, name, digest, signature, before))
        if self.again:
            manifest.remove_lost(names, partial(commit_sample, self.sampler))
        return left

    def _check_versions(self, units: Sequence[Unit], manifest: OpenManifest, names: set[str]) -> None:
        """Raises ``ConfigurationError`` for outputs of another version of a table, unless ``again`` allows it."""
        tables = {unit.source.layout.table: unit for unit in units if unit.source.layout is not None}
        for unit in tables.values():
            layout = unit.source.layout
            if layout is not None and not self.again:
                manifest.refuse_other_version(self.digests.name_unit(unit), layout.pinned, unit.source.shown)
        if self.again and self.output is not None and manifest.list_lost(names):
            raise ConfigurationError(_NOT_TAKEN_BACK)

    def _refuse_replacement(self, entry: UnitEntry | None, digest: str) -> None:
        if self.output is not None and entry is not None and entry.file and entry.source != digest:
            raise ConfigurationError(_NOT_TAKEN_BACK)

    def _pin(self, unit: Unit, entry: UnitEntry, manifest: OpenManifest) -> None:
        """Note the version of a table that has the same data file as the one before."""
        layout = unit.source.layout
        if layout is not None and entry.pinned != layout.pinned:
            latest = manifest.manifest.latest
            manifest.add(replace(entry, pinned=layout.pinned, sample=latest.sample if latest is not None else ""))

    async def _run_unit(self, task: UnitTask, jobs: RowJobs, pace: Pace, most: int | None) -> UnitEntry:
        unit = task.unit
        signature = sign_file(unit.source.path)
        if signature[-2:] != task.signature[-2:]:  # the others may differ between machines that share a folder
            raise UnreadableError("the file was changed after the run began")
        schema = await asyncio.to_thread(read_schema, unit.source, self.table)
        check_schema(self.table, schema)
        output = make_output_schema(self.table, schema)
        stem = f"part-{task.name}-{self.build[:8]}"
        file = UnitFile(self.folder, f"{stem}.{self.format.suffix}", output, self.format, find_codec(unit.source))
        chunks = _limit_rows(read_chunks(unit, self.table, schema, self.identities.known), most)
        refused = RefusedRows(output, self.build)
        no_patient = no_identity = 0
        listings: Counter[str] = Counter()
        with file, UnitAudit.begin(self.folder, stem) as audit:
            waiting: deque[tuple[RowChunk, asyncio.Future[FinishedRows]]] = deque()
            while True:
                chunk = await asyncio.to_thread(next, chunks, None)
                if chunk is not None:
                    await pace.wait(chunk.batch.num_rows)
                    patients = list_patients(self.table, chunk.batch)
                    no_patient += sum(patient is None for patient in patients)
                    no_identity += sum(map(self.identities.lacks, patients))
                    contexts = [self.identities.find(patient) for patient in patients]
                    waiting.append((chunk, asyncio.ensure_future(jobs.process(chunk, contexts, refused))))
                while waiting and (chunk is None or len(waiting) >= _IN_FLIGHT * jobs.pool.size):
                    done, future = waiting.popleft()
                    rows = await future
                    listings.update(rows.listings)
                    await asyncio.to_thread(self._write, task, done, rows, file, audit)
                    pace.add(unit, rows.output.num_rows, _count_refused(rows), done.batch.nbytes)
                if chunk is None:
                    break
            if sign_file(unit.source.path) != signature:
                raise UnreadableError("the file was changed while it was read")
            digest = await asyncio.to_thread(file.finish)
            await asyncio.to_thread(audit.finish)
        return UnitEntry(
            task.name,
            task.digest,
            file.name,
            digest,
            audit.rows,
            dict(sorted(audit.refused.items())),
            no_patient,
            self.identities_digest,
            listings[Listing.UNLISTED],
            listings[Listing.CONFLICTING],
            audit=audit.part.name,
            audit_digest=audit.digest,
            root=audit.tree.root.hex(),
            words=audit.words,
            in_texts=audit.in_texts,
            counts=audit.counts,
            sample=await asyncio.to_thread(commit_sample, self.sampler, task.name),
            pinned=unit.source.layout.pinned if unit.source.layout is not None else "",
            no_identity=no_identity,
            unmatched=self.unmatched,
        )

    def _write(self, task: UnitTask, chunk: RowChunk, rows: FinishedRows, file: UnitFile, audit: UnitAudit) -> None:
        if self.sampler is not None:
            self.sampler.offer(task.name, audit.rows, chunk.batch, rows)
        audit.add(rows.audit, rows.changes)
        file.write(rows.output, ends_group=chunk.ends_group)


class PendingUnit(Protocol):
    """A unit to process; ``before`` are the rows of the finished units before it."""

    @property
    def unit(self) -> Unit: ...

    @property
    def before(self) -> int: ...


T = TypeVar("T", bound=PendingUnit)


def make_pool(factory: Factory, workers: int, settings: WorkerSettings | None) -> WorkerPool:
    """The workers of a run, by default with times for jobs of many rows."""
    chosen = settings or WorkerSettings(_DEADLINE_S, attempts=1, slow_after_s=_SLOW_AFTER_S)
    return WorkerPool(factory, workers, Telemetry(), chosen)


async def run_units(
    tasks: Sequence[T],
    process: Callable[[T, int | None], Awaitable[UnitEntry]],
    pool: WorkerPool,
    pace: Pace,
    sampler: Sampler | None,
    add: Callable[[UnitEntry], None],
    report: Callable[[UnitReport], None],
    sizes: Mapping[Unit, int] | None = None,
) -> None:
    """Start the pool and process one unit after the other, each up to a number of rows; pass the entry of each to
    ``add``, then its end to ``report``. ``sizes`` are the bytes of the units if they are known.
    """
    try:
        await pool.start()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(pool.serve())
            pace.begin([task.unit for task in tasks], sizes)
            made = 0
            for task in tasks:
                left = None if pace.limit is None else pace.limit - task.before - made
                if left is not None and left <= 0:
                    report(UnitReport(task.unit, left_out=True))
                    continue
                try:
                    entry = await process(task, left)
                except UnreadableError as problem:
                    pace.end(task.unit)
                    report(UnitReport(task.unit, fault=str(problem)))
                    continue
                finally:
                    if sampler is not None:
                        sampler.discard()
                made += entry.rows
                await asyncio.to_thread(add, entry)
                pace.end(task.unit)
                report(UnitReport(task.unit, entry))
            serving.cancel()
    except BaseExceptionGroup as group_error:
        raise _first_error(group_error) from None
    finally:
        await pool.stop()


def sign_file(path: Path) -> tuple[int, ...]:
    """Numbers that are others once a file was changed or replaced. Raises ``UnreadableError``."""
    with name_faults():
        found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


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
