"""The HTTP interface: its answers, their order after the audit, and the limits for clients of every kind."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from support.http_agent import (
    MESSAGES,
    OPERATION,
    PATIENCE_S,
    STREAM,
    TEXT,
    HttpAgent,
    read_reply,
    request,
    until,
)

from deid_agent.agent.ports import Outcome
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.config import ClientToken
from deid_agent.http.service_access import ServiceLogins
from deid_agent.telemetry.events import Uncaught
from deid_agent.telemetry.transport_events import ServiceAnswered, ServiceDenied

CANARY = "Zyblorqvist"
ND = "application/fhir+ndjson"
Start = Callable[..., Awaitable[HttpAgent]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    agents: list[HttpAgent] = []

    async def begin(*args: object, **settings: object) -> HttpAgent:
        agents.append(HttpAgent(*args, **settings))  # type: ignore[arg-type]
        return await agents[-1].start()

    yield begin
    for agent in agents:
        await agent.end()


def code(body: bytes) -> str:
    return str(json.loads(body)["code"])


async def test_a_message_is_answered_with_its_result_and_its_record(start: Start) -> None:
    agent = await start()
    reply = await agent.ask(MESSAGES, b"{}", "application/fhir+json; charset=UTF-8")
    assert (reply.status, reply.body) == (200, b"clean {}")
    assert reply.headers["content-type"] == "application/fhir+json"
    (entry,) = agent.audit.entries
    assert (entry.id, entry.client, entry.outcome) == (reply.headers["deid-record"], "local", Outcome.PUBLISHED)
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_no_answer_leaves_before_its_audit_entry_is_durable(start: Start) -> None:
    agent = await start()
    agent.audit.free.clear()
    reader, writer = await agent.open()
    for path, media in ((MESSAGES, "application/json"), (STREAM, ND)):
        writer.write(request(path, b"{}\n", media))
        await until(lambda: bool(agent.runner._processors) and agent.executor.pending == [])
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
        agent.audit.free.set()
        assert (await read_reply(reader)).status == 200
        agent.audit.free.clear()
    writer.close()


@pytest.mark.parametrize(
    ("path", "media", "query", "task"),
    [
        (MESSAGES, "x-application/hl7-v2+er7", "", ""),
        (MESSAGES, "application/xml", "", ""),
        (TEXT, "text/plain", "", "plain-note"),
        (TEXT, "text/plain", "?spans=only", "plain-to-json spans-only"),
        (TEXT, "application/json", "?offsets=utf16", "note utf16"),
        (TEXT, "application/jsonl", "?spans=only&offsets=utf16", "note spans-only utf16"),
        (STREAM, ND, "", ""),
        (OPERATION, "application/fhir+json", "", "operation"),
        ("/fhir/default/%24de-identify", "application/json", "", "operation"),
    ],
)
async def test_each_address_has_its_task(start: Start, path: str, media: str, query: str, task: str) -> None:
    agent = await start()
    reply = await agent.ask(path + query, b"x", media)
    assert (reply.status, agent.executor.tasks) == (200, [task])


@pytest.mark.parametrize(
    ("ask", "status", "expected"),
    [
        ({"path": MESSAGES, "body": b"bad"}, 400, "MALFORMED"),
        ({"path": MESSAGES, "body": b"big"}, 413, "RESOURCE"),
        ({"path": MESSAGES, "body": b"leave"}, 422, "REJECTED"),
        ({"path": "/v1/projects/other/messages", "body": b"x"}, 404, "NOT_FOUND"),
        ({"path": f"/{CANARY}"}, 404, "NOT_FOUND"),
        ({"path": MESSAGES}, 405, "METHOD"),
        ({"path": MESSAGES, "body": b"x", "media": "application/x-www-form-urlencoded"}, 415, "MEDIA_TYPE"),
        ({"path": MESSAGES, "body": b"x", "media": "application/json; charset=latin-1"}, 415, "MEDIA_TYPE"),
        ({"path": MESSAGES, "body": b"x", "Content_Encoding": "gzip"}, 415, "ENCODING"),
        ({"path": MESSAGES, "body": b"x", "Accept": "text/html"}, 406, "NOT_ACCEPTABLE"),
        ({"path": MESSAGES, "body": b"x", "Accept": "application/*;q=0, */*"}, 406, "NOT_ACCEPTABLE"),
        ({"path": "/v1/projects", "Accept": "text/html"}, 406, "NOT_ACCEPTABLE"),
        ({"path": MESSAGES + f"?{CANARY}=1", "body": b"x"}, 400, "PARAMETER"),
        ({"path": TEXT + "?spans=all", "body": b"x"}, 400, "PARAMETER"),
        ({"path": TEXT + "?spans=only&spans=only", "body": b"x"}, 400, "PARAMETER"),
        ({"path": MESSAGES, "body": b"x" * 2000}, 413, "TOO_LARGE"),
        ({"path": MESSAGES, "body": b"x", "Expect": CANARY}, 417, "EXPECTATION"),
        ({"path": MESSAGES, "body": b"x", "Origin": "http://evil.example"}, 403, "BROWSER"),
        ({"path": MESSAGES, "body": b"x", "Sec_Fetch_Site": "same-site"}, 403, "BROWSER"),
        ({"path": MESSAGES, "body": b"x", "Host": "evil.example"}, 403, "BROWSER"),
    ],
)
async def test_errors_have_closed_codes(start: Start, ask: dict[str, object], status: int, expected: str) -> None:
    agent = await start(message_bytes=1024)
    reply = await agent.ask(**ask)  # type: ignore[arg-type]
    assert (reply.status, code(reply.body)) == (status, expected)
    assert reply.headers["content-type"] == "application/problem+json"
    assert json.loads(reply.body)["status"] == status
    assert CANARY not in str(reply)
    assert status != 405 or reply.headers["allow"] == "POST"


async def test_a_refusal_names_its_record_and_the_place_only(start: Start) -> None:
    agent = await start()
    reply = await agent.ask(MESSAGES, f"bad {CANARY}".encode())
    (entry,) = agent.audit.entries
    assert json.loads(reply.body)["where"] == "byte 3"
    assert json.loads(reply.body)["record"] == reply.headers["deid-record"] == entry.id
    assert (entry.outcome, entry.reason, entry.client) == (Outcome.REFUSED, "MALFORMED", "local")
    assert CANARY not in repr(agent.telemetry.events) + str(reply)


async def test_refused_requests_never_stop_the_agent(start: Start) -> None:
    """600 in a row: as dead letters they would exceed the limit of 500."""
    agent = await start()
    reply = await agent.ask(STREAM, b"bad\n" * 600, ND)
    assert reply.status == 200
    assert reply.body.count(b"OperationOutcome") == 600
    assert (await agent.ask(MESSAGES, b"x")).status == 200


async def test_fhir_addresses_answer_operation_outcomes(start: Start) -> None:
    agent = await start()
    for reply in (
        await agent.ask("/fhir/other/metadata"),
        await agent.ask(OPERATION, b"bad"),
        await agent.ask("/fhir/default/$other", b"x"),
    ):
        body = json.loads(reply.body)
        assert (body["resourceType"], reply.headers["content-type"]) == ("OperationOutcome", "application/fhir+json")
        assert body["issue"][0]["code"] in {"structure", "not-found"}
    metadata = json.loads((await agent.ask("/fhir/default/metadata")).body)
    assert metadata["resourceType"] == "CapabilityStatement"
    assert "instantiates" not in metadata, "DARTS has two more operations"


async def test_the_projects_are_listed(start: Start) -> None:
    agent = await start()
    listed = json.loads((await agent.ask("/v1/projects")).body)["projects"]
    assert listed == [{"name": "default", "policy": "pseudonymised", "digest": "0" * 16, "key": "5e0c41d7"}]


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


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


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
    assert (third.status, code(third.body), third.headers["retry-after"]) == (429, "BUSY", "1")
    assert (await agent.ask(MESSAGES, b"x")).status == 200
    agent.executor.release()
    for reader, writer in held:
        assert (await read_reply(reader)).status == 200
        writer.close()
    assert (await agent.ask(STREAM, b"x\n", ND)).status == 200


async def test_requests_beyond_the_limit_are_turned_away(start: Start) -> None:
    agent = await start(max_requests=2)
    held = [await agent.open() for _ in range(2)]
    for _, writer in held:
        writer.write(request(MESSAGES, b"hold"))
    await until(lambda: len(agent.executor.pending) == 2)
    assert code((await agent.ask(MESSAGES, b"x")).body) == "BUSY"
    held[0][1].close()  # its slot stays in use: the record is in process
    assert code((await agent.ask(MESSAGES, b"x")).body) == "BUSY"
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
    assert code((await agent.ask(MESSAGES, b"x" * 200_000)).body) == "BUSY"
    agent.executor.release()
    assert (await read_reply(reader)).status == 200
    writer.close()
    await until(lambda: agent.service.budget.held == 0)
    assert (await agent.ask(MESSAGES, b"x" * 200_000)).status == 200


async def test_a_client_has_a_rate_of_its_own(start: Start) -> None:
    now = [0.0]
    tokens = (ClientToken("lab", digest("a" * 40)), ClientToken("ward", digest("b" * 40)))
    agent = await start(ServiceLogins(tokens), rate=1.0, clock=lambda: now[0])
    lab, ward = {"Authorization": "Bearer " + "a" * 40}, {"Authorization": "bearer " + "b" * 40}
    assert [(await agent.ask(MESSAGES, b"x", **lab)).status for _ in range(3)] == [200, 200, 429]
    late = await agent.ask(MESSAGES, b"x", **lab)
    assert (code(late.body), late.headers["retry-after"]) == ("RATE", "1")
    assert (await agent.ask(MESSAGES, b"x", **ward)).status == 200
    now[0] = 1.0
    assert (await agent.ask(MESSAGES, b"x", **lab)).status == 200
    assert {entry.client for entry in agent.audit.entries} == {"lab", "ward"}


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def test_without_the_token_nothing_is_shown(start: Start) -> None:
    agent = await start(ServiceLogins((ClientToken("lab", digest("a" * 40)),)))
    for header in (
        None,
        "Bearer",
        f"Bearer {CANARY}",
        "Basic " + "a" * 40,
        "Bearer " + "a" * 41,
        "Bearer " + "a" * 600,
    ):
        headers = {} if header is None else {"Authorization": header}
        for path, body in ((MESSAGES, b"x"), ("/v1/projects", None), ("/fhir/default/metadata", None), ("/none", None)):
            reply = await agent.ask(path, body, **headers)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), (path, header)
    twice = request("/v1/projects", None, Authorization="Bearer " + "a" * 40)
    reader, writer = await agent.open()
    writer.write(twice.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer x\r\n\r\n"))
    assert (await read_reply(reader)).status == 401
    writer.close()
    assert (await agent.ask("/openapi.json")).status == 200
    assert agent.telemetry.names(ServiceDenied, "why")[0] == "LOGIN"
    assert CANARY not in repr(agent.telemetry.events)
    assert agent.audit.entries == []


async def test_a_body_is_asked_for_only_after_the_checks(start: Start) -> None:
    agent = await start(ServiceLogins((ClientToken("lab", digest("a" * 40)),)), message_bytes=1024)
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"", Expect="100-continue").replace(b"Length: 0", b"Length: 9"))
    assert (await read_reply(reader)).status == 401
    writer.close()
    reader, writer = await agent.open()
    login = {"Authorization": "Bearer " + "a" * 40, "Expect": "100-continue"}
    writer.write(request(MESSAGES, b"", **login).replace(b"Length: 0", b"Length: 9999"))
    assert (await read_reply(reader)).status == 413
    writer.close()
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"", **login).replace(b"Length: 0", b"Length: 3"))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await read_reply(reader)).body == b"clean abc"
    writer.close()


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


async def test_a_request_without_a_length_is_refused(start: Start) -> None:
    agent = await start()
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"").replace(b"Content-Length: 0\r\n", b""))
    assert code((await read_reply(reader)).body) == "LENGTH"
    writer.close()


async def test_a_body_that_grows_beyond_the_limit_is_refused(start: Start) -> None:
    agent = await start(message_bytes=1024)
    reader, writer = await agent.open()
    head = request(MESSAGES, None, Content_Type="application/json", Transfer_Encoding="chunked")
    writer.write(head.replace(b"GET", b"POST") + chunk(b"x" * 2000))
    assert code((await read_reply(reader)).body) == "TOO_LARGE"
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


async def test_a_request_that_takes_too_long_is_answered_503(start: Start) -> None:
    agent = await start(answer_s=0.05)
    reply = await agent.ask(MESSAGES, b"hold")
    assert (reply.status, code(reply.body)) == (503, "LATE")
    assert not all(slot.free for slot in agent.transport.slots)
    agent.executor.release()
    await until(lambda: all(slot.free for slot in agent.transport.slots))


async def test_a_drain_finishes_requests_in_process_and_takes_no_more(start: Start) -> None:
    leaving = [False]
    agent = await start(ready=lambda: not leaving[0], runner=RunnerSettings(linger_s=0.0, drain_s=10.0))
    reader, writer = await agent.open()
    writer.write(request(MESSAGES, b"hold on"))
    await until(lambda: len(agent.executor.pending) == 1)
    leaving[0] = True
    stopping = asyncio.create_task(agent.stop())
    reply = await agent.ask(MESSAGES, b"x")
    assert (reply.status, code(reply.body), reply.headers["retry-after"]) == (503, "UNAVAILABLE", "5")
    assert (await agent.ask(OPERATION, b"x")).status == 503
    agent.executor.release()
    assert (await read_reply(reader)).body == b"clean hold on"
    await stopping
    writer.close()


async def test_requests_without_a_result_are_answered_503_when_the_agent_ends(start: Start) -> None:
    agent = await start(runner=RunnerSettings(linger_s=0.0, drain_s=0.05))
    opened = [await agent.open() for _ in range(2)]
    opened[0][1].write(request(MESSAGES, b"hold"))
    opened[1][1].write(request(STREAM, b"one\nhold\n", ND))
    await until(lambda: len(agent.executor.pending) == 2)
    await agent.stop()
    reply = await read_reply(opened[0][0])
    assert (reply.status, code(reply.body)) == (503, "UNAVAILABLE")
    async with asyncio.timeout(PATIENCE_S):
        data = await opened[1][0].read()
    assert b"UNAVAILABLE" in data
    assert not data.endswith(b"0\r\n\r\n")
    late = await agent.ask(MESSAGES, b"x")
    assert code(late.body) == "BUSY"
    for _, writer in opened:
        writer.close()


async def test_an_unexpected_error_is_answered_without_its_text(start: Start) -> None:
    agent = await start()

    def fail() -> bool:
        raise KeyError(CANARY)

    agent.service.is_ready = fail
    reply = await agent.ask(MESSAGES, b"x")
    assert (reply.status, code(reply.body)) == (500, "INTERNAL")
    assert CANARY not in str(reply) + repr(agent.telemetry.events)


async def test_routes_not_paths_are_counted(start: Start) -> None:
    agent = await start()
    await agent.ask(f"/v1/projects/{CANARY}/messages", b"x")
    await agent.ask(f"/{CANARY}")
    await agent.ask(MESSAGES, b"x")
    answered = [(e.route, e.status) for e in agent.telemetry.events if isinstance(e, ServiceAnswered)]
    assert answered == [("messages", 404), ("none", 404), ("messages", 200)]
    assert CANARY not in agent.telemetry.registry.exposition().decode()


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


async def test_a_refused_expectation_counts_as_a_denial(start: Start) -> None:
    agent = await start(ServiceLogins((ClientToken("lab", "0" * 64),)))
    assert (await agent.ask(MESSAGES, b"x", Expect="100-continue", Authorization="Bearer no")).status == 401
    assert sum(isinstance(each, ServiceDenied) for each in agent.telemetry.events) == 1


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
