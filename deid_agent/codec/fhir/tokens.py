"""JSON text as byte ranges: its strings and scalars, the characters of a string, and the leaves of a payload.

The functions expect bytes that ``orjson`` has accepted; they validate nothing.
Source: RFC 8259, sections 3 and 7.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from deid_agent.codec.fhir.names import CODED_MEMBERS, ElementNames
from deid_agent.codec.fhir.shapes import FhirTable
from deid_agent.codec.json_ranges import character_ranges
from deid_agent.codec.markup.readable import Attribute, EscapedText, escape_replacements, read_markup
from deid_agent.model import LeafRole, MappedText, MessageError, Narrative, Reason

_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-0-9tfn][-+.0-9A-Za-z]*+')
_ESCAPED = re.compile(rb'\\["\\]')
_BARE = re.compile(rb"[-0-9tfn][-+.0-9A-Za-z]*+")
_QUOTE = ord('"')
_STEPS = bytes(1 if sign in b"{[" else 255 if sign in b"}]" else 0 for sign in range(256))
"""The change of depth by each byte, as a signed byte."""

Range = tuple[int, int]

_ENCODED = frozenset({"data", "blob", "content", "hash"})


def _mask_escapes(text: bytes) -> bytes:
    """``text`` of the same length with escaped quotes replaced, so that each quote begins or ends a string.

    Pairs of backslashes are replaced too: a quote after one is not escaped.
    """
    return _ESCAPED.sub(b"..", text) if b"\\" in text else text


def count_quotes(text: bytes) -> int:
    """The number of quotes that begin or end a string."""
    return _mask_escapes(text).count(b'"')


class StringIndex:
    """The positions of all strings of a JSON text, keys included, found by their quotes in one vectorized pass.

    Quotes are numbered from 0: a string begins at an even quote and ends at the next. ``at[n]`` is the byte of quote
    ``n``; the last item is the length of the text.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._masked = _mask_escapes(raw)
        self._positions = np.flatnonzero(np.frombuffer(self._masked, np.uint8) == _QUOTE)
        self.at: list[int] = self._positions.tolist()
        self.quotes = len(self.at)
        self.at.append(len(raw))
        self._bare_before = -1
        self._found: list[tuple[int, int]] = []

    def depth(self) -> int:
        """The depth of nested objects and lists. A bracket inside a string has an odd number of quotes before it."""
        steps = np.frombuffer(self._masked.translate(_STEPS), np.int8)
        brackets = np.flatnonzero(steps != 0)
        outside = brackets[np.searchsorted(self._positions, brackets) % 2 == 0]
        return int(np.cumsum(steps[outside], dtype=np.int64).max(initial=0))

    def max_values(self) -> int:
        """An upper bound of the number of values and keys: a value without quotes follows one of ``:,[``."""
        return self.quotes // 2 + len(self._masked) - len(self._masked.translate(None, b":,["))

    def bare(self, quote: int, nth: int) -> tuple[int, int]:
        """The byte range of a value without quotes: the ``nth`` (from 0) between ``quote`` and the quote before it."""
        if self._bare_before != quote:
            start = self.at[quote - 1] + 1 if quote else 0
            self._bare_before = quote
            self._found = list(map(re.Match.span, _BARE.finditer(self._raw, start, self.at[quote])))
        return self._found[nth]


def scalar_ranges(raw: bytes, limit: int) -> list[tuple[int, int]]:
    """Byte ranges of all strings (with quotes, keys included), numbers and literals, in one pass.

    Raises ``MessageError(RESOURCE)`` if there are more than ``limit``.
    """
    found = list(map(re.Match.span, islice(_SCALAR.finditer(raw), limit + 1)))
    if len(found) > limit:
        raise MessageError(Reason.RESOURCE, f"byte {found[-1][0]}", f"more than {limit} values")
    return found


