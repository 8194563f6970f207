"""Trails with which the agent starts, and those with which it does not."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trails import OTHER, SMALL, TRUSTED, entry, head_at, kinds, sound, trail, written

from deid_agent.audit import examine as audit_examine
from deid_agent.audit import reading as audit_verify
from deid_agent.audit.examine import examine_trail
from deid_agent.audit.reading import verify_trail
from deid_agent.audit.storage import TAIL, chain_value, line_end
from deid_agent.model.errors import ConfigurationError


async def test_two_agents_never_share_a_trail(tmp_path: Path) -> None:
    first = trail(tmp_path / "audit")
    with pytest.raises(ConfigurationError, match="in use"):
        trail(tmp_path / "audit")
    await first.close()
    await trail(tmp_path / "audit").close()


async def test_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await trail(folder).close()
    assert not folder.exists()
    folder.mkdir()
    await trail(folder).close()
    assert list(folder.iterdir()) == [], "an existing folder is not removed"


async def test_a_lock_file_removed_before_locking_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    other = trail(folder)
    lock, once = fcntl.flock, iter((True,))

    def late(file: int, how: int) -> None:
        if next(once, False):
            other._end()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    log = trail(folder)
    with pytest.raises(ConfigurationError, match="in use"):
        trail(folder)
    await log.close()


def test_an_unusable_folder_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        trail(tmp_path / "missing" / "audit")
    (tmp_path / "audit.jsonl").touch()
    with pytest.raises(ConfigurationError, match="the audit is a folder"):
        trail(tmp_path / "audit.jsonl")


def changed(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":11', b'"offset":18'))


def without_head(folder: Path) -> None:
    (folder / "head.json").unlink()


def other_head(folder: Path) -> None:
    (folder / "head.json").write_bytes(b"{}")


def unsigned_head(folder: Path) -> None:
    head = (folder / "head.json").read_bytes()
    (folder / "head.json").write_bytes(head.replace(b'"time":1', b'"time":2'))


def cut(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def emptied(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        path.unlink()


def forged_head(folder: Path) -> None:
    (folder / "head.json").write_bytes(b'{"kind":"head","time":0,"lines":0,"head":""}\n')


def cut_under_a_forged_head(folder: Path) -> None:
    cut(folder)
    forged_head(folder)


def cut_to_its_first_checkpoint(folder: Path) -> None:
    """No entry remains that needs a head; the head of the previous segment must match."""
    path = folder / "00000002.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    forged_head(folder)


def head_of_the_first_segment(folder: Path) -> bytes:
    return head_at(folder, len((folder / "00000001.jsonl").read_bytes().splitlines()))


def cut_to_a_head_of_another_key(folder: Path) -> None:
    cut_to_its_first_checkpoint(folder)
    statement, _, _ = head_of_the_first_segment(folder).partition(b',"signature":')
    (folder / "head.json").write_bytes(OTHER.sign(statement) + b"}\n")


def rewritten_under_a_forged_head(folder: Path) -> None:
    """Every outcome after the first checkpoint, with all chain values, without the checkpoints."""
    path = folder / "00000002.jsonl"
    kept, rest = (found := path.read_bytes().splitlines(keepends=True))[:2], found[2:]
    chain = kept[-1][-67:-3]
    for line in rest:
        if b'"kind":"entry"' in line:
            body = line[:-TAIL].replace(b'"outcome":"published"', b'"outcome":"suppressed"')
            chain = chain_value(chain, body)
            kept.append(body + line_end(chain))
    path.write_bytes(b"".join(kept))
    forged_head(folder)


def head_of_the_segment_before(folder: Path) -> None:
    """A valid signature: of an agent that crashed after it began the second segment, without its entries."""
    (folder / "head.json").write_bytes(head_of_the_first_segment(folder))


def added(folder: Path) -> None:
    """A segment without an entry, as after a crash, but with no predecessor."""
    first, _ = (folder / "00000002.jsonl").read_bytes().split(b"\n", 1)
    (folder / "00000003.jsonl").write_bytes(first.replace(b'"lines":', b'"lines":9') + b"\n")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (changed, "00000002.jsonl:4: CHAIN"),
        (without_head, "HEAD: is missing"),
        (other_head, "HEAD: is not the head"),
        (unsigned_head, "HEAD: does not sign"),
        (cut, "TRUNCATED"),
        (emptied, "TRUNCATED"),
        (forged_head, "HEAD: signs no line"),
        (cut_under_a_forged_head, "HEAD: signs no line"),
        (cut_to_its_first_checkpoint, "HEAD: signs no line"),
        (cut_to_a_head_of_another_key, "HEAD: does not sign"),
        (rewritten_under_a_forged_head, "HEAD: signs no line"),
        (head_of_the_segment_before, "HEAD: signs no line"),
        (added, "00000003.jsonl:1: CHAIN"),
    ],
)
async def test_a_trail_that_does_not_verify_is_not_continued(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 12, 2)], SMALL)
    examine_trail(folder)
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigurationError, match=why) as refused:
        trail(folder)
    assert "move the folder aside" in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert verify_trail(folder, TRUSTED).faults


async def test_a_head_written_during_verification_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check during a run: the agent begins a segment after the check has read the head."""
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 12, 2)], SMALL)
    newest = (folder / "head.json").read_bytes()
    head_of_the_segment_before(folder)
    older, heads = (folder / "head.json").read_bytes(), list[bytes]()

    def read(_: Path) -> bytes:
        heads.append(older if not heads else newest)
        return heads[-1]

    for module in (audit_examine, audit_verify):
        heads.clear()
        monkeypatch.setattr(module, "read_head", read)
    assert examine_trail(folder).segment is not None
    heads.clear()
    assert verify_trail(folder, TRUSTED).faults == []


async def test_the_segment_before_an_unfinished_one_is_required(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)]])
    first, head, key = ((folder / name).read_bytes() for name in ("00000001.jsonl", "head.json", "signing.key"))
    log = trail(folder, build={"version": "2"})
    await log.append([entry(1)])
    await log.close()
    cut_to_its_first_checkpoint(folder)
    (folder / "head.json").write_bytes(head)
    (folder / "signing.key").write_bytes(key)
    (folder / "00000001.jsonl").unlink()
    with pytest.raises(ConfigurationError, match=r"SEGMENT: missing: 00000001\.jsonl, .*: restore it"):
        trail(folder)
    (folder / "00000001.jsonl").write_bytes(first)
    await trail(folder).close()
    assert kinds(folder) == "scek"


async def test_earlier_segments_may_be_kept_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], SMALL)
    (tmp_path / "kept").mkdir()
    for number in (1, 2):
        (folder / f"{number:08}.jsonl").rename(tmp_path / "kept" / f"{number:08}.jsonl")
    await written(folder, [[entry(24)]], SMALL)
    assert [(fault.code, fault.detail) for fault in verify_trail(folder, TRUSTED).faults] == [
        ("SEGMENT", "missing: 00000001.jsonl to 00000002.jsonl")
    ]
    for path in (tmp_path / "kept").iterdir():
        path.rename(folder / path.name)
    assert sound(folder)
