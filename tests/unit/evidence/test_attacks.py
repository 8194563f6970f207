"""The attacks of the threat model: at chance on a feed that keeps the promises, successful on one that breaks one."""

import random
from collections.abc import Callable
from datetime import date, timedelta
from itertools import count

import pytest

from deid_agent.evidence import TextPair, ThreatResult, ValuePair, attack_threats, make_pair
from deid_agent.evidence.attackers import BIRTHS, DAYS, HOLIDAYS, bases
from deid_agent.evidence.pairs import ReplacedRange
from deid_agent.evidence.values import list_dates, list_values, read_date, unchanged_dates

PATIENTS, VISITS = 60, 3
LETTERS = "abcdefghijklmnoprstuvw"


def us(day: date) -> str:
    return f"{day:%m/%d/%Y}"


class Feed:
    """Notes of patients. A test replaces one of the methods by a weak one."""

    def __init__(self, seed: int = 5) -> None:
        self.draw = random.Random(seed)
        self.base = {p: self.draw.choice(bases(3)) for p in range(PATIENTS)}
        self.numbers = count(1)

    def shift(self, patient: int, _visit: int) -> int:
        return self.base[patient] + self.draw.randrange(4)

    def birth(self, patient: int, _visit: int) -> int:
        return random.Random(patient).choice(BIRTHS)

    def original(self, own: random.Random) -> str:
        return own.choice("BCDFGHJKLM") + "".join(own.choices(LETTERS, k=6))

    def name(self, _old: str) -> str:
        return "".join(self.draw.choices(LETTERS, k=7)).title()

    def number(self, _old: int) -> int:
        return self.draw.randrange(10_000_000, 99_999_999)

    def written(self, _true: date, shown: date) -> str:
        return us(shown)

    def kept(self, _day: date) -> str:
        return ""

    def pairs(self) -> list[TextPair]:
        return [self.pair(patient, visit) for patient in range(PATIENTS) for visit in range(VISITS)]

    def pair(self, patient: int, visit: int) -> TextPair:
        born, first = date(1940, 1, 1) + timedelta(211 * patient), date(2019, 1, 7) + timedelta(13 * patient)
        today = first + timedelta(40 * visit)
        shift = timedelta(self.shift(patient, visit))
        own = random.Random(f"name {patient}")
        old = [self.original(own) for _ in range(2)]
        record = 40_000_000 + 977 * patient
        pieces = [
            (" ".join(old), " ".join(map(self.name, old)), "PATIENT"),
            (", DOB ", None, ""),
            (us(born), us(born + timedelta(self.birth(patient, visit))), "DATE"),
            (", MRN ", None, ""),
            (str(record), str(self.number(record)), "MEDICALRECORD"),
            (", first seen ", None, ""),
            (us(first), us(first - shift), "DATE"),
            (", again ", None, ""),
            (self.written(today, today), self.written(today, today - shift), "DATE"),
            (f"{self.kept(today)}. Stable.", None, ""),
        ]
        original = output = ""
        ranges = []
        for before, after, kind in pieces:
            if after is not None:
                ranges.append(
                    ReplacedRange(
                        len(output), len(output) + len(after), len(original), len(original) + len(before), kind
                    )
                )
            original, output = original + before, output + (before if after is None else after)
        return make_pair(f"n{patient}-{visit}", f"p{patient}", original, output, ranges)


class ConstantShift(Feed):
    def shift(self, patient: int, _visit: int) -> int:
        return 103


class ShiftsOfDocuments(Feed):
    """Every document has a base of its own, although numbers join the documents of a patient."""

    def shift(self, patient: int, _visit: int) -> int:
        return self.draw.choice(bases(0))


class BirthsOfDocuments(Feed):
    def birth(self, patient: int, _visit: int) -> int:
        return self.draw.choice(BIRTHS)


class KeptInitials(Feed):
    def name(self, old: str) -> str:
        return old[0] + super().name(old)[1:].lower()


class OneTableOfNames(Feed):
    """Each name has one surrogate for all patients, so whoever knows one patient reads the others."""

    def original(self, own: random.Random) -> str:
        return own.choice(["Bell", "Cole", "Dunn", "Ford", "Gray", "Hale", "Lamb", "Mann", "Nash", "Pope"])

    def name(self, old: str) -> str:
        return random.Random(old).choice(LETTERS).upper() + "".join(random.Random(old).choices(LETTERS, k=8))


class OrderedNumbers(Feed):
    def number(self, old: int) -> int:
        return old + 12_345


class KeptWeekdays(Feed):
    def written(self, true: date, shown: date) -> str:
        return f"{us(shown)} ({DAYS[true.weekday()].title()})"


class KeptDates(Feed):
    def kept(self, day: date) -> str:
        return f", signed {us(day)}"


