"""The outputs: one Parquet or CSV file for each unit, which gets its name when it is complete and on the disk."""

import csv
import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deid_agent.batch.arrow import is_text, load_arrow
from deid_agent.batch.manifest import sync_folder
from deid_agent.batch.schema import OUTCOME
from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 20_000
"""Rows of a row group of an output whose input has none."""
_UNFINISHED = ".unfinished"


class OutputFormat(StrEnum):
    """The format of the outputs."""

    PARQUET = "parquet"
    CSV = "csv"


class _Writer(Protocol):
    def write(self, batches: Sequence["pa.RecordBatch"]) -> None: ...

    def close(self) -> None: ...


class _ParquetWriter:
    def __init__(self, path: Path, schema: "pa.Schema", codec: str) -> None:
        self._schema = schema
        self._writer = load_arrow("pyarrow.parquet").ParquetWriter(path, schema, compression=codec)

    def write(self, batches: Sequence["pa.RecordBatch"]) -> None:
        """Write one row group."""
        pa = load_arrow()
        rows = sum(batch.num_rows for batch in batches)
        self._writer.write_table(pa.Table.from_batches(batches, self._schema), row_group_size=max(rows, 1))

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


def check_format(format_: OutputFormat, schema: "pa.Schema") -> None:
    """Raises ``ConfigurationError`` if a column cannot be written in the format."""
    types = load_arrow().types
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
            self._open = _ParquetWriter(self._path, self.schema, self.codec)
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
