"""The structure of HL7 v2 (segments, separators and the five levels) as ranges of characters, without copies.

HL7 v2.8.2 chapter 2.5 (separators), 2.6 (segments), 2.10.3 (batches).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from deid_agent.model import MessageError, Reason

Range = tuple[int, int]
Fragment = tuple[str, Range]
"""A range of free text with the path of its value."""
HEADERS = frozenset({"MSH", "FHS", "BHS"})
BLANK = " \t\r\n"
"""White space that may be trimmed. Nothing else may be: in UTF-8 read byte by byte, 0x85 and 0xA0 end letters."""
NULL = '""'
"""The value that deletes what the receiver has (HL7 v2.8.2 chapter 2.5.3)."""

_BYTE_ORDER_MARK = "\xef\xbb\xbf"
_TRAIL = "\x1c\x0b"
_LEAD = "\x0b\x1c\x00 \t\r\n\ufeff"
_START = re.compile(r"[\x0b\x1c \t\r\n]*(?:\xef\xbb\xbf)?[\x0b\x1c \t\r\n]*(MSH|FHS|BHS)([!-/:-@\[-`{-~])")
_HEADER = re.compile(r"(?:MSH|FHS|BHS)([!-/:-@\[-`{-~])[!-/:-@\[-`{-~]{0,6}(?:\1|\s|$)")
_LINE_END = re.compile(r"\r\n?|\n(?=[A-Z][A-Z0-9]{2}[|])")
_DOUBLED_ESCAPE = re.compile(r"([^\\])(?!\1)([^\\])\\\\(?!\1|\2).?")


@dataclass(frozen=True, slots=True)
class Separators:
    """MSH-1 and MSH-2; an empty string for a separator that the message does not declare."""

    field: str
    component: str
    repetition: str
    escape: str
    subcomponent: str


DEFAULT_SEPARATORS = Separators("|", "^", "~", "\\", "&")


class Hl7Segment(NamedTuple):
    """A line ``[start, end)``. ``header`` is MSH, FHS or BHS if the line declares separators, else empty."""

    header: str
    start: int
    end: int


def starts_message(text: str) -> bool:
    """True if ``text`` (bytes as latin-1) starts with the header of a message, a batch or a file."""
    return _START.match(text) is not None


def parse_separators(text: str, segment: Hl7Segment) -> Separators:
    """The separators that a header segment declares.

    A doubled escape character counts once (``^~\\\\&`` is the result of needless escaping).
    Raises ``MessageError(MALFORMED)`` if a separator is a letter or digit, or if one character separates two levels:
    a name could then not be distinguished from a code.
    """
    field = text[segment.start + 3 : segment.start + 4]
    rest = text[segment.start + 4 : min(segment.end, segment.start + 20)].partition(field or "|")[0]
    marks = list(dict.fromkeys(rest))[:4]
    if len(set(rest[:4])) < len(rest[:4]) and not _DOUBLED_ESCAPE.fullmatch(rest):
        raise MessageError(Reason.MALFORMED, f"{segment.header}-2", "two separators are the same")
    if not field or any(not "!" <= c <= "~" or c.isalnum() for c in [field, *marks]):
        raise MessageError(Reason.MALFORMED, f"{segment.header}-2", "letters or controls cannot separate")
    return Separators(field, *(marks + [""] * 4)[:4])


@lru_cache(maxsize=64)
def inner_separator_pattern(marks: Separators) -> re.Pattern[str]:
    """Matches any separator below the level of fields; matches nothing if the message declares none."""
    found = re.escape(marks.component + marks.repetition + marks.subcomponent)
    return re.compile(f"[{found}]" if found else r"(?!)")


def iter_segments(text: str, *, carriage: bool) -> Iterator[Hl7Segment]:
    """The lines of ``text``; framing (byte order mark, MLLP) is not part of their ranges.

    ``carriage`` means that the payload contains a CR. A bare LF is then content, unless a segment follows it: read as
    text, that segment would hide a typed field.
    """
    if carriage and "\n" in text:
        at = 0
        for found in _LINE_END.finditer(text):
            if (line := _trim_line(text, at, found.start())) is not None:
                yield line
            at = found.end()
        if (line := _trim_line(text, at, len(text))) is not None:
            yield line
        return
    end = -1
    for part in text.split("\r" if carriage else "\n"):
        start, end = end + 1, end + 1 + len(part)
        if part and (line := _trim_line(text, start, end)) is not None:
            yield line


def _trim_line(text: str, start: int, end: int) -> Hl7Segment | None:
    while start < end and (
        (first := text[start]) in _LEAD or (first == "\xef" and text.startswith(_BYTE_ORDER_MARK, start, end))
    ):
        start += 1 if first in _LEAD else 3
    while end > start and text[end - 1] in _TRAIL:
        end -= 1
    if start >= end:
        return None
    header = text[start] in "MFB" and _HEADER.match(text, start, end) is not None
    return Hl7Segment(text[start : start + 3] if header else "", start, end)


def split_range(text: str, a: int, b: int, mark: str) -> list[Range]:
    """``[a, b)`` divided at every ``mark``; one range if there is none."""
    if not mark or (end := text.find(mark, a, b)) < 0:
        return [(a, b)]
    out = []
    while end >= 0:
        out.append((a, end))
        a = end + 1
        end = text.find(mark, a, b)
    out.append((a, b))
    return out


def split_text(text: str, mark: str) -> list[str]:
    """``text`` divided at every ``mark``; one part if ``mark`` is empty (the message does not declare it)."""
    return text.split(mark) if mark else [text]


def ranges_of_words(words: Sequence[str], at: int) -> list[Range]:
    """The ranges of ``words`` that are one separator apart, the first of them at character ``at``."""
    found = []
    for word in words:
        found.append((at, at + len(word)))
        at += len(word) + 1
    return found


def split_at_all_separators(text: str, a: int, b: int, marks: Separators) -> list[Range]:
    """``[a, b)`` divided at every separator of every level."""
    pieces = [(a, b)]
    for mark in (marks.field, marks.repetition, marks.component, marks.subcomponent):
        pieces = [part for piece in pieces for part in split_range(text, *piece, mark)]
    return pieces
