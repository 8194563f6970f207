"""Charsets and escape sequences: bytes to characters in which separators are searched, and text back to bytes.

Charsets: HL7 v2.8.2 chapter 2.14.9.18 (MSH-18) and table 0211. The declared and the actual charset often disagree. A
value that cannot be decoded would not be searched, so decoding falls back to UTF-8 and latin-1.

Escape sequences: HL7 v2.8.2 chapter 2.7. Between escape characters, ``F S T R E P`` and ``Xdd`` are characters. ``.br``
and the other formatting commands are line breaks or spaces. ``H``, ``N`` and shifts (``C..``, ``M..``) are nothing.
Everything else is text: a stray backslash is common, and the meaning of a local ``Z..`` is unknown.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.charsets import decode_multibyte, encode_text
from deid_agent.codec.hl7v2.structure import Separators
from deid_agent.model import MessageError, Reason

_CHARSETS = MappingProxyType(
    {
        "ASCII": "ascii",
        "USASCII": "ascii",
        "ISOIR6": "ascii",
        **{f"8859{n}": f"iso8859-{n}" for n in (*range(1, 12), *range(13, 17))},
        **{f"ISO8859{n}": f"iso8859-{n}" for n in (*range(1, 12), *range(13, 17))},
        **{f"WINDOWS{n}": f"cp{n}" for n in range(1250, 1259)},
        **{f"CP{n}": f"cp{n}" for n in range(1250, 1259)},
        "LATIN1": "iso8859-1",
        "UNICODE": "utf-8",
        "UNICODEUTF8": "utf-8",
        "UTF8": "utf-8",
        "SHIFTJIS": "shift_jis",
        "SJIS": "shift_jis",
        "MS932": "cp932",
        "CP932": "cp932",
        "WINDOWS31J": "cp932",
        "GB18030": "gb18030",
        "GB180302000": "gb18030",
        "GB2312": "gb18030",
        "GBK": "gb18030",
        "BIG5": "big5",
        "KSX1001": "cp949",
        "EUCKR": "cp949",
        "EUCJP": "euc_jp",
        "ISOIR14": "iso2022",
        "ISOIR87": "iso2022",
        "ISOIR159": "iso2022",
        "ISO2022JP": "iso2022",
        "JAS2020": "iso2022",
        "JP": "iso2022",
        "CNS116431992": "none",
        "UNICODEUTF16": "none",
        "UNICODEUTF32": "none",
        "UTF16": "none",
        "UTF32": "none",
    }
)
_MULTIBYTE = frozenset({"shift_jis", "cp932", "gb18030", "big5", "cp949", "euc_jp", "iso2022"})
_READ_ISO2022 = "iso2022_jp_ext"
_WRITE_ISO2022 = "iso2022_jp_1"
_SHIFTED = re.compile(rb"\x1b(?!\([BJ])[^\r\n]*?(?:\x1b\([BJ]|(?=[\r\n])|\Z)", re.DOTALL)
_SIGNS = frozenset(map(chr, range(0xA0, 0xC0)))
_TWO_BYTE_SCRIPTS = tuple(
    _SIGNS.union(*(map(chr, part) for part in script))
    for script in (
        (range(0xC0, 0x180), range(0x1A0, 0x1A2), range(0x1AF, 0x1B1), range(0x218, 0x21C), range(0x300, 0x370)),
        (range(0x370, 0x400),),
        (range(0x400, 0x530),),
        (range(0x590, 0x600),),
        (range(0x600, 0x700),),
    )
)
"""The letters of Latin, Greek, Cyrillic, Hebrew and Arabic that have two bytes in UTF-8, each with common signs."""
_TWO_BYTES = 2
_LATIN = frozenset({"ascii", "iso8859-1", "iso8859-15", "cp1252"})
_BREAKS = ("br", "sp", "sk", "ce", "in", "ti", "fi", "nf")
"""Formatting commands that are read as a line break or a space."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Decoded characters and the byte range of each. Equal ranges side by side are an atom, rewritten as a whole."""

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class Hl7View:
    """A message as characters ``text`` in which separators can be searched.

    In a charset whose characters never contain a separator byte (single-byte charsets, UTF-8), ``text`` has one
    character per byte, ``starts`` and ``ends`` are None, and each value is decoded on its own. In any other charset
    ``text`` is decoded as a whole, and ``starts`` and ``ends`` map its characters to bytes.
    ``plain`` is true if ``text`` needs no further decoding.
    """

    raw: bytes = field(repr=False)
    text: str = field(repr=False)
    charset: str
    plain: bool
    starts: "array[int] | None" = None
    ends: "array[int] | None" = None

    def string(self, a: int, b: int) -> str:
        """Characters ``[a, b)`` decoded; escape sequences are left as they are."""
        text = self.text[a:b]
        if self.plain or self.starts is not None or text.isascii():
            return text
        return decode_bytes(self.raw[a:b], self.charset)

    def span(self, a: int, b: int) -> tuple[int, int]:
        """The byte range of characters ``[a, b)``.

        Raises ``MessageError(UNSUPPORTED)`` if they are part of an atom that cannot be edited in part.
        """
        starts, ends = self.starts, self.ends
        if starts is None or ends is None:
            return a, b
        if a >= b:
            at = starts[a] if a < len(starts) else len(self.raw)
            return at, at
        for inside, outside in ((a, a - 1), (b - 1, b)):
            if 0 <= outside < len(starts) and starts[inside] == starts[outside]:
                raise MessageError(Reason.UNSUPPORTED, f"byte {starts[inside]}", "separator inside a shift")
        return starts[a], ends[b - 1]

    def chunk(self, a: int, b: int) -> Chunk:
        """Characters ``[a, b)`` decoded, with the byte range of each."""
        if self.starts is not None and self.ends is not None:
            return Chunk(self.text[a:b], self.starts[a:b], self.ends[a:b])
        text = self.string(a, b)
        if len(text) == b - a:
            return Chunk(text, range(a, b), range(a + 1, b + 1))
        starts, ends, at = array("Q"), array("Q"), a
        for c in text:
            starts.append(at)
            at += 1 if c < "\x80" else 2 if c < "\u0800" else 3 if c < "\U00010000" else 4
            ends.append(at)
        return Chunk(text, starts, ends)


