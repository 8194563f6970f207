"""Verifies an output folder: outputs, audit parts, manifest and trail, without the secret key and without models."""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from deid_agent.audit import Frontier, TrailFault, TrailReport, leaf_hash, segment_files, verify_trail
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.audit_parts import encode_leaf
from deid_agent.batch.bulk_outputs import compare_export
from deid_agent.batch.delta_tables import DELTA_LOG, compare_delta
from deid_agent.batch.iceberg_tables import METADATA, compare_iceberg
from deid_agent.batch.manifest import (
    AUDIT,
    EXPORT,
    LINE_PART,
    LOCK,
    MANIFEST,
    Manifest,
    ManifestError,
    UnitEntry,
    read_manifest,
)
from deid_agent.batch.manifest_trail import TRAIL, read_last_entry, trail_folder
from deid_agent.batch.outputs import OutputFormat
from deid_agent.batch.pacing import PAUSE
from deid_agent.batch.row_state import ChangeKey
from deid_agent.batch.sampling import SAMPLE
from deid_agent.batch.schema import REFUSED
from deid_agent.model import ConfigurationError, counted

DEMO_NOTE = "_DEMO-KEY.txt"
_OWN = frozenset({MANIFEST, LOCK, AUDIT, PAUSE, DEMO_NOTE})
_OWN_IN_TRAIL = frozenset({"head.json", "signing.key", "lock"})
_OWN_OF: Mapping[str, set[str]] = {OutputFormat.DELTA: {DELTA_LOG}, OutputFormat.ICEBERG: {METADATA}}
_MOST_FOREIGN = 1000
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class FindingCode(StrEnum):
    """The kind of a finding; part of the interface."""

    MANIFEST = "MANIFEST"
    """A line of the manifest was changed or cannot be read, or the manifest is missing."""
    UNSIGNED = "UNSIGNED"
    """Lines of the manifest without a signed entry: a run was interrupted, or somebody added them."""
    TRAIL = "TRAIL"
    """The signed trail is not sound; the detail begins with its own code."""
    ROLLBACK = "ROLLBACK"
    """The folder is an older state: it has fewer lines than a head or a count from elsewhere."""
    MISSING = "MISSING"
    """A file that the manifest names is missing."""
    OUTPUT = "OUTPUT"
    """An output differs from the manifest."""
    PART = "PART"
    """An audit part differs from the manifest: its bytes, the root of its tree, or its counts."""
    SAMPLE = "SAMPLE"
    """The sample differs from the manifest."""
    FOREIGN = "FOREIGN"
    """A file that no line of the manifest names."""


@dataclass(frozen=True, slots=True)
class FolderFinding:
    """A fault with its place: a file in the folder, or a line of one. ``detail`` has no value of a row."""

    code: FindingCode
    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class FolderCheck:
    """The result of a verification. ``lines`` are those of the manifest, ``first_key`` begins the trail."""

    findings: tuple[FolderFinding, ...]
    units: int
    rows: int
    lines: int
    first_key: str
    anchored: bool
    """True if the first key of the trail is a given one; otherwise a holder of the secret key could have made it."""


def verify_folder(
    folder: Path,
    trusted: Collection[str] | None = None,
    head: Path | None = None,
    least_lines: int = 0,
    table: str | None = None,
) -> FolderCheck:
    """Verify an output folder.

    ``trusted`` are public keys (hex) for the trail; with None those that it names are trusted. ``head`` is a file of
    heads kept elsewhere, and ``least_lines`` a number of lines that the manifest had before. ``table`` names the
    Iceberg table of the outputs, as a catalog has it.

    Raises ``ConfigurationError`` if there is no run, one that is still going on, or a table that is not named.
    """
    with _hold(folder):
        findings: list[FolderFinding] = []
        manifest = _read_lines(folder, findings)
        signed = _check_trail(folder, trusted, head, findings)
        lines = len(manifest.lines) if manifest is not None else 0
        if manifest is not None:
            findings += _compare_lines(manifest, signed.last)
        if lines < least_lines:
            detail = f"{counted(lines, 'line')}, and there were {least_lines} before"
            findings.append(FolderFinding(FindingCode.ROLLBACK, MANIFEST, detail))
        units = manifest.finished if manifest is not None else []
        genuine = not findings  # files that somebody else may have named are compared, and not read
        for entry in units:
            findings += _check_unit(folder, entry, read=genuine)
        findings += _check_sample(folder, manifest)
        export = manifest is not None and manifest.head.table == "fhir"
        if export:
            findings += _check_export(folder, units)
        format_ = manifest.head.format if manifest is not None else ""
        if genuine:
            findings += _check_table(folder, manifest, units, table)
        findings += _find_foreign(folder, units, {EXPORT} if export else _OWN_OF.get(format_, set()))
    return FolderCheck(
        tuple(findings),
        len(units),
        sum(entry.rows for entry in units),
        lines,
        signed.first_key,
        trusted is not None and signed.first_key in trusted,
    )


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Keep a run from beginning. A copy of a folder may have no lock."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigurationError("a run is writing this folder: wait for its end") from None
    try:
        yield
    finally:
        os.close(lock)


