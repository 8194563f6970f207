"""The HTTP server on the agent's event loop, and its pages for health and metrics.

Every connection is limited in size, duration and to one request, so no client can stall the agent.
"""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from deid_agent.agent import Health, HealthStatus
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import EXPOSITION_TYPE, Listening, Registry, Telemetry

_HEADERS = {
    "Server": "deid-agent",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",  # aiohttp has already written its own header when a response is prepared
}

Handler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits for each client.

    ``lifetime_s`` is the longest duration of a connection, because aiohttp has no limit for a request that never
    ends. ``bytes`` is the size of a request. If there are more than ``connections`` connections, the oldest one is
    closed, so that many idle clients cannot block a probe.
    """

    lifetime_s: float = 10.0
    bytes: int = 32 * 1024
    connections: int = 64


class OperatorServer:
    """Serves ``routes``. Starts before the transport and stops after it."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Iterable[web.RouteDef],
        telemetry: Telemetry,
        limits: ServerLimits | None = None,
    ) -> None:
        self._limits = limits or ServerLimits()
        self._host = host
        self._port = port
        self._telemetry = telemetry
        self._open: dict[_Connection, None] = {}
        self._listening: asyncio.Server | None = None
        application = web.Application()
        application.add_routes(routes)
        application.on_response_prepare.append(_add_headers)
        self._runner = web.AppRunner(application, shutdown_timeout=1.0)

    @property
    def port(self) -> int:
        """The port that the server listens on. If port 0 was requested, this is the port that the system chose."""
        return int(self._listening.sockets[0].getsockname()[1]) if self._listening else self._port

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError``, which names the setting, if the address cannot be used."""
        await self._runner.setup()
        loop, server = asyncio.get_running_loop(), self._runner.server
        if server is None:
            raise ConfigurationError(
                "http: the HTTP server could not be set up; set http.enabled = false to run without it"
            )
        try:
            self._listening = await loop.create_server(
                lambda: _Connection(server, loop, self._open, self._limits), self._host, self._port
            )
        except OSError as error:
            await self.stop()
            raise ConfigurationError(_listen_advice(self._host, self._port, error)) from None
        self._telemetry.emit(Listening(self._host, self.port))

    async def stop(self) -> None:
        """Finish the current responses, for a second at most, and close. Safe to call twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        await self._runner.cleanup()
        for connection in list(self._open):
            connection.abort()


class _Connection(web.RequestHandler):
    """One connection with its limits."""

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        others: "dict[_Connection, None]",
        limits: ServerLimits,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None disables it
            max_line_size=4096,
            max_field_size=4096,
            max_headers=64,
            lingering_time=0,
        )
        self._others = others
        self._limits = limits
        self._left = limits.bytes
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._others) >= self._limits.connections:
            next(iter(self._others)).abort()
        self._others[self] = None
        self._end = asyncio.get_running_loop().call_later(self._limits.lifetime_s, self.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._others.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.abort()
        else:
            super().data_received(data)

    def abort(self) -> None:
        """Close the connection now and drop unsent data."""
        self._others.pop(self, None)
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """A response without details. aiohttp would quote the request and log it; a scanner could fill the log."""
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("an HTTP request failed", exc_info=exc)
        response = web.Response(status=status, text=HTTPStatus(status).phrase, headers=_HEADERS)
        response.force_close()
        return response


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.force_close()


def _listen_advice(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"http.port: {port} is in use on {host}: set http.port (DEID_HTTP__PORT) to a free port, or 0 for any"
            )
        case errno.EACCES:
            return f"http.port: {port} is not permitted for this user: set http.port to a port above 1023"
        case _:
            return (
                f"http.host: {host!r} cannot be listened on ({type(error).__name__}): "
                "set http.host to an address of this machine"
            )


def operator_routes(health: Health, registry: Registry) -> Sequence[web.RouteDef]:
    """The routes ``/healthz``, ``/readyz`` and ``/metrics``. None contains a value from a message.

    If the event loop is blocked, none of them responds, so a probe needs a time limit of its own.
    """

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=registry.exposition(), headers={"Content-Type": EXPOSITION_TYPE})

    return (
        web.get("/healthz", _health_handler(health.live)),
        web.get("/readyz", _health_handler(health.ready)),
        web.get("/metrics", metrics),
    )


def _health_handler(check: Callable[[], HealthStatus]) -> Handler:
    async def handler(_request: web.Request) -> web.Response:
        status = check()
        notes = {"notes": status.notes} if status.notes else {}
        body = json.dumps({"ok": status.ok, "reasons": status.reasons, **notes})
        return web.Response(text=body, status=200 if status.ok else 503, content_type="application/json")

    return handler
