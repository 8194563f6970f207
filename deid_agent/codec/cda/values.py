"""The treatments: what one text or attribute of a C-CDA document is, by the word that the table has for it.

Each takes a value and emits sites or a narrative. What does not have the form of its type is read as text.
Source: HL7 v3 data types (II, TS, TEL, PQ, ED), CDA Release 2.
"""

import re
from collections.abc import Callable, Mapping

from deid_agent.codec.cda.sink import Frame, Value, is_uuid
from deid_agent.codec.cda.table import Do, Treatment, Whose
from deid_agent.phi import PhiType
from deid_agent.sites import ELSEWHERE, Kind, Subject

_OID = re.compile(r"[0-2](?:\.(?:0|[1-9]\d*))+")
_TIME = re.compile(
    r"(?:1[89]|20|21)\d\d(?:\d\d){0,5}(?:\.\d{1,9})?(?:[+-]\d{2,4}|Z)?"
    r"|(?:1[89]|20|21)\d\d-\d\d(?:-\d\d(?:T[\d:.]{2,18}(?:Z|[+-]\d\d:?\d\d)?)?)?"
)
_STAMP = re.compile(r"(?:1[89]|20|21)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d\d){0,3}(?:\.\d+)?(?:[+-]\d{4})?")
_NUMBER = re.compile(r"[-+]?\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?|true|false|INF|NaN")
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]{1,20}):[ /]*")
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
_ANCHOR = re.compile(r"#.*|[A-Za-z_][\w-]*", re.DOTALL)
_SCHEMES = {
    "tel": PhiType.PHONE,
    "sms": PhiType.PHONE,
    "modem": PhiType.PHONE,
    "fax": PhiType.FAX,
    "x-text-fax": PhiType.FAX,
    "mailto": PhiType.EMAIL,
}
_PEOPLE = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
_PERSONS = {
    Whose.PROVIDER: PhiType.DOCTOR, Whose.ORGANIZATION: PhiType.DOCTOR, Whose.PLACE: PhiType.DOCTOR,
}  # fmt: skip
_YEARS = frozenset({"a", "yr", "y", "year", "years"})
_BOUNDS = frozenset({"low", "high", "center", "time", "phase"})
_LONG = 6
"""A number of an element that nobody knows may be somebody's from here on."""


def _text(at: Value, _: Treatment) -> None:
    at.narrative()


def _kept(at: Value, _: Treatment) -> None:
    """Stays."""


def _code(at: Value, _: Treatment) -> None:
    if any(c.isspace() for c in at.text.strip()) or not at.text.isascii():
        at.narrative()


def _site(at: Value, found: Treatment) -> None:
    if any(c.isalnum() for c in at.text):
        at.site(found.type, kind=found.kind, subject=_PEOPLE.get(found.type))


def _name(at: Value, found: Treatment) -> None:
    whose = at.frame.whose
    kind = Kind(found.do)
    if not any(c.isalnum() for c in at.text):
        return
    if kind is Kind.NAME and whose is Whose.PRODUCT:
        at.narrative()
    elif kind is Kind.NAME and whose in {Whose.ORGANIZATION, Whose.PLACE}:
        at.site(PhiType.ORGANIZATION if whose is Whose.ORGANIZATION else PhiType.HOSPITAL)
    else:
        type_ = _PERSONS.get(whose, PhiType.PATIENT)
        at.site(type_, kind=kind, subject=_PEOPLE[type_])


def _value(at: Value, _: Treatment) -> None:
    value, frame = at.text.strip(), at.frame
    timed = is_time(frame)
    if frame.value("unit") in _YEARS and _NUMBER.fullmatch(value) and abs(float(value)) >= 90:
        at.site(PhiType.AGE, kind=Kind.REDACT)
    elif timed and _TIME.fullmatch(value):
        at.site(PhiType.DATE)
    elif timed and sum(c.isdigit() for c in value) >= 4:
        at.site(PhiType.DATE, kind=Kind.REDACT, blank="1900")
    elif _NUMBER.fullmatch(value):
        if timed is None and len(value) >= _LONG and value.isdigit():
            at.site(PhiType.DATE if _STAMP.fullmatch(value) else PhiType.IDNUM)
    elif timed is None and _STAMP.fullmatch(value):
        at.site(PhiType.DATE)
    elif any(c.isspace() for c in value) or not value.isascii() or any(c.isdigit() for c in value) or timed is None:
        at.narrative()


