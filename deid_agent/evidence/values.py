"""The values of a feed before and after, for attacks on dates, names and numbers.

A value comes from a replaced range of a text, or from a field of a message. Dates of birth are recognized by the words
before them; a range whose type is not known has the type that its form shows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from deid_agent.evidence.attackers import MONTHS
from deid_agent.evidence.pairs import TextPair
from deid_agent.model import PhiType

NAME_TYPES: Final = frozenset({PhiType.PATIENT.value, PhiType.DOCTOR.value})
_BIRTH = re.compile(
    r"(?i)(?:\b(?:d\.?o\.?b|born|birth ?date|date of birth|birth)\b\W{0,4}(?:on |date\W{0,3})?|\*\s?)\Z"
)
_NAME = re.compile(r"[^\W\d_][^\W\d_'\u2019-]*(?:[ ,]{1,2}[^\W\d_][^\W\d_'\u2019-]*){0,3}")
_PARTICLE = 3  # letters
_SHORT_MONTHS: Final = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS)
_DATE = re.compile(
    r"(?i)(?<![\w/.-])(?:"
    r"(?P<y1>\d{4})-(?P<m1>\d{2})-(?P<d1>\d{2})(?=T\d|(?![\w/-]))"
    r"|(?P<y2>(?:18|19|20|21)\d\d)(?P<m2>\d{2})(?P<d2>\d{2})(?=(?:\d{4}|\d{6})(?!\d)|(?![\w/-]))"
    r"|(?P<m3>\d{1,2})(?P<sep>[/.-])(?P<d3>\d{1,2})(?P=sep)(?P<y3>\d{4})(?![\w/-])"
    rf"|(?P<m4>{_MONTH})\.? (?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y4>\d{{4}})(?!\w)"
    rf"|(?P<d5>\d{{1,2}})(?:st|nd|rd|th)?[ -](?P<m5>{_MONTH})\.?,?[ -](?P<y5>\d{{4}})(?!\w)"
    r")"
)


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A value of a feed before and after, with ids of document and patient. ``repr`` shows no value and no id.

    ``typed`` is false if the type is that of its form.
    """

    document: str = field(repr=False)
    patient: str = field(repr=False)
    original: str = field(repr=False)
    output: str = field(repr=False)
    type: str = ""
    birth: bool = False
    typed: bool = True


@dataclass(frozen=True, slots=True)
class DatePair:
    """A whole date before and after."""

    document: str = field(repr=False)
    patient: str = field(repr=False)
    true: date = field(repr=False)
    shown: date = field(repr=False)
    birth: bool = False


def list_values(pairs: Iterable[TextPair]) -> Iterator[ValuePair]:
    """The replaced values of texts."""
    for pair in pairs:
        for each in pair.replaced:
            old, new = pair.replaced_text(each), pair.surrogate(each)
            kind = each.type or _guess_type(old)
            yield ValuePair(pair.note, pair.patient, old, new, kind, typed=bool(each.type))


def list_dates(pairs: Iterable[TextPair], fields: Iterable[ValuePair]) -> Iterator[DatePair]:
    """The whole dates that moved, of texts and of fields; both texts are read in one order of day and month."""
    for pair in pairs:
        for begin, end, new_begin in _moved_dates(pair):
            birth = _BIRTH.search(pair.output[max(0, new_begin - 24) : new_begin]) is not None
            yield from _read_both(
                ValuePair(pair.note, pair.patient, pair.original[begin:end], pair.output[new_begin:][:40], "", birth)
            )
    for each in fields:
        yield from _read_both(each)


def _moved_dates(pair: TextPair) -> Iterator[tuple[int, int, int]]:
    """The ranges of whole dates in the original that are replaced at least in part, and their begin in the output.

    A surrogate may have the year or the month of its original, so the replaced range may be a part of the date.
    """
    at = shift = 0
    for begin, end, _ in find_dates(pair.original):
        while at < len(pair.replaced) and pair.replaced[at].source_end <= begin:
            shift = pair.replaced[at].end - pair.replaced[at].source_end
            at += 1
        if at < len(pair.replaced) and pair.replaced[at].source_begin < end:
            inside = pair.replaced[at].source_begin <= begin
            yield begin, end, pair.replaced[at].begin if inside else begin + shift


def _read_both(each: ValuePair) -> Iterator[DatePair]:
    for day_first in (False, True):
        old, new = read_date(each.original, day_first=day_first), read_date(each.output, day_first=day_first)
        if old and new:
            yield DatePair(each.document, each.patient, old, new, each.birth)
            return


def list_names(values: Iterable[ValuePair]) -> Iterator[tuple[str, str, str]]:
    """Patient, original and surrogate of each word of a name, in lower case; both names have as many words.

    Short words that stay are left out: they are "van", "Jr" and the like.
    """
    for each in values:
        if each.type in NAME_TYPES:
            old, new = (re.findall(r"[^\W\d_]{2,}", text.lower()) for text in (each.original, each.output))
            if len(old) == len(new):
                for one, other in zip(old, new, strict=True):
                    if one != other or len(one) > _PARTICLE:
                        yield each.patient, one, other


def find_dates(text: str) -> Iterator[tuple[int, int, date]]:
    """The whole dates of a text with their ranges; a date in numbers has the month first, if it can."""
    for found in _DATE.finditer(text):
        day = _read(found, day_first=False) or _read(found, day_first=True)
        if day:
            yield found.start(), found.end(), day


def read_date(text: str, *, day_first: bool = False) -> date | None:
    """The date that ``text`` begins with, if it is whole and one of the calendar."""
    found = _DATE.match(text.strip())
    return _read(found, day_first=day_first) if found else None


def _read(found: re.Match[str], *, day_first: bool) -> date | None:
    for form in "12345":
        if found[f"y{form}"] is not None:
            year, month, day = found[f"y{form}"], found[f"m{form}"], found[f"d{form}"]
            if form == "3" and day_first:
                month, day = day, month
            number = int(month) if month.isdigit() else _SHORT_MONTHS[month[:3].lower()]
            try:
                return date(int(year), number, int(day))
            except ValueError:
                return None
    return None


def _guess_type(text: str) -> str:
    if read_date(text) or read_date(text, day_first=True):
        return PhiType.DATE.value
    if _NAME.fullmatch(text) and text[0].isupper():
        return PhiType.PATIENT.value
    return PhiType.IDNUM.value if sum(map(str.isdigit, text)) >= 5 and not re.search(r"[^\W_]{3,} ", text) else ""


def group_by_patient(dates: Iterable[DatePair]) -> dict[str, list[DatePair]]:
    """The dates of each patient, the patients in order."""
    found: dict[str, list[DatePair]] = {}
    for each in sorted(dates, key=lambda item: item.patient):
        found.setdefault(each.patient, []).append(each)
    return found


def unchanged_dates(pair: TextPair) -> Sequence[date]:
    """The whole dates of an output that are unchanged from its original."""
    found, at, number = [], 0, 0
    ranges = pair.replaced
    for begin, end, day in find_dates(pair.output):
        while number < len(ranges) and ranges[number].end <= begin:
            number += 1
        at = ranges[number].begin if number < len(ranges) else len(pair.output)
        if end <= at:
            found.append(day)
    return found
