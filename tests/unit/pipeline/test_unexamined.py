"""The ledger of unexamined values: complete, by path, and without any value."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.cli import main
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy

RULES = ROOT / "rules"
MADE = {
    name: WorkerFactory(RULES, DEMO_KEY, load_policy(name, RULES)).deidentifier()
    for name in ("pseudonymised", "limited-dataset")
}
HL7 = (
    b"MSH|^~\\&|A|B|C|D|20190304||ORU^R01|44711903|P|2.5.1\rPID|1||4471902||Okafor^Ada||19610304|F\r"
    b"OBX|1|NM|718-7^Hemoglobin^LN||13.5|g/dL|12-16|N|||F\rOBX|2|TX|8251-1^Comment^LN||Okafor is well.||||||F\r"
)


def counts(payload: bytes, policy: str = "pseudonymised") -> dict[tuple[str, str], int]:
    return {(path, why): n for (_, path, why), n in MADE[policy].count_unexamined(payload).items()}


def test_kept_values_are_counted_and_examined_ones_are_not() -> None:
    found = counts(HL7)
    assert found["OBX-5.1", "number"] == 1
    assert found["OBX-3.1", "code"] == 2
    assert found["MSH-9.1", "code"] == 1
    paths = {path for path, _ in found}
    assert not paths & {"PID-3.1", "PID-5.1", "PID-5.2", "PID-7.1"}, "sites are examined"


def test_a_value_that_the_policy_keeps_is_attributed_to_it() -> None:
    assert ("PID-7.1", "policy") not in counts(HL7)
    assert counts(HL7, "limited-dataset")["PID-7.1", "policy"] == 1


def test_a_resource_is_counted_by_element() -> None:
    tree = {"resourceType": "Observation", "status": "final", "valueQuantity": {"value": 13.5, "unit": "g/dL"}}
    found = counts(json.dumps(tree).encode())
    assert found["Observation.status", "table"] == 1
    assert found["Observation.valueQuantity.value", "number"] == 1


def test_an_attachment_is_part_of_the_ledger() -> None:
    data = HL7.hex()
    outer = f"MSH|^~\\&|A|B|C|D|20190304||ORU^R01|44711904|P|2.5.1\rOBX|1|ED|1^n||^AP^^Hex^{data}||||||F\r"
    assert counts(outer.encode())["OBX-5.5/OBX-5.1", "number"] == 1


def test_an_unknown_name_is_counted_as_a_question_mark() -> None:
    found = counts(json.dumps({"resourceType": "Patient", "corridor": {"ceiling": "xx yy"}}).encode())
    assert {("Patient.?", "key"), ("Patient.?.?", "key")} <= found.keys()


@pytest.mark.parametrize("name", ["Okafor", "Adaeze Okafor", "4471902"])
def test_a_path_has_no_unknown_name(name: str) -> None:
    tree = {
        "resourceType": "Patient",
        name: {name: "xx yy"},
        "extension": [{"url": f"http://x.test/{name.replace(' ', '')}", "valueCode": "abcd"}],
    }
    found = MADE["pseudonymised"].count_unexamined(json.dumps(tree).encode())
    assert ("fhir", "Patient.extension.valueCode", "table") in found
    assert name.split(maxsplit=1)[0] not in str(found)


def test_the_command_writes_the_ledger(tmp_path: Path) -> None:
    source, ledger = tmp_path / "a.hl7", tmp_path / "ledger.csv"
    source.write_bytes(HL7)
    call = ["message", "--demo-key", "--out", str(tmp_path / "out"), "--unexamined", str(ledger), str(source)]
    assert CliRunner().invoke(main, call).exit_code == 0
    rows = list(csv.DictReader(ledger.read_text("utf-8").splitlines()))
    assert {"format": "hl7v2", "path": "OBX-5.1", "reason": "number", "count": "1"} in rows
    assert not [word for word in ("Okafor", "4471902", "13.5") if word in ledger.read_text("utf-8")]
    call[call.index(str(ledger))] = str(tmp_path / "none" / "x.csv")
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 2 and "--unexamined" in done.stderr
