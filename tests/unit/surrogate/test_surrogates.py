"""The maker of surrogates: its start, its secret, its scopes, and the time it takes."""

import pickle
import shutil
from pathlib import Path

import pytest
from support.growth import growth
from support.surrogates import SECRET, replace, surrogates

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules import data_folder
from deid_agent.surrogate import DateShifts, NamedPerson, Scope, Surrogates
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.people import NameWords, People

MADE = surrogates()
LISTS = load_lists(data_folder("rules"))


def test_an_empty_secret_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="16 random bytes"):
        Surrogates(b"")


def test_a_shift_range_without_a_shift_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="at least 14 days"):
        Surrogates(SECRET, dates=DateShifts(max_shift_days=3))


def test_a_rules_folder_without_names_stops_the_start(tmp_path: Path) -> None:
    shutil.copytree(data_folder("rules") / "surrogate", tmp_path / "surrogate")
    shutil.rmtree(tmp_path / "surrogate" / "names")
    with pytest.raises(ConfigurationError, match="no lists of names for surrogates"):
        Surrogates(SECRET, rules=tmp_path)


def test_no_repr_shows_scope_key_or_secret() -> None:
    scope = Scope("the document", "the patient", people=(NamedPerson("Ada", "Okafor"),))
    shown = (
        repr(scope)
        + repr(MADE)
        + repr(KeyedHash(SECRET))
        + repr(People((NamedPerson("Ada", "O"),), LISTS, "s").find(NameWords(family=("o",)), staff=False))
        + repr(NamedPerson("Ada", "O"))
    )
    assert not any(word in shown for word in ("the document", "the patient", "Ada", "secret", str(SECRET)))


def test_the_maker_is_not_pickled_with_its_secret() -> None:
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(MADE)


def test_names_of_patients_agree_within_the_patient_and_of_staff_in_the_feed() -> None:
    scopes = [Scope(f"d{n}", f"p{n}") for n in range(20)]
    assert len({replace(MADE, PhiType.PATIENT, "Ada Okafor", scope=scope) for scope in scopes}) > 10
    assert len({replace(MADE, PhiType.DOCTOR, "Ada Okafor", scope=scope) for scope in scopes}) == 1
    one, again = Scope("d1", "p1"), Scope("d9", "p1")
    assert replace(MADE, PhiType.PATIENT, "Okafor", scope=one) == replace(MADE, PhiType.PATIENT, "Okafor", scope=again)


def test_the_place_scope_sets_the_scope_of_consistent_places() -> None:
    scopes = [Scope(f"d{n}", f"p{n}") for n in range(20)]
    by_patient = Surrogates(SECRET, place_scope="patient")
    assert len({replace(MADE, PhiType.CITY, "Harlow", scope=scope) for scope in scopes}) == 1
    assert len({replace(by_patient, PhiType.CITY, "Harlow", scope=scope) for scope in scopes}) > 10


def test_the_date_settings_decide_which_dates_share_a_shift() -> None:
    scopes = [Scope(f"d{n}", "p") for n in range(60)]

    def shifts(dates: DateShifts) -> set[int]:
        return {Surrogates(SECRET, dates=dates).shift_days(scope) for scope in scopes}

    assert len(shifts(DateShifts(by_patient=False))) > 10
    assert len(shifts(DateShifts(offset_days=0))) == 1
    near = shifts(DateShifts(offset_days=3))
    assert (len(near), max(near) - min(near)) == (4, 3)
    alone, joined = Surrogates(SECRET, dates=DateShifts(by_patient=False)), Surrogates(SECRET)
    assert joined.shift_days(Scope("d1")) == alone.shift_days(Scope("d1")), "a document without a patient"
    names = [f"n{n}" for n in range(20)]
    assert any(joined.shift_days(Scope(name)) != joined.shift_days(Scope("", name)) for name in names)


def test_a_patient_never_has_the_scope_of_a_document() -> None:
    scopes = (Scope("x"), Scope("y", "x"))
    assert len({replace(MADE, PhiType.PATIENT, "Ada Okafor", scope=scope) for scope in scopes}) == 2


def test_broken_lists_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lists of names for surrogates"):
        Surrogates(SECRET, rules=tmp_path)
    names = tmp_path / "surrogate" / "names"
    names.mkdir(parents=True)
    (names / "en.toml").write_text("script = ", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"en\.toml"):
        load_lists.__wrapped__(tmp_path)


@pytest.mark.parametrize("type_", list(PhiType))
@pytest.mark.parametrize("unit", ["a", "1", "-", "ab:", "x ", "1/", "('", "a@", "\n", "1:", "Mar "])
def test_long_values_take_linear_time(type_: PhiType, unit: str) -> None:
    """A hostile message must not hold a worker."""
    small, large = (unit * (size // len(unit)) for size in (5_000, 50_000))
    assert growth(lambda value: replace(MADE, type_, value), small, large) < 30


def test_a_repeated_document_finds_its_values_in_the_cache() -> None:
    made = surrogates()
    for name in ("a", "b", "a", "b"):
        made.replace(PhiType.CITY, "Harlow", kind=ValueKind.VALUE, scope=Scope(name))
    assert made._replace.cache_info().misses == 2
