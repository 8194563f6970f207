"""The ledger of a running agent: counted for published records, written at the end, continued by the next start."""

import asyncio
import csv
from pathlib import Path

import pytest
from support.recording import Recording

from deid_agent.agent.job import Processed
from deid_agent.cli.unexamined_file import UnexaminedFile, parse_ledger, render_ledger
from deid_agent.model.errors import ConfigurationError
from deid_agent.telemetry.events import LedgerNotWritten

FOUND = Processed(b"", unexamined=(("hl7v2", "OBX-5.1", "number", 2), ("fhir", "Patient.?", "key", 1)))


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text("utf-8").splitlines()))


def test_counts_are_written_at_the_end_and_continued_by_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "unexamined.csv"

    async def run() -> None:
        ledger = UnexaminedFile(path, Recording())
        async with ledger.kept_written():
            ledger.add(FOUND)

    for times in (1, 2):
        asyncio.run(run())
        assert rows(path)[1:] == [
            ["hl7v2", "OBX-5.1", "number", str(2 * times)],
            ["fhir", "Patient.?", "key", str(times)],
        ]
    assert [each.name for each in tmp_path.iterdir()] == ["unexamined.csv"]


def test_counts_are_written_at_intervals(tmp_path: Path) -> None:
    path, written = tmp_path / "unexamined.csv", asyncio.Event()

    class Signalling(UnexaminedFile):
        def write(self) -> None:
            super().write()
            written.set()

    async def run() -> None:
        ledger = Signalling(path, Recording(), interval_s=0.001)
        async with asyncio.timeout(30), ledger.kept_written():
            ledger.add(FOUND)
            await written.wait()
            assert len(rows(path)) == 3

    asyncio.run(run())


def test_written_counts_are_read_back() -> None:
    counts = {("hl7v2", "OBX-5.1", "number"): 3}
    assert parse_ledger(render_ledger(counts)) == counts
    assert parse_ledger(render_ledger({})) == {}


@pytest.mark.parametrize(
    "content", ["", "a,b\n", "format,path,reason,count\nx,y\n", "format,path,reason,count\na,b,c,d\n"]
)
def test_another_file_is_never_overwritten(content: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"audit\.unexamined: .*is not a ledger"):
        UnexaminedFile(path, Recording())
    assert path.read_text() == content


def test_a_file_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    telemetry = Recording()
    folder = tmp_path / "gone"
    folder.mkdir()
    ledger = UnexaminedFile(folder / "unexamined.csv", telemetry)
    folder.rmdir()
    ledger.add(FOUND)
    ledger.write()
    assert [type(event) for event in telemetry.events] == [LedgerNotWritten]
    folder.mkdir()
    ledger.write()
    assert len(rows(folder / "unexamined.csv")) == 3


def test_a_missing_folder_is_named_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such folder"):
        UnexaminedFile(tmp_path / "none" / "x.csv", Recording())
