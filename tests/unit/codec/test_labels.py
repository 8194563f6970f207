"""Labels decide with values: the vocabulary, and the observations of HL7 v2."""

import json

import pytest
from support.hl7 import MSH, codec

from deid_agent.codec import HtmlCodec, TableCodec
from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.labels import Labels, has_identity_cue, load_labels
from deid_agent.model import HOST_SOURCE, PhiType, ValueKind
from deid_agent.rules import data_folder


@pytest.fixture(scope="module")
def labels() -> Labels:
    return load_labels(data_folder("rules"))


@pytest.mark.parametrize(
    ("label", "type_"),
    [
        ("SSN", "SSN"),
        ("Patient's social security number", "SSN"),
        ("What is your phone number?", "PHONE"),
        ("Employer phone", "PHONE"),
        ("Telefonnummer des Patienten", "PHONE"),
        ("Número de teléfono", "PHONE"),
        ("mother's maiden name", "PATIENT"),
        ("Geburtsname", "PATIENT"),
        ("Nom de jeune fille", "PATIENT"),
        ("emergencyContact", "PATIENT"),
        ("ZIP", "ZIP"),
        ("Postleitzahl", "ZIP"),
        ("Name of employer", "ORGANIZATION"),
        ("dob", "DATE"),
        ("Fecha de nacimiento", "DATE"),
        ("mrn", "MEDICALRECORD"),
        ("Age at onset", "AGE"),
        ("E-Mail-Adresse", "EMAIL"),
        ("Home address", "STREET"),
        ("driver's licence", "LICENSE"),
    ],
)
def test_identity_label(labels: Labels, label: str, type_: str) -> None:
    found = labels.of_text(label)
    assert found is not None
    assert found.type == type_


@pytest.mark.parametrize(
    "label",
    [
        "Glucose [Mass/volume] in Serum or Plasma",
        "Platelet count",
        "Heart rate",
        "Gestational age",
        "Bone age",
        "Birth weight",
        "Drug name",
        "Name of medication",
        "Blood pressure",
        "Hospital course",
        "Mobile device",
        "Number of visits",
        "Account balance",
        "Apgar score",
        "Age of specimen in hours",
        "",
    ],
)
def test_clinical_label(labels: Labels, label: str) -> None:
    assert labels.of_text(label) is None


@pytest.mark.parametrize(
    ("label", "value", "expected"),
    [
        ("SSN", "288149031", (PhiType.SSN, ValueKind.VALUE)),
        ("Phone", "30", None),
        ("Phone", "yes", None),
        ("Age", "45", None),
        ("Age", "97", (PhiType.AGE, ValueKind.REDACT)),
        ("Age", "ninety-seven", (PhiType.AGE, ValueKind.VALUE)),
        ("Maiden name", "Brandywine", (PhiType.PATIENT, ValueKind.FAMILY)),
        ("Maiden name", "not applicable", None),
        ("Emergency contact", "6175550199", (PhiType.PHONE, ValueKind.VALUE)),
        ("MRN", "ABCXYZ", (PhiType.MEDICALRECORD, ValueKind.VALUE)),
        ("Account", "12.5", None),
        ("License", "Mar 2, 2014", None),
        ("Employer", "Consolidated Foundry", (PhiType.ORGANIZATION, ValueKind.VALUE)),
        ("Next of kin", "She lives alone. Nobody calls.", None),
    ],
)
def test_judgement(labels: Labels, label: str, value: str, expected: object) -> None:
    meaning = labels.of_text(label)
    assert meaning is not None
    assert labels.judge(meaning, value) == expected


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("ask Dr. Brandywine", True),
        ("wife Nkechi", True),
        ("call 617-555-0199", True),
        ("seen 03/04/2019", True),
        ("seen on March 4, 2019", True),
        ("ada@hospital.org", True),
        ("Parkinson disease", False),
        ("Candida albicans", False),
        ("Family history of breast cancer in mother (situation)", False),
        ("1769.859285", False),
        ("100-4500 10*3/uL", False),
        ("Down syndrome", False),
    ],
)
def test_cue(text: str, *, cue: bool) -> None:
    assert has_identity_cue(text) is cue


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ("OBX|1|NM|76435-7^SSN^LN||288149031", ("OBX-5[1].1", "SSN")),
        ("OBX|1|NM|1^Phone^L||6175550199", ("OBX-5[1].1", "PHONE")),
        ("OBX|1|SN|1^MRN^L||^77120045", ("OBX-5[1].2", "MEDICALRECORD")),
        ("OBX|1|NM|30525-0^^LN||97|a", ("OBX-5[1].1", "AGE")),
        ("OBX|1|ST|1^Maiden name^L||Brandywine", ("OBX-5[1].1", "PATIENT")),
        ("OBX|1|TX|1^Employer^L||Consolidated Foundry", ("OBX-5[1].1", "ORGANIZATION")),
        ("OBX|1|CE|1^Emergency contact^L||X7^Nkechi Brandywine^L", ("OBX-5[1].2", "PATIENT")),
        ("OBX|1|NM|1^Postleitzahl^99X||02138", ("OBX-5[1].1", "ZIP")),
    ],
)
def test_value_beside_an_identity_label_is_a_site(segment: str, expected: tuple[str, str]) -> None:
    (parsed,) = codec().parse(f"{MSH}\r{segment}\r".encode())
    assert expected in [(site.path, site.type) for site in parsed.sites]


