"""Dates of birth: found by label or by value, and shifted by a separate offset, equally in every form."""

from dataclasses import replace as change
from datetime import date, timedelta

import pytest
from support.surrogates import SECRET

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import DateKind, ValueKind
from deid_agent.surrogate import DateShifts, Period, Scope, Surrogates, coarsen_date
from deid_agent.surrogate.calendars import ADULT_DAYS, birth_window

MADE = Surrogates(SECRET)
TODAY = date(2024, 3, 11)
BORN = date(1957, 4, 22)
ADULT = Scope("D1", "P1", reference=TODAY, today=TODAY, births=frozenset({BORN}))


def new(value: str, scope: Scope = ADULT, kind: DateKind | None = None) -> str:
    return MADE.replace(PhiType.DATE, value, kind=ValueKind.VALUE, scope=scope, date_kind=kind)


def moved(born: date, scope: Scope) -> date:
    return date.fromisoformat(new(born.isoformat(), scope, DateKind.BIRTH))


@pytest.mark.parametrize("patient", [f"P{n}" for n in range(30)])
def test_all_forms_of_a_birth_agree(patient: str) -> None:
    scope = change(ADULT, patient=patient)
    to = moved(BORN, scope)
    assert 2 <= abs((to - BORN).days) <= 182
    forms = {
        "19570422": f"{to:%Y%m%d}",
        "195704221530": f"{to:%Y%m%d}1530",
        "4/22/1957": f"{to.month}/{to.day}/{to.year}",
        "22.04.57": f"{to:%d.%m.%y}",
        "22/04/1957": f"{to:%d/%m/%Y}",
        "April 22, 1957": f"{to:%B} {to.day}, {to.year}",
        "April 1957": f"{to:%B %Y}",
        "195704": f"{to:%Y%m}",
        "1957-04": f"{to:%Y-%m}",
        "1957": f"{to.year}",
        "'57": f"'{to:%y}",
        "22APR1957": f"{to:%d%b%Y}".upper(),
    }
    assert {form: new(form, scope) for form in forms if form != "22APR1957"} == {
        form: like for form, like in forms.items() if form != "22APR1957"
    }
    assert new("April 22", scope, DateKind.BIRTH) == f"{to:%B} {to.day}"
    assert new("22 April", scope, DateKind.BIRTH) == f"{to.day} {to:%B}"


def test_a_birth_moves_alike_in_all_documents_and_apart_from_the_events() -> None:
    scopes = [change(ADULT, document=f"D{n}", today=TODAY + timedelta(40 * n)) for n in range(60)]
    assert len({moved(BORN, scope) for scope in scopes}) == 1
    assert len({new("3/4/2024", scope) for scope in scopes}) == 4
    others = {(moved(BORN, change(ADULT, patient=f"P{n}")) - BORN).days for n in range(4_000)}
    assert others == {days for days in range(-182, 183) if abs(days) > 1}


def test_a_relative_has_an_offset_of_its_own() -> None:
    mother = date(1931, 5, 6)
    apart = {
        (moved(BORN, scope) - BORN) - (moved(mother, scope) - mother)
        for scope in (change(ADULT, patient=f"P{n}") for n in range(60))
    }
    assert len(apart) > 40
    assert moved(mother, ADULT) == moved(mother, change(ADULT, document="D9", births=frozenset()))


def test_without_a_patient_the_birth_is_of_the_document() -> None:
    assert len({moved(BORN, change(ADULT, document=f"D{n}", patient=None)) for n in range(60)}) > 40


@pytest.mark.parametrize("age", [0, 1, 10, 27])
def test_a_newborn_keeps_its_days_of_life(age: int) -> None:
    for n in range(60):
        scope = Scope(f"D{n}", "P1", reference=TODAY, today=TODAY, births=frozenset({TODAY - timedelta(age)}))
        born = moved(TODAY - timedelta(age), scope)
        seen = date.fromisoformat(new(TODAY.isoformat(), scope, DateKind.EVENT))
        assert (seen - born).days == age


