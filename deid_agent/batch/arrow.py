"""Imports pyarrow, which only ``batch`` needs, and describes the types of columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


def load_arrow(module: str = "pyarrow") -> Any:
    """The module. Raises ``ConfigurationError`` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigurationError(
            "batch needs pyarrow, which is not installed; run: pip install 'deid-agent[batch]'"
        ) from None


def is_text(type_: "pa.DataType") -> bool:
    """True for a column of strings."""
    types = load_arrow().types
    return bool(types.is_string(type_) or types.is_large_string(type_))


def is_date(type_: "pa.DataType") -> bool:
    """True for days and points in time."""
    types = load_arrow().types
    return bool(types.is_date(type_) or types.is_timestamp(type_))


def highest_number(type_: "pa.DataType") -> int | None:
    """The highest number of a column of integers; None for another type."""
    types = load_arrow().types
    if not types.is_integer(type_):
        return None
    bits = int(type_.bit_width)
    return (1 << (bits - (0 if types.is_unsigned_integer(type_) else 1))) - 1


def units_of_a_day(type_: "pa.DataType") -> int:
    """How many units of a column of dates are a day."""
    types = load_arrow().types
    if types.is_date32(type_):
        return 1
    if types.is_date64(type_):
        return 86_400_000
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
    return 86_400 * per_second[str(type_.unit)]


def decode_type(type_: "pa.DataType") -> "pa.DataType":
    """The type of the values of a column: that of its dictionary, if it has one."""
    pa = load_arrow()
    return type_.value_type if pa.types.is_dictionary(type_) else type_
