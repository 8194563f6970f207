"""Days that lean on their neighbours: March 4-9, 2019; 28 March to 3 April 2019; 12/28-1/3/2019; the 4th to 9th of May.

A day that leaves out its month or year takes it from the others, so that all of them move by the same number of
days in the same calendar; so do the years of 2016-17. Each is written in its own form; one without a month gets it
where the shift has brought it into another month than the day that it leaned on (March 29-April 3, 2019).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent.surrogate.calendars import Calendar, Shift, Style, valid
from deid_agent.surrogate.dates import shifted
from deid_agent.surrogate.numeric_dates import numeric_date
from deid_agent.surrogate.shape import fold
from deid_agent.surrogate.word_dates import day_like, weekday_like, word_like

_GAP = re.compile(
    r"(?P<range>\s{0,2}[-–—]{1,2}\s{0,2}|\s{1,2}(?:to|through|thru|until|till|au|al|bis)\s{1,2}(?:the\s)?)"
    r"|\s?/\s?|\s?&\s?|,?\s{1,2}and\s{1,2}(?:the\s)?|,\s{0,2}",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\s?\(\s?|\s(?:(?:on|was)\s)?")  # Easter (4/1/2018)
_DAY = r"(?P<day>\d{1,2}(?:st|nd|rd|th)?)"
_MONTH = r"(?P<month>[^\W\d_]{3,12}\.?)"
_YEAR = r"(?P<year>\d{4}|['’]\d{2})"
_WEEKDAY = r"(?:[^\W\d_]{3,12}\.?,?\s+(?:the\s+)?)?"
_MONTH_FIRST = re.compile(
    rf"{_WEEKDAY}{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR}|,{_YEAR.replace('year', 'year2')})?", re.IGNORECASE
)
_DAY_FIRST = re.compile(
    rf"{_WEEKDAY}{_DAY}(?P<of>\s+of)?\s+{_MONTH}(?:,?\s+(?P<year>\d{{4}}|['’]?\d{{2}}))?", re.IGNORECASE
)
_BARE = re.compile(rf"{_DAY}(?:,?\s*{_YEAR})?", re.IGNORECASE)
_SLASHED = re.compile(r"(?P<day>\d{1,2})/(?P<year>\d{4})")
_WHOLE_YEAR, _SHORT_YEAR = re.compile(r"(?:19|20)\d\d"), re.compile(r"\d\d")
_MONTH_DAY = re.compile(r"\d{1,2}([/.])\d{1,2}")


@dataclass(frozen=True, slots=True)
class _Day:
    """What one text says of its day; ``lead`` is how it is written: month first, day first, numbers, or bare."""

    text: str = field(repr=False)
    lead: str
    day: int
    month: int | None = None
    year: int | None = None
    style: Style | None = None
    word: str = field(default="", repr=False)
    of: str = field(default="", repr=False)


def connects(gap: str) -> bool:
    """True where ``gap`` may stand between two days of one expression, or between a holiday and its date."""
    return _GAP.fullmatch(gap) is not None or _ASIDE.fullmatch(gap) is not None


def moved(texts: Sequence[str], gaps: Sequence[str], shift: Shift, calendar: Calendar) -> list[str | None]:
    """The shifted text of each day; None for one that leans on no other, and so is shifted alone.

    ``gaps[i]`` stands between ``texts[i]`` and ``texts[i + 1]``. An empty text stands for a day that does not exist.
    """
    days = [_told(text, shift, calendar) for text in texts]
    out: list[str | None] = []
    start = 0
    for end in range(1, len(days) + 1):
        if end == len(days) or days[end] is None or days[end - 1] is None or not _GAP.fullmatch(gaps[end - 1]):
            run = [day for day in days[start:end] if day is not None]
            if len(run) < 2:
                out += [None] * (end - start)
            else:
                ranges = [
                    (found := _GAP.fullmatch(gap)) is not None and found["range"] is not None
                    for gap in gaps[start : end - 1]
                ]
                out += _run(run, ranges, shift, calendar)
            start = end
    for n, text in enumerate(texts):
        if calendar.holiday.fullmatch(text):
            out[n] = _weekday(text, [day for day in days[max(n - 1, 0) : n + 2] if day], shift, calendar)
    for n in range(1, len(texts)):
        out[n] = out[n] if out[n] is not None else _range_end(texts[n - 1], gaps[n - 1], texts[n], shift)
    return out


def _weekday(holiday: str, beside: Sequence[_Day], shift: Shift, calendar: Calendar) -> str | None:
    """A holiday that stands by its own date becomes that date's weekday, as ``word_dates`` says; else None."""
    found = (valid(day.year, day.month, day.day) for day in beside if day.year and day.month)
    date = next(filter(None, found), None)
    return weekday_like(holiday, shift.of(date), calendar) if date else None


def _range_end(first: str, gap: str, last: str, shift: Shift) -> str | None:
    """The 17 of 2016-17, a year and no day; None where ``last`` is none."""
    found = _GAP.fullmatch(gap)
    if not (_WHOLE_YEAR.fullmatch(first) and _SHORT_YEAR.fullmatch(last) and found) or "," in gap:
        return None
    base = shift.within(int(first) + (int(last) - int(first)) % 100)
    return f"{shift.of(base).year % 100:02d}" if base else None


