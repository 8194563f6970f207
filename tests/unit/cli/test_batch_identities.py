"""``deid-agent batch identities``, and the commands that take a scope table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.cli import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).resolve().parents[3]
HEAD = "person_id,mrn,fhir_id,given,family\n"
QUIXWELL = "1001,4471902,p100,Zyblorq,Quixwell\n"
TABLE = """
[row]
document = "note_id"
patient = "person_id"
[columns]
note_id = "id"
person_id = "id"
note_date = "date"
note_text = "text"
[types]
person_id = "int64"
[identities]
references = ["fhir_id"]
[identities.person]
key = "person_id"
scope = "mrn"
given = "given"
family = "family"
[[identities.number]]
columns = ["mrn"]
assigners = ["HOSP"]
zeros = "padding"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.toml").write_text(TABLE)
    (tmp_path / "persons.csv").write_text(HEAD + QUIXWELL)
    return tmp_path


def call(*args: str | Path, key: str = "--demo-key") -> Result:
    return CliRunner().invoke(main, [*map(str, args), *([key] if key else [])])


def build(folder: Path, *args: str | Path, out: str = "scopes", key: str = "--demo-key") -> Result:
    table = ("--table", folder / "notes.toml", "--out", folder / out)
    return call("batch", "identities", "build", *args, *table, key=key)


def test_a_table_is_built_and_checked(folder: Path) -> None:
    (folder / "more.ndjson").write_text('{"person_id": 1002, "mrn": "UNKNOWN", "fhir_id": "p101"}\n')
    pq.write_table(
        pa.table({"person_id": [1003], "mrn": [55512], "fhir_id": ["p103"], "given": ["x"]}), folder / "last.parquet"
    )
    done = build(folder, folder / "persons.csv", folder / "more.ndjson", folder / "last.parquet")
    assert done.exit_code == 0, done.output
    assert "persons    3\naliases    8\nmerges     0\n" in done.stdout
    assert "1 number left out that name nobody" in done.stderr
    assert "1 person without a number" in done.stderr
    shown = call("batch", "identities", "check", folder / "scopes")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(done.stdout)
    assert "source     HOSP, and numbers without an assigner; zeros padding\n" in shown.stdout
    assert "Quixwell" not in done.output + shown.output


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEAD + QUIXWELL + "1001,5,p7,,\n", "row 2, column person_id: is a value of row 1 too"),
        (HEAD + QUIXWELL + "1002,4471903\n", "row 2: cannot be read"),
        (HEAD + '1002,44"71903,p1,Quixwell,\n' + '1,"Quix"x,,,\n', "row 2: cannot be read"),
        (HEAD + '1002,"Quixwell\n', "a quote is not closed"),
        (HEAD, "name no person"),
        ("person_id,mrn\n1,2\n", "row 1: the file has no column fhir_id"),
        ("", "name no person"),
    ],
)
def test_hostile_rows_leave_no_file(text: str, error: str, folder: Path) -> None:
    (folder / "persons.csv").write_text(text)
    done = build(folder, folder / "persons.csv")
    assert done.exit_code == 2
    assert error in done.stderr
    assert "Quixwell" not in done.output and "44719" not in done.output
    assert sorted(path.name for path in folder.iterdir()) == ["notes.toml", "persons.csv"]


def test_bytes_that_are_not_utf_8_are_named(folder: Path) -> None:
    (folder / "persons.csv").write_bytes(HEAD.encode() + b"1,Quix\xff,p1,,\n")
    done = build(folder, folder / "persons.csv")
    assert done.exit_code == 2 and "row 1, column mrn: has a character that is not printable" in done.stderr


def test_a_file_is_extended_only_on_request_and_by_its_key(folder: Path) -> None:
    assert build(folder, folder / "persons.csv").exit_code == 0
    before = (folder / "scopes").read_bytes()
    assert "--out exists: add to it with --append" in build(folder, folder / "persons.csv").stderr
    (folder / "deid.key").write_bytes(os.urandom(32))
    (folder / "deid.key").chmod(0o600)
    other = build(folder, folder / "persons.csv", "--append", "--key-file", folder / "deid.key", key="")
    assert other.exit_code == 2 and "made with another key than" in other.stderr
    (folder / "merges.csv").write_text("old,new\n990,4471902\n4471902,4471902\n")
    wrong = build(folder, "--append", "--merges", folder / "merges.csv")
    assert wrong.exit_code == 2 and "merges row 2, column old: is the new number too" in wrong.stderr
    assert (folder / "scopes").read_bytes() == before
    (folder / "merges.csv").write_text("old,new\n990,4471902\n")
    assert "merges     1" in build(folder, "--append", "--merges", folder / "merges.csv").stdout
    assert "name the files of PERSONS" in build(folder, out="other").stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "deid.key", "merges.csv", "notes.toml", "persons.csv", "scopes",
    ]  # fmt: skip


