"""Identifiers in members that are usually kept, and the values of such members that must stay."""

import json
from itertools import pairwise

import pytest
from support.fhir import parsed, ranges

Resource = dict[str, object]
PERSON = "http://hospital.example/rules/anna-okafor"
NUMBER = "http://hospital.example/rules/ZK4471190"
ADXP = "http://hl7.org/fhir/StructureDefinition/iso21090-ADXP-"


def _covered(resource: Resource) -> str:
    """The resource with every byte that a site, a narrative or an attachment covers as ``*``."""
    message = parsed(resource)
    raw = bytearray(message.raw)
    for start, end in ranges(message):
        raw[start:end] = b"*" * (end - start)
    return raw.decode()


def _observation(coding: Resource) -> Resource:
    return {"resourceType": "Observation", "status": "final", "code": {"coding": [coding]}}


def _appointment(**service: object) -> Resource:
    return {"resourceType": "Appointment", "status": "booked", "virtualService": [service]}


def _address(*extensions: Resource) -> Resource:
    return {"resourceType": "Patient", "address": [{"_line": [{"extension": list(extensions)}]}]}


@pytest.mark.parametrize("member", ["addressUrl", "addressString", "additionalInfo"])
@pytest.mark.parametrize("url", ["https://meet.example.org/j/98765432100?pwd=hJk3x", "https://x.example/okafor"])
def test_the_address_of_a_meeting_is_an_identifier(member: str, url: str) -> None:
    assert url not in _covered(_appointment(**{member: [url] if member == "additionalInfo" else url}))
    assert "hJk3x" not in _covered(_appointment(sessionKey="hJk3x"))
    assert "zoom" in _covered(_appointment(channelType={"code": "zoom"}, maxParticipants=4))


def _resources_with_address(url: str) -> list[Resource]:
    concept, task = {"code": {"text": "x"}}, {"resourceType": "Task", "status": "draft", "intent": "order"}
    return [
        {"resourceType": "Patient", "implicitRules": url},
        {"resourceType": "Patient", "meta": {"profile": [url]}},
        {"resourceType": "Patient", "meta": {"source": url}},
        {"resourceType": "Patient", "meta": {"tag": [{"system": url, "code": "a"}]}},
        {"resourceType": "Patient", "extension": [{"url": url, "valueBoolean": True}]},
        {"resourceType": "Patient", "identifier": [{"system": url, "value": "1"}]},
        {"resourceType": "ServiceRequest", **concept, "instantiatesUri": [url]},
        {"resourceType": "ServiceRequest", **concept, "instantiatesCanonical": [url]},
        {"resourceType": "QuestionnaireResponse", "questionnaire": url},
        {"resourceType": "PlanDefinition", "status": "active", "url": url},
        {"resourceType": "Observation", **concept, "valueQuantity": {"value": 1, "system": url, "code": "mg"}},
        {"resourceType": "Parameters", "parameter": [{"name": "a", "valueCanonical": url}]},
        {**task, "input": [{"type": {"text": "x"}, "valueCanonical": url}]},
        {"resourceType": "Bundle", "entry": [{"fullUrl": f"{url}/Patient/1", "request": {"url": f"{url}/Patient/1"}}]},
        {"resourceType": "Library", "relatedArtifact": [{"resource": url, "url": f"{url}/Library/a"}]},
    ]


@pytest.mark.parametrize("resource", _resources_with_address(PERSON), ids=lambda found: json.dumps(found)[17:80])
def test_a_person_in_an_address_is_an_identifier(resource: Resource) -> None:
    assert "okafor" not in _covered(resource)


@pytest.mark.parametrize("resource", _resources_with_address(NUMBER), ids=lambda found: json.dumps(found)[17:80])
def test_a_number_in_an_address_is_an_identifier(resource: Resource) -> None:
    assert "ZK4471190" not in _covered(resource)


