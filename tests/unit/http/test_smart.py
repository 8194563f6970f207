"""Logins by SMART Backend Services: forms, tokens, their projects and ends, limits, discovery."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.http_agent import MESSAGES, OPERATION, Start, digest_of, read_reply, request
from support.smart_agent import CANARY, LAB, SmartAgent, error_of, settings_of
from support.smart_clients import (
    FORM,
)

from deid_agent.config import ClientToken
from deid_agent.http.service_access import Buckets, Caller, ServiceLogins
from deid_agent.http.smart_service import GivenTokens, network_of
from deid_agent.http.smart_tokens import TokenDeniedError
from deid_agent.telemetry.transport_events import ServiceAnswered


async def test_a_client_gets_a_token_for_its_signature(smart: SmartAgent) -> None:
    reply = await smart.post(LAB.form())
    assert (reply.status, reply.headers["cache-control"], reply.headers["pragma"]) == (200, "no-store", "no-cache")
    body = json.loads(reply.body)
    assert {**body, "access_token": ""} == {
        "access_token": "",
        "token_type": "bearer",
        "expires_in": 300,
        "scope": "deid/default.deidentify",
    }
    done = await smart.agent.ask(MESSAGES, b"x", Authorization=f"Bearer {body['access_token']}")
    assert (done.status, smart.agent.audit.entries[0].client) == (200, "lab")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (lambda: LAB.form() + b"&grant_type=client_credentials", 400, "invalid_request"),
        (lambda: LAB.form() + b"&client_assertion=" + LAB.assertion().encode(), 400, "invalid_request"),
        (lambda: LAB.form() + b"&scope=", 400, "invalid_request"),
        (lambda: LAB.form() + b"&a", 400, "invalid_request"),
        (lambda: LAB.form() + b"&a=%ff", 400, "invalid_request"),
        (lambda: LAB.form() + "&a=é".encode(), 400, "invalid_request"),
        (lambda: LAB.form() + b"".join(b"&a%d=1" % n for n in range(20)), 400, "invalid_request"),
        (lambda: LAB.form() + b"&a=" + b"x" * 20_000, 400, "invalid_request"),
        (lambda: b"", 400, "invalid_request"),
        (lambda: LAB.form(grant_type=None), 400, "invalid_request"),
        (lambda: LAB.form(grant_type=""), 400, "invalid_request"),
        (lambda: LAB.form(grant_type="password"), 400, "unsupported_grant_type"),
        (lambda: LAB.form(client_assertion_type=CANARY), 401, "invalid_client"),
        (lambda: LAB.form(client_assertion=None), 401, "invalid_client"),
        (lambda: LAB.form(client_secret=CANARY), 401, "invalid_client"),
        (lambda: LAB.form(client_id="ward"), 401, "invalid_client"),
        (lambda: LAB.form(scope=None), 400, "invalid_scope"),
        (lambda: LAB.form(scope="system/*.rs"), 400, "invalid_scope"),
        (lambda: LAB.form(scope="deid/default.deidentify system/*.rs"), 400, "invalid_scope"),
        (lambda: LAB.form(scope="deid/default.deidentify  deid/darts.deidentify"), 400, "invalid_scope"),
        (lambda: LAB.form(scope=f"deid/{CANARY}.deidentify"), 400, "invalid_scope"),
        (lambda: LAB.form(scope="deid/other.deidentify"), 400, "invalid_scope"),
        (lambda: LAB.form(scope="deid/default.reidentify"), 400, "invalid_scope"),
    ],
)
async def test_wrong_forms_have_closed_codes(
    smart: SmartAgent, body: Callable[[], bytes], status: int, code: str
) -> None:
    reply = await smart.post(body())
    assert (reply.status, error_of(reply)) == (status, code)
    assert CANARY not in repr(smart.agent.telemetry.events) + str(reply)


async def test_another_charset_media_type_or_encoding_is_refused(smart: SmartAgent) -> None:
    for media in (f"{FORM}; charset=utf-16", f"{FORM}; charset=latin-1", "application/json", "multipart/form-data", ""):
        assert error_of(await smart.post(LAB.form(), media)) == "invalid_request"
    assert error_of(await smart.post(LAB.form(), Content_Encoding="gzip")) == "invalid_request"
    assert error_of(await smart.agent.ask("/token?scope=x", LAB.form(), FORM)) == "invalid_request"
    assert (await smart.post(LAB.form(), f"{FORM}; charset=UTF-8")).status == 200
    assert error_of(await smart.post(LAB.form(), Authorization="Basic bGFiOng=")) == "invalid_client"
    assert (await smart.agent.ask("/token")).status == 401, "the address takes POST only"
    assert (await smart.post(LAB.form(), Origin="https://evil.example")).status == 403
    assert (await smart.post(LAB.form(), Host="evil.example")).status == 403


async def test_a_token_opens_the_projects_of_its_scope_only(smart: SmartAgent) -> None:
    seen = {}
    for scope in ("deid/darts.deidentify", "deid/darts.deidentify deid/default.deidentify", "deid/*.deidentify"):
        login = {"Authorization": f"Bearer {await smart.token(scope=scope)}"}
        listed = json.loads((await smart.agent.ask("/v1/projects", None, **login)).body)["projects"]
        message = await smart.agent.ask(MESSAGES, b"x", **login)
        operation = await smart.agent.ask(OPERATION, b"x", **login)
        metadata = await smart.agent.ask("/fhir/darts/metadata", None, **login)
        seen[scope] = [each["name"] for each in listed], message.status, operation.status, metadata.status
    assert list(seen.values()) == [
        (["darts"], 404, 404, 200),
        (["default", "darts"], 200, 200, 200),
        (["default", "darts"], 200, 200, 200),
    ]
    assert json.loads(metadata.body)["rest"][0]["security"]["service"][0]["coding"][0]["code"] == "SMART-on-FHIR"


async def test_a_token_ends_after_its_time_and_with_the_process(smart: SmartAgent) -> None:
    now = [0.0]
    assert smart.agent.smart is not None
    smart.agent.smart.given = GivenTokens(lambda: now[0])
    token = await smart.token()
    assert token not in repr(smart.agent.smart.given), "only digests are kept"
    for at, status in ((299.0, 200), (300.0, 401), (1e9, 401)):
        now[0] = at
        assert (await smart.agent.ask(MESSAGES, b"x", Authorization=f"Bearer {token}")).status == status
    assert token not in repr(smart.agent.telemetry.events)


def test_the_tokens_of_a_client_are_bounded() -> None:
    given = GivenTokens(lambda: 0.0)
    first, other = given.give(Caller("lab")), given.give(Caller("ward"))
    last = [given.give(Caller("lab")) for _ in range(2048)][-1]
    assert given.caller(last).name == "lab"
    assert given.caller(other).name == "ward"
    with pytest.raises(TokenDeniedError):
        given.caller(first)


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer ", f"Bearer {CANARY}", "Bearer " + "x" * 7000, "Basic x"])
async def test_other_tokens_open_nothing(smart: SmartAgent, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for path in ("/v1/projects", "/fhir/default/metadata", "/none"):
        reply = await smart.agent.ask(path, None, **headers)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assertion = await smart.agent.ask("/v1/projects", Authorization=f"Bearer {LAB.assertion()}")
    assert assertion.status == 401, "an assertion is no access token"
    assert CANARY not in repr(smart.agent.telemetry.events)


async def test_tokens_of_a_file_are_valid_beside_those_for_a_signature(start: Start, tmp_path: Path) -> None:
    logins = ServiceLogins((ClientToken("old", digest_of("a" * 40)),), smart=True)
    smart = SmartAgent(await start(logins, smart=settings_of(tmp_path, LAB)))
    assert (await smart.agent.ask(MESSAGES, b"x", Authorization="Bearer " + "a" * 40)).status == 200
    assert (await smart.agent.ask(MESSAGES, b"x", Authorization=f"Bearer {await smart.token()}")).status == 200
    assert [each.client for each in smart.agent.audit.entries] == ["old", "lab"]
    assert logins.shown == "tokens or SMART"


async def test_attempts_of_an_address_are_limited(start: Start, tmp_path: Path) -> None:
    smart = SmartAgent(await start(smart=settings_of(tmp_path, LAB, attempts_per_s=1)))
    assert smart.agent.smart is not None
    now = [0.0]
    smart.agent.smart._attempts = Buckets(1, lambda: now[0])
    assert [(await smart.post(LAB.form("x"))).status for _ in range(3)] == [401, 401, 429]
    late = await smart.post(LAB.form())
    assert (error_of(late), late.headers["retry-after"]) == ("temporarily_unavailable", "2")
    now[0] = 5.0
    assert (await smart.post(LAB.form())).status == 200


def test_addresses_of_one_network_count_together() -> None:
    same = {network_of("2001:db8::1"), network_of("2001:db8::2%eth0"), network_of("2001:db8:0:0:ffff::")}
    assert same == {"2001:db8::/64"}
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") != network_of("::ffff:192.0.2.2")
    assert network_of("") == ""


async def test_a_slow_or_cut_form_is_refused(start: Start, tmp_path: Path) -> None:
    smart = SmartAgent(await start(smart=settings_of(tmp_path, LAB), idle_s=0.2))
    reader, writer = await smart.agent.open()
    writer.write(request("/token", LAB.form(), FORM)[:-5])
    assert error_of(await read_reply(reader)) == "invalid_request"
    assert smart.agent.service.budget.held == 0


async def test_discovery_is_public_and_reveals_no_project(smart: SmartAgent) -> None:
    document = json.loads((await smart.agent.ask("/.well-known/smart-configuration", Accept="text/html")).body)
    assert document == {
        "token_endpoint": "https://deid.example/token",
        "token_endpoint_auth_methods_supported": ["private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": ["ES384", "RS384"],
        "grant_types_supported": ["client_credentials"],
        "scopes_supported": ["deid/*.deidentify"],
        "capabilities": ["client-confidential-asymmetric"],
    }
    replies = [await smart.agent.ask(f"/fhir/{p}/.well-known/smart-configuration") for p in ("darts", "none")]
    assert [each.status for each in replies] == [200, 200]
    assert replies[0].body.replace(b"darts", b"none") == replies[1].body
    assert (await smart.agent.ask(f"/fhir/{CANARY}/.well-known/smart-configuration")).status == 404


async def test_without_the_section_its_addresses_do_not_exist(start: Start) -> None:
    agent = await start()
    assert (await agent.ask("/token", LAB.form(), FORM)).status == 404
    assert (await agent.ask("/.well-known/smart-configuration")).status == 404
    assert "/token" not in json.loads((await agent.ask("/openapi.json")).body)["paths"]


async def test_routes_of_tokens_are_counted_and_described(smart: SmartAgent) -> None:
    await smart.post(LAB.form())
    document = json.loads((await smart.agent.ask("/openapi.json")).body)
    flow = document["components"]["securitySchemes"]["smart"]["flows"]["clientCredentials"]
    assert flow["tokenUrl"] == "https://deid.example/token"
    assert document["paths"]["/token"]["post"]["security"] == []
    answered = [(e.route, e.status) for e in smart.agent.telemetry.events if isinstance(e, ServiceAnswered)]
    assert answered == [("token", 200), ("openapi", 200)]
