"""For any JSON: parsing changes nothing, ranges are disjoint, and only ``MessageError`` is raised."""

import json
import string

from hypothesis import given
from hypothesis import strategies as st
from support.edits import apply
from support.fhir import codec, ranges
from support.fhir_payloads import resources

from deid_agent.codec.fhir.codec import FhirMessage
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit, ValueKind
from deid_agent.model.spans import MappedText, Replacement


def parsed(raw: bytes) -> list[FhirMessage]:
    try:
        return codec().parse(raw)
    except MessageError:
        return []


@given(resources())
def test_a_resource_is_never_changed_by_parsing(raw: bytes) -> None:
    for message in parsed(raw):
        assert apply(message.raw, []) == raw


@given(resources())
def test_ranges_are_disjoint_inside_and_in_order(raw: bytes) -> None:
    for message in parsed(raw):
        at = 0
        for start, end in sorted(ranges(message)):
            assert at <= start < end <= len(raw)
            at = end
        assert [s.start for s in message.sites] == sorted(s.start for s in message.sites)


@given(resources())
def test_a_value_replaced_by_itself_is_the_same(raw: bytes) -> None:
    for message in parsed(raw):
        edits = [
            Edit(site.start, site.end, message.encode(site.value))
            for site in message.sites
            if not (site.kind is ValueKind.REDACT and raw[site.start - 1 : site.start] != b'"')
        ]
        assert json.loads(apply(raw, edits)) == json.loads(raw)


@given(resources(), st.text(string.ascii_letters + '"<&\\\n', max_size=5))
def test_any_replacement_anywhere_gives_json(raw: bytes, new: str) -> None:
    for message in parsed(raw):
        edits = [
            Edit(s.start, s.end, message.encode(s.blank if s.kind is ValueKind.REDACT else new)) for s in message.sites
        ]
        for narrative in message.narratives:
            mapped = narrative.mapped
            whole = [Replacement(0, len(mapped.text), new)]
            edits += [Edit(start, end, message.encode(text)) for start, end, text in mapped.place(whole)]
        assert isinstance(json.loads(apply(raw, edits)), dict)


@given(st.text(string.printable + "éß€😀\u2028", max_size=60), st.booleans())
def test_every_character_of_a_string_has_its_bytes(value: str, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    raw = ('{"resourceType":"Patient","language":"en","note":' + text + "}").encode()
    for message in codec().parse(raw):
        for narrative in message.narratives:
            mapped: MappedText = narrative.mapped
            assert mapped.text == value
            for i, char in enumerate(mapped.text):
                assert json.loads(b'"' + raw[mapped.starts[i] : mapped.ends[i]] + b'"') == char


@given(st.lists(resources(), min_size=2, max_size=4))
def test_ndjson_joins_to_the_input(lines: list[bytes]) -> None:
    raw = b"\n".join(json.dumps(json.loads(line)).encode() for line in lines)
    messages = parsed(raw)

    assert not messages or b"".join(message.raw for message in messages) == raw
    assert len(messages) in {0, len(lines)}


@given(st.binary(max_size=200), st.booleans())
def test_bytes_raise_nothing_but_message_errors(raw: bytes, braced: bool) -> None:
    parsed(b'{"resourceType": "Patient", "x": ' + raw + b"}" if braced else raw)
    codec().detect(raw)
