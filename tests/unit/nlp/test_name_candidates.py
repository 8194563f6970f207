"""Candidates of names: their sources and their boundaries."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, parse_source
from deid_agent.model.text import Document
from deid_agent.nlp.name_candidates import find_candidates
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"
LISTS = Dictionaries.load(RULES)


def found(text: str, first: tuple[Span, ...] = ()) -> dict[str, frozenset[str]]:
    doc = Document(text)
    out = {}
    for candidate in find_candidates(TokenFeatures(doc, first, LISTS)):
        start, end = candidate.range(doc.tokens)
        out[text[start:end]] = candidate.strategies
    return out


@pytest.mark.parametrize(
    ("text", "wanted", "strategy"),
    [
        ("sister jennifer called", "jennifer", "part:list"),
        ("saw Ann today", "Ann", "part:list"),
        ("seen by Zzyvko, who agrees", "Zzyvko", "part:cue"),
        ("then dr zzyvko came", "zzyvko", "part:cue"),
        ("Jennifer L. Garcia here", "Jennifer L. Garcia", "part:list"),
        ("Garcia, Jennifer L.", "Garcia, Jennifer L.", "part:list"),
        ("Jennifer Garcia-Lopez's car", "Jennifer Garcia-Lopez", "part:list"),
        ("with Jennifer\nGarcia, RN", "Jennifer\nGarcia", "part:list"),
        ("with J. van der Garcia", "J. van der Garcia", "part:list"),
        ("and Gerald Jr. left", "Gerald Jr.", "part:list"),
        ("T: 12/27/03 / ZQ", "ZQ", "part:initials"),
    ],
)
def test_a_name_is_a_candidate(text: str, wanted: str, strategy: str) -> None:
    assert strategy in found(text)[wanted]


@pytest.mark.parametrize("text", ["the patient will walk", "grace and mark", "WBC 7.2, hgb 13", ""])
def test_ordinary_words_are_not_candidates(text: str) -> None:
    assert found(text) == {}


def test_a_name_found_by_rules_is_one_candidate() -> None:
    rule = Span(4, 15, PhiType.DOCTOR, parse_source("doctor-title"))
    assert found("the walk-in man; the rest", (rule,))["walk-in man"] == {"rule"}


def test_other_types_are_not_candidates() -> None:
    assert found("the walk-in", (Span(4, 11, PhiType.HOSPITAL, parse_source("x")),)) == {}


@settings(max_examples=60)
@given(st.text(alphabet="ABcde .,'-\n\t1éØ", max_size=80))
def test_candidates_lie_inside_in_order_and_are_never_empty(text: str) -> None:
    doc = Document(text)
    all_of = find_candidates(TokenFeatures(doc, (), LISTS))
    assert [(c.first, -c.last) for c in all_of] == sorted({(c.first, -c.last) for c in all_of})
    assert all(0 <= c.first < c.last <= len(doc.tokens) for c in all_of)
