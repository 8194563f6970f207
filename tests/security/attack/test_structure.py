"""The attacker: has one output message, and reads the fields that are rarely examined.

Identifiers are planted beside labels, in the text of codes, in components of another datatype, in segments of a
site, in questionnaires, extensions, contained resources and tables. None may survive, no clinical number may change.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
from support.hl7 import MSH

from deid_agent.app import WorkerFactory
from deid_agent.config import SecretKey
from deid_agent.pipeline import Deidentifier, load_policy
from deid_agent.rules import data_folder

PLANTS = {
    "Phone": "6175550143",
    "Telefon": "617-555-0143",
    "SSN": "288149031",
    "Seguro social": "288-14-9031",
    "MRN": "77120045",
    "Patientennummer": "QX7712004",
    "ZIP code": "02138",
    "Date of birth": "19450312",
    "Maiden name": "Brandywine",
    "Apellido": "Szczepanski",
    "Emergency contact": "Nkechi Oyelaran",
    "Employer": "Consolidated Foundry Works",
    "E-mail": "n.oyelaran@northmail.org",
    "Home address": "418 Tannery Row",
    "Age": "97",
}
PHRASES = {
    "call 617-555-0143": "617-555-0143",
    "since 03/12/1945": "03/12/1945",
    "wife Nkechi Oyelaran": "Oyelaran",
    "Mrs. Oyelaran said so": "Oyelaran",
    "Margaret Thornton": "Thornton",
    "write n.oyelaran@northmail.org": "northmail",
}
CODED = (
    "OBX|1|CE|1^Test^LN||C1^{}^{}",
    "AL1|1|DA|C1^{}^{}",
    "DG1|1||C1^{}^{}",
    "PV1|1|I" + "|" * 35 + "C1^{}^{}",
    "OBX|1|NM|1^Test^LN||5|C1^{}^{}",
    "ZPI|1|C1^{}^{}",
)
TABLE = "<text><table><tr><th>Test</th><th>{}</th></tr><tr><td>a</td><td>{}</td></tr></table></text>"
ENTRY = '<entry><observation><code code="1" codeSystem="2.999" displayName="{}"/>{}</observation></entry>'


def hl7_messages() -> Iterator[tuple[str, str]]:
    head = f"{MSH}\rPID|1||4711^^^X^MR||Smith^Joan||19700101|F\r"
    for label, plant in PLANTS.items():
        types = ["ST", "TX", "CE", "ID", ""] + ["NM"] * plant.isdigit()
        yield from ((f"{head}OBX|1|{type_}|Q^{label}^L||{plant}\r", plant) for type_ in types)
        yield f"{head}ZPI|1|{label}|{plant}\r", plant
        yield f"{head}ZPI|1|{label}^{plant}\r", plant
    for phrase, plant in PHRASES.items():
        for system in ("L", "99LAB", "", "2.999.1"):
            yield from ((f"{head}{segment.format(phrase, system)}\r", plant) for segment in CODED)
    for component in range(1, 19):
        separators = "^" * (component - 1)
        yield f"{head}PID|2||12||A^B||||||||{separators}n.oyelaran@northmail.org\r", "northmail"
        yield f"{head}PID|2||12||A^B||||||||{separators}6175550143\r", "6175550143"
    for component, given in product((2, 3), ("Nkechi", "Søreniel")):
        separators = "^" * (component - 1)
        yield f"{head}PID|2||12||A^B||||||||{separators}{given} Oyelaran^x.y@northmail.org\r", "Oyelaran"
    for number, given in product(("64865858", "N884211"), ("Nkechi", "Søreniel")):
        for system in ("", "^L", "^99DOC"):
            yield f"{head}AIG|1||{number}^{given} Oyelaran{system}\r", "Oyelaran"
            yield f"{head}AIG|1||{number}^{given} Oyelaran{system}\r", number
    for field in (10, 15, 16, 17, 21, 22, 26, 28):
        yield f"{head}PID|2||12||A^B{'|' * (field - 5)}OYELARAN^NKECHI\r", "OYELARAN"


def fhir_resources() -> Iterator[tuple[str, str]]:
    for label, plant in PLANTS.items():
        values: list[dict[str, object]] = [{"valueString": plant}, {"valueCodeableConcept": {"text": plant}}]
        if plant.isdigit() and plant[0] != "0":
            values += [{"valueInteger": int(plant)}, {"valueQuantity": {"value": int(plant)}}]
        for value in values:
            observed = {"resourceType": "Observation", "status": "final", "code": {"text": label}, **value}
            resources: list[dict[str, object]] = [
                observed,
                {"resourceType": "Condition", "contained": [observed]},
                {"resourceType": "QuestionnaireResponse", "item": [{"linkId": "1", "text": label, "answer": [value]}]},
                {"resourceType": "Parameters", "parameter": [{"name": "x", "part": [{"name": label, **value}]}]},
                {
                    "resourceType": "Patient",
                    "extension": [{"url": f"http://h.test/{label.replace(' ', '-')}", **value}],
                },
            ]
            yield from ((json.dumps(resource), plant) for resource in resources)
    for phrase, plant in PHRASES.items():
        for system in ("http://h.test/x", "urn:oid:2.999.1"):
            coding = {"system": system, "code": "1", "display": phrase}
            yield json.dumps({"resourceType": "Condition", "code": {"coding": [coding]}}), plant
            yield json.dumps({"resourceType": "Patient", "maritalStatus": {"coding": [coding]}}), plant


def cda_documents() -> Iterator[tuple[str, str]]:
    frame = '<ClinicalDocument xmlns="urn:hl7-org:v3"><component><structuredBody><component><section>{}</section>'
    frame += "</component></structuredBody></component></ClinicalDocument>"
    for label, plant in PLANTS.items():
        yield frame.format(TABLE.format(label, plant)), plant
        for value in (
            f"<value>{plant}</value>",
            f'<value code="x" displayName="{plant}"/>',
            f'<value value="{plant}"/>',
        ):
            yield frame.format(ENTRY.format(label, value)), plant
    for phrase, plant in PHRASES.items():
        yield frame.format(ENTRY.format(phrase, "")), plant


@cache
def deidentifier(policy: str) -> Deidentifier:
    rules = data_folder("rules")
    key = SecretKey(bytes(range(100, 132)))
    return WorkerFactory(rules, key, load_policy(policy, rules)).deidentifier()


@pytest.mark.parametrize("policy", ["pseudonymised", "safe-harbor"])
@pytest.mark.parametrize("messages", [hl7_messages, fhir_resources, cda_documents])
def test_no_planted_identifier_survives(messages: object, policy: str) -> None:
    assert callable(messages)
    planted = list(messages())
    survivors = [
        (message, plant)
        for message, plant in planted
        if re.search(
            rf"(?<!\d){re.escape(plant)}(?!\d)", deidentifier(policy).message(message.encode()).payload.decode()
        )
    ]
    assert survivors == [], f"{len(survivors)} of {len(planted)} planted identifiers survive; bound: 0"


@pytest.mark.parametrize(
    "text",
    [
        "She is a hundred and two years old.",
        "A nonagenarian woman with CHF.",
        "Pt is a 94 W F with COPD.",
        "She is in her nineties.",
        "Born in 1928, he lives alone. Seen 2026-01-01.",
        "Patientin, 94 Jahre alt",
        "mujer de 95 años",
        "homme de quatre-vingt-quinze ans",
    ],
)
def test_an_age_over_89_in_words_is_generalized(text: str) -> None:
    found = deidentifier("safe-harbor").text(text).text
    stated = ("hundred", "nonagenarian", "94", "nineties", "1928", "95", "quinze")
    assert [word for word in stated if word in found] == []


def test_clinical_numbers_are_kept() -> None:
    values = ("250000", "1769.859285", "288149", "13.2", "45", "7.41", "100000")
    lines = [f"OBX|{n}|NM|{n}^Platelet count^L||{value}|10*3/uL" for n, value in enumerate(values, start=1)]
    message = "\r".join([MSH, "PID|1||4711^^^X^MR||Smith^Joan", *lines, ""])
    output = deidentifier("pseudonymised").message(message.encode()).payload.decode()
    assert [value for value in values if f"||{value}|" not in output] == []


def test_the_texts_of_an_equipment_type_and_of_a_booked_resource_are_kept() -> None:
    lines = ("PID|1||4711^^^X^MR||Smith^Joan||||||||^PRN^Cell Phone", "AIG|1||CT1^CT Scanner^L|EQ^Equipment^L")
    message = "\r".join([MSH, *lines, ""])
    output = deidentifier("pseudonymised").message(message.encode()).payload.decode()
    assert "^PRN^Cell Phone\r" in output
    assert "\rAIG|1||CT1^CT Scanner^L|EQ^Equipment^L\r" in output
