"""Records in Avro's binary encoding: their tree of byte ranges, and values written back.

Source: Apache Avro 1.12 specification, "Binary Encoding".
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from deid_agent.schemas.avro_schema import AvroType, SchemaError
from deid_agent.schemas.tree import (
    Changes,
    Kind,
    Node,
    NodeMaker,
    malformed,
    read_zigzag,
    rewrite,
    write_zigzag,
)

_DEEPEST_BLANK = 32


@dataclass(slots=True)
class _Place:
    """The form of a node: its declared type (a union, or its type), and the entry and block of a map around it."""

    declared: AvroType
    type: AvroType
    entry: Node | None = None
    block: "_Block | None" = None


@dataclass(slots=True)
class _Block:
    """A block of a map: its frame, the frame of its number of entries, and the entries that remain."""

    frame: Node
    count: Node
    left: int
    negative: bool


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """The records of one schema; implements ``BinaryFormat``."""

    root: AvroType = field(repr=False)
    name: str = "Avro"

    def read(self, raw: bytes, start: int) -> Node:
        """The tree of the record from byte ``start`` to the end. Raises ``MessageError``: MALFORMED, RESOURCE."""
        reader = _Reader(raw)
        root = reader.value(self.root, start, 0)
        if root.end != len(raw):
            raise malformed(root.end, "bytes after the end of the record")
        return root

    def encode(self, node: Node, value: str | bytes | int) -> bytes:
        """A new value for the whole range of a node. Raises ``ValueError`` if its type has no such value."""
        form = _form(node)
        head = b""
        if form.declared is not form.type:
            head = write_zigzag(form.declared.branches.index(form.type))
        match form.type.name, value:
            case "string", str():
                data = value.encode("utf-8", "surrogatepass")
                return head + write_zigzag(len(data)) + data
            case "bytes", bytes():
                return head + write_zigzag(len(value)) + value
            case "int" | "long", int():
                if not -(1 << 63) <= value < 1 << 63 or (form.type.name == "int" and not -(1 << 31) <= value < 1 << 31):
                    raise ValueError("a number is too large for its type")
                return head + write_zigzag(value)
        raise ValueError(f"a value of the type {form.type.name} cannot become this one")

    def remove(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave nothing of a value: no entry of a map, null if allowed, else an empty value."""
        form = _form(node)
        if form.entry is None or form.block is None:
            changes[node.number] = _blank(form.declared, 0)
            return
        changes[form.entry.number] = b""
        block = form.block
        block.left -= 1
        changes[block.count.number] = write_zigzag(-block.left if block.negative else block.left)
        if block.left == 0:  # a count of zero would end the map
            changes[block.frame.number] = b""

    def clear(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave a list or a map empty."""
        form = _form(node)
        union = form.declared is not form.type
        changes[node.number] = (write_zigzag(form.declared.branches.index(form.type)) if union else b"") + b"\0"

    def write(self, raw: bytes, root: Node, changes: Changes) -> bytes:
        """The record with the changes."""
        return rewrite(raw, root, changes, write_zigzag)

    def has(self, place: Iterable[str]) -> bool:
        """True if a record of the schema may have a value at a place; ``*`` is any member or item."""
        types = [self.root]
        for name in place:
            types = [inner for each in types for inner in _step(each, name)]
        return bool(types)


def _form(node: Node) -> _Place:
    if not isinstance(node.form, _Place):
        raise TypeError("a node of another format")
    return node.form


def _step(type_: AvroType, name: str) -> list[AvroType]:
    """The types of the members or items with a name."""
    if type_.name == "union":
        return [inner for branch in type_.branches for inner in _step(branch, name)]
    if type_.name == "record":
        return [inner for own, inner in type_.parts if name in {own, "*"}]
    fits = type_.name == "map" or (type_.name == "array" and name == "*")
    return [type_.inner] if fits and type_.inner is not None else []


_BLANKS = {"null": b"", "float": bytes(4), "double": bytes(8)}


def _blank(type_: AvroType, depth: int) -> bytes:
    """The empty value of a type: null, zero, the empty text, the first symbol, and a record of these."""
    if depth > _DEEPEST_BLANK:
        raise SchemaError("a record that holds itself has no empty value")
    if type_.name == "union":
        null = next((n for n, branch in enumerate(type_.branches) if branch.name == "null"), None)
        return write_zigzag(null) if null is not None else write_zigzag(0) + _blank(type_.branches[0], depth + 1)
    if type_.name == "record":
        return b"".join(_blank(part, depth + 1) for _, part in type_.parts)
    if type_.name == "fixed":
        return bytes(type_.size)
    return _BLANKS.get(type_.name, b"\0")


@dataclass(slots=True)
class _Reader:
    raw: bytes = field(repr=False)
    maker: NodeMaker = field(default_factory=NodeMaker)

    def value(self, declared: AvroType, start: int, depth: int) -> Node:
        """The value at ``start``. Its range begins with the number of its branch in a union."""
        node = self.maker.make(start, start, Kind.NULL, depth)
        type_, at = declared, start
        if declared.name == "union":
            number, at = read_zigzag(self.raw, at, len(self.raw))
            if not 0 <= number < len(declared.branches):
                raise malformed(start, "a union has no such branch")
            type_ = declared.branches[number]
        node.form = _Place(declared, type_)
        node.unit = type_.unit
        match type_.name:
            case "record":
                node.kind = Kind.RECORD
                for name, part in type_.parts:
                    member = self.value(part, at, depth + 1)
                    at = member.end
                    node.members.append((name, member))
                    node.children.append(member)
                node.end = at
            case "array" | "map":
                node.kind = Kind.LIST if type_.name == "array" else Kind.MAP
                node.end = self._blocks(node, type_, at, depth)
            case _:
                node.end = self._scalar(node, type_, at)
        return node

    def _scalar(self, node: Node, type_: AvroType, at: int) -> int:
        """Read a value without parts into ``node``; return its end."""
        match type_.name:
            case "null":
                return at
            case "boolean":
                (byte,) = self._take(at, 1)
                if byte > 1:
                    raise malformed(at, "a boolean is neither 0 nor 1")
                node.kind, node.scalar, end = Kind.BOOL, bool(byte), at + 1
            case "int" | "long":
                node.kind = Kind.NUMBER
                node.scalar, end = read_zigzag(self.raw, at, len(self.raw))
                if type_.name == "int" and not -(1 << 31) <= node.scalar < 1 << 31:
                    raise malformed(at, "an int of more than 32 bits")
            case "float" | "double":
                node.kind, end = Kind.NUMBER, at + (4 if type_.name == "float" else 8)
                (node.scalar,) = struct.unpack("<f" if end - at == 4 else "<d", self._take(at, end - at))
            case "bytes":
                node.kind = Kind.BYTES
                node.scalar, end = self._sized(at)
            case "string":
                node.kind = Kind.TEXT
                node.scalar, end = self._text(at)
            case "enum":
                number, end = read_zigzag(self.raw, at, len(self.raw))
                if not 0 <= number < len(type_.symbols):
                    raise malformed(at, "an enum has no such symbol")
                node.kind, node.scalar = Kind.CODE, type_.symbols[number]
            case "fixed":
                node.kind, node.scalar, end = Kind.CODE, self._take(at, type_.size), at + type_.size
            case _:
                raise malformed(at, "an unknown type")
        return end

    def _blocks(self, node: Node, type_: AvroType, at: int, depth: int) -> int:
        """Read the blocks of an array or map into ``node``; return their end."""
        inner = type_.inner
        if inner is None:
            raise malformed(at, "an unknown type")
        while True:
            count, end = read_zigzag(self.raw, at, len(self.raw))
            if count == 0:
                return end
            frame = items = self.maker.make(at, at, Kind.FRAME, depth)
            number = self.maker.make(at, end, Kind.FRAME, depth)
            frame.children.append(number)
            node.children.append(frame)
            block = _Block(frame, number, abs(count), count < 0)
            at = end
            if count < 0:  # its length follows, so that a reader can skip it
                size, at = read_zigzag(self.raw, end, len(self.raw))
                items = self.maker.make(end, at + size, Kind.FRAME, depth)
                items.length = (end, at)
                frame.children.append(items)
            for _ in range(abs(count)):
                at = self._item(node, items, block, inner, at, depth)
            if items is not frame and at != items.end:
                raise malformed(end, "a block has another length than it states")
            frame.end = at

    def _item(self, node: Node, frame: Node, block: _Block, inner: AvroType, at: int, depth: int) -> int:
        if node.kind is Kind.LIST:
            item = self.value(inner, at, depth + 1)
            node.items.append(item)
            frame.children.append(item)
            return item.end
        entry = self.maker.make(at, at, Kind.FRAME, depth)
        key, at = self._text(at)
        member = self.value(inner, at, depth + 1)
        member.form = _Place(inner, _form(member).type, entry, block)
        entry.end = member.end
        entry.children.append(member)
        node.members.append((key, member))
        frame.children.append(entry)
        return member.end

    def _text(self, at: int) -> tuple[str, int]:
        data, end = self._sized(at)
        try:
            return data.decode("utf-8"), end
        except UnicodeDecodeError:
            raise malformed(at, "a text is not UTF-8") from None

    def _sized(self, at: int) -> tuple[bytes, int]:
        size, at = read_zigzag(self.raw, at, len(self.raw))
        if size < 0:
            raise malformed(at, "a negative length")
        return self._take(at, size), at + size

    def _take(self, at: int, size: int) -> bytes:
        if at + size > len(self.raw):
            raise malformed(at, "the record ends inside a value")
        return self.raw[at : at + size]
