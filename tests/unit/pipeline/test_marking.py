"""Security labels and Provenance of FHIR outputs: by what was done, without any other change."""

import json
import re
from collections.abc import Iterator
from functools import cache

import pytest
from fhir.resources.R4B.provenance import Provenance
from support.fhir import bundle

from deid_agent import __version__
from deid_agent.agent import Job, OutputMarks, Processed
from deid_agent.agent.job import JobPosition, Process
from deid_agent.agent.ports import Coordinates
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.codec.fhir_resources import SECURITY_LABELS, write_label
from deid_agent.config import DEMO_KEY
from deid_agent.config.envelopes import EnvelopeSettings
from deid_agent.model import Marking, ProvenanceMode, RecordTime
from deid_agent.pipeline import Policy, load_policy, make_envelope
from deid_agent.pipeline.policy import compile_policy
from deid_agent.rules import data_folder

RULES = data_folder("rules")
TIME_MS = 1_700_000_000_123
PATIENT = {
    "resourceType": "Patient",
    "id": "p1",
    "name": [{"family": "Zyblorqvist"}],
    "contained": [{"resourceType": "Patient", "id": "c1", "name": [{"family": "Zyblorqvist"}]}],
}
OBSERVATION = {
    "resourceType": "Observation",
    "id": "o1",
    "status": "final",
    "code": {"text": "K"},
    "valueQuantity": {"value": 1.10},
}
FULL = {
    **PATIENT,
    "birthDate": "1950-03-04",
    "telecom": [{"system": "phone", "value": "502-555-0177"}],
    "text": {"status": "generated", "div": "<div>Mr. Zyblorqvist</div>"},
}


BUNDLE = bundle(PATIENT, OBSERVATION)
_LABEL = b"(?:" + b"|".join(re.escape(write_label(code)) for code in SECURITY_LABELS) + b")"
_LIST = _LABEL + b"(?:," + _LABEL + b")*"
_INSERTED = re.compile(
    rb'"meta":\{"security":\[' + _LIST + rb'\]\},|"security":\[' + _LIST + rb"\],?|" + _LIST + rb",?"
)


def policy(**rules: object) -> Policy:
    return compile_policy({"name": "own", "default": "keep", **rules}, "own")


NAMES = {"types": {"PATIENT": "surrogate"}}
SHIPPED = ("pseudonymised", "safe-harbor", "unlinked", "limited-dataset")
POLICIES = {
    **{name: load_policy(name, RULES) for name in SHIPPED},
    **{method: policy(types={"PATIENT": method}) for method in ("surrogate", "mask", "redact", "keep")},
    **{f"time-{time}": policy(**NAMES, record={"timestamp": time.value}) for time in RecordTime},
    "mixed": policy(types={"PATIENT": "surrogate", "DATE": "generalize", "PHONE": "redact"}),
    "abstract": policy(types={"PATIENT": "mask", "DATE": "generalize"}),
    "link": policy(paths={"Patient.id": "link"}),
    "listed": policy(
        types={"DATE": "generalize"},
        publish={"paths": ["Patient.birthDate", "Observation.status", "Observation.code", "Bundle.type"]},
    ),
    "quoted": compile_policy({"name": "our policy/2\u2028", "default": "mask"}, "own"),
}
PLAIN, LABELLED = Marking(), Marking(labels=True)
TOPIC, INSIDE = Marking(provenance=ProvenanceMode.TOPIC), Marking(provenance=ProvenanceMode.BUNDLE)
EVERY = Marking(labels=True, provenance=ProvenanceMode.TOPIC)
MARKINGS = {"plain": PLAIN, "labelled": LABELLED, "topic": TOPIC, "inside": INSIDE, "every": EVERY}


@cache
def worker() -> Process:
    """One worker with a project for each policy and each marking: rules are loaded once."""
    projects = tuple(
        ProjectParts(f"{name}/{how}", DEMO_KEY, chosen, "none", marking=marking)
        for name, chosen in POLICIES.items()
        for how, marking in MARKINGS.items()
    )
    envelopes = (("enveloped", make_envelope(EnvelopeSettings(payload=("/a", "/b")))),)
    return WorkerFactory(RULES, DEMO_KEY, POLICIES["keep"], system="none", projects=projects, envelopes=envelopes)()


