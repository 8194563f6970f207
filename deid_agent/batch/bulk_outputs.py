"""The outputs of a FHIR bulk export: files of lines, files of refused lines as closed codes, and a manifest."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson

from deid_agent.agent import sync_folder
from deid_agent.batch.bulk_export import BulkExport, FileRole
from deid_agent.batch.bulk_lines import LineResult
from deid_agent.batch.manifest import EXPORT, MANIFEST, UnitEntry, name_refusals
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


def make_manifest(
    export: BulkExport, units: Iterable[UnitEntry], following: Mapping[str, str], build: str, time: RecordTime
) -> bytes:
    """The manifest of the outputs; ``following`` has the file that continues the one of a unit.

    Its time is that of the export, as coarse as the policy makes times of records.
    """
    lists: dict[FileRole, list[dict[str, object]]] = {role: [] for role in FileRole}
    for entry in sorted(units, key=lambda each: each.file):
        for role, listed in _list_files(entry):
            more = listed["url"] == entry.file and entry.unit in following
            lists[role].append(listed | ({"continuesInFile": following[entry.unit]} if more else {}))
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


def _list_files(entry: UnitEntry) -> Iterator[tuple[FileRole, dict[str, object]]]:
    """The entries of a unit in the manifest of an export, each with its list; without the file that continues it."""
    # A file of several resource types (organized by patient) has no type.
    one = {"type": next(iter(entry.types))} if len(entry.types) == 1 else {}
    if entry.types:
        role = FileRole(entry.role or FileRole.OUTPUT)
        yield role, {**one, "url": entry.file, "count": sum(entry.types.values())}
    if entry.refusals:
        refused = {"url": name_refusals(entry.file), "count": sum(entry.refused.values())}
        yield FileRole.ERROR, {"type": "OperationOutcome", **refused}


def compare_export(folder: Path, units: Iterable[UnitEntry]) -> str:
    """Why the manifest of an export has other files, lists or counts than these units; empty if it has the same."""
    try:
        stated = [each for entry in units for each in _list_files(entry)]
        names = {each["url"] for _, each in stated}
        made = orjson.loads((folder / EXPORT).read_bytes())
        found = [(role, dict(each)) for role in FileRole for each in made[role]]
        wrong = any(each.pop("continuesInFile", None) not in {None, *names} for _, each in found)
        wrong = wrong or sorted(found, key=_place_of) != sorted(stated, key=_place_of)
        wrong = wrong or any(type(each["count"]) is not int for _, each in found)
    except (OSError, ValueError, KeyError, TypeError):
        wrong = True
    return f"has other files or counts than {MANIFEST}; run again" if wrong else ""


def _place_of(listed: tuple[FileRole, Mapping[str, object]]) -> tuple[str, str]:
    return listed[0], str(listed[1]["url"])


def _coarsen(text: str, time: RecordTime) -> str:
    """An instant in UTC; the first one if there is none or the policy publishes none."""
    try:
        found = int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        found = 0
    coarse = max(time.coarsen(found), 0)
    return datetime.fromtimestamp(coarse / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
