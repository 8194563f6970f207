"""Dead letters of a folder: sealed, read, and replayed once, wherever a replay is interrupted."""

import fcntl
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.replays import PRIVATE, Work
from support.transport_contract import Member, folder_settings, refused

from deid_agent.agent.dead_letter_records import DamagedDeadLetter, DeadLetterSealer, FoundDeadLetter
from deid_agent.agent.outcomes import read_lineage
from deid_agent.agent.ports import Coordinates, DeadLetter, FinishedRecord, Outcome, Output, Record
from deid_agent.model.errors import ConfigurationError, Reason, UnsafeError
from deid_agent.transport.folder.dead_letters import FolderDeadLetters, record_from_file, replay_path
from deid_agent.transport.folder.source import STREAM, FolderTransport

KEEPERS = {"sealed": DeadLetterSealer(PRIVATE.public), "plain": DeadLetterSealer()}


@dataclass
class Folder:
    """The folders of an agent that refuses payloads beginning with ``bad``, and publishes the rest."""

    root: Path
    sealer: DeadLetterSealer

    def put(self, name: str, data: bytes) -> Path:
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    async def run(self, fixed: bool = False) -> list[Record]:
        """Process all files once, as one process does; return the records taken."""
        at = self.root
        transport = FolderTransport(folder_settings(at), sealer=self.sealer)
        await transport.start(Member())
        found: list[Record] = []
        while not transport.exhausted:
            found += await transport.poll(10)
        if found:
            batch = [self.finished(record, fixed) for record in found]
            await transport.commit(STREAM, batch, found[-1].coordinates.offset + 1)
        await transport.stop()
        return found

    def finished(self, record: Record, fixed: bool) -> FinishedRecord:
        if record.payload.startswith(b"bad") and not fixed:
            return refused(record)
        return FinishedRecord(record, Outcome.PUBLISHED, Output(b"clean " + record.payload, record.key))

    def box(self) -> FolderDeadLetters:
        return FolderDeadLetters(self.root / "in", self.root / "letters", 1 << 20, clock=lambda: 1_700_000_000.0)

    async def replay(self, work: Work | None = None) -> Work:
        work = work or Work()
        await self.box().replay(work.pick, work.report)
        return work

    async def state(self) -> list[FoundDeadLetter | DamagedDeadLetter]:
        return [found async for found in self.box().dead_letters()]

    def outputs(self) -> dict[str, bytes]:
        out = self.root / "out"
        return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}

    def dead_letters(self) -> list[str]:
        return sorted(path.name for path in (self.root / "letters").iterdir())


@pytest.fixture(params=list(KEEPERS))
async def folder(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Folder]:
    (tmp_path / "in").mkdir()
    yield Folder(tmp_path, KEEPERS[request.param])


@pytest.fixture
def sealed(tmp_path: Path) -> Folder:
    (tmp_path / "in").mkdir()
    return Folder(tmp_path, KEEPERS["sealed"])


async def test_a_sealed_dead_letter_reveals_neither_content_nor_name(sealed: Folder) -> None:
    sealed.put("Okonkwo.hl7", b"bad Okonkwo")
    (record,) = await sealed.run()
    assert sealed.dead_letters() == ["files-0-0000000000.json", "files-0-0000000000.sealed"]
    for path in (sealed.root / "letters").iterdir():
        assert b"Okonkwo" not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (found,) = await sealed.state()
    assert isinstance(found, FoundDeadLetter)
    assert (found.head.code, found.head.key, found.replayed) == ("MALFORMED", PRIVATE.id, 0)
    assert found.open_record(PRIVATE) == record


async def test_a_file_is_replayed_once_under_its_own_name(folder: Folder) -> None:
    folder.put("ward/Okonkwo.hl7", b"bad")
    folder.put("fine.hl7", b"fine")
    await folder.run()
    assert (await folder.replay()).done == [1]
    assert (await folder.replay()).done == []
    (record,) = await folder.run(fixed=True)
    assert (record.key, record.payload, record.coordinates.offset) == (b"ward/Okonkwo.hl7", b"bad", 2)
    assert read_lineage(record).first == Coordinates("files", 0, 1)
    assert read_lineage(record).attempts == 2
    assert folder.outputs() == {"fine.hl7": b"clean fine", "ward/Okonkwo.hl7": b"clean bad"}
    assert await folder.run(fixed=True) == []
    assert (await folder.replay()).done == []
    put = folder.root / "in" / "deid-replay" / "1.1.2.0" / "ward" / "Okonkwo.hl7"
    assert stat.S_IMODE(put.stat().st_mode) == 0o600


async def test_a_file_missing_from_the_input_is_restored_from_its_dead_letter(folder: Folder) -> None:
    path = folder.put("a.hl7", b"bad")
    await folder.run()
    path.unlink()
    assert (await folder.replay()).done == [0]
    assert [r.payload for r in await folder.run(fixed=True)] == [b"bad"]


async def test_attempts_accumulate_and_the_first_position_is_kept(folder: Folder) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()
    for offset, attempts in ((1, 4), (2, 6)):
        await folder.replay()
        (record,) = await folder.run()
        assert record.coordinates.offset == offset
        last = (await folder.state())[-1]
        assert isinstance(last, FoundDeadLetter)
        assert (last.head.first, last.head.attempts) == (Coordinates("files", 0, 0), attempts)
    assert [found.replayed for found in await folder.state() if isinstance(found, FoundDeadLetter)] == [1, 1, 0]
    # Replayed again, all three are separate records.
    assert (await folder.replay(Work(again=True))).done == [0, 1, 2]
    assert len(await folder.run(fixed=True)) == 3


