"""The characters of an HTML or XML document and the bytes of each.

Charset by byte order mark, XML declaration, ``meta``, else UTF-8, else latin-1 (which never fails).
Source: XML 1.0, 4.3.3 and appendix F; WHATWG Encoding, 4.2 (labels).
"""

import codecs
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from deid_agent.codec.multibyte import stateless
from deid_agent.codec.places import Places, part
from deid_agent.errors import MessageError, Reason
from deid_agent.mapped import MappedText

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8", 3),
    (b"\xff\xfe\x00\x00", "", 0),
    (b"\x00\x00\xfe\xff", "", 0),
    (b"\xff\xfe", "utf-16-le", 2),
    (b"\xfe\xff", "utf-16-be", 2),
    (b"<\x00", "utf-16-le", 0),
    (b"\x00<", "utf-16-be", 0),
)
_DECLARED = re.compile(rb"""\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_META = re.compile(rb"""<meta\s[^>]{0,400}?\bcharset\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_HEAD = 4096
_SINGLE = re.compile(r"iso8859-\d{1,2}|cp125\d|cp437|cp850|koi8-[rut]|mac-roman|tis-620")
_SEVERAL = frozenset(
    {"shift_jis", "cp932", "gb2312", "gbk", "gb18030", "big5", "euc_jp", "euc_kr", "cp949", "big5hkscs"}
)
_SHIFTED = re.compile(r"utf[-_]?7|iso[-_]?2022|hz|csiso2022", re.IGNORECASE)
_WIDTHS = re.compile("[\x00-\x7f]+|[\x80-\u07ff]+|[\u0800-\uffff]+|[\U00010000-\U0010ffff]+")
_PAIRS = re.compile("[\x00-\uffff]+|[\U00010000-\U0010ffff]+")


@dataclass(frozen=True, slots=True)
class View:
    """A document as characters; ``text[i]`` stands for bytes ``[starts[i], ends[i])``."""

    text: str = field(repr=False)
    charset: str
    starts: Sequence[int] = field(repr=False)
    ends: Sequence[int] = field(repr=False)

    def span(self, a: int, b: int) -> tuple[int, int]:
        """The bytes of characters ``[a, b)``; not empty."""
        return self.starts[a], self.ends[b - 1]

    def mapped(self, a: int, b: int) -> MappedText:
        """Characters ``[a, b)`` as they stand."""
        return MappedText(self.text[a:b], part(self.starts, a, b), part(self.ends, a, b))


def view(raw: bytes) -> View:
    """``raw`` as characters, without its byte order mark.

    Raises ``MessageError(UNSUPPORTED)`` for a charset with shifts (ISO-2022, UTF-7) and for UTF-32: there ASCII bytes
    need not be ASCII characters.
    """
    for mark, charset, width in _MARKS:
        if raw.startswith(mark):
            if not charset:
                raise _unsupported()
            found = _unicode(raw, charset, width)
            if found is None and width and charset != "utf-8":
                raise MessageError(Reason.MALFORMED, "byte 0", "not the UTF-16 that its byte order mark says")
            return found or _latin(raw)
    declared = _DECLARED.match(raw[:_HEAD]) or _META.search(raw[:_HEAD])
    name = declared[1].decode("ascii") if declared else "utf-8"
    if _SHIFTED.match(name):
        raise _unsupported()
    charset = _known(name)
    if raw.isascii():
        return View(raw.decode("ascii"), charset or "ascii", range(len(raw)), range(1, len(raw) + 1))
    # What declares another charset and is UTF-8 was carried through one; the reverse never reads as UTF-8 by chance.
    if found := _unicode(raw, "utf-8", 0):
        return found
    if charset in _SEVERAL:
        text, starts, ends = stateless(raw, charset)
        return View(text, charset, starts, ends)
    return _single(raw, charset) or _latin(raw)


def head(raw: bytes, size: int) -> str:
    """The first ``size`` bytes as text good enough to see what they begin; never raises."""
    for mark, charset, width in _MARKS:
        if charset and raw.startswith(mark):
            return raw[width:size].decode(charset, "replace")
    return raw[:size].decode("latin-1")


def encode(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; a character that it cannot hold becomes a character reference."""
    return text.encode(charset, "xmlcharrefreplace")


def _known(name: str) -> str:
    """Python's name for a charset that can be read here; empty for others."""
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    return found if found in _SEVERAL or found in {"utf-8", "ascii"} or _SINGLE.fullmatch(found) else ""


def _unicode(raw: bytes, charset: str, offset: int) -> View | None:
    try:
        text = raw[offset:].decode(charset)
    except UnicodeDecodeError:
        return None
    wide = charset != "utf-8"
    first, where, steps = array("Q"), array("Q"), array("B")
    at = offset
    for run in (_PAIRS if wide else _WIDTHS).finditer(text):
        size = len(text[run.start()].encode(charset))
        first.append(run.start())
        where.append(at)
        steps.append(size)
        at += size * (run.end() - run.start())
    if len(first) == 1:
        step, end = steps[0], offset + steps[0] * len(text)
        return View(text, charset, range(offset, end, step), range(offset + step, end + 1, step))
    last = array("Q", (a + step for a, step in zip(where, steps, strict=True)))
    size = len(text)
    return View(text, charset, Places(first, where, size, None, steps), Places(first, last, size, None, steps))


def _single(raw: bytes, charset: str) -> View | None:
    if not charset or charset in {"utf-8", "ascii"}:
        return None
    try:
        text = raw.decode(charset)
    except UnicodeDecodeError:
        return None
    return View(text, charset, range(len(raw)), range(1, len(raw) + 1))


def _latin(raw: bytes) -> View:
    return View(raw.decode("latin-1"), "latin-1", range(len(raw)), range(1, len(raw) + 1))


def _unsupported() -> MessageError:
    return MessageError(Reason.UNSUPPORTED, "byte 0", "charset not supported; send UTF-8")
