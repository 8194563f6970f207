"""Files on disk: found, read and written whole and durable. Blocking: call it from a thread."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

Look = tuple[int, int]
"""Size and time of change (ns), by which a file that is still being written is told."""


def walk(root: Path) -> Iterator[tuple[bytes, Look]]:
    """Relative names of regular files under ``root``, without hidden ones and links, in no order."""
    for folder, folders, files in os.walk(os.fsencode(root)):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118 - names are bytes
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and not name.startswith(b"."):
                    yield os.path.relpath(path, os.fsencode(root)), (status.st_size, status.st_mtime_ns)


def read(path: Path, most: int) -> tuple[bytes, int]:
    """Content and time of change (ms). ``OSError`` where it is no regular file or longer than ``most`` bytes."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as source:  # noqa: PTH123 - a descriptor
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        data = source.read(most + 1)
        if len(data) > most:
            raise OSError("too large")
    return data, status.st_mtime_ns // 1_000_000


def nested(one: Path, other: Path) -> bool:
    """True where one of the two lies in the other."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


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
