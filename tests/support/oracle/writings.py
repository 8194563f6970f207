"""The ways in which a person or a system writes an identifier.

A writing is abstract: ``BREAK`` is the end of a line, ``ON`` and ``OFF`` are the borders of emphasis, ``NOTE`` is a
comment. The carrier decides how its format writes them. ``needles`` are the folded texts of which none may be in the
output; they are made from the identifier, not from its encoded form.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from support.oracle.people import Kind, Person
from support.oracle.search import fold

BREAK, ON, OFF, NOTE = "\ue000", "\ue001", "\ue002", "\ue003"
_UNSPACED = frozenset({"han", "hangul"})
_BICAMERAL = frozenset({"latin", "latin with marks", "cyrillic", "greek"})
_PLAIN_LETTERS = str.maketrans("łŁøØđĐıæþÞğ", "lLoOdDiathg"[:11])
_TOUCHING = {
    "latin": ("患者{}先生", "ผู้ป่วย{}มา", "환자{}님"),
    "latin with marks": ("患者{}先生", "환자{}님"),
    "han": ("患者{}来院复查", "予{}女士"),
    "kana": ("患者{}さんは来院", "担当{}様"),
    "hangul": ("환자{}님은", "보호자{}씨가"),
    "thai": ("คุณ{}มาพบแพทย์", "นาย{}กลับบ้าน"),
    "arabic": ("و{}", "ل{}"),
    "hebrew": ("ל{}", "ו{}"),
}
_DIGITS = {
    "fullwidth digits": 0xFF10,
    "arabic-indic digits": 0x0660,
    "persian digits": 0x06F0,
    "devanagari digits": 0x0966,
    "thai digits": 0x0E50,
}
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@dataclass(frozen=True, slots=True)
class Written:
    """An identifier in one writing."""

    text: str = field(repr=False)
    needles: tuple[str, ...] = field(repr=False)


Writing = Callable[[Random, Person], Written | None]


def _written(text: str, needles: Iterable[str]) -> Written:
    return Written(text, tuple(dict.fromkeys(folded for each in needles if len(folded := fold(each)) > 1)))


def _full(person: Person) -> str:
    if person.script in _UNSPACED:
        return person.family + person.given
    return f"{person.given} {person.family}"


def _name(change: Callable[[Random, Person], str | None]) -> Writing:
    """A writing of both names, of which neither may survive."""

    def write(rng: Random, person: Person) -> Written | None:
        text = change(rng, person)
        return None if text is None else _written(text, (person.family, person.given))

    return write


def _family(change: Callable[[Random, Person], str | None]) -> Writing:
    """A writing of the family name alone."""

    def write(rng: Random, person: Person) -> Written | None:
        text = change(rng, person)
        return None if text is None else _written(text, (person.family,))

    return write


def _cased(text: str | None, person: Person) -> str | None:
    return text if person.script in _BICAMERAL else None


def _at(rng: Random, text: str) -> int:
    """A position inside ``text`` with at least two characters, and no mark, on each side."""
    positions = [i for i in range(2, len(text) - 1) if not unicodedata.combining(text[i]) and text[i].isalnum()]
    positions = [i for i in positions if unicodedata.category(text[i])[0] != "M" and text[i - 1].isalnum()]
    return rng.choice(positions) if positions else 0


def _insert(text: str, at: int, piece: str) -> str:
    return text[:at] + piece + text[at:]


def _inside(rng: Random, text: str, piece: str) -> str | None:
    at = _at(rng, text)
    return _insert(text, at, piece) if at else None


def _misspell(rng: Random, person: Person) -> Written | None:
    name = person.family
    if person.script not in _BICAMERAL or len(name) < 7 or not name.isalpha():
        return None
    at = rng.randrange(2, len(name) - 2)
    match rng.randrange(3):
        case 0:
            changed = name[:at] + name[at + 1 :]
        case 1:
            changed = name[:at] + name[at] + name[at:]
        case _:
            changed = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    if changed == name:
        return None
    return _written(f"{person.given} {changed}", (changed, person.given))


def _unmarked(rng: Random, person: Person) -> Written | None:
    if person.script != "latin with marks":
        return None
    flat = [
        "".join(c for c in unicodedata.normalize("NFD", part) if not unicodedata.combining(c)).translate(_PLAIN_LETTERS)
        for part in (person.given, person.family)
    ]
    return _written(" ".join(flat), flat)


def _decomposed(rng: Random, person: Person) -> Written | None:
    text = unicodedata.normalize("NFD", _full(person))
    return None if text == _full(person) else _written(text, (person.family, person.given))


def _wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def _touching(rng: Random, person: Person) -> str | None:
    frames = _TOUCHING.get(person.script)
    return rng.choice(frames).format(_full(person)) if frames else None


NAMES: dict[str, Writing] = {
    "plain": _name(lambda rng, p: _full(p)),
    "given alone": lambda rng, p: _written(p.given, (p.given,)),
    "family alone": _family(lambda rng, p: p.family),
    "upper": _name(lambda rng, p: _cased(_full(p).upper(), p)),
    "lower": _name(lambda rng, p: _cased(_full(p).lower(), p)),
    "reversed": _name(lambda rng, p: f"{p.family}, {p.given}"),
    "reversed upper": _name(lambda rng, p: _cased(f"{p.family.upper()},{p.given.upper()}", p)),
    "initial": _family(lambda rng, p: _cased(f"{p.given[0]}. {p.family}", p)),
    "initial after": _family(lambda rng, p: _cased(f"{p.family} {p.given[0]}", p)),
    "title": _family(lambda rng, p: _cased(f"{'Mrs' if p.female else 'Mr'}. {p.family}", p)),
    "possessive": _family(lambda rng, p: _cased(f"{p.family}'s", p)),
    "misspelt": _misspell,
    "without marks": _unmarked,
    "decomposed": _decomposed,
    "fullwidth": _name(lambda rng, p: _wide(_full(p)) if _full(p).isascii() else None),
    "soft hyphen": _family(lambda rng, p: _inside(rng, p.family, "\u00ad")),
    "zero-width": _family(lambda rng, p: _inside(rng, p.family, rng.choice("\u200b\u200c\u2060\ufeff"))),
    "direction marks": _name(lambda rng, p: f"\u202b{p.given}\u200f {p.family}\u202c"),
    "no-break space": _name(lambda rng, p: f"{p.given}\u00a0{p.family}"),
    "line end between": _name(lambda rng, p: f"{p.given}{BREAK}{p.family}"),
    "line end inside": _family(lambda rng, p: _inside(rng, p.family, BREAK)),
    "hyphenated": _family(lambda rng, p: _cased(_inside(rng, p.family, f"-{BREAK}"), p)),
    "emphasis inside": _family(lambda rng, p: _inside(rng, ON + p.family, OFF)),
    "emphasis around": _name(lambda rng, p: f"{p.given} {ON}{p.family}{OFF}"),
    "comment inside": _family(lambda rng, p: _inside(rng, p.family, NOTE)),
    "touching": _name(_touching),
    "glued": _name(lambda rng, p: f"PatientName:{p.family}{p.given}DOB:{p.born:%m%d%Y}"),
    "glued upper": _name(lambda rng, p: _cased(f"NAME:{p.family.upper()}{p.given.upper()}SEX:F", p)),
    "file name": _name(lambda rng, p: f"{p.family}_{p.given}_scan.pdf"),
    "dotted": _name(lambda rng, p: _cased(f"{p.given}.{p.family}".lower(), p)),
    "quoted": _name(lambda rng, p: f'"{p.family}"/({p.given})'),
}


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def _value(kind: Kind, change: Callable[[Random, str], str | None]) -> Writing:
    def write(rng: Random, person: Person) -> Written | None:
        text = change(rng, person.value(kind))
        return None if text is None else _written(text, (person.value(kind),))

    return write


def _script_digits(first: int) -> Callable[[Random, str], str]:
    return lambda rng, v: "".join(chr(first + int(c)) if c in "0123456789" else c for c in v)


def _grouped(rng: Random, value: str) -> str:
    signs, mark = _digits(value), rng.choice(" -.")
    return mark.join(signs[i : i + 3] for i in range(0, len(signs), 3))


_NUMBER: dict[str, Callable[[Random, str], str | None]] = {
    "plain": lambda rng, v: v,
    "labelled": lambda rng, v: f"ID: {v}",
    "bare": lambda rng, v: _digits(v),
    "grouped": _grouped,
    "hash": lambda rng, v: f"#{_digits(v)}",
    "lower": lambda rng, v: v.lower() if v.lower() != v else None,
    "leading zeros": lambda rng, v: f"000{v}" if v.isdigit() else None,
    "soft hyphen": lambda rng, v: _inside(rng, v, "\u00ad"),
    "zero-width": lambda rng, v: _inside(rng, v, rng.choice("\u200b\u200d\u2060")),
    "line end inside": lambda rng, v: _inside(rng, v, BREAK),
    "emphasis inside": lambda rng, v: _inside(rng, ON + v, OFF),
    "comment inside": lambda rng, v: _inside(rng, v, NOTE),
    "glued": lambda rng, v: f"MRN{_digits(v)}DOB",
    "touching": lambda rng, v: rng.choice(("病历号{}床", "번호{}번")).format(v),
    "underscore": lambda rng, v: f"scan_{_digits(v)}_p1.tif",
    "path": lambda rng, v: f"https://emr.example.net/chart/{_digits(v)}/view",
    **{name: _script_digits(first) for name, first in _DIGITS.items()},
}
_MAIL: dict[str, Callable[[Random, str], str | None]] = {
    "plain": lambda rng, v: v,
    "upper": lambda rng, v: v.upper(),
    "mailto": lambda rng, v: f"mailto:{v}",
    "angle": lambda rng, v: f"({v})",
    "fullwidth": lambda rng, v: v.replace("@", "＠"),
    "percent at": lambda rng, v: v.replace("@", "%40"),
    "soft hyphen": lambda rng, v: _inside(rng, v, "\u00ad"),
    "zero-width": lambda rng, v: v.replace("@", "\u200b@"),
    "line end inside": lambda rng, v: v.replace("@", f"@{BREAK}"),
    "glued": lambda rng, v: f"Email:{v};Tel",
}
_ADDRESSES: dict[str, Callable[[Random, str], str | None]] = {
    "plain": lambda rng, v: v,
    "upper": lambda rng, v: v.upper(),
    "lower": lambda rng, v: v.lower(),
    "fullwidth": lambda rng, v: _wide(v),
    "soft hyphen": lambda rng, v: _insert(v, len(v) // 2, "\u00ad"),
    "line end": lambda rng, v: v.replace(" ", BREAK, 1) if " " in v else None,
    "emphasis around": lambda rng, v: f"{ON}{v}{OFF}",
}


def _date(form: Callable[[Person], str]) -> Writing:
    return lambda rng, person: _written(form(person), (form(person),))


_DATES: dict[str, Writing] = {
    "plain": _date(lambda p: f"{p.born:%Y%m%d}"),
    "iso": _date(lambda p: f"{p.born:%Y-%m-%d}"),
    "us": _date(lambda p: f"{p.born:%m/%d/%Y}"),
    "us short": _date(lambda p: f"DOB {p.born.month}/{p.born.day}/{p.born:%Y}"),
    "dots": _date(lambda p: f"{p.born:%d.%m.%Y}"),
    "words": _date(lambda p: f"{p.born.day} {_MONTHS[p.born.month - 1]} {p.born.year}"),
    "us words": _date(lambda p: f"{_MONTHS[p.born.month - 1]} {p.born.day}, {p.born.year}"),
    "hyphens": _date(lambda p: f"{p.born.day:02}-{_MONTHS[p.born.month - 1][:3].upper()}-{p.born.year}"),
    "labelled": _date(lambda p: f"DOB: {p.born:%m/%d/%Y}"),
    "soft hyphen": _date(lambda p: f"{p.born:%Y}\u00ad-{p.born:%m-%d}"),
    "fullwidth digits": _date(lambda p: _wide(f"{p.born:%Y-%m-%d}")),
    "line end inside": _date(lambda p: f"{p.born:%Y}-{BREAK}{p.born:%m-%d}"),
}
_NUMBERS = (Kind.MRN, Kind.SSN, Kind.ACCOUNT, Kind.PHONE)
WRITINGS: dict[Kind, dict[str, Writing]] = {
    Kind.NAME: NAMES,
    **{kind: {name: _value(kind, change) for name, change in _NUMBER.items()} for kind in _NUMBERS},
    Kind.EMAIL: {name: _value(Kind.EMAIL, change) for name, change in _MAIL.items()},
    Kind.STREET: {name: _value(Kind.STREET, change) for name, change in _ADDRESSES.items()},
    Kind.CITY: {name: _value(Kind.CITY, change) for name, change in _ADDRESSES.items()},
    Kind.BIRTH: _DATES,
}
"""All writings of all kinds, by name."""


def write(rng: Random, person: Person, kind: Kind) -> tuple[str, Written]:
    """A writing that the person's script has, chosen at random, with its name."""
    while True:
        name = rng.choice(list(WRITINGS[kind]))
        written = WRITINGS[kind][name](rng, person)
        if written is not None and written.needles:
            return name, written
