"""Narratives in languages that the policy does not name are refused, never read silently."""

from dataclasses import replace
from pathlib import Path

import pytest

from deid_agent.model import ConfigurationError, MessageError, Reason
from deid_agent.pipeline.language import OTHER_SCRIPT, Languages, NarrativeLanguages, OtherLanguage
from deid_agent.rules import data_folder

RULES = data_folder("rules")
KNOWN = Languages.load(RULES)
ENGLISH = frozenset({"en"})
SPANISH = (
    "El paciente fue ingresado por dolor en el pecho y refiere que desde hace tres dias no puede dormir; la esposa "
    "dice que no ha tomado la medicina segun lo indicado por su medico."
)
NOTE = (
    "The patient was admitted with chest pain and says that he has not slept for three days; his wife reports that "
    "he did not take his tablets as he should have."
)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (SPANISH, "es"),
        *((SPANISH.replace(" ", gap), "es") for gap in ("\t", "\n", "\xa0", "  ")),
        (f"{NOTE}\n\n{SPANISH}", "es"),
        (
            "Der Patient wurde mit Schmerzen in der Brust aufgenommen und hat seit drei Tagen nicht geschlafen; die "
            "Frau ist bei ihm und wird auch heute mit dem Arzt sprechen, der nach dem Befund sieht.",
            "de",
        ),
        ("Больной поступил с болью в груди и не спал три дня " * 3, OTHER_SCRIPT),
        (NOTE, ""),
        ("BP 128/76 HR 88 RR 18 T 37.2 SpO2 97 RA NAD CTAB RRR abd soft NT ND ext no edema A and O x3 plan home", ""),
        ("Calle de la Garza 12, Hato Rey, P.R. 00918; Oficina de Administración de los Tribunales, Avenida Muñoz", ""),
        ("Paciente con dolor", ""),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert KNOWN.find_other(text, ENGLISH) == language


def test_a_named_language_is_read() -> None:
    assert KNOWN.find_other(SPANISH, frozenset({"en", "es"})) == ""


def test_the_refusal_names_the_place_and_no_text() -> None:
    with pytest.raises(MessageError) as caught:
        NarrativeLanguages.load(RULES, ["en"], OtherLanguage.REFUSE).check("OBX(2)-5", SPANISH)
    assert caught.value.reason is Reason.LANGUAGE
    assert str(caught.value) == "LANGUAGE: OBX(2)-5: a narrative in es, which the policy does not name"


def test_a_policy_may_read_other_languages() -> None:
    languages = NarrativeLanguages.load(RULES, ["en"], OtherLanguage.REFUSE)
    replace(languages, other=OtherLanguage.READ).check("text", SPANISH)
    NarrativeLanguages.load(RULES, [], OtherLanguage.REFUSE).check("text", SPANISH)


def test_an_unknown_code_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown xx: one of da, de, en, es"):
        NarrativeLanguages.load(RULES, ["xx"], OtherLanguage.REFUSE)
