"""The numbers of features, and the tables that keep them from one document to the next."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent import core
from deid_agent.model.text import Document
from deid_agent.nlp import feature_numbers
from deid_agent.nlp.feature_numbers import FeatureNumbers, RowTable
from deid_agent.nlp.token_features import TOKEN_FEATURES, TokenFeatures
from deid_agent.nlp.word_features import PREVIOUS_WORD_FEATURES, WORD_FEATURES
from deid_agent.rules.dictionaries import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"
TEXTS = (
    "Dr. Okafor saw Ada Okafor in Iowa, 3/4/2019\nin Iowa City",
    "Okafor",
    "ADA of Iowa: in Ames",
    "",
    "Ada\tOkafor",
)


def documents(dictionaries: Dictionaries) -> list[TokenFeatures]:
    return [TokenFeatures(Document(text), (), dictionaries, {}) for text in TEXTS]


def test_numbers_are_those_of_the_values_in_every_document() -> None:
    dictionaries = Dictionaries.load(RULES)
    values = {
        name: {v for tokens in documents(dictionaries) for v in tokens.feature(name) if v} for name in TOKEN_FEATURES
    }
    vocabulary = {name: {v: at for at, v in enumerate(sorted(own), 2) if at % 5} for name, own in values.items()}
    numbers = FeatureNumbers(vocabulary)
    for tokens in [*documents(dictionaries), *documents(dictionaries.without_lists("city", "state"))]:
        found = numbers.encode(tokens)
        assert found.keys() == vocabulary.keys()
        for name, known in vocabulary.items():
            plain = TokenFeatures(tokens.doc, (), tokens.dictionaries).feature(name)
            assert found[name].tolist() == [known.get(value, 0) for value in plain], name


def test_a_word_is_computed_once_until_the_table_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compute(word: str) -> list[int]:
        asked.append(word)
        return [len(word), -1]

    monkeypatch.setattr(feature_numbers, "MOST_ROWS", 3)
    table = RowTable(2, compute)
    assert table.columns(["a", "bb", "a"]).tolist() == [[1, 2, 1, 0], [-1, -1, -1, 0]]
    assert table.columns(["bb", "ccc", "dddd"]).tolist() == [[2, 3, 4, 0], [-1, -1, -1, 0]]
    assert asked == ["a", "bb", "ccc", "dddd"]
    assert len(table) == 4
    assert table.columns(["a"]).tolist() == [[1, 0], [-1, 0]]
    assert asked[4:] == ["a"]
    assert len(table) == 1


def test_a_table_shows_no_word() -> None:
    table = RowTable[str](1, lambda word: [len(word)])
    table.columns(["Okafor"])
    assert "Okafor" not in repr(table) + repr(FeatureNumbers({"word": {"okafor": 2}}))


WORDS = st.one_of(st.text(st.characters(max_codepoint=127), min_size=1, max_size=16), st.text(min_size=1, max_size=4))


@pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")
@settings(deadline=None, max_examples=200)
@given(words=st.lists(WORDS, min_size=1, max_size=6), other=WORDS)
def test_the_core_has_the_numbers_of_every_word(words: list[str], other: str) -> None:
    features = {**WORD_FEATURES, **PREVIOUS_WORD_FEATURES}
    known = {name: {value_of(word): at for at, word in enumerate(words, 1)} for name, value_of in features.items()}
    for own in (WORD_FEATURES, PREVIOUS_WORD_FEATURES):
        vocabulary = {name: known[name] for name in own}
        with core.without_core():
            expected = feature_numbers._FeatureTable(own, vocabulary)._rows.columns([*words, other]).tolist()
        table = feature_numbers._FeatureTable(own, vocabulary, of_words=True)
        assert table._rows.columns([*words, other]).tolist() == expected


@pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")
def test_the_core_refuses_features_that_it_has_not() -> None:
    rows = core.current().WordRows
    for name in ("p6", "s0", "", "é1", "gap"):
        with pytest.raises(ValueError, match=r"^features: "):
            rows([(name, {})])
    assert rows([("word", {"a": 2, "\ud800": 3})]).row("A") is not None
    assert rows([("word", {})]).row("é") is None
    assert rows([("word", {})]).row("\ud800") is None
