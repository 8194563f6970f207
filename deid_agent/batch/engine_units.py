"""Units as tasks of an engine: it distributes names of units, and each task writes its file as a local run does.

No text passes through the engine. A task has a supervised worker of its own, so a row that kills it is refused and the
task goes on. The driver alone writes the manifest, as results arrive. A task that the engine runs twice writes the
same bytes under the same name, so retries and speculation do no harm.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from deid_agent.agent import Factory, WorkerSettings
from deid_agent.app import WorkerFactory
from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.identities import Identities, read_identities
from deid_agent.batch.jobs import RowWorkerFactory
from deid_agent.batch.manifest import OpenManifest, UnitEntry
from deid_agent.batch.outputs import OutputFormat
from deid_agent.batch.running import BatchRun, UnitReport, UnitTask
from deid_agent.batch.sources import Unit, make_source
from deid_agent.batch.systems import EngineSystem, make_head, require_build
from deid_agent.batch.tables import Table
from deid_agent.model import ConfigurationError, DeidError, UnsafeError, describe_exception


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of a task: the entry of its unit, or the fault of its input, or why the whole run must stop."""

    name: str
    entry: UnitEntry | None = None
    fault: str = ""
    stop: str = ""


@dataclass(frozen=True, slots=True)
class UnitWork:
    """The work of all tasks of a run. It is sent to the processes of an engine, and holds paths and no key."""

    table: Table
    system: EngineSystem
    build: str
    folder: str
    format: OutputFormat
    unit_mib: int
    identities: str | None = None
    identities_digest: str = ""
    settings: WorkerSettings | None = None

    def __call__(self, task: UnitTask) -> UnitResult:
        """The result of a task. Raises ``UnsafeError`` without a value if the engine should try it again."""
        result, fault = UnitResult(task.name), ""
        try:
            result = self._run(task)
        except ConfigurationError as problem:
            result = UnitResult(task.name, stop=str(problem))
        except DeidError as problem:
            fault = str(problem)
        except Exception as problem:  # noqa: BLE001 - the boundary: the engine would log its text
            fault = describe_exception(problem)
        if fault:  # not inside the handler: the error would carry the other one with it
            raise UnsafeError(f"unit {task.name}: {fault}")
        return result

    def make_factory(self, parts: WorkerFactory) -> Factory:
        """Builds the worker of a task."""
        return RowWorkerFactory(parts, self.table, self.build)

    def _run(self, task: UnitTask) -> UnitResult:
        parts = self.system.make_parts()
        require_build(self.build, make_head(self.table, parts, self.format, self.unit_mib).build)
        folder = Path(self.folder)
        if not folder.is_dir():
            raise ConfigurationError("OUT is not there on a machine of the engine: name a folder that all share")
        work = BatchRun(
            table=self.table,
            build=self.build,
            folder=folder,
            format=self.format,
            digests=Digests(parts.key),
            identities=self._read_identities(parts),
            identities_digest=self.identities_digest,
        )
        ends: list[UnitReport] = []
        work.process([task], self.make_factory(parts), 1, lambda _: None, ends.append, self.settings)
        return UnitResult(task.name, ends[0].entry, ends[0].fault)

    def _read_identities(self, parts: WorkerFactory) -> Identities:
        if self.identities is None or self.table.person is None:
            return Identities()
        source = make_source(Path(self.identities))
        if Digests(parts.key).digest_file(source.path) != self.identities_digest:
            raise ConfigurationError(
                "identities: the file on a machine of the engine is another than that of the driver"
            )
        return read_identities(source, self.table.person)


class UnitEngine(Protocol):
    """Distributes tasks to processes."""

    def run(self, work: UnitWork, tasks: Sequence[UnitTask]) -> Iterator[UnitResult]:
        """The results as they arrive; a result may arrive twice.

        Raises ``UnsafeError`` if the engine gives a task up.
        """
        ...

    def close(self) -> None:
        """End everything that was started for the run."""
        ...


def run_on_engine(
    run: BatchRun,
    units: Sequence[Unit],
    manifest: OpenManifest,
    engine: UnitEngine,
    work: UnitWork,
    report: Callable[[UnitReport], None],
) -> None:
    """Process the units that are not finished on an engine, and report the end of each.

    Raises ``ConfigurationError`` as ``BatchRun.run``, or if a machine of the engine has another system or folder;
    ``UnsafeError`` if the engine gives a task up. The results so far are in the manifest then.
    """
    tasks = run.select(units, manifest, report)
    left = {task.name: task for task in tasks}
    if not tasks:
        return
    for result in engine.run(work, [replace(task, unit=_resolve(task.unit)) for task in tasks]):
        if result.stop:
            raise ConfigurationError(result.stop)
        task = left.pop(result.name, None)
        if task is None:
            continue
        if result.entry is None:
            report(UnitReport(task.unit, fault=result.fault))
            continue
        if not result.entry.is_in(run.folder):
            raise ConfigurationError("OUT: the output of a task is not in it: name a folder that all machines share")
        entry = replace(result.entry, unmatched=run.unmatched)
        run.finish(manifest, entry)
        report(UnitReport(task.unit, entry))
    if left:
        raise UnsafeError(f"the engine returned no result for {len(left)} of {len(tasks)} units: run it again")


def _resolve(unit: Unit) -> Unit:
    return replace(unit, source=replace(unit.source, path=Path(os.path.abspath(unit.source.path))))  # noqa: PTH100
