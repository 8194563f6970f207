"""FHIR XML and HL7 v2 XML: known PHI goes from everywhere, and both syntaxes have equal surrogates."""

import base64
import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
from support.fhir import RULES
from support.fhir_xml import NAMESPACE
from support.fhir_xml import to_xml as fhir_to_xml
from support.hl7_xml import NAMESPACE as V2
from support.hl7_xml import to_xml as hl7_to_xml
from support.markup import shape
from support.shared import shared

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model import MessageError, Reason
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

NAMES = re.compile(r"okonkwo|chidi|778812|19610517|1961-05-17", re.IGNORECASE)
XHTML = "http://www.w3.org/1999/xhtml"
BUNDLE = {
    "resourceType": "Bundle",
    "id": "b7",
    "type": "collection",
    "entry": [
        {
            "fullUrl": "urn:uuid:3fa0da95-6035-4665-8aab-75b52d23da18",
            "resource": {
                "resourceType": "Patient",
                "id": "pt-9",
                "identifier": [{"system": "http://h.example/mrn", "value": "MRN-778812"}],
                "name": [{"family": "Okonkwo", "given": ["Chidi"]}],
                "birthDate": "1961-05-17",
                "telecom": [{"system": "phone", "value": "740-555-0183"}],
                "address": [{"line": ["218 Tannery Row"], "city": "Chillicothe", "postalCode": "45601"}],
            },
        },
        {
            "resource": {
                "resourceType": "Observation",
                "id": "o1",
                "status": "final",
                "code": {"text": "Potassium"},
                "subject": {"reference": "Patient/pt-9"},
                "effectiveDateTime": "2023-04-05T10:00:00Z",
                "valueQuantity": {"value": 4.1, "unit": "mmol/L"},
                "note": [{"text": "Chidi Okonkwo called on 2023-04-06; MRN-778812.\nHe's well & home."}],
            }
        },
    ],
}
MESSAGE = (
    "MSH|^~\\&|LAB|HOSP|||20240102030405||ORU^R01|C17|P|2.5\n"
    "PID|||MRN778812^^^HOSP^MR||Okonkwo^Chidi^M||19610517|M|||218 Tannery Row^^Chillicothe^OH^45601\n"
    "OBR|1|||24323-8^CMP^LN|||20240101\n"
    "OBX|1|NM|2823-3^Potassium^LN||4.1|mmol/L\n"
    "OBX|2|TX|11^Note^L||seen Chidi Okonkwo \\T\\ son\\.br\\on 20240101\n"
)


@lru_cache(maxsize=2)
def deidentifier(policy: str = "pseudonymised") -> Deidentifier:
    return WorkerFactory(RULES, DEMO_KEY, load_policy(policy, RULES)).deidentifier()


def sanitized(text: str) -> str:
    return deidentifier().message(text.encode()).payload.decode()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def patient(inside: str) -> str:
    return (
        f'<Patient {NAMESPACE}><identifier><value value="MRN-778812"/></identifier><name><family value="Okonkwo"/>'
        f'<given value="Chidi"/></name><birthDate value="1961-05-17"/>{inside}</Patient>'
    )


def message(inside: str) -> str:
    return hl7_to_xml(MESSAGE).replace("</ORU_R01.PATIENT_RESULT>", f"{inside}</ORU_R01.PATIENT_RESULT>")


def test_fhir_has_the_same_output_in_both_syntaxes() -> None:
    json_ = deidentifier().message(json.dumps(BUNDLE).encode()).payload.decode()

    assert sanitized(fhir_to_xml(json.dumps(BUNDLE))) == fhir_to_xml(json_)
    assert not NAMES.search(json_)


def test_hl7_has_the_same_output_in_both_syntaxes() -> None:
    usual = deidentifier().message(MESSAGE.replace("\n", "\r").encode()).payload.decode()

    assert sanitized(hl7_to_xml(MESSAGE)) == hl7_to_xml(usual)
    assert not NAMES.search(usual)


