"""Outputs in the form of DAPL, from bytes to bytes: with a policy, envelopes, ages, remarks and refusals."""

import json
from datetime import date, timedelta

import pytest
from support.dapl import BUNDLE, PROFILE, find_faults, resources

from deid_agent.agent.job import Job, Processed, Refused, Suppressed
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.codec import Envelope
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model import (
    ConfigurationError,
    FieldAction,
    Marking,
    MessageError,
    Origin,
    ProvenanceMode,
    Reason,
    parse_pointer,
)
from deid_agent.pipeline import Deidentifier, RefusedText, RestrictedZip, ShapeName, ShapeOptions, load_policy
from deid_agent.pipeline.policy import Policy, compile_policy
from deid_agent.rules import data_folder

RULES = data_folder("rules")
DAPL = ShapeOptions(ShapeName.DAPL)
OLD = {"resourceType": "Patient", "id": "p", "birthDate": "1931-11-08", "name": [{"family": "Quixwell"}]}


def safe_harbor() -> Policy:
    return load_policy("safe-harbor", RULES)


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    return WorkerFactory(RULES, DEMO_KEY, safe_harbor(), system="none", shape=DAPL).deidentifier()


def dumped(*items: object) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in items)


def quantities(payload: bytes) -> list[object]:
    url = f"{PROFILE}dapl-age-extension"
    lines = [json.loads(line) for line in payload.splitlines() if line.strip()]
    found = [each for tree in lines for resource in resources(tree) for each in resource.get("extension", ())]  # type: ignore[attr-defined]
    return [each["valueQuantity"] for each in found if each["url"] == url]


def test_a_bundle_leaves_without_names_dates_and_numbers(deidentifier: Deidentifier) -> None:
    done = deidentifier.message(BUNDLE.read_bytes())
    assert find_faults(json.loads(done.payload)) == []
    for word in (b"Quixwell", b"Odalys", b"Baranski", b"4471902", b"1957", b"p-1", b"40205"):
        assert word not in done.payload
    assert b'"value":13.20,' in done.payload
    assert deidentifier.message(BUNDLE.read_bytes()).payload == done.payload
    dropped = {remark.path: remark.count for remark in done.remarks if remark.source == "shape"}
    assert dropped["Patient.name"] == 1
    assert dropped["Bundle.entry.resource"] == 3
    assert "Quixwell" not in str(done.remarks)


def test_the_age_over_89_is_the_same_in_a_bundle_and_in_lines(deidentifier: Deidentifier) -> None:
    """The output has one year of birth for everyone over 89, by the year of the message: it would give 89 here."""
    condition = {
        "resourceType": "Condition",
        "id": "c",
        "subject": {"reference": "Patient/p"},
        "onsetDateTime": "2023-01-15",
    }
    entries = [{"resource": OLD}, {"resource": condition}]
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": entries}
    (whole,) = quantities(deidentifier.message(dumped(bundle)).payload)
    (alone,) = quantities(deidentifier.message(dumped(OLD, condition)).payload)
    assert whole == alone
    assert isinstance(whole, dict)
    assert (whole["value"], whole["comparator"]) == (90, ">=")


def test_a_message_of_the_future_makes_nobody_older(deidentifier: Deidentifier) -> None:
    born = date.today() - timedelta(days=365 * 40 + 100)
    patient = {**OLD, "birthDate": born.isoformat()}
    coverage = {"resourceType": "Coverage", "beneficiary": {"reference": "Patient/p"}, "period": {"end": "2099-12-31"}}
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": patient}, {"resource": coverage}]}
    (age,) = quantities(deidentifier.message(dumped(bundle)).payload)
    assert isinstance(age, dict)
    assert age["value"] == 40


def test_one_day_for_all_ages() -> None:
    shape = ShapeOptions(ShapeName.DAPL, age_date=date(2001, 2, 3))
    made = WorkerFactory(RULES, DEMO_KEY, safe_harbor(), system="none", shape=shape).deidentifier()
    (age,) = quantities(made.message(dumped(OLD)).payload)
    assert isinstance(age, dict)
    assert age["value"] == 69


def test_lines_stay_lines(deidentifier: Deidentifier) -> None:
    done = deidentifier.message(dumped(OLD, OLD) + b"\n" + dumped(OLD))
    lines = done.payload.split(b"\n")
    assert [line.startswith(b"{") for line in lines] == [True, True, False, True, False]


def test_records_in_an_envelope_have_the_shape_too(deidentifier: Deidentifier) -> None:
    envelope = Envelope((parse_pointer("/payload"),), fields={parse_pointer("/id"): FieldAction.KEEP})
    record = dumped({"id": "7", "payload": json.dumps(OLD)})
    done = deidentifier.message(record, envelope=envelope)
    tree = json.loads(done.payload)
    assert tree["id"] == "7"
    assert json.loads(tree["payload"])["meta"] == {"profile": [f"{PROFILE}dapl-deidentified-patient"]}
    assert any(remark.path.endswith("/Patient.name") for remark in done.remarks if remark.source == "shape")


