"""Logins by SMART Backend Services: each wrong assertion, form and token is refused, and reveals nothing."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from support.http_agent import MESSAGES, OPERATION, HttpAgent, Reply, Start, digest_of, read_reply, request
from support.smart_clients import (
    FORM,
    SmartClient,
    compact,
    encode,
    public_jwk,
    signed_with_public_key,
    tampered,
    unsigned,
)

from deid_agent.config import ClientToken
from deid_agent.http.service_access import Buckets, Caller, ServiceLogins
from deid_agent.http.smart_keys import FileKeys, parse_jwks
from deid_agent.http.smart_service import GivenTokens, network_of
from deid_agent.http.smart_tokens import TokenDeniedError, UsedIds
from deid_agent.telemetry.transport_events import ServiceAnswered, ServiceDenied

CANARY = "Zyblorqvist"
LAB = SmartClient("lab")
WARD = SmartClient("ward")


@pytest.fixture(scope="module")
def laboratory() -> SmartClient:
    """A client with an RSA key, which takes long to make."""
    return SmartClient("laboratory", rsa.generate_private_key(65537, 2048), "r1", "RS384")


def settings_of(folder: Path, *clients: SmartClient, **more: object) -> dict[str, object]:
    listed = {each.name: {"jwks_file": str(each.write(folder))} for each in clients}
    return {"mode": "self", "url": "https://deid.example", "clients": listed, "attempts_per_s": 1000, **more}


class SmartAgent:
    """An agent with clients ``lab`` and ``ward``; denials are answered at once."""

    def __init__(self, agent: HttpAgent) -> None:
        self.agent = agent
        self.slept: list[float] = []
        assert agent.smart is not None
        agent.smart.sleep = self._sleep

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def post(self, body: bytes, media: str = FORM, **headers: str) -> Reply:
        return await self.agent.ask("/token", body, media, **headers)

    async def token(self, client: SmartClient = LAB, **changes: str) -> str:
        reply = await self.post(client.form(**changes))
        assert reply.status == 200, reply
        return str(json.loads(reply.body)["access_token"])

    def denials(self) -> list[str]:
        return [str(each) for each in self.agent.telemetry.names(ServiceDenied, "why")]


@pytest.fixture
async def smart(start: Start, tmp_path: Path) -> SmartAgent:
    settings = settings_of(tmp_path, LAB, WARD)
    return SmartAgent(await start(smart=settings, projects=("default", "darts")))


def error_of(reply: Reply) -> str:
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "application/json"
    return str(json.loads(reply.body)["error"])


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


async def test_an_rsa_key_and_a_list_of_one_audience_are_accepted(
    start: Start, tmp_path: Path, laboratory: SmartClient
) -> None:
    smart = SmartAgent(await start(smart=settings_of(tmp_path, laboratory)))
    assert (await smart.post(laboratory.form())).status == 200
    listed = laboratory.assertion(aud=["https://deid.example/token"], iat=None)
    assert (await smart.post(laboratory.form(listed, client_id="laboratory"))).status == 200


WRONG: Mapping[str, tuple[str, object]] = {
    "expired": ("EXPIRED", {"exp": 1_700_000_000}),
    "no end": ("EXPIRED", {"exp": None}),
    "an end too far": ("LIFETIME", {"exp": 4_000_000_000}),
    "an end that is text": ("TIME", {"exp": "4000000000"}),
    "an end that is true": ("TIME", {"exp": True}),
    "another audience": ("AUDIENCE", {"aud": "https://other.example/token"}),
    "one audience of two": ("AUDIENCE", {"aud": ["https://deid.example/token", "https://other.example/token"]}),
    "no audience": ("AUDIENCE", {"aud": None}),
    "another issuer than subject": ("ISSUER", {"iss": "ward"}),
    "no subject": ("ISSUER", {"sub": None}),
    "a list as subject": ("ISSUER", {"iss": ["lab"], "sub": ["lab"]}),
    "an unknown client": ("CLIENT", {"iss": CANARY, "sub": CANARY}),
    "another's name": ("SIGNATURE", {"iss": "ward", "sub": "ward"}),
    "no id": ("ID", {"jti": None}),
    "a number as id": ("ID", {"jti": 7}),
    "a long id": ("ID", {"jti": "x" * 257}),
    "not valid yet": ("EARLY", {"nbf": 4_000_000_000}),
    "signed in the future": ("EARLY", {"iat": 4_000_000_000}),
    "signed before the start": ("EARLIER_START", {"iat": 1_700_000_000}),
}
WRONG_HEADERS: Mapping[str, tuple[str, dict[str, object]]] = {
    "RS256": ("ALGORITHM", {"alg": "RS256"}),
    "no algorithm": ("ALGORITHM", {"alg": None}),
    "an unknown key": ("KEY", {"kid": CANARY}),
    "no key": ("KEY", {"kid": None}),
    "RS384 for an EC key": ("KEY", {"alg": "RS384"}),
    "an address of keys": ("KEY", {"jku": "https://evil.example/jwks.json"}),
    "an extension": ("FORM", {"crit": ["exp"], "exp": 1}),
    "a detached payload": ("FORM", {"b64": False}),
    "another type": ("TYPE", {"typ": "at+jwt"}),
}


@pytest.mark.parametrize(("code", "changes"), WRONG.values(), ids=WRONG)
async def test_wrong_claims_are_refused(smart: SmartAgent, code: str, changes: dict[str, object]) -> None:
    await refused(smart, LAB.assertion(None, **changes), code)


@pytest.mark.parametrize(("code", "changes"), WRONG_HEADERS.values(), ids=WRONG_HEADERS)
async def test_wrong_headers_are_refused(smart: SmartAgent, code: str, changes: dict[str, object]) -> None:
    await refused(smart, LAB.assertion(changes), code)


@pytest.mark.parametrize(
    ("code", "assertion"),
    [
        ("ALGORITHM", unsigned(LAB)),
        ("ALGORITHM", signed_with_public_key(LAB)),
        ("SIGNATURE", tampered(LAB)),
        ("SIGNATURE", SmartClient("lab").assertion()),
        ("SIGNATURE", LAB.assertion()[:-8]),
        ("SIZE", LAB.assertion(note="x" * 9000)),
        ("FORM", LAB.assertion() + ".x"),
        ("FORM", LAB.assertion().replace(".", "=.")),
        ("FORM", "x"),
        ("FORM", "é.é.é"),
        ("FORM", f"{encode(b'[' * 4000)}.{encode(b'{}')}.AA"),
        ("FORM", f"{encode(b'{}')}.{encode(b'[' * 4000)}.AA"),
        ("FORM", f"{encode(b'NaN')}.{encode(b'{}')}.AA"),
        ("FORM", compact({"alg": "ES384", "kid": "k1"}, [], lambda _: b"x")),
        ("ISSUER", compact({"alg": "ES384", "kid": "k1"}, {}, lambda _: b"x")),
    ],
)
async def test_wrong_signatures_and_forms_are_refused(smart: SmartAgent, code: str, assertion: str) -> None:
    await refused(smart, assertion, code)


async def refused(smart: SmartAgent, assertion: str, code: str) -> None:
    reply = await smart.post(LAB.form(assertion))
    assert (reply.status, error_of(reply)) == (401, "invalid_client")
    other = await smart.post(LAB.form("x.y.z"))
    assert (reply.body, reply.headers.keys()) == (other.body, other.headers.keys())
    assert smart.denials()[0] == f"SMART_{code}"
    assert len(smart.slept) == 2, "known and unknown clients have their answer after one time"
    assert CANARY not in repr(smart.agent.telemetry.events) + str(reply)
    assert (await smart.post(LAB.form())).status == 200


async def test_an_assertion_is_used_once(smart: SmartAgent) -> None:
    assertion = LAB.assertion()
    assert (await smart.post(LAB.form(assertion))).status == 200
    assert (await smart.post(LAB.form(assertion))).status == 401
    id = LAB.claims()["jti"]
    assert (await smart.post(LAB.form(LAB.assertion(jti=id)))).status == 200
    assert (await smart.post(LAB.form(LAB.assertion(jti=id)))).status == 401
    assert (await smart.post(WARD.form(WARD.assertion(jti=id)))).status == 200, "each client has ids of its own"
    assert smart.denials() == ["SMART_REPLAYED"] * 2
    form = LAB.form()
    assert sorted([each.status for each in await asyncio.gather(*(smart.post(form) for _ in range(8)))])[:2] == [
        200,
        401,
    ]


def test_the_memory_of_ids_is_bounded_and_forgets_none_in_use() -> None:
    now = [0.0]
    used = UsedIds(lambda: now[0])
    for number in range(4096):
        used.take("lab", str(number), 240)
    with pytest.raises(TokenDeniedError, match="BUSY"):
        used.take("lab", "more", 240)
    used.take("ward", "more", 240)
    with pytest.raises(TokenDeniedError, match="REPLAYED"):
        used.take("lab", "0", 240)
    now[0] = 280.0
    used.take("lab", "more", 240)


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


ISSUER = SmartClient("https://login.example", kid="i1")


def issuer_settings(folder: Path, issuer: SmartClient = ISSUER, **more: object) -> dict[str, object]:
    path = folder / "issuer.json"
    path.write_bytes(issuer.jwks())
    return {
        "mode": "issuer",
        "url": "https://deid.example",
        "issuer": "https://login.example",
        "token_url": "https://login.example/token",
        "jwks_file": str(path),
        **more,
    }


def access(issuer: SmartClient = ISSUER, header: Mapping[str, object] | None = None, **changes: object) -> str:
    claims: dict[str, object] = {
        "aud": "https://deid.example",
        "client_id": "lab",
        "scope": "openid deid/darts.deidentify",
    }
    return issuer.assertion({"typ": "at+jwt", **(header or {})}, **{**claims, **changes})


async def test_tokens_of_an_issuer_open_the_projects_of_their_scope(start: Start, tmp_path: Path) -> None:
    agent = await start(smart=issuer_settings(tmp_path), projects=("default", "darts"))
    token = access(exp=4_000_000_000)
    for _ in range(2):
        login = {"Authorization": f"Bearer {token}"}
        listed = json.loads((await agent.ask("/v1/projects", None, **login)).body)["projects"]
        assert [each["name"] for each in listed] == ["darts"]
        assert (await agent.ask(MESSAGES, b"x", **login)).status == 404
        assert (await agent.ask("/v1/projects/darts/messages", b"x", **login)).status == 200
    assert agent.audit.entries[0].client == "lab"
    every = access(scope="deid/*.deidentify", aud=["a", "https://deid.example"], client_id=None, azp="ward")
    assert (await agent.ask(MESSAGES, b"x", Authorization=f"Bearer {every}")).status == 200
    assert agent.audit.entries[-1].client == "ward"
    assert (await agent.ask("/token", LAB.form(), FORM, **{"Authorization": f"Bearer {every}"})).status == 404
    document = json.loads((await agent.ask("/.well-known/smart-configuration")).body)
    assert document["token_endpoint"] == "https://login.example/token"


async def test_a_token_of_an_issuer_ends_with_its_key(start: Start, tmp_path: Path) -> None:
    agent = await start(smart=issuer_settings(tmp_path))
    login = {"Authorization": f"Bearer {access(scope='deid/default.deidentify', exp=4_000_000_000)}"}
    assert agent.smart is not None
    assert agent.smart.access is not None
    now = time.time()
    agent.smart.access.now = lambda: now
    assert (await agent.ask(MESSAGES, b"x", **login)).status == 200
    agent.smart.access.keys = FileKeys(parse_jwks(LAB.jwks()))
    assert (await agent.ask(MESSAGES, b"x", **login)).status == 200
    now += 300.0
    assert (await agent.ask(MESSAGES, b"x", **login)).status == 401


async def test_keys_and_tokens_of_another_library_are_accepted(start: Start, tmp_path: Path) -> None:
    """joserfc makes the keys with their names, and both kinds of tokens."""
    elliptic, modulus = ECKey.generate_key("P-384", auto_kid=True), RSAKey.generate_key(2048, auto_kid=True)
    (tmp_path / "lab.json").write_text(json.dumps(KeySet([elliptic]).as_dict(private=False)))
    claims = {"exp": int(time.time()) + 240, "jti": "1"}
    signed = jwt.encode({"alg": "ES384", "kid": elliptic.kid}, LAB.claims(**claims), elliptic, ["ES384"])
    listed = {"lab": {"jwks_file": str(tmp_path / "lab.json")}}
    agent = await start(smart={"mode": "self", "url": "https://deid.example", "clients": listed})
    assert (await agent.ask("/token", LAB.form(signed), FORM)).status == 200
    access_claims = {"iss": "https://login.example", "aud": "https://deid.example", "client_id": "lab"}
    signed = jwt.encode(
        {"alg": "RS256", "kid": modulus.kid}, {**access_claims, **claims, "scope": "deid/default.deidentify"}, modulus
    )
    settings = issuer_settings(tmp_path, algorithms=["RS256"])
    (tmp_path / "issuer.json").write_text(json.dumps(KeySet([modulus]).as_dict(private=False)))
    agent = await start(smart=settings)
    assert (await agent.ask(MESSAGES, b"x", Authorization=f"Bearer {signed}")).status == 200


@pytest.mark.parametrize(
    ("status", "token"),
    [
        (401, lambda: access(exp=1_700_000_000)),
        (401, lambda: access(exp=None)),
        (401, lambda: access(iss="https://evil.example")),
        (401, lambda: access(aud="https://other.example")),
        (401, lambda: access(aud=None)),
        (401, lambda: access(aud={"https://deid.example": 1})),
        (401, lambda: access(nbf=4_000_000_000)),
        (401, lambda: access(client_id=CANARY * 9)),
        (401, lambda: access(client_id=["lab"])),
        (401, lambda: access(header={"typ": "logout+jwt"})),
        (401, lambda: access(header={"alg": "ES256"})),
        (401, lambda: access(header={"kid": "i2"})),
        (401, lambda: access(SmartClient("https://login.example", kid="i1"))),
        (403, lambda: access(scope="openid")),
        (403, lambda: access(scope=None)),
        (403, lambda: access(scope=["system/*.rs", 7])),
    ],
)
async def test_wrong_tokens_of_an_issuer_are_refused(
    start: Start, tmp_path: Path, status: int, token: Callable[[], str]
) -> None:
    agent = await start(smart=issuer_settings(tmp_path))
    reply = await agent.ask(MESSAGES, b"x", Authorization=f"Bearer {token()}")
    assert reply.status == status
    assert reply.headers["www-authenticate"] == ("Bearer" if status == 401 else 'Bearer error="insufficient_scope"')
    assert CANARY not in repr(agent.telemetry.events) + str(reply)


async def test_an_issuer_may_sign_with_other_algorithms_if_these_are_set(start: Start, tmp_path: Path) -> None:
    issuer = SmartClient("https://login.example", ec.generate_private_key(ec.SECP256R1()), "i1", "ES256")
    token = access(issuer, scope="deid/default.deidentify")
    for algorithms, status in ((["ES384"], 401), (["ES256"], 200)):
        agent = await start(smart=issuer_settings(tmp_path, issuer, algorithms=algorithms))
        assert (await agent.ask(MESSAGES, b"x", Authorization=f"Bearer {token}")).status == status


def test_the_public_key_of_a_test_client_is_its_own() -> None:
    assert public_jwk(LAB.key, "k1") != public_jwk(WARD.key, "k1")
