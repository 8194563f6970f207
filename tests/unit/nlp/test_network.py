"""The network on arrays matches its formulas and the training framework, for single texts and batches."""

from dataclasses import replace

import numpy as np
import pytest
from support import tiny_network as tiny

from deid_agent.nlp.network import Dimensions, Network, RecurrentLayer
from deid_agent.nlp.network_inputs import MAX_SEQUENCE_TOKENS, Floats, InputEncoder, split_paragraphs
from deid_agent.train.examples import EncodedNote, build_batch, list_sequences
from deid_agent.train.network_trainer import network_loss, network_scores
from deid_agent.train.recipes import NetworkAblation, NetworkSettings


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def one_side(seen: Floats, w: Floats, u: Floats, b: Floats) -> Floats:
    """One layer, one side, step by step as written in section 2.2.1 (coupled gates, no peepholes)."""
    out = u.shape[0]
    state: Floats = np.zeros(out, np.float32)
    cell: Floats = np.zeros(out, np.float32)
    states = []
    for x in seen:
        gates = x @ w + state @ u + b
        i, o, g = sigmoid(gates[:out]), sigmoid(gates[out : 2 * out]), np.tanh(gates[2 * out :])
        cell = (1 - i) * cell + i * g
        state = o * np.tanh(cell)
        states.append(state)
    return np.array(states)


def test_a_layer_matches_its_formulas() -> None:
    weights = tiny.network().weights
    draw = np.random.default_rng(3)
    sizes = [3, 1, 7, 3]
    wide = weights["sequence-forward-w"].shape[0]
    seen = draw.normal(0, 1, (sum(sizes), wide)).astype(np.float32)
    layer = RecurrentLayer.from_weights("sequence", weights)
    both, last = layer.run(seen, sizes), layer.run_to_ends(seen, sizes)
    start = 0
    for at, size in enumerate(sizes):
        own = seen[start : start + size]
        left, right = (
            one_side(part, *(weights[f"sequence-{side}-{name}"] for name in "wub"))
            for side, part in (("forward", own), ("backward", own[::-1]))
        )
        np.testing.assert_allclose(both[start : start + size], np.hstack([left, right[::-1]]), atol=1e-5)
        np.testing.assert_allclose(last[at], np.hstack([left[-1], right[-1]]), atol=1e-5)
        start += size


@pytest.mark.parametrize(
    "dimensions",
    [
        tiny.DIMENSIONS,
        replace(tiny.DIMENSIONS, character=0),
        replace(tiny.DIMENSIONS, token=0),
        replace(tiny.DIMENSIONS, feature=0),
        Dimensions(character=3, spelling=4, token=0, feature=0, sequence=5, hidden=6),
    ],
)
def test_a_batch_of_texts_gives_the_results_of_single_texts(dimensions: Dimensions) -> None:
    known = tiny.made_vectors() if dimensions.token else None
    network = tiny.network(dimensions, vectors=known, features=tiny.FEATURES if dimensions.feature else ())
    views = [tiny.view(text) for text in (tiny.TEXT, "Oslo", "\x00 é \ud800", "x" * 900, "ab " * 700, tiny.TEXT * 100)]
    together = network.emissions(
        network.encoder.encode(views), [size for view in views for size in split_paragraphs(view)]
    )
    assert np.isfinite(together).all()
    start = 0
    for view in views:
        alone = network.emissions(network.encoder.encode([view]), split_paragraphs(view))
        np.testing.assert_allclose(together[start : start + len(view.words)], alone, atol=1e-5)
        start += len(view.words)
    assert start == len(together)


def test_the_framework_gives_the_same_scores() -> None:
    network = tiny.network(vectors=tiny.made_vectors())
    views = [tiny.view(tiny.TEXT), tiny.view("Oslo"), tiny.view("He saw Mr. Adebayo-Ferreira in Oslo " * 20)]
    lessons = [
        EncodedNote(network.encoder.encode([v]), np.zeros(len(v.words), np.int64), tuple(split_paragraphs(v)))
        for v in views
    ]
    batch = build_batch(
        lessons, MAX_SEQUENCE_TOKENS, list_sequences(lessons), network.encoder, 0.0, np.random.default_rng(0)
    )
    found = np.array(network_scores(dict(network.weights), batch, network.dimensions, 0.0, None))
    row = 0
    for lesson in lessons:
        expected = network.emissions(lesson.tokens, lesson.sizes)
        start = 0
        for size in lesson.sizes:
            np.testing.assert_allclose(found[row, :size], expected[start : start + size], atol=1e-4)
            row, start = row + 1, start + size


