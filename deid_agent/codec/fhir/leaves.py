"""The treatments: what one scalar of a resource is, by the word that ``types.toml`` has for it.

Each takes a scalar and emits sites or a narrative. Nothing is passed over by
mistake: what does not have the form of its type is read as text.
"""

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from deid_agent.codec.fhir import uris, xhtml
from deid_agent.codec.fhir.shapes import Leaf, Table
from deid_agent.codec.fhir.sink import Frame, Scalar, Sink, decoded
from deid_agent.codec.fhir.tokens import characters
from deid_agent.codec.fhir.whole import DATE, PEOPLE, WHOLE, Treatment
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import ELSEWHERE, Attachment, Kind, Narrative

_PREFIX = re.compile(r"(?:eq|ne|gt|lt|ge|le|sa|eb|ap)?(?=[0-9]{4})")
_ADDRESS = re.compile(r"[/:#?]")  # nothing without one of these names a resource
_LAST = re.compile(r"(?:[^\s?#|]*/)?([^\s/?#|]+)/?")
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
_IMAGE = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,")
_CONTACTS = {
    "phone": PhiType.PHONE,
    "pager": PhiType.PHONE,
    "sms": PhiType.PHONE,
    "fax": PhiType.FAX,
    "email": PhiType.EMAIL,
    "url": PhiType.URL,
}
_SCHEMES = {"mailto:": PhiType.EMAIL, "tel:": PhiType.PHONE, "fax:": PhiType.FAX}
_IDNUM = PhiType.IDNUM
_MANY = 10_000
"""From here on a number of an unknown element may be somebody's (a ZIP code, a record number)."""


