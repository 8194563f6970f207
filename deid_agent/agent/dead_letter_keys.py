"""The key pair of the dead letters: the agent seals with the public key, and only the private key opens.

A key file holds one line whose prefix names the kind of key. Sealing is a libsodium sealed box (X25519,
XSalsa20-Poly1305) with a fresh key pair for each dead letter, so the process that sealed one cannot open it again. The
content is deflated first (zlib, RFC 1950) because no broker can compress it afterwards.
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

from deid_agent.model import ConfigurationError, DeadLetterError

_KEYGEN_HINT: Final = "create a key pair with: deid-agent dead-letters keygen --out dead-letters.key"
_PRIVATE: Final = "deid-letters-private-1:"
_PUBLIC: Final = "deid-letters-public-1:"
_BYTES: Final = 32
_LONGEST: Final = 4096
K = TypeVar("K", "PublicKey", "PrivateKey")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The key that seals dead letters."""

    raw: bytes

    @property
    def id(self) -> str:
        """8 hexadecimal digits that identify the key pair. Every dead letter carries them in its headers."""
        return hashlib.blake2b(self.raw, person=b"deid-letters", digest_size=4).hexdigest()

    def seal(self, *parts: bytes) -> bytes:
        """Join, deflate and seal the parts. Takes about a second for 50 MB: call it from a thread."""
        deflate = zlib.compressobj(1)
        packed = b"".join([*(deflate.compress(part) for part in parts), deflate.flush()])
        return bytes(SealedBox(Point(self.raw)).encrypt(packed))


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The key that opens dead letters. Keep it off the agent host."""

    raw: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        return PublicKey(bytes(Scalar(self.raw).public_key))

    @property
    def id(self) -> str:
        return self.public.id

    def open(self, sealed: bytes, max_bytes: int) -> bytes:
        """Return the sealed content.

        Raises ``DeadLetterError`` if it is damaged, sealed to another key, or longer than ``max_bytes``.
        """
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(SealedBox(Scalar(self.raw)).decrypt(sealed), max_bytes)
        except (CryptoError, zlib.error):
            raise DeadLetterError(f"it is damaged, or not sealed to key {self.id}") from None
        if inflate.unconsumed_tail:
            raise DeadLetterError(f"it holds more than {max_bytes} bytes")
        if not inflate.eof or inflate.unused_data:
            raise DeadLetterError("it is damaged")
        return data


def generate_keys(private: Path) -> PublicKey:
    """Write a key pair: ``private`` (mode 0600) and ``<private>.pub``; return the public key.

    Never overwrites a file: raises ``ConfigurationError`` if either exists or cannot be written.
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
        advice = (
            "; key files are never overwritten: choose another name" if isinstance(problem, FileExistsError) else ""
        )
        raise ConfigurationError(f"key file {problem.filename}: {problem.strerror}{advice}") from None
    return key.public


def load_public_key(path: Path, setting: str = "dead_letters.public_key") -> PublicKey:
    """Read a ``.pub`` file. Raises ``ConfigurationError`` with ``setting``, also if the file holds a private key."""
    text = _read_key_file(path, private=False)
    if text.startswith(_PRIVATE):
        raise ConfigurationError(
            f"{setting}: {path} holds a private key; name its .pub file, and keep the private key off this host"
        )
    return _decode_key(PublicKey, text, _PUBLIC, f"{setting}: {path}")


def load_private_key(path: Path) -> PrivateKey:
    """Read a private key file. Raises ``ConfigurationError``, also if other users may read the file."""
    return parse_private_key(_read_key_file(path, private=True), f"private key {path}")


def parse_private_key(text: str, name: str) -> PrivateKey:
    """Parse the content of a private key file. ``name`` identifies the key in errors, which never quote ``text``.

    Raises ``ConfigurationError``.
    """
    if text.startswith(_PUBLIC):
        raise ConfigurationError(f"{name}: this is the public key; name the file without .pub")
    return _decode_key(PrivateKey, text[:_LONGEST].strip(), _PRIVATE, name)


def _read_key_file(path: Path, *, private: bool) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LONGEST)
    except OSError as problem:
        raise ConfigurationError(f"key file {path}: cannot be read ({problem.strerror}); {_KEYGEN_HINT}") from None
    text = data.decode("ascii", "replace").strip()
    if private and text.startswith(_PRIVATE) and stat.S_ISREG(mode) and mode & 0o077:
        raise ConfigurationError(f"private key {path}: other users may read it; run: chmod 600 {path}")
    return text


def _decode_key(kind: type[K], text: str, prefix: str, source: str) -> K:
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(prefix) or len(raw) != _BYTES:
        raise ConfigurationError(f"{source}: this is not a dead-letter key; {_KEYGEN_HINT}")
    return kind(raw)
