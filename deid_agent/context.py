"""Known PHI that comes from outside of a narrative: a message's own fields, or a caller's context.

The context object of ``text --jsonl`` names the same things as a message would;
its members are listed in ``_FIELDS`` and unknown ones are errors.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Fact, Kind, Site, Subject

_SCALARS: Mapping[str, PhiType] = {
    "birth_date": PhiType.DATE,
    "mrn": PhiType.MEDICALRECORD,
    "ssn": PhiType.SSN,
    "account": PhiType.ACCOUNT,
    "phone": PhiType.PHONE,
    "facility": PhiType.HOSPITAL,
}
_ADDRESS: Mapping[str, PhiType] = {
    "line": PhiType.STREET,
    "city": PhiType.CITY,
    "state": PhiType.STATE,
    "zip": PhiType.ZIP,
    "country": PhiType.COUNTRY,
}
_PEOPLE: Mapping[str, tuple[PhiType, Subject]] = {
    "name": (PhiType.PATIENT, Subject.PATIENT),
    "attending": (PhiType.DOCTOR, Subject.PROVIDER),
}
_DAY = re.compile(r"((?:19|20|21)\d\d)-?(\d\d)-?(\d\d)")
_NAMES = frozenset({Kind.FAMILY, Kind.GIVEN, Kind.NAME})
_IGNORED = frozenset({"sex"})
_MEMBERS = frozenset({*_SCALARS, *_PEOPLE, *_IGNORED, "address"})
_DATE = re.compile(r"(\d{4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ]?\d.*)?)?)?", re.DOTALL)


def facts_of(sites: Iterable[Site], within: str = "") -> tuple[Fact, ...]:
    """What the structured part of a message says, each fact and each person once.

    ``within`` names the message among those whose facts come together: persons of two stay apart.
    Days are facts where they are the patient's own: those of orders and results are told by their form, and a
    report of ten thousand results would otherwise be searched for as many.
    """
    facts: dict[Fact, None] = {}
    people: dict[str, dict[Fact, None]] = {}
    for site in sites:
        if site.kind is Kind.REDACT or not site.value.strip():
            continue
        if site.kind in _NAMES:
            part = Fact(site.type, site.kind, site.subject, "", site.value)
            people.setdefault(site.group, {})[part] = None
        elif site.type is not PhiType.DATE or site.subject is Subject.PATIENT:
            facts[Fact(site.type, site.kind, site.subject, "", site.value)] = None
    persons = dict.fromkeys(tuple(parts) for parts in people.values())
    named = (replace(part, group=f"{within}#{n}") for n, parts in enumerate(persons) for part in parts)
    return (*facts, *named)


def reference_of(sites: Iterable[Site]) -> date | None:
    """The message's own time, which "3/4" without a year is near to: the latest day that is not the patient's own."""
    days = (_day(site.value) for site in sites if site.type is PhiType.DATE and site.subject is not Subject.PATIENT)
    return max((day for day in days if day is not None), default=None)


def days_of(facts: Iterable[Fact]) -> tuple[date, ...]:
    """The days among known facts (the patient's own: of birth, of death), each once and in order."""
    days = {day for fact in facts if fact.type is PhiType.DATE and (day := _day(fact.value)) is not None}
    return tuple(sorted(days))


def _day(value: str) -> date | None:
    found = _DAY.match(value)
    try:
        return date(int(found[1]), int(found[2]), int(found[3])) if found else None
    except ValueError:
        return None


def together(contexts: Iterable[tuple[Fact, ...]]) -> tuple[Fact, ...]:
    """The facts of several contexts of one patient, each once: two that name one person alike name one person."""
    plain: dict[Fact, None] = {}
    persons: dict[tuple[Fact, ...], None] = {}
    for facts in contexts:
        groups: dict[str, list[Fact]] = {}
        for fact in facts:
            if fact.kind in _NAMES:
                groups.setdefault(fact.group, []).append(fact)
            else:
                plain[fact] = None
        persons |= dict.fromkeys(tuple(parts) for parts in groups.values())
    named = (replace(part, group=f"{part.group}#{n}") for n, parts in enumerate(persons) for part in parts)
    return (*plain, *named)


def facts_of_context(context: Mapping[str, object]) -> tuple[Fact, ...]:
    """The facts of a caller's context object; absent and null members say nothing.

    Raises ``MessageError(MALFORMED)`` naming the member that is not of its form. A member that nobody knows may
    be a name in a wrong place: it is not repeated, the known ones are told.
    """
    facts: list[Fact] = []
    for member, value in context.items():
        if member not in _MEMBERS:
            raise MessageError(Reason.MALFORMED, "context", f"unknown member; known: {', '.join(sorted(_MEMBERS))}")
        where = f"context.{member}"
        if value is None or member in _IGNORED:
            continue
        if member == "birth_date" and not _is_day(value):
            raise MessageError(Reason.MALFORMED, where, "must be a date as 1957-04-22, 19570422, 1957-04 or 1957")
        if member in _SCALARS:
            subject = Subject.OTHER if member == "facility" else Subject.PATIENT
            facts.append(Fact(_SCALARS[member], Kind.VALUE, subject, where, _text(value, where)))
        elif member == "address":
            facts += (
                Fact(_ADDRESS[key], Kind.VALUE, Subject.PATIENT, where, part)
                for key, part in _members(value, _ADDRESS, where)
            )
        else:
            type_, subject = _PEOPLE[member]
            facts += (
                Fact(type_, Kind(key), subject, where, part)
                for key, part in _members(value, {"given": 0, "family": 0}, where)
            )
    return tuple(facts)


def _is_day(value: object) -> bool:
    """True for a date, perhaps without its day or month, as FHIR or HL7 v2 write one."""
    found = _DATE.fullmatch(value) if isinstance(value, str) and value.isascii() else None
    try:
        return found is not None and bool(date(int(found[1]), int(found[2] or 1), int(found[3] or 1)))
    except ValueError:
        return False


def _members(value: object, allowed: Mapping[str, object], where: str) -> Iterable[tuple[str, str]]:
    if not isinstance(value, Mapping):
        raise MessageError(Reason.MALFORMED, where, "must be an object")
    for key, part in value.items():
        if key not in allowed:
            raise MessageError(Reason.MALFORMED, where, f"unknown member; known: {', '.join(sorted(allowed))}")
        for item in part if isinstance(part, list) else [part]:
            if item is not None:
                yield key, _text(item, f"{where}.{key}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise MessageError(Reason.MALFORMED, where, "must be a string")
    return value
