"""The MLLP block protocol (HL7 MLLP release 1) and acknowledgments of HL7 v2 (chapter 2.9). Bytes, never decoded.

A block is VT, the message, FS CR; framing knows no HL7. An acknowledgment repeats only values that its reader sent
itself: application names (swapped), the control id and the event. Its own texts are codes from closed lists. Separators
and character set are those of the message.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from deid_agent.model import TransportError

MAX_HEAD_BYTES: Final = 16_384
"""The largest MSH segment in bytes. A longer one is not accepted."""
_LEADING_SPACE: Final = re.compile(rb"[ \t\r\n]*(?:\xef\xbb\xbf)?[ \t\r\n]*(?=MSH)")
_SECOND_MESSAGE: Final = re.compile(rb"[\r\n]MSH[^A-Za-z0-9\r\n]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NAME: Final = re.compile(rb"[A-Za-z0-9_]{1,20}")
_HAS_ERR: Final = re.compile(rb"2\.(?:[5-9]|[1-9][0-9])")
_HAS_STRUCTURE: Final = re.compile(rb"2\.(?:3\.1|[4-9]|[1-9][0-9])")


class AckResult(StrEnum):
    """The result in an acknowledgment: the second letter of its code."""

    ACCEPT = "A"
    ERROR = "E"
    REJECT = "R"


class RefusalCode(StrEnum):
    """Why a message was refused by the listener: the closed list of texts in acknowledgments.

    A dead-lettered message is acknowledged with its ``Reason`` instead.
    """

    NOT_HL7 = "NOT_HL7"
    """No readable MSH segment. A batch does not begin with one."""

    CHARSET = "CHARSET"
    """UTF-16 or UTF-32, in which MLLP cannot find the end of a message."""

    SEVERAL = "SEVERAL"
    """More than one MSH segment. One acknowledgment cannot cover all of them, and the patients may differ."""

    TOO_LARGE = "TOO_LARGE"
    STOPPING = "STOPPING"
    """The agent stops. Nothing was done with the message."""

    SINK = "SINK"
    """The sink does not accept messages at the moment. Nothing was done with the message."""


@dataclass(frozen=True, slots=True)
class MessageHead:
    """An MSH segment. ``fields[n - 1]`` is MSH-n; read it with ``at``."""

    fields: tuple[bytes, ...] = field(repr=False)

    def at(self, number: int) -> bytes:
        """MSH-``number``, unchanged; empty if it is missing."""
        return self.fields[number - 1] if number <= len(self.fields) else b""

    def part(self, number: int, component: int) -> bytes:
        """A component of the first repetition of MSH-``number``."""
        mark = self.at(2)[:1]
        parts = self.at(number).split(mark) if mark else [self.at(number)]
        return parts[component - 1] if component <= len(parts) else b""

    @property
    def control_id(self) -> bytes:
        return self.at(10)


UNKNOWN_HEAD: Final = MessageHead((b"|", rb"^~\&"))
"""Used in place of an unreadable MSH segment."""


def read_head(message: bytes) -> MessageHead | None:
    """The MSH segment of a message; None if it has none that an acknowledgment can repeat.

    A control character in it could end the block of the acknowledgment early, so such a segment is not accepted either.
    """
    lead = _LEADING_SPACE.match(message)
    if lead is None:
        return None
    begin = lead.end()
    line = re.split(rb"[\r\n]", message[begin : begin + MAX_HEAD_BYTES + 1], maxsplit=1)[0]
    mark = line[3:4]
    if len(line) > MAX_HEAD_BYTES or not mark or mark.isalnum() or not b"!" <= mark <= b"~" or _CONTROL.search(line):
        return None
    return MessageHead((mark, *line[4:].split(mark)))


def holds_several_messages(message: bytes) -> bool:
    """True if the bytes hold several messages in a row. Only the first could be acknowledged."""
    lead = _LEADING_SPACE.match(message)
    return lead is not None and _SECOND_MESSAGE.search(message, lead.end()) is not None


def explain_unreadable(message: bytes) -> RefusalCode:
    """Why ``read_head`` found no MSH segment."""
    wide = message[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in message[:8]
    return RefusalCode.CHARSET if wide else RefusalCode.NOT_HL7


def acknowledgment_code(head: MessageHead, verdict: AckResult) -> str:
    """The acknowledgment code that is due in MSA-1 (AA, CE, ...); empty if none is due.

    In original mode (MSH-15 and MSH-16 empty) every message is answered with an A code. In enhanced mode, a message
    that asks for an accept acknowledgment gets one, with a C code: it states that the message is stored safely. If none
    of those is due, it gets the application acknowledgment that it asks for, with an A code, because the agent is the
    application for its sender.
    """
    accept, application = head.at(15).upper(), head.at(16).upper()
    if head.part(9, 1) == b"ACK" and not accept and not application:
        return ""  # otherwise two programs that acknowledge each other's acknowledgments never stop
    if not _ACK_CONDITIONS & {accept, application}:
        return "" if b"NE" in (accept, application) else "A" + verdict.value
    due = {b"AL", b"SU" if verdict is AckResult.ACCEPT else b"ER"}
    dead_letter = "C" if accept in due else "A" if application in due else ""
    return dead_letter and dead_letter + verdict.value


_ACK_CONDITIONS: Final = frozenset({b"AL", b"ER", b"SU"})


def expects_no_answer(head: MessageHead) -> bool:
    """True if a message asks for no acknowledgment of success."""
    return not acknowledgment_code(head, AckResult.ACCEPT)


class AckWriter:
    """Builds acknowledgments. ``clock`` returns the current time, ``token`` a new control id."""

    def __init__(
        self,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        token: Callable[[], str] = lambda: secrets.token_hex(10),
    ) -> None:
        self._clock = clock
        self._token = token

    def answer(self, head: MessageHead, verdict: AckResult, why: str = "") -> bytes:
        """The acknowledgment of a message with this MSH segment; empty if none is due. ``why`` is a code."""
        code = acknowledgment_code(head, verdict)
        if not code:
            return b""
        mark, marks = head.at(1), head.at(2)
        time = self._clock().strftime("%Y%m%d%H%M%S%z").encode()
        names = (head.at(5), head.at(6), head.at(3), head.at(4))
        last = (self._token().encode(), head.at(11) or b"P", head.at(12) or b"2.5")
        msh = [b"MSH", marks, *names, time, b"", self._message_type(head), *last]
        if charset := head.at(18):
            msh += [*[b""] * 5, charset]
        segments = [msh, [b"MSA", code.encode(), head.control_id, *([why.encode()] if why else [])]]
        if verdict is not AckResult.ACCEPT and _HAS_ERR.match(head.part(12, 1)):
            separator = marks[:1] or b"^"
            error = separator.join((b"207", b"Application internal error", b"HL70357"))
            segments.append([b"ERR", b"", b"", error, b"E", b"", b"", b"", why.encode()])
        return b"".join(mark.join(segment) + b"\r" for segment in segments)

    def _message_type(self, head: MessageHead) -> bytes:
        event, separator = head.part(9, 2), head.at(2)[:1]
        if not separator or not _NAME.fullmatch(event):
            return b"ACK"
        structure = (b"ACK",) if _HAS_STRUCTURE.match(head.part(12, 1)) else ()
        return separator.join((b"ACK", event, *structure))


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """A receiver's acknowledgment. Its text is dropped, because it may quote the message."""

    verdict: AckResult
    control_id: bytes = field(repr=False)


