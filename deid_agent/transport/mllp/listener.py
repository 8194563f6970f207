"""The MLLP listener. Each connection has its own slot; no client can block another or exhaust the memory."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from deid_agent.config import MllpSettings
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import MllpAnswered, MllpConnections, MllpFault, MllpFaultAgain, MllpListening, Telemetry
from deid_agent.transport.mllp.connection import ConnectionSlot, ReplyQueue, listener_context
from deid_agent.transport.mllp.protocol import (
    MAX_HEAD_BYTES,
    AckWriter,
    FrameError,
    FrameReader,
    FramingFault,
    RefusalCode,
    explain_unreadable,
    holds_several_messages,
    read_head,
)

_CHUNK: Final = 1 << 16
_MAX_UNREAD: Final = 1 << 20
"""Bytes of acknowledgments that a client may leave unread."""
_CLOSE_S: Final = 2.0
_REPEAT_AFTER_S: Final = 10.0
"""Repeated faults of one kind are counted but not logged for this time."""


class FaultLog:
    """Reports bytes that were not a valid message."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._reported_at: dict[str, float] = {}

    def report(self, slot: int, code: str) -> None:
        """Count the fault; log the first one of its kind within ``_REPEAT_AFTER_S``."""
        now = asyncio.get_running_loop().time()
        again = now - self._reported_at.get(code, -_REPEAT_AFTER_S) < _REPEAT_AFTER_S
        if not again:
            self._reported_at[code] = now
        self._telemetry.emit((MllpFaultAgain if again else MllpFault)(slot, code))


