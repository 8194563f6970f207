"""The counts of a document: rates and codes, never text; one template for each kind of message."""

import random
from types import SimpleNamespace

import pytest
from support.bounds import make_bound, make_document

from deid_agent.agent import DocumentCounts, Job, Process, Processed
from deid_agent.agent.worker_frames import decode_result, encode_result
from deid_agent.app import DocumentCounter, DriftReference, WorkerFactory, add_document, compare_window, empty_window
from deid_agent.app.document_counts import find_template
from deid_agent.config import DEMO_KEY
from deid_agent.model import PhiType, Source, SourceKind, Span
from deid_agent.pipeline import Deidentifier, load_policy
from deid_agent.recognize.registry import _load_dictionaries
from deid_agent.rules import data_folder

RULES = data_folder("rules")
NOTE = (
    "Mrs. Okafor was seen on 3/4/2024 by Dr. Castellano because of a cough. She sleeps well, takes her tablets as "
    "before and has no pain at rest or on walking to the door."
)
MODEL, DOUBT = Source(SourceKind.TOKEN_MODEL, "token"), Source(SourceKind.LOW_CONFIDENCE, "token")
HL7 = "MSH|^~\\&|LAB||||||{kind}|1|P|2.5\rPID|1||4471902^^^H^MR||Okafor^Ada\r{more}\r"
FHIR = b'{"resourceType":"DocumentReference","type":{"coding":[{"system":"http://loinc.org","code":"34133-9"}]}}'
SPANISH = (
    "La paciente refiere dolor en el pecho desde hace tres semanas y no ha tomado su medicamento.",
    "Se realizó una exploración física sin hallazgos relevantes en el abdomen ni en las extremidades.",
    "El tratamiento con antibióticos continuará durante diez días según la evolución clínica del enfermo.",
    "Acude a urgencias por fiebre elevada, tos seca y malestar general de varios días de evolución.",
)


@pytest.fixture(scope="module")
def factory() -> WorkerFactory:
    return WorkerFactory(
        rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES), profile="budget", bound=make_bound()
    )


@pytest.fixture(scope="module")
def run(factory: WorkerFactory) -> Process:
    """The job callable of a worker."""
    return factory()


@pytest.fixture(scope="module")
def plain(factory: WorkerFactory) -> Deidentifier:
    """A de-identifier that parses and reads nothing."""
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=factory.policy, system="none").deidentifier()


def test_findings_are_counted_by_type_and_confidence_and_only_in_prose() -> None:
    counter = DocumentCounter({"she": 1, "sleeps": 1})
    spans = [Span(5, 11, PhiType.PATIENT, MODEL), Span(44, 54, PhiType.DOCTOR, DOUBT)]
    found = counter.count([(NOTE, spans), ("Okafor, Ada", [Span(0, 6, PhiType.PATIENT, MODEL)])], source="adt")
    assert found is not None
    assert (found.words, found.read, found.unknown) == (31, 31, 29)
    assert dict(found.types) == {"PATIENT": 1, "DOCTOR": 1}
    assert dict(found.confidence) == {"model": 1, "doubt": 1}
    assert counter.count([("Okafor, Ada", [])]) is None, "a field is no document"


def test_a_value_of_the_message_has_no_confidence() -> None:
    known = Span(5, 11, PhiType.PATIENT, Source(SourceKind.KNOWN, "patient-name"))
    found = DocumentCounter({}).count([(NOTE, [known])])
    assert found is not None
    assert (dict(found.types), found.confidence) == ({"PATIENT": 1}, ())


def test_notes_in_another_language_differ() -> None:
    rng = random.Random(9)
    counter = DocumentCounter(_load_dictionaries(RULES).single)

    def count(text: str) -> DocumentCounts:
        found = counter.count([(text, [])])
        assert found is not None
        return found

    english = (
        "The patient reports chest pain for three weeks and has not taken her medicine.",
        "The physical examination found nothing of note in the abdomen or the limbs.",
        "Treatment with antibiotics continues for ten days, depending on the course.",
        "She came to the emergency room with high fever, dry cough and malaise.",
    )
    reference = DriftReference.of([count(" ".join(rng.sample(english, 3))) for _ in range(60)])
    window = empty_window(reference.all)
    for _ in range(60):
        add_document(window, reference.all, count(" ".join(rng.sample(SPANISH, 3))))
    assert "unknown-words" in {each.feature for each in compare_window(window, reference.all).differences}


