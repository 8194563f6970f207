import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from fhir.resources.auditevent import AuditEvent
from fhir.resources.R4B.auditevent import AuditEvent as AuditEventR4
from support.trails import BUILD, entry, written

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.audit.fhir_events import audit_event, audit_event_r4
from deid_agent.audit.reading import EntryFilter, read_entries, value_counts
from deid_agent.audit.storage import build_id
from deid_agent.model.errors import ConfigurationError

REMARKS = (
    b'[{"path":"PID-5[1]","type":"PATIENT","method":"surrogate","source":"structure","count":2},'
    b'{"path":"OBX-5[1]","type":"DATE","method":"shift","source":"date-us","count":1}]'
)
DEAD_LETTER = AuditEntry(Coordinates("fhir", 1, 3), Outcome.DEAD_LETTERED, "LEAK", "Patient.name", "guard", 2, "aa")


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    good = [entry(0, input_digest="aa", output_digest="bb", remarks=REMARKS), entry(1)]
    await written(tmp_path / "audit", [good, [DEAD_LETTER], [AuditEntry(Coordinates("adt", 0, 2), Outcome.SUPPRESSED)]])
    return tmp_path / "audit"


def test_entries_are_read_in_order_with_their_build_and_position(folder: Path) -> None:
    items = list(read_entries(folder))
    assert [(item["topic"], item["offset"], item["place"]) for item in items] == [
        ("adt", 0, "00000001.jsonl:3"),
        ("adt", 1, "00000001.jsonl:4"),
        ("fhir", 3, "00000001.jsonl:5"),
        ("adt", 2, "00000001.jsonl:6"),
    ]
    assert {str(item["build"]) for item in items} == {str({"id": build_id(BUILD), **BUILD})}
    assert list(value_counts(items[0])) == [("PATIENT", 2), ("DATE", 1)]


@pytest.mark.parametrize(
    ("choice", "offsets"),
    [
        (EntryFilter(), [0, 1, 3, 2]),
        (EntryFilter(topic="fhir"), [3]),
        (EntryFilter(topic="adt", partition=0, offset=1), [1]),
        (EntryFilter(outcome="suppressed"), [2]),
        (EntryFilter(reason="LEAK"), [3]),
        (EntryFilter(partition=0, reason="LEAK"), []),
    ],
)
def test_a_filter_selects_matching_entries(folder: Path, choice: EntryFilter, offsets: list[int]) -> None:
    assert [item["offset"] for item in read_entries(folder, choice)] == offsets


def test_every_entry_is_an_audit_event_of_fhir(folder: Path) -> None:
    items = list(read_entries(folder))
    # fhir.resources accepts the events and writes them unchanged.
    events = [json.loads(AuditEvent.model_validate(audit_event(item)).model_dump_json()) for item in items]
    assert [event["id"] for event in events] == [item["chain"] for item in items]
    assert [event["outcome"]["code"]["code"] for event in events] == ["success", "success", "error", "success"]
    first, _, dead_letter, _ = events
    assert first["code"]["coding"][0]["code"] == "deidentify"
    assert first["entity"][0]["what"]["identifier"]["value"] == "adt/0/0"
    details = {(detail["type"]["text"], detail["valueString"]) for e in first["entity"] for detail in e["detail"]}
    assert details >= {
        ("input_digest", "aa"),
        ("remark", "PID-5[1]: PATIENT, surrogate by structure, 2"),
        ("policy", "p:ab"),
        ("key", "0badc0de"),
    }
    assert dead_letter["outcome"]["detail"][0]["text"] == "dead_lettered LEAK"
    assert first["recorded"].startswith("2023-11-14T22:13:20.123")


async def test_an_event_of_r4_has_the_content_of_that_of_r5(folder: Path, tmp_path: Path) -> None:
    poisoned = AuditEntry(Coordinates("adt", 0, 9), Outcome.REFUSED, "POISON", stage="process")
    await written(tmp_path / "other", [[poisoned]])
    items = [*read_entries(folder), *read_entries(tmp_path / "other")]
    events = [json.loads(AuditEventR4.model_validate(audit_event_r4(item)).model_dump_json()) for item in items]
    raw = [entity for item in items for form in (audit_event, audit_event_r4) for entity in _entities(form(item))]
    assert [] not in [entity.get("detail") for entity in raw], "FHIR has no empty lists"
    assert [event["outcome"] for event in events] == ["0", "0", "4", "0", "8"]
    for item, old in zip(items, events, strict=True):
        new = json.loads(json.dumps(audit_event(item)))
        assert old["type"] == new["code"]["coding"][0]
        assert old["outcomeDesc"] == new["outcome"]["detail"][0]["text"]
        assert [old[name] for name in ("id", "agent", "source", "action")] == [
            new[name] for name in ("id", "agent", "source", "action")
        ]
        for before, after in zip(old["entity"], new["entity"], strict=True):
            assert before["what"] == after["what"]
            assert [(each["type"], each["valueString"]) for each in before.get("detail", ())] == [
                (each["type"]["text"], each["valueString"]) for each in after.get("detail", ())
            ]


def test_a_truncated_end_is_skipped_and_an_unreadable_line_is_reported(folder: Path) -> None:
    path = folder / "00000001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"entry","to')
    assert len(list(read_entries(folder))) == 4
    path.write_bytes(whole + b'{"kind":"entry","to\n')
    with pytest.raises(ConfigurationError, match=r"00000001.jsonl:9 cannot be read; verify it"):
        list(read_entries(folder))


@pytest.mark.parametrize("forged", ["x", 7, None, {}, ["x", None, 3, []], [{"count": "many"}], [{"count": -1}], [{}]])
def test_remarks_of_unknown_form_are_ignored(folder: Path, forged: object) -> None:
    item = {**next(read_entries(folder)), "remarks": forged}
    assert sum(count for _, count in value_counts(item)) == 0
    AuditEvent.model_validate(audit_event(item))
    AuditEventR4.model_validate(audit_event_r4(item))


def _entities(event: Mapping[str, object]) -> list[dict[str, object]]:
    found = json.loads(json.dumps(event))["entity"]
    assert isinstance(found, list)
    return found
