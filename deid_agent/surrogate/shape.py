"""What every surrogate keeps of its original: letter case, edges, line breaks."""

import re
import unicodedata
from functools import lru_cache

from deid_agent.text import plain

_PLAIN = str.maketrans(
    {"đ": "d", "ð": "d", "ł": "l", "ø": "o", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "ħ": "h", "ı": "i"}
)
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_BREAK = re.compile(r"[^\S\r\n]*(?:\r\n|\r|\n)\s*")


@lru_cache(maxsize=65_536)
def fold(text: str) -> str:
    """Lower-case letters and digits of ``text`` without accents: two spellings of one value fold alike."""
    if text.isascii():
        return _PUNCTUATION.sub("", text.lower())
    decomposed = unicodedata.normalize("NFKD", text.casefold()).translate(_PLAIN)
    return "".join(c for c in decomposed if unicodedata.category(c)[0] in "LN" or _is_vowel_sign(c))


def _is_vowel_sign(char: str) -> bool:
    """Marks that are part of a word in Indic and Thai scripts; Latin accents and Arabic vowel points are not."""
    return char > "\u0900" and unicodedata.category(char) in ("Mc", "Mn")


def has_content(text: str) -> bool:
    """True where something in ``text`` could name anyone: more than white space and ASCII punctuation."""
    return any(c.isalnum() or (not c.isascii() and not c.isspace()) for c in text)


def same(a: str, b: str) -> bool:
    """True where the two say the same thing (case, accents, punctuation and spacing aside)."""
    left, right = fold(a), fold(b)
    return left == right if left or right else a.split() == b.split()


def in_case_of(original: str, word: str) -> str:
    """``word`` in the letters of ``original``: OKAFOR gives ABCDE, okafor gives abcde.

    Accents go where the original has none like them: an ASCII or Latin-1 message could not carry the surrogate.
    """
    limit = 128 if original.isascii() else 256 if max(original) < "\u0100" else 0
    if limit and any(ord(c) >= limit for c in word):
        word = "".join(c if ord(c) < limit else _unaccented(c) for c in word)
    if original.isupper() and (len(original) > 1 or len(word) == 1):
        return word.upper()
    if original.islower():
        return word.lower()
    return word


def _unaccented(char: str) -> str:
    plain = _PLAIN.get(ord(char.lower()))
    if isinstance(plain, str):
        return plain.capitalize() if char.isupper() else plain
    base = unicodedata.normalize("NFKD", char)[0]
    return base if base.isascii() else ""


def edges(text: str) -> tuple[str, str, str]:
    """Leading white space, the value, trailing white space."""
    core = text.strip()
    if not core:
        return text, "", ""
    start = text.index(core)
    return text[:start], core, text[start + len(core) :]


def with_signs_of(original: str, text: str) -> str:
    """``text`` with the dashes and blanks of ``original`` one by one, where it has as many of them."""
    signs = [c for c in original if plain(c) in "- "]
    if len(signs) != sum(c in "- " for c in text):
        return text
    source = iter(signs)
    return "".join(next(source) if c in "- " else c for c in text)


def flat(text: str) -> str:
    """``text`` on one line."""
    return _BREAK.sub(" ", text)


def with_breaks_of(original: str, text: str) -> str:
    """``text`` with the line breaks of ``original``, at about the same places.

    Spaces become breaks where there are enough of them; what is left over goes to the end.
    A text that has as many breaks already is returned as it is.
    """
    breaks = [(m.start() / len(original), m.group()) for m in _BREAK.finditer(original)]
    if len(breaks) == len(_BREAK.findall(text)):
        return text
    text = flat(text)
    gaps = [i for i, c in enumerate(text) if c == " "]
    places: dict[int, str] = {}
    tail = ""
    for share, mark in breaks:
        free = [g for g in gaps if g > max(places, default=-1)]
        if free:
            places[min(free, key=lambda g: abs(g - share * len(text)))] = mark
        else:
            tail += mark
    return "".join(places.get(i, c) for i, c in enumerate(text)) + tail
