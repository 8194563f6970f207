"""A disk under a trail: the agent dies, or the power goes, at a chosen call. In this process, so it is quick."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

NEVER = 1_000_000
R = TypeVar("R")

Lose = Callable[[str, int], int]
"""The number of bytes of a file, or of changes of a name, that a power failure loses, at most."""


class KilledError(BaseException):
    """The end of a killed process: nothing more runs."""


@dataclass
class Disk:
    """The unsynced state of a flat folder. ``left``: the number of calls that change it until the kill."""

    folder: Path
    left: int
    names: dict[str, list[bytes | None]] = field(default_factory=dict)
    """The contents of a name since the names were last synced, oldest first; None if it did not exist."""
    synced: dict[str, int] = field(default_factory=dict)
    """Bytes of a file up to its last sync."""
    files: dict[int, Path] = field(default_factory=dict)

    def cut_power(self, lose: Lose) -> None:
        """Undo unsynced writes, of each file and name as many as ``lose`` returns."""
        if not self.folder.exists():
            return
        for name, size in self.synced.items():
            if (now := self._read(name)) is not None and len(now) > size:
                os.truncate(self.folder / name, len(now) - lose(name, len(now) - size))
        for name, before in self.names.items():
            version = [*before, self._read(name)][-1 - lose(name, len(before))]
            (self.folder / name).unlink(missing_ok=True)
            if version is not None:
                (self.folder / name).write_bytes(version)

    def remember(self, path: Path) -> None:
        self.names.setdefault(path.name, []).append(self._read(path.name))

    def _read(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None


@contextmanager
def dying(folder: Path, left: int = NEVER) -> Iterator[Disk]:
    """Inside the block, the process ends after this many calls that change the disk. The last write is cut in half."""
    disk, close, write, replace, unlink = Disk(folder, left), os.close, os.write, os.replace, os.unlink
    make = os.open

    def counted(call: Callable[..., R]) -> Callable[..., R]:
        def made(*args: object, **kwargs: object) -> R:
            if disk.left <= 0:
                raise KilledError
            disk.left -= 1
            return call(*args, **kwargs)

        return made

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not path.exists():
            disk.remember(path)
            disk.synced[path.name] = 0
        file = make(path, flags, mode)
        disk.files[file] = path
        return file

    def closed(file: int) -> None:
        disk.files.pop(file, None)
        close(file)

    def synced(file: int) -> None:
        path = disk.files[file]
        if path.is_dir():
            disk.names.clear()
        elif path.exists() and os.path.samestat(os.fstat(file), path.stat()):  # not a file that lost its name
            disk.synced[path.name] = path.stat().st_size

    def replaced(source: Path, goal: Path) -> None:
        disk.remember(goal)
        replace(source, goal)
        disk.synced[goal.name] = disk.synced.pop(source.name, 0)

    def unlinked(path: Path) -> None:
        disk.remember(path)
        unlink(path)

    changing: dict[str, Callable[..., object]] = {
        "open": opened,
        "write": lambda file, data: write(file, data[: len(data) // 2] if len(data) > 200 else data),
        "fsync": synced,
        "replace": replaced,
        "unlink": unlinked,
        "ftruncate": os.ftruncate,
        "mkdir": os.mkdir,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, call in changing.items():
            patch.setattr(os, name, counted(call))
        patch.setattr(os, "close", closed)
        with suppress(KilledError):
            yield disk
    for file in disk.files:  # as the kernel does; the lock is released with its file
        close(file)
