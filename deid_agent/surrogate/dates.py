"""Date shift: moves a date in any written form by whole days and writes it in the same form.

The shift of an event is negative. Its surrogate is never later than its original, so no date of a message lies in the
future (Zuccon et al. 2014, section 4.2, asks for an allowed range). The number of days between any two whole dates of
a document is preserved, except for dates of birth (``calendars.birth_shift``).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent.surrogate.calendars import Calendar, Shift, Style, format_day, format_weekday, format_word, make_date
from deid_agent.surrogate.numeric_dates import shift_numeric_date
from deid_agent.surrogate.shape import fold, join_lines, restore_line_breaks
from deid_agent.surrogate.word_dates import shift_word_date

_LONGEST = 100
_BLANK_DATE = re.compile(r"(?=.*0)[0\-/: .T]+|[\-/: .]+|9{8,14}")  # 00000000, 99999999: a date left blank, not PHI
_NUMBERS = re.compile(
    r"(?P<y>\d{4})(?P<s>[-/]?)(?P<m>\d\d)(?P=s)(?P<d>\d\d)(?:[T ]?\d\d(?::?\d\d)*(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?|Z)?"
    r"|(?P<m2>\d\d?)/(?P<d2>\d\d?)/(?P<y2>\d{4})"
)
DEFAULTS = frozenset(
    date(*day)
    for day in (
        *((1, 1, 1), (1753, 1, 1), (1800, 1, 1), (1840, 12, 31), (1858, 11, 17)),  # .NET, SQL Server, MUMPS, VMS
        *((1899, 12, 30), (1899, 12, 31), (1900, 1, 1)),  # spreadsheets, unknown dates of birth
        *((2099, 12, 31), (2199, 12, 31), (2999, 12, 31), (9999, 1, 1), (9999, 12, 31)),  # open end
    )
)
"""Days that programs write for no date. They are kept: a shifted one would reveal the shift to anyone who knows it."""
_TIME_WITHOUT_DAY = re.compile(r"\d{4}(?:-\d{1,2})?\s?(?:[Tt].*|Z)", re.DOTALL)  # 2019T10:00: a time without a day
_MISREAD = str.maketrans("lIoO", "1100")
_MISREAD_WORD = re.compile(r"(?<![^\W\d_])[\dlIoO]+(?=(?:st|nd|rd|th)?(?![^\W\d_]))")
_MISREAD_ONLY = re.compile(r"[\dlIoO/.\-' ]+")


def shift_date(text: str, shift: Shift, calendar: Calendar) -> str | None:
    """``text`` shifted in its own form; None if it is not a date (13/45/99, 2019T10:00)."""
    if len(text) > _LONGEST or _TIME_WITHOUT_DAY.fullmatch(text):
        return None
    if _BLANK_DATE.fullmatch(text) or _is_default(text):
        return text
    if not text.isascii() and (digits := _find_foreign_zero(text)):
        plain = "".join(str(unicodedata.decimal(c)) if unicodedata.decimal(c, -1) >= 0 else c for c in text)
        new = _read(plain, shift, calendar)
        return new and "".join(chr(digits + int(c)) if c in "0123456789" else c for c in new)
    return _read(text, shift, calendar)


def _is_default(text: str) -> bool:
    found = _NUMBERS.fullmatch(text)
    if not found:
        return False
    parts = found.group("y", "m", "d") if found["y"] else found.group("y2", "m2", "d2")
    return make_date(*map(int, parts)) in DEFAULTS


def _read(text: str, shift: Shift, calendar: Calendar) -> str | None:
    if found := shift_numeric_date(text, shift):
        return found.text
    if new := shift_word_date(text, shift, calendar):
        return new
    one_line = join_lines(text)
    if one_line != text and (new := _read(one_line, shift, calendar)):
        return restore_line_breaks(text, new)
    clear = _correct_misread(text)
    return _read(clear, shift, calendar) if clear != text else None


def _correct_misread(text: str) -> str:
    """``text`` with letters that a scan has put for digits (l2/27/O3) as digits."""
    if _MISREAD_ONLY.fullmatch(text):
        return text.translate(_MISREAD)
    text = re.sub(r"(?i)(?<!\w)0(?=ct)", "O", text)
    return _MISREAD_WORD.sub(lambda m: m[0].translate(_MISREAD) if re.search(r"\d", m[0]) else m[0], text)


def _find_foreign_zero(text: str) -> int | None:
    """The code point of zero in the script of the first decimal digit that is not ASCII."""
    return next((ord(c) - unicodedata.decimal(c) for c in text if not c.isascii() and c.isdecimal()), None)


@dataclass(frozen=True, slots=True)
class _Reader(Shift):
    """A shift by no days that notes each day that it is asked to move."""

    read: list[date] = field(default_factory=list, repr=False)

    def move(self, day: date) -> date:
        self.read.append(day)
        return day


def read_day(text: str, reference: date | None, day_first: bool | None, calendar: Calendar) -> date | None:
    """The day that ``shift_date`` would move; None if it would move none. See ``Shift`` for the other arguments."""
    reader = _Reader(0, reference, day_first)
    return reader.read[-1] if shift_date(text, reader, calendar) and reader.read else None


# Expressions of several days: March 4-9, 2019; 28 March to 3 April 2019; 12/28-1/3/2019; the 4th to 9th of May.
#
# A day without its month or year takes it from the other days, so that all are shifted by the same number of days. The
# years of 2016-17 are handled likewise. Each day keeps its form. A day without a month gets one if the shift moves it
# into another month than the day it took the month from (March 29-April 3, 2019).

_GAP = re.compile(
    r"(?P<range>\s{0,2}[-–—]{1,2}\s{0,2}|\s{1,2}(?:to|through|thru|until|till|au|al|bis)\s{1,2}(?:the\s)?)"
    r"|\s?/\s?|\s?&\s?|,?\s{1,2}and\s{1,2}(?:the\s)?|,\s{0,2}",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\s?\(\s?|\s(?:(?:on|was)\s)?")  # Easter (4/1/2018)
_DAY = r"(?P<day>\d{1,2}(?:st|nd|rd|th)?)"
_MONTH = r"(?P<month>[^\W\d_]{3,12}\.?)"
_YEAR_SERIES = r"(?P<year>\d{4}|['’]\d{2})"
_WEEKDAY = r"(?:[^\W\d_]{3,12}\.?,?\s+(?:the\s+)?)?"
_MONTH_FIRST = re.compile(
    rf"{_WEEKDAY}{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR_SERIES}|,{_YEAR_SERIES.replace('year', 'year2')})?", re.IGNORECASE
)
_DAY_FIRST = re.compile(
    rf"{_WEEKDAY}{_DAY}(?P<of>\s+of)?\s+{_MONTH}(?:,?\s+(?P<year>\d{{4}}|['’]?\d{{2}}))?", re.IGNORECASE
)
_BARE = re.compile(rf"{_DAY}(?:,?\s*{_YEAR_SERIES})?", re.IGNORECASE)
_SLASHED = re.compile(r"(?P<day>\d{1,2})/(?P<year>\d{4})")
_WHOLE_YEAR, _SHORT_YEAR = re.compile(r"(?:19|20)\d\d"), re.compile(r"\d\d")
_MONTH_DAY = re.compile(r"\d{1,2}([/.])\d{1,2}")


@dataclass(frozen=True, slots=True)
class _Day:
    """One day of an expression. ``lead`` is its form: month first, day first, numbers, slashed, or bare."""

    text: str = field(repr=False)
    lead: str
    day: int
    month: int | None = None
    year: int | None = None
    style: Style | None = None
    word: str = field(default="", repr=False)
    of: str = field(default="", repr=False)


def connects_days(gap: str) -> bool:
    """True if ``gap`` connects two days of one expression, or a holiday and its date."""
    return _GAP.fullmatch(gap) is not None or _ASIDE.fullmatch(gap) is not None


def shift_series(texts: Sequence[str], gaps: Sequence[str], shift: Shift, calendar: Calendar) -> list[str | None]:
    """The shifted text of each day; None for a day that depends on no other and can be shifted alone.

    ``gaps[i]`` is the text between ``texts[i]`` and ``texts[i + 1]``. A result is empty for a day that does not exist.
    """
    days = [_read_day(text, shift, calendar) for text in texts]
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
                out += _shift_run(run, ranges, shift, calendar)
            start = end
    for n, text in enumerate(texts):
        if calendar.holiday.fullmatch(text):
            out[n] = _replace_holiday(text, [day for day in days[max(n - 1, 0) : n + 2] if day], shift, calendar)
    for n in range(1, len(texts)):
        out[n] = out[n] if out[n] is not None else _range_end(texts[n - 1], gaps[n - 1], texts[n], shift)
    return out


def _replace_holiday(holiday: str, beside: Sequence[_Day], shift: Shift, calendar: Calendar) -> str | None:
    """The weekday of the date beside a holiday (see ``word_dates``); None if the holiday has no date beside it."""
    found = (make_date(day.year, day.month, day.day) for day in beside if day.year and day.month)
    date = next(filter(None, found), None)
    return format_weekday(holiday, shift.move(date), calendar) if date else None


def _range_end(first: str, gap: str, last: str, shift: Shift) -> str | None:
    """The shifted 17 of 2016-17; None if ``last`` is not a year of that form."""
    found = _GAP.fullmatch(gap)
    if not (_WHOLE_YEAR.fullmatch(first) and _SHORT_YEAR.fullmatch(last) and found) or "," in gap:
        return None
    base = shift.representative_day(int(first) + (int(last) - int(first)) % 100)
    return f"{shift.move(base).year % 100:02d}" if base else None


def _read_day(text: str, shift: Shift, calendar: Calendar) -> _Day | None:
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
    number = shift_numeric_date(text, replace(shift, days=0))
    if number is not None and number.whole:
        return _Day(text, "numbers", number.day.day, number.day.month, number.day.year)
    if number is not None and _MONTH_DAY.fullmatch(text):
        return _Day(text, "numbers", number.day.day, number.day.month)
    return None


def _shift_run(days: list[_Day], ranges: list[bool], shift: Shift, calendar: Calendar) -> list[str | None]:
    """The days of one expression, completed and shifted. See ``shift_series`` for empty texts and None."""
    lenders = [_find_lender(days, n) for n in range(len(days))]
    months = [day.month if lender is None else days[lender].month for day, lender in zip(days, lenders, strict=True)]
    has_year = any(day.year for day in days)
    alone = all(day.year for day in days) or not (has_year or any(ranges))  # Dec 28-Jan 3 is six days, in whatever year
    if None in months or (lenders == [None] * len(days) and alone):
        return [None] * len(days)
    places = [(month or 0, day.day) for month, day in zip(months, days, strict=True)]
    years = _years(days, places, ranges, shift)
    full = [year and make_date(year, *place) for year, place in zip(years, places, strict=True)]
    out: list[str | None] = []
    for n, (day, base) in enumerate(zip(days, full, strict=True)):
        if years[n] is None:
            out.append(None)
        elif not base:
            out.append("")
        elif (lender := lenders[n]) is None:
            out.append(shift_date(day.text, replace(shift, reference=base), calendar))
        else:
            near = full[lender]
            new = shift.move(base)
            named = not near or shift.move(near).month != new.month
            out.append(_written(day, new, days[lender], calendar, named=named))
    return out


def _find_lender(days: list[_Day], n: int) -> int | None:
    """The index of the day whose month day ``n`` takes; None if it has its own.

    That is the last day before it if that one puts the month first, else the next day with a month, else any.
    """
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
    """The year of each day: its own, else that of the next day, else that of the day before it in a range."""
    years = [day.year for day in days]
    if not any(years):
        anchor = next(n for n, day in enumerate(days) if day.month is not None)
        near = shift.nearest(*places[anchor])
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
    """A day without its own month, in its form. ``named``: with the month, in the form of ``lender``."""
    width = "02d" if day.text.startswith("0") or lender.text.startswith("0") else "d"
    if day.lead == "slashed":
        return f"{f'{new.month:{width}}/' if named else ''}{new.day:{width}}/{new.year:04d}"
    found = _BARE.fullmatch(day.text)
    if found is None:
        return ""
    number = f"{new.day:02d}" if lender.style is None else format_day(found["day"], new.day)
    between, year = day.text[found.end("day") : found.start("year")] if found["year"] else "", ""
    if found["year"]:
        year = f"{new.year:04d}" if len(found["year"]) == 4 else f"{found['year'][0]}{new.year % 100:02d}"
    if named:
        if lender.style is None:  # ISO 8601-1, 5.5.2.4: 2019-03-29/04-02
            number = f"{new.month:02d}-{new.day:02d}"
        else:
            month = format_word(lender.word, calendar.name_at(lender.style, new.month - 1))
            number = f"{month} {number}" if lender.lead == "month" else f"{number}{lender.of} {month}"
    return f"{number}{between}{year}"


def _figures(text: str) -> int:
    return int("".join(c for c in text if c.isdecimal()))


def _year(text: str | None, shift: Shift) -> int | None:
    if not text:
        return None
    figures = text.lstrip("'’")
    return int(figures) if len(figures) == 4 else shift.full_year(int(figures))
