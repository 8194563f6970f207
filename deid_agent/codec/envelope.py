"""Records that carry a message inside JSON: of Kafka Connect, Debezium, CloudEvents, or of the sender's own making.

An ``Envelope`` names the places of the messages and an action for every other field, as JSON pointers (RFC 6901) in
which ``*`` stands for any member or item. Only listed fields pass: a field without an action refuses the record.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import orjson

from deid_agent.codec.json_ranges import JsonRange, character_ranges, find_string_end, read_ranges
from deid_agent.model import (
    Attachment,
    DateKind,
    Dropped,
    LeafRole,
    MappedText,
    MessageError,
    Narrative,
    PatientIdentifier,
    PhiType,
    PublishedPaths,
    Reason,
    Site,
    decode_base64,
)

Pointer = tuple[str, ...]
ANY = "*"
_DEEPEST = 100
_MOST_BYTES = 64 * 1024 * 1024
"""Bytes of a message after decompression. More are refused before they are made."""
_GZIP = b"\x1f\x8b"
_PATH = re.compile(r"(?:/[^/]*)*")


class PayloadEncoding(StrEnum):
    """How a message is written in its place."""

    TEXT = "text"  # a JSON string, or the JSON value itself (a FHIR resource)
    BASE64 = "base64"  # a JSON string of base64; compressed with gzip or not
    GZIP = "gzip"  # the record itself, compressed


class FieldAction(StrEnum):
    """What becomes of a field of an envelope, and of everything below it."""

    KEEP = "keep"  # as it is, searched for identifiers of the message
    DROP = "drop"  # the member or item is removed
    IDENTIFIER = "identifier"  # a surrogate of the same form
    DATE = "date"  # shifted with the message
    TEXT = "text"  # read like a note


@dataclass(frozen=True, slots=True)
class Envelope:
    """The places of the messages in a record, and the actions of its other fields."""

    payload: tuple[Pointer, ...]
    encoding: PayloadEncoding = PayloadEncoding.TEXT
    fields: Mapping[Pointer, FieldAction] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class EnvelopeMessage:
    """A record around one or more messages; implements ``Message``. The messages are its attachments."""

    raw: bytes = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    narratives: tuple[Narrative, ...] = field(repr=False)
    attachments: tuple[Attachment, ...] = field(repr=False)
    dropped: tuple[Dropped, ...] = ()
    leaves: tuple[Narrative, ...] = field(default=(), repr=False)
    identity: str = field(default="", repr=False)
    patients: tuple[PatientIdentifier, ...] = ()
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as the content of a JSON string."""
        return orjson.dumps(text)[1:-1]


def parse_pointer(text: str) -> Pointer:
    """The tokens of a JSON pointer. Raises ``ValueError`` if it is not empty and does not begin with a slash."""
    if not _PATH.fullmatch(text):
        raise ValueError('write a JSON pointer such as "/payload/after", or "" for the whole record')
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])


