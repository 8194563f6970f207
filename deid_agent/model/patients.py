"""The patient of a message: the identifiers that name the patient, and the one that is the scope of the patient.

Dates and names of one patient agree if the patient always has the same scope. Senders list identifiers in any order,
pad them with zeros, and name the assigner in one format and not in another. The choice therefore depends on the types,
the assigners and the normal forms of the identifiers, and never on their order.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType

from deid_agent.model.phi import PhiType

SEPARATOR = "|"
"""Joins a qualifier and a normal form. No normal form contains it."""
PATIENT_TYPES = ("MR", "MRN", "", "PI", "EPI", "PT", "LR", "MRT")
"""Codes of HL7 table 0203 for the number of a person, the best first. The empty one is an identifier without a code."""
_PLACEHOLDERS = (
    "0 99 999 9999 99999 UNKNOWN UNK UNKN UNKNOWNMRN UNASSIGNED NOTASSIGNED UNDEFINED UNIDENTIFIED NONE NOMRN NO NA NI "
    "NASK ASKU NULL NIL NAN NAV NOTAVAILABLE NOTAPPLICABLE NOTKNOWN MISSING EMPTY BLANK PENDING TBD TBA TEST "
    "TESTPATIENT TESTMRN REDACTED REMOVED DELETED MASKED WITHHELD DUMMY DEFAULT SAMPLE ANONYMOUS ANON DOE JOHNDOE "
    "JANEDOE MRN PATIENT PATIENTID ID XX XXX XXXX XXXXX"
)
PLACEHOLDERS = tuple(_PLACEHOLDERS.split())
"""Values that interfaces send if they have no number, in normal form. As a scope they would join all those patients."""

_LONG_RUN = 6
_NAMESPACE = re.compile(r"(?i)urn:[a-z0-9-]{1,32}:(?=.)")
_OID = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]*)){3,}")
_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_QUALIFIERS: Mapping[PhiType, str] = MappingProxyType({PhiType.MEDICALRECORD: "", PhiType.ACCOUNT: "VISIT"})


class PatientField(IntEnum):
    """The rank of the element that holds an identifier."""

    MAIN = 0  # PID-3, ``Patient.identifier``, ``subject.identifier``, ``patientRole/id``
    OTHER = 1  # PID-2, PID-4, an identifier in former use
    LOGICAL = 2  # the id of a FHIR resource, if nothing else names the patient
    MERGED = 3  # MRG-1, if PID names nobody
    BESIDE = 4  # given beside the document, as the key of a row is


@dataclass(frozen=True, slots=True)
class PatientIdentifier:
    """An identifier of the patient. ``type`` is its code of table 0203; ``assigners`` are the names, OIDs or URIs of
    its assigner, as the message writes them. ``kind`` is MEDICALRECORD if nothing says otherwise. Beside a document the
    assigner is the column of the key, if it is one.
    """

    value: str = field(repr=False)
    type: str = ""
    assigners: tuple[str, ...] = field(default=(), repr=False)
    kind: PhiType = PhiType.MEDICALRECORD
    field: PatientField = PatientField.MAIN


class Listing(StrEnum):
    """What a scope table has of the patient of a document."""

    LISTED = "listed"
    CONFLICTING = "conflicting"  # identifiers of several persons: the best one counts
    UNLISTED = "unlisted"
    NOBODY = "nobody"  # the document names no patient


@dataclass(frozen=True, slots=True)
class FoundPatient:
    """The scope of a patient, None if there is none; and its listing, None without a table. Contains PHI."""

    scope: str | None = field(repr=False)
    listing: Listing | None = None


@dataclass(frozen=True, slots=True)
class RankedIdentifier:
    """A usable identifier with its rank, the lowest first, and the scope that it gives. Contains PHI."""

    rank: tuple[int, ...]
    scope: str = field(repr=False)
    identifier: PatientIdentifier
    names_person: bool


@dataclass(frozen=True, slots=True)
class PatientChoice:
    """The rules of the choice.

    ``types`` are the codes of person numbers, the best first. ``assigners`` are groups of names for one assigner each,
    the best first. ``placeholders`` are normal forms of values that name nobody.
    """

    types: tuple[str, ...] = PATIENT_TYPES
    assigners: tuple[tuple[str, ...], ...] = ()
    placeholders: frozenset[str] = frozenset(PLACEHOLDERS)
    _ranks: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        groups = enumerate(self.assigners)
        ranks = {normalize_assigner(name): rank for rank, group in groups for name in group}
        object.__setattr__(self, "_ranks", ranks)

    def scope(self, identifiers: Iterable[PatientIdentifier]) -> str | None:
        """The scope of the patient whom ``identifiers`` name; None if no value is usable. Contains PHI.

        The order of preference: numbers of the person, other numbers (insurance, licence), the id of a FHIR resource,
        numbers of a visit; then the type, the assigner, the field and the normal form.

        A number of the person is its own scope, so that it is the same with and without its assigner. If assigners are
        listed, those of the second and later groups qualify their numbers, because hospitals may use the same number
        for different patients.
        """
        return self.find(identifiers).scope

    def find(self, identifiers: Iterable[PatientIdentifier]) -> FoundPatient:
        """The scope as in ``scope``. A scope table also gives its listing."""
        ranked = self.rank(identifiers)
        return FoundPatient(ranked[0].scope if ranked else None)

    def scope_of(self, value: str | None) -> str | None:
        """The scope of the patient with this medical record number."""
        return None if value is None else self.scope((PatientIdentifier(value),))

    def rank(self, identifiers: Iterable[PatientIdentifier]) -> list[RankedIdentifier]:
        """The usable identifiers, the best first."""
        ranked = [ranked for each in identifiers if (ranked := self._rank(each)) is not None]
        return sorted(ranked, key=lambda each: (each.rank, each.scope))

    def keeps_zeros(self, found: PatientIdentifier) -> bool:
        """True if leading zeros distinguish the numbers of this source."""
        del found
        return False

    def _rank(self, found: PatientIdentifier) -> RankedIdentifier | None:
        number = normalize_identifier(found.value)
        if not number or number in self.placeholders or (len(number) >= _LONG_RUN and len(set(number)) == 1):
            return None
        beside = found.field is PatientField.BESIDE
        assigner = min(
            (r for a in found.assigners if (r := self._ranks.get(normalize_assigner(a))) is not None and not beside),
            default=len(self.assigners),
        )
        code = found.type.strip().upper()
        listed = code in self.types and (code or found.field is PatientField.MAIN)
        type_rank = self.types.index(code) if listed else len(self.types)
        person = found.kind is PhiType.MEDICALRECORD or bool(code and listed)
        qualifier = "" if person else _QUALIFIERS.get(found.kind, "OTHER")
        if person and 0 < assigner < len(self.assigners):
            qualifier = normalize_assigner(self.assigners[assigner][0]).upper()
        if found.field >= PatientField.LOGICAL:
            tier = 2 * found.field
        else:
            tier = 0 if person else 5 if found.kind is PhiType.ACCOUNT else 1
        number = normalize_identifier(found.value, keep_zeros=True) if self.keeps_zeros(found) else number
        scope = f"{qualifier}{SEPARATOR}{number}" if qualifier else number
        return RankedIdentifier((tier, type_rank, assigner, found.field), scope, found, person)


def normalize_identifier(value: str, *, keep_zeros: bool = False) -> str:
    """The normal form of an identifier: equal for all its spellings; empty if it has no letter and no digit.

    Letters and digits in upper case, without leading zeros in a run of digits, as surrogates of identifiers agree.
    Prefixes such as ``urn:oid:`` and the path of a URL are left out. An OID keeps its dots. With ``keep_zeros`` leading
    zeros stay: the numbers of the source differ by them.
    """
    text = unicodedata.normalize("NFKC", value).strip()
    text = text[found.end() :] if (found := _NAMESPACE.match(text)) else text
    if "://" in text and (last := max(text.rfind(mark) for mark in "/=#") + 1) < len(text):
        text = text[last:]
    if _OID.fullmatch(text):
        return text
    text = "".join(c for c in text if c.isalnum()).upper()
    return text if keep_zeros else _ZEROS.sub("", text)


def normalize_assigner(name: str) -> str:
    """An assigner without case, white space around it, ``urn:oid:`` and the slash at the end of a URL."""
    return name.strip().casefold().removeprefix("urn:oid:").rstrip("/").replace(SEPARATOR, " ")
