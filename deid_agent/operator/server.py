"""An HTTP server on the agent's own loop that no client can stall: every connection is small, short and one request."""

import asyncio
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from deid_agent.errors import ConfigurationError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import Listening

_HEADERS = {
    "Server": "deid-agent",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",  # the library has written its own headers when we hear of a response
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may do. ``lifetime_s`` is that of a connection, whatever happens on it.

    aiohttp has no limit for a request that never ends. One connection more than ``connections`` ends the oldest, so
    that a crowd of idle clients cannot keep a probe out.
    """

    lifetime_s: float = 10.0
    bytes: int = 32 * 1024
    connections: int = 64


class OperatorServer:
    """Serves ``routes``; starts before the transport and stops after it."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Iterable[web.RouteDef],
        telemetry: Telemetry,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._host = host
        self._port = port
        self._telemetry = telemetry
        self._open: dict[_Connection, None] = {}
        self._listening: asyncio.Server | None = None
        application = web.Application()
        application.add_routes(routes)
        application.on_response_prepare.append(_finish)
        self._runner = web.AppRunner(application, shutdown_timeout=1.0)

    @property
    def port(self) -> int:
        """The port that is listened on; the one that was found where 0 was asked for."""
        return int(self._listening.sockets[0].getsockname()[1]) if self._listening else self._port

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError`` that names the setting."""
        await self._runner.setup()
        loop, server = asyncio.get_running_loop(), self._runner.server
        if server is None:
            raise ConfigurationError("http: the server could not be set up")
        try:
            self._listening = await loop.create_server(
                lambda: _Connection(server, loop, self._open, self._limits), self._host, self._port
            )
        except OSError as error:
            await self.stop()
            raise ConfigurationError(_advice(self._host, self._port, error)) from None
        self._telemetry.emit(Listening(self._host, self.port))

    async def stop(self) -> None:
        """Answer what is being asked, a second at most, and end. Safe to call twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        await self._runner.cleanup()
        for connection in list(self._open):
            connection.abort()


class _Connection(web.RequestHandler):
    """One connection within its limits."""

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        others: "dict[_Connection, None]",
        limits: Limits,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is what switches it off
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
        """End it now; what was not sent is dropped."""
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
        """The library would quote the request, and log it: a scanner could fill the log."""
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("a page failed", exc_info=exc)
        response = web.Response(status=status, text=HTTPStatus(status).phrase, headers=_HEADERS)
        response.force_close()
        return response


async def _finish(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.force_close()


def _advice(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"http.port: {port} is in use on {host}: set http.port (DEID_HTTP__PORT) to a free one, 0 for any"
        case errno.EACCES:
            return f"http.port: {port} may not be opened by this user: set http.port to one above 1023"
        case _:
            return (
                f"http.host: {host!r} cannot be listened on ({type(error).__name__}): set http.host to an own address"
            )
