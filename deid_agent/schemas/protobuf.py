"""Records in Protobuf's wire format: their tree of byte ranges, and values written back.

Source: "Encoding" of protobuf.dev. A field number that the schema does not have refuses the record, and so does a
second value of a field that is not repeated: a reader would not see the first one, but everybody could.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from deid_agent.model import MessageError, Reason
from deid_agent.schemas.avro_schema import SchemaError
from deid_agent.schemas.protobuf_schema import (
    BOOL,
    BYTES,
    FIXED_SIZES,
    GROUP,
    MESSAGE,
    STRING,
    TIMESTAMP,
    ProtobufField,
    ProtobufMessage,
)
from deid_agent.schemas.tree import (
    Changes,
    Kind,
    Node,
    NodeMaker,
    Scalar,
    TimeUnit,
    malformed,
    read_varint,
    rewrite,
    write_varint,
)

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_SINT = frozenset({17, 18})
_UNSIGNED = frozenset({4, 13})
_FORMATS = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_DEEPEST_BLANK = 32


@dataclass(slots=True)
class _Value:
    """The form of a node: its field, and the frames that hold it with their tags."""

    field: ProtobufField
    frames: list[Node]
    is_item: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """The records of one message type; implements ``BinaryFormat``."""

    root: ProtobufMessage = field(repr=False)
    name: str = "Protobuf"

    def read(self, raw: bytes, start: int) -> Node:
        """The tree of the record from byte ``start`` to the end.

        Raises ``MessageError``: MALFORMED, RESOURCE, and UNSUPPORTED for a field that the schema does not have.
        """
        reader = _Reader(raw)
        root = reader.maker.make(start, len(raw), Kind.RECORD, 0)
        reader.message(root, self.root, start, 0)
        return root

    def encode(self, node: Node, value: str | bytes | int) -> bytes:
        """A new value for the whole range of a node. Raises ``ValueError`` if its type has no such value."""
        type_ = _form(node).field.type
        match type_, value:
            case ((9 | 12), str()):
                data = value.encode("utf-8", "surrogatepass")
            case 12, bytes():
                data = value
            case 11, int() if node.unit is not None:
                seconds, nanos = divmod(value, TimeUnit.SECOND.value)
                data = _number(1, seconds) + _number(2, nanos)
            case _:
                raise ValueError(f"a value of the Protobuf type {type_} cannot become this one")
        return write_varint(len(data)) + data

    def remove(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave nothing of a value. An item and a required field become empty."""
        if not isinstance(node.form, _Value):
            return  # an absent value
        form = node.form
        if form.is_item or form.field.required:
            changes[node.number] = _blank(form.field, 0)
        else:
            changes.update((frame.number, b"") for frame in form.frames)

    def clear(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave a list or a map empty."""
        changes.update((frame.number, b"") for frame in _form(node).frames)

    def write(self, raw: bytes, root: Node, changes: Changes) -> bytes:
        """The record with the changes."""
        return rewrite(raw, root, changes, write_varint)

    def has(self, place: Iterable[str]) -> bool:
        """True if a record of the schema may have a value at a place; ``*`` is any member or item."""
        level: list[ProtobufMessage | ProtobufField] = [self.root]
        for name in place:
            level = [inner for each in level for inner in _step(each, name)]
        return bool(level)


def _form(node: Node) -> _Value:
    if not isinstance(node.form, _Value):
        raise ValueError("an absent value cannot change")
    return node.form


def _step(at: ProtobufMessage | ProtobufField, name: str) -> "list[ProtobufMessage | ProtobufField]":
    """The next level: a repeated field is the list itself, a message type the inside of a value."""
    if isinstance(at, ProtobufField):
        if not at.repeated:
            return _step(at.message, name) if at.message is not None else []
        if at.message is not None and at.message.is_entry:
            value = at.message.fields.get(2)
            return [] if value is None else [value]
        if name != "*":
            return []
        return [at.message if at.message is not None else ProtobufField(at.number, at.name, at.type)]
    return [each for each in at.fields.values() if name in {each.name, "*"}]


def _number(number: int, value: int) -> bytes:
    """A field of type int64, nothing for zero."""
    return write_varint(number << 3) + write_varint(value & (1 << 64) - 1) if value else b""


def _wire_type(type_: int) -> int:
    if type_ in {STRING, MESSAGE, BYTES}:
        return _LEN
    return {8: _I64, 4: _I32, 0: _VARINT}[FIXED_SIZES.get(type_, 0)]


def _blank(part: ProtobufField, depth: int) -> bytes:
    """The empty value of a field without its tag."""
    if depth > _DEEPEST_BLANK:
        raise SchemaError("a message that requires itself has no empty value")
    if part.message is not None and part.type == MESSAGE:
        inner = (each for each in part.message.fields.values() if each.required)
        data = b"".join(
            write_varint(each.number << 3 | _wire_type(each.type)) + _blank(each, depth + 1) for each in inner
        )
        return write_varint(len(data)) + data
    return bytes(FIXED_SIZES.get(part.type, 1))


@dataclass(slots=True)
class _Reader:
    raw: bytes = field(repr=False)
    maker: NodeMaker = field(default_factory=NodeMaker)

    def message(self, node: Node, type_: ProtobufMessage, at: int, depth: int) -> None:
        """Read the fields of a message into ``node``, from ``at`` to its end."""
        lists: dict[int, Node] = {}
        seen: set[int] = set()
        while at < node.end:
            frame = self.maker.make(at, at, Kind.FRAME, depth)
            tag, value_at = read_varint(self.raw, at, node.end)
            part = type_.fields.get(tag >> 3)
            if part is None or part.type == GROUP:
                detail = "a group" if part else "a field that its schema does not have"
                raise MessageError(Reason.UNSUPPORTED, f"byte {at}", f"{detail}: a Protobuf record must fit its schema")
            node.children.append(frame)
            if part.repeated:
                found = lists.get(part.number)
                if found is None:
                    found = lists[part.number] = self._list(node, part, depth)
                _form(found).frames.append(frame)
                self._repeated(found, frame, part, tag & 7, value_at, node.end, depth)
            else:
                if part.number in seen:
                    raise malformed(at, "a field that is not repeated occurs twice")
                seen.add(part.number)
                value = self._value(part, tag & 7, value_at, node.end, depth + 1)
                value.form = _Value(part, [frame])
                frame.children.append(value)
                frame.end = value.end
                node.members.append((part.name, value))
            at = frame.end
        node.absent = [
            part.name for part in type_.fields.values() if part.number not in seen and part.number not in lists
        ]

    def _list(self, node: Node, part: ProtobufField, depth: int) -> Node:
        entries = part.message is not None and part.message.is_entry
        made = self.maker.make(node.start, node.start, Kind.MAP if entries else Kind.LIST, depth)
        made.form = _Value(part, [])
        node.members.append((part.name, made))
        return made

    def _repeated(
        self, found: Node, frame: Node, part: ProtobufField, wire: int, at: int, end: int, depth: int
    ) -> None:
        """Read one occurrence of a repeated field: an item, an entry of a map, or packed items."""
        if found.kind is Kind.MAP and part.message is not None:
            entry = self._value(part, wire, at, end, depth + 1)
            frame.children.append(entry)
            frame.end = entry.end
            members = dict(entry.members)
            key, value = members.get("key"), members.get("value")
            if value is None:
                value = self.maker.make(entry.end, entry.end, Kind.NULL, depth + 1)
            value.form = _Value(part.message.fields[2], [frame])  # without a value too: its key can be dropped
            found.members.append((_key_text(key, part.message), value))
        elif wire == _LEN and _wire_type(part.type) != _LEN:
            packed = self._sized(at, end, depth)
            frame.children.append(packed)
            frame.end, at = packed.end, packed.length[1] if packed.length else at
            while at < packed.end:
                item = self._value(part, _wire_type(part.type), at, packed.end, depth + 1)
                item.form = _Value(part, [frame], is_item=True)
                packed.children.append(item)
                found.items.append(item)
                at = item.end
        else:
            item = self._value(part, wire, at, end, depth + 1)
            item.form = _Value(part, [frame], is_item=True)
            frame.children.append(item)
            frame.end = item.end
            found.items.append(item)

    def _sized(self, at: int, end: int, depth: int) -> Node:
        size, body = read_varint(self.raw, at, end)
        if body + size > end:
            raise malformed(at, "the record ends inside a value")
        node = self.maker.make(at, body + size, Kind.FRAME, depth)
        node.length = (at, body)
        return node

    def _value(self, part: ProtobufField, wire: int, at: int, end: int, depth: int) -> Node:
        """A value behind its tag."""
        if wire != _wire_type(part.type):
            raise malformed(at, "a value has another wire type than its field")
        if wire == _LEN:
            node = self._sized(at, end, depth)
            body = node.length[1] if node.length else at
            if part.message is not None and part.type == MESSAGE:
                node.kind = Kind.RECORD
                self.message(node, part.message, body, depth)
                if part.message.name == TIMESTAMP:
                    node.unit, node.scalar = TimeUnit.NANO, _nanoseconds(node)
                return node
            node.length = None
            data = self.raw[body : node.end]
            node.kind, node.scalar = (Kind.TEXT, self._text(data, at)) if part.type == STRING else (Kind.BYTES, data)
            return node
        node = self.maker.make(at, at, Kind.NUMBER, depth)
        if wire == _VARINT:
            value, node.end = read_varint(self.raw, at, end)
            node.scalar = _integer(part.type, value)
            if part.type == BOOL:
                node.kind = Kind.BOOL
                if value > 1:  # a reader sees true, but everybody could see the number
                    raise malformed(at, "a boolean is neither 0 nor 1")
            return node
        node.end = at + FIXED_SIZES[part.type]
        if node.end > end:
            raise malformed(at, "the record ends inside a value")
        (node.scalar,) = struct.unpack(_FORMATS[part.type], self.raw[at : node.end])
        return node

    def _text(self, data: bytes, at: int) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise malformed(at, "a text is not UTF-8") from None


def _integer(type_: int, value: int) -> int:
    if type_ == BOOL:
        return bool(value)
    if type_ in _SINT:
        return (value >> 1) ^ -(value & 1)
    return value - (1 << 64) if value >> 63 and type_ not in _UNSIGNED else value


def _nanoseconds(node: Node) -> int:
    parts = {name: each.scalar for name, each in node.members}
    seconds, nanos = parts.get("seconds", 0), parts.get("nanos", 0)
    return int(seconds or 0) * TimeUnit.SECOND.value + int(nanos or 0)


def _key_text(key: Node | None, entry: ProtobufMessage) -> str:
    """The key of a map's entry as a name. An absent key is the empty value of its type."""
    value: Scalar = key.scalar if key is not None else None
    if value is None:
        type_ = entry.fields[1].type if 1 in entry.fields else STRING
        value = "" if type_ == STRING else False if type_ == BOOL else 0
    return str(value).lower() if isinstance(value, bool) else str(value)