@pytest.mark.parametrize("age", [28, 60, 364, 365, 1_095, 1_096, 4_000, ADULT_DAYS - 1, ADULT_DAYS, 20_000])
def test_a_birth_is_never_after_the_message_and_a_child_keeps_its_age(age: int) -> None:
    born = TODAY - timedelta(age)
    for n in range(300):
        scope = Scope(f"D{n}", f"P{n}", reference=TODAY, today=TODAY, births=frozenset({born}))
        seen = date.fromisoformat(new(TODAY.isoformat(), scope, DateKind.EVENT))
        away = (seen - moved(born, scope)).days - age
        assert moved(born, scope) <= seen
        assert moved(born, scope) != born
        if age < ADULT_DAYS:
            assert abs(away) <= birth_window(age) + 3
            years = round((born - moved(born, scope)).days / 365.2425)
            assert abs((born - moved(born, scope)).days - years * 365.2425) >= 2, "month and day of birth are kept"


def test_the_longest_shift_leaves_an_adult_born_before_the_message() -> None:
    made = Surrogates(SECRET, dates=DateShifts(max_shift_days=3650))
    born = TODAY - timedelta(ADULT_DAYS)
    for n in range(300):
        scope = Scope(f"D{n}", f"P{n}", today=TODAY)
        to = made.replace(PhiType.DATE, born.isoformat(), kind=ValueKind.VALUE, scope=scope, date_kind=DateKind.BIRTH)
        assert date.fromisoformat(to) < TODAY + timedelta(made.shift_days(scope))


@pytest.mark.parametrize(
    "value",
    ["4/22", "22 April", "Monday", "2024", "March 2024", "3/4/2024", "4/22/2023", "1958", "April 1958", "the 22nd"],
)
def test_other_dates_are_events(value: str) -> None:
    assert new(value) == new(value, change(ADULT, births=frozenset()))


def test_a_year_without_a_label_is_not_the_birth_of_a_child() -> None:
    child = change(ADULT, births=frozenset({date(2022, 2, 3)}))
    assert new("2022", child) == new("2022", change(child, births=frozenset()))
    assert new("February 2022", child, DateKind.BIRTH) == f"{moved(date(2022, 2, 3), child):%B %Y}"


def test_an_event_field_is_not_searched_for_births() -> None:
    assert new("19570422", ADULT, DateKind.EVENT) == new("19570422", change(ADULT, births=frozenset()))


def test_a_labelled_two_digit_year_is_read_by_the_known_birth() -> None:
    old = change(ADULT, births=frozenset({date(1912, 9, 8)}))
    assert new("9-8-12", old, DateKind.BIRTH)[-2:] == f"{moved(date(1912, 9, 8), old):%y}"
    assert new("9/8/12", old) == new("9/8/12", change(old, births=frozenset())), "without a label it is of 2012"


def test_a_birth_is_never_in_the_next_year() -> None:
    """A note of 2024: '25 is 1925, and '23 is 2023."""
    unknown = change(ADULT, births=frozenset())
    assert new("4/22/25", unknown, DateKind.BIRTH)[-2:] == f"{moved(date(1925, 4, 22), unknown):%y}"
    born = moved(date(2023, 4, 22), unknown)
    assert new("4/22/23", unknown, DateKind.BIRTH) == f"{born.month}/{born.day}/{born:%y}"


def test_placeholders_are_kept() -> None:
    assert new("19000101", ADULT, DateKind.BIRTH) == "19000101"
    assert new("00000000", ADULT, DateKind.BIRTH) == "00000000"


