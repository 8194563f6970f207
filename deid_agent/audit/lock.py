"""Exclusive ownership of the folder of a trail, so that no two agents write it.

The functions block, so call them in a thread. They raise ``OSError`` unless their documentation names another error.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from deid_agent.agent import sync_folder
from deid_agent.audit.storage import segment_files
from deid_agent.model import ConfigurationError

_LOCK = "lock"


class Lock:
    """Exclusive ownership of the folder until ``release``. A missing folder is created with mode 0700.

    Raises ``ConfigurationError``, with the ``name`` of the trail, if the folder cannot be used or another process owns
    it.
    """

    def __init__(self, folder: Path, name: str = "audit") -> None:
        self._folder = folder
        try:
            if folder.is_file():
                raise ConfigurationError(f"{name} folder {folder}: is a file; the {name} is a folder, name one")
            self._made = _make(folder)
            self._file, self._new = _owned(folder / _LOCK)
        except OSError as error:
            raise ConfigurationError(f"{name} folder {folder} is in use or cannot be used: {error.strerror}") from None

    def release(self) -> None:
        """Release the folder. An empty one is removed if it was created here."""
        with suppress(OSError):
            if not segment_files(self._folder) and self._new:
                # Before the lock is released: a process that opened the file meanwhile sees that it has no name.
                (self._folder / _LOCK).unlink()
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
    """The lock file, open and locked, and whether it is new.

    Another agent may remove its lock file between our opening and our locking. The locked file must still be the one
    that the path names, or two processes could own the folder.
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
