"""Access control of the console: tokens, sessions, and checks of the request's host and origin.

No part of a request is returned in an error or logged. The checks protect against these attacks:

- guessing the token byte by byte by the time that a comparison takes;
- requests that another page in the operator's browser sends in the operator's name. A page on another port of this
  machine is "same-site" to a browser;
- a server on another port of this machine, to which the browser sends our cookie (RFC 6265, 8.5: cookies do not
  distinguish ports);
- DNS rebinding: a public name that resolves to 127.0.0.1;
- a frame around our pages (clickjacking).
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

from deid_agent.http.sessions import SESSION_S, SessionKeys, Sessions, digest
from deid_agent.telemetry import ConsoleDenied, Telemetry

PREFIX = "/console"
ACTION_HEADER = "X-Deid-Console"
"""Every request that performs an action carries this header. A form of another page cannot send it, and a script of
another page would first have to ask us for permission (CORS preflight)."""
PAGE_HEADER = "X-Deid-Page"
"""Carries the part of a session that is not a cookie."""
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_LOG_INTERVAL_S = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ReviewHandler = Callable[[web.Request, str], Awaitable[web.StreamResponse]]
"""A handler of a request by the reviewer whose name is the second argument."""


class DeniedError(Exception):
    """A request that the console refuses. ``code`` is a fixed word, ``advice`` a sentence for the operator."""

    def __init__(self, status: HTTPStatus, code: str, advice: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.advice = advice


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use the console. Without a ``token``, everyone who reaches the address may read.

    ``write`` allows replays, and takes effect only with a token. ``loopback`` means that the server listens on a
    loopback address; the ``Host`` of each request must then name this machine.
    """

    token: str | None = field(default=None, repr=False)
    write: bool = False
    loopback: bool = True


