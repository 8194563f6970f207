import asyncio
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.recording import Recording
from support.trails import BUILD, OTHER, SIGNER, TRUSTED, Clock, entry, kinds, lines, offsets, trail, written

from deid_agent.audit import trail as audit_trail
from deid_agent.audit import verify as audit_verify
from deid_agent.audit.lines import TAIL, Kind, Place, chain_of, statement, tail_of
from deid_agent.audit.trail import TrailSettings, examine
from deid_agent.audit.verify import verify
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.events import AuditMended, AuditUnsigned

SMALL = TrailSettings(checkpoint_s=3600, segment_bytes=2500)


def sound(folder: Path) -> bool:
    report = verify(folder, TRUSTED)
    return not report.faults and not report.doubts


async def test_entries_are_there_after_append_and_a_trail_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    for begin in (0, 2):
        log = trail(folder)
        kept = await log.append([entry(begin), entry(begin + 1)])
        assert offsets(folder) == list(range(begin + 2))
        assert [line + b"\n" for line in kept] == [
            line for line in (folder / "00000001.jsonl").read_bytes().splitlines(keepends=True) if b'"entry"' in line
        ][begin:]
        await log.close()
        await log.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert kinds(folder) == "sceeceec"
    assert sound(folder)


async def test_a_checkpoint_is_written_with_the_batch_when_it_is_due(tmp_path: Path) -> None:
    clock = Clock()
    log = trail(tmp_path / "audit", clock=clock)
    for offset, wait in enumerate((0, 0, 3600, 3599, 1, -7200)):
        clock.now += wait
        await log.append([entry(offset)])
    assert kinds(tmp_path / "audit") == "sceeeceecec", "the last one since a clock that goes back is none to wait for"
    await log.close()
    assert sound(tmp_path / "audit")


async def test_what_stands_unsigned_is_signed_when_its_time_is_over(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit", TrailSettings(checkpoint_s=0.02), clock=Clock())
    await log.append([entry(0)])
    async with asyncio.timeout(20):
        while kinds(tmp_path / "audit") != "scec":  # noqa: ASYNC110 - the disk tells nobody
            await asyncio.sleep(0.005)
    await log.close()
    assert kinds(tmp_path / "audit") == "scec"


async def test_segments_end_at_their_size_and_each_with_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], SMALL)
    assert kinds(folder).split() == ["sceeeeeeceec"] * 3
    assert [line["segment"] for line in lines(folder) if line["kind"] == "segment"] == [1, 2, 3]
    assert sound(folder)


async def test_another_build_and_another_key_begin_a_segment(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    for build, signer in ((BUILD, SIGNER), ({**BUILD, "policy": "p:cd"}, SIGNER), (BUILD, OTHER), (BUILD, OTHER)):
        log = trail(folder, build=build, signer=signer)
        await log.append([entry(0)])
        await log.close()
    assert kinds(folder) == "scec scec scecec"
    assert not verify(folder, {*TRUSTED, OTHER.public}).faults
    assert [(fault.code, fault.segment) for fault in verify(folder, TRUSTED).faults] == [
        ("KEY", "00000003.jsonl"),
        ("HEAD", "head.json"),
    ]


async def test_appends_that_wait_share_a_sync_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = trail(tmp_path / "audit")
    await log.append([entry(0)])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    hold = asyncio.Event()
    log._thread.submit(asyncio.run_coroutine_threadsafe(hold.wait(), asyncio.get_running_loop()).result)
    tasks = [asyncio.create_task(log.append([entry(n, n % 3)])) for n in range(1, 40)]
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(*tasks)
    assert len(synced) == 1
    assert offsets(tmp_path / "audit") == list(range(40))
    await log.close()
    assert sound(tmp_path / "audit")


async def test_an_append_that_is_cancelled_leaves_a_sound_trail(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit")
    await log.append([entry(0)])
    hold = asyncio.Event()
    log._thread.submit(asyncio.run_coroutine_threadsafe(hold.wait(), asyncio.get_running_loop()).result)
    waiting = asyncio.create_task(log.append([entry(1)]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    hold.set()
    await log.append([entry(2)])
    await log.close()
    assert offsets(tmp_path / "audit") == [0, 2]
    assert sound(tmp_path / "audit")


# --- after a crash


async def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    folder, copy = tmp_path / "audit", tmp_path / "copy"
    log = trail(folder)
    await log.append([entry(0)])
    head = (folder / "head.json").read_bytes()
    await log.append([entry(1), entry(2)])
    shutil.copytree(folder, copy)
    await log.close()
    segment = copy / "00000001.jsonl"
    (copy / "head.json").write_bytes(head)
    segment.write_bytes(segment.read_bytes()[:-9])
    assert [doubt.code for doubt in verify(copy, TRUSTED).doubts] == ["UNSIGNED", "TORN"]
    telemetry = Recording()
    log = trail(copy, telemetry=telemetry)
    await log.append([entry(2)])
    await log.close()
    assert offsets(copy) == [0, 1, 2]
    assert [type(event) for event in telemetry.events] == [AuditMended]
    assert sound(copy)


@pytest.mark.parametrize("left", [b"", b'{"kind":"segm'])
async def test_a_segment_that_was_not_made_to_its_end_is_made_again(tmp_path: Path, left: bytes) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)], [entry(1)]])
    (folder / "00000002.jsonl").write_bytes(left)
    log = trail(folder, build={"version": "2"})
    await log.append([entry(2)])
    await log.close()
    assert kinds(folder) == "sceec scec"
    assert sound(folder)


