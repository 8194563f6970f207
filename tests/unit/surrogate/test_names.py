"""Surrogates of names."""

import re

import pytest
from support.surrogates import ROOT, SCOPE, replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.model.spans import Span, parse_source
from deid_agent.pipeline.policy import Method, load_policy
from deid_agent.pipeline.replacement import Replacer
from deid_agent.recognize.registry import load_rules
from deid_agent.rules import data_folder
from deid_agent.surrogate import NamedPerson, Scope
from deid_agent.surrogate.lists import ANY, PARTS, load_lists
from deid_agent.surrogate.names import _ENOUGH, _LETTERS
from deid_agent.surrogate.shape import fold
from deid_agent.surrogate.spelling import one_edit_apart

RULE = parse_source("a")
MADE = surrogates()
LISTS = load_lists(data_folder("rules"))


def test_patient_and_doctor_of_one_name_have_different_surrogates() -> None:
    names = ["Okafor", "Smith", "Keller", "Haverty", "Castellano", "Lindqvist", "Ruiz", "Ito", "Novak", "Berg"] * 3
    pairs = [replace(MADE, t, name, scope=Scope("d")) for name in names for t in (PhiType.PATIENT, PhiType.DOCTOR)]
    assert sum(a != b for a, b in zip(pairs[::2], pairs[1::2], strict=True)) > 20


@pytest.mark.parametrize(
    ("forms", "people"),
    [
        ("O'Brien|OBRIEN|O Brien|o’brien|Obrien|O'BRIEN", ()),
        ("D'Angelo|DANGELO|d angelo", ()),
        ("O'Zyblorq|OZYBLORQ|O Zyblorq", (NamedPerson("Ada", "O'Zyblorq"),)),
    ],
)
@pytest.mark.parametrize("like", ["{}", "Ada {}", "{}, Ada", "Mrs. {}", "{}'s"])
def test_an_elided_letter_is_one_name_in_all_its_forms(forms: str, people: tuple[NamedPerson, ...], like: str) -> None:
    scope = Scope("d", people=people)
    for kind in (ValueKind.NAME, ValueKind.FAMILY) if like == "{}" else (ValueKind.NAME,):
        new = [replace(MADE, PhiType.PATIENT, like.format(f), kind=kind, scope=scope) for f in forms.split("|")]
        assert len({re.sub(r"[ '’]", "", name).lower() for name in new}) == 1
        assert [re.sub(r"[^ '’]+", "", name) for name in new] == [
            re.sub(r"[^ '’]+", "", like.format(f)) for f in forms.split("|")
        ]


def test_an_initial_with_a_full_stop_is_not_an_elided_letter() -> None:
    assert not replace(MADE, PhiType.PATIENT, "Ada O. Brien", kind=ValueKind.NAME).split()[1].startswith("O")


def test_gender_and_origin_are_kept() -> None:
    scopes = [Scope("d", f"p{n}") for n in range(40)]
    women = {replace(MADE, PhiType.PATIENT, "Elizabeth", ValueKind.GIVEN, scope) for scope in scopes}
    assert all(LISTS.has("female", name.lower()) for name in women)
    names = {replace(MADE, PhiType.PATIENT, "Bednarowicz", ValueKind.FAMILY, scope) for scope in scopes}
    slavic = {fold(word) for word in LISTS.pools["slavic", "family"].words}
    assert sum(fold(name) in slavic for name in names) > len(names) // 2


def test_a_frequent_american_name_does_not_reveal_its_origin() -> None:
    """Four of ten Vietnamese surrogates would come from Nguyen."""
    assert {LISTS.origin_of["family", name] for name in ("nguyen", "garcia", "hernandez", "smith")} == {"en"}


def test_every_initial_letter_has_enough_names() -> None:
    for letter in _LETTERS:
        for part in PARTS:
            assert len(LISTS.pools["en", part].by_letter[letter]) >= _ENOUGH
            assert all(
                word[0].upper() == letter for word in LISTS.pools["en", part].by_letter[letter] if word.isascii()
            )
    assert LISTS.pools[ANY, "family"].words


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        ("okafor", "okafro", True),
        ("okafor", "okaforr", True),
        ("okafor", "kafor", True),
        ("okafor", "okafur", True),
        ("okafor", "okafor", False),
        ("okafor", "okfaro", False),
        ("okafor", "oka", False),
        ("", "a", True),
    ],
)
def test_one_edit(a: str, b: str, near: bool) -> None:
    assert one_edit_apart(a, b) == near == one_edit_apart(b, a)


