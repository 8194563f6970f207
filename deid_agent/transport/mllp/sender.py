"""Sends messages over MLLP and waits for acknowledgments: one message at a time on each connection."""

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Final

from deid_agent.agent import Output, Partition, Record
from deid_agent.config import MllpOutSettings
from deid_agent.model import RejectedError, TransientError, UncertainCommitError, UnsafeError
from deid_agent.transport.mllp.connection import sender_context
from deid_agent.transport.mllp.protocol import (
    AckResult,
    FrameError,
    FrameReader,
    MessageHead,
    expects_no_answer,
    frame,
    holds_several_messages,
    read_acknowledgment,
    read_head,
    unframe,
)
from deid_agent.transport.sinks import hold_lock

_MAX_ANSWER_BYTES: Final = 1 << 20
_CHUNK: Final = 1 << 16
_REMEMBERED: Final = 16


class _ReceiverConnection:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader(_MAX_ANSWER_BYTES)
        self.accepted: deque[bytes] = deque(maxlen=_REMEMBERED)

    @property
    def usable(self) -> bool:
        """False if the receiver closed the connection: many receivers close idle ones."""
        return not self.writer.is_closing() and not self.reader.at_eof()

    @property
    def unsent(self) -> bool:
        """True if bytes have not left this process."""
        return self.writer.transport.get_write_buffer_size() > 0

    async def next(self) -> bytes:
        """Return the next block. Raises ``FrameError``, ``OSError`` or ``EOFError``."""
        while (block := self.frames.next()) is None:
            data = await self.reader.read(_CHUNK)
            if not data:
                raise EOFError
            self.frames.feed(data)
        return block

    def drop(self) -> None:
        """Reset the connection now: a late acknowledgment must not be taken for that of the next message."""
        self.writer.transport.abort()


class Sender:
    """One connection to the receiver, opened when there is a message to send, and again after any fault."""

    def __init__(self, settings: MllpOutSettings, context: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._context = context
        self._connection: _ReceiverConnection | None = None
        self._lock = asyncio.Lock()

    async def send(self, message: bytes) -> AckResult:
        """Send a message and return the result that the receiver acknowledged.

        Raises ``TransientError`` if nothing was sent, ``UncertainCommitError`` if no acknowledgment arrived. Anything
        but a single HL7 v2 message counts as rejected, because its acknowledgment could not be assigned to it.
        """
        head = read_head(message)
        try:
            block = frame(message)
        except FrameError:
            return AckResult.REJECT
        if head is None or holds_several_messages(message):
            return AckResult.REJECT
        async with hold_lock(self._lock, self._settings.longest_s, f"MLLP: {self._settings.address}"):
            connection = await self._open(head)
            try:
                return await self._exchange(connection, block, head)
            except (OSError, EOFError, FrameError) as error:
                self._drop()
                raise UncertainCommitError(
                    f"MLLP: {self._settings.address}: no answer ({_name(error)}): sent again"
                ) from None
            except asyncio.CancelledError:
                self._drop()
                raise

    async def _exchange(self, connection: _ReceiverConnection, block: bytes, head: MessageHead) -> AckResult:
        connection.writer.write(block)
        try:
            async with asyncio.timeout(self._settings.ack_timeout_s):
                await connection.writer.drain()
                verdict = await self._answer(connection, head)
        except TimeoutError:
            if not expects_no_answer(head) or connection.unsent:
                raise
            verdict = AckResult.ACCEPT  # it asks for no acknowledgment of success, and none arrived
        if verdict is AckResult.ACCEPT:
            connection.accepted.append(head.control_id)
        return verdict

    async def _answer(self, connection: _ReceiverConnection, head: MessageHead) -> AckResult:
        while True:
            answer = read_acknowledgment(await connection.next())
            if answer is None:
                raise EOFError  # the bytes that follow cannot be assigned to a message
            if answer.control_id == head.control_id:
                return answer.verdict
            # In enhanced mode a second, application acknowledgment may arrive long after the first. (A message with the
            # same id as an earlier one gets a new connection.)
            if answer.control_id not in connection.accepted:
                raise EOFError

    async def _open(self, head: MessageHead) -> _ReceiverConnection:
        connection = self._connection
        if connection is not None and connection.usable and head.control_id not in connection.accepted:
            return connection
        self._connection = None
        if connection is not None:
            # A message that was accepted without acknowledgment may not have been read yet: a reset would drop it.
            connection.writer.close()
        settings = self._settings
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=self._context)
        except (OSError, TimeoutError) as error:
            raise TransientError(f"MLLP: {settings.address}: {explain_connect_error(error)}") from None
        self._connection = _ReceiverConnection(reader, writer)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    async def close(self) -> None:
        """Close the connection. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await connection.writer.wait_closed()


class MllpSink:
    """A ``Sink`` that sends to a receiver over MLLP. An output is durable once the receiver answers AA or CA."""

    def __init__(self, settings: MllpOutSettings) -> None:
        self._settings = settings
        self._senders: list[Sender] = []
        self._errors: dict[Partition, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"MllpSink({self._settings.address})"

    async def start(self) -> None:
        """Load the TLS files; the first message opens the connection. Raises ``ConfigurationError``."""
        context = sender_context(self._settings)
        self._senders = [Sender(self._settings, context) for _ in range(self._settings.connections)]

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Sink.deliver``. AE and CE are retried, AR and CR are final."""
        if not self._senders:
            raise UnsafeError("the sink was not started")
        at = record.coordinates
        verdict = await self._senders[at.partition % len(self._senders)].send(unframe(output.payload))
        if verdict is AckResult.ACCEPT:
            self._errors.pop(at.stream, None)
            return
        doing = f"{at} at {self._settings.address}"
        if verdict is AckResult.REJECT:
            raise RejectedError(at.offset, f"MLLP: {doing}: rejected; look at the receiver's log")
        last, count = self._errors.get(at.stream, (at.offset, 0))
        count = count + 1 if last == at.offset else 1
        self._errors[at.stream] = at.offset, count
        if 0 < self._settings.error_attempts <= count:
            raise RejectedError(at.offset, f"MLLP: {doing}: an error {count} times; look at the receiver's log")
        raise TransientError(f"MLLP: {doing}: answered with an error: sent again")

    async def stop(self) -> None:
        """See ``Sink.stop``."""
        senders, self._senders = self._senders, []
        await asyncio.gather(*(sender.close() for sender in senders))


def explain_connect_error(error: BaseException) -> str:
    """Why a connection failed, and what to fix."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted or is for another host: set mllp_out.tls_cafile, correct mllp_out.host"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): check mllp_out.tls and the certificates of both sides"
    return f"cannot be reached ({type(error).__name__}): check mllp_out.host and mllp_out.port, and that it listens"


def _name(error: BaseException) -> str:
    return error.fault.value if isinstance(error, FrameError) else type(error).__name__