@pytest.mark.parametrize("left", [b"", b"x" * 200_000])
async def test_a_first_segment_that_was_not_made_to_its_end_is_made_again(tmp_path: Path, left: bytes) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "00000001.jsonl").write_bytes(left)
    log = trail(folder)
    await log.append([entry(0)])
    await log.close()
    assert sound(folder)


async def test_a_head_that_is_behind_is_that_of_a_crash(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    log = trail(folder)
    await log.append([entry(0)])
    head = (folder / "head.json").read_bytes()
    await log.append([entry(1)])
    await log.close()
    (folder / "head.json").write_bytes(head)
    log = trail(folder, build={"version": "2"})
    await log.append([entry(2)])
    (folder / "head.json").write_bytes(head)
    await log.close()
    await trail(folder).close()
    assert sound(folder)


async def test_a_process_that_dies_anywhere_leaves_what_the_next_one_goes_on_with(tmp_path: Path) -> None:
    """Killed at every single call that changes the disk, from the first to the last; writes are cut in two."""
    crashes = len(run(DYING, tmp_path).split())
    assert crashes > 40
    for crash in range(crashes):
        folder = tmp_path / f"audit-{crash}"
        log = trail(folder, SMALL)
        await log.append([entry(99)])
        await log.close()
        answered = {int(text) for text in (tmp_path / f"answered-{crash}").read_text().split()}
        assert answered <= set(offsets(folder)), "what was answered for is there"
        assert sound(folder), crash
    assert answered == set(range(6))


DYING = """
import asyncio, os, sys
from pathlib import Path
from support.trails import entry, trail
from deid_agent.audit.trail import TrailSettings

def counted(call, name):
    def made(*args, **kwargs):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        if name == "write" and len(args[1]) > 1:
            return call(args[0], args[1][:len(args[1]) // 2])
        return call(*args, **kwargs)
    return made

async def main(crash):
    log = trail(Path(sys.argv[1]) / f"audit-{crash}", TrailSettings(checkpoint_s=3600, segment_bytes=1200))
    with open(Path(sys.argv[1]) / f"answered-{crash}", "w", buffering=1) as answered:
        for name in ("open", "write", "fsync", "replace", "ftruncate", "mkdir"):
            setattr(os, name, counted(getattr(os, name), name))
        for offset in range(6):
            await log.append([entry(offset)])
            # Past the counted calls: Python's own files do not go through ``os``.
            print(offset, file=answered)
        await log.close()

left = crash = 0
while True:
    child = os.fork()
    if child == 0:
        left = crash
        asyncio.run(main(crash))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), code
    print(crash)
    if code == 0:
        break
    crash += 1
"""


def run(program: str, folder: Path) -> str:
    """A program in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- what stops a start


async def test_two_agents_never_share_a_trail(tmp_path: Path) -> None:
    first = trail(tmp_path / "audit")
    with pytest.raises(ConfigurationError, match="in use"):
        trail(tmp_path / "audit")
    await first.close()
    await trail(tmp_path / "audit").close()


async def test_a_start_that_failed_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await trail(folder).close()
    assert not folder.exists()
    folder.mkdir()
    await trail(folder).close()
    assert list(folder.iterdir()) == [], "a folder that was there before is not ours to take away"


async def test_a_lock_that_went_between_opening_and_locking_is_made_anew(
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


def test_a_folder_that_cannot_be_had_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        trail(tmp_path / "missing" / "audit")
    (tmp_path / "audit.jsonl").touch()
    with pytest.raises(ConfigurationError, match="the audit is a folder"):
        trail(tmp_path / "audit.jsonl")


def changed(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":9', b'"offset":8'))


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
    """No entry is left that would need a head: now that of the segment before has to fit."""
    path = folder / "00000002.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    forged_head(folder)


def cut_to_a_head_of_another_key(folder: Path) -> None:
    cut_to_its_first_checkpoint(folder)
    lines = (folder / "00000001.jsonl").read_bytes().splitlines()
    place = Place(len(lines), lines[-1][-66:-2])
    (folder / "head.json").write_bytes(OTHER.signed(statement(Kind.HEAD, place, 1)) + b"}\n")


def rewritten_under_a_forged_head(folder: Path) -> None:
    """Every outcome behind the first checkpoint, with all chain values; the checkpoints are left out."""
    path = folder / "00000002.jsonl"
    kept, rest = (found := path.read_bytes().splitlines(keepends=True))[:2], found[2:]
    chain = kept[-1][-67:-3]
    for line in rest:
        if b'"kind":"entry"' in line:
            body = line[:-TAIL].replace(b'"outcome":"published"', b'"outcome":"suppressed"')
            chain = chain_of(chain, body)
            kept.append(body + tail_of(chain))
    path.write_bytes(b"".join(kept))
    forged_head(folder)


def head_of_the_segment_before(folder: Path) -> None:
    """Truly signed: that of an agent which died once it had begun the second segment, without its entries."""
    lines = (folder / "00000001.jsonl").read_bytes().splitlines()
    place = Place(len(lines), lines[-1][-66:-2])
    (folder / "head.json").write_bytes(SIGNER.signed(statement(Kind.HEAD, place, 1)) + b"}\n")


def added(folder: Path) -> None:
    """A segment without an entry, as a crash leaves it, but it follows from nothing."""
    first, _ = (folder / "00000002.jsonl").read_bytes().split(b"\n", 1)
    (folder / "00000003.jsonl").write_bytes(first.replace(b'"lines":', b'"lines":9') + b"\n")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (changed, "00000002.jsonl:4: CHAIN"),
        (without_head, "HEAD: is missing"),
        (other_head, "HEAD: is no head"),
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
async def test_a_trail_that_does_not_verify_is_not_gone_on_with(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 12, 2)], SMALL)
    examine(folder)
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigurationError, match=why) as refused:
        trail(folder)
    assert "move the folder aside" in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert verify(folder, TRUSTED).faults


async def test_a_head_that_an_agent_writes_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check beside a running agent: between the head and the segments it began another one."""
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 12, 2)], SMALL)
    newest = (folder / "head.json").read_bytes()
    head_of_the_segment_before(folder)
    older, told = (folder / "head.json").read_bytes(), list[bytes]()

    def read(_: Path) -> bytes:
        told.append(older if not told else newest)
        return told[-1]

    for module in (audit_trail, audit_verify):
        told.clear()
        monkeypatch.setattr(module, "read_head", read)
    assert examine(folder).segment is not None
    told.clear()
    assert verify(folder, TRUSTED).faults == []


