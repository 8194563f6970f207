"""The handlers of references, ids and addresses: a value with a query or a path is read part by part.

``uris`` divides an address into parts, by the resources and definitions of FHIR.
"""

import re
from urllib.parse import unquote

from deid_agent.codec.fhir.shapes import FhirTreatment
from deid_agent.codec.fhir.sink import DATE, PEOPLE, FhirFrame, FhirSink, Scalar, date_kind_of
from deid_agent.codec.fhir.uris import (
    UriPart,
    end_without_extension,
    identifier_start,
    is_namespace,
    search_parts,
)
from deid_agent.model import ATTACHMENT_URL_SOURCE, PhiType, ValueKind

_PREFIX = re.compile(r"(?:eq|ne|gt|lt|ge|le|sa|eb|ap)?(?=[0-9]{4})")
_ADDRESS = re.compile(r"[/:#?]")  # an address of a resource contains one of these
_LAST = re.compile(r"(?:[^\s?#|]*/)?([^\s/?#|]+)/?")
_NETWORK = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{1,20}:)?([0-9]{1,3}(?:\.[0-9]{1,3}){3})(?=[:/]|\Z)")
SCHEMES = {"mailto:": PhiType.EMAIL, "tel:": PhiType.PHONE, "fax:": PhiType.FAX}
_IDNUM = PhiType.IDNUM


