"""Calendar arithmetic of surrogate dates, the words of calendars, and days in the written form of the original."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.lists import SurrogateLists
from deid_agent.surrogate.shape import fold

_LAST = date.max.toordinal()
_YEAR = 365.2425
ADULT_DAYS = 6575
"""Days of life from which a person is an adult: 18 years."""
NEWBORN_DAYS = 28
ADULT_BIRTH_DAYS = 182
"""The largest offset of an adult's date of birth, in either direction."""
_CHILD_BIRTH_DAYS = ((365, 7), (1096, 30), (ADULT_DAYS, 90))  # days of life below, largest offset


@dataclass(frozen=True, slots=True)
class DateShifts:
    """How dates move (``[dates]`` of a policy).

    Event: shift(document) = base(patient) + offset(document). The offsets of two documents of a patient differ by at
    most ``offset_days``; with 0 all intervals between the documents of a patient are exact. If the patient is unknown,
    or ``by_patient`` is False, the document has a base of its own and no offset. Bases are uniform over
    ``event_bases``. ``whole_weeks`` shifts by multiples of seven days, which leaves no room for an offset.
    """

    by_patient: bool = True
    offset_days: int = 3
    whole_weeks: bool = False
    max_shift_days: int = 550

    def offsets(self, *, joined: bool) -> range:
        """The offsets of documents that are ``joined`` by their patient, in days."""
        return range(self.offset_days + 1 if joined and self.by_patient and not self.whole_weeks else 1)


@lru_cache(maxsize=64)
def event_bases(shifts: DateShifts, *, joined: bool = True) -> tuple[int, ...]:
    """The bases that a patient (``joined``) or a single document can have, in days back.

    No base plus offset is a multiple of seven (with ``whole_weeks``: each is) or within two days of a whole number of
    years, so no date keeps its weekday or its month and day. The rule is one of the base, never of a single document:
    if documents avoided such shifts on their own, the offsets that never occur would reveal the base.
    """
    offsets = shifts.offsets(joined=joined)
    last = shifts.max_shift_days - offsets[-1]
    return tuple(base for base in range(1, last + 1) if all(_may_shift(base + n, shifts.whole_weeks) for n in offsets))


def _may_shift(days: int, weeks: bool) -> bool:
    return (days % 7 == 0) == weeks and (days < _YEAR / 2 or not _is_near_whole_years(days))


def _is_near_whole_years(days: int) -> bool:
    return abs(days - round(days / _YEAR) * _YEAR) < 2


def event_shift(key: KeyedHash, shifts: DateShifts, document: str, patient: str | None) -> int:
    """The days by which every event date of a document moves; always negative."""
    base = _event_base(key, shifts, document, patient)
    offsets = shifts.offsets(joined=patient is not None)
    offset = offsets[key.index(len(offsets), "shift offset", str(patient), document)]
    return -(base + offset)


def _event_base(key: KeyedHash, shifts: DateShifts, document: str, patient: str | None) -> int:
    joined = patient is not None and shifts.by_patient
    bases = event_bases(shifts, joined=joined)
    return bases[key.index(len(bases), "shift", f"patient:{patient}" if joined else f"document:{document}")]


def birth_shift(
    key: KeyedHash, shifts: DateShifts, document: str, patient: str | None, born: date, today: date | None
) -> int:
    """The days by which a date of birth moves, by the age of the person ``today``, the day of the message.

    Adults (and persons of unknown age) have an offset of their own, uniform over ``adult_birth_offsets`` and the same
    in every document of the patient. Children move with the base of the patient plus a smaller offset of their own, so
    that their age stays right and no birth follows its message. Newborns move with the event shift of the document,
    which keeps their days of life. The person is the patient together with the date of birth: relatives need no name.
    """
    age = ADULT_DAYS if today is None else (today - born).days
    if age < NEWBORN_DAYS:
        return event_shift(key, shifts, document, patient)
    person = f"patient:{patient}" if patient is not None and shifts.by_patient else f"document:{document}"
    widest = birth_window(age)
    offsets = birth_offsets(widest)
    base = 0 if age >= ADULT_DAYS else _event_base(key, shifts, document, patient)
    if base:
        offsets = tuple(n for n in offsets if not _is_near_whole_years(base - n))
    return offsets[key.index(len(offsets), "birth", person, born.isoformat(), str(widest))] - base


