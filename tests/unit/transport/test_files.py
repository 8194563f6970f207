"""What only the folder transport does: names, collisions, watching, a second process, things in the way."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from support.transport_contract import Member, published, refused

from deid_agent.agent.ports import Coordinates, Outcome, Output, Record, Settled
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.transport.files import STREAM, DirectoryTransport

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

        def crash(self: object, done: object) -> None:
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
    assert "Okonkwo" not in str(headers)
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


async def test_watching_takes_a_file_once_it_stands_still(tmp_path: Path, make: Make) -> None:
    growing = put(tmp_path, "growing", b"1")
    put(tmp_path, "still")
    transport = make(watch=True, interval_s=0.001)
    await transport.start(Member())
    seen: list[Record] = []
    async with asyncio.timeout(30):
        size = 1
        while not seen or size < 5:
            if size < 5:
                size += 1
                growing.write_bytes(b"1" * size)
            seen += await transport.poll(10)
        assert not transport.exhausted
        while len(seen) < 2:
            seen += await transport.poll(10)
        put(tmp_path, "late")
        while len(seen) < 3:
            seen += await transport.poll(10)
    assert [(r.key, r.payload) for r in seen] == [(b"still", b"x"), (b"growing", b"11111"), (b"late", b"x")]
    assert [r.coordinates.offset for r in seen] == [0, 1, 2]


async def test_offsets_rise_even_where_an_old_file_stands_still_last(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "old")
    first = make()
    await taken(first)
    await first.stop()
    (tmp_path / "in" / "old").rename(tmp_path / "aside")
    put(tmp_path, "new")
    second = make(watch=True, interval_s=0.001)
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
    with pytest.raises(ConfigurationError, match="does not exist"):
        await make().start(Member())
    (tmp_path / "in").mkdir()
    a, b = tmp_path / "in", tmp_path / "b"
    for folders in ((a, a / "o", b, tmp_path / "s"), (a, b, a, tmp_path / "s"), (a, b, b / "l", tmp_path / "s")):
        transport = DirectoryTransport(*folders)
        with pytest.raises(ConfigurationError, match="move"):
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
