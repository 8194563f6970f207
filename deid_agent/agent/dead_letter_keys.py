"""Key pairs of dead letters and of crosswalks: the agent seals with a public key, and only the private key opens.

A key file holds one line whose prefix names the use and the kind of the key, so no key of dead letters opens a
crosswalk. Sealing is a libsodium sealed box (X25519, XSalsa20-Poly1305) with a fresh key pair for each box, so the
process that sealed one cannot open it again. The content is deflated first (zlib, RFC 1950) because no broker can
compress it afterwards.
"""

import base64
import binascii
import hashlib
import os
import stat
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from nacl.bindings import crypto_scalarmult
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey as Scalar
from nacl.public import PublicKey as Point
from nacl.public import SealedBox

from deid_agent.model import ConfigurationError, DeadLetterError

_BYTES: Final = 32
_LONGEST: Final = 4096
K = TypeVar("K", "PublicKey", "PrivateKey")


class KeyUse(StrEnum):
    """The use of a key pair: the word in its key files."""

    DEAD_LETTERS = "letters"
    CROSSWALK = "crosswalk"

    @property
    def private(self) -> str:
        """The begin of a private key file."""
        return f"deid-{self}-private-1:"

    @property
    def public(self) -> str:
        """The begin of a public key file."""
        return f"deid-{self}-public-1:"

    @property
    def noun(self) -> str:
        """A key of this use, in errors."""
        return "dead-letter key" if self is KeyUse.DEAD_LETTERS else "crosswalk key"

    @property
    def hint(self) -> str:
        """How to make a pair, for errors."""
        made = (
            "dead-letters keygen --out dead-letters" if self is KeyUse.DEAD_LETTERS else "crosswalk keygen --out mine"
        )
        return f"create a key pair with: deid-agent {made}.key"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The key that seals."""

    raw: bytes
    use: KeyUse = KeyUse.DEAD_LETTERS

    @property
    def id(self) -> str:
        """8 hexadecimal digits that identify the key pair. Every dead letter carries them in its headers."""
        return hashlib.blake2b(self.raw, person=f"deid-{self.use}".encode(), digest_size=4).hexdigest()

    @property
    def owner(self) -> bytes:
        """Equal for all keys that the same private key opens: a public key can be written in several ways (RFC 7748).

        Raises ``ValueError`` for a key to which nothing can be sealed.
        """
        try:
            return crypto_scalarmult(bytes(_BYTES), self.raw)  # libsodium makes it 2**254, a multiple of the cofactor
        except CryptoError:
            raise ValueError("a point of low order") from None

    def seal(self, *parts: bytes) -> bytes:
        """Join, deflate and seal the parts. Takes about a second for 50 MB: call it from a thread."""
        deflate = zlib.compressobj(1)
        packed = b"".join([*(deflate.compress(part) for part in parts), deflate.flush()])
        return bytes(SealedBox(Point(self.raw)).encrypt(packed))


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The key that opens. Keep it off the agent host."""

    raw: bytes = field(repr=False)
    use: KeyUse = KeyUse.DEAD_LETTERS

    @property
    def public(self) -> PublicKey:
        return PublicKey(bytes(Scalar(self.raw).public_key), self.use)

    @property
    def id(self) -> str:
        return self.public.id

    @property
    def signing_seed(self) -> bytes:
        """32 secret bytes for a signing key of the owner, from which nobody can compute this key."""
        return hashlib.blake2b(key=self.raw, person=b"deid-openings", digest_size=32).digest()

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


def generate_keys(private: Path, use: KeyUse = KeyUse.DEAD_LETTERS) -> PublicKey:
    """Write a key pair: ``private`` (mode 0600) and ``<private>.pub``; return the public key.

    Never overwrites a file: raises ``ConfigurationError`` if either exists or cannot be written.
    """
    key = PrivateKey(bytes(Scalar.generate()), use)
    public = private.with_name(private.name + ".pub")
    made: list[Path] = []
    try:
        for path, prefix, raw, mode in (
            (public, use.public, key.public.raw, 0o644),
            (private, use.private, key.raw, 0o600),
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


def load_public_key(
    path: Path, setting: str = "dead_letters.public_key", use: KeyUse = KeyUse.DEAD_LETTERS
) -> PublicKey:
    """Read a ``.pub`` file. Raises ``ConfigurationError`` with ``setting``, also if the file holds a private key."""
    text = _read_key_file(path, use, private=False)
    if text.startswith(use.private):
        raise ConfigurationError(
            f"{setting}: {path} holds a private key; name its .pub file, and keep the private key off this host"
        )
    key = _decode_key(PublicKey, text, use.public, f"{setting}: {path}", use)
    try:
        key.owner  # noqa: B018 - it raises
    except ValueError:
        raise ConfigurationError(f"{setting}: {path}: nothing can be sealed to this key; {use.hint}") from None
    return key


def load_private_key(path: Path, use: KeyUse = KeyUse.DEAD_LETTERS) -> PrivateKey:
    """Read a private key file. Raises ``ConfigurationError``, also if other users may read the file."""
    return parse_private_key(_read_key_file(path, use, private=True), f"private key {path}", use)


def parse_private_key(text: str, name: str, use: KeyUse = KeyUse.DEAD_LETTERS) -> PrivateKey:
    """Parse the content of a private key file. ``name`` identifies the key in errors, which never quote ``text``.

    Raises ``ConfigurationError``.
    """
    if text.startswith(use.public):
        raise ConfigurationError(f"{name}: this is the public key; name the file without .pub")
    return _decode_key(PrivateKey, text[:_LONGEST].strip(), use.private, name, use)


def _read_key_file(path: Path, use: KeyUse, *, private: bool) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LONGEST)
    except OSError as problem:
        raise ConfigurationError(f"key file {path}: cannot be read ({problem.strerror}); {use.hint}") from None
    text = data.decode("ascii", "replace").strip()
    if private and text.startswith(use.private) and stat.S_ISREG(mode) and mode & 0o077:
        raise ConfigurationError(f"private key {path}: other users may read it; run: chmod 600 {path}")
    return text


def _decode_key(kind: type[K], text: str, prefix: str, source: str, use: KeyUse) -> K:
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(prefix) or len(raw) != _BYTES:
        other = next(
            (each for each in KeyUse if each is not use and text.startswith((each.private, each.public))), None
        )
        found = "" if other is None else f" but a {other.noun}"
        raise ConfigurationError(f"{source}: this is not a {use.noun}{found}; {use.hint}")
    return kind(raw, use)
