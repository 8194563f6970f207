"""``Surrogates`` maps a value of a type in a scope to its surrogate."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Literal, assert_never

from deid_agent.model import (
    CATEGORY,
    ConfigurationError,
    DateKind,
    PhiCategory,
    PhiType,
    ValueKind,
    normalize_dashes,
)
from deid_agent.rules import data_folder
from deid_agent.surrogate.calendars import (
    ADULT_DAYS,
    BESIDE,
    DateShifts,
    Shift,
    birth_shift,
    event_bases,
    event_shift,
    load_calendar,
)
from deid_agent.surrogate.contact import replace_email, replace_ip_address, replace_phone, replace_url
from deid_agent.surrogate.dates import DEFAULTS, read_day, shift_date, shift_series
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.methods import generalize_age, mask
from deid_agent.surrogate.names import Namer
from deid_agent.surrogate.numbers import replace_identifier, replace_ssn
from deid_agent.surrogate.people import NamedPerson, People, Scope, fold_neighbours
from deid_agent.surrogate.places import (
    replace_city,
    replace_country,
    replace_organization,
    replace_place,
    replace_postal_code,
    replace_profession,
    replace_street,
)
from deid_agent.surrogate.shape import has_content, is_same_text, restore_dashes, restore_line_breaks, split_edges

_CACHED = 65_536
_FEW = 16  # a scope of more people is not cached: all of them would be hashed and held
_FEW_BIRTHS = 100  # in a bundle of more patients, part of a date is no known birth
_SIGNED = frozenset({PhiType.SSN, PhiType.PHONE, PhiType.FAX})  # their dashes and blanks are read as one kind
_MAY_STAY = frozenset({PhiType.AGE, PhiType.STATE, PhiType.COUNTRY, PhiType.DATE})
_LONG_NUMBER = re.compile(r"\d(?:[ \-./()]{0,2}\d){3,}")
"""A number in a field of a name is no part of the name: somebody wrote an identifier there."""
_LATE, _EARLIER = date(2030, 7, 2), date(2029, 7, 2)  # two references: they agree on a date that has its year

PlaceScope = Literal["feed", "patient"]


@dataclass(frozen=True, slots=True, eq=False)
class _ScopeCache:
    """A scope with its namers. Compared by identity, so that a scope of thousands of people is hashed once."""

    scope: Scope
    namers: dict[bool, Namer] = field(default_factory=dict, repr=False)


class Surrogates:
    """Surrogates of one secret: deterministic, and the same in every process and on every machine.

    Identifiers, user names, network addresses, organisations and clinicians have one surrogate in the whole feed, so
    that joins resolve. Names of patients and relatives agree within the patient, else within the document. Places,
    phones and professions agree in the whole feed, unless ``place_scope`` is "patient". Dates move as
    ``DateShifts`` says. Results are cached in bounded memory; the caches do not change results.

    Raises ``ConfigurationError`` for an empty secret, a shift range without a base, or broken word lists.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        dates: DateShifts = DateShifts(),  # noqa: B008 - a frozen value
        place_scope: PlaceScope = "feed",
        rules: Path | None = None,
        locales: tuple[str, ...] = (),
        providers: tuple[str, ...] = (),
    ) -> None:
        if not event_bases(dates):
            raise ConfigurationError(
                f"max_shift_days {dates.max_shift_days} with offset_days {dates.offset_days} allows no shift: "
                "give at least 14 days and an offset of at most 5"
            )
        self._key = KeyedHash(secret)
        self._rules = rules
        self._dates = dates
        self._place_scope = place_scope
        self._lists = load_lists(rules or data_folder("rules"), locales, providers)
        self._calendar = load_calendar(self._lists)
        self._replace = lru_cache(maxsize=_CACHED)(self._compute)
        self._scopes = lru_cache(maxsize=4096)(_ScopeCache)  # the values of a repeated document are in the cache
        self._last = _ScopeCache(Scope(""))
        nobody = People((), self._lists, "")
        readers = {flag: Namer(self._key, self._lists, nobody, flag) for flag in (False, True)}
        self._read_person = lru_cache(maxsize=8192)(lambda value, staff: readers[staff].read_person(value))
        self._event_shift = lru_cache(maxsize=4096)(event_shift)

    def __repr__(self) -> str:
        return f"Surrogates(dates={self._dates!r}, lists={self._lists.digest[:12]})"

    def __reduce__(self) -> tuple[Callable[..., "Surrogates"], tuple[object, ...]]:
        raise TypeError("Surrogates holds a secret and is not pickled: build one in each process")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the word lists. Surrogates change with it."""
        return self._lists.digest

    def of_document(self, name: str) -> "Surrogates":
        """The surrogates of one document alone: the same values have unrelated surrogates in any other document."""
        own = self._key.digest("of document", name)
        return Surrogates(own, dates=self._dates, place_scope=self._place_scope, rules=self._rules)

    def shift_days(self, scope: Scope) -> int:
        """The days by which every event date of the scope moves; always negative."""
        return self._event_shift(self._key, self._dates, scope.document, scope.patient)

    def replace(
        self,
        type: PhiType,
        value: str,
        *,
        kind: ValueKind,
        scope: Scope,
        date_kind: DateKind | None = None,
        person: NamedPerson | None = None,
    ) -> str:
        """The surrogate of ``value``. ``date_kind`` is that of a typed field; None for a date in text.

        A date in text that is, in any written form, a day of birth of the scope moves as that birth, else as an event.

        It does not raise for any string and is not empty for a non-empty one. Outer white space and the number of line
        breaks are kept. The surrogate differs from ``value`` in more than case, accents and punctuation, except for:
        ages under 90, states, home countries, dates too coarse to show the shift (a year, a decade, a month), dates of
        zeros and other placeholders (``dates.DEFAULTS``), and values of ASCII punctuation only. A DATE that cannot be
        read is masked. ``person`` is the person of ``scope.people`` whose name it is, if the caller knows.
        """
        before, core, after = split_edges(value)
        if not has_content(core):
            return value
        last = self._last
        if last.scope is not scope and last.scope != scope:
            last = self._last = _ScopeCache(scope) if len(scope.people) > _FEW else self._scopes(scope)
        return f"{before}{self._replace(type, core, kind, date_kind, person, last)}{after}"

    def read_person(self, type: PhiType, value: str) -> NamedPerson:
        """The person whom a whole name names. PATIENT and DOCTOR tell whether it is staff."""
        return self._read_person(value, type is PhiType.DOCTOR)

    def find_sex_beside(self, text: str, start: int, end: int) -> str:
        """The sex of the person whose name is ``text[start:end]``, by a title or a word of kinship beside it."""
        words = fold_neighbours(text, start, end)
        return next((sex for sex in ("female", "male") if words & self._lists.sets[f"{sex}_words"]), "")

    def follows_title(self, text: str, start: int) -> bool:
        """True if a title precedes the name at ``start``: the single name after it is a family name."""
        return not self._lists.sets["titles"].isdisjoint(fold_neighbours(text, start, start))

    def is_birth(self, text: str, start: int, end: int) -> bool:
        """True if the words beside the date ``text[start:end]`` say that someone was born on it."""
        return self._calendar.is_birth(text[max(start - BESIDE, 0) : start], text[end : end + BESIDE])

    def read_day(self, value: str, day_first: bool | None = None, *, whole: bool = False) -> date | None:
        """The day of a date in text that has a year; None for other values and for placeholder dates.

        A month or a year alone gives a day in it, or None if the date must be ``whole``.
        """
        read = {read_day(value, reference, day_first, self._calendar) for reference in (_LATE, _EARLIER)}
        day = read.pop()
        if read or day is None or day in DEFAULTS:
            return None
        # A reference in the same month would be taken for the day of a month or a year.
        near = day + timedelta(1 if day.day == 1 else -1)
        return None if whole and read_day(value, near, day_first, self._calendar) == near else day

    def derive_code_bytes(self, record: str, number: int) -> bytes:
        """32 bytes for the code of the ``number``-th identifier of ``record``. They do not depend on the identifier."""
        return self._key.digest("code", record, str(number))

    def replace_days(
        self, values: Sequence[str], gaps: Sequence[str], scope: Scope, date_kind: DateKind | None = None
    ) -> list[str]:
        """The surrogates of the days of one expression (``March 4``, ``-``, ``9, 2019``); see ``dates.shift_series``.

        ``gaps[i]`` is the text between ``values[i]`` and ``values[i + 1]``. A day that depends on no other is replaced
        as by ``replace``. One that does not exist is masked. If one of the days is a birth, the days that depend on
        others move with it.
        """
        births = (self._find_birth(value, date_kind, scope) for value in values)
        shift = self._make_shift(next(filter(None, births), None), scope)
        out: list[str] = []
        for value, new in zip(values, shift_series(values, gaps, shift, self._calendar), strict=True):
            if new is None:
                out.append(self.replace(PhiType.DATE, value, kind=ValueKind.VALUE, scope=scope, date_kind=date_kind))
            else:
                out.append(restore_line_breaks(value, new or mask(PhiType.DATE)))
        return out

    def _compute(
        self,
        type_: PhiType,
        value: str,
        kind: ValueKind,
        date_kind: DateKind | None,
        person: NamedPerson | None,
        cached: _ScopeCache,
    ) -> str:
        read = normalize_dashes(value) if type_ in _SIGNED else value
        new = mask(type_) if kind is ValueKind.REDACT else self._surrogate(type_, read, kind, date_kind, person, cached)
        if read != value:
            new = restore_dashes(value, new)
        if not new.strip() or (type_ not in _MAY_STAY and is_same_text(new, value)):
            new = mask(type_)
        return restore_line_breaks(value, new)

    def _surrogate(  # noqa: PLR0911 - one arm per category
        self,
        type_: PhiType,
        value: str,
        kind: ValueKind,
        date_kind: DateKind | None,
        person: NamedPerson | None,
        cached: _ScopeCache,
    ) -> str:
        scope = cached.scope
        match CATEGORY[type_]:
            case PhiCategory.NAME:
                return self._replace_name(type_, value, kind, cached, person)
            case PhiCategory.PROFESSION:
                return replace_profession(self._key, self._lists, self._place_domain(scope), value)
            case PhiCategory.LOCATION:
                return self._replace_location(type_, value, self._place_domain(scope))
            case PhiCategory.AGE:
                return generalize_age(value)
            case PhiCategory.DATE:
                if new := self._shift_date(value, date_kind, scope):
                    return new
                new = self._shift_date(normalize_dashes(value), date_kind, scope)
                return restore_dashes(value, new) if new else mask(type_)
            case PhiCategory.CONTACT:
                return self._replace_contact(type_, value, self._place_domain(scope))
            case PhiCategory.ID:
                return replace_ssn(self._key, value) if type_ is PhiType.SSN else replace_identifier(self._key, value)
            case unknown:
                assert_never(unknown)

    def _replace_name(
        self, type_: PhiType, value: str, kind: ValueKind, cached: _ScopeCache, person: NamedPerson | None
    ) -> str:
        if type_ is PhiType.USERNAME:
            return replace_identifier(self._key, value, "username")
        new = self._get_namer(cached, clinician=type_ is PhiType.DOCTOR).replace_name(value, kind, person)
        return _LONG_NUMBER.sub(lambda found: replace_identifier(self._key, found[0]), new)

    def _replace_location(self, type_: PhiType, value: str, scope: str) -> str:
        readers = {
            PhiType.STREET: replace_street,
            PhiType.CITY: replace_city,
            PhiType.ZIP: replace_postal_code,
            PhiType.COUNTRY: replace_country,
            PhiType.LOCATION_OTHER: replace_place,
        }
        if type_ is PhiType.STATE:
            return value
        if type_ in readers:
            return readers[type_](self._key, self._lists, scope, value)
        return replace_organization(self._key, self._lists, value)

    def _replace_contact(self, type_: PhiType, value: str, scope: str) -> str:
        match type_:
            case PhiType.EMAIL:
                return replace_email(self._key, value)
            case PhiType.URL:
                return replace_url(self._key, value)
            case PhiType.IPADDRESS:
                return replace_ip_address(self._key, value)
            case _:
                return replace_phone(self._key, scope, value)

    def _place_domain(self, scope: Scope) -> str:
        return "feed" if self._place_scope == "feed" else scope.person

    def _get_namer(self, cached: _ScopeCache, *, clinician: bool) -> Namer:
        if not cached.namers:
            people = People(cached.scope.people, self._lists, f"person:{cached.scope.person}")
            cached.namers.update({flag: Namer(self._key, self._lists, people, flag) for flag in (False, True)})
        return cached.namers[clinician]

    def _shift_date(self, value: str, date_kind: DateKind | None, scope: Scope) -> str | None:
        """``value`` shifted as a birth or an event; None if it is not a date."""
        shift = self._make_shift(self._find_birth(value, date_kind, scope), scope)
        return shift_date(value, shift, self._calendar)

    def _make_shift(self, birth: tuple[date, bool | None] | None, scope: Scope) -> Shift:
        if birth is None:
            return Shift(self.shift_days(scope), scope.reference, scope.day_first)
        born, day_first = birth
        days = birth_shift(self._key, self._dates, scope.document, scope.patient, born, scope.today)
        return Shift(days, born, day_first)

    def _find_birth(self, value: str, date_kind: DateKind | None, scope: Scope) -> tuple[date, bool | None] | None:
        """The birth that ``value`` states, and the order of day and month that it is written in; None if none.

        A part of a date (April 1957, '57) states a known birth of that month or year: always if it is of kind BIRTH,
        else of adults only, because the year of a child is more often the year of its treatment. A date of kind BIRTH
        that agrees with no known birth is the birth of an unknown person.
        """
        labelled = date_kind is DateKind.BIRTH
        if not labelled and (date_kind is not None or not _may_state(value, scope.births)):
            return None
        reference = scope.reference or scope.today or _LATE
        stated: tuple[date, bool | None] | None = None
        first = scope.day_first
        for order in (first,) if first is not None and not labelled else dict.fromkeys((first, None, True)):
            day = read_day(value, reference, order, self._calendar)
            if day is None:
                continue
            if labelled and scope.today is not None and day > scope.today:  # born in '25, written in 2024
                day = (
                    read_day(value, scope.today.replace(year=scope.today.year - 2, day=1), order, self._calendar) or day
                )
            if day in scope.births:
                return day, order
            stated = stated or (day, order)
            for born in sorted(scope.births) if len(scope.births) <= _FEW_BIRTHS else ():
                same_year = born.year == day.year and _is_adult(born, scope)
                if (labelled or same_year) and read_day(value, born, order, self._calendar) == born:
                    return born, order
        return stated if labelled else None


def _may_state(value: str, births: frozenset[date]) -> bool:
    """False if ``value`` has the last two figures of no year of ``births``, so that it is none of them."""
    return bool(births) and (not value.isascii() or any(year in value for year in _short_years(births)))


@lru_cache(maxsize=64)
def _short_years(births: frozenset[date]) -> frozenset[str]:
    return frozenset(f"{born.year % 100:02d}" for born in births)


def _is_adult(born: date, scope: Scope) -> bool:
    return scope.today is None or (scope.today - born).days >= ADULT_DAYS
