"""What the network reads of each token: its word, its characters, and what columns say of it, all as numbers.

A word that stands often is read once. Source: Dernoncourt 2016 section 2.2.2; the columns are those of the token CRF
(``deid_agent.crf.columns``), each value a row of one table instead of a feature.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf.columns import COLUMNS, Ints, Spread, View
from deid_agent.neural.vectors import Vectors

LONGEST_WORD = 16
"""Characters of a word that are read: of a longer one the first and the last."""
LONGEST = 128
"""Tokens of one sequence: a longer paragraph is read in pieces, cut between lines where that is possible."""
UNKNOWN = 1
"""The number of a character, and of a word, that training saw too rarely."""
_HALF = LONGEST_WORD // 2
_NONE = 0
_FIRST = 2  # the number of the first known character and word

Numbers = Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Texts as numbers. ``letters`` is ``[kind, place]``, 0 behind the end.

    ``learned`` and ``frozen`` ``[kind]`` are rows of the two tables of words. A kind is a word that stands at least
    once; ``kinds`` ``[token]`` says which. ``columns`` is ``[token, column]``.
    """

    letters: Ints
    learned: Ints
    frozen: Ints
    kinds: Ints
    columns: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.kinds)

    def part(self, tokens: slice) -> "Reading":
        """Those tokens alone, with their words."""
        if tokens == slice(0, len(self)):
            return self
        there, kinds = np.unique(self.kinds[tokens], return_inverse=True)
        words = (self.letters[there], self.learned[there], self.frozen[there])
        return Reading(*words, kinds, self.columns[tokens])


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The numbers of characters, of words with a vector learned from notes, and of the values of columns.

    Row 0 is none, and of a column a value that training never saw; 1 is a character or word that training saw too
    rarely.
    """

    characters: Numbers = field(repr=False)
    words: Numbers = field(repr=False)
    columns: Mapping[str, Numbers] = field(repr=False)
    vectors: Vectors | None = field(default=None, repr=False)

    @classmethod
    def learn(
        cls,
        views: Iterable[View],
        columns: Sequence[str],
        vectors: Vectors | None,
        *,
        word: int = 4,
        value: int = 5,
    ) -> "Inputs":
        """Numbers for what stands so often in the views, the most frequent first.

        Raises ``ConfigurationError`` for a name that is no column.
        """
        characters, words = Counter[str](), Counter[str]()
        values: dict[str, Counter[str]] = defaultdict(Counter)
        for view in views:
            for one in view.words:
                characters.update(one)
                words[_key(one)] += 1
            for name in columns:
                values[name].update(view.column(name))
        at, numbered = 1, {}
        for name in columns:
            numbered[name] = {v: at + place for place, v in enumerate(_often(values[name], value))}
            at += len(numbered[name])
        return cls(_numbers(_often(characters, word)), _numbers(_often(words, word)), numbered, vectors)

    @property
    def rows(self) -> tuple[int, int, int]:
        """How many rows the tables of characters, words and values have."""
        values = 1 + sum(len(numbers) for numbers in self.columns.values())
        return _FIRST + len(self.characters), _FIRST + len(self.words), values

    def read(self, views: Sequence[View]) -> Reading:
        """The tokens of all views, one behind another."""
        places: dict[str, int] = {}
        kinds = [self._kinds(view, places) for view in views]
        words = list(places)
        letters = np.zeros((len(words), min(LONGEST_WORD, max(map(len, words), default=0))), np.int64)
        known = self.characters.get
        for at, word in enumerate(words):
            seen = word if len(word) <= LONGEST_WORD else word[:_HALF] + word[-_HALF:]
            letters[at, : len(seen)] = [known(char, UNKNOWN) for char in seen]
        learned = np.array([self.words.get(_key(word), UNKNOWN) for word in words], np.int64)
        frozen = np.zeros(len(words), np.int64) if self.vectors is None else self.vectors.numbers(words)
        columns = [self._columns(view) for view in views]
        return Reading(letters, learned, frozen, np.concatenate(kinds), np.concatenate(columns))

    @staticmethod
    def _kinds(view: View, places: dict[str, int]) -> Ints:
        own, at = view.kinds
        return np.array([places.setdefault(word, len(places)) for word in own], np.int64)[at]

    def _columns(self, view: View) -> NDArray[np.int32]:
        found = np.zeros((len(view.words), len(self.columns)), np.int32)
        for place, (name, numbers) in enumerate(self.columns.items()):
            column = view.compact(name)
            if isinstance(column, Spread):
                found[:, place] = np.array([numbers.get(value, _NONE) for value in column.values], np.int64)[column.at]
            else:
                found[:, place] = [numbers.get(value, _NONE) for value in column]
        return found

    def checked(self) -> "Inputs":
        """Itself. Raises ``ValueError`` for a column that there is none of, or rows that are not one behind another."""
        rows = [row for numbers in self.columns.values() for row in numbers.values()]
        if any(name not in COLUMNS for name in self.columns) or rows != list(range(1, len(rows) + 1)):
            raise ValueError("columns")
        return self


def sequences(view: View) -> list[int]:
    """The sizes of the sequences that a text is read in: its paragraphs, the longer ones in pieces."""
    size, found = len(view.words), []
    edges = [0, *(at for at in view.paragraphs() if 0 < at < size), size]
    for start, end in pairwise(edges):
        at = start
        while end - at > LONGEST:
            cut = at + LONGEST
            while cut > at and view.line[cut] == view.line[cut - 1]:
                cut -= 1
            cut = cut if cut > at else at + LONGEST
            found.append(cut - at)
            at = cut
        if end > at:
            found.append(end - at)
    return found


@lru_cache(maxsize=65_536)
def _key(word: str) -> str:
    """The word as notes are counted by: in small letters, the digits of a number alike."""
    low = word.lower()
    return "0" * min(len(low), 8) if low.isdigit() and len(low) > 2 else low


def _often(counts: Counter[str], least: int) -> list[str]:
    return sorted((one for one, n in counts.items() if one and n >= least), key=lambda one: (-counts[one], one))


def _numbers(ordered: Sequence[str]) -> dict[str, int]:
    return {one: at for at, one in enumerate(ordered, _FIRST)}
