"""Record keys: only the type of a FHIR reference is kept."""

import orjson
import pytest
from support.corpus import RULES, surrogates

from deid_agent.app import WorkerFactory
from deid_agent.codec.fhir import FhirCodec
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.pipeline.policy import load_policy
from deid_agent.pipeline.replacement import Replacer, sanitize_key
from deid_agent.surrogate import Scope

RESOURCES = FhirCodec(RULES).resources


def key_of(text: str) -> str:
    replacer = Replacer(load_policy("pseudonymised", RULES), surrogates())
    new = sanitize_key(text.encode(), (), Scope("d"), replacer, lambda doc: (), RESOURCES)
    assert new is not None
    return new.decode()


def identity(text: str) -> str:
    return surrogates().replace(PhiType.IDNUM, text, kind=ValueKind.VALUE, scope=Scope("other"))


@pytest.mark.parametrize("type_", ["Patient", "ProcedureRequest", "ImagingSelection"])  # of R3 to R5, of R3, of R5
def test_a_reference_joins_with_the_id_of_its_resource(type_: str) -> None:
    assert key_of(f"{type_}/90217") == f"{type_}/{identity('90217')}"


def test_an_assembled_deidentifier_knows_the_types() -> None:
    whole = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES)).deidentifier()
    done = whole.message(b'{"resourceType": "Patient", "id": "90217"}', key=b"Patient/90217")

    assert done.key == b"Patient/" + orjson.loads(done.payload)["id"].encode()


@pytest.mark.parametrize(
    "text", ["OAH/90217", "Okafor/90217", "KBTH/2018-4471", "Patients/90217", "DomainResource/90217"]
)
def test_other_words_before_a_slash_are_replaced(text: str) -> None:
    """A record number of two parts is one number, in its field and as a key."""
    assert key_of(text) == identity(text)
    assert key_of(text).partition("/")[0] != text.partition("/")[0]
