"""Features of tokens as numbers: the number that a model has for each known value.

Most features depend only on the word of a token, on its sense, or on the lists that contain it. The numbers of such a
word, sense or set of lists are computed once and kept for later documents. The tables of them are bounded, and they
hold words of documents: they are never written or shown.
"""

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from deid_agent import core
from deid_agent.nlp.token_features import FeatureValues, IndexedFeature, Ints, TokenFeatures, cue_kinds
from deid_agent.nlp.word_features import (
    PREVIOUS_TAGS_FEATURES,
    PREVIOUS_WORD_FEATURES,
    SENSE_FEATURES,
    TAG_FEATURES,
    WORD_FEATURES,
)
from deid_agent.rules import Tags

MOST_ROWS = 32_768
"""A table with more rows is emptied before the next document."""

U = TypeVar("U", bound=Hashable)


class RowTable(Generic[U]):
    """Rows of ``width`` numbers, one for each unit: a word, a sense or a set of lists. Kept by unit once computed."""

    def __init__(
        self, width: int, compute: Callable[[U], Sequence[int]], compiled: Callable[[U], bytes | None] | None = None
    ) -> None:
        """``compute`` defines a row; ``compiled`` returns the same in bytes, or None if it cannot."""
        self._width = width
        self._compute = compute
        self._compiled = compiled
        self._rows: dict[U, bytes] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def columns(self, units: Sequence[U]) -> Ints:
        """The numbers of ``units``, and a 0 after them, which index -1 selects: ``[number, unit]``."""
        if len(self._rows) > MOST_ROWS:
            self._rows = {}
        known = self._rows
        rows = [known.get(unit) or self._add(unit, known) for unit in units]
        rows.append(bytes(4 * self._width))
        return np.frombuffer(b"".join(rows), np.int32).reshape(len(rows), self._width).T.astype(np.int64, order="C")

    def _add(self, unit: U, known: dict[U, bytes]) -> bytes:
        row = None if self._compiled is None else self._compiled(unit)
        if row is None:
            row = array("i", self._compute(unit)).tobytes()
        known[unit] = row
        return row


class FeatureNumbers:
    """Numbers the values of features: ``vocabulary`` has the numbers of known values, any other value has 0."""

    def __init__(self, vocabulary: Mapping[str, Mapping[str, int]]) -> None:
        self._vocabulary = vocabulary
        self._words = _FeatureTable(WORD_FEATURES, vocabulary, of_words=True)
        self._words_before = _FeatureTable(PREVIOUS_WORD_FEATURES, vocabulary, of_words=True)
        self._tags = _FeatureTable(TAG_FEATURES, vocabulary)
        self._tags_before = _FeatureTable(PREVIOUS_TAGS_FEATURES, vocabulary)
        self._senses = _FeatureTable(SENSE_FEATURES, vocabulary)
        tables = (self._words, self._words_before, self._tags, self._tags_before, self._senses)
        tabled = {name for table in tables for name in table.names}
        self._others = tuple(name for name in vocabulary if name not in tabled)
        self._is_compiled = bool(vocabulary) and _IN_CORE.issuperset(self._others)
        self._reader = core.Prepared()

    def encode(self, tokens: TokenFeatures) -> dict[str, Ints]:
        """For each feature of the vocabulary the number of its value, ``[token]``."""
        words, word_index = tokens.distinct_words
        tags, tags_index = tokens.distinct_tags
        return {
            **self._words.encode(words, word_index),
            **self._words_before.encode(words, tokens.index_before(word_index)),
            **self._tags.encode(tags, tags_index),
            **self._tags_before.encode(tags, tokens.index_before(tags_index)),
            **self._senses.encode(tokens.distinct_senses, word_index),
            **{name: number_values(self._vocabulary[name], tokens.indexed_feature(name)) for name in self._others},
        }

    def encode_rows(self, tokens: TokenFeatures, *, by_token: bool = False) -> NDArray[np.int32]:
        """The same numbers in the order of the vocabulary, ``[feature, token]`` or ``[token, feature]``."""
        view = tokens.in_core() if self._is_compiled else None
        size, count = len(tokens.doc.tokens), len(self._vocabulary)
        if view is None or not size:
            found = self.encode(tokens)
            rows = np.array([found[name] for name in self._vocabulary], np.int32).reshape(count, size)
            return rows.T if by_token else rows
        data = self._reader.get(self._build_reader).encode(view, tokens.dictionaries.senses, by_token)
        return np.frombuffer(data, np.int32).reshape((size, count) if by_token else (count, size))

    def _build_reader(self) -> Any:
        features = [(name, *_find_group(name), dict(numbers)) for name, numbers in self._vocabulary.items()]
        of_tags = {**TAG_FEATURES, **PREVIOUS_TAGS_FEATURES}
        columns = [(of_tags[name], own) for name, own in self._vocabulary.items() if name in of_tags]
        return core.current().FeatureReader(features, partial(_read_tags, columns))


