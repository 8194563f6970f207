"""A FHIR bulk export of three invented patients, and workers for its lines, for the tests of ``batch``."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from support.fhir import codec
from support.tables import parts

from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_export import list_export, survey_export
from deid_agent.batch.bulk_identities import IdentityStore, IdentityWriter
from deid_agent.batch.bulk_lines import LineResult, LineWorker
from deid_agent.pipeline import Deidentifier

Resource = dict[str, Any]
CANARIES = ("Quixwell", "Zyblorq", "Vrondel", "Thrumbold", "Okoribe", "4471902", "555-0183", "Wexcombe", "p100")
MRN = "http://hospital.example/mrn"
NPI = "http://hl7.org/fhir/sid/us-npi"


@lru_cache
def messages() -> Deidentifier:
    """The de-identifier of ``parts`` for messages."""
    return parts().deidentifier()


def patient(key: str, given: str, family: str, mrn: str, born: str, **more: object) -> Resource:
    kind = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}
    return {
        "resourceType": "Patient",
        "id": key,
        "identifier": [{"type": kind, "system": MRN, "value": mrn}],
        "name": [{"family": family, "given": [given]}],
        "birthDate": born,
        "address": [{"line": ["17 Wexcombe Lane"], "city": "Thornaby", "state": "OR", "postalCode": "97031"}],
        **more,
    }


def note(text: str, media: str = "text/plain") -> Resource:
    return {"contentType": media, "data": base64.b64encode(text.encode()).decode()}


def document(
    key: str, subject: str, attachment: Resource, author: str | Resource = "Practitioner/d7", **more: object
) -> Resource:
    return {
        "resourceType": "DocumentReference",
        "id": key,
        "status": "current",
        "subject": {"reference": subject},
        "date": "2019-03-09T10:00:00Z",
        "author": [{"reference": author} if isinstance(author, str) else author],
        "content": [{"attachment": attachment}],
        **more,
    }


PATIENTS: list[Resource] = [
    patient(
        "p100", "Zyblorq", "Quixwell", "4471902", "1957-04-22", telecom=[{"system": "phone", "value": "740-555-0183"}]
    ),
    patient("p101", "Bede", "Vrondel", "4471903", "1960-01-02"),
    patient("p102", "Ilse", "Thrumbold", "4471904", "2015-06-30"),
]
DOCTOR: Resource = {
    "resourceType": "Practitioner",
    "id": "d7",
    "identifier": [{"system": NPI, "value": "9999900498"}],
    "name": [{"family": "Okoribe", "given": ["Adaeze"]}],
}
TEXT = "Quixwell slept well, seen 3/4/2019 and 3/9 by okoribe. Zyblorq, MRN 4471902, lives at 17 Wexcombe Lane."
DOCUMENTS: list[Resource] = [
    document("n1", "Patient/p100", note(TEXT)),
    document("n2", "https://fhir.example/r4/Patient/p101/_history/2", note("vrondel came 2019-03-04.")),
    document("n3", "Patient/p100", {"contentType": "text/plain", "url": "Binary/b1"}),
]
BINARY: Resource = {"resourceType": "Binary", "id": "b1", **note("Thank you for sending quixwell, seen 3/4.")}
ENCOUNTERS: list[Resource] = [
    {
        "resourceType": "Encounter",
        "id": f"e{n}",
        "status": "finished",
        "class": {"code": "AMB"},
        "subject": {"reference": f"Patient/p{100 + n % 3}"},
        "period": {"start": f"2019-03-0{1 + n}", "end": f"2019-03-0{2 + n}"},
    }
    for n in range(6)
]
FILES: Mapping[str, Sequence[Resource]] = {
    "Patient.ndjson": PATIENTS,
    "Practitioner.ndjson": [DOCTOR],
    "DocumentReference.ndjson": DOCUMENTS,
    "Binary.ndjson": [BINARY],
    "Encounter-Quixwell.ndjson": ENCOUNTERS,
}


def line(resource: Resource) -> bytes:
    return orjson.dumps(resource)


def lines(resources: Iterable[Resource]) -> bytes:
    return b"".join(line(each) + b"\n" for each in resources)


def write_export(folder: Path, files: Mapping[str, Sequence[Resource]] = FILES) -> Path:
    """The export in ``folder``."""
    folder.mkdir(exist_ok=True)
    for name, resources in files.items():
        (folder / name).write_bytes(lines(resources))
    return folder


@contextmanager
def worker(folder: Path) -> Iterator[LineWorker]:
    """A worker in this process that knows the persons of the export."""
    made = parts()
    with IdentityWriter(folder.parent) as identities:
        files = list(survey_export(list_export(folder).files, 1 << 20, Digests(made.key), identities))
        assert not [file for file in files if file.fault]
        store = IdentityStore(identities.finish(), codec())
        yield LineWorker(messages(), store, codec().resources, made.max_bytes)


def read(result: LineResult) -> Any:
    """The resource of a line that was not refused."""
    assert not result.reason
    return orjson.loads(result.content)


def text_of(resource: Resource) -> str:
    """The text of a document or a Binary."""
    holder = resource if resource["resourceType"] == "Binary" else resource["content"][0]["attachment"]
    return base64.b64decode(holder["data"]).decode()