@pytest.mark.parametrize(
    "payload",
    [
        b"MSH|^~\\&|LAB|HOSP|C|D|20190304||ORU^R01^ORU_R01|c1|P|2.5.1\r",
        b'<Patient xmlns="http://hl7.org/fhir"><active value="true"/></Patient>',
        b'{"resourceType":"DiagnosticReport"}',
        b'{"resourceType":"Patient"}\n{"resourceType":"DiagnosticReport"}\n',
    ],
)
def test_other_messages_are_refused(deidentifier: Deidentifier, payload: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        deidentifier.message(payload)
    assert caught.value.reason is Reason.UNSUPPORTED


def test_notes_and_documents_are_refused(deidentifier: Deidentifier) -> None:
    (refused,) = deidentifier.texts(["Seen by Dr. Quixwell."])
    assert isinstance(refused, RefusedText)
    assert refused.reason is Reason.UNSUPPORTED
    for media, data in (("text/html", b"<p>Seen by Dr. Quixwell.</p>"), ("text/plain", b"Seen by Dr. Quixwell.")):
        with pytest.raises(MessageError) as caught:
            deidentifier.document(data, media)
        assert caught.value.reason is Reason.UNSUPPORTED


def test_each_project_has_its_own_shape() -> None:
    policy = safe_harbor()
    projects = (ProjectParts("darts", DEMO_KEY, policy, "none", shape=DAPL),)
    process = WorkerFactory(RULES, DEMO_KEY, policy, system="none", projects=projects)()
    plain, made = (process(Job(dumped(OLD), project=name)) for name in ("", "darts"))
    assert isinstance(plain, Processed)
    assert isinstance(made, Processed)
    assert b'"name"' in plain.payload
    assert b'"name"' not in made.payload
    assert isinstance(process(Job(b'{"resourceType":"DiagnosticReport"}', project="darts")), Refused)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"name": "own", "default": "mask"}, "does not generalize dates"),
        ({"name": "own", "default": "mask", "types": {"DATE": "surrogate"}}, "does not generalize dates"),
        (
            {"name": "own", "default": "generalize", "publish": {"paths": ["Patient.gender"]}},
            "publishes listed paths",
        ),
    ],
)
def test_a_policy_for_other_outputs_is_refused(policy: dict[str, object], text: str) -> None:
    made = compile_policy(policy, "own")
    with pytest.raises(ConfigurationError, match=text):
        DAPL.check(made)
    assert ShapeOptions().check(made) == ShapeOptions()


def test_a_record_of_patients_that_are_left_out_has_no_output() -> None:
    shape = ShapeOptions(ShapeName.DAPL, RestrictedZip.DROP)
    process = WorkerFactory(RULES, DEMO_KEY, safe_harbor(), system="none", shape=shape)()
    few = {**OLD, "address": [{"postalCode": "03601"}]}
    assert isinstance(process(Job(dumped(few))), Suppressed)
    assert isinstance(process(Job(dumped(few, few))), Suppressed)
    done = process(Job(dumped(few, OLD, few)))
    assert isinstance(done, Processed)
    assert done.payload.count(b"\n") == 1, "the other line stays"


def test_an_output_with_fewer_entries_is_as_valid_as_its_message() -> None:
    """Its indices differ, so a fault that came is at another path."""
    faulty = {
        "resourceType": "Observation",
        "id": "o",
        "status": "final",
        "code": 7,
        "subject": {"reference": "Patient/p"},
    }
    report = {"resourceType": "DiagnosticReport", "id": "r", "status": "final", "code": {"text": "x"}}
    entries = [{"resource": each} for each in (report, faulty, OLD)]
    factory = WorkerFactory(RULES, DEMO_KEY, safe_harbor(), system="none", shape=DAPL, validate=True)
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": entries}
    assert isinstance(factory()(Job(dumped(bundle))), Processed)


def test_labels_and_provenance_of_a_shaped_bundle() -> None:
    """Labels belong to the resources of the message, whose numbers differ in the output; a Provenance to the output."""
    marking = Marking(labels=True, provenance=ProvenanceMode.BUNDLE)
    factory = WorkerFactory(RULES, DEMO_KEY, safe_harbor(), system="none", shape=DAPL, marking=marking)
    report = {"resourceType": "DiagnosticReport", "id": "r", "conclusion": "x", "subject": {"reference": "Patient/p"}}
    drug = {"resourceType": "Medication", "code": {"text": "x"}}
    entries = [{"fullUrl": f"http://x.example/{n}/{n}", "resource": each} for n, each in enumerate((report, drug, OLD))]
    deidentifier = factory.deidentifier()
    plan = deidentifier.plan(dumped({"resourceType": "Bundle", "type": "collection", "entry": entries}))
    (recognition,) = deidentifier.recognize([plan])
    done = deidentifier.apply(plan, recognition, origin=Origin("0" * 32, 1_710_000_000_000))
    made = [each["resource"] for each in json.loads(done.payload)["entry"]]
    assert [each["resourceType"] for each in made] == ["Medication", "Patient", "Provenance"]
    assert "meta" not in made[0]
    assert {each["code"] for each in made[1]["meta"]["security"]} >= {"REDACTED"}
    assert [each["reference"] for each in made[2]["target"]] == [f"Patient/{made[1]['id']}"]
