"""The field table: the rule of every field of every segment. ``table_files`` compiles it from ``rules/hl7``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from deid_agent.model import PhiType, Subject


class Hl7Kind(StrEnum):
    """The kinds of values, as written in the rule files; ``rules/hl7/datatypes.toml`` describes each."""

    KEEP = "keep"
    CODE = "code"
    NUMBER = "number"
    UNIT = "unit"
    RANGE = "range"
    CODED = "coded"
    LABEL = "label"
    TEXT = "text"
    VERBATIM = "verbatim"
    FAMILY = "family"
    GIVEN = "given"
    NAME = "name"
    ID = "id"
    IDTYPE = "idtype"
    AUTHORITY = "authority"
    EQUIPMENT = "equipment"
    USE = "use"
    STREET = "street"
    CITY = "city"
    STATE = "state"
    ZIP = "zip"
    COUNTRY = "country"
    PLACE = "place"
    DATE = "date"
    BIRTH = "birth"
    STAMP = "stamp"
    PUBLIC = "public"
    PHONE = "phone"
    EMAIL = "email"
    HOSPITAL = "hospital"
    ORGANIZATION = "organization"
    ROOM = "room"
    FLAG = "flag"
    AFFIX = "affix"
    DIAL = "dial"
    REDACT = "redact"
    ATTACHMENT = "attachment"
    VARIES = "varies"
    ANSWER = "answer"

    __hash__ = str.__hash__  # Enum.__hash__ is written in Python, and a parse hashes thousands of kinds


Composite = tuple[Hl7Kind | tuple[Hl7Kind, ...], ...]
"""The parts of a composite value: components, or subcomponents inside a component."""
Layout = Hl7Kind | Composite
"""A single value or a composite one."""


class Stranger(StrEnum):
    """How a field that keeps a part of its value recognizes a person or an address that belongs in the next field."""

    NUMBERED = "numbered"  # codes, numbers, dates: a number and two words are a person
    CODED = "coded"  # a code, its text, its system: the words must be in mixed case
    WRITTEN = "written"  # free text, which is read in any case: the person must have a number
    LISTED = "listed"  # places, numbers, units: one of the words must be a listed name

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class Hl7Rule:
    """How a field is read: its layout, its subject, and the PHI type of its ids, organizations or redacted values.

    ``alternative`` replaces ``layout`` if the value cannot have it: senders put a CN in place of an NDL, and a number
    of staff in place of a code.
    ``person`` is true if the layout has a family name. ``single`` is the kind of a field that holds one value without
    separators (None if the kind depends on the value); ``usually_kept`` equals it if such a value is mostly kept.
    A ``required`` field must not become empty. ``stranger`` is how readily a value out of place is recognized in it.
    A ``tabled`` field holds the codes of an administrative table, without clinical words.
    """

    layout: Layout
    subject: Subject = Subject.OTHER
    type: PhiType | None = None
    alternative: Layout | None = None
    person: bool = False
    single: Hl7Kind | None = None
    usually_kept: Hl7Kind | None = None
    required: bool = False
    stranger: Stranger | None = None
    tabled: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Field ``field`` of consecutive segments is one narrative as long as field ``by`` has the same value."""

    field: int
    by: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CodeTable:
    """Codes that refine a PHI type: identifier types, assigning authorities and telephone equipment.

    ``systems`` matches the names of public code systems. Their codes identify no person, in any field.
    """

    idtype: Mapping[str, PhiType]
    authority: Mapping[str, PhiType]
    equipment: Mapping[str, PhiType]
    systems: re.Pattern[str]

    @lru_cache(maxsize=1024)  # noqa: B019 - one table for each process
    def is_public_system(self, name: str) -> bool:
        """True for the name of a public code system (HL7 table 0396), or for an OID below HL7's arcs for them."""
        return self.systems.fullmatch(name.strip()) is not None


class Hl7Table:
    """Rules by segment and field number, and by datatype for OBX-5."""

    def __init__(
        self,
        segments: Mapping[str, tuple[Hl7Rule, ...]],
        rest: Mapping[str, Hl7Rule],
        joins: Mapping[str, Join],
        observation: Mapping[str, Hl7Rule],
        codes: CodeTable,
        unknown: Hl7Rule,
        layouts: Mapping[str, Composite],
        groups: frozenset[str],
    ) -> None:
        self._segments = segments
        self._rest = rest
        self._unknown = unknown
        self.joins = joins
        self.codes = codes
        self.layouts = layouts
        self._observation = observation
        self.names = frozenset(segments)
        """The segment names for which ``knows`` is true."""
        self.groups = groups | self.names
        """The names that an element with segments may have in XML, after the name of the message structure."""

    def knows(self, segment: str) -> bool:
        """True for segments of the standard and for those in ``segments.toml``."""
        return segment in self._segments

    def rules(self, segment: str) -> tuple[tuple[Hl7Rule, ...], Hl7Rule]:
        """The rules of fields 1, 2, ..., and the rule of all fields after them."""
        return self._segments.get(segment, ()), self._rest.get(segment, self._unknown)

    def observation(self, datatype: str) -> Hl7Rule:
        """The rule of an OBX-5 whose OBX-2 is ``datatype``."""
        return self._observation.get(datatype, self._observation[""])
