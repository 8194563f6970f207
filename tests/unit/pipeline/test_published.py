"""A policy with ``[publish]`` publishes the listed paths and drops the rest; the message stays valid and lossless."""

import base64
import json
from collections.abc import Iterator

import pytest
from support.surrogates import ROOT

from deid_agent.agent.job import Job, Processed
from deid_agent.app import WorkerFactory
from deid_agent.codec.fhir import FhirCodec
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import ConfigurationError, MessageError, Reason
from deid_agent.model.selection import Dropped, DroppedRanges, PublishedPaths
from deid_agent.model.sites import Edit, apply_edits
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import compile_policy, load_policy

RULES = ROOT / "rules"
FHIR = FhirCodec(RULES)
HEAD = "MSH|^~\\&|LAB|HOSP|C|D|20190304||ORU^R01^ORU_R01|c1|P|2.5.1\r"
PERSON = "PID|1||4471902^^^HOSP^MR||Okafor^Adaeze||19610314|F|||17 Birch Rd^^Lima^OH^45801\r"


def publishing(*paths: str, default: str = "surrogate") -> Deidentifier:
    policy = compile_policy({"name": "own", "default": default, "publish": {"paths": list(paths)}}, "own")
    return WorkerFactory(RULES, DEMO_KEY, policy, system="rules").deidentifier()


def hl7(text: str, *paths: str, default: str = "surrogate") -> list[str]:
    """The segments after MSH."""
    out = publishing(*paths, default=default).message((HEAD + text).encode()).payload.decode()
    return out.removesuffix("\r").split("\r")[1:]


def fhir(resource: object, *paths: str) -> object:
    found: object = json.loads(publishing(*paths).message(json.dumps(resource).encode()).payload)
    return found


def test_fields_components_and_subcomponents_that_are_not_listed_are_empty() -> None:
    line = "OBX|1|CWE|2345-7^Glucose^LN^G1&a&b^Sugar~9^x^L||H^high^L|mg/dL|||||F\r"
    assert hl7(line, "OBX-3.1", "OBX-3.4.2", "OBX-11", default="keep") == ["OBX||CWE|2345-7^^^&a&^~9^^||||||||F"]


def test_a_value_may_be_listed_by_its_type() -> None:
    lines = "OBX|1|NM|a^b||5.1\rOBX|2|TX|a^b||Seen by Dr. Ines Castellano\rOBX|3|ST|a^b||Okafor\r"
    assert hl7(lines, "OBX(NM)-5") == ["OBX||NM|||5.1", "OBX||TX|||", "OBX||ST|||"]


def test_the_header_stays_readable_and_other_segments_keep_their_name() -> None:
    out = publishing("PID-8").message((HEAD + PERSON + "NK1|1|Okafor^Chidi\rPV1\r").encode()).payload.decode()
    head, *rest = out.split("\r")
    fields = head.split("|")
    assert (fields[1:6], fields[8], fields[10:]) == (["^~\\&", "", "", "", ""], "ORU^R01^ORU_R01", ["P", "2.5.1"])
    assert fields[6] and fields[9] not in {"", "c1"}
    assert rest == ["PID||||||||F|||", "NK1|", "PV1", ""]


@pytest.mark.parametrize("line", ["ZPI|Okafor^Adaeze|4471902\r", "Okafor, Adaeze\r", "ADD|Okafor\r", "Ann|Okafor\r\n"])
def test_a_line_without_a_known_segment_is_removed_with_its_end(line: str) -> None:
    assert hl7(PERSON + line + "NTE|1||Okafor\r", "PID-8") == ["PID||||||||F|||", "NTE|"]


def test_a_local_segment_may_be_listed() -> None:
    assert hl7("ZLB|1|Okafor|12\r", "ZLB-3") == ["ZLB|||12"]


def test_text_that_is_listed_is_read_with_the_names_that_are_not() -> None:
    (_, line) = hl7(PERSON + "OBX|1|TX|a^b||Okafor came on 3/4/2019, MRN 4471902.\r", "OBX-5")
    assert "came on" in line
    assert not any(value in line for value in ("Okafor", "3/4/2019", "4471902"))


