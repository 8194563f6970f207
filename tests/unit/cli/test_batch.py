"""``deid-agent batch``: plan, run, status; kills; nothing of a row outside the outputs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.audit import first_public_key
from deid_agent.batch.manifest_trail import trail_folder
from deid_agent.batch.sampling import read_sample
from deid_agent.cli import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).resolve().parents[3]
CANARIES = ("Quixwell", "quixwell", "4471902", "555-0183", "Zyblorq")
OPTIONS = ("--table", "omop/note", "--demo-key", "--system", "rules")
PERSONS = "person_id,mrn,given,family\n1001,4471902,Zyblorq,Quixwell\n"


def batch(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["batch", *map(str, args)])


def write(folder: Path, rows: int) -> Path:
    """Notes of a patient in a file that bears the name of the patient."""
    folder.mkdir()
    texts = [f"Note {n}. Zyblorq Quixwell, MRN 4471902, seen 3/4/2019. Call 740-555-0183." for n in range(rows)]
    columns = {
        "note_id": pa.array(range(1, rows + 1), pa.int32()),
        "person_id": pa.array([1001] * rows, pa.int32()),
        "note_title": ["Letter to Quixwell"] * rows,
        "note_text": texts,
    }
    pq.write_table(pa.table(columns), folder / "Quixwell-4471902.parquet", row_group_size=max(rows // 4, 1))
    (folder.parent / "persons.csv").write_text(PERSONS)
    return folder


def read(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


def find_canaries(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), "Missing option '--table'"),
        (("--table", "omop/person"), "input 1: 3 of 4 columns are not declared in the table file (place 1, 3, 4)"),
        (("--table", "omop/note", "--policy", "pseudonymised"), "use research, with offset_days = 0"),
        (("--table", "omop/nothing"), "no such table file"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args: tuple[str, ...], error: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", 4)
    done = batch("plan", folder, "--demo-key", *args)
    assert done.exit_code == 2
    assert error in done.stderr
    assert not find_canaries(done.output)


def test_plan_shows_columns_units_and_problems(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", 8)
    bare = batch("plan", folder, *OPTIONS)
    assert bare.exit_code == 0
    assert "inputs     1 file, 1 unit, 8 rows" in bare.stdout
    assert [line.split()[1:] for line in bare.stdout.splitlines() if line.startswith("column")] == [
        ["note_id", "id"],
        ["person_id", "id"],
        ["note_title", "text"],
        ["note_text", "text"],
    ]
    assert "identities none: texts are not searched for the names of their patients" in bare.stdout
    (tmp_path / "persons.csv").write_text(PERSONS + "1002,,,Quixwell\nQuixwell\n")
    known = batch("plan", folder, *OPTIONS, "--identities", tmp_path / "persons.csv")
    assert known.exit_code == 1
    assert "identities 2 persons, 1 malformed (row 3: row)" in known.stdout
    assert "matches    1 person without a row, 0 rows of patients without identity" in known.stdout
    assert not find_canaries(known.output)
    assert list(tmp_path.glob("*/*")) == [folder / "Quixwell-4471902.parquet"], "nothing is written"


def start(folder: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "deid_agent", "batch", "run", folder, out, *OPTIONS, *more]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*map(str, command), "--identities", str(folder.parent / "persons.csv")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    )


def test_a_killed_run_writes_the_same_files_in_the_end_without_a_canary(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", 480)
    for n in range(3):  # several files, so that a kill meets units in every state
        (folder / f"Quixwell-{n}.csv").write_text("note_id,person_id,note_text\n7,1001,Quixwell came 3/4/2019.\n")
    (folder / "broken.csv").write_text('note_id,person_id,note_text\n1,2,"Quixwell\n')
    readers = tmp_path / "readers.key"
    sampled = ("--sample", "20", "--seal-to", f"{generate_keys(readers) and readers}.pub")
    whole = start(folder, tmp_path / "whole", *sampled)
    printed = "".join(whole.communicate(timeout=300))
    assert whole.returncode == 1
    assert "deid-agent: input 5: refused: row 2: a quote is not closed" in printed
    out = tmp_path / "out"
    killed = start(folder, out, *sampled)
    deadline = time.monotonic() + 60
    while not list(out.glob("part-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(killed.pid, signal.SIGKILL)
    printed += "".join(killed.communicate())
    assert len(read(out)) < len(read(tmp_path / "whole")), "the kill came too late"
    resumed = start(folder, out, *sampled)
    printed += "".join(resumed.communicate(timeout=300))
    assert resumed.returncode == 1
    assert read(out) == read(tmp_path / "whole")
    assert read(out / "_audit") == read(tmp_path / "whole" / "_audit")
    assert not list(out.rglob(".*"))
    samples = [read_sample(each) for each in (out, tmp_path / "whole")]
    assert len({tuple((row.unit, row.row) for row in each.rows) for each in samples if each}) == 1
    check_the_audit(out, readers, tmp_path)
    status = batch("status", out)
    assert status.exit_code == 0
    assert "units      4" in status.stdout and "rows       483" in status.stdout
    assert "refused    none" in status.stdout
    manifest = (out / "_manifest.jsonl").read_text()
    names = "\n".join(str(path.relative_to(out)) for path in out.rglob("*"))
    rows: list[dict[str, Any]] = []
    for path in out.glob("part-*"):
        rows += pq.read_table(path).to_pylist()
        assert not find_canaries(path.read_bytes().decode("latin-1"))
    assert len(rows) == 483 and len({row["deid"]["build"] for row in rows}) == 1
    for text in (printed, status.output, manifest, names, str(rows)):
        assert not find_canaries(text)
    other = batch("run", folder, out, *OPTIONS, "--format", "csv")
    assert other.exit_code == 2 and "use another folder" in other.stderr


def check_the_audit(out: Path, readers: Path, tmp_path: Path) -> None:
    """The folder is sound, and nothing in it or about it has a canary but the page of the readers."""
    verified = batch("verify", out, "--public-key", first_public_key(trail_folder(out)), "--lines", "5")
    assert (verified.exit_code, verified.stdout[:29]) == (0, "sound: 4 units, 483 rows, 5 l"), verified.output
    page, review = tmp_path / "report.html", tmp_path / "review.html"
    reported = batch("report", out, "--html", page, "--review", review, "--reader-key", readers)
    assert reported.exit_code == 0, reported.output
    assert "20 rows without a miss: below 14 % of the rows at 95 %" in reported.stdout
    assert find_canaries(review.read_text())
    files = [path.read_bytes().decode("latin-1") for path in (page, *out.rglob("*")) if path.is_file()]
    for part in (out / "_audit").glob("part-*"):
        files += [str(pq.read_table(part).to_pylist())]
    for text in (verified.output, reported.output, *files):
        assert not find_canaries(text)


def test_a_limit_is_a_build_of_its_own_and_json_shows_its_progress(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", 9), tmp_path / "out"
    done = batch("run", folder, out, *OPTIONS, "--limit", "5", "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines][-2:] == ["unit", "end"]
    assert (lines[-2]["state"], lines[-2]["rows"], lines[-1]["rows"]) == ("done", 5, 5)
    assert lines[-1]["first_key"] == first_public_key(trail_folder(out))
    assert any(line["event"] == "progress" for line in lines)
    figures = json.loads(batch("status", out, "--json").stdout)
    assert (figures["units"], figures["rows"], figures["missing"], figures["lines"]) == (1, 5, 0, 2)
    whole = batch("run", folder, out, *OPTIONS)
    assert whole.exit_code == 2 and "use another folder" in whole.stderr
    unsealed = batch("run", folder, tmp_path / "other", *OPTIONS, "--sample", "5")
    assert unsealed.exit_code == 2 and "--sample and --seal-to come together" in unsealed.stderr
    assert not find_canaries(done.output + whole.output)


def test_csv_comes_out_as_csv(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text('note_id,person_id,note_date,note_text\n1,9,2019-03-04,"Seen 3/4,\nwell"\n2,9,,\n')
    out = tmp_path / "out"
    (tmp_path / "persons.csv").write_text(PERSONS)
    done = batch("run", folder, out, *OPTIONS, "--format", "csv", "--identities", tmp_path / "persons.csv")
    assert done.exit_code == 0, done.output
    counts = "1 person without a row, 2 rows of patients without identity"
    assert f"deid-agent: identities: {counts}" in done.stderr
    assert f"identities {counts}" in batch("report", out).stdout
    found = json.loads(batch("report", out, "--json").stdout)
    assert (found["unmatched"], found["no_identity"]) == (1, 2)
    ((name, data),) = read(out).items()
    assert name.endswith(".csv")
    lines = data.decode().split("\r\n")
    assert lines[0] == "note_id,person_id,note_date,note_text,deid_outcome,deid_reason,deid_where,deid_build"
    assert lines[1].endswith(',\nwell",done,,,' + name[-12:-4] + lines[1][-8:])
    assert (out / "_DEMO-KEY.txt").is_file()


@pytest.mark.parametrize("out", ["in", "in/out", "."])
def test_an_output_inside_an_input_is_refused(out: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", 1)
    done = batch("run", folder, tmp_path / out, *OPTIONS)
    assert done.exit_code == 2
    assert "OUT is an input, or one is inside the other" in done.stderr


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from deid_agent.cli import main; main(sys.argv[1:])"
    folder = write(tmp_path / "in", 1)
    command = [sys.executable, "-c", program, "batch", "plan", str(folder), *OPTIONS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'deid-agent[batch]'" in done.stderr


@pytest.mark.parametrize(
    ("engine", "module", "error"),
    [("spark", "pyspark.sql", "deid-agent[batch-spark]"), ("ray", "ray", "deid-agent[batch-ray]")],
)
def test_a_missing_engine_and_a_number_of_its_workers_are_refused(
    engine: str, module: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    folder = write(tmp_path / "in", 1)
    missing = batch("run", folder, tmp_path / "out", *OPTIONS, "--engine", engine)
    assert missing.exit_code == 2 and error in missing.stderr
    counted = batch("run", folder, tmp_path / "out", *OPTIONS, "--engine", engine, "--workers", "2")
    assert counted.exit_code == 2 and f"{engine} decides how many tasks run" in counted.stderr
    assert not (tmp_path / "out").exists()
