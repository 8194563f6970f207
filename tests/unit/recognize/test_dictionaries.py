"""Spans by lists alone: terms without a cue, terms that need one, and terms that do not count."""

from pathlib import Path

import pytest

from deid_agent.model.text import Document
from deid_agent.recognize.list_recognizers import DictionaryRecognizer
from deid_agent.rules.dictionaries import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"
LISTED = DictionaryRecognizer(Dictionaries.load(RULES))


def found(text: str) -> set[str]:
    return {f"{s.type}:{text[s.start : s.end]}" for s in LISTED.recognize(Document(text))}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lived in Saskatchewan once", "STATE:Saskatchewan"),
        ("of Albuquerque, NM 87101", "STATE:NM"),
        ("born in Reading then", "CITY:Reading"),
        ("she speaks Portuguese at home", "COUNTRY:Portuguese"),
        ("lives in Winston-Salem now", "CITY:Winston-Salem"),
        ("of Maricopa County", "CITY:Maricopa County"),
        ("seen at Cleveland Clinic", "HOSPITAL:Cleveland Clinic"),
        ("drives for Walmart", "ORGANIZATION:Walmart"),
        ("a school bus driver", "PROFESSION:school bus driver"),
        ("retired teacher", "PROFESSION:teacher"),
        ("since Christmas Eve", "DATE:Christmas Eve"),
        ("sister Jennifer L. Garcia", "PATIENT:Jennifer L. Garcia"),
        ("JENNIFER GARCIA", "PATIENT:JENNIFER GARCIA"),
    ],
)
def test_a_listed_term_counts(text: str, wanted: str) -> None:
    assert wanted in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "reading will help",
        "Reading helps",
        "or in the OR, MD",
        "Jennifer Garcia, MD",
        "teacher said",
        "10 French catheter",
        "Foley placed, Protonix given",
        "the CBC, NG and ROM",
    ],
)
def test_an_ambiguous_term_needs_a_cue(text: str) -> None:
    assert {hit for hit in found(text) if not hit.startswith("PATIENT:Jennifer")} == set()


def test_a_place_inside_a_longer_name_does_not_count() -> None:
    assert not {hit for hit in found("the Ohio Department of Insurance") if hit.startswith("STATE")}


def test_a_name_of_one_word_has_a_source_of_its_own() -> None:
    assert [str(s.source) for s in LISTED.recognize(Document("saw Okafor"))] == ["lexicon:name"]
