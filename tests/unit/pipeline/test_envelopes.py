"""Records around messages: only listed fields pass, the message comes out as without its envelope."""

import base64
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deid_agent.app import WorkerFactory
from deid_agent.codec import Envelope
from deid_agent.config import DEMO_KEY, EnvelopeSettings
from deid_agent.model import ConfigurationError, MessageError, Reason
from deid_agent.pipeline import Deidentifier, Validator, add_registry, check_payloads, load_policy, make_envelope
from deid_agent.pipeline.policy import KeyMode, compile_policy
from deid_agent.rules import data_folder

HL7 = (
    "MSH|^~\\&|A|B|C|D|20240311||ORU^R01|M-1|P|2.5\r"
    "PID|1||4471902^^^HOSP^MR||Okafor^Adaeze||19710304|F\r"
    "OBX|1|TX|1||Mrs. Okafor has 2/6 murmur, \u00b5g dose kept.\r"
)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "envelopes.md"
PATIENT = {"resourceType": "Patient", "id": "p1", "identifier": [{"value": "4471902"}], "name": [{"family": "Okafor"}]}


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    rules = data_folder("rules")
    policy = load_policy("pseudonymised", rules)
    return WorkerFactory(rules=rules, key=DEMO_KEY, policy=policy, system="rules").deidentifier()


def envelope(payload: str | tuple[str, ...] = "/payload", encoding: str = "text", **fields: str) -> Envelope:
    places = {name if name.startswith("/") else f"/{name}": action for name, action in fields.items()}
    return make_envelope(EnvelopeSettings.model_validate({"payload": payload, "encoding": encoding, "fields": places}))


def make_fields(payload: str | tuple[str, ...], fields: Mapping[str, str]) -> Envelope:
    return make_envelope(EnvelopeSettings.model_validate({"payload": payload, "fields": fields}))


def run(deidentifier: Deidentifier, record: object, form: Envelope, **style: object) -> bytes:
    raw = record if isinstance(record, bytes) else json.dumps(record, **style).encode()  # type: ignore[arg-type]
    return deidentifier.message(raw, envelope=form).payload


def alone(deidentifier: Deidentifier, message: str = HL7) -> str:
    return deidentifier.message(message.encode()).payload.decode()


