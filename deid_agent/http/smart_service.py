"""Logins by SMART Backend Services: the token endpoint, the tokens that it gives out, and the discovery document.

A denied client gets one answer whatever the reason, after one time: it reveals neither clients nor projects.
"""

import asyncio
import hashlib
import ipaddress
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import orjson
from aiohttp import web

from deid_agent.config import SmartMode, SmartSettings
from deid_agent.http.service_access import Buckets, Caller
from deid_agent.http.service_bodies import BodyReader
from deid_agent.http.service_errors import ServiceError
from deid_agent.http.service_routes import FORM, JSON, SMART_ROUTES, media_type
from deid_agent.http.smart_keys import FetchedKeys, KeySet, read_keys
from deid_agent.http.smart_tokens import (
    ALL_PROJECTS,
    LIFETIME_S,
    UNAVAILABLE,
    AccessTokenVerifier,
    AssertionVerifier,
    TokenDeniedError,
    parse_scope,
    scope_of,
)
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import ServiceDenied, ServiceKeysFailed, Telemetry

MOST_FORM: Final = 16 * 1024
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_DENIED_S: Final = 0.25
"""The time after which a denial is answered: longer than a check of a signature, which only known clients cause."""
_ISSUER_STALE_S: Final = 3600.0
"""An issuer without an answer must not stop the messages of all clients."""
_MOST_TOKENS: Final = 2048
_MOST_FIELDS: Final = 16
_NO_STORE: Final = {"Pragma": "no-cache"}
OAUTH_ERRORS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "invalid_request": (400, "The request has an unknown form, or a parameter is missing or repeated."),
        "invalid_client": (401, "The client assertion is not accepted."),
        "unsupported_grant_type": (400, "The only grant_type is client_credentials."),
        "invalid_scope": (400, "The scope is a list of deid/PROJECT.deidentify for projects of the client."),
        "temporarily_unavailable": (429, "Too many requests for tokens from this address; send it again later."),
    }
)
"""The codes of RFC 6749 (5.2, and 4.1.2.1 for the last) with their status and description."""


