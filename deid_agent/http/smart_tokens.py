"""Signed tokens (JWT, RFC 7519): client assertions, and access tokens of another server.

PyJWT checks the signature. Form, header and claims are checked here, before and after it: a check that a library might
skip for a claim of an unexpected type is a login.
"""

import base64
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from deid_agent.config import is_client_name
from deid_agent.http.service_access import Caller
from deid_agent.http.smart_keys import KeySet

ASSERTION_BYTES: Final = 8192
LIFETIME_S: Final = 300.0
"""The longest time until the end of an assertion, and of the tokens that this agent gives out."""
SKEW_S: Final = 30.0
"""How much clocks may differ: for the begin of a token, and for the longest time until its end."""
ALL_PROJECTS: Final = "*"
UNAVAILABLE: Final = "UNAVAILABLE"
"""The code of a denial because the address of the keys does not answer."""
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_SCOPE: Final = re.compile(r"deid/(\*|[a-z0-9][a-z0-9_-]{0,62})\.deidentify")
_ASSERTION_TYPES: Final = frozenset({"jwt", "client-authentication+jwt"})
_ACCESS_TYPES: Final = frozenset({"jwt", "at+jwt"})
_MOST_ID: Final = 256
_MOST_IDS: Final = 4096
_MOST_CACHED: Final = 1024


class TokenDeniedError(Exception):
    """A token that opens nothing. ``code`` is for the operator's log; no client is shown it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A token whose signature is not checked."""

    text: str = field(repr=False)
    algorithm: str
    kid: str
    jku: object = field(repr=False)
    claims: Mapping[str, object] = field(repr=False)


def read_token(text: str, algorithms: Collection[str], types: Collection[str]) -> SignedToken:
    """The parts of a token. Raises ``TokenDeniedError`` for a form or header that is not accepted."""
    if len(text) > ASSERTION_BYTES:
        raise TokenDeniedError("SIZE")
    if not _COMPACT.fullmatch(text):
        raise TokenDeniedError("FORM")
    head, body, _ = text.split(".")
    header, claims = _json_object(head), _json_object(body)
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    # The list is that of the settings: `none`, and HMAC with a public key as its secret, are never on it.
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise TokenDeniedError("ALGORITHM")
    if not isinstance(kid, str) or not kid:
        raise TokenDeniedError("KEY")
    # An extension that must be understood (`crit`), or a payload that is not in the token (`b64`).
    if "crit" in header or "b64" in header:
        raise TokenDeniedError("FORM")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in types:
        raise TokenDeniedError("TYPE")
    return SignedToken(text, algorithm, kid, header.get("jku"), claims)


def _json_object(part: str) -> Mapping[str, object]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:  # of base64 and of JSON
        raise TokenDeniedError("FORM") from None
    if not isinstance(found, dict):
        raise TokenDeniedError("FORM")
    return found


async def check_signature(token: SignedToken, keys: KeySet) -> None:
    """Raise ``TokenDeniedError`` unless one of the keys made the signature."""
    if token.jku is not None and token.jku != keys.url:
        raise TokenDeniedError("KEY")
    found = await keys.find(token.kid, token.algorithm)
    if found is None:
        raise TokenDeniedError("KEY" if keys.available else UNAVAILABLE)
    from jwt import PyJWS, PyJWTError  # noqa: PLC0415 - agents without SMART logins start without it

    try:
        PyJWS().decode(token.text, found.key, algorithms=[token.algorithm])
    except (PyJWTError, ValueError, TypeError):
        raise TokenDeniedError("SIGNATURE") from None


def check_times(claims: Mapping[str, object], now: float, most_s: float | None = None) -> float:
    """The end of a token. Raises ``TokenDeniedError`` if it is past, too far, missing, or before the begin."""
    end = _time_claim(claims, "exp")
    if end is None or end <= now:
        raise TokenDeniedError("EXPIRED")
    if most_s is not None and end > now + most_s + SKEW_S:
        raise TokenDeniedError("LIFETIME")
    for name in ("nbf", "iat"):
        begin = _time_claim(claims, name)
        if begin is not None and begin > now + SKEW_S:
            raise TokenDeniedError("EARLY")
    return end