def test_a_batch_keeps_its_frame() -> None:
    raw = f"FHS|^~\\&|LAB\rBHS|^~\\&|LAB\r{HEAD}{PERSON}{HEAD}{PERSON}BTS|2|Okafor\rFTS|1\r".encode()
    lines = publishing("PID-8").message(raw).payload.decode().split("\r")
    assert [line[:4] for line in lines] == ["FHS|", "BHS|", "MSH|", "PID|", "MSH|", "PID|", "BTS|", "FTS|", ""]
    assert b"LAB" not in publishing("PID-8").message(raw).payload


def test_names_in_a_shifted_charset_are_dropped() -> None:
    head = HEAD.rstrip("\r").replace("2.5.1", "2.5.1||||||~ISO IR87") + "\r"
    raw = head.encode() + "PID|1||1||山田^太郎||19610314|F\r".encode("iso2022_jp")
    out = publishing("PID-8").message(raw).payload
    assert out.split(b"\r")[1] == b"PID||||||||F"


OBSERVATION = {
    "resourceType": "Observation",
    "id": "o1",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "2345-7", "display": "Glucose"}], "text": "Okafor"},
    "subject": {"display": "Adaeze Okafor"},
    "valueQuantity": {"value": 5.10, "unit": "mmol/L", "extension": [{"url": "x", "valueString": "Okafor"}], "Ada": 1},
    "note": [{"text": "Okafor"}],
}
RESULT = ("Observation.status", "Observation.code.coding.code", "Observation.valueQuantity")
PUBLISHED = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"coding": [{"code": "2345-7"}]},
    "valueQuantity": {"value": 5.10, "unit": "mmol/L"},
}


def test_members_that_are_not_listed_are_removed() -> None:
    assert fhir(OBSERVATION, *RESULT) == PUBLISHED


def test_bytes_of_published_values_are_unchanged() -> None:
    raw = b'{ "id" : "x",\n "status" :"final" ,"resourceType": "Observation", "valueInteger": 1.50e1\n}\n'
    done = publishing("Observation.status", "Observation.valueInteger").message(raw).payload
    assert done == b'{ "status" :"final" ,"resourceType": "Observation", "valueInteger": 1.50e1\n}\n'


