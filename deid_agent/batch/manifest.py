"""The manifest of an output folder: one line for each finished unit. A file that no line names does not exist.

The first line has the build. Each line has the SHA-256 of the line before, so that an edited one is found. There are
no names of inputs and no values in it: a unit is named by a keyed digest.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson
from pydantic import TypeAdapter

from deid_agent.agent import cut_torn_line, sync_folder
from deid_agent.model import ConfigurationError

MANIFEST = "_manifest.jsonl"
AUDIT = "_audit"
"""The folder of the audit, in the folder of the outputs."""
LINE_PART = ".jsonl"
"""The end of the name of an audit part of lines; those of rows are Parquet."""
LOCK = "_lock"
EXPORT = "manifest.json"
"""The manifest of a FHIR bulk export, as its standard names it: of an input, and of the outputs."""
_FIRST = "0" * 64


def name_refusals(file: str) -> str:
    """The name of the file of the refused lines of an output of a FHIR export."""
    return f"{file.removesuffix('.ndjson')}.refused.ndjson"


class SignsLines(Protocol):
    """Signs the lines of a manifest."""

    @property
    def last(self) -> tuple[int, str]:
        """The number of the last line that is signed, and its SHA-256; 0 if there is none."""

    def sign(self, line: int, digest: str) -> None:
        """Sign a line, and with it all before it, durably."""

    def close(self) -> None:
        """Give up the folder."""


OpensTrail = Callable[[Path, "Head"], SignsLines]
"""Opens the trail in the folder of the outputs."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line: the build of all outputs, and its parts for readers."""

    build: str
    version: str
    key: str
    policy: str
    table: str
    format: str = ""


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A finished unit. ``source`` and ``identities`` are keyed digests of contents, ``digest`` is plain SHA-256.

    ``audit`` is the file of the audit of its rows with the SHA-256 and the root of the tree over the rows, ``counts``
    are the replacements by column, type, method and rule, and ``sample`` is the SHA-256 of the sample so far.
    ``unlisted`` and ``conflicting`` are the rows whose patient the scope table does not list, or lists as several.
    Of a FHIR export, ``types`` counts the resources, ``refusals`` is the SHA-256 of the file of refused lines, and
    ``role`` is the list of the export's manifest that has the output.
    ``no_identity`` are the rows whose patient is not among the identities, ``unmatched`` the identities of the run that
    no row of its inputs has.
    ``pinned`` is the version of the Delta or Iceberg table that was read.
    """

    unit: str
    source: str
    file: str
    digest: str
    rows: int
    refused: Mapping[str, int]
    no_patient: int = 0
    identities: str = ""
    unlisted: int = 0
    conflicting: int = 0
    audit: str = ""
    audit_digest: str = ""
    root: str = ""
    words: int = 0
    in_texts: int = 0
    counts: tuple[tuple[str, str, str, str, int], ...] = ()
    sample: str = ""
    types: Mapping[str, int] = field(default_factory=dict)
    refusals: str = ""
    pinned: str = ""
    role: str = ""
    no_identity: int = 0
    unmatched: int = 0

    def __post_init__(self) -> None:
        if any("/" in name or name.startswith(".") for name in (self.file, self.audit)):
            raise ValueError("a name of a file, not a path")

    @property
    def named_files(self) -> dict[str, str]:
        """The files that the line names, as paths in the folder, with the SHA-256 of each."""
        found = {self.file: self.digest, f"{AUDIT}/{self.audit}": self.audit_digest}
        if self.refusals:
            found[name_refusals(self.file)] = self.refusals
        return {path: digest for path, digest in found.items() if path not in {"", f"{AUDIT}/"}}

    def is_in(self, folder: Path) -> bool:
        """True if the output and the files beside it are there. An output that ``--again`` removed has no name."""
        return bool(self.file) and all((folder / path).is_file() for path in self.named_files)

    def removed(self, sample: str) -> "UnitEntry":
        """The entry of the unit after its output is removed."""
        return UnitEntry(self.unit, self.source, "", "", 0, {}, identities=self.identities, sample=sample)


_READERS: Mapping[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Head, UnitEntry)}


@dataclass(slots=True)
class Manifest:
    """The manifest of a folder; see ``read_manifest``.

    ``lines`` are the SHA-256 of its lines, each of which is in the next line, and ``latest`` is the last unit.
    """

    head: Head
    units: dict[str, UnitEntry] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    latest: UnitEntry | None = None

    def put(self, entry: UnitEntry) -> None:
        """Add the line of a unit, in place of a former one."""
        self.units[entry.unit] = self.latest = entry

    @property
    def last(self) -> str:
        """The digest that the next line has."""
        return self.lines[-1] if self.lines else _FIRST

    @property
    def finished(self) -> list[UnitEntry]:
        """The units with an output."""
        return [entry for entry in self.units.values() if entry.file]


class ManifestError(ConfigurationError):
    """A line of a manifest cannot be read or does not follow. ``rest`` has those of all lines that can be read."""

    def __init__(self, line: int, why: str, rest: Manifest) -> None:
        super().__init__(f"{MANIFEST}: line {line} {why}")
        self.line = line
        self.rest = rest


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none. A line that is not complete is left out.

    Raises ``ManifestError`` with the number of the first line that was changed or cannot be read.
    """
    if not (folder / MANIFEST).is_file():  # a pipe would be waited for
        return None
    lines = (folder / MANIFEST).read_bytes().split(b"\n")[:-1]
    manifest = Manifest(Head("", "", "", "", ""))
    fault: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry, previous = _read_line(line, Head if number == 1 else UnitEntry)
        except (ValueError, TypeError, KeyError, AttributeError):
            fault = fault or (number, "cannot be read: use another folder")
        else:
            if previous != manifest.last:
                fault = fault or (number, "does not follow the one before: it was changed")
            if isinstance(entry, Head):
                manifest.head = entry
            else:
                manifest.put(entry)
        manifest.lines.append(hashlib.sha256(line).hexdigest())
    if fault is not None:
        raise ManifestError(*fault, manifest)
    return manifest if lines else None


