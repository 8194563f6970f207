"""Identifiers in attributes and texts of C-CDA that are usually kept, and the values there that must stay."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest
from support.markup import RULES, document, ranges
from support.plants import PLANTS

FRAME = (
    '<ClinicalDocument xmlns="urn:hl7-org:v3" xmlns:sdtc="urn:hl7-org:sdtc" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">{}</ClinicalDocument>'
)
MEASURES = {"increment", "period", "width"}


def _covered(inner: str) -> str:
    message = document(FRAME.format(inner).encode())
    raw = bytearray(message.raw)
    for start, end in ranges(message):
        raw[start:end] = b"*" * (end - start)
    return raw.decode()


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


@cache
def _names() -> tuple[list[str], list[str]]:
    """The elements and the attributes of the table, and some that it does not have."""
    table = tomllib.loads((RULES / "cda/elements.toml").read_text("utf-8"))
    keys = [key.rpartition("/")[2] for section in ("whose", "content", "attributes") for key in table[section]]
    elements = {key.partition("@")[0] for key in keys}
    elements |= {*table["structure"]["names"], *table["structure"]["numbers"]}
    attributes = {key.partition("@")[2] for key in keys}
    return sorted(elements - {""} | {"other", "sdtc:id"}), sorted(
        attributes - {"", "xmlns"} | {"other", "sdtc:valueSet"}
    )


def _planted(value: str) -> Iterator[tuple[str, str]]:
    """For each element, in a piece of XML: the value as its text and in each of its attributes."""
    elements, attributes = _names()
    for element in elements:
        yield element, f"<{element}>{value}</{element}>"
        if not (element in MEASURES and value.isdigit()):
            yield element, "".join(f'<{element} {name}="{value}"/>' for name in attributes)


@pytest.mark.parametrize(("value", "plant"), PLANTS.items())
def test_no_text_and_no_attribute_publishes_an_identifier(value: str, plant: str) -> None:
    found = [name for name, xml in _planted(value) if plant in _plain(_covered(f"<observation>{xml}</observation>"))]
    assert found == []


@pytest.mark.parametrize(
    "xml",
    [
        '<templateId root="2.16.840.1.113883.10.20.22.4.2" extension="2015-08-01"/>',
        '<typeId root="2.16.840.1.113883.1.3" extension="POCD_HD000040"/>',
        '<code code="1234567890" codeSystem="2.16.840.1.113883.6.88" displayName="Mix 20, 7 mg"/>',
        '<code code="291P45F896" codeSystem="2.16.840.1.113883.4.9" codeSystemName="UNII"/>',
        '<code code="65167828" codeSystem="2.16.840.1.113883.3.247.1.1" codeSystemVersion="20240131"/>',
        '<code code="GLU" codeSystem="2.999.1"/>',
        '<code code="LAB-CBC" codeSystem="2.999.1"/>',
        '<code code="73211009" codeSystem="2.999.1"/>',
        '<text integrityCheck="2jmj7l5rSw0yVb/vlWAYkK/YBwk="/>',
        '<tr ID="Result_12" styleCode="Bold Italics xRowShading"/>',
        '<value xsi:type="PQ" value="7.4" unit="{score}"/>',
        "<name><prefix>Dr. med.</prefix><suffix>III</suffix></name>",
        '<reference value="#Medication_7"/>',
    ],
)
def test_codes_templates_and_anchors_are_kept(xml: str) -> None:
    assert "*" not in _covered(f"<observation>{xml}</observation>")


def test_an_anchor_and_its_references_are_replaced_alike() -> None:
    cells = '<td ID="Order_44711903"/><td ID="okafor.a"/><content styleCode="Bold">x</content>'
    links = '<reference value="#Order_44711903"/><reference value="#okafor.a"/>'
    message = document(FRAME.format(f"<section><entry><act>{cells}{links}</act></entry></section>").encode())
    assert [site.value for site in message.sites] == ["44711903", "okafor.a"] * 2
    assert [site.blank for site in message.sites] == ["redacted1", "redacted2"] * 2


@pytest.mark.parametrize("scheme", ["sip:", "skype:", "callto:", "facetime:", "data:,", "xmpp:", "h323:", "//"])
def test_a_contact_with_any_scheme_is_an_identifier(scheme: str) -> None:
    assert "okafor" not in _covered(f'<telecom value="{scheme}okafor"/>')


@pytest.mark.parametrize("words", ["known as {}", "goes by {}", "nicknamed '{}'", "also called: {}"])
def test_a_description_may_state_a_name_of_any_word(words: str) -> None:
    described = f"<desc>{words.format('Happy')}, and lives here</desc>"
    message = document(FRAME.format(f"<playingEntity>{described}</playingEntity>").encode())
    assert [(site.value, str(site.type)) for site in message.sites] == [("Happy", "PATIENT")]
    assert "and lives here" in " ".join(narrative.mapped.text for narrative in message.narratives)


def test_a_description_of_a_product_is_text() -> None:
    for described in ("known as Humira", "a pump"):
        material = f"<manufacturedMaterial><desc>{described}</desc></manufacturedMaterial>"
        message = document(FRAME.format(material).encode())
        assert [narrative.mapped.text for narrative in message.narratives] == [described]
        assert message.sites == ()


def test_a_person_in_place_of_a_device_is_a_clinician() -> None:
    for name, found in (("Anna Okafor", ["Anna Okafor"]), ("Laboratory System", [])):
        device = f"<author><assignedAuthoringDevice><name>{name}</name></assignedAuthoringDevice></author>"
        message = document(FRAME.format(device).encode())
        assert [site.value for site in message.sites] == found


def test_a_prefix_that_is_a_number_or_a_name_is_an_identifier() -> None:
    assert "4471190" not in _covered("<name><prefix>ZK4471190</prefix></name>")
    assert "Okafor" not in _covered("<name><suffix>Okafor</suffix></name>")
