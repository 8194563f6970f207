"""The output shape of HL7's DAPL: kept, written and refused elements."""

import json
import runpy
from datetime import date
from pathlib import Path

import pytest
from support.dapl import ABSENT, BUNDLE, DAY, PROFILE, dangling, find_faults, form, resources, shaped
from support.shared import shared

from deid_agent.codec.fhir import find_ages
from deid_agent.codec.fhir.dapl_ages import MASKED, UNKNOWN, Age
from deid_agent.codec.fhir.dapl_table import load_dapl_table
from deid_agent.model import LeftOutError, MessageError, Reason

ROOT = Path(__file__).parents[3]
PATIENT = {"resourceType": "Patient", "id": "p", "birthDate": "1957-04-22"}
OBSERVATION = {"resourceType": "Observation", "id": "o", "status": "final", "subject": {"reference": "Patient/p"}}
AGE = f"{PROFILE}dapl-age-extension"
RACE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"


def bundle(*entries: object) -> dict[str, object]:
    return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": each} for each in entries]}


def absent(reason: str) -> dict[str, object]:
    return {"extension": [{"url": ABSENT, "valueCode": reason}]}


def by_id(tree: object) -> dict[str, dict[str, object]]:
    return {str(each["id"]): dict(each) for each in resources(tree)}


def listed(tree: dict[str, object], name: str) -> list[dict[str, object]]:
    found = tree[name]
    assert isinstance(found, list)
    return found


def extension(resource: object, url: str) -> dict[str, object]:
    assert isinstance(resource, dict)
    (found,) = (each for each in resource["extension"] if each["url"] == url)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, object]]:
    return by_id(shaped(BUNDLE.read_bytes()))


def test_the_table_is_that_of_the_profiles() -> None:
    """If it is stale, run ``python .ci/build_dapl_table.py FOLDER deid_agent/schemas/dapl.json``."""
    folder = shared("conformance", "dapl", "profiles")
    script = runpy.run_path(str(ROOT / ".ci/build_dapl_table.py"))
    built = script["build_table"](folder)
    assert built == json.loads((ROOT / "deid_agent/schemas/dapl.json").read_text())


def test_every_path_of_the_table_is_one_of_fhir() -> None:
    """A mistyped path would silently keep nothing."""
    shapes = form()._fhir.shapes
    for type_, profiles in load_dapl_table().profiles.items():
        for _, profile in profiles:
            for path in (*profile.supported, *profile.missing):
                shape = shapes[type_]
                for part in path.split("."):
                    names = [n for n in shape.rules if n == part or (part.endswith("[x]") and n.startswith(part[:-3]))]
                    assert names, f"{type_}.{path}"
                    child = shape.rules[names[0]].child
                    shape = child if child is not None else shape


def test_a_bundle_keeps_the_supported_elements(made: dict[str, dict[str, object]]) -> None:
    tree = shaped(BUNDLE.read_bytes())
    assert find_faults(tree) == []
    assert dangling(tree) == ["Substance/s"]  # as it came
    text = json.dumps(tree)
    for word in (
        "Quixwell",
        "Odalys",
        "Baranski",
        "Thistlewood",
        "Marisol",
        "4471902",
        "0177",
        "Ashford",
        "Quay",
        "1957",
    ):
        assert word not in text.replace("fhir.ashford.example", "")
    assert {each["resourceType"] for each in made.values()}.isdisjoint({"DiagnosticReport", "CareTeam", "Group"})
    assert set(tree) == {"resourceType", "id", "type", "entry"}
    assert made["p-1"]["gender"] == "female"
    assert made["p-1"]["meta"] == {
        "security": [{"system": "http://terminology.hl7.org/CodeSystem/v3-Confidentiality", "code": "R"}],
        "profile": [f"{PROFILE}dapl-deidentified-patient"],
    }


def test_digits_of_decimals_stay() -> None:
    raw = BUNDLE.read_bytes()
    written, _ = form().write(raw, find_ages(raw, DAY))
    for number in (b'"value":13.20,', b'"value":1.10e2,', b'"value":20000.50}', b'"period":1.0,', b'"value":10.0,'):
        assert number in written


def test_the_shape_of_a_shape_is_the_same() -> None:
    raw = BUNDLE.read_bytes()
    once, _ = form().write(raw, find_ages(raw, DAY))
    twice, _ = form().write(once, find_ages(once, DAY))
    assert json.loads(twice) == json.loads(once)


