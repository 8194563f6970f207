"""The identities: one row a person, from a file of the source system. They become the facts of the person's rows."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import orjson

from deid_agent.batch.arrow import decode_type, load_arrow
from deid_agent.batch.cells import read_cells
from deid_agent.batch.sources import FileFormat, InputFile, Unit, name_faults, read_chunks, read_schema
from deid_agent.batch.table_file import PersonSection
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError, open_text, parse_line, read_csv
from deid_agent.model import ConfigurationError, MessageError
from deid_agent.pipeline import facts_from_context

if TYPE_CHECKING:
    import pyarrow as pa

_SCALARS = ("sex", "birth_date", "ssn", "account", "phone", "facility")
_SHOWN = 10
_TORN = b'{"name":0}'


@dataclass(frozen=True, slots=True)
class Identities:
    """The context of each person as JSON, by the key of the rows. ``malformed`` are rows that cannot be used.

    ``torn`` is true if the key of one of them could not be read.
    """

    contexts: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    malformed: tuple[str, ...] = ()
    torn: bool = False

    def find_json(self, patient: object) -> bytes | None:
        """The context of a patient; None if nothing is known of the patient.

        One that refuses the texts if a row of unknown key could be the patient's.
        """
        if patient is None:
            return None
        return self.contexts.get(str(patient).strip(), _TORN if self.torn else None)

    @property
    def known(self) -> Mapping[str, bytes] | None:
        """All patients, by key; None if there may be others."""
        return None if self.torn or not self.contexts else self.contexts

    def lacks(self, patient: object) -> bool:
        """True for a patient who is not among the identities, if there are any."""
        return patient is not None and bool(self.contexts) and str(patient).strip() not in self.contexts

    def find(self, patient: object) -> orjson.Fragment | None:
        """The same, as a part of JSON."""
        context = self.find_json(patient)
        return None if context is None else orjson.Fragment(context)


def list_patients(table: Table, batch: "pa.RecordBatch") -> list[object]:
    """The patient of each row; None for an unknown one."""
    for column, array in zip(batch.schema, batch.columns, strict=True):
        if column.name.lower() == table.patient:
            values = read_cells(array, decode_type(column.type), column.name, [None] * len(array))
            return [None if value == "" else value for value in values]
    return [None] * batch.num_rows


@dataclass(frozen=True, slots=True)
class PatientMatches:
    """``unmatched`` identities that no row has, and ``no_identity`` rows whose patient is not among the identities."""

    unmatched: int = 0
    no_identity: int = 0


def match_patients(units: Iterable[Unit], table: Table, identities: Identities) -> PatientMatches:
    """Compare the patients of all rows with the identities. Inputs that cannot be read end where they end."""
    if table.patient is None or not identities.contexts:
        return PatientMatches()
    seen: set[str] = set()
    no_identity = 0
    for unit in units:
        with suppress(UnreadableError):
            for patient in _list_unit_patients(unit, table, identities):
                seen.add(str(patient).strip())
                no_identity += identities.lacks(patient)
    return PatientMatches(len(identities.contexts.keys() - seen), no_identity)


def _list_unit_patients(unit: Unit, table: Table, identities: Identities) -> Iterator[object]:
    """The patient of each row of a unit. Raises ``UnreadableError``."""
    source = unit.source
    # The columns of a Delta or Iceberg table may have other names in its files, or be missing there.
    if source.format is not FileFormat.PARQUET or source.layout is not None:
        for chunk in read_chunks(unit, table, read_schema(source, table), identities.known):
            yield from list_patients(table, chunk.batch)
        return
    with name_faults():
        file = load_arrow("pyarrow.parquet").ParquetFile(source.path)
        names = [name for name in file.schema_arrow.names if name.lower() == table.patient]
        groups = list(range(unit.first, unit.last))
        for batch in (
            file.iter_batches(batch_size=10_000, row_groups=groups, columns=names, use_threads=False) if names else ()
        ):
            yield from list_patients(table, batch)


def read_identities(source: InputFile, person: PersonSection) -> Identities:
    """The identities of a file, of which only the columns of ``person`` are read.

    Raises ``ConfigurationError`` without a value if the file cannot be read, has no key, or has a key twice.
    """
    wanted = {name for name in _list_columns(person) if name}
    contexts: dict[str, bytes] = {}
    malformed: list[str] = []
    torn = False
    for number, (row, fault) in enumerate(read_columns(source, wanted), 1):
        if person.key not in row:
            raise ConfigurationError(f"identities: the file has no column {person.key}, the key of [identities]")
        if fault is not None:
            malformed.append(f"row {number}: {fault}")
            torn = True
            continue
        if odd := [name for name, value in row.items() if isinstance(value, (bool, float, bytes, Decimal, list, dict))]:
            # 4471902.0 would be found in no row and in no text.
            raise ConfigurationError(
                f"identities: row {number}, column {odd[0]}: is no text, whole number or date: write it as one"
            )
        key = "" if row[person.key] is None else str(row[person.key]).strip()
        if not key:
            continue
        if key in contexts:
            raise ConfigurationError(f"identities: row {number} has the key of an earlier row: leave one of them out")
        context = _make_context(row, person)
        contexts[key] = orjson.dumps(context)
        try:
            facts_from_context(context)
        except MessageError as problem:
            malformed.append(f"row {number}: {problem.where.removeprefix('context.')}")
    return Identities(contexts, tuple(malformed), torn)


def describe_malformed(identities: Identities) -> str:
    """The first malformed rows in one line, with their number."""
    shown = ", ".join(identities.malformed[:_SHOWN])
    return f"{len(identities.malformed)} malformed ({shown})" if identities.malformed else "none malformed"


def _list_columns(person: PersonSection) -> list[str | None]:
    own = [getattr(person, name) for name in ("key", "scope", "given", "family", *_SCALARS)]
    return [*own, *person.address.model_dump().values()]


def _make_context(row: Mapping[str, object], person: PersonSection) -> dict[str, object]:
    def read(column: str | None) -> str | None:
        value = None if column is None else row.get(column)
        return None if value is None or not str(value).strip() else str(value)

    context: dict[str, object] = {name: value for name in _SCALARS if (value := read(getattr(person, name)))}
    if number := read(person.scope):
        context["mrn"] = number
    for member, columns in (
        ("name", {"given": person.given, "family": person.family}),
        ("address", person.address.model_dump()),
    ):
        if found := {part: value for part, column in columns.items() if (value := read(column))}:
            context[member] = found
    return context


def read_columns(source: InputFile, wanted: set[str]) -> Iterator[tuple[Mapping[str, object], str | None]]:
    """Some columns of a file row by row, by their names in lower case, with a fault. Raises ``ConfigurationError``."""
    try:
        with name_faults():
            if source.format is FileFormat.PARQUET:
                yield from _read_parquet_columns(source, wanted)
            else:
                yield from _read_text_columns(source, wanted)
    except UnreadableError as problem:
        raise ConfigurationError(f"identities: {problem}") from None


def _read_parquet_columns(source: InputFile, wanted: set[str]) -> Iterator[tuple[Mapping[str, object], str | None]]:
    file = load_arrow("pyarrow.parquet").ParquetFile(source.path)
    names = [name for name in file.schema_arrow.names if name.lower() in wanted]
    for batch in file.iter_batches(batch_size=10_000, columns=names, use_threads=False):
        columns = {name.lower(): batch.column(name).to_pylist() for name in names}
        for n in range(batch.num_rows):
            yield {name: values[n] for name, values in columns.items()}, None


def _read_text_columns(source: InputFile, wanted: set[str]) -> Iterator[tuple[Mapping[str, object], str | None]]:
    with open_text(source.path) as file:
        if source.format is FileFormat.NDJSON:
            for line in file:
                if line.strip():
                    members, fault = parse_line(line)
                    yield dict.fromkeys(wanted) | {k: v for k, v in (members or {}).items() if k in wanted}, fault
            return
        rows = read_csv(file)
        names = [name.lower() for name in (next(rows, (None, None))[0] or [])]
        for cells, fault in rows:
            if cells is None or len(cells) != len(names):
                yield dict.fromkeys(names), fault or "row"
            else:
                found = {n: c or None for n, c in zip(names, cells, strict=True) if n in wanted}
                yield found, None
