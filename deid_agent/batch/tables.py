"""Table files: the content of each column of a table. One TOML file a table; the shipped ones are in ``rules/tables``.

``TableFile`` (table_file.py) defines the keys. A column that the file does not declare stops the run: an unknown column
may hold names. Names of columns are compared without case, because databases fold them differently.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pydantic import TypeAdapter

from deid_agent.batch.table_file import (
    PART_OF_TEMPLATE,
    CellType,
    ColumnKind,
    ColumnSection,
    DatePartsSection,
    NumberSection,
    PersonSection,
    TableFile,
)
from deid_agent.model import CATEGORY, ConfigurationError, DateKind, PhiCategory, PhiType, Subject
from deid_agent.rules import data_folder, read_toml

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SUBJECTS = {"patient": Subject.PATIENT, "provider": Subject.PROVIDER, "other": Subject.OTHER}


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is treated. ``parts`` and ``separators`` are those of a template."""

    kind: ColumnKind
    type: PhiType = PhiType.IDNUM
    subject: Subject = Subject.PATIENT
    date_kind: DateKind = DateKind.EVENT
    parts: tuple[str, ...] = ()
    separators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """The treatment of a column in those rows in which ``column`` has one of ``values``.

    They are compared without case and blanks: a value that a database has padded must not leave a text unread.
    """

    column: str
    values: frozenset[str]
    treatment: Column

    def applies(self, value: str) -> bool:
        """True in the rows with this value."""
        return value.strip().casefold() in self.values


@dataclass(frozen=True, slots=True)
class DateParts:
    """The columns of one date: year, month and day; None for one that the table lacks."""

    columns: tuple[str, str | None, str | None]
    date_kind: DateKind


@dataclass(frozen=True, slots=True)
class Table:
    """A compiled table file. Names of columns are in lower case. ``digest`` identifies its content."""

    name: str
    digest: str
    columns: Mapping[str, Column]
    document: str | None = None
    patient: str | None = None
    reference: str | None = None
    when: Mapping[str, Condition] = field(default_factory=dict)
    date_parts: tuple[DateParts, ...] = ()
    types: Mapping[str, CellType] = field(default_factory=dict)
    person: PersonSection | None = None
    numbers: tuple[NumberSection, ...] = ()
    references: tuple[str, ...] = ()

    @property
    def patient_key(self) -> str:
        """The column of the identities whose key the patient of a row is; else the column of the row."""
        return self.person.key if self.person is not None else self.patient or ""

    @staticmethod
    def load(name_or_file: str, rules: str | Path | None = None) -> "Table":
        """The shipped table file of that name, else the table file at that path, as ``--table`` takes it.

        It holds names, kinds and digests, no key and no model, and may be pickled. Raises ``ConfigurationError``.
        """
        return load_table(name_or_file, data_folder("rules", None if rules is None else str(rules)))

    def spark_schema(self, columns: "StructType") -> "StructType":
        """The columns of the output for ``mapInArrow``, from those of the data frame (``df.schema``).

        Raises ``ConfigurationError`` if these do not fit the table file.
        """
        # By its name, since that module needs this one.
        found: StructType = import_module("deid_agent.batch.spark_engine").make_spark_schema(self, columns)
        return found

    def find_kind(self, name: str) -> ColumnKind | None:
        """The kind of a column in any case; None if it is not declared."""
        column = self.columns.get(name.lower())
        return None if column is None else column.kind


_FILE: TypeAdapter[TableFile] = TypeAdapter(TableFile)


def list_tables(rules: Path) -> list[str]:
    """The names of the shipped table files, such as ``omop/note``."""
    root = rules / "tables"
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml"))


def load_table(name_or_file: str, rules: Path) -> Table:
    """The shipped table file of that name, else the table file at that path.

    Raises ``ConfigurationError`` with the file, the key and advice.
    """
    shipped = list_tables(rules)
    path = rules / "tables" / f"{name_or_file}.toml" if name_or_file in shipped else Path(name_or_file)
    if not path.is_file():
        raise ConfigurationError(
            f"table {name_or_file!r}: no such table file; give the path of a file or one of {', '.join(shipped)}"
        )
    return compile_table(read_toml(path, _FILE), name_or_file if name_or_file in shipped else path.stem, str(path))


