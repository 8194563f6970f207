import shutil
from pathlib import Path

import pytest
from support.trails import TRUSTED, entry, trail, written

from deid_agent.audit.reading import PartitionSummary, verify_trail
from deid_agent.audit.storage import segment_files
from deid_agent.model.errors import ConfigurationError


def test_a_stream_counts_absent_and_repeated_offsets() -> None:
    stream = PartitionSummary()
    for offset in (5, 6, 9, 8, 9, 12):
        stream.add(offset)
    assert (stream.entries, stream.first, stream.last, stream.absent, stream.repeated) == (6, 5, 12, 4, 2)


async def test_absent_or_repeated_offsets_are_not_faults(tmp_path: Path) -> None:
    await written(tmp_path / "audit", [[entry(0), entry(1)], [entry(1), entry(4)], [entry(7, 2)]])
    report = verify_trail(tmp_path / "audit", TRUSTED)
    assert (report.faults, report.warnings) == ([], [])
    stream = report.streams["adt/0"]
    assert (stream.absent, stream.repeated) == (2, 1)
    assert report.streams["adt/2"].entries == 1


async def test_unsigned_entries_are_counted_and_are_not_a_fault(tmp_path: Path) -> None:
    """A trail can be verified while its agent writes."""
    log = trail(tmp_path / "audit")
    await log.append([entry(0)])
    await log.append([entry(1), entry(2)])
    report = verify_trail(tmp_path / "audit", TRUSTED)
    assert report.faults == []
    assert [(warning.code, warning.detail) for warning in report.warnings] == [
        ("UNSIGNED", "3 entries after the last checkpoint")
    ]
    await log.close()
    assert verify_trail(tmp_path / "audit", TRUSTED).warnings == []


async def test_a_folder_without_segments_is_a_fault_but_an_empty_trail_is_not(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    assert [fault.code for fault in verify_trail(tmp_path / "audit").faults] == ["SEGMENT"]
    with pytest.raises(ConfigurationError, match="nowhere"):
        verify_trail(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="kept"):
        verify_trail(tmp_path / "audit", kept=tmp_path / "kept.json")


async def test_the_first_segments_alone_end_before_the_head(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n)] for n in range(5)])
    path = segment_files(folder)[1]
    shutil.copy(path, folder / "00000002.jsonl")
    assert {fault.code for fault in verify_trail(folder, TRUSTED).faults} >= {"SEGMENT", "CHAIN", "COUNT"}
    (folder / "00000002.jsonl").write_bytes(b"")
    (folder / "00000003.jsonl").write_bytes(b"")
    assert [(fault.code, fault.segment) for fault in verify_trail(folder, TRUSTED).faults] == [
        ("SEGMENT", "00000002.jsonl"),
        ("HEAD", "head.json"),
    ]


async def test_lines_that_chain_but_are_not_entries_are_reported(tmp_path: Path) -> None:
    """Lines that a forger who knows the chain, but not the format, adds after the last checkpoint."""
    from deid_agent.audit.storage import chain_value, line_end  # noqa: PLC0415

    folder = tmp_path / "audit"
    await written(folder, [[entry(0)]])
    path = segment_files(folder)[1]
    for body in (b'{"kind":"note"', b'{"kind":"entry","topic":nothing'):
        chain = path.read_bytes()[-67:-3]
        with path.open("ab") as file:
            file.write(body + line_end(chain_value(chain, body)))
    report = verify_trail(folder, TRUSTED)
    assert [(fault.code, fault.line) for fault in report.faults] == [("LINE", 5), ("LINE", 6)]
    assert [warning.code for warning in report.warnings] == ["UNSIGNED"]