def test_a_bundle_keeps_resources_with_a_listed_element() -> None:
    patient = {"resourceType": "Patient", "name": [{"family": "Okafor"}], "gender": "female"}
    entries: list[object] = [
        {"fullUrl": "urn:a", "resource": patient},
        {"fullUrl": "urn:b", "resource": OBSERVATION | {"contained": [patient, {"resourceType": "Device"}]}},
        {"resource": {"resourceType": "Encounter", "contained": [patient]}, "request": {"method": "PUT", "url": "e"}},
    ]
    bundle = {"resourceType": "Bundle", "type": "collection", "total": 3, "entry": entries}
    sex = {"resourceType": "Patient", "gender": "female"}
    out = fhir(bundle, *RESULT, "Patient.gender")
    published = [{"resource": sex}, {"resource": PUBLISHED | {"contained": [sex]}}]
    assert out == {"resourceType": "Bundle", "type": "collection", "entry": published}


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        ({"resourceType": "Patient", "name": [{"family": "Okafor"}]}, "resourceType"),
        ({"resourceType": "Bundle", "type": "collection", "entry": []}, "resourceType"),
        (OBSERVATION | {"code": {"text": "Okafor"}}, "Observation.code"),
        ({k: v for k, v in OBSERVATION.items() if k != "status"} | {"_status": {"id": "Okafor"}}, "Observation.status"),
    ],
)
def test_a_resource_that_cannot_be_valid_is_refused_by_path(resource: object, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        fhir(resource, *RESULT)
    assert (caught.value.reason, caught.value.where) == (Reason.UNSUPPORTED, where)
    assert "Okafor" not in str(caught.value)


def test_an_extension_is_published_only_if_it_is_listed() -> None:
    patient = {
        "resourceType": "Patient",
        "gender": "male",
        "extension": [{"url": "http://hl7.org/x", "valueCode": "M"}],
    }
    assert fhir(patient, "Patient.gender") == {"resourceType": "Patient", "gender": "male"}
    assert fhir(patient, "Patient.gender", "Patient.extension") == patient


def subsets(members: list[str]) -> Iterator[list[str]]:
    for bits in range(1, 2 ** len(members)):
        yield [member for number, member in enumerate(members) if bits >> number & 1]


def test_any_choice_of_members_leaves_json() -> None:
    whole = {"gender": "male", "active": True, "multipleBirthInteger": 2, "deceasedBoolean": False}
    for listed in subsets(list(whole)):
        paths = PublishedPaths(f"Patient.{member}" for member in listed)
        for at in range(len(whole) + 1):
            members = [*whole.items()]
            members.insert(at, ("resourceType", "Patient"))
            raw = json.dumps(dict(members), indent=1).encode()
            edits = DroppedRanges.of(FHIR.find_unlisted(raw, paths)).apply_to([])
            assert json.loads(apply_edits(raw, edits)[0]) == {"resourceType": "Patient"} | {
                member: whole[member] for member in listed
            }


def test_formats_without_paths_are_refused() -> None:
    document = b'<ClinicalDocument xmlns="urn:hl7-org:v3"><title>Okafor</title></ClinicalDocument>'
    held = HEAD + "OBX|1|ED|a||^application^xml^Base64^" + base64.b64encode(document).decode() + "\r"
    everything = publishing("OBX-5")
    for payload in (document, held.encode()):
        with pytest.raises(MessageError, match="UNSUPPORTED"):
            everything.message(payload)
    assert publishing("OBX-3").message(held.encode()).payload.endswith(b"OBX||ED|a||\r")
    with pytest.raises(MessageError, match="UNSUPPORTED"):
        everything.text("Adaeze Okafor came.")


def test_remarks_count_dropped_values_without_showing_them() -> None:
    done = publishing("PID-8").message((HEAD + PERSON + "ZPI|Okafor\rNK1|1|Okafor\rNK1|2|Okafor\r").encode())
    dropped = {remark.path: remark.count for remark in done.remarks if remark.method == "drop"}
    assert dropped["PID-5"] == 1 and dropped["NK1"] == 2 and dropped["?"] == 1
    assert not any(remark.path.startswith(("PID-5", "PID-3")) for remark in done.remarks if remark.method != "drop")
    assert "Okafor" not in repr(done)


def test_dropped_values_do_not_count_as_replaced() -> None:
    policy = compile_policy({"name": "own", "default": "surrogate", "publish": {"paths": ["PID-5"]}}, "own")
    process = WorkerFactory(RULES, DEMO_KEY, policy, system="rules")()
    result = process(Job((HEAD + PERSON + "NK1|1|Okafor\r").encode()))
    assert isinstance(result, Processed) and b'"drop"' in result.remarks
    assert "UNLISTED" not in dict(result.found) and dict(result.found)["PATIENT"] == 2


def test_the_ledger_counts_only_published_values() -> None:
    raw = (HEAD + PERSON + "OBX|1|NM|12345^b||512\r").encode()
    paths = {path for _, path, _ in publishing("OBX(NM)-5").count_unexamined(raw)}
    assert "OBX-5.1" in paths and not any(path.startswith(("PID", "OBX-3")) for path in paths)


def test_an_edit_that_reaches_into_a_dropped_range_goes_with_it() -> None:
    ranges = DroppedRanges.of([Dropped("a", 6, 8), Dropped("b", 2, 4)])
    assert ranges.cover(2, 4) and ranges.cover(7, 7) and not ranges.cover(3, 5) and not ranges.cover(4, 6)
    edits = [Edit(0, 1, b"X"), Edit(3, 5, b"name"), Edit(6, 7, b"Y"), Edit(8, 9, b"Z")]
    assert apply_edits(b"0123456789", ranges.apply_to(edits))[0] == b"X15Z9"


@pytest.mark.parametrize("path", ["", "PID", "*.id", "pid-8", "PID-8[1]", "OBX(2)-5", "Observation", "a/b"])
def test_a_path_without_an_effect_is_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"own: publish\.paths"):
        publishing(path)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"publish\.paths"):
        publishing()


def test_minimum_is_shipped() -> None:
    policy = load_policy("minimum", RULES)
    assert policy.published is not None and policy.published.lists("OBX(NM)-5")
    assert not policy.changes_nothing
    assert not any(name in path for path in policy.published.paths for name in ("name", "note", "text", "NTE", "PID-5"))
