"""A crosswalk on disk is a trail of its own kind: chained, signed, verified line by line."""

import base64
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from support.trails import SIGNER, TRUSTED, Clock, entry, make_seed, trail

from deid_agent.agent import KeyUse, PairSealer, PrivateKey
from deid_agent.audit.crosswalk import (
    CROSSWALK_BUILD,
    CrosswalkTrail,
    HalfOpened,
    compare_with_audit,
    find_records,
    half_open,
    open_pairs,
    read_half_opened,
)
from deid_agent.audit.examine import examine_trail
from deid_agent.audit.fhir_events import opening_event
from deid_agent.audit.reading import read_entries, verify_trail
from deid_agent.audit.storage import LineKind, OpeningEntry, encode_item
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.model.errors import ConfigurationError, CrosswalkError, UnsafeError
from deid_agent.telemetry import Telemetry

KEYS = tuple(PrivateKey(bytes([number]) * 32, KeyUse.CROSSWALK) for number in (1, 2))
SEALER = PairSealer(tuple(key.public for key in KEYS))
ROOT = Path(__file__).resolve().parents[3]


def sealed(number: int) -> tuple[str, bytes]:
    """A record and its pairs: equal pairs of equal numbers, in another box."""
    return f"{number:032x}", SEALER.seal([("Patient.id", f"patient-{number}", f"CODE{number:04}")], 1.0)


def crosswalk(folder: Path, project: str = "registry", segment_bytes: int = 1 << 20) -> CrosswalkTrail:
    settings = TrailSettings(checkpoint_s=3600, epoch_s=1e9, kind=LineKind.CROSSWALK, segment_bytes=segment_bytes)
    build = {CROSSWALK_BUILD: {"project": project, "generation": 1, "seal_to": list(SEALER.ids)}}
    log = AuditTrail(folder, build, SIGNER, Telemetry(), settings, clock=Clock(), make_seed=make_seed)
    return CrosswalkTrail(log, project, 1)


async def written(folder: Path, count: int = 5, segment_bytes: int = 1 << 20) -> Path:
    log = crosswalk(folder, segment_bytes=segment_bytes)
    for number in range(count):
        await log.append([sealed(number)])
    await log.close()
    return folder