def test_a_build_waits_for_no_other(folder: Path) -> None:
    import fcntl  # noqa: PLC0415

    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = build(folder, folder / "persons.csv")
    os.close(held)
    assert done.exit_code == 2 and "another build uses its folder" in done.stderr


def settings(folder: Path, **more: object) -> Path:
    for name in ("input", "output", "letters", "audit"):
        (folder / name).mkdir(exist_ok=True)
    lines = [
        'transport = "directory"',
        'policy = "research"',
        'system = "none"',
        *(f"{name} = {json.dumps(str(value))}" for name, value in more.items()),
        "[agent]",
        "workers = 1",
        "[directory]",
        f'input = "{folder}/input"',
        f'output = "{folder}/output"',
        f'dead_letters = "{folder}/letters"',
        f'state = "{folder}/state.json"',
        "watch = false",
        "[dead_letters]",
        "plain = true",
        "[audit]",
        f'path = "{folder}/audit"',
        "[http]",
        "enabled = false",
    ]
    (folder / "deid.toml").write_text("\n".join(lines))
    return folder / "deid.toml"


def agent(folder: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "deid_agent", *args]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_a_batch_and_an_agent_join_a_person_and_name_the_table(folder: Path) -> None:
    """The same shift, by the key of a row and by a FHIR reference, neither of which is a number."""
    (folder / "deid.key").write_bytes(os.urandom(32))
    (folder / "deid.key").chmod(0o600)
    key = ("--key-file", folder / "deid.key")
    identity = build(folder, folder / "persons.csv", *key, key="").stdout.split()[1]
    (folder / "in").mkdir()
    (folder / "in" / "n.csv").write_text(
        "note_id,person_id,note_date,note_text\n1,1001,2019-03-04,x\n2,7,2019-03-04,\n"
    )
    options = ("--table", folder / "notes.toml", "--system", "none", *key)
    table = ("--scope-table", folder / "scopes")
    plan = call("batch", "plan", folder / "in", *options, *table, "--identities", folder / "persons.csv", key="")
    assert plan.exit_code == 0, plan.output
    assert f"scopes     {identity}, lists 1 of them\n" in plan.stdout
    out = ("--format", "csv", folder / "in", folder / "out")
    done = call("batch", "run", *options, *table, *out, key="")
    assert done.exit_code == 0, done.output
    rows = [line.split(",") for line in next((folder / "out").glob("part-*")).read_text().splitlines()]
    assert json.loads((folder / "out" / "_manifest.jsonl").read_text().splitlines()[1])["unlisted"] == 1
    assert "unlisted   1 row\n" in call("batch", "status", folder / "out", key="").stdout
    again = call("batch", "run", *options, *out, key="")
    assert again.exit_code == 2 and "the output folder has outputs of build" in again.stderr

    file = settings(folder, scope_table=folder / "scopes", key_file=folder / "deid.key")
    (folder / "input" / "m.json").write_text(
        '{"resourceType": "DocumentReference", "subject": {"reference": "Patient/p100"}, "date": "2019-03-04"}'
    )
    served = agent(folder, "run", "--config", str(file))
    assert served.returncode == 0, served.stderr
    assert json.loads((folder / "output" / "m.json").read_text())["date"] == rows[1][2] != "2019-03-04"
    entries = "".join(path.read_text() for path in (folder / "audit").glob("*.jsonl"))
    assert f'"scopes":"{identity}"' in entries
    assert "4471902" not in served.stderr + entries

    data = (folder / "scopes").read_bytes()
    (folder / "scopes").write_bytes(data[:-100])
    torn = agent(folder, "run", "--config", str(file))
    assert torn.returncode == 2
    assert "changed after it was made, or torn: make it again" in torn.stderr
