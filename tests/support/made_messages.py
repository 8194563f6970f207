"""Synthetic messages of the sizes of the benchmarks, the same on every run."""

import json

_HEAD = (
    "MSH|^~\\&|LAB|GENERAL|EHR|GENERAL|20240224134009+0100||ORU^R01^ORU_R01|MSG00001|P|2.5.1",
    "PID|1||4000001^^^GENERAL^MR~987-65-4321^^^USA^SS||Okafor^Ada^Marie^^^^L||19620308|F|||"
    "12 Land's End Rd^Apt 4^Saint Paul^MN^55106^USA^H||^PRN^PH^^1^651^5550143",
    "NK1|1|Okafor^Ben|SPO|12 Land's End Rd^^Saint Paul^MN^55106|(651)555-0143",
    "PV1|1|I|4W^401^A^GENERAL||||1234567890^Nisar^Robert^K^^^MD|||MED||||||||V10000001|||||||||||||||||||||||||20240223",
    "ORC|RE|ORD448811^EHR|ACC99120^LAB||CM||||20240224120000|||1234567890^Nisar^Robert^K",
    "OBR|1|ORD448811^EHR|ACC99120^LAB|24331-1^Lipid panel^LN|||20240224120000|||||||20240224121500||"
    "1234567890^Nisar^Robert",
)
_LINES = (
    "OBX|{0}|NM|2093-3^Cholesterol^LN||{1}|mg/dL^milligram per deciliter^UCUM|<200|H|||F|||20240224120000",
    "OBX|{0}|CWE|600-7^Bacteria identified^LN||112283007^Escherichia coli^SCT||||||F|||20240224120000",
    "OBX|{0}|TX|8251-1^Comment^LN||Seen by Dr. Nisar on 02/24/2024, no change since the last visit.||||||F",
    "NTE|{0}|L|Result called to the ward at {1}.",
)


def hl7(segments: int) -> bytes:
    """A result message (ORU) with ``segments`` segments: numbers, codes, text and notes, as laboratories send them."""
    lines = list(_HEAD)
    while len(lines) < segments:
        number = len(lines) - len(_HEAD) + 1
        lines.append(_LINES[number % len(_LINES)].format(number, 150 + number))
    return "".join(f"{line}\r" for line in lines[:segments]).encode()


def bundle(size: int = 156_000) -> bytes:
    """An indented collection of encounters, observations and conditions of one patient, of about ``size`` bytes."""
    patient: dict[str, object] = {
        "resourceType": "Patient",
        "id": "p1",
        "text": {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml"><b>Ada Okafor</b>, 62</div>'},
        "identifier": [{"system": "urn:oid:1.2.36.146.595", "value": "4000001", "type": _concept("MR", "Record")}],
        "name": [{"use": "official", "family": "Okafor", "given": ["Ada", "Marie"]}],
        "telecom": [{"system": "phone", "value": "(651) 555-0143", "use": "home"}],
        "gender": "female",
        "birthDate": "1962-03-08",
        "address": [{"line": ["12 Land's End Rd"], "city": "Saint Paul", "state": "MN", "postalCode": "55106"}],
    }
    entries: list[object] = [_entry(patient)]
    while len(found := _written(entries)) < size:
        entries += [_entry(resource) for resource in _visit(len(entries))]
    return found


def _visit(n: int) -> list[dict[str, object]]:
    day, subject = f"20{10 + n % 14}-0{1 + n % 9}-1{n % 10}", {"reference": "Patient/p1", "display": "Ada Okafor"}
    doctor = {"reference": f"Practitioner/d{n % 7}", "display": "Dr. Robert Nisar"}
    context = {"reference": f"Encounter/e{n}"}
    vitals: list[dict[str, object]] = [
        {
            "resourceType": "Observation",
            "id": f"o{n}-{i}",
            "status": "final",
            "category": [_concept("vital-signs", "Vital Signs")],
            "code": _concept(f"85{i}4-{i}", "Diastolic blood pressure"),
            "subject": subject,
            "encounter": context,
            "effectiveDateTime": f"{day}T10:2{i}:00+01:00",
            "issued": f"{day}T10:2{i}:00.000+01:00",
            "valueQuantity": {"value": 70.5 + i, "unit": "mm[Hg]", "system": "http://unitsofmeasure.org", "code": "mm"},
        }
        for i in range(5)
    ]
    return [
        {
            "resourceType": "Encounter",
            "id": f"e{n}",
            "status": "finished",
            "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "AMB"},
            "type": [_concept("185345009", "Encounter for symptom")],
            "subject": subject,
            "participant": [{"individual": doctor}],
            "period": {"start": f"{day}T10:00:00+01:00", "end": f"{day}T10:40:00+01:00"},
        },
        *vitals,
        {
            "resourceType": "Condition",
            "id": f"c{n}",
            "clinicalStatus": _concept("active", "Active"),
            "code": _concept("38341003", "Hypertension"),
            "subject": subject,
            "encounter": context,
            "onsetDateTime": day,
            "note": [{"text": "Seen by Dr. Nisar, stable since the last visit; Ada will call on Monday."}],
        },
    ]


def _concept(code: str, display: str) -> dict[str, object]:
    return {"coding": [{"system": "http://snomed.info/sct", "code": code, "display": display}], "text": display}


def _entry(resource: dict[str, object]) -> dict[str, object]:
    return {
        "fullUrl": f"https://ehr.example.org/fhir/{resource['resourceType']}/{resource['id']}",
        "resource": resource,
    }


def _written(entries: list[object]) -> bytes:
    return json.dumps({"resourceType": "Bundle", "type": "collection", "entry": entries}, indent=2).encode()
