"""Who may see the console, and which requests are a person's own. Nothing of a request is ever told back or logged.

Stands against: a token that is guessed byte by byte; another page in the operator's browser that sends requests in his
name (also one of another port of this machine, which browsers call the same site); a server of another port, which
gets our cookie; a name of the outside that is made to lead to 127.0.0.1 (DNS rebinding); a frame around our pages.
"""

import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from deid_agent.console.sessions import SESSION_S, Opened, Sessions, digest
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import ConsoleDenied

HEADER = "X-Deid-Console"
"""Every request that does something has it: no form of another page can, without asking us first."""
PAGE_HEADER = "X-Deid-Page"
"""The half of a session that is no cookie."""
PREFIX = "/console"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_QUIET_S = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DeniedError(Exception):
    """A request that is not answered; ``why`` is one of our own words."""

    def __init__(self, status: HTTPStatus, why: str, advice: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Access:
    """Without a ``token`` whoever reaches the pages may read them; ``write`` is for who has the token alone."""

    token: str | None = field(default=None, repr=False)
    write: bool = False
    loopback: bool = True


class Gate:
    """Wraps handlers."""

    def __init__(self, access: Access, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._telemetry = telemetry
        self._clock = clock
        self._sessions = Sessions(clock)
        self._told_at: dict[str, float] = {}

    @property
    def open(self) -> bool:
        """True where no token is asked for."""
        return self._access.token is None

    @property
    def may_write(self) -> bool:
        """True where a token is set and writing is switched on."""
        return self._access.write and not self.open

    def page(self, handler: Handler) -> Handler:
        """A page that a person opens, and that holds nothing itself; without a session it leads to the login."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._of_host(request)
            if not (self._by_token(request) or self._sessions.entered(_cookie_of(request))):
                return _to("login")
            return await handler(request)

        return self._told(answer)

    def once(self, handler: Handler, start: str) -> Handler:
        """A page that holds data itself. No link sends a header: a ticket opens it once, else ``start`` comes."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._of_host(request)
            ticket = request.query.get("ticket", "")
            if not (self._known(request) or self._sessions.spend(_cookie_of(request), ticket)):
                return _to(start)
            return await handler(request)

        return self._told(answer)

    def asset(self, handler: Handler) -> Handler:
        """What holds nothing and everybody may read: the style, the scripts, the login."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._of_host(request)
            return await handler(request)

        return self._told(answer)

    def data(self, handler: Handler) -> Handler:
        """What a page of ours asks for."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._of_host(request)
            self._of_page(request)
            self._of_person(request)
            return await handler(request)

        return self._told(answer)

    def act(self, handler: Handler, *, write: bool = False, known: bool = True) -> Handler:
        """What a page of ours asks to be done; ``write`` where it changes something, not ``known`` for the login."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._of_host(request)
            self._of_page(request)
            self._of_act(request)
            if known:
                self._of_person(request)
            if write and not self.may_write:
                raise DeniedError(
                    HTTPStatus.FORBIDDEN, "write", "this console is read-only: set a token and http.console_write"
                )
            return await handler(request)

        return self._told(answer)

    def login(self, token: str) -> Opened | None:
        """A session for who has the token."""
        if not self._is_token(token):
            self._deny("token")
            return None
        return self._sessions.open()

    def set_cookie(self, request: web.Request, response: web.StreamResponse, opened: Opened) -> None:
        """One half of the session as a cookie that no script reads and no other site sends."""
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        name = _cookie(request)
        response.set_cookie(
            name, opened.cookie, max_age=SESSION_S, path=PREFIX, httponly=True, samesite="Strict", secure=secure
        )

    def ticket(self, request: web.Request) -> str:
        """What opens a page of ``once``; empty where it opens without. Only for a request that was let in."""
        return self._sessions.ticket(_cookie_of(request))

    def logout(self, request: web.Request, response: web.StreamResponse) -> None:
        """End the session of a request."""
        self._sessions.close(_cookie_of(request))
        response.del_cookie(_cookie(request), path=PREFIX, httponly=True, samesite="Strict")

    def _told(self, answer: Handler) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            # Read to its end, which the server bounds: closing on what was not read would drop the answer too.
            await request.read()
            try:
                response = await answer(request)
            except DeniedError as denied:
                self._deny(denied.why)
                body = orjson.dumps({"error": denied.why, "advice": denied.advice})
                response = web.Response(body=body, status=denied.status, content_type="application/json")
                if denied.status is HTTPStatus.UNAUTHORIZED:
                    response.headers["WWW-Authenticate"] = "Bearer"
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handler

    def _deny(self, why: str) -> None:
        # Once a minute for each reason: a scanner must not fill the log.
        now = self._clock()
        if now - self._told_at.get(why, -_QUIET_S) >= _QUIET_S:
            self._told_at[why] = now
            self._telemetry.emit(ConsoleDenied(why))

    def _of_host(self, request: web.Request) -> None:
        if self._access.loopback and not _is_here(request.headers.get("Host", "")):
            raise DeniedError(HTTPStatus.MISDIRECTED_REQUEST, "host", "open the console at 127.0.0.1 or localhost")

    def _of_page(self, request: web.Request) -> None:
        # Not "same-site": every port of localhost is the same site, and sends our cookie.
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
            raise DeniedError(HTTPStatus.FORBIDDEN, "origin", "open the console itself")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            raise DeniedError(HTTPStatus.FORBIDDEN, "origin", "open the console itself")

    def _of_act(self, request: web.Request) -> None:
        if request.headers.get(HEADER) != "1" or request.content_type != "application/json":
            raise DeniedError(HTTPStatus.FORBIDDEN, "header", f"send JSON, and the header {HEADER}: 1")

    def _of_person(self, request: web.Request) -> None:
        if not self._known(request):
            raise DeniedError(HTTPStatus.UNAUTHORIZED, "token", "log in, or send Authorization: Bearer and the token")

    def _known(self, request: web.Request) -> bool:
        page = request.headers.get(PAGE_HEADER, "")
        return self._by_token(request) or self._sessions.known(_cookie_of(request), page)

    def _by_token(self, request: web.Request) -> bool:
        """True for the token itself, and where none is asked for."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self.open or (scheme.lower() == "bearer" and self._is_token(token.strip()))

    def _is_token(self, token: str) -> bool:
        wanted = self._access.token
        return wanted is not None and hmac.compare_digest(digest(token), digest(wanted))


def _to(name: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": f"{PREFIX}/{name}"})


def _cookie_of(request: web.Request) -> str:
    return request.cookies.get(_cookie(request), "")


def _cookie(request: web.Request) -> str:
    """Cookies know no ports: two agents of one machine need two names."""
    port = urlsplit(f"//{request.headers.get('Host', '')}").netloc.rpartition(":")[2]
    return f"deid-console-{port}" if port.isdecimal() else "deid-console"


def _is_here(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
