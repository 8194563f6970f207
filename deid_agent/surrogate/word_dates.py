"""Dates with words: March 4th, 2019; Tues 6/5; the 4th; '98; late 60s; spring of 2014; Thanksgiving; MWF.

The value is read as tokens, each with a role. The parts give one day, the day is shifted, and each token is written
again in its own style. The text between the tokens is unchanged.
"""

import re
from dataclasses import dataclass, field
from datetime import date

from deid_agent.surrogate.calendars import (
    Calendar,
    Shift,
    Style,
    day_of_year,
    format_day,
    format_weekday,
    format_word,
    make_date,
)
from deid_agent.surrogate.numeric_dates import FoundDate, shift_numeric_date
from deid_agent.surrogate.shape import fold
from deid_agent.surrogate.spelling import one_edit_apart

_TOKEN = re.compile(
    r"(?P<time>\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?\s*(?:[ap]\.?m\.?(?!\w))?)"
    r"|(?P<cluster>\d{1,4}(?:[/.\-]\d{1,4}){1,2}(?!\w))"
    r"|(?P<decade>['’]?(?:\d{2})?\d0['’]?s\b)"
    r"|(?P<short>['’]\d{2}(?!\d))"
    r"|(?P<ordinal>\d{1,2}(?:st|nd|rd|th|er|º|ª|o|a)(?!\w))"
    r"|(?P<quarter>Q[1-4](?!\d))"
    r"|(?P<number>\d+)"
    r"|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*\.?)",
    re.IGNORECASE,
)
# Aug 19/22, Mar-04-2019; two digits are a year if the same sign precedes the day: Mar-04-19, not Aug 10-12
_DAY = re.compile(r"\d{1,2}(?=/\d{2,4}\Z|[.\-]\d{4}\Z)|(?<=-)\d{1,2}(?=-\d\d\Z)|(?<=\.)\d{1,2}(?=\.\d\d\Z)")
_DAY_LETTERS = r"Tu|Th|Sa|Su|[MTWRFS]"
_LETTERS = re.compile(rf"(?:{_DAY_LETTERS}){{2,}}")
_APART = re.compile(rf"(?:{_DAY_LETTERS})(?P<mark>[/ ])(?:{_DAY_LETTERS})(?:(?P=mark)(?:{_DAY_LETTERS}))*")
_LETTER_DAYS = {"M": 0, "T": 1, "Tu": 1, "W": 2, "Th": 3, "R": 3, "F": 4, "S": 5, "Sa": 5, "Su": 6}
_WRITTEN_DAYS = ("M", "T", "W", "Th", "F", "S", "Su")
_QUALIFIERS = {"early": 5, "mid": 15, "late": 25}


