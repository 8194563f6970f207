"""Days of one expression: the same number of days for all, each in its form."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.surrogates import ROOT

from deid_agent.surrogate.calendars import Shift, load_calendar
from deid_agent.surrogate.dates import connects_days, shift_series
from deid_agent.surrogate.lists import load_lists

CALENDAR = load_calendar(load_lists(ROOT / "rules"))


def shift_text(days: int, *parts: str, reference: date | None = None) -> str:
    """Shift an expression; ``parts`` are its days and the texts between them, alternating."""
    found = shift_series(parts[::2], parts[1::2], Shift(days, reference), CALENDAR)
    new = [old if text is None else text for old, text in zip(parts[::2], found, strict=True)]
    return "".join(a + b for a, b in zip(new, [*parts[1::2], ""], strict=True))


@pytest.mark.parametrize(
    ("days", "parts", "new"),
    [
        (-10, ("March 14", "-", "19, 2019"), "March 4-9, 2019"),
        (-100, ("March 4", "-", "9, 2019"), "November 24-29, 2018"),
        (-66, ("March 4", "-", "9, 2019"), "December 28-January 2, 2019"),
        (-5, ("March 4", "-", "9, 2019"), "February 27-March 4, 2019"),
        (-5, ("MAR 4", " - ", "9"), "FEB 27 - MAR 4"),
        (-5, ("4", "-", "9 March 2019"), "27 February-4 March 2019"),
        (-10, ("14", " to ", "19 March 2019"), "4 to 9 March 2019"),
        (-5, ("4th", " to the ", "9th of March"), "27th of February to the 4th of March"),
        (-5, ("March 4th", "-", "9th, 2019"), "February 27th-March 4th, 2019"),
        (-5, ("March 28", " - ", "April 3, 2019"), "March 23 - March 29, 2019"),
        (-5, ("28 March", " - ", "3 April 2019"), "23 March - 29 March 2019"),
        (-60, ("February 25", " - ", "March 3, 2020"), "December 27 - January 3, 2020"),
        (-5, ("12/28", "-", "1/3/2019"), "12/23-12/29/2018"),
        (-2, ("12/28", "-", "1/3/2019"), "12/26-1/1/2019"),
        (-310, ("12/28", "-", "1/3/2020"), "02/21-2/27/2019"),  # not by way of 29 February 2020
        (-5, ("3/4/2020", "-", "3/9"), "2/28/2020-3/4"),
        (-5, ("3/4", "-", "9/2019"), "2/27-3/4/2019"),
        (-5, ("03/14", "-", "19/2019"), "03/09-14/2019"),
        (-5, ("2019-03-04", "/", "09"), "2019-02-27/03-04"),
        (-5, ("2019-03-14", "/", "19"), "2019-03-09/14"),
        (-5, ("March 4", ", ", "5", " and ", "6, 2019"), "February 27, 28 and March 1, 2019"),
        (-5, ("Monday March 4", " - ", "Friday March 8, 2019"), "Wednesday February 27 - Sunday March 3, 2019"),
        (-5, ("Dec. 30", " to ", "31, '18"), "Dec. 25 to 26, '18"),
        (-5, ("February 27", "-", "30, 2019"), "February 22-"),
        (-100, ("Christmas", ", ", "12/25/2018"), "Sunday, 12/25/2018"),  # the date leans on nothing
        (-100, ("11/22/2018", " (", "THANKSGIVING"), "11/22/2018 (TUESDAY"),
        (-100, ("Easter", " on ", "April 1, 2018"), "Friday on April 1, 2018"),
        (-100, ("Christmas", ", ", "12/25"), "Christmas, 12/25"),
        (-5, ("March 4", " (", "5, 2019"), "March 4 (5, 2019"),
    ],
)
def test_all_days_move_together_in_their_form(days: int, parts: tuple[str, ...], new: str) -> None:
    assert shift_text(days, *parts) == new


def test_a_year_is_taken_from_the_messages_own_time() -> None:
    assert shift_text(-3, "February 27", "-", "29", reference=date(2020, 3, 1)) == "February 24-26"
    assert shift_text(-3, "Dec 30", "-", "Jan 2", reference=date(2020, 1, 5)) == "Dec 27-Dec 30"
    assert shift_text(-345, "Dec 28", "-", "Jan 3", reference=date(2020, 2, 1)) == "Jan 17-Jan 23", "over a leap day"


@pytest.mark.parametrize(
    "parts",
    [("3/4/2019", "-", "3/9/2019"), ("March 2019", " to ", "May 2019"), ("2016", "-", "2019"), ("4", "-", "9")],
)
def test_days_without_a_related_date_are_not_linked(parts: tuple[str, ...]) -> None:
    assert shift_series(parts[::2], parts[1::2], Shift(-5), CALENDAR) == [None] * 2


@pytest.mark.parametrize(
    ("parts", "last"),
    [
        (("2016", "-", "17"), "16"),
        (("1999", "/", "01"), "00"),
        (("2016", ", ", "17"), None),
        (("2016", "-", "9"), None),
        (("16", "-", "17"), None),
    ],
)
def test_a_year_of_two_digits_ends_a_range_of_years(parts: tuple[str, ...], last: str | None) -> None:
    assert shift_series(parts[::2], parts[1::2], Shift(-300), CALENDAR) == [None, last]


@given(
    first=st.dates(date(1950, 1, 1), date(2049, 12, 1)),
    length=st.integers(1, 60),
    days=st.integers(-365, -1),
)
def test_the_length_of_a_range_is_kept(first: date, length: int, days: int) -> None:
    last = date.fromordinal(first.toordinal() + length)
    new = [date.fromordinal(day.toordinal() + days) for day in (first, last)]
    written = shift_text(days, f"{first:%B} {first.day}", "-", f"{last:%B} {last.day}, {last.year}")
    assert written == f"{new[0]:%B} {new[0].day}-{new[1]:%B} {new[1].day}, {new[1].year}"


@pytest.mark.parametrize("gap", ["-", " – ", " to the ", " through ", ", ", ", and ", " & ", "/"])
def test_connected_dates(gap: str) -> None:
    assert connects_days(gap)


@pytest.mark.parametrize("gap", [". ", " he went to ", "\n\n", "; ", ""])
def test_unconnected_dates(gap: str) -> None:
    assert not connects_days(gap)
