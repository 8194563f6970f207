"""Listens for MLLP connections. Each has a lane of its own, and no client can hold up another or fill the memory."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from deid_agent.errors import ConfigurationError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import MllpAnswered, MllpConnections, MllpFault, MllpFaultAgain, MllpListening
from deid_agent.transport.mllp_ack import MOST_HEAD, Why, Writer, read_head, several, unreadable
from deid_agent.transport.mllp_frames import Fault, FrameError, FrameReader
from deid_agent.transport.mllp_lane import Lane, Line
from deid_agent.transport.mllp_settings import ListenSettings

_CHUNK: Final = 1 << 16
_MOST_UNREAD: Final = 1 << 20
"""Bytes of answers that a client may leave unread."""
_CLOSE_S: Final = 2.0
_QUIET_S: Final = 10.0
"""For so long a fault of the same kind is counted, and not told."""


class Faults:
    """Tells of what came and was no message."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._told: dict[str, float] = {}

    def tell(self, lane: int, code: str) -> None:
        """Count it, and tell of the first in a while."""
        now = asyncio.get_running_loop().time()
        again = now - self._told.get(code, -_QUIET_S) < _QUIET_S
        if not again:
            self._told[code] = now
        self._telemetry.emit((MllpFaultAgain if again else MllpFault)(lane, code))


