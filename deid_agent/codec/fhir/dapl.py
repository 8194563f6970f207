"""The output shape of HL7's DAPL: a finished resource without the elements that its profiles do not support.

It deletes, cuts dates to their year and adds the elements that a profile demands. Values are copied as bytes, so that
the decimal ``1.10`` stays. Of the original it has only the ages.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.codec.fhir.dapl_ages import AGE, OLDEST, UNKNOWN, Age, Place, resource_key
from deid_agent.codec.fhir.dapl_elements import DaplElements, check_meaning
from deid_agent.codec.fhir.dapl_json import (
    JsonReader,
    Members,
    members_of,
    write_absence,
    write_list,
    write_object,
    write_string,
)
from deid_agent.codec.fhir.dapl_table import DaplProfile, DaplTable, load_dapl_table
from deid_agent.codec.fhir.shapes import FhirTable
from deid_agent.codec.json_ranges import JsonRange, read_ranges
from deid_agent.model import LeftOutError, MessageError, Reason

_SEX = "http://hl7.org/fhir/us/dapl/StructureDefinition/dapl-sex-extension"
_INSTANT = "http://hl7.org/fhir/us/dapl/StructureDefinition/dapl-deidentified-instant-extension"
_CORE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
_INSIDE: Mapping[str, tuple[str, ...]] = {
    f"{_CORE}race": ("ombCategory", "detailed", "text"),
    f"{_CORE}ethnicity": ("ombCategory", "text"),
}
"""The extensions inside of an extension that stay: DAPL has no details of an ethnicity."""
_SEX_URLS = frozenset({_SEX, f"{_CORE}birthsex", f"{_CORE}sex"})
_SEXES: Mapping[str, str] = {"F": "F", "M": "M", "248152002": "F", "248153007": "M"}
_OF_PATIENT = frozenset({"subject", "patient", "beneficiary"})
_LED = frozenset({"document", "message"})
"""Bundles whose first resource DAPL does not have."""
_HEAD = frozenset({"resourceType", "id", "meta", "extension"})
_YEARS: Mapping[str, str] = {"effectiveInstant": "effectiveDateTime", "_effectiveInstant": "_effectiveDateTime"}
"""A year is no instant."""
_PARTS: Mapping[str, tuple[str, ...]] = {"identifiers": ("system", "value"), "names": ("family",)}
"""Members that stand in for an item of a list whose own form requires them."""
_SINGLE = frozenset({"object", "primitive"})
_MASKED_VALUE = b'{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/data-absent-reason","code":"masked"}]}'
_OF_ENTRIES = (("search", ("mode", "score")), ("request", ("method", "url")), ("response", ("status",)))


@dataclass(frozen=True, slots=True)
class DaplOptions:
    """``restricted`` are ZIP prefixes of few people; with ``drops`` their patients are left out, else masked."""

    restricted: frozenset[str]
    drops: bool = False


class DaplForm:
    """Writes resources in the form of DAPL. ``required`` has the required members of each type."""

    def __init__(self, table: FhirTable, required: Mapping[str, tuple[str, ...]], options: DaplOptions) -> None:
        self._fhir = table
        self._required = required
        self._options = options
        self._dapl = load_dapl_table()

    def write(self, raw: bytes, ages: Mapping[Place, Age]) -> tuple[bytes, Counter[str]]:
        """One sanitized resource in the form of DAPL, with the number of elements that were left out, by path.

        Raises ``MessageError(UNSUPPORTED)`` if DAPL has no profile of it or an element changes its meaning, and
        ``LeftOutError`` for a patient of a restricted ZIP that is left out.
        """
        root = read_ranges(raw)
        run = _Run(self._fhir, self._required, self._options, self._dapl, JsonReader(raw), ages)
        return raw[: root.start] + run.root(root) + raw[root.end :], run.dropped


@dataclass(slots=True)
class _Run:
    """One payload. ``out`` are the places of resources that are left out, ``gone`` the references to them.

    ``patients`` are the references to patients of restricted ZIPs, if these are left out.
    """

    fhir: FhirTable
    required: Mapping[str, tuple[str, ...]]
    options: DaplOptions
    dapl: DaplTable
    json: JsonReader
    ages: Mapping[Place, Age] = field(repr=False)
    dropped: Counter[str] = field(default_factory=Counter)
    out: set[Place] = field(default_factory=set)
    gone: set[str] = field(default_factory=set, repr=False)
    patients: set[str] = field(default_factory=set, repr=False)

    def root(self, node: JsonRange) -> bytes:
        """See ``DaplForm.write``."""
        name = self.json.type(node)
        if name != "Bundle" and not self.dapl.knows(name):
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "DAPL has no profile of this resource")
        if name == "Patient" and self._is_restricted(node):
            raise LeftOutError("Patient.address.postalCode", "the patient of a restricted ZIP is left out")
        self._find_gone(node)
        written = self._bundle(node, ()) if name == "Bundle" else self._resource(node, ())
        if written is None:
            if self.patients:
                raise LeftOutError("Bundle.entry", "nothing remains beside patients of restricted ZIPs")
            raise MessageError(Reason.UNSUPPORTED, "Bundle.entry", "nothing of it remains in the form of DAPL")
        return written

    def _elements(self, profile: DaplProfile) -> DaplElements:
        return DaplElements(
            self.fhir, self.required, self.options.restricted, self.json, profile, self.gone, self.dropped
        )

    def _find_gone(self, root: JsonRange) -> None:
        """Find the resources of a Bundle that are left out: of other types, and those of patients that are."""
        found = list(self._list_entries(root, ()))
        kept = set[str]()
        for place, keys, resource in found:
            name = self.json.type(resource)
            if name == "Patient" and self._is_restricted(resource):
                self.patients |= keys
            elif name != "Bundle" and not self.dapl.knows(name):
                self.gone |= keys
            else:
                kept |= keys
                continue
            self.out.add(place)
        self.gone = (self.gone - kept) | self.patients
        for place, keys, resource in found if self.patients else ():
            members = members_of(resource)
            subjects = [members_of(members[name]).get("reference") for name in _OF_PATIENT & members.keys()]
            if any(self.patients & {each, resource_key(each)} for each in map(self.json.text, subjects)):
                self.out.add(place)
                self.gone |= keys

    def _list_entries(self, node: JsonRange, place: Place) -> Iterator[tuple[Place, set[str], JsonRange]]:
        """The resources of a Bundle, also of one inside it: place, the references that mean it, resource."""
        if self.json.type(node) != "Bundle":
            return
        for number, entry in enumerate(self.json.objects(members_of(node).get("entry"))):
            members = members_of(entry)
            if (resource := members.get("resource")) is not None:
                url, key = self.json.text(members.get("fullUrl")), self.json.text(members_of(resource).get("id"))
                keys = {url, *([f"{self.json.type(resource)}/{key}"] if key else [])} - {""}
                yield (*place, number), keys, resource
                yield from self._list_entries(resource, (*place, number))

    def _is_restricted(self, patient: JsonRange) -> bool:
        """True for a patient who is left out."""
        addresses = self.json.objects(members_of(patient).get("address"))
        if not self.options.drops or not addresses:
            return False
        elements = self._elements(DaplProfile("Patient"))
        return elements.is_restricted(members_of(min(addresses, key=elements.rank)))

    def _bundle(self, node: JsonRange, place: Place) -> bytes | None:
        members = members_of(node)
        check_meaning(members.keys(), "Bundle")
        if self.json.text(members.get("type")) in _LED:
            raise MessageError(Reason.UNSUPPORTED, "Bundle.type", "a document or message has no form in DAPL")
        entries = self.json.objects(members.get("entry"))
        written = [each for n, entry in enumerate(entries) if (each := self._entry(entry, (*place, n))) is not None]
        if entries and not written:
            return None
        kept = self.json.scalars(members, ("type", "total"))
        return write_object(
            {
                **self._head(members, DaplProfile("Bundle"), {}),
                **kept,
                **({"entry": write_list(written)} if written else {}),
            }
        )

    def _entry(self, entry: JsonRange, place: Place) -> bytes | None:
        members = members_of(entry)
        check_meaning(members.keys(), "Bundle.entry")
        parts = self.json.scalars(members, ("fullUrl",))
        if (resource := members.get("resource")) is not None:
            write = self._bundle if self.json.type(resource) == "Bundle" else self._resource
            written = None if place in self.out else write(resource, place)
            if written is None:
                self.dropped["Bundle.entry.resource"] += 1
                return None
            parts["resource"] = written
        for key, names in _OF_ENTRIES:
            inside = self.json.scalars(members_of(members.get(key)), names)
            parts |= {key: write_object(inside)} if inside else {}
        return write_object(parts) if parts else None

    def _resource(self, node: JsonRange, place: Place) -> bytes:
        name, members = self.json.type(node), members_of(node)
        check_meaning(members.keys(), name)
        profile = self.dapl.profile(
            name, {each: frozenset(self.json.codes(members.get(each))) for each in self.dapl.selecting_elements(name)}
        )
        elements, body = self._elements(profile), dict[str, bytes]()
        for key, value in members.items():
            if key in _HEAD or (name == "Observation" and key.removeprefix("_") == "issued"):
                continue
            if key == "medicationReference" and (drug := self._contained_drug(value, members, elements)) is not None:
                body["medicationCodeableConcept"] = drug
            elif (written := elements.member(new := _YEARS.get(key, key), value, self.fhir.shapes[name])) is not None:
                body[new] = written
        if "address" in profile.required and "address" not in body:
            body["address"] = write_list([elements.address({})])
        _add_missing(profile, body, members.keys())
        extensions = self._extensions(members, place, elements)
        listed = {"extension": write_list(extensions)} if extensions else {}
        return write_object({**self._head(members, profile, body), **listed, **body})

    def _contained_drug(self, reference: JsonRange, members: Members, elements: DaplElements) -> bytes | None:
        """The drug of a contained Medication: contained resources are not published."""
        target = self.json.text(members_of(reference).get("reference"))
        for each in self.json.objects(members.get("contained")) if target.startswith("#") else ():
            inside = members_of(each)
            if self.json.text(inside.get("id")) == target[1:] and self.json.type(each) == "Medication":
                check_meaning(inside.keys(), "Medication")
                return elements.copy(inside["code"], "code") if "code" in inside else None
        return None

    def _head(self, members: Members, profile: DaplProfile, body: Mapping[str, bytes]) -> dict[str, bytes]:
        """Type, id, security labels, and the address of the profile if the resource meets it."""
        head = self.json.scalars(members, ("resourceType", "id"))
        meta: dict[str, bytes] = {}
        security = members_of(members.get("meta")).get("security")
        if security is not None and (labels := self._elements(profile).copy(security, "security")) is not None:
            meta["security"] = labels
        if profile.url and _meets(profile, body):
            meta["profile"] = write_list([write_string(profile.url)])
        return {**head, **({"meta": write_object(meta)} if meta else {})}

    def _extensions(self, members: Members, place: Place, elements: DaplElements) -> list[bytes]:
        """The extensions that the profile supports, with age, sex and time of issue in its form."""
        profile, found = elements.profile, dict[str, bytes]()
        kept = {*profile.extensions, *({_INSTANT} if profile.type == "Observation" else ())} - {AGE}
        for each in self.json.objects(members.get("extension")):
            inside = members_of(each)
            url = self.json.text(inside.get("url"))
            if url in _SEX_URLS and _SEX in profile.extensions:
                value = next((value for key, value in inside.items() if key.startswith("value")), None)
                if sex := _SEXES.get(self.json.text(value) or next(self.json.codes(value), "")):
                    found.setdefault(_SEX, write_object({"url": write_string(_SEX), "valueCode": write_string(sex)}))
            elif url in kept:
                found.setdefault(url, elements.extension(each, _INSIDE.get(url, ())))
            elif url != AGE:
                elements.drop("extension")
        if profile.extensions.get(AGE):
            found[AGE] = _write_age(self.ages.get(place, UNKNOWN))
        issued = self.json.text(members.get("issued"))[:4] if profile.type == "Observation" else ""
        if len(issued) == 4 and issued.isascii() and issued.isdecimal():
            year = {"url": write_string(_INSTANT), "valueDateTime": write_string(issued)}
            found.setdefault(_INSTANT, write_object(year))
        return list(found.values())


def _add_missing(profile: DaplProfile, body: dict[str, bytes], original: Collection[str]) -> None:
    """Add required elements without a value, with the reason: unknown, or masked if this form left it out."""
    for member, form in profile.missing.items():
        start = member.removesuffix("CodeableConcept").removesuffix("DateTime")
        if any(name.removeprefix("_").startswith(start) for name in body):
            continue
        if not profile.allows(member) and form not in _PARTS:
            continue  # an income has no category
        was = any(name.removeprefix("_").startswith(start) for name in original)
        absence = write_absence("masked" if was else "unknown")
        if parts := _PARTS.get(form):
            absence = write_object({f"_{part}": absence for part in parts})
        body[f"_{member}" if form == "primitive" else member] = absence if form in _SINGLE else write_list([absence])
    had_value, has_value = (any(name.startswith("value") for name in names) for names in (original, body))
    if profile.type == "Observation" and had_value and not has_value:
        body.setdefault("dataAbsentReason", _MASKED_VALUE)


def _meets(profile: DaplProfile, body: Mapping[str, bytes]) -> bool:
    """True if a resource has the elements and values that its profile demands."""
    names = frozenset(body)
    has_all = all(profile.has(member, names) for member in profile.required if "." not in member)
    is_fixed = all(body.get(member) == write_string(code) for member, code in profile.fixed.items())
    return has_all and is_fixed and body.get("effectiveTiming", b"").count(b'"event"') == 0


def _write_age(age: Age) -> bytes:
    if age.years is None:
        quantity = write_absence(age.absent)
    else:
        oldest = {"comparator": write_string(">=")} if age.years >= OLDEST else {}
        unit = {
            "unit": write_string("yr"),
            "system": write_string("http://unitsofmeasure.org"),
            "code": write_string("a"),
        }
        quantity = write_object({"value": str(age.years).encode(), **oldest, **unit})
    return write_object({"url": write_string(AGE), "valueQuantity": quantity})
