"""The inputs: Parquet, CSV and NDJSON files, divided into units of work, read in chunks of rows.

The files of a Delta or Iceberg table are Parquet, read by the layout of the table.

CSV and NDJSON have the types that the table file declares, never inferred ones: inference makes 12 of ``0012``.
"""

import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.layouts import Layout
from deid_agent.batch.line_form import LineForm
from deid_agent.batch.table_file import CellType, ColumnKind
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError, open_text, parse_line, read_csv
from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 64
"""Rows of a job: notes are read 16 together, and a job that is lost is not much."""
_CHUNK_BYTES = 4 << 20
_PEEK = 1000
Known = Container[str] | None
_Row = tuple[list[str | None], str | None]
_HIGHEST = {CellType.INT32: (1 << 31) - 1, CellType.INT64: (1 << 63) - 1}


class FileFormat(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    CSV = "csv"
    NDJSON = "ndjson"


_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".ndjson": FileFormat.NDJSON,
    ".jsonl": FileFormat.NDJSON,
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file. Names of files may hold PHI, so messages give its ``number`` in the order of the names.

    A data file of a table has a ``layout``, and its ``name`` is that in the table.
    """

    number: int
    name: str = field(repr=False)
    path: Path = field(repr=False)
    format: FileFormat
    layout: Layout | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> str:
        """The name of the file for messages."""
        return f"input {self.number}"


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a source that becomes one output file: the whole, or row groups ``[first, last)`` of Parquet."""

    source: InputFile
    first: int = 0
    last: int = 0

    @property
    def shown(self) -> str:
        """The unit in messages."""
        groups = f", row groups {self.first} to {self.last - 1}" if self.source.format is FileFormat.PARQUET else ""
        return f"{self.source.shown}{groups}"


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of a unit. ``faults`` name the broken part of a row. ``ends_group`` ends a row group of Parquet."""

    batch: "pa.RecordBatch" = field(repr=False)
    faults: Sequence[str | None]
    ends_group: bool = False


def make_source(path: Path) -> InputFile:
    """A single file. Raises ``ConfigurationError`` if it is missing or of another format."""
    found = find_format(path) if path.is_file() else None
    if found is None:
        raise ConfigurationError("identities: no such file, or not a Parquet, CSV or NDJSON file by its name")
    return InputFile(1, path.name, path, found)


def find_format(path: Path) -> FileFormat | None:
    """The format of a file by its name; None for another one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
        found = _SUFFIXES.get(suffixes[-1]) if suffixes else None
        return None if found is FileFormat.PARQUET else found
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


@contextmanager
def name_faults() -> Iterator[None]:
    """Turns the errors of readers into ``UnreadableError`` without their texts, which quote values."""
    pa = load_arrow()
    try:
        yield
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
        raise UnreadableError(f"cannot be read ({type(error).__name__})") from None


def read_schema(source: InputFile, table: Table) -> "pa.Schema":
    """The columns of a source with their types. Raises ``UnreadableError``."""
    pa = load_arrow()
    if source.layout is not None:
        return source.layout.schema
    with name_faults():
        if source.format is FileFormat.PARQUET:
            schema = _open_parquet(source).schema_arrow
            return pa.schema([pa.field(column.name, column.type) for column in schema])
        if source.format is FileFormat.CSV:
            with open_text(source.path) as file:
                names = next(read_csv(file), (None, None))[0]
            if names is None:
                raise UnreadableError("has no header line")
        else:
            names = list(table.columns)
            if number := _find_undeclared(source, table):
                raise ConfigurationError(
                    f"line {number}: a member is not declared in the table file: declare it; drop leaves it out"
                )
    types = {CellType.STRING: pa.string(), CellType.INT32: pa.int32(), CellType.INT64: pa.int64()}
    return pa.schema([pa.field(name, types[table.types.get(name.lower(), CellType.STRING)]) for name in names])


def _find_undeclared(source: InputFile, table: Table) -> int:
    """The number of the first of a thousand lines with a member that is not declared; 0 if there is none."""
    with open_text(source.path) as file:
        for number, line in enumerate(file, 1):
            if number > _PEEK:
                break
            members, _ = parse_line(line)
            if any(table.find_kind(name) is None for name in members or ()):
                return number
    return 0


def list_units(source: InputFile, unit_bytes: int) -> list[Unit]:
    """The units of a source: consecutive row groups of at most ``unit_bytes`` compressed, or at least one."""
    if source.format is not FileFormat.PARQUET:
        return [Unit(source)]
    with name_faults():
        metadata = load_arrow("pyarrow.parquet").read_metadata(source.path)
        sizes = []
        for group in range(metadata.num_row_groups):
            columns = metadata.row_group(group)
            sizes.append(sum(columns.column(n).total_compressed_size for n in range(columns.num_columns)))
    units: list[Unit] = []
    first, size = 0, 0
    for group, own in enumerate(sizes):
        if group > first and size + own > unit_bytes:
            units.append(Unit(source, first, group))
            first, size = group, 0
        size += own
    return [*units, Unit(source, first, len(sizes))]


def count_rows(source: InputFile) -> int | None:
    """The rows of a Parquet file; None for a file that would have to be read."""
    if source.format is not FileFormat.PARQUET:
        return None
    with name_faults():
        return int(load_arrow("pyarrow.parquet").read_metadata(source.path).num_rows)


def find_codec(source: InputFile) -> str:
    """The compression of a Parquet file, for its output; ``zstd`` for other files."""
    if source.format is FileFormat.PARQUET:
        with name_faults():
            metadata = load_arrow("pyarrow.parquet").read_metadata(source.path)
            if metadata.num_row_groups and metadata.num_columns:
                codec = str(metadata.row_group(0).column(0).compression).lower()
                return "none" if codec == "uncompressed" else codec
    return "zstd"


def read_chunks(unit: Unit, table: Table, schema: "pa.Schema", known: Known = None) -> Iterator[RowChunk]:
    """The rows of a unit in order. ``known`` are all patients that may be in them. Raises ``UnreadableError``."""
    if unit.source.format is FileFormat.PARQUET:
        yield from _read_groups(unit)
        return
    rows = _read_rows(unit.source, table, [column.name for column in schema], known)
    waiting: list[_Row] = []
    size = 0
    with name_faults():
        for cells, fault in rows:
            waiting.append((cells, fault))
            size += sum(len(cell) for cell in cells if cell is not None)
            if len(waiting) == CHUNK_ROWS or size > _CHUNK_BYTES:
                yield _make_chunk(waiting, schema, table)
                waiting, size = [], 0
    if waiting:
        yield _make_chunk(waiting, schema, table)


def _open_parquet(source: InputFile) -> Any:
    """The file. Points in time of Spark (INT96) become microseconds: in nanoseconds 9999-12-31 overflows."""
    return load_arrow("pyarrow.parquet").ParquetFile(source.path, coerce_int96_timestamp_unit="us")


def _read_groups(unit: Unit) -> Iterator[RowChunk]:
    layout = unit.source.layout
    with name_faults():
        file = _open_parquet(unit.source)
        fit = layout.fit(file.schema_arrow) if layout is not None else None
        for group in range(unit.first, unit.last):
            waiting: pa.RecordBatch | None = None
            for batch in file.iter_batches(batch_size=CHUNK_ROWS, row_groups=[group], use_threads=False):
                for part in _divide(batch if fit is None else fit(batch)):
                    if waiting is not None:
                        yield RowChunk(waiting, ())
                    waiting = part
            if waiting is not None:
                yield RowChunk(waiting, (), ends_group=True)


def _divide(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    """The batch in parts of a bounded size; one row may be larger."""
    if batch.num_rows <= 1 or batch.nbytes <= _CHUNK_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _divide(batch.slice(0, half))
    yield from _divide(batch.slice(half))


def _make_chunk(rows: Sequence[_Row], schema: "pa.Schema", table: Table) -> RowChunk:
    """Rows of text as columns of their declared types. A cell that does not fit is null, with a fault of its row."""
    pa = load_arrow()
    faults = [fault for _, fault in rows]
    arrays = []
    for place, column in enumerate(schema):
        name = column.name.lower()
        type_ = table.types.get(name, CellType.STRING)
        values: list[object] = []
        for n, (cells, _) in enumerate(rows):
            try:
                values.append(_read_cell(cells[place], type_))
            except ValueError:
                values.append(None)
                faults[n] = faults[n] or name
        arrays.append(pa.array(values, column.type))
    return RowChunk(pa.RecordBatch.from_arrays(arrays, schema=schema), faults)


def _read_cell(text: str | None, type_: CellType) -> str | int | None:
    """The value of a cell. Raises ``ValueError``, also for a text that is not Unicode."""
    if text is None or not text:
        return None
    text.encode("utf-8")
    if type_ is CellType.STRING:
        return text
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 20:
        raise ValueError
    number = int(text)
    if not -_HIGHEST[type_] <= number <= _HIGHEST[type_]:
        raise ValueError
    return number


def _read_rows(source: InputFile, table: Table, names: Sequence[str], known: Known) -> Iterator[_Row]:
    """The cells of each row in the order of ``names``; of a broken row the fault, and no cells."""
    nothing: list[str | None] = [None] * len(names)
    with open_text(source.path) as file:
        if source.format is FileFormat.CSV:
            rows = read_csv(file, LineForm.of(table, names, known))
            next(rows, None)
            for cells, fault in rows:
                if cells == [] and len(names) == 1:
                    yield nothing, None
                elif cells == []:
                    continue  # an empty line
                elif cells is None or len(cells) != len(names):
                    yield nothing, fault or "row"
                else:
                    yield list(cells), None
            return
        wanted = [name.lower() for name in names]
        for line in file:
            if not line.strip():
                continue
            members, fault = parse_line(line)
            if members is None:
                yield nothing, fault
            elif any(table.find_kind(name) is None for name in members):
                yield nothing, "undeclared"
            else:
                yield _write_members(members, table, wanted)


def _write_members(members: Mapping[str, object], table: Table, names: Sequence[str]) -> _Row:
    """The members of a line as cells. An object or a list is a fault, unless its column is dropped."""
    cells: list[str | None] = []
    fault = None
    for name in names:
        value = members.get(name)
        if isinstance(value, bool):
            cells.append("true" if value else "false")
        elif value is None or isinstance(value, str):
            cells.append(value)
        else:
            cells.append(None)
            if table.find_kind(name) is not ColumnKind.DROP:
                fault = fault or name
    return cells, fault
