import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.agent.ledger import PartitionLedger
from deid_agent.agent.ports import Coordinates, FinishedRecord, Outcome, Partition, Record
from deid_agent.model.errors import UnsafeError

STREAM = Partition("adt", 3)


def done(offset: int) -> FinishedRecord:
    return FinishedRecord(Record(Coordinates("adt", 3, offset), b"Okonkwo"), Outcome.SUPPRESSED)


def ledger(*offsets: int) -> PartitionLedger:
    fresh = PartitionLedger(STREAM)
    for offset in offsets:
        fresh.start(offset)
    return fresh


@given(
    gaps=st.lists(st.integers(1, 4), min_size=1, max_size=25),
    order=st.randoms(use_true_random=False),
    limit=st.integers(1, 6),
)
def test_the_position_is_one_past_the_longest_finished_prefix(gaps: list[int], order: object, limit: int) -> None:
    offsets = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    book, waiting, finished, out = ledger(*offsets), list(offsets), set[int](), list[int]()
    order.shuffle(waiting)  # type: ignore[attr-defined]
    for offset in waiting:
        book.finish(offset, done(offset))
        finished.add(offset)
        prefix = []
        for candidate in offsets:
            if candidate not in finished:
                break
            prefix.append(candidate)
        batch = book.take_batch(limit)
        assert (batch is not None) == (len(prefix) > len(out))
        if batch is not None:
            out += [item.record.coordinates.offset for item in batch.records]
            assert len(batch.records) <= limit
            assert batch.position == out[-1] + 1
            assert out == prefix[: len(out)]
            book.confirm()
        assert len(book) == len(offsets) - len(out)
    while (batch := book.take_batch(limit)) is not None:
        out += [item.record.coordinates.offset for item in batch.records]
        book.confirm()
    assert out == offsets


def test_a_taken_batch_counts_as_open_until_it_is_confirmed() -> None:
    book = ledger(0, 1)
    book.finish(0, done(0))
    assert book.take_batch(5) is not None
    assert (len(book), book.ready) == (2, 0)
    with pytest.raises(UnsafeError, match="not confirmed"):
        book.take_batch(5)
    book.confirm()
    assert (len(book), book.take_batch(5)) == (1, None)


def test_no_record_finishes_twice() -> None:
    book = ledger(4, 5)
    book.finish(5, done(5))
    with pytest.raises(UnsafeError, match="adt/3/5 was finished twice"):
        book.finish(5, done(5))
    book.finish(4, done(4))
    with pytest.raises(UnsafeError):
        book.finish(4, done(4))


def test_only_started_records_finish() -> None:
    book = ledger(4)
    with pytest.raises(UnsafeError, match="never started"):
        book.finish(9, done(9))
    with pytest.raises(UnsafeError):
        book.finish(4, done(9))
    assert book.take_batch(9) is None


def test_offsets_only_rise() -> None:
    book = ledger(4, 8)
    for offset in (8, 5):
        with pytest.raises(UnsafeError, match="must increase"):
            book.start(offset)


def test_records_after_an_abandoned_offset_do_not_count() -> None:
    book = ledger(0, 1, 2, 3, 4)
    for offset in (0, 3):
        book.finish(offset, done(offset))
    assert (book.abandon_from(2), book.abandon_from(3)) == (3, 0)
    book.finish(4, done(4))
    book.finish(1, done(1))
    assert (len(book), book.ready) == (2, 2)
    assert book.abandon_from(1) == 0, "finished records that wait for their commit remain"
    batch = book.take_batch(9)
    assert batch is not None and batch.position == 2


def test_a_revoked_ledger_gives_no_batch() -> None:
    book = ledger(0, 1, 2)
    book.finish(0, done(0))
    book.finish(1, done(1))
    book.revoke()
    book.finish(1, done(1))
    book.finish(99, done(99))
    book.start(0)
    assert (book.take_batch(9), len(book)) == (None, 0)


def test_repr_shows_counts_only() -> None:
    book = ledger(0)
    book.finish(0, done(0))
    assert repr(book) == "PartitionLedger(adt/3: 0 open, 1 ready)"
