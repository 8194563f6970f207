"""The pace and the progress of a run: a limit of rows, a rate, a file that pauses it, and the time that is left."""

import asyncio
import gzip
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.sources import FileFormat, InputFile, Unit, name_faults
from deid_agent.batch.text_files import UnreadableError

PAUSE = "pause"
"""A file of this name in the folder of the outputs pauses the run."""
_LOOK_S = 0.5


@dataclass(slots=True)
class RunProgress:
    """How far a run is. ``size`` and ``done`` are bytes of the units, those of an unfinished one by their rows."""

    units: int = 0
    size: int = 0
    units_done: int = 0
    done: int = 0
    rows: int = 0
    refused: int = 0
    paused: bool = False
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """The finished share of the bytes."""
        return min(1.0, self.done / self.size) if self.size else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The estimated rest by bytes, since the time follows them and not the rows; None if it is unknown."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0 else None


ProgressReport = Callable[[RunProgress], None]


@dataclass(slots=True)
class Pace:
    """When a run may take its next rows. ``report`` receives the progress after each step."""

    folder: Path
    rate: float | None = None
    limit: int | None = None
    report: ProgressReport = lambda _: None
    progress: RunProgress = field(default_factory=RunProgress)
    _next: float = 0.0
    _sizes: dict[Unit, int] = field(default_factory=dict)
    _at: float = 0.0
    _of_unit: int = 0

    def begin(self, units: Sequence[Unit], sizes: Mapping[Unit, int] | None = None) -> None:
        """Start the clock for the units that are to be made. ``sizes`` are their bytes if they are known."""
        self._sizes = measure_units(units) if sizes is None else dict(sizes)
        self.progress = RunProgress(len(units), sum(self._sizes.values()))
        self._at = time.monotonic()

    async def wait(self, rows: int) -> None:
        """Return when ``rows`` more rows may begin."""
        while (self.folder / PAUSE).exists():
            self._show(paused=True)
            await asyncio.sleep(_LOOK_S)
        self._show(paused=False)
        if self.rate:
            now = time.monotonic()
            # After a pause there is no burst: the time in it is not made up for.
            self._next = max(self._next, now)
            await asyncio.sleep(self._next - now)
            self._next += rows / self.rate

    def add(self, unit: Unit, rows: int, refused: int, size: int) -> None:
        """Count finished rows of a unit with their bytes in memory."""
        self.progress.rows += rows
        self.progress.refused += refused
        part = min(size, self._sizes.get(unit, 0) - self._of_unit)
        self._of_unit += part
        self.progress.done += part
        self._show(paused=False)

    def end(self, unit: Unit) -> None:
        """Count a unit as finished."""
        self.progress.units_done += 1
        self.progress.done += self._sizes.get(unit, 0) - self._of_unit
        self._of_unit = 0
        self._show(paused=False)

    def _show(self, *, paused: bool) -> None:
        now = time.monotonic()
        if not (paused or self.progress.paused):
            self.progress.seconds += now - self._at
        self._at = now
        self.progress.paused = paused
        self.report(self.progress)


def measure_units(units: Sequence[Unit]) -> dict[Unit, int]:
    """The bytes of each unit without compression; 0 for one that cannot be read, which its reader reports."""
    sizes: dict[Unit, int] = {}
    for source, own in groupby(units, lambda unit: unit.source):
        found = list(own)
        try:
            sizes |= _measure_source(source, found)
        except UnreadableError:
            sizes |= dict.fromkeys(found, 0)
    return sizes


def _measure_source(source: InputFile, units: Sequence[Unit]) -> dict[Unit, int]:
    """The bytes of the units of one file. Raises ``UnreadableError``."""
    with name_faults():
        if source.format is FileFormat.PARQUET:
            metadata = load_arrow("pyarrow.parquet").read_metadata(source.path)
            groups = [int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups)]
            return {unit: sum(groups[unit.first : unit.last]) for unit in units}
        size = source.path.stat().st_size
        if source.path.suffix.lower() == ".gz":
            size = _measure_gzip(source.path, size)
        return dict.fromkeys(units, size)


def _measure_gzip(path: Path, size: int) -> int:
    """The size that the end of a gzip file states (RFC 1952), which counts up to 4 GiB."""
    with path.open("rb") as file:
        if size < len(gzip.compress(b"")):
            return size
        file.seek(-4, 2)
        return max(size, int.from_bytes(file.read(4), "little"))
