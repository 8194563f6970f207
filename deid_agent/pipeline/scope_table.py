"""The file of a scope table: the scope of each known alias of a patient, sealed under the secret key.

After a header follow entries of one size, sorted by their first 16 bytes: the keyed digest of an alias. The rest of an
entry is the scope, encrypted and bound to the digest and to the content of the table (XChaCha20-Poly1305): a running
worker refuses entries of another table that was written into its file. The last 32 bytes are a keyed digest of all
before. Without the key a file shows how many aliases it has, and no alias, no scope, and not which belong together.
The same content and key give the same bytes. An open file is mapped into memory, so that workers share it.
"""

import hashlib
import hmac
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, UnsafeError

if TYPE_CHECKING:
    from nacl.secret import Aead

VERSION: Final = 1
"""Counts up if the format or the form of aliases changes."""
MOST_SCOPE: Final = 511
"""Bytes of a scope."""
_MAGIC: Final = b"deid-scope-table\n"
_NAME, _SEAL, _MAC = 16, 40, 32
_LONGEST_HEADER = 1 << 20
_STEP = 16
_SHORTEST = 32
_CHANGED = "changed after it was made, or torn: make it again"


@dataclass(frozen=True, slots=True)
class ScopeCipher:
    """Digests aliases, and encrypts scopes, with keys of their own."""

    secret: bytes = field(repr=False)
    _name: bytes = field(init=False, repr=False)
    _aead: "Aead" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from nacl.secret import Aead  # noqa: PLC0415 - a command without a scope table starts faster

        object.__setattr__(self, "_name", self._derive(b"deid-scope-name"))
        object.__setattr__(self, "_aead", Aead(self._derive(b"deid-scope-seal")))

    def _derive(self, use: bytes) -> bytes:
        return hashlib.blake2b(self.secret, person=use, digest_size=32).digest()

    def name(self, alias: str) -> bytes:
        """The digest of an alias."""
        data = alias.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._name, digest_size=_NAME).digest()

    def seal(self, bound: bytes, text: bytes) -> bytes:
        """``text`` encrypted and bound to ``bound``. The nonce depends on both: it never repeats for another text."""
        size = len(bound).to_bytes(4, "big")
        nonce = hashlib.blake2b(
            size + bound + text, key=self._name, person=b"deid-scope-nonce", digest_size=24
        ).digest()
        return bytes(self._aead.encrypt(text, bound, nonce))

    def open(self, bound: bytes, sealed: bytes) -> bytes:
        """The text. Raises ``ValueError`` if it is not bound to ``bound``."""
        from nacl.exceptions import CryptoError  # noqa: PLC0415

        try:
            return bytes(self._aead.decrypt(sealed, bound))
        except CryptoError:
            raise ValueError("not sealed with this key") from None

    def digest(self, *parts: bytes | memoryview | mmap.mmap) -> bytes:
        """The keyed digest of a file."""
        made = hashlib.blake2b(key=self._derive(b"deid-scope-file"), digest_size=_MAC)
        for part in parts:
            made.update(part)
        return made.digest()


@dataclass(frozen=True, slots=True)
class TableHead:
    """What a table was made with. ``rule`` is the keyed digest of the choice; ``sources`` are declared and sealed."""

    key: str
    rule: str
    sources: Sequence[Mapping[str, object]] = field(default=(), repr=False)
    persons: int = 0
    merges: int = 0


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """An open table. ``identity`` identifies its content; it is a keyed digest."""

    head: TableHead
    identity: str
    aliases: int
    _cipher: ScopeCipher = field(repr=False)
    _data: mmap.mmap = field(repr=False)
    _content: bytes = field(repr=False)
    _first: int = field(repr=False)
    _size: int = field(repr=False)

    def find(self, alias: str) -> str | None:
        """The scope of an alias; None if it is not listed. Raises ``UnsafeError`` if the file was changed meanwhile."""
        name = self._cipher.name(alias)
        data, first, size = self._data, self._first, self._size
        low, high = 0, self.aliases
        while low < high:
            middle = (low + high) // 2
            at = first + middle * size
            if data[at : at + _NAME] < name:
                low = middle + 1
            else:
                high = middle
        at = first + low * size
        if low == self.aliases or data[at : at + _NAME] != name:
            return None
        return self._open(name, data[at + _NAME : at + size])

    def entries(self) -> Iterator[tuple[bytes, str]]:
        """The digest and the scope of each alias."""
        for at in range(self._first, self._first + self.aliases * self._size, self._size):
            name = self._data[at : at + _NAME]
            yield name, self._open(name, self._data[at + _NAME : at + self._size])

    def _open(self, name: bytes, sealed: bytes) -> str:
        try:
            return self._cipher.open(self._content + name, sealed).rstrip(b"\0").decode()
        except ValueError:
            raise UnsafeError("the scope table was changed while it was in use: start again") from None


