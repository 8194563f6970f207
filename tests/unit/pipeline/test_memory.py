"""Names that one message of a patient teaches are found in the patient's later messages, if a memory is passed in."""

import base64
import json
from dataclasses import replace

import pytest

from deid_agent.agent.job import Job, Processed
from deid_agent.app import AuditDigester, JobRunner, WorkerFactory
from deid_agent.cli.service_parts import check_memory
from deid_agent.config import EnvelopeSettings
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.config.settings import Settings
from deid_agent.model import ConfigurationError, PhiType, Span, parse_source
from deid_agent.pipeline import make_envelope
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.recognize.name_memory import NameMemory, PatientNames
from deid_agent.recognize.remembered_names import MEMORY_SOURCE
from deid_agent.rules import data_folder

RULES = data_folder("rules")
FACTORY = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES), system="rules")
"""The rules find a bare name only if a field, a title or the memory names it."""


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    return FACTORY.deidentifier()


def message(note: str, *, patient: str = "4471902", kin: str = "", number: int = 1, attached: str = "") -> bytes:
    data = base64.b64encode(attached.encode()).decode()
    lines = [
        rf"MSH|^~\&|A|B|C|D|20200101||ORU^R01|{number}|P|2.5",
        f"PID|1||{patient}^^^H^MR||Papadopoulos^Ashley||19700101|F",
        *([f"NK1|1|{kin}|SIS"] if kin else []),
        f"OBX|1|TX|N^Note||{note}",
        *([f"OBX|2|ED|N^Note||^TEXT^plain^Base64^{data}"] if attached else []),
    ]
    return "\r".join([*lines, ""]).encode()


def memory(patients: int = 10) -> NameMemory:
    return NameMemory(DEMO_KEY.secret, patients)


def note_of(payload: bytes) -> str:
    return payload.decode().split("OBX|1|TX|N^Note||")[1].split("\r")[0]


FIRST = message("x", kin="Okonkwo^Zyblorqua")
SECOND = message("Zyblorqua 3620 g, 4 wks.", number=2)


def test_a_name_of_one_message_is_found_in_the_next_of_the_same_patient(deidentifier: Deidentifier) -> None:
    held = memory()
    assert note_of(deidentifier.message(SECOND, memory=held).payload) == "Zyblorqua 3620 g, 4 wks."
    first = deidentifier.message(FIRST, memory=held).payload.decode()
    given = first.split("NK1|1|")[1].split("|")[0].split("^")[1]
    done = deidentifier.message(SECOND, memory=held)
    assert note_of(done.payload) == f"{given} 3620 g, 4 wks.", "the surrogate that the name had in the first message"
    assert [(r.type, r.source, r.count) for r in done.remarks if r.path.startswith("OBX")] == [
        ("PATIENT", "again:memory", 1)
    ]


def test_a_name_is_not_found_for_another_patient(deidentifier: Deidentifier) -> None:
    held = memory()
    deidentifier.message(FIRST, memory=held)
    other = message("Zyblorqua 3620 g, 4 wks.", patient="5512003")
    assert note_of(deidentifier.message(other, memory=held).payload) == "Zyblorqua 3620 g, 4 wks."


def test_a_name_that_a_title_introduces_is_remembered(deidentifier: Deidentifier) -> None:
    held = memory()
    deidentifier.message(message("Seen with Mrs. Zyblorqua today."), memory=held)
    done = deidentifier.message(message("Zyblorqua 3620 g, 4 wks.", number=2), memory=held)
    assert not note_of(done.payload).startswith("Zyblorqua")


def test_names_are_remembered_and_found_in_attachments(deidentifier: Deidentifier) -> None:
    held = memory()
    deidentifier.message(message("x", attached="Seen with Mrs. Zyblorqua today."), memory=held)
    done = deidentifier.message(message("x", attached="Zyblorqua 3620 g, 4 wks.", number=2), memory=held)
    data = done.payload.decode().split("Base64^")[1].split("\r")[0]
    assert "Zyblorqua" not in base64.b64decode(data).decode()


def test_a_message_without_a_patient_teaches_and_finds_nothing(deidentifier: Deidentifier) -> None:
    held = memory()
    deidentifier.message(message("x", patient="", kin="Okonkwo^Zyblorqua"), memory=held)
    assert len(held) == 0


def test_a_found_name_changes_no_other_surrogate(deidentifier: Deidentifier) -> None:
    """A clinician is mapped by the whole name if the document has it: here only the memory knows the given name."""
    note = "Zyblorqua Tellerby 14:30. Dr. Tellerby and Mrs. Okonkwo 740-555-0183 on 3/4/2019, 14:40."
    held = memory()
    attending = message("x").replace(b"OBX|", b"PV1|1|I|||||123^Tellerby^Zyblorqua\rOBX|", 1)
    deidentifier.message(attending, memory=held)
    with_memory = note_of(deidentifier.message(message(note, number=2), memory=held).payload)
    without = note_of(deidentifier.message(message(note, number=2)).payload)
    assert without.startswith("Zyblorqua ")
    assert not with_memory.startswith("Zyblorqua ")
    assert with_memory.split(" 14:30. ")[1] == without.split(" 14:30. ")[1]


