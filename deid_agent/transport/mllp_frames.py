"""Blocks of MLLP (HL7 MLLP release 1): VT, the message, FS CR. Bytes to messages and back; knows no HL7."""

from enum import StrEnum
from typing import Final

from deid_agent.errors import TransportError

VT: Final = b"\x0b"
END: Final = b"\x1c\r"
_BETWEEN: Final = b"\r\n"
"""What senders put between blocks although nobody asked for it; harmless."""


class Fault(StrEnum):
    """Why nothing more can be read from a connection."""

    JUNK = "JUNK"
    """Something else than a block."""

    TOO_LARGE = "TOO_LARGE"
    """A block that is longer than allowed, whether it ends or not."""

    RESTARTED = "RESTARTED"
    """A second message begins inside of a block: its sender gave one up and began anew."""

    TORN = "TORN"
    """The other end went away inside of a block."""

    SLOW = "SLOW"
    """A block took longer than allowed."""


class FrameError(TransportError):
    """The bytes are no MLLP. Carries a code, no byte of what came."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def frame(message: bytes) -> bytes:
    """The block of a message. ``FrameError`` where the message holds the end of a block."""
    if END in message:
        raise FrameError(Fault.RESTARTED)
    return VT + message + END


def bare(message: bytes) -> bytes:
    """A message without the block that a record still has around it."""
    return message.removeprefix(VT).removesuffix(END)


class FrameReader:
    """Takes bytes as they come and gives whole messages, the same ones however the bytes were cut.

    Only FS CR ends a block: a lone FS or VT is content, as text that was pasted from a word processor has
    it. But VT MSH inside of a block is a sender that gave up and began anew, and the two halves of one block may be
    of two patients; nothing of it is given out. Holds at most ``most`` bytes and what was fed last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._searched = 1
        self._fault: Fault | None = None

    def __repr__(self) -> str:
        return f"FrameReader({len(self._held)} bytes held)"

    @property
    def inside(self) -> bool:
        """True where a block has begun and not ended."""
        return bool(self._held) and self._fault is None

    @property
    def failed(self) -> bool:
        """True where something came that is no block."""
        return self._fault is not None

    def feed(self, data: bytes) -> None:
        """More bytes."""
        if self._fault is None:
            self._held += data

    def next(self) -> bytes | None:
        """The next message; None where more bytes are needed. Raises ``FrameError``, and then for ever."""
        if self._fault is not None:
            raise FrameError(self._fault)
        held = self._held
        if held and held[0] in _BETWEEN:
            del held[: len(held) - len(held.lstrip(_BETWEEN))]
        if not held:
            return None
        if held[0] != VT[0]:
            raise self._failed(Fault.JUNK)
        end = held.find(END, self._searched)
        if end < 0:
            # Never the same bytes twice: a block that grows in small pieces would cost their square.
            self._searched = max(1, len(held) - 1)
            if len(held) > self._most + 2:
                raise self._failed(Fault.TOO_LARGE)
            return None
        if end - 1 > self._most:
            raise self._failed(Fault.TOO_LARGE)
        message = bytes(held[1:end])
        if VT + b"MSH" in message:
            raise self._failed(Fault.RESTARTED)
        del held[: end + len(END)]
        self._searched = 1
        return message

    def begin(self, most: int) -> bytes:
        """The first bytes of the block that was not given out, to tell its sender which one it was."""
        return bytes(self._held[1 : 1 + most])

    def _failed(self, fault: Fault) -> FrameError:
        self._fault = fault
        return FrameError(fault)
