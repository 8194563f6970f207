"""Agents crash at any point of writing the audit: the next start continues the trail, which has no fault."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.crashes import NEVER, Disk, Lose, dying
from support.trails import OTHER, SIGNER, TRUSTED, entry, trail

from deid_agent.audit.examine import examine_trail
from deid_agent.audit.reading import verify_trail
from deid_agent.audit.storage import Signer, segment_files
from deid_agent.audit.trail import TrailSettings

KEYS = frozenset({*TRUSTED, OTHER.public})


@dataclass(frozen=True)
class Life:
    """One agent from its start to its end; it may make ``left`` calls that change the disk."""

    batches: int = 2
    signer: Signer = SIGNER
    build: str = "1"
    every: bool = False
    """Sign every batch, not only the first."""
    closes: bool = True
    size: int = 2000
    """Maximum bytes of a segment; below 1200 each batch begins a new one."""
    rotates: bool = False
    """Change the key with every batch."""
    left: int = NEVER
    power: bool = False


def everything(_name: str, most: int) -> int:
    return most


def names_of_segments(name: str, most: int) -> int:
    return most if name.endswith(".jsonl") else 0


def lived(folder: Path, life: Life, answered: set[int], lose: Lose = everything) -> Disk:
    """Run it; ``answered`` collects the offsets that may be committed."""
    signs = TrailSettings(
        checkpoint_s=0 if life.every else 3600, segment_bytes=life.size, epoch_s=0 if life.rotates else 1e9
    )
    first = max(answered, default=-1) + 1
    with dying(folder, life.left) as disk:
        log = trail(folder, signs, signer=life.signer, build={"version": life.build})
        for offset in range(first, first + life.batches):
            log._put([[entry(offset)]])
            answered.add(offset)
        if life.closes:
            log._end()
    if life.power:
        disk.cut_power(lose)
    return disk


def in_order(folder: Path, answered: set[int]) -> None:
    """A start continues the trail, verify reports no fault, and every confirmed offset is in it."""
    if not folder.exists() or not segment_files(folder):
        assert not answered
        return
    examine_trail(folder)
    assert verify_trail(folder, KEYS).faults == []
    whole = [line for path in segment_files(folder).values() for line in path.read_bytes().split(b"\n")[:-1]]
    assert answered <= {orjson.loads(line).get("offset") for line in whole}


def ends(
    folder: Path, life: Life, before: Path | None, answered: set[int], lose: Lose = everything
) -> Iterator[set[int]]:
    """The life ended at each of its calls, and at none, with the offsets confirmed by then; without duplicates."""
    seen, left = set[object](), 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if before is not None and before.exists():
            shutil.copytree(before, folder)
        confirmed = set(answered)
        disk = lived(folder, replace(life, left=left), confirmed, lose)
        files = sorted((path.name, path.read_bytes()) for path in folder.iterdir()) if folder.exists() else []
        if (end := (tuple(files), frozenset(confirmed))) not in seen:
            seen.add(end)
            yield confirmed
        if disk.left:
            return
        left += 1


def test_two_consecutive_crashes_at_any_point_leave_a_sound_trail(tmp_path: Path) -> None:
    """Every pair of crashes while a segment begins: the second agent has the same key and build, or another one."""
    one, two, count = tmp_path / "one", tmp_path / "two", 0
    for first in ends(one, Life(closes=False, size=900), None, set()):
        in_order(one, first)
        for build, signer in (("1", SIGNER), ("2", SIGNER), ("1", OTHER)):
            second = Life(batches=1, build=build, signer=signer, closes=False)
            for third in ends(two, second, one, first):
                in_order(two, third)
                count += 1
                lived(two, Life(batches=1), third)
                in_order(two, third)
    assert count > 500


@pytest.mark.parametrize("lose", [everything, names_of_segments])
def test_a_power_loss_while_a_segment_begins_leaves_a_sound_trail(tmp_path: Path, lose: Lose) -> None:
    for answered in ends(tmp_path / "audit", Life(batches=3, power=True, size=900), None, set(), lose):
        in_order(tmp_path / "audit", answered)


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_while_the_key_changes_leaves_a_sound_trail(tmp_path: Path, power: bool) -> None:
    """At each call: the next agent has the key that the trail names last, and no other."""
    folder, count = tmp_path / "audit", 0
    for answered in ends(folder, Life(batches=3, rotates=True, power=power, size=9000), None, set()):
        in_order(folder, answered)
        lived(folder, Life(batches=1, size=9000), answered)
        in_order(folder, answered)
        assert len((folder / "signing.key").read_bytes().split()) == 1
        count += 1
    assert count > 20


def test_an_unfinished_segment_does_not_reappear_after_a_power_loss(tmp_path: Path) -> None:
    """A new build crashes while it begins a segment; the old build continues; then all unsynced names are lost."""
    one, two, answered, count = tmp_path / "one", tmp_path / "two", set[int](), 0
    lived(one, Life(), answered)
    for left in ends(two, Life(batches=1, build="2", closes=False), one, answered):
        count += len(segment_files(two)) == 2
        lived(two, Life(batches=1, closes=False, power=True, size=9000), left)
        in_order(two, left)
    assert count > 5


@st.composite
def lives(draw: st.DrawFn) -> Life:
    return Life(
        batches=draw(st.integers(0, 5)),
        signer=draw(st.sampled_from([SIGNER, SIGNER, OTHER])),
        build=draw(st.sampled_from("112")),
        every=draw(st.booleans()),
        rotates=draw(st.booleans()),
        closes=draw(st.booleans()),
        size=draw(st.sampled_from([900, 2000])),
        left=draw(st.integers(0, 60)),
        power=draw(st.booleans()),
    )


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lives(), min_size=1, max_size=6), st.data())
def test_consecutive_crashes_and_power_losses_leave_a_sound_trail(chain: list[Life], data: st.DataObject) -> None:
    with TemporaryDirectory() as where:
        folder, answered = Path(where) / "audit", set[int]()
        for life in (*chain, Life()):
            lived(folder, life, answered, lambda _, most: data.draw(st.integers(0, most)))
            in_order(folder, answered)
        assert verify_trail(folder, KEYS).warnings == []
