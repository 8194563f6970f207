"""Records in Protobuf: their byte ranges, removed values, and bytes that do not fit their schema."""

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protobuf_types import INT32, MESSAGE, ONE, REQUIRED, STRING, add_field, encoded_files, event_class

from deid_agent.model import MessageError, Reason
from deid_agent.schemas import Changes, Kind, Node, ProtobufFormat, SchemaError, parse_protobuf
from deid_agent.schemas.protobuf_schema import ProtobufField, ProtobufMessage

FORM = ProtobufFormat(parse_protobuf(*encoded_files())[1])


def event(**fields: object) -> Any:
    return event_class()(**fields)


def member(node: Node, *names: str) -> Node:
    for name in names:
        node = node.items[int(name)] if name.isdigit() else dict(node.members)[name]
    return node


def full() -> Any:
    made = event(mrn="4471902", message=b"M" * 300, numbers=[1, -2, 300], secret="s", names=["a", "b"])
    made.parts.add(data="one", n=1).inner.data = "deep"
    made.parts.add(data="two", n=-2)
    made.tags["x"], made.tags["y"] = "1", "2"
    made.source.name = "clinic"
    made.at.seconds, made.at.nanos = 1_710_152_100, 500_000_000
    return made


def test_a_long_text_changes_the_lengths_of_the_messages_around_it() -> None:
    raw = b"head" + full().SerializeToString()
    root = FORM.read(raw, 4)
    deep = member(root, "parts", "0", "inner", "data")
    expected = full()
    expected.parts[0].inner.data = "long" * 100

    out = FORM.write(raw, root, {deep.number: FORM.encode(deep, "long" * 100)})
    assert event_class().FromString(out) == expected
    assert FORM.write(raw, root, {}) == raw[4:]


@pytest.mark.parametrize("name", ["mrn", "message", "parts", "tags", "source", "at", "numbers", "secret", "names"])
def test_a_removed_field_is_absent(name: str) -> None:
    raw, expected, changes = full().SerializeToString(), full(), Changes()
    root = FORM.read(raw, 0)
    FORM.remove(member(root, name), changes)
    expected.ClearField(name)

    assert event_class().FromString(FORM.write(raw, root, changes)) == expected


def test_removed_items_keep_the_numbers_of_the_others() -> None:
    raw, expected, changes = full().SerializeToString(), full(), Changes()
    root = FORM.read(raw, 0)
    for place in (("parts", "0"), ("numbers", "1"), ("names", "0"), ("tags", "x")):
        FORM.remove(member(root, *place), changes)
    expected.parts[0].Clear()
    expected.numbers[1], expected.names[0] = 0, ""
    del expected.tags["x"]

    assert event_class().FromString(FORM.write(raw, root, changes)) == expected


def test_lists_of_numbers_one_by_one_and_packed() -> None:
    root = FORM.read(b"\x38\x05\x3a\x02\x06\x07\x38\x08", 0)
    assert [each.scalar for each in member(root, "numbers").items] == [5, 6, 7, 8]


def test_a_timestamp_is_written_back() -> None:
    raw = full().SerializeToString()
    root = FORM.read(raw, 0)
    at = member(root, "at")
    assert at.scalar == 1_710_152_100_500_000_000

    out = event_class().FromString(FORM.write(raw, root, {at.number: FORM.encode(at, -1)}))
    assert (out.at.seconds, out.at.nanos) == (-1, 999_999_999)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x0a", Reason.MALFORMED),  # a tag alone
        (b"\x0a\x05ab", Reason.MALFORMED),  # a text that is cut
        (b"\x0a\x01\xff", Reason.MALFORMED),  # not UTF-8
        (b"\x08\x01", Reason.MALFORMED),  # a number in a text
        (b"\x0a\x01a\x0a\x01b", Reason.MALFORMED),  # twice: readers see only the last one
        (b"\x2a\x03\x0a\x05a", Reason.MALFORMED),  # a message longer than the one around it
        (b"\x9a\x06\x01a", Reason.UNSUPPORTED),  # field 99
        (b"\x2a\x03\x9a\x06\x00", Reason.UNSUPPORTED),  # field 99 of a message inside
        (b"\x0b\x0c", Reason.MALFORMED),  # a group in a text
        (b"\x00\x00", Reason.UNSUPPORTED),  # field 0
        (b"\xff" * 12, Reason.MALFORMED),
    ],
)
def test_bytes_that_do_not_fit_their_schema(raw: bytes, reason: Reason) -> None:
    with pytest.raises(MessageError) as refused:
        FORM.read(raw, 0)
    assert refused.value.reason is reason


def test_a_boolean_holds_no_number() -> None:
    form = ProtobufFormat(ProtobufMessage("X", {1: ProtobufField(1, "b", 8)}))
    assert member(form.read(b"\x08\x01", 0), "b").scalar is True
    with pytest.raises(MessageError) as refused:
        form.read(b"\x08\xde\xf8\x90\x02", 0)
    assert refused.value.reason is Reason.MALFORMED


def test_messages_inside_each_other_have_a_limit() -> None:
    raw = b""
    for _ in range(200):
        raw = b"\x1a" + _length(raw) + raw
    with pytest.raises(MessageError) as refused:
        FORM.read(b"\x1a" + _length(raw) + raw, 0)
    assert refused.value.reason in {Reason.RESOURCE, Reason.MALFORMED}


def _length(raw: bytes) -> bytes:
    return bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        root = FORM.read(raw, 0)
    except MessageError:
        return
    assert FORM.write(raw, root, {}) == raw


def test_names_without_a_dot_are_found_from_the_inside_out_and_required_fields_stay() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="x", syntax="proto2")
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Inner")
    add_field(inner, 1, "text", STRING, REQUIRED)
    outer.enum_type.add(name="Mode").value.add(name="A", number=0)
    add_field(outer, 1, "inner", MESSAGE, REQUIRED, "Inner")
    outer.field.add(name="mode", number=2, label=ONE, type_name="Mode")
    add_field(outer, 3, "number", INT32)
    (found,) = parse_protobuf(base64.b64encode(file.SerializeToString()).decode())
    form, changes = ProtobufFormat(found), Changes()
    raw = b"\x0a\x03\x0a\x01x\x10\x00\x18\x05"
    root = form.read(raw, 0)
    form.remove(member(root, "inner"), changes)
    form.remove(member(root, "number"), changes)

    assert form.write(raw, root, changes) == b"\x0a\x02\x0a\x00\x10\x00"
    assert member(root, "mode").kind is Kind.NUMBER
    assert form.has(("inner", "text")) and not form.has(("inner", "other"))


@pytest.mark.parametrize("text", ["syntax = 'proto3';", base64.b64encode(b"\xff\xff").decode()])
def test_descriptors_that_cannot_be_used(text: str) -> None:
    with pytest.raises(SchemaError):
        parse_protobuf(text)


def test_a_type_that_no_file_defines() -> None:
    event_file, _ = encoded_files()
    with pytest.raises(SchemaError, match="neither it nor its references define"):
        parse_protobuf(event_file)


def test_places() -> None:
    for place in ("mrn", "parts/*/data", "parts/*/inner/data", "tags/x", "tags/*", "at/seconds", "*"):
        assert FORM.has(place.split("/")), place
    for place in ("other", "parts/data", "mrn/x", "numbers/0", "source/other"):
        assert not FORM.has(place.split("/")), place
