"""Runs units in supervised worker processes, and writes their outputs.

A job is some rows. A job whose worker dies or hangs is divided into jobs of one row, and the row that loses a second
worker is refused as POISON. Results are written in the order of the rows: an output has the same bytes in each run.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from deid_agent.agent import (
    Completed,
    Coordinates,
    Factory,
    Job,
    Process,
    Processed,
    Record,
    Refused,
    Result,
    WorkerPool,
    WorkerSettings,
)
from deid_agent.app import WorkerFactory
from deid_agent.batch.arrow import decode_type, load_arrow
from deid_agent.batch.cells import read_cells
from deid_agent.batch.identities import Identities
from deid_agent.batch.manifest import OpenManifest, UnitEntry
from deid_agent.batch.outputs import OutputFormat, UnitFile, decode_batch, encode_batch, remove_unfinished
from deid_agent.batch.rows import REFUSED, RowDeidentifier, Rows
from deid_agent.batch.schema import OUTCOME, check_schema, make_output_schema
from deid_agent.batch.sources import RowChunk, Unit, find_codec, name_faults, read_chunks, read_schema
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, Listing, Reason, UnsafeError
from deid_agent.telemetry import Telemetry

if TYPE_CHECKING:
    import pyarrow as pa

_IN_FLIGHT = 3
"""Jobs for each worker that are read ahead."""
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class RowWorkerFactory:
    """Builds the job callable of a worker for the rows of a table."""

    parts: WorkerFactory
    table: Table
    build: str

    def __call__(self) -> Process:
        """The loaded job callable."""
        load_arrow().set_cpu_count(1)
        return RowWorker(RowDeidentifier.of(self.table, self.parts.deidentifier(notes_only=True), self.build))


@dataclass(frozen=True, slots=True)
class RowWorker:
    """De-identifies rows in the form of jobs."""

    rows: RowDeidentifier

    def __call__(self, job: Job) -> Result:
        """The sanitized rows of one job."""
        end = 4 + int.from_bytes(job.payload[:4], "big")
        contexts, faults = orjson.loads(job.payload[4:end])
        batch = decode_batch(job.payload[end:])
        listings: Counter[str] = Counter()
        done = self.rows.process(Rows(batch, contexts, faults), listings)
        return Processed(encode_batch(done), patients=tuple(listings.items()))


@dataclass(frozen=True, slots=True)
class Digests:
    """Keyed digests of names and contents of inputs: without the key nobody can confirm a guess of them."""

    key: SecretKey = field(repr=False)

    def _secret(self, use: bytes) -> bytes:
        return hashlib.blake2b(self.key.secret, person=use, digest_size=32).digest()

    def name_unit(self, unit: Unit) -> str:
        """The name of a unit."""
        name = unit.source.name.encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(name, key=self._secret(b"deid-batch-name"), digest_size=8).hexdigest()
        return f"{digest}-{unit.first:05d}"

    def start(self) -> "hashlib.blake2b":
        """The empty digest of a content."""
        return hashlib.blake2b(key=self._secret(b"deid-batch-file"), digest_size=16)

    def digest_file(self, path: Path) -> str:
        """The digest of a file. Raises ``UnreadableError``, since an ``OSError`` has the name of the file."""
        digest = self.start()
        with name_faults(), path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class UnitReport:
    """The end of a unit: its entry, or why it has none. ``skipped`` was finished before."""

    unit: Unit
    entry: UnitEntry | None = None
    fault: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The units of one run and everything that they share. ``again`` allows inputs that have changed since."""

    table: Table
    build: str
    folder: Path
    format: OutputFormat
    digests: Digests
    identities: Identities = field(default_factory=Identities)
    identities_digest: str = ""
    again: bool = False

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
        remove_unfinished(self.folder)
        left = self._select(units, manifest, report)
        if self.again:
            self._retire(units, manifest)
        if left:
            chosen = settings or WorkerSettings(deadline_s=_DEADLINE_S, attempts=1)
            asyncio.run(self._run(left, manifest, WorkerPool(factory, workers, Telemetry(), chosen), report))

    def _select(
        self, units: Sequence[Unit], manifest: OpenManifest, report: Callable[[UnitReport], None]
    ) -> list[tuple[Unit, str, str]]:
        """The units to process, each with its name and the digest of its input."""
        digests: dict[int, str] = {}
        left = []
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
            else:
                left.append((unit, name, digests[number]))
        return left

    def _retire(self, units: Sequence[Unit], manifest: OpenManifest) -> None:
        """Remove the outputs of parts that a changed input no longer has."""
        names = {self.digests.name_unit(unit) for unit in units}
        sources = {name.partition("-")[0] for name in names}
        for name, entry in list(manifest.manifest.units.items()):
            if name not in names and name.partition("-")[0] in sources and entry.file:
                manifest.add(replace(entry, file="", digest="", rows=0, refused={}, no_patient=0))
                (self.folder / entry.file).unlink(missing_ok=True)

    async def _run(
        self,
        units: Sequence[tuple[Unit, str, str]],
        manifest: OpenManifest,
        pool: WorkerPool,
        report: Callable[[UnitReport], None],
    ) -> None:
        try:
            await pool.start()
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(pool.serve())
                jobs = _Jobs(pool)
                for unit, name, digest in units:
                    try:
                        entry = await self._run_unit(unit, name, digest, jobs)
                    except UnreadableError as problem:
                        report(UnitReport(unit, fault=str(problem)))
                        continue
                    await asyncio.to_thread(manifest.add, entry)
                    report(UnitReport(unit, entry))
                serving.cancel()
        except BaseExceptionGroup as group_error:
            raise _first_error(group_error) from None
        finally:
            await pool.stop()

    async def _run_unit(self, unit: Unit, name: str, digest: str, jobs: "_Jobs") -> UnitEntry:
        signature = sign_file(unit.source.path)
        schema = await asyncio.to_thread(read_schema, unit.source, self.table)
        check_schema(self.table, schema)
        output = make_output_schema(self.table, schema)
        file_name = f"part-{name}-{self.build[:8]}.{self.format}"
        chunks = read_chunks(unit, self.table, schema)
        before = jobs.listings.copy()
        rows = no_patient = 0
        refused: Counter[str] = Counter()
        with UnitFile(self.folder, file_name, output, self.format, find_codec(unit.source)) as file:
            waiting: deque[tuple[RowChunk, asyncio.Future[pa.RecordBatch]]] = deque()
            while True:
                chunk = await asyncio.to_thread(next, chunks, None)
                if chunk is not None:
                    patients = self._list_patients(chunk)
                    no_patient += sum(patient is None for patient in patients)
                    contexts = [self.identities.find(patient) for patient in patients]
                    work = jobs.process(chunk, contexts, _RefusedRows(output, self.build))
                    waiting.append((chunk, asyncio.ensure_future(work)))
                while waiting and (chunk is None or len(waiting) >= _IN_FLIGHT * jobs.pool.size):
                    done, future = waiting.popleft()
                    batch = await future
                    rows += batch.num_rows
                    refused.update(_count_refusals(batch))
                    await asyncio.to_thread(file.write, batch, ends_group=done.ends_group)
                if chunk is None:
                    break
            if sign_file(unit.source.path) != signature:
                raise UnreadableError("the file was changed while it was read")
            digest_of_output = await asyncio.to_thread(file.finish)
        counts = dict(sorted(refused.items()))
        listings = jobs.listings - before
        return UnitEntry(
            name,
            digest,
            file_name,
            digest_of_output,
            rows,
            counts,
            no_patient,
            self.identities_digest,
            listings[Listing.UNLISTED],
            listings[Listing.CONFLICTING],
        )

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