def _read_line(line: bytes, kind: type[Head] | type[UnitEntry]) -> tuple[Head | UnitEntry, object]:
    """The content of a line, and the digest of the line before. Raises one of the errors of a malformed line."""
    found = orjson.loads(line)
    previous = found.pop("previous")
    kind(**found)  # refuses other members
    entry: Head | UnitEntry = _READERS[kind].validate_json(orjson.dumps(found), strict=True)
    return entry, previous


class OpenManifest:
    """The manifest of a folder that this process alone may write. Use it as a context manager.

    With a ``trail`` each line gets a signed entry there once it is written. A last line without one is removed at the
    start, since a crash came before it was signed: nobody could show that it was not changed since, and its unit gets
    the same output again.

    Raises ``ConfigurationError`` if another process has it, if the folder has outputs of another build, or if its
    lines are not those that the trail signs.
    """

    def __init__(self, folder: Path, head: Head, trail: OpensTrail | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._trail: SignsLines | None = None
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open(head, trail)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, head: Head, trail: OpensTrail | None) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError("the output folder is in use by another process: wait for its end") from None
        self._file = os.open(self._folder / MANIFEST, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            cut_torn_line(self._file)
            found = read_manifest(self._folder)
            if found is not None and found.head.build != head.build:
                raise ConfigurationError(
                    f"the output folder has outputs of build {found.head.build}, and this is build {head.build} "
                    "(version, rules, models, policy, key, table file, scope table or format): use another folder"
                )
            if trail is not None:
                self._trail = trail(self._folder, head)
                found = self._cut_unsigned(found, self._trail)
            self.manifest = found or Manifest(head)
            if found is None:
                self._append(asdict(head))
        except BaseException:
            self._close()
            raise

    def _cut_unsigned(self, found: Manifest | None, trail: "SignsLines") -> Manifest | None:
        """Compare the lines with the trail, and remove the last one if it is not signed."""
        lines = found.lines if found is not None else []
        signed, digest = trail.last
        if signed > len(lines) or (signed and lines[signed - 1] != digest):
            raise ConfigurationError(
                f"{MANIFEST}: its lines are not those that the audit signs: they were changed or cut off; see "
                "`deid-agent batch verify`, and use another folder"
            )
        if len(lines) > signed + 1:
            raise ConfigurationError(
                f"{MANIFEST}: {len(lines)} lines, of which the audit signs {signed}: restore {AUDIT}, or use another "
                "folder"
            )
        if len(lines) == signed:
            return found
        data = (self._folder / MANIFEST).read_bytes().splitlines(keepends=True)
        os.ftruncate(self._file, sum(map(len, data[:signed])))
        os.fsync(self._file)
        return read_manifest(self._folder)

    def __enter__(self) -> "OpenManifest":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        os.close(self._lock)

    def _close(self) -> None:
        os.close(self._file)
        if self._trail is not None:
            self._trail.close()

    def add(self, entry: UnitEntry) -> None:
        """Write the line of a unit whose files have their names. It is durable, and signed, when this returns."""
        self._append(asdict(entry))
        self.manifest.put(entry)

    def _append(self, found: Mapping[str, object]) -> None:
        line = orjson.dumps({**found, "previous": self.manifest.last})
        rest = memoryview(line + b"\n")
        while rest:  # a full disk takes a part of a line, and no error comes before the next one
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)
        sync_folder(self._folder)
        self.manifest.lines.append(hashlib.sha256(line).hexdigest())
        if self._trail is not None:
            self._trail.sign(len(self.manifest.lines), self.manifest.last)

    def find_finished(self, name: str, source: str, shown: str, *, again: bool) -> UnitEntry | None:
        """The entry of a unit whose files are there, made of the content ``source``.

        Raises ``ConfigurationError`` with the input as ``shown`` if it has changed since and ``again`` is not set.
        """
        entry = self.manifest.units.get(name)
        if entry is None:
            return None
        if entry.source != source and not again:
            raise ConfigurationError(
                f"{shown}: changed since its output was written; use --again to replace the output, or rename the input"
            )
        return entry if entry.source == source and entry.is_in(self._folder) else None

    def list_lost(self, names: set[str]) -> list[UnitEntry]:
        """The finished parts of inputs that no longer have them. ``names`` are the parts that they have."""
        sources = {name.partition("-")[0] for name in names}
        units = self.manifest.units.items()
        return [each for name, each in units if each.file and name not in names and name.partition("-")[0] in sources]

    def remove_lost(self, names: set[str], commit_sample: Callable[[str], str] = lambda _: "") -> None:
        """Remove the outputs of parts that a changed input no longer has. ``names`` are those that it has."""
        for entry in self.list_lost(names):
            self.add(entry.removed(commit_sample(entry.unit)))
            for path in entry.named_files:
                (self._folder / path).unlink(missing_ok=True)

    def refuse_other_version(self, name: str, pinned: str, shown: str) -> None:
        """Raises ``ConfigurationError`` if outputs of the table of a unit are of another version than ``pinned``."""
        table = name.partition("-")[0]
        others = {each.pinned for each in self.manifest.finished if each.unit.partition("-")[0] == table} - {pinned}
        if others:
            raise ConfigurationError(
                f"{shown}: is of {pinned}, and there are outputs of {', '.join(sorted(others))}: give --table-version "
                "to go on with that one, or --again to follow the table"
            )


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
