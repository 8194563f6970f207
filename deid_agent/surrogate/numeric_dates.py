"""Dates in digits: HL7 timestamps, ISO 8601 and FHIR, 3/4/2019, 03-04-19, 3/4/'19, 4.3.19, 3/4, 3/2019."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date

from deid_agent.surrogate.calendars import Shift, make_date

_PLAUSIBLE = range(1800, 2200)

# HL7 v2.5.1 chapter 2A, DTM: YYYY[MM[DD[HH[MM[SS[.S[S[S[S]]]]]]]]][+/-ZZZZ]
_HL7 = re.compile(r"(\d{4})(\d{2})?(\d{2})?((?:\d{2}){1,3}(?:\.\d+)?)?([+-]\d{4})?")
# FHIR R4 section 2.24.0.1: date, dateTime and instant; also a space or an hour alone before the time, or Z (xs:date)
_ISO = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2})((?:T|\s+(?=\d)).*|Z)?)?", re.DOTALL)
_SEP = r"\s?[/.\-–—]\s?"
_SEP_OR_SPACE = rf"(?:{_SEP}|\s+)"
_THREE = re.compile(
    rf"(\d{{1,4}})({_SEP_OR_SPACE})(\d{{1,2}})({_SEP_OR_SPACE}['’]?)(\d{{1,4}})(,?\s*(?:T|\s)\s*\d.*)?", re.DOTALL
)
_TWO = re.compile(rf"(\d{{1,4}})({_SEP}['’]?)(\d{{1,4}})")
_WRITTEN = re.compile(r"(?<![\d/.\-])(\d{1,2})[/.\-](\d{1,2})(?:[/.\-](\d{4}|\d\d))?(?![\d/\-]|\.\d)")
_SECOND = re.compile(r"\d\s?[/.\-–—]\s?\d{1,2}\s?[/.\-–—]\s?\d\d")  # after a date: a second date, not a time
_HAN = re.compile(r"(\d{2,4})(\s*年\s*)(\d{1,2})(\s*月\s*)(?:(\d{1,2})(\s*[日号].*)?)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundDate:
    """A shifted date: its text, its day, and ``whole``: the text has year, month and day."""

    text: str = field(repr=False)
    day: date = field(repr=False)
    whole: bool


def detect_day_first(values: Iterable[str], known: Collection[date] = ()) -> bool | None:
    """True if these dates of one document put the day before the month; None if they leave it open.

    The majority decides: first among dates with a year that have one reading only (23/01/2018), then among those that
    are a ``known`` day in one reading only, then among dates without a year (23/1).
    """
    votes = [0, 0, 0]
    for found in (found for value in values for found in _WRITTEN.finditer(value)):
        a, b, year = int(found[1]), int(found[2]), found[3]
        if a > 31 or b > 31 or a == b:
            continue
        if a > 12 or b > 12:
            votes[0 if year else 2] += (a > 12) - (b > 12)
        elif year:
            days = {(day.month, day.day) for day in known if f"{day.year:04d}".endswith(year)}
            votes[1] += ((b, a) in days) - ((a, b) in days)
    deciding = next(filter(None, votes), 0)
    return deciding > 0 if deciding else None


def shift_numeric_date(text: str, shift: Shift) -> FoundDate | None:
    """The date shifted in its own form; None if ``text`` is not a date in digits."""
    if not text[:1].isdecimal() or not text[:1].isascii():
        return None
    if len(text) == 6 and text.isdigit():
        return _packed(text, shift)
    if (hl7 := _HL7.fullmatch(text)) and text.isascii():
        return _compact(hl7, shift) or _packed(text, shift)
    forms = ((_ISO, _iso), (_THREE, _three), (_TWO, _two), (_HAN, _han))
    return next((read(found, shift) for form, read in forms if (found := form.fullmatch(text))), None)


def _compact(found: "re.Match[str]", shift: Shift) -> FoundDate | None:
    """An HL7 date with its precision and time. A day that does not exist is left out, so that the type stays valid."""
    year, month, day = (int(part) if part else None for part in found.group(1, 2, 3))
    tail = (found[4] or "") + (found[5] or "")
    if year is None or not 1 <= year <= 9999 or (tail and not (month and day)):
        return None
    if len(found[0]) in (4, 8) and year not in _PLAUSIBLE and _packed(found[0], shift):
        return None
    if month and day and (whole := make_date(year, month, day)):
        new = shift.move(whole)
        return FoundDate(f"{new.year:04d}{new.month:02d}{new.day:02d}{tail}", new, True)
    month = month if month in range(1, 13) else None
    base = shift.representative_day(year, month) if month or year in _PLAUSIBLE else None
    if base is None:
        return None
    new = shift.move(base)
    return FoundDate(f"{new.year:04d}" + (f"{new.month:02d}" if month else ""), new, False)


def _packed(text: str, shift: Shift) -> FoundDate | None:
    """Digits only: MMDDYYYY, DDMMYYYY, YYYYMM, MMDDYY, DDMMYY, YYMMDD, MMDD."""
    orders = {8: ("mdY", "dmY"), 6: ("Ym", "mdy", "dmy", "ymd"), 4: ("md",)}.get(len(text), ())
    for order in orders:
        parts: dict[str, int] = {}
        at = 0
        for mark in order:
            width = 4 if mark == "Y" else 2
            parts[mark] = int(text[at : at + width])
            at += width
        new = _packed_day(parts, shift)
        if new is None:
            continue
        written = {"Y": f"{new.year:04d}", "y": f"{new.year % 100:02d}", "m": f"{new.month:02d}", "d": f"{new.day:02d}"}
        return FoundDate("".join(written[mark] for mark in order), new, order not in ("Ym", "md"))
    return None


def _packed_day(parts: dict[str, int], shift: Shift) -> date | None:
    year = parts["Y"] if "Y" in parts else shift.full_year(parts["y"]) if "y" in parts else None
    if year is None:
        day = shift.nearest(parts["m"], parts["d"])
    elif "Y" in parts and year not in _PLAUSIBLE:
        day = None
    elif "d" in parts:
        day = make_date(year, parts["m"], parts["d"])
    else:
        day = shift.representative_day(year, parts["m"]) if 1 <= parts["m"] <= 12 else None
    return shift.move(day) if day else None


def _iso(found: "re.Match[str]", shift: Shift) -> FoundDate | None:
    year, month = int(found[1]), int(found[2])
    if not (1 <= year <= 9999 and 1 <= month <= 12) or _SECOND.search(found[4] or ""):
        return None
    whole = make_date(year, month, int(found[3])) if found[3] else None
    if whole:
        new = shift.move(whole)
        return FoundDate(f"{new.isoformat()}{found[4] or ''}", new, True)
    base = shift.representative_day(year, month)
    if base is None:
        return None
    new = shift.move(base)
    return FoundDate(f"{new.year:04d}-{new.month:02d}", new, False)


def _three(found: "re.Match[str]", shift: Shift) -> FoundDate | None:
    a, b, c = found[1], found[3], found[5]
    if _SECOND.search(found[6] or ""):
        return None
    if len(a) >= 3 or (int(a) > 31 and len(c) <= 2):
        order = "ymd"
        day = make_date(_year(a, shift), int(b), int(c))
    elif len(c) in (2, 4):
        year = _year(c, shift)
        order = _order(int(a), int(b), found[2], shift) + "y"
        month, number = (int(a), int(b)) if order[0] == "m" else (int(b), int(a))
        day = make_date(year, month, number)
    else:
        return None
    if day is None:
        return None
    new = shift.move(day)
    written = _written(order, (a, b, c), new)
    return FoundDate("".join((written[0], found[2], written[1], found[4], written[2], found[6] or "")), new, True)


def _two(found: "re.Match[str]", shift: Shift) -> FoundDate | None:
    a, b = found[1], found[3]
    for order in _two_orders(a, b, found[2], shift):
        parts = dict(zip(order, (a, b), strict=True))
        if "y" in parts:
            month = int(parts["m"])
            day = shift.representative_day(_year(parts["y"], shift), month) if 1 <= month <= 12 else None
        else:
            day = shift.nearest(int(parts["m"]), int(parts["d"]))
        if day:
            new = shift.move(day)
            written = _written(order, (a, b), new)
            return FoundDate(written[0] + found[2] + written[1], new, False)
    return None


def _two_orders(a: str, b: str, separator: str, shift: Shift) -> tuple[str, ...]:
    if len(a) == 4:
        return ("ym",)
    if len(b) == 4 or separator[-1] in "'’":
        return ("my",)
    if len(a) > 2 or len(b) > 2:
        return ()
    first = _order(int(a), int(b), separator, shift)
    return (first, "dm" if first == "md" else "md", "my") if len(b) == 2 else (first, "dm" if first == "md" else "md")


def _order(a: int, b: int, separator: str, shift: Shift) -> str:
    """Day or month first: by the numbers, then by the order of the document, then by the separator."""
    if a > 12 or b > 12:
        return "dm" if a > 12 else "md"
    if shift.day_first is not None:
        return "dm" if shift.day_first else "md"
    return "dm" if separator.strip() == "." else "md"


def _year(text: str, shift: Shift) -> int:
    return shift.full_year(int(text)) if len(text) <= 2 else int(text)


def _written(order: str, originals: tuple[str, ...], new: date) -> list[str]:
    """The parts of ``new`` in the widths of the originals: padded like 03/04 or unpadded like 3/14."""
    small = [text for mark, text in zip(order, originals, strict=True) if mark in "md"]
    padded = all(len(text) == 2 for text in small)
    width = "02d" if padded else "d"
    out: list[str] = []
    for mark, text in zip(order, originals, strict=True):
        if mark == "y":
            out.append(f"{new.year % 100:02d}" if len(text) <= 2 else f"{new.year:04d}")
        else:
            out.append(f"{new.month if mark == 'm' else new.day:{width}}")
    return out


def _han(found: "re.Match[str]", shift: Shift) -> FoundDate | None:
    year, month = _year(found[1], shift), int(found[3])
    whole = make_date(year, month, int(found[5])) if found[5] else None
    base = whole or (shift.representative_day(year, month) if not found[5] and 1 <= month <= 12 else None)
    if base is None:
        return None
    new = shift.move(base)
    written = f"{new.year % 100:02d}" if len(found[1]) == 2 else f"{new.year:04d}"
    tail = f"{new.day}{found[6] or ''}" if found[5] else ""
    return FoundDate(f"{written}{found[2]}{new.month}{found[4]}{tail}", new, bool(found[5]))
