r"""Escape sequences: to characters with their bytes, and back.

HL7 v2.8.2 chapter 2.7. ``\F\ \S\ \T\ \R\ \E\ \P\`` and ``\Xdd\`` are characters, ``\.br\`` and the other
formatting commands are line breaks or spaces, ``\H\``, ``\N\`` and shifts (``\C..\``, ``\M..\``) are no
characters at all. Whatever looks like none of these is text: a stray backslash is common, and nobody knows what
a local ``\Z..\`` holds.
"""

import re
from array import array
from collections.abc import Sequence
from functools import lru_cache

from deid_agent.codec.hl7v2.charset import Chunk, View, decode
from deid_agent.codec.hl7v2.charset import encode as to_bytes
from deid_agent.codec.hl7v2.wire import Separators

_BREAKS = ("br", "sp", "sk", "ce", "in", "ti", "fi", "nf")


def unescape(view: View, a: int, b: int, marks: Separators) -> Chunk:
    """Characters ``[a, b)`` as a reader sees them. Several characters of one escape share its bytes: an atom."""
    if not marks.escape or marks.escape not in view.text[a:b]:
        return view.chunk(a, b)
    text: list[str] = []
    starts, ends, at = array("Q"), array("Q"), a
    for found in _pattern(marks.escape).finditer(view.text, a, b):
        _extend(text, starts, ends, view.chunk(at, found.start()))
        at = found.end()
        if means := _meaning(found, view.charset, marks):
            first, last = view.span(found.start(), found.end())
            text.append(means)
            starts.extend([first] * len(means))
            ends.extend([last] * len(means))
    _extend(text, starts, ends, view.chunk(at, b))
    return Chunk("".join(text), starts, ends)


def plain(view: View, a: int, b: int, marks: Separators) -> str:
    """The same without the bytes."""
    if not marks.escape or marks.escape not in view.text[a:b]:
        return view.string(a, b)
    return unescape(view, a, b, marks).text


def escape(text: str, charset: str, marks: Separators) -> bytes:
    """``text`` as a value: separators escaped, line breaks as ``\\.br\\``, bytes in ``charset``.

    What the charset or the declared separators can't express becomes a look-alike or a space.
    """
    if not text.isascii():  # look-alikes first: one may be a separator
        text = decode(to_bytes(text, charset), charset)
    e = marks.escape
    table = {ord(c): " " for c in "\x0b\x1c"}
    table[ord("\n")] = table[ord("\r")] = f"{e}.br{e}" if e else " "
    named = zip((marks.field, marks.component, marks.subcomponent, marks.repetition, e), "FSTRE", strict=True)
    table.update({ord(mark): f"{e}{letter}{e}" if e else " " for mark, letter in named if mark})
    return to_bytes(text.replace("\r\n", "\n").translate(table), charset)


@lru_cache(maxsize=64)
def _pattern(mark: str) -> re.Pattern[str]:
    e = re.escape(mark)
    body = r"([FSTREHNP])|X((?:[0-9A-Fa-f]{2})+)|([CM][0-9A-Fa-f]{4,6})|\.([a-z]{2})[-+0-9]{0,6}"
    return re.compile(rf"{e}(?:{body}){e}")


def _meaning(found: re.Match[str], charset: str, marks: Separators) -> str:
    letter, digits, shift, command = found.groups()
    if letter:
        return {
            "F": marks.field, "S": marks.component, "T": marks.subcomponent, "R": marks.repetition, "E": marks.escape,
            "P": "#",
        }.get(letter, "")  # fmt: skip
    if digits:
        text = decode(bytes.fromhex(digits), charset)
        return text if text.strip() else "\n" if "\n" in text or "\r" in text else " "
    if command in _BREAKS:
        return "\n" if command in {"br", "sp", "ce"} else " "
    return "" if shift else found[0]


def _extend(text: list[str], starts: "array[int]", ends: "array[int]", chunk: Chunk) -> None:
    text.append(chunk.text)
    _append(starts, chunk.starts)
    _append(ends, chunk.ends)


def _append(to: "array[int]", values: Sequence[int]) -> None:
    to.extend(values)
