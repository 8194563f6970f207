"""Streams over HTTP: a line for a line, in order, at the pace of the slower side."""

import asyncio

from support.http_agent import (
    MESSAGES,
    ND,
    PATIENCE_S,
    STREAM,
    Start,
    chunk,
    code_of,
    read_reply,
    request,
    until,
)

from deid_agent.telemetry.events import Uncaught
from deid_agent.telemetry.transport_events import ServiceAnswered


async def test_a_stream_answers_a_line_for_a_line_in_order(start: Start) -> None:
    agent = await start(message_bytes=1024)
    reader, writer = await agent.open()
    head = request(STREAM, None, Content_Type=ND, Transfer_Encoding="chunked").replace(b"GET", b"POST")
    writer.write(head + chunk(b"one\ntwo\n\nba") + chunk(b"d\n"))
    first = await reader.readuntil(b"clean one\n")
    assert first.startswith(b"HTTP/1.1 200"), "answers begin before the body has ended"
    writer.write(chunk(b"x" * 2000) + chunk(b"x\nlast") + b"0\r\n\r\n")
    rest = await reader.readuntil(b"0\r\n\r\n")
    lines = [line for line in (first + rest).split(b"\n") if b"{" in line or b"clean" in line]
    assert [b"clean" in line for line in lines] == [True, True, False, False, True]
    assert b"line 4, byte 3" in lines[2]
    assert b"TOO_LARGE" in lines[3]
    assert b"clean last" in lines[4]
    writer.close()
    await until(lambda: agent.service.budget.held == 0)


async def test_an_empty_stream_has_an_empty_answer(start: Start) -> None:
    agent = await start()
    reply = await agent.ask(STREAM, b"", ND)
    assert (reply.status, reply.body) == (200, b"")


async def test_a_stream_that_is_torn_has_no_valid_end(start: Start) -> None:
    agent = await start()
    reader, writer = await agent.open()
    head = request(STREAM, None, Content_Type=ND, Transfer_Encoding="chunked").replace(b"GET", b"POST")
    writer.write(head + chunk(b"one\n") + b"zz\r\n")
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    assert b"clean one" in data or data[8:12] == b" 400"
    assert not data.endswith(b"0\r\n\r\n")


async def test_a_stream_stops_reading_while_nothing_is_answered(start: Start) -> None:
    agent = await start()
    reader, writer = await agent.open()
    head = request(STREAM, None, Content_Type=ND, Transfer_Encoding="chunked").replace(b"GET", b"POST")
    writer.write(head + chunk(b"hold\n" * 1000))
    await until(lambda: len(agent.executor.pending) > 100)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(agent.executor.pending) < 600
    answered = asyncio.create_task(reader.readuntil(b"0\r\n\r\n"))
    writer.write(b"0\r\n\r\n")
    while not answered.done():
        agent.executor.release()
        await asyncio.sleep(0)
    assert (await answered).count(b"clean hold") == 1000


async def test_half_of_the_slots_are_kept_from_streams(start: Start) -> None:
    agent = await start(max_requests=4)
    held = [await agent.open() for _ in range(2)]
    for _, writer in held:
        writer.write(request(STREAM, b"hold\n", ND))
    await until(lambda: len(agent.executor.pending) == 2)
    third = await agent.ask(STREAM, b"x\n", ND)
    assert (third.status, code_of(third.body), third.headers["retry-after"]) == (429, "BUSY", "1")
    assert (await agent.ask(MESSAGES, b"x")).status == 200
    agent.executor.release()
    for reader, writer in held:
        assert (await read_reply(reader)).status == 200
        writer.close()
    assert (await agent.ask(STREAM, b"x\n", ND)).status == 200


async def test_a_stream_waits_for_a_slow_client_no_longer_than_for_a_silent_one(start: Start) -> None:
    agent = await start(idle_s=0.1)
    reader, writer = await agent.open()
    head = request(STREAM, None, Content_Type=ND, Transfer_Encoding="chunked").replace(b"GET", b"POST")
    writer.write(head + chunk(b"one\ntwo"))
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    assert b"clean one" in data
    assert b"SLOW" in data
    assert not data.endswith(b"0\r\n\r\n")
    writer.close()


async def test_a_stream_that_is_cut_has_one_response(start: Start) -> None:
    agent = await start(answer_s=0.05)
    reader, writer = await agent.open()
    writer.write(request(STREAM, b"one\nhold\n", ND))
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    assert data.count(b"HTTP/1.1") == 1, "no second response inside of the first"
    assert b"LATE" in data
    assert not data.endswith(b"0\r\n\r\n")
    assert agent.telemetry.names(Uncaught, "error") == []
    assert (499, "stream") in [(e.status, e.route) for e in agent.telemetry.events if isinstance(e, ServiceAnswered)]
    writer.close()


async def test_a_line_of_a_stream_counts_until_its_answer_is_written(start: Start) -> None:
    agent = await start(message_bytes=32 << 20)
    body = b"x" * (24 << 20) + b"\n"
    reader, writer = await agent.open()
    writer.write(request(STREAM, body, ND))
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(1)
    assert agent.service.budget.held == len(body)
    while await reader.read(1 << 20):
        if reader.at_eof() or agent.service.budget.held == 0:
            break
    await until(lambda: agent.service.budget.held == 0)
