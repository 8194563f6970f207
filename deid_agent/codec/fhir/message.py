"""One FHIR resource (or Bundle) as it came, with the places in it that may hold PHI."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import orjson

from deid_agent.codec.fhir import uris
from deid_agent.codec.fhir.leaves import identifier_type
from deid_agent.codec.fhir.sink import Object, Sink
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Narrative, Site

Target = Callable[[Object], str]


@dataclass(frozen=True, slots=True)
class FhirMessage:
    """A parsed resource. Paths are FHIRPath-like and 0-based: ``Bundle.entry[2].resource.name[0].family``."""

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patient: str | None = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    narratives: tuple[Narrative, ...] = field(repr=False)
    attachments: tuple[Attachment, ...] = field(repr=False)

    def encode(self, text: str) -> bytes:
        """``text`` as the inside of a JSON string: escaped, UTF-8, non-ASCII as it is."""
        return orjson.dumps(text)[1:-1]


def message(sink: Sink, tree: Object, target: Target) -> FhirMessage:
    """The message of a walked resource; everything in byte order."""
    return FhirMessage(
        sink.raw,
        identity(sink.raw, tree),
        patient(sink, tree, target),
        tuple(sorted(sink.sites, key=attrgetter("start"))),
        tuple(sorted(sink.narratives, key=lambda n: n.mapped.starts[0])),
        tuple(sorted(sink.attachments, key=attrgetter("start"))),
    )


def identity(raw: bytes, tree: Object) -> str:
    """``Patient/123``; a Bundle without an id goes by its identifier; else a digest of the bytes."""
    name, key = tree.get("resourceType"), tree.get("id")
    if not _text(key) and name == "Bundle" and isinstance(given := tree.get("identifier"), dict):
        key = given.get("value")
    if isinstance(name, str) and isinstance(key, str) and key:
        return f"{name}/{key}"
    return hashlib.sha256(raw).hexdigest()


def patient(sink: Sink, tree: Object, target: Target) -> str | None:
    """The patient's first medical record number, else the id by which the resource refers to the patient."""
    resources = [tree]
    if tree.get("resourceType") == "Bundle":
        entries = [entry.get("resource") for entry in _objects(tree.get("entry"))]
        resources = [resource for resource in entries if isinstance(resource, dict)]
    for resource in resources:
        if resource.get("resourceType") == "Patient" and (found := _of_patient(sink, resource)):
            return found
    return next((found for resource in resources if (found := _referred(sink, resource, target))), None)


def _of_patient(sink: Sink, resource: Object) -> str | None:
    for identifier in _objects(resource.get("identifier")):
        default = sink.table.identifier_elements.get("Patient.identifier", PhiType.IDNUM)
        if identifier_type(sink.table, identifier, default) is PhiType.MEDICALRECORD and (
            found := _text(identifier.get("value"))
        ):
            return found[uris.tail(found) :]
    return _text(resource.get("id"))


def _referred(sink: Sink, resource: Object, target: Target) -> str | None:
    for element in sink.table.patient_elements:
        for reference in _objects(resource.get(element)):
            if target(reference) not in {"", "Patient"}:
                continue
            address = _text(reference.get("reference")) or ""
            if address.startswith("#"):
                inside = (c for c in _objects(resource.get("contained")) if f"#{c.get('id')}" == address)
                if found := next((f for c in inside if (f := _of_patient(sink, c))), None):
                    return found
            for part in uris.parts(address, sink.table.resources):
                return address[part.start : part.end]
            if isinstance(identifier := reference.get("identifier"), dict) and (
                found := _text(identifier.get("value"))
            ):
                return found[uris.tail(found) :]
    return None


def _objects(value: object) -> Iterator[Object]:
    items: Iterable[object] = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, dict):
            yield item


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
