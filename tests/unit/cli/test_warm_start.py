"""``deid-agent train --from``: trained models go on with the notes of a site, or stay as they are."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support import tiny_corpus

from deid_agent.cli import main
from deid_agent.eval import Comparison, RatioChange, read_annotated
from deid_agent.nlp import (
    OUTSIDE,
    CrfModel,
    InputEncoder,
    Network,
    NetworkModel,
    Schema,
    load_crf,
    load_network,
    load_vectors,
    save_network,
)
from deid_agent.nlp.network import Dimensions
from deid_agent.recognize import Profile
from deid_agent.rules import digest_features
from deid_agent.train import (
    Base,
    CrfAdaptation,
    Example,
    ExampleReader,
    Models,
    NetworkAdaptation,
    Verdict,
    load_default,
)
from deid_agent.train.crf_adapter import adapt_crf, blend_crf
from deid_agent.train.network_adapter import adapt_network
from deid_agent.train.network_trainer import initial_weights
from deid_agent.train.recipes import RECIPES, NetworkSettings

ROOT = Path(__file__).resolve().parents[3]
CORPUS = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dd-01": "Quatermain"}
SITE = {f"x{sign}-01": f"{sign.upper()}orvallin" for sign in "abcdefgh"}
SMALL = NetworkSettings(
    Dimensions(4, 4, 100, 4, 8, 8), ("shape", "rule"), batch=128, rate=0.02, least_word=2, least_value=2, epochs=1
)


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, args)])


@pytest.fixture(scope="module")
def small() -> dict[str, object]:
    return {**RECIPES, "network": replace(RECIPES["network"], settings=SMALL)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small models, the corpus that they learned from, and the notes of a site.

    The network has random weights: to train it would take half of the time of these tests.
    """
    folder = tmp_path_factory.mktemp("world")
    corpus = tiny_corpus.write(folder / "corpus", CORPUS)
    tiny_corpus.write(folder / "site", SITE)
    done = run("token", "--corpus", corpus, "--out", folder / "base", "--iterations", 8, "--quiet")
    assert done.exit_code == 0, done.output
    labels = load_crf(folder / "base", "token").crf.labels
    for ending in ("npz", "json"):
        shutil.copyfile(ROOT / "models" / f"vectors.{ending}", folder / "base" / f"vectors.{ending}")
    tokens = [example.tokens for example in read_examples(folder / "site")]
    vectors = load_vectors(folder / "base")
    encoder = InputEncoder.learn(tokens, SMALL.features, vectors, word=2, value=2)
    weights = initial_weights(SMALL.dimensions, encoder.table_sizes, len(labels), seed=1)
    network = Network.from_weights(SMALL.dimensions, encoder, weights, labels)
    card = {"rules": digest_features(ROOT / "rules"), "about": "random"}
    save_network(NetworkModel("network", Schema.IO, network, card), folder / "base")
    return folder


def read_examples(path: Path) -> list[Example]:
    reader = ExampleReader.load(ROOT / "rules", "default")
    return [reader.example(note) for note in read_annotated(path).notes]