def check_value_count(raw: bytes, limit: int) -> None:
    """Raise ``MessageError(RESOURCE)`` if there are more than ``limit`` strings and scalars. Uses constant memory."""
    past = next(islice(_SCALAR.finditer(raw), limit, None), None)
    if past is not None:
        raise MessageError(Reason.RESOURCE, f"byte {past.start()}", f"more than {limit} values")


def read_xhtml(
    value: str,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    offset: int = 0,
    inline: frozenset[str] = frozenset(),
    tags: frozenset[str] | None = None,
    quoted: bool = False,
) -> tuple[EscapedText, tuple[Attribute, ...]]:
    """As ``read_markup`` for markup in a JSON string (``Narrative.div``); attribute names are in lower case.

    Replacements are escaped as markup; ``quoted`` for the value of an attribute.
    """
    mapped, attributes = read_markup(value, starts, ends, offset=offset, inline=inline, tags=tags)
    lowered = tuple(each._replace(name=each.name.lower()) for each in attributes)
    return escape_replacements(mapped, quoted=quoted), lowered


class FhirLeafReader:
    """Reads the leaves of one payload: its trees in parallel with the byte ranges of their scalars; used once."""

    def __init__(self, table: FhirTable, names: ElementNames, raw: bytes, spans: list[Range]) -> None:
        self._table = table
        self._names = names
        self._raw = raw
        self._next: Callable[[], Range] = iter(spans).__next__

    def resource(self, tree: Mapping[str, object]) -> Iterator[Narrative]:
        """The leaves of the next tree of the payload."""
        yield from self._object(tree, str(tree.get("resourceType", "")))

    def _object(self, node: Mapping[str, object], path: str) -> Iterator[Narrative]:
        system = self._table.is_public_system(node.get("system"))  # a sender may encode anything in its own
        for key, value in node.items():
            start, end = self._next()
            child_path = f"{path}.{key}"
            bare = key[1:] if key[:1] == "_" else key
            if not self._names.defines(bare):
                child_path = f"{path}.?"
                yield self._narrative(child_path, key, start + 1, end - 1, LeafRole.KEY)
            yield from self._value(value, child_path, key, self._role(bare, system=system))

    def _role(self, key: str, *, system: bool) -> LeafRole:
        if key in self._names.fixed:
            return LeafRole.CODE
        if system and key in CODED_MEMBERS:
            return LeafRole.LABEL if key == "display" else LeafRole.CODE
        return LeafRole.TEXT

    def _value(self, value: object, path: str, key: str, role: LeafRole) -> Iterator[Narrative]:
        if isinstance(value, dict):
            yield from self._object(value, path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._value(item, f"{path}[{index}]", key, role)
        else:
            start, end = self._next()
            if isinstance(value, str):
                if len(value) > 1 and key not in _ENCODED:
                    yield from self._string(value, start + 1, end - 1, path, key, role)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                text = self._raw[start:end].decode("ascii")
                yield Narrative(path, MappedText(text, range(start, end), range(start + 1, end + 1)), LeafRole.CODE)

    def _string(self, value: str, start: int, end: int, path: str, key: str, role: LeafRole) -> Iterator[Narrative]:
        if key != "div":
            yield self._narrative(path, value, start, end, role)
            return
        starts, ends = character_ranges(self._raw, start, end, len(value))
        mapped, attributes = read_xhtml(value, starts, ends, inline=self._table.inline, tags=self._table.tags)
        yield Narrative(path, mapped)
        for found in attributes:
            if found.name.startswith("xmlns") or found.name in {"class", "style"}:
                continue
            text, _ = read_xhtml(found.value, starts, ends, offset=found.start, quoted=True)
            yield Narrative(f"{path}/@{found.name}", text)

    def _narrative(self, path: str, value: str, start: int, end: int, role: LeafRole) -> Narrative:
        return Narrative(path, MappedText(value, *character_ranges(self._raw, start, end, len(value))), role)
