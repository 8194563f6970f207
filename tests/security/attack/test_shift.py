"""The attacker: reads one de-identified document, knows the program and all calendars, and has no key.

The attacker looks for a date whose original the surrounding text reveals: a holiday, a weekday, the 29th of February,
the 11th of September, a placeholder date. Each such cue leaves the shifts for which the text
would have been true. The probability of the true shift is measured, and must be that of a random guess.

The same attack on a program that shifts numbers and keeps words nearly always finds the shift, so the test can fail.
The remaining information is measured at the end: words that determine a day and are not PHI.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import lru_cache
from math import log2, sqrt

import pytest
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.evidence.attackers import DAYS, HOLIDAYS, MONTHS, Cue, allowed, dates_in, evenness, excess, posterior
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.surrogate import DateShifts, Scope, Surrogates, dates

SECRET = b"key of the attack tests on shifts"
MADE = Surrogates(SECRET)
CHANCE = 1 / len(allowed())
DOCUMENTS = 60


def us(day: date) -> str:
    return f"{day.month}/{day.day}/{day.year}"


def long(day: date) -> str:
    return f"{MONTHS[day.month - 1].title()} {day.day}, {day.year}"


def on(name: str) -> Callable[[int], date]:
    return HOLIDAYS[name]


def any_day(year: int) -> date:
    return date(year, 1, 3) + timedelta(37 * year % 360)


Note = tuple[Callable[[int], date], Callable[[date], str]]
NOTES: dict[str, Note] = {
    "holiday, date": (on("christmas"), lambda d: f"Seen on Christmas, {us(d)}, for a fall."),
    "date (holiday)": (on("thanksgiving"), lambda d: f"Admitted {us(d)} (Thanksgiving Day) with chest pain."),
    "holiday (date)": (on("fourth of july"), lambda d: f"Burnt his hand on the Fourth of July ({us(d)})."),
    "holiday date": (on("easter"), lambda d: f"Fell on Easter {us(d)} at home."),
    "holiday apart": (on("christmas"), lambda d: f"Date of injury: {us(d)}.\nHe fell while he cooked for Christmas."),
    "holiday written": (on("halloween"), lambda d: f"Seen {long(d)}. He was out with his children for Halloween."),
    "weekday, date": (any_day, lambda d: f"Seen on {DAYS[d.weekday()].title()}, {us(d)}."),
    "date (weekday)": (any_day, lambda d: f"Seen {us(d)} ({DAYS[d.weekday()][:3].title()})."),
    "weekday in brackets": (any_day, lambda d: f"({DAYS[d.weekday()][:3].upper()}) {long(d)}: seen at home."),
    "weekday apart": (
        any_day,
        lambda d: f"Visit date: {us(d)}.\nHe says that he felt well this {DAYS[d.weekday()].title()}.",
    ),
    "leap day": (lambda y: date(y - y % 4, 2, 29), lambda d: f"Married on leap day, {long(d)}."),
    "Feb 29": (lambda y: date(y - y % 4, 2, 29), lambda d: f"Wedding: {us(d)}. They celebrate it on Feb 29."),
    "9/11": (lambda y: date(y, 9, 11), lambda d: f"Date of injury: {us(d)}. It happened on 9/11, he says."),
    "July 4th": (lambda y: date(y, 7, 4), lambda d: f"Seen {us(d)} after the fireworks of July 4th."),
    "born, nobody knows when": (lambda y: date(1900, 1, 1), lambda d: f"DOB: {us(d)}. Visit: 3/14/2019."),
    "no end": (lambda y: date(9999, 12, 31), lambda d: f"Coverage ends {us(d)}. Visit: 3/14/2019."),
}


@lru_cache
def deidentifier() -> Deidentifier:
    rules = ROOT / "rules"
    return WorkerFactory(rules, SecretKey(SECRET), load_policy("pseudonymised", rules)).deidentifier()


def program(text: str, document: str) -> str:
    return deidentifier().text(text, document=document).text


def naive(text: str, document: str) -> str:
    """Shifts numeric dates by the same number of days and keeps words: a naive implementation."""
    days = -MADE.shift_days(Scope(document))
    return re.sub(
        r"\d{1,2}/\d{1,2}/\d{4}|[A-Z][a-z]+ \d{1,2}, \d{4}", lambda m: us(dates_in(m[0])[0] - timedelta(days)), text
    )


def read(name: str, shifted: Callable[[str, str], str]) -> list[float]:
    """The attacker's probability for the true shift, for so many documents of one kind."""
    day_of, note = NOTES[name]
    out: list[float] = []
    for n in range(DOCUMENTS):
        document = f"{name} {n}"
        text = shifted(note(day_of(2012 + n % 12)), document)
        assert dates_in(text), text
        out.append(posterior(text, -MADE.shift_days(Scope(document))))
    return out


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_the_attacker_knows_every_possible_shift() -> None:
    seen = {-MADE.shift_days(Scope(f"d{n}")) for n in range(6_000)}
    assert seen == set(allowed())


@pytest.mark.parametrize("name", NOTES)
def test_the_remaining_text_does_not_reveal_the_shift(name: str) -> None:
    """Two lucky guesses in 60 documents are within chance if one shift fits; a weekday fits a seventh of all."""
    assert mean(read(name, program)) < (1.3 * CHANCE if "weekday" in name else CHANCE + 2.5 / DOCUMENTS)


@pytest.mark.parametrize("name", ["holiday, date", "date (holiday)", "holiday (date)", "holiday date"])
def test_no_output_reveals_that_a_date_was_a_holiday(name: str) -> None:
    """An attacker who knows the program reads "Labor Day, 9/13/2018" as some holiday: about twenty shifts remain."""
    day_of, note = NOTES[name]
    for n in range(DOCUMENTS):
        text = program(note(day_of(2012 + n % 12)), f"{name} {n}").lower()
        assert not any(holiday in text for holiday in HOLIDAYS)