def _read_lines(folder: Path, findings: list[FolderFinding]) -> Manifest | None:
    try:
        manifest = read_manifest(folder)
    except ManifestError as problem:
        place = f"{MANIFEST}:{problem.line}"
        why = "the line was changed, or lines before it were added or dropped"
        findings.append(FolderFinding(FindingCode.MANIFEST, place, why))
        return problem.rest
    if manifest is None:
        if not trail_folder(folder).is_dir():
            raise ConfigurationError(f"no {MANIFEST} in the folder: name the OUT of a run")
        findings.append(FolderFinding(FindingCode.MANIFEST, MANIFEST, "is missing"))
    elif not (folder / MANIFEST).read_bytes().endswith(b"\n"):
        findings.append(FolderFinding(FindingCode.MANIFEST, MANIFEST, "ends with an incomplete line: run again"))
    return manifest


@dataclass(frozen=True, slots=True)
class _Signed:
    last: tuple[int, str] = (0, "")
    first_key: str = ""


def _check_trail(
    folder: Path, trusted: Collection[str] | None, head: Path | None, findings: list[FolderFinding]
) -> _Signed:
    path = trail_folder(folder)
    place = f"{AUDIT}/{TRAIL}"
    if not path.is_dir() or not segment_files(path):
        findings.append(
            FolderFinding(FindingCode.TRAIL, place, "is missing: nothing shows that the manifest is genuine")
        )
        return _Signed()
    report = verify_trail(path, trusted, head)
    findings += [_of_trail(fault, head) for fault in (*report.faults, *report.warnings)]
    try:
        return _Signed(read_last_entry(folder, _count_unsigned(report)), report.first_key)
    except ConfigurationError:
        return _Signed(first_key=report.first_key)  # the line that cannot be read is a finding


def _count_unsigned(report: TrailReport) -> int:
    """The entries after the last signature: anyone can have written them."""
    found = [int(fault.detail.split()[0]) for fault in report.warnings if fault.code == "UNSIGNED"]
    return sum(found)


def _of_trail(fault: TrailFault, head: Path | None) -> FolderFinding:
    # A head that was kept elsewhere and signs more than the trail has: the folder was put back.
    code = FindingCode.ROLLBACK if fault.code == "TRUNCATED" else FindingCode.TRAIL
    kept = head is not None and fault.where.startswith(str(head))
    return FolderFinding(
        code, fault.where if kept else f"{AUDIT}/{TRAIL}/{fault.where}", f"{fault.code}: {fault.detail}"
    )


def _compare_lines(manifest: Manifest, last: tuple[int, str]) -> Iterator[FolderFinding]:
    line, digest = last
    lines = len(manifest.lines)
    if line > lines:
        detail = f"{counted(lines, 'line')}, and the trail signs {line}: lines were cut off, or an older one put back"
        yield FolderFinding(FindingCode.MANIFEST, MANIFEST, detail)
    elif line and manifest.lines[line - 1] != digest:
        detail = f"lines 1 to {line} are not those that the trail signs"
        yield FolderFinding(FindingCode.MANIFEST, f"{MANIFEST}:{line}", detail)
    if lines > line:
        detail = "not signed: run again after an interruption, which makes these units again; else somebody added them"
        yield FolderFinding(FindingCode.UNSIGNED, f"{MANIFEST}:{line + 1}", detail)


def _check_unit(folder: Path, entry: UnitEntry, *, read: bool) -> Iterator[FolderFinding]:
    for path, digest in entry.named_files.items():
        is_part = path.startswith(f"{AUDIT}/")
        code = FindingCode.PART if is_part else FindingCode.OUTPUT
        found = _digest_file(folder / path)
        if found is None:
            yield FolderFinding(FindingCode.MISSING, path, "run again to make it")
        elif found != digest:
            yield FolderFinding(code, path, "is not the file that the manifest names; remove it and run again")
        elif is_part and read and (why := _check_rows(folder / path, entry)):
            yield FolderFinding(code, path, why)


