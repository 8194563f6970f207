"""A FHIR bulk export: its files, its manifest (FHIR Bulk Data Access 2 and 3), its lines and the first pass over them.

Names of files may hold PHI, so nothing takes a resource type from them. Lines end at a line feed and nowhere else.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import orjson

from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_identities import IdentityWriter
from deid_agent.batch.manifest import EXPORT
from deid_agent.batch.sources import FileFormat, InputFile, Unit, find_format
from deid_agent.batch.text_files import UnreadableError, list_files
from deid_agent.model import ConfigurationError

MAX_LINE = 64 << 20
"""Bytes of a line: the longest message of the stream."""
_BOM = b"\xef\xbb\xbf"
_MAX_MANIFEST = 64 << 20


class FileRole(StrEnum):
    """The list of the manifest that has a file."""

    OUTPUT = "output"
    DELETED = "deleted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class BulkExport:
    """The files of a folder. ``others`` counts those of other formats, ``missing`` those that only the manifest has.

    ``continues`` names the file that goes on with the last patient of another one (Bulk Data 3).
    """

    files: Sequence[InputFile]
    roles: Mapping[str, FileRole] = field(default_factory=dict, repr=False)
    continues: Mapping[str, str] = field(default_factory=dict, repr=False)
    others: int = 0
    missing: int = 0
    time: str = ""
    organized_by: str = ""

    def role(self, source: InputFile) -> FileRole:
        """The list that has a file; files without one are output."""
        return self.roles.get(source.name, FileRole.OUTPUT)


@dataclass(frozen=True, slots=True)
class Line:
    """A line at its number from 1. ``content`` is None if it is longer than ``MAX_LINE``."""

    number: int
    start: int
    content: bytes | None = field(repr=False)


def list_export(folder: Path) -> BulkExport:
    """The files of an export. Raises ``ConfigurationError`` if there is none, or if the manifest cannot be read."""
    if not folder.is_dir():
        raise ConfigurationError("a FHIR bulk export is one folder of NDJSON files: name the folder")
    paths = list_files(folder, "the export")
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    seen = {name: path for name, path in names.items() if not any(p.startswith((".", "_")) for p in name.split("/"))}
    named = {name: path for name, path in seen.items() if find_format(path) is FileFormat.NDJSON}
    manifest = _read_manifest(folder)
    roles: dict[str, FileRole] = {}
    continues: dict[str, str] = {}
    missing = 0
    for role in FileRole:
        for entry in _entries(manifest, role):
            name = _file_name(entry.get("url"))
            path = folder / name
            if not name or path.is_symlink() or not path.is_file() or name == EXPORT:
                missing += 1
                continue
            named[name] = path  # also one of another suffix
            roles[name] = role
            if following := _file_name(entry.get("continuesInFile")):
                continues[name] = following
    if not named:
        raise ConfigurationError("no NDJSON file in the folder: name the folder of an export")
    files = [
        InputFile(number, name, path, FileFormat.NDJSON) for number, (name, path) in enumerate(sorted(named.items()), 1)
    ]
    others = len(seen.keys() - named.keys() - {EXPORT})
    time, organized = (_text(manifest.get(name)) for name in ("transactionTime", "outputOrganizedBy"))
    return BulkExport(files, roles, continues, others, missing, time, organized)


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    path = folder / EXPORT
    if not path.is_file():
        return {}
    try:
        found = orjson.loads(path.read_bytes()) if path.stat().st_size <= _MAX_MANIFEST else None
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{EXPORT} of the export cannot be read: correct it, or remove it")
    return found


def _entries(manifest: Mapping[str, Any], role: FileRole) -> Iterator[Mapping[str, Any]]:
    listed = manifest.get(role)
    yield from (each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _file_name(url: object) -> str:
    """The name of the downloaded file of an address. It has no slash, so it cannot leave the folder."""
    try:
        name = unquote(urlsplit(_text(url)).path.rpartition("/")[2])
    except ValueError:
        return ""
    return "" if name in {".", ".."} or "/" in name or "\0" in name else name


def _sign(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def open_lines(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, maybe compressed. Raises ``UnreadableError`` without the name of the file."""
    try:
        with path.open("rb") as raw:
            if path.suffix.lower() == ".gz":
                with gzip.GzipFile(fileobj=raw) as file:
                    yield io.BufferedReader(file, 1 << 20)
            else:
                yield raw
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"cannot be read ({type(error).__name__})") from None


def read_lines(file: BinaryIO, number: int = 1, start: int = 0, end: int | None = None) -> Iterator[Line]:
    """The lines of a file that begin at byte ``start`` or later and before ``end``; empty ones are left out."""
    if start:
        file.seek(start)
    while end is None or start < end:
        data = file.readline(MAX_LINE + 1)
        if not data:
            return
        size, longer = len(data), len(data) > MAX_LINE and not data.endswith(b"\n")
        while longer and (more := file.readline(1 << 20)):
            size += len(more)
            if more.endswith(b"\n"):
                break
        content = data.removeprefix(_BOM).strip() if start == 0 else data.strip()
        if content or longer:
            yield Line(number, start, None if longer else content)
        start += size
        number += 1


@dataclass(frozen=True, slots=True)
class FilePart:
    """The lines of a file that begin in bytes ``[start, end)``; ``line`` is the number of the first."""

    source: InputFile
    number: int
    start: int
    end: int
    line: int

    @property
    def unit(self) -> Unit:
        """The unit of work, for names and messages."""
        return Unit(self.source, self.number)


@dataclass(frozen=True, slots=True)
class SurveyedFile:
    """A file after the first pass: its parts, its keyed digest and its signature at that time; or its fault."""

    source: InputFile
    parts: tuple[FilePart, ...] = ()
    digest: str = ""
    signature: tuple[int, ...] = ()
    lines: int = 0
    fault: str = ""

    def check_unchanged(self) -> None:
        """Raises ``UnreadableError`` if the file is another one than in the first pass."""
        with open_lines(self.source.path):
            changed = _sign(self.source.path) != self.signature
        if changed:
            raise UnreadableError("the file was changed while it was read")


def survey_export(
    files: Iterable[InputFile], unit_bytes: int, digests: Digests, identities: IdentityWriter
) -> Iterator[SurveyedFile]:
    """Read every file once: its parts, its digest, and the lines that the identities keep."""
    for source in files:
        try:
            yield _survey_file(source, unit_bytes, digests, identities)
        except UnreadableError as problem:
            yield SurveyedFile(source, fault=str(problem))


def _survey_file(source: InputFile, unit_bytes: int, digests: Digests, identities: IdentityWriter) -> SurveyedFile:
    digest = digests.start()
    starts: list[tuple[int, int]] = []
    lines = 0
    with open_lines(source.path) as file:
        signature = _sign(source.path)
        for line in read_lines(file):
            lines += 1
            content = line.content if line.content is not None else b"\0"
            digest.update(len(content).to_bytes(8, "big") + content)
            if not starts or (line.start - starts[-1][0] >= unit_bytes and source.path.suffix.lower() != ".gz"):
                starts.append((line.start, line.number))
            if line.content is not None:
                identities.add(line.content)
        end = file.tell()
        changed = _sign(source.path) != signature
    starts = starts or [(0, 1)]
    ends = [*(start for start, _ in starts[1:]), max(end, starts[-1][0] + 1)]
    bounds = enumerate(zip(starts, ends, strict=True))
    parts = [FilePart(source, number, start, end, line) for number, ((start, line), end) in bounds]
    if changed:
        raise UnreadableError("the file was changed while it was read")
    return SurveyedFile(source, tuple(parts), digest.hexdigest(), signature, lines)
