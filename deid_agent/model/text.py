"""The document that recognizers read: an immutable text with cached views.

All offsets are characters (code points) of ``Document.text``. Pattern matching runs over UTF-8 bytes, so the document
also maps bytes to characters. For ASCII text the map is the identity and costs nothing.
"""

import base64
import binascii
import html
import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TypeVar, cast
from urllib.parse import unquote_to_bytes

from deid_agent.model.sites import Fact

Range = tuple[int, int]
T = TypeVar("T")


def _mark_class() -> str:
    """Combining marks of all scripts as ranges of a character class, so that a decomposed name is one token."""
    marks = (c for c in range(0x300, 0x1E95B) if unicodedata.category(chr(c))[0] == "M")
    runs = ([c for _, c in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0]))
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


_MARKS = _mark_class()
_TOKEN = re.compile(rf"\d+|(?:[^\W\d_]|[{_MARKS}])+|[^\s]")
_ASCII_TOKEN = re.compile(r"\d+|[A-Za-z]+|\S")
"""The same tokens of a text in ASCII, found in half of the time."""
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_WIDE = re.compile(r"[^\x00-\x7f]")

DASHES = "\u2010\u2011\u2012\u2013\u2212"
BLANKS = "\u00a0\u202f"
_PLAIN = str.maketrans(dict.fromkeys(DASHES, "-") | dict.fromkeys(BLANKS, " "))


def normalize_dashes(text: str) -> str:
    """``text`` with typographic dashes as ``-`` and non-breaking spaces as blanks; the length does not change."""
    return text if text.isascii() else text.translate(_PLAIN)


def lower_keeping_length(text: str) -> str:
    """``text`` in lower case and of the same length, so that offsets remain valid.

    Characters with a longer lower case (U+0130) are left unchanged.
    """
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def fold_accents(word: str) -> str:
    """``word`` in lower case without accents, for comparing names. The length may change."""
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word.translate(_STROKED).casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


_STROKED = str.maketrans(
    {
        **{"ø": "o", "Ø": "o", "ł": "l", "Ł": "l", "đ": "d", "Đ": "d", "ð": "d", "Ð": "d", "ı": "i"},
        **{"æ": "ae", "Æ": "ae", "œ": "oe", "Œ": "oe", "þ": "th", "Þ": "th"},
    }
)