def test_a_known_name_is_found_at_any_position() -> None:
    """The tagger joins names over a line end: the second line's family name follows the first line's comma."""
    scope = Scope("d", people=(NamedPerson("Ada", "Okafor"),))
    family, given = replace(MADE, PhiType.PATIENT, "Okafor, Ada", scope=scope).split(", ")
    joined = replace(MADE, PhiType.PATIENT, "Okafor, Ada\nOKAFOR", scope=scope)
    assert joined == f"{family}, {given}\n{family.upper()}"


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("Do", "Minh"),
        ("Le", "Minh Duc"),
        ("Van", "Sokha"),
        ("Du", "Wei"),
        ("Ni", "Hao Ran"),
        ("Abu", "Kofi"),
        ("Pa", "Chou"),
        ("Ma", "Yo"),
        ("Miss", "Ann"),
        ("Md", "Rahman"),
        ("Nguyen", "Van"),
        ("Nguyen", "Van Minh"),
        ("Will", "Von Winfred"),
        ("Moen", "Larry Van"),
    ],
)
def test_a_name_that_is_a_particle_title_or_credential_too_is_replaced(family: str, given: str) -> None:
    scope = Scope("d", people=(NamedPerson(given, family),))
    new = replace(MADE, PhiType.PATIENT, family, ValueKind.FAMILY, scope=scope)
    first = replace(MADE, PhiType.PATIENT, given, ValueKind.GIVEN, scope=scope)
    for written in ("{0} {1}", "{1} {0}", "{0}, {1}"):
        was, expected = written.format(family, given), written.format(new, first)
        assert replace(MADE, PhiType.PATIENT, was, scope=scope) == expected
        assert replace(MADE, PhiType.PATIENT, was.upper(), scope=scope) == expected.upper()


def test_a_given_name_that_is_a_particle_is_replaced_at_the_beginning_of_a_name() -> None:
    for name in ("Della Cronin", "Del Nicolas"):
        assert not {"Del", "Della"} & set(replace(MADE, PhiType.PATIENT, name, scope=Scope("d")).split())
    assert replace(MADE, PhiType.PATIENT, "Maria del Carmen", ValueKind.GIVEN, scope=Scope("d")).split()[1] == "del"


@pytest.mark.parametrize(
    ("name", "stays"),
    [("van Berg", "van"), ("Baby Okafor", "Baby"), ("Okafor, MD", "MD"), ("Dr Okafor", "Dr"), ("Okafor MA", "MA")],
)
def test_a_word_that_is_not_a_name_is_kept_in_a_text_without_people(name: str, stays: str) -> None:
    made = Replacer(load_policy("pseudonymised", ROOT / "rules"), MADE)
    (new,) = made.replace_findings(name, [Span(0, len(name), PhiType.DOCTOR, RULE)], [Method.SURROGATE], Scope("d"))
    assert stays in re.findall(r"\w+", new)
    named_scope = Scope("d", people=(NamedPerson("Baby", "Okafor"), NamedPerson("Jr", "Okafor")))
    assert replace(MADE, PhiType.PATIENT, "Baby Okafor Jr", scope=named_scope).startswith("Baby ")


def test_an_irish_particle_is_kept_in_field_and_text() -> None:
    family = replace(MADE, PhiType.PATIENT, "Ó Súilleabháin", ValueKind.FAMILY)
    assert family.startswith("Ó ")
    assert replace(MADE, PhiType.PATIENT, "Súilleabháin", ValueKind.FAMILY) == family[2:]
    assert replace(MADE, PhiType.PATIENT, "Ó Súilleabháin, Tadhg").startswith(f"{family}, ")


def test_no_surrogate_name_is_an_ordinary_word() -> None:
    """A tagger, and a reader, would take "Dr. More" or "Foley" for something else."""
    lexicons = load_rules(ROOT / "rules").lexicons
    words = lexicons["common"] | lexicons["not-name"] | lexicons["name-title"] | LISTS.sets["ordinary"]
    latin = [pool for pool in LISTS.pools.values() if pool.by_letter]
    assert latin
    assert not {fold(name) for pool in latin for name in pool.words} & {fold(word) for word in words}
    assert not [name for pool in latin for name in pool.words if name.isupper()]
    assert LISTS.has("family", "foley"), "it is still read as a name"


def test_initials_of_a_typist_remain_initials() -> None:
    assert re.fullmatch("[a-z]{3}", replace(MADE, PhiType.DOCTOR, "plk"))
    assert len(replace(MADE, PhiType.DOCTOR, "obi")) > 2


def test_a_known_particle_in_capitals_is_not_a_given_name() -> None:
    scope = Scope("d", people=(NamedPerson("Pieter", "van der Berg"),))
    family = replace(MADE, PhiType.PATIENT, "van der Berg", ValueKind.FAMILY, scope=scope)
    assert replace(MADE, PhiType.PATIENT, "VAN DER BERG", scope=scope) == family.upper()
    assert family.startswith("van der ")


@pytest.mark.parametrize("unit", ["Ada-", "Ada ", "A-", "Ada, "])
def test_a_name_of_thousands_of_words_is_replaced_too(unit: str) -> None:
    value = unit * 5_000 + "Vane"
    new = MADE.replace(PhiType.PATIENT, value, kind=ValueKind.NAME, scope=SCOPE)
    assert "Ada" not in new
    assert "Vane" not in new


@pytest.mark.parametrize(
    "value", ["see ID: 85891154 for the rest", "Okafor 85891154", "call (904) 904-2110", "０００85891"]
)
def test_a_number_in_a_name_is_replaced_too(value: str) -> None:
    new = MADE.replace(PhiType.PATIENT, value, kind=ValueKind.NAME, scope=SCOPE)
    assert not set(re.findall(r"\d{2,}", new)) & set(re.findall(r"\d{2,}", value)) - {"000"}
