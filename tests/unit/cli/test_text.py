"""The line forms of ``text``, which other programs call."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.cli import main
from deid_agent.recognize import INTRODUCING
from deid_agent.recognize.registry import load_rules
from deid_agent.rules import data_folder
from deid_agent.surrogate.lists import load_lists

NOTE = "Seen 03/04/2019 for cough. MRN: 4471902. Call 740-555-0183."
RULES = ("--jsonl", "--system", "rules")
"""A system that finds an unknown name only with a cue; a model might guess it without one."""


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


def test_context_finds_names_without_a_rule() -> None:
    note = "Towels near Zyblorq."
    bare = json.loads(text(*RULES, stdin=line(id="a", text=note)).stdout)
    found = json.loads(text(*RULES, stdin=line(id="a", text=note, context={"name": {"family": "Zyblorq"}})).stdout)
    assert bare["spans"] == []
    assert [s["type"] for s in found["spans"]] == ["PATIENT"]
    assert "Zyblorq" not in found["text"]


def test_notes_of_one_patient_share_known_names() -> None:
    notes = line(id="a", text="x", patient_id="p", context={"name": {"family": "Zyblorq"}}) + line(
        id="b", text="Towels near Zyblorq.", patient_id="p"
    )
    alone = [json.loads(x)["spans"] for x in text(*RULES, stdin=notes).stdout.splitlines()]
    together = [json.loads(x)["spans"] for x in text(*RULES, "--by-patient", stdin=notes).stdout.splitlines()]
    assert [len(s) for s in alone] == [0, 0]
    assert [len(s) for s in together] == [0, 1]


def shown(*args: str, stdin: str = "") -> list[list[str]]:
    """Types found in each line by the rules."""
    done = text(*RULES, *args, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return [[s["type"] for s in json.loads(x)["spans"]] for x in done.stdout.splitlines()]


def test_a_later_line_adds_context_to_earlier_lines_of_its_patient(tmp_path: Path) -> None:
    first = line(id="a", text="Towels near Zyblorq.", patient_id="p")
    other = line(id="b", text="Towels near Zyblorq.", patient_id="q")
    last = line(id="c", text="x", patient_id="p", context={"name": {"family": "Zyblorq"}})
    assert shown("--by-patient", stdin=first + other + last) == [["PATIENT"], [], []]
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_text(first + other)
    two.write_text(last)
    assert shown("--by-patient", str(one), str(two)) == [["PATIENT"], [], []]


def test_a_name_that_one_note_introduces_is_found_in_the_others() -> None:
    bare, titled = "Towels near Zyblorq.", "Seen with Mrs. Zyblorq today."
    notes = line(id="a", text=bare, patient_id="p") + line(id="b", text=titled, patient_id="p")
    assert shown(stdin=notes) == [[], ["PATIENT"]]
    assert shown("--by-patient", stdin=notes) == [["PATIENT"], ["PATIENT"]]


def test_rules_that_introduce_names_exist() -> None:
    assert {rule.id for rule in load_rules(data_folder("rules")).patterns} >= {source.id for source in INTRODUCING}


def test_by_patient_without_jsonl_is_a_usage_error() -> None:
    done = text("--by-patient", stdin=NOTE)
    assert done.exit_code == 2
    assert "--jsonl" in done.stderr
    assert done.stdout == ""


def test_a_byte_order_mark_before_lines_is_skipped() -> None:
    done = text("--jsonl", stdin=b"\xef\xbb\xbf" + line(id="a", text="x").encode())
    assert (done.exit_code, json.loads(done.stdout)["id"]) == (0, "a")


def test_several_notes_are_printed_on_separate_lines(tmp_path: Path) -> None:
    for name, note in (("a", "one"), ("b", "two\n"), ("c", "three")):
        (tmp_path / name).write_text(note)
    assert text(*(str(tmp_path / name) for name in "abc")).stdout == "one\ntwo\nthree\n"
    assert text(str(tmp_path / "a")).stdout == "one"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_reported_as_such() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "deid_agent", "text", "--demo-key"],
            input=NOTE.encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.decode().splitlines()[-1] == "deid-agent: stopped: output: No space left on device"


def test_the_environment_configures_text_like_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_POLICY", "safe-harbor")
    assert text(stdin=NOTE).stdout == "Seen 2019 for cough. MRN: [**MEDICALRECORD**]. Call [**PHONE**]."
    assert text("--policy", "keep", stdin=NOTE).stdout == NOTE
    for name, value in (("DEID_POLICY", "nonesuch"), ("DEID_PROFILE", "bold"), ("DEID_SYSTEM", "nonesuch")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert text(stdin=NOTE).exit_code == 2, name


def test_an_unknown_variable_stops_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_POLCY", "safe-harbor")
    done = text(stdin=NOTE)
    assert done.exit_code == 2
    assert "DEID_POLCY" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ("{not json\n", "not JSON"),
        ("[1]\n", "not an object"),
        (line(id=1, text="x"), "id: must be a string"),
        (line(id="a", text=None), "text: must be a string"),
        (line(text="x"), "id: is missing; each line needs id and text"),
        (line(id="a"), "text: is missing; each line needs id and text"),
        (line(id="a", text="x", context={"Ada Okafor": 1}), "context: unknown member; known: account"),
        (line(id="a", text="x", context=[]), "context"),
        (line(id="a", text="x", context={"birth_date": "spring"}), "context.birth_date"),
        (line(id="a", text="x", patient_id=7), "patient_id"),
    ],
)
def test_an_invalid_line_is_named_and_the_others_are_processed(bad: str, expected: str) -> None:
    done = text("--jsonl", stdin=bad + line(id="z", text=NOTE))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["id"] == "z"
    assert "line 1" in done.stderr
    assert expected in done.stderr
    assert "Okafor" not in done.stderr


def test_plain_notes_and_json_form(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text(NOTE)
    assert "4471902" not in text(str(note)).stdout
    assert json.loads(text("--json", str(note)).stdout)["id"] == str(note)
    assert text("--policy", "keep", stdin=NOTE).stdout == NOTE


def test_the_same_note_twice_gives_the_same_text() -> None:
    assert text(stdin=NOTE).stdout == text(stdin=NOTE).stdout


def test_bytes_that_are_not_text_are_refused() -> None:
    done = text(stdin=b"\xff\xfe")
    assert done.exit_code == 1
    assert "byte 0" in done.stderr


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOTE)
    wrong = tmp_path / "none.txt"
    done = text("--system", "rules", str(tmp_path / "a.txt"), str(wrong))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert f"deid-agent: {wrong}: no such file" in done.stderr
    missing = str(tmp_path / "none.txt")
    other = CliRunner().invoke(main, ["message", "--demo-key", missing])
    assert other.exit_code == text(missing).exit_code
    assert f"deid-agent: {missing}: no such file" in other.stderr


def test_an_unreadable_file_is_named_with_the_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = tmp_path / "shut.txt"
    shut.write_text(NOTE)

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    done = text("--system", "rules", str(shut))
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{shut}: cannot be read (Permission denied)" in done.stderr


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
def test_an_invalid_choice_is_a_usage_error(args: list[str]) -> None:
    assert text(*args, stdin=NOTE).exit_code == 2


def test_the_demonstration_key_is_announced() -> None:
    assert "demonstration key" in text(stdin=NOTE).stderr


def test_a_name_found_with_a_cue_is_found_again_without_one() -> None:
    done = CliRunner().invoke(main, ["text", "--demo-key", "-"], input="Mrs. Ada Okafor was seen. Okafor, A. called.")
    assert "Okafor" not in done.stdout and done.stdout.count(done.stdout.split()[2]) == 2


@pytest.mark.parametrize(("sex", "listed"), [("F", "female"), ("male", "male"), ("Female", "female")])
def test_the_surrogate_has_the_sex_of_the_context(sex: str, listed: str) -> None:
    lists = load_lists(data_folder("rules"))
    for number in range(5):
        context = {"name": {"given": "Ashley", "family": f"Okafor{'abcde'[number]}"}, "sex": sex}
        done = text("--jsonl", stdin=line(id=str(number), text="Ashley was seen today.", context=context))
        given = json.loads(done.stdout)["text"].split()[0]
        assert given != "Ashley" and lists.has(listed, given.lower())