@pytest.mark.parametrize(
    "url",
    [
        "http://hl7.org/fhir/us/core/StructureDefinition/us-core-patient",
        "https://fhir.kbv.de/StructureDefinition/KBV_PR_Base_Patient|1.1.0",
        "https://www.medizininformatik-initiative.de/fhir/core/modul-person/StructureDefinition/Patient",
        "http://hospital.example/fhir/StructureDefinition/lab-report|20240131",
        "http://hospital.example/fhir/Questionnaire/phq-9",
    ],
)
def test_the_name_of_a_definition_is_kept(url: str) -> None:
    kept: list[Resource] = [
        {"resourceType": "Patient", "implicitRules": url},
        {"resourceType": "Patient", "meta": {"profile": [url]}},
        {"resourceType": "ServiceRequest", "instantiatesUri": [url], "instantiatesCanonical": [url]},
        {"resourceType": "StructureDefinition", "url": url},
    ]
    assert [resource for resource in kept if url not in _covered(resource)] == []


@pytest.mark.parametrize("system", ["http://hospital.example/codes", "urn:oid:2.999.1.5", "", "L"])
@pytest.mark.parametrize("code", ["DR-40117", "ZK4471190", "44711903", "a.okafor", "288-14-9031", "Dr Anna Okafor"])
def test_a_local_code_with_the_form_of_an_identifier_is_one(system: str, code: str) -> None:
    named = {"system": system} if system else {}
    assert code not in _covered(_observation({**named, "code": code}))
    assert code not in _covered(_observation({**named, "code": code, "display": "Glucose"}))
    assert code not in _covered({"resourceType": "Patient", "meta": {"security": [{**named, "code": code}]}})


def test_the_codes_of_a_register_of_people_are_identifiers() -> None:
    assert "D40117" not in _covered(_observation({"system": "http://hospital.example/staff", "code": "D40117"}))
    assert "D40117" in _covered(_observation({"system": "http://hospital.example/lab", "code": "D40117"}))


@pytest.mark.parametrize(
    "coding",
    [
        *(
            {"system": "http://hospital.example/codes", "code": code}
            for code in ("GLU", "inpatient", "LAB-CBC", "99213")
        ),
        *({"code": code} for code in ("ICU-3", "73211009", "MASS", "1.2.1")),
        {"system": "http://loinc.org", "code": "2345-7"},
        {"system": "http://www.nlm.nih.gov/research/umls/rxnorm", "code": "10492210"},
        {"system": "http://fhir.de/CodeSystem/ifa/pzn", "code": "04114918"},
        {"system": "https://fhir.cerner.com/a1b2/codeSet/72", "code": "270053401"},
        {"system": "http://hl7.org/fhir/sid/ndc", "code": "00074379913", "userSelected": True, "version": "2024"},
    ],
)
def test_a_code_of_a_vocabulary_is_kept(coding: Resource) -> None:
    assert f'"{coding["code"]}"' in _covered(_observation(coding))
    assert f'"{coding["code"]}"' in _covered(_observation({**coding, "display": "Glucose"}))


@pytest.mark.parametrize("code", ["73211009", "2345-7", "active"])
def test_a_number_of_a_terminology_is_kept_as_a_plain_code(code: str) -> None:
    resources: list[Resource] = [
        {"resourceType": "Parameters", "parameter": [{"name": "code", "valueCode": code}]},
        {"resourceType": "Patient", "extension": [{"url": "http://h.example/x", "valueCode": code}]},
        {"resourceType": "Task", "input": [{"type": {"coding": [{"code": "x"}]}, "valueCode": code}]},
        {"resourceType": "ValueSet", "compose": {"include": [{"concept": [{"code": "1234567890"}]}]}},
    ]
    assert [resource for resource in resources if "*" in _covered(resource)] == []


