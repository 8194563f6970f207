"""DocumentReference of three FHIR versions: identifiers are removed, everything else is unchanged."""

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import TypedDict

import pytest
from support.attachments import deidentifier

CASES = Path(__file__).resolve().parents[2] / "cases" / "attachments" / "document-reference.toml"


class Case(TypedDict):
    name: str
    resource: str
    gone: list[str]
    stays: list[str]
    remarks: list[str]


def cases() -> list[Case]:
    found: list[Case] = tomllib.loads(CASES.read_text("utf-8"))["case"]
    return found


def readable(payload: bytes) -> str:
    """The payload, followed by the decoded data of its attachments."""
    text = payload.decode()
    data = re.findall(r'"data": "([^"]*)"', text)
    return "\n".join([text, *(base64.b64decode(each, validate=True).decode() for each in data)])


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["name"]))
def test_a_document_reference_in_full(case: Case) -> None:
    done = deidentifier().message(case["resource"].encode())
    out = readable(done.payload)
    assert [value for value in case["gone"] if value.lower() in out.lower()] == []
    assert [value for value in case["stays"] if value not in out] == []
    paths = {remark.path.removeprefix("DocumentReference.") for remark in done.remarks}
    assert set(case["remarks"]) <= paths
    assert list(json.loads(done.payload)) == list(json.loads(case["resource"]))


def test_a_size_that_is_a_string_remains_a_string() -> None:
    """R5 writes integer64 as a string."""
    (case,) = (case for case in cases() if case["name"] == "R5")
    done = json.loads(deidentifier().message(case["resource"].encode()).payload)["content"][1]["attachment"]
    assert done["size"] == str(len(base64.b64decode(done["data"])))