def birth_window(age: int) -> int:
    """The largest offset of a date of birth, in days in either direction, of a person of ``age`` days."""
    return next((widest for below, widest in _CHILD_BIRTH_DAYS if age < below), ADULT_BIRTH_DAYS)


@lru_cache(maxsize=8)
def birth_offsets(widest: int = ADULT_BIRTH_DAYS) -> tuple[int, ...]:
    """The offsets that a date of birth can have: up to ``widest`` days in either direction, at least two."""
    return tuple(days for days in range(-widest, widest + 1) if abs(days) > 1)


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift by ``days``, with the context that partial dates are read in.

    ``reference`` is the message's own date. ``day_first`` is the document's order of day and month, None if unknown.
    """

    days: int
    reference: date | None = field(default=None, repr=False)
    day_first: bool | None = None

    def move(self, day: date) -> date:
        """The shifted day. It is shifted in the other direction if it would leave the years 1 to 9999."""
        moved = day.toordinal() + self.days
        return date.fromordinal(moved if 1 <= moved <= _LAST else day.toordinal() - self.days)

    def nearest(self, month: int, day: int) -> date | None:
        """The occurrence of that day nearest to the reference; without one in 2001, or in 2000 for 29 February."""
        base = self.reference.year if self.reference else 2001
        found = [d for year in (base, base - 1, base + 1, base - 2, base - 3) if (d := make_date(year, month, day))]
        if self.reference is None:
            return found[0] if found else None
        near = self.reference.toordinal()
        return min(found, key=lambda d: abs(d.toordinal() - near), default=None)

    def representative_day(self, year: int, month: int | None = None) -> date | None:
        """A day for a month or a year: the reference if it lies within, else the middle."""
        ref = self.reference
        if ref and ref.year == year and month in (None, ref.month):
            return ref
        return make_date(year, month or 7, 15 if month else 2)

    def full_year(self, two_digits: int) -> int:
        """The year of a two-digit year such as '98: the latest that is at most one year after the reference."""
        limit = (self.reference.year if self.reference else 2030) + 1
        century = limit - limit % 100
        return century + two_digits if century + two_digits <= limit else century - 100 + two_digits


