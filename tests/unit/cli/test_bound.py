"""``deid-agent bound`` over a sample, its file in each command with a profile, and samples that allow no claim."""

import json
from collections.abc import Iterator
from hashlib import sha512
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bounds import make_bound, write_bound, write_sample
from support.review import make_site as make_review

import deid_agent
from deid_agent.app import make_factory, read_bound
from deid_agent.batch.frames import BatchDeidentifier
from deid_agent.batch.systems import EngineSystem, make_head
from deid_agent.batch.tables import load_table
from deid_agent.cli import bound as bound_module
from deid_agent.cli import main
from deid_agent.cli.check import _bounds
from deid_agent.cli.inventory import RunningAgent, read_inventory
from deid_agent.cli.projects import describe_projects
from deid_agent.cli.service_parts import describe_build, make_worker_factory
from deid_agent.config import DEMO_KEY, load_settings
from deid_agent.eval import read_annotated
from deid_agent.model import ConfigurationError
from deid_agent.review.records import Decision, NoteDecisions
from deid_agent.rules import data_folder

CLAIM = "at most 5 % of the identifiers in the notes are missed, on average over samples and patients."


def call(*args: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, list(map(str, args)), input=stdin)


def compute(sample: Path, out: Path, *more: str | Path, alpha: str = "0.05", random: bool = True) -> Result:
    drawn = ("--random",) if random else ()
    return call("bound", sample, "--alpha", alpha, "--population", "ward X, March", "--out", out, *drawn, *more)


@pytest.fixture(scope="module")
def few_leans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound_module, "LEANS", (1.0, 50.0))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, few_leans: None) -> Path:
    folder = tmp_path_factory.mktemp("bound")
    done = compute(write_sample(folder / "sample.jsonl"), folder / "bound.json", "--alpha", "0.01")
    assert done.exit_code == 0, done.output
    (folder / "printed.txt").write_text(done.stdout, "utf-8")
    return folder / "bound.json"


def settings_file(folder: Path, top: str, more: str = "") -> Path:
    for name in ("in", "out", "dead"):
        (folder / name).mkdir(exist_ok=True)
    key = folder / "deid.key"
    if not key.exists():
        key.write_bytes(sha512(b"a key of a test").digest())
        key.chmod(0o600)
    file = folder / "agent.toml"
    file.write_text(
        f'transport = "directory"\nkey_file = "{key}"\n{top}\n[directory]\ninput = "{folder}/in"\n'
        f'output = "{folder}/out"\ndead_letters = "{folder}/dead"\nstate = "{folder}/state"\n'
        f'[dead_letters]\nplain = true\n[audit]\npath = "{folder}/audit"\n{more}',
        "utf-8",
    )
    return file


def test_the_claim_and_the_needs_of_a_smaller_one_are_printed(made: Path) -> None:
    printed = (made.parent / "printed.txt").read_text("utf-8")
    assert "budget of 5 %: lean 1, bound 4.00 %" in printed
    assert (
        "budget of 1 %: no claim; 48 notes of 24 patients certify nothing under 4.00 %; it needs 99 patients, about "
        "198 notes" in printed
    )
    found = read_bound(made)
    assert printed.endswith(f"{found.sentence}\n")
    assert found.sentence.endswith(CLAIM)
    assert (found.notes, found.patients, found.population, found.lean) == (48, 24, "ward X, March", 1.0)
    assert [row.lean for row in found.budgets] == [1.0, None]
    assert found.drift.documents == 24


