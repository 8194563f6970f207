"""The digest of hl7apy's tables is current, and every datatype in it is explained."""

from pathlib import Path

import pytest
from support.hl7 import RULES
from support.hl7_schema import digest

from deid_agent.codec.hl7v2.table import Hl7Kind
from deid_agent.codec.hl7v2.table_files import load_hl7_table
from deid_agent.model.errors import ConfigurationError


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "hl7").mkdir()
    for file in (RULES / "hl7").glob("*.toml"):
        (tmp_path / "hl7" / file.name).write_text(file.read_text("utf-8"), "utf-8")
    return tmp_path


def change(rules: Path, file: str, old: str, new: str) -> None:
    path = rules / "hl7" / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_the_digest_is_current() -> None:
    assert (RULES / "hl7" / "fields.toml").read_text("utf-8") == digest(), (
        "run python tests/support/hl7_schema.py > rules/hl7/fields.toml"
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("segments.toml", '5 = "varies"', '5 = "vary"', r"segments\.toml: OBX\.5: 'vary' is neither a layout"),
        ("segments.toml", '8 = "redact"', '8 = "redact nobody"', r"MSH\.8: 'nobody' is neither a role nor"),
        ("segments.toml", '42 = "id"', '99 = "id"', r"FT1\.99: the segment has \d+ fields"),
        ("segments.toml", '42 = "id"', 'x = "id"', r"FT1\.x: not a field number"),
        ("segments.toml", "[FT1]", "[FTX1]", r"FTX1: not a segment name"),
        ("segments.toml", 'role = "patient"', 'role = "cat"', r"PID\.role: 'cat' is not one of"),
        ("segments.toml", "join = 5", 'join = "five"', r"OBX: 'join' and 'by' must be field numbers"),
        ("segments.toml", 'field = "text"', 'field = "nothing"', r"unknown\.field: 'nothing'"),
        ("segments.toml", 'segment = "text"', "", r"\[unknown\] must have"),
        ("fields.toml", 'MSA = "1 2"', 'MSA = "1 99"', r"fields\.toml: required\.99: the segment has \d+ fields"),
        ("datatypes.toml", 'SAD = "street', 'SAD = "avenue', r"datatypes\.toml: layout\.\w+.*'avenue' is not one of"),
        ("datatypes.toml", "{SAD}", "{SADD}", r"layout\.XAD: 'SADD' is not a layout"),
        ("datatypes.toml", 'XCN = "XCN provider"', "", r"default\.XCN is missing; \w+-\d+ has"),
        ("datatypes.toml", 'SSN = "SSN"', 'SSN = "NHS"', r"idtype: 'NHS' is not a valid PhiType"),
        ("datatypes.toml", "[equipment]", "[equipments]", r"unknown table \[equipments\]"),
        ("datatypes.toml", "[layout]", "[layout", r"datatypes\.toml: is not TOML"),
    ],
)
def test_a_rule_that_cannot_apply_stops_the_start(rules: Path, file: str, old: str, new: str, complaint: str) -> None:
    change(rules, file, old, new)
    with pytest.raises(ConfigurationError, match=complaint):
        load_hl7_table(rules)


def test_an_unlisted_field_of_a_segment_outside_the_standard_is_read_as_unknown(rules: Path) -> None:
    """Without ``"*"`` such a field is free text, which recognizers read; it is always examined."""
    with (rules / "hl7" / "segments.toml").open("a") as file:
        file.write('\n[ZPX]\nrole = "patient"\n1 = "keep"\n4 = "CX MEDICALRECORD"\n')
    listed, rest = load_hl7_table(rules).rules("ZPX")
    assert [rule.layout for rule in listed[:3]] == [Hl7Kind.KEEP, Hl7Kind.TEXT, Hl7Kind.TEXT]
    assert listed[1] == listed[2] == rest
    assert f"{listed[3].type}" == "MEDICALRECORD"


def test_a_missing_file_is_named(rules: Path) -> None:
    (rules / "hl7" / "fields.toml").unlink()
    with pytest.raises(ConfigurationError, match=r"fields\.toml: cannot be read"):
        load_hl7_table(rules)


@pytest.mark.parametrize(
    ("segment", "number", "expected"),
    [
        ("PID", 3, "MEDICALRECORD patient"),  # the field
        ("PID", 13, "None patient"),  # the datatype, with the subject of the segment
        ("IN1", 30, "None provider"),  # the field before the segment
        ("DG1", 16, "None provider"),  # the datatype's own role before the segment's
    ],
)
def test_the_nearest_rule_wins(segment: str, number: int, expected: str) -> None:
    rules, _ = load_hl7_table(RULES).rules(segment)
    rule = rules[number - 1]
    assert f"{rule.type} {rule.subject}" == expected


def test_a_provider_remains_a_provider_in_a_segment_about_the_patient() -> None:
    rules, _ = load_hl7_table(RULES).rules("CON")
    assert rules[24 - 1].subject == "patient"  # CON-24 consenter, XPN
    rules, _ = load_hl7_table(RULES).rules("DON")
    assert rules[32 - 1].subject == "provider"  # DON-32 phlebotomist, XCN


def test_if_versions_disagree_the_stricter_datatype_applies() -> None:
    loaded = load_hl7_table(RULES)
    assert loaded.rules("PID")[0][20 - 1].layout == loaded.observation("DLN").layout  # ST, CM, DLN
    assert loaded.rules("PV1")[0][52 - 1].layout == loaded.observation("XCN").layout  # withdrawn in 2.7, still sent
