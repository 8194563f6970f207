"""Surrogates of dates with words, and of several dates in one value."""

import re

import pytest
from support.surrogates import SCOPE, replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import Scope

MADE = surrogates()


def test_no_letter_of_clinic_days_reveals_the_shift() -> None:
    """A single T is a Tuesday, not the T of a time stamp. If it stayed, other letters would reveal the shift."""
    for number in range(40):
        scope = Scope(f"D{number}")
        moved = [replace(MADE, PhiType.DATE, day, scope=scope) for day in ("M", "T", "W", "Th", "F", "S", "Su")]
        assert all(new != old for new, old in zip(moved, ("M", "T", "W", "Th", "F", "S", "Su"), strict=True))
        assert moved[1].upper() == replace(MADE, PhiType.DATE, "t", scope=scope).upper()
    assert replace(MADE, PhiType.DATE, "00000000T000000") == "00000000T000000"


def test_a_season_alone_becomes_a_season() -> None:
    made = {replace(MADE, PhiType.DATE, "winter", scope=Scope(f"D{number}")) for number in range(60)}
    assert made == {"autumn", "spring", "summer", "winter"}
    assert "fall" in {replace(MADE, PhiType.DATE, "winter 2006", scope=Scope(f"D{n}")).split()[0] for n in range(60)}


def test_lower_case_clinic_days_are_shifted() -> None:
    assert replace(MADE, PhiType.DATE, "mwf") == replace(MADE, PhiType.DATE, "MWF").lower() != "mwf"


@pytest.mark.parametrize("value", ["3/4/19 3/5/19", "3/4/2019, 3/5/2019", "2019-03-04 2019-03-05", "3/4/19\n3/5/19"])
def test_a_second_date_in_one_value_is_replaced(value: str) -> None:
    new = MADE.replace(PhiType.DATE, value, kind=ValueKind.VALUE, scope=SCOPE)
    assert not [day for day in re.split(r",?\s", value) if day in new]


@pytest.mark.parametrize(("value", "mark"), [("M/W/F", "/"), ("M W F", " "), ("Tu/Th", "/")])
def test_separate_and_joined_clinic_days_shift_alike(value: str, mark: str) -> None:
    new = replace(MADE, PhiType.DATE, value)
    assert new.replace(mark, "") == replace(MADE, PhiType.DATE, value.replace(mark, "")) != value.replace(mark, "")
    assert new.count(mark) == value.count(mark)


@pytest.mark.parametrize("value", ["M-F", "M/W/X", "W/wound"])
def test_an_invalid_list_of_clinic_days_is_masked(value: str) -> None:
    assert replace(MADE, PhiType.DATE, value) == "[**DATE**]"
