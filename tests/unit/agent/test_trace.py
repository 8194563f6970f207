"""Trace context and the other headers that a policy lets pass."""

import pytest
from support.marks import MARKS, id_header

from deid_agent.agent.job import Completed, Processed, Refused
from deid_agent.agent.outcomes import dead_letter_headers, finish_record, processed_event
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.model.errors import Reason
from deid_agent.model.headers import Trace, filter_headers, parse_traceparent, read_trace

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{ID}-{SPAN}-01".encode()
LISTED = frozenset({"traceparent", "tracestate", "content-type", "x-route"})
AT = Coordinates("adt", 0, 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Okonkwo",
        GOOD + b" ",
        GOOD + b"\n",
        GOOD + b"-Okonkwo",
        GOOD.upper(),
        b"01" + GOOD[2:],
        b"ff" + GOOD[2:],
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{ID}-{'0' * 16}-01".encode(),
        f"00-{ID}-{SPAN}-1".encode(),
        f"00-{ID[:-1]}-{SPAN}-01".encode(),
        f"00-{ID}-{SPAN}-01".replace("4", "４").encode(),
    ],
)
def test_only_the_grammar_passes(value: bytes) -> None:
    assert parse_traceparent(value) is None
    assert filter_headers((("traceparent", value),), LISTED) == ()


def test_a_trace_continues_under_a_span_of_the_agent() -> None:
    known = parse_traceparent(GOOD)
    assert known is not None
    below = known.child(MARKS.id_of(AT))
    assert (below.id, below.flags) == (ID, 1)
    assert below.span not in {SPAN, known.child("adt/0/8").span}
    assert below == known.child(MARKS.id_of(AT)), "a retry is the same span"
    assert parse_traceparent(below.to_header()) == below


def test_reserved_flags_are_cleared() -> None:
    known = parse_traceparent(GOOD[:-2] + b"ff")
    assert known is not None
    assert known.to_header().endswith(b"-03")


def test_a_repeated_header_is_ignored() -> None:
    twice = (("traceparent", GOOD), ("Traceparent", GOOD))
    assert read_trace(twice) is None
    assert filter_headers(twice, LISTED) == ()


@pytest.mark.parametrize(
    "value",
    [
        b"application/fhir+json",
        b"Application/JSON; charset=utf-8",
        b'application/fhir+json; fhirVersion=4.0; charset="UTF-8"',
        b"x-application/hl7-v2+er7",
    ],
)
def test_media_types_of_the_list_pass(value: bytes) -> None:
    assert filter_headers((("Content-Type", value),), LISTED) == (("Content-Type", value),)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"okonkwo/ada",
        b"application/json; name=Okonkwo",
        b"application/json; charset=okonkwo",
        b"application/json (Okonkwo)",
        b"application/json;charset=utf-8;charset=utf-8;charset=utf-8",
        b"application/json\xff",
        "application/json; charset=utf-８".encode(),
    ],
)
def test_other_media_types_do_not(value: bytes) -> None:
    assert filter_headers((("content-type", value),), LISTED) == ()


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
        (b"t@v=1, a*/_-=x y", True),
        (b"", False),
        (b"Okonkwo", False),
        (b"a=1,a=2", False),
        (b"A=1", False),
        (b"a=1=2", False),
        (b"a=\xc3\xa9", False),
        (b"a=", False),
        (b"a=1\n", False),
        (b"a=" + b"x" * 256 + b",b=" + b"x" * 254, False),
        (b",".join(b"k%d=1" % n for n in range(33)), False),
    ],
)
def test_a_tracestate_follows_its_grammar(value: bytes, passes: bool) -> None:
    assert filter_headers((("tracestate", value),), LISTED) == ((("tracestate", value),) if passes else ())


def test_headers_that_the_policy_does_not_list_never_pass() -> None:
    given = (("traceparent", GOOD), ("patient", b"Okonkwo"), ("X-Route", b"a"))
    assert filter_headers(given, frozenset()) == ()
    assert filter_headers(given, frozenset({"x-route"})) == (("X-Route", b"a"),)


def test_outputs_and_dead_letters_name_the_span_of_the_agent() -> None:
    record = Record(AT, b"x", headers=(("traceparent", GOOD),))
    ours = Trace(ID, SPAN, 1).child(MARKS.id_of(AT)).to_header()
    output = finish_record(record, Completed(Processed(b"y", None, record.headers)), MARKS).output
    assert output is not None
    assert output.headers == (("traceparent", ours), id_header(AT))
    dead_letter = finish_record(record, Completed(Refused(Reason.MALFORMED)), MARKS).dead_letter
    assert dead_letter is not None
    assert dict(dead_letter_headers(AT, dead_letter))["traceparent"] == ours
    assert processed_event(record, Completed(Processed(b"y"))).trace == ID


def test_a_record_without_a_trace_gets_none() -> None:
    """A trace that only a worker reports is not used: the agent reads the headers itself."""
    for given in ((), (("traceparent", b"Okonkwo"),), (("traceparent", GOOD), ("TraceParent", GOOD))):
        record = Record(AT, b"x", headers=given)
        output = finish_record(record, Completed(Processed(b"y", None, given)), MARKS).output
        assert output is not None
        assert output.headers == (id_header(AT),)
        dead_letter = finish_record(record, Completed(Refused(Reason.MALFORMED)), MARKS).dead_letter
        assert dead_letter is not None
        assert "traceparent" not in dict(dead_letter_headers(AT, dead_letter))
        assert processed_event(record, Completed(Processed(b"y"))).trace == ""


def test_a_policy_that_drops_the_header_drops_it() -> None:
    record = Record(AT, b"x", headers=(("traceparent", GOOD),))
    output = finish_record(record, Completed(Processed(b"y")), MARKS).output
    assert output is not None
    assert output.headers == (id_header(AT),)
