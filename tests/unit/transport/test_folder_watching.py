"""The folder transport that watches: complete files, files that change, and entries that are not files."""

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.folder_files import Make, commit, named, outputs, put, taken
from support.transport_contract import Member

from deid_agent.agent.ports import Record
from deid_agent.telemetry.transport_events import FilesSkipped
from deid_agent.transport.folder.files import Skipped, walk_files
from deid_agent.transport.folder.source import STREAM, FolderTransport


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Later = Callable[[float], Awaitable[list[tuple[bytes | None, bytes, int]]]]


async def watched(make: Make, **more: object) -> tuple[FolderTransport, Later]:
    """A watching transport, and the records it delivers after so many seconds: key, payload, offset."""
    clock = Clock()
    transport = make(watch=True, interval_s=0.001, clock=clock, **more)
    await transport.start(Member())

    async def later(seconds: float) -> list[tuple[bytes | None, bytes, int]]:
        clock.now += seconds
        found = [(r, r.coordinates.offset) for r in await transport.poll(10)]
        for record, _ in found:
            await commit(transport, [named(record, record.key)])
        return [(r.key, r.payload, offset) for r, offset in found]

    return transport, later


async def test_a_watched_file_is_read_once_unchanged_for_the_quiet_time(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "still")
    growing = put(tmp_path, "growing", b"head")
    transport, later = await watched(make)
    assert await later(4.9) == []
    growing.write_bytes(b"head and more")
    assert await later(0.2) == [(b"still", b"x", 0)]
    assert await later(4.8) == []
    growing.write_bytes(b"head and more and tail")
    assert await later(4.9) == []
    assert await later(4.9) == []
    assert await later(0.2) == [(b"growing", b"head and more and tail", 1)]
    put(tmp_path, "late")
    assert await later(1) == []
    assert await later(5) == [(b"late", b"x", 2)]
    assert await later(60) == []
    assert not transport.exhausted


async def test_the_quiet_time_can_be_set(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "a")
    _, later = await watched(make, stable_s=60.0)
    assert await later(59) == []
    assert await later(2) == [(b"a", b"x", 0)]


async def test_a_writer_that_pauses_longer_gives_a_second_complete_record(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "slow.hl7", b"head")
    _, later = await watched(make)
    assert await later(6) == [(b"slow.hl7", b"head", 0)]
    path.write_bytes(b"head and tail")
    assert await later(6) == []
    assert await later(6) == [(b"slow.hl7", b"head and tail", 1)]
    assert outputs(tmp_path) == {"slow.hl7": b"clean head", "slow~1.hl7": b"clean head and tail"}


async def test_a_new_message_under_a_used_name_is_a_new_record(tmp_path: Path, make: Make) -> None:
    old = put(tmp_path, "feed.hl7", b"first")
    _, later = await watched(make)
    assert await later(6) == [(b"feed.hl7", b"first", 0)]
    # Same size, same time of writing, put there by a rename.
    fresh = tmp_path / "aside"
    fresh.write_bytes(b"other")
    os.utime(fresh, ns=(0, old.stat().st_mtime_ns))
    fresh.replace(old)
    assert await later(6) == []
    assert await later(6) == [(b"feed.hl7", b"other", 1)]
    old.unlink()
    assert await later(6) == []
    old.write_bytes(b"third")
    assert await later(6) == []
    assert await later(6) == [(b"feed.hl7", b"third", 2)]


async def test_the_same_bytes_are_not_a_new_record(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"same")
    first, later = await watched(make)
    assert await later(6) == [(b"a", b"same", 0)]
    path.touch()
    assert await later(6) + await later(6) == []
    await first.stop()
    path.write_bytes(b"same")
    second = make()
    assert await taken(second) == []


async def test_a_committed_file_that_changed_while_stopped_is_a_new_record(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"1")
    put(tmp_path, "b", b"stays")
    first = make()
    for record in await taken(first):
        await commit(first, [named(record, record.key)])
    await first.stop()
    path.write_bytes(b"2")
    second = make()
    (record,) = await taken(second)
    assert (record.key, record.payload, record.coordinates.offset) == (b"a", b"2", 2)
    await commit(second, [named(record, b"a")])
    await second.stop()
    assert outputs(tmp_path) == {"a": b"clean 1", "a~2": b"clean 2", "b": b"clean stays"}
    assert await taken(make()) == []


async def test_a_file_that_changes_before_it_is_read_waits_the_quiet_time_again(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"1")
    transport, later = await watched(make)
    transport.pause(STREAM)
    assert await later(6) == []
    path.write_bytes(b"12")
    transport.resume(STREAM)
    assert await later(0) == []
    assert await later(1) == []
    assert await later(6) == [(b"a", b"12", 0)], "no offset is skipped"


async def test_an_entry_that_is_not_a_file_is_counted_in_the_log_and_named_beside_the_dead_letters(
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, ".hidden")
    put(tmp_path, "large.hl7", b"too large")
    (tmp_path / "in" / "Okonkwo.hl7").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "in" / "pipe")
    transport = make(max_file_bytes=5)
    with caplog.at_level("INFO"):
        await taken(transport)
    assert transport.skipped == 2
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert FilesSkipped(folders=0, links=1, special=1) in events
    assert "Okonkwo" not in str(events)
    named = tmp_path / "letters" / "not-taken.jsonl"
    assert [json.loads(line) for line in named.read_text().splitlines()] == [
        {"file": "Okonkwo.hl7", "why": "link"},
        {"file": "pipe", "why": "neither file nor folder"},
        {"file": "large.hl7", "why": "too large", "at": "files/0/0"},
    ]
    assert stat.S_IMODE(named.stat().st_mode) == 0o600
    await transport.stop()
    for path in (tmp_path / "in").iterdir():
        path.unlink()
    await taken(make())
    assert not named.exists()


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a").touch()
    listed = os.scandir

    def scandir(path: bytes) -> object:  # the tests may run as root, whom no mode keeps out
        if path.endswith(b"shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    skipped: dict[bytes, Skipped] = {}
    assert [name for name, _ in walk_files(tmp_path, skipped.__setitem__)] == [b"a"]
    assert skipped == {b"shut": Skipped.FOLDER}


async def test_offsets_rise_even_if_an_older_file_is_ready_last(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "old")
    first = make()
    await taken(first)
    await first.stop()
    (tmp_path / "in" / "old").rename(tmp_path / "aside")
    put(tmp_path, "new")
    second = make(watch=True, interval_s=0.001, stable_s=0.001)
    await second.start(Member())
    seen: list[Record] = []
    async with asyncio.timeout(30):
        while len(seen) < 2:
            seen += await second.poll(10)
            if len(seen) == 1 and not (back := tmp_path / "in" / "old").exists():
                back.write_bytes(b"x")
    assert [(r.key, r.coordinates.offset) for r in seen] == [(b"new", 1), (b"old", 2)]
