"""No ``repr`` of the product shows text of a message: a traceback with locals, or a failed assertion, would print it.

Examines every object that a function of the product holds or returns while it de-identifies messages of each format.
Dates are not searched: a surrogate may be any day, including the true one.
"""

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from types import FrameType

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder

CANARIES = ("Quixwell", "QUIXWELL", "Zoriana", "447190288", "218 Tannery", "740-555-0184", "zquixwell")
NOTE = (
    "Mrs. Zoriana Quixwell, born 04/17/1962, MRN 447190288, lives at 218 Tannery Row, call 740-555-0184, "
    "mail zquixwell@example.com. Seen by Dr. Quixwell 4/17 - 4/19/1962."
)


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


HL7 = "\r".join(
    (
        r"MSH|^~\&|A|B|C|D|20240311||ORU^R01|1|P|2.5",
        "PID|1||447190288^^^H^MR||Quixwell^Zoriana||19620417|F|||218 Tannery Row^^Chillicothe^OH^45601||740-555-0184",
        f"OBX|1|TX|1||{NOTE}||||||F",
        f"OBX|2|ED|2||^AP^RTF^Base64^{coded('{' + chr(92) + 'rtf1' + chr(92) + 'ansi ' + NOTE + '}')}||||||F",
        f"OBX|3|ED|3||^TEXT^HTML^Base64^{coded(f'<html><body><p>{NOTE}</p></body></html>')}||||||F\r",
    )
)
FHIR = json.dumps(
    {
        "resourceType": "Patient",
        "id": "p447190288",
        "text": {"status": "generated", "div": f'<div xmlns="http://www.w3.org/1999/xhtml">{NOTE}</div>'},
        "name": [{"family": "Quixwell", "given": ["Zoriana"]}],
        "telecom": [{"system": "phone", "value": "740-555-0184"}],
    }
)
CDA = (
    '<ClinicalDocument xmlns="urn:hl7-org:v3"><id root="1.2.3.4" extension="447190288"/><recordTarget><patientRole>'
    '<id root="2.16.840.1.113883.4.1" extension="447190288"/><patient><name><given>Zoriana</given>'
    "<family>Quixwell</family></name></patient></patientRole></recordTarget><component><structuredBody><component>"
    f"<section><title>Note</title><text>{NOTE}</text></section></component></structuredBody></component>"
    "</ClinicalDocument>"
)

ADDRESS: object = object.__repr__


def ours(values: Iterable[object]) -> Iterator[object]:
    """Objects of the product among these and in short lists, except those whose ``repr`` is an address."""
    for value in values:
        for each in value if isinstance(value, list | tuple) and len(value) < 20 else (value,):
            if type(each).__module__.startswith("deid_agent") and type(each).__repr__ is not ADDRESS:
                yield each


def test_no_repr_shows_text_of_a_message() -> None:
    rules = data_folder("rules")
    deidentifier = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules)).deidentifier()
    shown: set[str] = set()
    seen: set[str] = set()

    def look(frame: FrameType, event: str, returned: object) -> None:
        if event != "return" or "/deid_agent/" not in frame.f_code.co_filename or frame.f_code.co_name == "__init__":
            return
        for value in ours([returned, *frame.f_locals.values()]):
            name = f"{type(value).__module__}.{type(value).__qualname__}"
            seen.add(name)
            if name not in shown and any(canary in repr(value) for canary in CANARIES):
                shown.add(name)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        for message in (HL7, FHIR, CDA):
            deidentifier.message(message.encode())
        for text in (NOTE, f"Déjà vu. {NOTE}"):  # the core takes the features of texts in ASCII
            deidentifier.text(text, document="note")
    finally:
        sys.setprofile(before)

    assert {
        "deid_agent.model.spans.Replacement",
        "deid_agent.nlp.token_features.IndexedFeature",
        "deid_agent.model.text.Document",
    } <= seen
    assert not shown
