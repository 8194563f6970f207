"""Calendar dates as people write them, read back into year, month and day.

A reading is ambiguous on purpose (``3/4/41`` is two days in two centuries):
known PHI asks whether a certain day is *among* the readings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from deid_agent.linear import compile_pattern
from deid_agent.text import Document

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WRITTEN = compile_pattern(
    r"(?:\A|[^0-9A-Za-z])(?P<phi>"
    r"[0-9]{1,2} ?[-/. ] ?[0-9]{1,2} ?[-/. ] ?(?:[0-9]{4}|[0-9]{2})"
    r"|[0-9]{4}[-/. ][0-9]{1,2}[-/. ][0-9]{1,2}"
    r"|[0-9]{8}|[0-9]{6}"
    rf"|[0-9]{{1,2}}(?:st|nd|rd|th)?[-/. ]{{0,2}}(?:of )?{_MONTH}[-/, ]{{0,2}}['’]?(?:[0-9]{{4}}|[0-9]{{2}})"
    rf"|{_MONTH}[-/. ]{{0,2}}[0-9]{{1,2}}(?:st|nd|rd|th)?[-/., ]{{0,2}}['’]?(?:[0-9]{{4}}|[0-9]{{2}})"
    rf"|[0-9]{{4}}[-/. ]{_MONTH}[-/. ][0-9]{{1,2}}"
    r")(?:\z|[^0-9A-Za-z]|[T ][0-9]{2}:?[0-9]{2})"
)
_PARTS = re.compile(r"\d+|[A-Za-z]{3,}")
_JOINED_BEFORE = re.compile(r"[0-9A-Za-z][-/.]\Z")
_JOINED_AFTER = re.compile(r"[-/.][0-9]")
_FACT = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """Characters ``[start, end)`` and every day that they may mean."""

    start: int
    end: int
    readings: frozenset[date]


def read_fact(value: str) -> date | None:
    """The day of a structured value: ``YYYYMMDD...`` (HL7 v2 DT, DTM) or ``YYYY-MM-DD...`` (FHIR); else None."""
    found = _FACT.match(value.strip())
    return _day(int(found[1]), int(found[2]), int(found[3])) if found else None


def dates_in(doc: Document) -> Iterator[WrittenDate]:
    """Full dates (day, month and year) of a document in order."""
    data, at = doc.utf8, 0
    while (found := _WRITTEN.search(data, at)) is not None:
        begin, last = found.span(1)
        start, end = doc.char(begin), doc.char(last)
        alone = not (_JOINED_BEFORE.search(doc.text, max(0, start - 2), start) or _JOINED_AFTER.match(doc.text, end))
        readings = frozenset(_readings(doc.text[start:end])) if alone else frozenset()
        if readings:
            yield WrittenDate(start, end, readings)
        at = last if readings else found.span()[0] + 1


def _readings(text: str) -> Iterator[date]:
    parts = _PARTS.findall(text)
    words = [p for p in parts if p.isalpha() and p[:3].lower() in _MONTHS]
    numbers = [p for p in parts if p.isdigit()]
    if words and len(numbers) == 2:
        month = str(_MONTHS.index(words[0][:3].lower()) + 1)
        a, b = numbers
        orders = [(b, month, a), (a, month, b)]
    elif len(numbers) == 3:
        a, b, c = numbers
        orders = [(c, a, b), (c, b, a), (a, b, c)]
    elif len(numbers) == 1 and len(numbers[0]) == 8:
        (n,) = numbers
        orders = [(n[:4], n[4:6], n[6:]), (n[4:], n[:2], n[2:4]), (n[4:], n[2:4], n[:2])]
    elif len(numbers) == 1 and len(numbers[0]) == 6:
        (n,) = numbers
        orders = [(n[:2], n[2:4], n[4:]), (n[4:], n[:2], n[2:4]), (n[4:], n[2:4], n[:2])]
    else:
        return
    for year, month, day in orders:
        for full in _years(year):
            if (reading := _day(full, int(month), int(day))) is not None:
                yield reading


def _years(text: str) -> tuple[int, ...]:
    if len(text) == 4:
        return (int(text),)
    return (1900 + int(text), 2000 + int(text)) if len(text) == 2 else ()


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
