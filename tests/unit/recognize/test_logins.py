"""Logins that are built from a name in the note."""

import pytest

from deid_agent.model.text import Document
from deid_agent.recognize.list_recognizers import LoginRecognizer

LOGINS = LoginRecognizer(frozenset({"unlocks", "plane"}))


@pytest.mark.parametrize(
    "login", ["apflugger", "tpflug", "tjpflugger", "apflugger2", "APFLUGGER", "apflug_md", "apflug.x"]
)
def test_initials_and_a_family_name(login: str) -> None:
    text = f"Tricia Pflugger RN\nsigned {login} 10:40"
    assert [text[s.start : s.end] for s in LOGINS.recognize(Document(text))] == [login]


@pytest.mark.parametrize(
    "text",
    [
        "Tricia Pflugger, pflugger",  # the name itself is another recognizer's
        "Tricia Pflugger, apflo",
        "Ann Nlocks unlocks it",
        "Lane plane",
        "Tricia Pflugger a@apflugger.org apflugger@x.org",
        "apflugger alone",
    ],
)
def test_other_words_are_not_logins(text: str) -> None:
    assert list(LOGINS.recognize(Document(text))) == []