def test_every_interface_takes_the_profile(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "Mrs. Okafor was seen by Dr. Castellano."
    done = call("text", "--demo-key", "--profile", "budget", "--budget", made, stdin=note)
    assert (done.exit_code, "Okafor" in done.stdout) == (0, False)
    assert deid_agent.load(demo_key=True, profile="budget", budget=made).text(note).text == done.stdout.rstrip("\n")
    scores = call("eval", made.parent / "sample.jsonl", "--profile", "budget", "--budget", made)
    assert "leaked spans: 0" in scores.stdout
    assert call("eval", made, "--profile", "budget").exit_code == 2
    monkeypatch.setenv("DEID_PROFILE", "budget")
    monkeypatch.setenv("DEID_BUDGET", str(made))
    assert call("text", "--demo-key", stdin=note).stdout == done.stdout


def test_the_lean_of_the_file_is_that_of_the_models(tmp_path: Path) -> None:
    path = write_bound(tmp_path / "bound.json", make_bound(lean=50.0))
    parts = make_factory(DEMO_KEY, policy="research", profile="budget", system="default", budget=path)
    (model,) = parts.deidentifier(notes_only=True).tagger.models
    assert getattr(model, "lean", None) == 50.0


def test_batch_builds_with_other_bounds_never_mix(made: Path, tmp_path: Path) -> None:
    table = load_table("omop/note", data_folder("rules"))
    other = write_bound(tmp_path / "other.json", make_bound())
    builds = set()
    for path in (made, made, other):
        system = EngineSystem(demo_key=True, profile="budget", budget=str(path))
        builds.add(make_head(table, system.make_parts({}), "csv").build)
    assert len(builds) == 2
    assert EngineSystem(profile="budget", budget="b.json").resolve(Path("/data")).budget == "/data/b.json"
    frames = BatchDeidentifier(table, demo_key=True, profile="budget", budget=other, build="0" * 16)
    with pytest.raises(ConfigurationError, match="this process has build"):
        frames.load()


def test_check_prints_the_claim_and_warns_of_a_feed_that_differs(made: Path, tmp_path: Path) -> None:
    bound, state = read_bound(made), tmp_path / "drift.json"
    top = f'policy = "research"\nprofile = "budget"\nbudget = "{made}"'
    file = settings_file(tmp_path, top, f'[drift]\nfile = "{state}"\n')
    shape = [[0] * len(feature.counts) for feature in bound.drift.all]
    feeds = [
        {"topic": "adt", "template": "other", "bound": digest, "window": shape, "compared": 2, "run": run}
        | {"features": ["type:DATE"], "day": "2026-11-01", "documents": 0}
        for run, digest in ((0, bound.digest), (2, bound.digest), (3, "of an earlier sample"))
    ]
    state.write_text(json.dumps({"format": 1, "feeds": feeds}), "utf-8")
    done = call("check", "--config", file, "--offline")
    assert done.exit_code == 0, done.stdout
    assert f"ok   bound         default: {bound.sentence}" in done.stdout
    assert "warn bound         default: it was computed with policy pseudonymised" in done.stdout
    assert "ok   drift         adt, other: like the sample (2 windows, 2026-11-01)" in done.stdout
    assert (
        "warn drift         adt, other: differs from the sample in type:DATE (2026-11-01): the bound does not cover "
        "this feed any more: take a new sample" in done.stdout
    )
    assert done.stdout.count("drift  ") == 2


@pytest.mark.parametrize(
    ("drift", "shown"),
    [
        ("", "set drift.file"),
        ("window = 0", "no feed is compared with"),
        ('file = "FOLDER/none.json"', "no feed is compared yet"),
        ('file = "FOLDER/agent.toml"', "is not a file of these comparisons"),
    ],
)
def test_check_shows_the_state_of_the_comparisons(made: Path, tmp_path: Path, drift: str, shown: str) -> None:
    top = f'profile = "budget"\nbudget = "{made}"'
    settings = load_settings(settings_file(tmp_path, top, f"[drift]\n{drift.replace('FOLDER', str(tmp_path))}\n"))
    found = [each for each in _bounds(settings) if each.name == "drift"]
    assert [shown in each.shown + each.warning + each.problem for each in found] == [True]


def test_a_window_of_few_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="0, or 50 and more"):
        load_settings(settings_file(tmp_path, "", "[drift]\nwindow = 10\n"))


