"""How a data file of a Delta or Iceberg table is read as rows of the version that is read.

A file may be older than that version: a column was added, renamed or dropped since, or has a wider type now, and values
of partitions may be in the log of the table alone.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from deid_agent.batch.arrow import decode_type, load_arrow
from deid_agent.batch.text_files import UnreadableError
from deid_agent.model import ConfigurationError, DeidError

if TYPE_CHECKING:
    import pyarrow as pa

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """Where a column is in the data files: the field with this id if the file has ids, else one of the names.

    A column without id and names is in no file. ``required`` ones have no nulls.
    """

    names: tuple[str, ...] = ()
    id: int | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table at the version that is read, and the place of each in a data file.

    ``constants`` are the values of the columns that this file lacks. ``pinned`` names table and version without a
    value; ``table`` (as the user wrote it) and ``root`` may hold PHI.
    """

    pinned: str
    table: str = field(repr=False)
    root: str = field(repr=False)
    schema: "pa.Schema" = field(repr=False)
    places: tuple[ColumnPlace, ...] = field(repr=False)
    constants: Mapping[str, object] = field(default_factory=dict, repr=False)

    def digest(self, content: str) -> str:
        """The digest of a file with the keyed digest ``content``, and of what decides its rows besides."""
        known = {name: str(value) for name, value in self.constants.items() if value is not None}
        columns = [[column.name, str(column.type)] for column in self.schema]
        places = [[place.names, place.id] for place in self.places]
        data = orjson.dumps([content, columns, places, known], option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(data, digest_size=16).hexdigest()

    def fit(self, found: "pa.Schema") -> Callable[["pa.RecordBatch"], "pa.RecordBatch"]:
        """Makes rows of the table from those of a file with these columns. Raises ``UnreadableError``."""
        indexes = [self._find(found, place) for place in self.places]
        for number, (column, place, index) in enumerate(zip(self.schema, self.places, indexes, strict=True), 1):
            if index is None:
                if place.required and self.constants.get(column.name) is None:
                    raise UnreadableError(f"lacks column {number} of the table, which has no nulls")
            elif not may_become(found.field(index).type, column.type):
                raise UnreadableError(f"column {number} has another type than in the table")

        def make(batch: "pa.RecordBatch") -> "pa.RecordBatch":
            pa = load_arrow()
            arrays = []
            for column, index in zip(self.schema, indexes, strict=True):
                if index is None:
                    value = pa.scalar(self.constants.get(column.name), column.type)
                    arrays.append(pa.repeat(value, batch.num_rows))
                    continue
                array = batch.column(index)
                if pa.types.is_dictionary(array.type):
                    array = array.dictionary_decode()
                arrays.append(array if array.type == column.type else array.cast(column.type))
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

        return make

    @staticmethod
    def _find(found: "pa.Schema", place: ColumnPlace) -> int | None:
        """The index of a column in the file; None if it is not there. Raises ``UnreadableError`` if it is ambiguous."""
        ids = [(column.metadata or {}).get(_FIELD_ID) for column in found]
        if place.id is not None and any(ids):
            wanted = [n for n, each in enumerate(ids) if each == b"%d" % place.id]
        elif place.id is not None and not place.names:
            raise UnreadableError("has no field ids, which the table needs")
        else:
            wanted = [n for n, column in enumerate(found) if column.name in place.names]
            folded = {name.lower() for name in place.names}
            wanted = wanted or [n for n, column in enumerate(found) if column.name.lower() in folded]
        if len(wanted) > 1:
            raise UnreadableError("has a column of the table twice")
        return wanted[0] if wanted else None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table. ``name`` is that in the table; it may hold values of partitions."""

    path: Path = field(repr=False)
    name: str = field(repr=False)
    layout: Layout


@contextmanager
def hide_faults(what: str, kind: type[DeidError] = ConfigurationError) -> Iterator[None]:
    """Turns the errors of a library of tables into ``kind`` without their texts, which quote paths and values."""
    try:
        yield
    except DeidError:
        raise
    except BaseException as error:
        # A fault of Rust is no ``Exception``.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise kind(f"{what} ({type(error).__name__})") from None


def may_become(old: "pa.DataType", new: "pa.DataType") -> bool:
    """True if every value of a column of a data file keeps its meaning in the type of the table."""
    types = load_arrow().types
    old, new = plain_type(decode_type(old)), plain_type(decode_type(new))
    if old == new:
        return True
    if types.is_timestamp(old) and types.is_timestamp(new):
        # INT96, in which Spark writes points in time, has no zone and means UTC.
        return bool(old.tz == new.tz or old.tz is None)
    if types.is_date32(old):
        return bool(types.is_timestamp(new) and new.tz is None)
    if types.is_signed_integer(old):
        wider = types.is_signed_integer(new) and new.bit_width > old.bit_width
        return bool(wider or (types.is_float64(new) and old.bit_width <= 32) or types.is_decimal(new))
    if types.is_floating(old):
        return bool(types.is_floating(new) and new.bit_width > old.bit_width)
    return bool(types.is_decimal(old) and types.is_decimal(new) and new.precision >= old.precision)


def plain_type(type_: "pa.DataType") -> "pa.DataType":
    """The type with small offsets, and without the metadata of fields in it, names and order apart."""
    pa = load_arrow()
    types = pa.types
    if types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.binary()
    if types.is_struct(type_):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in type_])
    if types.is_map(type_):
        return pa.map_(plain_type(type_.key_type), plain_type(type_.item_type))
    if types.is_list(type_) or types.is_large_list(type_):
        return pa.list_(plain_type(type_.value_type))
    return type_


def plain_schema(schema: "pa.Schema") -> "pa.Schema":
    """The columns of a table in the types that its data files have."""
    pa = load_arrow()
    return pa.schema([pa.field(column.name, plain_type(column.type)) for column in schema])


def find_local(location: str, root: Path) -> Path:
    """The path of a data file: relative to the table, absolute, or a ``file:`` address.

    Raises ``ConfigurationError`` for an object store, and for a name that no file has.
    """
    if "\0" in location:
        raise ConfigurationError("names a data file that cannot be")
    for scheme in ("file://localhost/", "file:///", "file:/"):
        if location.startswith(scheme) and not location.removeprefix(scheme).startswith("/"):
            return Path("/" + location.removeprefix(scheme))
    if "://" in location:
        raise ConfigurationError("has data files in an object store, which are not read: mount it, or copy the table")
    return root / location


def find_data_file(location: str, root: Path) -> Path:
    """As ``find_local``. A pipe is refused, whose open would wait for ever, and so is a way out of the table."""
    path = find_local(location, root)
    if not Path(location).is_absolute() and ".." in Path(location).parts:
        raise ConfigurationError("names a data file outside of the table by a relative path")
    try:
        is_other = path.exists() and not path.is_file()
    except OSError:  # its open has the same fault, which refuses that file alone
        return path
    if is_other:
        raise ConfigurationError("names a data file that is a folder, a pipe or a device")
    return path


def is_same_place(path: Path, other: Path) -> bool:
    """True if one folder is the other or inside of it, by whatever names: links, mounts, letters of another case."""

    def mark(each: Path) -> set[tuple[int, int]]:
        return {(state.st_dev, state.st_ino) for state in [each.stat()]} if each.exists() else set()

    def marks(each: Path) -> set[tuple[int, int]]:
        whole = each.resolve()
        return {found for folder in (whole, *whole.parents) for found in mark(folder)}

    return bool(mark(path) & marks(other) or mark(other) & marks(path))
