"""The trail after a crash, and on a full disk."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.recording import Recording
from support.trails import SMALL, TRUSTED, entry, kinds, offsets, sound, trail, written

from deid_agent.audit.reading import verify_trail
from deid_agent.model.errors import UnsafeError
from deid_agent.telemetry.events import AuditRepaired, AuditUnsigned


async def test_a_truncated_last_line_is_removed(tmp_path: Path) -> None:
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
    assert [warning.code for warning in verify_trail(copy, TRUSTED).warnings] == ["UNSIGNED", "TORN"]
    telemetry = Recording()
    log = trail(copy, telemetry=telemetry)
    await log.append([entry(2)])
    await log.close()
    assert offsets(copy) == [0, 1, 2]
    assert [type(event) for event in telemetry.events] == [AuditRepaired]
    assert sound(copy)


@pytest.mark.parametrize("left", [b"", b'{"kind":"segm'])
async def test_an_unfinished_segment_is_created_again(tmp_path: Path, left: bytes) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)], [entry(1)]])
    (folder / "00000002.jsonl").write_bytes(left)
    log = trail(folder, build={"version": "2"})
    await log.append([entry(2)])
    await log.close()
    assert kinds(folder) == "sceek scek"
    assert sound(folder)


@pytest.mark.parametrize("left", [b"", b"x" * 200_000])
async def test_an_unfinished_first_segment_is_created_again(tmp_path: Path, left: bytes) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "00000001.jsonl").write_bytes(left)
    log = trail(folder)
    await log.append([entry(0)])
    await log.close()
    assert sound(folder)


async def test_a_head_behind_its_trail_is_accepted_as_a_crash(tmp_path: Path) -> None:
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


async def test_a_crash_at_any_point_leaves_a_trail_that_the_next_process_continues(tmp_path: Path) -> None:
    """Killed at every single call that changes the disk, from the first to the last; writes are cut in two."""
    crashes = len(run(DYING, tmp_path).split())
    assert crashes > 40
    for crash in range(crashes):
        folder = tmp_path / f"audit-{crash}"
        log = trail(folder, SMALL)
        await log.append([entry(99)])
        await log.close()
        answered = {int(text) for text in (tmp_path / f"answered-{crash}").read_text().split()}
        assert answered <= set(offsets(folder)), "every confirmed entry exists"
        assert sound(folder), crash
    assert answered == set(range(5))


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
    log = trail(Path(sys.argv[1]) / f"audit-{crash}", TrailSettings(checkpoint_s=3600, segment_bytes=1700, epoch_s=1e9))
    with open(Path(sys.argv[1]) / f"answered-{crash}", "w", buffering=1) as answered:
        for name in ("open", "write", "fsync", "replace", "ftruncate", "mkdir"):
            setattr(os, name, counted(getattr(os, name), name))
        for offset in range(5):
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
    """The output of a program in a separate process."""
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


async def test_a_full_disk_is_unsafe_until_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = Recording()
    log = trail(tmp_path / "audit", telemetry=telemetry)
    await log.append([entry(9)])
    with monkeypatch.context() as patch:

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(UnsafeError, match="No space left on device; nothing was committed"):
            await log.append([entry(0)])
    with pytest.raises(UnsafeError, match="restart the agent"):
        await log.append([entry(1)])
    await log.close()
    assert [type(event) for event in telemetry.events] == [AuditUnsigned]
    with pytest.raises(UnsafeError, match="closed"):
        await log.append([entry(2)])


@pytest.mark.parametrize("room", range(0, 4000, 157))
async def test_a_trail_is_sound_after_a_disk_was_full_and_has_room_again(
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


async def test_a_system_limit_stops_the_agent_and_the_next_start_repairs_the_trail(tmp_path: Path) -> None:
    """RLIMIT_FSIZE in a separate process: the kernel itself cuts a line in two."""
    folder = tmp_path / "audit"
    *answered, why = run(LIMITED, folder).splitlines()
    assert "cannot be written: File too large; nothing was committed" in why
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
from deid_agent.model.errors import UnsafeError

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
