"""Who may use the HTTP interface, and how much: tokens, certificates, projects, a bucket for each client."""

import asyncio
import hashlib
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from deid_agent.config import LOCAL_CLIENT, ClientToken, is_client_name
from deid_agent.http.access import is_loopback_host
from deid_agent.http.service_errors import ServiceError

_BURST_S = 2.0
_MOST_TOKEN = 512
_MOST_BUCKETS = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """A client, and the only projects that its token is for; None if its token names none."""

    name: str
    scope: frozenset[str] | None = None


class SignedLogins(Protocol):
    """Logins by tokens that are signed, or given out for a signature."""

    async def caller(self, token: str) -> Caller:
        """The caller of a bearer token. Raises ``ServiceError``."""


@dataclass(frozen=True, slots=True)
class ServiceLogins:
    """How clients are recognised. With tokens and certificates a request needs both, and the token names the client.

    ``clients`` are the permitted names of certificates; empty permits all. ``loopback``: the listener is on loopback.
    """

    tokens: Sequence[ClientToken] = field(default=(), repr=False)
    certificates: bool = False
    clients: frozenset[str] = frozenset()
    loopback: bool = True
    smart: bool = False

    @property
    def shown(self) -> str:
        """The kinds of logins, in words."""
        bearer = " or ".join([*(["tokens"] if self.tokens else []), *(["SMART"] if self.smart else [])])
        return " and ".join([*(["certificates"] if self.certificates else []), *([bearer] if bearer else [])]) or "none"


class Bucket:
    """Permits ``rate`` records a second, and those of two seconds at once."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._most = max(1.0, _BURST_S * rate)
        self._clock = clock
        self._held = self._most
        self._at = clock()

    def take(self) -> float:
        """0 if a record is permitted now, else the seconds until one is."""
        now = self._clock()
        self._held, self._at = min(self._most, self._held + (now - self._at) * self._rate), now
        if self._held >= 1:
            self._held -= 1
            return 0.0
        return (1 - self._held) / self._rate

    def charge(self) -> None:
        """Take a record. Raises ``ServiceError`` if none is permitted now."""
        if wait_s := self.take():
            raise ServiceError("RATE", headers={"Retry-After": str(math.ceil(wait_s))})

    async def wait(self) -> None:
        """Return once a record is permitted."""
        while wait_s := self.take():  # noqa: ASYNC110 - no other task signals that time has passed
            await asyncio.sleep(wait_s)


class Buckets:
    """A bucket for each client or address, at most 4,096: anyone may name any number. The longest unused is dropped."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._held: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, name: str) -> Bucket:
        """The bucket of this name."""
        found = self._held.setdefault(name, Bucket(self._rate, self._clock))
        self._held.move_to_end(name)
        if len(self._held) > _MOST_BUCKETS:
            self._held.popitem(last=False)
        return found


class ServiceAccess:
    """Recognises clients and counts their records. No part of a request is kept or shown."""

    def __init__(
        self,
        logins: ServiceLogins,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        smart: SignedLogins | None = None,
    ) -> None:
        self._logins = logins
        self._smart = smart
        self._buckets = Buckets(rate, clock)

    async def caller(self, request: web.Request) -> Caller:
        """The client of a request. Raises ``ServiceError``."""
        named = self.check_sender(request)
        if not self._logins.tokens and self._smart is None:
            return Caller(named)
        token = _bearer(request)
        found = self._token_name(token)
        if found is not None:
            return Caller(found)
        if self._smart is None or not token:
            raise ServiceError("LOGIN", headers={"WWW-Authenticate": "Bearer"})
        return await self._smart.caller(token)

    def check_sender(self, request: web.Request) -> str:
        """The name of the certificate of a request, or ``local``. Raises ``ServiceError``.

        A page in a browser could reach a listener on loopback under a name of its own (DNS rebinding), or send it
        messages in the name of the person before it, and so confirm guesses of surrogates. Programs send no Origin.
        """
        if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
            raise ServiceError("BROWSER")
        if self._logins.loopback and not is_loopback_host(request.headers.get("Host", "")):
            raise ServiceError("BROWSER")
        return self._certificate_name(request) if self._logins.certificates else LOCAL_CLIENT

    def _token_name(self, token: str) -> str | None:
        sent = hashlib.sha256(token[:_MOST_TOKEN].encode("utf-8", "surrogateescape")).hexdigest()
        # Every line is compared, so that the time depends neither on the token nor on its place in the file.
        found = [each.client for each in self._logins.tokens if hmac.compare_digest(each.digest, sent)]
        return found[0] if token and len(token) <= _MOST_TOKEN and found else None

    def _certificate_name(self, request: web.Request) -> str:
        """The first name of the certificate's SAN. The TLS handshake has checked who signed it."""
        transport = request.transport
        certificate = None if transport is None else transport.get_extra_info("peercert")
        names = [str(value) for kind, value in (certificate or {}).get("subjectAltName", ()) if kind in _NAMES]
        permitted = self._logins.clients
        chosen = [name for name in names if is_client_name(name) and (not permitted or name in permitted)]
        if not chosen:
            raise ServiceError("FORBIDDEN")
        return chosen[0]

    def bucket(self, client: str) -> Bucket:
        """The bucket of a client."""
        return self._buckets.of(client)


def _bearer(request: web.Request) -> str:
    """The bearer token of a request; empty if there is none, or more than one header."""
    headers = request.headers.getall("Authorization", [])
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


_NAMES = frozenset({"DNS", "URI", "email"})


@dataclass(frozen=True, slots=True)
class Project:
    """A project as its clients see it: its policy with the digest, and the id of its key."""

    name: str
    policy: str
    digest: str
    key: str


@dataclass(frozen=True, slots=True)
class Projects:
    """The projects that the interface serves. ``permitted`` names those of each client that may not use all."""

    known: Mapping[str, Project]
    permitted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, caller: Caller) -> Sequence[Project]:
        """The projects of a client, without those that its token is not for."""
        limits = [each for each in (self.permitted.get(caller.name), caller.scope) if each is not None]
        return tuple(each for each in self.known.values() if all(each.name in limit for limit in limits))

    def names_of(self, client: str) -> Sequence[str]:
        """The names of the projects of a client."""
        return [each.name for each in self.of(Caller(client))]

    def find(self, name: str, caller: Caller) -> Project:
        """A project of the client. Raises ``ServiceError`` if it has none of this name, whether or not it exists."""
        found = next((project for project in self.of(caller) if project.name == name), None)
        if found is None:
            raise ServiceError("NOT_FOUND")
        return found
