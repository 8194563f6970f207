"""Words of a value: letters with their marks, an apostrophe between letters included."""

import re
from dataclasses import dataclass, field

_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff\u0e00-\u0e7f])"
_WORD = re.compile(rf"{_LETTER}+(?:['’ʻʼ`]{_LETTER}+)*")


@dataclass(frozen=True, slots=True)
class Word:
    """One word and where it begins; ``joined`` by a hyphen to the word before, ``quoted`` as nicknames are."""

    text: str = field(repr=False)
    start: int
    joined: bool
    quoted: bool


def words_of(value: str) -> list[Word]:
    """The words of ``value`` in order; digits and punctuation are between them."""
    out: list[Word] = []
    for found in _WORD.finditer(value):
        before = value[found.start() - 1] if found.start() else ""
        joined = bool(out) and before in "-‐‑–" and found.start() - 1 == out[-1].start + len(out[-1].text)
        out.append(Word(found[0], found.start(), joined, before != "" and before in "\"'“‘(«"))
    return out
