"""The files of a folder, and text files of rows: CSV and NDJSON, read record by record with the faults of each.

They are read by Python's modules and not by Arrow's, whose errors quote the row, and which infer types.
"""

import csv
import gzip
import io
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TextIO

from deid_agent.model import ConfigurationError

_MOST_FIELD = 64 << 20
_MOST_AHEAD = 10_000
_FIELD = re.compile(r'"(?:[^"]+|"")*+(?P<open>\Z)|(?:"(?:[^"]+|"")*+"|[^",]*)(?P<end>,|\Z)')


class UnreadableError(Exception):
    """An input cannot be read to its end. ``str()`` is a reason with a row number, and never a value."""


def list_files(root: Path, shown: str) -> list[Path]:
    """The files of a folder and of those in it.

    Raises ``ConfigurationError`` for a folder that cannot be read, and for a link to no file that is not hidden: their
    rows would be missing without a trace.
    """
    found: list[Path] = []

    def refuse(error: OSError) -> None:
        raise ConfigurationError(f"{shown}: has a folder that cannot be read ({type(error).__name__})") from None

    for folder, folders, names in os.walk(root, onerror=refuse):
        hidden = any(part.startswith((".", "_")) for part in Path(folder).relative_to(root).parts)
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_file():
                found.append(path)
            elif path.is_symlink() and not hidden and not name.startswith((".", "_")):
                raise ConfigurationError(
                    f"{shown}: has a link to a folder, or to no file, which would be left out: name the folder as a "
                    "path of its own, or remove the link"
                )
    return sorted(found)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A file of UTF-8, maybe compressed. Bytes that are not UTF-8 become lone surrogates, which no cell may hold."""
    with path.open("rb") as raw:
        data = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        with io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="") as file:
            yield file


class ChecksRecords(Protocol):
    """Judges lines by their cells; see ``LineForm``."""

    def may_be(self, cells: Sequence[str]) -> bool:
        """True if cells may be those of a record."""

    def is_hidden(self, line: str) -> bool:
        """True if a line inside of a text is a record."""


def read_csv(file: TextIO, form: ChecksRecords | None = None) -> Iterator[tuple[list[str] | None, str | None]]:
    """The records of a CSV file (RFC 4180); None for one with a quote in the wrong place, and for each line after it
    that may be the rest of its text: its parts would be cells of columns that are kept.

    With a ``form`` lines without quotes after such a record count only if they may be records, and a record is refused
    with the lines of its texts that are records themselves: a quote that is not closed has hidden them.

    Raises ``UnreadableError`` for a quote that is not closed: all rows after it would be one field.
    """
    csv.field_size_limit(_MOST_FIELD)
    lines = _Lines(file)
    reader = csv.reader(lines, strict=True)
    number = width = 0
    unsure = False
    while True:
        number += 1
        lines.taken.clear()
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error) or "field larger" in str(error):
                raise UnreadableError(f"row {number}: a quote is not closed") from None
            for _ in range(1 + lines.skip_rest(width)):
                yield None, "row"
            unsure = True
            continue
        unsure = unsure and not any('"' in line for line in lines.taken)
        hidden = sum(map(form.is_hidden, lines.taken[1:])) if form is not None and width else 0
        if hidden or (unsure and record and form is not None and not form.may_be(record)):
            for _ in range(1 + hidden):
                yield None, "row"
            continue
        width = width or len(record)
        yield record, None


@dataclass(slots=True)
class _Lines:
    """The lines of a file, of which some are looked at before they are read."""

    file: TextIO
    taken: list[str] = field(default_factory=list, repr=False)
    """The lines since it was cleared."""
    _next: deque[str] = field(default_factory=deque, repr=False)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._next.popleft() if self._next else next(self.file)
        self.taken.append(line)
        return line

    def skip_rest(self, width: int) -> int:
        """Leave out the lines of a broken record, and return their number.

        Where its text ends cannot be told at its lines without quotes. They are records if the next line with a quote
        begins one, or if there is none.
        """
        skipped = 0
        while True:
            seen: list[str] = []
            for line in islice(self, _MOST_AHEAD):
                seen.append(line)
                if '"' in line:
                    break
            if not seen or '"' not in seen[-1] or _begins_record(seen[-1].rstrip("\r\n"), width):
                self._next.extendleft(reversed(seen))
                return skipped
            skipped += len(seen)


def _begins_record(line: str, width: int) -> bool:
    """True if the quotes of a line are where those of the first line of a record with ``width`` fields would be."""
    at = fields = 0
    while found := _FIELD.match(line, at):
        at, fields = found.end(), fields + 1
        if found["open"] is not None:
            return 1 < fields <= width
        if found["end"] == "":
            return fields == width
    return False


def parse_line(line: str) -> tuple[dict[str, Any] | None, str | None]:
    """The members of a JSON object by their names in lower case, with numbers as they are written; or a fault."""
    try:
        found = json.loads(line, parse_int=str, parse_float=str, object_pairs_hook=_refuse_twice)
    except (ValueError, RecursionError):
        return None, "line"
    if not isinstance(found, dict):
        return None, "line"
    members = {str(name).lower(): value for name, value in found.items()}
    return (members, None) if len(members) == len(found) else (None, "line")


def _refuse_twice(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError  # one of the values would be lost without a trace
    return found
