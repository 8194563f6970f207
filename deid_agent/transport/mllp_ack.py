"""Acknowledgments of HL7 v2 (chapter 2.9): written for what came in, read of what went out. Bytes, never decoded.

An answer repeats only what its reader sent itself: names of applications (swapped), the control id and
the event. Its own words are codes of closed lists. The separators and the character set are those of the message.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

MOST_HEAD: Final = 16_384
"""Bytes of an MSH segment; a longer one is none."""
_LEAD: Final = re.compile(rb"[ \t\r\n]*(?:\xef\xbb\xbf)?[ \t\r\n]*(?=MSH)")
_AGAIN: Final = re.compile(rb"[\r\n]MSH[^A-Za-z0-9\r\n]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NAME: Final = re.compile(rb"[A-Za-z0-9_]{1,20}")
_HAS_ERR: Final = re.compile(rb"2\.(?:[5-9]|[1-9][0-9])")
_HAS_STRUCTURE: Final = re.compile(rb"2\.(?:3\.1|[4-9]|[1-9][0-9])")


class Verdict(StrEnum):
    """What an answer says; the second letter of its code."""

    ACCEPT = "A"
    ERROR = "E"
    REJECT = "R"


class Why(StrEnum):
    """Why a message was not taken: the closed list of texts in answers. Dead-lettered ones say their ``Reason``."""

    NOT_HL7 = "NOT_HL7"
    """No MSH segment that can be read. A batch has none in front."""

    CHARSET = "CHARSET"
    """UTF-16 or UTF-32, in which MLLP cannot tell where a message ends."""

    SEVERAL = "SEVERAL"
    """More than one MSH segment. One answer could not be told to be for all, and the patients may differ."""

    TOO_LARGE = "TOO_LARGE"
    STOPPING = "STOPPING"
    """The agent stops; nothing was done with the message."""

    OUTLET = "OUTLET"
    """Where messages go does not take them at the moment; nothing was done with the message."""


@dataclass(frozen=True, slots=True)
class Head:
    """An MSH segment. ``fields[n - 1]`` is MSH-n, read it with ``at``."""

    fields: tuple[bytes, ...] = field(repr=False)

    def at(self, number: int) -> bytes:
        """MSH-``number`` as it came; empty where it is not there."""
        return self.fields[number - 1] if number <= len(self.fields) else b""

    def part(self, number: int, component: int) -> bytes:
        """A component of the first repetition of MSH-``number``."""
        mark = self.at(2)[:1]
        parts = self.at(number).split(mark) if mark else [self.at(number)]
        return parts[component - 1] if component <= len(parts) else b""

    @property
    def control_id(self) -> bytes:
        return self.at(10)


NOBODY: Final = Head((b"|", rb"^~\&"))
"""In place of a head that cannot be read."""


def read_head(message: bytes) -> Head | None:
    """The head of a message; None where it has none that an answer could repeat.

    A control character in it could end the answer's block early, so it is no head either.
    """
    lead = _LEAD.match(message)
    if lead is None:
        return None
    begin = lead.end()
    line = re.split(rb"[\r\n]", message[begin : begin + MOST_HEAD + 1], maxsplit=1)[0]
    mark = line[3:4]
    if len(line) > MOST_HEAD or not mark or mark.isalnum() or not b"!" <= mark <= b"~" or _CONTROL.search(line):
        return None
    return Head((mark, *line[4:].split(mark)))


def several(message: bytes) -> bool:
    """True for more than one message in a row, of which only the first can be acknowledged."""
    lead = _LEAD.match(message)
    return lead is not None and _AGAIN.search(message, lead.end()) is not None


def unreadable(message: bytes) -> Why:
    """Why a message has no head."""
    wide = message[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in message[:8]
    return Why.CHARSET if wide else Why.NOT_HL7


def code_for(head: Head, verdict: Verdict) -> str:
    """MSA-1 of the answer that is due (AA, CE, ...); empty where none is.

    Original mode (MSH-15 and MSH-16 empty) is always answered with A codes. In enhanced mode a message that asks for
    an accept acknowledgment gets that one, with C codes, which says what we know: that it is safe. Where none of those
    is due it gets the application acknowledgment that it asks for, with A codes, since for its sender we are that.
    """
    accept, application = head.at(15).upper(), head.at(16).upper()
    if head.part(9, 1) == b"ACK" and not accept and not application:
        return ""  # two programs that answer each other's answers never come to an end
    if not _ASKS & {accept, application}:
        return "" if b"NE" in (accept, application) else "A" + verdict.value
    due = {b"AL", b"SU" if verdict is Verdict.ACCEPT else b"ER"}
    letter = "C" if accept in due else "A" if application in due else ""
    return letter and letter + verdict.value


_ASKS: Final = frozenset({b"AL", b"ER", b"SU"})


def silent(head: Head) -> bool:
    """True for a message that asks to hear nothing when all goes well."""
    return not code_for(head, Verdict.ACCEPT)


class Writer:
    """Writes answers. ``clock`` gives now; ``token`` a control id that was never used before."""

    def __init__(
        self,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        token: Callable[[], str] = lambda: secrets.token_hex(10),
    ) -> None:
        self._clock = clock
        self._token = token

    def answer(self, head: Head, verdict: Verdict, why: str = "") -> bytes:
        """The answer to a message with this head; empty where none is due. ``why`` is a code."""
        code = code_for(head, verdict)
        if not code:
            return b""
        mark, marks = head.at(1), head.at(2)
        time = self._clock().strftime("%Y%m%d%H%M%S%z").encode()
        names = (head.at(5), head.at(6), head.at(3), head.at(4))
        last = (self._token().encode(), head.at(11) or b"P", head.at(12) or b"2.5")
        msh = [b"MSH", marks, *names, time, b"", self._type(head), *last]
        if charset := head.at(18):
            msh += [*[b""] * 5, charset]
        segments = [msh, [b"MSA", code.encode(), head.control_id, *([why.encode()] if why else [])]]
        if verdict is not Verdict.ACCEPT and _HAS_ERR.match(head.part(12, 1)):
            joint = marks[:1] or b"^"
            error = joint.join((b"207", b"Application internal error", b"HL70357"))
            segments.append([b"ERR", b"", b"", error, b"E", b"", b"", b"", why.encode()])
        return b"".join(mark.join(segment) + b"\r" for segment in segments)

    def _type(self, head: Head) -> bytes:
        event, joint = head.part(9, 2), head.at(2)[:1]
        if not joint or not _NAME.fullmatch(event):
            return b"ACK"
        structure = (b"ACK",) if _HAS_STRUCTURE.match(head.part(12, 1)) else ()
        return joint.join((b"ACK", event, *structure))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said. Its own words are not kept: they may quote the message."""

    verdict: Verdict
    control_id: bytes = field(repr=False)


def read_answer(message: bytes) -> Answer | None:
    """The verdict of an acknowledgment and the control id it is for; None where it is none."""
    head = read_head(message)
    if head is None:
        return None
    mark = head.at(1)
    for line in re.split(rb"[\r\n]+", message):
        kind, *fields = line.split(mark)
        if kind == b"MSA" and fields and re.fullmatch(rb"[AC][AER]", fields[0]):
            return Answer(Verdict(fields[0][1:].decode()), fields[1] if len(fields) > 1 else b"")
    return None