def _id(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    if ":" in value or "." in value:
        at = Scalar(sink, leaf, value, start, end, path, frame)
        at.site(_IDNUM, uris.tail(value), uris.stem(value, len(value)))
    else:
        sink.site(path, start, end, value, _IDNUM, frame)


def _unknown(at: Scalar) -> None:
    value = at.value
    if len(value) > 4 and DATE.fullmatch(value):
        at.site(PhiType.DATE)
    elif " " not in value and (value.startswith("urn:uuid:") or at.sink.addresses.type_of(value)):
        _address(at)
    else:
        at.text()


def _reference(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    found = sink.addresses.id_at(value) if end - start == len(value) else None
    if found is None:
        _address(Scalar(sink, leaf, value, start, end, path, frame))
    else:
        first, last = found
        sink.site(path, start + first, start + last, value[first:last], _IDNUM, frame)


def _address(at: Scalar) -> None:
    value = at.value
    if found := at.sink.addresses.parts(value):
        _parts(at, found)
    elif value == "#" or value.startswith("urn:oid:"):
        return
    elif value.startswith("urn:"):
        at.site(PhiType.IDNUM, uris.tail(value))
    elif "://" in value and " " not in value:
        at.site(PhiType.URL)
    elif (name := _LAST.fullmatch(value)) is None:
        at.text()
    elif name[1] not in at.table.resources and name[1] != "metadata" and name[1][0] not in "$_":
        at.site(PhiType.IDNUM, *name.span(1))


def _search(at: Scalar) -> None:
    mark = at.value.find("?")
    if mark >= 0 and "=" not in at.value[:mark]:
        _address(at)
    else:
        _parts(at, list(uris.search(at.value)))


def _parts(at: Scalar, found: list[uris.Part]) -> None:
    """Each part by what its parameter means; a part without one is an id."""
    for part in found:
        inside = at.value[part.start : part.end]
        nested = at.sink.addresses.parts(inside) if _ADDRESS.search(inside) else []
        if not part.parameter and not nested:
            at.site(PhiType.IDNUM, part.start, part.end)
            continue
        leaf = at.table.queries.get(part.parameter, Leaf("unknown")) if part.parameter else Leaf("id")
        if leaf is None:
            continue
        prefix = _PREFIX.match(inside)
        if nested:
            for inner in nested:
                at.site(PhiType.IDNUM, part.start + inner.start, part.start + inner.end)
        elif leaf.name == "identifier":
            at.site(at.table.system(unquote(part.system)) or PhiType.IDNUM, part.start + uris.tail(inside), part.end)
        elif leaf.name == "site":
            at.site(leaf.type, part.start, part.end, kind=leaf.kind, subject=PEOPLE.get(leaf.type))
        elif leaf.name == "id":
            at.site(PhiType.IDNUM, part.start, part.end)
        elif prefix and DATE.fullmatch(inside, prefix.end()):
            at.site(PhiType.DATE, part.start + prefix.end(), part.end)
        else:
            at.text(part.start, part.end)


def _uri(at: Scalar) -> None:
    value = at.value
    if value.startswith(at.table.vocabularies):
        return
    if "://" in value and " " not in value and at.sink.addresses.type_of(value) in at.table.definitions:
        return  # the name of a definition; STU3 types many canonicals as uri
    if found := at.sink.addresses.parts(value):
        _parts(at, found)
        return
    for scheme, meant in (*_SCHEMES.items(), ("urn:", PhiType.IDNUM)):
        if value.startswith(scheme):
            at.site(meant, uris.tail(value) or len(scheme))
            return
    if "://" in value and " " not in value:
        at.site(PhiType.URL)
    else:
        at.text()


def _canonical(at: Scalar) -> None:
    if "://" in at.value and " " not in at.value:
        return
    if found := at.sink.addresses.parts(at.value):
        _parts(at, found)
    elif not at.value.startswith("urn:"):
        at.text()


def _identifier(at: Scalar) -> None:
    at.site(identifier_type(at.table, at.frame.owner, at.frame.default), uris.tail(at.value))


def identifier_type(table: Table, owner: Mapping[str, object], default: PhiType) -> PhiType:
    """The PHI type of an Identifier: its type's codes, its system, its type's text, else where it stands."""
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


def _contact(at: Scalar) -> None:
    system, value = at.frame.owner.get("system"), at.value
    for scheme, meant in _SCHEMES.items():
        if value.startswith(scheme):
            at.site(meant, len(scheme))
            return
    type_ = _CONTACTS.get(system) if isinstance(system, str) else None
    if _EMAIL.fullmatch(value):
        type_ = PhiType.EMAIL
    elif type_ is None and "://" in value:
        type_ = PhiType.URL
    elif type_ is None and sum(c.isdigit() for c in value) >= 5:
        type_ = PhiType.PHONE
    if type_ is None:
        at.text()
    else:
        at.site(type_)


def _link(at: Scalar) -> None:
    if found := at.sink.addresses.parts(at.value):
        _parts(at, found)
    else:
        at.site(PhiType.URL, kind=Kind.REDACT, source=ELSEWHERE)


def _data(at: Scalar) -> None:
    if not at.value:
        return
    data, layout = decoded(at.value, at.path)
    found = Attachment(at.path, at.start, at.end, "", "base64", data, armor=layout)
    if at.frame.data is None:
        at.frame.data = found
    else:
        at.sink.attachments.append(found)


def _mark(at: Scalar) -> None:
    if " " in at.value and "/" not in at.value:
        at.text()
        return
    if at.frame.marks is None:
        at.frame.marks = {}
    at.frame.marks[at.path.rpartition(".")[2]] = (at.start, at.end)


def _xhtml(at: Scalar) -> None:
    starts, ends = characters(at.sink.raw, at.start, at.end, len(at.value))
    mapped, attributes = xhtml.read(at.value, starts, ends, inline=at.table.inline, tags=at.table.tags)
    if mapped.text.strip():
        at.sink.narratives.append(Narrative(at.path, mapped))
    for found in attributes:
        if not found.value.strip():
            continue
        path, span = f"{at.path}/@{found.name}", (starts[found.start], ends[found.end - 1])
        if found.name in at.table.link_attributes:
            if _linked(Scalar(at.sink, at.leaf, found.value, *span, path, at.frame)):
                continue
        elif found.name not in at.table.text_attributes:
            continue
        mapped, _ = xhtml.read(found.value, starts, ends, offset=found.start, quoted=True)
        at.sink.narratives.append(Narrative(path, mapped))


def _linked(at: Scalar) -> bool:
    """An address in markup: a picture is an attachment, a reference keeps pointing, a vocabulary stays."""
    value = at.value
    if (image := _IMAGE.match(value)) and image.end() < len(value):
        try:
            data, layout = decoded(value[image.end() :], at.path)
        except MessageError as problem:
            if problem.reason is Reason.RESOURCE:
                raise
            return False
        first, last = at.part(image.end(), len(value))
        at.sink.attachments.append(Attachment(at.path, first, last, image[1], "base64", data, armor=layout))
        return True
    if value.startswith(at.table.vocabularies):
        return True
    if "&" not in value and (found := at.sink.addresses.parts(value)):
        _parts(at, found)
        return True
    return False


def _of_scalar(treat: Callable[[Scalar], None]) -> Treatment:
    def call(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
        treat(Scalar(sink, leaf, value, start, end, path, frame))

    return call


TREATMENTS: Mapping[str, Treatment] = {
    **WHOLE,
    "unknown": _of_scalar(_unknown),
    "id": _id,
    "reference": _reference,
    "search": _of_scalar(_search),
    "uri": _of_scalar(_uri),
    "canonical": _of_scalar(_canonical),
    "identifier": _of_scalar(_identifier),
    "contact": _of_scalar(_contact),
    "link": _of_scalar(_link),
    "xhtml": _of_scalar(_xhtml),
    "data": _of_scalar(_data),
    "mark": _of_scalar(_mark),
}


def number(at: Scalar, value: int | float) -> None:
    """A bare number where its leaf does not let numbers stay; ``at.value`` is its text."""
    match at.leaf.name:
        case "mark":
            _mark(at)
        case "age":
            if value >= 90 and at.frame.owner.get("code", "a") == "a":
                at.number(PhiType.AGE, "90")
        case "text" | "unknown":
            if isinstance(value, int) and abs(value) >= _MANY:
                at.number(PhiType.IDNUM, "0")
        case _ if value:  # nothing is nobody's
            at.number(at.leaf.type, "0")
