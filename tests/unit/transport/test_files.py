"""Behavior of the folder transport alone: names, collisions, a second process, obstacles."""

import json
import os
import stat
from pathlib import Path

import pytest
from support.folder_files import Make, commit, named, outputs, put, taken
from support.transport_contract import Member, published, refused

from deid_agent.agent.ports import Coordinates, FinishedRecord, Outcome, Output, Record
from deid_agent.config import DirectorySettings
from deid_agent.model import NO_TIME
from deid_agent.model.errors import ConfigurationError, UnsafeError
from deid_agent.transport.folder.files import FolderSink
from deid_agent.transport.folder.source import STREAM, FolderTransport


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_regular_files_are_delivered_in_order_of_their_names(tmp_path: Path, make: Make) -> None:
    for name in ("b.hl7", "a/z.hl7", "a.hl7", ".hidden", "c/.git/x", "ä.hl7"):
        put(tmp_path, name)
    (tmp_path / "in" / "link.hl7").symlink_to(tmp_path / "in" / "a.hl7")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "pipe")
    records = await taken(make())
    assert [r.key for r in records] == [b"a.hl7", b"a/z.hl7", b"b.hl7", "ä.hl7".encode()]
    assert [r.coordinates for r in records] == [Coordinates("files", 0, i) for i in range(4)]
    assert all(r.timestamp_ms for r in records)


async def test_outputs_have_the_sanitized_name(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "ward/x.hl7", b"1")
    transport = make()
    (record,) = await taken(transport)
    await commit(transport, [named(record, b"ward/clean.hl7")])
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
async def test_no_key_escapes_the_output(tmp_path: Path, make: Make, key: bytes | None) -> None:
    put(tmp_path, "x")
    (tmp_path / "elsewhere").mkdir()
    transport = make()
    (record,) = await taken(transport)
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "folder").mkdir()
    await commit(transport, [named(record, key)])
    assert outputs(tmp_path) == {"record-0": b"clean x"}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert names(tmp_path) == {"in", "out", "letters", "state", "elsewhere"}


async def test_two_inputs_with_one_sanitized_name_have_two_outputs(tmp_path: Path, make: Make) -> None:
    for number, name in enumerate(("a.hl7", "b.hl7", "c", "d")):
        put(tmp_path, name, b"%d" % number)
    first = make()
    records = await taken(first)
    await commit(first, [named(records[0], b"same.hl7"), named(records[1], b"same.hl7")])
    await first.stop()
    second = make()
    rest = await taken(second)
    await commit(second, [named(rest[0], b"same.hl7"), named(rest[1], b"same~2.hl7")])
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

        patch.setattr("deid_agent.transport.folder.journal.Journal.commit", crash)
        with pytest.raises(UnsafeError, match="Input/output error"):
            await commit(first, [named(r, b"same") for r in records])
    await first.stop()
    second = make()
    again = await taken(second)
    assert [r.coordinates for r in again] == [r.coordinates for r in records]
    await commit(second, [named(r, b"same") for r in again])
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
        patch.setattr("deid_agent.transport.folder.files.StagedFiles.publish", crash)
        with pytest.raises(UnsafeError):
            await commit(first, [published(record)])
    await first.stop()
    assert outputs(tmp_path) == {}
    assert [r.key for r in await taken(make())] == [b"a"]


async def test_new_files_after_a_restart_get_new_offsets(tmp_path: Path, make: Make) -> None:
    for name in ("b", "d"):
        put(tmp_path, name)
    first = make()
    records = await taken(first)
    await commit(first, [published(records[0])])
    await first.stop()
    for name in ("a", "c"):
        put(tmp_path, name)
    second = make()
    assert [(r.key, r.coordinates.offset) for r in await taken(second)] == [(b"d", 1), (b"a", 2), (b"c", 3)]


async def test_the_payload_beside_a_dead_letter_is_readable_by_the_owner_only(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "Okonkwo.hl7", b"PID|Okonkwo")
    transport = make()
    (record,) = await taken(transport)
    await commit(transport, [refused(record)])
    stem = tmp_path / "letters" / "files-0-0000000000"
    headers = json.loads(stem.with_suffix(".json").read_text())
    assert headers["deid.error.code"] == "MALFORMED"
    assert headers.pop("deid.file") == "Okonkwo.hl7"  # the payload next to it contains no less
    assert "Okonkwo" not in str(headers)
    assert stat.S_IMODE(stem.with_suffix(".json").stat().st_mode) == 0o600
    assert transport.dead_letters == 1
    payload = stem.with_suffix(".payload")
    assert payload.read_bytes() == b"PID|Okonkwo"
    assert stat.S_IMODE(payload.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "letters").stat().st_mode) == 0o700
    assert b"Okonkwo" not in (tmp_path / "state").read_bytes()


