"""``deid-agent train``: reproducible bytes, no training on dev, errors that name the remedy."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import tiny_corpus

from deid_agent.cli import main
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.nlp.crf import load_crf
from deid_agent.nlp.network import Dimensions
from deid_agent.nlp.network_inputs import VECTORS_NAME
from deid_agent.nlp.network_tagger import load_network
from deid_agent.nlp.svm import load_svm
from deid_agent.train.card import digest_notes
from deid_agent.train.recipes import PUBLISHED, RECIPES, SHIPPED, NetworkSettings

ROOT = Path(__file__).resolve().parents[3]
NAMES = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dd-01": "Quatermain"}


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, args), "--iterations", "8"])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tiny_corpus.write(tmp_path / "corpus", NAMES)


def test_the_same_notes_and_settings_give_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for out in folders:
        done = run("token", "--corpus", corpus, "--out", out, "--augment", 1, "--quiet")
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in out.iterdir()) == ["token.json", "token.md", "token.npz"]
    one, two = ({path.name: path.read_bytes() for path in out.iterdir()} for out in folders)
    assert one == two
    loaded = load_crf(folders[0], "token")
    assert {"I-PATIENT", "I-DOCTOR", "I-DATE"} <= set(loaded.crf.labels)
    other = run("token", "--corpus", corpus, "--out", tmp_path / "two", "--augment", 1, "--seed", 3, "--quiet")
    assert other.exit_code == 0
    assert (tmp_path / "two" / "token.npz").read_bytes() != one["token.npz"]


def test_dev_is_scored_and_never_learned_from(corpus: Path, tmp_path: Path) -> None:
    done = run("liu-token", "--corpus", corpus, "--fraction", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "2 notes of 1 patients" in done.stdout
    card = json.loads((tmp_path / "out" / "liu-token.json").read_text("utf-8"))
    notes = list(read_corpus(corpus))
    assert card["corpus"]["sha256"] == digest_notes(select_part(notes, CorpusPart.TRAIN)) != digest_notes(notes)
    assert (card["corpus"]["notes"], card["scores"]["notes"], card["scores"]["of"]) == (4, 2, "dev")
    vocabulary = load_crf(tmp_path / "out", "liu-token").extractor.vocabulary
    assert "vantongeren" in vocabulary["word"]
    assert "quatermain" not in vocabulary["word"]
    page = (tmp_path / "out" / "liu-token.md").read_text("utf-8")
    assert "4 notes of 2 patients" in page
    assert card["sha256"] in page


def test_held_out_notes_are_scored_and_nothing_is_saved(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    done = run("dehghan-token", "--corpus", corpus, "--hold-out", "db", "--json", "-")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["of"] == "the held-out notes of db"
    assert set(report["authors"]) == {"db"}
    assert not (corpus.parent / "models").exists()


def test_each_author_is_scored_by_a_model_of_the_others(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    done = run("dehghan-token", "--corpus", corpus, "--cross-validate", "--json", "-")
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["authors"]) == {"da", "db"}  # dd is dev
    assert not (corpus.parent / "models").exists()


def test_the_filter_of_names(corpus: Path, tmp_path: Path) -> None:
    done = run("names", "--corpus", corpus, "--out", tmp_path / "out", "--quiet")
    assert done.exit_code == 0, done.output
    loaded = load_svm(tmp_path / "out", "names")
    assert loaded.thresholds
    assert loaded.card["about"] == RECIPES["names"].description
    assert "word=" in " ".join(loaded.vocabulary)
    assert run("names", "--corpus", corpus, "--out", tmp_path / "out", "--per-type").exit_code == 2


def test_a_network(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = NetworkSettings(
        Dimensions(4, 4, 100, 4, 8, 8), ("shape", "rule"), batch=128, rate=0.02, least_word=2, least_value=2
    )
    small = {**RECIPES, "network": replace(RECIPES["network"], settings=settings)}
    monkeypatch.setattr("deid_agent.train.recipes.RECIPES", small)
    for out in ("one", "two"):
        done = run("network", "--corpus", corpus, "--out", tmp_path / out, "--epochs", 2)
        assert done.exit_code == 0, done.output
        assert "network: epoch 2 of 2" in done.stderr
    names = ["network.json", "network.md", "network.npz", "vectors.json", "vectors.npz"]
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("one", "two"))
    assert sorted(one) == names and one == two
    loaded = load_network(tmp_path / "one", "network")
    assert set(loaded.network.crf.labels) == {"I-PATIENT", "I-DOCTOR", "I-DATE", "I-MEDICALRECORD", "O"}
    assert "quatermain" not in loaded.network.encoder.words
    assert len(loaded.card["epochs"]) == 2  # type: ignore[arg-type]
    assert "| Layers | character 4, " in (tmp_path / "one" / "network.md").read_text("utf-8")
    assert run("network", "--corpus", corpus, "--out", tmp_path / "one", "--per-type").exit_code == 2


def test_one_model_for_each_type(corpus: Path, tmp_path: Path) -> None:
    done = run("dehghan-token", "--corpus", corpus, "--out", tmp_path / "out", "--per-type", "--quiet")
    assert done.exit_code == 0, done.output
    names = {path.stem for path in (tmp_path / "out").glob("*.npz")}
    assert names == {"dehghan-token-date", "dehghan-token-patient", "dehghan-token-doctor"}
    assert load_crf(tmp_path / "out", "dehghan-token-date").crf.labels == ("I-DATE", "O")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["tokens"], "unknown component tokens: one of token, "),
        (["token", "--corpus", "nowhere"], "nowhere: no such file or folder"),
        (["token", "--corpus", "empty"], "unknown corpus format"),
        (["token", "--corpus", "plain"], "no note has an annotation to learn from"),
        (["token", "--corpus", "dev"], "no note is left for training"),
        (["token", "--corpus", "corpus", "--hold-out", "zz"], "no note for training has this prefix"),
        (["token", "--hold-out", "da", "--cross-validate"], "exclude each other"),
        (["token", "--corpus", "plain", "--cross-validate"], "notes of several authors"),
    ],
)
def test_errors_name_the_remedy(
    args: list[str], expected: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "plain", "dev"):
        (tmp_path / name).mkdir()
    (tmp_path / "dev" / "dd-01.txt").write_bytes((corpus / "dd-01.txt").read_bytes())
    (tmp_path / "plain" / "a.txt").write_text("@@PATIENT id=da-02\n{}\n@@NOTE id=da-02-1\nAll well.\n@@END\n")
    done = run(*args)
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
    assert not list((tmp_path / "models").glob("*")) if (tmp_path / "models").exists() else True


def test_a_share_of_the_patients_is_enough_for_a_crf(corpus: Path, tmp_path: Path) -> None:
    for share in ("1", "0.5"):
        done = run("dehghan-token", "--corpus", corpus, "--out", tmp_path / share, "--fraction", share, "--quiet")
        assert done.exit_code == 0, done.output
    whole, half = (load_crf(tmp_path / share, "dehghan-token") for share in ("1", "0.5"))
    assert half.card["settings"]["fraction"] == 0.5  # type: ignore[index]
    assert len(half.crf.weights) < len(whole.crf.weights)


def test_an_unwritable_folder_is_reported_before_the_training(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("token", "--corpus", corpus, "--out", tmp_path / "file" / "models")
    assert done.exit_code == 3
    assert "name another folder with --out" in done.stderr


def test_every_file_of_models_is_a_shipped_component() -> None:
    assert {path.stem for path in (ROOT / "models").glob("*.json")} == {*SHIPPED, *PUBLISHED, VECTORS_NAME}


MOST_PUBLISHED = 20_000_000
"""The bytes of all models of the published systems."""


def test_the_models_of_the_published_systems_are_small() -> None:
    files = [ROOT / "models" / f"{name}.{ending}" for name in PUBLISHED for ending in ("json", "md", "npz")]
    assert sum(path.stat().st_size for path in files) < MOST_PUBLISHED


@pytest.mark.parametrize("name", [*SHIPPED, *PUBLISHED])
def test_the_arrays_of_each_model_have_the_digest_of_its_card(name: str) -> None:
    card = json.loads((ROOT / "models" / f"{name}.json").read_text("utf-8"))
    data = (ROOT / "models" / f"{name}.npz").read_bytes()
    assert card["sha256"] == hashlib.sha256(data).hexdigest()
    assert f"SHA-256 `{card['sha256']}`" in (ROOT / "models" / f"{name}.md").read_text("utf-8")
    assert card["about"] == RECIPES[name].description


@pytest.mark.parametrize(
    "name", [name for name in PUBLISHED if not isinstance(RECIPES[name].settings, NetworkSettings)]
)
def test_a_published_component_was_trained_with_the_settings_of_its_recipe(name: str) -> None:
    card = json.loads((ROOT / "models" / f"{name}.json").read_text("utf-8"))
    recipe = RECIPES[name]
    assert card["settings"] == asdict(recipe.settings)
    assert (card["families"], card["recognizers"]) == (list(recipe.families), recipe.recognizers)


def test_the_shipped_files_are_small() -> None:
    sizes = [path.stat().st_size for folder in ("models", "rules") for path in (ROOT / folder).rglob("*")]
    assert sum(sizes) < 60_000_000


def test_scores_of_an_earlier_training_are_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "scores.json"
    earlier.write_text("of an earlier run")
    done = run("crf", "--corpus", corpus, "--json", earlier)
    assert (done.exit_code, earlier.read_text()) == (2, "of an earlier run")
    assert f"--json {earlier}: exists" in done.stderr
