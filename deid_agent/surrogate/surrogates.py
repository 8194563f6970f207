"""One entry: a value of a type in a scope to its surrogate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Literal, assert_never

from deid_agent import resources
from deid_agent.errors import ConfigurationError
from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.sites import Kind
from deid_agent.surrogate import contact, places
from deid_agent.surrogate.ages import age
from deid_agent.surrogate.calendars import Shift, calendar_of
from deid_agent.surrogate.dates import shift_days, shifted
from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import load
from deid_agent.surrogate.methods import mask
from deid_agent.surrogate.names import Namer
from deid_agent.surrogate.numbers import identifier, social_security
from deid_agent.surrogate.organizations import organization
from deid_agent.surrogate.professions import profession
from deid_agent.surrogate.series import moved
from deid_agent.surrogate.shape import edges, has_content, same, with_breaks_of, with_signs_of
from deid_agent.text import plain

_CACHED = 65_536
_FEW = 16  # people of a scope that is kept: one of thousands would be hashed whole and held
_SIGNED = frozenset({PhiType.SSN, PhiType.PHONE, PhiType.FAX})  # read by their dashes and blanks, of whatever kind
_MAY_STAY = frozenset({PhiType.AGE, PhiType.STATE, PhiType.COUNTRY, PhiType.DATE})

DateScope = Literal["document", "patient"]
NameScope = Literal["feed", "patient"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Within what surrogates agree: a document, and the patient whose it is where that is known.

    ``reference`` is the message's own time: what "3/4" without a year is near to. ``people`` are
    (given, family) names that the message's structured part tells, ``known`` days that it tells. ``day_first`` says
    that the document writes 3/4 for the third of April (None: not known, read as the fourth of March). ``told`` is
    false where the people are no more than what whole names of a text seem to say.
    """

    document: str = field(repr=False)
    patient: str | None = field(default=None, repr=False)
    reference: date | None = field(default=None, repr=False)
    people: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    day_first: bool | None = field(default=None, repr=False)
    known: tuple[date, ...] = field(default=(), repr=False)
    told: bool = True

    @property
    def person(self) -> str:
        """The patient, else the document: where names agree if they are not to agree in the whole feed."""
        return f"document:{self.document}" if self.patient is None else f"patient:{self.patient}"


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """A scope by its identity: a scope of thousands of people is not hashed for every value."""

    scope: Scope
    namers: dict[PhiType, Namer] = field(default_factory=dict, repr=False)


