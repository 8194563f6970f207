"""Units in worker processes: rows that kill or hang, changed inputs, the same bytes in each run."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.keys import KEY
from support.killer_rows import HANGER, KILLER, DyingFactory
from support.tables import BUILD, RULES, table

from deid_agent.agent import Factory, Job, Process, Result, WorkerSettings
from deid_agent.app import WorkerFactory
from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.jobs import RowWorkerFactory
from deid_agent.batch.manifest import Head, OpenManifest, UnitEntry
from deid_agent.batch.outputs import OutputFormat, UnitFile
from deid_agent.batch.running import BatchRun, UnitReport
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import list_units
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import load_policy

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TABLE = table(columns={"id": "id", "who": "id", "text": "text", "n": "keep"}, row={"document": "id", "patient": "who"})
PARTS = WorkerFactory(rules=RULES, key=SecretKey(KEY), policy=load_policy("research", RULES), system="none")
HEAD = Head(BUILD, "0.1.0", "key", "research", "own")
FAST = WorkerSettings(deadline_s=10.0, attempts=1)


def write(path: Path, texts: list[str], group: int = 1000) -> None:
    columns = {"id": [f"n{n}" for n in range(len(texts))], "who": ["p1"] * len(texts), "text": texts}
    types = {"n": pa.array(range(len(texts)), pa.int16())}
    pq.write_table(pa.table(columns | types), path, row_group_size=group, compression="gzip")


def run(
    inputs: Path, out: Path, factory: Factory | None = None, *, again: bool = False, unit_bytes: int = 1
) -> list[UnitReport]:
    sources, _ = list_sources([inputs])
    units = [unit for source in sources for unit in list_units(source, unit_bytes)]
    work = BatchRun(TABLE, BUILD, out, OutputFormat.PARQUET, Digests(PARTS.key), again=again)
    reports: list[UnitReport] = []
    with OpenManifest(out, HEAD) as manifest:
        made = factory or RowWorkerFactory(PARTS, TABLE, BUILD)
        work.run(units, manifest, made, 1, reports.append, FAST)
    return reports


def entry(report: UnitReport) -> UnitEntry:
    assert report.entry is not None
    return report.entry


def read(out: Path, report: UnitReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / entry(report).file).to_pylist()
    return rows


def check_one_refusal(tmp_path: Path, fatal: str, rows: int, at: int) -> None:
    texts = [f"note {n}" for n in range(rows)]
    texts[at] = fatal
    write(tmp_path / "a.parquet", texts)
    factory = DyingFactory(RowWorkerFactory(PARTS, TABLE, BUILD), tmp_path / "starts")
    (report,) = run(tmp_path / "a.parquet", tmp_path / "out", factory)
    assert (entry(report).rows, entry(report).refused) == (rows, {"POISON": 1})
    found = read(tmp_path / "out", report)
    refused = [n for n, row in enumerate(found) if row["deid"]["outcome"] == "refused"]
    assert refused == [at]
    assert found[at]["text"] is None and found[at]["id"] is None
    assert [row["text"] for row in found if row["text"]] == [text for text in texts if text != fatal]
    # One restart for the job of many rows and one for that of the row.
    assert len((tmp_path / "starts").read_text().split()) == 3


@dataclass(frozen=True)
class SlowFactory:
    """Workers that take more than half a second for a job, and note each."""

    parts: RowWorkerFactory
    jobs: Path

    def __call__(self) -> Process:
        process = self.parts()

        def run(job: Job) -> Result:
            with self.jobs.open("a") as file:
                file.write("job\n")
            time.sleep(0.7)
            return process(job)

        return run


def test_a_job_that_waits_behind_another_is_done_once(tmp_path: Path) -> None:
    """Jobs of messages that wait for half a second are also given to other workers; one of rows takes that long."""
    write(tmp_path / "a.parquet", [f"note {n}" for n in range(64 * 6)])
    factory = SlowFactory(RowWorkerFactory(PARTS, TABLE, BUILD), tmp_path / "jobs")
    units = list_units(list_sources([tmp_path / "a.parquet"])[0][0], 1 << 20)
    work = BatchRun(TABLE, BUILD, tmp_path / "out", OutputFormat.PARQUET, Digests(PARTS.key))
    with OpenManifest(tmp_path / "out", HEAD) as manifest:
        work.run(units, manifest, factory, 2, lambda _: None)
    assert len((tmp_path / "jobs").read_text().split()) == 6


def test_a_row_that_kills_is_refused_alone(tmp_path: Path) -> None:
    check_one_refusal(tmp_path, KILLER, 100, 70)


@pytest.mark.full
def test_a_row_that_hangs_is_refused_alone(tmp_path: Path) -> None:
    check_one_refusal(tmp_path, HANGER, 10, 3)


def test_a_unit_is_done_once_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet", [f"note {n}" for n in range(10)], group=4)
    first = run(tmp_path / "in", tmp_path / "out")
    assert [entry(report).rows for report in first] == [4, 4, 2]
    assert all(report.skipped for report in run(tmp_path / "in", tmp_path / "out"))
    files = [tmp_path / "out" / entry(report).file for report in first]
    before = [path.read_bytes() for path in files]
    files[1].unlink()
    (tmp_path / "out" / f".{files[1].name}.unfinished").write_bytes(b"half")
    assert [report.skipped for report in run(tmp_path / "in", tmp_path / "out")].count(False) == 1
    assert [path.read_bytes() for path in files] == before
    assert not list((tmp_path / "out").glob(".part*"))
    metadata = pq.read_metadata(files[0])
    assert metadata.row_group(0).column(0).compression == "GZIP"


def test_a_changed_input_is_refused_unless_it_is_wanted(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    write(source, [f"note {n}" for n in range(10)], group=4)
    first = run(source, tmp_path / "out")
    write(source, ["other"] * 4, group=4)
    with pytest.raises(ConfigurationError, match="input 1: changed since its output was written; use --again"):
        run(source, tmp_path / "out")
    (report,) = run(source, tmp_path / "out", again=True)
    assert [row["text"] for row in read(tmp_path / "out", report)] == ["other"] * 4
    # The parts that the input no longer has are gone.
    assert [path.name for path in (tmp_path / "out").glob("part-*")] == [entry(first[0]).file]
    assert [each.skipped for each in run(source, tmp_path / "out")] == [True]


def test_a_worker_that_cannot_start_stops_the_run(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["x"])
    broken = RowWorkerFactory(replace(PARTS, rules=tmp_path), TABLE, BUILD)
    with pytest.raises(ConfigurationError):
        run(tmp_path / "a.parquet", tmp_path / "out", broken)
    assert not list((tmp_path / "out").glob("part-*"))


def test_two_attempts_of_a_unit_do_not_write_into_one_file(tmp_path: Path) -> None:
    """An engine that speculates runs a unit twice at the same time."""
    schema = pa.schema([("n", pa.int64())])
    rows = [pa.record_batch({"n": list(range(first, first + 1000))}) for first in (0, 1000)]
    whole = UnitFile(tmp_path, "part-whole.parquet", schema, OutputFormat.PARQUET)
    with whole:
        for each in rows:
            whole.write(each, ends_group=True)
        digest = whole.finish()
    one, two = (UnitFile(tmp_path, "part-a.parquet", schema, OutputFormat.PARQUET) for _ in range(2))
    with one:
        one.write(rows[0], ends_group=True)
        with two:
            two.write(rows[0], ends_group=True)
            one.write(rows[1], ends_group=True)
            assert one.finish() == digest
            assert (tmp_path / "part-a.parquet").read_bytes() == (tmp_path / "part-whole.parquet").read_bytes()
            two.write(rows[1], ends_group=True)
            assert two.finish() == digest
    assert (tmp_path / "part-a.parquet").read_bytes() == (tmp_path / "part-whole.parquet").read_bytes()