def handle_id(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    """Handle an id: an identifier, or a kept name of a definition."""
    owner = frame.owner
    name = owner.get("resourceType")
    if isinstance(name, str) and name in sink.table.definitions and "contained" not in path:
        # References to it stay too, see ``AddressReader.names_definition``.
        sink.persons(path, start, end, value, frame)
        return
    if ":" in value or "." in value:
        scalar = Scalar(sink, treatment, value, start, end, path, frame)
        scalar.site(_IDNUM, identifier_start(value), end_without_extension(value, len(value)))
        scalar.persons()
    else:
        sink.site(path, start, end, value, _IDNUM, frame)


def handle_reference(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    """Handle the address of another resource. Its id is an identifier."""
    found = sink.addresses.simple(value) if end - start == len(value) else None
    if found is not None:
        (first, last), host = found
        sink.site(path, start + first, start + last, value[first:last], _IDNUM, frame)
        if host is not None:
            first, last = host
            sink.site_of_host(path, start + first, start + last, value[first:last], frame)
    elif sink.addresses.names_definition(value):
        sink.persons(path, start, end, value, frame)
    else:
        handle_address(Scalar(sink, treatment, value, start, end, path, frame))


def handle_address(scalar: Scalar) -> None:
    """Handle an address of a resource, with or without a query; another one is a URL or an identifier."""
    value = scalar.value
    if _names_resource(scalar) and (found := scalar.sink.addresses.parts(value)):
        handle_parts(scalar, found)
        scalar.persons()
        scalar.sink.host(scalar.path, scalar.start, scalar.end, value, scalar.frame)
    elif value == "#" or value.startswith("urn:oid:") or is_namespace(value):
        return
    elif value.startswith("urn:"):
        scalar.site(PhiType.IDNUM, identifier_start(value))
    elif "://" in value and " " not in value:
        scalar.site(PhiType.URL)
    elif (name := _LAST.fullmatch(value)) is None:
        scalar.text()
    elif name[1] not in scalar.table.resources and name[1] != "metadata" and name[1][0] not in "$_":
        scalar.site(PhiType.IDNUM, *name.span(1))


def handle_search(scalar: Scalar) -> None:
    """Handle the query of a search, with or without an address before it."""
    mark = scalar.value.find("?")
    if mark >= 0 and "=" not in scalar.value[:mark]:
        handle_address(scalar)
    else:
        handle_parts(scalar, list(search_parts(scalar.value)))


def handle_parts(scalar: Scalar, found: list[UriPart]) -> None:
    """Add each part as its parameter is defined; a part without a parameter is an id."""
    for part in (each for each in found if not is_namespace(scalar.value[each.start : each.end])):
        inside = scalar.value[part.start : part.end]
        nested = scalar.sink.addresses.parts(inside) if _ADDRESS.search(inside) else []
        if not part.parameter and not nested:
            scalar.site(PhiType.IDNUM, part.start, part.end)
            continue
        treatment: FhirTreatment | None = FhirTreatment("id")
        if part.parameter:
            treatment = scalar.table.queries.get(part.parameter, FhirTreatment("unknown"))
        if treatment is None:
            if not scalar.table.keeps_code(part.system, unquote(inside)):
                scalar.site(PhiType.IDNUM, part.start, part.end)
            continue
        prefix = _PREFIX.match(inside)
        if nested:
            for inner in nested:
                scalar.site(PhiType.IDNUM, part.start + inner.start, part.start + inner.end)
        elif treatment.name == "identifier":
            type_ = scalar.table.identifier_type_of(unquote(part.system)) or PhiType.IDNUM
            scalar.site(type_, part.start + identifier_start(inside), part.end)
        elif treatment.name == "site":
            scalar.site(treatment.type, part.start, part.end, kind=treatment.kind, subject=PEOPLE.get(treatment.type))
        elif treatment.name == "id":
            scalar.site(PhiType.IDNUM, part.start, part.end)
        elif prefix and DATE.fullmatch(inside, prefix.end()):
            scalar.site(PhiType.DATE, part.start + prefix.end(), part.end, date_kind=date_kind_of(treatment))
        else:
            scalar.text(part.start, part.end)


def handle_uri(scalar: Scalar) -> None:
    """Handle a URI of any scheme. Names of definitions and of vocabularies are kept."""
    value = scalar.value
    if value.startswith(scalar.table.vocabularies):
        return
    if " " not in value and scalar.sink.addresses.names_definition(value):
        scalar.persons()
        return
    if "://" in value and " " not in value and scalar.sink.addresses.resource_type(value) in scalar.table.definitions:
        scalar.persons()  # the name of a definition; STU3 uses the type uri for many canonicals
        return
    if _names_resource(scalar) and (found := scalar.sink.addresses.parts(value)):
        handle_parts(scalar, found)
        scalar.persons()
        return
    for scheme, meant in (*SCHEMES.items(), ("urn:", PhiType.IDNUM)):
        if value.startswith(scheme):
            scalar.site(meant, identifier_start(value) or len(scheme))
            return
    if network := _NETWORK.match(value):  # llp:10.20.30.41:5678
        if not network[1].startswith("127."):
            scalar.site(PhiType.IPADDRESS, *network.span(1))
    elif "://" in value and " " not in value:
        scalar.site(PhiType.URL)
    else:
        scalar.text()


def handle_canonical(scalar: Scalar) -> None:
    """Handle the name of a definition, which is kept except for the parts that identify a person."""
    if " " not in scalar.value and ("://" in scalar.value or scalar.sink.addresses.names_definition(scalar.value)):
        scalar.persons()
        return
    if found := scalar.sink.addresses.parts(scalar.value):
        handle_parts(scalar, found)
    elif scalar.value.startswith("urn:"):
        scalar.persons()
    else:
        scalar.text()


def handle_link(scalar: Scalar) -> None:
    """Handle the address of an attachment: a reference keeps its form, another one is redacted."""
    if _names_resource(scalar) and (found := scalar.sink.addresses.parts(scalar.value)):
        handle_parts(scalar, found)
        scalar.persons()
    else:
        scalar.site(PhiType.URL, kind=ValueKind.REDACT, source=ATTACHMENT_URL_SOURCE)


def _names_resource(scalar: Scalar) -> bool:
    """False for an address on the web that names no resource: its query is none of FHIR (``https://meet.x/j/1?pwd=2``)."""
    return "://" not in scalar.value or bool(scalar.sink.addresses.resource_type(scalar.value))
