"""The MLLP listener. Each connection has its own slot; no client can block another or exhaust the memory.

If all slots are in use, a new sender waits, and the stalest connection of the address with the most connections gives
way to it (``admission``).
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from deid_agent.config import MllpSettings
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import MllpConnections, MllpListening, Telemetry
from deid_agent.transport.mllp.admission import GaveWay, choose_connection, peer_of
from deid_agent.transport.mllp.connection import ConnectionSlot, ReplyQueue, listener_context
from deid_agent.transport.mllp.incoming import CHUNK, CLOSE_S, Connection, FaultLog

_MOST_WAITING: Final = 64
"""Senders that wait for a slot. With more, the last of the address with the most of them is turned away."""
_MOST_TRIED: Final = 8
"""Addresses whose senders are tried at once: the work of a flood of new connections is bounded."""
_TICK_S: Final = 0.1


@dataclass(slots=True, eq=False)
class _Waiting:
    """A sender that waits for a slot."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    peer: str
    until: float
    granted: asyncio.Future[Connection | None] = field(repr=False)


class MllpServer:
    """The listening socket, the connection of each slot, and the senders that wait for one.

    ``on_message`` is called when a message arrived. ``on_closed`` is awaited after a connection closed, before its slot
    can be used again. ``clock`` returns seconds; None is the clock of the event loop.
    """

    def __init__(
        self,
        settings: MllpSettings,
        telemetry: Telemetry,
        on_message: Callable[[], None],
        on_closed: Callable[[ConnectionSlot], Awaitable[None]],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._settings, self._telemetry = settings, telemetry
        self._faults = FaultLog(telemetry)
        self._on_message, self._on_closed = on_message, on_closed
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self.slots = [ConnectionSlot(number) for number in range(settings.max_connections)]
        self._open: dict[int, Connection] = {}
        self._waiting: list[_Waiting] = []
        self._next_try: asyncio.TimerHandle | None = None
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
                self._connected, self._settings.host, self._settings.port, ssl=context, limit=CHUNK, **handshake
            )
        except OSError as error:
            raise ConfigurationError(explain_listen_error(self._settings, error)) from None
        self._telemetry.emit(MllpListening(self._settings.host, self.port, context is not None))

    async def stop(self, fail_connection: Callable[[ConnectionSlot, ReplyQueue], None]) -> None:
        """Accept nothing more. Calls ``fail_connection`` for each connection, then waits at most two seconds."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for waiting in list(self._waiting):
            self._turn_away(waiting)
        if self._next_try is not None:
            self._next_try.cancel()
        for number, connection in self._open.items():
            fail_connection(self.slots[number], connection.replies)
            connection.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = await self._wait_for_slot(reader, writer)
        if connection is None:
            writer.transport.abort()
            return
        slot = connection.slot
        try:
            await connection.run()
        finally:
            if slot.replies is connection.replies:
                del self._open[slot.stream.number]
                self._telemetry.emit(MllpConnections(len(self._open)))
                await self._on_closed(slot)
                self._admit()

    async def _wait_for_slot(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
        """The connection of a new sender in its slot; None if none became free in time."""
        if self._listening is None:
            return None
        loop = asyncio.get_running_loop()
        peer, until = peer_of(writer.get_extra_info("peername")), self._clock() + self._settings.read_timeout_s
        waiting = _Waiting(reader, writer, peer, until, loop.create_future())
        self._waiting.append(waiting)
        self._admit()
        if len(self._waiting) > _MOST_WAITING:
            counts = Counter(item.peer for item in self._waiting)
            most = max(counts.values())
            self._turn_away([item for item in self._waiting if counts[item.peer] == most][-1])
        try:
            return await waiting.granted
        finally:
            if waiting in self._waiting:  # cancelled
                self._waiting.remove(waiting)

    def _admit(self) -> None:
        """Give slots to waiting senders: first to those whose address has the fewest connections, then in order."""
        if self._next_try is not None:
            self._next_try.cancel()
            self._next_try = None
        for item in [item for item in self._waiting if item.writer.is_closing() or item.until <= self._clock()]:
            self._turn_away(item)
        refused: set[str] = set()
        while candidates := [item for item in self._waiting if item.peer not in refused]:
            counts = Counter(connection.peer for connection in self._open.values())
            item = min(candidates, key=lambda item: counts[item.peer])
            slot = self._claim_slot(item.peer, counts)
            if slot is None:
                refused.add(item.peer)
                if len(refused) == _MOST_TRIED:
                    break
                continue
            self._waiting.remove(item)
            item.granted.set_result(self._open_connection(item, slot))
        if self._waiting:
            self._next_try = asyncio.get_running_loop().call_later(_TICK_S, self._admit)

    def _open_connection(self, item: _Waiting, slot: ConnectionSlot) -> Connection:
        connection = Connection(
            item.reader,
            item.writer,
            slot,
            self._settings,
            self._telemetry,
            self._faults,
            self._on_message,
            self._clock,
        )
        slot.replies = connection.replies
        self._open[slot.stream.number] = connection
        self._telemetry.emit(MllpConnections(len(self._open)))
        return connection

    def _turn_away(self, item: _Waiting) -> None:
        self._waiting.remove(item)
        if not item.writer.is_closing():
            self._faults.report(-1, "FULL")
        if not item.granted.done():
            item.granted.set_result(None)

    def _claim_slot(self, peer: str, counts: Counter[str]) -> ConnectionSlot | None:
        """The lowest free slot; otherwise that of the connection that gives way; None if the sender has to wait."""
        at_most = self._settings.max_connections_per_address
        own_only = at_most is not None and counts[peer] >= at_most
        free = next((slot for slot in self.slots if slot.free), None)
        if free is not None and not own_only:
            return free
        states = [connection.state() for connection in self._open.values()]
        chosen = choose_connection(states, peer, self._settings.read_timeout_s, own_only=own_only)
        if chosen is None:
            return None
        number, why = chosen
        connection = self._open[number]
        if why is GaveWay.BUSY:
            retiring = sum(item.retiring for item in self._open.values())
            if retiring >= sum(item.peer != connection.peer for item in self._waiting):
                return None
        self._faults.report_gave_way(number, why, len(counts), counts[connection.peer])
        if why is GaveWay.BUSY:
            connection.retiring = True
            return None
        connection.replies.end()
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
