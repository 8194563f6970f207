"""The line forms of ``text``, which other programs call."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.cli import main

NOTE = "Seen 03/04/2019 for cough. MRN: 4471902. Call 740-555-0183."


def text(*args: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["text", "--demo-key", *args], input=stdin)


def line(**members: object) -> str:
    return json.dumps(members) + "\n"


def test_spans_are_of_the_original_and_text_is_sanitized() -> None:
    done = text("--jsonl", stdin=line(id="a", text=NOTE))
    assert done.exit_code == 0
    out = json.loads(done.stdout)
    assert list(out) == ["id", "text", "spans"]
    assert [(NOTE[s["start"] : s["end"]], s["type"]) for s in out["spans"]] == [
        ("03/04/2019", "DATE"),
        ("4471902", "MEDICALRECORD"),
        ("740-555-0183", "PHONE"),
    ]
    assert all(set(s) == {"start", "end", "type", "source"} for s in out["spans"])
    assert "4471902" not in out["text"]
    assert " for cough. MRN: " in out["text"]


def test_order_is_kept_and_spans_only_leaves_the_text_out() -> None:
    done = text("--jsonl", "--spans-only", stdin="".join(line(id=f"n{i}", text=NOTE) for i in range(5)))
    outs = [json.loads(x) for x in done.stdout.splitlines()]
    assert [o["id"] for o in outs] == [f"n{i}" for i in range(5)]
    assert all(list(o) == ["id", "spans"] for o in outs)


def test_context_finds_what_no_rule_could() -> None:
    note = "Zyblorq said she slept badly."
    bare = json.loads(text("--jsonl", stdin=line(id="a", text=note)).stdout)
    told = json.loads(text("--jsonl", stdin=line(id="a", text=note, context={"name": {"family": "Zyblorq"}})).stdout)
    assert bare["spans"] == []
    assert [s["type"] for s in told["spans"]] == ["PATIENT"]
    assert "Zyblorq" not in told["text"]


def test_notes_of_one_patient_know_each_other() -> None:
    notes = line(id="a", text="x", patient_id="p", context={"name": {"family": "Zyblorq"}}) + line(
        id="b", text="Zyblorq slept.", patient_id="p"
    )
    alone = [json.loads(x)["spans"] for x in text("--jsonl", stdin=notes).stdout.splitlines()]
    together = [json.loads(x)["spans"] for x in text("--jsonl", "--by-patient", stdin=notes).stdout.splitlines()]
    assert [len(s) for s in alone] == [0, 0]
    assert [len(s) for s in together] == [0, 1]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("{not json\n", "not JSON"),
        ("[1]\n", "not an object"),
        (line(id=1, text="x"), "id"),
        (line(id="a"), "text"),
        (line(id="a", text="x", context={"nmae": {}}), "context.nmae"),
        (line(id="a", text="x", patient_id=7), "patient_id"),
    ],
)
def test_a_bad_line_is_named_and_the_others_come_out(bad: str, told: str) -> None:
    done = text("--jsonl", stdin=bad + line(id="z", text=NOTE))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["id"] == "z"
    assert "line 1" in done.stderr
    assert told in done.stderr


def test_plain_notes_and_json_form(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text(NOTE)
    assert "4471902" not in text(str(note)).stdout
    assert json.loads(text("--json", str(note)).stdout)["id"] == str(note)
    assert text("--policy", "keep", stdin=NOTE).stdout == NOTE


def test_the_same_note_twice_gives_the_same_text() -> None:
    assert text(stdin=NOTE).stdout == text(stdin=NOTE).stdout


def test_bytes_that_are_no_text_are_refused() -> None:
    done = text(stdin=b"\xff\xfe")
    assert done.exit_code == 1
    assert "byte 0" in done.stderr


def test_a_missing_file_is_refused_and_named() -> None:
    done = text("/nowhere/note.txt")
    assert done.exit_code == 1
    assert "/nowhere/note.txt" in done.stderr


def test_without_a_key_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEID_KEY", raising=False)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    done = CliRunner().invoke(main, ["text", "-"], input=NOTE)
    assert done.exit_code == 2
    assert "no key" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "args", [["--policy", "nonesuch"], ["--system", "nonesuch"], ["--rules", "/nowhere"], ["--profile", "bold"]]
)
def test_a_wrong_choice_is_an_error_of_the_call(args: list[str]) -> None:
    assert text(*args, stdin=NOTE).exit_code == 2


def test_the_demonstration_key_is_said() -> None:
    assert "demonstration key" in text(stdin=NOTE).stderr
