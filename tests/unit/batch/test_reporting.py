"""The report, the sample, and the pace of a run."""

import asyncio
import gzip
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from support.batch_folders import Folders, read_lines, write_inputs

from deid_agent.agent import load_private_key, load_public_key
from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.batch.manifest import AUDIT, Head, Manifest, UnitEntry, read_manifest
from deid_agent.batch.pacing import PAUSE, Pace, RunProgress, measure_units
from deid_agent.batch.report_page import report_page, review_page
from deid_agent.batch.reporting import bound_misses, describe_bound, find_unusual, make_report
from deid_agent.batch.sampling import SealedRow, read_sample
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import InputFile, Unit, list_units
from deid_agent.batch.verifying import verify_folder
from deid_agent.cli import main
from deid_agent.model import ConfigurationError, DeadLetterError

pq = pytest.importorskip("pyarrow.parquet")
CANARIES = ("Quixwell", "Zyblorq", "4471902", "740-555", "555-0183")


class World:
    """A folder with a sample of 6 of 15 rows."""

    def __init__(self, folder: Path) -> None:
        generate_keys(folder / "readers.key")
        generate_keys(folder / "others.key")
        self.folder, self.inputs, self.out = folder, write_inputs(folder / "in", 3, 5), folder / "out"
        self.readers = load_public_key(folder / "readers.key.pub")
        self.reports = Folders().run(self.inputs, self.out, readers=self.readers, size=6)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def report(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["batch", "report", *map(str, args)])


def published(out: Path) -> list[dict[str, Any]]:
    """The rows of the outputs, in the order of the inputs."""
    return [row for line in read_lines(out)[1:] for row in pq.read_table(out / str(line["file"])).to_pylist()]


