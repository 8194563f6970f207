"""Words that lists have as names only, and misspelt repeats of a name."""

from pathlib import Path

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Source, SourceKind, Span
from deid_agent.model.text import Document
from deid_agent.recognize.misspellings import find_misspelt
from deid_agent.recognize.registry import RECOGNIZERS, load_rules
from deid_agent.rules import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"
LISTED = RECOGNIZERS["listed"].build(load_rules(RULES))
LISTS = Dictionaries.load(RULES)
FOUND = Source(SourceKind.TOKEN_MODEL, "token")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ottilie to fax it", ["Ottilie"]),
        ("fed by Annelise x3", ["Annelise"]),
        ("GRETCHEN up to chair", ["GRETCHEN"]),
        ("Gunnarsdottir 12 staples removed", ["Gunnarsdottir"]),
        ("Room 214 Hollingsworth 2 units", ["Hollingsworth"]),
        ("09:40 Vanterpool DNA", ["Vanterpool"]),
        ("XR Fitzquillan L wrist", ["Fitzquillan"]),
        ("annelise", []),
        ("Bair Hugger on", []),
        ("Silverman 3, Downes 4", []),
        ("West Nile neg; Sara Stedy", ["Sara"]),
        ("Bence Jones protein", []),
        ("Masson trichrome", []),
        ("Caprini 6; Braden 16", []),
        ("Hounsfield 38", []),
        ("Cardioversion L arm", []),
        ("0940 Propofol 50 mg", []),
        ("Rasmussen HR 110 BP 90/50", ["Rasmussen"]),
        ("Ferro DNA clinic", ["Ferro"]),
        ("3. Quennell R knee aspirate", ["Quennell"]),
        ("Achebe 4/7 post op, Obiora 7/10 pain", ["Achebe", "Obiora"]),
        ("OKPARA STABLE OVERNIGHT", ["OKPARA"]),
        ("Zoladex refused; Depo declined", []),
        ("Chlamydia DNA sent", []),
    ],
)
def test_words_that_are_only_names(text: str, names: list[str]) -> None:
    assert [text[s.start : s.end] for s in LISTED.recognize(Document(text))] == names


def misspelt(text: str, name: str) -> list[str]:
    start = text.index(name)
    spans = [Span(start, start + len(name), PhiType.PATIENT, FOUND)]
    return [text[s.start : s.end] for s in find_misspelt(Document(text), spans, LISTS, frozenset())]


@pytest.mark.parametrize(
    ("text", "name", "others"),
    [
        ("Mrs Featherstone fell. Fetherstone unable to stand", "Featherstone", ["Fetherstone"]),
        ("Ms Delacroix stable. DELACRIOX for d/c", "Delacroix", ["DELACRIOX"]),
        ("Mr Papadopoulos here; papadpoulos slept", "Papadopoulos", ["papadpoulos"]),
        ("Mr Oyelaran seen, Oyelaran and Oyela", "Oyelaran", []),
        ("Mr Carter; a starter and a cartel", "Carter", []),
        ("Mr Kumar; the humor", "Kumar", []),
        ("Ms Grady has a gravy stain", "Grady", []),
    ],
)
def test_misspelt_repeats(text: str, name: str, others: list[str]) -> None:
    assert [each for each in misspelt(text, name) if each != name] == others


def test_a_low_span_introduces_no_name() -> None:
    text = "Mrs Featherstone fell. Fetherstone unable"
    spans = [Span(4, 16, PhiType.PATIENT, FOUND)]
    assert list(find_misspelt(Document(text), spans, LISTS, frozenset({FOUND}))) == []
