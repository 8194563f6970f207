"""Text files of rows: CSV and NDJSON, maybe compressed, read record by record with the faults of each.

They are read by Python's modules and not by Arrow's, whose errors quote the row, and which infer types.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

_MOST_FIELD = 64 << 20


class UnreadableError(Exception):
    """An input cannot be read to its end. ``str()`` is a reason with a row number, and never a value."""


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A file of UTF-8, maybe compressed. Bytes that are not UTF-8 become lone surrogates, which no cell may hold."""
    with path.open("rb") as raw:
        data = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        with io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="") as file:
            yield file


def read_csv(file: TextIO) -> Iterator[tuple[list[str] | None, str | None]]:
    """The records of a CSV file (RFC 4180); None for one with a quote in the wrong place.

    Raises ``UnreadableError`` for a quote that is not closed: all rows after it would be one field.
    """
    csv.field_size_limit(_MOST_FIELD)
    reader = csv.reader(file, strict=True)
    number = 0
    while True:
        number += 1
        try:
            yield next(reader), None
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error) or "field larger" in str(error):
                raise UnreadableError(f"row {number}: a quote is not closed") from None
            yield None, "row"


def parse_line(line: str) -> tuple[dict[str, Any] | None, str | None]:
    """The members of a JSON object by their names in lower case, with numbers as they are written; or a fault."""
    try:
        found = json.loads(line, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None, "line"
    if not isinstance(found, dict):
        return None, "line"
    members = {str(name).lower(): value for name, value in found.items()}
    return (members, None) if len(members) == len(found) else (None, "line")
