"""Units as tasks: results in the driver, faults in a task. Real engines are in tests/system."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.keys import KEY, OTHER_KEY
from support.scope_tables import build
from support.tables import parts

from deid_agent.batch import (
    BatchRun,
    Digests,
    EngineSystem,
    Head,
    OpenManifest,
    OpenTrail,
    OutputFormat,
    RowWorkerFactory,
    Table,
    UnitEntry,
    UnitReport,
    UnitWork,
    list_sources,
    make_head,
    read_manifest,
    run_on_engine,
    verify_folder,
)
from deid_agent.batch.engine_units import UnitResult
from deid_agent.batch.ray_engine import load_ray
from deid_agent.batch.running import UnitTask
from deid_agent.batch.sources import Unit
from deid_agent.batch.spark_engine import find_own_error, load_spark
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, UnsafeError
from deid_agent.pipeline import ScopeTableFile

pytest.importorskip("pyarrow")
TABLE = Table.load("omop/note")
CANARY = "Quixwell"
PARTS = replace(parts(), key=SecretKey(KEY))
HEAD = make_head(TABLE, PARTS, OutputFormat.CSV)
Answer = Callable[[UnitTask], list[UnitResult]]


class Engine:
    """An engine in this process, which sends everything through pickle."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer

    def run(self, work: UnitWork, tasks: Sequence[UnitTask]) -> Iterator[UnitResult]:
        for task in tasks:
            sent, one = pickle.loads(pickle.dumps((work, task)))  # noqa: S301 - our own bytes
            yield from [sent(one)] if self.answer is None else self.answer(one)

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for n in range(2):
        (tmp_path / "in" / f"{CANARY}-{n}.csv").write_text(
            f"note_id,person_id,note_text\n{n},{9 + n},{CANARY} slept 3/4/2019.\n"
        )
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "out").mkdir()
    return tmp_path


def make_work(folder: Path, head: Head = HEAD, scope_table: str | None = None) -> UnitWork:
    system = EngineSystem(key_file=str(folder / "key"), system="rules", scope_table=scope_table)
    return UnitWork(TABLE, system, head.build, str(folder / "out"), OutputFormat.CSV, 32)