class Connection:
    """One sender: reads its messages into a slot and writes acknowledgments, until either side closes."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        slot: ConnectionSlot,
        settings: MllpSettings,
        telemetry: Telemetry,
        faults: FaultLog,
        on_message: Callable[[], None],
    ) -> None:
        self._reader, self._writer, self._slot = reader, writer, slot
        self._settings, self._faults, self._on_message = settings, faults, on_message
        self._frames = FrameReader(settings.max_message_bytes)
        self._block_started: float | None = None
        self.active = asyncio.get_running_loop().time()
        self.replies = ReplyQueue(
            self._send, lambda code: telemetry.emit(MllpAnswered(code or "none")), self.close, AckWriter()
        )

    @property
    def idle(self) -> bool:
        """True if no message is being received, processed or acknowledged."""
        return not len(self.replies) and not self._frames.inside and not self._slot.lag

    async def run(self) -> None:
        """Serve the connection until it closes. Errors caused by the other end are not raised."""
        lost = asyncio.create_task(self._watch_connection())
        try:
            await self._serve()
        except OSError:
            self.replies.end()  # the connection is gone: no acknowledgment can be sent
        finally:
            self.replies.end()
            self.close()
            await asyncio.wait({lost})

    def close(self) -> None:
        """Send what was written, then close. Does not wait for a client that does not read."""
        if not self._writer.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(_CLOSE_S, self._writer.transport.abort)

    async def _watch_connection(self) -> None:
        try:
            await self._writer.wait_closed()
        except OSError:
            pass
        finally:
            self.replies.end()

    async def _serve(self) -> None:
        try:
            await self._read()
        except FrameError as error:
            self._faults.report(self._slot.stream.number, error.fault)
            if error.fault is FramingFault.TOO_LARGE:
                self.replies.refuse(read_head(self._frames.peek(MAX_HEAD_BYTES)), RefusalCode.TOO_LARGE)
        self.replies.leaving = True
        # Messages that were complete before are still committed and acknowledged.
        while len(self.replies) and not self.replies.closed:
            self.replies.changed.clear()
            await self.replies.changed.wait()
        if self._frames.failed and not self.replies.closed:
            await self._drain_input()

    async def _read(self) -> None:
        """Read messages into the slot until the other end stops sending. Raises ``FrameError``."""
        while await self._wait_for_room():
            if (block := self._frames.next()) is not None:
                self._block_started = None
                await self._accept_message(block)
            elif data := await self._read_bytes():
                self._frames.feed(data)
            elif self._frames.inside:
                raise FrameError(FramingFault.TORN)
            else:
                return

    async def _accept_message(self, block: bytes) -> None:
        head = read_head(block)
        if head is not None and not holds_several_messages(block):
            self._slot.put(self.replies, head, block)
            self._on_message()
            return
        why = explain_unreadable(block) if head is None else RefusalCode.SEVERAL
        self._faults.report(self._slot.stream.number, why)
        self.replies.refuse(head, why)
        await asyncio.sleep(0)  # one chunk can hold thousands of empty blocks

    async def _wait_for_room(self) -> bool:
        """Wait until more may be read, while TCP holds the sender back. Returns False if the connection is closed."""
        replies, settings = self.replies, self._settings
        while not replies.closed:
            async with asyncio.timeout(settings.read_timeout_s):
                await self._writer.drain()
            if len(replies) < settings.max_pending and replies.bytes < settings.max_message_bytes:
                return True
            replies.changed.clear()
            await replies.changed.wait()
            self._block_started = None  # this time was caused by the agent
        return False

    async def _read_bytes(self) -> bytes:
        """Received bytes; none if the other end has closed or was silent for too long."""
        loop, settings = asyncio.get_running_loop(), self._settings
        while True:
            if self._frames.inside:
                self._block_started = self._block_started or loop.time()
                until = self._block_started + settings.read_timeout_s
            else:
                until = loop.time() + settings.idle_timeout_s
            try:
                async with asyncio.timeout_at(until) as limit:
                    data = await self._reader.read(_CHUNK)
                self.active = loop.time()
                return data
            except TimeoutError:
                if not limit.expired():
                    raise  # a timeout of the network
                if self._frames.inside:
                    raise FrameError(FramingFault.SLOW) from None
                if self.idle:
                    return b""

    async def _drain_input(self) -> None:
        """Keep reading for a moment: closing with unread bytes resets the connection, and the last acknowledgment is
        lost.
        """
        try:
            async with asyncio.timeout(_CLOSE_S / 2):
                while await self._reader.read(_CHUNK):
                    pass
        except OSError:
            pass

    def _send(self, data: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._writer.transport.abort()
        else:
            self._writer.write(data)


class MllpServer:
    """The listening socket and the connection of each slot.

    ``on_message`` is called when a message arrived. ``on_closed`` is awaited after a connection closed, before its slot
    can be used again.
    """

    def __init__(
        self,
        settings: MllpSettings,
        telemetry: Telemetry,
        on_message: Callable[[], None],
        on_closed: Callable[[ConnectionSlot], Awaitable[None]],
    ) -> None:
        self._settings, self._telemetry = settings, telemetry
        self._faults = FaultLog(telemetry)
        self._on_message, self._on_closed = on_message, on_closed
        self.slots = [ConnectionSlot(number) for number in range(settings.max_connections)]
        self._open: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that the server listens on; the one chosen by the system if the setting is 0."""
        return int(self._listening.sockets[0].getsockname()[1]) if self._listening else self._settings.port

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError`` that names the setting."""
        context = listener_context(self._settings)
        handshake = {"ssl_handshake_timeout": self._settings.read_timeout_s} if context else {}
        try:
            self._listening = await asyncio.start_server(
                self._connected, self._settings.host, self._settings.port, ssl=context, limit=_CHUNK, **handshake
            )
        except OSError as error:
            raise ConfigurationError(explain_listen_error(self._settings, error)) from None
        self._telemetry.emit(MllpListening(self._settings.host, self.port, context is not None))

    async def stop(self, fail_connection: Callable[[ConnectionSlot, ReplyQueue], None]) -> None:
        """Accept nothing more. Calls ``fail_connection`` for each connection, then waits at most two seconds."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for number, connection in self._open.items():
            fail_connection(self.slots[number], connection.replies)
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
        slot = self._claim_slot()
        if slot is None or self._listening is None:
            self._faults.report(-1, "FULL")
            writer.transport.abort()
            return
        connection = Connection(reader, writer, slot, self._settings, self._telemetry, self._faults, self._on_message)
        slot.replies = connection.replies
        self._open[slot.stream.number] = connection
        self._telemetry.emit(MllpConnections(len(self._open)))
        try:
            await connection.run()
        finally:
            if slot.replies is connection.replies:
                del self._open[slot.stream.number]
                self._telemetry.emit(MllpConnections(len(self._open)))
                await self._on_closed(slot)

    def _claim_slot(self) -> ConnectionSlot | None:
        """The lowest free slot; otherwise that of the connection that has been idle the longest."""
        if free := next((slot for slot in self.slots if slot.free), None):
            return free
        idle = [(item.active, number) for number, item in self._open.items() if item.idle]
        if not idle:
            return None
        _, number = min(idle)
        self._open[number].replies.end()
        return self.slots[number]


def explain_listen_error(settings: MllpSettings, error: OSError) -> str:
    """Why the server cannot listen on this address, and what to do."""
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