def test_the_loss_sums_over_all_label_sequences() -> None:
    network = tiny.network()
    view = tiny.view("Oslo was well")
    labels = np.array([0, 2, 1], np.int64)
    lessons = [EncodedNote(network.encoder.encode([view]), labels, tuple(split_paragraphs(view)))]
    batch = build_batch(lessons, 16, list_sequences(lessons), network.encoder, 0.0, np.random.default_rng(0))
    scores, moves = network.emissions(lessons[0].tokens, [3]), network.weights["transitions"]
    ways = [
        scores[0, a] + scores[1, b] + scores[2, c] + moves[a, b] + moves[b, c]
        for a in range(3) for b in range(3) for c in range(3)
    ]  # fmt: skip
    right = scores[0, 0] + scores[1, 2] + scores[2, 1] + moves[0, 2] + moves[2, 1]
    expected = (np.log(np.exp(ways).sum()) - right) / 3
    found = network_loss(dict(network.weights), batch, network.dimensions, 0.0, None)
    assert float(found) == pytest.approx(expected, abs=1e-4)


def test_long_paragraphs_are_read_in_pieces_that_end_with_a_line() -> None:
    line = "a b c d e f g h i j k l\n"
    sizes = split_paragraphs(tiny.view(line * 30 + "\n" + line))
    assert sum(sizes) == 31 * 12
    assert sizes == [120, 120, 120, 12]
    assert split_paragraphs(tiny.view("a " * 300)) == [
        MAX_SEQUENCE_TOKENS,
        MAX_SEQUENCE_TOKENS,
        300 - 2 * MAX_SEQUENCE_TOKENS,
    ]
    assert split_paragraphs(tiny.view("")) == []


def test_a_word_is_encoded_once_and_a_long_word_by_its_ends() -> None:
    network = tiny.network(vectors=tiny.made_vectors())
    reading = network.encoder.encode([tiny.view("Oslo in Oslo"), tiny.view("in " + "Zyblorq" * 40)])
    assert reading.word_index.tolist() == [0, 1, 0, 1, 2]
    assert reading.characters.shape == (3, 16)
    assert reading.published.tolist() == [1, 2, 0]
    part = reading.select(slice(1, 3))
    assert (len(part), part.published[part.word_index].tolist()) == (2, [2, 1])
    assert reading.select(slice(0, 5)) is reading


def test_mismatched_shapes_are_refused() -> None:
    made = tiny.network(vectors=tiny.made_vectors())
    with pytest.raises(ValueError, match="weights"):
        Network.from_weights(
            made.dimensions, made.encoder, {**made.weights, "hidden-b": np.zeros(9, np.float32)}, tiny.LABELS
        )
    with pytest.raises(ValueError, match="not finite"):
        bad = {**made.weights, "hidden-b": np.full(8, np.nan, np.float32)}
        Network.from_weights(made.dimensions, made.encoder, bad, tiny.LABELS)
    with pytest.raises(ValueError, match="vectors"):
        tiny.network(vectors=tiny.made_vectors(4))
    with pytest.raises(ValueError, match="columns"):
        InputEncoder({}, {}, {"nothing": {"a": 1}}).require_valid()


@pytest.mark.parametrize("without", NetworkAblation)
def test_each_part_can_be_left_out(without: NetworkAblation) -> None:
    settings = NetworkSettings()
    changed = without.apply(settings)
    assert changed != settings
    assert (changed.dimensions.character == 0) == (without is NetworkAblation.CHARACTERS)
    assert (changed.dimensions.token == 0) == (without is NetworkAblation.TOKENS)
    assert changed.transitions == (without is not NetworkAblation.TRANSITIONS)
    assert changed.published_vectors == (without not in {NetworkAblation.TOKENS, NetworkAblation.PRETRAINING})