def joins_word(char: str) -> bool:
    """Return true if ``char`` next to a word belongs to it: a letter, a digit or a combining mark."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


_NO_ALNUM = re.compile(r"[^0-9a-z]+")
_NOT_ALNUM = {code: None for code in range(128) if not (chr(code).isalnum() and chr(code) == chr(code).lower())}


@dataclass(frozen=True)
class Document:
    """A text and the facts of its message. Documents compare by text and facts; ``repr`` shows neither."""

    text: str = field(repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def _views(self) -> dict[Hashable, object]:
        return {}

    def view(self, key: Hashable, compute: Callable[["Document"], T]) -> T:
        """The result of ``compute`` for this document, computed once for each ``key``."""
        if key not in self._views:
            self._views[key] = compute(self)
        return cast(T, self._views[key])

    @cached_property
    def normalized(self) -> "Document":
        """The document with normalized dashes and blanks, as rules read it; the offsets are the same."""
        text = normalize_dashes(self.text)
        return self if text == self.text else Document(text, self.facts)

    @cached_property
    def lower(self) -> str:
        """The text in lower case, with the same length."""
        return lower_keeping_length(self.text)

    @cached_property
    def compact(self) -> str:
        """The ASCII letters, in lower case, and the ASCII digits of the text, without all other characters."""
        return self.lower.translate(_NOT_ALNUM) if self.text.isascii() else _NO_ALNUM.sub("", self.lower)

    @cached_property
    def tokens(self) -> tuple[Range, ...]:
        """Runs of letters with their marks, runs of digits, and single other characters; no white space."""
        pattern = _ASCII_TOKEN if self.text.isascii() else _TOKEN
        return tuple(map(re.Match.span, pattern.finditer(self.text)))

    @cached_property
    def folded_tokens(self) -> list[str]:
        """The text of each token without case and accents (``fold_accents``)."""
        if self.text.isascii():
            lower = self.lower
            return [lower[a:b] for a, b in self.tokens]
        return [fold_accents(word) for word in self.pieces(self.tokens)]

    @cached_property
    def words(self) -> tuple[Range, ...]:
        """Runs of characters other than white space."""
        return tuple(map(re.Match.span, _WORD.finditer(self.text)))

    @cached_property
    def lines(self) -> tuple[Range, ...]:
        """Lines with their line ends; concatenated they are the text."""
        return tuple(m.span() for m in _LINE.finditer(self.text) if m.end() > m.start())

    @cached_property
    def utf8(self) -> bytes:
        """The text in UTF-8; a lone surrogate becomes three bytes that no pattern matches."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def _wide(self) -> tuple[list[int], list[int], list[int]]:
        """For each non-ASCII character: its index, its first byte, and the extra bytes up to and including it."""
        chars: list[int] = []
        firsts: list[int] = []
        gains: list[int] = []
        gain = 0
        for found in _WIDE.finditer(self.text):
            chars.append(found.start())
            firsts.append(found.start() + gain)
            code = ord(found.group())
            gain += 1 if code < 0x800 else 2 if code < 0x10000 else 3
            gains.append(gain)
        return chars, firsts, gains

    def char(self, byte: int) -> int:
        """The index of the character that byte ``byte`` belongs to; the length of the text for the end of the bytes."""
        if self.text.isascii():
            return byte
        chars, firsts, gains = self._wide
        at = bisect_right(firsts, byte) - 1
        if at < 0:
            return byte
        return max(byte - gains[at], chars[at])

    def byte(self, char: int) -> int:
        """The index of the first byte of character ``char``."""
        if self.text.isascii():
            return char
        chars, _, gains = self._wide
        at = bisect_right(chars, char - 1) - 1
        return char if at < 0 else char + gains[at]

    def pieces(self, ranges: tuple[Range, ...]) -> Iterator[str]:
        """The text of each range."""
        return (self.text[a:b] for a, b in ranges)


# Normal forms. One identifier has many writings: fullwidth, with soft hyphens, percent-encoded, cut by a tag. Two texts
# are compared by their normal forms, and a range of a normal form leads back to the range of the text.

_IGNORABLE = (
    "\x00\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[{_IGNORABLE}]")
_ANOTHER_WRITING = re.compile(
    r"(?P<tag><!--[^<>]{0,400}?-->|<!\[CDATA\[|\]\]>|</?[A-Za-z][^<>]{0,300}>)"
    r"|(?P<entity>[&\n](?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8}[0-9]{0,2});)"
    r"|(?P<percent>(?:%[0-9A-Fa-f]{2})+)"
    r"|(?P<base64>(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{11,}={0,2})"
    r"|(?P<mark>[*~_]{1,3}(?=[^\W_]))"
    r"|(?P<wide>[A-Za-z]?[^\x01-\x7f]+)"
)
_EMPHASIS = re.compile(r"\*{1,3}|~~|__")
_ENDS_WORD = re.compile(rf"[^\W_]|[{_MARKS}]")
_MISREAD = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]")
_CLUSTER = re.compile(rf"[\u1100-\u11ff\uffa1-\uffdc]+|.[{_MARKS}\uff9e\uff9f{_IGNORABLE}]*", re.DOTALL)
_LINE_TAG = re.compile(
    r"</?(?:address|blockquote|body|br|caption|center|d[dlt]|div|h[1-6r]|li|[ou]l|p|pre|t[dhr]|table)\b"
)
_DEEPEST_WRITING = 4  # an encoded tag in an encoded text


@dataclass(frozen=True, slots=True)
class NormalText:
    """A text in another form: character ``i`` was written as characters ``[starts[i], ends[i])``."""

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]

    def source(self, start: int, end: int) -> Range:
        """The range in which characters ``[start, end)`` were written; ``end`` is after ``start``."""
        return self.starts[start], self.ends[end - 1]

    def over(self, below: "NormalText | None") -> "NormalText":
        """This form of the text of ``below``, with the ranges of the text below it."""
        if below is None:
            return self
        last = len(below.text)
        starts = array("Q", (below.starts[at] if at < last else below.ends[last - 1] for at in self.starts))
        ends = array(
            "Q", (below.ends[b - 1] if b > a else s for a, b, s in zip(self.starts, self.ends, starts, strict=True))
        )
        return NormalText(self.text, starts, ends)