async def test_an_unreadable_file_is_reported_by_offset_and_delivered_again(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "a", b"small")
    put(tmp_path, "b", b"too large")
    put(tmp_path, "c", b"small")
    first = make(max_file_bytes=5)
    records = await taken(first)
    assert [r.key for r in records] == [b"a", b"c"]
    assert first.unreadable == (Coordinates("files", 0, 1),)
    await commit(first, [published(r) for r in records])
    await first.stop()
    assert [r.key for r in await taken(make())] == [b"b"]


async def test_two_processes_never_share_a_state(make: Make) -> None:
    first, second = make(), make()
    await first.start(Member())
    with pytest.raises(ConfigurationError, match="in use"):
        await second.start(Member())


async def test_a_damaged_journal_stops_the_start(tmp_path: Path, make: Make) -> None:
    (tmp_path / "state").write_text("nonsense\n")
    with pytest.raises(ConfigurationError, match="damaged"):
        await make().start(Member())


async def test_a_truncated_journal_is_continued(tmp_path: Path, make: Make) -> None:
    for name in ("a", "b"):
        put(tmp_path, name)
    first = make()
    records = await taken(first)
    await commit(first, [published(records[0])])
    await commit(first, [published(records[1])])
    await first.stop()
    state = tmp_path / "state"
    state.write_bytes(state.read_bytes()[:-4])
    assert [r.key for r in await taken(make())] == [b"b"]


async def test_folders_must_exist_and_be_separate(tmp_path: Path, make: Make) -> None:
    (tmp_path / "in").rmdir()
    with pytest.raises(ConfigurationError, match="is not a folder"):
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
        names = ("input", "output", "dead_letters", "state")
        settings = DirectorySettings.model_validate(dict(zip(names, folders, strict=True)))
        transport = FolderTransport(settings)
        with pytest.raises(ConfigurationError, match=r"^directory\."):
            await transport.start(Member())
        await transport.stop()


async def test_a_batch_that_was_not_polled_is_refused(tmp_path: Path, make: Make) -> None:
    put(tmp_path, "a")
    transport = make()
    (record,) = await taken(transport)
    with pytest.raises(UnsafeError):
        await transport.commit(STREAM, [published(record)], 5)
    await commit(transport, [published(record)])
    with pytest.raises(UnsafeError):
        await commit(transport, [published(record)])


async def test_nothing_hidden_is_left_after_a_failure(tmp_path: Path, make: Make) -> None:
    for name in ("a", "b"):
        put(tmp_path, name)
    transport = make()
    records = await taken(transport)
    (tmp_path / "letters").rmdir()
    (tmp_path / "letters").touch()
    with pytest.raises(UnsafeError):
        await commit(transport, [published(records[0]), refused(records[1])])
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("time", "expected_ms"), [(1_709_164_800_000, 1_709_164_800_000), (NO_TIME, 0)])
async def test_an_output_has_the_time_of_the_policy_and_not_that_of_writing(
    tmp_path: Path, make: Make, time: int, expected_ms: int
) -> None:
    put(tmp_path, "ward/x.hl7", b"1")
    os.utime(tmp_path / "in" / "ward" / "x.hl7", (1_709_200_000, 1_709_200_000))
    transport = make()
    (record,) = await taken(transport)
    assert record.timestamp_ms == 1_709_200_000_000
    await commit(transport, [FinishedRecord(record, Outcome.PUBLISHED, Output(b"clean", b"y.hl7", (), time))])
    status = (tmp_path / "out" / "y.hl7").stat()
    assert (status.st_mtime_ns, status.st_atime_ns) == (expected_ms * 1_000_000,) * 2


async def test_a_sink_folder_gives_its_files_the_same_times(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path / "out")
    await sink.start()
    record = Record(Coordinates("mllp", 0, 7), b"x", timestamp_ms=1_709_200_000_000)
    await sink.deliver(record, Output(b"clean", timestamp_ms=1_709_164_800_000))
    await sink.stop()
    (path,) = (tmp_path / "out").iterdir()
    assert path.stat().st_mtime == path.stat().st_atime == 1_709_164_800
