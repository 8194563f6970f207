"""Replacements without a secret: masks, and generalization by HIPAA Safe Harbor (45 CFR 164.514(b)(2))."""

import re
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from deid_agent.model import PhiType
from deid_agent.surrogate.calendars import Shift
from deid_agent.surrogate.numeric_dates import shift_numeric_date

OLDEST = 90
"""Ages over 89 are one category (45 CFR 164.514(b)(2)(i)(C))."""
_NUMBER = re.compile(
    r"(?<![\d.,])\d{2,3}(?:[.,]\d+)?(?![\d.,]*\d)"  # 92.5 is an age over 89, 92.5.1 is a version
    r"(?!\s*(?:['’]?s\b|(?-i:[mwdh])\b|mo|wk|week|month|day|hr|hour|min))",  # 92 m are months, 92 M is a man
    re.I,
)
_SPELLED = re.compile(
    r"(?i)ninet|hundred|nonagen|centenarian|\b9\ds\b|neunzig|hundert|novent|novant|cien|nonant|cent"
    r"|quatre[- ]vingt[- ](?:[dot]|qu|se)"
)
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_WORDS = re.compile(
    rf"(?:one|a)[\s-]+hundred(?:[\s-]+(?:and[\s-]+)?[a-z]+)?|hundred|ninety(?P<tie>[\s-]+)(?:{_ONES})\b", re.I
)


def generalize_age(value: str) -> str:
    """``value`` with 90 for every age over 89, in digits or words as the original. Decades (late 90s) stay."""
    value = _NUMBER.sub(lambda m: str(OLDEST) if _years(m) > OLDEST else m[0], value)
    return _WORDS.sub(lambda m: _cased(m[0]), value)


def is_over_89(value: str) -> bool:
    """True if ``value`` contains an age of 90 or more."""
    number = any(_years(m) >= OLDEST for m in _NUMBER.finditer(value))
    return number or bool(_SPELLED.search(value))


def _years(found: "re.Match[str]") -> float:
    return float(found[0].replace(",", "."))


def _cased(original: str) -> str:
    if original.isupper():
        return "NINETY"
    return "Ninety" if original[0].isupper() else "ninety"


RESTRICTED_ZIP3 = frozenset(
    [
        "036",
        "059",
        "063",
        "102",
        "203",
        "556",
        "692",
        "790",
        "821",
        "823",
        "830",
        "831",
        "878",
        "879",
        "884",
        "890",
        "893",
    ]
)
"""ZIP prefixes with 20,000 people or fewer (OCR guidance on 45 CFR 164.514(b), census of 2000)."""

_YEAR = re.compile(r"(?<!\d)(?:1[89]|20|21)\d\d(?!\d)")
_STRUCTURED = re.compile(r"(\d{4})(?:(?:\d\d){0,5}(?:\.\d+)?(?:[+-]\d{4})?|-\d\d(?:-\d\d(?:T.*)?)?)", re.DOTALL)
_SHORT_YEAR = re.compile(r"['’](\d\d)(?!\d)")


def mask(type_: PhiType) -> str:
    """The mask of a type, such as ``[**DATE**]``. It has no character that HL7 or FHIR reserves."""
    return f"[**{type_}**]"


def generalize(type_: PhiType, value: str, *, blank: str | None = None, now: int | None = None) -> str:
    """The part of a value that HIPAA Safe Harbor allows, else ``blank`` (the mask by default).

    A date becomes its year, a ZIP code its first three digits (000 for small populations), and an age over 89 becomes
    "90 or older". Younger ages, states and countries stay. A year more than 90 years before ``now``, the year of the
    message, reveals an age over 89 (45 CFR 164.514(b)(2)(i)(C)). All such years become the ninetieth year before
    ``now``: the rule's "single category of age 90 or older" in a form that a typed field can hold. Without ``now``
    they stay.
    """
    none = mask(type_) if blank is None else blank
    core = value.strip()
    match type_:
        case PhiType.DATE:
            year = _year(core)
            if year and now is not None and int(year) > now + 1 and year not in core:
                year = str(int(year) - 100)  # 28 in a document of 2026 is 1928
            if year and now is not None and int(year) < now - OLDEST:
                return f"{now - OLDEST:04d}"
            return year or none
        case PhiType.ZIP:
            found = re.fullmatch(r"(\d{3})\d{2}(?:[- ]?\d{4})?", core)
            return ("000" if found[1] in RESTRICTED_ZIP3 else found[1]) if found else none
        case PhiType.AGE:
            return "90 or older" if is_over_89(core) else value
        case PhiType.STATE | PhiType.COUNTRY:
            return value
        case _:
            return none


def _year(text: str) -> str | None:
    """The year of a date in four digits; None if it has no year."""
    if (found := _STRUCTURED.fullmatch(text)) and 1800 <= int(found[1]) < 2200 and len(text) != 6:
        return found[1]
    no_shift = Shift(0)
    if (date := shift_numeric_date(text, no_shift)) and (date.whole or _YEAR.search(text) or len(text) == 6):
        return f"{date.day.year:04d}"
    if found := _YEAR.search(text):
        return found[0]
    if found := _SHORT_YEAR.search(text):
        return f"{no_shift.full_year(int(found[1])):04d}"
    return None


class Period(StrEnum):
    """The precision that remains of a coarsened time."""

    DAY = "day"
    WEEK = "week"
    YEAR = "year"


_TIMED = re.compile(
    r"(\d{4})(-?)(\d\d)(?:-?(\d\d))?([T ]?)(?:(\d\d)(?::?(\d\d)(?::?(\d\d)(\.\d+)?)?)?)?(Z|[+-]\d\d:?\d\d)?"
)
_ZONE = re.compile(r"[+-](\d\d):?(\d\d)")
_FIGURE = re.compile(r"\d")


def coarsen_date(value: str, period: Period) -> str | None:
    """The first moment of the period (day, week from Monday, year) of an HL7 or FHIR time, in the same form.

    A time with a zone is counted in UTC and written with the zone as zero (``Z``, ``+0000``), so that it is a valid
    time of its type. A value that is already coarser stays: 2024 by day, 202403 by week. None if it is not a time.
    """
    core = value.strip()
    if re.fullmatch(r"\d{4}", core):
        return value
    found = _TIMED.fullmatch(core)
    if found is None or (found[6] is None and found[5]) or (found[4] is None and found[6]):  # T alone, no day
        return None
    year, dash, month, day, mark, hour, minute, _, _, zone = found.groups()
    try:
        moment = datetime(int(year), int(month), int(day or 1), int(hour or 0), int(minute or 0), tzinfo=UTC)
        if zone and zone != "Z" and (offset := _ZONE.fullmatch(zone)):
            away = timedelta(hours=int(offset[1]), minutes=int(offset[2]))
            moment += away if zone[0] == "-" else -away
    except (ValueError, OverflowError):
        return None
    if day is None:
        return f"{year}{dash}01" if period is Period.YEAR else value
    begin = _begin(moment.date(), period)
    time = _FIGURE.sub("0", core[found.end(5) : found.start(10) if zone else len(core)])
    away_from_zero = "" if not zone else "Z" if zone == "Z" else _FIGURE.sub("0", f"+{zone[1:]}")
    return f"{begin.year:04d}{dash}{begin.month:02d}{dash}{begin.day:02d}{mark}{time}{away_from_zero}"


def _begin(day: date, period: Period) -> date:
    match period:
        case Period.DAY:
            return day
        case Period.WEEK:
            return date.fromordinal(max(day.toordinal() - day.weekday(), 1))
        case Period.YEAR:
            return date(day.year, 1, 1)
