"""A record of a binary format as a tree of byte ranges, and the record with some ranges replaced.

The readers of the formats make the tree. A change is the new content of a node's whole range; all other bytes are left
unchanged, except for the lengths of the blocks and messages around a change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from deid_agent.model import MessageError, Reason

DEEPEST = 100
MOST_VALUES = 250_000

Scalar = bool | int | float | str | bytes | None
Changes = dict[int, bytes]
"""The new bytes of nodes, by ``Node.number``."""


class Kind(Enum):
    """The sort of a value."""

    NULL = auto()
    BOOL = auto()
    NUMBER = auto()
    TEXT = auto()
    BYTES = auto()
    CODE = auto()  # a symbol of an enum, or bytes of a fixed number: kept or dropped, never replaced
    RECORD = auto()
    MAP = auto()
    LIST = auto()
    FRAME = auto()  # bytes around values: a block of items, an entry, a field with its tag


class TimeUnit(Enum):
    """The unit of a number that is a day or a time since 1970. The value is the number of nanoseconds."""

    DAY = 86_400_000_000_000
    SECOND = 1_000_000_000
    MILLI = 1_000_000
    MICRO = 1_000
    NANO = 1


@dataclass(slots=True, eq=False)
class Node:
    """Bytes ``[start, end)`` of a record.

    ``children`` divide the range in byte order; bytes between them belong to the node. ``members`` and ``items`` are
    the values of a record or map, and of a list; ``absent`` are the members that a record lacks. ``length`` is the
    range of a number that counts the bytes from its own end to ``end``. ``form`` belongs to the reader of the format.
    """

    number: int
    start: int
    end: int
    kind: Kind
    scalar: Scalar = field(default=None, repr=False)
    children: "list[Node]" = field(default_factory=list, repr=False)
    members: "list[tuple[str, Node]]" = field(default_factory=list, repr=False)
    items: "list[Node]" = field(default_factory=list, repr=False)
    absent: list[str] = field(default_factory=list, repr=False)
    length: tuple[int, int] | None = None
    unit: TimeUnit | None = None
    form: object = field(default=None, repr=False)


@dataclass(slots=True)
class NodeMaker:
    """Numbers the nodes of one record. Raises ``MessageError(RESOURCE)`` if they are too many or too deep."""

    count: int = 0

    def make(self, start: int, end: int, kind: Kind, depth: int) -> Node:
        """A new node; ``depth`` is its number of records, maps and lists around it."""
        self.count += 1
        if self.count > MOST_VALUES:
            raise MessageError(Reason.RESOURCE, f"byte {start}", f"more than {MOST_VALUES} values around messages")
        if depth > DEEPEST:
            raise MessageError(Reason.RESOURCE, f"byte {start}", "nested too deep")
        return Node(self.count, start, end, kind)


def rewrite(raw: bytes, root: Node, changes: Mapping[int, bytes], encode_length: Callable[[int], bytes]) -> bytes:
    """The bytes of ``root`` with ``changes``. ``encode_length`` writes the lengths that change."""
    if not changes:
        return raw[root.start : root.end]

    def write(node: Node) -> bytes:
        if node.number in changes:
            return changes[node.number]
        if not node.children:
            return raw[node.start : node.end]
        at = node.start if node.length is None else node.length[1]
        pieces: list[bytes] = []
        for child in node.children:
            pieces += (raw[at : child.start], write(child))
            at = child.end
        pieces.append(raw[at : node.end])
        body = b"".join(pieces)
        if node.length is None:
            return body
        begin, end = node.length
        same = len(body) == node.end - end
        return raw[node.start : begin] + (raw[begin:end] if same else encode_length(len(body))) + body

    return write(root)


def malformed(at: int, detail: str) -> MessageError:
    """The error of bytes that do not fit their schema."""
    return MessageError(Reason.MALFORMED, f"byte {at}", f"does not fit its schema: {detail}")


def read_varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits in base 128, and its end. Raises ``MessageError(MALFORMED)``."""
    value = shift = 0
    start = at
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
        shift += 7
    raise malformed(start, "a number is cut or too long")


def write_varint(value: int) -> bytes:
    """``value``, which is not negative, in base 128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_zigzag(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """A signed number of at most 64 bits, zigzag in base 128, and its end. Raises ``MessageError(MALFORMED)``."""
    value, at = read_varint(raw, at, end)
    return (value >> 1) ^ -(value & 1), at


def write_zigzag(value: int) -> bytes:
    """``value`` as zigzag in base 128."""
    return write_varint((value << 1) ^ (value >> 63) if value < 0 else value << 1)
