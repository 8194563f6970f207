"""Records in the wire format of a schema registry: the client, the schemas, and binary records as byte ranges.

Nothing here knows an envelope or a message. ``codec/framed.py`` shows a binary record to the envelope as JSON and
writes the changes back.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.schemas.tree import Changes, Kind, Node, TimeUnit

if TYPE_CHECKING:
    from deid_agent.schemas.avro import AvroFormat
    from deid_agent.schemas.avro_schema import SchemaError, parse_avro
    from deid_agent.schemas.protobuf import ProtobufFormat
    from deid_agent.schemas.protobuf_schema import ProtobufMessage, parse_protobuf
    from deid_agent.schemas.records import BinaryFormat, OpenedRecord, RecordFormats, compile_schema
    from deid_agent.schemas.registry import SchemaRegistry
    from deid_agent.schemas.registry_http import RegisteredSchema, RegistryOptions

__all__ = [
    "AvroFormat",
    "BinaryFormat",
    "Changes",
    "Kind",
    "Node",
    "OpenedRecord",
    "ProtobufFormat",
    "ProtobufMessage",
    "RecordFormats",
    "RegisteredSchema",
    "RegistryOptions",
    "SchemaError",
    "SchemaRegistry",
    "TimeUnit",
    "compile_schema",
    "parse_avro",
    "parse_protobuf",
]

# An agent without a schema registry does not need an HTTP client.
_LAZY = {
    "avro": ("AvroFormat",),
    "avro_schema": ("SchemaError", "parse_avro"),
    "protobuf": ("ProtobufFormat",),
    "protobuf_schema": ("ProtobufMessage", "parse_protobuf"),
    "records": ("BinaryFormat", "OpenedRecord", "RecordFormats", "compile_schema"),
    "registry": ("SchemaRegistry",),
    "registry_http": ("RegisteredSchema", "RegistryOptions"),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)