@pytest.mark.parametrize(
    "inside",
    [
        "<!-- Chidi Okonkwo -->",
        "<?app Chidi Okonkwo?>",
        "Chidi Okonkwo",
        "<![CDATA[Chidi Okonkwo & son]]>",
        "<active value='true' note='Chidi Okonkwo'/>",
        "<nickname value='Okon&#107;wo'/>",
        "<nickname>Chidi Okonkwo</nickname>",
        "<maritalStatus xml:id='Okonkwo'><text value='MRN-7788&#x31;2'/></maritalStatus>",
        f"<text><div xmlns='{XHTML}' title='Okonkwo'><p>Chidi <b>Okon</b>kwo</p><!-- Okonkwo --></div></text>",
        "<contained><Basic><id value='MRN-778812'/></Basic></contained>",
        "<extension url='http://x.example/okonkwo'><valueString value='Chidi Okonkwo'/></extension>",
        f"<photo><data value='{encoded(patient(''))}'/></photo>",
        f"<photo><data value='{encoded(json.dumps(BUNDLE))}'/></photo>",
        f"<photo><data value='{encoded(MESSAGE)}'/></photo>",
    ],
)
def test_known_phi_of_fhir_goes_from_everywhere(inside: str) -> None:
    raw = patient(inside)
    out = sanitized(raw)

    decoded = [base64.b64decode(found).decode() for found in re.findall(r'data value=.([^\'"]*)', out)]
    assert not NAMES.search(out + "".join(decoded))
    assert shape(out.encode()) == shape(raw.encode())


@pytest.mark.parametrize(
    "inside",
    [
        "<!-- Chidi Okonkwo -->",
        "Chidi Okonkwo",
        "<PV1 LongName='Okonkwo'><PV1.2>I</PV1.2></PV1>",
        "<ZPD><ZPD.1>Okonkwo</ZPD.1><ZPD.2><CX.1>MRN778812</CX.1></ZPD.2></ZPD>",
        "<NTE><NTE.3><![CDATA[seen Chidi <b>Okonkwo</b>]]></NTE.3></NTE>",
        "<NTE><NTE.3>seen Okon&#107;wo<escape V='.br'/>and <escape V='X4F'/>konkwo</NTE.3></NTE>",
        f"<OBX><OBX.2>ED</OBX.2><OBX.5><ED.4>Base64</ED.4><ED.5>{encoded(patient(''))}</ED.5></OBX.5></OBX>",
    ],
)
def test_known_phi_of_hl7_goes_from_everywhere(inside: str) -> None:
    out = sanitized(message(inside))

    decoded = [base64.b64decode(found).decode() for found in re.findall(r"<ED.5>([^<]*)", out)]
    assert not NAMES.search(out + "".join(decoded))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (patient("<okonkwo value='x'/>"), Reason.UNSUPPORTED),
        (patient("<active value='true' okonkwo='x'/>"), Reason.UNSUPPORTED),
        (patient("").replace(NAMESPACE, f'{NAMESPACE} xmlns:q="urn:okonkwo"'), Reason.LEAK),
        (message("").replace(V2, f'{V2} xmlns:q="urn:okonkwo"'), Reason.LEAK),
        (message("<okonkwo><NTE/></okonkwo>"), Reason.LEAK),
    ],
)
def test_a_name_that_cannot_be_rewritten_is_refused(text: str, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        sanitized(text)
    assert caught.value.reason is reason
    assert "okonkwo" not in str(caught.value)


def test_another_root_element_is_refused_without_its_name() -> None:
    with pytest.raises(MessageError, match="XML with another root element") as caught:
        sanitized("<Okonkwo xmlns='urn:okonkwo'/>")
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "konkwo" not in str(caught.value)


def test_examples_of_fhir_xml_are_published_and_keep_changes_none() -> None:
    files: list[Path] = [
        path for path in shared("conformance").rglob("*.xml") if b"http://hl7.org/fhir" in path.read_bytes()[:4000]
    ]
    assert len(files) >= 29
    for path in files:
        raw = path.read_bytes()
        assert deidentifier("keep").message(raw).payload == raw, path.name
        assert shape(deidentifier().message(raw).payload) == shape(raw), path.name
