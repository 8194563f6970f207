"""A Protobuf schema: the message types of a ``FileDescriptorProto`` and of the files that it imports.

The registry compiles the ``.proto`` text itself (``?format=serialized``), so no parser of that text is needed.
Source: google/protobuf/descriptor.proto; "Encoding" of protobuf.dev.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.model import MessageError
from deid_agent.schemas.avro_schema import SchemaError
from deid_agent.schemas.tree import read_varint

TIMESTAMP = "google.protobuf.Timestamp"
FIXED_SIZES = {1: 8, 2: 4, 6: 8, 7: 4, 15: 4, 16: 8}
"""The number of bytes of the types of fixed size."""
STRING, GROUP, MESSAGE, BYTES, ENUM, BOOL = 9, 10, 11, 12, 14, 8
"""``FieldDescriptorProto.Type``."""
_REQUIRED, _REPEATED = 2, 3
_MOST_TYPES = 20_000
_DEEPEST = 50


@dataclass(slots=True, eq=False)
class ProtobufField:
    """A field of a message type. ``message`` is the type of its values if they are messages."""

    number: int
    name: str
    type: int
    repeated: bool = False
    required: bool = False
    message: "ProtobufMessage | None" = field(default=None, repr=False)
    type_name: str = ""


@dataclass(slots=True, eq=False)
class ProtobufMessage:
    """A message type with its full name. ``is_entry`` if it is the entry of a map (key 1, value 2)."""

    name: str
    fields: dict[int, ProtobufField] = field(default_factory=dict, repr=False)
    nested: "list[ProtobufMessage]" = field(default_factory=list, repr=False)
    is_entry: bool = False


def parse_protobuf(descriptor: str, imports: Iterable[str] = ()) -> Sequence[ProtobufMessage]:
    """The top-level message types of a file. All are descriptors in base64. Raises ``SchemaError``."""
    linker = _Linker()
    for each in imports:
        linker.read_file(each)
    messages = linker.read_file(descriptor)
    linker.link()
    return messages


def find_message(messages: Sequence[ProtobufMessage], indexes: Sequence[int]) -> ProtobufMessage | None:
    """The message type at a path of indexes: of a top-level type, then of the types inside it."""
    found: ProtobufMessage | None = None
    for index in indexes:
        level = messages if found is None else found.nested
        if not 0 <= index < len(level):
            return None
        found = level[index]
    return found


def _well_known() -> Iterator[ProtobufMessage]:
    """The types of google/protobuf that a registry does not return as references."""
    value = "google.protobuf.Value"
    table: dict[str, tuple[tuple[str, int, str], ...]] = {
        "Timestamp": (("seconds", 3, ""), ("nanos", 5, "")),
        "Duration": (("seconds", 3, ""), ("nanos", 5, "")),
        "Empty": (),
        "FieldMask": (("paths*", STRING, ""),),
        "Any": (("type_url", STRING, ""), ("value", BYTES, "")),
        "Struct": (("fields*", MESSAGE, "google.protobuf.Struct.FieldsEntry"),),
        "Struct.FieldsEntry": (("key", STRING, ""), ("value", MESSAGE, value)),
        "ListValue": (("values*", MESSAGE, value),),
        "Value": (
            ("null_value", 5, ""),
            ("number_value", 1, ""),
            ("string_value", STRING, ""),
            ("bool_value", BOOL, ""),
            ("struct_value", MESSAGE, "google.protobuf.Struct"),
            ("list_value", MESSAGE, "google.protobuf.ListValue"),
        ),
    }
    wrappers = {"Double": 1, "Float": 2, "Int64": 3, "UInt64": 4, "Int32": 5, "UInt32": 13, "Bool": BOOL}
    for name, type_ in {**wrappers, "String": STRING, "Bytes": BYTES}.items():
        table[f"{name}Value"] = (("value", type_, ""),)
    for name, fields in table.items():
        made = ProtobufMessage(f"google.protobuf.{name}", is_entry=name.endswith("Entry"))
        for number, (label, type_, target) in enumerate(fields, 1):
            repeated = label.endswith("*")
            type_name = f".{target}" if target else ""
            made.fields[number] = ProtobufField(number, label.rstrip("*"), type_, repeated, type_name=type_name)
        yield made


@dataclass(slots=True)
class _Linker:
    messages: dict[str, ProtobufMessage] = field(default_factory=dict)
    enums: set[str] = field(default_factory=set)

    def read_file(self, encoded: str) -> list[ProtobufMessage]:
        try:
            raw = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            detail = "the registry does not return Protobuf schemas in binary form (?format=serialized)"
            raise SchemaError(detail) from None
        try:
            found = list(_fields(raw))
            package = next((_text(value) for number, value in found if number == 2), "")
            self.enums |= {_join(package, _name_of(value)) for number, value in found if number == 5}
            return [self._message(value, package, 0) for number, value in found if number == 4]
        except (MessageError, UnicodeDecodeError, TypeError):
            raise SchemaError("the Protobuf descriptor cannot be read") from None

    def _message(self, raw: object, scope: str, depth: int) -> ProtobufMessage:
        if len(self.messages) > _MOST_TYPES or depth > _DEEPEST:
            raise SchemaError("the Protobuf schema is too large")
        found = list(_fields(raw))
        made = ProtobufMessage(_join(scope, _name_of(raw)))
        self.messages[made.name] = made
        for number, value in found:
            match number:
                case 2:
                    each = _field(value)
                    made.fields[each.number] = each
                case 3:
                    made.nested.append(self._message(value, made.name, depth + 1))
                case 4:
                    self.enums.add(_join(made.name, _name_of(value)))
                case 7:
                    made.is_entry = any(option == (7, 1) for option in _fields(value))
        return made

    def link(self) -> None:
        """Find the message type of each field. Raises ``SchemaError`` if it has none."""
        for each in _well_known():
            self.messages.setdefault(each.name, each)
        for message in self.messages.values():
            for part in message.fields.values():
                if part.type_name:
                    part.message = self._find(part, message.name)
                if part.type == 0:
                    part.type = ENUM if part.message is None else MESSAGE
                if part.type == MESSAGE and part.message is None:
                    raise SchemaError("the Protobuf schema uses a type that neither it nor its references define")

    def _find(self, part: ProtobufField, scope: str) -> ProtobufMessage | None:
        """The type of a field, None for an enum. A name without a dot in front is searched from the inside out."""
        name = part.type_name
        while True:
            full = name[1:] if name.startswith(".") else _join(scope, name)
            if full in self.messages:
                return self.messages[full]
            if full in self.enums or (part.type == ENUM and (name.startswith(".") or not scope)):
                return None
            if name.startswith(".") or not scope:
                raise SchemaError("the Protobuf schema uses a type that neither it nor its references define")
            scope = scope.rpartition(".")[0]


def _field(raw: object) -> ProtobufField:
    found = dict(_fields(raw))
    number, label, type_ = (found.get(key, 0) for key in (3, 4, 5))
    if not isinstance(number, int) or not isinstance(label, int) or not isinstance(type_, int) or not number:
        raise TypeError("a field without a number")
    type_name = _text(found.get(6, b""))
    return ProtobufField(number, _name_of(raw), type_, label == _REPEATED, label == _REQUIRED, type_name=type_name)


def _fields(raw: object) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of descriptor.proto, which has numbers and length-delimited values only."""
    if not isinstance(raw, bytes):
        raise TypeError("a message is no bytes")
    at = 0
    while at < len(raw):
        tag, at = read_varint(raw, at, len(raw))
        value, at = read_varint(raw, at, len(raw))
        match tag & 7:
            case 0:
                yield tag >> 3, value
            case 2 if at + value <= len(raw):
                yield tag >> 3, raw[at : at + value]
                at += value
            case _:
                raise TypeError("an unknown wire type")


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError("a text is a number")
    return value.decode("utf-8")


def _name_of(raw: object) -> str:
    return next((_text(value) for number, value in _fields(raw) if number == 1), "")


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
