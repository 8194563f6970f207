"""The listener of the HTTP interface: connections with keep-alive and limits of their own.

The operator's pages have another listener, so that neither many nor slow clients keep a probe from them.
"""

import asyncio
import errno
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from deid_agent.config import ServiceSettings
from deid_agent.http.service_access import Caller
from deid_agent.http.service_errors import ServiceError, problem
from deid_agent.model import ConfigurationError, describe_exception
from deid_agent.telemetry import ServiceListening, ServiceLoad, Telemetry, Uncaught

SERVICE_HEADERS: Final[Mapping[str, str]] = {
    "Server": "deid-agent",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
NOBODY: Final = Caller("")
_LINGER_S: Final = 2.0
_BACKLOG: Final = 128


class ServiceServer:
    """Serves an application. ``load`` returns the bytes of requests in process, for the metrics."""

    def __init__(
        self,
        settings: ServiceSettings,
        application: web.Application,
        telemetry: Telemetry,
        context: ssl.SSLContext | None,
        logins: str,
        load: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._context = context
        self._logins = logins
        self._load = load
        self._open: dict[ServiceConnection, None] = {}
        self._handshakes: dict[_Handshake, None] = {}
        self._listening: asyncio.Server | None = None
        self._reporting: asyncio.TimerHandle | None = None
        application.on_response_prepare.append(_add_headers)
        self._runner = web.AppRunner(application, shutdown_timeout=2.0)

    @property
    def port(self) -> int:
        """The port that the server listens on; the one chosen by the system if the setting is 0."""
        return int(self._listening.sockets[0].getsockname()[1]) if self._listening else self._settings.port

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError``, which names the setting, if the address cannot be used."""
        await self._runner.setup()
        loop, server, settings = asyncio.get_running_loop(), self._runner.server, self._settings
        if server is None:
            raise ConfigurationError("service: the HTTP server could not be set up")
        try:
            self._listening = await loop.create_server(
                lambda: self._protocol(server, loop), settings.host, settings.port, backlog=_BACKLOG
            )
        except OSError as error:
            await self.stop()
            raise ConfigurationError(explain_service_error(settings, error)) from None
        self._telemetry.emit(ServiceListening(settings.host, self.port, self._context is not None, self._logins))
        self._report()

    def _protocol(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        connection = ServiceConnection(server, loop, self._open, self._settings, self._telemetry)
        if self._context is None:
            return connection
        return _Handshake(connection, self._context, self._handshakes, self._settings)

    async def stop(self) -> None:
        """Finish the current responses, for two seconds at most, and close. Safe to call twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        if self._reporting is not None:
            self._reporting.cancel()
        for handshake in list(self._handshakes):
            handshake.abort()
        for connection in list(self._open):
            if not connection.busy:
                connection.abort()
        await self._runner.cleanup()
        for connection in list(self._open):
            connection.abort()

    def _report(self) -> None:
        self._telemetry.emit(ServiceLoad(len(self._open), self._load()))
        self._reporting = asyncio.get_running_loop().call_later(1.0, self._report)


class _Handshake(asyncio.Protocol):
    """A TLS connection before it is one: its number is limited too.

    The event loop would do handshakes of any number at once, and clients that begin one and send nothing would use all
    file descriptors of the process, so that no probe of the operator's pages got in.
    """

    def __init__(
        self,
        connection: "ServiceConnection",
        context: ssl.SSLContext,
        others: "dict[_Handshake, None]",
        settings: ServiceSettings,
    ) -> None:
        self._connection = connection
        self._context = context
        self._others = others
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early = b""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            return
        self._transport = transport
        transport.pause_reading()
        if len(self._others) >= self._settings.max_connections:
            next(iter(self._others)).abort()
        self._others[self] = None
        self._task = asyncio.get_running_loop().create_task(self._secure(transport))

    def data_received(self, data: bytes) -> None:
        """The first decrypted bytes, which may come with the end of the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._lost = True

    async def _secure(self, transport: asyncio.Transport) -> None:
        loop, limit_s = asyncio.get_running_loop(), self._settings.idle_s
        try:
            secured = await loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=limit_s
            )
        except OSError:  # all errors of TLS and of the connection, and the limit of time
            transport.abort()
            return
        finally:
            self._others.pop(self, None)
        if secured is None or self._lost:
            return
        secured.set_protocol(self._connection)
        self._connection.connection_made(secured)
        if self._early:
            self._connection.data_received(self._early)

    def abort(self) -> None:
        """Close the connection now."""
        self._others.pop(self, None)
        if self._transport is not None:
            self._transport.abort()


class ServiceConnection(web.RequestHandler):
    """One connection. It closes after ``idle_s`` without progress: no byte of a request, none of a response read.

    ``working`` is set while a request of it is in process: such a connection never gives way to another.
    """

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        others: "dict[ServiceConnection, None]",
        settings: ServiceSettings,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None disables it
            keepalive_timeout=settings.idle_s,
            max_line_size=8190,
            max_field_size=8190,
            max_headers=64,
            lingering_time=_LINGER_S,
            auto_decompress=False,
        )
        self._own_loop = loop
        self._others = others
        self._settings = settings
        self._telemetry = telemetry
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self.peer = ""
        self.quiet_since = loop.time()
        self.busy = False
        """A handler runs."""
        self.working = False
        self.caller = NOBODY
        """The client of the present request, once it is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if isinstance(address, tuple) else ""
        if len(self._others) >= self._settings.max_connections and not self._make_room():
            self.abort()
            return
        self._others[self] = None
        self._watch()

    def _make_room(self) -> bool:
        """Close the quietest connection without a request in process, of the address that has most of them."""
        counts = Counter(each.peer for each in self._others)
        given = [each for each in self._others if not each.working]
        if not given:
            return False
        max(given, key=lambda each: (counts[each.peer], -each.quiet_since)).abort()
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._others.pop(self, None)
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.quiet_since = self._own_loop.time()
        super().data_received(data)

    def begin(self) -> None:
        """A handler has begun: it limits the time of the body itself."""
        self.busy, self.caller = True, NOBODY
        self._unwatch()

    def send(self) -> None:
        """The handler sends its response: from here the client must read."""
        self.working = False
        self.quiet_since = self._own_loop.time()
        self._watch()

    def end(self) -> None:
        """The handler has ended; the next request follows, after the response if that is not sent."""
        self.busy = self.working = False
        self.quiet_since = self._own_loop.time()
        self._watch()

    def _watch(self) -> None:
        self._unwatch()
        self._unread = self._unsent
        self._timer = self._own_loop.call_later(self._settings.idle_s, self._check)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Close the connection, unless the client has read some of a response meanwhile."""
        unsent = self._unsent
        if 0 < unsent < self._unread:
            self._watch()
        else:
            self.abort()

    @property
    def _unsent(self) -> int:
        transport = self.transport
        return transport.get_write_buffer_size() if isinstance(transport, asyncio.Transport) else 0

    def abort(self) -> None:
        """Close the connection now and drop unsent data."""
        self._others.pop(self, None)
        self._unwatch()
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """The response to bytes that are no valid request, without details: aiohttp would quote them.

        Raises ``ConnectionError`` if a response has begun: another one must not follow inside of it.
        """
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionResetError("the response has begun")
        if status == HTTPStatus.INTERNAL_SERVER_ERROR and exc is not None:
            self._telemetry.emit(Uncaught("service", describe_exception(exc)))
        code = "BAD_REQUEST" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "INTERNAL"
        error = ServiceError(code)
        body = problem(error)
        response = web.Response(
            body=body.data, status=error.kind.status, headers={**SERVICE_HEADERS, "Content-Type": body.media}
        )
        response.force_close()
        return response


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SERVICE_HEADERS)


def explain_service_error(settings: ServiceSettings, error: OSError) -> str:
    """Why the server cannot listen on this address, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            return f"service.port: {settings.port} is in use on {settings.host}: set service.port to a free one"
        case errno.EACCES:
            return f"service.port: {settings.port} may not be opened by this user: set service.port to one above 1023"
        case _:
            return (
                f"service.host: {settings.host!r} cannot be listened on ({type(error).__name__}): "
                "set service.host to an own address"
            )
