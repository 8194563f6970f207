"""Date shift: every written form of a date, moved by whole days, written as it was.

The shift of a scope is negative: a surrogate date is never later than its original, so
nothing of a message comes to lie in its future (Zuccon et al. 2014, section 4.2, asks for an allowed range). Between
any two whole dates of a scope the number of days is exact.
"""

import re
import unicodedata
from datetime import date
from functools import lru_cache

from deid_agent.surrogate.calendars import Calendar, Shift, valid
from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.numeric_dates import numeric_date
from deid_agent.surrogate.shape import flat, with_breaks_of
from deid_agent.surrogate.word_dates import word_date

_LONGEST = 100
_LEFT_OUT = re.compile(r"(?=.*0)[0\-/: .T]+|[\-/: .]+|9{8,14}")  # 00000000, 99999999: no date, nothing to hide
_NUMBERS = re.compile(
    r"(?P<y>\d{4})(?P<s>[-/]?)(?P<m>\d\d)(?P=s)(?P<d>\d\d)(?:[T ]?\d\d(?::?\d\d)*(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?|Z)?"
    r"|(?P<m2>\d\d?)/(?P<d2>\d\d?)/(?P<y2>\d{4})"
)
DEFAULTS = frozenset(
    date(*day)
    for day in (
        *((1, 1, 1), (1753, 1, 1), (1800, 1, 1), (1840, 12, 31), (1858, 11, 17)),  # .NET, SQL Server, MUMPS, VMS
        *((1899, 12, 30), (1899, 12, 31), (1900, 1, 1)),  # spreadsheets, and births that nobody knows
        *((2099, 12, 31), (2199, 12, 31), (2999, 12, 31), (9999, 1, 1), (9999, 12, 31)),  # without an end
    )
)
"""Days that programs write for none. They stay: shifted, each would tell the shift to whoever knows it."""
_TORN = re.compile(r"\d{4}(?:-\d{1,2})?\s?(?:[Tt].*|Z)", re.DOTALL)  # 2019T10:00: a time without its day
_YEAR = 365.2425
_MISREAD = str.maketrans("lIoO", "1100")
_MISREAD_WORD = re.compile(r"(?<![^\W\d_])[\dlIoO]+(?=(?:st|nd|rd|th)?(?![^\W\d_]))")
_MISREAD_ONLY = re.compile(r"[\dlIoO/.\-' ]+")


def shift_days(key: Key, scope: str, *, maximum: int, weeks: bool) -> int:
    """A number in [-maximum, -1], the same for all dates of the scope.

    Whole weeks where ``weeks`` is set; otherwise no multiple of 7, and in either case
    no number of days after which some date keeps its month and day.
    """
    allowed = _allowed(maximum, weeks)
    return -allowed[key.index(len(allowed), "shift", scope)]


@lru_cache(maxsize=16)
def _allowed(maximum: int, weeks: bool) -> tuple[int, ...]:
    return tuple(days for days in range(1, maximum + 1) if (days % 7 == 0) == weeks and not _whole_years(days))


def shifted(text: str, shift: Shift, calendar: Calendar) -> str | None:
    """``text`` shifted in its own form, or None where it is no date (13/45/99, 2019T10:00)."""
    if len(text) > _LONGEST or _TORN.fullmatch(text):
        return None
    if _LEFT_OUT.fullmatch(text) or _is_default(text):
        return text
    if not text.isascii() and (digits := _foreign_zero(text)):
        plain = "".join(str(unicodedata.decimal(c)) if unicodedata.decimal(c, -1) >= 0 else c for c in text)
        new = _read(plain, shift, calendar)
        return new and "".join(chr(digits + int(c)) if c in "0123456789" else c for c in new)
    return _read(text, shift, calendar)


def _is_default(text: str) -> bool:
    found = _NUMBERS.fullmatch(text)
    if not found:
        return False
    parts = found.group("y", "m", "d") if found["y"] else found.group("y2", "m2", "d2")
    return valid(*map(int, parts)) in DEFAULTS


def _read(text: str, shift: Shift, calendar: Calendar) -> str | None:
    if found := numeric_date(text, shift):
        return found.text
    if new := word_date(text, shift, calendar):
        return new
    one_line = flat(text)
    if one_line != text and (new := _read(one_line, shift, calendar)):
        return with_breaks_of(text, new)
    clear = _reread(text)
    return _read(clear, shift, calendar) if clear != text else None


def _reread(text: str) -> str:
    """Scanned digits that became letters (l2/27/O3) as digits again."""
    if _MISREAD_ONLY.fullmatch(text):
        return text.translate(_MISREAD)
    text = re.sub(r"(?i)(?<!\w)0(?=ct)", "O", text)
    return _MISREAD_WORD.sub(lambda m: m[0].translate(_MISREAD) if re.search(r"\d", m[0]) else m[0], text)


def _foreign_zero(text: str) -> int | None:
    """The zero of the first decimal digit that is not ASCII."""
    return next((ord(c) - unicodedata.decimal(c) for c in text if not c.isascii() and c.isdecimal()), None)


def _whole_years(days: int) -> bool:
    years = round(days / _YEAR)
    return years > 0 and abs(days - years * _YEAR) < 2
