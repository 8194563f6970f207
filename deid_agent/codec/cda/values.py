"""The handlers of the actions: each reads one text or one attribute of a C-CDA document.

A handler takes a value and adds sites or a narrative. A value that does not have the form of its type is read as text.
Source: HL7 v3 data types (II, TS, TEL, PQ, ED), CDA Release 2.
"""

import re
from collections.abc import Callable, Mapping

from deid_agent.codec.cda.sink import CdaFrame, CdaValue, is_uuid
from deid_agent.codec.cda.table import CdaAction, CdaEntity, CdaTreatment
from deid_agent.codec.codes import has_form_of_identifier
from deid_agent.codec.dates import is_typed_date, is_whole_date
from deid_agent.codec.labels import has_identity_cue, is_reading
from deid_agent.codec.markup.elements import NO_SCHEMA, find_folders
from deid_agent.model import ATTACHMENT_URL_SOURCE, PhiType, Subject, ValueKind

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
_SCHEME_TYPES = {
    "tel": PhiType.PHONE,
    "sms": PhiType.PHONE,
    "modem": PhiType.PHONE,
    "fax": PhiType.FAX,
    "x-text-fax": PhiType.FAX,
    "mailto": PhiType.EMAIL,
}
_PEOPLE = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
_PERSONS = {
    CdaEntity.PROVIDER: PhiType.DOCTOR, CdaEntity.ORGANIZATION: PhiType.DOCTOR, CdaEntity.PLACE: PhiType.DOCTOR,
}  # fmt: skip
_YEARS = frozenset({"a", "yr", "y", "year", "years"})
_BOUNDS = frozenset({"low", "high", "center", "time", "phase"})
_CALLED = re.compile(
    r"(?:\b(?i:known as|goes by|nick ?named|called|alias|a\.?k\.?a\.?|named|genannt|rufname)[:,]? [\"'\u201c\u2018]?)"
    r"([A-Z\u00c0-\u00de][^\W\d_]+(?: [A-Z\u00c0-\u00de][^\W\d_]+){0,2})"
)
_PART = re.compile(r"[^_.]+")
_FEW_DIGITS, _LONGEST_TITLE = 3, 40
_WORKSTATIONS = frozenset({"assignedAuthoringDevice"})
_LONG = 6
"""A number of at least this many digits in an unknown element may be an identifier."""


def _text(item: CdaValue, _: CdaTreatment) -> None:
    if item.frame.name != "value" or not is_reading(item.text.strip()):
        item.narrative()


def _keep(_item: CdaValue, _: CdaTreatment) -> None:
    """Keep the value: add nothing."""


def _title(item: CdaValue, _: CdaTreatment) -> None:
    """A prefix or suffix of a name, or the type of a unit: a number is an identifier, a listed name is a name."""
    if sum(map(str.isdigit, item.text)) >= _FEW_DIGITS:
        item.site(PhiType.IDNUM)
    elif has_identity_cue(item.text) or len(item.text) > _LONGEST_TITLE or "/" in item.text:
        item.narrative()
    elif item.sink.table.people.is_person(item.text.strip()):
        _name(item, CdaTreatment(CdaAction.NAME))


def _code(item: CdaValue, _: CdaTreatment) -> None:
    system = item.frame.value("codeSystem") if item.path.endswith("@code") else ""
    if len(item.text.split(None, 1)) > 1 or not item.text.isascii():
        item.narrative()
    elif not item.sink.table.keeps_code(system, item.text.strip()):
        _identify(item)


def _identify(item: CdaValue, start: int = 0) -> None:
    """Add a code that is an identifier; of an address only the parts that identify."""
    value = item.text[start:].strip()
    parts = item.sink.table.people.find_persons(item.text) if "://" in value else ()
    for first, last in parts:
        item.site(PhiType.IDNUM, first, last)
    if not parts:
        item.site(PhiType.EMAIL if _EMAIL.fullmatch(value) else PhiType.IDNUM, start)


def describe(item: CdaValue) -> None:
    """The description of a person or a place: ``known as Happy`` states a name, which may be any word."""
    at = 0
    for found in _CALLED.finditer(item.text):
        item.narrative(at, found.start(1))
        item.site(PhiType.PATIENT, *found.span(1), kind=ValueKind.NAME)
        at = found.end(1)
    item.narrative(at)


def take_folders(item: CdaValue) -> bool:
    """Redact the addresses of schemas in a folder; False if there are none. What identifies beside them is text."""
    at = 0
    for start, end in (*find_folders(item.text), (len(item.text), 0)):
        if end == 0 and at == 0:
            return False
        if not item.sink.table.people.is_plain_label(item.text[at:start]):
            item.narrative(at, start)
        if end:
            item.site(PhiType.URL, start, end, kind=ValueKind.REDACT, blank=NO_SCHEMA)
        at = end
    return True


def _key(item: CdaValue, _: CdaTreatment) -> None:
    """The name of an element (``ID``) or a reference to one (``#ID``): both are replaced alike."""
    start = len(item.text) - len(item.text.lstrip(" #"))
    if item.sink.table.people.is_plain_code(item.text[start:].strip()):
        return
    parts = [part.span() for part in _PART.finditer(item.text, start) if has_form_of_identifier(part[0])]
    for first, last in parts or [(start, len(item.text))]:
        item.site(PhiType.IDNUM, first, last, blank=item.sink.redacted_anchor(item.text[first:last].strip()))


def _site(item: CdaValue, treatment: CdaTreatment) -> None:
    if any(c.isalnum() for c in item.text):
        item.site(treatment.type, kind=treatment.kind, subject=_PEOPLE.get(treatment.type))