@pytest.mark.parametrize(
    "segment",
    [
        "OBX|1|NM|2345-7^Glucose^LN||288149031|mg/dL",
        "OBX|1|NM|30525-0^Age^LN||45|a",
        "OBX|1|NM|11884-4^Gestational age^LN||280|d",
        "OBX|1|NM|8339-4^Birth weight^LN||1769.859285|g",
        "OBX|1|SN|26464-8^WBC^LN||>^100000",
        "OBX|1|NM|777-3^Platelets^LN||288149",
    ],
)
def test_clinical_number_is_not_a_site(segment: str) -> None:
    (parsed,) = codec().parse(f"{MSH}\r{segment}\r".encode())
    assert [site for site in parsed.sites if site.path.startswith("OBX")] == []
    assert [text for text in parsed.narratives if text.path.startswith("OBX-5")] == []


@pytest.mark.parametrize(
    "segment",
    [
        "OBX|1|CE|1^Panel^L||X^reported by Nkechi Brandywine^L",
        "AL1|1|DA|P1^penicillin, ask Nkechi^L",
        "DG1|1||X1^seen with Nkechi^99LOC",
        "DG1|1||X1^seen with Dr. Nkechi Wells^I10",
        "PV1|1|I||||||||||||||||||||||||||||||||||X5^discharged to Nkechi^L",
        "PID|1||7||||||||||^PRN^PH^^^^^^^call Nkechi",
        "PID|1||7||A^B^C^^^^Nkechi Brandywine",
        "PID|1||7|||||||||5550100^Nkechi Brandywine",
        "PID|1||7^Nkechi",
        "OBX|1|CE|1^Panel^L||Nkechi Wells^^L",
    ],
)
def test_text_in_a_coded_or_typed_value_is_read(segment: str) -> None:
    (parsed,) = codec().parse(f"{MSH}\r{segment}\r".encode())
    read = [text.mapped.text for text in parsed.narratives] + [site.value for site in parsed.sites]
    assert any("Nkechi" in text for text in read)


@pytest.mark.parametrize(
    "segment",
    [
        "OBX|1|CE|1^Panel^LN||49049000^Parkinson disease^SCT^332.0^Paralysis agitans^I9C",
        "OBX|1|CWE|1^Panel^LN||78181009^Candida albicans^2.16.840.1.113883.6.96",
        "DG1|1||G20^Parkinson disease^I10",
    ],
)
def test_text_of_a_standard_code_is_kept(segment: str) -> None:
    (parsed,) = codec().parse(f"{MSH}\r{segment}\r".encode())
    assert parsed.narratives == ()


@pytest.mark.parametrize(
    "telecom",
    [
        "^6175550199",
        "^^6175550199",
        "^^^^6175550199",
        "^PRN^PH^^^^^^^ada@mail.example",
        "^PRN^PH^^^^^^^^^^ada@mail.example",
    ],
)
def test_contact_in_any_component_is_read(telecom: str) -> None:
    (parsed,) = codec().parse(f"{MSH}\rPID|1||7||||||||||{telecom}\r".encode())
    found = [site.value for site in parsed.sites] + [text.mapped.text for text in parsed.narratives]
    assert "6175550199" in found or "ada@mail.example" in found


@pytest.fixture(scope="module")
def fhir() -> FhirCodec:
    return FhirCodec(data_folder("rules"))


def observation(code: object, **value: object) -> dict[str, object]:
    return {"resourceType": "Observation", "status": "final", "code": code, **value}


def loinc(code: str) -> dict[str, object]:
    return {"coding": [{"system": "http://loinc.org", "code": code}]}


