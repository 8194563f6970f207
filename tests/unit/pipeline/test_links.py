"""Under safe-harbor, ids join only within one record (docs/decisions/0006)."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import cast

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.phi import PhiType
from deid_agent.pipeline import LinkPairs
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.link_codes import LinkCodes
from deid_agent.pipeline.policy import Method, compile_policy, load_policy
from deid_agent.surrogate import Surrogates

RULES = Path(__file__).resolve().parents[3] / "rules"
UUID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
Tree = dict[str, object]


@lru_cache(maxsize=1)
def deidentifier() -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("safe-harbor", RULES)).deidentifier()


def bundle(note: str = "x") -> bytes:
    patient: Tree = {
        "resourceType": "Patient",
        "id": "p4471",
        "identifier": [{"type": {"coding": [{"code": "MR"}]}, "value": "4471902"}],
        "name": [{"family": "Okafor", "given": ["Ada"]}],
        "generalPractitioner": [{"reference": "#gp"}],
        "contained": [{"resourceType": "Practitioner", "id": "gp"}],
    }
    observation: Tree = {
        "resourceType": "Observation",
        "id": "o1",
        "status": "final",
        "code": {"text": note},
        "subject": {"reference": "Patient/p4471"},
        "performer": [{"reference": f"urn:uuid:{UUID}"}],
        "derivedFrom": [{"reference": "http://h.example/fhir/Observation/o1/_history/2"}],
    }
    entries = [
        {"fullUrl": f"urn:uuid:{UUID}", "resource": patient, "request": {"method": "PUT", "url": "Patient/p4471"}},
        {"fullUrl": "http://h.example/fhir/Observation/o1", "resource": observation},
    ]
    return json.dumps({"resourceType": "Bundle", "id": "b1", "type": "transaction", "entry": entries}).encode()


def out(payload: bytes) -> str:
    return deidentifier().message(payload).payload.decode()


def hl7(control: str, second: str = "20240101") -> bytes:
    return (
        f"MSH|^~\\&|A|H|C|D|{second}||ADT^A01|{control}|P|2.5\rPID|1||4471902^^^H^MR||OKAFOR^ADA||19570422\r"
    ).encode()


def field(payload: bytes, number: int) -> str:
    return out(payload).split("\r")[0].split("|")[number]


def test_references_of_a_bundle_still_resolve() -> None:
    made = json.loads(out(bundle()))
    first, second = made["entry"]
    patient, observation = first["resource"], second["resource"]
    assert observation["subject"]["reference"] == f"Patient/{patient['id']}" == first["request"]["url"]
    assert observation["performer"][0]["reference"] == first["fullUrl"]
    assert second["fullUrl"] == f"http://h.example/fhir/Observation/{observation['id']}"
    assert observation["derivedFrom"][0]["reference"] == f"{second['fullUrl']}/_history/2"
    assert patient["generalPractitioner"][0]["reference"] == f"#{patient['contained'][0]['id']}"
    assert patient["identifier"][0]["value"] == "REDACTED"
    ids = [made["id"], patient["id"], observation["id"], patient["contained"][0]["id"]]
    assert len(set(ids)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9.-]{1,64}", each) for each in ids)
    uuid = first["fullUrl"].removeprefix("urn:uuid:")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uuid)


def test_lines_of_one_payload_still_refer_to_each_other() -> None:
    lines = [
        {"resourceType": "Patient", "id": "p1"},
        {"resourceType": "Encounter", "id": "e1", "status": "finished", "subject": {"reference": "Patient/p1"}},
    ]
    patient, encounter = (
        json.loads(line) for line in out(b"\n".join(json.dumps(x).encode() for x in lines)).split("\n")
    )
    assert encounter["subject"]["reference"] == f"Patient/{patient['id']}"


def test_two_records_of_one_patient_share_no_id() -> None:
    one, other = (
        set(re.findall(r"[0-9A-V]{20}|[0-9a-f]{8}-[0-9a-f-]{27}", out(payload))) for payload in (bundle(), bundle("y"))
    )
    assert len(one) == len(other) == 5
    assert not one & other
    patients = [json.dumps({"resourceType": "Patient", "id": "p1", "active": x}).encode() for x in (True, False)]
    assert len({json.loads(out(patient))["id"] for patient in patients}) == 2, "nor do two versions of one resource"


def test_the_same_record_again_is_the_same() -> None:
    assert out(bundle()) == out(bundle())


def test_a_control_id_is_present_and_differs() -> None:
    made = [field(hl7(control, second), 9) for control, second in (("A1", "2024"), ("A2", "2024"), ("A1", "2025"))]
    assert len(set(made)) == 3
    assert all(re.fullmatch(r"[0-9A-V]{20}", each) for each in made), "ST holds 20 characters up to 2.6"


def test_a_code_is_not_derived_from_its_original() -> None:
    made = Surrogates(b"a secret")
    assert [LinkCodes(made, b"record").code_for(value) for value in ("p1", "4471902")] == [
        LinkCodes(made, b"record").code_for("x")
    ] * 2
    assert LinkCodes(Surrogates(b"another"), b"record").code_for("p1") != LinkCodes(made, b"record").code_for("p1")
    assert "4471902" not in repr(LinkCodes(made, b"4471902"))


def test_an_oid_remains_an_oid() -> None:
    assert re.fullmatch(r"2\.25\.[1-9][0-9]+", LinkCodes(Surrogates(b"a secret"), b"x").code_for("1.2.840.99.1"))


@pytest.mark.parametrize(
    ("type_", "path", "method"),
    [
        (PhiType.IDNUM, "Bundle.entry[2].resource.id", Method.LINK),
        (PhiType.IDNUM, "id", Method.MASK),
        (PhiType.IDNUM, "Patient.id.x", Method.MASK),
        (PhiType.IDNUM, "Patient.contact[1].id", Method.KEEP),
        (PhiType.URL, "Patient.id", Method.MASK),
        (PhiType.DATE, "Patient.id", Method.GENERALIZE),
        (PhiType.IDNUM, "MSH-10[1].1", Method.LINK),
    ],
)
def test_the_last_part_of_a_path_may_be_named(type_: PhiType, path: str, method: Method) -> None:
    paths = {"*.id": "link", "Patient.contact": "keep", "MSH-10": "link"}
    compiled = compile_policy({"name": "x", "default": "mask", "types": {"DATE": "generalize"}, "paths": paths}, "test")
    assert compiled.method(type_, path) is method


def test_a_link_in_text_is_masked() -> None:
    raw = bundle("MRN 4471902 of Ada Okafor")
    made = cast("list[Tree]", json.loads(out(raw))["entry"])[1]["resource"]
    assert cast(Tree, cast(Tree, made)["code"])["text"] == "MRN [**MEDICALRECORD**] of [**PATIENT**]"


def of_job(resource: Tree, code_key: bytes) -> Tree:
    made = deidentifier()
    plan = made.plan(json.dumps(resource).encode())
    (recognition,) = made.recognize([plan])
    return cast("Tree", json.loads(made.apply(plan, recognition, code_key=code_key).payload))


def test_references_join_over_the_records_of_one_key_and_of_no_other() -> None:
    patients: list[Tree] = [{"resourceType": "Patient", "id": id_} for id_ in ("p1", "p2", UUID)]
    referring: list[Tree] = [
        {"resourceType": "Condition", "id": "c1", "subject": {"reference": "Patient/p1"}},
        {"resourceType": "Condition", "id": "c2", "subject": {"reference": "http://h.example/fhir/Patient/p2"}},
        {"resourceType": "Condition", "id": "c3", "subject": {"reference": f"urn:uuid:{UUID}"}},
    ]
    codes: list[set[str]] = []
    for key in (b"a" * 32, b"b" * 32):
        ids = [str(of_job(each, key)["id"]) for each in patients]
        subjects = [cast("Tree", of_job(each, key)["subject"])["reference"] for each in referring]
        assert subjects == [f"Patient/{ids[0]}", f"http://h.example/fhir/Patient/{ids[1]}", f"urn:uuid:{ids[2]}"]
        assert re.fullmatch("[0-9A-V]{20}", ids[0])
        assert of_job(patients[0], key) == of_job(patients[0], key), "a record that is repeated gets its codes again"
        codes.append({*ids, *(str(of_job(each, key)["id"]) for each in referring)})
    assert len(codes[0] | codes[1]) == 12
    assert of_job(patients[0], b"")["id"] != of_job(patients[0], b"a" * 32)["id"]


def test_the_crosswalk_gets_the_codes_of_a_common_key() -> None:
    made = deidentifier()
    links: LinkPairs = {}
    plan = made.plan(json.dumps({"resourceType": "Patient", "id": "p1"}).encode())
    (recognition,) = made.recognize([plan])
    done = cast("Tree", json.loads(made.apply(plan, recognition, links=links, code_key=b"a" * 32).payload))
    assert list(links) == [("Patient.id", "p1", done["id"])]
