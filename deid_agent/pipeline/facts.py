"""Facts: the PHI that a message's own fields, or a caller's context, name. Recognizers search narratives for them.

The context object of ``text --jsonl`` holds the same facts as a message. Its members are those of ``_SCALARS``,
``_PEOPLE``, ``_SEX`` and ``address``; any other member is an error.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date

from deid_agent.model import (
    CATEGORY,
    HOST_SOURCE,
    DateKind,
    Fact,
    Message,
    MessageError,
    PhiCategory,
    PhiType,
    Reason,
    Site,
    Subject,
    ValueKind,
)
from deid_agent.surrogate import NamedPerson, Scope

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
NAME_TYPES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
"""The types of names of persons."""
_ID = PhiCategory.ID
_DOTTED_DIAGNOSIS = re.compile(r"[A-Z][0-9]{2}\.[0-9A-Z]{1,4}")
_DIAGNOSIS = re.compile(r"[A-Z][0-9]{2}\.?[0-9]{0,4}")
_EIGHT = re.compile(r"[0-9]{8}")
_NAMES = frozenset({ValueKind.FAMILY, ValueKind.GIVEN, ValueKind.NAME})
_DATE, _EVENT = PhiType.DATE, DateKind.EVENT  # a member lookup for each site is slow
_Key = tuple[PhiType, ValueKind, Subject, str, DateKind]
"""A fact without its group. A tuple is compared several times faster than a ``Fact``."""
_SEX = "sex"
_SEXES: Mapping[str, str] = {"f": "female", "female": "female", "m": "male", "male": "male"}
_MEMBERS = frozenset({*_SCALARS, *_PEOPLE, _SEX, "address"})
_OF_THE_MESSAGE = frozenset({DateKind.EVENT, DateKind.TECHNICAL})
_PARTIAL_DATE = re.compile(r"(\d{4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ]?\d.*)?)?)?", re.DOTALL)


def collect_facts(sites: Iterable[Site], namespace: str = "") -> tuple[Fact, ...]:
    """The facts in the structured part of a message, each fact and each person once.

    ``namespace`` keeps the persons of different messages apart when their facts are combined.
    Only dates of birth and days of the patient (death) are facts. Recognizers find other dates by their form, and a
    report of ten thousand results would otherwise be searched for as many dates.
    """
    facts: dict[_Key, None] = {}
    people: dict[str, dict[_Key, None]] = {}
    for site in sites:
        if site.kind is ValueKind.REDACT or site.source == HOST_SOURCE or not site.value.strip():
            continue
        if site.kind in _NAMES:
            people.setdefault(site.group, {})[site.type, site.kind, site.subject, site.value, _EVENT] = None
        elif site.type is not _DATE:
            if CATEGORY[site.type] is _ID and _reads_as_code_or_day(site.value.strip(), site.subject):
                continue
            facts[site.type, site.kind, site.subject, site.value, _EVENT] = None
        elif site.subject is Subject.PATIENT or site.date_kind is DateKind.BIRTH:
            facts[site.type, site.kind, site.subject, site.value, site.date_kind] = None
    persons = dict.fromkeys(tuple(parts) for parts in people.values())
    grouped = [("", key) for key in facts]
    grouped += ((f"{namespace}#{n}", key) for n, parts in enumerate(persons) for key in parts)
    return tuple(
        [Fact(type_, kind, subject, group, value, day) for group, (type_, kind, subject, value, day) in grouped]
    )


def _reads_as_code_or_day(value: str, subject: Subject) -> bool:
    """True for an identifier in the form of a diagnosis (ICD-10) or of a day.

    A search for it would change the diagnoses and the dates of the message. The patient's own number may be a letter
    and six digits, so only its form with a dot is a diagnosis.
    """
    form = _DOTTED_DIAGNOSIS if subject is Subject.PATIENT else _DIAGNOSIS
    return form.fullmatch(value) is not None or (_EIGHT.fullmatch(value) is not None and parse_day(value) is not None)


def collect_people(message: Message, read: Callable[[PhiType, str], NamedPerson]) -> dict[str, NamedPerson]:
    """The persons whom the structured part of a message names, by ``Site.group``. ``read`` splits a whole name."""
    groups: dict[str, dict[ValueKind, list[str]]] = {}
    types: dict[str, PhiType] = {}
    for site in message.sites:
        if site.kind in _NAMES and site.type in NAME_TYPES and site.value.strip():
            group = site.group or site.path
            groups.setdefault(group, {}).setdefault(site.kind, []).append(site.value)
            types.setdefault(group, site.type)
    people: dict[str, NamedPerson] = {}
    for group, parts in groups.items():
        sex, staff = message.sexes.get(group, ""), types[group] is PhiType.DOCTOR
        given, family = (" ".join(dict.fromkeys(parts.get(k, ()))) for k in (ValueKind.GIVEN, ValueKind.FAMILY))
        if given or family:
            people[group] = NamedPerson(given, family, sex, staff)
        else:
            found = read(types[group], parts[ValueKind.NAME][0])
            people[group] = replace(found, sex=sex or found.sex)
    return people


def find_message_date(sites: Iterable[Site]) -> date | None:
    """The message's own date: the latest day that is not the patient's. "3/4" without a year is read near it."""
    return _find_latest(site for site in sites if site.subject is not Subject.PATIENT)


def find_written_date(sites: Iterable[Site]) -> date | None:
    """The day on which the message was written: by its technical dates (MSH-7), else by ``find_message_date``."""
    kept = [site for site in sites if site.type is PhiType.DATE]
    return _find_latest(s for s in kept if s.date_kind is DateKind.TECHNICAL) or find_message_date(kept)


def _find_latest(sites: Iterable[Site]) -> date | None:
    days = (parse_day(s.value) for s in sites if s.type is PhiType.DATE and s.date_kind in _OF_THE_MESSAGE)
    return max((day for day in days if day is not None), default=None)


def find_births(facts: Iterable[Fact]) -> frozenset[date]:
    """The days of birth among the facts."""
    return frozenset(find_days(fact for fact in facts if fact.date_kind is DateKind.BIRTH))


def find_days(facts: Iterable[Fact]) -> tuple[date, ...]:
    """The days among the facts (the patient's: birth, death), each once and in order."""
    days = {day for fact in facts if fact.type is PhiType.DATE and (day := parse_day(fact.value)) is not None}
    return tuple(sorted(days))


def parse_day(value: str) -> date | None:
    """The day of an HL7 or FHIR date of the years 1900 to 2199; None if it has none."""
    found = _DAY.match(value)
    try:
        return date(int(found[1]), int(found[2]), int(found[3])) if found else None
    except ValueError:
        return None


def unite_facts(contexts: Iterable[tuple[Fact, ...]]) -> tuple[Fact, ...]:
    """The facts of several contexts of one patient, each once. Persons with the same names are one person."""
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


def facts_from_context(context: Mapping[str, object]) -> tuple[Fact, ...]:
    """The facts of a caller's context object. Absent and null members are ignored.

    Raises ``MessageError(MALFORMED)`` with the path of a member of the wrong form. For an unknown member the error
    lists the known ones: the member itself may be a misplaced name, so it is not repeated.
    """
    facts: list[Fact] = []
    sex = context.get(_SEX)
    sex = "" if sex is None else _SEXES.get(_require_text(sex, f"context.{_SEX}").strip().lower(), "")
    for member, value in context.items():
        if member not in _MEMBERS:
            raise MessageError(Reason.MALFORMED, "context", f"unknown member; known: {', '.join(sorted(_MEMBERS))}")
        where = f"context.{member}"
        if value is None or member == _SEX:
            continue
        if member == "birth_date" and not _is_date(value):
            raise MessageError(Reason.MALFORMED, where, "must be a date as 1957-04-22, 19570422, 1957-04 or 1957")
        if member in _SCALARS:
            subject = Subject.OTHER if member == "facility" else Subject.PATIENT
            kind = DateKind.BIRTH if member == "birth_date" else DateKind.EVENT
            facts.append(Fact(_SCALARS[member], ValueKind.VALUE, subject, where, _require_text(value, where), kind))
        elif member == "address":
            facts += (
                Fact(_ADDRESS[key], ValueKind.VALUE, Subject.PATIENT, where, part)
                for key, part in _members(value, _ADDRESS, where)
            )
        else:
            type_, subject = _PEOPLE[member]
            own = sex if subject is Subject.PATIENT else ""
            facts += (
                Fact(type_, ValueKind(key), subject, where, part, sex=own)
                for key, part in _members(value, {"given": 0, "family": 0}, where)
            )
    return tuple(facts)


def _is_date(value: object) -> bool:
    """True for a date in the form of FHIR or HL7 v2; its day, or day and month, may be missing."""
    found = _PARTIAL_DATE.fullmatch(value) if isinstance(value, str) and value.isascii() else None
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
                yield key, _require_text(item, f"{where}.{key}")


def _require_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise MessageError(Reason.MALFORMED, where, "must be a string")
    return value


def collect_known(messages: Iterable[Message]) -> tuple[Fact, ...]:
    """The facts of messages that are known beside another one; their persons stay apart."""
    return tuple(fact for n, each in enumerate(messages) for fact in collect_facts(each.sites, f"known{n}"))


def make_scope(
    document: str,
    patient: str | None,
    facts: tuple[Fact, ...],
    reference: date | None = None,
    today: date | None = None,
) -> Scope:
    """The scope of a document's surrogates, with the days and the people that ``facts`` name."""
    return Scope(
        document=document,
        patient=patient,
        reference=reference,
        people=_find_people(facts),
        known=find_days(facts) + ((reference,) if reference else ()),
        births=find_births(facts),
        today=today,
    )


def _find_people(facts: Iterable[Fact]) -> tuple[NamedPerson, ...]:
    """Each person in the facts, so that all forms of a name have one surrogate."""
    parts: dict[tuple[str, bool, str], dict[ValueKind, list[str]]] = {}
    for fact in facts:
        if fact.kind in {ValueKind.GIVEN, ValueKind.FAMILY}:
            kinds = parts.setdefault((fact.group, fact.type is PhiType.DOCTOR, fact.sex), {})
            kinds.setdefault(fact.kind, []).append(fact.value)
    return tuple(
        NamedPerson(" ".join(kinds.get(ValueKind.GIVEN, ())), " ".join(kinds.get(ValueKind.FAMILY, ())), sex, staff)
        for (_, staff, sex), kinds in parts.items()
    )
