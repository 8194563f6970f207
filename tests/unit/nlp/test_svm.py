"""SVMs on arrays: the same decisions as the library's, from files with a checked digest."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

from deid_agent.model.errors import ConfigurationError
from deid_agent.nlp.svm import LinearScreen, SupportVectorMachine, SvmModel, encode_rows, load_svm, save_svm

FEATURES = 300
RANDOM = np.random.default_rng(7)
BITS = (RANDOM.random((80, FEATURES)) < 0.1).astype(np.uint8)
SCALES = np.where(np.arange(FEATURES) % 3 == 0, 0.5, 1.0).astype(np.float32)
YES = BITS[:, 0] + BITS[:, 299] + BITS[:, 5] > 0
ROWS = [np.flatnonzero(row) for row in BITS]


def machine() -> tuple[SupportVectorMachine, SVC]:
    library = SVC(C=2.0, gamma=0.05).fit(BITS * SCALES, YES)
    duals = library.dual_coef_[0].astype(np.float32)
    return SupportVectorMachine(BITS[library.support_], duals, 0.05, float(library.intercept_[0]), SCALES), library


def machines() -> SvmModel:
    vocabulary = {f"word=w{at}": at for at in range(FEATURES)}
    screen = LinearScreen(np.linspace(-1, 1, FEATURES, dtype=np.float32), 0.25)
    return SvmModel("names", vocabulary, SCALES, screen, {"name": machine()[0]}, {"likely": -0.4}, {"about": "made"})


def test_decisions_are_those_of_the_library() -> None:
    ours, library = machine()
    np.testing.assert_allclose(ours.decide(ROWS), library.decision_function(BITS * SCALES), atol=1e-4)


def test_an_empty_batch_has_no_decisions() -> None:
    assert machine()[0].decide([]).shape == (0,)


def test_unknown_features_are_ignored() -> None:
    (row,) = encode_rows([["b=2", "a=1", "c=3", "a=1"]], {"a=1": 0, "b=2": 1})
    assert row.tolist() == [0, 1]


def test_a_screen_adds_its_weights() -> None:
    screen = LinearScreen(np.array([1.0, -2.0], np.float32), 0.5)
    assert screen.passes([np.array([0]), np.array([0, 1]), np.array([], np.int64)]).tolist() == [True, False, True]


def test_a_saved_model_loads_unchanged(tmp_path: Path) -> None:
    model = machines()
    save_svm(model, tmp_path)
    again = load_svm(tmp_path, "names")
    assert again.vocabulary == model.vocabulary
    assert again.thresholds == {"likely": -0.4}
    assert again.card["about"] == "made"
    assert again.screen.bias == 0.25
    np.testing.assert_array_equal(again.classifiers["name"].decide(ROWS), model.classifiers["name"].decide(ROWS))


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save_svm(machines(), tmp_path / folder)
    for ending in ("json", "npz"):
        assert (tmp_path / "a" / f"names.{ending}").read_bytes() == (tmp_path / "b" / f"names.{ending}").read_bytes()


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    save_svm(machines(), tmp_path)
    arrays = tmp_path / "names.npz"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"\0x")
    with pytest.raises(ConfigurationError, match=r"names\.npz: does not match the digest in names\.json"):
        load_svm(tmp_path, "names")


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 2}'])
def test_another_manifest_is_refused(tmp_path: Path, text: str) -> None:
    save_svm(machines(), tmp_path)
    (tmp_path / "names.json").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"names\.(json|npz)"):
        load_svm(tmp_path, "names")


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="train the model"):
        load_svm(tmp_path, "names")


def test_a_missing_svm_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="no classifier team"):
        machines().classifier("team")
