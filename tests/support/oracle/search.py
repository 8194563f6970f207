"""The oracle's own search: is an identifier in an output, in any encoding and any form?

``fold`` gives the normal form of a text: NFKC, case folded, without marks, punctuation, spaces and invisible
characters, digits of any script as ASCII. ``read_output`` gives all readings of an output: as it is, with escapes of
HL7 and JSON, entities and percent signs decoded, without markup, with lines of consecutive segments joined, and base64
decoded, nested to a depth of three. It reports too much rather than too little; ``judge`` removes coincidences.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

SHORT = 5
"""Needles with fewer letters or digits are searched as whole words."""
_JSON_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_HEX_ESCAPE = re.compile(r"\\X((?:[0-9A-Fa-f]{2})+)\\")
_HL7_ESCAPE = re.compile(r"\\(?:\.[a-zA-Z]{2}[^\\|\r\n]{0,4}|([HNFSTREP]))\\|\\\.br\b")
_HL7_SIGNS = {"F": "|", "S": "^", "T": "&", "R": "~", "E": "\\"}
_TAG = re.compile(r"<!--|-->|<!\[CDATA\[|\]\]>|</?[A-Za-z][^<>]{0,400}>")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{12,}={0,2}")
_CONTINUED = re.compile(r"[\r\n]+(?:(?:OBX\|[^|]*\|[^|]*\|[^|]*\|[^|]*\|)|(?:NTE\|[^|]*\|[^|]*\|))")
_REST_OF_OBX = re.compile(r"\|\|\|\|\|\|F(?=[\r\n])")
_DEPTH = 3
_SEPARATOR = "\n\x1f\n"


@lru_cache(maxsize=65536)
def _fold_character(character: str) -> str:
    """The letters and digits of one character in normal form; a space for anything that separates words."""
    text = []
    for each in unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", character).casefold()):
        category = unicodedata.category(each)
        if category[0] == "N":
            text.append(str(unicodedata.digit(each, each)))
        elif category[0] == "L":
            text.append(each)
        elif category[0] == "M" or category == "Cf":
            continue
        else:
            text.append(" ")
    return "".join(text)


class _Folding(dict[int, str]):
    """A translation table that computes its entries."""

    def __missing__(self, key: int) -> str:
        self[key] = folded = _fold_character(chr(key))
        return folded


_FOLDING = _Folding()


def fold_words(text: str) -> str:
    """The normal form of ``text`` with the borders of words kept as spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_FOLDING).split())


def fold(text: str) -> str:
    """The normal form of ``text`` without any border."""
    return fold_words(text).replace(" ", "")


class Reading:
    """All readings of an output in normal form."""

    def __init__(self, raw: bytes, charset: str = "utf-8") -> None:
        texts = _SEPARATOR.join(dict.fromkeys(read_output(raw, charset)))
        self._words = f" {fold_words(texts)} "
        self._squeezed = self._words.replace(" ", "")

    def holds(self, needle: str) -> bool:
        """True if ``needle``, which is a folded text, occurs."""
        if len(needle) < SHORT and needle.isascii():
            return f" {needle} " in self._words
        return needle in self._squeezed


def read_output(raw: bytes, charset: str = "utf-8") -> Iterator[str]:
    """Every reading of the bytes of an output; ``charset`` is the real one of its input."""
    for name in dict.fromkeys(("utf-8", charset)):
        yield from _readings(raw.decode(name, "replace"), _DEPTH)


def _readings(text: str, depth: int) -> Iterator[str]:
    yield text
    plain = _join_segments(_unescape(text))
    if plain != text:
        yield plain
    decoded = unquote(unquote(html.unescape(html.unescape(plain))))
    if decoded != plain:
        yield decoded
    bare = _TAG.sub("", decoded)
    if bare != decoded:
        yield bare
    if "<!--" in decoded:
        yield _TAG.sub("", _COMMENT.sub("", decoded))
    if depth:
        for word in {found[0] for view in (decoded, bare) for found in _BASE64.finditer(view)}:
            inside = _decode_base64(word)
            if inside is not None:
                yield from _readings(inside, depth - 1)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    text = _HEX_ESCAPE.sub(lambda found: bytes.fromhex(found[1]).decode("utf-8", "replace"), text)
    text = _HL7_ESCAPE.sub(lambda found: _HL7_SIGNS.get(found[1], ""), text)
    text = _JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return text.replace("\\n", "\n").replace("\\r", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\/", "/")


def _join_segments(text: str) -> str:
    return _CONTINUED.sub("\n", _REST_OF_OBX.sub("", text)) if "|" in text else text


def _decode_base64(word: str) -> str | None:
    """The text that ``word`` encodes; None if it is no text."""
    try:
        text = base64.b64decode(word + "=" * (-len(word) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return None if any(unicodedata.category(c) == "Cc" and not c.isspace() for c in text) else text
