"""The HTTP interface: its answers, their order after the audit, and the limits for clients of every kind."""

import asyncio
import json

import pytest
from support.http_agent import (
    DOCUMENTS,
    MESSAGES,
    ND,
    OPERATION,
    PATIENCE_S,
    STREAM,
    TEXT,
    Start,
    code_of,
    digest_of,
    read_reply,
    request,
    until,
)

from deid_agent.agent.ports import Outcome
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.config import ClientToken
from deid_agent.http.service_access import ServiceLogins
from deid_agent.http.service_openapi import instantiates_darts
from deid_agent.telemetry.transport_events import ServiceAnswered, ServiceDenied

CANARY = "Zyblorqvist"


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
        (OPERATION, "application/fhir+xml", "", "xml-resource"),
        ("/fhir/default/%24de-identify", "application/json", "", "operation"),
        (DOCUMENTS, "application/pdf", "", "document application/pdf"),
        (DOCUMENTS, "text/html; charset=utf-8", "", "document text/html"),
        (DOCUMENTS, "text/rtf", "", "document text/rtf"),
        ("/fhir/default/$pseudonymize", "application/fhir+json", "", "pseudonymize"),
        ("/fhir/default/$psuedonymize", "application/json", "", "psuedonymize"),
        ("/fhir/default/$anonymize", "application/json", "", "anonymize"),
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
        ({"path": DOCUMENTS, "body": b"x", "media": "image/png"}, 415, "MEDIA_TYPE"),
        ({"path": DOCUMENTS, "body": b"x", "media": "text/plain; charset=latin-1"}, 415, "MEDIA_TYPE"),
        (
            {"path": DOCUMENTS, "body": b"x", "media": "application/pdf", "Accept": "application/pdf"},
            406,
            "NOT_ACCEPTABLE",
        ),
        ({"path": DOCUMENTS + "?spans=only", "body": b"x", "media": "text/plain"}, 400, "PARAMETER"),
        ({"path": DOCUMENTS, "body": b"bad", "media": "text/rtf"}, 400, "MALFORMED"),
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
    assert (reply.status, code_of(reply.body)) == (status, expected)
    assert reply.headers["content-type"] == "application/problem+json"
    assert json.loads(reply.body)["status"] == status
    assert CANARY not in str(reply)
    assert status != 405 or reply.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("media", "body", "expected"),
    [
        ("text/html", b"x", "text/html"),
        ("text/rtf", b"x", "text/rtf"),
        ("application/pdf", b"%PDF", "text/plain; charset=utf-8"),
        ("text/html", b"%PDF", "text/plain; charset=utf-8"),
    ],
)
async def test_a_document_is_answered_with_the_media_type_of_the_worker(
    start: Start, media: str, body: bytes, expected: str
) -> None:
    agent = await start()
    reply = await agent.ask(DOCUMENTS, body, media, Accept="text/*")
    assert (reply.status, reply.headers["content-type"]) == (200, expected)
    assert reply.headers["deid-record"] == agent.audit.entries[0].id


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
    assert "instantiates" not in metadata, "DARTS takes files too"
    names = [each["name"] for each in metadata["rest"][0]["operation"]]
    assert names == ["de-identify", "psuedonymize", "anonymize"]


def test_darts_is_claimed_only_if_all_of_its_operations_take_files() -> None:
    assert instantiates_darts(["de-identify", "psuedonymize", "anonymize", "another"])
    assert not instantiates_darts(["de-identify"])
    assert not instantiates_darts(["de-identify", "pseudonymize", "anonymize"])  # DARTS: psuedonymize


async def test_the_projects_are_listed(start: Start) -> None:
    agent = await start()
    listed = json.loads((await agent.ask("/v1/projects")).body)["projects"]
    assert listed == [{"name": "default", "policy": "pseudonymised", "digest": "0" * 16, "key": "5e0c41d7"}]


async def test_without_the_token_nothing_is_shown(start: Start) -> None:
    agent = await start(ServiceLogins((ClientToken("lab", digest_of("a" * 40)),)))
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
    agent = await start(ServiceLogins((ClientToken("lab", digest_of("a" * 40)),)), message_bytes=1024)
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


async def test_a_request_that_takes_too_long_is_answered_503(start: Start) -> None:
    agent = await start(answer_s=0.05)
    reply = await agent.ask(MESSAGES, b"hold")
    assert (reply.status, code_of(reply.body)) == (503, "LATE")
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
    assert (reply.status, code_of(reply.body), reply.headers["retry-after"]) == (503, "UNAVAILABLE", "5")
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
    assert (reply.status, code_of(reply.body)) == (503, "UNAVAILABLE")
    async with asyncio.timeout(PATIENCE_S):
        data = await opened[1][0].read()
    assert b"UNAVAILABLE" in data
    assert not data.endswith(b"0\r\n\r\n")
    late = await agent.ask(MESSAGES, b"x")
    assert code_of(late.body) == "BUSY"
    for _, writer in opened:
        writer.close()


async def test_an_unexpected_error_is_answered_without_its_text(start: Start) -> None:
    agent = await start()

    def fail() -> bool:
        raise KeyError(CANARY)

    agent.service.is_ready = fail
    reply = await agent.ask(MESSAGES, b"x")
    assert (reply.status, code_of(reply.body)) == (500, "INTERNAL")
    assert CANARY not in str(reply) + repr(agent.telemetry.events)


async def test_routes_not_paths_are_counted(start: Start) -> None:
    agent = await start()
    await agent.ask(f"/v1/projects/{CANARY}/messages", b"x")
    await agent.ask(f"/{CANARY}")
    await agent.ask(MESSAGES, b"x")
    answered = [(e.route, e.status) for e in agent.telemetry.events if isinstance(e, ServiceAnswered)]
    assert answered == [("messages", 404), ("none", 404), ("messages", 200)]
    assert CANARY not in agent.telemetry.registry.exposition().decode()


async def test_a_refused_expectation_counts_as_a_denial(start: Start) -> None:
    agent = await start(ServiceLogins((ClientToken("lab", "0" * 64),)))
    assert (await agent.ask(MESSAGES, b"x", Expect="100-continue", Authorization="Bearer no")).status == 401
    assert sum(isinstance(each, ServiceDenied) for each in agent.telemetry.events) == 1
