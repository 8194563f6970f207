"""Headers of records that were put back: believed only where a replay could have written them."""

import pytest

from deid_agent.agent.job import Completed, Processed, Refused, Result, Suppressed
from deid_agent.agent.lineage import NEW, REPLAY_ATTEMPTS, REPLAY_OF, Lineage, headers_of_replay, lineage_of
from deid_agent.agent.outcomes import DEID_ID, entry_of, settled_as
from deid_agent.agent.ports import Coordinates, Headers, Record
from deid_agent.errors import Reason

AT = Coordinates("adt", 1, 20)


def record(*headers: tuple[str, bytes]) -> Record:
    return Record(AT, b"x", b"k", headers)


def test_a_record_that_was_put_back_knows_where_it_was_first() -> None:
    first = Record(Coordinates("adt", 1, 5), b"x", b"k", (("trace", b"1"), ("twice", b"1"), ("twice", b"2")))
    once = headers_of_replay(first, 2)
    assert once == (*first.headers, (REPLAY_OF, b"adt/1/5"), (REPLAY_ATTEMPTS, b"2"))
    assert lineage_of(record(*once)) == Lineage(first.coordinates, 2)
    twice = headers_of_replay(record(*once), 4)
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
def test_whatever_no_replay_wrote_is_not_believed(headers: Headers) -> None:
    assert lineage_of(record(*headers)) == NEW


@pytest.mark.parametrize("count", [b"0", b"-1", b"4471902", b"x", b"", b"07"])
def test_a_count_that_is_none_is_not_believed(count: bytes) -> None:
    headers = ((REPLAY_OF, b"adt/1/5"), (REPLAY_ATTEMPTS, count))
    assert lineage_of(record(*headers)) == Lineage(Coordinates("adt", 1, 5), 0)


@pytest.mark.parametrize(
    ("told", "left"), [(b"adt/1/5", ((REPLAY_OF, b"adt/1/5"),)), (b"Okonkwo", ()), (b"adt/1/4471902", ())]
)
def test_an_output_says_what_is_believed_even_where_the_policy_lets_all_headers_through(
    told: bytes, left: Headers
) -> None:
    headers = (("trace", b"1"), (REPLAY_OF, told), ("Deid-Replay-Of", b"Okonkwo"), (REPLAY_ATTEMPTS, b"1"))
    came = record(*headers)
    settled = settled_as(came, Completed(Processed(b"clean", None, headers)))
    assert settled.output is not None
    assert settled.output.headers == (("trace", b"1"), *left, (DEID_ID, b"adt/1/20"))


@pytest.mark.parametrize("result", [Processed(b"clean"), Refused(Reason.INTERNAL), Suppressed()])
def test_the_audit_says_of_what_a_record_is_the_replay(result: Result) -> None:
    first = Coordinates("adt", 1, 5)
    again, new = record((REPLAY_OF, str(first).encode())), record((REPLAY_OF, b"Okonkwo"))
    done = Completed(result)
    assert entry_of(settled_as(again, done), done).replay_of == first
    assert entry_of(settled_as(new, done), done).replay_of is None
