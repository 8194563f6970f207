"""The byte ranges of the values of a JSON text and of the characters of a string, and edits of a string.

The functions expect bytes that ``orjson`` has accepted; they validate nothing.
Source: RFC 8259, sections 3 and 7.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.codec.charsets import Offsets
from deid_agent.model import Attachment

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-0-9tfn][-+.0-9A-Za-z]*+|[{}\[\]]')

_WIDE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\.|[\xc2-\xf4][\x80-\xbf]+")


@dataclass(slots=True)
class JsonRange:
    """A value in bytes ``[start, end)``: an object (``members``), a list (``items``), or a scalar (neither).

    A member is its key, the first byte of its key, and its value.
    """

    start: int
    end: int = 0
    members: "list[tuple[str, int, JsonRange]] | None" = field(default=None, repr=False)
    items: "list[JsonRange] | None" = field(default=None, repr=False)

    @property
    def is_scalar(self) -> bool:
        """True for a string, a number, ``true``, ``false`` and ``null``."""
        return self.members is None and self.items is None


def read_ranges(raw: bytes) -> JsonRange:
    """The ranges of a JSON text that ``orjson`` has accepted."""
    root = JsonRange(0)
    stack: list[JsonRange] = []
    key: tuple[str, int] | None = None
    for token in _TOKEN.finditer(raw):
        sign = token[0][:1]
        if sign in b"}]":
            stack.pop().end = token.end()
            continue
        owner = stack[-1] if stack else None
        if owner is not None and owner.members is not None and key is None:
            key = str(json.loads(token[0])), token.start()
            continue
        node = JsonRange(token.start(), token.end())
        if owner is None:
            root = node
        elif owner.members is not None and key is not None:
            owner.members.append((*key, node))
            key = None
        elif owner.items is not None:
            owner.items.append(node)
        if sign == b"{":
            node.members = []
            stack.append(node)
        elif sign == b"[":
            node.items = []
            stack.append(node)
    return root


def character_ranges(raw: bytes, start: int, end: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """The first byte and the end of each of the ``count`` characters of the string content ``raw[start:end]``.

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
    return Offsets(first, starts, count), Offsets(first, ends, count)


def find_string_end(raw: bytes, start: int) -> int:
    """The end of the string that begins with the quote at ``start``."""
    found = _TOKEN.match(raw, start)
    return found.end() if found else start


def rewrite_string(
    raw: bytes, slot: Attachment, new: str, encode: Callable[[str], bytes]
) -> Iterator[tuple[int, int, bytes]]:
    """The ranges of a JSON string that change, with their new bytes.

    Equal lines, and the equal beginnings and ends of the others, keep their bytes and escapes.
    """
    old = slot.data.decode("utf-8", "surrogatepass")
    starts, ends = character_ranges(raw, slot.start, slot.end, len(old))
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(before) != len(after):
        before, after = [old], [new]
    at = 0
    for one, two in zip(before, after, strict=True):
        if one != two:
            head = _common(one, two)
            tail = _common(one[head:][::-1], two[head:][::-1])
            first, last = at + head, at + len(one) - tail
            start = starts[first] if first < len(old) else slot.end
            yield start, ends[last - 1] if last > first else start, encode(two[head : len(two) - tail])
        at += len(one)


def _common(one: str, two: str) -> int:
    """The number of equal characters at the beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
