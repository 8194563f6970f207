"""Sends messages over MLLP and waits for what the receiver says: one message at a time on each connection."""

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Final

from deid_agent.agent.ports import Output, Partition, Record
from deid_agent.errors import DoubtError, RejectedError, TransientError, UnsafeError
from deid_agent.transport.mllp_ack import Head, Verdict, read_answer, read_head, several, silent
from deid_agent.transport.mllp_frames import FrameError, FrameReader, bare, frame
from deid_agent.transport.mllp_settings import SendSettings
from deid_agent.transport.outlet import turn

_MOST_ANSWER: Final = 1 << 20
_CHUNK: Final = 1 << 16
_REMEMBERED: Final = 16


class _Link:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader(_MOST_ANSWER)
        self.accepted: deque[bytes] = deque(maxlen=_REMEMBERED)

    @property
    def usable(self) -> bool:
        """False where the receiver has gone: many close what was idle for a while."""
        return not self.writer.is_closing() and not self.reader.at_eof()

    @property
    def unsent(self) -> bool:
        """True where bytes have not left this process."""
        return self.writer.transport.get_write_buffer_size() > 0

    async def next(self) -> bytes:
        """The next block. Raises ``FrameError``, ``OSError`` or ``EOFError``."""
        while (block := self.frames.next()) is None:
            data = await self.reader.read(_CHUNK)
            if not data:
                raise EOFError
            self.frames.feed(data)
        return block

    def drop(self) -> None:
        """End it now: an answer that comes late must not be taken for that of the next message."""
        self.writer.transport.abort()


class Sender:
    """One connection to the receiver, opened when there is something to send, and again after any fault."""

    def __init__(self, settings: SendSettings, context: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._context = context
        self._link: _Link | None = None
        self._turn = asyncio.Lock()

    async def send(self, message: bytes) -> Verdict:
        """What the receiver says of the message.

        Raises ``TransientError`` where nothing was sent, ``DoubtError`` where no answer came. No answer could be told
        to be for what is no HL7 v2, or more than one message: that counts as rejected.
        """
        head = read_head(message)
        try:
            block = frame(message)
        except FrameError:
            return Verdict.REJECT
        if head is None or several(message):
            return Verdict.REJECT
        async with turn(self._turn, self._settings.longest_s, f"MLLP: {self._settings.place}"):
            link = await self._open(head)
            try:
                return await self._exchange(link, block, head)
            except (OSError, EOFError, FrameError) as error:
                self._drop()
                raise DoubtError(f"MLLP: {self._settings.place}: no answer ({_name(error)}): sent again") from None
            except asyncio.CancelledError:
                self._drop()
                raise

    async def _exchange(self, link: _Link, block: bytes, head: Head) -> Verdict:
        link.writer.write(block)
        try:
            async with asyncio.timeout(self._settings.ack_timeout_s):
                await link.writer.drain()
                verdict = await self._answer(link, head)
        except TimeoutError:
            if not silent(head) or link.unsent:
                raise
            verdict = Verdict.ACCEPT  # it asked to hear nothing when all goes well, and heard nothing
        if verdict is Verdict.ACCEPT:
            link.accepted.append(head.control_id)
        return verdict

    async def _answer(self, link: _Link, head: Head) -> Verdict:
        while True:
            answer = read_answer(await link.next())
            if answer is None:
                raise EOFError  # whatever that was, what follows cannot be told apart any more
            if answer.control_id == head.control_id:
                return answer.verdict
            # In enhanced mode a second answer, of the application, may come long after the first. (For a message with
            # the same id as an earlier one there is a new connection.)
            if answer.control_id not in link.accepted:
                raise EOFError

    async def _open(self, head: Head) -> _Link:
        link = self._link
        if link is not None and link.usable and head.control_id not in link.accepted:
            return link
        self._link = None
        if link is not None:
            # What was accepted in silence may not have been read yet: no reset, which would take it along.
            link.writer.close()
        settings = self._settings
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=self._context)
        except (OSError, TimeoutError) as error:
            raise TransientError(f"MLLP: {settings.place}: {connecting(error)}") from None
        self._link = _Link(reader, writer)
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.drop()

    async def close(self) -> None:
        """End the connection. Safe to call twice."""
        link, self._link = self._link, None
        if link is not None:
            link.writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await link.writer.wait_closed()


class MllpOutlet:
    """Implements ``Outlet``: to a receiver over MLLP. What stands there is what it answered AA or CA to."""

    def __init__(self, settings: SendSettings) -> None:
        self._settings = settings
        self._senders: list[Sender] = []
        self._errors: dict[Partition, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"MllpOutlet({self._settings.place})"

    async def start(self) -> None:
        """Load what TLS needs; connects with the first message. Raises ``ConfigurationError``."""
        context = self._settings.context()
        self._senders = [Sender(self._settings, context) for _ in range(self._settings.connections)]

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Outlet.deliver``. AE and CE are tried again, AR and CR are for good."""
        if not self._senders:
            raise UnsafeError("the outlet was not started")
        at = record.coordinates
        verdict = await self._senders[at.partition % len(self._senders)].send(bare(output.payload))
        if verdict is Verdict.ACCEPT:
            self._errors.pop(at.stream, None)
            return
        where = f"{at} at {self._settings.place}"
        if verdict is Verdict.REJECT:
            raise RejectedError(at.offset, f"MLLP: {where}: rejected; look at the receiver's log, mend it, start again")
        last, count = self._errors.get(at.stream, (at.offset, 0))
        count = count + 1 if last == at.offset else 1
        self._errors[at.stream] = at.offset, count
        if 0 < self._settings.error_attempts <= count:
            raise RejectedError(at.offset, f"MLLP: {where}: an error {count} times; look at the receiver's log")
        raise TransientError(f"MLLP: {where}: answered with an error: sent again")

    async def stop(self) -> None:
        """See ``Outlet.stop``."""
        senders, self._senders = self._senders, []
        await asyncio.gather(*(sender.close() for sender in senders))


def connecting(error: BaseException) -> str:
    """Why a connection could not be made, and what to mend."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted or is for another host: set mllp_out.tls_cafile, correct mllp_out.host"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): check mllp_out.tls and the certificates of both sides"
    return f"cannot be reached ({type(error).__name__}): check mllp_out.host and mllp_out.port, and that it listens"


def _name(error: BaseException) -> str:
    return error.fault.value if isinstance(error, FrameError) else type(error).__name__
