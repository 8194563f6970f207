"""A sample of the published rows for people who search it for missed identifiers.

Rows are chosen by a keyed hash: nobody without the key can foresee or influence which. Each is sealed like a dead
letter, with its cells before and after, so only the holder of the private key reads it. The file has the rows of the
smallest hashes so far; a run that goes on later, or again, chooses the same rows.
"""

import base64
import binascii
import hashlib
import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pydantic import TypeAdapter

from deid_agent.agent import PrivateKey, PublicKey, sync_folder
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.jobs import FinishedRows
from deid_agent.batch.manifest import AUDIT, Manifest
from deid_agent.batch.schema import DONE, OUTCOME
from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import Table
from deid_agent.model import ConfigurationError, DeadLetterError

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = "sample.jsonl"
MOST_SAMPLED = 10_000
_MOST_BYTES = 256 << 20
_NOT_SHOWN = "(not text)"

SampledCell = tuple[str, str, str | None, str | None]
"""The name and the kind of a column, and the cell before and after."""


@dataclass(frozen=True, slots=True)
class _Head:
    size: int
    key: str
    bound: str


@dataclass(frozen=True, slots=True)
class _Line:
    rank: str
    unit: str
    row: int
    sealed: str


_HEAD, _LINE = TypeAdapter(_Head), TypeAdapter(_Line)


@dataclass(frozen=True, slots=True, order=True)
class SealedRow:
    """A row of the sample. The rows with the smallest ``rank`` are chosen. ``row`` counts from 0 in its output."""

    rank: str
    unit: str
    row: int
    sealed: bytes = field(repr=False, compare=False)

    def open(self, key: PrivateKey) -> list[SampledCell]:
        """The cells of the row. Raises ``DeadLetterError`` if they are damaged, or sealed to another key."""
        try:
            found = orjson.loads(key.open(self.sealed, _MOST_BYTES))
            if [found["unit"], found["row"]] != [self.unit, self.row]:
                raise DeadLetterError("it holds another row than its line names")
            return [(str(name), str(kind), before, after) for name, kind, before, after in found["cells"]]
        except (ValueError, TypeError, KeyError):
            raise DeadLetterError("it is damaged") from None


@dataclass(frozen=True, slots=True)
class RowSample:
    """The sample of a folder, by rank. No row with a rank above ``bound`` was kept; it is empty if there is none."""

    size: int
    key: str
    bound: str = ""
    rows: tuple[SealedRow, ...] = ()


def read_sample(folder: Path) -> RowSample | None:
    """The sample of an output folder; None if there is none. Raises ``ConfigurationError`` if it cannot be read."""
    path = folder / AUDIT / SAMPLE
    if not path.is_file():
        return None
    try:
        first, *others = path.read_bytes().splitlines()
        head = _HEAD.validate_json(first, strict=True)
        rows = []
        for line in others:
            found = _LINE.validate_json(line, strict=True)
            sealed = base64.b64decode(found.sealed, validate=True)
            rows.append(SealedRow(found.rank, found.unit, found.row, sealed))
    except (ValueError, binascii.Error):
        raise ConfigurationError(f"{AUDIT}/{SAMPLE}: cannot be read: use another folder") from None
    return RowSample(head.size, head.key, head.bound, tuple(sorted(rows)))


