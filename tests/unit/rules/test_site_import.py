"""Imports of staff and places: CSV, HL7 master files, FHIR. Errors quote no value."""

import json
from pathlib import Path

import pytest

from deid_agent.model import ConfigurationError, PhiType
from deid_agent.rules import read_import

CANARY = "Qwertzan"
MFN = (
    "MSH|^~\\&|HR|H|||20200101||MFN^M02|1|P|2.5\r"
    "MFI|PRA||UPD|||AL\r"
    "MFE|MAD|1||77\r"
    "STF|77|77^^^H|Okonjo^Ada^B^^Dr~Okonjo-T\\T\\V^Ada|P||||SUR^Surgery||^^PH^^^~5550107788|"
    "9 Elm Row&Elm&9^^Troy||||a@x.org\r"
    "PRA|77|RG^Riverside Group||||L12345^L~12\r"
    "ORG|1|RC^Riverside Clinic\r"
    'STF|78|78|""^""\r'
)


def values(path: Path, text: str | bytes) -> dict[PhiType, list[str]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found: dict[PhiType, list[str]] = {}
    for kind, value in read_import(path):
        found.setdefault(kind, []).append(value)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name\nRuth Keller\n", {"DOCTOR": ["Ruth Keller"]}),
        ("Family;Given;Credential\r\nKeller;Ruth  M;MD\r\n", {"DOCTOR": ["Keller, Ruth M"]}),
        ('\ufeff"name","ward"\n"Keller, Ruth","7 North"\n\n', {"DOCTOR": ["Keller, Ruth"], "HOSPITAL": ["7 North"]}),
        ("site\tstreet\tcity\nHarbor View\t9 Elm Row\tTroy\n", {
            "HOSPITAL": ["Harbor View"], "STREET": ["9 Elm Row"], "CITY": ["Troy"],
        }),
        ("family,given\nKeller,\nKeller,\n,\n", {"DOCTOR": ["Keller"]}),
        ('family,given\n"Keller, Jr",Ruth\n', {"DOCTOR": ["Keller Jr, Ruth"]}),
        (MFN, {
            "DOCTOR": ["Okonjo, Ada B", "Okonjo-T&V, Ada"], "PHONE": ["5550107788"], "STREET": ["9 Elm Row"],
            "EMAIL": ["a@x.org"], "HOSPITAL": ["Riverside Group", "Riverside Clinic"], "LICENSE": ["L12345"],
        }),
        (MFN.replace("\r", "\n").replace("|", "#").replace("^~\\&", "^~\\&"), {
            "DOCTOR": ["Okonjo, Ada B", "Okonjo-T&V, Ada"], "PHONE": ["5550107788"], "STREET": ["9 Elm Row"],
            "EMAIL": ["a@x.org"], "HOSPITAL": ["Riverside Group", "Riverside Clinic"], "LICENSE": ["L12345"],
        }),
        ("MSH|^~\\&|HR\rLOC|1|Harbor View|C|Harbor Trust^L|4 Quay&Quay\r", {
            "HOSPITAL": ["Harbor View", "Harbor Trust"], "STREET": ["4 Quay"],
        }),
    ],
)  # fmt: skip
def test_tables_and_master_files(tmp_path: Path, text: str, expected: dict[str, list[str]]) -> None:
    assert values(tmp_path / "f", text) == expected


RESOURCES: list[dict[str, object]] = [
    {
        "resourceType": "Practitioner",
        "name": [{"family": "Brandvold", "given": ["Kari", "Ann"]}, {"text": "Kari Berg"}, {"given": ["Kari"]}, 7],
        "telecom": [{"system": "phone", "value": "555-010-2233"}, {"system": "phone", "value": "12"}, {"value": 3}],
        "address": [{"line": ["9 Elm Row"], "city": "Troy"}],
    },
    {
        "resourceType": "PractitionerRole",
        "practitioner": {"display": "Sam Oyelaran"},
        "organization": {"display": "Harbor Trust"},
        "location": [{"display": "Harbor View"}],
    },
    {"resourceType": "Location", "name": "Harbor View", "alias": ["The Harbor"]},
    {
        "resourceType": "Organization",
        "name": "Harbor Trust",
        "contained": [{"resourceType": "Location", "name": "Pier"}],
    },
    {"resourceType": "Patient", "name": [{"family": "Nobody"}]},
]
EXPECTED = {
    "DOCTOR": ["Brandvold, Kari Ann", "Kari Berg", "Sam Oyelaran"],
    "HOSPITAL": ["Harbor Trust", "Harbor View", "Pier", "The Harbor"],
    "PHONE": ["555-010-2233"],
    "STREET": ["9 Elm Row"],
    "CITY": ["Troy"],
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"resourceType": "Bundle", "entry": [{"resource": each} for each in RESOURCES] + [{}, 4]}),
        json.dumps(RESOURCES),
        "\n".join(map(json.dumps, RESOURCES)),
        "\ufeff" + json.dumps(RESOURCES, indent=2),
    ],
)
def test_fhir(tmp_path: Path, text: str) -> None:
    found = values(tmp_path / "f", text)
    assert {kind: sorted(each) for kind, each in found.items()} == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        (f"family,{CANARY}\nKeller,Ruth\n", "column 2 has no known name in line 1: the columns are name, family"),
        (f"{CANARY}\n", "column 1 has no known name"),
        ("name,name\n", "column 2: name is there twice"),
        (f"family,given\n{CANARY},x,y\n", ":2: 3 columns instead of 2"),
        (f'family,given\n"{CANARY}"x,y\n', ":2: is not CSV"),
        (f'family,given\n"{CANARY},y\n', ": is not CSV"),
        (f"name\n{CANARY}\0\n", "a NUL character"),
        (b"name\n\xff\n", "cannot be read as UTF-8"),
        (f"MSH|^~\\&|{CANARY}\rPID|1\r", "no STF or LOC segment"),
        ("MSH", ":1: MSH does not name the delimiters"),
        ("{" + CANARY, ":1: is not JSON"),
        ('{"a": 1}\n{' + CANARY, ":2: is not JSON"),
        ('{"resourceType": "Patient"}', "no Practitioner, PractitionerRole, Location or Organization"),
        ("[" * 100_000, ":1: is not JSON"),
    ],
)
def test_errors_quote_no_value(tmp_path: Path, text: str | bytes, expected: str) -> None:
    with pytest.raises(ConfigurationError) as fault:
        values(tmp_path / "f", text)
    assert expected in str(fault.value)
    assert CANARY not in str(fault.value)
