"""Calendar arithmetic of surrogate dates, and the words that calendars are written in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.shape import fold

_LAST = date.max.toordinal()


@dataclass(frozen=True, slots=True)
class Shift:
    """A whole number of days, and what helps to read dates that are not whole.

    ``reference`` is the message's own time, ``day_first`` the document's order of day and month where it is known.
    """

    days: int
    reference: date | None = field(default=None, repr=False)
    day_first: bool | None = None

    def of(self, day: date) -> date:
        """``day`` moved; the other way where it would leave the years 1 to 9999."""
        moved = day.toordinal() + self.days
        return date.fromordinal(moved if 1 <= moved <= _LAST else day.toordinal() - self.days)

    def near(self, month: int, day: int) -> date | None:
        """The day of that month nearest to the reference (2001 or, for 29 February, 2000 without one)."""
        base = self.reference.year if self.reference else 2001
        found = [d for year in (base, base - 1, base + 1, base - 2, base - 3) if (d := valid(year, month, day))]
        if self.reference is None:
            return found[0] if found else None
        near = self.reference.toordinal()
        return min(found, key=lambda d: abs(d.toordinal() - near), default=None)

    def within(self, year: int, month: int | None = None) -> date | None:
        """A day that stands for a month or a year: the reference's own where it lies there, else the middle."""
        ref = self.reference
        if ref and ref.year == year and month in (None, ref.month):
            return ref
        return valid(year, month or 7, 15 if month else 2)

    def full_year(self, two_digits: int) -> int:
        """The year that '98 means: not after next year, so far as the reference says what year it is."""
        limit = (self.reference.year if self.reference else 2030) + 1
        century = limit - limit % 100
        return century + two_digits if century + two_digits <= limit else century - 100 + two_digits


def valid(year: int, month: int, day: int) -> date | None:
    """The date, or None where there is none."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Style:
    """How a month or weekday was written: language list, full (0) or short (1) form, and which one it is (from 0)."""

    language: str
    form: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """Calendar words, folded; ``names`` holds every list by language for writing."""

    months: Mapping[str, Style] = field(repr=False)
    weekdays: Mapping[str, Style] = field(repr=False)
    names: Mapping[str, tuple[str, ...]] = field(repr=False)
    seasons: Mapping[str, int] = field(repr=False)
    ordinals: Mapping[str, int] = field(repr=False)
    decades: Mapping[str, int] = field(repr=False)
    fillers: frozenset[str] = field(repr=False)
    holidays: Mapping[str, str] = field(repr=False)
    holiday: "re.Pattern[str]" = field(repr=False)
    targets: tuple[tuple[str, int], ...] = field(repr=False)

    def written(self, style: Style, place: int) -> str:
        """The month or weekday ``place`` in the same language and form."""
        return self.names[style.language][place].split("|")[style.form]


@lru_cache(maxsize=4)
def calendar_of(lists: Lists) -> Calendar:
    """The calendar words of ``rules/surrogate/dates.toml``."""
    names = {n: words for n, words in lists.phrases.items() if n.startswith(("months_", "weekdays_"))}
    seasons = {form: n for n, words in enumerate(lists.phrases["seasons"]) for form in words.split("|")}
    holidays = dict(lists.tables["holidays"])
    longest = sorted(holidays, key=lambda phrase: (-len(phrase), phrase))
    pattern = "|".join(re.escape(phrase).replace("\\ ", r"\s+").replace("'", "['’]") for phrase in longest)
    return Calendar(
        months=_styles(names, "months_"),
        weekdays=_styles(names, "weekdays_"),
        names=names,
        seasons=seasons | {"autumn": 3, "autumns": 3},
        ordinals={word: n + 1 for n, word in enumerate(lists.phrases["ordinals"])},
        decades={word: 20 + 10 * n for n, word in enumerate(lists.phrases["decades"])},
        fillers=lists.sets["date_fillers"],
        holidays=holidays,
        holiday=re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE),
        targets=tuple((name, day_of_year(md)) for name, md in (t.split("|") for t in lists.phrases["holiday_targets"])),
    )


def day_of_year(month_day: str) -> int:
    """The place of ``MM-DD`` in a leap year, from 1."""
    month, day = month_day.split("-")
    return date(2000, int(month), int(day)).timetuple().tm_yday


def _styles(names: Mapping[str, tuple[str, ...]], prefix: str) -> dict[str, Style]:
    """Every written form, folded; English first, a full form before a short one."""
    out: dict[str, Style] = {}
    languages = sorted((n for n in names if n.startswith(prefix)), key=lambda n: ("_en" not in n, n))
    for form in (0, 1):
        for language in languages:
            for place, pair in enumerate(names[language]):
                out.setdefault(fold(pair.split("|")[form]), Style(language, form, place))
    return out
