"""The attacker: has an output of the policy ``safe-harbor``, and looks for one of the 18 identifiers.

45 CFR 164.514(b)(2)(i): (A) names, (B) places smaller than a state but for three digits of a ZIP code, (C) dates but
for the year, ages over 89 and years that reveal them, (D) to (Q) numbers of telephone, fax, social security, records,
health plans, accounts, certificates, vehicles, devices, mail, web and IP addresses, biometric marks and pictures, (R)
any other unique number, also a code derived from one (c).

By construction: every field of every HL7 segment and every element of every FHIR resource that our tables know is
filled with a mark of its kind, and no mark may come out. ``test_safe_harbor_search.py`` searches for the rest.
"""

import json
import re
from contextlib import suppress

import pytest
from support.safe_harbor import MAY_STAY, RULES, deidentifier, text

from deid_agent.app import WorkerFactory
from deid_agent.codec.fhir.shapes import FhirRule, Shape
from deid_agent.codec.fhir.table import load_fhir_table
from deid_agent.codec.hl7v2.table import Hl7Kind, Hl7Rule, Layout
from deid_agent.codec.hl7v2.table_files import load_hl7_table
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import MessageError
from deid_agent.model.phi import PhiType
from deid_agent.pipeline.policy import KeyMode, Method, Unreadable, load_policy
from deid_agent.surrogate.methods import RESTRICTED_ZIP3

HL7, FHIR = load_hl7_table(RULES), load_fhir_table(RULES)


def test_no_type_is_kept_or_mapped() -> None:
    """At every path: a surrogate is derived from its identifier, a code of the record is not."""
    harbor = load_policy("safe-harbor", RULES)
    removed = {Method.MASK, Method.REDACT, Method.GENERALIZE, Method.LINK}
    for type_ in set(PhiType) - MAY_STAY:
        for path in ("OBX-5", "PID-3.1", "Patient.name", *harbor.paths, *(p.replace("*", "Any") for p in harbor.paths)):
            assert harbor.method(type_, path) in removed, (type_, path)
    assert harbor.record_key is KeyMode.DROP
    assert harbor.unreadable is Unreadable.REMOVE


# Marks: no word, number or day of a surrogate or a table can be one.
FOUND = re.compile(r"(?i)zyblorq|4471\d902|198703|1987-03|03/14/1987|45801|614\D{0,2}867|\.test\b|10\.44\.71")
HL7_MARKS: dict[Hl7Kind, str] = {
    Hl7Kind.FAMILY: "Zyblorq",
    Hl7Kind.GIVEN: "Zyblorqa",
    Hl7Kind.NAME: "Zyblorq, Zyblorqa",
    Hl7Kind.ID: "44711902",
    Hl7Kind.STREET: "17 Zyblorq Rd",
    Hl7Kind.CITY: "Zyblorqton",
    Hl7Kind.ZIP: "45801-1234",
    Hl7Kind.PLACE: "Zyblorq County",
    Hl7Kind.STATE: "OH",
    Hl7Kind.COUNTRY: "USA",
    Hl7Kind.DATE: "19870314101500",
    Hl7Kind.PHONE: "(614)867-5309",
    Hl7Kind.EMAIL: "zyblorq@clinic.test",
    Hl7Kind.HOSPITAL: "Zyblorq Memorial Hospital",
    Hl7Kind.ORGANIZATION: "Zyblorq Inc",
    Hl7Kind.REDACT: "Zyblorq 44711902",
}


def filled(part: Layout, signs: str = "^&") -> str:
    """A field whose every value that may identify is a mark; codes, numbers and texts are left empty."""
    if isinstance(part, Hl7Kind):
        return HL7_MARKS.get(part, "")
    return signs[0].join(filled(inner, signs[1:]) for inner in part).rstrip(signs[0])


def field(rule: Hl7Rule) -> str:
    """A field of its rule; empty for a profession, which is none of the 18 identifiers."""
    return "" if rule.type is PhiType.PROFESSION else filled(rule.layout)


def hl7_message(segment: str) -> bytes:
    fields = [field(rule) for rule in HL7.rules(segment)[0]]
    if segment in {"MSH", "FHS", "BHS"}:
        return "|".join([segment, "^~\\&", *fields[2:]]).encode() + b"\r"
    head = "MSH|^~\\&|A|B|C|D|20190304||ADT^A01^ADT_A01|44712902|P|2.5.1\r"
    return f"{head}{'|'.join([segment, *fields])}\r".encode()