def read_acknowledgment(message: bytes) -> Acknowledgment | None:
    """Parse an acknowledgment: its result and the control id that it refers to. None if the message is not one."""
    head = read_head(message)
    if head is None:
        return None
    mark = head.at(1)
    for line in re.split(rb"[\r\n]+", message):
        kind, *fields = line.split(mark)
        if kind == b"MSA" and fields and re.fullmatch(rb"[AC][AER]", fields[0]):
            return Acknowledgment(AckResult(fields[0][1:].decode()), fields[1] if len(fields) > 1 else b"")
    return None


VT: Final = b"\x0b"
END: Final = b"\x1c\r"
_BLOCK_FILLERS: Final = b"\r\n"
"""Bytes that some senders put between blocks. Harmless."""


class FramingFault(StrEnum):
    """Why no more blocks can be read from a connection."""

    JUNK = "JUNK"
    """Bytes outside of a block."""

    TOO_LARGE = "TOO_LARGE"
    """A block above the size limit, whether it ends or not."""

    RESTARTED = "RESTARTED"
    """A second message begins inside a block: the sender gave one up and started again."""

    TORN = "TORN"
    """The other end closed the connection inside a block."""

    SLOW = "SLOW"
    """A block took longer than the time limit."""


class FrameError(TransportError):
    """The bytes are not valid MLLP. Carries a code and no received byte."""

    def __init__(self, fault: FramingFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def frame(message: bytes) -> bytes:
    """The block of a message. Raises ``FrameError`` if the message contains the end of a block."""
    if END in message:
        raise FrameError(FramingFault.RESTARTED)
    return VT + message + END


def unframe(message: bytes) -> bytes:
    """The message of a record whose payload may still be a block."""
    return message.removeprefix(VT).removesuffix(END)


class FrameReader:
    """Splits received bytes into messages. The result does not depend on how the bytes were divided.

    Only FS CR ends a block: a lone FS or VT is content, as in text pasted from a word processor. But VT MSH inside a
    block means that the sender gave up and started again. The two halves may belong to two patients, so nothing of such
    a block is returned. Holds at most ``max_bytes`` and the bytes fed last.
    """

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes
        self._held = bytearray()
        self._searched = 1
        self._fault: FramingFault | None = None

    def __repr__(self) -> str:
        return f"FrameReader({len(self._held)} bytes held)"

    @property
    def inside(self) -> bool:
        """True if a block has begun and not ended."""
        return bool(self._held) and self._fault is None

    @property
    def failed(self) -> bool:
        """True if invalid bytes were received."""
        return self._fault is not None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._fault is None:
            self._held += data

    def next(self) -> bytes | None:
        """Return the next message; None if more bytes are needed. After a ``FrameError`` every call raises it again."""
        if self._fault is not None:
            raise FrameError(self._fault)
        held = self._held
        if held and held[0] in _BLOCK_FILLERS:
            del held[: len(held) - len(held.lstrip(_BLOCK_FILLERS))]
        if not held:
            return None
        if held[0] != VT[0]:
            raise self._fail(FramingFault.JUNK)
        end = held.find(END, self._searched)
        if end < 0:
            # Search no byte twice: a block that arrives in small pieces would cost the square of its size.
            self._searched = max(1, len(held) - 1)
            if len(held) > self._most + 2:
                raise self._fail(FramingFault.TOO_LARGE)
            return None
        if end - 1 > self._most:
            raise self._fail(FramingFault.TOO_LARGE)
        message = bytes(held[1:end])
        if VT + b"MSH" in message:
            raise self._fail(FramingFault.RESTARTED)
        del held[: end + len(END)]
        self._searched = 1
        return message

    def peek(self, max_bytes: int) -> bytes:
        """The first bytes of the block that was not returned, for its acknowledgment."""
        return bytes(self._held[1 : 1 + max_bytes])

    def _fail(self, fault: FramingFault) -> FrameError:
        self._fault = fault
        return FrameError(fault)