class AccessControl:
    """Wraps the handlers of the console with the checks that each kind of address needs.

    ``reviewer_of`` returns the reviewer with a token. A reviewer's session opens the review and nothing
    else, and neither the token of the console nor a console without one opens the review.
    """

    def __init__(
        self,
        settings: AccessSettings,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        reviewer_of: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        self._settings = settings
        self._reviewer_of = reviewer_of
        self._telemetry = telemetry
        self._clock = clock
        self._sessions = Sessions(clock)
        self._logged_at: dict[str, float] = {}

    @property
    def open(self) -> bool:
        """True if no token is required."""
        return self._settings.token is None

    @property
    def may_write(self) -> bool:
        """True if replays are enabled and a token is required."""
        return self._settings.write and not self.open

    def page(self, handler: Handler) -> Handler:
        """Protect a page that contains no data. Without a session the browser is redirected to the login."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            if not (self._has_token(request) or self._sessions.cookie_owner(_read_cookie(request)) == ""):
                return redirect("login")
            return await handler(request)

        return self._guarded(checked)

    def review_page(self, handler: Handler) -> Handler:
        """The same for a page of the review, which needs the session of a reviewer."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            return await handler(request) if self._sessions.cookie_owner(_read_cookie(request)) else redirect("login")

        return self._guarded(checked)

    def page_with_ticket(self, handler: Handler, fallback: str) -> Handler:
        """Protect a page that contains data. A link sends no header, so a ticket in the address opens it once.

        Without a valid ticket the browser is redirected to the page ``fallback``.
        """

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            ticket = request.query.get("ticket", "")
            if not (self._is_known(request) or self._sessions.redeem_ticket(_read_cookie(request), ticket)):
                return redirect(fallback)
            return await handler(request)

        return self._guarded(checked)

    def asset(self, handler: Handler) -> Handler:
        """Protect an address without data that everybody may read: styles, scripts, the login page."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            return await handler(request)

        return self._guarded(checked)

    def data(self, handler: Handler) -> Handler:
        """Protect data that our pages request."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            self._check_origin(request)
            self._check_credentials(request)
            return await handler(request)

        return self._guarded(checked)

    def review_data(self, handler: ReviewHandler) -> Handler:
        """Protect data that the pages of the review request for the reviewer of their session."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            self._check_origin(request)
            return await handler(request, self._check_reviewer(request))

        return self._guarded(checked)

    def review_action(self, handler: ReviewHandler) -> Handler:
        """Protect an action that the pages of the review request for the reviewer of their session."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            self._check_origin(request)
            self._check_action(request)
            return await handler(request, self._check_reviewer(request))

        return self._guarded(checked)

    def logout_action(self, handler: Handler) -> Handler:
        """Protect the logout, which every session may request."""

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            self._check_origin(request)
            self._check_action(request)
            if self._session_owner(request) is None:
                self._check_credentials(request)
            return await handler(request)

        return self._guarded(checked)

    def action(self, handler: Handler, *, write: bool = False, logged_in: bool = True) -> Handler:
        """Protect an action that our pages request.

        ``write`` marks actions that change something; they need a console that allows writing. The login is the one
        action that does not need ``logged_in``.
        """

        async def checked(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            self._check_origin(request)
            self._check_action(request)
            if logged_in:
                self._check_credentials(request)
            if write and not self.may_write:
                raise DeniedError(
                    HTTPStatus.FORBIDDEN, "write", "this console is read-only: set a token and http.console_write"
                )
            return await handler(request)

        return self._guarded(checked)

    async def login(self, token: str) -> SessionKeys | None:
        """Open a session for the token of the console or of a reviewer; None for a wrong one."""
        if self._is_token(token):
            return self._sessions.open()
        if self._reviewer_of is not None and (reviewer := await self._reviewer_of(token)):
            return self._sessions.open(reviewer)
        self._log_denial("token")
        return None

    def set_cookie(self, request: web.Request, response: web.StreamResponse, keys: SessionKeys) -> None:
        """Send the session's cookie, which scripts cannot read and other sites cannot send."""
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        name = _cookie_name(request)
        response.set_cookie(
            name, keys.cookie, max_age=SESSION_S, path=PREFIX, httponly=True, samesite="Strict", secure=secure
        )

    def issue_ticket(self, request: web.Request) -> str:
        """A ticket for a page of ``page_with_ticket``; empty if no token is required. The caller checks the request."""
        return self._sessions.issue_ticket(_read_cookie(request))

    def logout(self, request: web.Request, response: web.StreamResponse) -> None:
        """End the session of a request and remove its cookie."""
        self._sessions.close(_read_cookie(request))
        response.del_cookie(_cookie_name(request), path=PREFIX, httponly=True, samesite="Strict")

    def _guarded(self, checked: Handler) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            # The server bounds the size of a request. The body is read to its end because closing a connection with
            # unread data discards the response too.
            await request.read()
            try:
                response = await checked(request)
            except DeniedError as denied:
                self._log_denial(denied.code)
                body = orjson.dumps({"error": denied.code, "advice": denied.advice})
                response = web.Response(body=body, status=denied.status, content_type="application/json")
                if denied.status is HTTPStatus.UNAUTHORIZED:
                    response.headers["WWW-Authenticate"] = "Bearer"
            for name, value in SECURITY_HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handler

    def _log_denial(self, code: str) -> None:
        # At most once a minute for each code: a scanner must not fill the log.
        now = self._clock()
        if now - self._logged_at.get(code, -_LOG_INTERVAL_S) >= _LOG_INTERVAL_S:
            self._logged_at[code] = now
            self._telemetry.emit(ConsoleDenied(code))

    def _check_host(self, request: web.Request) -> None:
        if self._settings.loopback and not is_loopback_host(request.headers.get("Host", "")):
            raise DeniedError(HTTPStatus.MISDIRECTED_REQUEST, "host", "open the console at 127.0.0.1 or localhost")

    def _check_origin(self, request: web.Request) -> None:
        # "same-site" is refused: every port of localhost is the same site, and its pages send our cookie.
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
            raise DeniedError(HTTPStatus.FORBIDDEN, "origin", "open the console itself")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            raise DeniedError(HTTPStatus.FORBIDDEN, "origin", "open the console itself")

    def _check_action(self, request: web.Request) -> None:
        if request.headers.get(ACTION_HEADER) != "1" or request.content_type != "application/json":
            raise DeniedError(HTTPStatus.FORBIDDEN, "header", f"send JSON, and the header {ACTION_HEADER}: 1")

    def _check_credentials(self, request: web.Request) -> None:
        if not self._is_known(request):
            raise DeniedError(
                HTTPStatus.UNAUTHORIZED, "token", "log in, or send the token in the header Authorization: Bearer"
            )

    def _check_reviewer(self, request: web.Request) -> str:
        reviewer = self._session_owner(request)
        if not reviewer:
            raise DeniedError(HTTPStatus.UNAUTHORIZED, "token", "log in with the token of a reviewer")
        return reviewer

    def _is_known(self, request: web.Request) -> bool:
        return self._has_token(request) or self._session_owner(request) == ""

    def _session_owner(self, request: web.Request) -> str | None:
        return self._sessions.owner(_read_cookie(request), request.headers.get(PAGE_HEADER, ""))

    def _has_token(self, request: web.Request) -> bool:
        """True if the request carries the token, or no token is required."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self.open or (scheme.lower() == "bearer" and self._is_token(token.strip()))

    def _is_token(self, token: str) -> bool:
        expected = self._settings.token
        return expected is not None and hmac.compare_digest(digest(token), digest(expected))


def redirect(page: str) -> web.Response:
    """A redirect to a page of the console."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": f"{PREFIX}/{page}"})


def _read_cookie(request: web.Request) -> str:
    return request.cookies.get(_cookie_name(request), "")


def _cookie_name(request: web.Request) -> str:
    """The name contains the port, because cookies of two agents on one machine share the host."""
    port = urlsplit(f"//{request.headers.get('Host', '')}").netloc.rpartition(":")[2]
    return f"deid-console-{port}" if port.isdecimal() else "deid-console"


def is_loopback_host(host: str) -> bool:
    """True if a ``Host`` header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
