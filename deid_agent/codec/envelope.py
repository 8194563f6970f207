"""Records that carry a message inside JSON: of Kafka Connect, Debezium, CloudEvents, or of the sender's own making.

An ``Envelope`` names the places of the messages and an action for every other field, as JSON pointers (RFC 6901) in
which ``*`` stands for any member or item. Only listed fields pass: a field without an action refuses the record.
"""

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from deid_agent.codec.json_ranges import JsonRange, character_ranges, find_string_end, read_ranges
from deid_agent.model import (
    Attachment,
    DateKind,
    Dropped,
    FieldAction,
    LeafRole,
    MappedText,
    MessageError,
    Narrative,
    PatientIdentifier,
    PayloadEncoding,
    PhiType,
    Place,
    Pointer,
    PublishedPaths,
    Reason,
    Site,
    build_places,
    decode_base64,
)
from deid_agent.schemas import Kind, Node

if TYPE_CHECKING:
    from deid_agent.schemas import RecordFormats

_DEEPEST = 100
_MOST_VALUES = 250_000
"""Values outside of the messages."""
_MOST_BYTES = 64 * 1024 * 1024
"""Bytes of the messages of a record after decompression. More are refused before they are made."""
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """The places of the messages in a record, and the actions of its other fields.

    With ``inside`` a message is a record of its own. ``registered`` records begin with the id of a schema, which
    ``formats`` reads; ``output_subject`` is the subject whose id the output gets.
    """

    payload: tuple[Pointer, ...]
    encoding: PayloadEncoding = PayloadEncoding.TEXT
    fields: Mapping[Pointer, FieldAction] = field(default_factory=lambda: MappingProxyType({}))
    inside: "Envelope | None" = None
    registered: bool = False
    output_subject: str = ""
    formats: "RecordFormats | None" = field(default=None, compare=False, repr=False)
    root: Place = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kept = {pointer for pointer, action in self.fields.items() if action is not FieldAction.DROP}
        object.__setattr__(self, "root", build_places(self.fields, kept, self.payload))


@dataclass(frozen=True, slots=True)
class EnvelopeMessage:
    """A record around one or more messages; implements ``Message``. The messages are its attachments.

    ``nearest`` is the message of a field: the first one in the smallest object or list around it that has any, as a
    number of ``attachments``, by the first byte of the site or narrative.
    """

    raw: bytes = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    narratives: tuple[Narrative, ...] = field(repr=False)
    attachments: tuple[Attachment, ...] = field(repr=False)
    dropped: tuple[Dropped, ...] = ()
    leaves: tuple[Narrative, ...] = field(default=(), repr=False)
    nearest: Mapping[int, int] = field(default_factory=dict)
    identity: str = field(default="", repr=False)
    patients: tuple[PatientIdentifier, ...] = ()
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as the content of a JSON string."""
        return orjson.dumps(text)[1:-1]


@dataclass(frozen=True, slots=True)
class EnvelopeCodec:
    """Implements ``Codec`` for the records of one envelope.

    ``guide`` is the tree of a binary record that is read as JSON (``framed``). The text begins at byte ``shift`` of the
    record.
    """

    envelope: Envelope
    guide: Node | None = field(default=None, repr=False)
    shift: int = 0
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
        return [_Reader(self.envelope, raw, self.guide, self.shift).read()]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The fields outside of the messages, and the keys that the envelope does not name. Raises as ``parse``."""
        (message,) = self.parse(raw)
        return message.leaves

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """The dropped fields: an envelope lists its fields itself. Raises as ``parse``."""
        (message,) = self.parse(raw)
        return message.dropped


def _whole_record(raw: bytes) -> Attachment:
    data = _decompress(raw, "byte 0", _MOST_BYTES)
    return Attachment("", 0, len(raw), "", "gzip", data, labelled=_is_labelled(raw))


def _is_labelled(packed: bytes) -> bool:
    """True if the header of gzip data holds a file name, a comment or extra bytes, which nothing reads."""
    return packed[3:4] not in {b"\0", b"\1"}


