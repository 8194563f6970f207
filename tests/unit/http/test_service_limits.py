"""The limits of the HTTP interface: requests, bytes, rates, and clients that send or read slowly or ambiguously."""

import asyncio
import gzip

import pytest
from support.http_agent import (
    MESSAGES,
    PATIENCE_S,
    STREAM,
    Start,
    chunk,
    code_of,
    digest_of,
    read_reply,
    request,
    until,
)

from deid_agent.config import ClientToken
from deid_agent.http.service_access import ServiceLogins

CANARY = "Zyblorqvist"


async def test_requests_beyond_the_limit_are_turned_away(start: Start) -> None:
    agent = await start(max_requests=2)
    held = [await agent.open() for _ in range(2)]
    for _, writer in held:
        writer.write(request(MESSAGES, b"hold"))
    await until(lambda: len(agent.executor.pending) == 2)
    assert code_of((await agent.ask(MESSAGES, b"x")).body) == "BUSY"
    held[0][1].close()  # its slot stays in use: the record is in process
    assert code_of((await agent.ask(MESSAGES, b"x")).body) == "BUSY"
    agent.executor.release()
    assert (await read_reply(held[1][0])).status == 200
    held[1][1].close()
    await until(lambda: all(slot.free for slot in agent.transport.slots))
    assert (await agent.ask(MESSAGES, b"x")).status == 200


async def test_bytes_in_process_are_limited(start: Start) -> None:
    agent = await start(message_bytes=1 << 20, max_in_flight_bytes=1 << 20)
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"hold" + b"x" * 900_000))
    await until(lambda: len(agent.executor.pending) == 1)
    assert code_of((await agent.ask(MESSAGES, b"x" * 200_000)).body) == "BUSY"
    agent.executor.release()
    assert (await read_reply(reader)).status == 200
    writer.close()
    await until(lambda: agent.service.budget.held == 0)
    assert (await agent.ask(MESSAGES, b"x" * 200_000)).status == 200


async def test_a_client_has_a_rate_of_its_own(start: Start) -> None:
    now = [0.0]
    tokens = (ClientToken("lab", digest_of("a" * 40)), ClientToken("ward", digest_of("b" * 40)))
    agent = await start(ServiceLogins(tokens), rate=1.0, clock=lambda: now[0])
    lab, ward = {"Authorization": "Bearer " + "a" * 40}, {"Authorization": "bearer " + "b" * 40}
    assert [(await agent.ask(MESSAGES, b"x", **lab)).status for _ in range(3)] == [200, 200, 429]
    late = await agent.ask(MESSAGES, b"x", **lab)
    assert (code_of(late.body), late.headers["retry-after"]) == ("RATE", "1")
    assert (await agent.ask(MESSAGES, b"x", **ward)).status == 200
    now[0] = 1.0
    assert (await agent.ask(MESSAGES, b"x", **lab)).status == 200
    assert {entry.client for entry in agent.audit.entries} == {"lab", "ward"}


async def test_a_connection_takes_several_requests(start: Start) -> None:
    agent = await start()
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"one") + request(MESSAGES, b"two") + request("/v1/projects"))
    assert [(await read_reply(reader)).body[:9] for _ in range(2)] == [b"clean one", b"clean two"]
    assert (await read_reply(reader)).status == 200
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        request(MESSAGES, b"x").replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        request(MESSAGES, b"x").replace(b"Content-Length: 1", b"Content-Length: 1\r\nContent-Length: 2"),
        request(MESSAGES, b"x").replace(b"Content-Length: 1", b"Content-Length: +1"),
        request(MESSAGES, b"x").replace(b"Content-Length: 1", b"Transfer-Encoding: xchunked"),
        request(MESSAGES, b"x").replace(b"Content-Length: 1", b"Content-Length : 1"),
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + CANARY.encode() * 2000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + CANARY.encode() + b"\r\n\r\n",
        f"{CANARY} / HTTP/9.9\r\n\r\n".encode(),
    ],
)
async def test_bytes_that_two_readers_would_take_differently_are_refused(start: Start, data: bytes) -> None:
    agent = await start()
    reader, writer = await agent.open()
    writer.write(data + request("/v1/projects"))
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    assert answer[8:12] == b" 400", "and the connection is closed: nothing after it is read"
    assert answer.count(b"HTTP/1.") == 1
    assert CANARY.encode() not in answer
    assert CANARY not in repr(agent.telemetry.events)
    assert agent.audit.entries == []