def test_elements_that_change_the_meaning_stay(made: dict[str, dict[str, object]]) -> None:
    assert made["m-1"]["doNotPerform"] is True  # an order not to give a drug
    assert made["m-1"]["medicationCodeableConcept"] == {
        "coding": [{"system": "http://www.nlm.nih.gov/research/umls/rxnorm", "code": "476872"}]
    }  # the drug of a contained resource
    assert made["i-1"]["isSubpotent"] is True
    assert made["rp-1"]["active"] is False
    assert made["l-1"]["status"] == "suspended"
    verification = made["c-1"]["verificationStatus"]
    assert isinstance(verification, dict)
    assert verification["coding"][0]["code"] == "refuted"


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        ({**PATIENT, "modifierExtension": []}, "Patient.modifierExtension"),
        ({**PATIENT, "implicitRules": "http://x"}, "Patient.implicitRules"),
        (
            {
                "resourceType": "MedicationRequest",
                "dosageInstruction": [{"text": "daily", "modifierExtension": [{"url": "http://x/not"}]}],
            },
            "MedicationRequest.dosageInstruction.modifierExtension",
        ),
        (bundle({**PATIENT, "modifierExtension": []}), "Patient.modifierExtension"),
        (
            {"resourceType": "Bundle", "type": "collection", "entry": [{"modifierExtension": []}]},
            "Bundle.entry.modifier",
        ),
        ({**PATIENT, "extension": [{"url": RACE, "modifierExtension": []}]}, "Patient.extension.modifier"),
    ],
)
def test_an_element_that_would_change_the_meaning_by_its_absence_is_refused(resource: object, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        shaped(resource)
    assert caught.value.reason is Reason.UNSUPPORTED
    assert caught.value.where.startswith(where)


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        ({"resourceType": "DiagnosticReport", "id": "r"}, "resourceType"),
        ({"resourceType": "Parameters"}, "resourceType"),
        (bundle({"resourceType": "DiagnosticReport", "id": "r"}), "Bundle.entry"),
        ({**bundle(PATIENT), "type": "document"}, "Bundle.type"),
        ({**bundle(PATIENT), "type": "message"}, "Bundle.type"),
    ],
)
def test_a_resource_without_a_form_in_dapl_is_refused(resource: object, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        shaped(resource)
    assert (caught.value.reason, caught.value.where) == (Reason.UNSUPPORTED, where)


@pytest.mark.parametrize(
    ("address", "code", "reason"),
    [
        ({"postalCode": "902"}, "90200", ""),
        ({"postalCode": "90210"}, "90200", ""),
        ({"postalCode": "90210-1234", "country": "us"}, "90200", ""),
        ({"postalCode": "000"}, "00000", "masked"),
        ({"postalCode": "036"}, "00000", "masked"),
        ({"postalCode": "03601"}, "00000", "masked"),
        ({"postalCode": ""}, "00000", "masked"),
        ({"postalCode": "560001"}, "00000", "masked"),
        ({"postalCode": "902", "country": "DE"}, "00000", "masked"),
        ({"postalCode": "９０２"}, "00000", "masked"),
        ({"postalCode": 90210}, "00000", "masked"),
        ({"state": "KY"}, "00000", "unknown"),
        (None, "00000", "unknown"),
    ],
)
def test_a_postal_code(address: dict[str, object] | None, code: str, reason: str) -> None:
    (made,) = listed(shaped({**PATIENT, **({} if address is None else {"address": [address]})}), "address")
    assert made["postalCode"] == code
    assert made.get("_postalCode") == (absent(reason) if reason else None)


def test_one_address_remains() -> None:
    given = [
        {"use": "old", "postalCode": "10001"},
        {"use": "home", "postalCode": "20001", "period": {"end": "2019"}},
        {"use": "work", "postalCode": "30301"},
        {"use": "home", "postalCode": "40205", "period": {"start": "2019"}, "city": "Ashford", "district": "Boyd"},
    ]
    assert shaped({**PATIENT, "address": given})["address"] == [{"use": "home", "postalCode": "40200"}]


def test_patients_of_restricted_areas_are_left_out_with_their_resources() -> None:
    few = {**PATIENT, "id": "few", "address": [{"postalCode": "000"}]}
    other = {**PATIENT, "id": "other", "address": [{"postalCode": "902"}]}
    of_few = {"resourceType": "Condition", "id": "c1", "subject": {"reference": "http://x/Patient/few"}}
    of_other = {
        "resourceType": "Observation",
        "id": "o",
        "subject": {"reference": "Patient/other"},
        "performer": [{"reference": "Patient/few"}],
    }
    kin = {"resourceType": "RelatedPerson", "id": "k", "patient": {"reference": "Patient/few/_history/2"}}
    cover = {
        "resourceType": "Coverage",
        "id": "v",
        "beneficiary": {"reference": "Patient/other"},
        "payor": [{"reference": "RelatedPerson/k"}],
    }
    made = by_id(shaped(bundle(few, other, of_few, of_other, kin, cover), drops=True))
    assert set(made) == {"other", "o", "v"}
    assert "performer" not in made["o"]
    assert made["v"]["payor"] == [absent("masked")]
    assert set(by_id(shaped(bundle(few, other, of_few, of_other, kin, cover)))) == {"few", "other", "c1", "o", "k", "v"}
    with pytest.raises(LeftOutError):
        shaped(few, drops=True)
    with pytest.raises(LeftOutError, match="nothing"):
        shaped(bundle(few, of_few), drops=True)


def test_required_elements_have_a_reason_for_their_absence(made: dict[str, dict[str, object]]) -> None:
    assert made["e-1"]["type"] == [absent("unknown")]
    assert made["o-bp"]["category"] == [absent("unknown")]
    assert "category" not in made["o-income"]
    assert made["o-time"]["subject"] == absent("masked")  # a Group is not published
    assert made["ms-1"]["medicationCodeableConcept"] == absent("masked")
    assert made["s-1"]["_doNotPerform"] == absent("unknown")
    assert made["i-1"]["_occurrenceDateTime"] == absent("masked")
    assert made["o-1"]["identifier"] == [{"_system": absent("masked"), "_value": absent("masked")}]
    reason = made["o-time"]["dataAbsentReason"]
    assert isinstance(reason, dict)
    assert reason["coding"][0]["code"] == "masked"  # a time is no value of DAPL
    assert "dataAbsentReason" not in made["o-lab"]


@pytest.mark.parametrize(
    ("id_", "profile"),
    [
        ("o-lab", "dapl-lab-observation"),
        ("o-bp", "dapl-clinical-result-observation"),
        ("o-income", "dapl-income-observation"),
        ("cov-2", "dapl-coverage"),
        ("cov-1", ""),  # cancelled, and DAPL fixes active
        ("d-1", ""),  # DAPL has none
        ("e-1", "dapl-deidentified-encounter"),
    ],
)
def test_the_profile_is_named_if_it_is_met(made: dict[str, dict[str, object]], id_: str, profile: str) -> None:
    wanted = {"profile": [f"{PROFILE}{profile}"]} if profile else None
    assert made[id_].get("meta") == wanted


def test_a_profile_without_a_required_element_is_not_named() -> None:
    assert "meta" not in shaped({"resourceType": "Observation", "id": "o", "code": {"text": "K"}})  # no status
    timing = {"event": ["2024-01-02", "2024-02-02"]}
    made = shaped({"resourceType": "Observation", "status": "final", "code": {"text": "K"}, "effectiveTiming": timing})
    assert made["effectiveTiming"] == {"event": ["2024", "2024"]}
    assert "meta" not in made


def test_times_of_the_server_are_years(made: dict[str, dict[str, object]]) -> None:
    instant = f"{PROFILE}dapl-deidentified-instant-extension"
    assert made["o-lab"]["extension"] == [{"url": instant, "valueDateTime": "2024"}]
    assert made["o-lab"]["effectiveDateTime"] == "2024"
    assert {"issued", "effectiveInstant"}.isdisjoint(made["o-lab"])


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


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-birthsex", "valueCode": "M"}, "M"),
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-sex", "valueCode": "248152002"}, "F"),
        (
            {
                "url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-sex",
                "valueCoding": {"system": "http://snomed.info/sct", "code": "248153007"},
            },
            None,  # R4 of US Core has a code
        ),
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-birthsex", "valueCode": "UNK"}, None),
        ({"url": f"{PROFILE}dapl-sex-extension", "valueCode": "F"}, "F"),
        ({"url": f"{PROFILE}dapl-sex-extension", "valueCode": "Quixwell"}, None),
    ],
)
def test_the_sex_of_us_core(given: dict[str, object], made: str | None) -> None:
    found = shaped({**PATIENT, "extension": [given]})["extension"]
    assert isinstance(found, list)
    sexes = [each["valueCode"] for each in found if each["url"] == f"{PROFILE}dapl-sex-extension"]
    assert sexes == ([made] if made else [])