class Commits:
    """An output table that notes its units, and the lines of the manifest at the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[tuple[str, int]] = []

    def commit(self, entry: UnitEntry) -> None:
        self.made.append((entry.unit, (self.folder / "_manifest.jsonl").read_bytes().count(b"\n")))


def run(
    folder: Path,
    engine: Engine,
    work: UnitWork | None = None,
    head: Head = HEAD,
    output: Commits | None = None,
) -> list[UnitReport]:
    sources, _ = list_sources([folder / "in"])
    own = BatchRun(TABLE, head.build, folder / "out", OutputFormat.CSV, Digests(SecretKey(KEY)), output=output)
    reports: list[UnitReport] = []
    with OpenManifest(folder / "out", head, OpenTrail(PARTS.key)) as manifest:
        units = [Unit(source) for source in sources]
        run_on_engine(own, units, manifest, engine, work or make_work(folder), reports.append)
    return reports


def answer_twice(folder: Path) -> Answer:
    def answer(task: UnitTask) -> list[UnitResult]:
        entry = UnitEntry(task.name, task.digest, f"part-{task.name}.csv", "d", 1, {})
        (folder / "out" / entry.file).touch()
        return [UnitResult(task.name, entry)] * 2

    return answer


def list_files(folder: Path) -> dict[str, bytes]:
    """The outputs, their audit parts and the manifest."""
    found = [*folder.rglob("part-*"), folder / "_manifest.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def list_person(path: Path, key: int) -> ScopeTableFile:
    """A scope table of one person."""
    path.unlink(missing_ok=True)
    return build(path, [{"person_id": key, "mrn": None}], TABLE)


def test_tasks_with_a_scope_table_write_the_files_of_a_local_run_and_the_driver_signs_their_lines(folder: Path) -> None:
    made = replace(PARTS, scopes=list_person(folder / "scopes", 9))
    head = make_head(TABLE, made, OutputFormat.CSV)
    assert head.build != HEAD.build
    work = make_work(folder, head, str(folder / "scopes"))
    reports = run(folder, Engine(), work, head)
    assert [(end.entry.rows, end.entry.unlisted) for end in reports if end.entry] == [(1, 0), (1, 1)]
    local = BatchRun(TABLE, head.build, folder / "local", OutputFormat.CSV, Digests(PARTS.key))
    units = [Unit(source) for source in list_sources([folder / "in"])[0]]
    with OpenManifest(folder / "local", head, OpenTrail(PARTS.key)) as manifest:
        local.run(units, manifest, RowWorkerFactory(made, TABLE, head.build), 1, lambda _: None)
    assert list_files(folder / "out") == list_files(folder / "local")
    assert len(list_files(folder / "out")) == 5 and not list((folder / "out").glob(".*"))
    checked = verify_folder(folder / "out")
    assert (checked.findings, checked.units, checked.rows, checked.lines) == ((), 2, 2, 3)
    assert [report.skipped for report in run(folder, Engine(), work, head)] == [True, True]


def test_a_task_with_another_scope_table_stops_the_run(folder: Path) -> None:
    made = replace(PARTS, scopes=list_person(folder / "scopes", 9))
    work = make_work(folder, make_head(TABLE, made, OutputFormat.CSV), str(folder / "scopes"))
    list_person(folder / "scopes", 10)
    assert "or scope table of this machine differ from those of the driver" in first_result(folder, work).stop
    (folder / "scopes").unlink()
    assert "scopes" in first_result(folder, work).stop
    assert "or scope table of this machine" in first_result(folder, replace(work, system=make_work(folder).system)).stop


def test_a_result_that_arrives_twice_counts_once(folder: Path) -> None:
    reports = run(folder, Engine(answer_twice(folder)))
    assert len(reports) == 2
    assert len((folder / "out" / "_manifest.jsonl").read_text().splitlines()) == 3


def test_the_driver_adds_a_unit_to_the_table_before_its_line(folder: Path) -> None:
    commits = Commits(folder / "out")
    reports = run(folder, Engine(answer_twice(folder)), output=commits)
    assert commits.made == [(end.entry.unit, line) for line, end in enumerate(reports, 1) if end.entry]
    assert len(commits.made) == 2


def test_an_output_that_the_driver_does_not_see_stops_the_run(folder: Path) -> None:
    def answer(task: UnitTask) -> list[UnitResult]:
        return [UnitResult(task.name, UnitEntry(task.name, task.digest, "part-elsewhere.csv", "d", 1, {}))]

    with pytest.raises(ConfigurationError, match="name a folder that all machines share"):
        run(folder, Engine(answer))
    manifest = read_manifest(folder / "out")
    assert manifest is not None and not manifest.units


def test_a_task_without_a_result_stops_the_run_after_the_others(folder: Path) -> None:
    own = answer_twice(folder)

    def answer(task: UnitTask) -> list[UnitResult]:
        return own(task) if task.unit.source.number == 2 else []

    with pytest.raises(UnsafeError, match="no result for 1 of 2 units: run it again"):
        run(folder, Engine(answer))
    manifest = read_manifest(folder / "out")
    assert manifest is not None and len(manifest.units) == 1


def first_result(folder: Path, work: UnitWork) -> UnitResult:
    """The result of the first task, as it is before ``run_on_engine`` takes it."""
    found: list[UnitResult] = []

    def answer(task: UnitTask) -> list[UnitResult]:
        found.append(work(task))
        return [UnitResult(task.name, stop="enough")]

    with pytest.raises(ConfigurationError, match="enough"):
        run(folder, Engine(answer))
    return found[0]


def test_a_machine_with_another_key_folder_or_identities_stops_the_run(folder: Path) -> None:
    work = make_work(folder)
    gone = replace(work, folder=str(folder / "none"))
    assert first_result(folder, gone).stop.startswith("OUT is not there on a machine of the engine")
    (folder / "persons.csv").write_text("person_id,family\n")
    known = replace(work, identities=str(folder / "persons.csv"), identities_digest="of another file")
    assert "identities: the file on a machine of the engine is another" in first_result(folder, known).stop
    (folder / "key").write_bytes(OTHER_KEY)
    assert "key or scope table of this machine differ from those of the driver" in first_result(folder, work).stop
    (folder / "key").unlink()
    assert "key file" in first_result(folder, work).stop


def test_a_file_that_changes_after_its_digest_has_no_output(folder: Path) -> None:
    class Changing(Engine):
        def run(self, work: UnitWork, tasks: Sequence[UnitTask]) -> Iterator[UnitResult]:
            (folder / "in" / f"{CANARY}-0.csv").write_text("note_id,person_id,note_text\n")
            yield from super().run(work, tasks)

    reports = run(folder, Changing())
    assert [report.fault for report in reports] == ["the file was changed after the run began", ""]


def test_an_unexpected_fault_leaves_a_task_without_its_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> UnitResult:
        raise OSError(28, "No space left on device", CANARY)

    monkeypatch.setattr(UnitWork, "_run", fail)
    with pytest.raises(UnsafeError, match=r"^unit [0-9a-f]{16}-00000: OSError at test_engine_units.py:\d+$") as fault:
        run(folder, Engine())
    assert fault.value.__context__ is None and CANARY not in str(fault.value)


def test_only_our_own_text_is_taken_from_an_error_of_an_engine() -> None:
    text = f"Job aborted: {CANARY}\ndeid_agent.model.errors.UnsafeError: unit {'0a' * 8}-00000: OSError\n\tat {CANARY}"
    assert find_own_error(text) == f"unit {'0a' * 8}-00000: OSError"
    assert not find_own_error(f"UnsafeError: {CANARY}")


def test_paths_are_absolute_on_other_machines(folder: Path) -> None:
    (folder / "own.toml").touch()
    system = EngineSystem(key_file="key", policy="own.toml", rules="/r").resolve(folder)
    assert (system.key_file, system.policy) == (str(folder / "key"), str(folder / "own.toml"))
    assert EngineSystem(scope_table="s.db").resolve(folder).scope_table == str(folder / "s.db")
    assert (system.rules, system.models, EngineSystem().resolve(folder).policy) == ("/r", None, "research")


@pytest.mark.parametrize(("load", "module"), [(load_spark, "pyspark.sql"), (load_ray, "ray")])
def test_a_missing_engine_is_named(load: Callable[[], object], module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    extra = "batch-spark" if "spark" in module else "batch-ray"
    with pytest.raises(ConfigurationError, match=rf"pip install 'deid-agent\[{extra}\]'"):
        load()
