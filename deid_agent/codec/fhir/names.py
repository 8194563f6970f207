"""The names of FHIR: the types of resources in all releases, and the names of members that may stay.

Names are never read as values, so a name of a person in place of one would be published. A type that no release has is
refused. A member that no release defines keeps its name if it is made of words of FHIR, of labels, and of common words
that nobody is called; any other name is redacted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from deid_agent.codec.fhir.shapes import FhirTable, Shape
from deid_agent.codec.labels import split_label
from deid_agent.model import MessageError, Reason

CODED_MEMBERS = frozenset({"code", "display", "version"})
"""The members of a code of a standard."""
_FIXED = frozenset({"keep", "code", "canonical", "system", "vocabulary", "unit", "label", "caption"})
_VERSIONS = frozenset({"etag", "versionId", "ifMatch", "ifNoneMatch"})
"""Kept values that a server may form of anything, PHI included."""
_DSTU = (
    "AdverseReaction Alert BodySite Conformance DataElement DeviceComponent DeviceObservationReport DeviceUseRequest "
    "DeviceUseStatement DiagnosticOrder EligibilityRequest EligibilityResponse FamilyHistory ImagingManifest "
    "ImagingObjectSelection MedicationOrder MedicationPrescription Order OrderResponse Other ProcedureRequest "
    "ProcessRequest ProcessResponse Profile Query ReferralRequest SecurityEvent Supply"
)
_R4 = (
    "CatalogEntry DocumentManifest EffectEvidenceSynthesis Media MedicinalProduct MedicinalProductAuthorization "
    "MedicinalProductContraindication MedicinalProductIndication MedicinalProductIngredient "
    "MedicinalProductInteraction MedicinalProductManufactured MedicinalProductPackaged "
    "MedicinalProductPharmaceutical MedicinalProductUndesirableEffect RequestGroup ResearchDefinition "
    "ResearchElementDefinition RiskEvidenceSynthesis SubstanceSpecification"
)
_R6 = "ClinicalAssessment DeviceAlert InsuranceProduct MolecularDefinition PersonalRelationship"  # from its ballots
_OTHER_RELEASES = frozenset(f"{_DSTU} {_R4} {_R6}".split())
"""Types of resources of the releases that ``elements.json`` does not have."""
_OTHER_WORDS = frozenset({"exclusivity", "jurisdictional"})
"""Words of their members that are neither in the table nor common."""
_BLANK = "redacted"
_LONGEST = 200
"""Characters of a name that is read. The longest of FHIR has 80."""
_MOST_DIGITS = 3
"""Of a whole name: ``04-22-57`` and ``447-190-2`` have few in each number."""
_MONTHS = frozenset(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
_DAY = re.compile(r"\d\s*/\s*\d")


@dataclass(frozen=True, slots=True)
class ElementNames:
    """Element names of all types: ``known`` exist in some type, ``fixed`` are codes in every type that has them.

    ``types`` are the types of resources, ``suffixes`` the types with which the name of a choice ends, and ``words``
    those of which a name may be made.
    """

    known: frozenset[str] = field(repr=False)
    fixed: frozenset[str] = field(repr=False)
    types: frozenset[str] = field(repr=False)
    suffixes: frozenset[str] = field(repr=False)
    words: frozenset[str] = field(repr=False)

    @classmethod
    def of(cls, table: FhirTable) -> "ElementNames":
        treatments: dict[str, set[str]] = {}
        for shape in _all_shapes(table):
            for name, rule in shape.rules.items():
                words = treatments.setdefault(name, set())
                if rule.treatment is not None or rule.child is None:
                    words.add(rule.treatment.name if rule.treatment is not None else "keep")
        codes = frozenset(name for name, words in treatments.items() if words and words <= _FIXED)
        types = table.resources | _OTHER_RELEASES
        suffixes = frozenset(table.shapes) | {name[0].upper() + name[1:] for name in table.primitives}
        own = {word for name in (*treatments, *types, *suffixes) for word in split_label(name.replace("|", " "))}
        labels = table.labels.phrases.keys() | table.labels.filler
        return cls(
            frozenset(treatments) | {"resourceType", "fhir_comments"},
            codes - CODED_MEMBERS - _VERSIONS | {"resourceType", "system"},
            types,
            suffixes,
            frozenset(own | labels | table.addresses.people.plain | _OTHER_WORDS) - {_BLANK},
        )

    def check_type(self, name: str, path: str) -> None:
        """Raise ``MessageError(UNSUPPORTED)`` at ``path`` for a type of resource that no release has."""
        if name not in self.types:
            raise MessageError(Reason.UNSUPPORTED, path, "no type of a resource that a release of FHIR has")

    def defines(self, name: str) -> bool:
        """True for an element name, and for one followed by the name of a type, such as ``valueQuantity``."""
        if name in self.known:
            return True
        if len(name) > _LONGEST:
            return False
        at = next((i for i, c in enumerate(name) if c.isupper()), 0)
        return at > 0 and name[at:] in self.suffixes and self.may_stay(name)

    def may_stay(self, name: str) -> bool:
        """True if each word of a name is one of FHIR, of a label, common, or a letter, with few digits and no date."""
        words = split_label(name) if len(name) <= _LONGEST else []
        digits = sum(len(word) for word in words if word.isdigit())
        if not words or digits > _MOST_DIGITS or (digits and not _MONTHS.isdisjoint(words)) or _DAY.search(name):
            return False
        # One letter may be a whole name in Chinese.
        return all(word.isdigit() or (len(word) == 1 and word.isascii()) or word in self.words for word in words)


def blank_name(place: int) -> str:
    """The name of the redacted member at ``place``: no other member of its object has it."""
    return f"{_BLANK}{place}"


def _all_shapes(table: FhirTable) -> Iterator[Shape]:
    """All shapes, including those of backbone elements."""
    seen: set[int] = set()
    todo = list(table.shapes.values())
    while todo:
        shape = todo.pop()
        if id(shape) not in seen:
            seen.add(id(shape))
            yield shape
            todo += [rule.child for rule in shape.rules.values() if rule.child is not None]