def is_time(frame: Frame) -> bool | None:
    """Whether ``value`` of this element is a point in time; None where neither name nor type says."""
    if "unit" in frame.attributes or frame.name in {"width", "period", "increment"}:
        return False
    type_ = frame.value("xsi:type") or frame.value("type")
    if type_:
        return type_.rpartition(":")[2].endswith(("TS", "TS.TZ", "DATE", "DT"))
    if frame.name in _BOUNDS and frame.parent:
        above = frame.parent.value("xsi:type")
        if above:
            return above.rpartition(":")[2].endswith("TS")
        return True if frame.parent.name.lower().endswith(("time", "period")) or frame.name == "time" else None
    return True if frame.name.lower().endswith("time") else None


def _root(at: Value, _: Treatment) -> None:
    value, frame = at.text.strip(), at.frame
    if is_uuid(value):
        at.site(PhiType.IDNUM if frame.value("extension") else identifier_type(at))
    elif not _OID.fullmatch(value):
        at.site(PhiType.IDNUM)
    elif not frame.value("extension") and "nullFlavor" not in frame.attributes and not at.sink.table.root(value)[0]:
        at.site(PhiType.IDNUM, blank=".".join(value.split(".")[:3]) + ".0")


def _extension(at: Value, _: Treatment) -> None:
    known, type_ = at.sink.table.root(at.frame.value("root").strip())
    if known and type_ is None:
        return
    at.site(PhiType.EMAIL if _EMAIL.fullmatch(at.text.strip()) else identifier_type(at))


def identifier_type(at: Value) -> PhiType:
    """The type of an identifier: its root's register, else where it stands, else whose it is."""
    table, frame = at.sink.table, at.frame
    known, type_ = table.root(frame.value("root").strip())
    if known and type_ is not None:
        return type_
    by_place = table.identifiers.get(f"{frame.parent_name}/{frame.name}")
    return by_place or table.identifiers.get(frame.whose, PhiType.IDNUM)


def _contact(at: Value, _: Treatment) -> None:
    value = at.text
    if (found := _SCHEME.match(value)) and (type_ := _SCHEMES.get(found[1].lower())):
        mark = value.find("?", found.end()) if type_ is PhiType.EMAIL else -1
        at.site(type_, found.end(), mark if mark >= 0 else None)
        if mark >= 0:
            at.narrative(mark + 1)
    elif _EMAIL.fullmatch(value.strip()):
        at.site(PhiType.EMAIL)
    elif "://" in value or (found and found[1].lower() in {"http", "https", "ftp", "file", "nfs"}):
        at.site(PhiType.URL)
    elif sum(c.isdigit() for c in value) >= 5:
        at.site(PhiType.PHONE)
    else:
        at.narrative()


def _link(at: Value, found: Treatment) -> None:
    value = at.text
    scheme = _SCHEME.match(value)
    if value.startswith("#"):
        return
    if scheme and scheme[1].lower() in _SCHEMES:
        _contact(at, found)
    else:
        at.narrative()


def _address(at: Value, _: Treatment) -> None:
    if not _ANCHOR.fullmatch(at.text.strip()):
        at.site(PhiType.URL, kind=Kind.REDACT, source=ELSEWHERE)


TREATMENTS: Mapping[Do, Callable[[Value, Treatment], None]] = {
    Do.KEEP: _kept,
    Do.KEY: _kept,
    Do.LABEL: _kept,
    Do.CODE: _code,
    Do.TEXT: _text,
    Do.BLOCK: _text,
    Do.SITE: _site,
    Do.FAMILY: _name,
    Do.GIVEN: _name,
    Do.NAME: _name,
    Do.VALUE: _value,
    Do.ROOT: _root,
    Do.EXTENSION: _extension,
    Do.CONTACT: _contact,
    Do.LINK: _link,
    Do.ADDRESS: _address,
}