@dataclass(frozen=True, slots=True)
class EnvelopeCodec:
    """Implements ``Codec`` for the records of one envelope."""

    envelope: Envelope
    name: str = "envelope"

    def detect(self, raw: bytes) -> bool:  # noqa: ARG002
        """Always False: the settings name the topics whose records have an envelope."""
        return False

    def parse(self, raw: bytes) -> Sequence[EnvelopeMessage]:
        """The record as one message.

        Raises ``MessageError``: MALFORMED for invalid JSON or base64, UNSUPPORTED for a field without an action, for a
        place without a message, and for an action that the form of a value does not allow; RESOURCE past the bounds.
        """
        if self.envelope.encoding is PayloadEncoding.GZIP:
            return [EnvelopeMessage(raw, (), (), (_whole_record(raw),))]
        return [_Reader(self.envelope, raw).read()]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The fields outside of the messages, and the keys that the envelope does not name. Raises as ``parse``."""
        (message,) = self.parse(raw)
        return message.leaves

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """The dropped fields: an envelope lists its fields itself. Raises as ``parse``."""
        (message,) = self.parse(raw)
        return message.dropped


def _whole_record(raw: bytes) -> Attachment:
    return Attachment("", 0, len(raw), "", "gzip", _decompress(raw, ""))


@dataclass(slots=True)
class _Reader:
    """One walk over a record."""

    envelope: Envelope
    raw: bytes = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    slots: list[Attachment] = field(default_factory=list, repr=False)
    dropped: list[Dropped] = field(default_factory=list)
    leaves: list[Narrative] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    found: bool = False

    def read(self) -> EnvelopeMessage:
        try:
            orjson.loads(self.raw)
        except orjson.JSONDecodeError as problem:
            raise MessageError(Reason.MALFORMED, f"byte {problem.pos}", "not JSON, as its envelope expects") from None
        self._value(read_ranges(self.raw), (), None)
        if not self.found:
            raise MessageError(Reason.UNSUPPORTED, "byte 0", "no message at the places that the envelope names")
        return EnvelopeMessage(
            self.raw,
            tuple(self.sites),
            tuple(self.narratives),
            tuple(self.slots),
            tuple(self.dropped),
            tuple(self.leaves),
        )

    def _value(self, node: JsonRange, at: Pointer, action: FieldAction | None) -> None:
        if len(at) > _DEEPEST:
            raise MessageError(Reason.RESOURCE, f"byte {node.start}", "nested too deep")
        if any(_matches(at, pattern) for pattern in self.envelope.payload):
            self._slot(node, at)
            return
        action = self._action(at) or action
        if node.members is not None:
            self._members(node.members, at, action)
        elif node.items is not None:
            self._items(node.items, at, action)
        else:
            self._scalar(node, at, action)

    def _members(self, members: Sequence[tuple[str, int, JsonRange]], at: Pointer, action: FieldAction | None) -> None:
        keys = [key for key, _, _ in members]
        if len(set(keys)) < len(keys):
            raise MessageError(Reason.MALFORMED, f"byte {members[0][1]}", "a key occurs twice in an object")
        places = [(*at, key) for key in keys]
        self._drop([(start, node.end) for _, start, node in members], places)
        for (key, start, node), place in zip(members, places, strict=True):
            if self._action(place) is FieldAction.DROP:
                continue
            if not any(_names(place, pattern) for pattern in (*self.envelope.payload, *self.envelope.fields)):
                self._leaf(key, start + 1, find_string_end(self.raw, start) - 1, place, LeafRole.KEY)
            self._value(node, place, action)

    def _items(self, items: Sequence[JsonRange], at: Pointer, action: FieldAction | None) -> None:
        places = [(*at, str(number)) for number in range(len(items))]
        self._drop([(node.start, node.end) for node in items], places)
        for node, place in zip(items, places, strict=True):
            if self._action(place) is not FieldAction.DROP:
                self._value(node, place, action)

    def _drop(self, ranges: Sequence[tuple[int, int]], places: Sequence[Pointer]) -> None:
        """Note the ranges of dropped members or items, each with one comma."""
        kept = False
        for number, ((start, end), place) in enumerate(zip(ranges, places, strict=True)):
            if self._action(place) is not FieldAction.DROP:
                kept = True
            elif kept:
                self.dropped.append(Dropped(self._path(place), ranges[number - 1][1], end))
            else:
                until = ranges[number + 1][0] if number + 1 < len(ranges) else end
                self.dropped.append(Dropped(self._path(place), start, until))

    def _scalar(self, node: JsonRange, at: Pointer, action: FieldAction | None) -> None:
        token = self.raw[node.start : node.end]
        if token in {b"null", b"true", b"false", b'""'}:
            return
        if action is None:
            detail = 'a field without an action: add it to the "fields" of the envelope'
            raise MessageError(Reason.UNSUPPORTED, f"byte {node.start}", detail)
        text = token[:1] == b'"'
        if action is not FieldAction.KEEP and not text:
            detail = f'a number cannot be replaced as "{action}": keep it or drop it'
            raise MessageError(Reason.UNSUPPORTED, f"byte {node.start}", detail)
        path, start, end = self._path(at), node.start + text, node.end - text
        value = str(orjson.loads(token)) if text else token.decode("ascii")
        leaf = self._leaf(value, start, end, at, LeafRole.TEXT if text else LeafRole.CODE)
        if action is FieldAction.TEXT:
            self.narratives.append(leaf)
        elif action is FieldAction.DATE:
            made = Site(path, start, end, PhiType.DATE, group=path, value=value, date_kind=DateKind.EVENT)
            self.sites.append(made)
        elif action is FieldAction.IDENTIFIER:
            self.sites.append(Site(path, start, end, PhiType.IDNUM, group=path, value=value))

    def _leaf(self, value: str, start: int, end: int, at: Pointer, role: LeafRole) -> Narrative:
        mapped = MappedText(value, *character_ranges(self.raw, start, end, len(value)))
        self.leaves.append(Narrative(self._path(at), mapped, role))
        return self.leaves[-1]

    def _slot(self, node: JsonRange, at: Pointer) -> None:
        """The message at a place. ``null`` is none: Debezium writes it before an insert and after a delete."""
        token, path = self.raw[node.start : node.end], self._path(at)
        self.found = True
        if token == b"null":
            return
        if self.envelope.encoding is PayloadEncoding.TEXT and token[:1] in b"{[":
            self.slots.append(Attachment(path, node.start, node.end, "", "json", token))
            return
        if token[:1] != b'"':
            raise MessageError(Reason.UNSUPPORTED, path, "no message: neither text nor a JSON object")
        text, start, end = str(orjson.loads(token)), node.start + 1, node.end - 1
        if self.envelope.encoding is PayloadEncoding.TEXT:
            data = text.encode("utf-8", "surrogatepass")
            self.slots.append(Attachment(path, start, end, "", "string", data))
            return
        try:
            data, layout = decode_base64(text)
        except ValueError:
            raise MessageError(Reason.MALFORMED, path, "not base64, as its envelope expects") from None
        packed = data.startswith(_GZIP)
        encoding = "base64+gzip" if packed else "base64"
        data = _decompress(data, path) if packed else data
        self.slots.append(Attachment(path, start, end, "", encoding, data, layout=layout))

    def _action(self, at: Pointer) -> FieldAction | None:
        found = self.envelope.fields.get(at)
        if found is not None:
            return found
        return next((act for pattern, act in self.envelope.fields.items() if _matches(at, pattern)), None)

    def _path(self, at: Pointer) -> str:
        """``at`` as a pointer; the parts that the envelope does not name are a star, for a key may be an identifier."""
        patterns = (*self.envelope.payload, *self.envelope.fields)
        known = [any(_names(at[: n + 1], pattern) for pattern in patterns) for n in range(len(at))]
        shown = (token if name or token.isdigit() else ANY for token, name in zip(at, known, strict=True))
        return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in shown)


def _matches(at: Pointer, pattern: Pointer) -> bool:
    return len(at) == len(pattern) and all(one in (ANY, token) for token, one in zip(at, pattern, strict=True))


def _names(at: Pointer, pattern: Pointer) -> bool:
    """True if ``pattern`` leads through ``at`` and gives its last token itself."""
    return len(at) <= len(pattern) and _matches(at, pattern[: len(at)]) and pattern[len(at) - 1] != ANY


def _decompress(data: bytes, path: str) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(data, _MOST_BYTES)
    except zlib.error:
        raise MessageError(Reason.MALFORMED, path, "not gzip, as its envelope expects") from None
    if reader.unconsumed_tail:
        raise MessageError(Reason.RESOURCE, path, f"more than {_MOST_BYTES} bytes after decompression")
    if not reader.eof or reader.unused_data:
        raise MessageError(Reason.MALFORMED, path, "gzip with a cut or a further member")
    return text


def rewrite_string(
    raw: bytes, slot: Attachment, new: str, encode: Callable[[str], bytes]
) -> Iterator[tuple[int, int, bytes]]:
    """The ranges of a JSON string that change, with their new bytes.

    Equal lines, and the equal beginnings and ends of the others, keep their bytes and escapes.
    """
    old = slot.data.decode("utf-8", "surrogatepass")
    starts, ends = character_ranges(raw, slot.start, slot.end, len(old))
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(before) != len(after):
        before, after = [old], [new]
    at = 0
    for one, two in zip(before, after, strict=True):
        if one != two:
            head = _common(one, two)
            tail = _common(one[head:][::-1], two[head:][::-1])
            first, last = at + head, at + len(one) - tail
            start = starts[first] if first < len(old) else slot.end
            yield start, ends[last - 1] if last > first else start, encode(two[head : len(two) - tail])
        at += len(one)


def _common(one: str, two: str) -> int:
    """The number of equal characters at the beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