def test_a_remembered_name_introduces_no_person(deidentifier: Deidentifier) -> None:
    """A person of the document decides how the other forms of the name are replaced."""
    text = "Zyblorqua Tellerby"
    people = [
        list(deidentifier._replacer.find_people(text, [Span(0, len(text), PhiType.DOCTOR, source)]))
        for source in (parse_source("doctor-title"), MEMORY_SOURCE)
    ]
    assert [len(found) for found in people] == [1, 0]


def test_a_batch_gives_the_results_of_single_messages(deidentifier: Deidentifier) -> None:
    jobs = [Job(payload) for payload in (SECOND, FIRST, b"no message", SECOND, message("Zyblorqua", patient="5512003"))]
    together, alone = (JobRunner(deidentifier, AuditDigester(DEMO_KEY), 10_000, memory=memory()) for _ in range(2))
    results = [result for result, _ in together.process_batch(jobs)]
    singles = [alone(job) for job in jobs]
    assert [type(result) for result in results] == [type(result) for result in singles]
    payloads = [result.payload for result in results if isinstance(result, Processed)]
    assert payloads == [result.payload for result in singles if isinstance(result, Processed)]
    assert note_of(payloads[0]).startswith("Zyblorqua")
    assert not note_of(payloads[2]).startswith("Zyblorqua")


def test_without_the_setting_a_result_depends_on_no_earlier_message() -> None:
    assert WorkerFactory(RULES, DEMO_KEY, FACTORY.policy).remembered_patients == 0
    runner = JobRunner(FACTORY.deidentifier(), AuditDigester(DEMO_KEY), 10_000)
    assert runner.memory is None
    before = runner(Job(SECOND))
    runner(Job(FIRST))
    after = runner(Job(SECOND))
    assert isinstance(before, Processed)
    assert isinstance(after, Processed)
    assert (before.payload, before.remarks) == (after.payload, after.remarks)


def test_with_the_setting_a_worker_remembers() -> None:
    process = replace(FACTORY, remembered_patients=10)()
    assert callable(process)
    process(Job(FIRST))
    done = process(Job(SECOND))
    assert isinstance(done, Processed)
    assert not note_of(done.payload).startswith("Zyblorqua")


def test_a_fault_of_the_memory_is_kept_for_its_message(
    deidentifier: Deidentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = memory()

    real = held.of_patient

    def of_patient(scope: str) -> PatientNames:
        if scope == "5512003":
            raise KeyError("Zyblorqua")
        return real(scope)

    plans = [deidentifier.plan(payload) for payload in (message("x", patient="5512003"), FIRST)]
    monkeypatch.setattr(held, "of_patient", of_patient)
    bad, good = deidentifier.recognize(plans, held)
    assert isinstance(bad.error, KeyError)
    assert good.error is None


def test_a_field_of_an_envelope_teaches_the_patient_of_its_message(deidentifier: Deidentifier) -> None:
    """And is searched for the names of that patient: the first record has two patients, the second the other one."""
    settings = {"payload": "/events/*/data", "fields": {"/events/*/note": "text"}}
    form = make_envelope(EnvelopeSettings.model_validate(settings))

    def record(*events: tuple[str, str, str]) -> bytes:
        made = [
            {"note": note, "data": message(text, patient=patient, number=number).decode()}
            for number, (note, patient, text) in enumerate(events)
        ]
        return json.dumps({"events": made}).encode()

    def notes(raw: bytes) -> list[str]:
        return [event["note"] for event in json.loads(raw)["events"]]

    held = memory()
    two = record(("x", "4471902", "x"), ("Seen with Mrs. Zyblorqua.", "5512003", "x"))
    deidentifier.message(two, memory=held, envelope=form)
    later = record(("Zyblorqua 3620 g", "4471902", "x"), ("Zyblorqua 3620 g", "5512003", "x"))
    one, other = notes(deidentifier.message(later, memory=held, envelope=form).payload)
    assert one.startswith("Zyblorqua") and not other.startswith("Zyblorqua")


def test_a_policy_that_unlinks_documents_refuses_the_memory() -> None:
    settings = Settings.model_validate(
        {
            "transport": "directory",
            "directory": {"input": "in", "output": "out", "dead_letters": "dlq", "state": "state"},
            "dead_letters": {"plain": True},
            "audit": {"path": "audit"},
            "agent": {"remembered_patients": 5, "workers": 2},
        }
    )
    assert check_memory(settings, FACTORY.policy).startswith("names of 5 patients in each of the workers")
    with pytest.raises(ConfigurationError, match=r"agent\.remembered_patients"):
        check_memory(settings, load_policy("unlinked", RULES))
    off = settings.model_copy(update={"agent": settings.agent.model_copy(update={"remembered_patients": 0})})
    check_memory(off, load_policy("unlinked", RULES))
