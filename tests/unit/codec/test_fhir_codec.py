"""The payloads that the codec accepts and refuses; parsing changes nothing."""

import json

import pytest
from support.edits import apply
from support.fhir import RULES, codec, parsed
from support.scopes import scope_of

from deid_agent.codec.base import Codec
from deid_agent.codec.fhir import FhirCodec
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.sites import Edit, Message

PATIENT = b'{"resourceType":"Patient","id":"p1"}'


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (PATIENT, True),
        (b"\xef\xbb\xbf \r\n\t" + PATIENT, True),
        (b"MSH|^~\\&|", False),
        (b"", False),
        (b"   ", False),
        (b"[{}]", False),
    ],
)
def test_detects_an_object(raw: bytes, expected: bool) -> None:
    assert codec().detect(raw) is expected


@pytest.mark.parametrize(
    ("raw", "reason", "where"),
    [
        (b"", Reason.MALFORMED, "byte 0"),
        (b'{"resourceType": "Patient"', Reason.MALFORMED, "byte 26"),
        (b'{"resourceType": "Patient"} x', Reason.MALFORMED, "byte 28"),
        (b'{"resourceType": "Patient"}{"resourceType": "Patient"}', Reason.MALFORMED, "byte 27"),
        (b'{"resourceType": "Patient", "x": NaN}', Reason.MALFORMED, "byte 33"),
        (b'{"resourceType": "Patient", "x": "\\ud800"}', Reason.MALFORMED, "byte 34"),
        (b'{"resourceType": "Patient", "x": "\xc0\xaf"}', Reason.MALFORMED, "byte 34"),
        (b'{"resourceType": "Patient", "x": "\xed\xa0\x80"}', Reason.MALFORMED, "byte 34"),
        ('{"é": tru}'.encode(), Reason.MALFORMED, "byte 7"),
        (b'\xef\xbb\xbf{"x": tru}', Reason.MALFORMED, "byte 9"),
        (b'{"resourceType": "Patient", "id": "a", "id": "b"}', Reason.MALFORMED, "byte 34"),
        (b'{"resourceType": "Patient", "x": {"a": {}, "\\u0061": 1}}', Reason.MALFORMED, "byte 43"),
        (b"[]", Reason.UNSUPPORTED, "resourceType"),
        (b"7", Reason.UNSUPPORTED, "resourceType"),
        (b"{}", Reason.UNSUPPORTED, "resourceType"),
        (b'{"resourceType": 7}', Reason.UNSUPPORTED, "resourceType"),
        (b'{"resourceType": "Ada Okafor"}', Reason.UNSUPPORTED, "resourceType"),
        (b'{"resourceType": "Binary", "data": "A"}', Reason.MALFORMED, "Binary.data"),
        (b'{"resourceType": "Patient", "photo": [{"data": "_-*"}]}', Reason.MALFORMED, "Patient.photo[0].data"),
    ],
)
def test_refuses(raw: bytes, reason: Reason, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(raw)

    assert (caught.value.reason, caught.value.where) == (reason, where)


def test_is_a_codec() -> None:
    one: Codec = codec()

    assert one.name == "fhir"
    message: Message = one.parse(PATIENT)[0]
    assert message.raw == PATIENT


def test_an_error_contains_no_text_of_the_message() -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(b'{"resourceType": "Okafor77 Ada"}')

    assert "Okafor77" not in repr(caught.value) + str(caught.value)
    assert caught.value.__cause__ is None


def test_a_duplicate_key_never_shifts_a_value() -> None:
    """The tree keeps the last of two values: without the check all later edits would change the wrong bytes."""
    with pytest.raises(MessageError, match="twice"):
        codec().parse(b'{"resourceType":"Patient","id":{},"id":"p1","birthDate":"1957-04-22"}')


def test_bounds() -> None:
    small = FhirCodec(RULES, max_depth=5, max_values=9)

    assert small.parse(PATIENT)
    with pytest.raises(MessageError, match="RESOURCE: byte 0: nested"):
        small.parse(b'{"resourceType": "Patient", "x": [[[[1]]]]}')
    with pytest.raises(MessageError, match="RESOURCE: byte 46: more than 9"):
        small.parse(b'{"resourceType": "Patient", "x": [1,2,3,4,5,6,7,8]}')


def test_bytes_around_the_object_are_kept() -> None:
    raw = b"\xef\xbb\xbf \r\n" + PATIENT + b"\n\n "

    (message,) = codec().parse(raw)

    (site,) = message.sites
    assert message.raw == raw
    assert raw[site.start : site.end] == b"p1"


def test_ndjson_is_many_messages() -> None:
    lines = [b"\xef\xbb\xbf\n" + PATIENT + b"\r\n", b'{"resourceType":"Group","id":"g"}\n \n', PATIENT]

    messages = codec().parse(b"".join(lines))

    assert [message.raw for message in messages] == lines
    assert [message.identity for message in messages] == ["Patient/p1", "Group/g", "Patient/p1"]
    assert [message.raw[s.start : s.end] for message in messages for s in message.sites] == [b"p1", b"g", b"p1"]


@pytest.mark.parametrize("middle", [b'{"resourceType":', b"x", b"[]", b"\xef\xbb\xbf{}"])
def test_one_bad_line_refuses_all(middle: bytes) -> None:
    with pytest.raises(MessageError):
        codec().parse(PATIENT + b"\n" + middle + b"\n" + PATIENT)


def test_ndjson_names_the_byte_of_the_payload() -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(PATIENT + b"\n" + b'{"resourceType" "Patient"}')

    assert caught.value.where == f"byte {len(PATIENT) + 17}"


@pytest.mark.parametrize("text", ["Ada", 'a "quote" \\ and\nline\t\x01', "Bénédicte 😀", ""])
def test_encode_gives_the_content_of_a_string(text: str) -> None:
    message = parsed(PATIENT.decode())
    (site,) = message.sites

    out = apply(message.raw, [Edit(site.start, site.end, message.encode(text))])

    assert json.loads(out)["id"] == text
    assert "é" not in text or "é".encode() in out


def test_escaped_values_have_the_right_ranges() -> None:
    name = '{"family":"O\\u0027Néil\\ud83d\\ude00😀","given":["\\u0041da"]}'
    raw = '{"resourceType":"Patient","name":[' + name + '],"id":"Pa\\/1"}'
    message = parsed(raw)

    assert [site.value for site in message.sites] == ["O'Néil😀😀", "Ada", "Pa/1"]
    out = apply(message.raw, [Edit(s.start, s.end, message.encode(s.value)) for s in message.sites])
    assert json.loads(out) == json.loads(raw)


def test_identity_of_a_resource_without_an_id() -> None:
    bundle = parsed('{"resourceType":"Bundle","identifier":{"value":"urn:uuid:1"}}')
    group = parsed('{"resourceType":"Group"}')

    assert bundle.identity == "Bundle/urn:uuid:1"
    assert len(group.identity) == 64
    assert group.identity != parsed('{"resourceType":"Group" }').identity


@pytest.mark.parametrize(
    ("resource", "patient"),
    [
        ('{"resourceType":"Patient","id":"p"}', "P"),
        ('{"resourceType":"Patient","id":"p",'
         '"identifier":[{"type":{"coding":[{"code":"SS"}]},"value":"1"},{"value":"2"}]}', "2"),
        ('{"resourceType":"Observation","subject":{"reference":"https://h.example/fhir/Patient/p7"}}', "P7"),
        ('{"resourceType":"Observation","subject":{"reference":"Group/g"}}', None),
        ('{"resourceType":"Observation","subject":{"identifier":{"value":"77"}}}', "77"),
        ('{"resourceType":"Task","for":{"reference":"Patient/p7"}}', "P7"),
        ('{"resourceType":"Account","subject":[{"reference":"Patient/p7"}]}', "P7"),
        ('{"resourceType":"Organization","id":"o"}', None),
        ('{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Observation","subject":{"reference":"Patient/x"}}},'
         '{"resource":{"resourceType":"Patient","id":"y"}}]}', "Y"),
        ('{"resourceType":"Observation","contained":[{"resourceType":"Patient","id":"c","identifier":[{"value":"9"}]}],'
         '"subject":{"reference":"#c"}}', "9"),
    ],
)  # fmt: skip
def test_the_patient_of_a_message(resource: str, patient: str | None) -> None:
    assert scope_of(parsed(resource)) == patient


def test_no_repr_contains_a_value() -> None:
    message = parsed('{"resourceType":"Patient","id":"canary-1","name":[{"family":"canary-2"}],"x":"canary-3"}')

    assert "canary" not in repr(message) + repr(message.sites) + repr(message.narratives)


def test_a_fragment_after_a_search_is_a_site_once() -> None:
    (message,) = codec().parse(b'{"resourceType":"Bundle","entry":[{"request":{"url":"Patient?_id=a1&#c1;"}}]}')

    assert [site.value for site in message.sites] == ["a1", "c1;"]
