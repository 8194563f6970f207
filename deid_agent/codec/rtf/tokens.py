r"""RTF tokens (groups, control words, symbols, binary data, text), the meaning of control words, and RTF output.

Each byte belongs to exactly one token. Rich Text Format Specification 1.9.1, "RTF Syntax": a control word ends with a
space, which is part of it, or before a character that is no letter or digit; N bytes of any data follow ``\binN``.
A destination that is not listed here and is marked ``\*`` is removed.
"""

import codecs
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from deid_agent.model import MappedText, MessageError, Reason, Replacement

MAX_TOKENS = 2_000_000
"""The most tokens of one document."""
_PIECE = re.compile(
    rb"([^\\{}\r\n]++)|\\'([0-9A-Fa-f]{2})|\\([A-Za-z]++)(-?[0-9]++)? ?|(\{)|(\})|[\r\n]++|\\(\r\n|.)|(\\)", re.DOTALL
)
_MAX_DIGITS = 10


class RtfToken(IntEnum):
    """The kinds of tokens."""

    TEXT = 1
    BYTE = 2  # \'hh
    WORD = 3
    OPEN = 4
    CLOSE = 5
    SYMBOL = 6  # a backslash and one other character
    BREAK = 7  # line breaks of the file, which are not part of the text
    DATA = 8  # the bytes after \binN


_KINDS = (
    RtfToken.BREAK,
    RtfToken.TEXT,
    RtfToken.BYTE,
    RtfToken.WORD,
    RtfToken.WORD,
    RtfToken.OPEN,
    RtfToken.CLOSE,
    RtfToken.SYMBOL,
    RtfToken.SYMBOL,
)
"""The kind of a token by the last group of ``_PIECE`` that matched."""
_WORDS = (0, 0, 2, 3, 3, 0, 0, 7, 0)

Piece = tuple[RtfToken, int, int, bytes, int | None]
"""Kind, start, end, the word (or symbol, or hexadecimal digits), and the number after a word."""


def iter_tokens(raw: bytes) -> Iterator[Piece]:
    """The tokens of ``raw`` in order; each byte is in exactly one.

    Raises ``MessageError``: MALFORMED for ``\\bin`` past the end, RESOURCE past ``MAX_TOKENS``.
    """
    at = count = 0
    while at < len(raw):
        for found in _PIECE.finditer(raw, at):
            count += 1
            if count > MAX_TOKENS:
                raise MessageError(Reason.RESOURCE, f"byte {found.start()}", f"more than {MAX_TOKENS} tokens")
            start, at = found.span()
            which = found.lastindex or 0
            word = found[_WORDS[which]] if _WORDS[which] else b""
            number = int(found[4][:_MAX_DIGITS]) if which == 4 else None
            yield _KINDS[which], start, at, word, number
            if word == b"bin" and number and which == 4:
                start, at = at, at + number
                if not start < at <= len(raw):
                    raise MessageError(Reason.MALFORMED, f"byte {start}", "binary data longer than the file")
                yield RtfToken.DATA, start, at, b"", None
                break


REMOVED = frozenset(
    {
        b"info", b"pict", b"object", b"objdata", b"shppict", b"nonshppict", b"userprops", b"xmlnstbl", b"datastore",
        b"generator", b"themedata", b"colorschememapping", b"filetbl", b"template", b"private", b"nextfile", b"docvar",
        b"revtbl", b"protusertbl", b"passwordhash", b"atnid", b"atnauthor", b"fontemb", b"listpicture", b"datafield",
        b"formfield", b"background", b"ud", b"mailmerge",
    }
)  # fmt: skip
"""Destinations that are removed as a whole: properties, pictures, objects, authors, copies of a text (``\\ud``)."""
OPAQUE = frozenset({b"pict", b"objdata", b"datastore", b"themedata", b"colorschememapping", b"fontemb", b"shppict"})
"""Removed destinations that contain no text."""
SEPARATE = frozenset(
    {
        b"header", b"headerl", b"headerr", b"headerf", b"footer", b"footerl", b"footerr", b"footerf", b"footnote",
        b"annotation", b"stylesheet", b"fldinst", b"ftnsep", b"ftnsepc", b"ftncn", b"aftnsep", b"aftnsepc", b"aftncn",
        b"shptxt", b"dptxbxtext", b"sv", b"pn", b"pnseclvl", b"pntext", b"xe", b"rxe", b"txe", b"tc", b"tcn",
    }
)  # fmt: skip
"""Destinations with text apart from the body. Each is a narrative, so that it does not split a name in the body."""
KEPT = frozenset(
    {
        b"fonttbl", b"colortbl", b"listtable", b"listoverridetable", b"rsidtbl", b"latentstyles", b"expandedcolortbl",
        b"sn", b"pgptbl",
    }
)  # fmt: skip
"""Tables to which the text refers: names of fonts, list formats."""
TRANSPARENT = frozenset({b"shpinst", b"do", b"cs", b"ts", b"ds", b"nesttableprops", b"falt", b"panose", b"fname"})
r"""Destinations marked ``\*`` whose text is part of the surrounding text."""
BREAKS = MappingProxyType(
    {
        **dict.fromkeys(
            (
                b"par", b"line", b"sect", b"page", b"column", b"cell", b"nestcell", b"row", b"nestrow", b"softline",
                b"softpage", b"softcol", b"lbr",
            ),
            "\n",
        ),
        b"tab": "\t",
    }
)  # fmt: skip
"""Control words that are read as white space and never rewritten."""
CHARACTERS = MappingProxyType(
    {
        b"emdash": "—", b"endash": "–", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“", b"rdblquote": "”",
        b"bullet": "•", b"emspace": " ", b"enspace": " ", b"qmspace": " ",
    }
)  # fmt: skip
SYMBOLS = MappingProxyType({b"{": "{", b"}": "}", b"\\": "\\", b"~": " ", b"_": "-"})
FAMILIES = MappingProxyType({b"mac": "mac-roman", b"pc": "cp437", b"pca": "cp850", b"ansi": "cp1252"})
_FONTS = MappingProxyType(
    {
        77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255,
        178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850,
    }
)  # fmt: skip
_PAGES = MappingProxyType({10000: "mac-roman", 65001: "utf-8", 936: "gbk", 1361: "johab", 54936: "gb18030"})
MULTIBYTE = frozenset({"cp932", "gbk", "cp949", "cp950", "johab", "utf-8", "gb18030"})
"""Code pages with characters of several bytes."""


