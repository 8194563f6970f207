"""The document that recognizers read: text with cached views, never changed.

Offsets are characters (code points) of ``Document.text`` everywhere. Matching
runs over UTF-8 bytes, so the document also maps bytes to characters; for
ASCII text the map is the identity and costs nothing.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from deid_agent.sites import Fact

Range = tuple[int, int]


def _mark_class() -> str:
    """Combining marks of all scripts as ranges of a character class: a name in decomposed form stays one token."""
    marks = (c for c in range(0x300, 0x1E95B) if unicodedata.category(chr(c))[0] == "M")
    runs = ([c for _, c in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0]))
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


_MARKS = _mark_class()
_TOKEN = re.compile(rf"\d+|(?:[^\W\d_]|[{_MARKS}])+|[^\s]")
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_WIDE = re.compile(r"[^\x00-\x7f]")

DASHES = "\u2010\u2011\u2012\u2013\u2212"
BLANKS = "\u00a0\u202f"
_PLAIN = str.maketrans(dict.fromkeys(DASHES, "-") | dict.fromkeys(BLANKS, " "))


def plain(text: str) -> str:
    """``text`` with one kind of dash and of blank, and of the same length: what Word writes as what a keyboard does."""
    return text if text.isascii() else text.translate(_PLAIN)


def lowered(text: str) -> str:
    """``text`` in lower case and of the same length, so that offsets hold.

    The few characters whose lower case is longer (U+0130) stay as they are.
    """
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def folded(word: str) -> str:
    """``word`` in lower case without accents, for comparing names; its length may differ."""
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word.translate(_STROKED).casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


_STROKED = str.maketrans({"ø": "o", "Ø": "o", "ł": "l", "Ł": "l", "đ": "d", "Đ": "d", "ð": "d", "ı": "i", "æ": "ae"})


def glued(char: str) -> bool:
    """True where ``char`` next to a word would be part of it: a letter, a digit or a combining mark."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


@dataclass(frozen=True)
class Document:
    """One text and what the message knows about its people. Equal by text and facts; ``repr`` shows neither."""

    text: str = field(repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def plain(self) -> "Document":
        """The same with one kind of dash and of blank, as rules read it; its offsets are those of this one."""
        text = plain(self.text)
        return self if text == self.text else Document(text, self.facts)

    @cached_property
    def lower(self) -> str:
        """Same length as ``text``."""
        return lowered(self.text)

    @cached_property
    def tokens(self) -> tuple[Range, ...]:
        """Runs of letters (with their marks), runs of digits, single signs; white space left out."""
        return tuple(m.span() for m in _TOKEN.finditer(self.text))

    @cached_property
    def words(self) -> tuple[Range, ...]:
        """Runs of anything but white space."""
        return tuple(m.span() for m in _WORD.finditer(self.text))

    @cached_property
    def lines(self) -> tuple[Range, ...]:
        """Lines with their line ends; together they are the text."""
        return tuple(m.span() for m in _LINE.finditer(self.text) if m.end() > m.start())

    @cached_property
    def utf8(self) -> bytes:
        """The text as UTF-8; a lone surrogate stands as three bytes that match nothing."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def _wide(self) -> tuple[list[int], list[int], list[int]]:
        """Of each non-ASCII character: its index, its first byte, and the bytes gained up to and with it."""
        chars: list[int] = []
        firsts: list[int] = []
        gains: list[int] = []
        gain = 0
        for found in _WIDE.finditer(self.text):
            chars.append(found.start())
            firsts.append(found.start() + gain)
            code = ord(found.group())
            gain += 1 if code < 0x800 else 2 if code < 0x10000 else 3
            gains.append(gain)
        return chars, firsts, gains

    def char(self, byte: int) -> int:
        """The character that holds byte ``byte``; the length of the text for the end of the bytes."""
        _, firsts, gains = self._wide
        if not firsts:
            return byte
        at = bisect_right(firsts, byte) - 1
        if at < 0:
            return byte
        return max(byte - gains[at], self._wide[0][at])

    def byte(self, char: int) -> int:
        """The first byte of character ``char``."""
        chars, _, gains = self._wide
        at = bisect_right(chars, char - 1) - 1
        return char if at < 0 else char + gains[at]

    def pieces(self, ranges: tuple[Range, ...]) -> Iterator[str]:
        """The text of each range."""
        return (self.text[a:b] for a, b in ranges)
