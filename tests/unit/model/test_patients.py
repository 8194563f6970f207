"""One patient is one scope: in any order of identifiers, in any spelling, in every format."""

import json
import sys
from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scopes import scope_of_payload

from deid_agent.model import PatientChoice, PatientField, PatientIdentifier, PhiType, normalize_identifier

MSH = "MSH|^~\\&|A|B|C|D|20240311||ADT^A08|M-1|P|2.5"
REPETITIONS = ("V1^^^HOSP^VN", "004471902^^^HOSP&1.2.3.4&ISO^MR", "9^^^CORP^PI", "999-11-2222^^^USA^SS", "77^^^CITY^MR")
HOSP = PatientChoice(assigners=(("HOSP", "1.2.3.4", "https://hosp.example/mrn"), ("CITY",)))


def pid(value: str, *, version: str = "2.5", number: int = 3) -> str:
    return f"{MSH.replace('2.5', version)}\rPID|{'|' * (number - 1)}{value}\r"


def fhir(*identifiers: Mapping[str, object], logical: str = "p100") -> str:
    return json.dumps({"resourceType": "Patient", "id": logical, "identifier": identifiers})


def typed(code: str, value: str, system: str = "urn:oid:1.2.3.4") -> dict[str, object]:
    return {"type": {"coding": [{"code": code}]}, "system": system, "value": value}


def bundle(*resources: Mapping[str, object]) -> str:
    return json.dumps({"resourceType": "Bundle", "entry": [{"resource": each} for each in resources]})


def cda(*ids: str) -> str:
    inner = "".join(f"<id {each}/>" for each in ids)
    return (
        '<ClinicalDocument xmlns="urn:hl7-org:v3"><recordTarget><patientRole>'
        f"{inner}</patientRole></recordTarget></ClinicalDocument>"
    )


PATIENT = json.loads(fhir(typed("VN", "V1"), typed("MR", "4471902")))
OBSERVATION = {"resourceType": "Observation", "subject": {"reference": "Patient/p100"}}
SAME = {
    "alone": pid("4471902"),
    "typed": pid("4471902^^^HOSP^MR"),
    "zeros": pid("0004471902^^^HOSP^MR"),
    "spaces": pid(" 4471902 ^^^HOSP^MR"),
    "dashes": pid("447-19-02^^^HOSP^MR"),
    "escaped": pid("4471902\\F\\^^^HOSP^MR"),
    "prefix": pid("urn:oid:4471902^^^HOSP^MR"),
    "full width": pid("４４７１９０２^^^HOSP^MR").replace("|P|2.5", "|P|2.5||||||UNICODE UTF-8"),
    "visit first": pid("V1^^^HOSP^VN~4471902^^^HOSP^MR"),
    "null first": pid('""^^^HOSP^MR~4471902^^^HOSP^MR'),
    "placeholder first": pid("UNKNOWN^^^HOSP^MR~4471902^^^HOSP^PI"),
    "version 2.1": pid("4471902", version="2.1"),
    "version 2.2": pid("4471902^3^M10^HOSP", version="2.2"),
    "version 2.8": pid("4471902^^^HOSP&1.2.3.4&ISO^MR^^20200101", version="2.8"),
    "PID-2": pid("4471902^^^HOSP^MR", number=2),
    "PID-4": pid("4471902", number=4),
    "PID-2 beside a visit": f"{MSH}\rPID||4471902|V1^^^HOSP^VN\r",
    "second PID": f'{MSH}\rPID|||""\rPID|||4471902\r',
    "merge": f"{MSH}\rPID|||4471902^^^HOSP^MR\rMRG|11^^^HOSP^MR\r",
    "Patient": fhir(typed("MR", "4471902")),
    "Patient without a type": fhir({"value": "04471902"}),
    "Patient with SSN first": fhir(typed("SS", "999112222"), typed("MR", "4471902")),
    "Patient with a former number": fhir({**typed("MR", "11"), "use": "old"}, typed("MR", "4471902")),
    "Bundle": bundle(OBSERVATION, PATIENT),
    "Bundle, Patient first": bundle(PATIENT, OBSERVATION),
    "Bundle with the mother": bundle(
        {"resourceType": "Patient", "id": "m", "identifier": [typed("MR", "1")]}, OBSERVATION, PATIENT
    ),
    "subject.identifier": json.dumps(
        {"resourceType": "Observation", "subject": {"reference": "Patient/p100", "identifier": typed("MR", "4471902")}}
    ),
    "contained": json.dumps(
        {"resourceType": "Observation", "subject": {"reference": "#p"},
         "contained": [{"resourceType": "Patient", "id": "p", "identifier": [typed("MR", "4471902")]}]}
    ),
    "CDA": cda('root="1.2.3.4" extension="4471902"'),
    "CDA with SSN first": cda(
        'root="2.16.840.1.113883.4.1" extension="999-11-2222"', 'root="1.2.3.4" extension="004471902"'
    ),
}  # fmt: skip


