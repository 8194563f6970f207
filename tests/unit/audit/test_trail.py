"""Writing the trail: entries, checkpoints, segments, concurrent appends."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from support.growth import growth
from support.trails import (
    BUILD,
    OTHER,
    SIGNER,
    SMALL,
    TRUSTED,
    Clock,
    entry,
    kinds,
    lines,
    offsets,
    sound,
    trail,
    written,
)

from deid_agent.audit.examine import examine_trail
from deid_agent.audit.reading import verify_trail
from deid_agent.audit.trail import TrailSettings
from deid_agent.model.errors import UnsafeError


async def test_entries_exist_after_append_and_a_trail_continues(tmp_path: Path) -> None:
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
    assert kinds(folder) == "sceekeeck"
    assert sound(folder)


async def test_lines_are_written_though_none_are_returned(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit", TrailSettings(return_lines=False))
    assert not await log.append([entry(0), entry(1)])
    assert offsets(tmp_path / "audit") == [0, 1]
    await log.close()
    assert sound(tmp_path / "audit")


async def test_a_checkpoint_is_written_with_the_batch_when_it_is_due(tmp_path: Path) -> None:
    clock = Clock()
    log = trail(tmp_path / "audit", clock=clock)
    for offset, wait in enumerate((0, 0, 3600, 3599, 1, -7200)):
        clock.now += wait
        await log.append([entry(offset)])
    assert kinds(tmp_path / "audit") == "sceeeceecec", "a clock that goes back must not delay the last one"
    await log.close()
    assert sound(tmp_path / "audit")


async def test_unsigned_entries_are_signed_after_the_interval(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit", TrailSettings(checkpoint_s=0.02, epoch_s=1e6), clock=Clock())
    await log.append([entry(0)])
    async with asyncio.timeout(20):
        while kinds(tmp_path / "audit") != "scec":  # noqa: ASYNC110 - the disk sends no notification
            await asyncio.sleep(0.005)
    await log.close()
    assert kinds(tmp_path / "audit") == "sceck"


async def test_segments_end_at_their_size_and_each_with_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], SMALL)
    assert kinds(folder).split() == ["sceeeeeeceeeec", "sceeeeeeceeeec", "sceeeek"]
    assert [line["segment"] for line in lines(folder) if line["kind"] == "segment"] == [1, 2, 3]
    assert sound(folder)


async def test_a_new_build_or_key_begins_a_segment(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    for build, signer in ((BUILD, SIGNER), ({**BUILD, "policy": "p:cd"}, SIGNER), (BUILD, OTHER), (BUILD, OTHER)):
        log = trail(folder, build=build, signer=signer)
        await log.append([entry(0)])
        await log.close()
    assert kinds(folder) == "scek scek scekeck"
    assert not verify_trail(folder, {*TRUSTED, OTHER.public}).faults
    assert [(fault.code, fault.segment) for fault in verify_trail(folder, TRUSTED).faults] == [
        ("KEY", "00000003.jsonl"),
    ]
    first = str(lines(folder)[0]["public_key"])
    assert not verify_trail(folder, {first}).faults, "the first key authenticates all later ones"


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


async def test_a_cancelled_append_leaves_a_sound_trail(tmp_path: Path) -> None:
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


async def test_an_internal_fault_reaches_every_waiter(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit")
    with pytest.raises(UnsafeError, match="unexpected"):
        await log.append([entry(object())])  # type: ignore[arg-type]
    await log.close()


async def test_opening_reads_the_last_segment_once(tmp_path: Path) -> None:
    folders = tmp_path / "small", tmp_path / "large"
    for folder, count in zip(folders, (200, 2000), strict=True):
        await written(folder, [[entry(n, remarks=b"[%s]" % (b"1," * 700 + b"1")) for n in range(count)]])
    assert growth(examine_trail, *folders) < 30
