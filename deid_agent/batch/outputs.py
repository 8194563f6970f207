"""The outputs: one Parquet or CSV file for each unit, which gets its name when it is complete and on the disk.

The files of a Delta or Iceberg table are Parquet, in the types that the table has.
"""

import csv
import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deid_agent.agent import sync_folder
from deid_agent.batch.arrow import is_text, load_arrow
from deid_agent.batch.schema import OUTCOME
from deid_agent.batch.sources import name_faults
from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 20_000
"""Rows of a row group of an output whose input has none."""
_UNFINISHED = ".unfinished"
_NOT_IN_DELTA = frozenset(" ,;{}()\n\t=")


class OutputFormat(StrEnum):
    """The format of the outputs."""

    PARQUET = "parquet"
    CSV = "csv"
    DELTA = "delta"
    ICEBERG = "iceberg"

    @property
    def suffix(self) -> str:
        """The suffix of the files: those of a table are Parquet."""
        return "csv" if self is OutputFormat.CSV else "parquet"

    @property
    def is_table(self) -> bool:
        """True if the files are those of a table with a log."""
        return self in {OutputFormat.DELTA, OutputFormat.ICEBERG}


class _Writer(Protocol):
    def write(self, batches: Sequence["pa.RecordBatch"]) -> None: ...

    def close(self) -> None: ...


class _ParquetWriter:
    def __init__(self, path: Path, schema: "pa.Schema", written: "pa.Schema", codec: str) -> None:
        self._schema, self._written = schema, written
        self._writer = load_arrow("pyarrow.parquet").ParquetWriter(path, written, compression=codec)

    def write(self, batches: Sequence["pa.RecordBatch"]) -> None:
        """Write one row group."""
        pa = load_arrow()
        rows = sum(batch.num_rows for batch in batches)
        table = pa.Table.from_batches(batches, self._schema)
        if self._written != self._schema:
            with name_faults():
                table = table.cast(self._written)
        self._writer.write_table(table, row_group_size=max(rows, 1))

    def close(self) -> None:
        self._writer.close()


class _CsvWriter:
    """CSV by RFC 4180. The outcome is four columns; null is an empty field."""

    def __init__(self, path: Path, schema: "pa.Schema") -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\r\n")
        names = [column.name for column in schema if column.name != OUTCOME]
        self._writer.writerow([*names, *(f"{OUTCOME}_{part.name}" for part in schema.field(OUTCOME).type)])

    def write(self, batches: Sequence["pa.RecordBatch"]) -> None:
        for batch in batches:
            columns: list[Any] = []
            for column, array in zip(batch.schema, batch.columns, strict=True):
                columns += array.flatten() if column.name == OUTCOME else [array]
            texts = [self._as_texts(array) for array in columns]
            self._writer.writerows(zip(*texts, strict=True))

    @staticmethod
    def _as_texts(array: "pa.Array") -> list[str | None]:
        found: list[str | None] = (array if is_text(array.type) else array.cast(load_arrow().string())).to_pylist()
        return found

    def close(self) -> None:
        self._file.close()


def written_schema(format_: OutputFormat, schema: "pa.Schema") -> "pa.Schema":
    """The columns of the outputs in types that the format has. Raises ``ConfigurationError`` for one without."""
    if not format_.is_table:
        return schema
    pa = load_arrow()
    columns = []
    for column in schema:
        name = column.name.lower()
        if format_ is OutputFormat.DELTA and set(column.name) & _NOT_IN_DELTA:
            raise ConfigurationError(f"column {name}: Delta has no such names (blanks, commas, brackets): rename it")
        if (found := _table_type(format_, column.type)) is None:
            raise ConfigurationError(f"column {name}: a {format_} table has no type for {column.type}: use parquet")
        columns.append(pa.field(column.name, found))
    return pa.schema(columns)


