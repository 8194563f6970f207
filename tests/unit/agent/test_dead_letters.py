import pytest

from deid_agent.agent.outcomes import DeadLetterLimit, RefusalCounter, dead_letter_headers, safe_path
from deid_agent.agent.ports import Coordinates, DeadLetter, FinishedRecord, Outcome, Record
from deid_agent.model.errors import Reason, UnsafeError

AT = Coordinates("adt", 0, 17)


def see(count: RefusalCounter, dead_letters: str) -> int:
    """Feed outcomes (x refused, . fine); the number accepted before the limit."""
    for number, dead_letter in enumerate(dead_letters):
        outcome = Outcome.DEAD_LETTERED if dead_letter == "x" else Outcome.PUBLISHED
        try:
            count = count.with_records([FinishedRecord(Record(AT, b""), outcome)])
        except UnsafeError:
            return number
    return len(dead_letters)


def test_headers_hold_codes_and_coordinates() -> None:
    dead_letter = DeadLetter(Reason.LEAK, "guard", "OBX-5[2]", 2, "MessageError")
    assert dict(dead_letter_headers(AT, dead_letter)) == {
        "__connect.errors.topic": b"adt",
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"17",
        "__connect.errors.stage": b"guard",
        "__connect.errors.exception.class.name": b"MessageError",
        "deid.error.code": b"LEAK",
        "deid.error.where": b"OBX-5[2]",
        "deid.attempts": b"2",
        "deid.version": b"0.1.0",
    }


@pytest.mark.parametrize("where", ["PID-5[1].1", "byte 120", "Patient.name[0].family", "DiagnosticReport.text.div", ""])
def test_paths_are_kept(where: str) -> None:
    assert safe_path(where) == where


@pytest.mark.parametrize("where", ["OKONKWO^ADA", "Müller", "a" * 200, "x\ny", "ada@example.org", "(555) 010"])
def test_anything_but_a_path_is_left_out(where: str) -> None:
    assert safe_path(where) == ""


@pytest.mark.parametrize(
    ("dead_letters", "taken"),
    [("xxxx", 3), ("xxx.xxx.", 8), ("..x.x.x.x", 9), (".xxx", 4)],
)
def test_the_limit_on_runs(dead_letters: str, taken: int) -> None:
    limit = DeadLetterLimit(run=3, ratio=1.0, window=100)
    assert see(RefusalCounter(limit), dead_letters) == taken


def test_the_ratio_looks_at_the_window_only() -> None:
    limit = DeadLetterLimit(run=100, ratio=0.5, window=4)
    assert see(RefusalCounter(limit), "xx..xx..xx..") == 12
    assert see(RefusalCounter(limit), "xx..xxx.....") == 6
    assert see(RefusalCounter(limit), "xxx") == 3


def test_a_record_that_is_counted_twice_counts_once() -> None:
    """A batch is counted again each time another of its outputs is refused."""
    fine, refused = (FinishedRecord(Record(AT, b""), outcome) for outcome in (Outcome.PUBLISHED, Outcome.DEAD_LETTERED))
    count = RefusalCounter(DeadLetterLimit(run=3, ratio=0.5, window=4)).with_records([refused, fine])
    for batch in ([fine, fine], [refused, fine], [refused, fine]):
        behind = count.with_records(batch)
    assert see(behind, ".x") == 2
    assert see(behind, "xx") == 1, "three of the last four"
    assert see(count, "x..x") == 4


@pytest.mark.parametrize("bad", [{"run": 0}, {"window": 0}, {"ratio": 1.5}])
def test_invalid_limits_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="limit"):
        DeadLetterLimit(**bad)  # type: ignore[arg-type]