def is_charset_name(text: str) -> bool:
    """True for the name of a charset in any spelling."""
    return _fold(text) in _CHARSETS


def _fold(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper())


def parse_view(raw: bytes, declared: str) -> Hl7View:
    """``raw`` as characters, in the charset that MSH-18 declares or the bytes show.

    ``declared`` is MSH-18 with its repetitions joined by ``~``.
    Raises ``MessageError(UNSUPPORTED)`` for non-ASCII bytes in a charset that is not supported.
    """
    named = [_CHARSETS.get(_fold(part)) for part in declared.split("~")]
    charset = next((name for name in named if name in _MULTIBYTE), None) or next(filter(None, named), None)
    if raw.isascii() and (charset != "iso2022" or b"\x1b" not in raw):
        return Hl7View(raw, raw.decode("ascii"), charset if charset and charset != "none" else "ascii", True)
    if charset == "none":
        raise MessageError(Reason.UNSUPPORTED, "MSH-18", "charset not supported; send UNICODE UTF-8")
    if charset in _MULTIBYTE and _is_utf8(raw, str(charset)):
        # Read as declared, a character of three bytes would swallow the separator after it.
        return Hl7View(raw, raw.decode("latin-1"), "utf-8", False)
    if charset == "iso2022":
        return Hl7View(raw, *_decode_iso2022(raw))
    if charset in _MULTIBYTE:
        text, starts, ends = decode_multibyte(raw, str(charset))
        return Hl7View(raw, text, str(charset), False, starts, ends)
    # Senders that declare 8859/1 or ASCII and send UTF-8 are common; latin-1 text is never valid UTF-8 by chance.
    if _decodes_as(raw, "utf-8"):
        charset = "utf-8"
    elif charset in {None, "ascii"}:
        charset = "iso8859-1"
    return Hl7View(raw, raw.decode("latin-1"), str(charset), charset == "iso8859-1")


def _is_utf8(raw: bytes, declared: str) -> bool:
    """True if ``raw`` is UTF-8 although it declares a multi-byte charset.

    Text in those charsets is valid UTF-8 only if it has a few characters, and then with characters of two bytes, of
    scripts that do not occur together.
    """
    if b"\x1b" in raw or not _decodes_as(raw, "utf-8"):
        return False
    letters = {c for c in raw.decode("utf-8") if c > "\x7f"}
    if declared == "iso2022" or any(c >= "\u0800" for c in letters) or not _decodes_as(raw, declared):
        return True
    return any(all(c in script for c in letters) for script in _TWO_BYTE_SCRIPTS)


def _decode_iso2022(raw: bytes) -> "tuple[str, str, bool, array[int], array[int]]":
    """The fields of an ``Hl7View`` after ``raw``. The text between two shifts is one atom: it keeps its shifts."""
    out: list[str] = []
    starts, ends, at = array("Q"), array("Q"), 0
    for run in (*_SHIFTED.finditer(raw), None):
        until = run.start() if run else len(raw)
        out.append(raw[at:until].decode("latin-1"))
        starts.extend(range(at, until))
        ends.extend(range(at + 1, until + 1))
        if run:
            text = run[0].decode(_READ_ISO2022, "replace")
            out.append(text)
            starts.extend([run.start()] * len(text))
            ends.extend([run.end()] * len(text))
            at = run.end()
    return "".join(out), "iso2022", False, starts, ends


def decode_bytes(data: bytes, charset: str) -> str:
    """``data`` decoded as ``charset``, else as UTF-8, else as latin-1, which never fails."""
    for name in (_READ_ISO2022 if charset == "iso2022" else charset, "utf-8"):
        if _decodes_as(data, name):
            return data.decode(name)
    return data.decode("latin-1")