@pytest.mark.parametrize(
    "coding",
    [
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: deflate,chunked",
        b"Transfer-Encoding: x-gzip, chunked\r\nExpect: 100-continue",
    ],
)
@pytest.mark.parametrize("path", [MESSAGES, STREAM, "/openapi.json"])
async def test_a_transfer_coding_that_nothing_decodes_is_refused(start: Start, path: str, coding: bytes) -> None:
    agent = await start()
    reader, writer = await agent.open()
    body = gzip.compress(CANARY.encode())
    head = request(path, b"").replace(b"Content-Length: 0", coding)
    head = head.replace(b"POST", b"GET") if path.endswith("json") else head
    writer.write(head + chunk(body) + b"0\r\n\r\n" + request("/v1/projects"))
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    assert answer[8:12] in {b" 501", b" 400"}, "and the connection is closed: nothing after it is read"
    assert answer.count(b"HTTP/1.") == 1
    assert agent.audit.entries == [] and not agent.executor.tasks


@pytest.mark.parametrize("coding", [b"Transfer-Encoding: chunked", b"transfer-encoding:  Chunked "])
async def test_a_chunked_body_is_read(start: Start, coding: bytes) -> None:
    agent = await start()
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"").replace(b"Content-Length: 0", coding) + chunk(b"x") + b"0\r\n\r\n")
    assert (await read_reply(reader)).body == b"clean x"
    writer.close()


async def test_a_request_without_a_length_is_refused(start: Start) -> None:
    agent = await start()
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"").replace(b"Content-Length: 0\r\n", b""))
    assert code_of((await read_reply(reader)).body) == "LENGTH"
    writer.close()


async def test_a_body_that_grows_beyond_the_limit_is_refused(start: Start) -> None:
    agent = await start(message_bytes=1024)
    reader, writer = await agent.open()
    head = request(MESSAGES, None, Content_Type="application/json", Transfer_Encoding="chunked")
    writer.write(head.replace(b"GET", b"POST") + chunk(b"x" * 2000))
    assert code_of((await read_reply(reader)).body) == "TOO_LARGE"
    writer.close()
    await until(lambda: agent.service.budget.held == 0)


async def test_silent_clients_are_closed(start: Start) -> None:
    """Without a request, inside of a head, inside of a body, and after an answer."""
    agent = await start(idle_s=0.1)
    begun = [b"", b"POST /v1", request(MESSAGES, b"xy")[:-1], request("/v1/projects")]
    opened = [await agent.open() for _ in begun]
    for (_, writer), data in zip(opened, begun, strict=True):
        writer.write(data)
    async with asyncio.timeout(PATIENCE_S):
        answers = [await reader.read() for reader, _ in opened]
    assert [data[9:12] for data in answers] == [b"", b"", b"408", b"200"]
    for _, writer in opened:
        writer.close()
    await until(lambda: not agent.server._open and agent.service.budget.held == 0)


async def test_a_client_that_reads_nothing_is_closed(start: Start) -> None:
    agent = await start(message_bytes=1 << 24, idle_s=1.0)
    _, writer = await agent.open()
    transport = writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request(MESSAGES, b"x" * (1 << 24)))
    await until(lambda: bool(agent.audit.entries) and not agent.server._open)
    writer.close()


async def test_the_quietest_connection_gives_way(start: Start) -> None:
    agent = await start(max_connections=3)
    working = await agent.open()
    working[1].write(request(MESSAGES, b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    idle = [await agent.open() for _ in range(2)]
    await until(lambda: len(agent.server._open) == 3)
    assert (await agent.ask(MESSAGES, b"x")).status == 200
    async with asyncio.timeout(PATIENCE_S):
        assert await idle[0][0].read() == b"", "it was the first of the idle ones"
    agent.executor.release()
    assert (await read_reply(working[0])).status == 200
    for _, writer in (working, *idle):
        writer.close()


async def test_an_answer_counts_until_its_client_has_read_it(start: Start) -> None:
    agent = await start(message_bytes=32 << 20, idle_s=20.0)
    body = b"x" * (24 << 20)
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, body))
    await until(lambda: len(agent.audit.entries) == 1)
    await until(lambda: not any(each.working for each in agent.server._open))  # it gives way to others
    assert agent.service.budget.held == len(body)
    reply = await read_reply(reader)
    assert reply.body == b"clean " + body
    await until(lambda: agent.service.budget.held == 0)


async def test_a_client_that_reads_no_answer_is_closed_and_holds_nothing(start: Start) -> None:
    agent = await start(message_bytes=32 << 20, idle_s=0.3)
    _, writer = await agent.open()
    writer.write(request(MESSAGES, b"x" * (24 << 20)))
    await until(lambda: len(agent.audit.entries) == 1)
    await until(lambda: not agent.server._open)
    await until(lambda: agent.service.budget.held == 0)
