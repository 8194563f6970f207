"""``deid-agent train --from``: trained models go on with the notes of a site, or stay as they are."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import tiny_corpus

from deid_agent.cli import main
from deid_agent.eval import Change, Comparison
from deid_agent.nlp.crf import load_crf
from deid_agent.nlp.network import Dimensions
from deid_agent.nlp.network_tagger import load_network
from deid_agent.recognize import Profile
from deid_agent.train import ExampleReader, NetworkAdaptation, Verdict, load_default
from deid_agent.train.network_adapter import adapt_network
from deid_agent.train.recipes import RECIPES, NetworkSettings

ROOT = Path(__file__).resolve().parents[3]
CORPUS = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dd-01": "Quatermain"}
SITE = {f"x{letter}-01": f"{letter.upper()}orvallin" for letter in "abcdefgh"}
SMALL = NetworkSettings(
    Dimensions(4, 4, 100, 4, 8, 8), ("shape", "rule"), batch=128, rate=0.02, least_word=2, least_value=2, epochs=1
)


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, args)])


@pytest.fixture(scope="module")
def small() -> dict[str, object]:
    return {**RECIPES, "network": replace(RECIPES["network"], settings=SMALL)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, small: dict[str, object]) -> Path:
    """A folder with small models, the corpus that they learned from, and the notes of a site."""
    folder = tmp_path_factory.mktemp("world")
    corpus = tiny_corpus.write(folder / "corpus", CORPUS)
    tiny_corpus.write(folder / "site", SITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deid_agent.train.recipes.RECIPES", small)
        done = run("all", "--corpus", corpus, "--out", folder / "base", "--iterations", 8, "--quiet")
    assert done.exit_code == 0, done.output
    return folder


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


def test_a_model_goes_on_and_its_card_has_counts_and_no_text(
    adapt: Callable[..., Result], world: Path, tmp_path: Path
) -> None:
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
    assert not list(tmp_path.glob(".out*"))


def test_the_same_notes_give_the_same_bytes(adapt: Callable[..., Result], tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert adapt("--out", tmp_path / name).exit_code == 0
    assert (tmp_path / "one" / "token.npz").read_bytes() == (tmp_path / "two" / "token.npz").read_bytes()


def test_a_network_goes_on_and_its_base_stays(world: Path, small: dict[str, object]) -> None:
    base = load_network(world / "base", "network")
    before = {name: one.copy() for name, one in base.network.weights.items()}
    reader = ExampleReader.load(ROOT / "rules", "default")
    from deid_agent.eval import read_annotated  # noqa: PLC0415

    examples = [reader.example(note) for note in read_annotated(world / "site").notes]
    one, two = (adapt_network(base, examples, [], NetworkAdaptation(epochs=2, rate=0.01)) for _ in range(2))
    weights = one.network.weights
    assert all((before[name] == base.network.weights[name]).all() for name in before)
    assert any((before[name] != weights[name]).any() for name in before)
    assert all((weights[name] == two.network.weights[name]).all() for name in before)
    losses = one.card["losses"]
    assert isinstance(losses, list) and losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("of", "change", "fault"),
    [
        ("strict", Change(0.9, 0.894, -0.02, 0.01, 0.6), "lower strict F1: 0.9000 to 0.8940"),
        ("strict", Change(0.9, 0.899, -0.002, 0.0, 0.93), "lower strict F1"),
        ("strict", Change(0.9, 0.899, -0.002, 0.001, 0.8), ""),
        ("leaked", Change(0.02, 0.0225, -0.01, 0.01, 0.6), "more leaks: 2.00 % to 2.25 %"),
        ("leaked", Change(0.02, 0.0201, 0.0, 0.001, 0.95), "more leaks"),
        ("leaked", Change(0.02, 0.019, -0.002, 0.0, 0.0), ""),
    ],
)
def test_a_loss_that_is_large_or_sure_is_refused(of: str, change: Change, fault: str) -> None:
    same = Change(0.5, 0.5, 0, 0, 0)
    one = {"strict": same, "leaked": same, of: change}
    faults = Verdict("dev", Comparison(10, 9, one["strict"], one["leaked"], (0, 0))).faults
    assert len(faults) == bool(fault)
    assert not fault or faults[0].startswith(f"dev: {fault}")


def test_worse_models_are_not_written(adapt: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    """The dev notes of another corpus, where what the site calls a doctor is a patient."""
    corpus = shutil.copytree(world / "site", tmp_path / "wrong")
    for path in corpus.iterdir():
        text = path.read_text("utf-8").replace("[[PATIENT|", "[[").replace("[[DOCTOR|", "[[PATIENT|")
        path.write_text(text.replace("[[", "[[DOCTOR|").replace("[[DOCTOR|PATIENT|", "[[PATIENT|"), "utf-8")
        path.write_text(
            path.read_text("utf-8")
            .replace("[[DOCTOR|DATE|", "[[DATE|")
            .replace("[[DOCTOR|MEDICALRECORD|", "[[MEDICALRECORD|"),
            "utf-8",
        )
    done = adapt("--corpus", corpus, "--out", tmp_path / "out", "--iterations", 40, "--json", tmp_path / "s.json")
    assert done.exit_code == 1, done.output
    assert "refused: dev notes of the corpus: lower strict F1" in done.stderr
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
    assert json.loads((tmp_path / "s.json").read_text("utf-8"))["written"] is False