class OAuthError(Exception):
    """A request for a token that gets none. ``code`` is a key of ``OAUTH_ERRORS``."""

    def __init__(self, code: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(code)
        self.code = code
        self.headers = headers

    def response(self) -> web.Response:
        """The error as RFC 6749 has it."""
        status, description = OAUTH_ERRORS[self.code]
        headers = {"Content-Type": JSON, **_NO_STORE, **self.headers}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        body = orjson.dumps({"error": self.code, "error_description": description})
        return web.Response(body=body, status=status, headers=headers)


@dataclass(slots=True)
class GivenTokens:
    """The tokens that were given out. Only their digests are kept, and nothing of them survives the process."""

    clock: Callable[[], float] = time.monotonic
    _held: dict[bytes, tuple[Caller, float]] = field(default_factory=dict, repr=False)
    _by_client: dict[str, dict[bytes, None]] = field(default_factory=dict, repr=False)

    def give(self, caller: Caller) -> str:
        """A token for a caller. The oldest one of its client ends now if it has too many."""
        mine = self._by_client.setdefault(caller.name, {})
        for digest in list(mine):
            if len(mine) < _MOST_TOKENS and self._held[digest][1] > self.clock():
                break  # they are in the order of their end
            del mine[digest], self._held[digest]
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        self._held[digest] = caller, self.clock() + LIFETIME_S
        mine[digest] = None
        return token

    def caller(self, token: str) -> Caller:
        """The caller of a token. Raises ``TokenDeniedError``."""
        caller, end = self._held.get(_digest(token), (None, 0.0))
        if caller is None or self.clock() >= end:
            raise TokenDeniedError("TOKEN")
        return caller


def _digest(token: str) -> bytes:
    """A digest of 256 bits: whoever measures the time of a look-up learns nothing of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(slots=True)
class SmartLogin:
    """The logins of one interface. ``assertions`` exists in mode self, ``access`` in mode issuer.

    ``projects`` returns the names of the projects of a client.
    """

    token_endpoint: str
    algorithms: Sequence[str]
    telemetry: Telemetry
    projects: Callable[[str], Sequence[str]]
    assertions: AssertionVerifier | None = None
    access: AccessTokenVerifier | None = None
    attempts_per_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    given: GivenTokens = field(init=False)
    _attempts: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self.given = GivenTokens(self.clock)
        self._attempts = Buckets(self.attempts_per_s, self.clock)

    @property
    def routes(self) -> frozenset[str]:
        """The routes of this mode. In mode issuer, tokens are with the other server."""
        return SMART_ROUTES if self.assertions is not None else SMART_ROUTES - {"token"}

    def handler(
        self, name: str, check: Callable[[web.Request], object], read: Callable[[web.Request], BodyReader]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of a route. ``check`` refuses senders, ``read`` returns a reader of the body."""

        async def show(request: web.Request) -> web.StreamResponse:
            project = request.match_info.get("project", ALL_PROJECTS)
            if parse_scope(scope_of(project)) is None:
                raise ServiceError("NOT_FOUND")
            # Whatever Accept lists: SMART requires JSON.
            return web.Response(body=orjson.dumps(self.configuration(project)), headers={"Content-Type": JSON})

        async def answer(request: web.Request) -> web.StreamResponse:
            check(request)
            body = read(request)
            try:
                return await self.answer(request, body)
            finally:
                body.close()

        return answer if name == "token" else show

    async def caller(self, token: str) -> Caller:
        """The caller of a bearer token. Raises ``ServiceError``."""
        try:
            return self.given.caller(token) if self.access is None else await self.access.caller(token)
        except TokenDeniedError as problem:
            why = f"SMART_{problem.code}"
            if problem.code == UNAVAILABLE:  # the token may be good: its client must not give up
                raise ServiceError("UNAVAILABLE", headers={"Retry-After": "5"}, why=why) from None
            if problem.code == "SCOPE":
                raise ServiceError("FORBIDDEN", headers=_INSUFFICIENT, why=why) from None
            raise ServiceError("LOGIN", headers={"WWW-Authenticate": "Bearer"}, why=why) from None

    async def answer(self, request: web.Request, body: BodyReader) -> web.Response:
        """The answer of the token endpoint, to a request that passed the checks of its sender."""
        try:
            self._count_attempt(request.remote or "")
            form = _parse_form(request, await _read_form(body))
            return await self._grant(request, form)
        except OAuthError as problem:
            return problem.response()

    async def _grant(self, request: web.Request, form: Mapping[str, str]) -> web.Response:
        if not (kind := form.get("grant_type")):
            raise OAuthError("invalid_request")
        if kind != "client_credentials":
            raise OAuthError("unsupported_grant_type")
        client = await self._authenticate(request, form)
        asked, own = parse_scope(form.get("scope", "")), self.projects(client)
        if asked is None or not asked <= {*own, ALL_PROJECTS}:
            raise OAuthError("invalid_scope")
        granted = [project for project in own if asked & {project, ALL_PROJECTS}]
        if not granted:
            raise OAuthError("invalid_scope")
        token = self.given.give(Caller(client, frozenset(granted)))
        answer = {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": int(LIFETIME_S),
            "scope": " ".join(map(scope_of, granted)),
        }
        return web.Response(body=orjson.dumps(answer), headers={"Content-Type": JSON, **_NO_STORE})

    async def _authenticate(self, request: web.Request, form: Mapping[str, str]) -> str:
        """The client of the assertion. Raises ``OAuthError``, after the same time whatever the reason."""
        begun = self.clock()
        try:
            if self.assertions is None or "Authorization" in request.headers or "client_secret" in form:
                raise TokenDeniedError("METHOD")
            if form.get("client_assertion_type") != ASSERTION_TYPE or "client_assertion" not in form:
                raise TokenDeniedError("METHOD")
            client = await self.assertions.client(form["client_assertion"])
            if form.get("client_id", client) != client:
                raise TokenDeniedError("ISSUER")
        except TokenDeniedError as problem:
            self.telemetry.emit(ServiceDenied(f"SMART_{problem.code}"))
            await self.sleep(max(0.0, begun + _DENIED_S - self.clock()))
            raise OAuthError("invalid_client") from None
        return client

    def _count_attempt(self, address: str) -> None:
        """Raise ``OAuthError`` if an address makes too many attempts. A network of IPv6 hosts counts as one."""
        if wait_s := self._attempts.of(network_of(address)).take():
            raise OAuthError("temporarily_unavailable", {"Retry-After": str(int(wait_s) + 1)})

    def configuration(self, project: str = ALL_PROJECTS) -> Mapping[str, object]:
        """The discovery document. It is public, so it is the same whether or not a project exists."""
        return {
            "token_endpoint": self.token_endpoint,
            "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": list(self.algorithms),
            "grant_types_supported": ["client_credentials"],
            "scopes_supported": [scope_of(project)],
            "capabilities": ["client-confidential-asymmetric"],
        }


_INSUFFICIENT: Final = {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}


def network_of(address: str) -> str:
    """The network whose requests for tokens count together: an IPv4 address, or 64 bits of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    # A listener on `::` has all IPv4 clients in one network of mapped addresses.
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


async def _read_form(body: BodyReader) -> bytes:
    try:
        return await body.whole()
    except ServiceError as problem:
        if problem.code == "BUSY":
            raise OAuthError("temporarily_unavailable", problem.headers) from None
        raise OAuthError("invalid_request") from None


def _parse_form(request: web.Request, data: bytes) -> Mapping[str, str]:
    """The parameters of a form. Raises ``OAuthError`` for another form, and for a parameter that is repeated.

    A server and a proxy in front of it may take different ones of two values.
    """
    media, known_charset = media_type(request.headers.get("Content-Type", ""))
    encoded = request.headers.get("Content-Encoding", "identity").strip().lower() != "identity"
    if media != FORM or not known_charset or encoded or request.query_string:
        raise OAuthError("invalid_request")
    try:
        text = data.decode("ascii")  # other characters are escaped, and these are UTF-8
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise OAuthError("invalid_request") from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise OAuthError("invalid_request")
    return {name: value for name, value in pairs if value}


def make_smart_login(
    settings: SmartSettings, projects: Callable[[str], Sequence[str]], telemetry: Telemetry
) -> SmartLogin:
    """The logins of these settings. Raises ``ConfigurationError`` if a file of keys or certificates cannot be used.

    ``projects`` returns the names of the projects of a client.
    """
    import jwt  # noqa: F401, PLC0415 - 0.1 s, which the first token must not cost the event loop

    context = _key_context(settings.jwks_cafile) if settings.fetches else None

    def keys(file: Path | None, url: str | None, owner: str, stale_s: float = 0.0) -> KeySet:
        if url is not None and context is not None:
            report = partial(_report_keys, telemetry, owner)
            return FetchedKeys(url, context, report, stale_s)
        return read_keys(file or Path(), f"service.smart.{owner}jwks_file")

    login = SmartLogin(
        settings.token_endpoint,
        settings.algorithms,
        telemetry,
        projects,
        attempts_per_s=settings.attempts_per_s,
    )
    if settings.mode is SmartMode.SELF:
        found = {
            name: keys(each.jwks_file, each.jwks_url, f"clients.{name}.") for name, each in settings.clients.items()
        }
        login.assertions = AssertionVerifier(settings.token_endpoint, settings.algorithms, found)
    else:
        issuer_keys = keys(settings.jwks_file, settings.jwks_url, "", _ISSUER_STALE_S)
        audience = settings.audience or settings.url
        login.access = AccessTokenVerifier(settings.issuer or "", audience, settings.algorithms, issuer_keys)
    return login


def _report_keys(telemetry: Telemetry, owner: str, why: str) -> None:
    telemetry.emit(ServiceKeysFailed(f"service.smart.{owner}jwks_url", why))


def _key_context(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as problem:
        raise ConfigurationError(
            f"service.smart.jwks_cafile {authority}: cannot be loaded ({type(problem).__name__})"
        ) from None
