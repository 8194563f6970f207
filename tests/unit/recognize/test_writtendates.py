"""Written dates."""

from datetime import date

import pytest

from deid_agent.model.text import Document
from deid_agent.recognize.written_values import find_dates, parse_fact_date

DAY = date(1941, 9, 17)


@pytest.mark.parametrize(
    "written",
    [
        "9/17/1941",
        "09/17/41",
        "17/9/41",
        "17.09.1941",
        "9-17-41",
        "1941-09-17",
        "1941/9/17",
        "19410917",
        "09171941",
        "091741",
        "Sept 17, 1941",
        "September 17th 1941",
        "SEPTEMBER 17, 1941",
        "17 Sep 1941",
        "17-SEP-41",
        "17th of September, 1941",
        "Sep. 17, '41",
        "1941-Sep-17",
    ],
)
def test_common_forms(written: str) -> None:
    text = f"é born {written}, alone"
    (found,) = find_dates(Document(text))
    assert DAY in found.readings
    assert text[found.start : found.end] == written


@pytest.mark.parametrize("text", ["x19410917", "DOB09/17/1941Sex", "born17Sep1941MRN", "昍19410917"])
def test_letters_may_touch_a_date(text: str) -> None:
    assert any(DAY in d.readings for d in find_dates(Document(text)))


def test_a_time_may_follow() -> None:
    assert [DAY in d.readings for d in find_dates(Document("1941-09-17T08:15 and 1941-09-17 0815"))] == [True, True]


@pytest.mark.parametrize("text", ["13/32/1941", "lot 4-17-9-1941-2", "in 1941", "9/17", "30 Feb 1941"])
def test_other_numbers_are_not_dates(text: str) -> None:
    assert not any(DAY in d.readings for d in find_dates(Document(text)))


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("19410917", DAY),
        ("194109170830+0100", DAY),
        ("1941-09-17", DAY),
        ("1941-09-17T08:30:00Z", DAY),
        ("1941", None),
        ("194113", None),
        ("19411301", None),
        ("", None),
    ],
)
def test_structured_values(value: str, day: date | None) -> None:
    assert parse_fact_date(value) == day