def normalize_writing(text: str) -> NormalText | None:
    """The normal form of ``text``; None if ``text`` is its own normal form.

    Unicode NFKC, digits of any script as ASCII, without default-ignorable characters, tags, and the marks of emphasis
    inside a word; a tag that ends a line becomes a line end. Character references, percent-encoding, and base64 of a
    text are decoded.
    """
    found: NormalText | None = None
    for _ in range(_DEEPEST_WRITING):
        deeper = _normalize_once(text if found is None else found.text)
        if deeper is None:
            break
        found = deeper.over(found)
        if not found.text:
            break
    return found


def _normalize_once(text: str) -> NormalText | None:
    parts: list[str] = []
    starts, ends, at = array("Q"), array("Q"), 0
    for found in _ANOTHER_WRITING.finditer(text):
        whole, written, (a, b) = found.lastgroup == "wide", found[0], found.span()
        if found.lastgroup == "mark" and not (_EMPHASIS.fullmatch(written) and _ENDS_WORD.match(text[a - 1 : a])):
            continue
        again = _read_again(written) if whole else None
        if whole and again is None and unicodedata.is_normalized("NFKC", written) and not _has_odd_character(written):
            continue
        if again is not None:
            pieces = [(again, a, b)]
        else:
            pieces = list(_normalize_wide(written, a)) if whole else [(_decode(found), a, b)]
        if not whole and pieces[0][0] == written:
            continue
        parts.append(text[at:a])
        starts.extend(range(at, a))
        ends.extend(range(at + 1, a + 1))
        for new, first, last in pieces:
            parts.append(new)
            starts.extend([first] * len(new))
            ends.extend([last] * len(new))
        at = b
    if not at:
        return None
    parts.append(text[at:])
    starts.extend(range(at, len(text)))
    ends.extend(range(at + 1, len(text) + 1))
    return NormalText("".join(parts), starts, ends)


def _read_again(text: str) -> str | None:
    """The text whose UTF-8 was read as Windows-1252 (``Ã¼`` for ``ü``); None if ``text`` is none of that."""
    if not _MISREAD.search(text):
        return None
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return None


def _has_odd_character(text: str) -> bool:
    return _UNSEEN.search(text) is not None or any(c.isdecimal() for c in text)


def _normalize_wide(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    for cluster in _CLUSTER.finditer(text):
        plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", cluster[0]))
        new = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in plain)
        yield new, at + cluster.start(), at + cluster.end()


def _decode(found: re.Match[str]) -> str:
    """The text that a tag, a mark, a reference, percent-encoding or base64 stands for; the writing if it has none."""
    old = found[0]
    match found.lastgroup:
        case "tag":
            return "\n" if _LINE_TAG.match(old.lower()) else ""
        case "mark":
            return ""
        case "entity":  # a separator of HL7 v2 may have replaced the ampersand
            new = html.unescape(f"&{old[1:]}")
            return old if new == f"&{old[1:]}" or "\x00" in new else new
        case "percent":
            return _as_text(unquote_to_bytes(old), old) or old
    return decode_base64_text(old)


def decode_base64_text(word: str) -> str:
    """The printable text that ``word`` is base64 of; ``word`` if it is none."""
    if word[1:].islower() or word.isupper() or not any(c.isalpha() for c in word):
        return word  # a word or a number, even if it decodes to something
    dense = word.rstrip("=").translate(_URL_SAFE)
    try:
        data = base64.b64decode(dense + "=" * (-len(dense) % 4), validate=True)
    except (binascii.Error, ValueError):
        return word
    return _as_text(data, word)


_URL_SAFE = str.maketrans("-_", "+/")


def _as_text(data: bytes, otherwise: str) -> str:
    """``data`` as UTF-8 if all of it is printable; else ``otherwise``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return otherwise
    return text if all(c.isprintable() or c in "\r\n\t" or _is_unseen(c) for c in text) else otherwise


def _is_unseen(char: str) -> bool:
    """True for a blank of any width and for a character that is ignored."""
    return unicodedata.category(char) == "Zs" or _UNSEEN.match(char) is not None
