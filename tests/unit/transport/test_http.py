"""Requests as records: a lane for each, results as answers, and what happens when the agent or a client leaves."""

import asyncio

import pytest
from support.transport_contract import Member, published

from deid_agent.agent.job import Completed, Refused, job_for
from deid_agent.agent.outcomes import OutputMarks, finish_record, make_audit_entry
from deid_agent.agent.ports import Coordinates, Outcome, Partition, Record, Request
from deid_agent.agent.worker_process import decode_job, encode_job
from deid_agent.model.errors import Reason, TransientError, UnsafeError
from deid_agent.transport.http import HttpTransport, Lane

MARKS = OutputMarks(b"k" * 32)
CANARY = "Zyblorqvist"


async def started(lanes: int = 2) -> HttpTransport:
    transport = HttpTransport(lanes)
    await transport.start(Member())
    return transport


def claim(transport: HttpTransport) -> Lane:
    lane = transport.claim()
    assert lane is not None
    return lane


async def test_a_request_is_a_record_of_its_lane() -> None:
    transport = await started()
    lane = claim(transport)
    answer = lane.submit(b"payload", Request("lab", "note"))
    (record,) = await transport.poll(10)
    assert (record.payload, record.coordinates.stream) == (b"payload", lane.stream)
    assert lane.stream == Partition("http-default", 0)
    assert job_for(record).task == "note"
    assert transport.lag(lane.stream) == 1
    await transport.commit(lane.stream, [published(record)], 1)
    assert (await answer).output is not None
    assert transport.lag(lane.stream) == 0


async def test_records_of_one_lane_are_in_order_and_poll_is_fair() -> None:
    transport = await started()
    first, second = claim(transport), claim(transport)
    for number in range(5):
        first.submit(b"%d" % number, Request())
    second.submit(b"other", Request())
    seen = [record.payload for _ in range(3) for record in await transport.poll(2)]
    assert b"other" in seen[:4]
    assert [payload for payload in seen if payload != b"other"] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_lane_is_free_once_its_request_left_and_its_records_are_done() -> None:
    transport = await started(1)
    lane = claim(transport)
    lane.submit(b"taken", Request())
    (record,) = await transport.poll(1)
    unread = lane.submit(b"not taken", Request())
    lane.release()
    assert transport.claim() is None
    assert await transport.poll(1) == []
    with pytest.raises(TransientError):
        await unread
    await transport.commit(lane.stream, [published(record)], 1)
    assert transport.claim() is lane


async def test_a_paused_lane_delivers_nothing() -> None:
    transport = await started()
    lane = claim(transport)
    lane.submit(b"x", Request())
    transport.pause(lane.stream)
    assert await transport.poll(1) == []
    transport.resume(lane.stream)
    assert len(await transport.poll(1)) == 1


async def test_requests_that_wait_when_the_agent_stops_are_informed() -> None:
    transport = await started()
    lane = claim(transport)
    waiting = [lane.submit(b"x", Request()), lane.submit(b"y", Request())]
    await transport.poll(1)
    await transport.stop()
    await transport.stop()
    late = lane.submit(b"z", Request())
    for answer in (*waiting, late):
        with pytest.raises(TransientError):
            await answer
    assert transport.claim() is None
    assert not transport.exhausted


async def test_a_request_that_was_cancelled_gets_no_answer_and_harms_no_other() -> None:
    transport = await started(1)
    lane = claim(transport)
    gone, answer = lane.submit(b"x", Request()), lane.submit(b"y", Request())
    records = await transport.poll(2)
    gone.cancel()
    await transport.commit(lane.stream, [published(record) for record in records], 2)
    assert (await answer).record is records[1]


async def test_a_batch_of_another_lane_stops_the_agent() -> None:
    transport = await started()
    first, second = claim(transport), claim(transport)
    first.submit(b"x", Request())
    (record,) = await transport.poll(1)
    with pytest.raises(UnsafeError):
        await transport.commit(second.stream, [published(record)], 1)


async def test_two_starts_give_no_id_twice() -> None:
    ids = set()
    for _ in range(2):
        transport = await started(1)
        claim(transport).submit(b"x", Request())
        (record,) = await transport.poll(1)
        ids.add(MARKS.id_of(record.coordinates, record.topic_id))
    assert len(ids) == 2


async def test_a_poll_ends_when_a_request_arrives() -> None:
    transport = await started()
    polling = asyncio.create_task(transport.poll(1))
    await asyncio.sleep(0)
    claim(transport).submit(b"x", Request())
    assert len(await polling) == 1


async def test_a_refusal_of_a_request_is_audited_with_its_client_and_is_no_dead_letter() -> None:
    transport = await started()
    claim(transport).submit(CANARY.encode(), Request("lab"))
    (record,) = await transport.poll(1)
    completed = Completed(Refused(Reason.LEAK, f"PID-5 {CANARY}?", input_digest="ab"))
    finished = finish_record(record, completed, MARKS)
    entry = make_audit_entry(finished, completed)
    assert (finished.outcome, entry.outcome, entry.client, entry.where) == (Outcome.REFUSED, Outcome.REFUSED, "lab", "")
    assert finish_record(Record(record.coordinates, b""), completed, MARKS).outcome is Outcome.DEAD_LETTERED
    assert CANARY not in repr((transport, record, finished, entry))


def test_a_task_reaches_the_worker() -> None:
    record = Record(Coordinates("t", 0, 0), b"x", request=Request("lab", "note utf16"))
    assert decode_job(encode_job(1, job_for(record))) == job_for(record)