def test_the_figures_are_those_of_a_count_by_hand(world: World, tmp_path: Path) -> None:
    done = report(world.out, "--json", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    found = orjson.loads(done.stdout)
    rows, before = published(world.out), []
    for path in sorted(world.inputs.glob("*.csv")):
        before += [line.split(",") for line in path.read_text().splitlines()[1:]]
    texts = [row["text"] for row in rows]
    assert (found["units"], found["rows"], found["refused"], found["no_patient"]) == (3, 15, {}, 3)
    assert found["types"]["PHONE"] == sum(len(re.findall(r"\d{3}-\d{3}-\d{4}", text)) for text in texts) == 12
    assert found["types"]["DATE"] == sum(len(re.findall(r"\d+/\d+/\d{4}", text)) for text in texts) == 12
    assert found["types"]["PATIENT"] == 12
    changed = {
        name: sum(bool(old[place]) and old[place] != row[name] for old, row in zip(before, rows, strict=True))
        for place, name in enumerate(("id", "who"))
    }
    assert found["columns"] == {"text": 36, **changed}
    assert found["words"] == 12 * 6 + 3 * 4
    assert found["replacements"] == sum(found["types"].values()) == sum(found["rules"].values())
    assert found["sampled"] == 6
    assert found["median_per_1000_words"] is None, "too few words"
    page = (tmp_path / "page.html").read_text()
    shown = report(world.out).stdout
    for text in (page, shown, done.stdout):
        assert not [canary for canary in CANARIES if canary in text]
    assert "6 rows without a miss: below 40 % of the rows at 95 %" in shown
    assert re.findall(r"(?:https?:|<script|<img|<link|url\()", page) == []
    assert report(world.out, "--html", tmp_path / "page.html").exit_code == 2, "never overwritten"


def test_names_and_cells_are_escaped() -> None:
    evil = "<script>alert(1)</script>\"'&"
    entry = UnitEntry("u", "s", f"part-{evil[8:13]}", "d", 1, {evil: 1}, words=9, counts=((evil, evil, "m", evil, 2),))
    manifest = Manifest(Head(evil, evil, evil, evil, evil), {"u": entry})
    cells = [(evil, evil, evil, evil + "x"), (evil, evil, None, evil)]
    pages = [report_page(make_report(manifest), 3), review_page([(SealedRow("0", evil, 0, b""), cells)], {})]
    for page in pages:
        assert "<script" not in page and "default-src 'none'" in page


@pytest.mark.parametrize(
    ("rows", "missed", "percent"), [(300, 0, 0.994), (300, 1, 1.572), (50, 0, 5.816), (1000, 3, 0.7735), (1, 0, 95.0)]
)
def test_the_bound_is_that_of_clopper_and_pearson(rows: int, missed: int, percent: float) -> None:
    assert 100 * bound_misses(rows, missed) == pytest.approx(percent, rel=2e-3)
    assert bound_misses(5, 5) == 1.0


def test_the_sentence_of_the_bound() -> None:
    assert describe_bound(300) == "300 rows without a miss: below 1 % of the rows at 95 %"
    assert describe_bound(300, 1) == "300 rows with 1 missed: below 1.6 % of the rows at 95 %"
    assert describe_bound(0) == "no rows were sampled"


def test_a_unit_with_a_broken_encoding_leaves_the_median() -> None:
    def unit(name: str, words: int, replacements: int) -> UnitEntry:
        return UnitEntry(name, "s", name, "d", 1, {}, words=words, in_texts=replacements)

    usual = [unit(f"u{n}", 5000, 300 + n) for n in range(9)]
    odd = [unit("broken", 5000, 40), unit("names", 5000, 900), unit("small", 100, 0), unit("chance", 210, 6)]
    middle, found = find_unusual([*usual, *odd])
    assert middle == pytest.approx(60.7)
    assert [each.file for each in found] == ["broken", "names"]
    assert find_unusual([unit("small", 100, 5)]) == (None, [])


def test_the_sample_is_the_same_whenever_the_units_are_made(world: World, tmp_path: Path) -> None:
    found = read_sample(world.out)
    assert found is not None and len(found.rows) == 6
    out = tmp_path / "out"
    kept = sorted(world.inputs.glob("*.csv"))
    part = tmp_path / "part"
    part.mkdir()
    for path in reversed(kept):
        (part / path.name).write_bytes(path.read_bytes())
        Folders().run(part, out, readers=world.readers, size=6)
    other = read_sample(out)
    assert other is not None
    assert [(row.rank, row.unit, row.row) for row in other.rows] == [
        (row.rank, row.unit, row.row) for row in found.rows
    ]
    assert not verify_folder(out).findings
    # A changed input: its rows are drawn anew, and rows that were left out do not come back.
    (part / kept[0].name).write_text("id,who,text,n\n1,p1,Zyblorq came.,1\n")
    Folders().run(part, out, readers=world.readers, size=6, again=True)
    changed = read_sample(out)
    assert changed is not None and len(changed.rows) <= 6
    assert all(row.rank < changed.bound for row in changed.rows)
    assert not verify_folder(out).findings


def test_only_the_readers_open_the_sample(world: World, tmp_path: Path) -> None:
    data = (world.out / AUDIT / "sample.jsonl").read_text()
    assert not [canary for canary in CANARIES if canary in data]
    page = tmp_path / "review.html"
    key = world.folder / "readers.key"
    done = report(world.out, "--review", page, "--reader-key", key, "--sample", "5")
    assert done.exit_code == 0 and "originals in the clear" in done.stderr
    assert not [canary for canary in CANARIES if canary in done.output]
    text = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert text.count("<section>") == 5 and "5 rows without a miss: below 46 %" in text
    assert "<del>" in text and "<script" not in text
    private = load_private_key(key)
    sample = read_sample(world.out)
    assert sample is not None
    by_unit = {str(line["unit"]): world.out / str(line["file"]) for line in read_lines(world.out)[1:]}
    for row in sample.rows:
        cells = {name: (before, after) for name, _, before, after in row.open(private)}
        known = pq.read_table(by_unit[row.unit]).to_pylist()[row.row]
        assert {name: after for name, (_, after) in cells.items()} == {
            name: None if known[name] is None else str(known[name]) for name in cells
        }
        with pytest.raises(DeadLetterError):
            SealedRow(row.rank, row.unit, row.row + 1, row.sealed).open(private)
    wrong = report(world.out, "--review", tmp_path / "no.html", "--reader-key", world.folder / "others.key")
    assert wrong.exit_code == 1 and "not sealed to key" in wrong.stderr
    assert report(world.out, "--sample", "5").exit_code == 2


def test_a_run_that_would_leave_rows_out_of_the_sample_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has a sample of 6 rows: give --sample"):
        Folders().run(world.inputs, world.out)
    with pytest.raises(ConfigurationError, match="has a sample of 6 rows for the key"):
        Folders().run(world.inputs, world.out, readers=world.readers, size=7)
    Folders().run(world.inputs, tmp_path / "out")
    with pytest.raises(ConfigurationError, match="outputs without a sample"):
        Folders().run(world.inputs, tmp_path / "out", readers=world.readers)


def test_a_limit_ends_within_a_unit(world: World, tmp_path: Path) -> None:
    for _ in range(2):  # the second run finds the first one's work
        ends = Folders().run(world.inputs, tmp_path / "out", pace=Pace(tmp_path / "out", limit=7))
        assert [end.entry.rows if end.entry else end.left_out for end in ends] in ([5, 2, True], [5, 2, True])
    assert len(published(tmp_path / "out")) == 7
    assert published(tmp_path / "out")[:5] == published(world.out)[:5]
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None and len(manifest.lines) == 3


def test_the_progress_ends_with_all_bytes(world: World, tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []

    def note(progress: RunProgress) -> None:
        seen.append((progress.share, progress.rows))

    Folders().run(world.inputs, tmp_path / "out", pace=Pace(tmp_path / "out", rate=1e6, report=note))
    assert seen == sorted(seen)
    assert seen[-1] == (1.0, 15)


async def test_a_file_pauses_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deid_agent.batch.pacing._LOOK_S", 0.001)
    seen: list[bool] = []
    pace = Pace(tmp_path, report=lambda progress: seen.append(progress.paused))
    (tmp_path / PAUSE).touch()
    waiting = asyncio.create_task(pace.wait(1))
    await asyncio.sleep(0)
    assert seen == [True] and not waiting.done()
    (tmp_path / PAUSE).unlink()
    await waiting
    assert not seen[-1]


async def test_a_rate_spaces_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("deid_agent.batch.pacing.asyncio.sleep", sleep)
    monkeypatch.setattr("deid_agent.batch.pacing.time.monotonic", lambda: 100.0)
    pace = Pace(tmp_path, rate=10.0)
    for _ in range(3):
        await pace.wait(64)
    assert slept == pytest.approx([0.0, 6.4, 12.8])


def test_the_size_of_a_unit_is_that_without_compression(tmp_path: Path) -> None:
    data = b"id,who,text,n\n" + b"1,p1,well,1\n" * 1000
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data))
    ((source,), _) = list_sources([tmp_path])
    (unit,) = list_units(source, 1)
    assert measure_units([unit]) == {unit: len(data)}
    (tmp_path / "b.csv.gz").write_bytes(b"")
    empty = Unit(InputFile(1, "b", tmp_path / "b.csv.gz", source.format))
    gone = Unit(InputFile(2, "c", tmp_path / "c.csv", source.format))
    assert measure_units([empty, gone]) == {empty: 0, gone: 0}


