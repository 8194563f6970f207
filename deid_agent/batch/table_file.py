"""The keys of a table file, as pydantic reads them: columns with their kinds, conditions, and identities."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

from deid_agent.model import PhiType
from deid_agent.pipeline import Zeros


class ColumnKind(StrEnum):
    """The content of a column. A PHI type (``PHONE``, ``STREET``) is a kind too."""

    ID = "id"
    TEMPLATE = "template"  # an identifier made of other columns
    DATE = "date"
    DATE_PARTS = "date-parts"  # the year, the month or the day of a date
    NAME = "name"
    FAMILY = "family"
    GIVEN = "given"
    TEXT = "text"
    KEEP_GUARDED = "keep-guarded"  # kept, but searched for the identity of the row
    KEEP = "keep"
    DROP = "drop"
    VALUE = "value"  # of the PHI type that a file gives as the kind


class CellType(StrEnum):
    """The type of a column of a file without types: CSV and NDJSON. Nothing is inferred."""

    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"


_Kind = ColumnKind | PhiType
PART_OF_TEMPLATE = re.compile(r"\{(\w+)\}")


def _fold(name: object) -> object:
    return name.lower() if isinstance(name, str) else name


_Column = Annotated[StrictStr, BeforeValidator(_fold), Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _read_column(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _require_template(text: str) -> str:
    parts = PART_OF_TEMPLATE.findall(text)
    if not parts or re.search(r"\}\{", text) or PART_OF_TEMPLATE.sub("", text).strip("-_./:| "):
        raise ValueError('must join columns by punctuation, such as "{subject_id}-{note_seq}"')
    return text.lower()


class ColumnSection(_Section):
    """A column: its kind alone, or a table with the kind and its options."""

    kind: _Kind
    birth: bool = False
    """A date of birth: it moves as births do, which keeps ages right and hides the day."""
    role: Literal["patient", "provider", "other"] = "patient"
    """The person of a name, a number or an address."""
    template: Annotated[StrictStr, AfterValidator(_require_template)] | None = None


class WhenSection(_Section):
    """A column whose kind depends on another column."""

    kind: _Kind
    column: _Column
    values: Annotated[list[StrictStr], Field(alias="in", min_length=1)]


class RowSection(_Section):
    """The columns that place a row: its document, its patient, and the date that texts are read near."""

    document: _Column | None = None
    patient: _Column | None = None
    reference: _Column | None = None
    undeclared: Literal["refuse"] = "refuse"


class DatePartsSection(_Section):
    """The columns of one date in parts."""

    year: _Column
    month: _Column | None = None
    day: _Column | None = None
    birth: bool = False


class AddressSection(_Section):
    """The columns of an address in the identities."""

    line: _Column | None = None
    city: _Column | None = None
    state: _Column | None = None
    zip: _Column | None = None
    country: _Column | None = None


class PersonSection(_Section):
    """The columns of the identities, one row a person. ``scope`` is the medical record number, as the stream has it."""

    key: _Column
    scope: _Column | None = None
    given: _Column | None = None
    family: _Column | None = None
    sex: _Column | None = None
    birth_date: _Column | None = None
    ssn: _Column | None = None
    account: _Column | None = None
    phone: _Column | None = None
    facility: _Column | None = None
    address: AddressSection = Field(default_factory=AddressSection)


class NumberSection(_Section):
    """Columns of the identities with numbers of one assigner: aliases of the person in a scope table."""

    columns: Annotated[list[_Column], Field(min_length=1)]
    assigners: list[Annotated[StrictStr, Field(min_length=1)]] = []
    """The names, OIDs and URIs of the assigner in messages; without any, the numbers of all other assigners count."""
    type: StrictStr = "MR"
    """The code of HL7 table 0203; it decides which number is the scope."""
    zeros: Zeros = Zeros.UNDECLARED
    separator: Annotated[StrictStr, Field(min_length=1)] | None = None
    """Divides several numbers in one cell."""


class IdentitiesSection(_Section):
    """``[identities]``. ``references`` are columns with ids of FHIR Patients."""

    person: PersonSection
    number: list[NumberSection] = []
    references: list[_Column] = []


class TableFile(_Section):
    """The keys of a table file."""

    why: StrictStr = ""
    """For its readers: the source of the layout, and its peculiarities."""
    row: RowSection = Field(default_factory=RowSection)
    columns: Annotated[dict[_Column, Annotated[ColumnSection, BeforeValidator(_read_column)]], Field(min_length=1)]
    when: dict[_Column, WhenSection] = {}
    date_parts: Annotated[dict[StrictStr, DatePartsSection], Field(alias="date-parts")] = {}
    types: dict[_Column, CellType] = {}
    """Types of columns of CSV and NDJSON files; ``string`` if a column is not listed."""
    identities: IdentitiesSection | None = None
