"""Short values, and the lists that decide low-confidence ones."""

from pathlib import Path

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, parse_source
from deid_agent.model.text import Document
from deid_agent.nlp.crf_taggers import has_listed_names_only, is_short_value
from deid_agent.rules.dictionaries import Dictionaries

LISTS = Dictionaries.load(Path(__file__).resolve().parents[3] / "rules")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", True),
        ("USD", True),
        ("2006-03-04 12:30", True),
        ("Smith, John A, 12 Elm Road", True),
        ("She went home with her son on Monday", False),
        ("3/4/19 " * 13, False),
    ],
)
def test_a_value_is_short(text: str, value: bool) -> None:
    assert is_short_value(Document(text)) is value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Smith, John", True),
        ("Chopra", True),
        ("Iowa", True),
        ("USD", False),
        ("B", False),
        ("true", False),
        ("Death", False),
        ("Basophils", False),
        ("10072", False),
        ("John Basophils", False),
    ],
)
def test_a_low_confidence_value_is_decided_by_the_lists(text: str, name: bool) -> None:
    doc = Document(text)
    assert has_listed_names_only(Span(0, len(text), PhiType.PATIENT, parse_source("weak:token")), doc, LISTS) is name