def _time_claim(claims: Mapping[str, object], name: str) -> float | None:
    """A time in seconds; None if there is none. Raises ``TokenDeniedError`` for anything that is not a number."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenDeniedError("TIME")
    return float(value)


def parse_scope(value: str) -> frozenset[str] | None:
    """The projects of a scope, ``*`` for all; None if it is empty or names anything else than projects."""
    found = [_SCOPE.fullmatch(each) for each in value.split(" ")]
    return frozenset(each[1] for each in found if each) if found and all(found) else None


def scope_of(project: str) -> str:
    """The scope of a project."""
    return f"deid/{project}.deidentify"


@dataclass(slots=True)
class UsedIds:
    """The ids of assertions that were used, until these end. Each client has a bound of its own."""

    clock: Callable[[], float] = time.monotonic
    _used: dict[str, dict[bytes, float]] = field(default_factory=dict)

    def take(self, client: str, id: str, lifetime_s: float) -> None:
        """Raise ``TokenDeniedError`` if the id was used, or if its client has used too many to remember one more."""
        used, now = self._used.setdefault(client, {}), self.clock()
        digest = hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if used.get(digest, now) > now:
            raise TokenDeniedError("REPLAYED")
        if len(used) >= _MOST_IDS:
            for each in [each for each, until in used.items() if until <= now]:
                del used[each]
            if len(used) >= _MOST_IDS:
                raise TokenDeniedError("BUSY")
        # Longer than the assertion by the difference of clocks: the clock of the host may be put back meanwhile.
        used[digest] = now + lifetime_s + SKEW_S


@dataclass(slots=True)
class AssertionVerifier:
    """Checks client assertions (RFC 7523). ``begun`` is the time of the start.

    An assertion from before the start is refused if it has ``iat``: its id may be among those that were forgotten.
    """

    audience: str
    algorithms: Collection[str]
    clients: Mapping[str, KeySet]
    now: Callable[[], float] = time.time
    used: UsedIds = field(default_factory=UsedIds)
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.now()

    async def client(self, text: str) -> str:
        """The client that signed an assertion, which it can use once. Raises ``TokenDeniedError``."""
        token = read_token(text, self.algorithms, _ASSERTION_TYPES)
        claims = token.claims
        name = claims.get("sub")
        if not isinstance(name, str) or claims.get("iss") != name:
            raise TokenDeniedError("ISSUER")
        keys = self.clients.get(name)
        if keys is None:
            raise TokenDeniedError("CLIENT")
        await check_signature(token, keys)
        if claims.get("aud") not in (self.audience, [self.audience]):
            raise TokenDeniedError("AUDIENCE")
        now = self.now()
        end = check_times(claims, now, LIFETIME_S)
        issued = _time_claim(claims, "iat")
        # Whole seconds: many clients round down.
        if issued is not None and issued < int(self.begun):
            raise TokenDeniedError("EARLIER_START")
        id = claims.get("jti")
        if not isinstance(id, str) or not 0 < len(id) <= _MOST_ID:
            raise TokenDeniedError("ID")
        self.used.take(name, id, end - now)
        return name


@dataclass(slots=True)
class AccessTokenVerifier:
    """Checks access tokens of another server (RFC 9068). Those that were checked are remembered for five minutes.

    Not until their end, which may be far: the issuer may have removed the key since.
    """

    issuer: str
    audience: str
    algorithms: Collection[str]
    keys: KeySet
    now: Callable[[], float] = time.time
    _checked: "OrderedDict[bytes, tuple[Caller, float]]" = field(default_factory=OrderedDict)

    async def caller(self, text: str) -> Caller:
        """The client of a token with the projects of its scope. Raises ``TokenDeniedError``."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
        remembered = self._checked.get(digest)
        if remembered is not None and self.now() < remembered[1]:
            return remembered[0]
        token = read_token(text, self.algorithms, _ACCESS_TYPES)
        claims = token.claims
        if claims.get("iss") != self.issuer:
            raise TokenDeniedError("ISSUER")
        await check_signature(token, self.keys)
        audience = claims.get("aud")
        if self.audience not in (audience if isinstance(audience, list) else [audience]):
            raise TokenDeniedError("AUDIENCE")
        end = check_times(claims, self.now())
        caller = Caller(_client_of(claims), _projects_in(claims.get("scope")))
        self._checked[digest] = caller, min(end, self.now() + LIFETIME_S)
        self._checked.move_to_end(digest)
        while len(self._checked) > _MOST_CACHED:
            self._checked.popitem(last=False)
        return caller


def _client_of(claims: Mapping[str, object]) -> str:
    """The name of the client; it goes into the audit."""
    name = next((claims[each] for each in ("client_id", "azp", "sub") if each in claims), None)
    if not isinstance(name, str) or not is_client_name(name):
        raise TokenDeniedError("CLIENT")
    return name


def _projects_in(scope: object) -> frozenset[str] | None:
    """The projects of a scope among scopes of others. None is all of them. Raises ``TokenDeniedError`` for none."""
    words = scope.split(" ") if isinstance(scope, str) else scope if isinstance(scope, list) else []
    found = frozenset(match[1] for each in words if isinstance(each, str) and (match := _SCOPE.fullmatch(each)))
    if not found:
        raise TokenDeniedError("SCOPE")
    return None if ALL_PROJECTS in found else found
