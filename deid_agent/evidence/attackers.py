"""The computations of an attacker who has no key: calendars, the possible shifts, candidate days, guesses of names.

The windows of shifts are those of the documentation, repeated here: a change of the program does not change the
expectation of the attacker, so a promise that is broken is found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from functools import cache
from math import sqrt

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def spearman(a: Sequence[object], b: Sequence[object]) -> float:
    """Rank correlation without ties: ids of one form have none."""
    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ranks(a), ranks(b), strict=True)) / (n * (n * n - 1))


def ranks(values: Sequence[object]) -> list[int]:
    order = sorted(range(len(values)), key=lambda n: str(values[n]))
    out = [0] * len(values)
    for rank, n in enumerate(order):
        out[n] = rank
    return out


def excess(counts: Sequence[int], expected: float) -> float:
    """Chi-square of ``counts`` against an even share, in standard deviations above its mean."""
    free = len(counts) - 1
    return (sum((count - expected) ** 2 for count in counts) / expected - free) / sqrt(2 * free)


def evenness(values: Sequence[object], classes: int) -> float:
    """As ``excess``, of how often each of ``classes`` values occurs."""
    seen = Counter(values)
    return excess([*seen.values(), *[0] * (classes - len(seen))], len(values) / classes)


def nth(n: int, weekday: int, month: int, year: int) -> date:
    """The n-th weekday of a month; the last one for n = -1."""
    if n < 0:
        after = date(year + month // 12, month % 12 + 1, 1)
        return after - timedelta((after.weekday() - weekday - 1) % 7 + 1)
    first = date(year, month, 1)
    return first + timedelta((weekday - first.weekday()) % 7 + 7 * (n - 1))


def easter(year: int) -> date:
    """The Gregorian computus (Meeus, Astronomical Algorithms, chapter 8)."""
    a, (b, c) = year % 19, divmod(year, 100)
    (d, e), g = divmod(b, 4), (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    j = (32 + 2 * e + 2 * i - h - k) % 7
    month, day = divmod(h + j - 7 * ((a + 11 * h + 22 * j) // 451) + 114, 31)
    return date(year, month, day + 1)


HOLIDAYS: dict[str, Callable[[int], date]] = {
    "new year's day": lambda y: date(y, 1, 1),
    "mlk day": lambda y: nth(3, 0, 1, y),
    "groundhog day": lambda y: date(y, 2, 2),
    "valentine's day": lambda y: date(y, 2, 14),
    "presidents' day": lambda y: nth(3, 0, 2, y),
    "st. patrick's day": lambda y: date(y, 3, 17),
    "easter": easter,
    "mother's day": lambda y: nth(2, 6, 5, y),
    "memorial day": lambda y: nth(-1, 0, 5, y),
    "father's day": lambda y: nth(3, 6, 6, y),
    "fourth of july": lambda y: date(y, 7, 4),
    "labor day": lambda y: nth(1, 0, 9, y),
    "columbus day": lambda y: nth(2, 0, 10, y),
    "halloween": lambda y: date(y, 10, 31),
    "veterans day": lambda y: date(y, 11, 11),
    "thanksgiving": lambda y: nth(4, 3, 11, y),
    "christmas eve": lambda y: date(y, 12, 24),
    "christmas": lambda y: date(y, 12, 25),
    "new year's eve": lambda y: date(y, 12, 31),
}

_NUMBERS = re.compile(r"(?<!\d)(\d{1,2})/(\d{1,2})/(\d{4})(?!\d)")
_WORDS = re.compile(rf"(?i)\b({'|'.join(MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})")
_HL7 = re.compile(r"(?<!\d)(\d{4})(\d\d)(\d\d)(?=\d{4,6}[+-]\d{4}|(?!\d))")


def dates_in(text: str) -> list[date]:
    """Every whole date that the text shows, in numbers first."""
    found = [(int(y), int(m), int(d)) for m, d, y in _NUMBERS.findall(text)]
    found += [(int(y), MONTHS.index(m.lower()) + 1, int(d)) for m, d, y in _WORDS.findall(text)]
    found += [(int(y), int(m), int(d)) for y, m, d in _HL7.findall(text)]
    return [date(*one) for one in found]


Cue = Callable[[date], bool]


def cues_in(text: str) -> list[Cue]:
    """The statements of the text about its date, taken as true of the original."""
    low = text.lower()
    found: list[Cue] = []
    for name in sorted(HOLIDAYS, key=len, reverse=True):
        if name in low:
            low = low.replace(name, "")
            found.append(falls_on(HOLIDAYS[name]))
    for number, word in enumerate(DAYS):
        if re.search(rf"\b{word[:3]}(?:{word[3:]})?\b", low):
            found.append(is_weekday(number))
    if re.search(r"leap day|feb(?:ruary)?\.? 29", low):
        found.append(lambda day: (day.month, day.day) == (2, 29))
    if re.search(r"\b9/11\b(?!/)|september 11\b(?!,? \d{4})|nine eleven", low):
        found.append(lambda day: (day.month, day.day) == (9, 11))
    if "july 4th" in low and not _WORDS.search(low):
        found.append(lambda day: (day.month, day.day) == (7, 4))
    if re.search(r"\b(?:1899|9999|9998|2998|2999)", low):  # an odd year: a placeholder of some program
        known = (date(1900, 1, 1), date(1899, 12, 30), date(9999, 12, 31), date(2999, 12, 31))
        found.append(lambda day: day in known)
    return found


def falls_on(holiday: Callable[[int], date]) -> Cue:
    return lambda day: holiday(day.year) == day


def is_weekday(number: int) -> Cue:
    return lambda day: day.weekday() == number


def allowed(maximum: int = 550) -> list[int]:
    """Every shift that the program may choose, as documented: days back, no whole weeks, no whole year."""
    return [days for days in range(1, maximum + 1) if days % 7 and abs(days - 365.2425) >= 2]


def posterior(text: str, shift: int, cues: Sequence[Cue] | None = None) -> float:
    """The attacker's probability of the true shift: uniform over the shifts that agree with every cue.

    If none agrees, or there is no cue, it is uniform over all.
    """
    every = allowed()
    day = dates_in(text)[0]
    applied = cues_in(text) if cues is None else cues
    last = date.max.toordinal() - day.toordinal()
    fit = [s for s in every if s <= last and all(agrees(day + timedelta(s)) for agrees in applied)] or every
    return (shift in fit) / len(fit)


BIRTHS: tuple[int, ...] = tuple(days for days in range(-182, 183) if abs(days) > 1)
"""The offsets of the birth of an adult."""


@cache
def bases(offset: int, maximum: int = 550) -> tuple[int, ...]:
    """Every possible base of a patient: all of its shifts are allowed."""
    shifts = set(allowed(maximum))
    return tuple(base for base in range(1, maximum + 1) if all(base + n in shifts for n in range(offset + 1)))


def birth_candidates(shown: Iterable[date], offsets: Iterable[int] = BIRTHS) -> set[date]:
    """The births of an adult that agree with every published one; ``shown`` is not empty."""
    known = tuple(offsets)
    return set.intersection(*({day - timedelta(days) for days in known} for day in shown))


def event_candidates(surrogates: Iterable[date], offset: int, maximum: int = 550) -> set[date]:
    """The true days of a date that repeats: some base explains every surrogate of it."""
    seen = {day.toordinal() for day in surrogates}
    found = set()
    for base in bases(offset, maximum):
        for day in range(max(seen) + base, min(seen) + base + offset + 1):
            if all(base <= day - new <= base + offset for new in seen):
                found.add(date.fromordinal(day))
    return found


NamePair = tuple[str, str]
"""An original and a sign of its surrogate, such as its initial."""


def guess_by_sign(known: Sequence[NamePair], attacked: Sequence[NamePair]) -> list[bool]:
    """For each attacked pair, whether the best guess learned from ``known`` is right."""
    learned: dict[str, Counter[str]] = defaultdict(Counter)
    for original, sign in known:
        learned[sign][original] += 1
    overall = Counter(original for original, _ in known).most_common(1)[0][0]
    guesses = {sign: counts.most_common(1)[0][0] for sign, counts in learned.items()}
    return [guesses.get(sign, overall) == original for original, sign in attacked]


def guess_by_rank(attacked: Sequence[NamePair], expected: Counter[str]) -> list[bool]:
    """Frequency analysis: the n-th most frequent surrogate replaces the n-th most frequent original."""
    ranked = [value for value, _ in Counter(new for _, new in attacked).most_common()]
    guess = dict(zip(ranked, (value for value, _ in expected.most_common()), strict=False))
    return [guess.get(new) == old for old, new in attacked]
