"""The strings and scalars of a JSON text as byte ranges, and the characters inside one string.

All work on bytes that ``orjson`` has accepted: they find places, they validate nothing.
Source: RFC 8259, sections 3 and 7.
"""

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np

from deid_agent.codec.places import Places
from deid_agent.errors import MessageError, Reason

_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-0-9tfn][-+.0-9A-Za-z]*+')
_WIDE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\.|[\xc2-\xf4][\x80-\xbf]+")
_ESCAPED = re.compile(rb'\\["\\]')
_BARE = re.compile(rb"[-0-9tfn][-+.0-9A-Za-z]*+")
_QUOTE = ord('"')
_STEPS = bytes(1 if sign in b"{[" else 255 if sign in b"}]" else 0 for sign in range(256))
"""What a sign adds to the depth, as a signed byte."""


def masked(text: bytes) -> bytes:
    """``text`` of the same length, with no quote left but those where a string begins or ends.

    Pairs of backslashes go too: behind one a quote is no escaped quote.
    """
    return _ESCAPED.sub(b"..", text) if b"\\" in text else text


def quotes(text: bytes) -> int:
    """How many quotes begin or end a string."""
    return masked(text).count(b'"')


class Strings:
    """Where the strings of a JSON text stand, keys too: by their quotes, never looked at one by one.

    Quotes are numbered: a string has an even number's and the next. ``at[n]`` is the byte of quote ``n``;
    behind the last stands the length of the text.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._masked = masked(raw)
        self._where = np.flatnonzero(np.frombuffer(self._masked, np.uint8) == _QUOTE)
        self.at: list[int] = self._where.tolist()
        self.quotes = len(self.at)
        self.at.append(len(raw))
        self._gap = -1
        self._found: list[tuple[int, int]] = []

    def depth(self) -> int:
        """How deep objects and lists stand in each other. A bracket in a string has an odd count of quotes before."""
        steps = np.frombuffer(self._masked.translate(_STEPS), np.int8)
        brackets = np.flatnonzero(steps != 0)
        outside = brackets[np.searchsorted(self._where, brackets) % 2 == 0]
        return int(np.cumsum(steps[outside], dtype=np.int64).max(initial=0))

    def most(self) -> int:
        """No fewer than the values and keys of the text: a value without quotes stands behind one of ``:,[``."""
        return self.quotes // 2 + len(self._masked) - len(self._masked.translate(None, b":,["))

    def bare(self, quote: int, nth: int) -> tuple[int, int]:
        """The byte range of a value without quotes: the ``nth`` (from 0) of those that end before ``quote``."""
        if self._gap != quote:
            start = self.at[quote - 1] + 1 if quote else 0
            self._gap = quote
            self._found = list(map(re.Match.span, _BARE.finditer(self._raw, start, self.at[quote])))
        return self._found[nth]


def scalars(raw: bytes, limit: int) -> list[tuple[int, int]]:
    """Byte ranges of all strings (quotes included, keys too), numbers and literals, in one pass.

    Raises ``MessageError(RESOURCE)`` where there are more than ``limit``.
    """
    found = list(map(re.Match.span, islice(_SCALAR.finditer(raw), limit + 1)))
    if len(found) > limit:
        raise MessageError(Reason.RESOURCE, f"byte {found[-1][0]}", f"more than {limit} values")
    return found


def bounded(raw: bytes, limit: int) -> None:
    """Raises ``MessageError(RESOURCE)`` where there are more than ``limit`` strings and scalars; keeps none of them."""
    past = next(islice(_SCALAR.finditer(raw), limit, None), None)
    if past is not None:
        raise MessageError(Reason.RESOURCE, f"byte {past.start()}", f"more than {limit} values")


def characters(raw: bytes, start: int, end: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Where each of the ``count`` characters of the string inside ``raw[start:end]`` starts and ends.

    An escape, a pair of escaped surrogates and a UTF-8 sequence are one character each.
    """
    if end - start == count:
        return range(start, end), range(start + 1, end + 1)
    first: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    at, index = start, 0
    for wide in _WIDE.finditer(raw, start, end):
        begin, stop = wide.span()
        if at < begin:
            first.append(index)
            starts.append(at)
            ends.append(at + 1)
            index += begin - at
        first.append(index)
        starts.append(begin)
        ends.append(stop)
        index += 1
        at = stop
    if at < end:
        first.append(index)
        starts.append(at)
        ends.append(at + 1)
    return Places(first, starts, count), Places(first, ends, count)