def answer(item: dict[str, object], **value: object) -> dict[str, object]:
    return {"resourceType": "QuestionnaireResponse", "status": "completed", "item": [{**item, "answer": [value]}]}


@pytest.mark.parametrize(
    ("resource", "type_", "value"),
    [
        (observation({"text": "Phone"}, valueInteger=6175550199), "PHONE", "6175550199"),
        (observation(loinc("45396-9"), valueString="288149031"), "SSN", "288149031"),
        (observation({"text": "SSN"}, valueQuantity={"value": 288149031}), "SSN", "288149031"),
        (observation(loinc("30525-0"), valueQuantity={"value": 97, "code": "a"}), "AGE", "97"),
        (
            observation({"text": "Employer"}, valueCodeableConcept={"text": "Brandywine Mill"}),
            "ORGANIZATION",
            "Brandywine Mill",
        ),
        (
            observation({"text": "Employer"}, valueCodeableConcept={"coding": [{"display": "Brandywine Mill"}]}),
            "ORGANIZATION",
            "Brandywine Mill",
        ),
        (
            observation({"text": "Panel"}, component=[{"code": {"text": "ZIP"}, "valueString": "02138"}]),
            "ZIP",
            "02138",
        ),
        (answer({"linkId": "1", "text": "Maiden name"}, valueString="Brandywine"), "PATIENT", "Brandywine"),
        (answer({"linkId": "phone"}, valueDecimal=6175550199), "PHONE", "6175550199"),
        (answer({"linkId": "LN/45396-9"}, valueInteger=288149031), "SSN", "288149031"),
        (answer({"linkId": "1", "text": "How old are you?"}, valueInteger=97), "AGE", "97"),
        (
            answer({"linkId": "1", "text": "Employer"}, valueCoding={"display": "Brandywine Mill"}),
            "ORGANIZATION",
            "Brandywine Mill",
        ),
        (
            {"resourceType": "Parameters", "parameter": [{"name": "mrn", "valueInteger": 8837261}]},
            "MEDICALRECORD",
            "8837261",
        ),
        (
            {"resourceType": "Parameters", "parameter": [{"name": "lastName", "valueCode": "BRANDY"}]},
            "PATIENT",
            "BRANDY",
        ),
        (
            {
                "resourceType": "Patient",
                "extension": [{"url": "http://h.test/x/patient-ssn", "valueInteger": 288149031}],
            },
            "SSN",
            "288149031",
        ),
        ({"resourceType": "Condition", "onsetString": "at age 94"}, "AGE", "at age 94"),
        ({"resourceType": "Condition", "onsetRange": {"high": {"value": 95, "unit": "years"}}}, "AGE", "95"),
        ({"resourceType": "Condition", "onsetAge": {"value": 95, "unit": "years"}}, "AGE", "95"),
    ],
)
def test_fhir_value_beside_an_identity_label_is_a_site(
    fhir: FhirCodec, resource: dict[str, object], type_: str, value: str
) -> None:
    (parsed,) = fhir.parse(json.dumps(resource).encode())
    assert (type_, value) in [(site.type, site.value) for site in parsed.sites]


@pytest.mark.parametrize(
    "resource",
    [
        observation({"text": "Glucose"}, valueQuantity={"value": 288149, "unit": "mg/dL"}),
        observation(loinc("30525-0"), valueQuantity={"value": 45, "code": "a"}),
        observation({"text": "Gestational age"}, valueQuantity={"value": 280, "code": "d"}),
        observation({"text": "Age"}, valueQuantity={"value": 900, "unit": "days"}),
        answer({"linkId": "1", "text": "How many cigarettes a day?"}, valueInteger=97),
        {"resourceType": "Parameters", "parameter": [{"name": "count", "valueInteger": 12345678}]},
        {
            "resourceType": "Condition",
            "code": {"coding": [{"system": "http://snomed.info/sct", "code": "1", "display": "Parkinson disease"}]},
        },
        {"resourceType": "Condition", "extension": [{"url": "http://h.test/x", "valueCode": "in-progress"}]},
    ],
)
def test_fhir_clinical_value_is_kept(fhir: FhirCodec, resource: dict[str, object]) -> None:
    (parsed,) = fhir.parse(json.dumps(resource).encode())
    assert list(parsed.sites) == []
    assert [text for text in parsed.narratives if not text.path.endswith("text")] == []


