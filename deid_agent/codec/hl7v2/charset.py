"""From bytes to characters that separators are looked for in, and back.

HL7 v2.8.2 chapter 2.14.9.18 (MSH-18) and table 0211. Declared and actual
charset disagree often; a value that cannot be decoded would be a value that is not searched.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deid_agent import charsets
from deid_agent.codec.multibyte import stateless
from deid_agent.errors import MessageError, Reason

_NAMES = MappingProxyType(
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
_WIDE = frozenset({"shift_jis", "cp932", "gb18030", "big5", "cp949", "euc_jp", "iso2022"})
_READ = "iso2022_jp_ext"
_WRITE = "iso2022_jp_1"
_SHIFTED = re.compile(rb"\x1b(?!\([BJ])[^\r\n]*?(?:\x1b\([BJ]|(?=[\r\n])|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Decoded characters and the bytes that each stands for; equal ranges side by side are one atom."""

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class View:
    """A message as characters ``text`` in which separators can be looked for.

    Where a separator can't be part of another character (single bytes, UTF-8) ``text`` has one character
    per byte and each value is decoded alone, else ``text`` is decoded as a whole and ``starts`` and ``ends``
    map its characters to bytes.
    """

    raw: bytes = field(repr=False)
    text: str = field(repr=False)
    charset: str
    plain: bool
    starts: "array[int] | None" = None
    ends: "array[int] | None" = None

    def string(self, a: int, b: int) -> str:
        """Characters ``[a, b)`` decoded, escapes untouched."""
        text = self.text[a:b]
        if self.plain or self.starts is not None or text.isascii():
            return text
        return decode(self.raw[a:b], self.charset)

    def span(self, a: int, b: int) -> tuple[int, int]:
        """The bytes of characters ``[a, b)``.

        Raises ``MessageError(UNSUPPORTED)`` where they are part of a run that cannot be edited in part.
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
        """Characters ``[a, b)`` decoded, with the bytes of each."""
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


def view(raw: bytes, declared: str) -> View:
    """``raw`` as characters, by the charset that MSH-18 declares (repetitions joined by ``~``) or the bytes show.

    Raises ``MessageError(UNSUPPORTED)`` for non-ASCII bytes in a charset that nobody here can read.
    """
    named = [_NAMES.get(re.sub(r"[^A-Z0-9]", "", part.upper())) for part in declared.split("~")]
    charset = next((name for name in named if name in _WIDE), None) or next(filter(None, named), None)
    if raw.isascii() and (charset != "iso2022" or b"\x1b" not in raw):
        return View(raw, raw.decode("ascii"), charset if charset and charset != "none" else "ascii", True)
    if charset == "none":
        raise MessageError(Reason.UNSUPPORTED, "MSH-18", "charset not supported; send UNICODE UTF-8")
    if charset == "iso2022":
        return View(raw, *_iso2022(raw))
    if charset in _WIDE:
        text, starts, ends = stateless(raw, str(charset))
        return View(raw, text, str(charset), False, starts, ends)
    # Senders that declare 8859/1 or ASCII and send UTF-8 are common; the reverse never reads as UTF-8 by chance.
    if _reads_as(raw, "utf-8"):
        charset = "utf-8"
    elif charset in {None, "ascii"}:
        charset = "iso8859-1"
    return View(raw, raw.decode("latin-1"), str(charset), charset == "iso8859-1")


def decode(data: bytes, charset: str) -> str:
    """``data`` in ``charset``, else UTF-8, else latin-1, which never fails."""
    for name in (_READ if charset == "iso2022" else charset, "utf-8"):
        if _reads_as(data, name):
            return data.decode(name)
    return data.decode("latin-1")


def encode(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; what that can't hold becomes an ASCII look-alike, at worst ``?``."""
    return charsets.encode(text, _WRITE if charset == "iso2022" else charset)


def _reads_as(data: bytes, charset: str) -> bool:
    try:
        data.decode(charset)
    except UnicodeDecodeError:
        return False
    return True


def _iso2022(raw: bytes) -> "tuple[str, str, bool, array[int], array[int]]":
    """Every stretch between two escapes is one atom: a part of it can't be replaced without its escapes."""
    out: list[str] = []
    starts, ends, at = array("Q"), array("Q"), 0
    for run in (*_SHIFTED.finditer(raw), None):
        until = run.start() if run else len(raw)
        out.append(raw[at:until].decode("latin-1"))
        starts.extend(range(at, until))
        ends.extend(range(at + 1, until + 1))
        if run:
            text = run[0].decode(_READ, "replace")
            out.append(text)
            starts.extend([run.start()] * len(text))
            ends.extend([run.end()] * len(text))
            at = run.end()
    return "".join(out), "iso2022", False, starts, ends