async def test_a_replay_interrupted_before_its_mark_creates_no_second_record(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()
    real = FolderDeadLetters._write_file

    def crash(self: FolderDeadLetters, goal: Path, data: bytes) -> None:
        if goal.suffix == ".replayed":
            raise OSError(28, "No space left on device")
        real(self, goal, data)

    with monkeypatch.context() as patch:
        patch.setattr(FolderDeadLetters, "_write_file", crash)
        with pytest.raises(UnsafeError, match="No space"):
            await folder.replay()
    assert len(await folder.run(fixed=True)) == 1
    assert (await folder.replay()).done == [0]
    assert await folder.run(fixed=True) == []
    assert folder.outputs() == {"a.hl7": b"clean bad"}


async def test_a_mark_never_exists_without_its_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()

    def crash(self: FolderDeadLetters, goal: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FolderDeadLetters, "_write_file", crash)
        with pytest.raises(UnsafeError, match="No space"):
            await folder.replay()
    assert not any(name.endswith(".replayed") for name in folder.dead_letters())
    assert (await folder.replay()).done == [0]


async def test_a_second_replay_at_the_same_time_is_refused(folder: Folder) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()
    held = os.open(folder.root / "letters", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(ConfigurationError, match="another replay"):
        await folder.replay()
    os.close(held)
    assert (await folder.replay()).done == [0]


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


async def test_a_dead_letter_that_does_not_open_is_named_and_the_others_continue(sealed: Folder) -> None:
    for number in range(7):
        sealed.put(f"Okonkwo-{number}.hl7", b"bad %d" % number)
    await sealed.run()
    stem = [sealed.root / "letters" / f"files-0-{n:010}" for n in range(7)]
    spoil(stem[0].with_suffix(".sealed"), lambda data: data[:-1])
    stem[1].with_suffix(".sealed").unlink()
    spoil(stem[2].with_suffix(".json"), lambda data: data[:-5])
    spoil(stem[3].with_suffix(".json"), lambda data: data.replace(b"deid.error.code", b"code"))
    stem[4].with_suffix(".sealed").write_bytes(stem[5].with_suffix(".sealed").read_bytes())
    stem[5].with_suffix(".replayed").write_bytes(b"{}")
    work = await sealed.replay()
    assert work.done == [6]
    assert [coordinates for coordinates, _ in work.failed] == [
        "files/0/0",
        "files/0/1",
        "files-0-0000000002",
        "files-0-0000000003",
        "files/0/4",
        "files-0-0000000005",
    ]
    reasons = ("damaged", "No such file", "description", "not written by", "another record", "repair it")
    for (_, why), expected in zip(work.failed, reasons, strict=True):
        assert expected in why
    assert "Okonkwo" not in str(work.failed)


@pytest.mark.parametrize("name", [b"../out/x", b"/etc/x", b"", b"a/../../x", b".hidden"])
async def test_no_file_name_escapes_the_input(sealed: Folder, name: bytes) -> None:
    """A person who may write dead letters also has the public key, and can seal anything."""
    sealed.put("a.hl7", b"bad")
    await sealed.run()
    forged = Record(Coordinates("files", 0, 0), b"x", name)
    (sealed.root / "letters" / "files-0-0000000000.sealed").write_bytes(sealed.sealer.body(forged))
    before = sorted(sealed.root.rglob("*"))
    work = await sealed.replay()
    assert (work.done, len(work.failed)) == ([], 1)
    assert "not possible" in work.failed[0][1]
    assert sorted(sealed.root.rglob("*")) == before


async def test_a_name_with_invalid_utf8_is_replayed(folder: Folder) -> None:
    folder.put(os.fsdecode(b"\xff\xe9.hl7"), b"bad")
    await folder.run()
    assert (await folder.replay()).done == [0]
    (record,) = await folder.run(fixed=True)
    assert record.key == b"\xff\xe9.hl7"


def test_a_folder_named_like_a_replay_is_an_ordinary_folder() -> None:
    at = Coordinates("files", 0, 9)
    for name in (b"deid-replay/x.hl7", b"deid-replay/1.2.3/x", b"deid-replay/1.2.3.4/", b"x/deid-replay/1.1.1.0/x"):
        assert record_from_file(at, name, b"", 0).key == name
    # A replay path that names a later file is ignored.
    assert read_lineage(record_from_file(at, b"deid-replay/4471902.1.2.0/x", b"", 0)).first is None
    record = Record(Coordinates("files", 0, 3), b"", b"a/b")
    back = record_from_file(at, replay_path(record, 2, 1), b"", 0)
    assert (back.key, read_lineage(back).first, read_lineage(back).attempts) == (b"a/b", record.coordinates, 2)


async def test_missing_dead_letters_are_reported(tmp_path: Path) -> None:
    box = FolderDeadLetters(tmp_path / "in", tmp_path / "letters", 1000)
    with pytest.raises(ConfigurationError, match="does not exist: the agent makes it"):
        [found async for found in box.dead_letters()]


def test_headers_of_a_dead_letter_name_the_build_and_no_value() -> None:
    sealer = DeadLetterSealer(PRIVATE.public, (("rules", "ab12"),))
    dead_letter = DeadLetter(Reason.POISON, "worker")
    headers = dict(sealer.headers(Record(Coordinates("files", 0, 3), b"Okonkwo", b"Okonkwo.hl7"), dead_letter))
    assert headers["deid.build.rules"] == b"ab12"
    assert "Okonkwo" not in json.dumps({name: value.decode() for name, value in headers.items()})