def by_name(feed: Feed) -> dict[str, ThreatResult]:
    return {each.attack: each for each in attack_threats(feed.pairs())}


def test_a_feed_that_keeps_the_promises_is_at_chance() -> None:
    found = by_name(Feed())
    assert {name: each.holds for name, each in found.items()} == dict.fromkeys(found, True)
    assert found["births by intersection"].smallest == len(BIRTHS)
    assert (found["events by intersection"].smallest or 0) >= 180
    assert found["initials"].subjects >= 50


@pytest.mark.parametrize(
    ("feed", "attack"),
    [
        (ConstantShift, "shift of another patient"),
        (ShiftsOfDocuments, "events by intersection"),
        (BirthsOfDocuments, "births by intersection"),
        (KeptInitials, "initials"),
        (OneTableOfNames, "names by other patients"),
        (OrderedNumbers, "order of numbers"),
        (KeptWeekdays, "calendar"),
        (KeptDates, "kept dates"),
    ],
)
def test_a_broken_promise_is_found_by_its_attack_alone(feed: Callable[[], Feed], attack: str) -> None:
    found = by_name(feed())
    broken = {name for name, each in found.items() if each.holds is False}
    related = {"names by other patients": {"initials", "names by frequency"}}.get(attack, set())
    assert attack in broken
    assert broken <= {attack, *related}
    success = found[attack].success
    assert success is not None and success.low > found[attack].bound


def test_a_holiday_beside_a_date_gives_the_shift_away() -> None:
    """Thanksgiving stays in the text: one or two shifts fit."""
    pairs = []
    for n in range(40):
        true = HOLIDAYS["thanksgiving"](1980 + n)
        shown = true - timedelta(random.Random(n).choice(bases(0)))
        pairs.append(make_pair(f"n{n}", f"p{n}", f"Seen {us(true)}, Thanksgiving.", f"Seen {us(shown)}, Thanksgiving."))
    found = {each.attack: each for each in attack_threats(pairs)}["calendar"]
    assert found.success is not None and found.success.value > 0.4
    assert found.holds is False


def test_dates_of_birth_that_stay_are_exact() -> None:
    day = us(date(1950, 3, 2))
    fields = [ValuePair(f"n{n}", f"p{n}", day, day, "DATE", birth=True) for n in range(3)]
    fields += [ValuePair(f"n{n}", f"p{n}", "03/04/2019", "01/22/2018", "DATE") for n in range(3)]
    found = {each.attack: each for each in attack_threats((), fields)}["births by intersection"]
    assert (found.smallest, found.holds) == (1, False)


def test_a_surrogate_with_the_month_and_year_of_its_date_is_a_whole_date() -> None:
    """The replaced range is the day alone, behind a name of another length."""
    pair = make_pair("n", "p", "Ada came on 03/04/2019.", "Alexandra came on 03/22/2019.")
    (found,) = list_dates([pair], ())
    assert (found.true, found.shown) == (date(2019, 3, 4), date(2019, 3, 22))


def test_a_small_feed_is_not_judged() -> None:
    found = {each.attack: each for each in attack_threats(Feed().pairs()[:6])}
    assert found["shift of another patient"].holds is None
    assert found["initials"].holds is None
    empty = attack_threats([])
    assert all(each.holds is None and each.subjects == 0 for each in empty)


def test_results_have_no_text_of_the_feed() -> None:
    pairs = Feed().pairs()[:30]
    found, values = attack_threats(pairs), list(list_values(pairs))
    shown = (
        repr(found) + "".join(str(each.as_json()) for each in found) + repr(values) + repr(list(list_dates(pairs, ())))
    )
    texts = [text for each in values for text in (each.original, each.output)]
    assert texts
    assert not [text for text in texts if text in shown]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("3/4/2019", date(2019, 3, 4)),
        ("2019-03-04T10:00:00Z", date(2019, 3, 4)),
        ("201903041200", date(2019, 3, 4)),
        ("March 4th, 2019", date(2019, 3, 4)),
        ("4-MAR-2019", date(2019, 3, 4)),
        ("31/12/2019", None),
        ("2/30/2019", None),
        ("12345678", None),
        ("1/2/3/4", None),
        ("", None),
        ("\ud800 3/4/2019", None),
    ],
)
def test_whole_dates_are_read(text: str, day: date | None) -> None:
    assert read_date(text) == day


def test_dates_of_the_calendar_s_ends_raise_nothing() -> None:
    for day in ("01/01/0001", "12/31/9999"):
        pair = make_pair("n", "p", f"Seen {day} and 1/2/2019 (Monday).", f"Seen {day} and 3/4/2018 (Monday).")
        assert unchanged_dates(pair)
        attack_threats([pair])
