"""The byte ranges of Avro records, against fastavro: any schema, any value, any changed text."""

import io
import json
from collections.abc import Iterator

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model import MessageError
from deid_agent.schemas import AvroFormat, Kind, Node, parse_avro

TEXT = st.text(max_size=6)
LEAVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": TEXT,
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> tuple[object, st.SearchStrategy[object]]:
    """A schema, and the values of it."""
    kind = draw(st.sampled_from([*LEAVES, *(("record", "array", "map", "union") if depth < 3 else ())]))
    if kind in LEAVES:
        return kind, LEAVES[kind]
    if kind == "union":
        branch = draw(st.sampled_from(["string", "bytes", "long"]))
        return ["null", branch], st.none() | LEAVES[branch]
    if kind == "record":
        parts = draw(st.lists(schemas(depth=depth + 1), max_size=3))
        fields = [{"name": f"f{n}", "type": each} for n, (each, _) in enumerate(parts)]
        whole = st.fixed_dictionaries({f"f{n}": each for n, (_, each) in enumerate(parts)})
        return {"type": "record", "name": "R", "fields": fields}, whole
    inner, values = draw(schemas(depth=depth + 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)


def name_records(schema: object, path: str = "R") -> object:
    """``schema`` with a name of its own for each record."""
    if isinstance(schema, list):
        return [name_records(each, f"{path}u") for each in schema]
    if not isinstance(schema, dict):
        return schema
    fields = [{**each, "type": name_records(each["type"], path + each["name"])} for each in schema.get("fields", ())]
    inner = {key: name_records(schema[key], path + "i") for key in ("items", "values") if key in schema}
    return {**schema, **inner, **({"name": path, "fields": fields} if schema["type"] == "record" else {})}


def texts(node: Node) -> Iterator[Node]:
    if node.kind is Kind.TEXT:
        yield node
    for _, member in node.members:
        yield from texts(member)
    for item in node.items:
        yield from texts(item)


def plain(node: Node, replaced: dict[int, str]) -> object:
    """The value of a tree as fastavro returns it."""
    match node.kind:
        case Kind.RECORD | Kind.MAP:
            return {name: plain(member, replaced) for name, member in node.members}
        case Kind.LIST:
            return [plain(item, replaced) for item in node.items]
    return replaced.get(node.number, node.scalar)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_tree_has_the_values_and_a_changed_record_only_the_changes(data: st.DataObject) -> None:
    drawn, values = data.draw(schemas())
    schema = name_records(drawn)
    value = data.draw(values)
    parsed = fastavro.parse_schema(schema)  # type: ignore[arg-type]
    out = io.BytesIO(b"\0head")
    out.seek(5)
    fastavro.schemaless_writer(out, parsed, value)
    raw = out.getvalue()
    form = AvroFormat(parse_avro(json.dumps(schema)))
    root = form.read(raw, 5)
    assert plain(root, {}) == value and root.end == len(raw)
    assert form.write(raw, root, {}) == raw[5:]

    chosen = [node for node in texts(root) if data.draw(st.booleans())]
    replaced = {node.number: data.draw(TEXT) for node in chosen}
    changes = {node.number: form.encode(node, replaced[node.number]) for node in chosen}
    new = form.write(raw, root, changes)
    assert fastavro.schemaless_reader(io.BytesIO(new), parsed, None) == plain(root, replaced)
    at = new_at = 0
    for node in sorted(chosen, key=lambda each: each.start):  # all other bytes are the same
        gap = raw[5:][at : node.start - 5]
        assert new[new_at : new_at + len(gap)] == gap
        at, new_at = node.end - 5, new_at + len(gap) + len(changes[node.number])
    assert new[new_at:] == raw[5:][at:]


@settings(max_examples=80, deadline=None)
@given(st.data(), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: st.DataObject, raw: bytes) -> None:
    schema, _ = data.draw(schemas())
    form = AvroFormat(parse_avro(json.dumps(name_records(schema))))
    try:
        root = form.read(raw, 0)
    except MessageError:
        return
    assert form.write(raw, root, {}) == raw
