"""Letters of a folder: sealed, read, put back once for the agent to take, whatever is cut off."""

import fcntl
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.transport_contract import Member, refused

from deid_agent.agent.letterbox import Damaged, Found
from deid_agent.agent.letterhead import Keeper
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.lineage import lineage_of
from deid_agent.agent.ports import Coordinates, DeadLetter, Outcome, Output, Record, Settled
from deid_agent.errors import ConfigurationError, LetterError, Reason, UnsafeError
from deid_agent.transport.files import STREAM, DirectoryTransport
from deid_agent.transport.folder_letters import FolderLetters
from deid_agent.transport.replayed import place_of, record_of

PRIVATE = PrivateKey(bytes(range(32)))
KEEPERS = {"sealed": Keeper(PRIVATE.public), "plain": Keeper()}


@dataclass
class Work:
    """Picks every letter that was not put back, and notes what it is told."""

    private: PrivateKey | None = PRIVATE
    again: bool = False
    done: list[int] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def pick(self, found: Found | Damaged) -> Record | None:
        if isinstance(found, Damaged):
            self.failed.append((found.place, found.why))
            return None
        if found.replayed and not self.again:
            return None
        try:
            return found.opened(self.private)
        except LetterError as problem:
            self.failed.append((str(found.head.at), str(problem)))
            return None

    def told(self, found: Found, problem: str) -> None:
        if problem:
            self.failed.append((str(found.head.at), problem))
        else:
            self.done.append(found.head.at.offset)


@dataclass
class Folder:
    """The folders of an agent that refuses what begins with ``bad``, and publishes the rest."""

    root: Path
    keeper: Keeper

    def put(self, name: str, data: bytes) -> Path:
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    async def run(self, fixed: bool = False) -> list[Record]:
        """One run over what is there, as a process has it; what it took."""
        at = self.root
        transport = DirectoryTransport(at / "in", at / "out", at / "letters", at / "state", keeper=self.keeper)
        await transport.start(Member())
        found: list[Record] = []
        while not transport.exhausted:
            found += await transport.poll(10)
        if found:
            batch = [self.settled(record, fixed) for record in found]
            await transport.settle(STREAM, batch, found[-1].coordinates.offset + 1)
        await transport.stop()
        return found

    def settled(self, record: Record, fixed: bool) -> Settled:
        if record.payload.startswith(b"bad") and not fixed:
            return refused(record)
        return Settled(record, Outcome.PUBLISHED, Output(b"clean " + record.payload, record.key))

    def box(self) -> FolderLetters:
        return FolderLetters(self.root / "in", self.root / "letters", 1 << 20, clock=lambda: 1_700_000_000.0)

    async def replay(self, work: Work | None = None) -> Work:
        work = work or Work()
        await self.box().replay(work.pick, work.told)
        return work

    async def look(self) -> list[Found | Damaged]:
        return [found async for found in self.box().letters()]

    def outputs(self) -> dict[str, bytes]:
        out = self.root / "out"
        return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}

    def letters(self) -> list[str]:
        return sorted(path.name for path in (self.root / "letters").iterdir())


@pytest.fixture(params=list(KEEPERS))
async def folder(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Folder]:
    (tmp_path / "in").mkdir()
    yield Folder(tmp_path, KEEPERS[request.param])


@pytest.fixture
def sealed(tmp_path: Path) -> Folder:
    (tmp_path / "in").mkdir()
    return Folder(tmp_path, KEEPERS["sealed"])


async def test_a_sealed_letter_shows_neither_content_nor_name(sealed: Folder) -> None:
    sealed.put("Okonkwo.hl7", b"bad Okonkwo")
    (record,) = await sealed.run()
    assert sealed.letters() == ["files-0-0000000000.json", "files-0-0000000000.sealed"]
    for path in (sealed.root / "letters").iterdir():
        assert b"Okonkwo" not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (found,) = await sealed.look()
    assert isinstance(found, Found)
    assert (found.head.code, found.head.key, found.replayed) == ("MALFORMED", PRIVATE.id, 0)
    assert found.opened(PRIVATE) == record


async def test_a_file_is_put_back_and_taken_once_under_its_own_name(folder: Folder) -> None:
    folder.put("ward/Okonkwo.hl7", b"bad")
    folder.put("fine.hl7", b"fine")
    await folder.run()
    assert (await folder.replay()).done == [1]
    assert (await folder.replay()).done == []
    (record,) = await folder.run(fixed=True)
    assert (record.key, record.payload, record.coordinates.offset) == (b"ward/Okonkwo.hl7", b"bad", 2)
    assert lineage_of(record).first == Coordinates("files", 0, 1)
    assert lineage_of(record).attempts == 2
    assert folder.outputs() == {"fine.hl7": b"clean fine", "ward/Okonkwo.hl7": b"clean bad"}
    assert await folder.run(fixed=True) == []
    assert (await folder.replay()).done == []
    put = folder.root / "in" / "deid-replay" / "1.1.2.0" / "ward" / "Okonkwo.hl7"
    assert stat.S_IMODE(put.stat().st_mode) == 0o600


