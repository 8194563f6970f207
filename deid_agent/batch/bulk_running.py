"""Runs the files of a FHIR bulk export in supervised worker processes, and writes NDJSON with a new manifest.

A file is divided into parts at line feeds; each is a unit with an output of its own, as for tables (``running``). A
line that loses two workers is refused as POISON. The outputs of a unit are its lines, and its
refused lines as closed codes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from deid_agent.agent import (
    Completed,
    Coordinates,
    Factory,
    Processed,
    Record,
    Refused,
    Result,
    WorkerPool,
    WorkerSettings,
)
from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_audit import LineAudit, list_cells
from deid_agent.batch.bulk_export import (
    BulkExport,
    FilePart,
    Line,
    SurveyedFile,
    open_lines,
    read_lines,
)
from deid_agent.batch.bulk_lines import LineResult, decode_results, encode_lines
from deid_agent.batch.bulk_outputs import LineCounts, LineFile, make_manifest, write_whole
from deid_agent.batch.manifest import AUDIT, EXPORT, OpenManifest, UnitEntry, name_refusals
from deid_agent.batch.outputs import remove_unfinished
from deid_agent.batch.pacing import Pace
from deid_agent.batch.running import UnitReport, make_pool, run_units
from deid_agent.batch.sampling import Sampler, commit_sample, open_sample
from deid_agent.batch.sources import Unit
from deid_agent.model import Listing, Reason, RecordTime, UnsafeError

_JOB_LINES = 64
_JOB_BYTES = 1 << 20
_IN_FLIGHT = 3


@dataclass(frozen=True, slots=True)
class BulkRun:
    """The files of one run and everything that they share. ``again`` allows files that have changed since.

    With a ``limit`` in ``pace`` only the first lines of the files are read, and units after them are left out.
    """

    export: BulkExport
    build: str
    folder: Path
    digests: Digests
    identities: str
    time: RecordTime
    again: bool = False
    pace: Pace | None = None
    sampler: Sampler | None = None

    def run(
        self,
        files: Sequence[SurveyedFile],
        manifest: OpenManifest,
        factory: Factory,
        workers: int,
        report: Callable[[UnitReport], None],
        settings: WorkerSettings | None = None,
    ) -> None:
        """Process the units that are not finished, report the end of each, and write the manifest of the export.

        Raises ``ConfigurationError`` if a file has changed, before anything is written, or if no worker starts.
        """
        for folder in (self.folder, self.folder / AUDIT):
            remove_unfinished(folder)
        open_sample(self.sampler, self.folder, manifest.manifest)
        left = self._select(files, manifest, report)
        if self.again:
            names = {self.digests.name_unit(part.unit) for file in files for part in file.parts}
            manifest.remove_lost(names, partial(commit_sample, self.sampler))
        if left:
            self._process(left, manifest.add, make_pool(factory, workers, settings), report)
        self._write_manifest(files, manifest)

    def _select(
        self, files: Sequence[SurveyedFile], manifest: OpenManifest, report: Callable[[UnitReport], None]
    ) -> list["_Part"]:
        left = []
        before = 0
        for file in files:
            if file.fault:
                report(UnitReport(Unit(file.source), fault=file.fault))
            for part in file.parts:
                name = self.digests.name_unit(part.unit)
                entry = manifest.find_finished(name, file.digest, file.source.shown, again=self.again)
                if entry is not None:
                    report(UnitReport(part.unit, entry, skipped=True))
                    before += entry.rows
                else:
                    left.append(_Part(file, part, before))
        return left

    def _process(
        self,
        left: Sequence["_Part"],
        add: Callable[[UnitEntry], None],
        pool: WorkerPool,
        report: Callable[[UnitReport], None],
    ) -> None:
        pace, jobs = self.pace or Pace(self.folder), _LineJobs(pool)
        sizes = {each.unit: each.part.end - each.part.start for each in left}

        async def process(each: _Part, most: int | None) -> UnitEntry:
            return await self._run_part(each.file, each.part, jobs, pace, most)

        asyncio.run(run_units(left, process, pool, pace, self.sampler, add, report, sizes))

    async def _run_part(
        self, file: SurveyedFile, part: FilePart, jobs: "_LineJobs", pace: Pace, most: int | None
    ) -> UnitEntry:
        name = self.digests.name_unit(part.unit)
        stem = f"part-{name}-{self.build[:8]}"
        file_name = f"{stem}.ndjson"
        counts = LineCounts()
        with (
            LineFile(self.folder, file_name) as output,
            LineFile(self.folder, name_refusals(file_name)) as refusals,
            LineAudit.begin(self.digests, self.folder, stem) as audit,
            open_lines(file.source.path) as lines,
        ):
            chunks = _divide(islice(read_lines(lines, part.line, part.start, part.end), most))
            write = partial(self._write, name, counts, output, refusals, audit)
            waiting: deque[tuple[list[Line], asyncio.Future[list[LineResult]]]] = deque()
            while True:
                chunk = await asyncio.to_thread(next, chunks, None)
                if chunk is not None:
                    await pace.wait(len(chunk))
                    waiting.append((chunk, asyncio.ensure_future(jobs.process([line.content for line in chunk]))))
                while waiting and (chunk is None or len(waiting) >= _IN_FLIGHT * jobs.pool.size):
                    done, future = waiting.popleft()
                    results = await future
                    await asyncio.to_thread(write, done, results)
                    size = sum(len(line.content or b"") for line in done)
                    pace.add(part.unit, len(done), sum(bool(each.reason) for each in results), size)
                if chunk is None:
                    break
            file.check_unchanged()
            refused = await asyncio.to_thread(refusals.finish) if refusals.lines else ""
            if not refused:
                (self.folder / refusals.name).unlink(missing_ok=True)
            digest = await asyncio.to_thread(output.finish)
            await asyncio.to_thread(audit.finish)
        return UnitEntry(
            unit=name,
            source=file.digest,
            file=file_name,
            digest=digest,
            rows=output.lines + refusals.lines,
            refused=dict(sorted(audit.refused.items())),
            no_patient=counts.no_patient,
            identities=self.identities,
            types=dict(sorted(counts.types.items())),
            refusals=refused,
            unlisted=counts.listings[Listing.UNLISTED],
            conflicting=counts.listings[Listing.CONFLICTING],
            role=self.export.role(file.source).value,
            audit=audit.file.name,
            audit_digest=audit.digest,
            root=audit.tree.root.hex(),
            words=audit.words,
            in_texts=audit.in_texts,
            counts=audit.counts,
            sample=await asyncio.to_thread(commit_sample, self.sampler, name),
        )

    def _write(
        self,
        name: str,
        counts: LineCounts,
        output: LineFile,
        refusals: LineFile,
        audit: LineAudit,
        lines: Sequence[Line],
        results: Sequence[LineResult],
    ) -> None:
        """Write the results of some lines, with their audit, and offer them to the sample."""
        for line, result in zip(lines, results, strict=True):
            digest = audit.add(line.content, result)
            if self.sampler is not None and line.content is not None and not result.reason:
                cells = partial(list_cells, line.content, result.content)
                self.sampler.offer_row(name, output.lines, digest, cells)
            counts.write(line.number, result, output, refusals)

    def _write_manifest(self, files: Sequence[SurveyedFile], manifest: OpenManifest) -> None:
        """Write the manifest of the export for all outputs that are complete, also those of earlier runs."""
        units = manifest.manifest.units
        first = {file.source.name: self.digests.name_unit(file.parts[0].unit) for file in files if file.parts}
        following: dict[str, str] = {}
        for file in files:
            after = units.get(first.get(self.export.continues.get(file.source.name, ""), ""))
            if file.parts and after is not None and after.types:
                following[self.digests.name_unit(file.parts[-1].unit)] = after.file
        made = [entry for entry in manifest.manifest.finished if entry.is_in(self.folder)]
        write_whole(self.folder / EXPORT, make_manifest(self.export, made, following, self.build, self.time))


def _divide(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each job."""
    chunk: list[Line] = []
    size = 0
    for line in lines:
        own = len(line.content or b"")
        if chunk and (len(chunk) == _JOB_LINES or size + own > _JOB_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += own
    if chunk:
        yield chunk


@dataclass(frozen=True, slots=True)
class _Part:
    """A part to process; ``before`` are the lines of the finished ones before it."""

    file: SurveyedFile
    part: FilePart
    before: int

    @property
    def unit(self) -> Unit:
        return self.part.unit


@dataclass(slots=True)
class _LineJobs:
    """Submits jobs to the pool."""

    pool: WorkerPool
    number: int = 0

    async def process(self, lines: Sequence[bytes | None]) -> list[LineResult]:
        """The result of each line; of None, a line that is too long, a refusal."""
        given = [line for line in lines if line is not None]
        done = iter(await self._process(given) if given else [])
        return [LineResult(reason=Reason.RESOURCE.value) if line is None else next(done) for line in lines]

    async def _process(self, lines: Sequence[bytes]) -> list[LineResult]:
        result = await self._submit(encode_lines(lines))
        if isinstance(result, Processed):
            results = decode_results(result.payload)
            if len(results) != len(lines) or any(b"\n" in each.content for each in results):
                raise UnsafeError("a worker answered with other lines than it was given")
            return results
        if len(lines) == 1:
            reason = result.reason if isinstance(result, Refused) else Reason.INTERNAL
            return [LineResult(reason=reason.value)]
        return [each for line in lines for each in await self._process([line])]

    async def _submit(self, payload: bytes) -> Result:
        done: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

        def finish(_: Record, completed: Completed) -> None:
            if not done.done():
                done.set_result(completed)

        self.number += 1
        self.pool.submit(Record(Coordinates("lines", 0, self.number), payload), finish)
        return (await done).result
