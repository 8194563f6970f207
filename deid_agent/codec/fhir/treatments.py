"""The handlers of the treatments of ``types.toml``: each reads one scalar of a resource.

A handler takes a scalar and adds sites or a narrative. A value that does not have the form of its type is read as text,
so that no value is lost. The handlers of addresses, of codes and of whole values are in ``addresses``, ``coded`` and
``sink``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from deid_agent.codec.base import find_labelled_cells, markup_rows
from deid_agent.codec.codes import is_long_number
from deid_agent.codec.fhir.addresses import (
    SCHEMES,
    handle_address,
    handle_canonical,
    handle_id,
    handle_link,
    handle_parts,
    handle_reference,
    handle_search,
    handle_uri,
)
from deid_agent.codec.fhir.coded import CODE_HANDLERS
from deid_agent.codec.fhir.shapes import FhirTable, FhirTreatment
from deid_agent.codec.fhir.sink import (
    DATE,
    PEOPLE,
    WHOLE_VALUE_HANDLERS,
    FhirFrame,
    FhirSink,
    Handler,
    Scalar,
    decode_attachment,
)
from deid_agent.codec.fhir.tokens import read_xhtml
from deid_agent.codec.fhir.uris import identifier_start
from deid_agent.codec.json_ranges import character_ranges
from deid_agent.codec.labels import AGE_PLACEHOLDER, has_identity_cue
from deid_agent.model import Attachment, MessageError, Narrative, PhiType, Reason, ValueKind

_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
_HANDLE = re.compile(r"(?=[^\s]*[0-9_@:.])[^\s]{3,64}")  # an account of a messenger: skype:ada.okafor
_IMAGE = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,")
_CONTACTS = {
    "phone": PhiType.PHONE,
    "pager": PhiType.PHONE,
    "sms": PhiType.PHONE,
    "fax": PhiType.FAX,
    "email": PhiType.EMAIL,
    "url": PhiType.URL,
}
_YEARS = frozenset({"a", "y", "yr", "yrs", "year", "years", "jahr", "jahre", "ans", "anos", "años", "anni", "{years}"})
_MANY = 10_000
"""A number of an unknown element may be an identifier from this value on (a ZIP code, a record number)."""


def _handle_unknown(scalar: Scalar) -> None:
    value = scalar.value
    if len(value) > 4 and DATE.fullmatch(value):
        scalar.site(PhiType.DATE)
    elif is_long_number(value):
        scalar.site(PhiType.IDNUM)
    elif " " not in value and (value.startswith("urn:uuid:") or scalar.sink.addresses.resource_type(value)):
        handle_address(scalar)
    else:
        scalar.text()


def _handle_identifier(scalar: Scalar) -> None:
    scalar.site(identifier_type(scalar.table, scalar.frame.owner, scalar.frame.default), identifier_start(scalar.value))
    if "://" in scalar.value:
        scalar.persons()


def identifier_type(table: FhirTable, owner: Mapping[str, object], default: PhiType) -> PhiType:
    """The PHI type of an Identifier: by the codes of its type, its system, the text of its type, else ``default``."""
    kind = owner.get("type")
    codings = kind.get("coding") if isinstance(kind, dict) else None
    for coding in codings if isinstance(codings, list) else []:
        code = coding.get("code") if isinstance(coding, dict) else None
        if isinstance(code, str) and code in table.identifier_types:
            return table.identifier_types[code]
    system = owner.get("system")
    if isinstance(system, str) and (found := table.identifier_type_of(system)):
        return found
    label = kind.get("text") if isinstance(kind, dict) else None
    if isinstance(label, str) and (found := table.identifier_labels.get(label.strip().lower())):
        return found
    return default


def _handle_labelled(scalar: Scalar) -> None:
    """A value beside a label of identity. One without a form of that identity is text, unless it is a code."""
    meaning, owner = scalar.treatment.meaning, scalar.frame.owner
    member = scalar.path.rpartition(".")[2]
    if member in {"code", "display"} and scalar.table.is_public_system(owner.get("system")):
        if has_identity_cue(scalar.value):
            scalar.text()
        return
    judged = scalar.table.labels.judge(meaning, scalar.value) if meaning is not None else None
    if judged is None or meaning is None:
        if member != "code":
            scalar.text()
        return
    type_, kind = judged
    if type_ is PhiType.AGE and kind is ValueKind.REDACT:
        kind = ValueKind.VALUE
    scalar.site(type_, kind=kind, subject=meaning.subject, date_kind=meaning.date_kind)


def _handle_labelled_number(scalar: Scalar, value: int | float) -> None:
    """A bare number beside a label of identity. A quantity with a unit is a measurement, or an age in years."""
    meaning, owner = scalar.treatment.meaning, scalar.frame.owner
    if meaning is None:
        return
    unit = owner.get("code") or owner.get("unit") if scalar.path.endswith(".value") else None
    aged = meaning.type is PhiType.AGE
    if isinstance(unit, str) and not (aged and unit.strip().lower() in _YEARS):
        return
    if judged := scalar.table.labels.judge(
        meaning, f"{value:f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
    ):
        scalar.number(judged[0], AGE_PLACEHOLDER if judged[0] is PhiType.AGE else "0")


def _handle_contact(scalar: Scalar) -> None:
    system, value = scalar.frame.owner.get("system"), scalar.value
    for scheme, meant in SCHEMES.items():
        if value.startswith(scheme):
            scalar.site(meant, len(scheme))
            return
    type_ = _CONTACTS.get(system) if isinstance(system, str) else None
    if _EMAIL.fullmatch(value):
        type_ = PhiType.EMAIL
    elif type_ is None and "://" in value:
        type_ = PhiType.URL
    elif type_ is None and sum(c.isdigit() for c in value) >= 5:
        type_ = PhiType.PHONE
    elif type_ is None and system is not None and _HANDLE.fullmatch(value):
        type_ = PhiType.USERNAME
    if type_ is None:
        scalar.text()
    else:
        scalar.site(type_)


def _handle_person(scalar: Scalar) -> None:
    if scalar.table.labels.reads_as_person(scalar.value):
        scalar.site(PhiType.DOCTOR, kind=ValueKind.NAME, subject=PEOPLE[PhiType.DOCTOR])
    else:
        scalar.text()


def _handle_data(scalar: Scalar) -> None:
    if not scalar.value:
        return
    data, layout = decode_attachment(scalar.value, scalar.path)
    found = Attachment(scalar.path, scalar.start, scalar.end, "", "base64", data, layout=layout)
    if scalar.frame.data is None:
        scalar.frame.data = found
    else:
        scalar.sink.attachments.append(found)


def _handle_mark(scalar: Scalar) -> None:
    prose = " " in scalar.value and "/" not in scalar.value
    if prose or not (scalar.path.endswith(".hash") or scalar.table.addresses.people.is_plain_label(scalar.value)):
        scalar.text()
        return
    if scalar.frame.siblings is None:
        scalar.frame.siblings = {}
    scalar.frame.siblings[scalar.path.rpartition(".")[2]] = (scalar.start, scalar.end)


def _handle_xhtml(scalar: Scalar) -> None:
    starts, ends = character_ranges(scalar.sink.raw, scalar.start, scalar.end, len(scalar.value))
    inline, tags = scalar.table.inline, scalar.table.tags
    mapped, attributes = read_xhtml(scalar.value, starts, ends, inline=inline, tags=tags)
    pieces, at = [mapped], 0
    for cell in find_labelled_cells(scalar.table.labels, markup_rows(scalar.value)) if "<t" in scalar.value else ():
        first, last = cell.cell.start, cell.cell.end
        before, _ = read_xhtml(scalar.value[at:first], starts, ends, offset=at, inline=inline, tags=tags)
        pieces = [*pieces, before] if at else [before]
        at = last
        if cell.type is not None:
            owner, span = replace(scalar.frame, group=f"{scalar.path}@{first}"), (starts[first], ends[last - 1])
            blank = cell.blank or "redacted"
            scalar.sink.site(scalar.path, *span, cell.cell.text, cell.type, owner, cell.kind, cell.subject, blank)
    if at:
        pieces.append(read_xhtml(scalar.value[at:], starts, ends, offset=at, inline=inline, tags=tags)[0])
    scalar.sink.narratives += (Narrative(scalar.path, piece) for piece in pieces if piece.text.strip())
    for found in attributes:
        if not found.value.strip():
            continue
        path, span = f"{scalar.path}/@{found.name}", (starts[found.start], ends[found.end - 1])
        if found.name in scalar.table.link_attributes:
            if _handle_linked(Scalar(scalar.sink, scalar.treatment, found.value, *span, path, scalar.frame)):
                continue
        elif found.name not in scalar.table.text_attributes:
            continue
        mapped, _ = read_xhtml(found.value, starts, ends, offset=found.start, quoted=True)
        scalar.sink.narratives.append(Narrative(path, mapped))


def _handle_linked(scalar: Scalar) -> bool:
    """Handle an address in markup: a picture is an attachment, a reference keeps its target, a vocabulary is kept.

    False for any other address.
    """
    value = scalar.value
    if (image := _IMAGE.match(value)) and image.end() < len(value):
        try:
            data, layout = decode_attachment(value[image.end() :], scalar.path)
        except MessageError as problem:
            if problem.reason is Reason.RESOURCE:
                raise
            return False
        first, last = scalar.byte_range(image.end(), len(value))
        scalar.sink.attachments.append(Attachment(scalar.path, first, last, image[1], "base64", data, layout=layout))
        return True
    if value.startswith(scalar.table.vocabularies):
        return True
    if "&" not in value and (found := scalar.sink.addresses.parts(value)):
        handle_parts(scalar, found)
        return True
    return False


def _on_scalar(handle: Callable[[Scalar], None]) -> Handler:
    def call(
        sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
    ) -> None:
        handle(Scalar(sink, treatment, value, start, end, path, frame))

    return call


HANDLERS: Mapping[str, Handler] = {
    **WHOLE_VALUE_HANDLERS,
    **CODE_HANDLERS,
    "unknown": _on_scalar(_handle_unknown),
    "id": handle_id,
    "reference": handle_reference,
    "search": _on_scalar(handle_search),
    "uri": _on_scalar(handle_uri),
    "canonical": _on_scalar(handle_canonical),
    "identifier": _on_scalar(_handle_identifier),
    "labelled": _on_scalar(_handle_labelled),
    "contact": _on_scalar(_handle_contact),
    "person": _on_scalar(_handle_person),
    "link": _on_scalar(handle_link),
    "xhtml": _on_scalar(_handle_xhtml),
    "data": _on_scalar(_handle_data),
    "mark": _on_scalar(_handle_mark),
}


def handle_number(scalar: Scalar, value: int | float) -> None:
    """Handle a bare number of an element that does not keep numbers; ``scalar.value`` is its text."""
    match scalar.treatment.name:
        case "mark":
            _handle_mark(scalar)
        case "age":
            owner = scalar.frame.owner
            if value >= 90 and str(owner.get("code") or owner.get("unit") or "a").strip().lower() in _YEARS:
                scalar.number(PhiType.AGE, AGE_PLACEHOLDER)
        case "labelled":
            _handle_labelled_number(scalar, value)
        case "text" | "unknown":
            if isinstance(value, int) and abs(value) >= _MANY:
                scalar.number(PhiType.IDNUM, "0")
        case _ if value:  # zero identifies no person
            scalar.number(scalar.treatment.type, "0")
