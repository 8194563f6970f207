"""Characters: their features, the windows of a text, and the training examples."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import ANNOTATION, Span, parse_source
from deid_agent.model.text import Document
from deid_agent.nlp.character_features import (
    CHARACTER_FAMILIES,
    MAX_WINDOW_CHARACTERS,
    CharacterFeatures,
    SelectedCharacters,
    build_character_examples,
    find_windows,
    line_windows,
)
from deid_agent.nlp.templates import FeatureExtractor, select_templates
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries

NO_LISTS = Dictionaries((), {}, {}, {})


def seen(text: str, *first: Span) -> CharacterFeatures:
    return CharacterFeatures(TokenFeatures(Document(text), first, NO_LISTS))


def values(characters: CharacterFeatures, name: str) -> list[str]:
    column = characters.feature(name)
    return [column.values[at] for at in column.index.tolist()]


def test_a_character_has_the_features_of_its_token_and_a_blank_those_of_the_next() -> None:
    characters = seen("53RHM  ok ")
    assert values(characters, "word") == ["53"] * 2 + ["rhm"] * 3 + ["ok"] * 5
    assert values(characters, "word_b") == [""] * 2 + ["53"] * 3 + ["rhm"] * 5
    assert values(characters, "word_a") == ["rhm"] * 2 + ["ok"] * 3 + [""] * 5


def test_characters_by_themselves() -> None:
    characters = seen("aB7\t\r.é\x1f\ud800İ")
    assert values(characters, "char") == ["a", "b", "0", " ", "\n", ".", "é", " ", "\x00", "İ"]
    assert values(characters, "letter") == ["a", "B", "7", " ", " ", ".", "é", " ", "\x00", "İ"]
    assert values(characters, "class") == ["x", "X", "0", " ", "\n", ".", "x", " ", "\x00", "X"]


def test_the_position_in_a_token_is_counted_from_both_ends() -> None:
    assert values(seen("abcdefg h"), "spot") == ["0/4", "1/4", "2/4", "3/3", "4/2", "4/1", "4/0", "-", "0/0"]


def test_spans_of_the_token_model_have_edges() -> None:
    characters = seen("ab 7 c", Span(0, 2, PhiType.CITY, parse_source("x")), Span(3, 4, PhiType.AGE, parse_source("x")))
    assert values(characters, "rule") == ["B-CITY", "E-CITY", "O", "S-AGE", "O", "O"]


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown feature nope"):
        seen("a").feature("nope")


def test_features_of_chosen_characters_are_those_of_all() -> None:
    characters = seen("Mr. Ode, 53RHM, of Ely.\nseen 3/4 by RB\n", Span(4, 7, PhiType.PATIENT, parse_source("x")))
    templates = (*select_templates(CHARACTER_FAMILIES, CHARACTER_FAMILIES), "word[-1] char[0]", "word[2]")
    features = FeatureExtractor.learn(templates, [characters], least=1)
    shared = 0
    for units in (np.arange(38), np.array([0, 1, 2, 5, 6, 20, 36, 37])):
        chosen = SelectedCharacters(features, characters, units)
        for template, numbers in zip(templates, features.extract(characters), strict=True):
            found, is_shared = chosen.extract(template)
            assert (found[chosen.head_index] if is_shared else found).tolist() == numbers[units].tolist(), template
            shared += is_shared
    assert 0 < shared < 2 * len(templates)


def test_lines_hold_no_line_end_and_are_bounded() -> None:
    text = "one\r\n\ntwo\rthree" + "x" * MAX_WINDOW_CHARACTERS
    assert [text[a:b] for a, b in line_windows(Document(text))] == [
        "one",
        "two",
        "three" + "x" * (MAX_WINDOW_CHARACTERS - 5),
        "x" * 5,
    ]


def test_windows_end_at_blanks_and_merge() -> None:
    text = "alpha beta gamma delta\nepsilon zeta eta"
    doc = Document(text)
    assert [text[a:b] for a, b in find_windows(doc, [(6, 10)], 2)] == ["alpha beta gamma"]
    assert [text[a:b] for a, b in find_windows(doc, [(0, 5), (17, 22), (23, 30)], 7)] == [
        *("alpha beta gamma delta", "epsilon zeta eta")
    ]


@given(
    st.text(alphabet="ab \n\r7", max_size=60), st.lists(st.tuples(st.integers(0, 59), st.integers(1, 9)), max_size=4)
)
def test_windows_are_disjoint_in_order_and_inside_lines(text: str, windows: list[tuple[int, int]]) -> None:
    doc = Document(text)
    ranges = sorted((a, min(a + size, len(text))) for a, size in windows if a < len(text))
    found = find_windows(doc, ranges, 3)
    assert all(a < b for a, b in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert not any(c in text[a:b] for a, b in found for c in "\r\n")
    for start, _ in ranges:
        if text[start] not in "\r\n":
            assert any(a <= start < b for a, b in found)


def test_examples_are_windows_around_phi_and_a_share_of_the_rest() -> None:
    text = "plain one\nDr. Ode " + "word " * 40 + "\nplain two\nplain three\n"
    doc = Document(text)
    gold = [Span(14, 17, PhiType.DOCTOR, ANNOTATION)]
    view = TokenFeatures(doc, (), NO_LISTS)
    features = FeatureExtractor.learn(("char[0]", "char[-1] char[0]"), [CharacterFeatures(view)])
    made = list(
        build_character_examples(
            [(view, gold), (TokenFeatures(Document(""), (), NO_LISTS), [])], features, around=6, share=2
        )
    )
    assert [len(labels) for _, labels in made] == [17, 11]  # the window, and the last line
    assert made[0][1][4:7] == ["B-NAME", "I-DOCTOR", "E-NAME"]
    assert set(made[1][1]) == {"O"}
    whole = features.extract(CharacterFeatures(view))
    assert np.concatenate([numbers[0] for numbers, _ in made]).tolist()[:17] == whole[0][10:27].tolist()
