"""The five levels of HL7 v2 as ranges of characters: nothing is copied, nothing is normalised.

HL7 v2.8.2 chapter 2.5 (separators), 2.6 (segments), 2.10.3 (batches).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from deid_agent.errors import MessageError, Reason

Range = tuple[int, int]
Fragment = tuple[str, Range]
"""A stretch of text, with the path of the value that it is."""
HEADERS = frozenset({"MSH", "FHS", "BHS"})

BLANK = " \t\r\n"
"""White space that may be trimmed. Never trim more: in UTF-8 read byte by byte, 0x85 and 0xA0 end letters."""
_MARK = "\xef\xbb\xbf"
_TRAIL = "\x1c\x0b"
_LEAD = "\x0b\x1c\x00 \t\r\n\ufeff"
_START = re.compile(r"[\x0b\x1c \t\r\n]*(?:\xef\xbb\xbf)?[\x0b\x1c \t\r\n]*(MSH|FHS|BHS)([!-/:-@\[-`{-~])")
_HEADER = re.compile(r"(?:MSH|FHS|BHS)([!-/:-@\[-`{-~])[!-/:-@\[-`{-~]{0,6}(?:\1|\s|$)")
_CARRIAGE = re.compile(r"\r\n?|\n(?=[A-Z][A-Z0-9]{2}[|])")
_DOUBLED = re.compile(r"([^\\])(?!\1)([^\\])\\\\(?!\1|\2).?")


@dataclass(frozen=True, slots=True)
class Separators:
    """MSH-1 and MSH-2; an empty string where the message has none of that kind."""

    field: str
    component: str
    repetition: str
    escape: str
    subcomponent: str


class Segment(NamedTuple):
    """A line ``[start, end)``; ``header`` is MSH, FHS or BHS where it declares separators, else empty."""

    header: str
    start: int
    end: int


def opens(text: str) -> bool:
    """True where ``text`` (bytes as latin-1) starts like a message, a batch or a file."""
    return _START.match(text) is not None


def separators(text: str, segment: Segment) -> Separators:
    """What a header segment declares.

    A doubled escape counts once (``^~\\\\&`` is what a needless escaping leaves behind).
    Raises ``MessageError(MALFORMED)`` where letters or digits are to separate, or one character two levels: nobody
    can tell then where a name ends and a code begins.
    """
    field = text[segment.start + 3 : segment.start + 4]
    rest = text[segment.start + 4 : min(segment.end, segment.start + 20)].partition(field or "|")[0]
    marks = list(dict.fromkeys(rest))[:4]
    if len(set(rest[:4])) < len(rest[:4]) and not _DOUBLED.fullmatch(rest):
        raise MessageError(Reason.MALFORMED, f"{segment.header}-2", "two separators are the same")
    if not field or any(not "!" <= c <= "~" or c.isalnum() for c in [field, *marks]):
        raise MessageError(Reason.MALFORMED, f"{segment.header}-2", "letters or controls cannot separate")
    return Separators(field, *(marks + [""] * 4)[:4])


@lru_cache(maxsize=64)
def inner(marks: Separators) -> re.Pattern[str]:
    """Finds any separator below fields; nothing where a message has none."""
    found = re.escape(marks.component + marks.repetition + marks.subcomponent)
    return re.compile(f"[{found}]" if found else r"(?!)")


def segments(text: str, *, carriage: bool) -> Iterator[Segment]:
    """The lines of ``text``, framing (byte order mark, MLLP) left out of their ranges.

    ``carriage`` says whether the payload has any CR; then a bare LF is content, unless what follows it is a
    segment: there a reading as text would hide a typed field.
    """
    if carriage and "\n" in text:
        at = 0
        for found in _CARRIAGE.finditer(text):
            if (line := _line(text, at, found.start())) is not None:
                yield line
            at = found.end()
        if (line := _line(text, at, len(text))) is not None:
            yield line
        return
    end = -1
    for part in text.split("\r" if carriage else "\n"):
        start, end = end + 1, end + 1 + len(part)
        if part and (line := _line(text, start, end)) is not None:
            yield line


def _line(text: str, start: int, end: int) -> Segment | None:
    while start < end and ((first := text[start]) in _LEAD or (first == "\xef" and text.startswith(_MARK, start, end))):
        start += 1 if first in _LEAD else 3
    while end > start and text[end - 1] in _TRAIL:
        end -= 1
    if start >= end:
        return None
    header = text[start] in "MFB" and _HEADER.match(text, start, end) is not None
    return Segment(text[start : start + 3] if header else "", start, end)


def split(text: str, a: int, b: int, mark: str) -> list[Range]:
    """``[a, b)`` divided at every ``mark``; one range where there is none."""
    if not mark or (end := text.find(mark, a, b)) < 0:
        return [(a, b)]
    out = []
    while end >= 0:
        out.append((a, end))
        a = end + 1
        end = text.find(mark, a, b)
    out.append((a, b))
    return out


def parts(text: str, mark: str) -> list[str]:
    """``text`` divided at every ``mark``; one part where the message has none of that kind."""
    return text.split(mark) if mark else [text]


def ranges(words: Sequence[str], at: int) -> list[Range]:
    """Where ``words`` stand that are one separator apart, the first at character ``at``."""
    found = []
    for word in words:
        found.append((at, at + len(word)))
        at += len(word) + 1
    return found


def leaves(text: str, a: int, b: int, marks: Separators) -> list[Range]:
    """``[a, b)`` divided at every separator there is."""
    pieces = [(a, b)]
    for mark in (marks.field, marks.repetition, marks.component, marks.subcomponent):
        pieces = [leaf for piece in pieces for leaf in split(text, *piece, mark)]
    return pieces