def public(out: str) -> list[str]:
    return FOUND.findall(out)


def test_no_field_of_any_hl7_segment_leaks_a_planted_value() -> None:
    marked = 0
    for segment in sorted(HL7.names - {"ADD", "DSC"}):
        message = hl7_message(segment)
        marked += len(public(message.decode()))
        with suppress(MessageError):  # refused is not published
            assert not public(deidentifier().message(message).payload.decode()), segment
    assert marked > 4_000


def test_no_observation_of_any_datatype_leaks_a_planted_value() -> None:
    for datatype in (
        "CX",
        "XPN",
        "PN",
        "XCN",
        "XAD",
        "AD",
        "XTN",
        "TN",
        "DT",
        "TS",
        "DTM",
        "DR",
        "EI",
        "XON",
        "PL",
        "CN",
        "PPN",
    ):
        value = filled(HL7.observation(datatype).layout)
        message = f"MSH|^~\\&|A|B|C|D|20190304||ORU^R01|44712902|P|2.5.1\rOBX|1|{datatype}|1^n||{value}||||||F\r"
        assert public(message), datatype
        assert not public(deidentifier().message(message.encode()).payload.decode()), datatype


def fhir_mark(element: FhirRule) -> object:
    """The PHI in a scalar of this rule; None for a code, a number or text."""
    treatment = element.treatment
    if treatment is None:
        return None
    by_name: dict[str, str] = {
        "family": "Zyblorq",
        "given": "Zyblorqa",
        "name": "Zyblorqa Zyblorq",
        "id": "44711902",
        "date": "1987-03-14",
        "instant": "1987-03-14T10:15:00Z",
        "reference": "Patient/44711902",
        "identifier": "44711902",
        "contact": "614-867-5309",
    }
    by_type: dict[PhiType, str] = {
        PhiType.STREET: "17 Zyblorq Rd",
        PhiType.CITY: "Zyblorqton",
        PhiType.ZIP: "45801-1234",
        PhiType.STATE: "OH",
        PhiType.COUNTRY: "USA",
        PhiType.IPADDRESS: "10.44.71.90",
        PhiType.EMAIL: "zyblorq@clinic.test",
        PhiType.DATE: "1987-03-14",
    }
    if treatment.name == "site":
        return by_type.get(treatment.type, "Zyblorq 44711902")
    return by_name.get(treatment.name)


def fhir_tree(shape: Shape, above: tuple[str, ...] = ()) -> dict[str, object]:
    """An object of a type with a mark in every element, four levels deep; no type inside of itself."""
    out: dict[str, object] = {}
    for name, rule in shape.rules.items():
        if name in {"extension", "modifierExtension", "contained", "resourceType"}:
            continue
        if rule.child is not None and rule.child.rules:
            if (
                len(above) < 3
                and rule.child.name not in above
                and (inner := fhir_tree(rule.child, (*above, shape.name)))
            ):
                out[name] = inner
        elif (mark := fhir_mark(rule)) is not None:
            out[name] = mark
    return out


def test_no_element_of_any_fhir_resource_leaks_a_planted_value() -> None:
    marked = 0
    for name in sorted(FHIR.resources):
        raw = json.dumps({"resourceType": name, **fhir_tree(FHIR.shapes[name])})
        marked += len(public(raw))
        with suppress(MessageError):
            assert not public(deidentifier().message(raw.encode()).payload.decode()), name
    assert marked > 8_000


# The identifying parts by the standards, written independently of our tables: components from 1, and elements.
COMPONENTS = {
    "XPN": (1, 2, 3),
    "XCN": (1, 2, 3, 4),
    "CN": (1, 2, 3, 4),
    "XAD": (1, 3, 5),
    "CX": (1,),
    "XTN": (1, 4, 12),
    "EI": (1,),
    "DR": (1, 2),
    "DLN": (1, 3),
    "PPN": (1, 2, 3, 4),
    "TS": (1,),
    "XON": (1, 3),
    "PLN": (1,),
}
ELEMENTS = {
    "HumanName": "family given text",
    "Address": "line city district postalCode text",
    "ContactPoint": "value",
    "Identifier": "value",
    "Patient": "birthDate deceasedDateTime id",
    "Person": "birthDate",
    "Practitioner": "birthDate",
    "Reference": "reference",
    "Device": "serialNumber lotNumber distinctIdentifier",
    "DeviceUdiCarrier": "carrierHRF deviceIdentifier",
    "LocationPosition": "latitude longitude",
    "Coverage": "subscriberId",
    "Period": "start end",
    "Encounter": "id",
    "Observation": "effectiveDateTime issued id",
    "ImagingStudy": "uid",
    "Attachment": "data",
    "Location": "name",
    "Organization": "name",
    "AuditEventAgentNetwork": "address",
    "Annotation": "authorString time",
    "Signature": "data",
    "Immunization": "lotNumber occurrenceDateTime",
    "Specimen": "receivedTime",
}


