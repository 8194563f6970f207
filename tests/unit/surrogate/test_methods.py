"""The methods beside surrogates: generalize, mask, redact."""

import pytest
from support.surrogates import SCOPE, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate.methods import RESTRICTED_ZIP3, generalize, mask

MADE = surrogates()


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("DATE", "20240224134009", "2024"),
        ("DATE", "20240224", "2024"),
        ("DATE", "2024-02-24", "2024"),
        ("DATE", "2024-02", "2024"),
        ("DATE", "2015-02-07T13:28:17.239+02:00", "2015"),
        ("DATE", "2024", "2024"),
        ("DATE", "2019T10:00", "2019"),
        ("DATE", "202402", "2024"),
        ("DATE", "3/4/2019", "2019"),
        ("DATE", "3/4/19", "2019"),
        ("DATE", "March 4th, 2019", "2019"),
        ("DATE", "'98", "1998"),
        ("DATE", "spring of 2014", "2014"),
        ("DATE", "06141955", "1955"),
        ("DATE", "3/4", "[**DATE**]"),
        ("DATE", "Tuesday", "[**DATE**]"),
        ("DATE", "13/45/99", "[**DATE**]"),
        ("ZIP", "02139", "021"),
        ("ZIP", "03601-1234", "000"),
        ("ZIP", "K1A 0B1", "[**ZIP**]"),
        ("AGE", "47", "47"),
        ("AGE", "89", "89"),
        ("AGE", "90", "90 or older"),
        ("AGE", "ninety-two", "90 or older"),
        ("AGE", "93 months", "93 months"),
        ("AGE", "92.5", "90 or older"),
        ("AGE", "92 M", "90 or older"),
        ("STATE", "TX", "TX"),
        ("PATIENT", "Ada", "[**PATIENT**]"),
        ("LOCATION-OTHER", "Ada Park", "[**LOCATION-OTHER**]"),
    ],
)
def test_generalize(type_: str, value: str, expected: str) -> None:
    assert generalize(PhiType(type_), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1933-12-31", "1934"),  # 90 or older, in one category: 45 CFR 164.514(b)(2)(i)(C)
        ("19200719", "1934"),
        ("1920", "1934"),
        ("1934-03-01", "1934"),
        ("1935-01-01", "1935"),
        ("2024-03-11", "2024"),
        ("Tuesday", "[**DATE**]"),
    ],
)
def test_a_year_that_reveals_an_age_over_89_joins_one_category(value: str, expected: str) -> None:
    assert generalize(PhiType.DATE, value, now=2024) == expected


def test_other_methods() -> None:
    assert generalize(PhiType.DATE, "Tuesday", blank="") == ""
    assert all(not set(mask(type_)) & set('|^~\\&<>"\n') for type_ in PhiType)
    assert len(RESTRICTED_ZIP3) == 17
    assert MADE.replace(PhiType.IDNUM, "4711", kind=ValueKind.REDACT, scope=SCOPE) == "[**IDNUM**]"