class Surrogates:
    """Surrogates of one secret: pure, deterministic, the same in every process and on every machine.

    Identifiers, user names, addresses of the net, organisations and clinicians map alike in the whole feed, so
    that joins resolve. So do names, places, phones and jobs, unless ``name_scope`` is "patient"; then they
    agree within a patient only, and only where every message names the patient by the same identifier.
    Dates agree within ``date_scope``.
    Results are cached in bounded memory; the caches never change an answer.

    Raises ``ConfigurationError`` for an empty secret, a shift range too small, or broken word lists.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        date_scope: DateScope = "document",
        name_scope: NameScope = "feed",
        week_shift: bool = False,
        max_shift_days: int = 365,
        rules: Path | None = None,
    ) -> None:
        if max_shift_days < 7:
            raise ConfigurationError(f"max_shift_days is {max_shift_days}: give at least 7")
        self._key = Key(secret)
        self._date_scope = date_scope
        self._name_scope = name_scope
        self._weeks = week_shift
        self._maximum = max_shift_days
        self._lists = load(rules or resources.folder("rules"))
        self._calendar = calendar_of(self._lists)
        self._replace = lru_cache(maxsize=_CACHED)(self._compute)
        self._frames = lru_cache(maxsize=4096)(_Frame)  # a document that comes again finds its values in the cache
        self._last = _Frame(Scope(""))
        self._days = lru_cache(maxsize=4096)(self._make_days)

    def __repr__(self) -> str:
        return f"Surrogates(date_scope={self._date_scope!r}, lists={self._lists.digest[:12]})"

    def __reduce__(self) -> tuple[Callable[..., "Surrogates"], tuple[object, ...]]:
        raise TypeError("Surrogates holds a secret and is not pickled: build one in each process")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the word lists: another digest means other surrogates."""
        return self._lists.digest

    def shift_days(self, scope: Scope) -> int:
        """Days by which every date of the scope is moved: negative, never 0."""
        whole = scope.patient if self._date_scope == "patient" else None
        return self._days(f"document:{scope.document}" if whole is None else f"patient:{whole}")

    def replace(self, type: PhiType, value: str, *, kind: Kind, scope: Scope) -> str:
        """What stands for ``value``.

        Never raises for any string, never empty for a non-empty one; white space at the edges and the
        number of line breaks stay. Differs from ``value`` (case, accents and punctuation aside) except: ages under 90,
        states, home countries, dates too coarse for the shift to show (a year, a decade, a month), dates of zeros
        and other days that stand for none (``dates.DEFAULTS``), and values of nothing but ASCII punctuation. What
        cannot be read as a date is masked.
        """
        before, core, after = edges(value)
        if not has_content(core):
            return value
        last = self._last
        if last.scope is not scope and last.scope != scope:
            last = self._last = _Frame(scope) if len(scope.people) > _FEW else self._frames(scope)
        return f"{before}{self._replace(type, core, kind, last)}{after}"

    def fresh(self, record: str, number: int) -> bytes:
        """32 bytes for the ``number``-th thing of ``record`` that needs a code; nothing of the thing goes in."""
        return self._key.digest("code", record, str(number))

    def days(self, values: Sequence[str], gaps: Sequence[str], scope: Scope) -> list[str]:
        """What stands for the days of one expression (``March 4``, ``-``, ``9, 2019``), as ``series`` reads it.

        ``gaps[i]`` stands between ``values[i]`` and ``values[i + 1]``. A day that leans on no other is replaced as
        by ``replace``; one that does not exist is masked.
        """
        shift = Shift(self.shift_days(scope), scope.reference, scope.day_first)
        out: list[str] = []
        for value, new in zip(values, moved(values, gaps, shift, self._calendar), strict=True):
            if new is None:
                out.append(self.replace(PhiType.DATE, value, kind=Kind.VALUE, scope=scope))
            else:
                out.append(with_breaks_of(value, new or mask(PhiType.DATE)))
        return out

    def _compute(self, type_: PhiType, value: str, kind: Kind, frame: "_Frame") -> str:
        read = plain(value) if type_ in _SIGNED else value
        new = mask(type_) if kind is Kind.REDACT else self._surrogate(type_, read, kind, frame)
        if read != value:
            new = with_signs_of(value, new)
        if not new.strip() or (type_ not in _MAY_STAY and same(new, value)):
            new = mask(type_)
        return with_breaks_of(value, new)

    def _surrogate(  # noqa: PLR0911 - one arm per category
        self, type_: PhiType, value: str, kind: Kind, frame: _Frame
    ) -> str:
        scope = frame.scope
        match CATEGORY[type_]:
            case PhiCategory.NAME:
                return self._name(type_, value, kind, frame)
            case PhiCategory.PROFESSION:
                return profession(self._key, self._lists, self._person(type_, scope), value)
            case PhiCategory.LOCATION:
                return self._location(type_, value, self._person(type_, scope))
            case PhiCategory.AGE:
                return age(value)
            case PhiCategory.DATE:
                shift = Shift(self.shift_days(scope), scope.reference, scope.day_first)
                if new := shifted(value, shift, self._calendar):
                    return new
                new = shifted(plain(value), shift, self._calendar)
                return with_signs_of(value, new) if new else mask(type_)
            case PhiCategory.CONTACT:
                return self._contact(type_, value, self._person(type_, scope))
            case PhiCategory.ID:
                return social_security(self._key, value) if type_ is PhiType.SSN else identifier(self._key, value)
            case unknown:
                assert_never(unknown)

    def _name(self, type_: PhiType, value: str, kind: Kind, frame: _Frame) -> str:
        if type_ is PhiType.USERNAME:
            return identifier(self._key, value, "username")
        namer = frame.namers.get(type_)
        if namer is None:
            scope = frame.scope
            namer = self._make_namer(type_, self._person(type_, scope), scope.people, told=scope.told)
            frame.namers[type_] = namer
        return namer.name(value, kind)

    def _location(self, type_: PhiType, value: str, scope: str) -> str:
        readers = {
            PhiType.STREET: places.street,
            PhiType.CITY: places.city,
            PhiType.ZIP: places.postal_code,
            PhiType.COUNTRY: places.country,
            PhiType.LOCATION_OTHER: places.other_place,
        }
        if type_ is PhiType.STATE:
            return value
        if type_ in readers:
            return readers[type_](self._key, self._lists, scope, value)
        return organization(self._key, self._lists, value)

    def _contact(self, type_: PhiType, value: str, scope: str) -> str:
        match type_:
            case PhiType.EMAIL:
                return contact.email(self._key, value)
            case PhiType.URL:
                return contact.url(self._key, value)
            case PhiType.IPADDRESS:
                return contact.ip_address(self._key, value)
            case _:
                return contact.phone(self._key, scope, value)

    def _person(self, type_: PhiType, scope: Scope) -> str:
        whole_feed = self._name_scope == "feed" or type_ is PhiType.DOCTOR
        return "feed" if whole_feed else scope.person

    def _make_namer(
        self, type_: PhiType, scope: str, people: tuple[tuple[str, str], ...], *, told: bool = True
    ) -> Namer:
        return Namer(self._key, self._lists, f"{type_}:{scope}", people, type_ is PhiType.DOCTOR, told)

    def _make_days(self, scope: str) -> int:
        return shift_days(self._key, scope, maximum=self._maximum, weeks=self._weeks)
