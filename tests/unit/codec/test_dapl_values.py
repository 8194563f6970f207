"""Values in the output shape of HL7's DAPL: as they came, or left out if they are not what their element has."""

import json

import pytest
from support.dapl import (
    ABSENT,
    AGE,
    BUNDLE,
    DAY,
    OBSERVATION,
    PATIENT,
    RACE,
    absent,
    by_id,
    extension,
    form,
    listed,
    resources,
    shaped,
)
from support.fhir import bundle

from deid_agent.codec.fhir import find_ages


def test_digits_of_decimals_stay() -> None:
    raw = BUNDLE.read_bytes()
    written, _ = form().write(raw, find_ages(raw, DAY))
    for number in (b'"value":13.20,', b'"value":1.10e2,', b'"value":20000.50}', b'"period":1.0,', b'"value":10.0,'):
        assert number in written


def test_a_code_and_a_version_stay() -> None:
    coding = {"system": "http://x", "version": "2024-03-01", "code": "2024-05", "display": "2024-05-06"}
    made = shaped({"resourceType": "Condition", "id": "c", "code": {"coding": [coding]}, "recordedDate": "2024-05-06"})
    assert made["code"] == {"coding": [coding]}
    assert made["recordedDate"] == "2024"


def test_extensions_and_unknown_members_go() -> None:
    reason = {"url": ABSENT, "valueCode": "unknown"}
    other = {"url": "http://x/Quixwell", "valueString": "Quixwell"}
    given = {
        **PATIENT,
        "Quixwell": 1,
        "gender": "female",
        "_gender": {"extension": [other], "id": "Quixwell"},
        "_deceasedBoolean": {"extension": [reason, other]},
        "communication": [{"language": {"text": "x", "extension": [reason, other], "Quixwell": "x"}}],
    }
    raw = json.dumps(given).encode()
    written, dropped = form().write(raw, find_ages(raw, DAY))
    assert b"Quixwell" not in written
    tree = json.loads(written)
    assert tree["_deceasedBoolean"] == {"extension": [reason]}
    assert tree["communication"] == [{"language": {"extension": [reason], "text": "x"}}]
    assert "Quixwell" not in "".join(dropped)
    assert dropped["Patient.?"] == 1


@pytest.mark.parametrize("odd", [[["Quixwell"]], {"text": "Quixwell"}, [{"div": "Quixwell"}]])
@pytest.mark.parametrize(
    "name", ["id", "resourceType", "type", "total", "fullUrl", "url", "reference", "state", "code"]
)
def test_a_list_or_an_object_in_place_of_a_value_never_leaves_whole(name: str, odd: object) -> None:
    reference = {"reference": "Patient/p", "type": "Patient"}
    patient = {**PATIENT, "address": [{"state": "KY", "postalCode": "902"}]}
    condition = {"resourceType": "Medication", "id": "m", "code": {"text": "x"}}
    role = {"resourceType": "PractitionerRole", "id": "r", "practitioner": reference}
    given = [
        {
            **bundle({**patient, name: odd}, {**condition, name: odd}, role),
            **({} if name == "resourceType" else {name: odd}),
        },
        bundle(
            {**patient, "address": [{"postalCode": "902", name: odd}]},
            {**role, "practitioner": {**reference, name: odd}},
        ),
        {
            "resourceType": "Bundle",
            "entry": [{"resource": PATIENT, name: odd, "request": {"method": "PUT", name: odd}}],
        },
    ]
    for tree in given:
        assert b"div" not in (written := form().write(json.dumps(tree).encode(), {})[0])
        assert name == "code" or b"Quixwell" not in written  # a text of a code stays