@pytest.mark.parametrize(
    ("payload", "template"),
    [
        (HL7.format(kind="ORU^R01^ORU_R01", more="OBX|1|TX|8251-1^Comment^LN||x").encode(), "ORU^R01/8251-1"),
        (HL7.format(kind="ADT^A01", more="").encode(), "ADT^A01"),
        (HL7.format(kind="OKAFOR^ADA", more="").encode(), "hl7v2"),
        (HL7.format(kind="ADT^Ada", more="").encode(), "ADT"),
        (HL7.format(kind="", more="").encode(), "hl7v2"),
        (FHIR, "DocumentReference/34133-9"),
        (b'{"resourceType":"Patient","id":"p1"}', "Patient"),
    ],
)
def test_a_template_has_codes_of_fixed_forms_only(plain: Deidentifier, payload: bytes, template: str) -> None:
    assert find_template(plain.plan(payload)) == template


@pytest.mark.parametrize("name", ["hl7v2", "fhir", "cda"])
@pytest.mark.parametrize(
    "raw",
    [b"MSH|" + b"a|" * 8000, b"MSH" + b"|" * 16000, b"MSH", b"<code " * 3000, b'"code":"1-1"' * 1500, b"1-1^" * 4000],
    ids=["fields", "separators", "short", "elements", "codes", "loinc"],
)
def test_hostile_bytes_end_the_search_of_a_template(raw: bytes, name: str) -> None:
    """Each search is linear, or bounded by the 16 KiB that it reads; one that tries all divisions would never end."""
    codec, message = SimpleNamespace(name=name), SimpleNamespace(raw=raw)
    plan = SimpleNamespace(parts=(SimpleNamespace(codec=codec, message=message),))
    assert find_template(plan).partition("/")[0] == name  # type: ignore[arg-type]


def test_a_worker_counts_messages_and_notes_with_a_digest_of_the_patient(run: Process) -> None:
    message = HL7.format(kind="ORU^R01", more=f"OBX|1|TX|8251-1^Comment^LN||{NOTE}").encode()
    results = [run(Job(message, source="adt")), run(Job(message, source="adt"))]
    results.append(
        run(
            Job(
                b'{"id": "n1", "text": "' + NOTE.encode() + b'", "patient_id": "p1"}',
                source="http-default",
                task="note",
            )
        )
    )
    counts = [each.document for each in results if isinstance(each, Processed)]
    assert [each and (each.source, each.template) for each in counts] == [
        ("adt", "ORU^R01/8251-1"),
        ("adt", "ORU^R01/8251-1"),
        ("http-default", "note"),
    ]
    assert all(each is not None and each.words == 31 and dict(each.types).get("DATE") == 1 for each in counts)
    first, again, note = (each.patient if each else "" for each in counts)
    assert first == again != note
    assert len(first) == 16
    for text in map(repr, counts):
        assert not {"4471902", "Okafor", "Castellano", "p1", "3/4/2024"} & {part.strip("'") for part in text.split()}
        assert "Okafor" not in text


def test_a_worker_without_a_bound_counts_nothing(factory: WorkerFactory) -> None:
    run = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=factory.policy, system="none")()
    result = run(Job(HL7.format(kind="ORU^R01", more=f"OBX|1|TX|a||{NOTE}").encode(), source="adt"))
    assert isinstance(result, Processed)
    assert result.document is None


def test_a_fault_of_the_counts_refuses_no_message(run: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(DocumentCounter, "count", fail)
    result = run(Job(HL7.format(kind="ORU^R01", more=f"OBX|1|TX|a||{NOTE}").encode(), source="adt"))
    assert isinstance(result, Processed)
    assert (result.document, b"Okafor" in result.payload) == (None, False)


def test_counts_pass_between_processes() -> None:
    document = make_document(random.Random(4))
    result = Processed(b"x", document=document)
    assert decode_result(encode_result(1, result, 5)) == result
    assert decode_result(encode_result(1, Processed(b"x"), 5)).document is None  # type: ignore[union-attr]


def test_only_counts_and_codes_are_in_a_document() -> None:
    assert set(DocumentCounts._fields) == {
        "source",
        "template",
        "patient",
        "words",
        "read",
        "unknown",
        "types",
        "confidence",
    }
