"""What a character model sees of each character: itself and its neighbours, and the columns of its token.

A character belongs to the token that holds it; a blank, to the token that follows. Columns of tokens are made once
for each token and read by its characters; ``word_b`` and ``word_a`` are those of the token before and after.
Time is linear in the text. Source: Liu 2015 section 3.2.3.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf.columns import Column, Ints, Spread, View
from deid_agent.crf.features import Features, at_units, combined, joined, parts
from deid_agent.crf.labels import Schema, encode
from deid_agent.spans import Span
from deid_agent.text import Document, Range

LONGEST = 1000
"""Characters of one chain: a longer line is read in pieces."""
_FAR = 4  # how far from the ends of its token a character's place is counted
_WORD = 20  # how much farther a window may reach to end at a blank
_AFTER, _BEFORE = "_a", "_b"

_GROUPS = ("person", "place", "people", "body", "plain")

CHARACTER_FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "character": (
            *(f"char[{i}]" for i in range(-5, 6)),
            *(f"char[{i}] char[{i + 1}]" for i in range(-3, 3)),
            *(f"char[{i}] char[{i + 1}] char[{i + 2}]" for i in range(-3, 2)),
        ),
        "class": (
            *(f"class[{i}]" for i in (-2, -1, 0, 1, 2)),
            *("class[-1] class[0]", "class[0] class[1]", "class[-1] class[0] class[1]"),
            *("class[-2] class[-1] class[0]", "class[0] class[1] class[2]", "spot[0]"),
        ),
        "token": (
            *("word[0]", "word_b[0]", "word_a[0]", "word[0] spot[0]", "word_b[0] word[0]", "word[0] word_a[0]"),
            *("shape_b[0] shape[0]", "shape[0] shape_a[0]", "shape_b[0] shape[0] shape_a[0]", "shape[0] spot[0]"),
            *("word_b[0] shape[0]", "shape[0] word_a[0]", "p3[0]", "s3[0]", "length[0] shape[0]"),
        ),
        "rule": (
            *(f"rule[{i}]" for i in (-5, -1, 0, 1, 5)),
            *("source[0]", "rule[-1] rule[0]", "rule[0] rule[1]", "rule[0] shape[0]"),
        ),
        "second": ("elsewhere[0]", "writing[0]"),
        "dictionary": (
            *(f"{group}[0]" for group in _GROUPS),
            *(f"{group}[0] shape[0]" for group in _GROUPS),
            *("person_b[0]", "person_a[0]", "place_b[0]", "place_a[0]", "body_b[0]", "body_a[0]"),
        ),
        "section": ("label[0]", "label[0] shape[0]", "section[0]"),
        "position": ("case[0] shape[0]", "zone[0] shape[0]"),
    }
)
"""The families of Liu's character model. ``character`` is his bag of characters, its window 5."""


@dataclass(slots=True)
class Characters:
    """The characters of one document as columns see them; the document has a token at least."""

    view: View
    owner: Ints = field(init=False, repr=False)
    _codes: NDArray[np.uint32] = field(init=False, repr=False)
    _made: dict[str, Spread] = field(init=False, repr=False)
    _tokens: dict[str, Column] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        doc = self.view.doc
        ends = np.array([end for _, end in doc.tokens], np.int64)
        self.owner = np.minimum(np.searchsorted(ends, np.arange(len(doc)), side="right"), len(ends) - 1)
        self._codes = np.frombuffer(doc.text.encode("utf-32-le", "surrogatepass"), np.uint32)
        self._made, self._tokens = {}, {}

    def column(self, name: str) -> Spread:
        """The column of that name, made once; raises ``ConfigurationError`` where there is none."""
        if name not in self._made:
            own = _OWN.get(name)
            self._made[name] = own(self) if own is not None else self._of_tokens(name)
        return self._made[name]

    def compact(self, name: str) -> Spread:
        """As ``column``: a column of characters is made of what they share."""
        return self.column(name)

    def _of_tokens(self, name: str) -> Spread:
        """A column of tokens, of the character's own or of that before or after; nothing beyond the ends."""
        move = {_BEFORE: -1, _AFTER: 1}.get(name[-2:], 0)
        name = name[:-2] if move else name
        values = self._tokens.get(name)
        if values is None:
            values = self._tokens[name] = self.view.column(name)
        return Spread([*values, ""], self.owner + move)  # -1 and the number of tokens both mean the last


@dataclass(frozen=True, slots=True)
class Chosen:
    """The features of some characters of a document, each made but once for all characters of a token where it can be.

    ``of(template)`` gives the numbers and whether they are of ``units`` or of ``heads``, one character of each token;
    ``back`` leads from units to heads.
    """

    features: Features
    characters: Characters
    units: Ints
    heads: Ints = field(init=False)
    back: Ints = field(init=False)
    _whole: dict[str, Ints] = field(init=False, default_factory=dict)
    _heads: dict[str, Ints] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        _, places, back = np.unique(self.characters.owner[self.units], return_index=True, return_inverse=True)
        object.__setattr__(self, "heads", self.units[places])
        object.__setattr__(self, "back", back)

    def of(self, template: str) -> tuple[Ints, bool]:
        """As ``Features.of`` numbers them; the second is true for numbers of ``heads``."""
        columns = parts(template)
        if all(_is_shared(name, offset) for name, offset in columns):
            return joined([self._of_heads(name) for name, _ in columns]), True
        return joined([self._of_units(name, offset) for name, offset in columns]), False

    def _of_heads(self, name: str) -> Ints:
        if name not in self._heads:
            column = self.characters.column(name)
            values = [column.values[at] for at in column.at[self.heads].tolist()]
            self._heads[name] = self.features.numbers(name, values)
        return self._heads[name]

    def _of_units(self, name: str, offset: int) -> Ints:
        if _is_shared(name, offset):
            return self._of_heads(name)[self.back]
        if name not in self._whole:
            self._whole[name] = self.features.numbers(name, self.characters.column(name))
        return at_units(self._whole[name], self.units + offset)