@pytest.mark.parametrize(
    "reference",
    [
        {"reference": "Practitioner?identifier=http://x|1234567893"},
        {"reference": "#p"},
        {"reference": ""},
        {"identifier": {"value": "1234567893"}},
        {"display": "Dr. Quixwell"},
        {"type": "Practitioner"},
    ],
)
def test_a_reference_that_leads_to_no_published_resource_goes(reference: dict[str, object]) -> None:
    subject = {"reference": "Patient/p", "display": "Quixwell", "identifier": {"value": "7"}, "type": "Patient"}
    given = {
        "resourceType": "Encounter",
        "subject": subject,
        "serviceProvider": reference,
        "location": [{"location": reference, "status": "active"}, {"location": {"reference": "Location/l"}}],
        "reasonReference": [reference, {"reference": "Condition/c"}],
    }
    made = shaped(given)
    assert made["subject"] == {"reference": "Patient/p", "type": "Patient"}
    assert "serviceProvider" not in made
    assert made["location"] == [{"location": {"reference": "Location/l"}}]
    assert made["reasonReference"] == [{"reference": "Condition/c"}]
    assert shaped({**given, "subject": reference})["subject"] == absent("masked")


def test_lines_and_white_space_around_a_resource_stay() -> None:
    raw = b'\xef\xbb\xbf {"resourceType":"Medication",\r\n "code": {"text": "\\u00e9\\"x"} } \r\n'
    written, _ = form().write(raw, {})
    assert written == b'\xef\xbb\xbf {"resourceType":"Medication","code":{"text":"\\u00e9\\"x"}} \r\n'


def test_an_entry_keeps_its_request() -> None:
    entry = {
        "resource": PATIENT,
        "request": {"method": "PUT", "url": "Patient/p", "ifMatch": 'W/"1"'},
        "search": {"mode": "match"},
        "link": [{"url": "http://x"}],
    }
    tree = shaped({"resourceType": "Bundle", "type": "transaction", "total": 1, "entry": [entry], "signature": {}})
    (made,) = listed(tree, "entry")
    assert made["request"] == {"method": "PUT", "url": "Patient/p"}
    assert made["search"] == {"mode": "match"}
    assert set(tree) == {"resourceType", "type", "total", "entry"}


def test_a_bundle_in_a_bundle() -> None:
    inner = bundle({**PATIENT, "id": "inner", "birthDate": "1931-01-01"})
    tree = shaped(bundle(inner, bundle({"resourceType": "Group", "id": "g"}), PATIENT))
    assert list(by_id(tree)) == ["inner", "p"]
    found = [extension(each, AGE)["valueQuantity"] for each in resources(tree)]
    assert [each["value"] for each in found if isinstance(each, dict)] == [90, 67]


def test_an_extension_keeps_only_the_values_and_extensions_of_its_definition() -> None:
    inside = [
        {"url": "ombCategory", "valueCoding": {"code": "2106-3", "display": "White"}},
        {"url": "text", "valueString": "White", "valueBase64Binary": "UXVpeHdlbGw="},
        {"url": "http://h.example/street", "valueString": "2 Quay Street"},
        {"url": "detailed", "valueReference": {"reference": "Patient/q", "display": "Quixwell"}},
        {"url": "text", "extension": [{"url": "text", "valueString": "Quixwell"}], "Quixwell": "x"},
    ]
    written = extension(shaped({**PATIENT, "extension": [{"url": RACE, "extension": inside}]}), RACE)
    assert written["extension"] == [
        inside[0],
        {"url": "text", "valueString": "White"},
        {"url": "detailed"},
        {"url": "text"},
    ]


def test_a_text_in_place_of_an_element_is_left_out() -> None:
    tree = shaped(
        {**OBSERVATION, "code": "seen by Quixwell", "subject": ["Patient/p Quixwell"], "bodySite": "Quixwell"}
    )
    assert "Quixwell" not in json.dumps(tree)
    assert (tree["code"], tree["subject"]) == (absent("masked"), [absent("masked")])
    assert "Quay" not in json.dumps(shaped({**PATIENT, "address": "2 Quay Street"}))


def test_the_type_of_a_reference_is_one_of_fhir() -> None:
    for type_, kept in (("Patient", {"type": "Patient"}), ("seen by Quixwell", {})):
        tree = shaped({**OBSERVATION, "subject": {"reference": "Patient/p", "type": type_}})
        assert tree["subject"] == {"reference": "Patient/p", **kept}
