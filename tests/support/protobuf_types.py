"""Protobuf types for tests, made without a compiler: an event with a message, and a file that it imports."""

import base64
from functools import lru_cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

INT64, INT32, STRING, MESSAGE, BYTES = 3, 5, 9, 11, 12
ONE, REQUIRED, MANY = 1, 2, 3
_IMPORT = "google/protobuf/timestamp.proto"


def add_field(
    owner: descriptor_pb2.DescriptorProto, number: int, name: str, kind: int, label: int = ONE, of: str = ""
) -> None:
    """A field of a message type; ``of`` is the name of its own message type."""
    made = owner.field.add(name=name, number=number, label=label, type=kind)
    if of:
        made.type_name = of


def make_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """``common.proto`` and ``event.proto``, whose second message type is ``acme.Event``."""
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="acme", syntax="proto3")
    source = common.message_type.add(name="Source")
    add_field(source, 1, "name", STRING)
    add_field(source, 2, "ts", INT64)
    event = descriptor_pb2.FileDescriptorProto(
        name="event.proto", package="acme", syntax="proto3", dependency=["common.proto", _IMPORT]
    )
    event.message_type.add(name="Other")
    made = event.message_type.add(name="Event")
    part = made.nested_type.add(name="Part")
    add_field(part, 1, "data", STRING)
    add_field(part, 2, "n", INT32)
    add_field(part, 3, "inner", MESSAGE, of=".acme.Event.Part")
    entry = made.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add_field(entry, 1, "key", STRING)
    add_field(entry, 2, "value", STRING)
    for number, name, kind, label, of in (
        (1, "mrn", STRING, ONE, ""),
        (2, "message", BYTES, ONE, ""),
        (3, "parts", MESSAGE, MANY, ".acme.Event.Part"),
        (4, "tags", MESSAGE, MANY, ".acme.Event.TagsEntry"),
        (5, "source", MESSAGE, ONE, ".acme.Source"),
        (6, "at", MESSAGE, ONE, ".google.protobuf.Timestamp"),
        (7, "numbers", INT32, MANY, ""),
        (8, "secret", STRING, ONE, ""),
        (16, "names", STRING, MANY, ""),
    ):
        add_field(made, number, name, kind, label, of)
    return [common, event]


@lru_cache(maxsize=1)
def event_class() -> type[Message]:
    """The class of ``acme.Event``."""
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    for each in (timestamp, *make_files()):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Event"))


def encoded_files() -> tuple[str, list[str]]:
    """The descriptor of ``event.proto`` and those that it imports, in base64, as a registry serves them."""
    common, event = (base64.b64encode(each.SerializeToString()).decode() for each in make_files())
    return event, [common]
