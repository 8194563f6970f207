"""The attacker joins documents of the policy ``unlinked``: by identifiers, names, staff, dates, keys and file names."""

import base64
import re
import tomllib

import pytest
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import ConfigurationError
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.policy import KeyMode, compile_policy, load_policy

RULES = ROOT / "rules"
SECRET = SecretKey(b"key of the attack on joins, 32 bytes")
POLICY = load_policy("unlinked", RULES)
SHIPPED = tomllib.loads((RULES / "policies" / "unlinked.toml").read_text("utf-8"))
PERSON = "PID|1||4471902^^^HOSP^MR||Okafor^Adaeze||19610314|F|||17 Birch Rd^^Lima^OH^45801||4195550137\r"
STAFF = "PV1|1|I|||||1730155^Castellano^Ines\r"


def unlinked() -> Deidentifier:
    return WorkerFactory(RULES, SECRET, POLICY).deidentifier()


MADE = unlinked()


def message(control: str, text: str = "") -> bytes:
    note = f"OBX|1|TX|1^n||{text}||||||F\r" if text else ""
    return f"MSH|^~\\&|LAB|HOSP|C|D|20190304||ADT^A01|{control}|P|2.5.1\r{PERSON}{STAFF}{note}".encode()


def values(out: Deidentified) -> set[str]:
    """The written values of the person and of the clinician."""
    lines = [line for line in out.payload.decode().split("\r") if line.startswith(("PID", "PV1"))]
    return {value for value in re.split(r"[|^]", "|".join(lines)) if len(value) > 2} - {"PID", "PV1"}


def test_two_documents_of_a_patient_have_nothing_in_common() -> None:
    outputs = [values(MADE.message(message(str(number)))) for number in range(8)]
    kept = {"HOSP", "OH"}
    common = set.intersection(*outputs)
    assert common <= kept, common
    for number, one in enumerate(outputs):
        for other in outputs[number + 1 :]:
            # A town or a given name may meet by chance; the number, the family name and the birth may not.
            assert len((one & other) - kept) <= 2


def test_the_numbers_of_a_patient_over_200_documents_are_all_different() -> None:
    found = []
    for number in range(200):
        out = MADE.message(message(f"c{number}")).payload.decode()
        found.append(out.split("PID|1||")[1].split("^")[0])
    assert len(set(found)) >= 199
    assert "4471902" not in found


def test_the_same_document_gives_the_same_output_again() -> None:
    assert unlinked().message(message("7")).payload == MADE.message(message("7")).payload


def test_a_resent_control_id_joins_nothing() -> None:
    """The document is its content, not its control id, which systems count from 1 again."""
    assert not values(MADE.message(message("1"))) & values(MADE.message(message("1", "Stable."))) - {"HOSP", "OH"}


def test_a_document_and_its_attachment_agree() -> None:
    """Name and number in the fields, in the narrative and in an attached document."""
    note = b"Okafor (MRN 4471902) is stable."
    tree = (
        b'{"resourceType":"Bundle","type":"collection","entry":[{"resource":{"resourceType":"Patient","id":"p1",'
        b'"identifier":[{"value":"4471902"}],"name":[{"family":"Okafor"}]}},{"resource":{"resourceType":'
        b'"DocumentReference","status":"current","content":[{"attachment":{"contentType":"text/plain","data":"'
        + base64.b64encode(note)
        + b'"}}]}}]}'
    )
    out = MADE.message(tree).payload.decode()
    family = re.search(r'"family": ?"([^"]+)"', out)
    number = re.search(r'"identifier": ?\[\{"value": ?"([^"]+)"', out)
    data = re.search(r'"data": ?"([^"]+)"', out)
    assert family and number and data
    attached = base64.b64decode(data[1]).decode()
    assert attached == f"{family[1]} (MRN {number[1]}) is stable."


def test_messages_of_one_batch_are_separate_documents() -> None:
    out = MADE.message(message("1") + message("2")).payload.decode()
    numbers = re.findall(r"PID\|1\|\|([^^]+)", out)
    assert len(numbers) == 2 and numbers[0] != numbers[1]


def test_a_file_name_agrees_with_its_document_only() -> None:
    """A folder publishes file names: the number in them is that of the document."""
    made = WorkerFactory(RULES, SECRET, POLICY.with_key(KeyMode.TEXT)).deidentifier()
    names = []
    for number in range(3):
        out = made.message(message(str(number)), key=b"4471902.hl7")
        assert out.key is not None
        own = out.payload.decode().split("PID|1||")[1].split("^")[0]
        assert out.key.decode() == f"{own}.hl7"
        names.append(out.key)
    assert len(set(names)) == 3
    assert MADE.message(message("1"), key=b"4471902").key is None


def test_a_note_is_a_document() -> None:
    notes = [MADE.text(f"Seen by Dr. Castellano, visit {n}. MRN 4471902.").text for n in ("one", "two")]
    found = [re.search(r"Dr\. (\S+),.*MRN (\d+)", note) for note in notes]
    assert found[0] and found[1]
    assert found[0][1] != found[1][1] and found[0][2] != found[1][2]


@pytest.mark.parametrize(
    ("section", "changed", "named"),
    [
        ("record", {"key": "identifier"}, "record.key"),
        ("record", {"key": "keep"}, "record.key"),
        ("record", {"key": "text"}, "record.key"),
        ("record", {"key": "drop", "headers": ["TraceParent"]}, "traceparent"),
        ("types", {"MEDICALRECORD": "keep"}, "MEDICALRECORD"),
        ("types", {"PATIENT": "keep"}, "PATIENT"),
        ("paths", {"PID-3": "keep"}, "PID-3"),
    ],
)
def test_a_setting_that_joins_documents_is_refused(section: str, changed: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        compile_policy({**SHIPPED, section: changed}, "ours.toml")
    assert "ours.toml" in str(caught.value)