def test_counters_are_sorted_by_frequency() -> None:
    entry = UnitEntry(
        "u", "s", "f", "d", 1, dict(Counter("b")), counts=(("c", "A", "m", "r", 1), ("c", "B", "m", "r", 9))
    )
    assert list(make_report(Manifest(Head(*"abcde"), {"u": entry})).types) == ["B", "A"]


def study(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", "report", *map(str, args), "--unauthenticated"])


def test_the_report_of_a_study_has_the_figures_of_the_run(world: World, tmp_path: Path) -> None:
    done = study(world.out, "--project", "registry", "--out", tmp_path / "a.html", "--json", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    found, made = orjson.loads((tmp_path / "a.json").read_bytes()), orjson.loads(report(world.out, "--json").stdout)
    assert (found["unit"], found["records"], found["replaced"]) == ("row", 15, made["replacements"])
    assert {name: sum(methods.values()) for name, methods in found["types"].items()} == made["types"]
    assert "?" not in (found["first_at"], found["last_at"])
    assert not [canary for canary in CANARIES if canary in (tmp_path / "a.html").read_text()]
    assert study(world.out, "--from", "2020-01-01", "--out", tmp_path / "b.html").exit_code == 2, "one run"
    done = study(world.out / AUDIT / "trail", "--out", tmp_path / "b.html")
    assert done.exit_code == 2 and "name its output folder" in done.stderr


def test_the_report_of_a_study_names_a_changed_output(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(world.out, out)
    file = next(iter(out.glob("*.parquet")))
    file.write_bytes(file.read_bytes() + b"x")
    assert study(out, "--out", tmp_path / "a.html").exit_code == 1
    assert "NOT intact" in (tmp_path / "a.html").read_text() and file.name in (tmp_path / "a.html").read_text()