def test_the_build_has_the_digest_of_the_bound(made: Path, tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, f'profile = "budget"\nbudget = "{made}"'))
    parts, bound = make_worker_factory(settings, DEMO_KEY), read_bound(made)
    build = describe_build(settings, parts)
    assert build["bound"] == bound.digest
    assert read_inventory(RunningAgent(parts, settings, build))["bound"] == bound.sentence
    plain = load_settings(settings_file(tmp_path, ""))
    assert "bound" not in describe_build(plain, make_worker_factory(plain, DEMO_KEY))


def test_a_project_may_have_a_bound_of_its_own(made: Path, tmp_path: Path) -> None:
    other = write_bound(tmp_path / "other.json")
    for projects, expected in (
        (f'[projects.a]\nprofile = "budget"\nbudget = "{other}"\n', [None, 10.0]),
        ('[projects.a]\nprofile = "budget"\n', [None, 1.0]),
        ("", [1.0]),
    ):
        top = "" if projects else 'profile = "budget"\n'
        top += "" if "other" in projects else f'budget = "{made}"\n'
        settings = load_settings(settings_file(tmp_path, top, projects))
        parts = make_worker_factory(settings, DEMO_KEY)
        found = [parts.default.bound, *(each.bound for each in parts.projects)]
        assert [None if each is None else each.lean for each in found] == expected
        if projects:
            shown = describe_projects(settings, parts)["projects"]
            assert isinstance(shown, dict)
            assert shown["a"]["bound"] == found[1].digest  # type: ignore[union-attr]
            assert "bound" not in shown["default"]


@pytest.mark.parametrize(
    ("top", "named"),
    [
        ('profile = "budget"', "name the file"),
        ('budget = "x.json"', 'it is used with profile = "budget"'),
        ('profile = "budget"\nbudget = "none.json"', "cannot be read"),
    ],
)
def test_the_start_is_refused_without_a_usable_bound(tmp_path: Path, top: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        make_worker_factory(load_settings(settings_file(tmp_path, top)), DEMO_KEY)


def test_the_start_is_refused_with_a_bound_of_other_rules(made: Path, tmp_path: Path) -> None:
    site = tmp_path / "site" / "lists"
    site.mkdir(parents=True)
    (site / "CITY.txt").write_text("Utopia Falls\n", "utf-8")
    with pytest.raises(ConfigurationError, match="the bound is for other site"):
        make_factory(
            DEMO_KEY,
            policy="research",
            profile="budget",
            system="default",
            budget=made,
            rules=["shipped", tmp_path / "site"],
        )


def test_a_sample_that_allows_no_claim_writes_nothing(tmp_path: Path, few_leans: None) -> None:
    sample = write_sample(tmp_path / "sample.jsonl", 6, missed=6)
    done = compute(sample, tmp_path / "bound.json", alpha="0.1")
    assert done.exit_code == 1
    assert "no number of notes allows it" in done.stdout
    assert not (tmp_path / "bound.json").exists()


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "holds no note"),
        ([{"id": "a", "text": "", "spans": []}], "note 1 of 1 has no text"),
        ([{"id": "a", "spans": [{"start": 0, "end": 3, "type": "DATE"}]}], "note 1 of 1 has no text"),
        ([{"id": "a", "text": "She slept.", "spans": []}], "it is not reviewed"),
        ([{"id": "a", "text": "Ada", "spans": [{"start": 0, "end": 3, "type": "PER"}]}], "unknown type"),
        (
            [
                {"id": name, "text": "Ada " * 30, "spans": [{"start": 0, "end": 3, "type": "PATIENT"}]}
                for name in ("a", "b")
            ],
            "notes 1 and 2 of 2 are one text under two patients",
        ),
    ],
)
def test_an_unusable_sample_is_an_error(tmp_path: Path, lines: list[dict[str, object]], named: str) -> None:
    sample = tmp_path / "sample.jsonl"
    sample.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    done = compute(sample, tmp_path / "bound.json")
    assert (done.exit_code, named in done.stderr) == (2, True), done.output