@pytest.mark.parametrize("style", [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": 2}])
def test_a_message_in_a_string_comes_out_as_without_the_envelope(
    deidentifier: Deidentifier, style: Mapping[str, object]
) -> None:
    record = {"schema": {"type": "string", "optional": False}, "payload": HL7}
    out = run(deidentifier, record, envelope(schema="keep"), **style)

    assert json.loads(out) == {**record, "payload": alone(deidentifier)}
    assert "Okafor" not in out.decode()


def test_lines_without_a_change_keep_their_escapes(deidentifier: Deidentifier) -> None:
    text = json.dumps(HL7).replace("\\r", "\\u000d").replace("/", "\\/")
    out = run(deidentifier, f'{{"payload":{text}}}'.encode(), envelope()).decode()

    assert json.loads(out)["payload"] == alone(deidentifier)
    assert out.startswith('{"payload":"MSH|^~\\\\&|A|') and "\\u000d" in out


def test_an_untouched_record_keeps_every_byte(deidentifier: Deidentifier) -> None:
    raw = b' { "payload" : {"resourceType":"Basic","code":{"text":"\\u0061"}} , "n" : 1.50e0 }\n'
    assert run(deidentifier, raw, envelope(n="keep")) == raw


@pytest.mark.parametrize("packed", [False, True])
def test_base64_with_and_without_compression(deidentifier: Deidentifier, packed: bool) -> None:
    data = gzip.compress(HL7.encode()) if packed else HL7.encode()
    record = {"data_base64": base64.b64encode(data).decode(), "specversion": "1.0", "datacontenttype": "x"}
    form = envelope("/data_base64", "base64", specversion="keep", datacontenttype="keep")
    out = base64.b64decode(json.loads(run(deidentifier, record, form))["data_base64"])

    assert (gzip.decompress(out) if packed else out).decode() == alone(deidentifier)


def test_the_messages_of_a_record_have_one_limit_after_decompression(
    deidentifier: Deidentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deid_agent.codec.envelope._MOST_BYTES", 10_000)
    packed = base64.b64encode(gzip.compress(HL7.encode() + b"NTE|1||" + b"x " * 2_000)).decode()
    record = {"events": [packed] * 3}

    assert run(deidentifier, {"events": [packed] * 2}, envelope("/events/*", "base64"))
    with pytest.raises(MessageError) as refused:
        run(deidentifier, record, envelope("/events/*", "base64"))
    assert refused.value.reason is Reason.RESOURCE and refused.value.where == "/events/*[2]"


def test_a_byte_order_mark_stays(deidentifier: Deidentifier) -> None:
    raw = b"\xef\xbb\xbf" + json.dumps({"payload": HL7}).encode()
    out = run(deidentifier, raw, envelope())
    assert out.startswith(raw[:16]) and json.loads(out)["payload"] == alone(deidentifier)


def test_a_compressed_record(deidentifier: Deidentifier) -> None:
    out = run(deidentifier, gzip.compress(HL7.encode()), envelope("", "gzip"))
    assert gzip.decompress(out).decode() == alone(deidentifier)


@pytest.mark.parametrize("flags", [b"\x08Okafor.hl7\0", b"\x10seen by Okafor\0", b"\x04\x06\0Okafor"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_the_file_name_in_the_header_of_gzip_is_removed(
    deidentifier: Deidentifier, flags: bytes, is_whole: bool
) -> None:
    plain = gzip.compress(b'{"resourceType":"Basic"}', mtime=0)
    packed = plain[:3] + flags[:1] + plain[4:10] + flags[1:] + plain[10:]
    if is_whole:
        assert run(deidentifier, packed, envelope("", "gzip")) == plain
        return
    record = json.dumps({"m": base64.b64encode(packed).decode()}).encode()
    out = json.loads(run(deidentifier, record, envelope("/m", "base64")))
    assert base64.b64decode(out["m"]) == plain


def test_a_change_record_of_debezium(deidentifier: Deidentifier) -> None:
    before = {"id": 7, "mrn": "4471902", "message": HL7}
    record = {"payload": {"before": before, "after": {**before, "message": None}, "source": {"ts_ms": 1}, "op": "u"}}
    form = envelope(
        ("/payload/before/message", "/payload/after/message"),
        **{"/payload/*/mrn": "identifier", "/payload/*/id": "drop", "/payload/source": "keep", "/payload/op": "keep"},
    )
    out = json.loads(run(deidentifier, record, form))["payload"]

    assert out["source"] == {"ts_ms": 1} and out["after"]["message"] is None
    assert set(out["before"]) == {"mrn", "message"}
    assert out["before"]["message"] == alone(deidentifier)
    assert out["before"]["mrn"] in out["before"]["message"].split("|")[20] + out["before"]["message"]
    assert out["before"]["mrn"] == out["after"]["mrn"] != "4471902"


def row_of(sender: str) -> list[str]:
    """The cells of a row of the page's table of frequent envelopes."""
    (row,) = (line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {sender} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("binary", [False, True])
def test_a_structured_event_of_cloudevents_with_the_fields_of_the_page(
    deidentifier: Deidentifier, binary: bool
) -> None:
    fields = {
        place: action
        for part in row_of("CloudEvents, structured mode")[2].split(";")
        for action in [re.findall(r"`(\w+)`", part)[-1]]
        for place in re.findall(r'"(/\w+)"', part)
    }
    assert fields == {
        **dict.fromkeys(("/specversion", "/type", "/source", "/datacontenttype"), "keep"),
        **dict.fromkeys(("/id", "/subject"), "identifier"),
        "/time": "date",
    }
    event = {"specversion": "1.0", "type": "org.example.oru", "source": "/lab", "id": "A-1", "subject": "4471902"}
    event |= {"time": "2024-03-11T10:00:00Z", "datacontenttype": "text/plain"}
    place, data = ("data_base64", base64.b64encode(HL7.encode()).decode()) if binary else ("data", HL7)
    form = envelope(f"/{place}", "base64" if binary else "text", **fields)
    out = json.loads(run(deidentifier, {**event, place: data}, form))
    message = base64.b64decode(out[place]).decode() if binary else out[place]
    assert message == alone(deidentifier)
    assert {key: out[key] for key in ("specversion", "type", "source")} == {
        "specversion": "1.0",
        "type": "org.example.oru",
        "source": "/lab",
    }
    assert f"|{out['subject']}^" in message, "the surrogate of the patient's number"
    assert out["id"] != "A-1"
    assert out["time"][:10].replace("-", "") == message.split("|")[6], "it moves with the message"


def test_a_binary_event_of_cloudevents_keeps_the_headers_of_the_page() -> None:
    listed = re.findall(r"`(ce_\w+)`", row_of("CloudEvents, binary mode")[2].split("Leave out")[0])
    assert listed == ["ce_specversion", "ce_type", "ce_source"]
    headers = tuple((name, name.encode()) for name in (*listed, "ce_id", "ce_subject", "ce_time"))
    policy = compile_policy({"name": "t", "default": "surrogate", "record": {"headers": listed}}, "t")
    factory = WorkerFactory(rules=data_folder("rules"), key=DEMO_KEY, policy=policy, system="rules")
    deidentifier = factory.deidentifier()
    plan = deidentifier.plan(HL7.encode(), headers=headers)
    (recognition,) = deidentifier.recognize([plan])
    assert [name for name, _ in deidentifier.apply(plan, recognition).headers] == listed


def test_a_list_of_resources(deidentifier: Deidentifier) -> None:
    record = {"events": [{"data": PATIENT}, {"data": PATIENT}], "at": "2024-03-11T10:00:00Z"}
    out = json.loads(run(deidentifier, record, envelope("/events/*/data", at="date")))

    assert [event["data"]["resourceType"] for event in out["events"]] == ["Patient", "Patient"]
    assert "Okafor" not in json.dumps(out) and out["at"] != record["at"] and out["at"].endswith("T10:00:00Z")


def test_a_date_moves_with_the_nearest_message(deidentifier: Deidentifier) -> None:
    other = HL7.replace("4471902", "5551234").replace("M-1", "M-2")
    events = [{"at": "2024-03-11", "note": "Seen on 2024-03-11.", "data": each} for each in (HL7, other)]
    form = make_fields("/events/*/data", {"/events/*/at": "date", "/events/*/note": "text", "/sent": "date"})
    out = json.loads(run(deidentifier, {"events": events, "sent": "2024-03-11"}, form))

    for event in out["events"]:
        year, month, day = event["at"].split("-")
        assert event["data"].split("|")[6] == year + month + day and event["note"] == f"Seen on {event['at']}."
    assert out["events"][0]["at"] == out["sent"] != out["events"][1]["at"]


def test_records_without_a_message_have_no_common_shift(deidentifier: Deidentifier) -> None:
    form = make_fields("/after", {"/id": "identifier", "/at": "date"})
    records = [{"id": str(number), "at": "2024-03-11", "after": None} for number in range(1000, 1020)]
    assert len({json.loads(run(deidentifier, each, form))["at"] for each in records}) > 5


def test_the_messages_of_a_record_do_not_change_each_other(deidentifier: Deidentifier) -> None:
    first = HL7.replace("Okafor", "Winter").replace("4471902", "4471902123")
    second = HL7.replace("4471902", "5551234").replace("M-1", "M-2").replace("Okafor^Adaeze", "Brown^Tom")
    second = second.replace("TX|1|", "TX|4471902123^X^L|").replace("Mrs. Okafor has", "Fell in Winter snow,")
    messages = [first, second, first]
    out = json.loads(
        run(deidentifier, {"events": messages, "file": "winter"}, make_fields("/events/*", {"/file": "keep"}))
    )

    assert out["events"] == [alone(deidentifier, each) for each in messages]
    assert out["file"] != "winter"


def test_a_record_of_a_deletion_has_no_message(deidentifier: Deidentifier) -> None:
    out = json.loads(
        run(
            deidentifier, {"before": {"mrn": "4471902"}, "after": None}, envelope("/after", **{"/before": "identifier"})
        )
    )
    assert out["after"] is None and out["before"]["mrn"] != "4471902"


def test_a_deletion_with_its_object_null_has_no_message(deidentifier: Deidentifier) -> None:
    form = make_fields("/after/message", {"/before": "drop", "/op": "keep", "/after/id": "identifier"})
    record = {"before": {"id": "4471902"}, "after": None, "op": "d"}
    assert json.loads(run(deidentifier, record, form)) == {"after": None, "op": "d"}


@pytest.mark.parametrize("dropped", ["a", "b", "c", "ab", "bc", "ac", "abc"])
def test_dropped_members_leave_valid_json(deidentifier: Deidentifier, dropped: str) -> None:
    record = {"a": [1, {"x": "Okafor"}], "b": "Okafor", "payload": HL7, "c": "Okafor"}
    actions = {name: "drop" if name in dropped else "text" for name in "bc"}
    out = json.loads(run(deidentifier, record, envelope(a="drop" if "a" in dropped else "keep", **actions)))

    assert set(out) == {*"abc", "payload"} - set(dropped)
    assert "Okafor" not in json.dumps(out)


@pytest.mark.parametrize(
    ("fields", "published"),
    [
        ({"": "drop"}, {"payload"}),
        ({"/*": "drop"}, {"payload"}),
        ({"/*": "drop", "/a": "keep"}, {"payload", "a"}),
        ({"/a": "keep", "/*": "drop"}, {"payload", "a"}),
        ({"/*": "keep", "/a": "drop"}, {"payload", "b"}),
    ],
)
def test_the_most_precise_place_counts(
    deidentifier: Deidentifier, fields: Mapping[str, str], published: set[str]
) -> None:
    record = {"a": "Jane Roe", "payload": {"resourceType": "Basic"}, "b": 7}
    out = json.loads(run(deidentifier, record, make_fields("/payload", fields)))
    assert set(out) == published


def test_a_dropped_object_keeps_only_its_longer_places(deidentifier: Deidentifier) -> None:
    inside = {"name": "Jane Roe", "message": {"resourceType": "Basic"}, "op": "c", "n": 5, "list": ["Jane"]}
    fields = {"/after": "drop", "/before": "drop", "/after/op": "keep", "/after/list": "drop"}
    form = make_fields("/after/message", fields)
    out = json.loads(run(deidentifier, {"before": {**inside}, "after": inside}, form))

    assert out == {"after": {"message": {"resourceType": "Basic"}, "op": "c"}}


def test_a_dropped_item_keeps_the_numbers_of_the_others(deidentifier: Deidentifier) -> None:
    form = make_fields("/a/1", {"/a/0": "drop", "/a/2": "keep"})
    out = json.loads(run(deidentifier, {"a": ["Jane Roe", HL7, "okafor b"]}, form))["a"]

    assert out[:2] == [None, alone(deidentifier)]
    assert "okafor" not in out[2], "the field after the dropped item was not searched for the patient"


def test_a_list_without_a_published_item_becomes_empty(deidentifier: Deidentifier) -> None:
    form = make_fields("/payload", {"/a/*": "drop"})
    assert json.loads(run(deidentifier, {"payload": None, "a": ["Jane", 5]}, form)) == {"payload": None, "a": []}


@pytest.mark.parametrize("fields", [{"/*/x": "drop"}, {"/*/x": "text"}, {"/*/x": "keep"}])
def test_no_path_shows_a_key_of_the_record(deidentifier: Deidentifier, fields: Mapping[str, str]) -> None:
    record = {"9981234": {"data": HL7, "x": "Mrs. Okafor"}}
    done = deidentifier.message(json.dumps(record).encode(), envelope=make_fields("/*/data", fields))

    assert {"/*/x", "/*/data/PID-3[1].1"} <= {remark.path for remark in done.remarks}
    assert not any("9981234" in remark.path for remark in done.remarks)


def test_a_kept_field_is_searched_for_the_people_of_the_message(deidentifier: Deidentifier) -> None:
    out = run(deidentifier, {"payload": HL7, "file": "okafor-4471902.hl7"}, envelope(file="keep")).decode()
    assert "okafor" not in out.lower() and "4471902" not in out


def test_the_message_is_searched_for_the_identifiers_of_the_fields(deidentifier: Deidentifier) -> None:
    message = HL7.replace("kept.", "kept, see QX-88-1034.")
    out = run(deidentifier, {"payload": message, "ref": "QX-88-1034"}, envelope(ref="identifier")).decode()
    assert "QX-88-1034" not in out


@pytest.mark.parametrize(
    ("record", "form", "reason", "where"),
    [
        ({"payload": HL7, "extra": "Okafor"}, envelope(), Reason.UNSUPPORTED, "byte 1"),
        ({"payload": HL7, "n": 7}, envelope(n="identifier"), Reason.UNSUPPORTED, "byte 1"),
        ({"payload": 12}, envelope(), Reason.UNSUPPORTED, "/payload"),
        ({"payload": "no message at all"}, envelope(), Reason.UNSUPPORTED, "/payload"),
        ({"other": HL7}, envelope(other="drop"), Reason.UNSUPPORTED, "byte 0"),
        ({"payload": "%%%"}, envelope(encoding="base64"), Reason.MALFORMED, "/payload"),
        (b"{", envelope(), Reason.MALFORMED, "byte"),
        (b'{"payload":"a","payload":"b"}', envelope(), Reason.MALFORMED, "byte 1"),
        (b"not gzip", envelope("", "gzip"), Reason.MALFORMED, ""),
        (gzip.compress(HL7.encode(), mtime=0)[:-4], envelope("", "gzip"), Reason.MALFORMED, ""),
        (b"[" * 200 + b"]" * 200, envelope(**{"/*": "keep"}), Reason.RESOURCE, "byte"),
        (b"[" * 200 + b"]" * 200, envelope(), Reason.UNSUPPORTED, "byte 1"),
        ({"payload": HL7, "Okafor": None}, envelope(), Reason.UNSUPPORTED, "byte"),
        ({"payload": HL7, "Okafor": True}, envelope(), Reason.UNSUPPORTED, "byte"),
        ({"payload": HL7, "Okafor": {}}, envelope(), Reason.UNSUPPORTED, "byte"),
        ({"payload": [PATIENT]}, envelope(), Reason.UNSUPPORTED, "/payload"),
        (b'{"payload": null}\n{"payload": null}', envelope(), Reason.MALFORMED, "byte 18"),
        ('{"\u00e9": x}'.encode(), envelope(), Reason.MALFORMED, "byte 7"),
        (json.dumps({"payload": None}).encode("utf-16"), envelope(), Reason.MALFORMED, "byte 0"),
        (b'{"payload": null, "a": [%s1]}' % (b"1," * 250_000), envelope(a="keep"), Reason.RESOURCE, "byte"),
        (gzip.compress(HL7.encode(), mtime=0) * 2, envelope("", "gzip"), Reason.MALFORMED, "byte 0"),
        (gzip.compress(gzip.compress(HL7.encode(), mtime=0), mtime=0), envelope("", "gzip"), Reason.UNSUPPORTED, ""),
        ({"4471902": {"data": "no message"}}, envelope("/*/data"), Reason.UNSUPPORTED, "/*/data"),
        ({"Okafor": 4471902, "payload": HL7}, envelope(**{"/*": "keep"}), Reason.LEAK, ""),
    ],
)
def test_refused(deidentifier: Deidentifier, record: object, form: Envelope, reason: Reason, where: str) -> None:
    with pytest.raises(MessageError) as refused:
        run(deidentifier, record, form)
    assert refused.value.reason is reason
    assert refused.value.where.startswith(where)
    assert "Okafor" not in str(refused.value) and "4471902" not in str(refused.value)


def test_the_record_key_is_searched_for_the_people_of_the_message() -> None:
    rules = data_folder("rules")
    policy = replace(load_policy("pseudonymised", rules), record_key=KeyMode.TEXT)
    by_file_name = WorkerFactory(rules=rules, key=DEMO_KEY, policy=policy, system="rules").deidentifier()
    raw, key = json.dumps({"payload": HL7}).encode(), b"okafor-4471902.hl7"

    assert (
        by_file_name.message(raw, key=key, envelope=envelope()).key == by_file_name.message(HL7.encode(), key=key).key
    )


@pytest.mark.parametrize("number", ["4471902", "19710304"])
def test_a_kept_number_that_is_an_identifier_of_the_patient(deidentifier: Deidentifier, number: str) -> None:
    with pytest.raises(MessageError) as refused:
        run(deidentifier, {"payload": HL7, "n": int(number)}, envelope(n="keep"))
    assert refused.value.reason is Reason.LEAK and refused.value.where == "/n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(
    JSON, st.dictionaries(st.sampled_from(["/a", "/b", "/*", "/a/0", ""]), st.sampled_from(["keep", "drop", "text"]))
)
def test_any_json_is_refused_or_stays_json(
    deidentifier: Deidentifier, value: object, fields: Mapping[str, str]
) -> None:
    form = envelope("/m", **fields)
    record = {"a": value, "b": value, "m": {"resourceType": "Basic"}}
    try:
        out = run(deidentifier, record, form)
    except MessageError:
        return
    assert json.loads(out)["m"] == record["m"]


@pytest.mark.parametrize(
    "settings",
    [
        {"payload": "payload"},
        {"payload": []},
        {"payload": "/a", "fields": {"b": "keep"}},
        {"payload": "/a", "fields": {"/b": "mask"}},
        {"payload": "/a", "encoding": "gzip"},
        {"payload": "/a", "encodng": "text"},
        {"payload": "/a~2"},
        {"payload": "/a", "fields": {"/a": "drop"}},
        {"payload": "/a", "fields": {"/a/b": "keep"}},
        {"payload": "", "fields": {"/b": "keep"}},
        {"payload": ["/a", "/a"]},
        {"payload": ["/a", "/a/b"]},
    ],
)
def test_settings_that_are_refused(settings: Mapping[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        EnvelopeSettings.model_validate(settings)


def test_an_empty_list_of_messages_is_a_record_without_messages(deidentifier: Deidentifier) -> None:
    form = make_fields("/events/*/data", {"/op": "keep", "/events/*/n": "keep"})
    empty: tuple[object, ...] = ([], {}, None)
    for events in empty:
        raw = json.dumps({"events": events, "op": "c"}).encode()
        assert run(deidentifier, raw, form) == raw
    assert run(deidentifier, b"[]", make_fields("/*", {})) == b"[]"
    for record in ({"events": [], "op": "c", "name": "Okafor"}, {"events": [{"n": 1}], "op": "c"}, {"op": "c"}):
        with pytest.raises(MessageError) as refused:
            run(deidentifier, record, form)
        assert refused.value.reason is Reason.UNSUPPORTED
    with pytest.raises(MessageError, match="no message at the places"):
        run(deidentifier, {"payload": HL7, "list": []}, make_fields("/other", {"/payload": "drop", "/list": "keep"}))


def nested(inside: Mapping[str, object], **outer: object) -> Envelope:
    return make_envelope(EnvelopeSettings.model_validate({"inside": inside, **outer}))


def test_a_document_in_a_string_in_a_string(deidentifier: Deidentifier) -> None:
    """The output of MongoDB's connector: a JSON string that holds a document, whose field is the message."""
    document = {"mrn": "4471902", "at": "2024-03-11", "note": "Mrs. Okafor called.", "message": HL7, "n": 1.50}
    inside = {
        "payload": "/message",
        "fields": {"/mrn": "identifier", "/at": "date", "/note": "text", "/n": "keep"},
    }
    form = nested(inside, payload="/payload", fields={"/id": "identifier", "/schema": "keep"})
    text = json.dumps(document, indent=1).replace("1.5", "1.50")
    raw = json.dumps({"schema": {"type": "string"}, "payload": text, "id": "4471902"}).encode()
    out = json.loads(run(deidentifier, raw, form))
    read = json.loads(out["payload"])

    assert read["message"] == alone(deidentifier) and read["mrn"] in read["message"] and out["id"] == read["mrn"]
    assert read["note"].startswith("Mrs. ") and "Okafor" not in json.dumps(out)
    assert read["at"].replace("-", "") == read["message"].split("|")[6]
    assert out["payload"].endswith('"n": 1.50\n}'), "the text around a change stays"


def test_a_compressed_record_with_a_record_inside(deidentifier: Deidentifier) -> None:
    raw = gzip.compress(json.dumps({"events": [HL7, HL7], "op": "c"}).encode())
    form = nested({"payload": "/events/*", "fields": {"/op": "keep"}}, payload="", encoding="gzip")
    read = json.loads(gzip.decompress(run(deidentifier, raw, form)))
    assert read == {"events": [alone(deidentifier)] * 2, "op": "c"}
    check_payloads(Validator(), form, raw, run(deidentifier, raw, form))
    assert deidentifier.count_unexamined(raw, form)


def test_a_field_inside_without_an_action(deidentifier: Deidentifier) -> None:
    form = nested({"payload": "/message"}, payload="/payload")
    with pytest.raises(MessageError) as refused:
        run(deidentifier, {"payload": json.dumps({"message": HL7, "name": "Okafor"})}, form)
    assert refused.value.reason is Reason.UNSUPPORTED and refused.value.where.startswith("/payload/byte ")


def test_kept_fields_are_searched_for_the_identifiers_of_a_message_inside(deidentifier: Deidentifier) -> None:
    inside = {"payload": "/message", "fields": {"/kept": "keep"}}
    form = nested(inside, payload="/payload", fields={"/outer": "keep"})
    text = "4471902 of Okafor"
    out = run(deidentifier, {"outer": text, "payload": json.dumps({"message": HL7, "kept": text})}, form)
    assert b"4471902" not in out and b"Okafor" not in out


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"schema_registry": True, "encoding": "gzip", "payload": ""}, "a compressed record has no schema"),
        ({"output_subject": "x"}, "output_subject needs"),
        ({"inside": {"payload": "/a", "schema_registry": True}}, "only the record itself"),
        ({"inside": {"payload": "/a", "other": 1}}, "Extra inputs"),
    ],
)
def test_wrong_combinations(more: Mapping[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        EnvelopeSettings.model_validate({"payload": "/payload", **more})


def test_a_registry_without_a_section() -> None:
    form = make_envelope(EnvelopeSettings(payload=("/a",), schema_registry=True))
    with pytest.raises(ConfigurationError, match=r"no \[registry\] section"):
        add_registry([("t", form)], None)