async def test_a_line_has_the_codes_in_the_clear_and_nothing_else(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk")
    lines = list(read_entries(folder, kind=LineKind.CROSSWALK))
    assert [line["codes"] for line in lines] == [[f"CODE{number:04}"] for number in range(5)]
    first = {name: value for name, value in lines[0].items() if name not in {"sealed", "chain", "build", "place"}}
    assert first == {
        "kind": "crosswalk",
        "v": 1,
        "project": "registry",
        "generation": 1,
        "record": f"{0:032x}",
        "codes": ["CODE0000"],
    }
    assert list(lines[0])[:7] == ["kind", "v", "project", "generation", "record", "codes", "sealed"]
    assert b"patient" not in b"".join(path.read_bytes() for path in folder.iterdir())
    report = verify_trail(folder, TRUSTED)
    assert (report.faults, report.warnings, report.entries, report.kind) == ([], [], 5, LineKind.CROSSWALK)
    assert list(read_entries(folder)) == []


async def test_it_continues_over_segments_and_starts(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk", 40, segment_bytes=4000)
    await written(folder, 3, segment_bytes=4000)
    report = verify_trail(folder, TRUSTED)
    assert (report.faults, report.entries) == ([], 43)
    assert report.segments > 2
    found = [record.record for record in find_records([folder], {"CODE0002"})]
    assert found == [f"{2:032x}"] * 2, "a record that came again has one more line"


async def test_a_program_that_shares_no_code_verifies_it(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk")
    key = verify_trail(folder, TRUSTED).first_key
    command = [sys.executable, str(ROOT / "docs" / "verify_trail.py"), str(folder), key]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    assert ", 5 entries, " in done.stdout


async def test_each_flipped_byte_of_a_line_is_found_with_its_line(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk", 2)
    path = folder / "00000001.jsonl"
    whole = path.read_bytes()
    begin = whole.index(b'{"kind":"crosswalk"')
    number, end = whole[:begin].count(b"\n") + 1, whole.index(b"\n", begin)
    for at in range(begin, end):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        faults = verify_trail(folder, TRUSTED).faults
        assert f"00000001.jsonl:{number}" in {fault.where for fault in faults}, at
        with pytest.raises(ConfigurationError, match=r"crosswalk folder .*audit verify"):
            examine_trail(folder, LineKind.CROSSWALK)


async def test_a_trail_takes_no_entries_of_another_kind(tmp_path: Path) -> None:
    await written(tmp_path / "crosswalk")
    with pytest.raises(ConfigurationError, match=r"audit folder .*: holds a trail of another kind"):
        trail(tmp_path / "crosswalk")
    log = trail(tmp_path / "audit")
    await log.append([entry(1)])
    await log.close()
    with pytest.raises(ConfigurationError, match=r"crosswalk folder .*: holds a trail of another kind"):
        crosswalk(tmp_path / "audit")
    # A line of another kind is a fault, even if it is chained and signed.
    log = trail(tmp_path / "audit")
    await log.append([OpeningEntry(1, 2, "k", "r", "d", 1, 1, 1, verified=True)])
    await log.close()
    assert [fault.code for fault in verify_trail(tmp_path / "audit", TRUSTED).faults][:1] == ["LINE"]


async def test_pairs_that_are_not_one_line_stop_the_agent(tmp_path: Path) -> None:
    log = crosswalk(tmp_path / "crosswalk")
    with pytest.raises(UnsafeError, match="unexpected ValueError"):
        await log.append([("r", b'"codes":[],"sealed":"a\n"')])
    with pytest.raises(UnsafeError, match="earlier write of the crosswalk trail failed"):
        await log.append([sealed(1)])
    await log.close()


async def test_an_unwritable_file_is_an_error_that_names_the_crosswalk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = crosswalk(tmp_path / "crosswalk")
    await log.append([sealed(1)])

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deid_agent.audit.trail.write_all", full)
    with pytest.raises(UnsafeError, match="the crosswalk trail cannot be written: No space left on device"):
        await log.append([sealed(2)])
    monkeypatch.undo()
    await log.close()


async def test_a_half_opened_file_has_no_original_and_opens_for_the_second_only(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk")
    found = [half_open(record, KEYS[0]) for record in find_records([folder], {"CODE0001", "CODE0003"})]
    data = HalfOpened(("CODE0001", "CODE0003", "NONE"), ("t",), tuple(found), verified=True).encode()
    assert b"patient" not in data
    half = read_half_opened(data, "half")
    assert (half.codes, half.verified, [record.keys for record in half.records]) == (
        ("CODE0001", "CODE0003", "NONE"),
        True,
        [(KEYS[1].id,)] * 2,
    )
    with pytest.raises(CrosswalkError, match="half:2: it is damaged, or not sealed to key"):
        open_pairs(half.records[0], KEYS[0], {"CODE0001"})
    (row,) = open_pairs(half.records[0], KEYS[1], {"CODE0001"})
    assert (row["original"], row["path"], row["code"]) == ("patient-1", "Patient.id", "CODE0001")
    assert open_pairs(half.records[1], KEYS[1], {"CODE0001"}) == [], "only codes that this custodian was asked for"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"kind":"half-opened","v":2,"codes":["a"]}\n',
        b'{"kind":"half-opened","v":1}\n',
        b'{"kind":"half-opened","v":1,"codes":["a"]}\n{"sealed":1}\n',
        b'{"kind":"half-opened","v":1,"codes":["a"]}\n\xff\n',
    ],
)
def test_another_file_is_refused_as_half_opened(data: bytes) -> None:
    with pytest.raises(CrosswalkError, match="not a half-opened file"):
        read_half_opened(data, "half")


async def test_lines_that_cannot_be_read_are_skipped_and_later_versions_refused(tmp_path: Path) -> None:
    folder = await written(tmp_path / "crosswalk", 3)
    path = folder / "00000001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"CODE0001"]', b'"CODE0001"}'))
    assert [one.record for one in find_records([folder], {"CODE0001", "CODE0002"})] == [f"{2:032x}"]
    path.write_bytes(whole.replace(b'"v":1', b'"v":2'))
    with pytest.raises(ConfigurationError, match="line of a later release"):
        list(find_records([folder], {"CODE0001"}))
    with pytest.raises(ConfigurationError, match="crosswalk folder"):
        list(find_records([tmp_path / "none"], {"CODE0001"}))


async def test_the_audit_shows_records_without_a_line(tmp_path: Path) -> None:
    remark = b'[{"path":"Patient.id","type":"IDNUM","method":"link","source":"structure","count":1}]'
    masked = b'[{"path":"Patient.text","type":"IDNUM","method":"link","source":"mrn","count":1}]'
    folder = await written(tmp_path / "crosswalk", 2)
    named = {"crosswalks": {"registry": list(SEALER.ids)}}
    for build, entries in (
        ({}, [entry(1, id="old", project="registry", remarks=remark)]),
        (
            named,
            [
                entry(2, id=f"{0:032x}", project="registry", remarks=remark),
                entry(3, id=f"{9:032x}", project="registry", remarks=remark),
                entry(4, id="masked", project="registry", remarks=masked),
                entry(5, id="other", project="trial", remarks=remark),
            ],
        ),
    ):
        log = trail(tmp_path / "audit", build=build)  # type: ignore[arg-type]
        await log.append(entries)
        await log.close()
    found = compare_with_audit(folder, [tmp_path / "audit"])
    assert (found.covered, found.before, found.missing) == (1, 1, ("adt/0/3",))


def test_an_opening_is_a_reidentification_in_fhir() -> None:
    pytest.importorskip("fhir.resources")
    from fhir.resources.auditevent import AuditEvent  # noqa: PLC0415
    from fhir.resources.R4B.auditevent import AuditEvent as R4AuditEvent  # noqa: PLC0415

    opening = OpeningEntry(2, 2, "0a1b2c3d", "ticket 17", "d" * 64, 3, 2, 1, True, ("registry",), ("t1",), "i" * 64)
    body = encode_item(opening, "b1", 1_700_000_000.5)
    item = {**orjson.loads(body + b"}"), "chain": "c" * 64, "build": {"version": "0.1.0"}}
    event = opening_event(item)
    AuditEvent.model_validate(event)
    text = orjson.dumps(event).decode()
    assert '"system":"http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle","code":"reidentify"' in text
    assert re.search('"authorization":.*ticket 17', text)
    assert '"output"' not in text, "an empty value is left out"
    assert str(event["recorded"]) == "2023-11-14T22:13:20.500Z"
    r4 = opening_event(item, r4=True)
    R4AuditEvent.model_validate(r4)
    assert (r4["type"], r4["outcome"]) == (event["code"]["coding"][0], "0")  # type: ignore[index]
    assert opening_event(item | {"records": 0}, r4=True)["outcome"] == "4"
    assert "success" in text and "error" in orjson.dumps(opening_event(item | {"records": 0})).decode()


def test_the_same_pairs_have_another_box_each_time() -> None:
    """A reader of the file does not see that two records have the same content."""
    boxes = {base64.b64encode(sealed(1)[1]) for _ in range(5)}
    assert len(boxes) == 5
