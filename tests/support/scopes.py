"""The patient of a message as the default policy chooses it."""

from pathlib import Path

from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.hl7v2 import Hl7Codec
from deid_agent.model import Message, PatientChoice

RULES = Path(__file__).parents[2] / "rules"
DEFAULT = PatientChoice()
CODECS = (Hl7Codec(RULES), FhirCodec(RULES), CdaCodec(RULES))


def scope_of(message: Message, choice: PatientChoice = DEFAULT) -> str | None:
    """The scope of the patient of ``message``."""
    return choice.scope(message.patients)


def scope_of_payload(payload: str, choice: PatientChoice = DEFAULT) -> str | None:
    """The scope of the patient of a payload with one message in any format."""
    raw = payload.encode()
    (message,) = next(codec for codec in CODECS if codec.detect(raw)).parse(raw)
    return scope_of(message, choice)
