"""``$anonymize``: counts of patients in groups of at least k, and nothing about smaller ones."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import date

import pytest
from fhir.resources.R4B.measurereport import MeasureReport
from hypothesis import given
from hypothesis import strategies as st
from support import fhir

from deid_agent.agent.job import Job, JobPosition, Process, Processed, Refused
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.config import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline import load_policy
from deid_agent.pipeline.anonymous_counts import Stratum, anonymize, count_persons, suppress
from deid_agent.rules import data_folder

RULES = data_folder("rules")
TODAY = date(2024, 6, 15)
CANARY = "Zyblorqvist"


def patient(number: int, born: object = "1980-01-01", gender: object = "female", **more: object) -> dict[str, object]:
    found = {"resourceType": "Patient", "id": f"p{number}", "birthDate": born, "gender": gender, **more}
    return {name: value for name, value in found.items() if value is not None}


def bundle(*resources: Mapping[str, object]) -> bytes:
    return json.dumps(fhir.bundle(*resources)).encode()


def strata(payload: bytes) -> list[tuple[object, object, int]]:
    """Age text, gender and count of each stratum of a report."""
    (entry,) = json.loads(payload)["entry"]
    report = entry["resource"]
    MeasureReport.model_validate(report)
    found = []
    for group in report.get("group", ()):
        for stratum in group["stratifier"][0]["stratum"]:
            age, gender = (each["value"] for each in stratum["component"])
            found.append((age.get("text"), gender["coding"][0]["code"], stratum["measureScore"]["value"]))
    return found


def test_patients_are_counted_by_decade_and_gender() -> None:
    people: list[Mapping[str, object]] = [
        *(patient(n) for n in range(6)),
        *(patient(n, "1930-05-05", "male", name=[{"family": CANARY}]) for n in range(10, 17)),
        *(patient(n, None, None) for n in range(20, 25)),
        {"resourceType": "Observation", "id": "o"},
        patient(30, "1920", "male"),
    ]
    report = anonymize(bundle(*people), 5, TODAY)
    assert strata(report) == [(None, "unknown", 5), ("40 to 49", "female", 6), ("90 and over", "male", 8)]
    assert CANARY.encode() not in report
    assert b"1930" not in report


@pytest.mark.parametrize(
    ("born", "decade"),
    [
        ("1984-06-15", 40),
        ("1984-06-16", 30),
        ("1984-06", 40),
        ("1984", 40),
        ("1924-06-15", 90),
        ("1800", 90),
        ("2024-06-15", 0),
        ("2024-06-16", -1),
        ("1984-02-30", -1),
        ("1984-13", -1),
        ("0000", -1),
        ("84", -1),
        ("1984-06-15T10:00:00Z", -1),
        (1984, -1),
        (None, -1),
    ],
)
def test_the_age_is_that_at_the_time_of_the_request(born: object, decade: int) -> None:
    assert [each.decade for each in count_persons([patient(1, born)], TODAY)] == [decade]


def test_a_person_who_comes_twice_counts_once() -> None:
    """Else five copies of one person would look like a group of five."""
    mrn = [{"system": "s", "value": "4471902"}]
    named = [{"family": "Okafor", "given": ["Ada"]}]
    same = [
        patient(1, identifier=mrn),
        patient(1),
        patient(2, identifier=[*mrn, {"system": "t", "value": "7"}]),
        patient(3, identifier=[{"system": "t", "value": "7"}], name=named),
        patient(4, name=[{"family": "OKAFOR", "given": ["Ada"]}]),
    ]
    assert count_persons(same, TODAY) == {Stratum(40, "female"): 1}
    assert count_persons([*same, patient(5, "1990-01-01", identifier=mrn)], TODAY) == {Stratum(-1, "unknown"): 1}
    assert count_persons([patient(n) for n in range(5)], TODAY) == {Stratum(40, "female"): 5}
    assert count_persons([patient(0, id=None) for _ in range(3)], TODAY) == {Stratum(40, "female"): 3}


@pytest.mark.parametrize(
    "writings",
    [
        [[{"family": "M\u00fcller", "given": ["Jo"]}], [{"family": " MU\u0308LLER", "given": ["jo "]}]],
        [
            [{"family": "Van  Dyk", "given": ["Jo"]}],
            [{"family": "van dyk", "given": "Jo"}],
            {"family": "Van Dyk", "given": ["Jo"]},
        ],
        [[{"text": "Jo M\u00fcller"}], [{"text": "jo  m\u00fcller"}]],
    ],
)
def test_a_name_in_another_writing_is_that_of_the_same_person(writings: list[object]) -> None:
    found = [patient(number, name=name) for number, name in enumerate(writings)]
    assert count_persons(found, TODAY) == {Stratum(40, "female"): 1}
    found = [patient(number, identifier={"value": "4471902"}) for number in range(2)]
    assert count_persons(found, TODAY) == {Stratum(40, "female"): 1}


ONE, TWO, THREE = (Stratum(10 * n, "male") for n in range(3))


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ({ONE: 5, TWO: 9}, {ONE: 5, TWO: 9}),
        ({ONE: 4, TWO: 9}, {}),  # the rest of a known total would be the four
        ({ONE: 4, TWO: 9, THREE: 7}, {TWO: 9}),
        ({ONE: 4, TWO: 4, THREE: 7}, {THREE: 7}),
        ({ONE: 1, TWO: 7, THREE: 7}, {THREE: 7}),
        ({ONE: 4}, {}),
        ({}, {}),
    ],
)
def test_a_known_total_reveals_no_group_below_k(counts: dict[Stratum, int], kept: dict[Stratum, int]) -> None:
    assert suppress(counts, 5) == kept


@given(
    st.dictionaries(
        st.builds(Stratum, st.sampled_from(range(0, 100, 10)), st.sampled_from(["male", "female"])), st.integers(1, 30)
    ),
    st.integers(5, 20),
)
def test_published_strata_and_the_rest_have_k_persons_each(counts: dict[Stratum, int], k: int) -> None:
    kept = suppress(Counter(counts), k)
    hidden = sum(counts.values()) - sum(kept.values())
    assert all(count >= k and counts[stratum] == count for stratum, count in kept.items())
    assert hidden == 0 or hidden >= k or not kept
    assert list(kept) == sorted(kept)


def parameters(*items: bytes) -> bytes:
    return b'{"resourceType":"Parameters","parameter":[' + b",".join(items) + b"]}"


def given_data(resource: bytes) -> bytes:
    return b'{"name":"identifiableData","resource":' + resource + b"}"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.MALFORMED),
        (b'{"resourceType":"Patient"}', Reason.UNSUPPORTED),
        (parameters(given_data(b'{"resourceType":"Patient"}')), Reason.UNSUPPORTED),
        (parameters(b'{"name":"identifiableDataFileUrls","part":[]}'), Reason.UNSUPPORTED),
        (parameters(given_data(bundle()), b'{"name":"k","valueString":"2"}'), Reason.UNSUPPORTED),
    ],
)
def test_another_form_is_refused(payload: bytes, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        anonymize(payload, 5, TODAY)
    assert caught.value.reason is reason


@pytest.fixture(scope="module")
def worker() -> Process:
    policy = load_policy("safe-harbor", RULES)
    project = ProjectParts("counting", DEMO_KEY, policy, "none", smallest_group=5)
    return WorkerFactory(RULES, DEMO_KEY, policy, system="none", projects=(project,))()


def test_the_operation_needs_a_setting_of_the_project(worker: Process) -> None:
    payload = bundle(*(patient(n) for n in range(5)))
    refused = worker(Job(payload, task="anonymize"))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.where) == (Reason.UNSUPPORTED, "project")
    at = JobPosition(0, 0, 1_718_409_600_000)
    envelope = parameters(given_data(payload))
    for data in (payload, envelope):
        done = worker(Job(data, project="counting", task="anonymize", position=at))
        assert isinstance(done, Processed)
        found = json.loads(done.payload)
        if data is envelope:
            ((name, found),) = [(each["name"], each["resource"]) for each in found["parameter"]]
            assert name == "anonymizedData"
        assert strata(json.dumps(found).encode()) == [("40 to 49", "female", 5)]
        assert done.remarks == b"[]"


@pytest.mark.parametrize(
    "patients",
    [
        [{"resourceType": "Patient", "id": 7, "identifier": {"value": "x"}, "name": "x", "gender": ["male"]}],
        [{"resourceType": "Patient", "identifier": [None, 3, {"value": 7}], "name": [None, {"given": {}}]}],
        [{"resourceType": "Patient", "birthDate": "2024-06-31", "gender": None}] * 3,
    ],
)
def test_hostile_patients_are_counted_as_unknown(worker: Process, patients: list[dict[str, object]]) -> None:
    assert count_persons(patients, TODAY).keys() == {Stratum(-1, "unknown")}
    done = worker(Job(bundle(*patients), project="counting", task="anonymize"))
    assert isinstance(done, Processed)
    assert strata(done.payload) == []


def test_a_payload_that_is_nested_too_deep_ends_no_worker(worker: Process) -> None:
    deep = b'{"resourceType":"Bundle","entry":[{"resource":' * 250 + b"{}" + b"}]}" * 250
    parts = b'{"resourceType":"Parameters","parameter":[' + b'{"part":[' * 480 + b"]}" * 480 + b"]}"
    for payload in (deep, parts, b'{"resourceType":"Bundle","entry":[{"resource":' + parts + b"}]}", b"[" * 10_000):
        result = worker(Job(payload, project="counting", task="anonymize"))
        assert isinstance(result, Processed | Refused)
