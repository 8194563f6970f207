"""The output value of a typed field has the type of the field."""

import base64
import json
from functools import lru_cache
from pathlib import Path

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.attachments import NOTICE
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = Path(__file__).resolve().parents[3] / "rules"


@lru_cache(maxsize=1)
def deidentifier() -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES)).deidentifier()


def hl7(line: str) -> list[str]:
    """The fields of the second segment."""
    raw = f"MSH|^~\\&|A|H|||20240311||ORU^R01|1|P|2.5\r{line}\r".encode()
    return deidentifier().message(raw).payload.decode().split("\r")[1].split("|")


@pytest.mark.parametrize(("encoding", "decode"), [("Base64", base64.b64decode), ("Hex", bytes.fromhex)])
def test_a_notice_has_the_declared_encoding(encoding: str, decode: object) -> None:
    value = hl7(f"OBX|1|ED|1^D^L||^AP^PDF^{encoding}^seen by Ada Okafor!")[5].split("^")
    assert value[3] == encoding
    assert callable(decode)
    assert decode(value[4]) == NOTICE


@pytest.mark.parametrize("value", ["13/45/99", "UNK", "soon", "2019T10:00", "2019-03T10:00", "2019Z"])
def test_an_invalid_date_becomes_an_empty_field(value: str) -> None:
    assert hl7(f"PID|1||7001||Okafor^Ada||{value}|F")[7] == ""


@pytest.mark.parametrize(
    ("value", "new"),
    [
        ("13/45/99", "1900-01"),
        ("99/99/9999", "1900-01-01"),
        ("13/45", "1900"),
        ("2019T10:00", "1900-01-01T00:00:00Z"),
        ("2019-03T10:00", "1900-01-01T00:00:00Z"),
        ("unknown", "1900-01"),
        ("last Tuesday, says Ada", "1900-01-01T00:00:00Z"),
    ],
)
def test_an_invalid_date_becomes_one_that_fhir_accepts(value: str, new: str) -> None:
    raw = json.dumps({"resourceType": "Patient", "birthDate": value}).encode()
    assert json.loads(deidentifier().message(raw).payload)["birthDate"] == new
