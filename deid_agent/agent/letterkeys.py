"""The pair of keys of the dead letters: the agent seals with the public one, only the private one opens.

A file holds one line that says which of the two it is. Sealing is libsodium's sealed box (X25519,
XSalsa20-Poly1305) with a fresh pair for each letter: who sealed one cannot open it again. What is sealed
is deflated first (zlib, RFC 1950), since no broker can compress it afterwards.
"""

import base64
import binascii
import hashlib
import os
import stat
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey as Scalar
from nacl.public import PublicKey as Point
from nacl.public import SealedBox

from deid_agent.errors import ConfigurationError, LetterError

HOW: Final = "make a pair with: deid-agent letters keygen --out letters.key"
_PRIVATE: Final = "deid-letters-private-1:"
_PUBLIC: Final = "deid-letters-public-1:"
_BYTES: Final = 32
_LONGEST: Final = 4096
K = TypeVar("K", "PublicKey", "PrivateKey")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Seals."""

    raw: bytes

    @property
    def id(self) -> str:
        """8 hex digits that name the pair; they stand in every letter's headers."""
        return hashlib.blake2b(self.raw, person=b"deid-letters", digest_size=4).hexdigest()

    def seal(self, *parts: bytes) -> bytes:
        """The parts, joined, deflated and sealed. 50 MB take about a second: call it from a thread."""
        deflate = zlib.compressobj(1)
        packed = b"".join([*(deflate.compress(part) for part in parts), deflate.flush()])
        return bytes(SealedBox(Point(self.raw)).encrypt(packed))


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """Opens. It belongs where the agent is not."""

    raw: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        return PublicKey(bytes(Scalar(self.raw).public_key))

    @property
    def id(self) -> str:
        return self.public.id

    def open(self, sealed: bytes, most: int) -> bytes:
        """What was sealed. ``LetterError`` where it is damaged, for another pair, or longer than ``most`` bytes."""
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(SealedBox(Scalar(self.raw)).decrypt(sealed), most)
        except (CryptoError, zlib.error):
            raise LetterError(f"it is damaged, or not sealed to key {self.id}") from None
        if inflate.unconsumed_tail:
            raise LetterError(f"it holds more than {most} bytes")
        if not inflate.eof or inflate.unused_data:
            raise LetterError("it is damaged")
        return data


def generate(private: Path) -> PublicKey:
    """Make a pair: ``private`` (mode 0600) and the same name with ``.pub`` behind it.

    Overwrites nothing: ``ConfigurationError`` where either is there or cannot be written.
    """
    key = PrivateKey(bytes(Scalar.generate()))
    public = private.with_name(private.name + ".pub")
    made: list[Path] = []
    try:
        for path, prefix, raw, mode in (
            (public, _PUBLIC, key.public.raw, 0o644),
            (private, _PRIVATE, key.raw, 0o600),
        ):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            made.append(path)
            with open(file, "wb") as sink:  # noqa: PTH123 - a descriptor
                sink.write(f"{prefix}{base64.b64encode(raw).decode()}\n".encode())
                sink.flush()
                os.fsync(file)
    except OSError as problem:
        for path in made:
            path.unlink(missing_ok=True)
        advice = "; it is never overwritten: choose another name" if isinstance(problem, FileExistsError) else ""
        raise ConfigurationError(f"key file {problem.filename}: {problem.strerror}{advice}") from None
    return key.public


def load_public(path: Path) -> PublicKey:
    """The key in a ``.pub`` file. Raises ``ConfigurationError``, also where it holds the private one."""
    text = _read(path, private=False)
    if text.startswith(_PRIVATE):
        raise ConfigurationError(
            f"dead_letters.public_key: {path} holds a private key; name its .pub file, and keep this one elsewhere"
        )
    return _key(PublicKey, text, _PUBLIC, f"dead_letters.public_key: {path}")


def load_private(path: Path) -> PrivateKey:
    """The key in a private file. Raises ``ConfigurationError``, also where others may read it."""
    return private_of(_read(path, private=True), f"private key {path}")


def private_of(text: str, name: str) -> PrivateKey:
    """The key that a private file holds as ``text``; ``name`` is what errors call it, which show nothing of it.

    Raises ``ConfigurationError``.
    """
    if text.startswith(_PUBLIC):
        raise ConfigurationError(f"{name}: this is the public key; name the file without .pub")
    return _key(PrivateKey, text[:_LONGEST].strip(), _PRIVATE, name)


def _read(path: Path, *, private: bool) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LONGEST)
    except OSError as problem:
        raise ConfigurationError(f"key file {path}: cannot be read ({problem.strerror}); {HOW}") from None
    text = data.decode("ascii", "replace").strip()
    if private and text.startswith(_PRIVATE) and stat.S_ISREG(mode) and mode & 0o077:
        raise ConfigurationError(f"private key {path}: others may read it; run: chmod 600 {path}")
    return text


def _key(kind: type[K], text: str, prefix: str, where: str) -> K:
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(prefix) or len(raw) != _BYTES:
        raise ConfigurationError(f"{where}: no key of dead letters; {HOW}")
    return kind(raw)
