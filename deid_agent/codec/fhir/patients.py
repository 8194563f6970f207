"""The patient of a FHIR resource or Bundle: its Patient resource, or the references to one."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from deid_agent.codec.fhir.sink import FhirSink, Object
from deid_agent.codec.fhir.treatments import identifier_type
from deid_agent.model import PatientField, PatientIdentifier, PhiType


def find_patient(sink: FhirSink, tree: Object, target_type: Callable[[Object], str]) -> tuple[PatientIdentifier, ...]:
    """The identifiers of the patient of a resource or a Bundle.

    Of several Patients it is the one to whom most resources refer, and of the same number the first by their
    identifiers, so that the order of entries does not matter. Without a Patient it is the most frequent reference.
    """
    resources = [tree]
    if tree.get("resourceType") == "Bundle":
        entries = [entry.get("resource") for entry in objects(tree.get("entry"))]
        resources = [resource for resource in entries if isinstance(resource, dict)]
    patients = [_identifiers_of_patient(sink, each) for each in resources if each.get("resourceType") == "Patient"]
    patients = [found for found in patients if found]
    if len(patients) == 1:
        return patients[0]
    referred = _count_referred(sink, resources, target_type)
    weights = referred
    if patients:
        by_value: Counter[str] = Counter()
        for found, count in referred.items():
            by_value.update(dict.fromkeys((each.value for each in found), count))
        weights = Counter({found: max(by_value[each.value] for each in found) for found in patients})
    return min(weights, key=lambda found: (-weights[found], _sort_key(found)), default=())


def _count_referred(
    sink: FhirSink, resources: Sequence[Object], target_type: Callable[[Object], str]
) -> Counter[tuple[PatientIdentifier, ...]]:
    """How many resources refer to each patient. An address that a Bundle contains a thousand times is read once."""
    found: Counter[tuple[PatientIdentifier, ...]] = Counter()
    read: dict[str, tuple[PatientIdentifier, ...]] = {}
    again: dict[str, int] = {}
    elements = sink.table.patient_elements
    for resource in resources:
        reference = next((resource[name] for name in elements if name in resource), None)
        address = reference.get("reference") if isinstance(reference, dict) and len(reference) == 1 else None
        if isinstance(address, str) and address in again and resource.get("resourceType") != "Patient":
            again[address] += 1
        elif resource.get("resourceType") != "Patient" and (patient := _referred_patient(sink, resource, target_type)):
            found[patient] += 1
            if len(patient) == 1 and address == f"Patient/{patient[0].value}":
                read[address], again[address] = patient, 0
    for address, count in again.items():
        found[read[address]] += count
    return found


def _sort_key(found: tuple[PatientIdentifier, ...]) -> list[str]:
    return sorted(each.value for each in found)


def _identifiers_of_patient(sink: FhirSink, resource: Object) -> tuple[PatientIdentifier, ...]:
    default = sink.table.identifier_elements.get("Patient.identifier", PhiType.IDNUM)
    found = [_read_identifier(sink, each, default) for each in objects(resource.get("identifier"))]
    if logical := text_of(resource.get("id")):
        found.append(PatientIdentifier(logical, field=PatientField.LOGICAL))
    return tuple(each for each in found if each is not None)


def _referred_patient(
    sink: FhirSink, resource: Object, target_type: Callable[[Object], str]
) -> tuple[PatientIdentifier, ...]:
    """The identifiers in the first reference to a patient: its identifier, a contained Patient, the id of a Patient."""
    default = sink.table.identifier_elements.get("Patient.identifier", PhiType.IDNUM)
    for element in sink.table.patient_elements:
        for reference in objects(resource.get(element)):
            if target_type(reference) not in {"", "Patient"}:
                continue
            found = [_read_identifier(sink, each, default) for each in objects(reference.get("identifier"))]
            address = text_of(reference.get("reference")) or ""
            if address.startswith("#"):  # the same id may name another patient in the next resource
                inside = (c for c in objects(resource.get("contained")) if f"#{c.get('id')}" == address)
                known = (each for patient in inside for each in objects(patient.get("identifier")))
                found += [_read_identifier(sink, each, default) for each in known]
            else:
                parts = sink.addresses.parts(address)[:1]
                found += [PatientIdentifier(address[p.start : p.end], field=PatientField.LOGICAL) for p in parts]
            if every := tuple(each for each in found if each is not None):
                return every
    return ()


def _read_identifier(sink: FhirSink, identifier: Object, default: PhiType) -> PatientIdentifier | None:
    value = text_of(identifier.get("value"))
    if value is None:
        return None
    type_, system = identifier.get("type"), text_of(identifier.get("system"))
    codes = [text_of(each.get("code")) for each in objects(type_.get("coding"))] if isinstance(type_, dict) else []
    former = text_of(identifier.get("use")) in {"old", "temp"}
    return PatientIdentifier(
        value,
        next((code for code in codes if code in sink.table.identifier_types), next(filter(None, codes), "")) or "",
        (system,) if system else (),
        identifier_type(sink.table, identifier, default),
        PatientField.OTHER if former else PatientField.MAIN,
    )


def objects(value: object) -> Iterator[Object]:
    items: Iterable[object] = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, dict):
            yield item


def text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
