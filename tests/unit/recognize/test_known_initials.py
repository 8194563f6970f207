"""Initials of the people of a message, and letters that are none."""

import pytest
from support.known import fact, found, person

from deid_agent.model.sites import Subject, ValueKind


@pytest.mark.parametrize(
    ("text", "initials"),
    [
        ("AO: no pain today", "AO"),
        ("notes\nAO: no pain", "AO"),
        ("pt A O seen", "A O"),
        ("A.O seen at 3", "A.O"),
        ("Initials: AO", "AO"),
        ("AO 3.2 cm, mild AR", None),
        ("seen with AO root dilated", None),
        ("A O2 mask", None),
    ],
)
def test_initials_of_the_patient(text: str, initials: str | None) -> None:
    assert found(text, *person("Okafor", "Ada")) == ([initials] if initials else [])


@pytest.mark.parametrize(
    ("text", "initials"),
    [
        ("AO/mlk", "AO"),
        ("d/w AO, agrees", "AO"),
        ("GHM/ao", "ao"),
        ("stable. /ao", "ao"),
        ("AO aware", "AO"),
        ("plan unchanged\nAO", "AO"),
        ("AO valve opens", None),
    ],
)
def test_initials_of_a_clinician(text: str, initials: str | None) -> None:
    facts = (
        fact("DOCTOR", "Okafor", ValueKind.FAMILY, Subject.PROVIDER),
        fact("DOCTOR", "Ada", ValueKind.GIVEN, Subject.PROVIDER),
    )
    assert found(text, *facts) == ([initials] if initials else [])


@pytest.mark.parametrize("heading", ["CC: chest pain", "PE: no edema", "RA: 4", "PMH: none"])
def test_a_heading_is_not_a_speaker(heading: str) -> None:
    letters = heading.partition(":")[0]
    assert found(heading, *person(f"{letters[-1]}uellan", f"{letters[0]}nesta")) == []


@pytest.mark.parametrize(
    "term",
    [
        "Weaverton C5-C6 ACDF",
        "Weaverton, C7 fx",
        "Weaverton C-section",
        "Weaverton C. diff",
        "Weaverton, C. difficile toxin",
        "Weaverton CFrEF",
        "Weaverton C2DM",
        "Weaverton\nC: sepsis",
        "Weaverton\nCHEST clear",
        "Weaverton C/W plan",
        "Weaverton C positive",
    ],
)
def test_the_first_letter_of_a_clinical_term_is_not_an_initial(term: str) -> None:
    assert found(term, *person("Weaverton", "Charles")) == ["Weaverton"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Weaverton, C. Seen today", "Weaverton, C"),
        ("Weaverton C.", "Weaverton C"),
        ("Weaverton, C (mother)", "Weaverton, C"),
        ("Weaverton C was seen", "Weaverton C"),
        ("Weaverton, C. reports pain", "Weaverton, C"),
        ("Charles A. Weaverton", "Charles A. Weaverton"),
    ],
)
def test_an_initial_belongs_to_the_name(text: str, name: str) -> None:
    assert [each.rstrip(".") for each in found(text, *person("Weaverton", "Charles A"))] == [name]