@pytest.mark.parametrize(
    "resource",
    [
        {"resourceType": "Condition", "code": {"coding": [{"system": "http://h.test/x", "display": "ask Nkechi"}]}},
        {"resourceType": "Condition", "code": {"coding": [{"display": "ask Nkechi"}]}},
        {"resourceType": "Condition", "code": {"coding": [{"system": "urn:oid:2.999.7", "display": "ask Nkechi"}]}},
        {
            "resourceType": "Condition",
            "code": {"coding": [{"system": "http://loinc.org", "display": "Dr. Nkechi"}]},
        },
        {"resourceType": "Condition", "extension": [{"url": "http://h.test/x", "valueCode": "Nkechi"}]},
        {"resourceType": "Task", "input": [{"type": {"text": "x"}, "valueCode": "Nkechi"}]},
    ],
)
def test_fhir_uncoded_text_is_read(fhir: FhirCodec, resource: dict[str, object]) -> None:
    (parsed,) = fhir.parse(json.dumps(resource).encode())
    assert any("Nkechi" in text.mapped.text for text in parsed.narratives)


OBSERVATION = '<observation xmlns="urn:hl7-org:v3" xmlns:xsi="x" classCode="OBS">{}</observation>'
LABEL = '<code code="1" codeSystem="2.999" displayName="{}"/>'


@pytest.mark.parametrize(
    ("content", "type_", "value"),
    [
        (LABEL.format("SSN") + '<value xsi:type="INT" value="288149031"/>', "SSN", "288149031"),
        (LABEL.format("Phone") + '<value xsi:type="ST">6175550199</value>', "PHONE", "6175550199"),
        ('<code code="21612-7"/><value xsi:type="INT" value="97"/>', "AGE", "97"),
        (LABEL.format("Age") + '<value xsi:type="IVL_PQ"><low value="97" unit="a"/></value>', "AGE", "97"),
        ("<code><originalText>Maiden name</originalText></code><value>Brandywine</value>", "PATIENT", "Brandywine"),
        (
            LABEL.format("Employer") + '<value code="Q" displayName="Brandywine Mill"/>',
            "ORGANIZATION",
            "Brandywine Mill",
        ),
        (LABEL.format("ZIP") + "<value><originalText>02138</originalText></value>", "ZIP", "02138"),
        (
            "<text><table><tr><th>Name</th><th>MRN</th></tr><tr><td>x</td><td>77120045</td></tr></table></text>",
            "MEDICALRECORD",
            "77120045",
        ),
        ("<text><table><tr><td>SSN</td><td>288149031</td></tr></table></text>", "SSN", "288149031"),
    ],
)
def test_cda_value_beside_an_identity_label_is_a_site(content: str, type_: str, value: str) -> None:
    (parsed,) = CdaCodec(data_folder("rules")).parse(OBSERVATION.format(content).encode())
    assert (type_, value) in [(site.type, site.value) for site in parsed.sites]


@pytest.mark.parametrize(
    "content",
    [
        '<code code="2345-7" codeSystem="2.16.840.1.113883.6.1"/><value value="288149" unit="mg/dL"/>',
        '<code code="30525-0" displayName="Age" codeSystem="2.16.840.1.113883.6.1"/><value value="45" unit="a"/>',
        '<value code="49049000" codeSystem="2.16.840.1.113883.6.96" displayName="Parkinson disease"/>',
    ],
)
def test_cda_clinical_value_is_kept(content: str) -> None:
    (parsed,) = CdaCodec(data_folder("rules")).parse(OBSERVATION.format(content).encode())
    assert list(parsed.sites) == []
    assert list(parsed.narratives) == []


@pytest.mark.parametrize("system", ['codeSystem="2.999"', "", 'codeSystem="1.2.3"'])
def test_cda_uncoded_text_is_read(system: str) -> None:
    content = f'<code code="1" {system} displayName="ask Nkechi"/>'
    (parsed,) = CdaCodec(data_folder("rules")).parse(OBSERVATION.format(content).encode())
    assert [text.mapped.text for text in parsed.narratives] == ["ask Nkechi"]


TABLE = 'dob,mrn,name,platelets,comment\n03/12/1945,77120045,"Brandywine, Nkechi",288149,seen by Dr. Wells\n'


def test_csv_columns_label_their_cells() -> None:
    codec = TableCodec(data_folder("rules"))
    assert codec.detect(TABLE.encode())
    (parsed,) = codec.parse(TABLE.encode())
    assert [(site.type, site.value) for site in parsed.sites] == [
        (PhiType.DATE, "03/12/1945"),
        (PhiType.MEDICALRECORD, "77120045"),
        (PhiType.PATIENT, "Brandywine, Nkechi"),
    ]
    read = "".join(text.mapped.text for text in parsed.narratives)
    assert "Dr. Wells" in read
    assert "288149" not in read


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
def test_a_table_of_labels_and_values(mark: str) -> None:
    codec = TableCodec(data_folder("rules"))
    table = f"SSN{mark}288149031\nGlucose{mark}112\n".encode()
    assert codec.detect(table)
    (parsed,) = codec.parse(table)
    assert [(site.type, site.value) for site in parsed.sites] == [(PhiType.SSN, "288149031")]


