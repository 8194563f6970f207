"""A connection of the MLLP listener: reads messages into its slot and writes acknowledgments."""

import asyncio
from collections.abc import Callable
from typing import Final

from deid_agent.config import MllpSettings
from deid_agent.telemetry import (
    MllpAnswered,
    MllpFault,
    MllpFaultAgain,
    MllpGaveWay,
    MllpGaveWayAgain,
    Telemetry,
)
from deid_agent.transport.mllp.admission import ConnectionState, GaveWay, Progress, peer_of
from deid_agent.transport.mllp.connection import ConnectionSlot, ReplyQueue
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

CHUNK: Final = 1 << 16
_MAX_UNREAD: Final = 1 << 20
"""Bytes of acknowledgments that a client may leave unread."""
CLOSE_S: Final = 2.0
_REPEAT_AFTER_S: Final = 10.0
"""Repeated faults of one kind are counted but not logged for this time."""


class FaultLog:
    """Reports bytes that were not a valid message."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._reported_at: dict[str, float] = {}

    def report(self, slot: int, code: str) -> None:
        """Count the fault; log the first one of its kind within ``_REPEAT_AFTER_S``."""
        self._telemetry.emit((MllpFaultAgain if self._repeated(code) else MllpFault)(slot, code))

    def report_gave_way(self, slot: int, why: GaveWay, addresses: int, of_this: int) -> None:
        """Count a connection that was closed for another; log the first one within ``_REPEAT_AFTER_S``."""
        event = MllpGaveWayAgain if self._repeated("GAVE_WAY") else MllpGaveWay
        self._telemetry.emit(event(slot, why.value, addresses, of_this))

    def _repeated(self, code: str) -> bool:
        now = asyncio.get_running_loop().time()
        again = now - self._reported_at.get(code, -_REPEAT_AFTER_S) < _REPEAT_AFTER_S
        if not again:
            self._reported_at[code] = now
        return again


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
        clock: Callable[[], float],
    ) -> None:
        self._reader, self._writer, self.slot = reader, writer, slot
        self._settings, self._faults, self._on_message = settings, faults, on_message
        self._frames = FrameReader(settings.max_message_bytes)
        self._clock = clock
        self._progress = Progress(settings.min_bytes_per_s)
        self._active = clock()
        self._proven = False
        self.retiring = False
        """It reads nothing more, and closes once the messages that arrived are answered."""
        self.peer = peer_of(writer.get_extra_info("peername"))
        self.replies = ReplyQueue(
            self._send, lambda code: telemetry.emit(MllpAnswered(code or "none")), self.close, AckWriter()
        )

    @property
    def busy(self) -> bool:
        """True if a message is being processed or waits for its acknowledgment."""
        return bool(len(self.replies) or self.slot.lag)

    def state(self) -> ConnectionState:
        """The state that decides whether this connection gives way to a new one."""
        now, progress = self._clock(), self._progress
        return ConnectionState(
            self.slot.stream.number,
            self.peer,
            busy=self.busy,
            receiving=progress.since is not None,
            behind_s=progress.behind_s(now),
            behind_crowded_s=progress.behind_crowded_s(now),
            bytes_per_s=progress.bytes_per_s(now),
            quiet_s=now - self._active,
            proven=self._proven,
            leaving=self.replies.leaving or self.replies.closed or (self.retiring and self.busy),
        )

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
            asyncio.get_running_loop().call_later(CLOSE_S, self._writer.transport.abort)

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
            if self.replies.closed:
                return  # it gave way: the other end is not at fault
            self._faults.report(self.slot.stream.number, error.fault)
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
        while await self._wait_for_room() and not self.retiring:
            if (block := self._frames.next()) is not None:
                self._progress.end()
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
            self._active, self._proven = self._clock(), True
            self.slot.put(self.replies, head, block)
            self._on_message()
            return
        why = explain_unreadable(block) if head is None else RefusalCode.SEVERAL
        self._faults.report(self.slot.stream.number, why)
        self.replies.refuse(head, why)
        await asyncio.sleep(0)  # one chunk can hold thousands of empty blocks

    async def _wait_for_room(self) -> bool:
        """Wait until more may be read, while TCP holds the sender back. Returns False if the connection is closed."""
        replies, settings = self.replies, self._settings
        while not replies.closed:
            async with asyncio.timeout(settings.read_timeout_s):
                await self._writer.drain()
            if replies.closed:
                break  # its slot may belong to another connection by now
            if len(replies) < settings.max_pending and replies.bytes < settings.max_message_bytes:
                return True
            replies.changed.clear()
            await replies.changed.wait()
            self._progress.excuse(self._clock())
        return False

    async def _read_bytes(self) -> bytes:
        """Received bytes; none if the other end has closed or was silent for too long."""
        progress, settings = self._progress, self._settings
        while True:
            if self._frames.inside:
                if progress.since is None:
                    progress.begin(self._clock())
                patience = max(0.0, settings.read_timeout_s - progress.behind_s(self._clock()))
            else:
                patience = settings.idle_timeout_s
            try:
                async with asyncio.timeout(patience) as limit:
                    data = await self._reader.read(CHUNK)
                progress.receive(self._clock(), len(data))
                return data
            except TimeoutError:
                if not limit.expired():
                    raise  # a timeout of the network
                if self._frames.inside:
                    raise FrameError(FramingFault.SLOW) from None
                if not self.busy:
                    return b""

    async def _drain_input(self) -> None:
        """Keep reading for a moment: closing with unread bytes resets the connection, and the last acknowledgment is
        lost.
        """
        try:
            async with asyncio.timeout(CLOSE_S / 2):
                while await self._reader.read(CHUNK):
                    pass
        except OSError:
            pass

    def _send(self, data: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._writer.transport.abort()
        else:
            self._writer.write(data)
