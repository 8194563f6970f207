"""The outputs of a FHIR bulk export: files of lines, files of refused lines as closed codes, and a manifest."""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson

from deid_agent.batch.bulk_export import BulkExport, FileRole
from deid_agent.batch.bulk_lines import LineResult
from deid_agent.batch.manifest import sync_folder
from deid_agent.model import RecordTime


class LineFile:
    """An output of lines. Use it as a context manager: without ``finish`` nothing is left of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder = name, folder
        self._path = folder / f".{name}.unfinished"
        self._file = self._path.open("wb")
        self._digest = hashlib.sha256()
        self.lines = 0

    def __enter__(self) -> "LineFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, line: bytes) -> None:
        """Append a line."""
        self._digest.update(line + b"\n")
        self._file.write(line + b"\n")
        self.lines += 1

    def finish(self) -> str:
        """Make it durable, give it its name; return its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(self._folder / self.name)
        sync_folder(self._folder)
        return self._digest.hexdigest()


@dataclass(slots=True)
class LineCounts:
    """Counts the results of lines, and writes them."""

    types: Counter[str] = field(default_factory=Counter)
    no_patient: int = 0
    listings: Counter[str] = field(default_factory=Counter)

    def write(self, number: int, result: LineResult, output: LineFile, refusals: LineFile) -> None:
        """Write and count the result of the line ``number``."""
        if result.reason:
            refusals.write(_describe(number, result.reason))
        else:
            self.types[result.type or "Basic"] += 1
            self.no_patient += result.unknown_patient
            self.listings[result.listing] += 1
            output.write(result.content)


def _describe(number: int, reason: str) -> bytes:
    """A refused line as an OperationOutcome, as FHIR expects it in the list of errors. It has no content."""
    issue = {
        "severity": "error",
        "code": "processing",
        "details": {"coding": [{"code": reason}]},
        "diagnostics": f"line {number}",
    }
    return orjson.dumps({"resourceType": "OperationOutcome", "issue": [issue]})


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file that gets its name when it is on the disk."""
    made = path.with_name(f".part-{path.name}.unfinished")
    with made.open("wb") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(sink.fileno())
    made.replace(path)
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class BulkOutput:
    """A finished file for the new manifest."""

    name: str
    role: FileRole
    types: Mapping[str, int]
    refusals: str = ""
    refused: int = 0
    following: str = ""


def make_manifest(export: BulkExport, files: Sequence[BulkOutput], build: str, time: RecordTime) -> bytes:
    """The manifest of the outputs. Its time is that of the export, as coarse as the policy makes times of records."""
    lists: dict[FileRole, list[dict[str, object]]] = {role: [] for role in FileRole}
    for file in files:
        # A file of several resource types (organized by patient) has no type.
        one = {"type": next(iter(file.types))} if len(file.types) == 1 else {}
        more = {"continuesInFile": file.following} if file.following else {}
        if file.types:
            lists[file.role].append({**one, "url": file.name, "count": sum(file.types.values()), **more})
        if file.refused:
            lists[FileRole.ERROR].append({"type": "OperationOutcome", "url": file.refusals, "count": file.refused})
    made: dict[str, object] = {
        "transactionTime": _coarsen(export.time, time),
        "request": f"urn:deid-agent:batch:{build}",
        "requiresAccessToken": False,
    }
    if export.organized_by.isalpha() and len(export.organized_by) <= 64:
        made["outputOrganizedBy"] = export.organized_by
    return (
        orjson.dumps(made | {role.value: listed for role, listed in lists.items()}, option=orjson.OPT_INDENT_2) + b"\n"
    )


def _coarsen(text: str, time: RecordTime) -> str:
    """An instant in UTC; the first one if there is none or the policy publishes none."""
    try:
        found = int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        found = 0
    coarse = max(time.coarsen(found), 0)
    return datetime.fromtimestamp(coarse / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
