"""A text as its letters: without case and accents, without the cuts in its words, and the ranges of the original.

A word is cut by a line end, a blank, or a hyphen before them; or a blank or full stop divides each two of its letters.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from deid_agent.model import Document, Range, fold_accents
from deid_agent.recognize.written_values import is_written_without_blanks

LONGEST_FORM = 48
"""Letters of the longest form, and the most that are read on each side of one."""
_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0981-\u0983"
    "\u09bc-\u09cd\u0a3c-\u0dcf"
)
_CUT = re.compile(
    rf"(?=[ \t\r\n-])(?<=[^\W\d_]|[{_MARKS}])"
    r"(?:[ \t]{0,4}-?[ \t]{0,4}\r?\n[ \t\r\n]{0,4}|-?[ \t]{1,4}|[ \t]{1,2}-[ \t]{1,2})(?=[^\W\d_])"
)
"""The characters inside a word that a line end or a blank cuts, with a hyphen before it."""
_NO_WORD = re.compile(rf"(?:[^\w{_MARKS}]|_)+")
_SEPARATORS = (*" ._-", *(a + b + c for a in " \t" for b in " \t" for c in ("", " ", "\t")))
"""The characters that may separate each two letters of a name."""
PIECE = re.compile(rf"(?:[^\W\d_]|[{_MARKS}])+")
"""Letters with their marks, without a cut."""


def is_letter(char: str) -> bool:
    """True for a letter or mark of a script with blanks between words."""
    if char.isascii():
        return char.isalpha()
    return PIECE.match(char) is not None and not is_written_without_blanks(char)


def letters_before(text: str, start: int) -> str:
    """The letters that end at ``start``."""
    at = start
    while at > 0 and start - at < LONGEST_FORM and is_letter(text[at - 1]):
        at -= 1
    return text[at:start]


def letters_after(text: str, end: int) -> str:
    """The letters that begin at ``end``."""
    at = end
    while at < len(text) and at - end < LONGEST_FORM and is_letter(text[at]):
        at += 1
    return text[end:at]


@dataclass(frozen=True, slots=True)
class TextWithoutCuts:
    """A text without the cuts between two letters: line ends with hyphens and blanks around them, or blanks.

    ``cuts[i]`` is the character of ``text`` before which a range is missing; ``gains[i]`` are all missing characters up
    to there.
    """

    text: str = field(repr=False)
    cuts: Sequence[int] = field(repr=False)
    gains: Sequence[int] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> "TextWithoutCuts":
        """``text`` without its cuts."""
        parts: list[str] = []
        cuts: list[int] = []
        gains: list[int] = []
        at = gain = 0
        for found in _CUT.finditer(text):
            start, end = found.span()
            parts.append(text[at:start])
            at = end
            gain += end - start
            cuts.append(end - gain)
            gains.append(gain)
        return cls("".join((*parts, text[at:])), cuts, gains)

    def source(self, at: int) -> int:
        """The place of character ``at`` in the text with the cuts."""
        cut = bisect_right(self.cuts, at)
        return at + self.gains[cut - 1] if cut else at


def find_form(form: str, text: str, whole: TextWithoutCuts) -> Iterator[Range]:
    """The ranges of ``form`` in ``text``, cut or with its letters apart; disjoint, the first of two that overlap.

    A pattern for each name would take longer to compile than to search for.
    """
    found = [(whole.source(at), whole.source(at + len(form) - 1) + 1) for at in find_all(form, whole.text)]
    for separator in _SEPARATORS if whole.text is not text else ():
        apart = separator.join(form)
        found += ((at, at + len(apart)) for at in find_all(apart, text))
    yield from disjoint(sorted(found))


def disjoint(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges, which are in order, without those that overlap an earlier one."""
    last = 0
    for start, end in ranges:
        if start >= last:
            yield start, end
            last = end


def find_all(words: str, text: str) -> Iterator[int]:
    """The places of ``words`` in ``text``; they may overlap."""
    at = text.find(words)
    while at >= 0:
        yield at
        at = text.find(words, at + 1)


class _Folded(dict[int, str]):
    """The letters without case and accents of each character: none for an accent, two for a ligature."""

    def __missing__(self, code: int) -> str:
        self[code] = fold_accents(chr(code))
        return self[code]


_FOLDED = _Folded()


def fold_letters(text: str) -> str:
    """``text`` without case and accents."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def compact_letters(text: str, folded: str) -> str:
    """The letters and digits of ``text``, of which ``folded`` is the folded form, without all other characters."""
    return Document(text).compact if text.isascii() else _NO_WORD.sub("", folded)


@dataclass(frozen=True)
class FoldedText:
    """A text and its folded form, which may have more or fewer characters."""

    text: str = field(repr=False)
    folded: str = field(repr=False)

    def source(self, start: int, end: int) -> Range:
        """The range of ``text`` of characters ``[start, end)`` of ``folded``."""
        if self.text.isascii():
            return start, end
        last = bisect_left(self._ends, end)
        while last + 1 < len(self._ends) and self._ends[last + 1] == self._ends[last]:
            last += 1  # the accents of the last letter
        return bisect_right(self._ends, start), last + 1

    @cached_property
    def _ends(self) -> Sequence[int]:
        return list(accumulate(len(_FOLDED[ord(each)]) for each in self.text))
