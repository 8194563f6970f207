"""Every original of the case tables has the surrogate that its group promises."""

import re
import tomllib
from datetime import date

import pytest
from support.surrogates import CASES, SCOPE, cases, form_of, replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules import data_folder
from deid_agent.surrogate.calendars import Shift, load_calendar
from deid_agent.surrogate.dates import shift_date
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.shape import is_same_text

MADE = surrogates()
DATES = tomllib.loads((CASES / "surrogate-dates.toml").read_text(encoding="utf-8"))
CALENDAR = load_calendar(load_lists(data_folder("rules")))


def test_there_are_enough_cases() -> None:
    assert len(cases()) + sum(len(group["cases"]) for group in DATES["group"]) >= 400
    assert {case[0] for case in cases()} | {PhiType.DATE} == set(PhiType)


@pytest.mark.parametrize("number", range(len(cases())))
def test_surrogate_has_the_form_of_its_original(number: int) -> None:
    type_, kind, original, like, stays = cases()[number]
    new = replace(MADE, type_, original, kind)
    if like:
        assert re.fullmatch(like, new, re.DOTALL), f"{type_}: {original!r} became {new!r}, not {like}"
    else:
        assert form_of(new) == form_of(original), f"{type_}: {original!r} became {new!r}"
    assert is_same_text(new, original) == stays, f"{type_}: {original!r} became {new!r}"


@pytest.mark.parametrize("number", range(len(cases())))
def test_surrogate_of_a_surrogate_has_the_same_form(number: int) -> None:
    type_, kind, original, like, stays = cases()[number]
    again = replace(MADE, type_, replace(MADE, type_, original, kind), kind)
    assert not stays or is_same_text(again, replace(MADE, type_, original, kind))
    if not like:
        assert form_of(again) == form_of(original)
    elif (
        type_ not in (PhiType.AGE, PhiType.IPADDRESS, PhiType.EMAIL) and len(original) > 3
    ):  # RBK may become GUS, a name
        assert re.fullmatch(like, again, re.DOTALL), f"{type_}: {original!r} became {again!r}"


@pytest.mark.parametrize(
    ("written", "expected"), [pair for group in DATES["group"] for pair in group["cases"]], ids=repr
)
def test_date_keeps_its_format(written: str, expected: str) -> None:
    shift = Shift(DATES["days"], DATES["reference"])
    assert isinstance(shift.reference, date)
    assert (shift_date(written, shift, CALENDAR) or "") == expected


def test_an_invalid_date_is_masked() -> None:
    for group in DATES["group"]:
        for written, expected in group["cases"]:
            if not expected:
                assert MADE.replace(PhiType.DATE, written, kind=ValueKind.VALUE, scope=SCOPE) == "[**DATE**]"
