"""The shape that a surrogate takes over from its original: letter case, outer white space, dashes, line breaks."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from deid_agent.model import normalize_dashes

_PLAIN = str.maketrans(
    {"đ": "d", "ð": "d", "ł": "l", "ø": "o", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "ħ": "h", "ı": "i"}
)
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_BREAK = re.compile(r"[^\S\r\n]*(?:\r\n|\r|\n)\s*")


@lru_cache(maxsize=65_536)
def fold(text: str) -> str:
    """The letters and digits of ``text`` in lower case without accents. Two spellings of one value fold to one text."""
    if text.isascii():
        return _PUNCTUATION.sub("", text.lower())
    decomposed = unicodedata.normalize("NFKD", text.casefold()).translate(_PLAIN)
    return "".join(c for c in decomposed if unicodedata.category(c)[0] in "LN" or _is_vowel_sign(c))


def fold_all(words: Sequence[str]) -> list[str]:
    """``fold`` of each of ``words``, which contain no line end. A long list takes a tenth of the time."""
    text = unicodedata.normalize("NFKD", "\n".join(words).casefold())
    for char in set(text) - {"\n"}:
        if ord(char) in _PLAIN:
            text = text.replace(char, char.translate(_PLAIN))
        elif not (unicodedata.category(char)[0] in "LN" or _is_vowel_sign(char)):
            text = text.replace(char, "")
    return text.split("\n") if words else []


def _is_vowel_sign(char: str) -> bool:
    """True for marks that are a part of the word (Indic and Thai scripts); Latin accents and Arabic vowels are not."""
    return char > "\u0900" and unicodedata.category(char) in ("Mc", "Mn")


def has_content(text: str) -> bool:
    """True if ``text`` has more than white space and ASCII punctuation, so that it can identify someone."""
    return any(c.isalnum() or (not c.isascii() and not c.isspace()) for c in text)


def is_same_text(a: str, b: str) -> bool:
    """True if the two texts differ at most in case, accents, punctuation and spacing."""
    left, right = fold(a), fold(b)
    return left == right if left or right else a.split() == b.split()


def match_case(original: str, word: str) -> str:
    """``word`` in the letter case of ``original``: ABCDE for OKAFOR, abcde for okafor.

    If ``original`` is ASCII or Latin-1, so is the result: a message in that charset could not hold other letters.
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


def split_edges(text: str) -> tuple[str, str, str]:
    """Split ``text`` into leading white space, value and trailing white space."""
    core = text.strip()
    if not core:
        return text, "", ""
    start = text.index(core)
    return text[:start], core, text[start + len(core) :]


def restore_dashes(original: str, text: str) -> str:
    """``text`` with the kinds of dash and blank of ``original``, one by one; unchanged if their numbers differ."""
    signs = [c for c in original if normalize_dashes(c) in "- "]
    if len(signs) != sum(c in "- " for c in text):
        return text
    source = iter(signs)
    return "".join(next(source) if c in "- " else c for c in text)


def join_lines(text: str) -> str:
    """``text`` on one line."""
    return _BREAK.sub(" ", text)


def restore_line_breaks(original: str, text: str) -> str:
    """``text`` with the line breaks of ``original``, at about the same positions.

    Spaces become line breaks. Breaks without a space go to the end. A text with the same number of breaks is returned
    unchanged.
    """
    breaks = [(m.start() / len(original), m.group()) for m in _BREAK.finditer(original)]
    if len(breaks) == len(_BREAK.findall(text)):
        return text
    text = join_lines(text)
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


# Words of a value: letters with their marks, and apostrophes between letters.

_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff\u0e00-\u0e7f])"
_WORD = re.compile(rf"{_LETTER}+(?:['’ʻʼ`]{_LETTER}+)*")


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its start. ``joined``: by a hyphen to the word before. ``quoted``: like a nickname."""

    text: str = field(repr=False)
    start: int
    joined: bool
    quoted: bool


def split_words(value: str) -> list[Word]:
    """The words of ``value`` in order, without digits and punctuation."""
    out: list[Word] = []
    for found in _WORD.finditer(value):
        before = value[found.start() - 1] if found.start() else ""
        joined = bool(out) and before in "-‐‑–" and found.start() - 1 == out[-1].start + len(out[-1].text)
        out.append(Word(found[0], found.start(), joined, before != "" and before in "\"'“‘(«"))
    return out