def compile_table(file: TableFile, name: str, origin: str) -> Table:
    """The table of a file. Raises ``ConfigurationError`` if its parts contradict each other."""

    def refuse(key: str, why: str) -> ConfigurationError:
        return ConfigurationError(f"{origin}: {key}: {why}")

    columns = {name: _compile(section, partial(refuse, f"columns.{name}")) for name, section in file.columns.items()}
    for place in ("document", "patient", "reference"):
        named = getattr(file.row, place)
        if named is not None and named not in columns:
            raise refuse(f"row.{place}", f"{named} is not in columns: declare it")
        if named is not None and columns[named].kind is ColumnKind.DROP and place == "patient":
            raise refuse(f"row.{place}", f"{named} is dropped: declare it as id")
    if (at := file.row.reference) is not None and columns[at].kind is not ColumnKind.DATE:
        raise refuse("row.reference", f"{at} is not of kind date")
    for column, made in columns.items():
        if missing := [part for part in made.parts if part not in columns]:
            raise refuse(f"columns.{column}", f"{missing[0]} of the template is not in columns: declare it")
        if wrong := [p for p in made.parts if columns[p].kind not in {ColumnKind.ID, ColumnKind.KEEP}]:
            raise refuse(f"columns.{column}", f"{wrong[0]} of the template must be of kind id or keep")
    when = {}
    for column, section in file.when.items():
        if missing := [name for name in (column, section.column) if name not in columns]:
            raise refuse(f"when.{column}", f"{missing[0]} is not in columns: declare it")
        simple = ColumnSection(kind=section.kind)
        treatment = _compile(simple, partial(refuse, f"when.{column}"))
        if treatment.kind in {ColumnKind.TEMPLATE, ColumnKind.DATE_PARTS, ColumnKind.DROP}:
            raise refuse(f"when.{column}", f"kind {treatment.kind} cannot depend on a value")
        when[column] = Condition(section.column, frozenset(v.strip().casefold() for v in section.values), treatment)
    parts = [_compile_parts(each) for each in file.date_parts.values()]
    used = [column for each in parts for column in each.columns if column is not None]
    declared = [column for column, made in columns.items() if made.kind is ColumnKind.DATE_PARTS]
    if sorted(used) != sorted(declared):
        odd = sorted({*used} ^ {*declared})
        raise refuse("date-parts", f"{', '.join(odd) or 'a column'} must be in columns as date-parts, and in one date")
    if unknown := [column for column in file.types if column not in columns]:
        raise refuse("types", f"{unknown[0]} is not in columns: declare it")
    # The keys of scope tables decide no row: a scope table has a digest of its own.
    dumped = file.model_dump(mode="json", exclude={"identities": {"number", "references"}})
    digest = hashlib.sha256(orjson.dumps(dumped, option=orjson.OPT_SORT_KEYS)).hexdigest()
    identities = file.identities
    return Table(
        name,
        digest,
        columns,
        file.row.document,
        file.row.patient,
        file.row.reference,
        when,
        tuple(parts),
        file.types,
        *(() if identities is None else (identities.person, tuple(identities.number), tuple(identities.references))),
    )


def _compile(section: ColumnSection, refuse: Callable[[str], ConfigurationError]) -> Column:
    kind, subject = section.kind, _SUBJECTS[section.role]
    if (section.template is not None) != (kind is ColumnKind.TEMPLATE):
        raise refuse("kind template and the key template come together")
    if section.birth and kind is not ColumnKind.DATE:
        raise refuse("birth = true is for kind date; of parts, write it in [date-parts]")
    if kind is ColumnKind.VALUE:
        raise refuse("name a PHI type as the kind, such as PHONE")
    if section.template is not None:
        parts = tuple(PART_OF_TEMPLATE.findall(section.template))
        return Column(ColumnKind.TEMPLATE, parts=parts, separators=tuple(PART_OF_TEMPLATE.split(section.template)[::2]))
    names = PhiType.DOCTOR if subject is Subject.PROVIDER else PhiType.PATIENT
    if isinstance(kind, PhiType):
        if CATEGORY[kind] is PhiCategory.DATE:
            raise refuse("write kind date")
        if kind in {PhiType.PATIENT, PhiType.DOCTOR}:
            raise refuse('write kind name, family or given; a clinician has role = "provider"')
        return Column(ColumnKind.VALUE, kind, subject)
    if kind in {ColumnKind.NAME, ColumnKind.FAMILY, ColumnKind.GIVEN}:
        return Column(kind, names, subject)
    if kind is ColumnKind.DATE:
        birth = DateKind.BIRTH if section.birth else DateKind.EVENT
        return Column(kind, PhiType.DATE, Subject.PATIENT if section.birth else Subject.OTHER, birth)
    return Column(kind, subject=Subject.OTHER)


def _compile_parts(section: DatePartsSection) -> DateParts:
    kind = DateKind.BIRTH if section.birth else DateKind.EVENT
    return DateParts((section.year, section.month, section.day), kind)
