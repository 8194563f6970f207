"""Access tokens of a separate issuer: its keys, scopes and algorithms."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from support.http_agent import MESSAGES, Start
from support.smart_agent import CANARY, LAB
from support.smart_clients import (
    FORM,
    SmartClient,
)

from deid_agent.http.smart_keys import FileKeys, parse_jwks

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
