"""The treatments: what one scalar of a resource is, by the word that ``types.toml`` has for it.

Each takes the sink, its leaf, the value, the byte range inside the quotes, the path and
the frame (the object around it), and emits sites or a narrative. Nothing is passed over
by mistake: what does not have the form of its type is read as text.
"""

import re
from collections.abc import Callable, Mapping

from deid_agent.codec.fhir import uris, xhtml
from deid_agent.codec.fhir.shapes import Leaf
from deid_agent.codec.fhir.sink import Frame, Sink, decoded
from deid_agent.codec.fhir.tokens import characters
from deid_agent.errors import MessageError
from deid_agent.mapped import MappedText
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Kind, Narrative, Subject

Treatment = Callable[[Sink, Leaf, str, int, int, str, Frame], None]

_DATE = re.compile(
    r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01])"
    r"(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?)?)?"
)
_SEARCHED_DATE = re.compile(r"(?:eq|ne|gt|lt|ge|le|sa|eb|ap)?(?=\d{4})")
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?|true|false")
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
_IMAGE = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,")
_PEOPLE = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
_CONTACTS = {
    "phone": PhiType.PHONE,
    "pager": PhiType.PHONE,
    "sms": PhiType.PHONE,
    "fax": PhiType.FAX,
    "email": PhiType.EMAIL,
    "url": PhiType.URL,
}
_ID_FORM = re.compile(r"[A-Za-z0-9.-]{1,64}")


