"""The 18 identifiers of 45 CFR 164.514(b)(2)(i), each in structured fields of HL7 v2 and FHIR and in narrative.

One function for each identifier, because ``docs/safe-harbor.md`` names it as the proof of its row. Each puts the
identifier into every representation, and no part of it may be in the output.
"""

import base64
import json
import re
from collections.abc import Iterable

from support.safe_harbor import deidentifier, text

HEAD = "MSH|^~\\&|A|B|C|D|20190304||ORU^R01|44711903|P|2.5.1\r"
PATIENT = "PID|1||{0}||{1}\r"


def hl7(*segments: str) -> str:
    """The output of a message with these segments."""
    raw = HEAD + "".join(f"{segment}\r" for segment in segments)
    return deidentifier().message(raw.encode()).payload.decode()


def fhir(kind: str, **members: object) -> str:
    """The output of a resource with these members."""
    raw = json.dumps({"resourceType": kind, **members})
    return deidentifier().message(raw.encode()).payload.decode()


def observation(code: str, value: str, datatype: str = "ST") -> str:
    return hl7(f"OBX|1|{datatype}|{code}||{value}||||||F")


def assert_gone(parts: Iterable[str], *outputs: str) -> None:
    """No part is in an output, and an output still exists."""
    for number, out in enumerate(outputs):
        assert out.strip(), number
        assert not [part for part in parts if part.lower() in out.lower()], number


def test_a_names() -> None:
    assert_gone(
        ["Zyblorq", "Adaeze", "Chidi", "Castellano"],
        hl7(
            "PID|1||1||Zyblorq^Adaeze^^^Mrs.||||Zyblorq^Ada",
            "NK1|1|Zyblorq^Chidi|SPO",
            "PV1|1|I|||||17^Castellano^Ines",
        ),
        fhir("Patient", name=[{"family": "Zyblorq", "given": ["Adaeze"], "text": "Adaeze Zyblorq"}]),
        fhir("Patient", contact=[{"name": {"text": "Chidi Zyblorq"}}]),
        text("Mrs. Adaeze Zyblorq was seen by Dr. Ines Castellano; her husband Chidi was present."),
    )


def test_b_places() -> None:
    parts = ["Birch", "Zyblorqton", "45801", "Allen County", "40.7424"]
    assert_gone(
        parts,
        hl7("PID|1||1||||||||17 Birch Rd^^Zyblorqton^OH^45801-1234^USA^^^Allen County|Allen County"),
        fhir(
            "Patient", address=[{"line": ["17 Birch Rd"], "city": "Zyblorqton", "state": "OH", "postalCode": "45801"}]
        ),
        fhir("Location", status="active", name="Zyblorqton", position={"latitude": 40.7424, "longitude": -84.1052}),
        text("She lives at 17 Birch Rd, Lima, OH 45801."),
    )
    assert "Lima" not in text("She lives at 17 Birch Rd, Lima, OH 45801.")


def test_c_dates_and_ages_over_89() -> None:
    dates = ["0314", "03-14", "March", "3/14", "14th"]
    assert_gone(
        dates,
        hl7("PID|1||1||||19610314|F", "PV1|1|I" + "|" * 42 + "20190314101500", "OBX|1|DT|1^n||20190314||||||F"),
        fhir("Patient", birthDate="1961-03-14", deceasedDateTime="2019-03-14T10:15:00Z"),
        fhir("Encounter", status="finished", period={"start": "2019-03-14", "end": "2019-03-14T09:00:00Z"}),
        text("Admitted March 14, 2019, seen again 3/14 and on the 14th of March."),
    )
    assert_gone(
        ["94", "ninety-four"],
        text("A 94-year-old woman, ninety-four years old."),
        observation("30525-0^Age^LN", "94", "NM"),
    )
    old = {"name": "Age", "value": {"value": 94, "unit": "a", "code": "a"}}
    out = fhir(
        "Observation",
        status="final",
        code={"coding": [{"code": "30525-0", "system": "http://loinc.org"}]},
        valueQuantity=old["value"],
    )
    assert "94" not in out


def _contact(kind: str, use: str, number: str, words: str) -> None:
    digits = re.sub(r"\D", "", number)
    assert_gone(
        [number, digits, number[-8:]],
        hl7(f"PID|1||1||||||||||{number}"),
        hl7(f"PID|1||1||||||||||^{use}^{kind}^^^{digits[:3]}^{digits[3:]}"),
        fhir("Patient", telecom=[{"system": words.lower(), "value": number}]),
        text(f"{words}: {number}. Call back soon."),
    )


def test_d_telephone_numbers() -> None:
    _contact("PH", "PRN", "614-867-5309", "Phone")


def test_e_fax_numbers() -> None:
    _contact("FX", "PRN", "614-867-5310", "Fax")


