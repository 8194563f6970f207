"""The id and the time of an output: without the key they name no record and no moment."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.agent import DEID_ID, Coordinates, OutputMarks, Record
from deid_agent.agent.job import Completed, JobPosition, Processed, Refused, Suppressed, job_for
from deid_agent.agent.outcomes import attach_audit_lines, finish_record, make_audit_entry
from deid_agent.model import NO_TIME, Reason, RecordTime

AT = Coordinates("adt", 2, 7)
ONE, OTHER = OutputMarks(b"1" * 32), OutputMarks(b"2" * 32)
MOMENT = datetime(2024, 3, 14, 14, 30, 12, 345_000, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_a_record_id_is_stable_and_depends_on_the_key() -> None:
    assert ONE.id_of(AT) == OutputMarks(b"1" * 32, RecordTime.YEAR).id_of(Coordinates("adt", 2, 7))
    coordinates = [Coordinates(t, p, o) for t in ("adt", "adt/2", "oru") for p in range(5) for o in range(200)]
    ids = {marks.id_of(at) for marks in (ONE, OTHER) for at in coordinates}
    assert len(ids) == 2 * len({str(at) for at in coordinates})
    assert all(len(found) == 32 and int(found, 16) >= 0 for found in ids)
    assert "1" * 32 not in repr(ONE)


@pytest.mark.parametrize(
    "completed", [Completed(Processed(b"y")), Completed(Refused(Reason.MALFORMED)), Completed(Suppressed())]
)
def test_the_audit_entry_has_the_id_and_the_coordinates(completed: Completed) -> None:
    finished = finish_record(Record(AT, b"x"), completed, ONE)
    entry = make_audit_entry(finished, completed)
    assert (entry.id, entry.coordinates) == (finished.id, AT) == (ONE.id_of(AT), AT)
    if finished.output is not None:
        assert finished.output.headers == ((DEID_ID, finished.id.encode()),)


def test_no_header_of_an_output_reveals_its_position() -> None:
    headers = ((DEID_ID, b"forged"), ("deid-replay-of", b"adt/2/3"))
    output = finish_record(Record(AT, b"x", headers=headers), Completed(Processed(b"y", b"k", headers)), ONE).output
    assert output is not None
    assert [name for name, _ in output.headers] == ["deid-replay-of", DEID_ID]
    assert dict(output.headers)["deid-replay-of"].decode() == ONE.id_of(Coordinates("adt", 2, 3))
    assert not any(b"adt" in value or b"forged" in value for _, value in output.headers)


TRACED = (("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tracestate", b"a=1"))


@pytest.mark.parametrize("project", ["", "default", "registry"])
def test_only_a_project_leaves_the_trace_of_its_record(project: str) -> None:
    record = Record(AT, b"x", headers=TRACED)
    completed = Completed(Processed(b"y", None, (*TRACED, ("content-type", b"text/plain"))))
    finished = finish_record(record, completed, OutputMarks(b"1" * 32, project=project))
    assert finished.output is not None
    names = [name for name, _ in finished.output.headers]
    if project == "registry":
        assert names == ["content-type", DEID_ID]
    else:
        assert finished.output.headers == finish_record(record, completed, ONE).output.headers  # type: ignore[union-attr]
        assert names == ["tracestate", "content-type", "traceparent", DEID_ID]
    assert make_audit_entry(finished, completed, project).project == project


def test_the_outputs_of_two_projects_share_no_header() -> None:
    headers = (*TRACED, ("deid-replay-of", b"adt/2/3"))
    found = []
    for marks in (OutputMarks(b"1" * 32, project="a"), OutputMarks(b"2" * 32, project="b")):
        output = finish_record(
            Record(AT, b"x", headers=headers), Completed(Processed(b"y", b"k", headers)), marks
        ).output
        assert output is not None
        found.append({value for _, value in output.headers})
    assert len(found[0]) == 2
    assert not found[0] & found[1]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        (RecordTime.KEEP, MOMENT),
        (RecordTime.DAY, datetime(2024, 3, 14, tzinfo=UTC)),
        (RecordTime.WEEK, datetime(2024, 3, 11, tzinfo=UTC)),
        (RecordTime.YEAR, datetime(2024, 1, 1, tzinfo=UTC)),
        (RecordTime.NONE, None),
    ],
)
def test_an_output_has_the_time_of_the_policy(precision: RecordTime, expected: datetime | None) -> None:
    record = Record(AT, b"x", timestamp_ms=ms(MOMENT))
    output = finish_record(record, Completed(Processed(b"y")), OutputMarks(b"1" * 32, precision)).output
    assert output is not None
    assert output.timestamp_ms == (NO_TIME if expected is None else ms(expected))
    without = finish_record(Record(AT, b"x"), Completed(Processed(b"y")), OutputMarks(b"1" * 32, precision)).output
    assert without is not None
    assert without.timestamp_ms == NO_TIME


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4 * 10**12), st.sampled_from(RecordTime))
def test_a_coarse_time_is_the_start_of_its_interval(time_ms: int, precision: RecordTime) -> None:
    found = precision.coarsen(time_ms)
    if found == NO_TIME:
        assert precision is RecordTime.NONE or time_ms < 0 or time_ms > ms(datetime(9999, 12, 31, tzinfo=UTC))
        return
    assert precision.coarsen(found) == found
    assert 0 <= time_ms - found < max(1, precision.span_days * 86_400_000)
    if precision is not RecordTime.KEEP:
        start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=found)
        assert (start.hour, start.minute, start.second, start.microsecond) == (0, 0, 0, 0)
        assert precision is not RecordTime.YEAR or (start.month, start.day) == (1, 1)
        assert precision is not RecordTime.WEEK or start.weekday() == 0 or found == 0


def test_a_provenance_stays_with_its_output_and_a_job_names_its_position() -> None:
    record = Record(AT, b"x", timestamp_ms=ms(MOMENT), topic_id="t")
    made = finish_record(record, Completed(Processed(b"y", provenance=b"{}")), ONE)
    refused = finish_record(record, Completed(Refused(Reason.LEAK)), ONE)
    first, last = attach_audit_lines([made, refused], [b"1", b"2"], head=b"h")
    assert (first.provenance, first.audit, last.provenance, last.head) == (b"{}", b"1", b"", b"h")
    (alone,) = attach_audit_lines([made], [b"1"], head=b"h")
    assert (alone.provenance, alone.head) == (b"{}", b"h")
    job = job_for(record)
    assert job.position == JobPosition(2, 7, ms(MOMENT), "t")
    assert ONE.id_of(Coordinates(job.source, *job.position[:2]), job.position.topic_id) == made.id
