"""Payloads read without a parser: uncertain payloads are not read, and facts proved absent are never found."""

import json
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fhir import codec as fhir_codec
from support.hl7 import MSH, RULES
from support.hl7 import codec as hl7_codec

from deid_agent.codec.base import Codec
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.recognize.known_people import NameLexicons
from deid_agent.recognize.known_phi import KnownRecognizer, read_without_parser
from deid_agent.recognize.registry import load_rules

FACTS = (
    Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "May"),
    Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "g", "Zoriana"),
    Fact(PhiType.MEDICALRECORD, ValueKind.VALUE, Subject.PATIENT, "", "0088123456"),
    Fact(PhiType.SSN, ValueKind.VALUE, Subject.PATIENT, "", "987-65-4321"),
    Fact(PhiType.ACCOUNT, ValueKind.VALUE, Subject.PATIENT, "", "4471"),
    Fact(PhiType.DATE, ValueKind.VALUE, Subject.PATIENT, "", "19570422"),
    Fact(PhiType.EMAIL, ValueKind.VALUE, Subject.PATIENT, "", "zo@quay.example.org"),
    Fact(PhiType.STREET, ValueKind.VALUE, Subject.PATIENT, "", "12 Quay Street"),
    Fact(PhiType.CITY, ValueKind.VALUE, Subject.PATIENT, "", "Port Wenn"),
)
PIECES = (
    *("May", "zoriana", "ZorianaMay", "mr.", "88123456", "88-12-34-56", "0", "987", "65", "4321", "x", "4471", "MRN"),
    *("#", "1957", "04", "22", "4/22/57", "22 April 1957", "-", "/", ".", ",", " ", "  ", "zo@quay.example.org", "12"),
    *("Quay", "St", "Port", "Wenn", "PORT WENN", "ort", "a", "7", "'", "and", "\t", "&", "\n", "é", "%34", "<", ">"),
)
HL7_PIECES = (
    *(*PIECES[:-5], "^", "^^", "^x^", "|", "~", "\\T\\", "\\.br\\", "\\X4D\\", "\\H\\", "\\", "\\E\\", "\rNTE|1||"),
)
XHTML_PIECES = (
    *(
        *PIECES[:-6],
        "\n",
        "<b>",
        "</b>",
        "<br/>",
        "<td>",
        "</td>",
        "&amp;",
        "&#52;",
        "&nbsp;",
        "<img alt='",
        "'/>",
        "<odd>",
    ),
)


@lru_cache(maxsize=1)
def known() -> KnownRecognizer:
    return KnownRecognizer(NameLexicons.of(load_rules(RULES)), exact=True)


def agrees(codec: Codec, raw: bytes, decided: list[tuple[int, int]]) -> bool:
    """Assert that facts proved absent are not found. Returns true if absence was proved."""
    reading = read_without_parser(raw, decided)
    if reading is None or not known().proves_absence(reading, FACTS):
        return False
    assert LeakGuard(known().recognize).search(codec.parse_leaves(raw), decided, FACTS) == []
    return True


ranges = st.lists(st.tuples(st.integers(60, 90), st.integers(0, 9)), max_size=2).map(
    lambda found: [(a, a + n) for a, n in found[:1]]
)


@given(st.lists(st.sampled_from(HL7_PIECES), max_size=9).map("".join), ranges)
def test_facts_proved_absent_in_a_message_are_not_found(text: str, decided: list[tuple[int, int]]) -> None:
    agrees(hl7_codec(), f"{MSH}\rPID|1||{text}\r".encode(), decided)


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=3),
    st.lists(st.sampled_from(XHTML_PIECES), max_size=9).map("".join),
    st.booleans(),
)
def test_facts_proved_absent_in_a_resource_are_not_found(texts: list[str], div: str, ascii: bool) -> None:
    resource = {"resourceType": "Patient", "address": [{"line": texts}], "text": {"div": f"<div>{div}</div>"}}
    agrees(fhir_codec(), json.dumps(resource, ensure_ascii=ascii).encode(), [])


@pytest.mark.parametrize(
    "fields", ["A\\T\\B", "seen at 5\\.br\\no change", "88^12^34^56", "Port^x^Mark", "Mayor Maya", "23 Wenn Street"]
)
def test_absence_is_proved_from_the_payload(fields: str) -> None:
    assert agrees(hl7_codec(), f"{MSH}\rPID|1||{fields}\r".encode(), [])
    assert agrees(fhir_codec(), json.dumps({"resourceType": "Patient", "a": fields.replace("\\", "")}).encode(), [])


@pytest.mark.parametrize("fields", ["May", "88 123 456", "Port^Wenn", "Port^x^Wenn", "1957-04-22", "12 Quay^Street"])
def test_absence_is_not_proved(fields: str) -> None:
    assert not agrees(hl7_codec(), f"{MSH}\rPID|1||{fields}\r".encode(), [])


@pytest.mark.parametrize(
    "raw",
    [
        b"text", b"<a/>", b"MSH#^~!&#A\rPID#1", b"MSH|^~\\&|A\rPID|\\X41\\",
        b"MSH|^~\\&|A\rPID|a\\H\\b",
        b"MSH|^~\\&|\xe9",
        b"MSH|^~\\&|A%41", b"MSH|^~\\&|\x1b$B", b"MSH|^~\\&|A\rMSH!^~\\&!", b'{"a": "\\u0041"}', b'{"a": "&eacute;"}',
        b'{"a": "<odd>"}', b'{"a": "\\\\n"}', b'{"a": "\\/"}', b"",
    ],
)  # fmt: skip
def test_uncertain_payloads_are_not_read(raw: bytes) -> None:
    assert read_without_parser(raw, []) is None


def test_hidden_bytes_are_blank() -> None:
    reading = read_without_parser(b"MSH|^~\\&|Ada\xc3\xa9 b\r", [(9, 14)])
    assert reading is not None
    assert "Ada" not in reading.texts[0]