@pytest.mark.parametrize("payload", SAME.values(), ids=SAME)
def test_one_person_is_one_scope_in_every_format(payload: str) -> None:
    assert scope_of_payload(payload) == "4471902"
    assert scope_of_payload(payload, HOSP) == "4471902"


def test_the_number_of_a_context_is_the_same_scope() -> None:
    assert {PatientChoice().scope_of(value) for value in ("4471902", "0447-1902 ", "urn:oid:4471902")} == {"4471902"}


def test_the_order_of_repetitions_does_not_matter() -> None:
    for choice, expected in ((PatientChoice(), "4471902"), (HOSP, "4471902")):
        scopes = {scope_of_payload(pid("~".join(order)), choice) for order in permutations(REPETITIONS)}
        assert scopes == {expected}
    listed = [
        typed("VN", "V1"),
        typed("MR", "4471902"),
        typed("PI", "9", "urn:oid:1.9"),
        typed("MR", "77", "urn:oid:7"),
    ]
    assert {scope_of_payload(fhir(*order)) for order in permutations(listed)} == {"4471902"}
    roots = (
        'root="1.2.3.4" extension="4471902"',
        'root="7" extension="77"',
        'root="2.16.840.1.113883.4.1" extension="9"',
    )
    assert {scope_of_payload(cda(*order)) for order in permutations(roots)} == {"4471902"}


def test_the_order_of_a_bundle_does_not_matter() -> None:
    other = {"resourceType": "Patient", "id": "m", "identifier": [typed("MR", "1")]}
    entries = (PATIENT, other, OBSERVATION, {**OBSERVATION, "subject": {"reference": "Patient/m"}}, OBSERVATION)
    assert {scope_of_payload(bundle(*order)) for order in permutations(entries)} == {"4471902"}
    alone = (other, PATIENT)
    assert len({scope_of_payload(bundle(*order)) for order in permutations(alone)}) == 1
    seen = ({**OBSERVATION, "subject": {"reference": f"Patient/{n}"}} for n in ("b", "a", "c"))
    assert {scope_of_payload(bundle(*order)) for order in permutations(seen)} == {"A"}


def test_the_preferred_assigner_decides() -> None:
    both = "77^^^CITY^MR~4471902^^^HOSP^MR"
    city = PatientChoice(assigners=(("CITY", "urn:oid:7"), ("HOSP",)))
    assert scope_of_payload(pid(both), city) == "77"
    assert scope_of_payload(fhir(typed("MR", "4471902"), typed("MR", "77", "urn:oid:7")), city) == "77"
    assert scope_of_payload(cda('root="1.2.3.4" extension="1"', 'root="7" extension="77"'), city) == "77"
    # A number of the person of another assigner comes before a visit of the preferred one.
    assert scope_of_payload(pid("77^^^CITY^VN~4471902^^^HOSP^MR"), city) == "HOSP|4471902"


def test_a_second_assigner_qualifies_its_numbers() -> None:
    assert scope_of_payload(pid("55^^^HOSP^MR"), HOSP) == scope_of_payload(pid("55"), HOSP) == "55"
    assert scope_of_payload(pid("55^^^City^MR"), HOSP) == "CITY|55"


def test_types_are_a_setting() -> None:
    master = PatientChoice(types=("PI", "MR"))
    assert scope_of_payload(pid("~".join(REPETITIONS)), master) == "9"


