"""Features of tokens in their two forms."""

from pathlib import Path

from deid_agent.model.text import Document
from deid_agent.nlp.token_features import TOKEN_FEATURES, IndexedFeature, TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"


def test_an_indexed_feature_equals_the_plain_feature() -> None:
    dictionaries = Dictionaries.load(RULES)
    view = TokenFeatures(
        Document("Dr. Okafor saw Ada Okafor in Iowa, seen 3/4/2019 in Iowa City by Okafor"), (), dictionaries
    )
    for name in TOKEN_FEATURES:
        compact = view.indexed_feature(name)
        if isinstance(compact, IndexedFeature):
            compact = [compact.values[at] for at in compact.index]
        assert list(compact) == list(view.feature(name)), name


def test_a_sentence_has_a_length_an_end_mark_and_unmatched_brackets() -> None:
    view = TokenFeatures(
        Document("He slept. She (Ann was well\nNo pain; no fever at 9.5 today"), (), Dictionaries((), {}, {}, {})
    )
    sentences = dict(zip(view.words, view.feature("sentence"), strict=True))
    assert {word: sentences[word] for word in ("He", "slept", "She", "well", "pain", "today")} == {
        "He": "0.",
        "slept": "0.",
        "She": "1(",
        "well": "1(",
        "pain": sentences["No"],
        "today": sentences["No"],
    }
    assert not {".", "("} & set(sentences["No"])
