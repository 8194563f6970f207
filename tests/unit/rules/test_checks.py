"""Check digits and calendars. The numbers are examples from the standards or invented."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.rules.checks import CHECKS


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("luhn", ["79927398713", "4111 1111 1111 1111"], ["79927398710", "7", ""]),
        ("npi", ["1234567893", "1245319599"], ["1234567890", "123456789", "3234567893"]),
        ("nhs", ["943 476 5919", "9434765919"], ["943 476 5918", "94347659"]),
        ("vin", ["1M8GDM9AXKP042788", "WVWZZZ1JZ3W386752"], ["1M8GDM9AXKPO42788", "12345678901234567", "1M8GDM9A"]),
        ("ssn", ["078-05-1120", "987654321"], ["000-12-3456", "123-00-4567", "123-45-0000", "12345678"]),
        (
            "calendar-date",
            ["9/17/1941", "17.09.41", "2014-02-06", "2/29/12", "20140206", "12312014", "2/29", "31/1"],
            ["13/32/2014", "2/30/2014", "0/4/14", "9/17/0041", "20141306", "1/2/3/4", "13/13", ""],
        ),
        ("month-year", ["10/2013", "6/07"], ["13/2013", "2013", "1/2/3"]),
        ("misread-date", ["l2/13/74", "O1/26/2OO4"], ["l/l/ll", "l3/32/74"]),
        ("plausible-year", ["1941", "late 2071"], ["1899", "2100", "41"]),
        ("plausible-age", ["0", "120", "forty"], ["121", "1941"]),
        ("ip-address", ["10.6.1.44", "203.0.113.77"], ["0.6.1.4", "10.6.1.256", "1.2.3"]),
        ("ip-v6", ["2001:db8:41::c7", "::1"], ["10:30:45", "12::x"]),
        ("not-clock-year", ["6117", "815", "1233"], ["1830", "0915", "2014"]),
        ("postcode", ["NR4 7ZQ", "H62XD34"], ["T12 345", "123 4AB"]),
        ("username", ["rjm47", "noemibz_88"], ["C5", "B12", "7abc", "a123"]),
        ("street-number", ["218 Tannery Row"], ["0 Row", "Row"]),
        ("has-digit", ["a1"], ["a", ""]),
        ("letter-and-digit", ["a1"], ["a", "1"]),
        ("mac", ["00:1B:44:11:3A:B7", "00-1b-44-11-3a-b7", "00:11:22:33:44:55"], ["10-20-30-40-50-60", "00-1B:44"]),
        ("four-digits", ["1-2-3-4"], ["123", "abcd"]),
    ],
)
def test_checks(name: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not CHECKS[name](text)] == []
    assert [text for text in bad if CHECKS[name](text)] == []


@pytest.mark.parametrize("name", CHECKS)
@given(text=st.text(max_size=12) | st.text("0123456789/-. ²٣", max_size=12))
def test_any_text_has_an_answer(name: str, text: str) -> None:
    assert CHECKS[name](text) in (True, False)