def _digest_file(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_rows(path: Path, entry: UnitEntry) -> str:
    """The difference between the rows of a part and the manifest; empty if there is none.

    The part has the digest of the manifest, so these bytes are read only if they are those of the run.
    """
    tree, refused, changes = Frontier(), Counter[str](), Counter[ChangeKey]()
    words = in_texts = 0
    try:
        for leaf in _read_leaves(path):
            _, _, outcome, reason, _, of_row, in_row, counts = orjson.loads(leaf)
            tree = tree.add(leaf_hash(leaf))
            words, in_texts = words + of_row, in_texts + in_row
            refused.update([reason] if outcome == REFUSED else [])
            for column, type_, method, rule, count in counts:
                changes[column, type_, method, rule] += count
    except _UNREADABLE:
        return "its rows cannot be read"
    if tree.root.hex() != entry.root:
        return "its rows have another root than the manifest"
    stated: Mapping[ChangeKey, int] = {(c, t, m, r): count for c, t, m, r, count in entry.counts}
    sums = (tree.size, dict(refused), words, in_texts, dict(changes))
    if sums != (entry.rows, dict(entry.refused), entry.words, entry.in_texts, stated):
        return "its rows have other counts than the manifest"
    return ""


def _check_table(
    folder: Path, manifest: Manifest | None, units: Collection[UnitEntry], table: str | None
) -> Iterator[FolderFinding]:
    """Compare a Delta or Iceberg table with the lines of the manifest, which state its files."""
    format_ = manifest.head.format if manifest is not None else ""
    if (format_ == OutputFormat.ICEBERG) != (table is not None):
        raise ConfigurationError(
            "--to: the outputs are not those of an Iceberg table: leave it out"
            if table is not None
            else "the outputs are those of an Iceberg table: name it with --to CATALOG.NAMESPACE.TABLE"
        )
    why = ""
    if format_ == OutputFormat.DELTA:
        why = compare_delta(folder, units)
    elif table is not None and manifest is not None:
        why = compare_iceberg(table, folder, manifest.head.build, units)
    if why:
        yield FolderFinding(FindingCode.OUTPUT, next(iter(_OWN_OF[format_])), f"the table {why}")


def _read_leaves(path: Path) -> Iterator[bytes]:
    """The leaves of a part. Raises one of ``_UNREADABLE``."""
    if path.suffix == LINE_PART:
        with path.open("rb") as lines:
            yield from (line.removesuffix(b"\n") for line in lines)
        return
    file = load_arrow("pyarrow.parquet").ParquetFile(path)
    try:
        for batch in file.iter_batches(batch_size=4096, use_threads=False):
            yield from map(encode_leaf, batch.to_pylist())
    except load_arrow().ArrowException:
        raise ValueError from None


def _check_sample(folder: Path, manifest: Manifest | None) -> Iterator[FolderFinding]:
    place = f"{AUDIT}/{SAMPLE}"
    found = _digest_file(folder / place)
    stated = manifest.latest.sample if manifest is not None and manifest.latest is not None else ""
    if found is None and stated:
        yield FolderFinding(FindingCode.MISSING, place, "the sample was removed")
    elif found is not None and found != stated:
        yield FolderFinding(FindingCode.SAMPLE, place, "is not the file that the last line of the manifest names")


def _check_export(folder: Path, units: Collection[UnitEntry]) -> Iterator[FolderFinding]:
    """Compare the manifest of a FHIR export with the lines of the manifest."""
    path = folder / EXPORT
    if path.is_symlink() or not path.is_file():
        yield FolderFinding(FindingCode.MISSING, EXPORT, "run again to make it")
    elif why := compare_export(folder, units):
        yield FolderFinding(FindingCode.OUTPUT, EXPORT, why)


def _find_foreign(folder: Path, units: Collection[UnitEntry], more: set[str]) -> Iterator[FolderFinding]:
    named = {path for entry in units for path in entry.named_files}
    own = {
        *_OWN,
        *more,
        f"{AUDIT}/{TRAIL}",
        f"{AUDIT}/{SAMPLE}",
        *(f"{AUDIT}/{TRAIL}/{name}" for name in _OWN_IN_TRAIL),
    }
    trail = trail_folder(folder)
    if trail.is_dir():
        own |= {f"{AUDIT}/{TRAIL}/{path.name}" for path in segment_files(trail).values()}
    known = named | own
    left = _MOST_FOREIGN
    for path, prefix in ((folder, ""), (folder / AUDIT, f"{AUDIT}/"), (trail, f"{AUDIT}/{TRAIL}/")):
        names = sorted(os.listdir(path)) if path.is_dir() else []  # noqa: PTH208 - names, also odd ones
        for name in names:
            if f"{prefix}{name}" not in known and left:
                left -= 1
                yield FolderFinding(FindingCode.FOREIGN, f"{prefix}{name}", "no line of the manifest names it")
