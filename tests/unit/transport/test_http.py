"""Requests as records: a slot for each, results as answers, and the end of the agent or of a client."""

import asyncio

import pytest
from support.transport_contract import Member, published

from deid_agent.agent.job import Completed, Refused, job_for
from deid_agent.agent.outcomes import OutputMarks, finish_record, make_audit_entry
from deid_agent.agent.ports import Coordinates, Outcome, Partition, Record, Request
from deid_agent.agent.worker_frames import decode_job, encode_job
from deid_agent.model.errors import Reason, TransientError, UnsafeError
from deid_agent.transport.http import HttpTransport, RequestSlot

MARKS = OutputMarks(b"k" * 32)
CANARY = "Zyblorqvist"


async def started(slots: int = 2, *projects: str) -> HttpTransport:
    transport = HttpTransport(slots, projects or ("default",))
    await transport.start(Member())
    return transport


def claim(transport: HttpTransport) -> RequestSlot:
    slot = transport.claim()
    assert slot is not None
    return slot


async def test_a_request_is_a_record_of_its_slot() -> None:
    transport = await started()
    slot = claim(transport)
    answer = slot.submit(b"payload", Request("lab", "note"))
    (record,) = await transport.poll(10)
    assert (record.payload, record.coordinates.stream) == (b"payload", slot.stream)
    assert slot.stream == Partition("http-default", 0)
    assert job_for(record).task == "note"
    assert transport.lag(slot.stream) == 1
    await transport.commit(slot.stream, [published(record)], 1)
    assert (await answer).output is not None
    assert transport.lag(slot.stream) == 0


async def test_records_of_one_slot_are_in_order_and_poll_is_fair() -> None:
    transport = await started()
    first, second = claim(transport), claim(transport)
    for number in range(5):
        first.submit(b"%d" % number, Request())
    second.submit(b"other", Request())
    seen = [record.payload for _ in range(3) for record in await transport.poll(2)]
    assert b"other" in seen[:4]
    assert [payload for payload in seen if payload != b"other"] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_slot_is_free_once_its_request_left_and_its_records_are_done() -> None:
    transport = await started(1)
    slot = claim(transport)
    slot.submit(b"taken", Request())
    (record,) = await transport.poll(1)
    unread = slot.submit(b"not taken", Request())
    slot.release()
    assert transport.claim() is None
    assert await transport.poll(1) == []
    with pytest.raises(TransientError):
        await unread
    await transport.commit(slot.stream, [published(record)], 1)
    assert transport.claim() is slot


async def test_a_paused_slot_delivers_nothing() -> None:
    transport = await started()
    slot = claim(transport)
    slot.submit(b"x", Request())
    transport.pause(slot.stream)
    assert await transport.poll(1) == []
    transport.resume(slot.stream)
    assert len(await transport.poll(1)) == 1


async def test_requests_that_wait_when_the_agent_stops_are_informed() -> None:
    transport = await started()
    slot = claim(transport)
    waiting = [slot.submit(b"x", Request()), slot.submit(b"y", Request())]
    await transport.poll(1)
    await transport.stop()
    await transport.stop()
    late = slot.submit(b"z", Request())
    for answer in (*waiting, late):
        with pytest.raises(TransientError):
            await answer
    assert transport.claim() is None
    assert not transport.exhausted


async def test_a_request_that_was_cancelled_gets_no_answer_and_harms_no_other() -> None:
    transport = await started(1)
    slot = claim(transport)
    gone, answer = slot.submit(b"x", Request()), slot.submit(b"y", Request())
    records = await transport.poll(2)
    gone.cancel()
    await transport.commit(slot.stream, [published(record) for record in records], 2)
    assert (await answer).record is records[1]


async def test_a_batch_of_another_slot_stops_the_agent() -> None:
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


async def test_a_refused_request_is_audited_with_its_client() -> None:
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


async def test_projects_have_topics_of_their_own_and_one_pool() -> None:
    transport = await started(2, "darts", "default")
    darts = transport.claim("darts")
    assert darts is not None
    assert darts.stream == Partition("http-darts", 0)
    darts.submit(b"x", Request())
    other = claim(transport)
    assert other.stream == Partition("http-default", 0)
    assert transport.claim("darts") is None, "both requests in flight count for both projects"
    (record,) = await transport.poll(10)
    await transport.commit(darts.stream, [published(record)], 1)
    darts.release()
    assert claim(transport).stream == Partition("http-default", 1)


async def test_a_slot_that_is_added_while_a_poll_waits_is_assigned_before_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deid_agent.transport.waiting._POLL_S", 60.0)
    member, transport = Member(), HttpTransport(3)
    await transport.start(member)
    assert len(member.streams) == 1
    polling = asyncio.create_task(transport.poll(9))
    await asyncio.sleep(0)
    claim(transport).submit(b"x", Request())
    claim(transport).submit(b"y", Request())
    first = await polling
    assert all(record.coordinates.stream in member.streams for record in first)
    assert len(member.streams) == 1
    second = await transport.poll(9)
    assert {record.coordinates.stream for record in second} <= member.streams
    assert sorted(record.payload for record in (*first, *second)) == [b"x", b"y"]