def run(
    policy: str, how: str, payload: object, *, offset: int = 5, time_ms: int | None = TIME_MS, source: str = "t"
) -> Processed:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    position = JobPosition(0, offset, time_ms, "x")
    result = worker()(Job(data, source=source, project=f"{policy}/{how}", position=position))
    assert isinstance(result, Processed), result
    return result


def output(policy: str, how: str, payload: object) -> dict[str, object]:
    found = json.loads(run(policy, how, payload).payload)
    assert isinstance(found, dict)
    return found


def resources(found: object) -> list[dict[str, object]]:
    assert isinstance(found, dict)
    return [each["resource"] for each in found["entry"]]


def labels(resource: object) -> list[str]:
    assert isinstance(resource, dict)
    return [each["code"] for each in resource.get("meta", {}).get("security", [])]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("surrogate", ["PSEUDED"]), ("mask", ["REDACTED"]), ("redact", ["REDACTED"]), ("keep", [])],
)
def test_the_labels_of_a_resource_are_those_of_its_changes(method: str, expected: list[str]) -> None:
    found = output(method, "labelled", BUNDLE)
    assert [labels(each) for each in resources(found)] == [expected, []]
    assert labels(found) == expected, "a Bundle is as restricted as its entries"
    assert "security" not in json.dumps(resources(found)[0]["contained"]), "dom-5"


def test_each_method_has_its_label() -> None:
    assert labels(output("mixed", "labelled", FULL)) == ["PSEUDED", "REDACTED", "ABSTRED"]
    assert labels(output("link", "labelled", {"resourceType": "Patient", "id": "p1"})) == ["PSEUDED"]


def test_a_leak_that_is_written_over_labels_its_own_resource() -> None:
    held = {**OBSERVATION, "bodySite": {"coding": [{"code": "1", "display": "arm of Zyblorqvist"}]}}
    found = run("surrogate", "labelled", bundle(OBSERVATION, held, PATIENT))
    assert b"Zyblorqvist" not in found.payload
    assert {each["source"] for each in json.loads(found.remarks)} >= {"guard"}
    assert [labels(each) for each in resources(json.loads(found.payload))] == [[], ["PSEUDED"], ["PSEUDED"]]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("indent", [None, 2])
def test_without_the_labels_every_byte_is_the_same(name: str, indent: int | None) -> None:
    attached = {"resourceType": "DocumentReference", "status": "current", "content": [{"attachment": {"data": "QWJj"}}]}
    own = {"versionId": "3", "security": [{"code": "R"}]}
    for payload in (BUNDLE, FULL, {**PATIENT, "meta": own}, bundle(PATIENT, attached, {**FULL, "meta": {}}, BUNDLE)):
        data = json.dumps(payload, indent=indent).encode()
        before, after = run(name, "plain", data), run(name, "labelled", data)
        assert after.payload != before.payload
        assert _INSERTED.sub(b"", after.payload) == before.payload
        assert (after.remarks, after.key, after.headers) == (before.remarks, before.key, before.headers)


def test_a_resource_that_an_allow_list_leaves_keeps_its_own_labels() -> None:
    """Numbers of entries differ before and after: the Condition goes, and the Observation becomes the first."""
    condition = {"resourceType": "Condition", "id": "c", "recordedDate": "2019-03-04"}
    patient = {"resourceType": "Patient", "birthDate": "1950-03-04"}
    kept = {"resourceType": "Observation", "status": "final", "code": {"text": "K"}}
    found = output("listed", "labelled", bundle(condition, kept, patient, OBSERVATION))
    assert [(each["resourceType"], labels(each)) for each in resources(found)] == [
        ("Observation", []),
        ("Patient", ["ABSTRED"]),
        ("Observation", ["REDACTED"]),
    ]
    assert labels(found) == ["REDACTED", "ABSTRED"]
    inner = output("listed", "labelled", bundle(bundle(condition, kept), kept))
    assert [labels(each) for each in (inner, *resources(inner))] == [["REDACTED"], ["REDACTED"], []]
    assert labels(resources(resources(inner)[0])[0]) == []


