"""The manifest of an output folder: one line for each finished unit. A file that no line names does not exist.

The first line has the build. Each line has the SHA-256 of the line before, so that an edited one is found. There are
no names of inputs and no values in it: a unit is named by a keyed digest.
"""

import fcntl
import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from deid_agent.agent import cut_torn_line
from deid_agent.model import ConfigurationError

MANIFEST = "_manifest.jsonl"
_LOCK = "_lock"
_FIRST = "0" * 64


@dataclass(frozen=True, slots=True)
class Head:
    """The first line: the build of all outputs, and its parts for readers."""

    build: str
    version: str
    key: str
    policy: str
    table: str


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A finished unit. ``source`` and ``identities`` are keyed digests of contents, ``digest`` is plain SHA-256.

    ``unlisted`` and ``conflicting`` are the rows whose patient the scope table does not list, or lists as several.
    Of a FHIR export, ``types`` counts the resources and ``refusals`` is the SHA-256 of the file of refused lines.
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
    types: Mapping[str, int] = field(default_factory=dict)
    refusals: str = ""

    def is_in(self, folder: Path) -> bool:
        """True if the output is in the folder. One that ``--again`` removed has no name."""
        return bool(self.file) and (folder / self.file).is_file()


@dataclass(slots=True)
class Manifest:
    """The manifest of a folder; see ``read_manifest`` and ``OpenManifest``."""

    head: Head
    units: dict[str, UnitEntry] = field(default_factory=dict)
    last: str = _FIRST


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none. A line that is not complete is left out.

    Raises ``ConfigurationError`` with the number of a line that was changed or cannot be read.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    manifest: Manifest | None = None
    last = _FIRST
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            found = orjson.loads(line)
            previous = found.pop("previous")
            entry = Head(**found) if manifest is None else UnitEntry(**found)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigurationError(f"{MANIFEST}: line {number} cannot be read: use another folder") from None
        if previous != last:
            raise ConfigurationError(f"{MANIFEST}: line {number} does not follow the one before: it was changed")
        last = hashlib.sha256(line).hexdigest()
        if isinstance(entry, Head):
            manifest = Manifest(entry)
        elif manifest is not None:
            manifest.units[entry.unit] = entry
    if manifest is not None:
        manifest.last = last
    return manifest


class OpenManifest:
    """The manifest of a folder that this process alone may write. Use it as a context manager.

    Raises ``ConfigurationError`` if another process has it, or if the folder has outputs of another build.
    """

    def __init__(self, folder: Path, head: Head) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._file = self._open(head)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, head: Head) -> int:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError("the output folder is in use by another process: wait for its end") from None
        file = os.open(self._folder / MANIFEST, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            cut_torn_line(file)
            found = read_manifest(self._folder)
            if found is not None and found.head.build != head.build:
                raise ConfigurationError(
                    f"the output folder has outputs of build {found.head.build}, and this is build {head.build} "
                    "(version, rules, models, policy, key, table file, scope table or format): use another folder"
                )
            self.manifest = found or Manifest(head)
            if found is None:
                self._file = file
                self._append(asdict(head))
        except BaseException:
            os.close(file)
            raise
        return file

    def __enter__(self) -> "OpenManifest":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        os.close(self._lock)

    def add(self, entry: UnitEntry) -> None:
        """Write the line of a unit whose output has its name. It is durable when this returns."""
        self._append(asdict(entry))
        self.manifest.units[entry.unit] = entry

    def _append(self, found: Mapping[str, object]) -> None:
        line = orjson.dumps({**found, "previous": self.manifest.last})
        os.write(self._file, line + b"\n")
        os.fsync(self._file)
        sync_folder(self._folder)
        self.manifest.last = hashlib.sha256(line).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