@dataclass(slots=True)
class Sampler:
    """Chooses and seals ``size`` rows of the outputs in a folder. Rows of a unit count once ``commit`` has them."""

    folder: Path
    size: int
    public: PublicKey
    digests: Digests
    table: Table | None = None
    digest: str = ""
    _bound: str = ""
    _rows: dict[tuple[str, int], SealedRow] = field(default_factory=dict, repr=False)
    _waiting: list[SealedRow] = field(default_factory=list, repr=False)

    def open(self, manifest: Manifest) -> None:
        """Read the sample of an earlier run.

        Raises ``ConfigurationError`` if that run had another size or key, or made outputs without a sample.
        """
        found = read_sample(self.folder)
        if found is None and manifest.finished:
            raise ConfigurationError("--sample: the folder has outputs without a sample: use another folder")
        if found is not None and (found.size, found.key) != (self.size, self.public.id):
            raise ConfigurationError(
                f"--sample: the folder has a sample of {found.size} rows for the key {found.key}: give the same, or "
                "use another folder"
            )
        if found is not None:
            # A crash may have come before the line of a unit: its rows are chosen again with its output.
            known = {entry.unit for entry in manifest.finished}
            self._bound = found.bound
            self._rows = {(row.unit, row.row): row for row in found.rows if row.unit in known}
        self._write()

    def offer(self, unit: str, first: int, batch: "pa.RecordBatch", done: FinishedRows) -> None:
        """Choose among the rows of a job, of which ``first`` is the place of the first one in its unit."""
        digests, outcomes = done.audit.column("row").to_pylist(), done.audit.column("outcome").to_pylist()
        for n, (digest, outcome) in enumerate(zip(digests, outcomes, strict=True)):
            if outcome == DONE:
                self.offer_row(unit, first + n, digest, partial(self._list_cells, batch, done.output, n))

    def offer_row(self, unit: str, row: int, digest: bytes, list_cells: Callable[[], Sequence[SampledCell]]) -> None:
        """Choose one published row or not. Its cells are read if it is chosen so far."""
        secret = self.digests.derive_secret(b"deid-batch-smpl")
        rank = hashlib.blake2b(digest + f"{unit}/{row}".encode(), key=secret, digest_size=8).hexdigest()
        if self._bound and rank >= self._bound:
            return
        content = orjson.dumps({"unit": unit, "row": row, "cells": list_cells()})
        self._waiting.append(SealedRow(rank, unit, row, self.public.seal(content)))
        if len(self._waiting) > 2 * self.size:
            self._waiting = heapq.nsmallest(self.size, self._waiting)

    def _list_cells(self, batch: "pa.RecordBatch", output: "pa.RecordBatch", n: int) -> list[SampledCell]:
        before = {column.name: array for column, array in zip(batch.schema, batch.columns, strict=True)}
        cells = list[SampledCell]()
        for column, array in zip(output.schema, output.columns, strict=True):
            kind = None if self.table is None else self.table.find_kind(column.name)
            if column.name != OUTCOME and kind is not None and kind is not ColumnKind.DROP:
                cells.append((column.name, kind.value, _show(before[column.name], n), _show(array, n)))
        return cells

    def discard(self) -> None:
        """Forget the rows of a unit that gets no output."""
        self._waiting = []

    def commit(self, unit: str) -> str:
        """Add the rows of the unit in place of former ones, durably; return the SHA-256 of the file."""
        self._rows = {place: row for place, row in self._rows.items() if row.unit != unit}
        found = sorted([*self._rows.values(), *self._waiting])
        self._waiting = []
        if len(found) > self.size:
            # Rows above the bound were left out for good: the others are still a fair choice if a unit is replaced.
            self._bound = found[self.size].rank
        self._rows = {(row.unit, row.row): row for row in found[: self.size]}
        self._write()
        return self.digest

    def _write(self) -> None:
        head: Mapping[str, object] = {"size": self.size, "key": self.public.id, "bound": self._bound}
        lines = [orjson.dumps(head)]
        for row in sorted(self._rows.values()):
            sealed = base64.b64encode(row.sealed).decode()
            lines.append(orjson.dumps({"rank": row.rank, "unit": row.unit, "row": row.row, "sealed": sealed}))
        data = b"\n".join([*lines, b""])
        self.digest = hashlib.sha256(data).hexdigest()
        path = self.folder / AUDIT / SAMPLE
        hidden = path.with_name(f".{SAMPLE}.unfinished")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
        sync_folder(path.parent)


def _show(array: "pa.Array", n: int) -> str | None:
    try:
        value = array[n].as_py()
    except (ValueError, OverflowError, load_arrow().ArrowException):
        return _NOT_SHOWN
    return None if value is None else str(value)


def open_sample(sampler: Sampler | None, folder: Path, manifest: Manifest) -> None:
    """Read the sample of an earlier run in the folder of the outputs.

    Raises ``ConfigurationError`` as ``Sampler.open``, and without a sampler if there is a sample: the rest would not be
    in it.
    """
    if sampler is not None:
        sampler.open(manifest)
    elif (found := read_sample(folder)) is not None:
        raise ConfigurationError(f"the folder has a sample of {found.size} rows: give --sample and --seal-to again")


def commit_sample(sampler: Sampler | None, unit: str) -> str:
    """The SHA-256 of the sample after ``Sampler.commit``; empty without a sampler."""
    return sampler.commit(unit) if sampler is not None else ""