def test_patients_without_an_annotation_are_named_because_they_lower_the_bound(tmp_path: Path, few_leans: None) -> None:
    """Notes that nobody reviewed have no annotation, and so no miss."""
    sample = write_sample(tmp_path / "sample.jsonl")
    with sample.open("a") as file:
        file.writelines(
            json.dumps({"id": f"Q{n}", "text": f"She slept {n} hours.", "spans": []}) + "\n" for n in range(3)
        )
    done = compute(sample, tmp_path / "bound.json", alpha="0.1")
    assert "3 patients of 27 without any annotation" in done.stderr


def test_notes_that_nobody_drew_are_an_error(tmp_path: Path) -> None:
    done = compute(write_sample(tmp_path / "sample.jsonl"), tmp_path / "bound.json", random=False)
    assert (done.exit_code, "random samples only" in done.stderr) == (2, True)


def test_another_label_set_is_an_error(tmp_path: Path) -> None:
    sample = tmp_path / "notes.xml"
    sample.write_text(
        '<?xml version="1.0"?>\n<ROOT>\n<RECORD ID="1">\n<TEXT>\n<PHI TYPE="PATIENT">Ada</PHI> came.\n</TEXT>\n'
        "</RECORD>\n</ROOT>\n",
        "utf-8",
    )
    done = compute(sample, tmp_path / "bound.json")
    assert (done.exit_code, "eight types of PHI" in done.stderr) == (2, True), done.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--system", "rules"), "no threshold"),
        (("--system", "none-such"), "no threshold"),
        (("--population", "two\nlines"), "one line"),
        (("--population", " "), "one line"),
        (("--alpha", "0"), "not in the range"),
        (("--alpha", "nan"), "between 0 and 1"),
        (("--review", "folder"), "give either SAMPLE"),
        (("--out", "none/bound.json"), "no such folder"),
    ],
)
def test_options_without_meaning_are_errors(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    done = compute(write_sample(tmp_path / "sample.jsonl"), tmp_path / "bound.json", *options)
    assert (done.exit_code, named in done.stderr) == (2, True), done.output


def test_a_review_needs_its_key(tmp_path: Path) -> None:
    done = call("bound", "--review", tmp_path, "--alpha", "0.05", "--population", "x", "--out", tmp_path / "b")
    assert (done.exit_code, "--review-key" in done.stderr) == (2, True)


def test_the_random_notes_of_a_review_are_a_sample(tmp_path: Path, few_leans: None) -> None:
    notes = read_annotated(write_sample(tmp_path / "sample.jsonl")).notes
    texts = [note.annotated.text for note in notes]
    site = make_review(tmp_path / "review", texts, reasons=("random",))

    def decide(count: int) -> None:
        for id_, note in list(zip(site.notes, notes, strict=True))[:count]:
            decision = Decision(note.annotated.spans, finished=True)
            site.folder.write_decisions(id_, NoteDecisions({"anna": decision, "ben": decision}))

    def run() -> Result:
        options = ("--alpha", "0.05", "--population", "the queue of March", "--out", tmp_path / "bound.json")
        return call("bound", "--review", site.path, "--review-key", tmp_path / "review" / "key", *options)

    with site.folder.locked():
        decide(47)
    done = run()
    assert (done.exit_code, "1 note of the random sample without gold" in done.stderr) == (2, True), done.output
    with site.folder.locked():
        decide(48)
    done = run()
    assert done.exit_code == 0, done.output
    found = read_bound(tmp_path / "bound.json")
    assert (found.notes, found.patients, found.population) == (48, 48, "the queue of March")


def test_a_review_of_chosen_notes_alone_allows_no_claim(tmp_path: Path) -> None:
    site = make_review(tmp_path / "review", ["Mrs. Okafor slept."], reasons=("uncertain",))
    done = call(
        *("bound", "--review", site.path, "--review-key", tmp_path / "review" / "key"),
        *("--alpha", "0.05", "--population", "x", "--out", tmp_path / "bound.json"),
    )
    assert (done.exit_code, "no note of the random sample" in done.stderr) == (2, True), done.output


def test_a_bound_is_not_overwritten(made: Path) -> None:
    done = compute(made.parent / "sample.jsonl", made)
    assert (done.exit_code, "exists" in done.stderr) == (2, True)