def ages(resource: object, day: date = DAY) -> list[Age]:
    return list(find_ages(json.dumps(resource).encode(), day).values())


@pytest.mark.parametrize(
    ("born", "day", "age"),
    [
        ("1957-04-22", date(2024, 4, 21), Age(66)),
        ("1957-04-22", date(2024, 4, 22), Age(67)),
        ("1960-02-29", date(2023, 2, 28), Age(62)),
        ("1934-05-06", date(2024, 5, 5), Age(89)),
        ("1934-05-06", date(2024, 5, 6), Age(90)),
        ("1900-01-01", DAY, Age(90)),
        ("1934", DAY, Age(90)),
        ("1934-06", DAY, Age(89)),
        ("2024-06-01", DAY, Age(0)),
        ("2024-06-01T03:04:05Z", DAY, Age(0)),
        ("unknown", DAY, UNKNOWN),
        ("", DAY, UNKNOWN),
        (1957, DAY, UNKNOWN),
        (None, DAY, UNKNOWN),
    ],
)
def test_an_age(born: object, day: date, age: Age) -> None:
    assert ages({**PATIENT, "birthDate": born}, day) == [age]


@pytest.mark.parametrize(
    ("born", "period", "age"),
    [
        ("1957-04-22", {"start": "2020-04-21T23:00:00Z"}, Age(62)),
        ("1957-04-22", {"start": "2020"}, Age(63)),
        ("1957-04-22", {"end": "2020-05-01"}, Age(63)),
        ("1957-04-22", {}, UNKNOWN),
        ("1933-04-22", {"start": "2020-05-01"}, MASKED),  # 87 in 2020 is over 89 in the year of the message
        (None, {"start": "2020-05-01"}, UNKNOWN),
    ],
)
@pytest.mark.parametrize("reference", ["Patient/p", "http://x/fhir/Patient/p/_history/3", "urn:uuid:1"])
def test_the_age_at_an_encounter(born: object, period: object, age: Age, reference: str) -> None:
    encounter = {"resourceType": "Encounter", "subject": {"reference": reference}, "period": period}
    tree = {
        "resourceType": "Bundle",
        "entry": [None, {"resource": encounter}, {"fullUrl": "urn:uuid:1", "resource": {**PATIENT, "birthDate": born}}],
    }
    assert find_ages(json.dumps(tree).encode(), DAY)[0,] == age