def charset_of_page(number: int | None) -> str:
    """The charset of ``\\ansicpgN``; windows-1252 if the code page is unknown."""
    name = _PAGES.get(number or 0, f"cp{number}")
    try:
        return name if name in MULTIBYTE or codecs.lookup(name).name in {name, "mac-roman"} else "cp1252"
    except LookupError:
        return "cp1252"


def charset_of_font(number: int | None) -> str | None:
    """The charset of ``\\fcharsetN``; None if the charset of the document applies."""
    found = _FONTS.get(number or 0)
    return charset_of_page(found) if found else None


_RUN = re.compile(r"[ -~]+|[\x00-\x1f\x7f]+|[^\x00-\x7f]+")
_SPECIAL = re.compile(r"[\\{}]")
_OPEN_WORD = re.compile(rb"(\\++)[A-Za-z]{1,40}(?:-?[0-9]{1,12})?\Z")


@dataclass(frozen=True, slots=True)
class RtfText(MappedText):
    """Mapped text of an RTF document."""

    raw: bytes = field(default=b"", repr=False)

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MappedText.place``; after a control word without an end, the replacement begins with a space."""
        for start, end, text in MappedText.place(self, replacements):
            yield start, end, " " + text if joins_control_word(self.raw, start) else text


def joins_control_word(raw: bytes, at: int) -> bool:
    r"""True if a letter at ``at`` would become part of the control word before it (``\b`` and ``Ada``)."""
    found = _OPEN_WORD.search(raw, max(0, at - 64), at)
    return found is not None and len(found[1]) % 2 == 1


class RtfFlow:
    """A text under construction: characters with their byte ranges, and structural breaks."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._text: list[str] = []
        self._starts, self._ends = array("Q"), array("Q")
        self._breaks: list[int] = []

    def add(self, text: str, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Add characters with the start and end of each."""
        self._text.append(text)
        self._starts.extend(starts)
        self._ends.extend(ends)

    def add_character(self, char: str, start: int, end: int) -> None:
        self.add(char, (start,), (end,))

    def add_break(self, char: str, start: int, end: int) -> None:
        """Add a character of structure, which is never rewritten."""
        self._breaks.append(len(self._starts))
        self.add_character(char, start, end)

    @property
    def end(self) -> int:
        """The end of the last character; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def extend_last(self, end: int, char: str = "") -> None:
        """Extend the last character to ``end``, and replace it by ``char`` if that is given."""
        self._ends[-1] = end
        if char:
            self._text[-1] = char

    def mapped(self, raw: bytes) -> RtfText | None:
        """The text; None if it is blank."""
        text = "".join(self._text)
        if not text.strip():
            return None
        return RtfText(text, self._starts, self._ends, frozenset(self._breaks), raw)


def encode_rtf(text: str) -> bytes:
    r"""``text`` as RTF: braces and backslashes escaped, breaks as ``\line``, the rest of Unicode as ``\uN``.

    The group around ``\uN`` makes ``?`` the one character to skip, for any outer value of ``\uc``.
    """
    out: list[str] = []
    for run in _RUN.findall(text):
        if run < " " or run[0] == "\x7f":
            out.append(_encode_controls(run))
        elif run.isascii():
            out.append(_SPECIAL.sub(r"\\\g<0>", run))
        else:
            units = run.encode("utf-16-le", "surrogatepass")
            codes = (int.from_bytes(units[i : i + 2], "little", signed=True) for i in range(0, len(units), 2))
            out.append("{\\uc1" + "".join(f"\\u{code}?" for code in codes) + "}")
    return "".join(out).encode("ascii")


def _encode_controls(run: str) -> str:
    return "".join({"\n": "\\line ", "\t": "\\tab "}.get(c, " ") for c in run.replace("\r\n", "\n"))
