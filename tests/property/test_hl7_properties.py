"""For any input no byte is lost, no ranges overlap, and only ``MessageError`` is raised."""

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.edits import apply
from support.hl7 import codec, ranges
from support.hl7_payloads import SEGMENTS, VALUE, payloads

from deid_agent.codec.hl7v2.reader import Hl7Message
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit


def parse(raw: bytes) -> list[Hl7Message]:
    try:
        return list(codec().parse(raw))
    except MessageError:
        return []


def check(raw: bytes) -> None:
    parsed = parse(raw)
    assert not parsed or b"".join(m.raw for m in parsed) == raw
    for message in parsed:
        spans = ranges(message)
        assert all(0 <= a <= b <= len(message.raw) for a, b in spans)
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
        for narrative in message.narratives:
            mapped = narrative.mapped
            assert len(mapped.text) == len(mapped.starts) == len(mapped.ends)
            assert all(mapped.text[i] == "\n" for i in mapped.separators)
        for site in message.sites:
            assert site.value.strip()
            assert message.encode(site.value) is not None
        assert apply(message.raw, []) == message.raw


@given(st.binary(max_size=300))
@example(b"MSH|^~\\&\rADD")
@example(b"\rA\xdf")
@example(b"MSH|^~\\&\r\x1c\x0b\r")
def test_any_bytes(tail: bytes) -> None:
    check(tail)
    check(b"MSH|^~\\&|" + tail)
    check(b"MSH|^~\\&|A\rOBX|1|TX|1||" + tail)
    check(b"MSH|^~\\&|A||||||||||||||||~ISO IR87\rPID|||" + tail)


@settings(max_examples=300)
@given(payloads())
def test_near_messages(raw: bytes) -> None:
    check(raw)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(SEGMENTS[:6]), st.lists(VALUE, max_size=8)), max_size=5))
@example([("PID", ["", "", "", "", "||", "\\X41\\"])])
def test_every_value_written_as_itself_reads_as_itself(lines: list[tuple[str, list[str]]]) -> None:
    body = "\r".join("|".join([name, *values]) for name, values in lines)
    raw = f"MSH|^~\\&|A|B|C|D|20230501||ADT^A08|1|P|2.5||||||UNICODE UTF-8\r{body}\r".encode()
    for message in parse(raw):
        new = apply(message.raw, [Edit(s.start, s.end, message.encode(s.value)) for s in message.sites])
        (again,) = codec().parse(new)
        assert [(s.path, s.value) for s in again.sites] == [(s.path, s.value) for s in message.sites]
