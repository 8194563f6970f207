"""Assertions of clients of SMART Backend Services: each wrong one is refused, and the answer does not reveal why."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from support.http_agent import Start
from support.smart_agent import CANARY, LAB, WARD, SmartAgent, error_of, settings_of
from support.smart_clients import (
    SmartClient,
    compact,
    encode,
    signed_with_public_key,
    tampered,
    unsigned,
)

from deid_agent.http.smart_tokens import TokenDeniedError, UsedIds


@pytest.fixture(scope="module")
def laboratory() -> SmartClient:
    """A client with an RSA key, which takes long to make."""
    return SmartClient("laboratory", rsa.generate_private_key(65537, 2048), "r1", "RS384")


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
        ("ALGORITHM", lambda: unsigned(LAB)),
        ("ALGORITHM", lambda: signed_with_public_key(LAB)),
        ("SIGNATURE", lambda: tampered(LAB)),
        ("SIGNATURE", lambda: SmartClient("lab").assertion()),
        ("SIGNATURE", lambda: LAB.assertion()[:-8]),
        ("SIZE", lambda: LAB.assertion(note="x" * 9000)),
        ("FORM", lambda: LAB.assertion() + ".x"),
        ("FORM", lambda: LAB.assertion().replace(".", "=.")),
        ("FORM", lambda: "x"),
        ("FORM", lambda: "é.é.é"),
        ("FORM", lambda: f"{encode(b'[' * 4000)}.{encode(b'{}')}.AA"),
        ("FORM", lambda: f"{encode(b'{}')}.{encode(b'[' * 4000)}.AA"),
        ("FORM", lambda: f"{encode(b'NaN')}.{encode(b'{}')}.AA"),
        ("FORM", lambda: compact({"alg": "ES384", "kid": "k1"}, [], lambda _: b"x")),
        ("ISSUER", lambda: compact({"alg": "ES384", "kid": "k1"}, {}, lambda _: b"x")),
    ],
)
async def test_wrong_signatures_and_forms_are_refused(
    smart: SmartAgent, code: str, assertion: Callable[[], str]
) -> None:
    await refused(smart, assertion(), code)


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