LABELS = (
    "DOB: {}", "DOB {}", "D.O.B. {}", "dob={}", "Date of Birth: {}", "Date of Birth (MM/DD/YYYY): {}",
    "birthdate {}", "DATE OF BIRTH\n{}", "| DOB | {} |", "Her birthday is {}", "year of birth: {}", "born {}",
    "She was born on {}", "born in Lagos, on {}", "his mother, born in {}",
    "daughter born at Roper Hospital on {}", "{} (DOB)", "{} [D.O.B.]", "Né le {}", "Née le {}", "né(e) le {}",
    "Date de naissance : {}", "geb. {}", "geb. am {}", "geboren am {}", "Geburtsdatum: {}",
    "Fecha de nacimiento: {}", "F. nac.: {}", "nacida el {}", "Data di nascita: {}", "nato a Roma il {}",
    "Data de nascimento: {}", "Geboortedatum: {}", "Fødselsdato: {}", "född {}", "Syntymäaika {}",
    "Data urodzenia: {}", "Datum narození: {}", "születési idő: {}", "Doğum tarihi: {}", "Дата рождения: {}",
    "родилась {}", "{} г.р.", "Ημερομηνία γέννησης: {}", "出生日期：{}", "生年月日 {}", "{}生まれ",
    "생년월일: {}", "تاريخ الميلاد: {}", "תאריך לידה: {}", "Ngày sinh: {}", "birth of her son on {}",
    "DOB of the mother: {}",
)  # fmt: skip


@pytest.mark.parametrize("text", LABELS)
def test_a_label_of_birth_is_read(text: str) -> None:
    start = text.index("{}")
    assert MADE.is_birth(text.format("4/22/1957"), start, start + 9)


@pytest.mark.parametrize(
    "text",
    [
        "Seen {}",
        "DOB: 4/22/1957, seen {}",
        "DOB 4/22/1957 {}",
        "Born at Roper Hospital and admitted on {}",
        "Born in 1957. Admitted {}",
        "She was born in Lagos; moved here {}",
        "stubborn pain since {}",
        "newborn screen {}",
        "airborne since {}",
        "{} DOB: 4/22/1957",
        "rebirth {}",
        "Dobutamine {}",
        "{} birthday party",
    ],
)
def test_other_words_are_not_a_label_of_birth(text: str) -> None:
    start = text.index("{}")
    assert not MADE.is_birth(text.format("3/4/2024"), start, start + 8)


def test_labels_take_linear_time() -> None:
    for text in ("born " * 20_000, "dob (" * 20_000, "né(e) le " * 10_000, " " * 100_000, "DOB" + ":" * 50_000):
        assert isinstance(MADE.is_birth(text, len(text), len(text)), bool)


@pytest.mark.parametrize(
    ("value", "day", "week", "year"),
    [
        ("20240313", "20240313", "20240311", "20240101"),
        ("20240313134009.12+0100", "20240313000000.00+0000", "20240311000000.00+0000", "20240101000000.00+0000"),
        ("202403130030+0100", "202403120000+0000", "202403110000+0000", "202401010000+0000"),
        ("20231231233000-0500", "20240101000000+0000", "20240101000000+0000", "20240101000000+0000"),
        ("2024031313", "2024031300", "2024031100", "2024010100"),
        ("202403", "202403", "202403", "202401"),
        ("2024", "2024", "2024", "2024"),
        ("2024-03-13", "2024-03-13", "2024-03-11", "2024-01-01"),
        ("2024-03", "2024-03", "2024-03", "2024-01"),
        ("2024-03-13T13:40:09Z", "2024-03-13T00:00:00Z", "2024-03-11T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-03-13T00:40+01:00", "2024-03-12T00:00+00:00", "2024-03-11T00:00+00:00", "2024-01-01T00:00+00:00"),
        ("2024-03-13T00:40:09.55Z", "2024-03-13T00:00:00.00Z", "2024-03-11T00:00:00.00Z", "2024-01-01T00:00:00.00Z"),
    ],
)  # fmt: skip
def test_a_coarse_time_keeps_its_form(value: str, day: str, week: str, year: str) -> None:
    assert [coarsen_date(value, period) for period in Period] == [day, week, year]


@pytest.mark.parametrize("value", ["", "soon", "20241313", "2024-02-30", "13:40", "20240313T", "202403131340099999x"])
def test_an_invalid_time_is_not_coarsened(value: str) -> None:
    assert coarsen_date(value, Period.DAY) is None
