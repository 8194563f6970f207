"""A tracer receives each change with its cause and does not change the output."""

from pathlib import Path

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.pipeline.tracing import DocumentTrace, RecordingTracer
from deid_agent.rules.files import data_folder

ROOT = Path(__file__).resolve().parents[3]
MESSAGES = sorted(path for path in (ROOT / "deid_agent" / "samples").iterdir() if path.suffix in {".hl7", ".json"})[:5]


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    rules = data_folder("rules")
    return WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules)).deidentifier()


def rebuilt(page: DocumentTrace) -> bytes:
    """The sanitized document, rebuilt from the original and the changes."""
    at, out = 0, b""
    for change in page.changes:
        assert at <= change.start <= change.end
        out += page.before[at : change.start] + page.after[change.new_start : change.new_end]
        assert len(out) == change.new_end
        at = change.end
    return out + page.before[at:]


@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.stem)
def test_the_changes_are_complete(deidentifier: Deidentifier, path: Path) -> None:
    seen = RecordingTracer()
    payload = path.read_bytes()
    done = deidentifier.message(payload, tracer=seen)
    assert done.payload == deidentifier.message(payload).payload
    assert b"".join(page.after for page in seen.documents if not page.path) == done.payload
    for page in seen.documents:
        assert rebuilt(page) == page.after
        assert all(change.cause.type for change in page.changes)


def test_a_scrubbed_value_is_reported_at_its_original_position(deidentifier: Deidentifier) -> None:
    seen = RecordingTracer()
    deidentifier.message(MESSAGES[0].read_bytes(), tracer=seen)
    (page,) = seen.documents
    scrubbed = [c for c in page.changes if c.cause.source == "guard"]
    assert {page.before[c.start : c.end] for c in scrubbed} == {b"NORTHGATE"}
    assert not any(b"NORTHGATE" in page.after[c.new_start : c.new_end] for c in scrubbed)


def test_an_attachment_has_a_page_of_its_own(deidentifier: Deidentifier) -> None:
    seen = RecordingTracer()
    deidentifier.message(MESSAGES[3].read_bytes(), tracer=seen)
    outer, inner = seen.documents
    assert (outer.path, inner.path) == ("", "DocumentReference.content[0].attachment.data")
    assert [c.cause.type for c in outer.changes].count("ATTACHMENT") == 1
    assert b"CARDIOLOGY CLINIC" in inner.before


def test_a_note_is_counted_in_bytes(deidentifier: Deidentifier) -> None:
    seen = RecordingTracer()
    done = deidentifier.text("Gesehen von Dr. Zoë Müller, é, MRN: 4471902.", tracer=seen)
    (page,) = seen.documents
    assert rebuilt(page) == page.after == done.text.encode()
    assert [page.before[c.start : c.end].decode() for c in page.changes] == ["Zoë Müller", "4471902"]
    assert [c.cause.source for c in page.changes] == ["doctor-title", "mrn-labelled"]


def test_no_repr_shows_a_trace(deidentifier: Deidentifier) -> None:
    seen = RecordingTracer()
    deidentifier.message(MESSAGES[1].read_bytes(), tracer=seen)
    assert "Okafor" not in repr(seen) and "Okafor" not in repr(seen.documents)
