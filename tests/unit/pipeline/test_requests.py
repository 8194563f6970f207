"""Payloads that are not messages: notes in JSON, and the input of ``$de-identify``."""

import json
from pathlib import Path

import pytest

from deid_agent.agent.job import Job, Processed, Refused
from deid_agent.app import JobRunner, WorkerFactory
from deid_agent.config import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline import load_policy, read_note_line, read_operation
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
