"""The ledger of unexamined values as a CSV file: of ``message --unexamined``, and of a running agent."""

import csv
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from deid_agent.agent import Processed
from deid_agent.cli.common import fault_text, printable
from deid_agent.cli.counts_file import replace_counts, written_at_intervals
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import LedgerNotWritten, Telemetry

_HEAD = ("format", "path", "reason", "count")
_INTERVAL_S = 60.0


def render_ledger(counts: Mapping[tuple[str, str, str], int]) -> str:
    """The counts as CSV, the most frequent path first."""
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return "\n".join([",".join(_HEAD), *(f"{name},{path},{why},{count}" for (name, path, why), count in rows), ""])


def parse_ledger(text: str) -> Counter[tuple[str, str, str]]:
    """The counts of a file of ``render_ledger``. Raises ``ValueError`` for any other content."""
    head, *rows = csv.reader(text.splitlines())
    if tuple(head) != _HEAD or any(len(row) != len(_HEAD) for row in rows):
        raise ValueError("no ledger")
    return Counter({(name, path, why): int(count) for name, path, why, count in rows})


class UnexaminedFile:
    """Counts the unexamined values of published records, and writes them once a minute and at the end.

    The counts of the file at the start are continued. A file that cannot be written does not stop the agent.
    """

    def __init__(self, path: Path, telemetry: Telemetry, interval_s: float = _INTERVAL_S) -> None:
        """Reads the file, if there is one. Raises ``ConfigurationError`` if it is not a ledger or has no folder."""
        self._path = path
        self._telemetry = telemetry
        self._interval_s = interval_s
        self._changed = False
        try:
            self._counts = parse_ledger(path.read_text("utf-8")) if path.exists() else Counter()
        except OSError as problem:
            raise ConfigurationError(f"audit.unexamined: {printable(path)}: {fault_text(problem)}") from None
        except ValueError:
            raise ConfigurationError(
                f"audit.unexamined: {printable(path)}: is not a ledger; name another file"
            ) from None
        if not path.parent.is_dir():
            raise ConfigurationError(f"audit.unexamined: {printable(path.parent)}: no such folder; make it")

    def add(self, result: Processed) -> None:
        """Count the values of one published record."""
        for name, path, why, count in result.unexamined:
            self._counts[name, path, why] += count
            self._changed = True

    def write(self) -> None:
        """Write the file if a count has changed; a reader never sees an incomplete one."""
        if not self._changed:
            return
        try:
            replace_counts(self._path, render_ledger(self._counts).encode())
            self._changed = False
        except OSError as problem:
            self._telemetry.emit(LedgerNotWritten(fault_text(problem)))

    def kept_written(self) -> AbstractAsyncContextManager[None]:
        """Write at intervals inside the ``with`` block, and at its end."""
        return written_at_intervals(self.write, self._interval_s)