def test_over_all_notes_the_attacker_does_not_beat_chance() -> None:
    found = [value for name in NOTES for value in read(name, program)]
    assert mean(found) < CHANCE + 4 * sqrt(CHANCE / len(found))


@pytest.mark.parametrize("name", NOTES)
def test_the_attack_works_if_words_are_kept(name: str) -> None:
    """A weekday leaves one shift in seven, two defaults lie two days apart, all other words leave one shift or two."""
    certain = 5.9 * CHANCE if "weekday" in name else 0.4 if name.startswith("born") else 0.6
    assert mean(read(name, naive)) > certain


def test_a_shifted_placeholder_date_reveals_the_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    """In typed fields, placeholder dates such as 19000101 and 99991231 are kept."""
    values = ("19000101", "99991231", "99991231235959", "18991230", "29991231")

    def posteriors(made: Surrogates) -> list[float]:
        out = []
        for n in range(40):
            scope = Scope(f"D{n}")
            for value in values:
                new = made.replace(PhiType.DATE, value, kind=ValueKind.VALUE, scope=scope)
                out.append(posterior(f"{new[:8]}", -made.shift_days(scope)))
        return out

    assert mean(posteriors(MADE)) < 1.01 * CHANCE
    monkeypatch.setattr(dates, "DEFAULTS", frozenset[date]())
    assert mean(posteriors(Surrogates(SECRET))) > 0.6


def test_shifts_are_even_over_their_range() -> None:
    """Over documents under one key, over keys for one document, and over patients."""
    shifts = [MADE.shift_days(Scope(f"document {n}")) for n in range(20 * len(allowed()))]
    assert abs(evenness(shifts, len(allowed()))) < 4.5
    keyed = [Surrogates(b"key %d" % n).shift_days(Scope("d")) for n in range(1_500)]
    assert abs(evenness([-s * 10 // 551 for s in keyed], 10)) < 4.5
    by_patient = Surrogates(SECRET, dates=DateShifts(offset_days=0))
    patients = [by_patient.shift_days(Scope("d", f"patient {n}")) for n in range(20 * len(allowed()))]
    assert abs(evenness(patients, len(allowed()))) < 4.5


def test_two_documents_of_an_unknown_patient_reveal_nothing_about_each_other() -> None:
    """Also documents whose names are neighbours: the table of both shifts, in eighths of the range, is even."""
    every = sorted(-s for s in allowed())
    pairs = [
        (MADE.shift_days(Scope(f"MSG{n:05d}")), MADE.shift_days(Scope(f"MSG{n + 1:05d}"))) for n in range(0, 8_000, 2)
    ]
    rank = {s: n * 8 // len(every) for n, s in enumerate(every)}
    counts = [0] * 64
    for one, other in pairs:
        counts[8 * rank[one] + rank[other]] += 1
    assert abs(excess(counts, len(pairs) / 64)) < 4.5
    equal = sum(one == other for one, other in pairs)
    assert abs(equal - len(pairs) * CHANCE) < 4.5 * sqrt(len(pairs) * CHANCE)


def some_holiday(day: date) -> bool:
    return any(day == holiday(day.year) for holiday in HOLIDAYS.values())


def summer_time(day: date) -> bool:
    """In the United States, from the second Sunday of March to the first of November."""
    march, november = date(day.year, 3, 8), date(day.year, 11, 1)
    start, end = (d + timedelta((6 - d.weekday()) % 7) for d in (march, november))
    return start <= day < end


Kept = tuple[Callable[[int], date], Callable[[date], str], Cue, float]
KEPT_WORDS: dict[str, Kept] = {
    # The text, the conclusion of the attacker, and its information in bits (of 8.9) at most.
    "some holiday": (
        on("christmas"),
        lambda d: f"Date of injury: {us(d)}.\nFell as he cooked for Christmas.",
        some_holiday,
        4.6,
    ),
    "flu season": (
        lambda y: date(y, 1, 20),
        lambda d: f"Seen {us(d)}, in flu season.",
        lambda d: d.month in {10, 11, 12, 1, 2, 3},
        1.2,
    ),
    "storm": (
        lambda y: date(2012, 10, 29),
        lambda d: f"Hurt in Hurricane Sandy, {us(d)}.",
        lambda d: d == date(2012, 10, 29),
        8.9,
    ),
}


@pytest.mark.parametrize("name", KEPT_WORDS)
def test_kept_words_reveal_no_more_than_documented(name: str) -> None:
    """docs/decisions/0007-date-shift-disclosure.md has the bits that such a text gives away."""
    day_of, note, cue, most = KEPT_WORDS[name]
    found: list[float] = []
    for n in range(DOCUMENTS):
        document = f"{name} {n}"
        text = program(note(day_of(2012 + n % 12)), document)
        found.append(posterior(text, -MADE.shift_days(Scope(document)), [cue]))
    assert most - 1 < log2(mean(found) / CHANCE) < most


def test_a_daylight_saving_offset_reveals_less_than_a_bit() -> None:
    """HL7 and FHIR write the zone as an offset, which stays: -0400 in July is -0400 in January."""
    found: list[float] = []
    for n in range(DOCUMENTS):
        scope = Scope(f"summer {n}")
        original = f"{date(2012 + n % 12, 4 + n % 6, 20):%Y%m%d}101500-0400"
        new = MADE.replace(PhiType.DATE, original, kind=ValueKind.VALUE, scope=scope)
        assert new.endswith("101500-0400")
        found.append(posterior(new[:8], -MADE.shift_days(scope), [summer_time]))
    assert 0.3 < log2(mean(found) / CHANCE) < 1
