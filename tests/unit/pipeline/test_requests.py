"""Payloads that are not messages: notes in JSON, and the input of FHIR operations."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from support.shared import shared

from deid_agent.agent.job import Job, Process, Processed, Refused
from deid_agent.app import JobRunner, ProjectParts, WorkerFactory
from deid_agent.config import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline import check_xml_resource, load_policy, read_note_line, read_operation
from deid_agent.pipeline.pseudonyms import digest_person
from deid_agent.rules import data_folder

RULES = data_folder("rules")
PATIENT = b'{"resourceType":"Patient","id":"p1","name":[{"family":"Zyblorqvist"}]}'
DOSE = b'{"resourceType":"Observation","status":"final","code":{"text":"K"},"valueQuantity":{"value": 1.10 }}'


def parameters(*items: bytes) -> bytes:
    return b'{ "resourceType": "Parameters", "parameter": [' + b", ".join(items) + b"] }"


def data(resource: bytes) -> bytes:
    return b'{"name": "identifiableData", "resource": ' + resource + b"}"


def policy(name: bytes) -> bytes:
    return b'{"name": "policy", "valueString": "' + name + b'"}'


def test_the_resource_is_cut_by_its_bytes() -> None:
    found = read_operation(parameters(policy(b"pseudonymised"), data(DOSE)), load_policy("pseudonymised", RULES))
    assert found.resource == DOSE
    assert b'"value": 1.10 }' in found.restore(found.resource)
    assert json.loads(found.restore(DOSE))["parameter"][0]["name"] == "de-identifiedData"


@pytest.mark.parametrize("payload", [PATIENT, parameters(b'{"name": "other", "valueString": "x"}')])
def test_a_bare_resource_comes_back_bare(payload: bytes) -> None:
    found = read_operation(payload, load_policy("pseudonymised", RULES))
    assert (found.resource, found.enveloped) == (payload, False)
    assert found.restore(b"x") == b"x"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (PATIENT, Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (b"<Patient/>", Reason.UNSUPPORTED),
        (b'<ClinicalDocument xmlns="urn:hl7-org:v3"/>', Reason.UNSUPPORTED),
        (b'<Parameters xmlns="http://hl7.org/fhir"/>', Reason.UNSUPPORTED),
    ],
)
def test_the_operation_refuses_other_xml(payload: bytes, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        check_xml_resource(payload)
    assert caught.value.reason is reason
    check_xml_resource(b'<?xml version="1.0"?>\n<f:Patient xmlns:f="http://hl7.org/fhir"/>')


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.MALFORMED),
        (b'{"resourceType": 1}', Reason.MALFORMED),
        (parameters(policy(b"pseudonymised")), Reason.MALFORMED),
        (parameters(data(PATIENT), data(PATIENT)), Reason.MALFORMED),
        (parameters(data(b'"Zyblorqvist"')), Reason.UNSUPPORTED),
        (parameters(data(PATIENT), policy(b"safe-harbor")), Reason.UNSUPPORTED),
        (parameters(data(PATIENT), policy(b"HHS_SAFE_HARBOR_DETERMINISTIC_METHOD")), Reason.UNSUPPORTED),
        (parameters(data(PATIENT), b'{"name": "Zyblorqvist", "valueString": "x"}'), Reason.UNSUPPORTED),
        (parameters(data(PATIENT), b'{"name": ["Zyblorqvist"], "valueString": "x"}'), Reason.UNSUPPORTED),
        (parameters(data(PATIENT), b'{"name": "policy", "valueString": ["Zyblorqvist"]}'), Reason.UNSUPPORTED),
        (parameters(b'{"name": "identifiableDataFileUrls", "part": []}'), Reason.UNSUPPORTED),
        (parameters(data(PATIENT)[:-1] + b', "resource": ' + DOSE + b"}"), Reason.MALFORMED),
        (parameters(data(PATIENT))[:-1] + b', "parameter": []}', Reason.MALFORMED),
        (parameters(data(PATIENT))[:-1] + b', "x": "Zyblorqvist"}', Reason.UNSUPPORTED),
        (b'{"resourceType":"Parameters","parameter":[' + data(PATIENT) + b',"identifiableData"]}', Reason.UNSUPPORTED),
    ],
)
def test_a_parameter_is_obeyed_or_refused(payload: bytes, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        read_operation(payload, load_policy("pseudonymised", RULES))
    assert caught.value.reason is reason
    assert "Zyblorqvist" not in str(caught.value)


def test_the_policy_code_of_darts_is_safe_harbor() -> None:
    given = parameters(policy(b"HHS_SAFE_HARBOR_DETERMINISTIC_METHOD"), data(PATIENT))
    assert read_operation(given, load_policy("safe-harbor", RULES)).resource == PATIENT


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"id": "a"}', b'{"id": 1, "text": "x"}', b'{"id": "a", "text": "x", "context": []}']
)
def test_a_faulty_note_is_malformed(line: bytes) -> None:
    with pytest.raises(MessageError, match="MALFORMED"):
        read_note_line(line)


@pytest.fixture(scope="module")
def runner() -> JobRunner:
    process = WorkerFactory(RULES, DEMO_KEY, load_policy("pseudonymised", RULES), system="rules")()
    found = getattr(process, "__self__", process)
    assert isinstance(found, JobRunner)
    return found


NOTE = "😀 Dr. John Smith called 555-123-4567."


def test_a_batch_of_different_tasks_gives_the_results_of_each_alone(runner: JobRunner, tmp_path: Path) -> None:
    line = json.dumps({"id": "n1", "text": NOTE}).encode()
    jobs = [
        Job(PATIENT),
        Job(NOTE.encode(), task="plain-note"),
        Job(line, task="note utf16"),
        Job(line, task="note spans-only"),
        Job(NOTE.encode(), task="plain-to-json"),
        Job(b"\xff", task="plain-note"),
        Job(parameters(data(PATIENT)), task="operation"),
        Job(b"{", task="note"),
        Job(PATIENT, task="no such task"),
    ]
    together = [result for result, _ in runner.process_batch(jobs)]
    assert [type(result) for result in together] == [Processed] * 5 + [Refused, Processed, Refused, Refused]
    for result, job in zip(together, jobs, strict=True):
        alone = runner(job)
        if isinstance(result, Processed) and isinstance(alone, Processed):
            assert (alone.payload, alone.remarks, alone.output_digest) == (
                result.payload,
                result.remarks,
                result.output_digest,
            )
        else:
            assert alone == result
        assert not isinstance(result, Processed) or b"Smith" not in result.payload


def test_a_line_of_a_file_has_the_type_of_the_file(runner: JobRunner) -> None:
    assert isinstance(done := runner(Job(PATIENT, task="line Patient")), Processed)
    assert b"Zyblorqvist" not in done.payload
    assert isinstance(runner(Job(b"\xef\xbb\xbf" + PATIENT, task="line Patient")), Processed)
    for line, task, reason in (
        (PATIENT, "line Condition", Reason.UNSUPPORTED),
        (b"MSH|^~\\&|A", "line Patient", Reason.MALFORMED),
        (b"[]", "line Patient", Reason.MALFORMED),
        (PATIENT, "line", Reason.UNSUPPORTED),
    ):
        assert isinstance(refused := runner(Job(line, task=task)), Refused)
        assert refused.reason is reason
        assert refused.input_digest, "it has an audit entry like any refused record"


def test_a_resource_for_a_file_is_one_line(runner: JobRunner) -> None:
    resource = DOSE.replace(b",", b",\r\n ")
    for payload in (resource, parameters(data(resource))):
        assert isinstance(done := runner(Job(payload, task="resource")), Processed)
        assert done.payload == resource.replace(b"\r\n", b"  ")
    assert isinstance(runner(Job(b'{"resourceType":"Patient","id":"a\nb"}', task="resource")), Refused)


def test_offsets_in_utf16_count_its_units(runner: JobRunner) -> None:
    line = json.dumps({"id": "n1", "text": NOTE}).encode()
    found = []
    for task in ("note", "note utf16"):
        result = runner(Job(line, task=task))
        assert isinstance(result, Processed)
        found.append(json.loads(result.payload))
    characters, units = (each["spans"] for each in found)
    assert [(span["start"] + 1, span["end"] + 1) for span in characters] == [(s["start"], s["end"]) for s in units]
    whole = NOTE.encode("utf-16-le")
    first = units[0]
    assert whole[2 * first["start"] : 2 * first["end"]].decode("utf-16-le") == NOTE[characters[0]["start"] :][:10]
    assert found[0]["text"] == found[1]["text"]


# $pseudonymize

KEY = "k" * 32
PERSON = b'{"resourceType":"Patient","name":[{"given":["Ada","May"],"family":"Zyblorqvist"}],"birthDate":"1950-03-04"}'
DIGEST = hashlib.sha256(f"Ada|Zyblorqvist|1950-03-04|{KEY}".encode()).hexdigest()


def string(item: tuple[str, object]) -> bytes:
    return json.dumps({"name": item[0], "valueString": item[1]}).encode()


def call(*items: tuple[str, object], resource: bytes = PERSON) -> bytes:
    return parameters(data(resource), *map(string, items))


SHA256 = (("key", KEY), ("algorithm", "SHA256"))


@pytest.fixture(scope="module")
def worker() -> Process:
    projects = tuple(
        ProjectParts(name, DEMO_KEY, load_policy(policy, RULES), "none", allows_digests=True)
        for name, policy in (("open", "pseudonymised"), ("strict", "safe-harbor"), ("apart", "unlinked"))
    )
    return WorkerFactory(RULES, DEMO_KEY, load_policy("pseudonymised", RULES), system="none", projects=projects)()


def pseudonymize(worker: Process, payload: bytes, project: str = "open", task: str = "pseudonymize") -> Processed:
    result = worker(Job(payload, project=project, task=task))
    assert isinstance(result, Processed), result
    assert KEY.encode() not in result.payload + result.remarks and KEY not in repr(result)
    assert result.output_digest == hashlib.sha256(result.payload).hexdigest()
    return result


@pytest.mark.parametrize("task", ["pseudonymize", "psuedonymize"])
def test_a_pseudonymized_resource_has_the_surrogates_of_the_project(worker: Process, task: str) -> None:
    """The name of the output is spelt as the operation."""
    (output,) = json.loads(pseudonymize(worker, call(), task=task).payload)["parameter"]
    bare = pseudonymize(worker, PERSON, task=task)
    message = worker(Job(PERSON, project="open"))
    assert isinstance(message, Processed)
    assert (output["name"], output["resource"]) == (f"{task}dData", json.loads(bare.payload))
    assert bare.payload == message.payload != PERSON


@pytest.mark.parametrize(
    ("identifier", "before"),
    [("", []), ('"identifier":[],', []), ('"identifier":[{"value":"MRN 4471902"}],', [{"value": "MRN 4471902"}])],
)
def test_a_digest_of_darts_is_one_more_identifier(worker: Process, identifier: str, before: list[object]) -> None:
    person = PERSON.replace(b'"name"', identifier.encode() + b'"name"')
    observed = DOSE.replace(b'"code"', b'"subject":{"reference":"Patient/p1"},"code"')
    bundle = b'{"resourceType":"Bundle","type":"collection","entry":[{"resource":%b},{"resource":%b}]}' % (
        person,
        observed,
    )
    done = pseudonymize(worker, call(*SHA256, resource=bundle))
    found = json.loads(done.payload)["parameter"][0]["resource"]["entry"][0]["resource"]
    ours, *others = found["identifier"]
    assert ours == {"system": "urn:deid-agent:pseudonym:sha256", "value": DIGEST}
    assert len(others) == len(before) and (others != before or not before)
    assert b'"value": 1.10 }' in done.payload and b"Zyblorqvist" not in done.payload
    without = pseudonymize(worker, call(resource=bundle)).payload
    added = json.dumps(ours, separators=(",", ":")).encode()
    removed = re.sub(rb'"identifier":\[%b\],|%b,?' % (re.escape(added), re.escape(added)), b"", done.payload)
    assert removed in {without, without.replace(b'"identifier":[],', b"")}


@pytest.mark.parametrize(
    ("payload", "reason", "where"),
    [
        (call(("key", KEY)), Reason.MALFORMED, "Parameters.parameter"),
        (call(("algorithm", "SHA256")), Reason.MALFORMED, "Parameters.parameter"),
        (call(*SHA256, ("key", KEY)), Reason.MALFORMED, "Parameters.parameter"),
        (call(("key", KEY[1:]), SHA256[1]), Reason.UNSUPPORTED, "Parameters.parameter[1]"),
        (call(("key", 7), SHA256[1]), Reason.UNSUPPORTED, "Parameters.parameter[1]"),
        (call(("key", None), SHA256[1]), Reason.UNSUPPORTED, "Parameters.parameter[1]"),
        (call(SHA256[0], ("algorithm", "sha256")), Reason.UNSUPPORTED, "Parameters.parameter[2]"),
        (call(SHA256[0], ("algorithm", "RSA384")), Reason.UNSUPPORTED, "Parameters.parameter[2]"),
        (call(SHA256[0], ("algorithm", ["SHA256"])), Reason.UNSUPPORTED, "Parameters.parameter[2]"),
        (call(*SHA256, ("policy", "pseudonymised")), Reason.UNSUPPORTED, "Parameters.parameter[3]"),
        (parameters(b'{"name":"identifiableDataFileUrls","part":[]}'), Reason.UNSUPPORTED, "Parameters.parameter[0]"),
        (parameters(*map(string, SHA256)), Reason.MALFORMED, "Parameters.parameter"),
        (
            call(*SHA256, resource=PERSON.replace(b'"family"', b'"_family"')),
            Reason.UNSUPPORTED,
            "Patient.name[0].family",
        ),
        (call(*SHA256, resource=PERSON.replace(b"Ada", b" ")), Reason.UNSUPPORTED, "Patient.name[0].given[0]"),
        (call(*SHA256, resource=PERSON.replace(b"Ada", b"A|da")), Reason.UNSUPPORTED, "Patient.name[0].given[0]"),
        (
            call(*SHA256, resource=PERSON.replace(b'"birthDate"', b'"deceasedDate"')),
            Reason.UNSUPPORTED,
            "Patient.birthDate",
        ),
        (
            call(*SHA256, resource=b'{"resourceType":"Patient","name":[]}'),
            Reason.UNSUPPORTED,
            "Patient.name[0].given[0]",
        ),
        (call(*SHA256, resource=PERSON[:-1] + b',"identifier":{"value":"x"}}'), Reason.MALFORMED, "Patient.identifier"),
        (b"MSH|^~\\&|", Reason.MALFORMED, "column 1"),
    ],
)
def test_a_call_that_cannot_be_obeyed_is_refused(worker: Process, payload: bytes, reason: Reason, where: str) -> None:
    result = worker(Job(payload, project="open", task="psuedonymize"))
    assert isinstance(result, Refused)
    assert (result.reason, result.where, result.fault) == (reason, where, "")
    assert KEY not in repr(result)


def test_a_key_of_a_caller_needs_a_setting_and_pseudonyms_need_a_policy_with_surrogates(worker: Process) -> None:
    refused = worker(Job(call(*SHA256), task="pseudonymize"))
    assert isinstance(refused, Refused) and (refused.reason, refused.where) == (
        Reason.UNSUPPORTED,
        "Parameters.parameter[2]",
    )
    assert isinstance(worker(Job(call(), task="pseudonymize")), Processed)
    for project in ("strict", "apart"):
        refused = worker(Job(call(), project=project, task="pseudonymize"))
        assert isinstance(refused, Refused) and (refused.reason, refused.where) == (Reason.UNSUPPORTED, "policy")


def test_the_digests_are_those_of_the_examples_of_darts() -> None:
    folder = shared("conformance", "darts")
    before, after = (
        [
            entry["resource"]
            for entry in json.loads((folder / f"uscore_{name}_bundle_enriched_practitioner_fixed.json").read_bytes())[
                "entry"
            ]
            if entry["resource"]["resourceType"] == "Patient"
        ]
        for name in ("original", "pseudonymized")
    )
    made = [
        digest_person(each["name"][0]["given"][0], each["name"][0]["family"], each["birthDate"], "Test")
        for each in before
    ]
    assert made == [each["identifier"][0]["value"] for each in after] and len(made) == 10
