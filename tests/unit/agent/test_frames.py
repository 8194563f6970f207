import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.agent import worker_frames as frames
from deid_agent.agent.job import Deferred, Job, JobPosition, Processed, Refused, Result, Suppressed
from deid_agent.agent.worker_frames import (
    SIZE,
    Frame,
    FrameKind,
    decode_job,
    decode_result,
    encode_job,
    encode_result,
    pack_frame,
    unpack_frame,
)
from deid_agent.model.errors import Reason

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=4).map(tuple)
KEYS = st.none() | st.binary(max_size=9)
RESULTS = (
    st.builds(
        Processed,
        st.binary(max_size=50),
        KEYS,
        HEADERS,
        st.just(b"[]"),
        st.text(max_size=4),
        st.text(max_size=4),
        st.lists(st.tuples(st.text(max_size=4), st.integers(0, 9)), max_size=3).map(tuple),
        st.lists(st.tuples(st.text(max_size=4), st.floats(0, 9)), max_size=3).map(tuple),
        provenance=st.binary(max_size=9),
    )
    | st.builds(Refused, st.sampled_from(Reason), st.text(max_size=9))
    | st.builds(Suppressed, st.text(max_size=9))
    | st.builds(Deferred, st.text(max_size=9))
)


def there_and_back(frame: Frame) -> Frame:
    data = pack_frame(frame)
    assert SIZE.unpack_from(data)[0] == len(data) - SIZE.size
    return unpack_frame(data[SIZE.size :])


@given(
    st.binary(max_size=50),
    KEYS,
    HEADERS,
    st.text(max_size=9),
    st.text(max_size=9),
    st.integers(0, 2**64 - 1),
    st.none() | st.builds(JobPosition, st.integers(0), st.integers(0), st.none() | st.integers(), st.text(max_size=5)),
)
def test_a_job_arrives_unchanged(
    payload: bytes,
    key: bytes | None,
    headers: object,
    source: str,
    project: str,
    number: int,
    position: JobPosition | None,
) -> None:
    job = Job(
        payload,
        key,
        headers,  # type: ignore[arg-type]
        source=source,
        project=project,
        position=position,
        code_key=payload[::2],
    )
    frame = there_and_back(encode_job(number, job))
    assert (decode_job(frame), frame.number) == (job, number)


@given(RESULTS)
def test_a_result_arrives_unchanged(result: Result) -> None:
    frame = there_and_back(encode_result(5, result, 12))
    assert (decode_result(frame), frame.number, frame.nanoseconds) == (result, 5, 12)


def test_a_tombstone_is_not_an_empty_payload() -> None:
    for job in (Job(b"", b"k", tombstone=True), Job(b"", b"k")):
        assert decode_job(there_and_back(encode_job(1, job))) == job


def test_a_truncated_frame_is_refused() -> None:
    body = pack_frame(encode_job(1, Job(b"abc")))[SIZE.size :]
    with pytest.raises(ValueError, match="torn"):
        unpack_frame(body[:-1])


def test_an_oversized_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME", 100)
    with pytest.raises(ValueError, match="too large"):
        pack_frame(encode_job(1, Job(b"x" * 100)))
    with pytest.raises(ValueError, match="too large"):
        pack_frame(Frame(FrameKind.JOB, 1, (b"",) * 70_000))


def test_the_repr_of_a_frame_shows_no_field() -> None:
    frame = encode_job(7, Job(b"Okafor", b"4471902", (("deid-test", b"Marisol"),), source="adt"))
    assert repr(frame) == "Frame(JOB, number=7, fields=9)"
