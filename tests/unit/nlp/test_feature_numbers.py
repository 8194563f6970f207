"""The numbers of features, and the tables that keep them from one document to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent import core
from deid_agent.measure import Grammar, Mark, MeasureKind, Veto
from deid_agent.model import PhiType, Source, SourceKind, Span
from deid_agent.model.text import Document
from deid_agent.nlp import feature_numbers, network_inputs
from deid_agent.nlp.feature_numbers import FeatureNumbers, RowTable
from deid_agent.nlp.network_inputs import EncodedTokens, InputEncoder, split_paragraphs
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


# The features of whole texts

PIECES = (
    *(
        "Name",
        "NAME",
        "a",
        "12",
        ":",
        ": ",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        "\n \n",
        "\x0b",
        "\x1c",
        "\x00",
    ),
    *(
        ".",
        "-",
        "_",
        "(",
        "'",
        "Ada",
        "Okafor",
        "Iowa City",
        "nurse",
        "sister",
        "PLAN OF CARE:\n",
        "Plan: ",
        "AB CD \n",
    ),
    *("Bo: hi\n", "[9:30] Bo: ", "x" * 45, "A b" * 9, "metformin", "Ames", "123456789", "OKAFOR"),
)
TYPES = (PhiType.PATIENT, PhiType.DATE, PhiType.DOCTOR)
KINDS = (MeasureKind.DOSE, MeasureKind.SCORE)
RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30), st.integers(0, 5)), max_size=6)
needs_core = pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")


@dataclass(frozen=True)
class Marks:
    """A grammar that has these marks."""

    marks: tuple[Mark, ...]

    def find(self, _doc: Document) -> tuple[Mark, ...]:
        return self.marks


@cache
def lists() -> Dictionaries:
    return Dictionaries.load(RULES)


def features_of(
    text: str, spans: Sequence[tuple[int, int, int]], marks: Sequence[tuple[int, int, int]]
) -> TokenFeatures:
    """The features of a text with these spans of the first pass, which may overlap, and marks, which do not."""
    size, free, found = len(text), 0, []
    first_pass = [
        Span(a, min(a + n, size), TYPES[k % 3], Source(SourceKind.RULE, f"r{k % 2}")) for a, n, k in spans if a < size
    ]
    for start, length, kind in sorted(marks):
        if free <= start < size:
            free = min(start + length, size)
            found.append(Mark(start, free, KINDS[kind % 2], Veto.HARD if kind > 2 else Veto.SOFT))
    return TokenFeatures(Document(text), first_pass, lists(), {}, cast(Grammar, Marks(tuple(found))))


def values_of(tokens: TokenFeatures) -> dict[str, dict[str, int]]:
    """A number for each value of each feature of a text, and for the absent one of some."""
    names = [name for name in TOKEN_FEATURES if name != "sentence"]
    return {name: {v: at for at, v in enumerate(dict.fromkeys(tokens.feature(name)), 1)} for name in names}


@needs_core
@settings(deadline=None, max_examples=150)
@given(
    text=st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
        st.text(st.characters(max_codepoint=127)),
        st.text(),
    ),
    spans=RANGES,
    marks=RANGES,
)
def test_the_core_has_the_features_of_every_text(
    text: str, spans: list[tuple[int, int, int]], marks: list[tuple[int, int, int]]
) -> None:
    with core.without_core():
        tokens = features_of(text, spans, marks)
        numbers = FeatureNumbers(values_of(tokens))
        expected, marked = numbers.encode_rows(tokens), tokens.marked().tolist()
        starts = tokens.paragraph_starts()
    read = features_of(text, spans, marks)
    assert (read.in_core() is None) is not text.isascii()
    for name, found, row in zip(values_of(tokens), numbers.encode_rows(read), expected, strict=True):
        assert found.tolist() == row.tolist(), name
    assert numbers.encode_rows(read, by_token=True).tolist() == expected.T.tolist()
    assert (read.marked().tolist(), read.paragraph_starts()) == (marked, starts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_inputs, "MAX_SEQUENCE_TOKENS", 3)
        with core.without_core():
            sizes = split_paragraphs(tokens)
        assert split_paragraphs(read) == sizes


@needs_core
@settings(deadline=None, max_examples=60)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), min_size=1).map("".join), min_size=1, max_size=4))
def test_the_core_has_the_rows_of_the_words_of_every_text(texts: list[str]) -> None:
    encoder = InputEncoder({"a": 2, "N": 3, "\ud800": 4, "é": 5}, {"name": 2, "000000": 3, "00000000": 4}, {}, None)
    with core.without_core():
        expected = encoder.encode([features_of(text, (), ()) for text in texts])
    read = [features_of(text, (), ()) for text in texts]
    for _ in range(2):
        same(encoder.encode(read), expected)
    # A text that is not ASCII among the others.
    other = [features_of("é a Name", (), ()), *read, features_of("Oslo é", (), ())]
    same(encoder.encode(other).select(slice(3, 3 + len(expected))), expected)
    found = encoder.encode(other)
    with core.without_core():
        apart = encoder.encode(other)
    np.testing.assert_array_equal(found.learned[found.word_index], apart.learned[apart.word_index])
    width = min(found.characters.shape[1], apart.characters.shape[1])
    own, other_rows = (each.characters[each.word_index, :width] for each in (found, apart))
    np.testing.assert_array_equal(own, other_rows)


def same(found: EncodedTokens, expected: EncodedTokens) -> None:
    for name in ("characters", "learned", "published", "word_index", "features"):
        own, other = getattr(found, name), getattr(expected, name)
        width = min(own.shape[-1], other.shape[-1]) if name == "characters" else None
        np.testing.assert_array_equal(own[..., :width], other[..., :width], name)


@needs_core
def test_other_dictionaries_have_other_senses_in_the_core() -> None:
    numbers = FeatureNumbers({"sense": {"x": 2, "y": 3}, "sense_field": {"f": 4}, "sense_group": {"g": 5}})
    for word, sense, row in (
        ("ada", ("f", "g", "x"), [2, 4, 5]),
        ("ada", ("", "g", "y"), [3, 0, 5]),
        ("b", ("", "", ""), [0, 0, 0]),
    ):
        other = Dictionaries((), {}, {}, {}, {word: sense})
        assert numbers.encode_rows(TokenFeatures(Document("Ada"), (), other)).ravel().tolist() == row


@needs_core
def test_the_tables_of_the_core_are_emptied_when_they_are_full() -> None:
    words = [
        f"{chr(97 + at % 26)}{'abcdefghij'[at // 26 % 10]}{'klmnopqrst'[at // 260 % 10]}x{at}" for at in range(40_000)
    ]
    numbers = FeatureNumbers({"word": {"abk": 2, "x": 3, "z": 4}, "length": {"1": 7}})
    text = Document(" ".join(words))
    for doc in (text, Document("x z"), text, Document("z x")):
        tokens = TokenFeatures(doc, (), Dictionaries((), {}, {}, {}))
        with core.without_core():
            expected = numbers.encode_rows(tokens)
        np.testing.assert_array_equal(numbers.encode_rows(tokens), expected)


@needs_core
def test_the_core_refuses_texts_and_features_that_it_cannot_read() -> None:
    own = core.current()
    for text, spans, marks, tags, name in (
        ("é", [], [], ((),), "text"),
        ("a", [(0, 2, "AGE", "r")], [], ((),), "spans"),
        ("a", [(0, 0, "AGE", "r")], [], ((),), "spans"),
        ("a", [], [(1, 2, "dose", True)], ((),), "marks"),
        ("a b", [], [], ((),), "tags"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: wrong shape or value$"):
            own.TextView(text, spans, marks, None, tags)
    view = own.TextView("Okafor", [], [], None, (frozenset(),))
    assert "Okafor" not in repr(view)
    with pytest.raises(ValueError, match=r"^most: "):
        view.split(0)
    for name, group in (("gap", "word"), ("sentence", "context"), ("x", "")):
        with pytest.raises(ValueError, match=r"^features: "):
            own.FeatureReader([(name, group, 0, {})], None)
    reader = own.FeatureReader([("town", "tags", 0, {})], lambda _: ([], ""))
    with pytest.raises(ValueError, match=r"^rows: "):
        reader.encode(view, {}, False)
    with pytest.raises(ValueError, match=r"^most: "):
        own.WordReader({}, None, {}, 3)