def make_date(year: int, month: int, day: int) -> date | None:
    """The date; None if it does not exist."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Style:
    """The written form of a month or weekday: its language list, full (0) or short (1) form, and its index from 0."""

    language: str
    form: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """Calendar words, folded. ``names`` has the lists of each language in their written form."""

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
    birth_before: "re.Pattern[str]" = field(repr=False)
    birth_after: "re.Pattern[str]" = field(repr=False)
    birth_stems: tuple[str, ...] = field(repr=False)

    def is_birth(self, before: str, after: str) -> bool:
        """True if the text beside a date says that someone was born on it: ``DOB:``, ``born in``, ``(DOB)``."""
        low = f"{before} {after}".lower()
        if not any(stem in low for stem in self.birth_stems):  # takes a hundredth of the time of the patterns
            return False
        # No figure may be between the words and the date, so the pattern need not begin before the last one.
        last = next((n for n in range(len(before) - 1, -1, -1) if before[n].isdecimal()), -1)
        return self.birth_before.search(before, last + 1) is not None or self.birth_after.match(after) is not None

    def name_at(self, style: Style, place: int) -> str:
        """The month or weekday number ``place`` in the language and form of ``style``."""
        return self.names[style.language][place].split("|")[style.form]


@lru_cache(maxsize=4)
def load_calendar(lists: SurrogateLists) -> Calendar:
    """The calendar words of ``rules/surrogate/dates.toml``."""
    names = {n: words for n, words in lists.phrases.items() if n.startswith(("months_", "weekdays_"))}
    seasons = {form: n for n, words in enumerate(lists.phrases["seasons"]) for form in words.split("|")}
    holidays = dict(lists.tables["holidays"])
    longest = sorted(holidays, key=lambda phrase: (-len(phrase), phrase))
    pattern = "|".join(re.escape(phrase).replace("\\ ", r"\s+").replace("'", "['’]") for phrase in longest)
    return Calendar(
        months=_index_styles(names, "months_"),
        weekdays=_index_styles(names, "weekdays_"),
        names=names,
        seasons=seasons | {"autumn": 3, "autumns": 3},
        ordinals={word: n + 1 for n, word in enumerate(lists.phrases["ordinals"])},
        decades={word: 20 + 10 * n for n, word in enumerate(lists.phrases["decades"])},
        fillers=lists.sets["date_fillers"],
        holidays=holidays,
        holiday=re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE),
        targets=tuple((name, day_of_year(md)) for name, md in (t.split("|") for t in lists.phrases["holiday_targets"])),
        birth_before=_compile_birth_labels(lists.phrases),
        birth_after=re.compile(
            rf"\s?[(\[]\s?(?:{_either(lists.phrases['birth_labels'])})\s?[)\]]"
            rf"|\s?(?:{_either(lists.phrases['birth_suffixes'])})",
            re.IGNORECASE,
        ),
        birth_stems=tuple(
            sorted({max(phrase.lower().split(), key=len) for n in _BIRTH for phrase in lists.phrases[n]})
        ),
    )


_BIRTH = ("birth_labels", "birth_verbs", "birth_suffixes")
BESIDE = 80
"""Characters beside a date that can hold a label of birth."""


def _compile_birth_labels(phrases: Mapping[str, tuple[str, ...]]) -> "re.Pattern[str]":
    """A label directly before the date, or a verb of birth in the same clause, without a figure in between."""
    fillers = _either(phrases["birth_fillers"])
    others = _either(phrases["birth_breaks"])
    between = rf"(?:\s?\([^()\d]{{0,24}}\))?\W{{0,8}}(?:(?:{fillers})\W{{1,3}}){{0,4}}"
    label = rf"(?:{_either(phrases['birth_labels'])}){between}"
    verb = rf"(?:{_either(phrases['birth_verbs'])})(?:(?!{others})[^\d.;\n]){{0,40}}"
    return re.compile(rf"(?:{label}|{verb})\Z", re.IGNORECASE)


def _either(words: Iterable[str]) -> str:
    """An alternative of these phrases. A phrase of Latin, Greek or Cyrillic letters is a whole word."""
    whole: list[str] = []
    parts: list[str] = []
    for phrase in sorted(words, key=lambda word: (-len(word), word)):
        end = r"(?!\w)" if phrase[-1] < "\u0590" and phrase[-1].isalnum() else ""
        (whole if phrase[0] < "\u0590" else parts).append(re.escape(phrase).replace("\\ ", r"\s{1,3}") + end)
    # The condition and the first letters are outside of the list: in front of each phrase they cost ten times as much.
    first = re.escape("".join(sorted({phrase[0] for phrase in words if phrase[0] < "\u0590"})))
    return "|".join([rf"(?<!\w)(?=[{first}])(?:{'|'.join(whole)})", *parts] if whole else parts)


def day_of_year(month_day: str) -> int:
    """The day of the year of ``MM-DD`` in a leap year, from 1."""
    month, day = month_day.split("-")
    return date(2000, int(month), int(day)).timetuple().tm_yday


def _index_styles(names: Mapping[str, tuple[str, ...]], prefix: str) -> dict[str, Style]:
    """The style of each written form, folded. English precedes other languages, and full forms precede short ones."""
    out: dict[str, Style] = {}
    languages = sorted((n for n in names if n.startswith(prefix)), key=lambda n: ("_en" not in n, n))
    for form in (0, 1):
        for language in languages:
            for place, pair in enumerate(names[language]):
                out.setdefault(fold(pair.split("|")[form]), Style(language, form, place))
    return out


def format_day(text: str, day: int) -> str:
    """The day of the month with the zero and the ordinal ending of ``text``."""
    digits = re.match(r"\d+", text)
    tail = text[digits.end() :] if digits else ""
    if tail.lower() in ("st", "nd", "rd", "th"):
        suffix = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return f"{day}{suffix.upper() if tail.isupper() else suffix}"
    tail = "" if tail.lower() == "er" and day != 1 else tail  # French: 1er août, 2 août
    return f"{day:02d}{tail}" if text.startswith("0") else f"{day}{tail}"


def format_weekday(text: str, day: date, calendar: Calendar) -> str:
    """The weekday of ``day`` in the case of ``text``."""
    return format_word(text, calendar.names["weekdays_en"][day.weekday()].split("|")[0])


def format_word(original: str, word: str) -> str:
    """``word`` in the case of ``original``, with its full stop."""
    core = original.rstrip(".")
    if core.isupper() and len(core) > 1:
        word = word.upper()
    elif core.islower():
        word = word.lower()
    else:
        word = word[:1].upper() + word[1:]
    return word + original[len(core) :]
