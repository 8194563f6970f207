"""Dates read back from text."""

from datetime import date

import pytest

from deid_agent.recognize.writtendates import dates_in, read_fact
from deid_agent.text import Document

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
    (found,) = dates_in(Document(text))
    assert DAY in found.readings
    assert text[found.start : found.end] == written


def test_a_time_may_follow() -> None:
    assert [DAY in d.readings for d in dates_in(Document("1941-09-17T08:15 and 1941-09-17 0815"))] == [True, True]


@pytest.mark.parametrize("text", ["13/32/1941", "lot 4-17-9-1941-2", "in 1941", "9/17", "x19410917", "30 Feb 1941"])
def test_what_is_no_date(text: str) -> None:
    assert not any(DAY in d.readings for d in dates_in(Document(text)))


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
    assert read_fact(value) == day