def test_a_code_member_with_the_form_of_an_identifier_is_one() -> None:
    assert "ZK4471190" not in _covered({"resourceType": "Observation", "status": "ZK4471190"})
    assert "44711903" not in _covered(
        {"resourceType": "Parameters", "parameter": [{"name": "x", "valueCode": "44711903"}]}
    )
    item = {"linkId": "ZK4471190", "item": [{"linkId": "1.1.2"}]}
    found = _covered({"resourceType": "QuestionnaireResponse", "item": [item]})
    assert "ZK4471190" not in found
    assert '"1.1.2"' in found


@pytest.mark.parametrize(
    "extension",
    [
        *({"url": f"{ADXP}{name}", "valueString": "17"} for name in ("houseNumber", "houseNumberNumeric", "unitType")),
        *({"url": f"{ADXP}{name}", "valueCode": "17"} for name in ("censusTract", "direction", "deliveryMode")),
        {"url": f"{ADXP}houseNumber", "valueInteger": 17},
        {
            "url": "http://fhir.de/StructureDefinition/gemeindeschluessel",
            "valueCoding": {"system": "http://fhir.de/NamingSystem/gemeindeschluessel", "code": "08417000"},
        },
        {"url": "http://fhir.de/StructureDefinition/destatis/ags", "valueCoding": {"code": "08417000"}},
        {"url": "http://fhir.de/StructureDefinition/Stadtteil", "valueString": "Bezirk 17"},
    ],
)
def test_an_extension_of_an_address_is_an_identifier(extension: Resource) -> None:
    resource = _address(extension)
    assert "17" not in _covered(resource)


def test_race_and_sex_are_kept() -> None:
    race = {"system": "urn:oid:2.16.840.1.113883.6.238", "code": "2106-3", "display": "White"}
    core = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
    extensions = [
        {"url": f"{core}birthsex", "valueCode": "F"},
        {"url": f"{core}race", "extension": [{"url": "ombCategory", "valueCoding": race}]},
    ]
    assert "*" not in _covered({"resourceType": "Patient", "extension": extensions})


@pytest.mark.parametrize("value", [{"valueString": "Okafor 7"}, {"valueInteger": 44711903}, {"valueId": "okafor7"}])
def test_an_extension_of_a_primitive_repeats_its_identity(value: Resource) -> None:
    extended = {"extension": [{"url": "http://h.example/x", **value}]}
    resource: Resource = {
        "resourceType": "Patient",
        "identifier": [{"_value": extended}],
        "name": [{"_family": extended, "_given": [extended]}],
    }
    assert [site.value for site in parsed(resource).sites] == 3 * [str(next(iter(value.values())))]


def test_the_query_of_a_web_page_belongs_to_its_address() -> None:
    url = "https://files.hospital.example/get?doc=okafor&key=hJk3x"
    link: Resource = {"resourceType": "Bundle", "link": [{"relation": "self", "url": url}]}
    assert "okafor" not in _covered(link)
    assert "hJk3x" not in _covered({"resourceType": "Library", "relatedArtifact": [{"url": url}]})


def test_the_values_of_a_search_are_read_as_codes_and_identifiers() -> None:
    search = "identifier=MRN|ZK4471190&name=okafor&code=44711903&status=active&code:in=73211009"
    resource: Resource = {
        "resourceType": "Bundle",
        "entry": [{"request": {"url": f"Patient?{search}", "ifNoneExist": search}}],
    }
    found = _covered(resource)
    assert not any(plant in found for plant in ("ZK4471190", "okafor", "44711903"))
    assert found.count("status=active&code:in=73211009") == 2


def test_a_network_address_is_an_identifier() -> None:
    header: Resource = {"resourceType": "MessageHeader", "source": {"endpoint": "llp:10.20.30.41:5678"}}
    assert [site.value for site in parsed(header).sites] == ["10.20.30.41"]
    local: Resource = {"resourceType": "Endpoint", "address": "127.0.0.1"}
    assert parsed(local).sites == ()