def test_each_line_of_a_batch_and_each_message_of_an_envelope_has_its_own_labels() -> None:
    lines = run("surrogate", "labelled", b"%b\n%b\n" % tuple(json.dumps(e).encode() for e in (OBSERVATION, PATIENT)))
    assert [labels(json.loads(line)) for line in lines.payload.splitlines()] == [[], ["PSEUDED"]]
    inside = {"a": json.dumps(OBSERVATION), "b": PATIENT}
    record = json.loads(run("surrogate", "every", inside, source="enveloped").payload)
    assert [labels(found) for found in (json.loads(record["a"]), record["b"])] == [[], ["PSEUDED"]]
    made = json.loads(run("surrogate", "every", inside, source="enveloped").provenance)
    assert made["target"] == [{"reference": "Observation/o1"}, {"reference": "Patient/p1"}]


def test_other_formats_and_policies_that_change_nothing_get_no_addition() -> None:
    hl7 = b"MSH|^~\\&|A|B|C|D|20240314||ADT^A01|1|P|2.5\rPID|1||123^^^H^MR||Zyblorqvist^A\r"
    xml = b'<Patient xmlns="http://hl7.org/fhir"><id value="p"/><name><family value="Zyblorqvist"/></name></Patient>'
    for payload in (hl7, xml):
        plain, marked = run("surrogate", "plain", payload), run("surrogate", "every", payload)
        assert (plain.payload, marked.provenance) == (marked.payload, b"")
    for how in ("every", "inside"):
        kept = run("keep", how, BUNDLE)
        assert (json.loads(kept.payload), kept.provenance) == (BUNDLE, b"")


# Provenance


def provenance(policy: str, payload: object, *, time_ms: int | None = TIME_MS) -> dict[str, object]:
    done = run(policy, "topic", payload, time_ms=time_ms)
    assert done.payload == run(policy, "plain", payload).payload
    found = json.loads(done.provenance or b"{}")
    if found:
        Provenance.model_validate(found)
    assert isinstance(found, dict)
    return found


def test_a_provenance_names_targets_policy_and_activity_and_nothing_of_an_original() -> None:
    found = provenance("safe-harbor", BUNDLE)
    ids = [each["id"] for each in resources(output("safe-harbor", "plain", BUNDLE))]
    assert "p1" not in ids and "o1" not in ids
    digest = POLICIES["safe-harbor"].digest[:16]
    assert json.dumps(found, separators=(",", ":")) == (
        '{"resourceType":"Provenance","id":"' + OutputMarks(DEMO_KEY.secret).id_of(Coordinates("t", 0, 5), "x") + '",'
        '"target":[{"reference":"Patient/' + str(ids[0]) + '"},{"reference":"Observation/' + str(ids[1]) + '"}],'
        '"recorded":"2023-01-01T00:00:00.000Z","policy":["urn:deid-agent:policy:safe-harbor:' + digest + '"],'
        '"activity":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle",'
        '"code":"pseudonymize"}]},"agent":[{"type":{"coding":[{"system":'
        '"http://terminology.hl7.org/CodeSystem/provenance-participant-type","code":"assembler"}]},'
        '"who":{"display":"deid-agent ' + __version__ + '"}}]}'
    )


def test_an_equal_record_has_an_equal_provenance_and_another_one_another_id() -> None:
    first, again, other = (run("pseudonymised", "inside", BUNDLE, offset=offset).payload for offset in (5, 5, 6))
    assert first == again != other
    ids = [resources(json.loads(each))[-1]["id"] for each in (first, other)]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("time", "time_ms", "expected"),
    [
        (RecordTime.KEEP, TIME_MS, "2023-11-14T22:13:20.123Z"),
        (RecordTime.DAY, TIME_MS, "2023-11-14T00:00:00.000Z"),
        (RecordTime.WEEK, TIME_MS, "2023-11-13T00:00:00.000Z"),
        (RecordTime.YEAR, TIME_MS, "2023-01-01T00:00:00.000Z"),
        (RecordTime.NONE, TIME_MS, "masked"),
        (RecordTime.DAY, None, "unknown"),
        (RecordTime.KEEP, 10**17, "unknown"),
    ],
)
def test_the_time_of_a_provenance_has_the_precision_of_the_policy(
    time: RecordTime, time_ms: int | None, expected: str
) -> None:
    found = provenance(f"time-{time}", PATIENT, time_ms=time_ms)
    absent = found.get("_recorded")
    shown = absent["extension"][0]["valueCode"] if isinstance(absent, dict) else found["recorded"]
    assert (shown, "recorded" in found) == (expected, absent is None)


