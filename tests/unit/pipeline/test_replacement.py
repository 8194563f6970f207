"""Replacement of dates and names; a generalized year depends on the time of the message."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from support.surrogates import surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Site, Subject, ValueKind
from deid_agent.model.spans import Span, parse_source
from deid_agent.pipeline.policy import Method, load_policy
from deid_agent.pipeline.replacement import Replacer
from deid_agent.surrogate import Scope

RULE = parse_source("a")

RULES = Path(__file__).resolve().parents[3] / "rules"
OF_2024 = Scope("d", reference=date(2024, 3, 11))


def replacer() -> Replacer:
    return Replacer(load_policy("safe-harbor", RULES), surrogates(), year=2026)


def born(value: str, kind: ValueKind = ValueKind.VALUE) -> Site:
    return Site("PID-7", 0, len(value), PhiType.DATE, kind=kind, subject=Subject.PATIENT, value=value)


@pytest.mark.parametrize("value", ["&#1488;&#1500;&#1497;&#1513;&#1506;", "Ada%20Okafor", "&#x41;da Okafor"])
def test_a_name_in_codes_of_characters_is_replaced(value: str) -> None:
    made = Replacer(load_policy("pseudonymised", RULES), surrogates())
    plain = (
        {"&": "Ada Okafor", "A": "Ada Okafor"}[value[0]] if "#1488" not in value else "\u05d0\u05dc\u05d9\u05e9\u05e2"
    )
    sites = [
        Site("x", 0, 9, PhiType.PATIENT, kind=ValueKind.NAME, subject=Subject.PATIENT, value=v) for v in (value, plain)
    ]
    coded, expected = (made.replace_site(site, Method.SURROGATE, Scope("d")) for site in sites)
    assert coded == expected


def test_a_birth_year_of_a_person_over_89_is_generalized() -> None:
    made = replacer()
    assert made.replace_site(born("19200719"), Method.GENERALIZE, OF_2024) == "1934"
    assert made.replace_site(born("19350719"), Method.GENERALIZE, OF_2024) == "1935"
    assert made.replace_site(born("19350719"), Method.GENERALIZE, Scope("d")) == "1936"
    instant = born("1920-07-19T00:00:00Z", ValueKind.INSTANT)
    assert made.replace_site(instant, Method.GENERALIZE, OF_2024) == "1934-01-01T00:00:00Z"
    assert made.replace_value(PhiType.DATE, "4/22/1920", Method.GENERALIZE, OF_2024) == "1934"


def test_the_days_of_one_expression_move_together() -> None:
    text = "Admitted March 4-9, 2019 and April 3."
    spans = [
        Span(9, 16, PhiType.DATE, RULE),
        Span(17, 24, PhiType.DATE, RULE),
        Span(29, 36, PhiType.DATE, RULE),
    ]
    assert [text[s.start : s.end] for s in spans] == ["March 4", "9, 2019", "April 3"]
    made = Replacer(load_policy("pseudonymised", RULES), surrogates())
    together = made.replace_findings(text, spans, [Method.SURROGATE] * 3, OF_2024)
    days = made.surrogates.shift_days(OF_2024)
    first, last = (date(2019, 3, day) + timedelta(days) for day in (4, 9))
    month = "" if first.month == last.month else f"{last:%B} "
    assert together[:2] == [f"{first:%B} {first.day}", f"{month}{last.day}, {last.year}"]
    assert made.replace_findings(text, spans, [Method.MASK] * 3, OF_2024) == ["[**DATE**]"] * 3
    assert made.replace_findings(text, spans, [Method.SURROGATE, Method.KEEP, Method.KEEP], OF_2024)[1:] == [
        "9, 2019",
        "April 3",
    ]


@pytest.mark.parametrize(
    ("others", "known", "first"),
    [
        ("", (), False),
        ("23/01/2018", (), True),
        ("01/23/2018", (), False),
        ("23/1", (), True),
        ("11/12/2017 29/10/2017 1/23", (), True),  # with a year before without
        ("", (date(2019, 4, 3),), True),
        ("", (date(2019, 3, 4),), False),
        ("12/25/2018", (date(2019, 4, 3),), False),  # the text itself decides before the structure
    ],
)
def test_the_order_of_day_and_month_is_that_of_the_text(others: str, known: tuple[date, ...], first: bool) -> None:
    made, scope = Replacer(load_policy("pseudonymised", RULES), surrogates()), Scope("d", known=known)
    texts = ["3/4/2019", "03/04/19", *others.split()]
    text = " ; ".join(texts)
    starts = [text.index(value) for value in texts]
    spans = [Span(at, at + len(value), PhiType.DATE, RULE) for at, value in zip(starts, texts, strict=True)]
    day = (date(2019, 4, 3) if first else date(2019, 3, 4)) + timedelta(made.surrogates.shift_days(scope))
    one, two = (day.day, day.month) if first else (day.month, day.day)
    new = made.replace_findings(text, spans, [Method.SURROGATE] * len(spans), scope)
    assert new[:2] == [f"{one}/{two}/{day.year}", f"{one:02d}/{two:02d}/{day.year % 100:02d}"]


def test_a_lone_name_has_the_surrogate_of_its_part_in_a_whole_name_of_the_text() -> None:
    text = "Ada Okafor came. Okafor, A. said that Ada was well."
    spans = [
        Span(0, 10, PhiType.PATIENT, RULE),
        Span(17, 26, PhiType.PATIENT, RULE),
        Span(38, 41, PhiType.PATIENT, RULE),
    ]
    assert [text[s.start : s.end] for s in spans] == ["Ada Okafor", "Okafor, A", "Ada"]
    made = Replacer(load_policy("pseudonymised", RULES), surrogates())
    whole, turned, given = made.replace_findings(text, spans, [Method.SURROGATE] * 3, Scope("d"))
    first, last = whole.split(" ")
    assert (turned, given) == (f"{last}, {first[0]}", first)
