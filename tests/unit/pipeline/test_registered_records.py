"""Records with a schema, written and read by clients that are not ours: only listed fields pass and change."""

import datetime
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.protobuf_types import event_class
from support.schema_registry import FakeRegistry, Fault, serve_registry

from deid_agent.agent.job import Deferred, Job, Processed, Refused
from deid_agent.app import WorkerFactory
from deid_agent.codec import Envelope
from deid_agent.config import DEMO_KEY, EnvelopeSettings
from deid_agent.model import MessageError, Reason
from deid_agent.pipeline import Deidentifier, Validator, add_registry, check_payloads, load_policy, make_envelope
from deid_agent.rules import data_folder
from deid_agent.schemas import RegistryOptions

HL7 = (
    "MSH|^~\\&|A|B|C|D|20240311||ORU^R01|M-1|P|2.5\r"
    "PID|1||4471902^^^HOSP^MR||Okafor^Adaeze||19710304|F\r"
    "OBX|1|TX|1||Mrs. Okafor has 2/6 murmur, \u00b5g dose kept.\r"
)
VALUE = SerializationContext("clinic", MessageField.VALUE)
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
AVRO = {
    "type": "record",
    "name": "Event",
    "namespace": "org.acme",
    "fields": [
        {"name": "mrn", "type": "string"},
        {"name": "received", "type": TIME},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "comment", "type": ["null", "string"]},
        {"name": "message", "type": ["null", "string", "bytes"]},
        {"name": "parts", "type": {"type": "array", "items": {**SOURCE, "name": "P", "fields": [
            {"name": "data", "type": "string"}, {"name": "at", "type": TIME}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "source", "type": SOURCE},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "blob", "type": ["null", "bytes"]},
    ],
}  # fmt: skip
ACTIONS = {
    "/mrn": "identifier",
    "/received": "date",
    "/day": "date",
    "/comment": "text",
    "/parts/*/at": "date",
    "/tags": "keep",
    "/source": "keep",
    "/kind": "keep",
    "/blob": "keep",
}
NOON = datetime.datetime(2024, 3, 11, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    rules = data_folder("rules")
    policy = load_policy("pseudonymised", rules)
    return WorkerFactory(rules=rules, key=DEMO_KEY, policy=policy, system="rules").deidentifier()


@pytest.fixture(scope="module")
def served() -> Iterator[FakeRegistry]:
    with serve_registry() as registry:
        yield registry


Connect = Callable[[], SchemaRegistryClient]


@pytest.fixture
def connect(served: FakeRegistry) -> Iterator[Connect]:
    """Makes clients without a cache."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SchemaRegistryClient({"url": served.url}))


def envelope(served: FakeRegistry, payload: object, fields: Mapping[str, str], **more: object) -> Envelope:
    settings = {"payload": payload, "fields": fields, "schema_registry": True, **more}
    made = make_envelope(EnvelopeSettings.model_validate(settings))
    return add_registry([("", made)], RegistryOptions((served.url,)))[""]


def avro_record(**fields: object) -> dict[str, object]:
    blank = {"mrn": "4471902", "received": NOON, "day": None, "comment": None, "message": None, "parts": []}
    return {**blank, "tags": {}, "source": {"table": "inbound"}, "kind": "NEW", "blob": None, **fields}


def frame(served: FakeRegistry, value: object, schema: object = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)  # type: ignore[arg-type]
    return b"\0" + served.add("clinic-value", json.dumps(schema)).to_bytes(4, "big") + out.getvalue()


def unframe(raw: bytes, schema: object = AVRO) -> Any:
    left = io.BytesIO(raw[5:])
    found = fastavro.schemaless_reader(left, fastavro.parse_schema(schema), None)  # type: ignore[arg-type]
    assert raw[0] == 0 and not left.read()
    return found


def alone(deidentifier: Deidentifier, message: str = HL7) -> str:
    return deidentifier.message(message.encode()).payload.decode()


def test_avro_by_the_serializer_of_confluent(
    deidentifier: Deidentifier, served: FakeRegistry, connect: Connect
) -> None:
    client = connect()
    record = avro_record(comment="Mrs. Okafor called.", message=HL7, day=NOON.date(), tags={"a": "b"})
    raw = AvroSerializer(client, json.dumps(AVRO))(record, VALUE)
    out = deidentifier.message(raw, envelope=envelope(served, "/message", ACTIONS)).payload
    read = AvroDeserializer(connect())(out, VALUE)

    assert read["message"] == alone(deidentifier) and "Okafor" not in read["comment"]
    assert read["mrn"] in read["message"] and read["mrn"] != "4471902"
    shift = NOON - read["received"]
    assert shift.days and shift.seconds == 0 and NOON.date() - read["day"] == shift
    for name in ("tags", "source", "kind", "blob", "parts"):
        assert read[name] == record[name]
    assert out[:5] == raw[:5]


def test_messages_in_a_list_and_in_bytes(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    latin = HL7.replace("|2.5", "|2.5||||||8859/1").encode("latin-1")
    other = HL7.replace("4471902", "5551234").replace("M-1", "M-2")
    record = avro_record(message=latin, parts=[{"data": each, "at": NOON} for each in (HL7, other)])
    form = envelope(served, ["/message", "/parts/*/data"], ACTIONS)
    out = unframe(deidentifier.message(frame(served, record), envelope=form).payload)

    assert out["message"] == deidentifier.message(latin).payload
    assert [each["data"] for each in out["parts"]] == [alone(deidentifier), alone(deidentifier, other)]
    for each in out["parts"]:
        assert each["at"].strftime("%Y%m%d") == each["data"].split("|")[6], "each with its own message"


def test_every_byte_around_a_change_stays(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    """Blocks with and without their length, and numbers that are longer than needed."""
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "n", "type": "long"},
        {"name": "message", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": "long"}},
    ]}  # fmt: skip
    tags = b"\x01\x08\x02a\x02b" + b"\x02\x02c\x02d" + b"\x00"
    head, tail = tags + b"\x82\x80\x00", b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    text = HL7.encode()
    size = bytes([len(text) * 2 & 0x7F | 0x80, len(text) * 2 >> 7])
    raw = b"\0" + served.add("r", json.dumps(schema)).to_bytes(4, "big") + head + size + text + tail
    form = envelope(served, "/message", {"/tags": "keep", "/n": "keep", "/list": "keep"})
    out = deidentifier.message(raw, envelope=form).payload
    new = alone(deidentifier).encode()

    assert out == raw[:5] + head + bytes([len(new) * 2 & 0x7F | 0x80, len(new) * 2 >> 7]) + new + tail


def test_dropped_fields(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    gone = dict.fromkeys(ACTIONS, "drop") | {"/tags": "keep", "/tags/secret": "drop"}
    record = avro_record(
        message=HL7, day=NOON.date(), comment="x", tags={"secret": "Okafor", "a": "b"}, kind="OLD", blob=b"Okafor"
    )
    done = deidentifier.message(frame(served, record), envelope=envelope(served, "/message", gone))
    out = unframe(done.payload)

    assert out["day"] is None and out["comment"] is None and out["blob"] is None and out["mrn"] == ""
    assert out["received"].year == 1970 and out["source"] == {"table": ""} and out["kind"] == "NEW"
    assert out["tags"] == {"a": "b"} and b"Okafor" not in done.payload


@pytest.mark.parametrize("name", [*ACTIONS, "/source/table"])
def test_an_unlisted_field_refuses_the_record(deidentifier: Deidentifier, served: FakeRegistry, name: str) -> None:
    actions = {place: action for place, action in ACTIONS.items() if not name.startswith(place)}
    record = avro_record(message=HL7, parts=[{"data": HL7, "at": NOON}])
    with pytest.raises(MessageError) as refused:
        deidentifier.message(frame(served, record), envelope=envelope(served, ["/message", "/parts/*/data"], actions))
    assert refused.value.reason is Reason.UNSUPPORTED
    assert refused.value.where == name.replace("*", "*[0]").removesuffix("/table")


@pytest.mark.parametrize(
    ("fields", "reason", "where"),
    [
        ({"tags": {"Okafor": "x"}}, Reason.LEAK, "/tags/*"),
        ({"blob": b"\x00\x06Okafor"}, Reason.LEAK, "/blob"),
        ({"received": datetime.datetime.max.replace(tzinfo=datetime.UTC)}, None, ""),
    ],
)
def test_identifiers_that_cannot_be_replaced(
    deidentifier: Deidentifier, served: FakeRegistry, fields: Mapping[str, object], reason: Reason | None, where: str
) -> None:
    raw = frame(served, avro_record(message=HL7, **fields))
    form = envelope(served, "/message", ACTIONS)
    if reason is None:
        deidentifier.message(raw, envelope=form)
        return
    with pytest.raises(MessageError) as refused:
        deidentifier.message(raw, envelope=form)
    assert refused.value.reason is reason and refused.value.where.startswith(where)
    assert "Okafor" not in str(refused.value)


def test_a_kept_text_is_searched_for_the_identifiers_of_the_message(
    deidentifier: Deidentifier, served: FakeRegistry
) -> None:
    record = avro_record(message=HL7, source={"table": "Okafor 4471902"}, tags={"a": "of Okafor"})
    out = deidentifier.message(frame(served, record), envelope=envelope(served, "/message", ACTIONS)).payload
    assert b"Okafor" not in out and b"4471902" not in out
    assert unframe(out)["tags"]["a"].startswith("of ")


def test_codes_and_numbers_are_kept_or_dropped(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    for place, action in (("/kind", "identifier"), ("/received", "identifier")):
        with pytest.raises(MessageError, match="cannot be replaced"):
            form = envelope(served, "/message", {**ACTIONS, place: action})
            deidentifier.message(frame(served, avro_record(message=HL7)), envelope=form)


def test_records_without_messages(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    raw = frame(served, avro_record(mrn=""))
    assert deidentifier.message(raw, envelope=envelope(served, ["/message", "/parts/*/data"], ACTIONS)).payload[5:]
    with pytest.raises(MessageError, match="no message at the places"):
        deidentifier.message(
            raw, envelope=envelope(served, "/other", {**ACTIONS, "/parts": "drop", "/message": "drop"})
        )


def test_the_policy_keep_changes_no_byte(served: FakeRegistry) -> None:
    rules = data_folder("rules")
    keep = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("keep", rules), system="rules").deidentifier()
    raw = frame(served, avro_record(message=HL7))
    assert keep.message(raw, envelope=envelope(served, "/message", ACTIONS)).payload == raw


def test_json_schema_by_the_serializer_of_confluent(
    deidentifier: Deidentifier, served: FakeRegistry, connect: Connect
) -> None:
    schema = json.dumps({"title": "Event", "type": "object", "properties": {"message": {"type": "string"}}})
    client = connect()
    record = {"message": HL7, "op": "c", "n": 1}
    raw = JSONSerializer(schema, client)(record, VALUE)
    form = envelope(served, "/message", {"/op": "keep", "/n": "keep"}, output_subject="clean-value")
    out = deidentifier.message(raw, envelope=form).payload
    read = JSONDeserializer(schema, schema_registry_client=connect())(out, VALUE)

    assert read == {**record, "message": alone(deidentifier)} and len(served.subjects["clean-value"]) == 1
    with pytest.raises(MessageError) as refused:
        deidentifier.message(raw, envelope=envelope(served, "/message", {"/op": "keep"}))
    assert refused.value.where == f"byte {raw.index(b'1}')}"


def test_protobuf_by_the_serializer_of_confluent(
    deidentifier: Deidentifier, served: FakeRegistry, connect: Connect
) -> None:
    record: Any = event_class()(mrn="4471902", message=HL7.encode(), numbers=[1, 300], secret="Okafor")
    record.parts.add(data=HL7, n=-2)
    record.tags["a"] = record.tags["b"] = "c"
    record.source.name, record.source.ts = "Mrs. Okafor", 5
    record.at.FromDatetime(NOON)
    client = connect()
    raw = ProtobufSerializer(event_class(), client, {"use.deprecated.format": False})(record, VALUE)
    actions = {"/mrn": "identifier", "/at": "date", "/tags": "keep", "/tags/a": "drop", "/parts/*/n": "keep"}
    actions |= {"/numbers": "keep", "/secret": "drop", "/source/name": "text", "/source/ts": "drop"}
    form = envelope(served, ["/message", "/parts/*/data"], actions, output_subject="clean-proto")
    out = deidentifier.message(raw, envelope=form).payload
    read: Any = ProtobufDeserializer(event_class(), {"use.deprecated.format": False}, connect())(out, VALUE)

    assert read.message.decode() == read.parts[0].data == alone(deidentifier) and read.parts[0].n == -2
    assert read.mrn in read.parts[0].data and read.source.name.startswith("Mrs. ")
    assert (NOON - read.at.ToDatetime(datetime.UTC)).seconds == 0
    assert dict(read.tags) == {"b": "c"} and list(read.numbers) == [1, 300]
    assert not read.secret and not read.source.ts and b"Okafor" not in out
    assert served.subjects["clean-proto"] == [int.from_bytes(out[1:5], "big")]


@pytest.mark.parametrize("more", [b"", b"\x22\x06\x0a\x01k\x12\x01v"])
@pytest.mark.parametrize("place", ["/tags/*", "/tags/Okafor"])
def test_a_dropped_entry_without_a_value_takes_its_key_with_it(
    deidentifier: Deidentifier, served: FakeRegistry, connect: Connect, place: str, more: bytes
) -> None:
    serialize = ProtobufSerializer(event_class(), connect(), {"use.deprecated.format": False})
    raw = serialize(event_class()(message=HL7.encode()), VALUE) + b"\x22\x08\x0a\x06Okafor" + more
    form = envelope(served, ["/message", "/parts/*/data"], {"/tags/*": "keep", place: "drop"})
    out = deidentifier.message(raw, envelope=form).payload

    assert b"Okafor" not in out
    assert (b"\x0a\x01k" in out) is bool(more and place != "/tags/*")


def test_an_identifier_as_a_whole_number_with_a_fraction(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    schema = {"type": "record", "name": "D", "fields": [
        {"name": "message", "type": "string"}, {"name": "n", "type": "double"}]}  # fmt: skip
    form = envelope(served, "/message", {"/n": "keep"})
    with pytest.raises(MessageError) as refused:
        deidentifier.message(frame(served, {"message": HL7, "n": 4471902.0}, schema), envelope=form)
    assert (refused.value.reason, refused.value.where) == (Reason.LEAK, "/n")
    raw = frame(served, {"message": HL7, "n": 37.0}, schema)
    assert unframe(deidentifier.message(raw, envelope=form).payload, schema)["n"] == 37


@pytest.mark.parametrize(("action", "reason"), [("keep", Reason.LEAK), ("text", Reason.UNSUPPORTED)])
@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_wide_characters_in_bytes(
    deidentifier: Deidentifier, served: FakeRegistry, action: str, reason: Reason, charset: str
) -> None:
    raw = frame(served, avro_record(message=HL7, blob="Mrs. Okafor".encode(charset)))
    with pytest.raises(MessageError) as refused:
        deidentifier.message(raw, envelope=envelope(served, "/message", {**ACTIONS, "/blob": action}))
    assert (refused.value.reason, refused.value.where) == (reason, "/blob")
    kept = frame(served, avro_record(message=HL7, blob="Mrs. Stone".encode(charset)))
    assert (
        "Mrs. Stone".encode(charset)
        in deidentifier.message(kept, envelope=envelope(served, "/message", ACTIONS)).payload
    )


def test_an_absent_message_of_protobuf(deidentifier: Deidentifier, served: FakeRegistry, connect: Connect) -> None:
    client = connect()
    serialize = ProtobufSerializer(event_class(), client, {"use.deprecated.format": False})
    raw = serialize(event_class()(secret="x"), VALUE)
    form = envelope(served, ["/message", "/parts/*/data"], {"/secret": "drop"})
    assert deidentifier.message(raw, envelope=form).payload == raw[:-3]


def test_the_outputs_are_validated(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    form = envelope(served, "/message", ACTIONS, output_subject="clean")
    raw = frame(served, avro_record(message=HL7))
    check_payloads(Validator(), form, raw, deidentifier.message(raw, envelope=form).payload)
    assert deidentifier.count_unexamined(raw, form)


def test_cut_records_are_refused(deidentifier: Deidentifier, served: FakeRegistry) -> None:
    raw = frame(served, avro_record(message=HL7, blob=b"x"))
    form = envelope(served, "/message", ACTIONS)
    for size in (*range(8), len(raw) - 2, len(raw) - 1):
        with pytest.raises(MessageError) as refused:
            deidentifier.message(raw[:size], envelope=form)
        assert refused.value.reason is Reason.MALFORMED


def test_a_worker_defers_records_only_while_the_registry_is_away(
    served: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deid_agent.schemas.registry._FIRST_PAUSE_S", 0.0)
    made = make_envelope(EnvelopeSettings.model_validate({"payload": "/a", "schema_registry": True}))
    rules = data_folder("rules")
    worker = WorkerFactory(
        rules=rules,
        key=DEMO_KEY,
        policy=load_policy("pseudonymised", rules),
        system="none",
        envelopes=(("clinic", made),),
        registry=RegistryOptions((served.url,)),
    )()
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    raw = frame(served, {"a": HL7}, one)
    served.faults += [Fault(503)] * 2
    framed, plain = Job(raw, source="clinic"), Job(HL7.encode(), source="other")

    results = [worker(framed), worker(plain), worker(framed), worker(framed)]
    assert results[0] == results[2] == Deferred("the schema registry answers 503")
    assert isinstance(results[1], Processed) and isinstance(results[3], Processed)
    assert unframe(results[3].payload, one)["a"].encode() == results[1].payload
    unknown = worker(Job(raw[:1] + (999).to_bytes(4, "big") + raw[5:], source="clinic"))
    assert isinstance(unknown, Refused) and unknown.reason is Reason.SCHEMA