async def test_the_segment_before_one_that_was_never_finished_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)]])
    first, head = (folder / "00000001.jsonl").read_bytes(), (folder / "head.json").read_bytes()
    log = trail(folder, build={"version": "2"})
    await log.append([entry(1)])
    await log.close()
    cut_to_its_first_checkpoint(folder)
    (folder / "head.json").write_bytes(head)
    (folder / "00000001.jsonl").unlink()
    with pytest.raises(ConfigurationError, match=r"SEGMENT: missing: 00000001\.jsonl, .*: bring it back"):
        trail(folder)
    (folder / "00000001.jsonl").write_bytes(first)
    await trail(folder).close()
    assert kinds(folder) == "scec"


async def test_earlier_segments_may_be_kept_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], SMALL)
    (tmp_path / "kept").mkdir()
    for number in (1, 2):
        (folder / f"{number:08}.jsonl").rename(tmp_path / "kept" / f"{number:08}.jsonl")
    await written(folder, [[entry(24)]], SMALL)
    assert [(fault.code, fault.detail) for fault in verify(folder, TRUSTED).faults] == [
        ("SEGMENT", "missing: 00000001.jsonl to 00000002.jsonl")
    ]
    for path in (tmp_path / "kept").iterdir():
        path.rename(folder / path.name)
    assert sound(folder)


