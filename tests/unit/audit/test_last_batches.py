"""The last batches of a trail on disk: over segments, keys, epochs and formats."""

import shutil
from pathlib import Path

from support.trails import BUILD, Clock, entry, kinds, trail

from deid_agent.agent.ports import Partition
from deid_agent.audit.reading import read_last_batches
from deid_agent.audit.storage import segment_files
from deid_agent.audit.trail import TrailSettings

ADT = Partition("adt", 0)
FORMER = Path(__file__).resolve().parents[2] / "cases" / "audit-format-1"


async def test_keys_checkpoints_and_heads_between_entries_do_not_matter(tmp_path: Path) -> None:
    clock = Clock()
    log = trail(tmp_path, TrailSettings(checkpoint_s=1, epoch_s=5), clock=clock)
    for first in range(0, 12, 3):
        await log.append([entry(first + n, topic_id="A", id=f"{first + n:032x}") for n in range(3)])
        await log.append([entry(first, 1, topic_id="A")])
        clock.now += 4
    await log.close()
    assert kinds(tmp_path).count("k") >= 2
    found = read_last_batches(tmp_path)
    assert (found[ADT].first, found[ADT].next, found[ADT].topic_id, len(found[ADT].ids)) == (9, 12, "A", 3)
    assert found[Partition("adt", 1)].first == 9


async def test_an_entry_of_a_project_counts(tmp_path: Path) -> None:
    """Otherwise a position that is gone could not be restored from the trail of an agent with projects."""
    log = trail(tmp_path)
    await log.append([entry(n, topic_id="A", project="registry-2", id=f"{n:032x}") for n in range(3)])
    await log.append([entry(3, 1, project="default", id=f"{3:032x}")])
    await log.close()
    found = read_last_batches(tmp_path)
    assert (found[ADT].next, found[ADT].topic_id, len(found[ADT].ids)) == (3, "A", 3)
    assert found[Partition("adt", 1)].next == 4


async def test_a_refusal_in_the_next_segment_does_not_begin_a_batch(tmp_path: Path) -> None:
    """A start that took it for one would skip the records before it, or refuse a position that is right."""
    log = trail(tmp_path, TrailSettings(checkpoint_s=3600, segment_bytes=1, epoch_s=1e9))
    await log.append([entry(offset, id=f"{offset:032x}") for offset in range(10, 20)])
    refused = entry(15, id=f"{15:032x}", reason="KEYLESS")
    await log.append([refused])
    await log.close()
    assert len(segment_files(tmp_path)) == 2
    found = read_last_batches(tmp_path)[ADT]
    assert (found.first, found.next, len(found.ids)) == (10, 20, 10)


async def test_batches_of_former_segments_are_not_joined(tmp_path: Path) -> None:
    clock = Clock()
    log = trail(tmp_path, TrailSettings(checkpoint_s=3600, segment_bytes=1, epoch_s=1e9), clock=clock)
    for first in (0, 3, 6):
        await log.append([entry(first + n) for n in range(3)])
        clock.now += 1
    await log.close()
    found = read_last_batches(tmp_path)[ADT]
    assert (found.first, found.next) == (6, 9)


async def test_a_trail_of_the_former_format_is_read_and_continued(tmp_path: Path) -> None:
    """Its entries name no topic id."""
    folder = Path(shutil.copytree(FORMER, tmp_path / "audit"))
    former = read_last_batches(folder)[ADT]
    assert (former.next, former.topic_id) == (6, "")
    log = trail(folder, build={**BUILD, "version": "2"})
    await log.append([entry(6, topic_id="A"), entry(7, topic_id="A", id="f" * 32)])
    await log.close()
    found = read_last_batches(folder)[ADT]
    assert (found.next, found.topic_id) == (8, "A")
