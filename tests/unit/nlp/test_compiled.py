"""The compiled core gives the results of the references, with and without AVX2, and refuses arrays of a wrong shape."""

import importlib
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_network as tiny

from deid_agent import core
from deid_agent.nlp import compiled
from deid_agent.nlp.crf import Crf, CrfModel, build_crf
from deid_agent.nlp.labels import OUTSIDE, Schema
from deid_agent.nlp.network import Dimensions
from deid_agent.nlp.network_inputs import split_paragraphs
from deid_agent.nlp.sequence_decoder import SequenceDecoder
from deid_agent.nlp.templates import FeatureExtractor
from deid_agent.nlp.token_features import FeatureValues, IndexedFeature

needs_core = pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")
INSTRUCTIONS = ("avx512", "avx2", "portable")  # a processor without one of them runs the next
TOLERANCE = 2e-5
NO_ROWS = np.zeros((0, 0), np.float32)


@pytest.fixture(params=INSTRUCTIONS)
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    with core.core_limited_to(request.param):
        yield


def chain(labels: int, draw: np.random.Generator, strength: float = 2.0) -> Crf:
    transitions = draw.normal(0, strength, (labels, labels)).astype(np.float32)
    return Crf(tuple(map(str, range(labels))), (), NO_ROWS, NO_ROWS[0:0].reshape(-1), transitions)


sizes_of_sequences = st.lists(st.integers(1, 40), max_size=9)


@needs_core
@pytest.mark.parametrize("way", INSTRUCTIONS)
@settings(deadline=None)
@given(labels=st.integers(1, 128), sizes=sizes_of_sequences, seed=st.integers(0, 99), strength=st.sampled_from([1, 7]))
def test_probabilities_and_best_labels_of_chains(
    way: str, labels: int, sizes: list[int], seed: int, strength: float
) -> None:
    draw = np.random.default_rng(seed)
    crf = chain(labels, draw, strength)
    emissions = draw.normal(0, 3 * strength, (sum(sizes), labels)).astype(np.float32)
    with core.without_core():
        marginals, best = crf.marginals_of_sequences(emissions, sizes), crf.decode_sequences(emissions, sizes)
    with core.core_limited_to(way):
        np.testing.assert_allclose(crf.marginals_of_sequences(emissions, sizes), marginals, atol=TOLERANCE)
        assert crf.decode_sequences(emissions, sizes) == best


@needs_core
@settings(deadline=None)
@given(labels=st.integers(2, 40), sizes=sizes_of_sequences, seed=st.integers(0, 99), outside=st.integers(0, 39))
def test_the_search_around_tokens_in_doubt(labels: int, sizes: list[int], seed: int, outside: int) -> None:
    draw = np.random.default_rng(seed)
    names = tuple(OUTSIDE if at == outside % labels else str(at) for at in range(labels))
    decoder = SequenceDecoder(names, draw.normal(0, 0.3, (labels, labels)).astype(np.float32))
    marginals = draw.dirichlet(np.full(labels, 0.05), sum(sizes)).astype(np.float32)
    marginals[draw.random(sum(sizes)) < 0.7] = 1e-9
    lean = draw.choice([0.0, -2.0, 100.0], sum(sizes)).astype(np.float32)
    if not sizes:
        return
    with core.without_core():
        expected = decoder._find_best(marginals, lean, sizes, outside % labels)
    assert decoder._find_best(marginals, lean, sizes, outside % labels) == expected


@dataclass
class Made:
    """Features chosen by a test."""

    columns: dict[str, list[str]] = field(default_factory=dict)

    def feature(self, name: str) -> FeatureValues | IndexedFeature:
        return self.columns[name]

    def indexed_feature(self, name: str) -> FeatureValues | IndexedFeature:
        return self.feature(name)


TEMPLATES = (
    *("a[0]", "a[-1]", "b[2]", "a[0] b[0]", "b[-1] a[1]", "a[0] b[1] a[2]", "b[-3] a[0] a[3]"),
    *("left: a[-2]", "left: a[-3]"),
)


def made(size: int, draw: np.random.Generator) -> Made:
    return Made({name: draw.choice(["u", "v", "w", "x", ""], size).tolist() for name in "ab"})


