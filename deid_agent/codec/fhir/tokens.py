"""The strings and scalars of a JSON text as byte ranges, and the characters inside one string.

All work on bytes that ``orjson`` has accepted: they find places, they validate nothing.
Source: RFC 8259, sections 3 and 7.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, islice

from deid_agent.codec.places import Places
from deid_agent.errors import MessageError, Reason

_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-0-9tfn][-+.0-9A-Za-z]*+')
_WIDE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\.|[\xc2-\xf4][\x80-\xbf]+")
_ESCAPED = re.compile(rb'\\["\\]')
_BARE = re.compile(rb"[-0-9tfn][-+.0-9A-Za-z]*+")
_NESTING = bytes.maketrans(b"{}[]", b"()()")
_NO_NESTING = bytes(set(range(256)) - set(b"{}[]"))


def masked(text: bytes) -> bytes:
    """``text`` of the same length, with no quote left but those where a string begins or ends.

    Pairs of backslashes go too: behind one a quote is no escaped quote.
    """
    return _ESCAPED.sub(b"..", text) if b"\\" in text else text


def quotes(text: bytes) -> int:
    """How many quotes begin or end a string."""
    return masked(text).count(b'"')


class Strings:
    """Where the strings of a JSON text stand, keys too: split at the quotes, never looked at one by one.

    Quotes are numbered: a string has an even number's and the next. Quote ``n`` stands at byte ``before[n] + n``,
    ``before`` is the count of other bytes up to it.
    """

    def __init__(self, raw: bytes) -> None:
        pieces = masked(raw).split(b'"')
        self._raw = raw
        self.quotes = len(pieces) - 1
        self.before = list(accumulate(map(len, pieces)))
        self._structure = b"".join(pieces[::2])
        self._gap = -1
        self._found: list[tuple[int, int]] = []

    def depth(self, most: int) -> int:
        """How deep objects and lists stand in each other, counted as far as ``most``."""
        left, depth = self._structure.translate(_NESTING, _NO_NESTING), 0
        while left and depth < most:
            left, depth = left.replace(b"()", b""), depth + 1
        return depth

    def most(self) -> int:
        """No fewer than the values and keys of the text: a value without quotes stands behind one of ``:,[``."""
        left = self._structure
        return self.quotes // 2 + len(left) - len(left.translate(None, b":,["))

    def bare(self, quote: int, nth: int) -> tuple[int, int]:
        """The byte range of a value without quotes: the ``nth`` (from 0) of those that end before ``quote``."""
        if self._gap != quote:
            start = self.before[quote - 1] + quote if quote else 0
            end = self.before[quote] + quote
            self._gap, self._found = quote, list(map(re.Match.span, _BARE.finditer(self._raw, start, end)))
        return self._found[nth]


def scalars(raw: bytes, limit: int) -> list[tuple[int, int]]:
    """Byte ranges of all strings (quotes included, keys too), numbers and literals, in one pass.

    Raises ``MessageError(RESOURCE)`` where there are more than ``limit``.
    """
    found = list(map(re.Match.span, islice(_SCALAR.finditer(raw), limit + 1)))
    if len(found) > limit:
        raise MessageError(Reason.RESOURCE, f"byte {found[-1][0]}", f"more than {limit} values")
    return found


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
