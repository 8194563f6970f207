"""Secrets from files: read once, refused where others could read them too."""

import os
import stat
from pathlib import Path

from deid_agent.errors import ConfigurationError


def read(path: Path, name: str, how: str = "") -> bytes:
    """The content of the file that is called ``name`` in errors; ``how`` is added where it cannot be read.

    Raises ``ConfigurationError`` where it cannot be read, or others may read it. A file of another owner may be
    readable by its group: that is how a secret is mounted for a process that is not root.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())  # of what is read, whatever the path names a moment later
            allowed = 0o700 if found.st_uid == os.geteuid() else 0o740
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o777 & ~allowed:
                raise ConfigurationError(f"{name} {path}: others may read it; run: chmod 600 {path}")
            return file.read()
    except OSError as problem:
        raise ConfigurationError(f"{name} {path}: cannot be read ({type(problem).__name__}){how}") from None


def password(value: str | None, path: Path | None, setting: str) -> str | None:
    """``value``, else the content of the file without its last line end; None where neither is given.

    ``setting`` is the name of the value's setting; that of the file has ``_file`` behind it. Raises
    ``ConfigurationError`` where both are given, or the file is empty or no UTF-8.
    """
    if path is None:
        return value
    if value is not None:
        raise ConfigurationError(f"{setting} and {setting}_file exclude each other; take one of them away")
    try:
        text = read(path, f"{setting}_file").decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{setting}_file {path}: is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ConfigurationError(f"{setting}_file {path}: is empty")
    return text
