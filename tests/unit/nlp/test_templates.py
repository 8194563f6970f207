"""Templates turn features into numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.text import Document
from deid_agent.nlp import templates
from deid_agent.nlp.character_features import CHARACTER_FAMILIES
from deid_agent.nlp.templates import (
    TOKEN_FAMILIES,
    FeatureExtractor,
    combine_at_units,
    parse_template,
    select_templates,
)
from deid_agent.nlp.token_features import TOKEN_FEATURES, FeatureValues, IndexedFeature, TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries


@dataclass
class Made:
    """Features chosen by a test."""

    columns: dict[str, Sequence[str] | IndexedFeature] = field(default_factory=dict)

    def feature(self, name: str) -> Sequence[str] | IndexedFeature:
        return self.columns[name]

    def indexed_feature(self, name: str) -> FeatureValues | IndexedFeature:
        return self.feature(name)


def test_a_feature_is_the_value_at_its_offset() -> None:
    view = Made({"word": ["a", "b", "a", "c"]})
    features = FeatureExtractor.learn(("word[0]", "word[-1]", "word[2]"), [view], least=1)
    a, b, c = (features.vocabulary["word"][value] for value in "abc")
    here, before, later = (numbers.tolist() for numbers in features.extract(view))
    assert here == [a, b, a, c]
    assert before == [1, a, b, a]  # 1: the edge of the text
    assert later == [a, c, 1, 1]


def test_an_unknown_or_empty_value_makes_no_feature() -> None:
    features = FeatureExtractor.learn(("word[0]", "word[0] word[1]"), [Made({"word": ["a", "b", "a", "b"]})], least=1)
    alone, pair = features.extract(Made({"word": ["a", "x", "", "b", "a"]}))
    assert [n > 0 for n in alone.tolist()] == [True, False, False, True, True]
    assert [n > 0 for n in pair.tolist()] == [False, False, False, True, True]  # the last: with the edge


def test_different_pairs_have_different_numbers() -> None:
    view = Made({"word": list("abcabcacbb"), "shape": list("xyxyxxyyxy")})
    features = FeatureExtractor.learn(("word[0] shape[0]",), [view], least=1)
    (numbers,) = features.extract(view)
    pairs = list(zip("abcabcacbb", "xyxyxxyyxy", strict=True))
    assert len(set(numbers.tolist())) == len(set(pairs))
    assert len(set(zip(numbers.tolist(), pairs, strict=True))) == len(set(pairs))


def test_rare_values_are_not_numbered_and_the_order_is_fixed() -> None:
    views = [Made({"word": ["b", "a", "c"]}), Made({"word": ["a", "b", "a"]})]
    assert FeatureExtractor.learn(("word[0]",), views).vocabulary == {"word": {"a": 2, "b": 3}}
    assert FeatureExtractor.learn(("word[0]",), views[::-1]).vocabulary == {"word": {"a": 2, "b": 3}}


def test_an_indexed_feature_equals_the_expanded_feature() -> None:
    plain = Made({"word": ["a", "a", "b", "a"]})
    spread = Made({"word": IndexedFeature(["a", "b"], np.array([0, 0, 1, 0]))})
    features = FeatureExtractor.learn(("word[0]", "word[-1] word[0]"), [plain], least=1)
    for one, other in zip(features.extract(plain), features.extract(spread), strict=True):
        assert one.tolist() == other.tolist()


def test_a_value_that_units_share_counts_once() -> None:
    views = [Made({"word": IndexedFeature(["seldom", "often", "often", ""], np.array([0, 0, 0, 1, 2]))})]
    assert list(FeatureExtractor.learn(("word[0]",), views).vocabulary["word"]) == ["often"]


@pytest.mark.parametrize("template", ["word[0]", "word[-2]", "word[3]", "word[-1] word[0] word[1]"])
def test_features_of_chosen_units_are_those_of_all(template: str) -> None:
    view = Made({"word": list("abcabx")})
    features = FeatureExtractor.learn((template,), [view], least=1)
    (every,) = features.extract(view)
    for chosen in ([0, 1], [2, 5], [0, 1, 2, 3, 4, 5]):
        units = np.array(chosen)
        assert combine_at_units(template, features.encode_features(view), units).tolist() == every[units].tolist()


@pytest.mark.parametrize("template", ["", "word", "[0]", "Word[0]", "word[x]"])
def test_a_template_without_a_feature_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError, match="invalid feature template"):
        parse_template(template)


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown feature family nope: one of basic"):
        select_templates(["basic", "nope"])
    with pytest.raises(ConfigurationError, match="one of character"):
        select_templates(["basic"], CHARACTER_FAMILIES)


def test_every_family_consists_of_existing_features() -> None:
    view = TokenFeatures(Document("Mr. Ode, 53RHM\n"), (), Dictionaries((), {}, {}, {}))
    features = FeatureExtractor.learn(select_templates(TOKEN_FAMILIES), [view], least=1)
    assert {len(numbers) for numbers in features.extract(view)} == {len(view.doc.tokens)}


def test_an_invalid_feature_is_refused() -> None:
    view = TokenFeatures(Document("a"), (), Dictionaries((), {}, {}, {}))
    assert all(len(view.feature(name)) == 1 for name in TOKEN_FEATURES)
    with pytest.raises(ConfigurationError, match="unknown feature nope"):
        view.feature("nope")


def test_features_are_kept_only_on_request() -> None:
    kept: dict[str, Sequence[str]] = {}
    view = TokenFeatures(Document("Mr. Ode"), (), Dictionaries((), {}, {}, {}), kept)
    assert view.feature("word") is view.feature("word")
    assert list(kept) == ["word"]
    view = TokenFeatures(Document("Mr. Ode"), (), Dictionaries((), {}, {}, {}))
    assert view.feature("word") is not view.feature("word")


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_few_units_have_the_numbers_of_many(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    view = Made({"word": list("abcaxb cc")[:size], "shape": list("xyx yyyxz")[:size]})
    known = Made({"word": list("abc"), "shape": list("xyz")})
    wanted = ("word[0]", "word[-2]", "word[0] shape[1]", "shape[-1] word[3]", "word[-1] shape[0] shape[2]", "shape[4]")
    features = FeatureExtractor.learn(wanted, [known], least=1)
    few, _ = features.extract_all([view])
    monkeypatch.setattr(templates, "FEW_UNITS", 0)
    many, _ = features.extract_all([view])
    assert isinstance(few, np.ndarray) and not isinstance(many, np.ndarray)
    assert few.tolist() == [numbers.tolist() for numbers in many]
