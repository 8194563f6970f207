"""The outputs of jobs on disk: a folder of random name for each job, removed with it.

The manifest of a job names a file only after its bytes and its name are durable. No output survives a restart of the
agent: the keys of its link codes, and the clients who may read it, are in memory only.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from deid_agent.agent import sync_folder
from deid_agent.model import ConfigurationError

_JOB: Final = re.compile(r"[0-9a-f]{32}")
_LOCK: Final = "lock"
_BUFFER: Final = 1 << 20


@dataclass(slots=True)
class JobFile:
    """One output while it is written. It has its name only after ``finish``. Methods raise ``OSError``.

    All methods block but ``add``, which keeps lines in memory until ``write``: a slow disk must not stop the loop.
    """

    path: Path
    count: int = 0
    _file: BinaryIO = field(init=False, repr=False)
    _lines: bytearray = field(default_factory=bytearray, repr=False)

    def __post_init__(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = open(os.open(self._part, flags, 0o600), "wb")  # noqa: PTH123, SIM115

    @property
    def _part(self) -> Path:
        return self.path.with_suffix(".part")

    def add(self, line: bytes) -> None:
        """Add a line, which has no line end."""
        self._lines += line
        self._lines += b"\n"
        self.count += 1

    @property
    def is_full(self) -> bool:
        """True if the lines in memory are enough for ``write``."""
        return len(self._lines) >= _BUFFER

    def write(self) -> None:
        """Write the lines that are in memory."""
        self._file.write(self._lines)
        self._lines.clear()

    def finish(self) -> None:
        """Make the file durable, then its name."""
        self.write()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the file if it is not finished. Raises nothing."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


class JobFolder:
    """The folder of all jobs, owned by one agent. Raises ``ConfigurationError`` if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        check_job_folder(folder)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                raise
        except OSError as error:
            raise ConfigurationError(
                f"jobs.folder: {folder} is in use or cannot be used ({type(error).__name__}); each agent needs its own"
            ) from None
        self._remove_jobs()

    def make(self) -> Path:
        """The folder of a new job; its name is the id. Raises ``OSError``."""
        path = self._folder / secrets.token_hex(16)
        path.mkdir(mode=0o700)
        return path

    def close(self) -> None:
        """Remove all jobs and give the folder up. Safe to call twice."""
        if self._lock >= 0:
            self._remove_jobs()
            os.close(self._lock)
            self._lock = -1

    def _remove_jobs(self) -> None:
        """Remove jobs, and nothing else: the setting may name a folder with other files by mistake."""
        for path in self._folder.iterdir():
            if _JOB.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                remove_job(path)


def remove_job(path: Path) -> None:
    """Remove the folder of a job. Raises nothing. Blocks."""
    shutil.rmtree(path, ignore_errors=True)


def check_job_folder(folder: Path) -> None:
    """Raise ``ConfigurationError`` if a folder of jobs cannot be used. Writes nothing."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        if not os.access(folder.absolute().parent, os.W_OK | os.X_OK):
            raise ConfigurationError(f"jobs.folder: {folder} cannot be made; name another folder") from None
        return
    except OSError as error:
        raise ConfigurationError(f"jobs.folder: {folder} cannot be used ({type(error).__name__})") from None
    if not stat.S_ISDIR(mode):
        raise ConfigurationError(f"jobs.folder: {folder} is no folder; name one")
    if mode & 0o077:
        raise ConfigurationError(f"jobs.folder: others may read {folder}: chmod 700 {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"jobs.folder: {folder} cannot be written to; make it writable")