def encode_value(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; a character that the charset lacks becomes an ASCII look-alike, at worst ``?``."""
    return encode_text(text, _WRITE_ISO2022 if charset == "iso2022" else charset)


def _decodes_as(data: bytes, charset: str) -> bool:
    try:
        data.decode(charset)
    except UnicodeDecodeError:
        return False
    return True


def unescape(view: Hl7View, a: int, b: int, marks: Separators) -> Chunk:
    """Characters ``[a, b)`` with escape sequences resolved. Several characters of one sequence are an atom."""
    if not marks.escape or marks.escape not in view.text[a:b]:
        return view.chunk(a, b)
    text: list[str] = []
    starts, ends, at = array("Q"), array("Q"), a
    for found in _escape_pattern(marks.escape).finditer(view.text, a, b):
        _extend(text, starts, ends, view.chunk(at, found.start()))
        at = found.end()
        beside = view.text[max(a, found.start() - 1) : found.start()] + view.text[found.end() : min(b, found.end() + 1)]
        if resolved := _resolve_escape(found, view.charset, marks, beside):
            first, last = view.span(found.start(), found.end())
            text.append(resolved)
            starts.extend([first] * len(resolved))
            ends.extend([last] * len(resolved))
    _extend(text, starts, ends, view.chunk(at, b))
    return Chunk("".join(text), starts, ends)


def unescape_text(view: Hl7View, a: int, b: int, marks: Separators) -> str:
    """The text of ``unescape`` without the byte ranges."""
    if not marks.escape or marks.escape not in view.text[a:b]:
        return view.string(a, b)
    return unescape(view, a, b, marks).text


def escape_text(text: str, charset: str, marks: Separators) -> bytes:
    """``text`` as the bytes of a value: separators escaped, line breaks as ``\\.br\\``, in ``charset``.

    A character that neither the charset nor the declared separators can express becomes a look-alike or a space.
    """
    if not text.isascii():  # look-alikes first: one of them may be a separator
        text = decode_bytes(encode_value(text, charset), charset)
    if not text.isalnum():
        text = text.replace("\r\n", "\n").translate(_escapes(marks))
    return encode_value(text, charset)


@lru_cache(maxsize=64)
def _escapes(marks: Separators) -> dict[int, str]:
    """The escape sequence of each character that is none in a value. No separator is a letter or a digit."""
    e = marks.escape
    table = {ord(c): " " for c in "\x0b\x1c"}
    table[ord("\n")] = table[ord("\r")] = f"{e}.br{e}" if e else " "
    named = zip((marks.field, marks.component, marks.subcomponent, marks.repetition, e), "FSTRE", strict=True)
    table.update({ord(mark): f"{e}{letter}{e}" if e else " " for mark, letter in named if mark})
    return table


@lru_cache(maxsize=64)
def _escape_pattern(mark: str) -> re.Pattern[str]:
    e = re.escape(mark)
    # Some senders escape each byte of a character on its own.
    more = rf"(?:{e}{e}X[89A-Fa-f][0-9A-Fa-f])*"
    body = rf"([FSTREHNP])|X((?:[0-9A-Fa-f]{{2}})+{more})|([CM][0-9A-Fa-f]{{4,6}})|\.([a-z]{{2}})[-+0-9]{{0,6}}"
    return re.compile(rf"{e}(?:{body}){e}")


def _decode_hexadecimal(data: bytes, charset: str, beside: str) -> str:
    """The characters of a hexadecimal escape. It often holds UTF-8 although the message declares another charset.

    A single letter of two bytes may be one character of that charset too: it is UTF-8 beside a Latin letter.
    """
    if charset in _LATIN and not data.isascii() and _decodes_as(data, "utf-8"):
        return data.decode("utf-8")
    if charset in _MULTIBYTE and not data.isascii() and _is_utf8(data, charset):
        text = data.decode("utf-8")
        latin = any(c.isascii() and c.isalpha() for c in beside)
        if latin or len(data) > _TWO_BYTES:
            return text
    return decode_bytes(data, charset)


def _resolve_escape(found: re.Match[str], charset: str, marks: Separators, beside: str) -> str:
    """The characters of an escape sequence; ``beside`` are the characters before and after it."""
    letter, digits, shift, command = found.groups()
    if letter:
        return {
            "F": marks.field, "S": marks.component, "T": marks.subcomponent, "R": marks.repetition, "E": marks.escape,
            "P": "#",
        }.get(letter, "")  # fmt: skip
    if digits:
        text = _decode_hexadecimal(bytes.fromhex(digits.replace(f"{marks.escape * 2}X", "")), charset, beside)
        return text if text.strip() else "\n" if "\n" in text or "\r" in text else " "
    if command in _BREAKS:
        return "\n" if command in {"br", "sp", "ce"} else " "
    return "" if shift else found[0]


def _extend(text: list[str], starts: "array[int]", ends: "array[int]", chunk: Chunk) -> None:
    text.append(chunk.text)
    starts.extend(chunk.starts)
    ends.extend(chunk.ends)
