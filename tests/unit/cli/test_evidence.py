"""``deid-agent evidence``: the report of a small feed, its bytes, its errors, and no PHI in any of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.evidence import gold, gold_line, write_lines
from support.review import make_site

from deid_agent.cli import main
from deid_agent.eval import Note
from deid_agent.review import load_review_key, make_key_file
from deid_agent.review.records import Decision, NoteDecisions

PATIENTS = 12
CANARIES = ("Zyblorq", "Quorvex", "Vantrix", "4471902", "Squonkville", "zyx-secret", "lion tamer", "1931")
TEXT = (
    "Mrs. [[PATIENT|Zyblorq]], [[AGE|94]] years old, works as a lion tamer, seen [[DATE|3/{n}/2019]] by Dr. "
    "[[DOCTOR|Quorvex]] in [[CITY|Squonkville]], OH [[ZIP|03601]], MRN [[MEDICALRECORD|4471902]]. "
    "No fever. Aspirin 81 mg."
)


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["evidence", *map(str, args)])


def notes() -> Iterator[Note]:
    for n in range(1, PATIENTS + 1):
        yield gold(f"zyx-secret-{n}", f"Vantrix{n}", TEXT.format(n=n))


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """A folder with originals, outputs in which two names leak, a reviewed sample and a table of patients."""
    outputs = []
    for n, note in enumerate(notes()):
        text = (
            note.annotated.text.replace("Quorvex", "Harper")
            .replace("4471902", "9023371")
            .replace(f"3/{n + 1}/", "5/9/")
        )
        outputs.append({"id": note.id, "text": text if n < 2 else text.replace("Zyblorq", "Mott").replace("94", "90")})
    write_lines(tmp_path / "originals.jsonl", ({**gold_line(note), "spans": []} for note in notes()))
    write_lines(tmp_path / "outputs.jsonl", outputs)
    write_lines(tmp_path / "gold.jsonl", map(gold_line, notes()))
    rows = "".join(f"Vantrix{n},F,1931,{'North' if n < 12 else 'Zyblorq'}\n" for n in range(1, PATIENTS + 1))
    (tmp_path / "patients.csv").write_text("patient,sex,birth_year,name_origin\n" + rows, "utf-8")
    return tmp_path


def report(feed: Path, name: str, *more: str | Path) -> Result:
    return run(
        *(feed / "originals.jsonl", feed / "outputs.jsonl", "--out", feed / name, "--sample", feed / "gold.jsonl"),
        *("--patients", feed / "patients.csv", "--no-attacks", "--demo-key", "--time", "2026-11-27T08:00:00Z", *more),
    )


def figures(folder: Path) -> dict[str, tuple[int, int]]:
    found = json.loads((folder / "evidence.json").read_bytes())
    return {each["name"]: (each["count"], each["of"]) for section in found["sections"] for each in section["figures"]}


def test_a_report_counts_the_leaks_of_the_feed(feed: Path) -> None:
    done = report(feed, "report")
    assert done.exit_code == 0, done.output
    assert "12 of 12 patients have a leak" in done.output
    found = figures(feed / "report")
    assert found["PATIENT that leak"] == (2, 12)
    assert found["CITY that leak"] == found["ZIP that leak"] == (12, 12)
    assert found["AGE that leak"] == (2, 12)
    assert found["name origin: North: recall of names"] == (20, 22)
    assert found["numbers with units"] == (12, 12)
    assert found["patients whose outputs have a ZIP code of an area of few people"] == (12, 12)
    assert found["patients whose outputs have an age over 89"] == (2, 12)
    assert found["patients in cells of fewer than 5 by sex, age and ZIP area"] == (2, 12)


def test_no_canary_is_in_a_report_or_on_a_terminal(feed: Path) -> None:
    done = report(feed, "report")
    files = [path.read_text("utf-8") for path in (feed / "report").iterdir()]
    assert len(files) == 3
    for text in (*files, done.output):
        assert not [canary for canary in CANARIES if canary.lower() in text.lower()]


def test_the_same_inputs_give_the_same_bytes_but_for_the_time(feed: Path) -> None:
    report(feed, "one")
    report(feed, "two")
    report(feed, "three", "--time", "2026-11-28")
    one, two, three = (
        {path.name: path.read_bytes() for path in (feed / name).iterdir()} for name in ("one", "two", "three")
    )
    assert one == two != three
    later = three["evidence.json"].replace(b"2026-11-28T00:00:00Z", b"2026-11-27T08:00:00Z")
    assert later == one["evidence.json"]
    report(feed, "four", "--seed", "2")
    assert (feed / "four" / "evidence.json").read_bytes() != one["evidence.json"]


def test_a_signed_report_is_verified(feed: Path) -> None:
    report(feed, "report")
    key = CliRunner().invoke(main, ["audit", "key", "--demo-key"]).stdout.split()[-1]
    assert run("verify", feed / "report", "--key", key).exit_code == 0
    page = feed / "report" / "evidence.html"
    page.write_text(page.read_text("utf-8").replace("12 of 12", "0 of 12"), "utf-8")
    done = run("verify", feed / "report", "--key", key)
    assert (done.exit_code, done.stdout) == (1, "evidence.html: is not the file that was signed\nNOT SOUND\n")
    assert run("verify", feed / "report", "--key", "0" * 64).exit_code == 1
    assert run("verify", feed / "report").exit_code == 2


def test_a_report_without_a_sample_has_no_leak_figure(feed: Path) -> None:
    done = run("report", feed / "originals.jsonl", feed / "outputs.jsonl", "--out", feed / "r")
    assert done.exit_code == 0, done.output
    assert "Leaks: no figures: no --sample was given" in done.output
    assert "the report is not signed" in done.output
    assert not [name for name in figures(feed / "r") if "leak" in name]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--sample", "empty.jsonl"], "holds no note"),
        (["--sample", "other.jsonl"], "1 note of 1 with a text that no original has"),
        (["--sample", "bare.jsonl"], "has no annotation"),
        (["--sample", "missing.jsonl"], "no such file"),
        (["--sample", "labels.jsonl"], "a span of an unknown type"),
        (["--patients", "others.csv"], "has none of the 12 patients"),
        (["--audit", "nowhere"], "no such folder"),
        (["--sign-key", "weak.key"], "exclude each other"),
        (["--policy", "nosuch"], "nosuch"),
    ],
)
def test_bad_input_is_a_clear_error_without_a_report(feed: Path, options: list[str], problem: str) -> None:
    (feed / "empty.jsonl").write_text("", "utf-8")
    write_lines(feed / "other.jsonl", [gold_line(gold("a", "b", "Zyblorq [[PATIENT|Quorvex]]"))])
    write_lines(feed / "bare.jsonl", ({**gold_line(note), "spans": []} for note in notes()))
    labels = [{"id": "a", "text": "Zyblorq", "spans": [{"start": 0, "end": 4, "type": "ZYBLORQ"}]}]
    write_lines(feed / "labels.jsonl", labels)
    (feed / "others.csv").write_text("patient,sex,birth_year,name_origin\nZyblorq,F,1931,North\n", "utf-8")
    (feed / "weak.key").write_bytes(b"weak")
    done = report(feed, "report", *(feed / each if "." in each or each == "nowhere" else each for each in options))
    assert done.exit_code == 2
    assert problem in done.output
    assert not (feed / "report").exists()
    assert not [canary for canary in CANARIES if canary in done.output]


def test_outputs_of_another_feed_are_refused(feed: Path) -> None:
    write_lines(
        feed / "outputs.jsonl", ({"id": n.id, "text": "Tulips, bulbs and spades of all sizes " * 5} for n in notes())
    )
    done = report(feed, "report")
    assert done.exit_code == 2
    assert "12 texts of 12 with an output that is another text" in done.output


def test_patients_need_a_sample(feed: Path) -> None:
    done = run(
        *(feed / "originals.jsonl", feed / "outputs.jsonl", "--out", feed / "r", "--patients", feed / "patients.csv")
    )
    assert (done.exit_code, "give --sample or --review too" in done.output) == (2, True)


def test_originals_in_place_of_outputs_are_noticed(feed: Path) -> None:
    (feed / "outputs.jsonl").write_bytes((feed / "originals.jsonl").read_bytes())
    done = report(feed, "report")
    assert "nothing is replaced in any text" in done.output
    assert figures(feed / "report")["patients with a leak"] == (12, 12)


def test_a_folder_with_a_report_is_refused_before_the_work(feed: Path) -> None:
    (feed / "report").mkdir()
    (feed / "report" / "evidence.sig").touch()
    done = run(feed / "missing", feed / "missing", "--out", feed / "report")
    assert (done.exit_code, "has evidence.sig already" in done.output) == (2, True)
    done = run(feed / "missing", feed / "missing", "--out", feed / "gold.jsonl")
    assert (done.exit_code, "is not a folder" in done.output) == (2, True)


def test_the_gold_of_a_review_folder_is_a_sample(feed: Path) -> None:
    make_key_file(feed / "review.key")
    site = make_site(
        feed / "site",
        [each.annotated.text for each in notes()],
        reasons=("random",),
        key=load_review_key(feed / "review.key"),
    )
    with site.folder.locked():
        for id_, note in zip(site.notes, notes(), strict=True):
            decision = Decision(note.annotated.spans, finished=True)
            site.folder.write_decisions(id_, NoteDecisions({"anna": decision, "ben": decision}))
    given = (
        feed / "originals.jsonl",
        feed / "outputs.jsonl",
        "--out",
        feed / "r",
        "--no-attacks",
        "--review",
        site.path,
    )
    done = run(*given, "--review-key", feed / "review.key", "--patients", feed / "patients.csv")
    assert done.exit_code == 0, done.output
    assert figures(feed / "r")["PATIENT that leak"] == (2, 12)
    assert figures(feed / "r")["name origin: North: recall of names"] == (20, 22), "patients are those of the feed"
    with site.folder.locked():
        site.folder.write_decisions(site.notes[0], NoteDecisions())
    done = run(*(each if each != feed / "r" else feed / "r2" for each in given), "--review-key", feed / "review.key")
    assert (done.exit_code, "1 note of the random sample without gold" in done.output) == (2, True)
    done = run(*(each if each != feed / "r" else feed / "r2" for each in given))
    assert (done.exit_code, "--review needs --review-key" in done.output) == (2, True)
