"""A trail on disk: its lines, chained and signed, in segments of one folder.

A line is one JSON object. Its last member is ``chain``: SHA-256 (FIPS 180-4) over the chain value of the line
before, as 64 hex digits, and the bytes of this line up to ``,"chain":``. The first line is chained to 64 zeros.
A signature (Ed25519, RFC 8032) covers the bytes of its line up to ``,"signature":``, so a reader reads exactly the
signed bytes. The entries are also the leaves of a Merkle tree, whose root each signed statement contains.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

import orjson
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from deid_agent.agent import AuditEntry
from deid_agent.audit.merkle import Frontier

FORMAT = 2
"""Format of the lines that are written."""
CROSSWALK_VERSION = 1
"""The version of the lines of a crosswalk."""
CHAINED_FORMAT = 1
"""The former format: one signing key, no tree. Such segments are read, and never continued."""

START = b"0" * 64
"""The chain value before the first line of a trail."""

TAIL = len(b',"chain":"' + START + b'"}\n')
"""Number of bytes at the end of a line that its own chain value does not cover."""

_SIGNATURE = b',"signature":"'


class LineKind(StrEnum):
    """The kind of a line, which is its first member."""

    SEGMENT = "segment"
    ENTRY = "entry"
    CROSSWALK = "crosswalk"
    """The sealed pairs of a record; in a trail of their own."""
    OPENING = "opening"
    """The opening of a crosswalk by a custodian; in a trail of that custodian."""
    CHECKPOINT = "checkpoint"
    KEY = "key"
    """The last statement of an epoch: a checkpoint that also names the key of the next one."""
    HEAD = "head"
    """Only in ``head.json``, so that no checkpoint of the trail can be presented as a head."""


ENTRY_KINDS = (LineKind.ENTRY, LineKind.CROSSWALK, LineKind.OPENING)
"""The kinds of lines that a trail is written for. All entries of one trail have one kind."""

TRAIL_NAMES = {LineKind.ENTRY: "audit", LineKind.CROSSWALK: "crosswalk", LineKind.OPENING: "openings"}
"""The trail of each kind of entry, in errors."""


@dataclass(frozen=True, slots=True)
class CrosswalkEntry:
    """The pairs of one record. ``sealed`` are the members ``codes`` and ``sealed``, as the worker wrote them."""

    project: str
    generation: int
    record: str
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpeningEntry:
    """One step of the opening of a crosswalk. It names no code and no original.

    ``request`` is the SHA-256 of the sorted codes, ``input`` that of the half-opened file that was read, ``output``
    that of the file that was written. They connect the trails of two custodians.
    """

    step: int
    of: int
    key: str
    reason: str
    request: str
    codes: int
    found: int
    records: int
    verified: bool
    projects: tuple[str, ...] = ()
    crosswalks: tuple[str, ...] = ()
    input: str = ""
    output: str = ""


TrailItem = AuditEntry | CrosswalkEntry | OpeningEntry


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """A position in a trail: the lines before it, the chain value of the last of them, and the tree of the entries."""

    lines: int = 0
    chain: bytes = START
    tree: Frontier = Frontier()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class TrailOrigin:
    """The trail (the digest of its first public key), the agent that writes it, and the epoch of its signing key."""

    trail: str
    agent: str
    epoch: int = 0


class Signer:
    """Signs for one agent. ``seed`` is 32 secret bytes; ``public`` is the public key in hex."""

    def __init__(self, seed: bytes) -> None:
        self._key = SigningKey(seed)
        self.public = self._key.verify_key.encode().hex()

    def __repr__(self) -> str:
        return f"Signer({self.public})"

    def sign(self, body: bytes) -> bytes:
        """``body`` (an object without its closing brace) and the signature over it."""
        return b'%s%s%s"' % (body, _SIGNATURE, self._key.sign(body).signature.hex().encode())


def is_signed(body: bytes, public: str) -> bool:
    """True if ``body`` has the form that ``Signer.sign`` makes, is signed by the key ``public`` (hex), and ends there.

    Nothing may follow the signature: a second member ``lines`` there would be read without being signed.
    """
    signed, _, rest = body.partition(_SIGNATURE)
    if len(rest) != 129 or rest[128:] != b'"':
        return False
    try:
        VerifyKey(bytes.fromhex(public)).verify(signed, bytes.fromhex(rest[:128].decode("ascii")))
    except (BadSignatureError, ValueError, TypeError):
        return False
    return True


def is_public_key(text: str) -> bool:
    """True for 32 bytes in hex."""
    try:
        return len(bytes.fromhex(text)) == 32 and len(text) == 64
    except ValueError:
        return False


def chain_value(before: bytes, body: bytes) -> bytes:
    """The chain value of a line, as 64 hex digits."""
    return hashlib.sha256(before + body).hexdigest().encode()


def line_end(chain: bytes) -> bytes:
    """The end of a line with this chain value."""
    return b',"chain":"%s"}\n' % chain


def line_prefix(kind: LineKind) -> bytes:
    """The first bytes of a line of this kind."""
    return b'{"kind":"%s",' % kind.encode()


def encode_entry(entry: AuditEntry, build: str, at: float) -> bytes:
    """The line of one record. ``build`` is the id of the build in the segment's first line; ``at`` is Unix time."""
    fields: dict[str, object] = {
        "kind": LineKind.ENTRY,
        "time": round(at, 3),
        "topic": entry.coordinates.topic,
        "partition": entry.coordinates.partition,
        "offset": entry.coordinates.offset,
        **({"topic_id": entry.topic_id} if entry.topic_id else {}),
        **({"project": entry.project} if entry.project else {}),
        "outcome": entry.outcome,
    }
    if entry.id:
        fields["deid_id"] = entry.id
    for name, value in (
        ("client", entry.client),
        ("reason", entry.reason),
        ("where", entry.where),
        ("stage", entry.stage),
        ("input_digest", entry.input_digest),
        ("output_sha256", entry.output_digest),
    ):
        if value:
            fields[name] = value
    if entry.attempts > 1:
        fields["attempts"] = entry.attempts
    if entry.replay_of is not None:
        fields["replay_of"] = str(entry.replay_of)
    fields["build"] = build
    remarks = entry.remarks if b"\n" not in entry.remarks else b"[]"
    return orjson.dumps(fields)[:-1] + b',"remarks":' + remarks