@pytest.fixture
def adapt(world: Path, small: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a warm start from the small models. Arguments replace options with the same name."""
    monkeypatch.setattr("deid_agent.train.recipes.RECIPES", small)
    monkeypatch.chdir(world)

    def call(*args: str | Path, component: str = "token") -> Result:
        given = {"--from": "base", "--corpus": "site", "--iterations": "3"}
        given |= dict(zip(map(str, args[::2]), map(str, args[1::2]), strict=True))
        return run(component, *(part for pair in given.items() for part in pair))

    return call


def test_a_card_has_counts_and_no_text(adapt: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (world / "base").iterdir()}
    done = adapt("--out", tmp_path / "out", "--json", tmp_path / "scores.json")
    assert done.exit_code == 0, done.output
    assert {path.name: path.read_bytes() for path in (world / "base").iterdir()} == before
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(after) == set(before)
    assert {name for name in before if after[name] != before[name]} == {"token.npz", "token.json", "token.md"}
    base, new = load_crf(world / "base", "token"), load_crf(tmp_path / "out", "token")
    adapted = json.loads(after["token.json"])["adapted"]
    assert adapted["base"] == base.digest != new.digest
    assert (adapted["site"]["notes"], adapted["site"]["patients"]) == (16, 8)
    assert {check["of"] for check in adapted["checks"]} == {
        "dev notes of the corpus",
        "patients of the site, cross-validated",
    }
    shown = done.output + (tmp_path / "scores.json").read_text("utf-8")
    shown += "".join(after[name].decode() for name in ("token.json", "token.md"))
    assert not [name for name in (*SITE.values(), "Zed") if name.lower() in shown.lower()]
    assert new.card["corpus"] == base.card["corpus"]
    assert "| Went on with | 16 notes of 8 patients " in after["token.md"].decode()
    assert "aorvallin" in new.extractor.vocabulary["word"]
    assert load_default(ROOT / "rules", tmp_path / "out", Profile.RECALL).models
    assert set(Base.load(tmp_path / "out", ROOT / "rules").models) == {"token", "network"}, "a base for later notes"
    assert not list(tmp_path.glob(".out*"))


def test_the_same_notes_give_the_same_crf(world: Path) -> None:
    base, examples = load_crf(world / "base", "token"), read_examples(world / "site")
    one, two = (adapt_crf(base, examples, [], CrfAdaptation(prior=1, iterations=4)) for _ in range(2))
    assert (one.crf.weights == two.crf.weights).all()
    close = adapt_crf(base, examples, [], CrfAdaptation(prior=1e6, iterations=4))
    known = load_crf(world / "base", "token")
    assert (base.crf.weights == known.crf.weights).all(), "the base stays"
    for model, moved in ((one, True), (close, False)):
        before, after = (each.emissions([examples[0].tokens]) for each in (base, model))
        assert bool(abs(before - after).max() > 0.1) is moved


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_blended_scores_lie_between_those_of_both(world: Path, share: float) -> None:
    base, examples = load_crf(world / "base", "token"), read_examples(world / "site")
    adapted = adapt_crf(base, examples, [], CrfAdaptation(prior=1, iterations=4))
    before, after, blended = (
        each.emissions([examples[0].tokens]) for each in (base, adapted, blend_crf(base, adapted, share))
    )
    assert abs(before + share * (after - before) - blended).max() < 1e-3


def test_an_adaptation_leaves_its_base_unchanged(world: Path) -> None:
    base = load_network(world / "base", "network")
    before = {name: one.copy() for name, one in base.network.weights.items()}
    examples = read_examples(world / "site")
    one, two = (adapt_network(base, examples, [], NetworkAdaptation(epochs=2, rate=0.01)) for _ in range(2))
    weights = one.network.weights
    assert all((before[name] == base.network.weights[name]).all() for name in before)
    assert any((before[name] != weights[name]).any() for name in before)
    assert all((weights[name] == two.network.weights[name]).all() for name in before)
    losses = one.card["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("of", "change", "fault"),
    [
        ("strict", RatioChange(0.9, 0.894, -0.02, 0.01, 0.6), "lower strict F1: 0.9000 to 0.8940"),
        ("strict", RatioChange(0.9, 0.899, -0.002, 0.0, 0.93), "lower strict F1"),
        ("strict", RatioChange(0.9, 0.899, -0.002, 0.001, 0.8), ""),
        ("leaked", RatioChange(0.02, 0.0225, -0.01, 0.01, 0.6), "more leaks: 2.00 % to 2.25 %"),
        ("leaked", RatioChange(0.02, 0.0201, 0.0, 0.001, 0.95), "more leaks"),
        ("leaked", RatioChange(0.02, 0.019, -0.002, 0.0, 0.0), ""),
    ],
)
def test_a_loss_that_is_large_or_sure_is_refused(of: str, change: RatioChange, fault: str) -> None:
    same = RatioChange(0.5, 0.5, 0, 0, 0)
    one = {"strict": same, "leaked": same, of: change}
    faults = Verdict("dev", Comparison(10, 9, one["strict"], one["leaked"], (0, 0))).faults
    assert len(faults) == bool(fault)
    assert not fault or faults[0].startswith(f"dev: {fault}")


def silence(base: Base, *_: object) -> dict[str, CrfModel | NetworkModel]:
    """Models that find nothing."""
    token = base.models["token"]
    assert isinstance(token, CrfModel)
    bias = token.crf.bias + 1000 * (np.array(token.crf.labels) == OUTSIDE).astype(np.float32)
    return {**base.models, "token": replace(token, crf=replace(token.crf, bias=bias))}


def unchanged(base: Base, *_: object) -> dict[str, CrfModel | NetworkModel]:
    """Models that went on and learned nothing."""
    return {name: replace(model) for name, model in base.models.items()}


@pytest.mark.parametrize(
    ("steps", "faults"),
    [
        ([silence] * 4, ["dev notes of the corpus", "patients of the site, cross-validated"]),
        ([unchanged, silence, silence, silence], ["patients of the site, cross-validated"]),
        ([silence, unchanged, unchanged, unchanged], ["dev notes of the corpus"]),
        ([unchanged] * 4, []),
    ],
)
def test_models_that_are_worse_on_either_are_not_written(
    steps: list[Callable[..., Models]],
    faults: list[str],
    adapt: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first step is that of all notes, which the dev notes judge; the others are those of the folds."""
    rest = iter(steps)

    def step(*args: object) -> Models:
        return next(rest)(*args)

    monkeypatch.setattr("deid_agent.cli.warm_start.adapt_models", step)
    done = adapt("--out", tmp_path / "out", "--json", tmp_path / "s.json")
    assert done.exit_code == bool(faults), done.output
    assert {line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("refused")} == set(faults)
    assert (tmp_path / "out").exists() is not bool(faults)
    assert not list(tmp_path.glob(".out*"))
    assert json.loads((tmp_path / "s.json").read_text("utf-8"))["written"] is not bool(faults)


def lines(*spans: tuple[int, int, str], notes: int = 8) -> str:
    text = "Mr. Quill came on 3/4/2019 to Dr. Orvallin."
    annotations = [{"start": a, "end": b, "type": kind} for a, b, kind in spans]
    return "".join(json.dumps({"id": f"n{at}", "text": text, "spans": annotations}) + "\n" for at in range(notes))


FOREIGN = lines((4, 9, "PERSON"), (18, 26, "DATE"), (34, 42, "Orvallin"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"--from": "nowhere"}, "give shipped, or a folder of models"),
        ({"--from": "site"}, "has no model token: give shipped, or a folder of models"),
        ({"--from": "old"}, "trained with the features of another version"),
        ({"--out": "base"}, "exists; name a new folder"),
        ({"--out": ""}, "exists; name a new folder"),
        ({"--corpus": "none"}, "none: no such file or folder"),
        ({"--corpus": "none.jsonl"}, "none.jsonl: no such file or folder"),
        ({"--corpus": "empty.jsonl"}, "holds no note"),
        ({"--corpus": "foreign.jsonl"}, "another label set: PERSON (8), 1 that are not shown"),
        ({"--corpus": "broken.jsonl"}, "broken.jsonl:1"),
        ({"--corpus": "old"}, "unknown corpus format"),
        ({"--corpus": "bare.jsonl"}, "no note has an annotation to learn from"),
        ({"--corpus": "few.jsonl"}, "notes of 7 patients; a warm start needs 8"),
        ({"--corpus": "strange.jsonl"}, "types that the models to start from do not have: VEHICLE"),
        ({"--corpus": "blank.jsonl"}, "annotations of a note without text"),
        ({"--corpus": "corpus"}, "notes of 3 patients"),
        ({"--corpus": "both"}, "4 of its notes are in corpus too"),
        ({"--rehearsal": "none"}, "The wheel does not have it: unpack the source archive"),
        ({"--rehearsal": "site"}, "has no notes for training or no dev notes"),
        ({"--augment": "1"}, "--from excludes "),
        ({"--hold-out": "da"}, "--from excludes "),
    ],
)
def test_errors_name_the_remedy_and_no_text(
    options: dict[str, str], expected: str, adapt: Callable[..., Result], world: Path
) -> None:
    if not (world / "old").exists():
        shutil.copytree(world / "base", world / "old")
        manifest = (world / "old" / "token.json").read_text("utf-8")
        digest = digest_features(ROOT / "rules")
        (world / "old" / "token.json").write_text(manifest.replace(digest, "0" * 64), "utf-8")
        tiny_corpus.write(world / "both", {**SITE, "da-02": CORPUS["da-02"], "dd-01": CORPUS["dd-01"]})
        for name, text in {
            "empty": "",
            "foreign": FOREIGN,
            "broken": '{"id": "n1", "text": "Orvallin',
            "bare": lines(),
            "few": lines((4, 9, "PATIENT"), notes=7),
            "strange": lines((4, 9, "VEHICLE")),
            "blank": lines((4, 9, "PATIENT")).replace('"text"', '"no"'),
        }.items():
            (world / f"{name}.jsonl").write_text(text, "utf-8")
    out = {} if "--out" in options else {"--out": "new"}
    done = adapt(*(part for pair in (out | options).items() for part in pair))
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
    assert "orvallin" not in done.output.lower()
    assert not (world / "new").exists()


def test_types_that_nobody_annotated_are_refused(adapt: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    corpus = shutil.copytree(world / "site", tmp_path / "names-only")
    for path in corpus.iterdir():
        path.write_text(re.sub(r"\[\[DATE\|([^\]]*)\]\]", r"\1", path.read_text("utf-8")), "utf-8")
    done = adapt("--corpus", corpus, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert "no annotation of DATE (" in done.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "name a component: all, published, token"),
        (["token", "--rehearsal", "x"], "--rehearsal and --profile belong to --from"),
        (["names", "--from", "shipped"], "names cannot go on from trained weights"),
        (["token", "--from", "shipped"], "--from needs --out DIR"),
    ],
)
def test_wrong_calls(args: list[str], expected: str) -> None:
    done = run(*args)
    assert (done.exit_code, expected in done.stderr) == (2, True), done.output