def test_titles_and_units_are_kept_unless_they_identify() -> None:
    name = {"prefix": ["Dr. med.", "Prof."], "suffix": ["MD", "III"]}
    quantity: Resource = {"value": 1, "unit": "King units", "code": "[arb'U]"}
    patient: Resource = {"resourceType": "Patient", "name": [name]}
    assert "*" not in _covered({"resourceType": "Observation", "contained": [patient], "valueQuantity": quantity})
    careless: Resource = {"resourceType": "Patient", "name": [{"prefix": ["Okafor"], "suffix": ["ZK4471190"]}]}
    assert _covered(careless).count("*") == len("OkaforZK4471190")
    quantity = {"value": 1, "unit": "tel 617-555-0143", "code": "ZK4471190"}
    assert "ZK4471190" not in _covered({"resourceType": "Observation", "valueQuantity": quantity})
    assert "0143" not in _covered({"resourceType": "Observation", "valueQuantity": quantity})


def test_the_headers_of_a_subscription_are_identifiers() -> None:
    resource: Resource = {
        "resourceType": "Subscription",
        "parameter": [{"name": "Authorization", "value": "Bearer abc"}],
        "filterBy": [{"filterParameter": "patient", "value": "Patient/ZK4471190"}],
    }
    assert not any(plant in _covered(resource) for plant in ("Bearer", "ZK4471190"))


def test_labels_are_kept_unless_they_identify() -> None:
    kept: list[Resource] = [
        {"resourceType": "Bundle", "entry": [{"response": {"status": "201 Created", "etag": 'W/"3"'}}]},
        {"resourceType": "Bundle", "link": [{"relation": "self"}]},
        {"resourceType": "OperationOutcome", "issue": [{"expression": ["Patient.name[0].given"]}]},
        {
            "resourceType": "ValueSet",
            "compose": {"include": [{"concept": [{"display": "Parkinson disease, stage 2"}]}]},
        },
        {"resourceType": "Patient", "meta": {"tag": [{"code": "a", "version": "20240131"}], "versionId": "3"}},
        {"resourceType": "Observation", "valueSampledData": {"data": "2041 2043 E 2037.5 L U"}},
    ]
    assert [resource for resource in kept if "*" in _covered(resource)] == []
    careless: list[Resource] = [
        {"resourceType": "Bundle", "entry": [{"response": {"status": "201 by ZK4471190", "etag": "okafor.a"}}]},
        {"resourceType": "OperationOutcome", "issue": [{"expression": ["Patient.name.where(family='Okafor Z')"]}]},
        {"resourceType": "ValueSet", "compose": {"include": [{"concept": [{"display": "Dr. Ann Okafor"}]}]}},
        {
            "resourceType": "Patient",
            "meta": {"tag": [{"code": "a", "version": "Anna Okafor"}], "versionId": "okafor.a"},
        },
        {"resourceType": "Observation", "valueSampledData": {"data": "Okafor, 44711903"}},
        {"resourceType": "Binary", "contentType": "okafor.a", "data": "QQ=="},
    ]
    assert not any(plant in _covered(each).lower() for each in careless for plant in ("okafor", "4471190"))


def test_the_id_of_a_definition_and_references_to_it_are_read_alike() -> None:
    for key in ("anna-okafor", "phq-9"):
        definition = parsed({"resourceType": "Questionnaire", "id": key})
        response = parsed({"resourceType": "QuestionnaireResponse", "questionnaire": f"Questionnaire/{key}"})
        assert [site.value for site in definition.sites] == [site.value for site in response.sites]
        assert len(definition.sites) == (key == "anna-okafor")


@pytest.mark.parametrize(
    "url", ["https://anna.okafor.klinik.de/x/ZK4471190", "https://anna@klinik.de/Patient/ZK4471190"]
)
def test_no_part_of_an_address_is_read_twice(url: str) -> None:
    for resource in _resources_with_address(url):
        found = sorted((site.start, site.end) for site in parsed(resource).sites)
        assert all(end <= start for (_, end), (start, _) in pairwise(found)), resource
        assert "ZK4471190" not in _covered(resource)
        assert "anna" not in _covered(resource)