def _site(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    subject = _PEOPLE.get(leaf.type)
    blank = "AA==" if leaf.kind is Kind.REDACT and _looks_base64(path) else ""
    sink.site(path, (start, end), leaf.type, value, frame, kind=leaf.kind, subject=subject, blank=blank)


def _text(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    sink.text(path, start, end, value)


def _unless(pattern: re.Pattern[str]) -> Treatment:
    def check(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
        if not pattern.fullmatch(value):
            sink.text(path, start, end, value)

    return check


def _date(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if _DATE.fullmatch(value):
        sink.site(path, (start, end), PhiType.DATE, value, frame)
    else:
        sink.text(path, start, end, value)


def _id(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    first = uris.tail(value)
    sink.site(path, sink.part(start, end, value, first, len(value)), PhiType.IDNUM, value[first:], frame)


def _unknown(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if _DATE.fullmatch(value) and len(value) > 4:
        sink.site(path, (start, end), PhiType.DATE, value, frame)
    elif value.startswith("urn:uuid:") or (uris.type_of(value, sink.table.resources) and " " not in value):
        _reference(sink, leaf, value, start, end, path, frame)
    else:
        sink.text(path, start, end, value)


def _reference(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    found = uris.parts(value, sink.table.resources)
    if found:
        _parts(sink, found, value, start, end, path, frame)
    elif value != "#" and not value.startswith("urn:"):
        if "://" in value:
            sink.site(path, (start, end), PhiType.URL, value, frame)
        elif " " in value:
            sink.text(path, start, end, value)
        elif value:
            first = min(value.rfind("/") + 1, len(value) - 1)
            sink.site(path, sink.part(start, end, value, first, len(value)), PhiType.IDNUM, value[first:], frame)


def _search(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    mark = value.find("?")
    if mark >= 0 and "=" not in value[:mark]:
        _reference(sink, leaf, value, start, end, path, frame)
    else:
        _parts(sink, list(uris.search(value)), value, start, end, path, frame)


def _parts(sink: Sink, found: list[uris.Part], value: str, start: int, end: int, path: str, frame: Frame) -> None:
    """Each part by what its parameter means; a part without one is an id."""
    for part in found:
        inside = value[part.start : part.end]
        span = sink.part(start, end, value, part.start, part.end)
        query = sink.table.queries.get(part.parameter, Leaf("unknown")) if part.parameter else Leaf("id")
        if query is None:
            continue
        if nested := uris.parts(inside, sink.table.resources):
            for inner in nested:
                if not inner.parameter:
                    at = (part.start + inner.start, part.start + inner.end)
                    sink.site(path, sink.part(start, end, value, *at), PhiType.IDNUM, value[slice(*at)], frame)
        elif query.name == "identifier":
            type_ = sink.table.system(part.system) or PhiType.IDNUM
            first = uris.tail(inside)
            at = (part.start + first, part.end)
            sink.site(path, sink.part(start, end, value, *at), type_, inside[first:], frame)
        elif query.name == "site":
            sink.site(path, span, query.type, inside, frame, kind=query.kind, subject=_PEOPLE.get(query.type))
        elif query.name == "id":
            sink.site(path, span, PhiType.IDNUM, inside, frame)
        elif (prefix := _SEARCHED_DATE.match(inside)) and _DATE.fullmatch(inside, prefix.end()):
            at = (part.start + prefix.end(), part.end)
            sink.site(path, sink.part(start, end, value, *at), PhiType.DATE, inside[prefix.end() :], frame)
        else:
            sink.text(path, *span, inside)


def _uri(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if value.startswith(sink.table.vocabularies):
        return
    found = uris.parts(value, sink.table.resources)
    if found:
        _parts(sink, found, value, start, end, path, frame)
    elif value.startswith("mailto:"):
        sink.site(path, sink.part(start, end, value, 7, len(value)), PhiType.EMAIL, value[7:], frame)
    elif value.startswith("tel:"):
        sink.site(path, sink.part(start, end, value, 4, len(value)), PhiType.PHONE, value[4:], frame)
    elif "://" in value and " " not in value:
        sink.site(path, (start, end), PhiType.URL, value, frame)
    else:
        sink.text(path, start, end, value)


def _canonical(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if "://" in value and " " not in value:
        return
    found = uris.parts(value, sink.table.resources)
    if found:
        _parts(sink, found, value, start, end, path, frame)
    elif not value.startswith("urn:"):
        sink.text(path, start, end, value)


def _identifier(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    first = uris.tail(value)
    span = sink.part(start, end, value, first, len(value))
    sink.site(path, span, identifier_type(sink, frame.owner, frame.default), value[first:], frame)


def identifier_type(sink: Sink, owner: Mapping[str, object], default: PhiType) -> PhiType:
    """The PHI type of an Identifier: its type's codes, its system, its type's text, else where it stands."""
    table = sink.table
    kind = owner.get("type")
    codings = kind.get("coding") if isinstance(kind, dict) else None
    for coding in codings if isinstance(codings, list) else []:
        code = coding.get("code") if isinstance(coding, dict) else None
        if isinstance(code, str) and code in table.identifier_types:
            return table.identifier_types[code]
    system = owner.get("system")
    if isinstance(system, str) and (found := table.system(system)):
        return found
    label = kind.get("text") if isinstance(kind, dict) else None
    if isinstance(label, str) and (found := table.identifier_labels.get(label.strip().lower())):
        return found
    return default


def _contact(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    system = frame.owner.get("system")
    type_ = _CONTACTS.get(system) if isinstance(system, str) else None
    for scheme, meant in (("mailto:", PhiType.EMAIL), ("tel:", PhiType.PHONE), ("fax:", PhiType.FAX)):
        if value.startswith(scheme) and len(value) > len(scheme):
            start, end = sink.part(start, end, value, len(scheme), len(value))
            value, type_ = value[len(scheme) :], meant
    if _EMAIL.fullmatch(value):
        type_ = PhiType.EMAIL
    elif type_ is None:
        digits = sum(c.isdigit() for c in value)
        type_ = PhiType.URL if "://" in value else PhiType.PHONE if digits >= 5 else None
    if type_ is None:
        sink.text(path, start, end, value)
    else:
        sink.site(path, (start, end), type_, value, frame)


def _display(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if frame.role is None:
        sink.text(path, start, end, value)
        return
    kind = Kind.NAME if frame.role in _PEOPLE else Kind.VALUE
    subject = _PEOPLE.get(frame.role, Subject.OTHER)
    sink.site(path, (start, end), frame.role, value, frame, kind=kind, subject=subject)


def _name(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    patient = frame.subject is Subject.PATIENT
    type_, subject = (PhiType.PATIENT, Subject.PATIENT) if patient else (PhiType.DOCTOR, Subject.PROVIDER)
    sink.site(path, (start, end), type_, value, frame, kind=Kind(leaf.name), subject=subject)


def _link(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if found := uris.parts(value, sink.table.resources):
        _parts(sink, found, value, start, end, path, frame)
    else:
        sink.site(path, (start, end), PhiType.URL, value, frame, kind=Kind.REDACT)


def _data(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    data = decoded(value, path)
    if frame.data is None:
        frame.data = (path, start, end, data)
    else:
        sink.attachments.append(Attachment(path, start, end, "", "base64", data))


def _mark(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if frame.marks is None:
        frame.marks = {}
    frame.marks[path.rpartition(".")[2]] = (start, end)


def _xhtml(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    starts, ends = characters(sink.raw, start, end, len(value))
    mapped, attributes = xhtml.read(value, starts, ends, sink.table.inline)
    if mapped.text.strip():
        sink.narratives.append(Narrative(path, mapped))
    for found in attributes:
        where = f"{path}/@{found.name}"
        if not found.value.strip():
            continue
        span = (starts[found.start], ends[found.end - 1])
        if found.name in sink.table.link_attributes and _linked(sink, found, where, span, frame):
            continue
        if found.name in sink.table.text_attributes | sink.table.link_attributes:
            part = slice(found.start, found.end)
            sink.narratives.append(Narrative(where, xhtml.inner(found.value, starts[part], ends[part])))


def _linked(sink: Sink, found: xhtml.Attribute, path: str, span: tuple[int, int], frame: Frame) -> bool:
    """An address in markup: a picture is an attachment, a reference keeps pointing, a vocabulary stays."""
    value = found.value
    if image := _IMAGE.match(value):
        first, _ = sink.part(*span, value, image.end(), len(value)) if image.end() < len(value) else span
        try:
            data = decoded(value[image.end() :], path)
        except MessageError:
            return False
        sink.attachments.append(Attachment(path, first, span[1], image[1], "base64", data))
        return True
    if value.startswith(sink.table.vocabularies):
        return True
    if "&" not in value and (parts := uris.parts(value, sink.table.resources)):
        _parts(sink, parts, value, *span, path, frame)
        return True
    return False


def _age(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    sink.text(path, start, end, value)


def _looks_base64(path: str) -> bool:
    return path.endswith((".data", ".blob", ".query", "AIDC", "Base64Binary"))


TREATMENTS: Mapping[str, Treatment] = {
    "site": _site,
    "text": _text,
    "unknown": _unknown,
    "number": _unless(_NUMBER),
    "code": _unless(re.compile(r"\S+")),
    "time": _unless(_TIME),
    "date": _date,
    "id": _id,
    "reference": _reference,
    "search": _search,
    "uri": _uri,
    "canonical": _canonical,
    "identifier": _identifier,
    "contact": _contact,
    "display": _display,
    "family": _name,
    "given": _name,
    "name": _name,
    "link": _link,
    "xhtml": _xhtml,
    "data": _data,
    "mark": _mark,
    "age": _age,
}


def number(sink: Sink, leaf: Leaf, value: int | float, start: int, end: int, path: str, frame: Frame) -> None:
    """A bare number where its leaf does not let numbers stay."""
    if leaf.name == "mark":
        _mark(sink, leaf, "", start, end, path, frame)
    elif leaf.name == "age":
        if value >= 90 and frame.owner.get("code", "a") == "a":
            sink.number(path, (start, end), PhiType.AGE, frame, blank="90")
    elif leaf.name not in {"text", "unknown"} or (isinstance(value, int) and abs(value) >= 10_000):
        sink.number(path, (start, end), leaf.type, frame)
