"""The chain on arrays gives the results of the training library's tagger."""

import random
from pathlib import Path

import numpy as np
import pycrfsuite
import pytest

from deid_agent.nlp.crf import Crf, WeightTable
from deid_agent.nlp.sequences import MAX_CHAIN_UNITS
from deid_agent.nlp.templates import FeatureExtractor, weight_groups
from deid_agent.nlp.token_features import Ints
from deid_agent.train import crf_trainer as train
from deid_agent.train.crf_trainer import CrfSettings, train_crf

LABELS = ("O", "B-CITY", "I-CITY", "B-DATE")
TEMPLATES = ("word[0]", "word[-1]", "word[0] word[1]", "left: word[-2]", "left: word[-3]")
SHARED = weight_groups(TEMPLATES)  # the last two share their weights
FEATURES = FeatureExtractor(TEMPLATES, {"word": {}})


def examples(seed: int, count: int) -> list[tuple[list[Ints], list[str]]]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        size = rng.randrange(1, 12)
        numbers = [np.array([rng.randrange(0, 9) for _ in range(size)]) for _ in TEMPLATES]
        made.append((numbers, [LABELS[(n + rng.randrange(0, 2)) % len(LABELS)] for n in numbers[0].tolist()]))
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crf, Path]:
    """A chain, and the library's file of the same training."""
    path = tmp_path_factory.mktemp("chain") / "library"
    settings = CrfSettings(l1=0.05, l2=0.01, iterations=40, least=1)
    trainer = pycrfsuite.Trainer(verbose=False, algorithm="lbfgs")
    trainer.set_params({"c1": settings.l1, "c2": settings.l2, "max_iterations": 40, "feature.minfreq": 1})
    for numbers, labels in examples(1, 200):
        trainer.append(train._name_features(numbers, SHARED), labels)
    trainer.train(str(path))
    return train_crf(FEATURES, examples(1, 200), settings), path


def test_labels_and_marginals_are_those_of_the_library(trained: tuple[Crf, Path]) -> None:
    chain, path = trained
    tagger = pycrfsuite.Tagger()
    with tagger.open(str(path)):
        assert sorted(tagger.labels()) == list(chain.labels)
        for numbers, _ in examples(2, 100):
            emissions = chain.emissions(numbers)
            assert chain.decode(emissions) == tagger.tag(train._name_features(numbers, SHARED))
            expected = [[tagger.marginal(label, at) for label in chain.labels] for at in range(len(emissions))]
            np.testing.assert_allclose(chain.marginals(emissions), expected, atol=1e-4)


def test_the_same_examples_give_the_same_chain() -> None:
    settings = CrfSettings(iterations=10, least=1)
    one, other = (train_crf(FEATURES, examples(3, 50), settings) for _ in range(2))
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.transitions.tobytes() == other.transitions.tobytes()


def test_progress_is_reported() -> None:
    progress: list[tuple[int, int]] = []
    train_crf(
        FEATURES,
        examples(3, 50),
        CrfSettings(iterations=5, least=1),
        lambda done, total: progress.append((done, total)),
    )
    assert progress[0] == (1, 5) and len(progress) <= 5


def test_a_batch_of_sequences_gives_the_results_of_single_ones(trained: tuple[Crf, Path]) -> None:
    chain, _ = trained
    pieces = [chain.emissions(numbers) for numbers, _ in examples(4, 60)]
    together = chain.decode_sequences(np.concatenate(pieces), [len(piece) for piece in pieces])
    assert together == [label for piece in pieces for label in chain.decode(piece)]


def test_partial_sums_add_up(trained: tuple[Crf, Path]) -> None:
    chain, _ = trained
    numbers, _ = examples(5, 1)[0]
    parts = sum(chain.template_scores(at, column) for at, column in enumerate(numbers)) + chain.bias
    np.testing.assert_allclose(parts, chain.emissions(numbers), atol=1e-5)


def test_a_long_text_is_read_in_pieces(trained: tuple[Crf, Path]) -> None:
    chain, _ = trained
    rng = np.random.default_rng(0)
    emissions = rng.normal(size=(2 * MAX_CHAIN_UNITS + 7, len(chain.labels))).astype(np.float32)
    assert chain.decode(emissions)[MAX_CHAIN_UNITS : 2 * MAX_CHAIN_UNITS] == chain.decode(
        emissions[MAX_CHAIN_UNITS : 2 * MAX_CHAIN_UNITS]
    )
    np.testing.assert_allclose(chain.marginals(emissions).sum(axis=1), 1, atol=1e-5)


def test_an_empty_sequence_has_no_labels(trained: tuple[Crf, Path]) -> None:
    chain, _ = trained
    nothing = np.zeros((0, len(chain.labels)), np.float32)
    assert chain.decode(nothing) == []
    assert chain.marginals(nothing).shape == nothing.shape


def test_extreme_scores_give_finite_numbers(trained: tuple[Crf, Path]) -> None:
    chain, _ = trained
    emissions = np.full((50, len(chain.labels)), -500, np.float32)
    emissions[:, 1] = 500
    found = chain.marginals(emissions)
    assert np.isfinite(found).all() and chain.decode(emissions) == [chain.labels[1]] * 50


def test_a_feature_without_weights_is_row_zero() -> None:
    table = WeightTable(np.array([3, 8, 11]), 5)
    assert table.find_rows(np.array([0, 3, 4, 8, 11, 99])).tolist() == [0, 5, 0, 6, 7, 0]
    assert WeightTable(np.array([], np.int64), 1).find_rows(np.array([0, 3])).tolist() == [0, 0]


def test_all_templates_at_once_give_the_scores_of_one_after_another() -> None:
    draw = np.random.default_rng(2)
    small, large = np.arange(2, 40, 3), np.sort(draw.choice(1 << 40, 50, replace=False))
    tables = (WeightTable(small, 1), WeightTable(large, 14), WeightTable(small[:0], 64), WeightTable(small, 64))
    weights = draw.normal(0, 1, (77, 5)).astype(np.float32)
    weights[0] = 0
    chain = Crf(tuple("abcde"), tables, weights, weights[3], np.zeros((5, 5), np.float32))
    for size in (1, 31, 32, 33, 100):
        numbers = np.stack(
            [draw.integers(0, 60, size), draw.choice(large, size), np.ones(size, int), np.zeros(size, int)]
        )
        numbers[1, ::3] = 0
        assert chain.emissions(numbers).tobytes() == chain.emissions(list(numbers)).tobytes()
