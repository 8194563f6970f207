"""The account of a feed: every record has one outcome, or its offset is named."""

from collections import Counter
from pathlib import Path

import pytest
from support.trails import Clock, entry, trail

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome, Partition
from deid_agent.audit.reconcile import (
    AuditedRecord,
    FoundResults,
    InputRecords,
    PartitionBalance,
    balance,
    read_audited,
)

STREAM = Partition("adt", 0)
WHOLE = InputRecords(STREAM, 10, 20, 23, [10, 11, 12, 14, 15, 17])
AUDITED = {
    offset: AuditedRecord(outcome, f"id{offset}")
    for offset, outcome in (
        (3, "published"),
        (10, "published"),
        (11, "dead_lettered"),
        (12, "suppressed"),
        (14, "published"),
        (15, "published"),
        (16, "published"),
        (17, "published"),
        (21, "published"),
    )
}
OUTPUTS = Counter({f"id{offset}": 1 for offset in (3, 10, 14, 15, 16, 17, 21)})
DEAD_LETTERS = {Coordinates("adt", 0, 11): Counter({"id11": 1})}


def account(
    records: InputRecords = WHOLE,
    audited: dict[int, AuditedRecord] = AUDITED,
    outputs: Counter[str] = OUTPUTS,
    dead_letters: dict[Coordinates, Counter[str]] = DEAD_LETTERS,
    *,
    expired_outputs: bool = False,
) -> PartitionBalance:
    ids = {offset: f"id{offset}" for offset in records.offsets}
    found = FoundResults(outputs, dead_letters)
    return balance(records, audited, found, id_of=ids, expired_outputs=expired_outputs)


def test_every_record_is_accounted_for_and_gaps_are_known() -> None:
    found = account()
    assert found.faults == []
    assert found.outcomes == {"published": 4, "dead_lettered": 1, "suppressed": 1}
    # 13, 18 and 19 hold no record, 16 was compacted away after it was published, 3 is older than the input.
    assert (found.absent, found.vanished, found.expired, found.pending) == (3, 1, 1, 3)


def test_missing_and_repeated_results_are_named() -> None:
    without = {offset: record for offset, record in AUDITED.items() if offset not in {10, 11}}
    assert account(audited=without).faults == [
        (10, "no audit entry, but an output"),
        (11, "no audit entry, but a dead letter"),
    ]
    twice = OUTPUTS + Counter({"id14": 1, "id11": 1, "id12": 2})
    assert account(outputs=twice).faults == [
        (11, "dead_lettered in the audit, but it has 1 output"),
        (12, "suppressed in the audit, but it has 2 outputs"),
        (14, "published in the audit, but it has 2 outputs"),
    ]
    assert account(outputs=twice, expired_outputs=True).faults == account(outputs=twice).faults
    assert account(dead_letters={}).faults == [(11, "dead_lettered in the audit, but it has no dead letter")]
    fewer = Counter({name: count for name, count in OUTPUTS.items() if name != "id15"})
    assert account(outputs=fewer).faults == [(15, "published in the audit, but it has no output")]
    assert account(outputs=fewer, expired_outputs=True).faults == []
    lost = InputRecords(STREAM, 10, 20, 23, [*WHOLE.offsets, 19])
    assert account(lost).faults == [(19, "no audit entry, no output, no dead letter")]
    odd = {**AUDITED, 10: AuditedRecord("eaten", "id10")}
    assert account(audited=odd).faults == [(10, "an audit entry with an unknown outcome")]


def test_numbers_that_were_given_up_need_no_outcome() -> None:
    records = InputRecords(STREAM, 10, 20, 20, WHOLE.offsets, frozenset({13, 18}))
    found = balance(records, AUDITED, FoundResults(), id_of={})
    assert (found.faults, found.absent, found.vanished) == ([], 1, 1)


async def test_the_last_entry_of_all_trails_counts(tmp_path: Path) -> None:
    """A record that moved to another agent after a crash has an entry in both trails."""
    early, late = Clock(), Clock()
    late.now += 60
    refused = AuditEntry(Coordinates("adt", 0, 1), Outcome.DEAD_LETTERED, "LEAK", id="b")
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, clock, entries in zip(
        folders, (late, early), ([refused], [entry(0, id="a"), entry(1, id="b")]), strict=True
    ):
        log = trail(folder, clock=clock)
        await log.append(entries)
        await log.close()
    for order in (folders, folders[::-1]):
        assert read_audited(order) == {
            STREAM: {0: AuditedRecord("published", "a"), 1: AuditedRecord("dead_lettered", "b")}
        }


@pytest.mark.parametrize("members", ['"topic":7', '"offset":"x"', '"partition":null'])
async def test_malformed_entries_are_left_out(tmp_path: Path, members: str) -> None:
    log = trail(tmp_path / "audit")
    await log.append([entry(0)])
    await log.close()
    path = tmp_path / "audit" / "00000001.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind":"entry",%s,"time":1}\n' % members.encode())
    assert list(read_audited([tmp_path / "audit"])[STREAM]) == [0]


async def test_in_one_trail_the_order_of_the_lines_counts(tmp_path: Path) -> None:
    """A clock that is set back between the two entries of a record that was refused after its audit."""
    clock = Clock()
    log = trail(tmp_path, clock=clock)
    await log.append([entry(0, id="a")])
    clock.now -= 60
    await log.append([AuditEntry(Coordinates("adt", 0, 0), Outcome.DEAD_LETTERED, "KEYLESS", id="a")])
    await log.close()
    assert read_audited([tmp_path]) == {STREAM: {0: AuditedRecord("dead_lettered", "a")}}


async def test_a_record_is_not_accounted_for_by_a_former_topic(tmp_path: Path) -> None:
    """The topic was created again, and counts offsets anew: the entry and the output are those of another record."""
    log = trail(tmp_path)
    await log.append([entry(0, id="a", topic_id="former"), entry(1, id="b", topic_id="now"), entry(2, id="c")])
    await log.close()
    assert sorted(read_audited([tmp_path])[STREAM]) == [0, 1, 2]
    audited = read_audited([tmp_path], {"adt": "now"})[STREAM]
    assert sorted(audited) == [1, 2], "an older version wrote no id"
    records = InputRecords(STREAM, 0, 3, 3, [0, 1, 2])
    found = balance(records, audited, FoundResults(Counter("abc"), {}), id_of={0: "z"})
    assert found.faults == [(0, "no audit entry, no output, no dead letter")]


def test_dead_letters_of_a_former_topic_are_not_those_of_a_record() -> None:
    found = {Coordinates("adt", 0, offset): Counter({"former": 1}) for offset in (10, 11)}
    assert account(dead_letters=found).faults == [(11, "dead_lettered in the audit, but it has no dead letter")]
    found[Coordinates("adt", 0, 11)]["id11"] = 1
    assert account(dead_letters=found).faults == []
    found[Coordinates("adt", 0, 11)][""] = 1  # an older version wrote no id
    assert account(dead_letters=found).faults == [(11, "dead_lettered in the audit, but it has 2 dead letters")]