async def test_a_file_that_is_gone_from_the_input_is_put_back_from_its_letter(folder: Folder) -> None:
    path = folder.put("a.hl7", b"bad")
    await folder.run()
    path.unlink()
    assert (await folder.replay()).done == [0]
    assert [r.payload for r in await folder.run(fixed=True)] == [b"bad"]


async def test_attempts_count_on_and_the_first_place_stays(folder: Folder) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()
    for offset, attempts in ((1, 4), (2, 6)):
        await folder.replay()
        (record,) = await folder.run()
        assert record.coordinates.offset == offset
        last = (await folder.look())[-1]
        assert isinstance(last, Found)
        assert (last.head.first, last.head.attempts) == (Coordinates("files", 0, 0), attempts)
    assert [found.replayed for found in await folder.look() if isinstance(found, Found)] == [1, 1, 0]
    # Put back again, all three are records of their own.
    assert (await folder.replay(Work(again=True))).done == [0, 1, 2]
    assert len(await folder.run(fixed=True)) == 3


async def test_a_replay_that_is_cut_off_before_its_mark_makes_no_second_record(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()
    real = FolderLetters._write

    def crash(self: FolderLetters, goal: Path, data: bytes) -> None:
        if goal.suffix == ".replayed":
            raise OSError(28, "No space left on device")
        real(self, goal, data)

    with monkeypatch.context() as patch:
        patch.setattr(FolderLetters, "_write", crash)
        with pytest.raises(UnsafeError, match="No space"):
            await folder.replay()
    assert len(await folder.run(fixed=True)) == 1
    assert (await folder.replay()).done == [0]
    assert await folder.run(fixed=True) == []
    assert folder.outputs() == {"a.hl7": b"clean bad"}


async def test_a_mark_never_stands_without_its_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("a.hl7", b"bad")
    await folder.run()

    def crash(self: FolderLetters, goal: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FolderLetters, "_write", crash)
        with pytest.raises(UnsafeError, match="No space"):
            await folder.replay()
    assert not any(name.endswith(".replayed") for name in folder.letters())
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


async def test_what_cannot_be_opened_is_named_and_the_others_go_on(sealed: Folder) -> None:
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
    assert [place for place, _ in work.failed] == [
        "files/0/0",
        "files/0/1",
        "files-0-0000000002",
        "files-0-0000000003",
        "files/0/4",
        "files-0-0000000005",
    ]
    reasons = ("damaged", "No such file", "description", "not those of", "another record", "mend it")
    for (_, why), told in zip(work.failed, reasons, strict=True):
        assert told in why
    assert "Okonkwo" not in str(work.failed)


@pytest.mark.parametrize("name", [b"../out/x", b"/etc/x", b"", b"a/../../x", b".hidden"])
async def test_no_name_leads_out_of_the_input(sealed: Folder, name: bytes) -> None:
    """Whoever may write letters has the public key too, and seals what he likes."""
    sealed.put("a.hl7", b"bad")
    await sealed.run()
    forged = Record(Coordinates("files", 0, 0), b"x", name)
    (sealed.root / "letters" / "files-0-0000000000.sealed").write_bytes(sealed.keeper.body(forged))
    before = sorted(sealed.root.rglob("*"))
    work = await sealed.replay()
    assert (work.done, len(work.failed)) == ([], 1)
    assert "no place" in work.failed[0][1]
    assert sorted(sealed.root.rglob("*")) == before


async def test_a_name_that_is_no_text_comes_through(folder: Folder) -> None:
    folder.put(os.fsdecode(b"\xff\xe9.hl7"), b"bad")
    await folder.run()
    assert (await folder.replay()).done == [0]
    (record,) = await folder.run(fixed=True)
    assert record.key == b"\xff\xe9.hl7"


def test_a_folder_that_only_looks_like_a_replay_is_a_folder() -> None:
    at = Coordinates("files", 0, 9)
    for name in (b"deid-replay/x.hl7", b"deid-replay/1.2.3/x", b"deid-replay/1.2.3.4/", b"x/deid-replay/1.1.1.0/x"):
        assert record_of(at, name, b"", 0).key == name
    # One that claims to be of a later file says nothing.
    assert lineage_of(record_of(at, b"deid-replay/4471902.1.2.0/x", b"", 0)).first is None
    record = Record(Coordinates("files", 0, 3), b"", b"a/b")
    back = record_of(at, place_of(record, 2, 1), b"", 0)
    assert (back.key, lineage_of(back).first, lineage_of(back).attempts) == (b"a/b", record.coordinates, 2)


async def test_letters_that_are_not_there_are_told(tmp_path: Path) -> None:
    box = FolderLetters(tmp_path / "in", tmp_path / "letters", 1000)
    with pytest.raises(ConfigurationError, match="is no folder"):
        [found async for found in box.letters()]


def test_headers_of_a_letter_name_the_build_and_no_value() -> None:
    keeper = Keeper(PRIVATE.public, (("rules", "ab12"),))
    letter = DeadLetter(Reason.POISON, "worker")
    said = dict(keeper.headers(Record(Coordinates("files", 0, 3), b"Okonkwo", b"Okonkwo.hl7"), letter))
    assert said["deid.build.rules"] == b"ab12"
    assert "Okonkwo" not in json.dumps({name: value.decode() for name, value in said.items()})