@pytest.mark.parametrize(
    ("quantity", "age"),
    [
        ({"value": 36, "code": "a"}, Age(36)),
        ({"value": 90, "comparator": ">=", "code": "a"}, Age(90)),
        ({"value": 93, "code": "a"}, Age(90)),
        ({"value": 36, "comparator": ">=", "code": "a"}, UNKNOWN),
        ({"value": 36, "code": "mo"}, UNKNOWN),
        ({"value": -1, "code": "a"}, UNKNOWN),
        ({"value": "Quixwell", "code": "a"}, UNKNOWN),
    ],
)
def test_an_age_that_was_given(quantity: object, age: Age) -> None:
    given = {"resourceType": "Patient", "extension": [{"url": AGE, "valueQuantity": quantity}]}
    assert ages(given) == [age]
    assert json.dumps(extension(shaped(given), AGE)).count("Quixwell") == 0


def test_an_age_is_written_as_dapl_has_it() -> None:
    unit = {"unit": "yr", "system": "http://unitsofmeasure.org", "code": "a"}
    assert extension(shaped(PATIENT), AGE)["valueQuantity"] == {"value": 67, **unit}
    old = extension(shaped({**PATIENT, "birthDate": "1931-11-08"}), AGE)
    assert old["valueQuantity"] == {"value": 90, "comparator": ">=", **unit}
    assert extension(shaped({"resourceType": "Patient"}), AGE)["valueQuantity"] == absent("unknown")


def test_ethnicity_has_no_details_and_race_stays(made: dict[str, dict[str, object]]) -> None:
    core = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
    for name, count in (("race", 2), ("ethnicity", 2)):
        inside = extension(made["p-1"], f"{core}{name}")["extension"]
        assert isinstance(inside, list)
        assert len(inside) == count


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


def test_no_encounter_reveals_an_age_over_89_if_the_message_is_older() -> None:
    """An age of 89 in one year and of 90 in the next would give the year of birth."""
    visits = [
        {"resourceType": "Encounter", "id": f"e{year}", "status": "finished", "class": {"code": "IMP"}}
        | {"subject": {"reference": "Patient/p"}, "period": {"start": f"{year}-06-01"}}
        for year in (2022, 2023)
    ]
    raw = json.dumps(bundle({**PATIENT, "birthDate": "1933-05-01"}, *visits)).encode()
    assert find_ages(raw, date(2020, 1, 1)) == {(0,): Age(86), (1,): MASKED, (2,): MASKED}


@pytest.mark.parametrize("born", ["1934-13-01", "1934-12-32", "1934-00-00"])
def test_a_day_of_birth_that_does_not_exist_makes_nobody_younger(born: str) -> None:
    raw = json.dumps({**PATIENT, "birthDate": born}).encode()
    assert find_ages(raw, date(2024, 12, 31)) == {(): Age(90)}