def _told(text: str, shift: Shift, calendar: Calendar) -> _Day | None:
    for lead, form in (("month", _MONTH_FIRST), ("day", _DAY_FIRST)):
        if (found := form.fullmatch(text)) and (style := calendar.months.get(fold(found["month"]))):
            written = found["year"] or (found["year2"] if lead == "month" else None)
            of = (found["of"] or "") if lead == "day" else ""
            return _Day(
                text, lead, _figures(found["day"]), style.place + 1, _year(written, shift), style, found["month"], of
            )
    if found := _BARE.fullmatch(text) or _SLASHED.fullmatch(text):
        lead = "slashed" if "/" in text else "bare"
        return _Day(text, lead, _figures(found["day"]), None, _year(found["year"], shift))
    number = numeric_date(text, replace(shift, days=0))
    if number is not None and number.whole:
        return _Day(text, "numbers", number.day.day, number.day.month, number.day.year)
    if number is not None and _MONTH_DAY.fullmatch(text):
        return _Day(text, "numbers", number.day.day, number.day.month)
    return None


def _run(days: list[_Day], ranges: list[bool], shift: Shift, calendar: Calendar) -> list[str | None]:
    """The days of one expression, completed and shifted."""
    lenders = [_lender(days, n) for n in range(len(days))]
    months = [day.month if lender is None else days[lender].month for day, lender in zip(days, lenders, strict=True)]
    told = any(day.year for day in days)
    alone = all(day.year for day in days) or not (told or any(ranges))  # Dec 28-Jan 3 is six days, in whatever year
    if None in months or (lenders == [None] * len(days) and alone):
        return [None] * len(days)
    places = [(month or 0, day.day) for month, day in zip(months, days, strict=True)]
    years = _years(days, places, ranges, shift)
    full = [year and valid(year, *place) for year, place in zip(years, places, strict=True)]
    out: list[str | None] = []
    for n, (day, base) in enumerate(zip(days, full, strict=True)):
        if years[n] is None:
            out.append(None)
        elif not base:
            out.append("")
        elif (lender := lenders[n]) is None:
            out.append(shifted(day.text, replace(shift, reference=base), calendar))
        else:
            near = full[lender]
            new = shift.of(base)
            named = not near or shift.of(near).month != new.month
            out.append(_written(day, new, days[lender], calendar, named=named))
    return out


def _lender(days: list[_Day], n: int) -> int | None:
    """The day whose month day ``n`` takes: the one before it that puts the month first, else the next, else any."""
    if days[n].month is not None:
        return None
    before = next((m for m in range(n - 1, -1, -1) if days[m].month is not None), None)
    after = next((m for m in range(n + 1, len(days)) if days[m].month is not None), None)
    if days[n].lead == "slashed":  # 3/4-9/2019; 3/14-9/2019 ends in September
        return (
            before if before is not None and days[before].lead == "numbers" and days[before].day < days[n].day else None
        )
    if before is not None and (days[before].lead == "month" or after is None):
        return before
    return after


def _years(days: list[_Day], places: list[tuple[int, int]], ranges: list[bool], shift: Shift) -> list[int | None]:
    """The year of each day: its own, else the next one's, else that of one before it in a range."""
    years = [day.year for day in days]
    if not any(years):
        anchor = next(n for n, day in enumerate(days) if day.month is not None)
        near = shift.near(*places[anchor])
        years[anchor] = near.year if near else None
        ranges = [True] * len(ranges)
    for n in range(len(days) - 2, -1, -1):
        later = years[n + 1]
        if years[n] is None and later is not None:
            years[n] = later - (places[n] > places[n + 1])
    for n in range(1, len(days)):
        earlier = years[n - 1]
        if years[n] is None and earlier is not None and (ranges[n - 1] or days[n].month is None):
            years[n] = earlier + (places[n] < places[n - 1])
    return years


def _written(day: _Day, new: date, lender: _Day, calendar: Calendar, *, named: bool) -> str:
    """A day without a month of its own, in its form; ``named``: with its month, as the day that it leans on has one."""
    width = "02d" if day.text.startswith("0") or lender.text.startswith("0") else "d"
    if day.lead == "slashed":
        return f"{f'{new.month:{width}}/' if named else ''}{new.day:{width}}/{new.year:04d}"
    found = _BARE.fullmatch(day.text)
    if found is None:
        return ""
    number = f"{new.day:02d}" if lender.style is None else day_like(found["day"], new.day)
    between, year = day.text[found.end("day") : found.start("year")] if found["year"] else "", ""
    if found["year"]:
        year = f"{new.year:04d}" if len(found["year"]) == 4 else f"{found['year'][0]}{new.year % 100:02d}"
    if named:
        if lender.style is None:  # ISO 8601-1, 5.5.2.4: 2019-03-29/04-02
            number = f"{new.month:02d}-{new.day:02d}"
        else:
            month = word_like(lender.word, calendar.written(lender.style, new.month - 1))
            number = f"{month} {number}" if lender.lead == "month" else f"{number}{lender.of} {month}"
    return f"{number}{between}{year}"


def _figures(text: str) -> int:
    return int("".join(c for c in text if c.isdecimal()))


def _year(text: str | None, shift: Shift) -> int | None:
    if not text:
        return None
    figures = text.lstrip("'’")
    return int(figures) if len(figures) == 4 else shift.full_year(int(figures))