def test_the_tables_contain_every_identifying_element_of_the_standards() -> None:
    """HL7 v2.8.2 chapter 2A, and FHIR R4 to R5: none of these is kept."""
    for datatype, numbers in COMPONENTS.items():
        parts = HL7.observation(datatype).layout
        for number in numbers:
            part = parts if isinstance(parts, Hl7Kind) else parts[number - 1]
            assert (part if isinstance(part, Hl7Kind) else part[0]) not in {Hl7Kind.KEEP, Hl7Kind.CODE}, (
                datatype,
                number,
            )
    for owner, names in ELEMENTS.items():
        for name in names.split():
            treatment = FHIR.shapes[owner].rules[name].treatment
            assert treatment is not None and treatment.name not in {"keep", "code", "number"}, (owner, name)


@pytest.mark.parametrize("zip3", sorted(RESTRICTED_ZIP3))
def test_small_areas_become_000(zip3: str) -> None:
    message = f"MSH|^~\\&|A|B|C|D|20190304||ADT^A01|1|P|2.5.1\rPID|1||||||||||^^^NH^{zip3}01-1234\r"
    assert "^000\r" in deidentifier().message(message.encode()).payload.decode()
    assert "000" in text(f"He lives in Ada, NH {zip3}01.")
    assert zip3 not in text(f"He lives in Ada, NH {zip3}01.")


def test_other_zip_codes_keep_three_digits() -> None:
    message = "MSH|^~\\&|A|B|C|D|20190304||ADT^A01|1|P|2.5.1\rPID|1||||||||||^^^OH^45801-1234\r"
    assert "^OH^458\r" in deidentifier().message(message.encode()).payload.decode()


def test_no_age_over_89_and_no_year_that_reveals_one() -> None:
    message = (
        "MSH|^~\\&|A|B|C|D|20190304||ORU^R01|1|P|2.5.1\rPID|1||||||19250304|F\r"
        "OBX|1|TX|1^n||A 94 y/o woman, born in 1925 (DOB 03/04/1925), as was her 97-year-old sister.||||||F\r"
    )
    out = deidentifier().message(message.encode()).payload.decode()
    assert not re.search(r"1925|\b9[1-9]\b", out)
    assert "|1929|" in out
    assert out.count("90 or older") == 2
    patient = {"resourceType": "Patient", "birthDate": "1925-03-04", "meta": {"lastUpdated": "2019-03-04T10:00:00Z"}}
    assert "1925" not in deidentifier().message(json.dumps(patient).encode()).payload.decode()


def test_no_code_is_shared_between_records() -> None:
    """Two records of one patient share no code; another key gives others; none is a surrogate of ``pseudonymised``."""

    def record(
        status: str, key: bytes = b"key of the attack tests, Safe Harbor", name: str = "safe-harbor"
    ) -> set[str]:
        made = WorkerFactory(RULES, SecretKey(key), load_policy(name, RULES)).deidentifier()
        entries = [{"resource": {"resourceType": "Patient", "id": "p4471902", "identifier": [{"value": "4471902"}]}}]
        tree = {"resourceType": "Bundle", "type": status, "id": "b4471902", "entry": entries}
        out = made.message(json.dumps(tree).encode()).payload.decode()
        assert "4471902" not in out
        return {*re.findall(r'"(?:id|value)": "(?!REDACTED|redacted)([^"]+)"', out)}

    one, other = record("collection"), record("batch")
    assert len(one) == 2, "the identifier itself is masked, the two ids have codes"
    assert not one & other
    assert not one & record("collection", b"another key of the attack tests, S H")
    assert not one & record("collection", name="pseudonymised")
    assert one == record("collection")
