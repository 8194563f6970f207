"""Files on disk: found, read and written whole and durable. Blocking: call it from a thread."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from deid_agent.errors import ConfigurationError

Look = tuple[int, int, int]
"""Size, time of the last write and of the last change of any kind (ns): while it stands still, so does the file."""


def look_of(status: os.stat_result) -> Look:
    """How a file looks; a copy that keeps the old time still shows in the last member (ctime), which nobody can set."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Skipped(StrEnum):
    """Why something in a folder is no input."""

    FOLDER = "folder that cannot be read"
    LINK = "link"
    SPECIAL = "neither file nor folder"


def walk(root: Path, skipped: Callable[[bytes, Skipped], None]) -> Iterator[tuple[bytes, Look]]:
    """Relative names of regular files under ``root``, in no order; ``skipped`` is told what else is there.

    Hidden files and folders (their names begin with a dot: partial uploads, ``.git``) are passed over in silence.
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
                    yield relative, look_of(status)
                else:
                    skipped(relative, Skipped.LINK if stat.S_ISLNK(status.st_mode) else Skipped.SPECIAL)


class ChangedError(OSError):
    """A file was written to while it was read."""


def read(path: Path, most: int) -> tuple[bytes, Look]:
    """Content and look. ``OSError`` where it is no regular file or longer than ``most`` bytes, or changes meanwhile."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as source:  # noqa: PTH123 - a descriptor
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        data = source.read(most + 1)
        if len(data) > most:
            raise OSError("too large")
        if look_of(os.fstat(file)) != look_of(status):
            raise ChangedError("changed while it was read")
    return data, look_of(status)


def nested(one: Path, other: Path) -> bool:
    """True where one of the two lies in the other."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def check_places(input: Path, output: Path, letters: Path, state: Path) -> None:
    """``ConfigurationError`` where ``input`` is missing, folders lie in one another, or one cannot be written to."""
    if not input.is_dir():
        raise ConfigurationError(f"directory.input: {input} is no folder; make it, or correct the setting")
    if not os.access(input, os.R_OK | os.X_OK):
        raise ConfigurationError(f"directory.input: {input} cannot be read")
    for name, path in (("output", output), ("dead_letters", letters), ("state", state)):
        if nested(input, path):
            raise ConfigurationError(f"directory.{name}: {path} and the input folder lie in one another; move it")
    if nested(output, letters):
        raise ConfigurationError(
            f"directory.dead_letters: they hold PHI and must lie apart from the output; move {letters}"
        )
    if nested(output, state) or nested(letters, state):
        raise ConfigurationError(f"directory.state: {state} is a file of its own; move it out of the other folders")
    for name, path in (("output", output), ("dead_letters", letters)):
        if not can_hold(path):
            raise ConfigurationError(
                f"directory.{name}: {path} cannot be written to; make it writable, or correct the setting"
            )
    if not _can_write(state):
        raise ConfigurationError(f"directory.state: {state} cannot be written; name a file in a writable folder")


def check_audit(path: Path, input: Path | None) -> None:
    """``ConfigurationError`` where the audit's folder cannot be written to, or would be read as messages."""
    if input is not None and path.resolve().is_relative_to(input.resolve()):
        raise ConfigurationError(f"audit.path: {path} lies in the input folder and would be read as a message; move it")
    if path.is_file():
        raise ConfigurationError(
            f"audit.path: {path} is a file; the audit is a folder now: name another, keep the file"
        )
    if not path.absolute().parent.is_dir() or not can_hold(path):
        raise ConfigurationError(f"audit.path: {path} cannot be written to; name a folder in a writable one")


def _can_write(file: Path) -> bool:
    """True where this file, or a new one of this name, could be written."""
    if os.path.lexists(file):
        return file.is_file() and os.access(file, os.R_OK | os.W_OK)
    return can_hold(file.absolute().parent)


def can_hold(folder: Path) -> bool:
    """True where this folder, or the nearest one above it that exists, takes new files."""
    at = folder.absolute()
    while not os.path.lexists(at):
        at = at.parent
    return at.is_dir() and os.access(at, os.W_OK | os.X_OK)


class Staged:
    """Files that become visible together, in the order in which they were added.

    ``add`` writes to a hidden file beside the goal, ``show`` renames all of them and makes the renames
    durable, ``drop`` removes what was not shown. ``OSError`` passes through.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Path, Path]] = []
        self._shown = 0

    def add(self, goal: Path, data: bytes, mode: int, mark: str) -> None:
        """Write ``data`` for ``goal``; ``mark`` makes the hidden name unique."""
        make_folder(goal.parent)
        hidden = goal.parent / f".deid-{mark}.tmp"
        hidden.unlink(missing_ok=True)
        self._pairs.append((hidden, goal))
        file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(file, "wb") as sink:  # noqa: PTH123 - a descriptor
            sink.write(data)
            sink.flush()
            os.fsync(file)

    def show(self) -> None:
        """Rename everything into place."""
        for hidden, goal in self._pairs:
            hidden.replace(goal)
            self._shown += 1
        for folder in {goal.parent for _, goal in self._pairs}:
            sync_folder(folder)

    def drop(self) -> None:
        """Remove hidden files that were not shown, as far as the disk allows."""
        for hidden, _ in self._pairs[self._shown :]:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and those above it, durably."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: a rename alone may be lost with the power."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Quiet:
    """Tells which files have stood still for ``settle_s`` seconds of ``clock``, from one look to the next."""

    def __init__(self, settle_s: float, clock: Callable[[], float]) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._since: dict[bytes, tuple[Look, float]] = {}

    def still(self, looks: Mapping[bytes, Look]) -> Iterator[bytes]:
        """The names among ``looks`` that look as they did all the while."""
        now = self._clock()
        before, self._since = self._since, {}
        for name, look in looks.items():
            seen = before.get(name)
            self._since[name] = seen if seen and seen[0] == look else (look, now)
            if now - self._since[name][1] >= self._settle_s:
                yield name
