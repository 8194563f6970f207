"""The network as a model of a tagger: alone, and averaged with another model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_network as tiny

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.spans import is_disjoint
from deid_agent.model.text import Document
from deid_agent.nlp.crf import CrfModel, build_crf, split_sequence
from deid_agent.nlp.crf_taggers import LOW_CONFIDENCE, TokenCrf
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.network_tagger import NETWORK_SOURCE, NetworkTagger
from deid_agent.nlp.templates import FeatureExtractor

FEATURES = FeatureExtractor(("word[0]",), {"word": {"oslo": 2}})
CRF = CrfModel(
    "tiny",
    Schema.IO,
    FEATURES,
    build_crf(FEATURES, tiny.LABELS, {(0, 2): {"I-CITY": 3.0}}, {"O": 1.0}, {("O", "O"): 0.5}),
)
NETWORK = NetworkTagger(tiny.model(), tiny.NO_LISTS, 0.2)
TEXTS = ("Ada", "", tiny.TEXT, "Oslo", "welder for Tarrant Steel", tiny.TEXT * 40, "\n\n", "Osric")


def test_probabilities_are_those_of_the_labels() -> None:
    views = [tiny.view(text) for text in TEXTS if text.strip()]
    probabilities = NETWORK.marginals(views)
    assert probabilities.shape == (sum(len(view.words) for view in views), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_a_batch_of_documents_gives_the_results_of_single_documents() -> None:
    asked = [(Document(text), ()) for text in TEXTS]
    for model in (NETWORK, TokenCrf(CRF, tiny.NO_LISTS, 0.2, (NETWORK,))):
        assert model.propose_all(asked) == [list(model.propose(doc, first)) for doc, first in asked]


def test_low_confidence_spans_are_returned_with_the_others() -> None:
    spans = list(NETWORK.propose(Document(tiny.TEXT), ()))
    assert {span.source for span in spans} <= {NETWORK_SOURCE, LOW_CONFIDENCE}
    assert is_disjoint(sorted(spans, key=lambda span: span.start))
    alone = NetworkTagger(NETWORK.model, tiny.NO_LISTS, 1.0).propose(Document(tiny.TEXT), ())
    assert list(alone) == [span for span in spans if span.source == NETWORK_SOURCE]


def test_the_mean_of_both_models_decides() -> None:
    both = TokenCrf(CRF, tiny.NO_LISTS, 0.2, (NETWORK,))
    view = tiny.view(tiny.TEXT)
    emissions = CRF.crf.emissions(CRF.extractor.extract(view))
    crf = CRF.crf.marginals_of_sequences(emissions, split_sequence(len(view.words), view.paragraph_starts()))
    expected = (crf + NETWORK.marginals([view])) / 2
    read = both.predict(tiny.view(tiny.TEXT), low_confidence=True)
    assert list(read.labels) == [tiny.LABELS[at] for at in expected.argmax(axis=1)]
    assert read.phi is not None
    np.testing.assert_allclose(read.phi, 1 - expected[:, 2], atol=1e-5)
    assert both.predict(tiny.view(tiny.TEXT), low_confidence=False).labels == read.labels


def test_models_of_other_labels_are_not_joined() -> None:
    other = NetworkTagger(tiny.model(labels=("I-DATE", "I-PATIENT", "O")), tiny.NO_LISTS)
    with pytest.raises(ConfigurationError, match="models tiny and small have different labels: train both"):
        TokenCrf(CRF, tiny.NO_LISTS, 0.3, (other,))


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200) | st.text("AB ab1.,:\n\té́", max_size=200))
def test_spans_lie_inside_any_text(text: str) -> None:
    for span in NETWORK.propose(Document(text), ()):
        assert 0 <= span.start < span.end <= len(text)


def test_a_text_of_a_million_characters_is_read() -> None:
    for text in ("x" * 1_000_000, "ab " * 100_000):
        assert all(span.end <= len(text) for span in NETWORK.propose(Document(text), ()))