def _is_shared(name: str, offset: int) -> bool:
    """True where all characters of a token have the same value."""
    return name not in _OWN and offset == 0


def _char(char: str) -> str:
    """A character as the model knows it: lower case, digits alike; control characters and half surrogates alike."""
    if char.isdigit():
        return "0"
    if char in "\r\n":
        return "\n"
    if char.isspace():
        return " "
    if not char.isprintable():
        return "\x00"
    low = char.lower()
    return low if len(low) == 1 else char


def _class(char: str) -> str:
    if char.isalpha():
        return "X" if char.isupper() else "x"
    found = _char(char)
    return found if found in "0\n \x00" or char.isascii() else "?"


def _mapped(characters: Characters, reads: Callable[[str], str]) -> Spread:
    codes, at = np.unique(characters._codes, return_inverse=True)
    return Spread([reads(chr(code)) for code in codes.tolist()], at)


def _spots(characters: Characters) -> Spread:
    """The place of a character in its token, counted from both ends."""
    tokens = np.array(characters.view.doc.tokens, np.int64)[characters.owner]
    here = np.arange(len(characters.owner))
    before, after = here - tokens[:, 0], tokens[:, 1] - 1 - here
    wide = _FAR + 1
    at = np.minimum(before, _FAR) * wide + np.minimum(after, _FAR)
    values = [f"{a}/{b}" for a in range(wide) for b in range(wide)]
    return Spread([*values, "-"], np.where((before >= 0) & (after >= 0), at, len(values)))


def _rules(characters: Characters) -> Spread:
    """The spans of the first pass, BIOES over characters; outside is a value too."""
    names: dict[str, int] = {"O": 0}
    at = np.zeros(len(characters.owner), np.int64)
    for span in characters.view.first:
        inside, begin, end, lone = (names.setdefault(f"{p}-{span.type}", len(names)) for p in "IBES")
        at[span.start : span.end] = inside
        at[span.start], at[span.end - 1] = begin, end
        if len(span) == 1:
            at[span.start] = lone
    return Spread(list(names), at)


_OWN: Mapping[str, Callable[[Characters], Spread]] = MappingProxyType(
    {
        "char": lambda characters: _mapped(characters, _char),
        "class": lambda characters: _mapped(characters, _class),
        "spot": _spots,
        "rule": _rules,
    }
)


def windows(doc: Document, ranges: Sequence[Range], around: int) -> list[Range]:
    """Parts of lines, in order and disjoint, that hold the ranges with so many characters on both sides.

    A part ends at a blank where one is near, and holds at most ``LONGEST`` characters and no line end.
    """
    text = doc.text
    whole: list[list[int]] = []
    starts = [start for start, _ in doc.lines]
    for start, end in ranges:
        first, last = _line(doc, starts, start)
        a, b = max(first, start - around), min(last, max(end, start + 1) + around)
        while a > first and start - a < around + _WORD and not text[a - 1].isspace():
            a -= 1
        while b < last and b - end < around + _WORD and not text[b].isspace():
            b += 1
        if whole and a <= whole[-1][1]:
            whole[-1][1] = max(whole[-1][1], b)
        elif a < b:
            whole.append([a, b])
    return [piece for a, b in whole for piece in _pieces(a, b)]


def lines(doc: Document) -> list[Range]:
    """Every line as windows, its end left out."""
    return [piece for line in doc.lines for piece in _pieces(*_bare(doc, line))]


def _line(doc: Document, starts: Sequence[int], at: int) -> Range:
    return _bare(doc, doc.lines[bisect_right(starts, at) - 1])


def _bare(doc: Document, line: Range) -> Range:
    """A line without its end."""
    start, end = line
    while end > start and doc.text[end - 1] in "\r\n":
        end -= 1
    return start, end


def _pieces(start: int, end: int) -> Iterator[Range]:
    return ((at, min(end, at + LONGEST)) for at in range(start, end, LONGEST))


def examples(
    views: Iterable[tuple[View, Sequence[Span]]], features: Features, *, around: int, share: int
) -> Iterator[tuple[list[Ints], list[str]]]:
    """Features and labels of the windows around what is PHI or looks like it, and of each ``share``-th line besides.

    Most text is plainly no PHI and would only cost time: tagging reads the same windows.
    """
    count = 0
    for view, gold in views:
        doc = view.doc
        if not doc.tokens:
            continue
        ranges = sorted({(s.start, s.end) for s in (*gold, *view.first)})
        chosen = set(windows(doc, ranges, around))
        for line in lines(doc):
            count += 1
            if count % share == 0 and not any(a < line[1] and line[0] < b for a, b in chosen):
                chosen.add(line)
        characters = Characters(view)
        numbered = features.numbered(characters)
        for start, end in sorted(chosen):
            units = np.arange(start, end)
            labels = encode(gold, [(at, at + 1) for at in range(start, end)], Schema.EDGES)
            yield [combined(t, numbered, units) for t in features.templates], labels