def open_table(path: Path, key: SecretKey) -> ScopeTable:
    """The table of a file, of which every byte was checked.

    Raises ``ConfigurationError`` if the file is missing, damaged, of another version or made with another key.
    """
    origin = f"scope table {path}"
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as problem:
        kind = "is empty" if isinstance(problem, ValueError) else f"cannot be read ({type(problem).__name__})"
        raise ConfigurationError(f"{origin}: {kind}; make it with: deid-agent batch identities build") from None
    begin = len(_MAGIC) + 4
    length = int.from_bytes(data[len(_MAGIC) : begin], "big")
    if data[: len(_MAGIC)] != _MAGIC:
        raise ConfigurationError(f"{origin}: is no scope table; make one with: deid-agent batch identities build")
    try:
        if not 0 < length <= _LONGEST_HEADER:
            raise ValueError
        head = orjson.loads(data[begin : begin + length])
        version, key_id, aliases, slot = head["version"], head["key"], head["aliases"], head["slot"]
        content = bytes.fromhex(head["content"])
        if type(aliases) is not int or type(slot) is not int or aliases < 0 or not 0 < slot <= MOST_SCOPE + 1:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{origin}: {_CHANGED}") from None
    if version != VERSION:
        raise ConfigurationError(f"{origin}: has version {version}, and this program reads {VERSION}: make it again")
    if key_id != key.id:
        raise ConfigurationError(f"{origin}: made with another key than {key.id}: set its key, or make it again")
    first, size = begin + length, _NAME + _SEAL + slot
    cipher = ScopeCipher(key.secret)
    end = first + aliases * size
    with memoryview(data) as whole:
        if len(data) != end + _MAC or not hmac.compare_digest(cipher.digest(whole[:end]), data[end:]):
            raise ConfigurationError(f"{origin}: {_CHANGED}")
    sources = orjson.loads(cipher.open(b"sources", bytes.fromhex(head["sources"])))
    made = TableHead(key_id, head["rule"], sources, head["persons"], head["merges"])
    return ScopeTable(made, data[end:].hex()[:16], aliases, cipher, data, content, first, size)


def write_table(path: Path, head: TableHead, entries: Mapping[bytes, str], cipher: ScopeCipher) -> str:
    """Write a table in place of the one at ``path``, if there is one, and return its identity.

    The file appears under its name when it is complete and on the disk.
    """
    longest = max(_SHORTEST, *(len(scope.encode()) for scope in entries.values()))
    slot = -(-longest // _STEP) * _STEP
    names = sorted(entries)
    content = cipher.digest(*(name + entries[name].encode() + b"\0" for name in names))
    header = orjson.dumps(
        {
            "version": VERSION,
            "key": head.key,
            "rule": head.rule,
            "persons": head.persons,
            "merges": head.merges,
            "aliases": len(entries),
            "slot": slot,
            "content": content.hex(),
            "sources": cipher.seal(b"sources", orjson.dumps(list(head.sources))).hex(),
        }
    )
    begin = _MAGIC + len(header).to_bytes(4, "big") + header
    body = bytearray()
    for name in names:
        body += name + cipher.seal(content + name, entries[name].encode().ljust(slot, b"\0"))
    mac = cipher.digest(begin, memoryview(body))
    # One name, so that a build replaces the remains of a killed one. The caller keeps other builds out of the folder.
    temporary = path.with_name(f".{path.name}.unfinished")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            os.fchmod(out.fileno(), 0o600)
            for part in (begin, body, mac):
                out.write(part)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return mac.hex()[:16]