def _table_type(format_: OutputFormat, type_: "pa.DataType") -> "pa.DataType | None":
    """The type of a table for the values of a column, which none of them changes; None if there is none."""
    arrow = load_arrow()
    types = arrow.types

    def inner(each: "pa.DataType") -> "pa.DataType | None":
        return _table_type(format_, each)

    if types.is_timestamp(type_):
        return arrow.timestamp("us", None if type_.tz is None else "UTC")
    if types.is_struct(type_):
        members = [(each.name, inner(each.type)) for each in type_]
        return None if any(found is None for _, found in members) else arrow.struct(members)
    if types.is_list(type_) or types.is_large_list(type_):
        value = inner(type_.value_type)
        return None if value is None else arrow.list_(value)
    if types.is_map(type_):
        key, item = inner(type_.key_type), inner(type_.item_type)
        return None if key is None or item is None else arrow.map_(key, item)
    if types.is_fixed_size_binary(type_) or types.is_binary(type_) or types.is_large_binary(type_):
        return arrow.binary()
    same = {
        arrow.bool_(),
        arrow.int32(),
        arrow.int64(),
        arrow.float32(),
        arrow.float64(),
        arrow.string(),
        arrow.date32(),
    }
    small = arrow.int16() if format_ is OutputFormat.DELTA else arrow.int32()
    changed = {
        arrow.int8(): arrow.int8() if format_ is OutputFormat.DELTA else arrow.int32(),
        arrow.int16(): small,
        arrow.uint8(): small,
        arrow.uint16(): arrow.int32(),
        arrow.uint32(): arrow.int64(),
        arrow.large_string(): arrow.string(),
        arrow.string_view(): arrow.string(),
        arrow.date64(): arrow.date32(),
        arrow.null(): arrow.string(),
    }
    return type_ if type_ in same or types.is_decimal128(type_) else changed.get(type_)


def check_format(format_: OutputFormat, schema: "pa.Schema") -> None:
    """Raises ``ConfigurationError`` if a column cannot be written in the format."""
    types = load_arrow().types
    written_schema(format_, schema)
    for column in schema:
        if format_ is not OutputFormat.CSV or column.name == OUTCOME:
            continue
        if types.is_nested(column.type):
            raise ConfigurationError(f"column {column.name.lower()}: CSV has no lists and structures; use parquet")
        if (
            types.is_binary(column.type)
            or types.is_large_binary(column.type)
            or types.is_fixed_size_binary(column.type)
        ):
            raise ConfigurationError(f"column {column.name.lower()}: CSV has no bytes; use parquet")


@dataclass(slots=True)
class UnitFile:
    """The output of one unit. Use it as a context manager: without ``finish`` nothing is left of it."""

    folder: Path
    name: str
    schema: "pa.Schema"
    format: OutputFormat
    codec: str = "zstd"
    token: str = field(default_factory=lambda: os.urandom(4).hex())
    """Another for each attempt: an engine may run one unit twice at the same time."""
    _waiting: list["pa.RecordBatch"] = field(default_factory=list, repr=False)
    _rows: int = 0
    _open: _Writer | None = None

    @property
    def _path(self) -> Path:
        return self.folder / f".{self.name}.{self.token}{_UNFINISHED}"

    def __enter__(self) -> "UnitFile":
        if self.format is OutputFormat.CSV:
            self._open = _CsvWriter(self._path, self.schema)
        else:
            written = written_schema(self.format, self.schema)
            self._open = _ParquetWriter(self._path, self.schema, written, self.codec)
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._path.unlink(missing_ok=True)

    def write(self, batch: "pa.RecordBatch", *, ends_group: bool) -> None:
        """Append rows. ``ends_group`` ends a row group."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if ends_group or self._rows >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting and self._open is not None:
            self._open.write(self._waiting)
        self._waiting, self._rows = [], 0

    def finish(self) -> str:
        """Write the rest, make it durable, give it its name; return its SHA-256."""
        self._flush()
        if self._open is not None:
            self._open.close()
            self._open = None
        with self._path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        self._path.replace(self.folder / self.name)
        sync_folder(self.folder)
        return digest


def remove_unfinished(folder: Path) -> int:
    """Remove the files that a killed process has left; return their number."""
    left = [path for path in folder.glob(f".part-*{_UNFINISHED}") if path.is_file()]
    for path in left:
        path.unlink()
    return len(left)


def encode_batch(batch: "pa.RecordBatch") -> bytes:
    """A batch with its schema as bytes (Arrow IPC)."""
    sink = io.BytesIO()
    with load_arrow("pyarrow.ipc").new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode_batch(data: bytes) -> "pa.RecordBatch":
    """The batch of ``encode_batch``."""
    with load_arrow("pyarrow.ipc").open_stream(data) as reader:
        return reader.read_next_batch()
