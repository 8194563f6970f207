"""The scalars of a JSON text as byte ranges, and the characters inside one string.

Both work on bytes that ``orjson`` has accepted: they find places, they validate nothing.
Source: RFC 8259, sections 3 and 7.
"""

import re
from collections.abc import Sequence
from itertools import islice

from deid_agent.codec.places import Places
from deid_agent.errors import MessageError, Reason

_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-0-9tfn][-+.0-9A-Za-z]*+')
_WIDE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\.|[\xc2-\xf4][\x80-\xbf]+")


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
