"""The values of columns as Python values: strings, and whole numbers also for dates."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from deid_agent.batch.arrow import highest_number, load_arrow, units_of_a_day

if TYPE_CHECKING:
    import pyarrow as pa

Cell = Any
"""A value of a row: a string, a whole number (also of a date), or None."""

_EPOCH = date(1970, 1, 1).toordinal()


def read_cells(array: "pa.Array", type_: "pa.DataType", name: str, faults: list[str | None]) -> list[Cell]:
    """The values of a column; dates as numbers. A string that is not UTF-8 is None, with a fault of its row."""
    pa = load_arrow()
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        array = array.cast(pa.int32() if pa.types.is_date32(type_) else pa.int64())
    try:
        return list(array.to_pylist())
    except (UnicodeDecodeError, pa.ArrowInvalid):
        cells: list[Cell] = []
        for n in range(len(array)):
            try:
                cells.append(array[n].as_py())
            except (UnicodeDecodeError, pa.ArrowInvalid):
                cells.append(None)
                faults[n] = faults[n] or name
        return cells


def make_array(cells: Sequence[Cell], type_: "pa.DataType") -> tuple["pa.Array", list[int]]:
    """The cells as a column, and the places of those that do not fit, which are null in it."""
    pa = load_arrow()
    try:
        return pa.array(cells, type_), []
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        arrays, failed = [], []
        for n, cell in enumerate(cells):
            try:
                arrays.append(pa.array([cell], type_))
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                arrays.append(pa.nulls(1, type_))
                failed.append(n)
        return pa.concat_arrays(arrays), failed


def as_text(value: Cell) -> str:
    return "" if value is None else str(value)


def digest_cells(cells: Mapping[str, Cell]) -> str:
    """A name for a row without a document."""
    text = "\x1f".join(as_text(value) for value in cells.values())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fit_number(text: str, type_: "pa.DataType") -> int:
    """``text`` as a number of the type. Raises ``ValueError`` or ``OverflowError`` if it is none."""
    number, highest = int(text), highest_number(type_)
    if highest is None or abs(number) > highest:
        raise OverflowError
    return number


def day_of(value: int, per_day: int) -> date:
    return date.fromordinal(_EPOCH + value // per_day)


def read_day(value: Cell, type_: "pa.DataType | None") -> date | None:
    """The day of a column of dates; None if it is no day from 1900 to 2199."""
    if value is None or type_ is None:
        return None
    try:
        day = date.fromisoformat(value[:10]) if isinstance(value, str) else day_of(value, units_of_a_day(type_))
    except (ValueError, OverflowError):
        return None
    return day if 1901 <= day.year <= 2199 else None
