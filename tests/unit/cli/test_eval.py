"""``deid-agent eval``: over a corpus and over files, with its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.cli import main

CASES = Path(__file__).resolve().parents[2] / "cases" / "corpora"
NOTES = CASES.parent / "notes"
GOLD = CASES / "notes.jsonl"
RULES = ("--system", "rules")
"""Their findings can be counted by hand, and no training changes them."""
MARKUP = """\
@@PATIENT id={id}
{{"name": {{"given": ["Zed"], "family": "Zyblorq"}}}}
@@NOTE id={id}-1 type=letter date=2014-02-06
Mr. [[PATIENT|Zyblorq]] came on [[DATE|3/4/2019]], MRN: [[MEDICALRECORD|4471902]].
@@END
@@NOTE id={id}-2 type=note date=2014-03-06
Towels near [[PATIENT|Zyblorq]].
@@END
"""


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, args)])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for id_ in ("da-02", "dd-01"):
        (folder / f"{id_}.txt").write_text(MARKUP.format(id=id_), "utf-8")
    return folder


def totals(*args: str | Path) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    done = run(*args, "--json", "-")
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout)["totals"])


def sums(*args: str | Path) -> list[float]:
    return list(totals(*args)["strict"]["micro"]["sums"].values())


def test_a_corpus_is_tagged_and_scored(corpus: Path) -> None:
    done = run(corpus, *RULES)
    assert done.exit_code == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["DATE"][:5] == ["2", "2", "1.000", "1.000", "1.000"]
    assert rows["PATIENT"][:2] == ["4", "2"]
    assert "4 notes of 2 patients" in done.stdout


def test_context_finds_more(corpus: Path) -> None:
    assert sums(corpus, *RULES) == [6, 6, 6, 8]
    assert sums(corpus, *RULES, "--by-patient") == [8, 8, 8, 8]
    assert sums(corpus, *RULES, "--context", "profile") == [8, 8, 8, 8]


def test_a_split_or_an_author_can_be_selected(corpus: Path) -> None:
    assert sums(corpus, "--split", "dev")[3] == 4
    assert sums(corpus, "--split", "train")[3] == 4
    assert sums(corpus, "--authors", "dd")[3] == 4
    assert sums(corpus, "--authors", "dd,da")[3] == 8


def test_ablation_alarms_and_page(corpus: Path, tmp_path: Path) -> None:
    clean, out, html = tmp_path / "clean", tmp_path / "out.json", tmp_path / "out.html"
    clean.mkdir()
    (clean / "a.txt").write_text("Seen on 3/4/2019 " + "word " * 97, "utf-8")
    (clean / "b.jsonl").write_text('{"id": "b", "text": "nothing"}\n', "utf-8")
    done = run(corpus, *RULES, "--benign", clean, "--ablate", "--json", out, "--html", html)
    assert done.exit_code == 0, done.output
    data = json.loads(out.read_text("utf-8"))
    assert data["benign"] | {"sources": None} == {
        "notes": 2,
        "words": 101,
        "alarms": 1,
        "ages": 0,
        "per_thousand_words": pytest.approx(1000 / 101),
        "sources": None,
    }
    assert data["ablation"]["patterns"]["strict"] > 0.8
    assert list(data["authors"]) == ["da", "dd"]
    assert set(data["kinds"]) == {"letter", "note"}
    assert "Zyblorq" not in out.read_text("utf-8")
    assert "Towels near <span" in html.read_text("utf-8")
    assert "patterns" in done.stdout


def test_findings_of_others_are_scored_by_id(tmp_path: Path) -> None:
    pred = tmp_path / "pred.jsonl"
    spans = [{"start": 0, "end": 9, "type": "PATIENT"}, {"start": 0, "end": 3, "type": "DATE"}]
    pred.write_text(
        json.dumps({"id": "n2", "spans": []}) + "\n" + json.dumps({"id": "n1", "text": "other", "spans": spans}),
        "utf-8",
    )
    assert sums("--gold", GOLD, "--pred", pred) == [1, 2, 1, 2]


def test_lines_of_the_text_command_are_scored(corpus: Path, tmp_path: Path) -> None:
    note = json.loads(GOLD.read_text("utf-8").splitlines()[0])
    line = json.dumps({"id": note["id"], "text": note["text"]}) + '\n{"id": "n2", "text": ""}\n'
    tagged = CliRunner().invoke(main, ["text", "--jsonl", "--demo-key"], input=line)
    pred = tmp_path / "pred.jsonl"
    pred.write_text(tagged.stdout, "utf-8")
    assert sums("--gold", GOLD, "--pred", pred)[3] == 2


def test_notes_missing_on_one_side_are_reported(tmp_path: Path) -> None:
    pred = tmp_path / "pred.jsonl"
    pred.write_text('{"id": "n1", "spans": []}\n{"id": "n9", "spans": []}\n', "utf-8")
    done = run("--gold", GOLD, "--pred", pred)
    assert done.exit_code == 1
    assert "n2: missing; counted as no findings" in done.stderr
    assert "n9: not among the gold notes" in done.stderr
    assert "PATIENT" in done.stdout


@pytest.mark.parametrize("form", ["i2b2-2014", "i2b2-2006.xml", "brat", "notes.jsonl"])
def test_every_form_of_corpus_is_tagged(form: str) -> None:
    assert totals(CASES / form)["strict"]["micro"]["recall"]["value"] > 0


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--gold", GOLD],
        [NOTES, "--gold", GOLD, "--pred", GOLD],
        ["--gold", GOLD, "--pred", GOLD, "--ablate"],
        [GOLD, "--split", "dev"],
        [NOTES, "--authors", "zz"],
        [NOTES, "--split", "dev"],
        [NOTES, "--system", "nothing"],
        [NOTES, "--benign", "/nowhere"],
        ["/nowhere"],
        [GOLD, "--format", "brat"],
    ],
)
def test_wrong_usage_names_the_remedy(args: list[str | Path]) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("deid-agent: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_scores_of_an_earlier_run_are_not_overwritten(option: str, corpus: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "scores"
    earlier.write_text("of an earlier run")
    done = run(corpus, option, earlier)
    assert (done.exit_code, earlier.read_text()) == (2, "of an earlier run")
    assert f"{option} {earlier}: exists" in done.stderr


def test_a_bound_that_does_not_hold_is_exit_code_1(tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text(
        '{"id": "a", "text": "Dr. Okafor came.", "spans": [{"start": 4, "end": 10, "type": "DOCTOR"}]}\n', "utf-8"
    )
    (tmp_path / "convention.toml").write_text("title = true\n", "utf-8")
    done = run(notes, *RULES, "--bound", "0.01", "--convention", tmp_path / "convention.toml")
    assert done.exit_code == 1
    assert "no claim of 1.00 % may be made: with these patients the least bound is 50.00 %" in done.stdout
    assert "by the convention of the file:" in done.stdout
    assert run(notes, *RULES, "--bound", "0.6").exit_code == 0