@pytest.mark.parametrize(
    "text",
    [
        "analyte,value\nglucose,112\n",
        "Dear Dr. Wells, thanks.\nShe is well, and at home.\n",
        "",
        "a\nb\n",
        "name,phone",
        "\x00,\x00\n",
    ],
)
def test_other_text_is_not_a_table(text: str) -> None:
    assert not TableCodec(data_folder("rules")).detect(text.encode())


def test_cells_of_a_page_are_labelled() -> None:
    rows = "<tr><th>MRN</th><th>Platelets</th></tr><tr><td>77120045</td><td>250000</td></tr>"
    page = f"<html><table>{rows}</table><p>Dr. Wells</p>"
    codec = HtmlCodec(data_folder("rules"))
    (parsed,) = codec.parse(page.encode())
    assert [site.value for site in parsed.sites] == ["77120045"]
    read = "".join(text.mapped.text for text in parsed.narratives)
    assert "Dr. Wells" in read
    assert "250000" not in read
    (leaf,) = codec.parse_leaves(page.encode())
    assert "77120045" in leaf.mapped.text


@pytest.mark.parametrize(
    ("header", "row", "read"),
    [
        ("Name|Dates|Status", "Acute Pharyngitis|2014-03-02|active", []),
        ("Name|Provider", "Open Appendectomy|James Getwell", ["James Getwell"]),
        ("Name|Phone", "Nkechi Brandywine|617-555-0199", ["Nkechi Brandywine", "617-555-0199"]),
    ],
)
def test_a_column_of_names_is_of_people_beside_another_identity(header: str, row: str, read: list[str]) -> None:
    head = "".join(f"<th>{cell}</th>" for cell in header.split("|"))
    body = "".join(f"<td title='a>b'>{cell}</td>" for cell in row.split("|"))
    text = f"<text><table><tr>{head}</tr><!-- <td>x</td> --><tr>{body}</tr></table></text>"
    (parsed,) = CdaCodec(data_folder("rules")).parse(OBSERVATION.format(text).encode())
    assert [site.value for site in parsed.sites] == read


@pytest.mark.parametrize(
    ("text", "person"),
    [
        ("Nkechi Brandywine", True),
        ("JOHN LEE", True),
        ("BRANDYWINE NKECHI", True),
        ("Maven EDSS", False),
        ("NIST MPI", False),
        ("Testing Lab", False),
        ("MN Public Health Lab", False),
    ],
)
def test_acronyms_and_organizations_are_not_people(labels: Labels, text: str, *, person: bool) -> None:
    assert labels.reads_as_person(text) is person


def test_hosts_of_the_site_are_separate_values(fhir: FhirCodec) -> None:
    host = "fhir.northgate.hospital.zz"
    patient = {
        "resourceType": "Patient",
        "id": "7",
        "implicitRules": f"http://{host}/rules",
        "identifier": [
            {"system": f"http://{host}/mrn", "value": "1"},
            {"system": "http://hl7.org/fhir/sid/us-ssn", "value": "2"},
        ],
        "extension": [{"url": f"http://{host}/x", "valueBoolean": True}],
        "managingOrganization": {"reference": f"https://{host}/r4/Organization/9"},
    }
    bundle = {"resourceType": "Bundle", "entry": [{"fullUrl": f"https://{host}/r4/Patient/7", "resource": patient}]}
    (parsed,) = fhir.parse(json.dumps(bundle).encode())
    hosts = [site for site in parsed.sites if site.source == HOST_SOURCE]
    assert {site.value for site in hosts} == {host}
    assert len(hosts) == 5


@pytest.mark.parametrize(
    "url", ["http://hl7.org/fhir/x", "http://terminology.hl7.org/x", "https://example.org/x", "urn:oid:1.2"]
)
def test_hosts_of_standards_and_reserved_hosts_are_kept(fhir: FhirCodec, url: str) -> None:
    patient = {"resourceType": "Patient", "identifier": [{"system": url, "value": "1"}], "extension": [{"url": url}]}
    (parsed,) = fhir.parse(json.dumps(patient).encode())
    assert [site.value for site in parsed.sites] == ["1"]
