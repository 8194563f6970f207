"""One person, one surrogate: the person of a written name."""

import pytest
from support.surrogates import replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules import data_folder
from deid_agent.surrogate import NamedPerson, Scope
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.shape import fold

MADE = surrogates()
LISTS = load_lists(data_folder("rules"))
PATIENT = NamedPerson("Robert Elias", "Papadopoulos", "male")
SCOPE = Scope(
    "d", "p", people=(PATIENT, NamedPerson("Jane", "Adler", staff=True), NamedPerson("Omar", "Haddad", staff=True))
)


def new(value: str, type_: PhiType = PhiType.PATIENT, scope: Scope = SCOPE) -> str:
    return replace(MADE, type_, value, scope=scope)


FIRST, MIDDLE, LAST = new("Robert Elias Papadopoulos").split()
JANE, ADLER = new("Jane Adler", PhiType.DOCTOR).split()


@pytest.mark.parametrize("type_", [PhiType.PATIENT, PhiType.DOCTOR])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Robert Papadopoulos", f"{FIRST} {LAST}"),
        ("Papadopoulos, Robert", f"{LAST}, {FIRST}"),
        ("PAPADOPOULOS, ROBERT E.", f"{LAST}, {FIRST} {MIDDLE[0]}.".upper()),
        ("Bob Papadopoulos", f"{FIRST} {LAST}"),
        ("Rob", FIRST),
        ("Robert Papadopuolos", f"{FIRST} {LAST}"),
        ("Robrt Papadopoulos", f"{FIRST} {LAST}"),
        ("Papadopoulos's", f"{LAST}'s"),
        ("Robert Papadopoulos Jr.", f"{FIRST} {LAST} Jr."),
        ("Mr. Papadopoulos", f"Mr. {LAST}"),
        ("R. Papadopoulos", f"{FIRST[0]}. {LAST}"),
        ("R.E.P.", f"{FIRST[0]}.{MIDDLE[0]}.{LAST[0]}."),
        ("PAPADOPOULOSROBERT", f"{LAST}{FIRST}".upper()),
        ("PapadopoulosRobert", f"{LAST}{FIRST}"),
        ("robertpapadopoulos", f"{FIRST}{LAST}".lower()),
    ],
)
def test_all_forms_of_a_name_have_one_surrogate_under_either_type(value: str, expected: str, type_: PhiType) -> None:
    assert new(value, type_) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Dr. Adler, Jane", f"Dr. {ADLER}, {JANE}"),
        ("Jane Adler MD", f"{JANE} {ADLER} MD"),
        ("Jane M. Adler", None),
        ("Dr. Adler", f"Dr. {ADLER}"),
        ("J. Adler", f"{JANE[0]}. {ADLER}"),
        ("ADLER", ADLER.upper()),
        ("Janie Adler", f"{JANE} {ADLER}"),
    ],
)
def test_a_clinician_has_one_surrogate_in_a_document(value: str, expected: str | None) -> None:
    found = new(value, PhiType.DOCTOR)
    assert found == expected or (expected is None and found.startswith(JANE) and found.endswith(ADLER))


@pytest.mark.parametrize("value", ["Dr. Adler, Jane", "Jane Adler MD", "ADLER, JANE M", "Jane Marie Adler"])
def test_a_clinician_has_one_surrogate_in_the_feed(value: str) -> None:
    alone = new(value, PhiType.DOCTOR, Scope("elsewhere", "q")).lower()
    assert JANE.lower() in alone and ADLER.lower() in alone


def test_two_patients_and_two_doctors_of_one_surname_are_independent() -> None:
    patients = {new("Smith", scope=Scope(f"d{n}", f"p{n}")) for n in range(40)}
    assert len(patients) > 25
    givens = ["Ann", "Bea", "Cid", "Dan", "Eva", "Fay", "Gus", "Hal", "Ida", "Jon", "Kim"]
    doctors = {new(f"{given} Smith", PhiType.DOCTOR).split()[1] for given in givens}
    assert len(doctors) > 7
    within = Scope("d", "p", people=(NamedPerson("Ann", "Smith", staff=True), NamedPerson("Dan", "Smith")))
    assert new("Dr. Smith", PhiType.DOCTOR, within).split()[1] == new("Ann Smith", PhiType.DOCTOR, within).split()[1]
    assert new("Mr. Smith", PhiType.PATIENT, within).split()[1] == new("Dan Smith", PhiType.PATIENT, within).split()[1]


def test_relatives_share_the_surname_and_have_their_own_sex() -> None:
    scope = Scope("d", "p", people=(NamedPerson("Ashley", "Berg", "male"), NamedPerson("Jordan", "Berg", "female")))
    man, family = new("Ashley Berg", scope=scope).split()
    woman, same = new("Jordan Berg", scope=scope).split()
    assert family == same
    assert LISTS.has("male", man.lower()) and LISTS.has("female", woman.lower())


@pytest.mark.parametrize("sex", ["female", "male"])
@pytest.mark.parametrize("given", ["Ashley", "Robert", "Maria", "Qwyla", "美玲", "Иван"])
def test_the_surrogate_has_the_sex_of_the_person(sex: str, given: str) -> None:
    for n in range(20):
        scope = Scope("d", f"p{n}", people=(NamedPerson(given, "Berg", sex),))
        assert LISTS.has(sex, fold(replace(MADE, PhiType.PATIENT, given, ValueKind.GIVEN, scope)))


def test_a_name_of_two_people_belongs_to_the_person_of_its_type() -> None:
    scope = Scope("d", "p", people=(NamedPerson("Tom", "Adler"), NamedPerson("Jane", "Adler", staff=True)))
    assert new("Dr. Adler", PhiType.DOCTOR, scope).endswith(ADLER)
    assert new("Mr. Adler", PhiType.PATIENT, scope).split()[1] == new("Tom Adler", scope=scope).split()[1]


def test_the_caller_can_name_the_person_of_a_field() -> None:
    one, two = NamedPerson("Ann", "Smith", staff=True), NamedPerson("Dan", "Smith", staff=True)
    scope = Scope("d", "p", people=(one, two))
    for person in (one, two):
        family = MADE.replace(PhiType.DOCTOR, "Smith", kind=ValueKind.FAMILY, scope=scope, person=person)
        assert new(f"{person.given} Smith", PhiType.DOCTOR, scope).split()[1] == family
