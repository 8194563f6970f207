"""The lines of the trail: what stands in each, how they are chained and what is signed. Pure.

A line is one JSON object. Its last member is ``chain``: SHA-256 (FIPS 180-4) over the chain value of the line
before, as 64 hex digits, and the bytes of this line up to ``,"chain":``. Before the first line stand 64 zeros.
A signature (Ed25519, RFC 8032) covers the bytes of its line up to ``,"signature":``, so what is signed is what
is read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from deid_agent.agent.audit import Entry

FORMAT = 1
"""Of the lines; a reader refuses a segment of another one."""

START = b"0" * 64
"""What the first line of a trail is chained to."""

TAIL = len(b',"chain":"' + START + b'"}\n')
"""Bytes at the end of a line that its own chain value does not cover."""

_SIGNATURE = b',"signature":"'


class Kind(StrEnum):
    """What a line is; the first member of each."""

    SEGMENT = "segment"
    ENTRY = "entry"
    CHECKPOINT = "checkpoint"
    HEAD = "head"
    """Stands in ``head.json`` alone, so that no checkpoint of the trail can be passed off as one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a trail: how many lines stand before it, and the chain value of the last of them."""

    lines: int = 0
    chain: bytes = START


class Signer:
    """Signs for one agent. ``seed`` is 32 secret bytes; ``public`` is the key that others verify with, in hex."""

    def __init__(self, seed: bytes) -> None:
        self._key = SigningKey(seed)
        self.public = self._key.verify_key.encode().hex()

    def __repr__(self) -> str:
        return f"Signer({self.public})"

    def signed(self, body: bytes) -> bytes:
        """``body`` (an object without its closing brace) and the signature over it."""
        return b'%s%s%s"' % (body, _SIGNATURE, self._key.sign(body).signature.hex().encode())


def is_signed(body: bytes, public: str) -> bool:
    """True where ``body`` is as ``Signer.signed`` makes it, by the key ``public`` (hex), and ends with the signature.

    Nothing may stand behind the signature: a second ``lines`` there would be read and not be signed.
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


def chain_of(before: bytes, body: bytes) -> bytes:
    """The chain value of a line, as 64 hex digits."""
    return hashlib.sha256(before + body).hexdigest().encode()


def tail_of(chain: bytes) -> bytes:
    """How a line with this chain value ends."""
    return b',"chain":"%s"}\n' % chain


def start_of(kind: Kind) -> bytes:
    """How a line of this kind begins."""
    return b'{"kind":"%s",' % kind.encode()


def entry_body(entry: Entry, build: str, at: float) -> bytes:
    """One record. ``build`` is the id of what the segment says of program and configuration; ``at`` is seconds."""
    fields: dict[str, object] = {
        "kind": Kind.ENTRY,
        "time": round(at, 3),
        "topic": entry.coordinates.topic,
        "partition": entry.coordinates.partition,
        "offset": entry.coordinates.offset,
        "outcome": entry.outcome,
    }
    for name in ("reason", "where", "stage", "input_digest", "output_digest"):
        if value := getattr(entry, name):
            fields[name] = value
    if entry.attempts > 1:
        fields["attempts"] = entry.attempts
    if entry.replay_of is not None:
        fields["replay_of"] = str(entry.replay_of)
    fields["build"] = build
    remarks = entry.remarks if b"\n" not in entry.remarks else b"[]"
    return orjson.dumps(fields)[:-1] + b',"remarks":' + remarks


def build_id(build: Mapping[str, str]) -> str:
    """One short name for versions and digests; every entry holds it."""
    return hashlib.sha256(orjson.dumps(dict(build), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def segment_body(number: int, before: Place, public: str, build: Mapping[str, str], at: float) -> bytes:
    """The first line of a segment: what it follows, who signs, and under what its records were made."""
    return orjson.dumps(
        {
            "kind": Kind.SEGMENT,
            "time": round(at, 3),
            "format": FORMAT,
            "segment": number,
            "lines": before.lines,
            "previous": before.chain.decode(),
            "public_key": public,
            "build": {"id": build_id(build), **build},
        }
    )[:-1]


def statement(kind: Kind, place: Place, at: float) -> bytes:
    """What is signed, in a checkpoint of the trail and in ``head.json``: so many lines, this chain value."""
    fields = {"kind": kind, "time": round(at, 3), "lines": place.lines, "head": place.chain.decode()}
    return orjson.dumps(fields)[:-1]
