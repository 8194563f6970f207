"""Headers of replayed records are accepted only if a replay could have written them."""

import pytest
from support.marks import MARKS, id_header

from deid_agent.agent.job import Completed, Processed, Refused, Result, Suppressed
from deid_agent.agent.outcomes import (
    NO_REPLAY,
    REPLAY_ATTEMPTS,
    REPLAY_OF,
    Lineage,
    finish_record,
    make_audit_entry,
    read_lineage,
    replay_headers,
)
from deid_agent.agent.ports import Coordinates, Headers, Record
from deid_agent.model.errors import Reason

AT = Coordinates("adt", 1, 20)


def record(*headers: tuple[str, bytes]) -> Record:
    return Record(AT, b"x", b"k", headers)


def test_a_replayed_record_keeps_its_first_position() -> None:
    first = Record(Coordinates("adt", 1, 5), b"x", b"k", (("trace", b"1"), ("twice", b"1"), ("twice", b"2")))
    once = replay_headers(first, 2)
    assert once == (*first.headers, (REPLAY_OF, b"adt/1/5"), (REPLAY_ATTEMPTS, b"2"))
    assert read_lineage(record(*once)) == Lineage(first.coordinates, 2)
    twice = replay_headers(record(*once), 4)
    assert twice == (*first.headers, (REPLAY_OF, b"adt/1/5"), (REPLAY_ATTEMPTS, b"4"))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((REPLAY_OF, b"Okonkwo"),),
        ((REPLAY_OF, b"adt/1/20"),),
        ((REPLAY_OF, b"adt/1/4471902"),),
        ((REPLAY_OF, b"adt/0/5"),),
        ((REPLAY_OF, b"other/1/5"),),
        ((REPLAY_OF, b"adt/1/05"),),
        ((REPLAY_OF, b"adt/1/5 "),),
        ((REPLAY_OF, b"adt/1/5\n"),),
        ((REPLAY_OF, "adt/1/٥".encode()),),
        ((REPLAY_OF, b"adt/1/"),),
        ((REPLAY_OF, b"adt/1/" + b"9" * 5000),),
        ((REPLAY_OF, b"adt/1/5"), (REPLAY_OF, b"adt/1/6")),
    ],
)
def test_headers_that_no_replay_wrote_are_ignored(headers: Headers) -> None:
    assert read_lineage(record(*headers)) == NO_REPLAY


@pytest.mark.parametrize("count", [b"0", b"-1", b"4471902", b"x", b"", b"07"])
def test_an_invalid_attempt_count_is_ignored(count: bytes) -> None:
    headers = ((REPLAY_OF, b"adt/1/5"), (REPLAY_ATTEMPTS, count))
    assert read_lineage(record(*headers)) == Lineage(Coordinates("adt", 1, 5), 0)


@pytest.mark.parametrize(
    ("origin", "left"),
    [
        (b"adt/1/5", ((REPLAY_OF, MARKS.id_of(Coordinates("adt", 1, 5)).encode()),)),
        (b"Okonkwo", ()),
        (b"adt/1/4471902", ()),
    ],
)
def test_an_output_has_only_validated_lineage_headers_under_any_policy(origin: bytes, left: Headers) -> None:
    headers = (("trace", b"1"), (REPLAY_OF, origin), ("Deid-Replay-Of", b"Okonkwo"), (REPLAY_ATTEMPTS, b"1"))
    came = record(*headers)
    finished = finish_record(came, Completed(Processed(b"clean", None, headers)), MARKS)
    assert finished.output is not None
    assert finished.output.headers == (("trace", b"1"), *left, id_header(AT))


@pytest.mark.parametrize("result", [Processed(b"clean"), Refused(Reason.INTERNAL), Suppressed()])
def test_the_audit_entry_names_the_origin_of_a_replayed_record(result: Result) -> None:
    first = Coordinates("adt", 1, 5)
    again, new = record((REPLAY_OF, str(first).encode())), record((REPLAY_OF, b"Okonkwo"))
    done = Completed(result)
    assert make_audit_entry(finish_record(again, done, MARKS), done).replay_of == first
    assert make_audit_entry(finish_record(new, done, MARKS), done).replay_of is None