def _name(item: CdaValue, treatment: CdaTreatment) -> None:
    entity = item.frame.entity
    kind = ValueKind(treatment.action)
    if not any(c.isalnum() for c in item.text):
        return
    if kind is ValueKind.NAME and entity is CdaEntity.PRODUCT:
        if item.frame.parent_name in _WORKSTATIONS and item.sink.table.people.has_person(item.text.strip()):
            item.site(PhiType.DOCTOR, kind=kind, subject=Subject.PROVIDER)
        else:
            item.narrative()
    elif kind is ValueKind.NAME and entity in {CdaEntity.ORGANIZATION, CdaEntity.PLACE}:
        item.site(PhiType.ORGANIZATION if entity is CdaEntity.ORGANIZATION else PhiType.HOSPITAL)
    else:
        type_ = _PERSONS.get(entity, PhiType.PATIENT)
        item.site(type_, kind=kind, subject=_PEOPLE[type_])


def _value(item: CdaValue, _: CdaTreatment) -> None:
    value, frame = item.text.strip(), item.frame
    timed = is_time(frame)
    if frame.value("unit") in _YEARS and _NUMBER.fullmatch(value) and abs(float(value)) >= 90:
        item.site(PhiType.AGE, kind=ValueKind.REDACT)
    elif timed and (_TIME.fullmatch(value) or is_typed_date(value)):
        item.site(PhiType.DATE)
    elif timed:  # without a use in this element, and no policy keeps it as a date
        item.site(PhiType.IDNUM, kind=ValueKind.REDACT, blank="1900")
    elif "unit" not in frame.attributes and is_whole_date(value):
        item.site(PhiType.DATE)
    elif _NUMBER.fullmatch(value):
        if timed is None and len(value) >= _LONG and value.isdigit():
            item.site(PhiType.DATE if _STAMP.fullmatch(value) else PhiType.IDNUM)
    elif timed is None and _STAMP.fullmatch(value):
        item.site(PhiType.DATE)
    else:
        item.narrative()


def is_time(frame: CdaFrame) -> bool | None:
    """True if ``@value`` of this element is a point in time; None if neither its name nor its type decides."""
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


def _root(item: CdaValue, _: CdaTreatment) -> None:
    value, frame = item.text.strip(), item.frame
    if is_uuid(value):
        item.site(PhiType.IDNUM if frame.value("extension") else identifier_type(item))
    elif not _OID.fullmatch(value):
        item.site(PhiType.IDNUM)
    elif not frame.value("extension") and "nullFlavor" not in frame.attributes and not item.sink.table.root(value)[0]:
        item.site(PhiType.IDNUM, blank=".".join(value.split(".")[:3]) + ".0")


def _extension(item: CdaValue, _: CdaTreatment) -> None:
    known, type_ = item.sink.table.root(item.frame.value("root").strip())
    if known and type_ is None:
        return
    item.site(PhiType.EMAIL if _EMAIL.fullmatch(item.text.strip()) else identifier_type(item))


def identifier_type(item: CdaValue) -> PhiType:
    """The PHI type of an identifier: by the register of its root, else by its parent element, else by its entity."""
    table, frame = item.sink.table, item.frame
    known, type_ = table.root(frame.value("root").strip())
    if known and type_ is not None:
        return type_
    by_element = table.identifiers.get(f"{frame.parent_name}/{frame.name}")
    return by_element or table.identifiers.get(frame.entity, PhiType.IDNUM)


def _contact(item: CdaValue, _: CdaTreatment) -> None:
    value = item.text
    if (found := _SCHEME.match(value)) and (type_ := _SCHEME_TYPES.get(found[1].lower())):
        mark = value.find("?", found.end()) if type_ is PhiType.EMAIL else -1
        item.site(type_, found.end(), mark if mark >= 0 else None)
        if mark >= 0:
            item.narrative(mark + 1)
    elif _EMAIL.fullmatch(value.strip()):
        item.site(PhiType.EMAIL)
    elif (
        value.strip().startswith("//")
        or "://" in value
        or (found and found[1].lower() in {"http", "https", "ftp", "file", "nfs"})
    ):
        item.site(PhiType.URL)
    elif sum(c.isdigit() for c in value) >= 5:
        item.site(PhiType.PHONE)
    elif found and not any(c.isspace() for c in value[found.end() :].strip()):
        item.site(PhiType.USERNAME, found.end())  # the account of a messenger
    else:
        item.narrative()


def _link(item: CdaValue, treatment: CdaTreatment) -> None:
    value = item.text
    scheme = _SCHEME.match(value)
    if value.startswith("#"):
        if not item.take_dates():
            _key(item, treatment)
        return
    if scheme and scheme[1].lower() in _SCHEME_TYPES:
        _contact(item, treatment)
    else:
        item.narrative()


def _address(item: CdaValue, treatment: CdaTreatment) -> None:
    if not _ANCHOR.fullmatch(item.text.strip()):
        item.site(PhiType.URL, kind=ValueKind.REDACT, source=ATTACHMENT_URL_SOURCE)
    elif not item.take_dates():
        _key(item, treatment)


HANDLERS: Mapping[CdaAction, Callable[[CdaValue, CdaTreatment], None]] = {
    CdaAction.KEEP: _title,
    CdaAction.KEY: _key,
    CdaAction.LABEL: _keep,
    CdaAction.CODE: _code,
    CdaAction.TEXT: _text,
    CdaAction.BLOCK: _text,
    CdaAction.SITE: _site,
    CdaAction.FAMILY: _name,
    CdaAction.GIVEN: _name,
    CdaAction.NAME: _name,
    CdaAction.VALUE: _value,
    CdaAction.ROOT: _root,
    CdaAction.EXTENSION: _extension,
    CdaAction.CONTACT: _contact,
    CdaAction.LINK: _link,
    CdaAction.ADDRESS: _address,
}
