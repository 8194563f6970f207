"""The network as a model of a tagger: alone, and averaged with another model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_network as tiny

from deid_agent.measure import load_grammar
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.spans import is_disjoint
from deid_agent.model.text import Document
from deid_agent.nlp.crf import Crf, CrfModel, build_crf
from deid_agent.nlp.crf_taggers import LOW_CONFIDENCE, TokenCrf
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.network_tagger import NETWORK_SOURCE, NetworkTagger
from deid_agent.nlp.sequence_decoder import SequenceDecoder
from deid_agent.nlp.sequences import split_sequence
from deid_agent.nlp.templates import FeatureExtractor
from deid_agent.nlp.token_features import TokenFeatures

FEATURES = FeatureExtractor(("word[0]",), {"word": {"oslo": 2}})
CRF = CrfModel(
    "tiny",
    Schema.IO,
    FEATURES,
    build_crf(FEATURES, tiny.LABELS, {(0, 2): {"I-CITY": 3.0}}, {"O": 1.0}, {("O", "O"): 0.5}),
)
NETWORK = NetworkTagger(tiny.model(), tiny.NO_LISTS, 4.0)
TEXTS = ("Ada", "", tiny.TEXT, "Oslo", "welder for Tarrant Steel", tiny.TEXT * 40, "\n\n", "Osric")


def test_probabilities_are_those_of_the_labels() -> None:
    views = [tiny.view(text) for text in TEXTS if text.strip()]
    probabilities = NETWORK.marginals(views)
    assert probabilities.shape == (sum(len(view.words) for view in views), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_a_batch_of_documents_gives_the_results_of_single_documents() -> None:
    asked = [(Document(text), ()) for text in TEXTS]
    for model in (NETWORK, TokenCrf(CRF, tiny.NO_LISTS, 4.0, (NETWORK,))):
        assert model.propose_all(asked) == [list(model.propose(doc, first)) for doc, first in asked]


def test_low_confidence_spans_are_returned_with_the_others() -> None:
    spans = list(NETWORK.propose(Document(tiny.TEXT), ()))
    assert {span.source for span in spans} <= {NETWORK_SOURCE, LOW_CONFIDENCE}
    assert is_disjoint(sorted(spans, key=lambda span: span.start))
    alone = NetworkTagger(NETWORK.model, tiny.NO_LISTS).propose(Document(tiny.TEXT), ())
    assert {at for span in alone for at in range(span.start, span.end)} <= {
        at for span in spans for at in range(span.start, span.end)
    }


def test_the_mean_of_both_models_decides() -> None:
    both = TokenCrf(CRF, tiny.NO_LISTS, 1.0, (NETWORK,))
    view = tiny.view(tiny.TEXT)
    emissions = CRF.crf.emissions(CRF.extractor.extract(view))
    crf = CRF.crf.marginals_of_sequences(emissions, split_sequence(len(view.words), view.paragraph_starts()))
    expected = (crf + NETWORK.marginals([view])) / 2
    _, read = both.predict(Document(tiny.TEXT), ())
    assert list(read.labels) == [tiny.LABELS[at] for at in expected.argmax(axis=1)]
    assert read.phi is not None
    np.testing.assert_allclose(read.phi, 1 - expected[:, 2], atol=1e-5)


def test_neighbours_decide_between_labels_that_are_nearly_as_likely() -> None:
    """A chain of one label wins over a likelier label in its middle; without affinities the likeliest label does."""
    marginals = np.array([[0.9, 0.05, 0.05], [0.48, 0.5, 0.02], [0.9, 0.05, 0.05]], np.float32)
    view = tiny.view("a b c")
    plain = SequenceDecoder(tiny.LABELS, np.zeros((3, 3), np.float32))
    assert plain.decode(marginals, [3], [view]) == [tiny.LABELS[0], tiny.LABELS[1], tiny.LABELS[0]]
    chained = SequenceDecoder(tiny.LABELS, np.eye(3, dtype=np.float32))
    assert chained.decode(marginals, [3], [view]) == [tiny.LABELS[0]] * 3


def test_a_leaning_decoder_proposes_more_but_not_in_measurements() -> None:
    grammar = load_grammar(Path(__file__).resolve().parents[3] / "rules")
    doc = Document("Ada 5mg 3/4")
    assert [doc.text[a:b] for a, b in doc.tokens] == ["Ada", "5", "mg", "3", "/", "4"]
    marginals = np.array([[0.3, 0.0, 0.7]] * 6, np.float32)
    view = TokenFeatures(doc, (), tiny.NO_LISTS, grammar=grammar)
    decoder = SequenceDecoder(tiny.LABELS, np.zeros((3, 3), np.float32), lean=4.0)
    assert decoder.decode(marginals, [6], [view]) == [tiny.LABELS[0], "O", "O", *[tiny.LABELS[0]] * 3]
    assert set(replace(decoder, lean=1.0).decode(marginals, [6], [view])) == {"O"}


def test_models_of_other_labels_are_not_joined() -> None:
    other = NetworkTagger(tiny.model(labels=("I-DATE", "I-PATIENT", "O")), tiny.NO_LISTS)
    with pytest.raises(ConfigurationError, match="models tiny and small have different labels: train both"):
        TokenCrf(CRF, tiny.NO_LISTS, 1.0, (other,))


@settings(max_examples=60)
@given(text=st.text(max_size=200) | st.text("AB ab1.,:\n\té́", max_size=200))
def test_spans_lie_inside_any_text(text: str) -> None:
    for span in NETWORK.propose(Document(text), ()):
        assert 0 <= span.start < span.end <= len(text)


def test_a_text_of_a_million_characters_is_read() -> None:
    for text in ("x" * 1_000_000, "ab " * 100_000):
        assert all(span.end <= len(text) for span in NETWORK.propose(Document(text), ()))


@settings(max_examples=200)
@given(data=st.data())
def test_the_search_around_doubt_finds_the_labels_of_the_whole_sequence(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    random = np.random.default_rng(seed)
    count, labels = sum(sizes), ("B", "I", "O", "X")
    marginals = random.dirichlet([0.1, 0.1, data.draw(st.sampled_from([0.5, 3.0, 20.0])), 0.1], count)
    affinities = random.normal(0, data.draw(st.sampled_from([0.0, 0.2, 1.0])), (4, 4)).astype(np.float32)
    view = tiny.view(" ".join("a" * count))
    found = SequenceDecoder(labels, affinities).decode(marginals.astype(np.float32), sizes, [view])
    whole = Crf(labels, (), np.zeros(0, np.float32), np.zeros(0, np.float32), affinities)
    assert found == whole.decode_sequences(np.log(marginals.astype(np.float32) + 1e-6, dtype=np.float32), sizes)
