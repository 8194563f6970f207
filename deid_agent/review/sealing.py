"""Sealed files: each is encrypted and bound to its folder and its name (AES-256-GCM, NIST SP 800-38D).

A file that was changed, torn, taken from another folder or renamed does not open. Names of files are keyed digests, so
that a folder without its key shows the number of notes, their sizes and the times of decisions, and nothing else.
"""

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deid_agent.agent import sync_folder
from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MOST_SEALED = 64 << 20
"""Bytes of a sealed file."""
PATIENCE_S = 30.0
"""How long a writer waits for another one."""
_MAGIC = b"deid-review 1\n"
_NONCE = 12
_TAG = 16
_BLOCK = 4096
_LOCK = "lock"
_STEP_S = 0.02


class FolderBusyError(ConfigurationError):
    """Another process has held the folder for too long."""


@dataclass(frozen=True, slots=True)
class FileCipher:
    """Seals the files of one folder with keys that are derived from the secret and the id of the folder."""

    folder: str
    _aead: "AESGCM" = field(repr=False)
    _names: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, folder: str) -> "FileCipher":
        """The cipher of the folder with this id."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - other commands start faster

        return cls(folder, AESGCM(_derive(secret, folder, b"seal")), _derive(secret, folder, b"names"))

    def digest(self, *parts: str) -> str:
        """A keyed digest of 20 hex digits; other parts have another one."""
        data = b"".join(
            len(raw).to_bytes(8, "big") + raw for raw in (part.encode("utf-8", "surrogatepass") for part in parts)
        )
        return hashlib.blake2b(data, key=self._names, digest_size=10).hexdigest()

    def seal(self, name: str, data: bytes) -> bytes:
        """The sealed file of this name."""
        nonce = os.urandom(_NONCE)
        return _MAGIC + nonce + self._aead.encrypt(nonce, data, self._bound(name))

    def open(self, name: str, sealed: bytes) -> bytes:
        """The content of a sealed file. Raises ``ValueError`` if it is not the file of this name in this folder."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        begin = len(_MAGIC)
        if not sealed.startswith(_MAGIC) or len(sealed) < begin + _NONCE + _TAG:
            raise ValueError("no sealed file")
        nonce, rest = sealed[begin : begin + _NONCE], sealed[begin + _NONCE :]
        try:
            return self._aead.decrypt(nonce, rest, self._bound(name))
        except InvalidTag:
            raise ValueError("not sealed under this name") from None

    def _bound(self, name: str) -> bytes:
        return f"{self.folder}/{name}".encode()


def fill_block(data: bytes) -> bytes:
    """JSON with white space at its end, so that a sealed file fills blocks of 4,096 bytes.

    The size of a decision would otherwise show how many spans a note has, and that of a short note which one it is to
    a person with the texts. It costs nothing on a disk, which stores blocks.
    """
    more = len(_MAGIC) + _NONCE + _TAG
    return data.ljust(-(-(len(data) + more) // _BLOCK) * _BLOCK - more)


def _derive(secret: bytes, folder: str, use: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), 32, salt=folder.encode(), info=b"deid-agent review " + use).derive(secret)


def read_limited(path: Path) -> bytes:
    """The bytes of a plain file. Raises ``OSError``, and ``ValueError`` for another kind of file or a larger one."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no plain file")
        data = file.read(MOST_SEALED + 1)
    if len(data) > MOST_SEALED:
        raise ValueError("too large")
    return data


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read. It has its name when it is complete and on the disk.

    The caller holds the lock, so that the hidden name is its own. Raises ``OSError``; the old file then remains.
    """
    hidden = path.with_name(f".{path.name}.part")
    try:
        number = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def hold(folder: Path, patience_s: float) -> Iterator[None]:
    """Exclusive use of a folder: by one thread of one process. Raises ``FolderBusyError`` after ``patience_s``."""
    number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise FolderBusyError(f"review folder {folder}: another process is writing it; try again") from None
                time.sleep(_STEP_S)
        yield
    finally:
        os.close(number)
