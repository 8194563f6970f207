"""Public keys from files and addresses: bounded, without redirects, kept for as long as is permitted."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from support.http_agent import MESSAGES, HttpAgent, Start, until
from support.smart_clients import FORM, SmartClient, public_jwk

from deid_agent.http.smart_keys import FetchedKeys, parse_jwks, read_keys
from deid_agent.model import ConfigurationError
from deid_agent.telemetry.transport_events import ServiceDenied, ServiceKeysFailed

CANARY = "Zyblorqvist"
CLIENT = SmartClient()


@dataclass
class KeyServer:
    """Serves keys over TLS; a test changes its answer."""

    body: bytes = CLIENT.jwks()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    silent: asyncio.Event | None = None
    asked: int = 0
    sent: int = 0
    url: str = ""
    authority: trustme.CA = field(default_factory=trustme.CA)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.silent is not None:
            await self.silent.wait()
        if not self.endless:
            return web.Response(body=self.body, status=self.status, headers=self.headers)
        response = web.StreamResponse(headers={"Content-Length": "100000000"})
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" " * 1_000_000)
            self.sent += 1
        return response


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    keys = KeyServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys.authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    application = web.Application()
    application.router.add_get("/jwks.json", keys.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    keys.url = f"https://localhost:{runner.addresses[0][1]}/jwks.json"
    yield keys
    if keys.silent is not None:
        keys.silent.set()
    await runner.cleanup()


class Fetcher:
    """The keys of a server, with a clock of the test."""

    def __init__(self, server: KeyServer, *, stale_s: float = 0.0, trusted: bool = True) -> None:
        self.now = 0.0
        self.faults: list[str] = []
        context = ssl.create_default_context()
        if trusted:
            server.authority.configure_trust(context)
        self.keys = FetchedKeys(server.url, context, self.faults.append, stale_s, lambda: self.now)

    async def has(self, kid: str = "k1", algorithm: str = "ES384") -> bool:
        return await self.keys.find(kid, algorithm) is not None


async def test_keys_are_fetched_once_and_kept(server: KeyServer) -> None:
    fetcher = Fetcher(server)
    assert all(await asyncio.gather(*(fetcher.has() for _ in range(10))))
    fetcher.now = 299.0
    assert await fetcher.has()
    assert server.asked == 1
    fetcher.now = 300.0
    assert await fetcher.has()
    assert server.asked == 2


@pytest.mark.parametrize(
    ("control", "asked"), [("max-age=60", 2), ("public, max-age=0", 2), ("no-store", 2), ("max-age=9999", 1)]
)
async def test_keys_are_kept_no_longer_than_permitted(server: KeyServer, control: str, asked: int) -> None:
    server.headers["Cache-Control"] = control
    fetcher = Fetcher(server)
    assert await fetcher.has()
    fetcher.now = 61.0
    assert await fetcher.has()
    assert server.asked == asked


async def test_a_new_key_is_found_and_unknown_ones_cause_no_flood(server: KeyServer) -> None:
    fetcher = Fetcher(server)
    assert await fetcher.has()
    server.body = json.dumps({"keys": [public_jwk(CLIENT.key, "k2")]}).encode()
    assert not any([await fetcher.has("k2") for _ in range(20)])
    assert server.asked == 1
    fetcher.now = 5.0
    assert await fetcher.has("k2")
    assert not await fetcher.has("k1"), "a key that was removed is none"


async def test_redirects_sizes_and_other_answers_give_no_key(server: KeyServer) -> None:
    fetcher = Fetcher(server)

    async def fault_of(**answer: object) -> str:
        for name, value in {"status": 200, "body": CLIENT.jwks(), "headers": {}, "endless": False, **answer}.items():
            setattr(server, name, value)
        fetcher.now += 1000
        assert not await fetcher.has()
        return fetcher.faults[-1]

    assert await fault_of(status=302, headers={"Location": server.url}) == "REDIRECT"
    assert server.asked == 1, "a redirect is not followed"
    assert await fault_of(status=500) == "STATUS"
    assert await fault_of(endless=True) == "SIZE"
    assert server.sent < 50, "the rest is not read"
    assert await fault_of(body=b" " * 300_000) == "SIZE"
    assert await fault_of(body=b"[" * 100_000) == "KEYS"
    assert await fault_of(body=CANARY.encode()) == "KEYS"
    assert await fault_of(headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b") == "KEYS"
    assert await Fetcher(server, trusted=False).has() is False
    server.status, server.body, server.headers = 200, CLIENT.jwks(), {}
    fetcher.now += 1000
    assert await fetcher.has()


async def test_an_authority_that_is_not_trusted_gives_no_key(server: KeyServer) -> None:
    fetcher = Fetcher(server, trusted=False)
    assert not await fetcher.has()
    assert (fetcher.faults, server.asked) == (["CONNECTION"], 0)


async def test_keys_of_an_issuer_outlast_its_failures_for_a_while(server: KeyServer) -> None:
    client, issuer = Fetcher(server), Fetcher(server, stale_s=3600.0)
    assert await client.has()
    assert await issuer.has()
    server.status = 503
    client.now = issuer.now = 400.0
    assert (await client.has(), await issuer.has()) == (False, True)
    issuer.now = 300.0 + 3600.0
    assert not await issuer.has()
    assert issuer.faults == ["STATUS", "STATUS"]


async def test_a_silent_address_is_given_up(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deid_agent.http.smart_keys._FETCH_S", 0.2)
    server.silent = asyncio.Event()
    fetcher = Fetcher(server)
    assert not any(await asyncio.gather(*(fetcher.has() for _ in range(5))))
    assert fetcher.faults == ["TIMEOUT"], "those that waited do not ask again"


async def test_a_silent_address_delays_no_other_client(server: KeyServer, start: Start, tmp_path: Path) -> None:
    server.silent = asyncio.Event()
    authority, other = tmp_path / "ca.pem", SmartClient("ward")
    server.authority.cert_pem.write_to_path(str(authority))
    clients = {"lab": {"jwks_url": server.url}, "ward": {"jwks_file": str(other.write(tmp_path))}}
    smart = {"mode": "self", "url": "https://deid.example", "clients": clients, "jwks_cafile": str(authority)}
    agent: HttpAgent = await start(smart=smart)
    waiting = asyncio.create_task(agent.ask("/token", CLIENT.form(), FORM))
    await until(lambda: server.asked > 0)
    assert (await agent.ask("/token", other.form(), FORM)).status == 200
    assert not waiting.done()
    server.status = 500
    server.silent.set()
    assert (await waiting).status == 401
    assert agent.telemetry.names(ServiceDenied, "why") == ["SMART_UNAVAILABLE"]
    assert agent.telemetry.names(ServiceKeysFailed, "owner") == ["service.smart.clients.lab.jwks_url"]
    assert agent.telemetry.names(ServiceKeysFailed, "why") == ["STATUS"]


async def test_an_issuer_that_does_not_answer_turns_no_client_away_for_good(
    server: KeyServer, start: Start, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    server.authority.cert_pem.write_to_path(str(authority))
    server.status = 503
    smart = {
        "mode": "issuer",
        "url": "https://deid.example",
        "issuer": "https://login.example",
        "token_url": "https://login.example/token",
        "jwks_url": server.url,
        "jwks_cafile": str(authority),
    }
    agent = await start(smart=smart)
    token = CLIENT.assertion(iss="https://login.example", aud="https://deid.example", scope="deid/default.deidentify")
    reply = await agent.ask(MESSAGES, b"x", Authorization=f"Bearer {token}")
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert agent.telemetry.names(ServiceKeysFailed, "owner") == ["service.smart.jwks_url"]


async def test_a_client_with_an_address_of_keys_gets_a_token(server: KeyServer, start: Start, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    server.authority.cert_pem.write_to_path(str(authority))
    clients = {"lab": {"jwks_url": server.url}}
    smart = {"mode": "self", "url": "https://deid.example", "clients": clients, "jwks_cafile": str(authority)}
    agent = await start(smart=smart)
    assert (await agent.ask("/token", CLIENT.form(CLIENT.assertion({"jku": server.url})), FORM)).status == 200


def test_only_usable_keys_are_taken() -> None:
    curve, modulus = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
    good = public_jwk(CLIENT.key, "good")
    members: list[dict[str, object]] = [
        good,
        public_jwk(curve, "p256", use="sig", key_ops=["verify"]),
        public_jwk(modulus, "rsa", alg="RS384"),
        public_jwk(CLIENT.key, "encrypts", use="enc"),
        public_jwk(CLIENT.key, "signs", key_ops=["sign"]),
        public_jwk(CLIENT.key, "hmac", alg="HS256"),
        {**good, "kid": 7},
        {**good, "kid": ""},
        {**good, "kid": "off the curve", "x": good["y"]},
        {**good, "kid": "long", "x": "A" * 5000},
        {**good, "kid": "curve", "crv": "secp256k1"},
        {"kty": "oct", "kid": "secret", "k": "AAAA"},
        {**public_jwk(modulus, "short"), "n": "AQAB" * 20},
        {**public_jwk(modulus, "even"), "e": "Ag"},
        {**public_jwk(modulus, "huge e"), "e": "AQAB" * 10},
        {"kid": "nothing"},
        {"kty": "RSA", "kid": "no numbers"},
    ]
    found = parse_jwks(json.dumps({"keys": members}).encode())
    assert {each.kid: sorted(each.algorithms) for each in found} == {
        "good": ["ES384"],
        "p256": ["ES256"],
        "rsa": ["RS384"],
    }


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "not JSON"),
        (CANARY.encode(), "not JSON"),
        (b"[]", "no key set"),
        (b'{"keys": {}}', "no key set"),
        (b'{"keys": [7]}', "no key set"),
        (b'{"keys": []}', "no usable key"),
        (json.dumps({"keys": [{"kid": CANARY}] * 65}).encode(), "more than 64 keys"),
        (json.dumps({"keys": [{"kty": "EC", "kid": CANARY, "d": CANARY}]}).encode(), "private key"),
        (b" " * 300_000, "more than 262144 bytes"),
    ],
)
def test_a_file_without_keys_stops_the_start_and_is_not_quoted(tmp_path: Path, data: bytes, fault: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=fault) as caught:
        read_keys(path, "service.smart.jwks_file")
    assert CANARY not in str(caught.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_keys(tmp_path / "none.json", "service.smart.jwks_file")