@dataclass(slots=True)
class _Reader:
    """One walk over a record."""

    envelope: Envelope
    raw: bytes = field(repr=False)
    guide: Node | None = field(repr=False)
    shift: int
    sites: list[Site] = field(default_factory=list, repr=False)
    slots: list[Attachment] = field(default_factory=list, repr=False)
    dropped: list[Dropped] = field(default_factory=list)
    leaves: list[Narrative] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    nearest: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """The fields without a nearest message so far."""
    found: bool = False
    values: int = 0
    room: int = field(default_factory=lambda: _MOST_BYTES)

    def read(self) -> EnvelopeMessage:
        try:
            orjson.loads(self.raw.removeprefix(_BOM))
        except orjson.JSONDecodeError as problem:
            at = len(problem.doc[: problem.pos].encode())
            detail = "not one JSON text, as its envelope expects"
            raise MessageError(Reason.MALFORMED, f"byte {self.shift + at}", detail) from None
        self._value(read_ranges(self.raw), self.envelope.root, None, self.guide)
        if not self.found:
            raise MessageError(Reason.UNSUPPORTED, "byte 0", "no message at the places that the envelope names")
        return EnvelopeMessage(
            self.raw,
            tuple(self.sites),
            tuple(self.narratives),
            tuple(self.slots),
            tuple(self.dropped),
            tuple(self.leaves),
            self.nearest,
            hashlib.sha256(self.raw).hexdigest(),
        )

    def _at(self, node: JsonRange, at: Place) -> str:
        """The place of a fault: a byte of a JSON record, the path of a binary one, with the names of its schema."""
        return f"byte {self.shift + node.start}" if self.guide is None else at.path or "/"

    def _value(self, node: JsonRange, at: Place, inherited: FieldAction | None, guide: Node | None) -> None:
        if at.depth > _DEEPEST:
            raise MessageError(Reason.RESOURCE, self._at(node, at), "nested too deep")
        self.values += 1
        if self.values + len(node.members or node.items or ()) > _MOST_VALUES:
            detail = f"more than {_MOST_VALUES} values around messages"
            raise MessageError(Reason.RESOURCE, self._at(node, at), detail)
        if at.pointer in self.envelope.payload:
            self._slot(node, at, guide)
            return
        action = self._action(at, inherited)
        if action is None and not self._is_around(node, at):
            detail = 'a field without an action: add it to the "fields" of the envelope'
            raise MessageError(Reason.UNSUPPORTED, self._at(node, at), detail)
        if node.is_scalar:
            self._scalar(node, at, action, guide)
            return
        # An empty list of messages is a record without messages.
        self.found = self.found or (not (node.members or node.items) and at.has_messages)
        fields, message = len(self.waiting), len(self.slots)
        if node.members is not None:
            self._members(node.members, at, action, guide)
        self._items(node.items or (), at, action, guide)
        if len(self.slots) > message:
            self.nearest |= dict.fromkeys(self.waiting[fields:], message)
            del self.waiting[fields:]

    def _is_around(self, node: JsonRange, at: Place) -> bool:
        """True if places of the envelope are inside the value, or would be if it were not null."""
        hollow = not node.is_scalar or self.raw[node.start : node.end] == b"null"
        return hollow and at.is_above

    def _members(
        self,
        members: Sequence[tuple[str, int, JsonRange]],
        at: Place,
        action: FieldAction | None,
        guide: Node | None,
    ) -> None:
        if len({key for key, _, _ in members}) < len(members):
            where = self._at(JsonRange(members[0][1]), at)
            raise MessageError(Reason.MALFORMED, where, "a key occurs twice in an object")
        guides = dict(guide.members) if guide is not None else {}
        # The names of a schema are no data of the sender; the keys of a map are.
        places = [at.step(key, shown=guide is not None and guide.kind is Kind.RECORD) for key, _, _ in members]
        gone = [self._is_dropped(node, place, action) for (_, _, node), place in zip(members, places, strict=True)]
        self._remove([(start, node.end) for _, start, node in members], places, gone)
        for (key, start, node), place, dropped in zip(members, places, gone, strict=True):
            if not dropped:
                if not place.named:
                    self._leaf(key, start + 1, find_string_end(self.raw, start) - 1, place, LeafRole.KEY)
                self._value(node, place, action, guides.get(key))

    def _items(self, items: Sequence[JsonRange], at: Place, action: FieldAction | None, guide: Node | None) -> None:
        places = [at.step(number) for number in range(len(items))]
        gone = [self._is_dropped(node, place, action) for node, place in zip(items, places, strict=True)]
        if all(gone):
            self._remove([(node.start, node.end) for node in items], places, gone)
            return
        for number, (node, place, dropped) in enumerate(zip(items, places, gone, strict=True)):
            if dropped:
                self.dropped.append(Dropped(place.path, node.start, node.end, b"null"))
            else:
                self._value(node, place, action, guide.items[number] if guide is not None else None)

    def _is_dropped(self, node: JsonRange, at: Place, inherited: FieldAction | None) -> bool:
        """True if nothing of a value is published. An object around a longer place that is published remains."""
        if at.pointer in self.envelope.payload or self._action(at, inherited) is not FieldAction.DROP:
            return False
        return node.is_scalar or not at.leads_on

    def _remove(self, ranges: Sequence[tuple[int, int]], places: Sequence[Place], gone: Sequence[bool]) -> None:
        """Note the ranges of dropped members or items, each with one comma."""
        kept = False
        for number, ((start, end), place, dropped) in enumerate(zip(ranges, places, gone, strict=True)):
            if not dropped:
                kept = True
            elif kept:
                self.dropped.append(Dropped(place.path, ranges[number - 1][1], end))
            else:
                until = ranges[number + 1][0] if number + 1 < len(ranges) else end
                self.dropped.append(Dropped(place.path, start, until))

    def _scalar(self, node: JsonRange, at: Place, action: FieldAction | None, guide: Node | None) -> None:
        token = self.raw[node.start : node.end]
        self.found = self.found or (token == b"null" and at.leads_to_message)
        if token in {b"null", b"true", b"false", b'""'}:
            return
        text = token[:1] == b'"'
        code = guide is not None and guide.kind is Kind.CODE
        if action is not FieldAction.KEEP and (code or not text):
            detail = f'a {"code" if code else "number"} cannot be replaced as "{action}": keep it or drop it'
            raise MessageError(Reason.UNSUPPORTED, self._at(node, at), detail)
        # Kept bytes may be a format of their own, which a replacement would destroy: a hit in them refuses the record.
        fixed = code or not text or (guide is not None and guide.kind is Kind.BYTES and action is FieldAction.KEEP)
        path, start, end = at.path, node.start + text, node.end - text
        value = str(orjson.loads(token)) if text else token.decode("ascii")
        if not text and (whole := _WHOLE.fullmatch(value)):  # 4471902.0 is the identifier 4471902
            value, end = whole[1], start + len(whole[1])
        leaf = self._leaf(value, start, end, at, LeafRole.KEY if fixed else LeafRole.TEXT)
        self.waiting.append(start)
        if action is FieldAction.TEXT:
            self.narratives.append(leaf)
        elif action is FieldAction.DATE:
            made = Site(path, start, end, PhiType.DATE, group=path, value=value, date_kind=DateKind.EVENT)
            self.sites.append(made)
        elif action is FieldAction.IDENTIFIER:
            self.sites.append(Site(path, start, end, PhiType.IDNUM, group=path, value=value))

    def _leaf(self, value: str, start: int, end: int, at: Place, role: LeafRole) -> Narrative:
        mapped = MappedText(value, *character_ranges(self.raw, start, end, len(value)))
        self.leaves.append(Narrative(at.path, mapped, role))
        return self.leaves[-1]

    def _slot(self, node: JsonRange, at: Place, guide: Node | None) -> None:
        """The message at a place. ``null`` is none: Debezium writes it before an insert and after a delete."""
        token, path = self.raw[node.start : node.end], at.path
        self.found = True
        if token == b"null":
            return
        if token[:1] == b"[":
            raise MessageError(Reason.UNSUPPORTED, path, f"a list of messages: name its items, {path}/*")
        is_text = self.envelope.encoding is PayloadEncoding.TEXT
        if is_text and token[:1] == b"{" and guide is None:
            self.slots.append(Attachment(path, node.start, node.end, "", "json", token))
            return
        if token[:1] != b'"':
            form = "text nor bytes" if guide is not None else "text nor a JSON object" if is_text else "text nor null"
            raise MessageError(Reason.UNSUPPORTED, path, f"no message: neither {form}")
        text, start, end = str(orjson.loads(token)), node.start + 1, node.end - 1
        is_bytes = guide is not None and guide.kind is Kind.BYTES
        if is_bytes and not is_text:
            raise MessageError(Reason.UNSUPPORTED, path, 'the message is in bytes already: write encoding = "text"')
        if is_text and not is_bytes:
            data = text.encode("utf-8", "surrogatepass")
            self.slots.append(Attachment(path, start, end, "", "string", data))
            return
        try:
            data, layout = decode_base64(text)
        except ValueError:
            raise MessageError(Reason.MALFORMED, path, "not base64, as its envelope expects") from None
        packed = data.startswith(_GZIP)
        labelled = packed and _is_labelled(data)
        encoding = "base64+gzip" if packed else "base64"
        if packed:
            data = _decompress(data, path, self.room)
            self.room -= len(data)
        self.slots.append(Attachment(path, start, end, "", encoding, data, layout=layout, labelled=labelled))

    def _action(self, at: Place, inherited: FieldAction | None) -> FieldAction | None:
        return inherited if at.pointer is None else self.envelope.fields.get(at.pointer, inherited)


def _decompress(data: bytes, path: str, room: int) -> bytes:
    """The one member of gzip data. Raises ``MessageError`` for other data, RESOURCE for more than ``room`` bytes."""
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(data, room + 1)
    except zlib.error:
        raise MessageError(Reason.MALFORMED, path, "not gzip, as its envelope expects") from None
    if len(text) > room:
        raise MessageError(Reason.RESOURCE, path, f"more than {_MOST_BYTES} bytes after decompression")
    if not reader.eof or reader.unused_data:
        raise MessageError(Reason.MALFORMED, path, "gzip with a cut or a further member")
    return text