def encode_item(item: TrailItem, build: str, at: float) -> bytes:
    """The line of one entry of any kind of trail. Raises ``ValueError`` for sealed pairs that are not one line."""
    if isinstance(item, AuditEntry):
        return encode_entry(item, build, at)
    if isinstance(item, OpeningEntry):
        fields = {"kind": LineKind.OPENING, "time": round(at, 3), **asdict(item), "build": build}
        return orjson.dumps(fields)[:-1]
    if b"\n" in item.sealed:
        raise ValueError("sealed pairs with a line feed")
    fields = {
        "kind": LineKind.CROSSWALK,
        "v": CROSSWALK_VERSION,
        "project": item.project,
        "generation": item.generation,
        "record": item.record,
    }
    return orjson.dumps(fields)[:-1] + b"," + item.sealed


def build_id(build: Mapping[str, object]) -> str:
    """A short name for versions and digests, which every entry has."""
    return hashlib.sha256(orjson.dumps(dict(build), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def encode_segment(
    number: int,
    before: ChainPosition,
    origin: TrailOrigin,
    key: str,
    identity: Signer,
    build: Mapping[str, object],
    at: float,
) -> bytes:
    """The first line of a segment, signed by the agent's ``identity``: its position, the public key that signs it, and
    the build that made its records.
    """
    fields = {
        "kind": LineKind.SEGMENT,
        "time": round(at, 3),
        "format": FORMAT,
        "segment": number,
        "lines": before.lines,
        "previous": before.chain.decode(),
        "trail": origin.trail,
        "agent": origin.agent,
        "epoch": origin.epoch,
        "public_key": key,
        "size": before.tree.size,
        "peaks": [peak.hex() for peak in before.tree.peaks],
        "build": {"id": build_id(build), **build},
        "identity": identity.public,
    }
    return identity.sign(orjson.dumps(fields)[:-1])


def encode_statement(kind: LineKind, place: ChainPosition, origin: TrailOrigin, at: float, next_key: str = "") -> bytes:
    """The statement that a checkpoint, a change of key and ``head.json`` sign: everything before ``place``."""
    fields: dict[str, object] = {
        "kind": kind,
        "time": round(at, 3),
        "trail": origin.trail,
        "agent": origin.agent,
        "epoch": origin.epoch,
        "lines": place.lines,
        "head": place.chain.decode(),
        "size": place.tree.size,
        "root": place.tree.root.hex(),
    }
    if next_key:
        fields["public_key"] = next_key
    return orjson.dumps(fields)[:-1]


def trail_id(first_key: str) -> str:
    """The id of a trail: a digest of the public key (hex) of its first epoch, so no other trail can have it."""
    return hashlib.sha256(bytes.fromhex(first_key)).hexdigest()[:32]


# The folder of a trail holds its segments by number, its newest signed head, and the lock.
# The functions block, so call them in a thread. They raise ``OSError`` unless their documentation names another error.

HEAD = "head.json"
_SEGMENT = re.compile(r"([0-9]{8})\.jsonl", re.ASCII)


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"{number:08}.jsonl"


def segment_files(folder: Path) -> Mapping[int, Path]:
    """The existing segments by number, in ascending order."""
    found = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def read_head(folder: Path) -> bytes | None:
    """The content of ``head.json``; None if it is missing."""
    try:
        return (folder / HEAD).read_bytes()
    except FileNotFoundError:
        return None


def write_head(folder: Path, line: bytes) -> None:
    """Replace ``head.json`` atomically: after a power failure it is the old one or the new one."""
    replace_file(folder / HEAD, line)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically. The new name is durable once its folder is synced."""
    hidden = path.with_name(f"{path.name}.tmp")
    file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    hidden.replace(path)


def write_all(file: int, data: bytes) -> None:
    """Write all of ``data``; ``os.write`` may write less at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