def crf_model(labels: int, draw: np.random.Generator, *, stored: bool) -> CrfModel:
    """A model with random weights for half of the template instances of a random text."""
    learned = made(60, draw)
    extractor = FeatureExtractor.learn(TEMPLATES, [learned], least=1)
    names = tuple(map(str, range(labels)))
    seen = {
        (template if template < 8 else 7, number)
        for template, numbers in enumerate(extractor.extract(learned))
        for number in numbers.tolist()
        if number and draw.random() < 0.5
    }
    states = {at: {name: float(draw.normal()) for name in names} for at in sorted(seen)}
    crf = build_crf(extractor, names, states, {name: float(draw.normal()) for name in names}, {})
    if stored:
        crf = replace(crf, weights=crf.weights.astype(np.float16).astype(np.float32))
    return CrfModel("made", Schema.IO, extractor, crf)


@needs_core
@pytest.mark.parametrize("stored", [True, False])
@settings(deadline=None, max_examples=40)
@given(labels=st.integers(1, 70), sizes=st.lists(st.integers(1, 150), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_scores_of_templates_are_equal_to_the_last_bit(stored: bool, labels: int, sizes: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    model = crf_model(labels, draw, stored=stored)
    documents = [made(size, draw) for size in sizes]
    with core.without_core():
        expected = model.emissions(documents)
    for way in INSTRUCTIONS:
        with core.core_limited_to(way):
            np.testing.assert_array_equal(model.emissions(documents), expected)


@needs_core
@pytest.mark.parametrize(
    "dimensions",
    [
        tiny.DIMENSIONS,
        Dimensions(),
        Dimensions(feature=64),
        replace(tiny.DIMENSIONS, character=0),
        replace(tiny.DIMENSIONS, token=0),
        replace(tiny.DIMENSIONS, feature=0),
        replace(tiny.DIMENSIONS, character=0, feature=0),
        Dimensions(character=3, spelling=4, token=0, feature=0, sequence=5, hidden=6),
        Dimensions(character=9, spelling=17, token=16, feature=8, sequence=33, hidden=50),
    ],
)
@pytest.mark.usefixtures("path")
def test_scores_of_the_network(dimensions: Dimensions) -> None:
    known = tiny.made_vectors(dimensions.token) if dimensions.token else None
    network = tiny.network(dimensions, vectors=known, features=tiny.FEATURES if dimensions.feature else ())
    network = replace(network)  # with objects of the core of its own
    texts = (tiny.TEXT, "Oslo", "\x00 é \ud800", "x" * 900, "ab " * 700, tiny.TEXT * 30)
    views = [tiny.view(text) for text in texts]
    encoded = network.encoder.encode(views)
    sizes = [size for view in views for size in split_paragraphs(view)]
    with core.without_core():
        expected = network.emissions(encoded, sizes)
    found = network.emissions(encoded, sizes)
    # A score is a sum of products, so its error is relative to the greatest score.
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * float(np.abs(expected).max(initial=1)))


@needs_core
def test_wrong_shapes_are_refused_by_name() -> None:
    own, out = core.current(), np.empty((3, 2), np.float32)
    scores, moves = np.zeros((3, 2), np.float32), np.zeros((2, 2), np.float32)
    for sizes in ([2], [4], [2**63, 2**63, 3]):
        with pytest.raises((ValueError, OverflowError)):
            own.marginals(scores, moves, sizes, out)
    with pytest.raises(ValueError, match=r"^transitions: wrong shape or value$"):
        own.marginals(scores, moves[:1], [3], out)
    with pytest.raises(ValueError, match=r"^transitions: "):
        own.marginals(scores, moves + 81, [3], out)
    with pytest.raises(ValueError, match=r"^out: "):
        own.marginals(scores, moves, [3], out[:2])
    with pytest.raises(ValueError, match=r"^scores: "):
        own.best_labels(np.zeros((1, 129), np.float32), np.zeros((129, 129), np.float32), [1])
    with pytest.raises(ValueError, match=r"^outside: "):
        own.decode(scores, moves, np.zeros(3, np.float32), 2, [3])
    with pytest.raises(ValueError, match=r"^lean: "):
        own.decode(scores, moves, np.zeros(2, np.float32), 1, [3])
    with pytest.raises((BufferError, TypeError)):
        own.marginals(scores.astype(np.float64), moves, [3], out)
    out.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        own.marginals(scores, moves, [3], out)


@needs_core
def test_templates_that_name_no_row_or_column_are_refused() -> None:
    own, bias = core.current(), np.zeros(2, np.float32)
    numbers, weights = np.array([2, 3], np.int64), np.zeros((3, 2), np.float32)
    one = [(0, [(0, 0)])]
    build = own.TemplateWeights
    for templates, tables, rows, own_bias, name in (
        ([(1, [(0, 0)])], [(numbers, 1)], weights, bias, "templates"),
        ([(0, [])], [(numbers, 1)], weights, bias, "templates"),
        ([(0, [(0, 0)] * 4)], [(numbers, 1)], weights, bias, "tables"),
        (one, [(numbers, 2)], weights, bias, "tables"),
        (one, [(numbers[::-1].copy(), 1)], weights, bias, "tables"),
        (one, [(numbers, 1)], weights[:, :1].copy(), bias, "weights"),
        (one, [(numbers, 1)], np.full((3, 2), 0x7C00, np.uint16), bias, "weights"),
        (one, [(numbers, 1)], weights, bias[:0], "bias"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: wrong shape or value$"):
            build(templates, tables, rows, own_bias)
    built = build(one, [(numbers, 1)], weights, bias)
    values, out = np.array([[2, 0, 5]], np.int32), np.empty((3, 2), np.float32)
    for columns, sizes, place, name in (
        (values[:0], [3], out, "values"),
        (values[0], [3], out, "values"),
        (-values, [3], out, "values"),
        (values << 20, [3], out, "values"),
        (values, [2], out, "sizes"),
        (values, [3], out[:2], "out"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: "):
            built.emissions(columns, sizes, place)


@needs_core
def test_network_arguments_out_of_range_are_refused() -> None:
    network = tiny.network()
    encoded = network.encoder.encode([tiny.view(tiny.TEXT)])
    count = len(encoded)
    network.emissions(encoded, [count])
    layers = compiled._build_layers(network)
    good = {
        "vectors": compiled._take_vectors(network, encoded),
        "characters": encoded.characters,
        "words": encoded.word_index,
        "features": encoded.features,
        "sizes": [count],
        "out": np.empty((count, 3), np.float32),
    }
    layers.emissions(*good.values())  # type: ignore[arg-type]
    for name, wrong in (
        ("vectors", good["vectors"][:, :2].copy()),  # type: ignore[index]
        ("characters", encoded.characters + 10_000),
        ("characters", encoded.characters - 10_000),
        ("words", encoded.word_index + len(encoded.characters)),
        ("features", encoded.features - 1_000),
        ("features", encoded.features + 1_000_000),
        ("features", encoded.features[:2]),
        ("sizes", [count - 1]),
        ("out", np.empty((count, 2), np.float32)),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: "):
            layers.emissions(*(good | {name: wrong}).values())  # type: ignore[arg-type]


def test_objects_of_the_core_are_not_pickled() -> None:
    model = core.Prepared()
    assert model.get(lambda: 5) == model.get(lambda: 6) == 5
    assert pickle.loads(pickle.dumps(model)).get(lambda: 7) == 7  # noqa: S301


def test_a_core_with_another_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deid_agent_core", SimpleNamespace(INTERFACE=0))
    assert core._load_core() == (None, "deid-agent-core has another version")


def test_the_reason_for_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deid_agent_core", None)
    found, reason = core._load_core()
    assert found is None and "deid-agent-core" in reason
    monkeypatch.setattr(core, "_reason", reason)
    with core.without_core():
        assert core.describe_core() == f"python: {reason}"


def test_the_name_of_the_implementation() -> None:
    with core.without_core():
        assert core.core_name() == "python"
        with pytest.raises(RuntimeError):
            core.current()
    assert core.core_name() in (set(INSTRUCTIONS) if core.is_installed() else {"python"})


def test_one_module_imports_the_core() -> None:
    importlib.import_module("deid_agent.nlp")
    assert core._installed is None or sys.modules["deid_agent_core"] is core._installed
