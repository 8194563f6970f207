"""The folder of a trail: its segments by number, its newest signed head, and the lock. Blocking: call it from a thread.

``OSError`` passes through where nothing else is said.
"""

import fcntl
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deid_agent.errors import ConfigurationError

HEAD = "head.json"
_LOCK = "lock"
_SEGMENT = re.compile(r"([0-9]{8})\.jsonl", re.ASCII)


def segment_name(number: int) -> str:
    """The file of a segment."""
    return f"{number:08}.jsonl"


def segments(folder: Path) -> Mapping[int, Path]:
    """The segments that are there, by number, rising."""
    found = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def read_head(folder: Path) -> bytes | None:
    """``head.json`` as it stands; None where it is missing."""
    try:
        return (folder / HEAD).read_bytes()
    except FileNotFoundError:
        return None


def write_head(folder: Path, line: bytes) -> None:
    """Replace ``head.json``: the old one or the new one stands there, whenever the power goes."""
    hidden = folder / f"{HEAD}.tmp"
    file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(file, line)
        os.fsync(file)
    finally:
        os.close(file)
    hidden.replace(folder / HEAD)


def write_all(file: int, data: bytes) -> None:
    """All of ``data``, however little of it the disk takes at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Lock:
    """The folder, made where it was missing (mode 0700), for this process alone until ``release``.

    ``ConfigurationError`` where it cannot be had.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            if folder.is_file():
                raise ConfigurationError(f"audit folder {folder}: is a file; the audit is a folder, name one")
            self._made = _make(folder)
            self._file, self._new = _owned(folder / _LOCK)
        except OSError as error:
            raise ConfigurationError(f"audit folder {folder} is in use or cannot be used: {error.strerror}") from None

    def release(self) -> None:
        """Give the folder up; one that holds nothing goes, if it was made here."""
        with suppress(OSError):
            if not segments(self._folder) and self._new:
                (
                    self._folder / _LOCK
                ).unlink()  # before the lock goes: who opened it meanwhile sees that it has no name
                if self._made:
                    self._folder.rmdir()
        os.close(self._file)


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    sync_folder(folder.absolute().parent)
    return True


def _owned(path: Path) -> tuple[int, bool]:
    """The lock file, open and locked, and whether it was made just now.

    Another agent may take its own away between our opening and our locking: what was locked must still be
    what the path names, else two could own the folder.
    """
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            file, new = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
        except FileExistsError:
            file, new = os.open(path, flags | os.O_CREAT, 0o600), False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        if os.fstat(file).st_nlink:
            return file, new
        os.close(file)