class Connection:
    """One sender: reads its messages into a lane and writes the answers, until either side ends it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lane: Lane,
        settings: ListenSettings,
        telemetry: Telemetry,
        faults: Faults,
        arrived: Callable[[], None],
    ) -> None:
        self._reader, self._writer, self._lane = reader, writer, lane
        self._settings, self._faults, self._arrived = settings, faults, arrived
        self._frames = FrameReader(settings.max_message_bytes)
        self._began: float | None = None
        self.active = asyncio.get_running_loop().time()
        self.line = Line(self._send, lambda code: telemetry.emit(MllpAnswered(code or "none")), self.close, Writer())

    @property
    def idle(self) -> bool:
        """True where nothing is under way."""
        return not len(self.line) and not self._frames.inside and not self._lane.lag

    async def run(self) -> None:
        """Until it is over. Raises nothing of what the other end does."""
        lost = asyncio.create_task(self._lost())
        try:
            await self._serve()
        except OSError:
            self.line.end()  # gone: nobody can be answered
        finally:
            self.line.end()
            self.close()
            await asyncio.wait({lost})

    def close(self) -> None:
        """Let what was written out, and end; a client that does not read it is not waited for."""
        if not self._writer.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(_CLOSE_S, self._writer.transport.abort)

    async def _lost(self) -> None:
        try:
            await self._writer.wait_closed()
        except OSError:
            pass
        finally:
            self.line.end()

    async def _serve(self) -> None:
        try:
            await self._read()
        except FrameError as error:
            self._faults.tell(self._lane.stream.number, error.fault)
            if error.fault is Fault.TOO_LARGE:
                self.line.refuse(read_head(self._frames.begin(MOST_HEAD)), Why.TOO_LARGE)
        self.line.leaving = True
        # What came whole before is still settled and answered.
        while len(self.line) and not self.line.over:
            self.line.changed.clear()
            await self.line.changed.wait()
        if self._frames.failed and not self.line.over:
            await self._ignore()

    async def _read(self) -> None:
        """Messages into the lane, until the other end sends nothing more. Raises ``FrameError``."""
        while await self._room():
            if (block := self._frames.next()) is not None:
                self._began = None
                await self._take(block)
            elif data := await self._more():
                self._frames.feed(data)
            elif self._frames.inside:
                raise FrameError(Fault.TORN)
            else:
                return

    async def _take(self, block: bytes) -> None:
        head = read_head(block)
        if head is not None and not several(block):
            self._lane.put(self.line, head, block)
            self._arrived()
            return
        why = unreadable(block) if head is None else Why.SEVERAL
        self._faults.tell(self._lane.stream.number, why)
        self.line.refuse(head, why)
        await asyncio.sleep(0)  # a chunk holds thousands of empty blocks

    async def _room(self) -> bool:
        """Wait until more may be read, while TCP holds the sender back; False where the connection is over."""
        line, most = self.line, self._settings
        while not line.over:
            async with asyncio.timeout(most.read_timeout_s):
                await self._writer.drain()
            if len(line) < most.max_pending and line.bytes < most.max_message_bytes:
                return True
            line.changed.clear()
            await line.changed.wait()
            self._began = None  # the time was ours
        return False

    async def _more(self) -> bytes:
        """Bytes; none where the other end has gone or said nothing for too long."""
        loop, settings = asyncio.get_running_loop(), self._settings
        while True:
            if self._frames.inside:
                self._began = self._began or loop.time()
                until = self._began + settings.read_timeout_s
            else:
                until = loop.time() + settings.idle_timeout_s
            try:
                async with asyncio.timeout_at(until) as limit:
                    data = await self._reader.read(_CHUNK)
                self.active = loop.time()
                return data
            except TimeoutError:
                if not limit.expired():
                    raise  # the network's own
                if self._frames.inside:
                    raise FrameError(Fault.SLOW) from None
                if self.idle:
                    return b""

    async def _ignore(self) -> None:
        """Read on for a moment: to close on unread bytes would reset the connection and take the last answer along."""
        try:
            async with asyncio.timeout(_CLOSE_S / 2):
                while await self._reader.read(_CHUNK):
                    pass
        except OSError:
            pass

    def _send(self, data: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        else:
            self._writer.write(data)


class MllpServer:
    """The listening socket, and who has which lane.

    ``arrived`` is called when there is a message, ``over`` is awaited when a connection has gone, before its lane
    can be had again.
    """

    def __init__(
        self,
        settings: ListenSettings,
        telemetry: Telemetry,
        arrived: Callable[[], None],
        over: Callable[[Lane], Awaitable[None]],
    ) -> None:
        self._settings, self._telemetry = settings, telemetry
        self._faults = Faults(telemetry)
        self._arrived, self._over = arrived, over
        self.lanes = [Lane(number) for number in range(settings.max_connections)]
        self._open: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the one that was found where 0 was asked for."""
        return int(self._listening.sockets[0].getsockname()[1]) if self._listening else self._settings.port

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError`` that names the setting."""
        context = self._settings.context()
        handshake = {"ssl_handshake_timeout": self._settings.read_timeout_s} if context else {}
        try:
            self._listening = await asyncio.start_server(
                self._connected, self._settings.host, self._settings.port, ssl=context, limit=_CHUNK, **handshake
            )
        except OSError as error:
            raise ConfigurationError(advice(self._settings, error)) from None
        self._telemetry.emit(MllpListening(self._settings.host, self.port, context is not None))

    async def stop(self, leave: Callable[[Lane, Line], None]) -> None:
        """Take nothing more; ``leave`` says the last word to each connection. Two seconds at most."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for number, connection in self._open.items():
            leave(self.lanes[number], connection.line)
            connection.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lane = self._lane()
        if lane is None or self._listening is None:
            self._faults.tell(-1, "FULL")
            writer.transport.abort()
            return
        connection = Connection(reader, writer, lane, self._settings, self._telemetry, self._faults, self._arrived)
        lane.line = connection.line
        self._open[lane.stream.number] = connection
        self._telemetry.emit(MllpConnections(len(self._open)))
        try:
            await connection.run()
        finally:
            if lane.line is connection.line:
                del self._open[lane.stream.number]
                self._telemetry.emit(MllpConnections(len(self._open)))
                await self._over(lane)

    def _lane(self) -> Lane | None:
        """A free lane, the lowest first; else that of the connection that has been idle for longest."""
        if free := next((lane for lane in self.lanes if lane.free), None):
            return free
        idle = [(item.active, number) for number, item in self._open.items() if item.idle]
        if not idle:
            return None
        _, number = min(idle)
        self._open[number].line.end()
        return self.lanes[number]


def advice(settings: ListenSettings, error: OSError) -> str:
    """Why this address cannot be listened on, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            return f"mllp.port: {settings.port} is in use on {settings.host}: set mllp.port to a free one"
        case errno.EACCES:
            return f"mllp.port: {settings.port} may not be opened by this user: set mllp.port to one above 1023"
        case _:
            return (
                f"mllp.host: {settings.host!r} cannot be listened on ({type(error).__name__}): "
                "set mllp.host to an own address"
            )
