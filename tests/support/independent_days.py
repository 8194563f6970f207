"""Reads days that are written in full, without the product's calendar code: for checks of intervals and weekdays."""

import re
from collections.abc import Collection
from datetime import date, timedelta

_ENGLISH = [f"{date(2001, month, 1):%B}".lower() for month in range(1, 13)]
_MONTHS = {name[:size]: n + 1 for n, name in enumerate(_ENGLISH) for size in {3, 4, len(name)} if len(name) >= size}
_WEEKDAYS = [f"{date(2001, 1, day):%A}".lower() for day in range(1, 8)]  # 1 January 2001 was a Monday
_DAY_NAMES = {name[:size]: n for n, name in enumerate(_WEEKDAYS) for size in (2, 3, 4, 5, len(name))} | {"weds": 2}
_LEAD = r"(?:(?P<weekday>[A-Za-z]{2,9})\.?,?\s+(?:the\s+)?)?"
_YEAR = r"(?P<year>\d{4}|['’]?\d\d)"
_FORMS = (
    re.compile(rf"{_LEAD}(?P<year>\d{{4}})(?P<s>[-/.])(?P<month>\d\d?)(?P=s)(?P<day>\d\d?)(?:T.*)?"),
    re.compile(r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?:\d{2,6}(?:\.\d+)?)?(?:[-+]\d{4})?"),
    re.compile(rf"{_LEAD}(?P<one>\d\d?)\s?(?P<s>[-/.])\s?(?P<two>\d\d?)\s?(?P=s)\s?(?P<year>\d{{4}}|\d\d)"),
    re.compile(rf"{_LEAD}(?P<name>[A-Za-z]{{3,9}})\.?\s+(?P<day>\d\d?)(?:st|nd|rd|th)?(?:,\s*|\s+){_YEAR}"),
    re.compile(rf"{_LEAD}(?P<day>\d\d?)(?:st|nd|rd|th)?[-\s]*(?:of\s+)?(?P<name>[A-Za-z]{{3,9}})\.?,?[-\s]*{_YEAR}"),
)


def read(text: str, *, day_first: bool | None = None) -> tuple[date, int | None] | None:
    """The day that ``text`` writes in full, two-digit years in 1931 to 2030, and the weekday it names (Monday is 0).

    ``day_first`` is for two numbers of which both may be a month; if it is None, 3.4.2019 is in April and
    3/4/2019 in March. A value with anything else in it is not read.
    """
    flat = " ".join(text.split())
    for found in (found for form in _FORMS if (found := form.fullmatch(flat))):
        parts = found.groupdict()
        named = (parts.get("weekday") or "").lower()
        weekday = _DAY_NAMES.get(named)
        day = _day(parts, day_first=day_first)
        if day is not None and (weekday is not None or not named):
            return day, weekday
    return None


def order(texts: Collection[str], known: Collection[date]) -> bool | None:
    """True if these dates put the day first: by dates with a year, then by ``known`` days, then by the others."""
    whole, short = (
        sum((int(one) > 12) - (int(two) > 12) for text in texts for one, two in form.findall(text))
        for form in (_WHOLE, _SHORT)
    )
    pairs = [(read(text, day_first=False), read(text, day_first=True)) for text in texts if _WHOLE.search(text)]
    known_score = sum(_is_known(b[0], known) - _is_known(a[0], known) for a, b in pairs if a and b)
    votes = whole or known_score or short
    return votes > 0 if votes else None


def _is_known(day: date, known: Collection[date]) -> bool:
    """In any century: born in 1929, written 10/4/29."""
    return any((day.month, day.day, day.year % 100) == (k.month, k.day, k.year % 100) for k in known)


_WHOLE = re.compile(r"(?<![\d/.-])([0-3]?\d)[-/.]([0-3]?\d)[-/.](?:\d{4}|\d\d)(?!\d)")
_SHORT = re.compile(r"(?<![\d/.-])([0-3]?\d)[-/.]([0-3]?\d)(?![\d/-]|\.\d)")


def days_between(new: date, old: date) -> timedelta:
    """``new - old``; the smallest if two-digit years leave the century of ``new`` open."""
    leap = new.month == 2 and new.day == 29
    candidates = [new] if leap else [new.replace(year=new.year + add) for add in (-100, 0, 100)]
    return min((day - old for day in candidates), key=abs)


def _day(parts: dict[str, str], *, day_first: bool | None) -> date | None:
    figures = parts["year"].lstrip("'’")
    year = int(figures) + (0 if len(figures) == 4 else 2000 if int(figures) <= 30 else 1900)
    if parts.get("name"):
        month, day = _MONTHS.get(parts["name"].lower(), 0), int(parts["day"])
    elif parts.get("one"):
        month, day = int(parts["one"]), int(parts["two"])
        swapped = parts["s"] == "." if day_first is None else day_first
        if month > 12 or (swapped and day <= 12):
            month, day = day, month
    else:
        month, day = int(parts["month"]), int(parts["day"])
    try:
        return date(year, month, day)
    except ValueError:
        return None