def _count_refusals(batch: "pa.RecordBatch") -> Iterator[str]:
    outcomes = batch.column(batch.num_columns - 1)
    for each in outcomes.to_pylist():
        if each["outcome"] == REFUSED:
            yield each["reason"]


@dataclass(frozen=True, slots=True)
class _RefusedRows:
    """Makes the output of rows that no worker could process: nothing but the outcome."""

    schema: "pa.Schema"
    build: str

    def make(self, reason: Reason, where: str, count: int = 1) -> "pa.RecordBatch":
        pa = load_arrow()
        outcome = {"outcome": REFUSED, "reason": reason.value, "where": where or None, "build": self.build}
        arrays = [
            pa.array([outcome] * count, column.type) if column.name == OUTCOME else pa.nulls(count, column.type)
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(slots=True)
class _Jobs:
    """Submits jobs to the pool. ``listings`` counts rows by what the scope table has of their patients."""

    pool: WorkerPool
    number: int = 0
    listings: Counter[str] = field(default_factory=Counter)

    async def process(self, chunk: RowChunk, contexts: Sequence[object], refused: _RefusedRows) -> "pa.RecordBatch":
        """The sanitized rows of a chunk."""
        batch = chunk.batch
        result = await self._submit(batch, contexts, chunk.faults)
        if isinstance(result, Processed):
            done = decode_batch(result.payload)
            if done.num_rows != batch.num_rows or done.schema != refused.schema:
                raise UnsafeError("a worker answered with other rows than it was given")
            self.listings.update(dict(result.patients))
            return done
        if batch.num_rows == 1:
            reason = result.reason if isinstance(result, Refused) else Reason.INTERNAL
            return refused.make(reason, "row")
        # Not slice: it would send bytes of the rows beside it.
        parts = [
            await self.process(
                RowChunk(batch.take(load_arrow().array([n])), chunk.faults[n : n + 1]), contexts[n : n + 1], refused
            )
            for n in range(batch.num_rows)
        ]
        return load_arrow().concat_batches(parts)

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


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def describe_refusals(refused: Mapping[str, int]) -> str:
    """Refused rows by reason in one line."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(refused.items())) or "none"
