"""What only the folder transport does: names, collisions, watching, a second process, things in the way."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from support.transport_contract import Member, published, refused

from deid_agent.agent.ports import Coordinates, Outcome, Output, Record, Settled
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.events import FilesSkipped
from deid_agent.transport.files import STREAM, DirectoryTransport
from deid_agent.transport.folders import Skipped, walk

Make = Callable[..., DirectoryTransport]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[DirectoryTransport] = []
    (tmp_path / "in").mkdir()

    def make(**more: object) -> DirectoryTransport:
        folders = (tmp_path / name for name in ("in", "out", "letters", "state"))
        made.append(DirectoryTransport(*folders, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        await transport.stop()


def put(root: Path, name: str, data: bytes = b"x") -> Path:
    path = root / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


async def taken(transport: DirectoryTransport) -> list[Record]:
    await transport.start(Member())
    found: list[Record] = []
    while not transport.exhausted:
        found += await transport.poll(10)
    return found


async def settle(transport: DirectoryTransport, batch: Sequence[Settled]) -> None:
    await transport.settle(STREAM, batch, batch[-1].record.coordinates.offset + 1)


def named(record: Record, key: bytes | None) -> Settled:
    return Settled(record, Outcome.PUBLISHED, Output(b"clean " + record.payload, key))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def outputs(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root / "out")): p.read_bytes() for p in (root / "out").rglob("*") if p.is_file()}


async def test_regular_files_come_in_order_of_their_names(tmp_path: Path, make: Make) -> None:
    for name in ("b.hl7", "a/z.hl7", "a.hl7", ".hidden", "c/.git/x", "ä.hl7"):
        put(tmp_path, name)
    (tmp_path / "in" / "link.hl7").symlink_to(tmp_path / "in" / "a.hl7")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "pipe")
    records = await taken(make())
    assert [r.key for r in records] == [b"a.hl7", b"a/z.hl7", b"b.hl7", "ä.hl7".encode()]
    assert [r.coordinates for r in records] == [Coordinates("files", 0, i) for i in range(4)]
    assert all(r.timestamp_ms for r in records)


async def test_outputs_stand_under_the_sanitized_name(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "ward/x.hl7", b"1")
    transport = make()
    (record,) = await taken(transport)
    await settle(transport, [named(record, b"ward/clean.hl7")])
    assert outputs(tmp_path) == {"ward/clean.hl7": b"clean 1"}


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"../x",
        b"a/../../x",
        b"/etc/x",
        b"a//b",
        b".",
        b"a/.hidden",
        b"x\0y",
        b"y" * 300,
        b"link/x",
        b"folder",
    ],
)
async def test_no_key_leads_out_of_the_output(tmp_path: Path, make: Make, key: bytes | None) -> None:
    put(tmp_path, "x")
    (tmp_path / "elsewhere").mkdir()
    transport = make()
    (record,) = await taken(transport)
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "folder").mkdir()
    await settle(transport, [named(record, key)])
    assert outputs(tmp_path) == {"record-0": b"clean x"}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert names(tmp_path) == {"in", "out", "letters", "state", "elsewhere"}


async def test_two_inputs_with_one_sanitized_name_stay_two(tmp_path: Path, make: Make) -> None:
    for number, name in enumerate(("a.hl7", "b.hl7", "c", "d")):
        put(tmp_path, name, b"%d" % number)
    first = make()
    records = await taken(first)
    await settle(first, [named(records[0], b"same.hl7"), named(records[1], b"same.hl7")])
    await first.stop()
    second = make()
    rest = await taken(second)
    await settle(second, [named(rest[0], b"same.hl7"), named(rest[1], b"same~2.hl7")])
    assert outputs(tmp_path) == {
        "same.hl7": b"clean 0",
        "same~1.hl7": b"clean 1",
        "same~2.hl7": b"clean 2",
        "same~2~3.hl7": b"clean 3",
    }


async def test_a_crash_between_output_and_journal_writes_the_same_file_again(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        put(tmp_path, name, name.encode())
    first = make()
    records = await taken(first)
    with monkeypatch.context() as patch:

        def crash(self: object, done: object, versions: object) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr("deid_agent.transport.journal.Journal.settle", crash)
        with pytest.raises(UnsafeError, match="Input/output error"):
            await settle(first, [named(r, b"same") for r in records])
    await first.stop()
    second = make()
    again = await taken(second)
    assert [r.coordinates for r in again] == [r.coordinates for r in records]
    await settle(second, [named(r, b"same") for r in again])
    assert outputs(tmp_path) == {"same": b"clean a", "same~1": b"clean b"}


async def test_the_journal_never_runs_ahead_of_the_outputs(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a")
    first = make()
    (record,) = await taken(first)

    def crash(self: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("deid_agent.transport.folders.Staged.show", crash)
        with pytest.raises(UnsafeError):
            await settle(first, [published(record)])
    await first.stop()
    assert outputs(tmp_path) == {}
    assert [r.key for r in await taken(make())] == [b"a"]


async def test_new_files_after_a_restart_get_new_offsets(tmp_path: Path, make: Make) -> None:
    for name in ("b", "d"):
        put(tmp_path, name)
    first = make()
    records = await taken(first)
    await settle(first, [published(records[0])])
    await first.stop()
    for name in ("a", "c"):
        put(tmp_path, name)
    second = make()
    assert [(r.key, r.coordinates.offset) for r in await taken(second)] == [(b"d", 1), (b"a", 2), (b"c", 3)]


async def test_a_letter_has_its_payload_beside_it_for_the_owner_only(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "Okonkwo.hl7", b"PID|Okonkwo")
    transport = make()
    (record,) = await taken(transport)
    await settle(transport, [refused(record)])
    stem = tmp_path / "letters" / "files-0-0000000000"
    headers = json.loads(stem.with_suffix(".json").read_text())
    assert headers["deid.error.code"] == "MALFORMED"
    assert headers.pop("deid.file") == "Okonkwo.hl7"  # the payload beside it says no less
    assert "Okonkwo" not in str(headers)
    assert stat.S_IMODE(stem.with_suffix(".json").stat().st_mode) == 0o600
    assert transport.letters == 1
    payload = stem.with_suffix(".payload")
    assert payload.read_bytes() == b"PID|Okonkwo"
    assert stat.S_IMODE(payload.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "letters").stat().st_mode) == 0o700
    assert b"Okonkwo" not in (tmp_path / "state").read_bytes()


async def test_a_file_that_cannot_be_read_is_told_by_offset_and_comes_again(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "a", b"small")
    put(tmp_path, "b", b"too large")
    put(tmp_path, "c", b"small")
    first = make(max_file_bytes=5)
    records = await taken(first)
    assert [r.key for r in records] == [b"a", b"c"]
    assert first.unreadable == (Coordinates("files", 0, 1),)
    await settle(first, [published(r) for r in records])
    await first.stop()
    assert [r.key for r in await taken(make())] == [b"b"]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Later = Callable[[float], Awaitable[list[tuple[bytes | None, bytes, int]]]]


async def watched(make: Make, **more: object) -> tuple[DirectoryTransport, Later]:
    """A watching transport, and what it brings after so many seconds: key, payload, offset."""
    clock = Clock()
    transport = make(watch=True, interval_s=0.001, clock=clock, **more)
    await transport.start(Member())

    async def later(seconds: float) -> list[tuple[bytes | None, bytes, int]]:
        clock.now += seconds
        found = [(r, r.coordinates.offset) for r in await transport.poll(10)]
        for record, _ in found:
            await settle(transport, [named(record, record.key)])
        return [(r.key, r.payload, offset) for r, offset in found]

    return transport, later


async def test_watching_takes_a_file_once_it_stood_still_for_the_quiet_time(tmp_path: Path, make: Make) -> None:
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
    _, later = await watched(make, settle_s=60.0)
    assert await later(59) == []
    assert await later(2) == [(b"a", b"x", 0)]


async def test_a_writer_that_pauses_longer_gives_a_second_whole_record(tmp_path: Path, make: Make) -> None:
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


async def test_the_same_bytes_again_are_no_new_record(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"same")
    first, later = await watched(make)
    assert await later(6) == [(b"a", b"same", 0)]
    path.touch()
    assert await later(6) + await later(6) == []
    await first.stop()
    path.write_bytes(b"same")
    second = make()
    assert await taken(second) == []


async def test_a_settled_file_that_changed_while_nobody_looked_is_a_new_record(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"1")
    put(tmp_path, "b", b"stays")
    first = make()
    for record in await taken(first):
        await settle(first, [named(record, record.key)])
    await first.stop()
    path.write_bytes(b"2")
    second = make()
    (record,) = await taken(second)
    assert (record.key, record.payload, record.coordinates.offset) == (b"a", b"2", 2)
    await settle(second, [named(record, b"a")])
    await second.stop()
    assert outputs(tmp_path) == {"a": b"clean 1", "a~2": b"clean 2", "b": b"clean stays"}
    assert await taken(make()) == []


async def test_a_file_that_changes_between_look_and_reading_must_stand_still_again(tmp_path: Path, make: Make) -> None:
    path = put(tmp_path, "a", b"1")
    transport, later = await watched(make)
    transport.pause(STREAM)
    assert await later(6) == []
    path.write_bytes(b"12")
    transport.resume(STREAM)
    assert await later(0) == []
    assert await later(1) == []
    assert await later(6) == [(b"a", b"12", 1)]


async def test_what_is_no_file_is_counted_in_the_log_and_named_beside_the_letters(
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


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a").touch()
    listed = os.scandir

    def scandir(path: bytes) -> object:  # the tests may run as root, whom no mode keeps out
        if path.endswith(b"shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    skipped: dict[bytes, Skipped] = {}
    assert [name for name, _ in walk(tmp_path, skipped.__setitem__)] == [b"a"]
    assert skipped == {b"shut": Skipped.FOLDER}


async def test_offsets_rise_even_where_an_old_file_stands_still_last(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "old")
    first = make()
    await taken(first)
    await first.stop()
    (tmp_path / "in" / "old").rename(tmp_path / "aside")
    put(tmp_path, "new")
    second = make(watch=True, interval_s=0.001, settle_s=0.001)
    await second.start(Member())
    seen: list[Record] = []
    async with asyncio.timeout(30):
        while len(seen) < 2:
            seen += await second.poll(10)
            if len(seen) == 1 and not (back := tmp_path / "in" / "old").exists():
                back.write_bytes(b"x")
    assert [(r.key, r.coordinates.offset) for r in seen] == [(b"new", 1), (b"old", 2)]


async def test_two_processes_never_share_a_state(make: Make) -> None:
    first, second = make(), make()
    await first.start(Member())
    with pytest.raises(ConfigurationError, match="in use"):
        await second.start(Member())


async def test_a_damaged_journal_stops_the_start(tmp_path: Path, make: Make) -> None:
    (tmp_path / "state").write_text("nonsense\n")
    with pytest.raises(ConfigurationError, match="damaged"):
        await make().start(Member())


async def test_a_torn_journal_goes_on(tmp_path: Path, make: Make) -> None:
    for name in ("a", "b"):
        put(tmp_path, name)
    first = make()
    records = await taken(first)
    await settle(first, [published(records[0])])
    await settle(first, [published(records[1])])
    await first.stop()
    state = tmp_path / "state"
    state.write_bytes(state.read_bytes()[:-4])
    assert [r.key for r in await taken(make())] == [b"b"]


async def test_folders_must_exist_and_lie_apart(tmp_path: Path, make: Make) -> None:
    (tmp_path / "in").rmdir()
    with pytest.raises(ConfigurationError, match="is no folder"):
        await make().start(Member())
    (tmp_path / "in").mkdir()
    a, b = tmp_path / "in", tmp_path / "b"
    s, file = tmp_path / "s", tmp_path / "file"
    file.touch()
    for folders in (
        (a, a / "o", b, s),
        (a, b, a, s),
        (a, b, b / "l", s),
        (a, b, b, s),
        (a, b, tmp_path / "l", a / "s"),
        (a, b, tmp_path / "l", b / "s"),
        (a, file, tmp_path / "l", s),
        (a, file / "o", tmp_path / "l", s),
        (a, b, file, s),
        (a, b, tmp_path / "l", tmp_path),
    ):
        transport = DirectoryTransport(*folders)
        with pytest.raises(ConfigurationError, match=r"^directory\."):
            await transport.start(Member())
        await transport.stop()


async def test_a_batch_that_was_not_taken_is_refused(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "a")
    transport = make()
    (record,) = await taken(transport)
    with pytest.raises(UnsafeError):
        await transport.settle(STREAM, [published(record)], 5)
    await settle(transport, [published(record)])
    with pytest.raises(UnsafeError):
        await settle(transport, [published(record)])


async def test_nothing_hidden_is_left_after_a_failure(tmp_path: Path, make: Make) -> None:
    for name in ("a", "b"):
        put(tmp_path, name)
    transport = make()
    records = await taken(transport)
    (tmp_path / "letters").rmdir()
    (tmp_path / "letters").touch()
    with pytest.raises(UnsafeError):
        await settle(transport, [published(records[0]), refused(records[1])])
    assert list((tmp_path / "out").iterdir()) == []
