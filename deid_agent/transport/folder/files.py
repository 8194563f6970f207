"""Files on disk: listing, reading, naming, and complete and durable writing. The functions block: use a thread."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

from deid_agent.agent import Output, Record, sync_folder
from deid_agent.model import ConfigurationError, UnsafeError

_LONGEST = 255  # bytes of one path component on common file systems

FileState = tuple[int, int, int]
"""Size, time of the last write and time of the last change of any kind (ns). Unchanged as long as the file is."""


def file_state_of(status: os.stat_result) -> FileState:
    """The state of a file. A copy that preserves mtime changes ctime, which no program can set."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Skipped(StrEnum):
    """Why a directory entry is not an input."""

    FOLDER = "folder that cannot be read"
    LINK = "link"
    SPECIAL = "neither file nor folder"


def walk_files(root: Path, skipped: Callable[[bytes, Skipped], None]) -> Iterator[tuple[bytes, FileState]]:
    """Yield the relative names of regular files under ``root``, in no order; report other entries to ``skipped``.

    Hidden files and folders, whose names begin with a dot (partial uploads, ``.git``), are ignored without a report.
    """
    top = os.fsencode(root)

    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            skipped(os.path.relpath(os.fsencode(error.filename), top), Skipped.FOLDER)

    for folder, folders, files in os.walk(top, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - names are bytes
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                relative = os.path.relpath(path, top)
                if name.startswith(b".") or stat.S_ISDIR(status.st_mode):
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield relative, file_state_of(status)
                else:
                    skipped(relative, Skipped.LINK if stat.S_ISLNK(status.st_mode) else Skipped.SPECIAL)


class ChangedError(OSError):
    """The file was written to while it was read."""


def read_file(path: Path, max_bytes: int) -> tuple[bytes, FileState]:
    """Return the content and state of a file.

    Raises ``OSError`` if it is no regular file, is longer than ``max_bytes``, or changes during the read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as source:  # noqa: PTH123 - a descriptor
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        data = source.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise OSError("too large")
        if file_state_of(os.fstat(file)) != file_state_of(status):
            raise ChangedError("changed while it was read")
    return data, file_state_of(status)


def is_nested(one: Path, other: Path) -> bool:
    """True if one of the two folders contains the other."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def check_transport_folders(input: Path, output: Path, dead_letters: Path, state: Path) -> None:
    """Check the folders of the ``directory`` section.

    Raises ``ConfigurationError`` if ``input`` is missing, folders contain one another, or one is not writable.
    """
    if not input.is_dir():
        raise ConfigurationError(f"directory.input: {input} is not a folder; create it, or correct the setting")
    if not os.access(input, os.R_OK | os.X_OK):
        raise ConfigurationError(f"directory.input: {input} cannot be read")
    for name, path in (("output", output), ("dead_letters", dead_letters), ("state", state)):
        if is_nested(input, path):
            raise ConfigurationError(f"directory.{name}: {path} and the input folder contain one another; move it")
    if is_nested(output, dead_letters):
        raise ConfigurationError(
            f"directory.dead_letters: {dead_letters} will hold PHI and must be outside the output folder; move it"
        )
    if is_nested(output, state) or is_nested(dead_letters, state):
        raise ConfigurationError(f"directory.state: {state} must be outside the other folders; move it")
    for name, path in (("output", output), ("dead_letters", dead_letters)):
        if not can_hold_files(path):
            raise ConfigurationError(
                f"directory.{name}: {path} cannot be written to; make it writable, or correct the setting"
            )
    if not _can_write(state):
        raise ConfigurationError(f"directory.state: {state} cannot be written; choose a file in a writable folder")


def check_audit_folder(path: Path, input: Path | None, setting: str = "audit.path") -> None:
    """Raise ``ConfigurationError`` if the folder of a trail is not writable, or its files would be read as messages."""
    if input is not None and path.resolve().is_relative_to(input.resolve()):
        raise ConfigurationError(f"{setting}: {path} is in the input folder and would be read as a message; move it")
    if path.is_file():
        raise ConfigurationError(
            f"{setting}: {path} is a file; a trail is a folder: choose another path and keep the file"
        )
    if not path.absolute().parent.is_dir() or not can_hold_files(path):
        raise ConfigurationError(f"{setting}: {path} cannot be written to; choose a folder in a writable one")


def _can_write(file: Path) -> bool:
    """True if this file, or a new file of this name, is writable."""
    if os.path.lexists(file):
        return file.is_file() and os.access(file, os.R_OK | os.W_OK)
    return can_hold_files(file.absolute().parent)


def can_hold_files(folder: Path) -> bool:
    """True if new files can be created in this folder, or in its nearest existing ancestor."""
    at = folder.absolute()
    while not os.path.lexists(at):
        at = at.parent
    return at.is_dir() and os.access(at, os.W_OK | os.X_OK)


class StagedFiles:
    """Files that become visible together, in the order in which they were added.

    ``add`` writes a hidden file next to the goal, ``publish`` renames all of them and makes the renames durable, and
    ``discard`` removes those that were not published. ``OSError`` passes through.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, Path]] = []
        self._published = 0

    def add(self, goal: Path, data: bytes, mode: int, mark: str, time_ms: int | None = None) -> None:
        """Write ``data`` for ``goal``; ``mark`` makes the hidden name unique.

        ``time_ms`` are the times of the file, in milliseconds since 1970, and ``NO_TIME`` is 1970 itself. None leaves
        the time of writing. The file system keeps the time of the last change (ctime), which no program can set.
        """
        make_folder(goal.parent)
        hidden = goal.parent / f".deid-{mark}.tmp"
        hidden.unlink(missing_ok=True)
        self._files.append((hidden, goal))
        file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(file, "wb") as sink:  # noqa: PTH123 - a descriptor
            sink.write(data)
            sink.flush()
            if time_ms is not None:
                os.utime(file, ns=(max(0, time_ms) * 1_000_000,) * 2)
            os.fsync(file)

    def publish(self) -> None:
        """Rename all files into place."""
        for hidden, goal in self._files:
            hidden.replace(goal)
            self._published += 1
        for folder in {goal.parent for _, goal in self._files}:
            sync_folder(folder)

    def discard(self) -> None:
        """Remove the hidden files that were not published, as far as the disk allows."""
        for hidden, _ in self._files[self._published :]:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its ancestors durably."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


class FolderSink:
    """A ``Sink`` that writes ``mllp-<connection>-<offset>.hl7``: names without PHI that sort by time per connection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._thread: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"FolderSink({self._folder})"

    async def start(self) -> None:
        """See ``Sink.start``."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"mllp.output: {self._folder}: {error.strerror}") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outputs")

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Sink.deliver``. A record always gets the same name, so a repeated delivery overwrites the first."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, record, output)
        except OSError as error:
            raise UnsafeError(
                f"mllp.output: writing to the folder failed ({error.strerror}): fix it and start again; "
                "nothing was lost"
            ) from None

    def _write(self, record: Record, output: Output) -> None:
        at = record.coordinates
        name = f"{at.topic}-{at.partition}-{at.offset}"
        staged = StagedFiles()
        try:
            staged.add(self._folder / f"{name}.hl7", output.payload, 0o666, name, output.timestamp_ms)
            staged.publish()
        finally:
            staged.discard()

    async def stop(self) -> None:
        """See ``Sink.stop``."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


class StabilityTracker:
    """Finds files that did not change for ``stable_s`` seconds of ``clock``, from one call to the next."""

    def __init__(self, stable_s: float, clock: Callable[[], float]) -> None:
        self._stable_s = stable_s
        self._clock = clock
        self._since: dict[bytes, tuple[FileState, float]] = {}

    def stable_names(self, states: Mapping[bytes, FileState]) -> Iterator[bytes]:
        """Yield the names in ``states`` whose state was the same during all that time."""
        now = self._clock()
        before, self._since = self._since, {}
        for name, state in states.items():
            seen = before.get(name)
            self._since[name] = seen if seen and seen[0] == state else (state, now)
            if now - self._since[name][1] >= self._stable_s:
                yield name


def relative_name(key: bytes | None, offset: int) -> bytes:
    """The relative name that a record's key asks for, or ``record-<offset>`` unless it is a plain path inside the
    folder.
    """
    parts = (key or b"").split(b"/")
    plain = all(part not in {b"", b".", b".."} and b"\0" not in part and len(part) <= _LONGEST for part in parts)
    hidden = any(part.startswith(b".") for part in parts)
    return b"/".join(parts) if plain and not hidden else b"record-%d" % offset


def distinct_name(name: bytes, offset: int, taken: Callable[[bytes], bool]) -> bytes:
    """``name``, with ``~<offset>`` before its extension if another record has that name already."""
    folder, slash, last = name.rpartition(b"/")
    while taken(folder + slash + last):
        stem, dot, ending = last.rpartition(b".") if b"." in last[1:] else (last, b"", b"")
        suffix = b"~%d" % offset
        last = stem[: _LONGEST - len(suffix + dot + ending)] + suffix + dot + ending
    return folder + slash + last


def resolve_inside(root: Path, name: bytes) -> Path | None:
    """The path of ``name`` under ``root``; None if a link or a file on the way leads elsewhere."""
    path = root / os.fsdecode(name)
    at = root
    for part in path.relative_to(root).parts[:-1]:
        at = at / part
        if at.is_symlink() or (at.exists() and not at.is_dir()):
            return None
    return None if path.is_dir() and not path.is_symlink() else path
