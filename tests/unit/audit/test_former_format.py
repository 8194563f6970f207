"""A trail of format 1: it still verifies, and an agent continues it in the present format."""

import shutil
from pathlib import Path

import pytest
from support.trails import BUILD, SIGNER, TRUSTED, entry, kinds, lines, offsets, sound, trail

from deid_agent.audit.reading import EntryFilter, first_public_key, read_entries, verify_trail
from deid_agent.audit.storage import LineKind, Signer, line_prefix
from deid_agent.model.errors import ConfigurationError

WRITTEN = Path(__file__).resolve().parents[2] / "cases" / "audit-format-1"
"""Written by the former release: two builds with three entries each."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "audit"))


def test_it_verifies_with_the_key_of_the_secret(folder: Path) -> None:
    report = verify_trail(folder, TRUSTED)
    assert (report.faults, report.warnings, report.entries, report.segments) == ([], [], 6, 2)
    assert (report.keys, report.trail, report.epochs) == ([SIGNER.public], "", 0)
    assert {fault.code for fault in verify_trail(folder, {Signer(b"\2" * 32).public}).faults} == {"KEY"}
    with pytest.raises(ConfigurationError, match="begins the trail is not here"):
        first_public_key(folder)


async def test_a_new_segment_continues_it_with_a_tree_of_its_own(folder: Path) -> None:
    log = trail(folder)
    await log.append([entry(6, output_digest="ef" * 32), entry(7)])
    await log.close()
    assert kinds(folder) == "sceeec sceeec sceek"
    assert offsets(folder) == list(range(8))
    assert sound(folder)
    opening = next(line for line in lines(folder) if line["kind"] == "segment" and line["format"] == 2)
    assert (opening["size"], opening["epoch"], opening["segment"]) == (0, 0, 3)
    assert verify_trail(folder, {*TRUSTED, first_public_key(folder)}).faults == []
    assert {fault.code for fault in verify_trail(folder, {first_public_key(folder)}).faults} == {"KEY"}
    old, new = (next(iter(read_entries(folder, EntryFilter(offset=offset)))) for offset in (0, 6))
    assert (old["output_digest"], new["output_sha256"]) == ("cd" * 16, "ef" * 32)


@pytest.mark.parametrize("name", ["00000001.jsonl", "00000002.jsonl"])
def test_a_changed_entry_is_detected(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes().replace(b"published", b"suppressed", 1))
    assert {"CHAIN"} <= {fault.code for fault in verify_trail(folder, TRUSTED).faults}


async def test_its_end_cannot_be_cut_off_later(folder: Path) -> None:
    log = trail(folder)
    await log.append([entry(6)])
    await log.close()
    for path in (folder / "00000003.jsonl", folder / "00000002.jsonl"):
        path.unlink()
        assert {fault.code for fault in verify_trail(folder, TRUSTED).faults} == {"TRUNCATED"}


async def test_the_former_format_after_the_present_one_is_refused(folder: Path) -> None:
    log = trail(folder, build={**BUILD, "version": "2"})
    await log.append([entry(6)])
    await log.close()
    shutil.copy(WRITTEN / "00000002.jsonl", folder / "00000004.jsonl")
    report = verify_trail(folder, TRUSTED)
    assert any(fault.code == "SEGMENT" and "unknown format 1" in fault.detail for fault in report.faults)
    assert line_prefix(LineKind.SEGMENT) in (folder / "00000003.jsonl").read_bytes()
