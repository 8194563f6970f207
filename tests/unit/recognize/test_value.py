"""What is a short value, and when a doubt about one has a witness."""

from pathlib import Path

import pytest

from deid_agent.dictionary import Dictionaries
from deid_agent.phi import PhiType
from deid_agent.recognize.value import is_value, witnessed
from deid_agent.spans import Span
from deid_agent.text import Document

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
    assert is_value(Document(text)) is value


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
def test_a_doubt_about_a_value_needs_the_lists(text: str, name: bool) -> None:
    doc = Document(text)
    assert witnessed(Span(0, len(text), PhiType.PATIENT, "weak:token"), doc, LISTS) is name
