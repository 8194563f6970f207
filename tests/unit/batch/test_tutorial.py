"""``batch`` on a FHIR bulk export by its command, and the scripts of docs/tutorial-backfill.md on its outputs."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bulk_exports import document, line, lines, note, patient, write_export
from support.tables import RULES, parts

from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import load_table
from deid_agent.cli import main
from deid_agent.config import DEMO_KEY

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial"
PEOPLE = (
    ("7f0c1de2-0000-4000-8000-00000000a001", "Zyblorq", "Quixwell", "1957-04-22", "999-31-4471"),
    ("7f0c1de2-0000-4000-8000-00000000a002", "Bede", "Vrondel", "1960-01-02", "999-31-4472"),
    ("7f0c1de2-0000-4000-8000-00000000a003", "Ilse", "Thrumbold", "1995-06-30", "999-31-4473"),
)
DAYS = ("2019-03-04", "2019-03-19", "2020-11-30")
VISITS = [
    (f"3b1d2c4e-0000-4000-8000-0000000{p}{n}000", key, day)
    for p, (key, *_) in enumerate(PEOPLE)
    for n, day in enumerate(DAYS)
]
CANARIES = ("Quixwell", "Vrondel", "Thrumbold", "999-31-4471", "00000000a001", "17 Wexcombe")


def write_tables(folder: Path) -> None:
    folder.mkdir()
    with (folder / "patients.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Id", "BIRTHDATE", "SSN", "FIRST", "MIDDLE", "LAST", "GENDER", "ADDRESS", "CITY", "ZIP"])
        for key, given, family, born, ssn in PEOPLE:
            rows.writerow([key, born, ssn, given, "", family, "F", "17 Wexcombe Lane", "Thornaby", "97031"])
    with (folder / "encounters.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Id", "START", "STOP", "PATIENT", "DESCRIPTION"])
        for key, who, day in VISITS:
            rows.writerow([key, f"{day}T09:30:00Z", f"{day}T10:00:00Z", who, "Check-up"])


def write_population(folder: Path) -> Path:
    encounters = [
        {
            "resourceType": "Encounter",
            "id": key,
            "status": "finished",
            "class": {"code": "AMB"},
            "subject": {"reference": f"Patient/{who}"},
            "period": {"start": f"{day}T09:30:00Z"},
        }
        for key, who, day in VISITS
    ]
    notes = [
        document(f"note-{key}", f"Patient/{key}", note(f"{given} {family} was seen on {DAYS[0]}."))
        for key, given, family, *_ in PEOPLE
    ]
    people = [patient(key, given, family, key, born) for key, given, family, born, _ in PEOPLE]
    files = {"Patient.ndjson": people, "Encounter.ndjson": encounters, "DocumentReference.ndjson": notes}
    return write_export(folder, files)


def batch(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["batch", *map(str, args)])


def population(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, TUTORIAL / "population.py", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_feed_and_backfill_join_and_the_search_finds_nothing_or_all(tmp_path: Path) -> None:
    export, out, inbox, outbox = write_population(tmp_path / "in"), *(tmp_path / n for n in ("out", "inbox", "outbox"))
    write_tables(tmp_path / "csv")
    plan = batch("plan", export, "--table", "fhir", "--demo-key")
    assert (plan.exit_code, "inputs     3 files, 3 units, 15 lines" in plan.stdout) == (0, True)
    assert "identities 3 persons" in plan.stdout
    with (export / "Encounter.ndjson").open("ab") as file:
        file.write(b'{"resourceType":"Encounter","id":"Quixwell\n')
    done = batch("run", export, out, "--table", "fhir", "--demo-key", "--system", "rules")
    assert done.exit_code == 1
    assert "9 Encounter, refused 1 MALFORMED" in done.stdout
    status = batch("status", out).stdout
    assert "resources  3 DocumentReference, 9 Encounter, 3 Patient" in status
    assert not [canary for canary in CANARIES if canary in plan.output + done.output + status]
    assert "audit     4 lines, first key " in done.stdout
    verified = batch("verify", out, "--public-key", done.stdout.split()[-1])
    assert (verified.exit_code, verified.stdout[:32]) == (0, "sound: 3 units, 16 rows, 4 lines")
    assert (out / "_audit" / "trail").is_dir() and len(list((out / "_audit").glob("part-*.jsonl"))) == 3
    assert population("feed", tmp_path / "csv", inbox, "--since", "2019-03-19").stdout == "6 messages\n"
    outbox.mkdir()
    deidentifier = parts(key=DEMO_KEY).deidentifier()
    for path in inbox.iterdir():
        (outbox / path.name).write_bytes(deidentifier.message(path.read_bytes()).payload)
    places = (export, out, inbox, outbox)
    joins = population("joins", *places, "--svg", tmp_path / "plot.svg")
    assert (joins.returncode, joins.stderr) == (0, "")
    assert "intervals between a visit of the feed and one of the backfill: 18, equal after: 18" in joins.stdout
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    leaks = population("leaks", *places)
    assert (leaks.returncode, leaks.stderr) == (0, "")
    assert leaks.stdout.endswith("leaks     0 in structure, 0 in narrative\n")
    assert "shifts    3 patients, 0 with more than one, 0 with 0 days" in leaks.stdout
    # The originals in place of the outputs: every class of value is found.
    entries = [json.loads(each) for each in (out / "_manifest.jsonl").read_text().splitlines()[1:]]
    for source, entry in zip(sorted(export.glob("*.ndjson")), entries, strict=True):
        (out / entry["file"]).write_bytes(b"\n".join(source.read_bytes().splitlines()[: entry["rows"]][:9]) + b"\n")
    for path in inbox.iterdir():
        (outbox / path.name).write_bytes(path.read_bytes())
    found = population("leaks", *places)
    assert found.returncode == 1
    for kind, place in (
        ("name", "Patient.name.family"),
        ("name", "DocumentReference.content.attachment.data"),
        ("name", "PID-5"),
        ("identifier", "Encounter.subject.reference"),
        ("identifier", "PID-3"),
        ("place", "Patient.address.line"),
        ("day", "Encounter.period.start"),
        ("day", "Patient.birthDate"),
        ("day", "OBX-5"),
    ):
        lines_found = [each.split() for each in found.stdout.splitlines() if each.startswith("found")]
        assert any(each[2] == kind and each[-1] == place for each in lines_found), (kind, place)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--policy", "unlinked"), "is for messages that nothing joins; use research"),
        (("--policy", "pseudonymised"), "with offset_days = 0"),
        (("--format", "csv"), "leave out --format"),
        (("--identities", "persons.csv"), "leave out --identities"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args: tuple[str, ...], error: str, tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    done = batch("plan", export, "--table", "fhir", "--demo-key", *args)
    assert (done.exit_code, error in done.stderr) == (2, True)
    inside = batch("run", export, export / "out", "--table", "fhir", "--demo-key")
    assert (inside.exit_code, "name another folder" in inside.stderr) == (2, True)
    for engine in ("spark", "ray"):
        wrong = batch("run", export, tmp_path / "out", "--table", "fhir", "--demo-key", "--engine", engine)
        assert (wrong.exit_code, "--engine: a FHIR bulk export is read on this machine" in wrong.stderr) == (2, True)
    assert not (export / "out").exists()


def test_the_table_file_of_the_tutorial_declares_the_columns_of_encounters() -> None:
    table = load_table(str(TUTORIAL / "encounters.toml"), RULES)
    assert (table.patient, table.find_kind("START")) == ("patient", ColumnKind.DATE)


def test_plan_names_unreadable_and_torn_files_and_writes_nothing(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    (export / "Patient-2.ndjson").write_bytes(line(patient("p9", "Ada", "Quixwell", "1", "1957-01-01"))[:-9] + b"\n")
    (export / "x.ndjson.gz").write_bytes(lines([])[:0] + b"no gzip")
    (export / "readme.txt").write_text("Quixwell")
    before = sorted(tmp_path.rglob("*"))
    done = batch("plan", export, "--table", "fhir", "--demo-key")
    assert done.exit_code == 1
    assert "unreadable input 7: cannot be read (BadGzipFile)" in done.stdout
    assert "left out   1 file of other formats" in done.stdout
    assert "a Patient cannot be read" in done.stderr
    assert not [canary for canary in CANARIES if canary in done.output]
    assert sorted(tmp_path.rglob("*")) == before
