"""Connections: their state, the order of their acknowledgments, and the TLS contexts of the listener and the sender."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from deid_agent.agent import Coordinates, Partition, Record
from deid_agent.config import MllpOutSettings, MllpSettings
from deid_agent.transport.mllp.protocol import (
    UNKNOWN_HEAD,
    AckResult,
    AckWriter,
    MessageHead,
    RefusalCode,
    acknowledgment_code,
    frame,
)
from deid_agent.transport.tls import load_authority, load_certificate, server_context

TOPIC: Final = "mllp"


@dataclass(slots=True)
class PendingReply:
    """A message without an acknowledgment, or whose acknowledgment waits for earlier ones."""

    head: MessageHead = field(repr=False)
    offset: int
    size: int
    since: float
    answer: bytes | None = field(default=None, repr=False)


class ReplyQueue:
    """The acknowledgments of one connection, in the order of its messages.

    ``send`` writes bytes to the other end, ``answered`` receives each code that was sent ("" if none was due), and
    ``ended`` is called once, when nothing more will be acknowledged.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        answered: Callable[[str], None],
        ended: Callable[[], None],
        writer: AckWriter,
    ) -> None:
        self._send = send
        self._answered = answered
        self._ended = ended
        self._writer = writer
        self._waiting: deque[PendingReply] = deque()
        self.changed = asyncio.Event()
        self.bytes = 0
        self.leaving = False
        """The other end has closed its side for writing."""
        self.closed = False
        """Nothing more is acknowledged: the connection is closed, or is about to be."""

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, head: MessageHead, offset: int, size: int) -> None:
        """Note that a message arrived."""
        self._waiting.append(PendingReply(head, offset, size, time.monotonic()))
        self.bytes += size

    def since(self, offset: int) -> float | None:
        """When this message arrived; None once it is acknowledged."""
        return next((item.since for item in self._waiting if item.offset == offset), None)

    def answer(self, offset: int, verdict: AckResult, why: str = "") -> None:
        """Acknowledge a message as soon as all earlier ones are acknowledged."""
        for item in self._waiting:
            if item.offset == offset and item.answer is None:
                item.answer = self._writer.answer(item.head, verdict, why)
                self._answered(acknowledgment_code(item.head, verdict))
                break
        self._flush()

    def refuse(self, head: MessageHead | None, why: RefusalCode) -> None:
        """Reject bytes that are not a valid message, after all earlier messages."""
        known = head or UNKNOWN_HEAD
        answer = self._writer.answer(known, AckResult.REJECT, why)
        self._answered(acknowledgment_code(known, AckResult.REJECT))
        self._waiting.append(PendingReply(known, -1, 0, time.monotonic(), answer))
        self._flush()

    def fail(self, why: RefusalCode) -> None:
        """Acknowledge all open messages with an error, since none was processed. Nothing is acknowledged afterwards."""
        if not self.closed:
            for item in list(self._waiting):
                if item.answer is None:
                    self.answer(item.offset, AckResult.ERROR, why)
            self.end()

    def end(self) -> None:
        """Acknowledge nothing more."""
        if not self.closed:
            self.closed = True
            self._waiting.clear()
            self.bytes = 0
            self.changed.set()
            self._ended()

    def _flush(self) -> None:
        while self._waiting and (answer := self._waiting[0].answer) is not None:
            self.bytes -= self._waiting.popleft().size
            if answer:
                self._send(frame(answer))
        self.changed.set()


class ConnectionSlot:
    """A partition of the listener. At most one connection uses it at a time.

    Offsets are the numbers of ``mllp.numbers``: they increase by one, also after a restart.
    """

    def __init__(self, number: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.stream = Partition(TOPIC, number)
        self.replies: ReplyQueue | None = None
        self.paused = False
        self.taken: dict[int, Record] = {}
        """Records delivered to the agent and not committed, by offset."""
        self.uncertain = -1
        """The offset of an output that may be in the sink although it is not committed."""
        self.reassigning = False
        """The partition is being revoked and assigned again; no connection may use it."""
        self._queue: deque[Record] = deque()
        self._clock_ns = clock_ns
        self._next = 0

    @property
    def free(self) -> bool:
        """True if a connection may use this slot."""
        return self.replies is None and not self.reassigning

    @property
    def lag(self) -> int:
        """Messages that arrived and are not committed."""
        return len(self._queue) + len(self.taken)

    def put(self, replies: ReplyQueue, head: MessageHead, message: bytes) -> None:
        """Add a message that arrived."""
        at = Coordinates(self.stream.topic, self.stream.number, self._next)
        self._next += 1
        self._queue.append(Record(at, message, timestamp_ms=self._clock_ns() // 1_000_000))
        replies.expect(head, at.offset, len(message))

    def get(self, limit: int) -> list[Record]:
        """The next messages, in order."""
        if self.paused or self.replies is None or self.replies.closed:
            return []
        found = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        self.taken |= {record.coordinates.offset: record for record in found}
        return found

    def clear(self) -> None:
        """Forget messages that were never delivered. Their sender still has them."""
        self._queue.clear()

    def count_from(self, number: int) -> None:
        """Give the next message this number: the first one under which nothing may have been delivered."""
        self._next = number


def listener_context(settings: MllpSettings) -> ssl.SSLContext | None:
    """The context of the listener, or None without TLS; asks for a client certificate if an authority is set.

    TLS 1.2 is the oldest version that it accepts. Raises ``ConfigurationError`` if a file cannot be loaded.
    """
    if settings.tls_certfile is None:
        return None
    return server_context(
        "mllp", settings.tls_certfile, settings.tls_keyfile, settings.key_password(), settings.tls_client_cafile
    )


def sender_context(settings: MllpOutSettings) -> ssl.SSLContext | None:
    """The context of the sender, or None without TLS; trusts the authorities of the system if none is set.

    Host names are checked, and TLS 1.2 is the oldest version that it accepts.
    Raises ``ConfigurationError`` if a file cannot be loaded.
    """
    if not settings.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_certificate(context, "mllp_out", settings.tls_certfile, settings.tls_keyfile, settings.key_password())
    if settings.tls_cafile is None:
        context.load_default_certs()
    else:
        load_authority(context, "mllp_out", settings.tls_cafile)
    return context