# --- a full disk


async def test_a_full_disk_is_unsafe_and_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = Recording()
    log = trail(tmp_path / "audit", telemetry=telemetry)
    await log.append([entry(9)])
    with monkeypatch.context() as patch:

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(UnsafeError, match="No space left on device; nothing was settled"):
            await log.append([entry(0)])
    with pytest.raises(UnsafeError, match="start again"):
        await log.append([entry(1)])
    await log.close()
    assert [type(event) for event in telemetry.events] == [AuditUnsigned]
    with pytest.raises(UnsafeError, match="closed"):
        await log.append([entry(2)])


@pytest.mark.parametrize("room", range(0, 4000, 157))
async def test_a_disk_that_takes_so_many_bytes_and_then_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    folder, left, write, answered = tmp_path / "audit", room, os.write, []

    def short(file: int, data: memoryview) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, data[: min(left, 61)])
        left -= count
        return count

    log = trail(folder, SMALL)
    with monkeypatch.context() as patch, pytest.raises(UnsafeError, match="No space left"):
        patch.setattr(os, "write", short)
        for offset in range(100):
            await log.append([entry(offset), entry(offset)])
            answered.append(offset)
    await log.close()
    log = trail(folder, SMALL)
    await log.append([entry(100)])
    await log.close()
    assert set(answered) <= set(offsets(folder))
    assert sound(folder)


async def test_a_limit_of_the_system_stops_the_agent_and_the_trail_mends(tmp_path: Path) -> None:
    """RLIMIT_FSIZE in a process of its own: the kernel itself cuts a line in two."""
    folder = tmp_path / "audit"
    *answered, why = run(LIMITED, folder).splitlines()
    assert "cannot be written: File too large; nothing was settled" in why
    assert (folder / "00000001.jsonl").stat().st_size == 3000
    log = trail(folder)
    await log.append([entry(100)])
    await log.close()
    assert {int(text) for text in answered} <= set(offsets(folder))
    assert len(answered) > 5
    assert sound(folder)


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from support.trails import entry, trail
from deid_agent.errors import UnsafeError

async def main():
    log = trail(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    for offset in range(100):
        try:
            await log.append([entry(offset)])
        except UnsafeError as error:
            print(error)
            break
        print(offset)
    await log.close()

asyncio.run(main())
"""


async def test_a_fault_of_our_own_is_told_to_whoever_waits(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit")
    with pytest.raises(UnsafeError, match="unexpected"):
        await log.append([entry(object())])  # type: ignore[arg-type]
    await log.close()


async def test_opening_reads_the_last_segment_once(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n, remarks=b"[%s]" % (b"1," * 700 + b"1")) for n in range(2000)]])
    size, begin = (folder / "00000001.jsonl").stat().st_size, time.process_time()
    examine(folder)
    seconds = time.process_time() - begin
    assert size / seconds > 20e6, f"{size / seconds / 1e6:.0f} MB/s"
