"""Records in Confluent's wire format: a zero byte, the id of the schema, for Protobuf the message type, the record.

Source: Confluent Platform, "Wire format" of "Formats, Serializers, and Deserializers".
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deid_agent.model import MessageError, Reason
from deid_agent.schemas.avro import AvroFormat
from deid_agent.schemas.avro_schema import SchemaError, parse_avro
from deid_agent.schemas.protobuf import ProtobufFormat
from deid_agent.schemas.protobuf_schema import ProtobufMessage, find_message, parse_protobuf
from deid_agent.schemas.registry import SchemaRegistry
from deid_agent.schemas.registry_http import RegisteredSchema
from deid_agent.schemas.tree import Changes, Node, read_zigzag

_HEAD = 5
_DEEPEST = 32


class BinaryFormat(Protocol):
    """The records of one schema as trees of byte ranges, and values written back."""

    @property
    def name(self) -> str:
        """The name of the format."""

    def read(self, raw: bytes, start: int) -> Node:
        """The tree of the record from byte ``start`` to the end. Raises ``MessageError``."""

    def encode(self, node: Node, value: str | bytes | int) -> bytes:
        """A new value for the whole range of a node. Raises ``ValueError`` if its type has no such value."""

    def remove(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave nothing of a value."""

    def clear(self, node: Node, changes: Changes) -> None:
        """Add the changes that leave a list or a map empty."""

    def write(self, raw: bytes, root: Node, changes: Changes) -> bytes:
        """The record with the changes."""

    def has(self, place: Iterable[str]) -> bool:
        """True if a record of the schema may have a value at a place."""


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    """A record behind its ``head``: it begins at byte ``start``. ``form`` is None for JSON."""

    head: bytes
    start: int
    form: BinaryFormat | None


_Compiled = BinaryFormat | Sequence[ProtobufMessage] | None


@dataclass(slots=True)
class RecordFormats:
    """The formats of records by the ids of their schemas; compiles each schema once."""

    registry: SchemaRegistry
    _compiled: "OrderedDict[int, _Compiled | SchemaError]" = field(default_factory=OrderedDict, repr=False)

    def open(self, raw: bytes, output_subject: str = "") -> OpenedRecord:
        """The head and the format of a record. The head of an output has the id under ``output_subject``.

        Raises ``TransientError`` if the registry does not answer, and ``MessageError``: MALFORMED for a record that
        does not begin as the wire format does, SCHEMA for an unknown or unusable schema.
        """
        if len(raw) < _HEAD or raw[0] != 0:
            detail = "not the wire format of a schema registry, as its envelope expects"
            raise MessageError(Reason.MALFORMED, "byte 0", detail)
        id_ = int.from_bytes(raw[1:_HEAD], "big")
        try:
            compiled = self._compile(id_)
        except SchemaError as problem:
            raise MessageError(Reason.SCHEMA, "byte 1", str(problem)) from None
        start, form = _HEAD, compiled
        if isinstance(form, Sequence):
            start, indexes = _read_indexes(raw)
            found = find_message(form, indexes)
            if found is None:
                raise MessageError(Reason.SCHEMA, f"byte {_HEAD}", "the schema has no message type with these indexes")
            form = ProtobufFormat(found)
        out = self.registry.register(output_subject, id_) if output_subject else id_
        return OpenedRecord(b"\0" + out.to_bytes(4, "big") + raw[_HEAD:start], start, form)

    def _compile(self, id_: int) -> _Compiled:
        found = self._compiled.get(id_)
        if found is None and id_ not in self._compiled:
            schema = self.registry.schema(id_)
            try:
                found = compile_schema(schema)
            except SchemaError as problem:
                found = problem
            if len(self._compiled) >= self.registry.options.cache:
                self._compiled.popitem(last=False)
            self._compiled[id_] = found
        if isinstance(found, SchemaError):
            raise found
        return found


def compile_schema(schema: RegisteredSchema) -> _Compiled:
    """The format of a schema: of Avro, the message types of Protobuf, None for JSON Schema. Raises ``SchemaError``."""
    texts = [text for _, text in schema.imports]
    match schema.type:
        case "AVRO":
            return AvroFormat(parse_avro(schema.text, texts))
        case "PROTOBUF":
            return parse_protobuf(schema.descriptor, texts)
        case "JSON":
            return None
    raise SchemaError("a schema of a type that is not read: neither AVRO, JSON nor PROTOBUF")


def _read_indexes(raw: bytes) -> tuple[int, list[int]]:
    """The end of the message indexes, and the indexes. A single zero is the first message type."""
    count, at = read_zigzag(raw, _HEAD, len(raw))
    if not 0 <= count <= _DEEPEST:
        raise MessageError(Reason.MALFORMED, f"byte {_HEAD}", "impossible message indexes")
    indexes = []
    for _ in range(count):
        index, at = read_zigzag(raw, at, len(raw))
        indexes.append(index)
    return at, indexes or [0]