def test_f_electronic_mail_addresses() -> None:
    assert_gone(
        ["zyblorq", "clinic.test"],
        hl7("PID|1||1||||||||||^NET^Internet^zyblorq@clinic.test"),
        fhir("Patient", telecom=[{"system": "email", "value": "zyblorq@clinic.test"}]),
        text("Write to zyblorq@clinic.test for results."),
    )


def test_g_social_security_numbers() -> None:
    assert_gone(
        ["288-14-9031", "288149031", "9031"],
        hl7("PID|1||1||||||||||||||||288-14-9031"),
        observation("76435-7^SSN^LN", "288149031", "NM"),
        fhir("Patient", identifier=[{"system": "http://hl7.org/fhir/sid/us-ssn", "value": "288149031"}]),
        text("SSN 288-14-9031 on file."),
    )


def _number(number: str, note: str, segment: str, resource: str, **members: object) -> None:
    assert_gone([number], hl7(segment), fhir(resource, **members), text(note))


def test_h_medical_record_numbers() -> None:
    _number(
        "4471902",
        "MRN: 4471902, stable.",
        "PID|1||4471902^^^HOSP^MR",
        "Patient",
        identifier=[{"type": {"coding": [{"code": "MR"}]}, "value": "4471902"}],
    )


def test_i_health_plan_numbers() -> None:
    _number(
        "XQH4471902",
        "Member ID: XQH4471902.",
        "IN1|1|PLAN|77||||||||||||||||||||||||||||||||||XQH4471902",
        "Coverage",
        status="active",
        subscriberId="XQH4471902",
    )


def test_j_account_numbers() -> None:
    _number(
        "7744719",
        "Account number: 7744719.",
        "PID|1||1|||||||||||||||7744719^^^HOSP^AN",
        "Account",
        status="active",
        identifier=[{"value": "7744719"}],
    )


def test_k_certificates_and_licences() -> None:
    _number(
        "RT447190",
        "Driver's license: RT447190.",
        "PID|1||1|||||||||||||||||RT447190^OH^20250101",
        "Practitioner",
        qualification=[{"identifier": [{"value": "RT447190"}], "code": {"text": "MD"}}],
    )


def test_l_vehicles() -> None:
    vin = "1M8GDM9AXKP042788"
    _number(
        vin,
        f"VIN {vin} was towed.",
        f"OBX|1|ST|1^VIN||{vin}||||||F",
        "Observation",
        status="final",
        code={"text": "VIN"},
        valueString=vin,
    )


def test_m_devices() -> None:
    _number(
        "SN4471902X",
        "Pacemaker serial number SN4471902X.",
        "OBX|1|ST|1^Serial number||SN4471902X||||||F",
        "Device",
        serialNumber="SN4471902X",
    )


def test_n_urls() -> None:
    assert_gone(
        ["zyblorq", "myportal"],
        hl7("PID|1||1||||||||||^NET^Internet^https://myportal.test/zyblorq"),
        fhir("Patient", telecom=[{"system": "url", "value": "https://myportal.test/zyblorq"}]),
        text("See https://myportal.test/zyblorq for the picture."),
    )


def test_o_ip_addresses() -> None:
    assert_gone(
        ["10.44.7.212"],
        observation("1^IP address", "10.44.7.212"),
        fhir(
            "AuditEvent",
            recorded="2019-03-04T10:00:00Z",
            type={"code": "rest"},
            source={"observer": {"display": "x"}},
            agent=[{"requestor": True, "network": {"address": "10.44.7.212", "type": "2"}}],
        ),
        text("Portal login from 10.44.7.212 at noon."),
    )


def test_p_biometric_identifiers() -> None:
    mark = base64.b64encode(bytes(range(7, 250))).decode()
    assert_gone(
        [mark[:40]],
        hl7(f"OBX|1|ED|1^Fingerprint||^IM^PNG^Base64^{mark}||||||F"),
        fhir("Media", status="completed", content={"contentType": "image/png", "data": mark}),
    )
    assert_gone(["FPT-4471-90"], text("Fingerprint ID: FPT-4471-90 enrolled."))


def test_q_photographs() -> None:
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
    assert_gone(
        [picture[:40]],
        hl7(f"OBX|1|ED|1^Photo||^IM^PNG^Base64^{picture}||||||F"),
        fhir("Patient", photo=[{"contentType": "image/png", "data": picture}]),
    )
    assert_gone(["myportal"], text("Photo at https://myportal.test/p/7."))


def test_r_any_other_unique_number_or_code() -> None:
    _number(
        "ZQX-44719-02",
        "Study subject ID: ZQX-44719-02.",
        "PID|1||1|ZQX-44719-02",
        "Specimen",
        identifier=[{"value": "ZQX-44719-02"}],
    )
    assert_gone(["44711903"], hl7("PID|1||1"))
    assert_gone(["44719021"], fhir("Patient", id="44719021"))