@dataclass(slots=True)
class _Parts:
    """The parts of a date that the tokens of one value state."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    season: int | None = None
    holiday: str | None = None
    quarter: int | None = None
    decade: int | None = None
    weekday: int | None = None
    qualifier: str | None = None
    cluster: FoundDate | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    text: str = field(repr=False)
    role: str
    style: Style | None = None
    glued: bool = False


def shift_word_date(text: str, shift: Shift, calendar: Calendar) -> str | None:
    """The date shifted in its own form and language; None if ``text`` is not a date."""
    if _LETTERS.fullmatch(text):
        return _clinic_days(text, shift)
    if len(text) > 2 and text.islower() and re.fullmatch("[mtwfs]+", text):  # mwf
        return _clinic_days(text.upper(), shift).lower()
    if apart := _APART.fullmatch(text):  # M/W/F
        return apart["mark"].join(
            re.findall(_DAY_LETTERS, _clinic_days("".join(re.findall(_DAY_LETTERS, text)), shift))
        )
    parts = _Parts()
    tokens = _read(text, shift, calendar, parts)
    if tokens is None or not any(t.role != "filler" for t in tokens):
        return None
    base, known = _find_base_day(parts, shift)
    new = parts.cluster.day if parts.cluster else shift.move(base) if base else None
    if new is None and (parts.weekday is None or parts.day or parts.month):
        return None
    out: list[str] = []
    at = 0
    for token in tokens:
        out += (text[at : token.start], _write(token, parts, new, known, shift, calendar))
        at = token.start + len(token.text)
    return "".join([*out, text[at:]])


def _clinic_days(text: str, shift: Shift) -> str:
    letters = re.findall(_DAY_LETTERS, text)
    if letters.count("T") == 2:  # TTS: Tuesday, Thursday, Saturday
        letters[letters.index("T") + 1 :] = [
            "Th" if letter == "T" else letter for letter in letters[letters.index("T") + 1 :]
        ]
    moved = sorted((_LETTER_DAYS[letter] + shift.days) % 7 for letter in letters)
    return "".join(_WRITTEN_DAYS[day] for day in moved)


def _read(text: str, shift: Shift, calendar: Calendar, parts: _Parts) -> list[_Token] | None:
    """The tokens; sets ``parts``. None if a word does not belong to dates."""
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        holiday = calendar.holiday.match(text, at) if not parts.holiday else None
        if holiday and (at == 0 or not text[at - 1].isalnum()):
            parts.holiday = calendar.holidays[re.sub(r"\s+", " ", holiday[0].lower().replace("’", "'"))]
            tokens.append(_Token(at, holiday[0], "holiday"))
            at = holiday.end()
            continue
        found = _TOKEN.match(text, at)
        if not found:
            at += 1
            continue
        token = _classify_token(found, text, shift, calendar, parts)
        if token is None:
            return None
        tokens.append(token)
        at = token.start + len(token.text)
    return tokens


def _classify_token(  # noqa: PLR0911 - one arm per form
    found: "re.Match[str]", text: str, shift: Shift, calendar: Calendar, parts: _Parts
) -> _Token | None:
    kind, value, at = found.lastgroup or "", found[0], found.start()
    match kind:
        case "time":
            return _Token(at, value, "filler")
        case "cluster" if parts.month and (day := _DAY.match(text, at, found.end())):
            return _number(day[0], at, shift, parts)
        case "cluster":
            parts.cluster = shift_numeric_date(value, shift)
            return _Token(at, value, kind) if parts.cluster else None
        case "decade":
            digits = int(re.sub(r"\D", "", value))
            parts.decade = digits if digits > 99 else 1900 + digits
            return _Token(at, value, kind)
        case "short":
            parts.year = shift.full_year(int(value[1:]))
            return _Token(at, value, "year")
        case "ordinal":
            parts.day = int(re.sub(r"\D", "", value))
            return _Token(at, value, "day")
        case "quarter":
            parts.quarter = int(value[1])
            return _Token(at, value, kind)
        case "number":
            return _number(value, at, shift, parts)
        case _:
            return _word(value, at, text, calendar, parts)


def _number(value: str, at: int, shift: Shift, parts: _Parts) -> _Token | None:
    if len(value) == 4 and parts.year is None:
        parts.year = int(value)
        return _Token(at, value, "year") if parts.year else None
    if len(value) <= 2 and parts.day is None and 1 <= int(value) <= 31 and parts.quarter is None:
        parts.day = int(value)
        return _Token(at, value, "day")
    if len(value) == 2 and parts.year is None:
        parts.year = shift.full_year(int(value))
        return _Token(at, value, "year")
    return None


def _word(value: str, at: int, text: str, calendar: Calendar, parts: _Parts) -> _Token | None:
    word = fold(value)
    if len(word) <= 2 and word in calendar.fillers and len(text) > len(value):  # a single T is a Tuesday
        return _Token(at, value, "filler")
    if ordinal := _ordinal(value, text[at + len(value) :], calendar):
        follows = re.match(r"\W+([^\W\d_]+)", text[at + len(ordinal) :])
        if follows and fold(follows[1]) in calendar.weekdays:  # "first Friday of March" has no day of the month
            return _Token(at, value, "filler")
        parts.day = calendar.ordinals[ordinal.lower()]
        return _Token(at, ordinal, "ordinal")
    return (
        _calendar_word(value, word, at, at > 0 and not text[at - 1].isspace(), calendar, parts)
        or (_Token(at, value, "filler") if word in calendar.fillers else None)
        or _read_misspelt(value, word, at, calendar, parts)
    )


def _calendar_word(value: str, word: str, at: int, glued: bool, calendar: Calendar, parts: _Parts) -> _Token | None:
    singular = word[:-1] if len(word) > 2 and word.endswith("s") else word
    if parts.month is None and (style := calendar.months.get(word)):
        parts.month = style.place + 1
        return _Token(at, value, "month", style, glued)
    if parts.weekday is None and (style := calendar.weekdays.get(word) or calendar.weekdays.get(singular)):
        parts.weekday = style.place
        return _Token(at, value, "weekday", style)
    if parts.season is None and word in calendar.seasons:
        parts.season = calendar.seasons[word]
        return _Token(at, value, "season")
    if parts.qualifier is None and word in _QUALIFIERS:
        parts.qualifier = word
        return _Token(at, value, "qualifier")
    if parts.decade is None and word in calendar.decades:
        parts.decade = 1900 + calendar.decades[word]
        return _Token(at, value, "decade")
    return None


def _read_misspelt(value: str, word: str, at: int, calendar: Calendar, parts: _Parts) -> _Token | None:
    """A word one typing error away from exactly one calendar word: Marhc, Septmber, Thrus."""
    if len(word) < 4:
        return None
    for forms, role in ((calendar.months, "month"), (calendar.weekdays, "weekday")):
        near = {forms[form].place: forms[form] for form in forms if len(form) > 3 and one_edit_apart(form, word)}
        if len(near) == 1 and getattr(parts, role) is None:
            (style,) = near.values()
            if role == "month":
                parts.month = style.place + 1
            else:
                parts.weekday = style.place
            return _Token(at, value, role, style)
    return None


def _ordinal(value: str, rest: str, calendar: Calendar) -> str | None:
    """``third``, or the whole of a ``twenty-first`` that begins here."""
    tied = re.match(r"-[^\W\d_]+", rest)
    if tied and (value + tied[0]).lower() in calendar.ordinals:
        return value + tied[0]
    return value if value.lower() in calendar.ordinals else None


def _find_base_day(parts: _Parts, shift: Shift) -> tuple[date | None, bool]:  # noqa: PLR0911 - most precise first
    """The day of the value, and True if year, month and day are all known."""
    year, qualifier = parts.year, _QUALIFIERS.get(parts.qualifier or "", 15)
    if parts.cluster:
        return None, parts.cluster.whole
    if parts.month and parts.day:
        if year:
            return make_date(year, parts.month, parts.day), True
        return shift.nearest(parts.month, parts.day), False
    if parts.month and year and not parts.qualifier:
        return shift.representative_day(year, parts.month), False
    if middle := _find_middle(parts, qualifier):
        month, day = middle
        return (
            make_date(year, month, min(day, 28) if month == 2 else day) if year else shift.nearest(month, day)
        ), False
    if year:
        early = {"early": (2, 15), "mid": (7, 2), "late": (11, 15)}
        return (make_date(year, *early[parts.qualifier]) if parts.qualifier else shift.representative_day(year)), False
    if parts.day:
        reference = shift.reference or date(2001, 1, 1)
        return make_date(reference.year, reference.month, parts.day) or make_date(reference.year, 1, parts.day), False
    if parts.decade:
        return date(parts.decade + {"early": 1, "late": 8}.get(parts.qualifier or "", 5), 7, 2), False
    return None, False


def _find_middle(parts: _Parts, qualifier: int) -> tuple[int, int] | None:
    """Month and day for a month, holiday, season or quarter."""
    if parts.month:
        return parts.month, qualifier
    if parts.holiday:
        return int(parts.holiday[:2]), int(parts.holiday[3:])
    if parts.season is not None:
        place = 3 * parts.season + 1 + {5: -1, 25: 1}.get(qualifier, 0)
        return (place - 1) % 12 + 1, 15
    return (3 * parts.quarter - 1, 15) if parts.quarter else None


def _write(  # noqa: PLR0911, PLR0912 - one arm per role
    token: _Token, parts: _Parts, new: date | None, known: bool, shift: Shift, calendar: Calendar
) -> str:
    """One token of the shifted date, in the style of the original token."""
    text, style = token.text, token.style
    if token.role == "weekday" and style:
        place = new.weekday() if new and known else (style.place + shift.days) % 7
        folded = fold(text)
        plural = (
            "s" if folded not in calendar.weekdays and folded[:-1] in calendar.weekdays and folded[-1] == "s" else ""
        )
        return format_word(text, calendar.name_at(style, place) + plural)
    if new is None:
        return text
    match token.role:
        case "month" if style:
            short = len(text) == 3 and (text.isupper() or token.glued)  # May is its own short form
            style = Style("months_en2", 1, style.place) if short and style.form == 0 else style
            return format_word(text, calendar.name_at(style, new.month - 1))
        case "day":
            return format_day(text, new.day)
        case "ordinal":
            return format_word(text, next(word for word, day in calendar.ordinals.items() if day == new.day))
        case "year":
            digits = text.lstrip("'’")
            return text[: -len(digits)] + (f"{new.year:04d}" if len(digits) == 4 else f"{new.year % 100:02d}")
        case "cluster":
            return parts.cluster.text if parts.cluster else text
        case "season":
            return _season(text, new, calendar, dated=bool(parts.year or parts.qualifier))
        case "holiday":
            return _holiday(text, parts, new, calendar)
        case "quarter":
            return f"{text[0]}{(new.month + 2) // 3}"
        case "qualifier":
            return format_word(text, _qualifier(parts, new))
        case "decade":
            return _decade(text, new.year // 10 * 10, calendar)
        case _:
            return text


def _season(text: str, new: date, calendar: Calendar, *, dated: bool) -> str:
    """The season. It is autumn, not fall, if neither a year nor "early" distinguishes it from a fall of the patient."""
    names = [name for name, place in calendar.seasons.items() if place == new.month % 12 // 3]
    autumn = "autumn" in text.lower() or not (dated or "fall" in text.lower())
    wanted = [name for name in names if name.endswith("s") == fold(text).endswith("s")]
    return format_word(text, wanted[-1] if autumn else wanted[0])


def _holiday(text: str, parts: _Parts, new: date, calendar: Calendar) -> str:
    """A well-known holiday near the shifted date, never the original; the weekday if the value has a date too.

    "Labor Day, 9/13/2018" would reveal that 9/13 replaces a holiday, which leaves about twenty possible shifts.
    """
    if parts.cluster or parts.day:
        return format_weekday(text, new, calendar)
    day, old = new.timetuple().tm_yday, day_of_year(parts.holiday or "01-01")
    others = [(name, place) for name, place in calendar.targets if place != old and fold(name) != fold(text)]
    name = min(others, key=lambda item: min(abs(item[1] - day), 366 - abs(item[1] - day)))[0]
    return format_word(text, name)


def _qualifier(parts: _Parts, new: date) -> str:
    """early, mid or late in the month if the value has one, else in the year."""
    if parts.season is not None or parts.decade is not None:
        return parts.qualifier or ""
    place = (new.day - 1) // 10 if parts.month else (new.month - 1) // 4
    return ("early", "mid", "late", "late")[place]


def _decade(text: str, decade: int, calendar: Calendar) -> str:
    digits = re.search(r"\d+", text)
    if digits is None:
        return format_word(text, next((w for w, place in calendar.decades.items() if place == decade % 100), text))
    written = f"{decade:04d}" if len(digits[0]) == 4 else f"{decade % 100:02d}"
    return text[: digits.start()] + written + text[digits.end() :]