_IN_CORE = frozenset(
    {
        *("gap", "rule", "source", "elsewhere", "writing", "cue_left", "cue_right", "label", "section", "case", "zone"),
        *("line_place", "size", "speaker", "measure", "measure_edge"),
    }
)
"""The features of the context that the core computes. A model with another one reads all from the reference."""
_GROUPS: Sequence[tuple[str, Sequence[str]]] = (
    ("word", tuple(WORD_FEATURES)),
    ("word before", tuple(PREVIOUS_WORD_FEATURES)),
    ("sense", tuple(SENSE_FEATURES)),
    ("tags", tuple(TAG_FEATURES)),
    ("tags before", tuple(PREVIOUS_TAGS_FEATURES)),
)


def _find_group(name: str) -> tuple[str, int]:
    """What a feature depends on, and its place among the features of that group."""
    return next(((group, own.index(name)) for group, own in _GROUPS if name in own), ("context", 0))


def _read_tags(columns: Sequence[tuple[Callable[[Tags], str], Mapping[str, int]]], tags: Tags) -> tuple[list[int], str]:
    """The numbers of the features of ``tags``, and the kinds of context that they are a cue for."""
    return [numbers.get(value(tags), 0) for value, numbers in columns], cue_kinds(tags)


class _FeatureTable(Generic[U]):
    """The numbers of the features of a vocabulary that are among ``features``, by the unit that they depend on."""

    def __init__(
        self,
        features: Mapping[str, Callable[[U], str]],
        vocabulary: Mapping[str, Mapping[str, int]],
        *,
        of_words: bool = False,
    ) -> None:
        self.names = tuple(name for name in vocabulary if name in features)
        columns = [(features[name], vocabulary[name]) for name in self.names]
        compiled = _CompiledRows([(name, vocabulary[name]) for name in self.names]).row if of_words else None
        self._rows = RowTable[U](
            len(columns), lambda unit: [numbers.get(value(unit), 0) for value, numbers in columns], compiled
        )

    def encode(self, units: Sequence[U], index: Ints) -> dict[str, Ints]:
        """The numbers of ``units[i]`` for each ``i`` of ``index``; 0 for -1."""
        if not self.names:
            return {}
        return dict(zip(self.names, np.take(self._rows.columns(units), index, axis=1), strict=True))


class _CompiledRows:
    """The same numbers in bytes, from the compiled core: of words in ASCII only."""

    def __init__(self, features: Sequence[tuple[str, Mapping[str, int]]]) -> None:
        self._features = features
        self._prepared = core.Prepared()

    def row(self, word: object) -> bytes | None:
        """The row of ``word``; None if the core is not in use or cannot compute it."""
        if not core.is_used():
            return None
        row: bytes | None = self._prepared.get(self._build).row(word)
        return row

    def _build(self) -> Any:
        return core.current().WordRows([(name, dict(numbers)) for name, numbers in self._features])


def number_values(numbers: Mapping[str, int], values: FeatureValues | IndexedFeature) -> Ints:
    """The number of each value, ``[unit]``; 0 for an unknown value."""
    known = numbers.get
    if isinstance(values, IndexedFeature):
        return np.array([known(value, 0) for value in values.values], np.int64)[values.index]
    return np.fromiter((known(value, 0) for value in values), np.int64, len(values))
