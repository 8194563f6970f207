"""Records in Avro: their byte ranges, removed values, and bytes that do not fit their schema."""

import io
import json

import fastavro
import pytest

from deid_agent.model import MessageError, Reason
from deid_agent.schemas import AvroFormat, Changes, Node, SchemaError, parse_avro


def form(schema: object) -> AvroFormat:
    return AvroFormat(parse_avro(json.dumps(schema)))


def encode(schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)  # type: ignore[arg-type]
    return out.getvalue()


def decode(schema: object, raw: bytes) -> object:
    left = io.BytesIO(raw)
    found = fastavro.schemaless_reader(left, fastavro.parse_schema(schema), None)  # type: ignore[arg-type]
    assert not left.read(), "bytes after the record"
    return found


def record(*fields: tuple[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def member(node: Node, name: str) -> Node:
    return dict(node.members)[name]


def blocks(*sizes: int, counted: bool) -> bytes:
    """A map of texts in blocks of these sizes, with or without their lengths in bytes."""
    out, number = b"", 0
    for size in sizes:
        body = b"".join(bytes([2, ord("a") + number + n, 2, ord("A") + number + n]) for n in range(size))
        out += (bytes([2 * size - 1, 2 * len(body)]) if counted else bytes([2 * size])) + body
        number += size
    return out + b"\0"


@pytest.mark.parametrize(
    ("kind", "value", "blank"),
    [
        (["null", "string"], "x", None),
        (["string", "null"], "x", None),
        (["string", "long"], 7, ""),
        ("string", "x", ""),
        ("bytes", b"x", b""),
        ("long", 7, 0),
        ("boolean", True, False),
        ("double", 1.5, 0.0),
        ("float", 1.5, 0.0),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "A"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", bytes(3)),
        ({"type": "array", "items": "int"}, [1, 2], []),
        ({"type": "map", "values": "int"}, {"a": 2}, {}),
        (record(("a", "string"), ("b", ["null", "int"])), {"a": "x", "b": 3}, {"a": "", "b": None}),
    ],
)
def test_a_removed_value_becomes_null_or_empty(kind: object, value: object, blank: object) -> None:
    inner = {**kind, "name": "Inner"} if isinstance(kind, dict) and kind["type"] == "record" else kind
    schema = record(("before", "string"), ("it", inner), ("after", "string"))
    raw = encode(schema, {"before": "b", "it": value, "after": "a"})
    read, changes = form(schema), Changes()
    root = read.read(raw, 0)
    read.remove(member(root, "it"), changes)

    assert decode(schema, read.write(raw, root, changes)) == {"before": "b", "it": blank, "after": "a"}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("gone", ["a", "b", "bc", "abc", ""])
def test_an_entry_leaves_a_map_in_blocks(counted: bool, gone: str) -> None:
    schema = {"type": "map", "values": "string"}
    raw = blocks(1, 2, 1, counted=counted)
    read, changes = form(schema), Changes()
    root = read.read(raw, 0)
    for name in gone:
        read.remove(member(root, name), changes)
    changes[member(root, "d").number] = read.encode(member(root, "d"), "a much longer text" * 10)
    out = read.write(raw, root, changes)

    kept = {name: name.upper() for name in "abc" if name not in gone}
    assert decode(schema, out) == {**kept, "d": "a much longer text" * 10}
    assert form(schema).read(out, 0).end == len(out), "the lengths of the blocks fit"


def test_numbers_that_are_longer_than_needed_stay() -> None:
    schema = record(("n", "long"), ("text", "string"), ("m", "int"))
    raw = b"\x82\x80\x00" + b"\x84\x00ab" + b"\x86\x00"
    read = form(schema)
    root = read.read(raw, 0)
    changed = {member(root, "text").number: read.encode(member(root, "text"), "xyz")}

    assert read.write(raw, root, changed) == b"\x82\x80\x00" + b"\x06xyz" + b"\x86\x00"


def test_named_types_of_references_and_namespaces() -> None:
    name = {"type": "record", "name": "Name", "namespace": "org.x", "fields": [{"name": "family", "type": "string"}]}
    schema = {
        "type": "record",
        "name": "org.x.Person",
        "fields": [{"name": "name", "type": "Name"}, {"name": "mother", "type": ["null", "org.x.Person"]}],
    }
    read = AvroFormat(parse_avro(json.dumps(schema), [json.dumps(name)]))
    root = read.read(b"\x02a\x02\x02b\x00", 0)

    assert member(member(member(root, "mother"), "name"), "family").scalar == "b"
    assert read.has(("mother", "mother", "name", "family")) and not read.has(("mother", "age"))


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        ("string", b""),
        ("string", b"\x04a"),
        ("string", b"\x01"),
        ("string", b"\x04\xff\xfe"),
        ("string", b"\x02aX"),
        ("long", b"\xff" * 11),
        ("long", b"\x80" * 9 + b"\x7f"),
        ("int", b"\xfe\xff\xff\xff\xff\x0f"),
        ("boolean", b"\x02"),
        ("double", b"1234"),
        (["null", "string"], b"\x04"),
        (["null", "string"], b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "map", "values": "string"}, b"\x01\x02\x02a\x02b\x00"),
        ({"type": "array", "items": "null"}, b"\x02"),
    ],
)
def test_bytes_that_do_not_fit_their_schema(schema: object, raw: bytes) -> None:
    with pytest.raises(MessageError) as refused:
        form(schema).read(raw, 0)
    assert refused.value.reason is Reason.MALFORMED


def test_a_list_of_nothing_has_a_limit() -> None:
    with pytest.raises(MessageError) as refused:
        form({"type": "array", "items": "null"}).read(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", 0)
    assert refused.value.reason is Reason.RESOURCE


def test_a_record_that_holds_itself_has_limits() -> None:
    endless = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["R", "null"]}]}
    with pytest.raises(MessageError) as refused:
        form(endless).read(b"\0" * 5000, 0)
    assert refused.value.reason is Reason.RESOURCE
    nothing = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["R", "int"]}]}
    read = form(nothing)
    root = read.read(b"\0" * 4 + b"\x02\x02", 0)
    with pytest.raises(SchemaError, match="no empty value"):
        read.remove(root, Changes())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "7",
        '{"type": "record", "name": "R"}',
        '{"type": "enum", "name": "E", "symbols": []}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "Unknown"}',
        '{"name": "R"}',
        '{"type": "record", "fields": []}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        "[" * 300 + "]" * 300,
    ],
)
def test_schemas_that_cannot_be_used(text: str) -> None:
    with pytest.raises(SchemaError):
        parse_avro(text)