DIFFERENT = (
    pid("4471902"), pid("4471903"), pid("44719020"), pid("A4471902"), pid("4471902^^^HOSP^VN"), pid("4471902^^^USA^SS"),
    fhir(logical="p100"), fhir(logical="p101"), cda('root="1.2.3.4.5"'), cda('root="1.2.34.5"'), pid("12345"),
)  # fmt: skip


def test_different_persons_differ() -> None:
    scopes = [scope_of_payload(payload) for payload in DIFFERENT]
    assert None not in scopes
    assert len(set(scopes)) == len(DIFFERENT)


@pytest.mark.parametrize(
    "value",
    ['""', "0", "000", "000-00-0000", "UNKNOWN", "unknown", "Unk", "N/A", "not available", "None", "NULL", "test",
     "TBD", "9999", "99999999", "1111111111", "XXXXXXXX", "?", "--", " ", "\\.br\\", "*", "urn:oid:0"],
)  # fmt: skip
def test_a_placeholder_is_not_a_patient(value: str) -> None:
    assert scope_of_payload(pid(f"{value}^^^HOSP^MR")) is None
    assert scope_of_payload(pid(f"{value}^^^HOSP^MR~V1^^^HOSP^VN")) == "VISIT|V1"
    if "\\" not in value and '"' not in value:
        assert PatientChoice().scope_of(value) is None
        assert scope_of_payload(cda(f'root="1.2" extension="{value}"')) is None
        assert scope_of_payload(fhir({"value": value}, logical="p7")) == "P7"


def test_a_contained_id_is_local_to_its_resource() -> None:
    contained = {"resourceType": "Patient", "id": "p", "name": [{"family": "Okafor"}]}
    resource = {"resourceType": "Observation", "subject": {"reference": "#p"}, "contained": [contained]}
    assert scope_of_payload(json.dumps(resource)) is None


def test_the_logical_id_alone_is_a_scope_of_its_own() -> None:
    assert scope_of_payload(json.dumps(OBSERVATION)) == scope_of_payload(fhir(logical="p100")) == "P100"


IDENTIFIERS = st.lists(
    st.builds(
        PatientIdentifier,
        st.text("0123456789ABab-|. ", max_size=6),
        st.sampled_from(("MR", "", "PI", "VN", "SS", "zz")),
        st.lists(st.sampled_from(("HOSP", "CITY", "x|y")), max_size=2).map(tuple),
        st.sampled_from((PhiType.MEDICALRECORD, PhiType.ACCOUNT, PhiType.SSN, PhiType.IDNUM)),
        st.sampled_from(tuple(PatientField)),
    ),
    max_size=5,
)


@given(IDENTIFIERS, st.randoms(use_true_random=False), st.sampled_from((PatientChoice(), HOSP)))
def test_any_order_gives_the_same_scope(found: list[PatientIdentifier], random: object, choice: PatientChoice) -> None:
    shuffled = sorted(found, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert choice.scope(found) == choice.scope(shuffled) == choice.scope([*found, *shuffled])


@given(st.text())
def test_the_normal_form_is_stable(value: str) -> None:
    once = normalize_identifier(value)
    assert normalize_identifier(once) == once
    assert "|" not in once
    assert normalize_identifier(f" {value.upper() if value.isascii() else value} ") == once


def test_no_repr_shows_an_identifier() -> None:
    assert "4471902" not in repr(PatientIdentifier("4471902", "MR", ("HOSP",)))


def test_a_bundle_of_many_patients_is_read_in_linear_time() -> None:
    def calls(count: int) -> int:
        entries = [
            {"resourceType": "Patient", "id": f"p{n}", "identifier": [typed("MR", str(n))]} for n in range(count)
        ]
        seen = [{"resourceType": "Observation", "subject": {"reference": f"Patient/p{n}"}} for n in range(count)]
        payload = bundle(*entries, *seen)
        found = 0

        def count_call(*_: object) -> None:
            nonlocal found
            found += 1

        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            assert scope_of_payload(payload) is not None
        finally:
            sys.setprofile(before)
        return found

    assert calls(2_000) < 12 * calls(200)