@pytest.mark.parametrize(
    ("name", "code"),
    [("surrogate", "pseudonymize"), ("link", "pseudonymize"), ("mask", "deidentify"), ("abstract", "deidentify")],
)
def test_the_activity_is_a_pseudonymization_only_if_a_surrogate_was_made(name: str, code: str) -> None:
    assert json.dumps(provenance(name, FULL)["activity"]).endswith(f'"code": "{code}"}}]}}')


def test_only_resources_with_a_valid_id_are_targets() -> None:
    assert provenance("surrogate", {**PATIENT, "id": "no id"}) == {}
    assert provenance("surrogate", {**PATIENT, "id": ["p1"]}) == {}
    batch = b"\n".join(json.dumps(each).encode() for each in (PATIENT, OBSERVATION, PATIENT, BUNDLE))
    assert provenance("surrogate", batch)["target"] == [{"reference": "Patient/p1"}, {"reference": "Observation/o1"}]


def test_the_name_of_a_policy_is_quoted() -> None:
    digest = POLICIES["quoted"].digest[:16]
    assert provenance("quoted", PATIENT)["policy"] == [f"urn:deid-agent:policy:our%20policy%2F2%E2%80%A8:{digest}"]


def entries(data: bytes) -> Iterator[dict[str, object]]:
    for line in data.splitlines():
        yield from resources(json.loads(line))


def test_a_bundle_gets_one_more_entry_and_each_bundle_of_a_batch_its_own() -> None:
    batch = json.dumps(BUNDLE).encode() + b"\n" + json.dumps(BUNDLE).encode()
    marked, plain = run("surrogate", "inside", batch), run("surrogate", "plain", batch)
    added = [each for each in entries(marked.payload) if each["resourceType"] == "Provenance"]
    assert len({str(each["id"]) for each in added}) == 2 == len(added)
    for each in added:
        Provenance.model_validate(each)
    entry = rb',\{"fullUrl":"urn:uuid:[0-9a-f-]{36}","resource":\{"resourceType":"Provenance".*?"who":\{[^}]*\}\}\]\}\}'
    assert re.sub(entry, b"", marked.payload) == plain.payload
    assert marked.provenance == b""
    assert run("surrogate", "inside", PATIENT).payload == run("surrogate", "plain", PATIENT).payload


def test_the_references_of_the_entry_resolve() -> None:
    """A relative reference is resolved against the address of the entry that holds it."""
    whole = bundle(PATIENT, OBSERVATION)
    for entry, name in zip(whole["entry"], ("Patient/p1", "Observation/o1"), strict=True):  # type: ignore[call-overload]
        entry["fullUrl"] = f"https://h.example/fhir/{name}"
    found = json.loads(run("pseudonymised", "inside", whole).payload)["entry"]
    made = found[-1]["resource"]
    base = found[0]["fullUrl"].removesuffix(f"/Patient/{found[0]['resource']['id']}")
    assert found[-1]["fullUrl"] == f"{base}/Provenance/{made['id']}"
    assert {f"{base}/{each['reference']}" for each in made["target"]} == {each["fullUrl"] for each in found[:-1]}


def test_a_job_without_a_position_has_no_provenance() -> None:
    for how in ("topic", "inside"):
        result = worker()(Job(json.dumps(BUNDLE).encode(), project=f"surrogate/{how}"))
        assert isinstance(result, Processed)
        assert (b"Provenance" in result.payload, result.provenance) == (False, b"")
