"""``deid-agent review``: from notes to gold at the command line, and its errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.review import NOTE, SPANS, make_site

from deid_agent.cli import main
from deid_agent.http import DeskSpan
from deid_agent.review import RANDOM, ReviewFolder, load_review_key, open_desk

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["review", *map(str, args)])


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    folder, key = tmp_path / "folder", tmp_path / "key"
    done = call("make", folder, "--key-file", key, "--reviewers", "anna, ben")
    assert done.exit_code == 0, done.stderr
    return folder, key


def test_from_notes_to_gold(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, key = made
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(NOTE)
    (notes / "b.jsonl").write_text(
        '{"id": "x", "text": "Seen on 5/3/2019 by Dr. Vance.", "patient_id": "p1"}\n'
        '{"id": "y", "text": ""}\n{"id": 3}\n{"id": "z", "text": "Seen again.", "patient": "p1"}\n'
    )
    for name in ("02-oru-discharge.hl7", "05-bundle.json", "06-cut-off.json"):
        (notes / name).write_bytes((SAMPLES / name).read_bytes())
    (notes / "c.txt").write_bytes(b"\xff")
    (notes / "d.txt").write_text("a " * 500_001)
    half = {
        "resourceType": "DocumentReference",
        "status": "current",
        "description": "Half \ud83d of a long text of Quill",
    }
    (notes / "f.csv").write_text("id,text\n1,Seen by Dr. Vance.\n")
    (notes / "e.json").write_text(json.dumps(half))
    done = call("add", folder, notes, "--key-file", key, "--random", "50", "--system", "rules")
    assert done.exit_code == 1
    assert "6 notes of 3 patients: 6 random, 0 chosen\n7 refused\n" in done.stdout
    for fault in (
        "jsonl: line 2: has no text",
        "jsonl: line 3: MALFORMED: id",
        "06-cut-off.json: ",
        "c.txt: byte 0",
        "d.txt: note 1: has more",
    ):
        assert fault in done.stderr
    assert "Okafor" not in done.output

    again = call("add", folder, notes / "a.txt", "--key-file", key, "--random", "5", "--system", "rules")
    assert again.exit_code == 0
    assert "0 random, 0 chosen\n1 in the folder before\n" in again.stdout
    assert "fewer notes than asked for" in again.stderr
    assert "different sets of notes" not in again.stderr

    opened = ReviewFolder.open(folder, load_review_key(key))
    found = {opened.read_note(each.note).name: opened.read_note(each.note) for each in opened.read_index().entries}
    assert found["a.txt"].text == NOTE
    assert [each.span.type for each in found["a.txt"].proposals] == [each.type for each in SPANS]
    assert found["02-oru-discharge.hl7#0.0"].patient == found["05-bundle.json#0.0"].patient, "one record number"

    gold = [DeskSpan(each.start, each.end, each.type.value) for each in SPANS]
    desk = open_desk(folder, key)
    for reviewer in ("anna", "ben"):
        desk.save(reviewer, found["a.txt"].id, gold, finished=True)
    status = call("status", folder, "--key-file", key)
    assert "agreed    1\n" in status.stdout
    assert "random    6, 1 agreed, 5 open\n" in status.stdout
    assert "an estimate needs the whole random sample" in status.stdout
    shown = json.loads(call("status", folder, "--key-file", key, "--json").stdout)
    assert (shown["agreed"], shown["random_open"], shown["by_reviewer"]) == (1, 5, {"anna": 1, "ben": 1})
    assert "1 note by two reviewers: strict F1 1.000, kappa 1.000" in call("figures", folder, "--key-file", key).stdout

    out = tmp_path / "out"
    done = call("export", folder, "--key-file", key, "--format", "jsonl", "--out", out, "--random")
    assert (done.exit_code, done.stdout) == (0, "1 note, 1 file\n")
    assert "in the clear, with all PHI" in done.stderr
    done = call("import", folder, out, "--key-file", key, "--reviewer", "anna", "--format", "jsonl")
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, "1 note kept: a finished decision is never changed")


def test_tokens_are_shown_once_and_replaced(tmp_path: Path) -> None:
    folder, key = tmp_path / "folder", tmp_path / "key"
    done = call("make", folder, "--key-file", key, "--reviewers", "anna,ben")
    tokens = dict(line.split("  ") for line in done.stdout.splitlines())
    desk = open_desk(folder, key)
    assert {desk.reviewer_of(token) for token in tokens.values()} == {"anna", "ben"}
    name, token = call("token", folder, "anna", "--key-file", key).stdout.split()
    assert (desk.reviewer_of(token), desk.reviewer_of(tokens["anna"])) == (name, None)
    assert call("token", folder, "Anna", "--key-file", key).exit_code == 2
    assert key.stat().st_mode & 0o777 == 0o600


def test_wrong_calls_have_a_line_and_exit_code_2(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, key = made
    (tmp_path / "note.txt").write_text(" \n")
    other = make_site(tmp_path / "other", [NOTE], reasons=[RANDOM])
    for args, why in (
        (("make", folder, "--key-file", key, "--reviewers", "anna"), "has files"),
        (("make", tmp_path / "new", "--key-file", tmp_path / "new/key", "--reviewers", "anna"), "a key in the folder"),
        (("make", tmp_path / "new", "--key-file", key, "--reviewers", ","), "reviewers"),
        (("add", folder, tmp_path / "note.txt", "--key-file", key), "nothing to draw"),
        (("add", folder, tmp_path / "none", "--key-file", key, "--random", "1", "--system", "rules"), "no such file"),
        (("add", folder, tmp_path / "note.txt", "--key-file", key, "--random", "1", "--system", "rules"), "is empty"),
        (("status", other.path, "--key-file", key), "made with the key"),
        (("status", tmp_path, "--key-file", key), "deid-agent review make"),
        (("export", folder, "--key-file", key, "--format", "brat", "--out", tmp_path / "o"), "no note is agreed"),
    ):
        done = call(*args)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert why in done.stderr
    assert not (tmp_path / "o").exists()
    assert call("figures", folder, "--key-file", key).stdout == "no note is finished by two reviewers\n"
    figures = json.loads(call("figures", folder, "--key-file", key, "--json").stdout)
    assert figures == {"notes": 0, "strict_f1": None, "kappa": None}


def test_decisions_about_other_notes_are_left_out_with_exit_code_1(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, key = made
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "x", "text": NOTE, "spans": []}) + "\n")
    common = ("import", folder, path, "--key-file", key, "--reviewer", "anna", "--format", "jsonl")
    done = call(*common)
    assert (done.exit_code, done.stdout) == (1, "0 notes decided, 0 of them new\n")
    assert "1 note not in the folder: left out; --new takes them" in done.stderr
    assert call(*common, "--new").stdout == "1 note decided, 1 of them new\n"


def test_rare_places_with_unexamined_values_are_a_reason(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, key = made
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(12):
        more = {"language": "en"} if number == 7 else {}
        text = {"status": "current", "description": f"Ward round number {number} without a finding."}
        (notes / f"{number}.json").write_text(json.dumps({"resourceType": "DocumentReference", **text, **more}))
    done = call("add", folder, notes, "--key-file", key, "--chosen", "5", "--system", "rules")
    assert "12 notes of 12 patients: 0 random, 1 chosen" in done.stdout
    opened = ReviewFolder.open(folder, load_review_key(key))
    (entry,) = opened.read_index().entries
    assert (entry.reasons, opened.read_note(entry.note).name.partition("#")[0]) == (("unexamined",), "7.json")
