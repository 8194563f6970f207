"""The end of an audit trail by partition."""

import pytest

from deid_agent.agent import AuditedBatch, AuditEntry, Coordinates, Outcome, Partition, last_batches
from deid_agent.audit.storage import encode_entry

ADT = Partition("adt", 0)


def line(offset: int, at: float = 1.0, *, topic_id: str = "", outcome: Outcome = Outcome.PUBLISHED) -> bytes:
    entry = AuditEntry(Coordinates("adt", 0, offset), outcome, id=f"{offset:032x}", topic_id=topic_id)
    return encode_entry(entry, "b" * 16, at)


def test_the_entries_of_one_time_are_a_batch() -> None:
    batch = last_batches([line(0), line(1), line(7, 2.0), line(8, 2.0, outcome=Outcome.SUPPRESSED)])[ADT]
    assert (batch.first, batch.next, batch.topic_id) == (7, 9, "")
    assert batch.ids == {7: f"{7:032x}"}, "a suppressed record has no output to look for"


def test_a_record_that_was_refused_later_does_not_begin_a_batch() -> None:
    """Resuming at it would lose the records before it if its batch was never committed."""
    batch = last_batches([*(line(n) for n in range(10)), line(5, 2.0, outcome=Outcome.DEAD_LETTERED)])[ADT]
    assert (batch.first, batch.next, batch.time) == (0, 10, 2.0)


def test_a_batch_that_came_again_in_part_keeps_its_begin() -> None:
    assert last_batches([line(0), line(1), line(2), line(0, 2.0), line(1, 2.0)])[ADT].first == 0


def test_a_record_that_is_suppressed_the_second_time_has_no_output_to_look_for() -> None:
    """The policy changed after a crash: a start that missed this output would publish all records after it again."""
    batch = last_batches([line(0), line(1), line(2), line(1, 2.0, outcome=Outcome.SUPPRESSED)])[ADT]
    assert sorted(batch.ids) == [0, 2]


@pytest.mark.parametrize("again", [0, 20])
def test_other_entries_begin_a_batch(again: int) -> None:
    batch = last_batches([line(10), line(11), line(again, 2.0)])[ADT]
    assert (batch.first, batch.next) == (again, again + 1)


def test_a_topic_that_was_created_again_begins_a_batch() -> None:
    lines = [line(0, topic_id="A"), line(1, topic_id="A")]
    assert last_batches([*lines, line(1, 2.0, topic_id="B")])[ADT].first == 1
    assert last_batches([line(0), *lines])[ADT].first == 0, "older versions wrote no id"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"kind":"checkpoint","time":1.0,"lines":3}',
        line(3)[:40],
        line(3).replace(b'"offset":3', b'"offset":-3'),
        line(3).replace(b'"offset":3', b'"offset":' + b"9" * 40),
        line(3).replace(b'"topic":"adt"', b'"topic":7'),
        line(3).replace(b'"adt"', rb'"a\x"'),
        b"\xff" * 100,
    ],
)
def test_other_lines_are_skipped(raw: bytes) -> None:
    assert last_batches([raw]) == {}


def test_a_topic_name_is_read_as_json() -> None:
    assert Partition('a"b', 0) in last_batches([line(3).replace(b'"adt"', rb'"a\"b"')])


def test_batches_show_no_content() -> None:
    assert AuditedBatch(1.0, 2, 3).ids == {}
