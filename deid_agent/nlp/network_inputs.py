"""The input of the network as numbers: for each token its word, its characters and its features.

Each distinct word is encoded once. Source: Dernoncourt 2016 section 2.2.2. The features are those of the token CRF
(``deid_agent.nlp.token_features``); each value is a row of one embedding table. The word vectors of
``models/vectors.npz`` were published as GloVe (Pennington et al. 2014) and stored in 8 bits by
``.ci/freeze_vectors.py``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deid_agent import core
from deid_agent.nlp.feature_numbers import FeatureNumbers, RowTable
from deid_agent.nlp.model_files import (
    REINSTALL,
    Arrays,
    load_model_files,
    pack_words,
    save_model_files,
    unpack_words,
)
from deid_agent.nlp.token_features import TOKEN_FEATURES, Ints, TokenFeatures

Floats = NDArray[np.float32]
Numbering = Mapping[str, int]
"""The row of each known character, word or feature value in its embedding table."""

VECTORS_NAME = "vectors"
MAX_WORD_CHARACTERS = 16
"""The characters of a word that are encoded. Of a longer word those are the first and the last."""
MAX_SEQUENCE_TOKENS = 128
"""The tokens of one sequence. A longer paragraph is divided, between lines if possible."""
UNKNOWN = 1
"""The row of characters and words that are too rare in the training data."""
FIRST_KNOWN = 2
"""The row of the first known character and word."""
_BATCH_TOKENS = 2_048  # tokens of one batch: bounds memory
_ABSENT = 0
_HALF_WORD = MAX_WORD_CHARACTERS // 2


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Published word vectors in 8 bits: a vector is its row of ``codes`` times its scale.

    ``rows`` has the row of each word in lower case, ``codes`` the shape ``[row, dimension]``, ``scales`` ``[row]``.
    Row 0 is zero and belongs to all unknown words.
    """

    rows: Mapping[str, int] = field(repr=False)
    codes: NDArray[np.int8] = field(repr=False)
    scales: Floats = field(repr=False)
    digest: str = ""

    @staticmethod
    def quantize(words: Sequence[str], table: Floats) -> "WordVectors":
        """The vectors ``table`` ``[word, dimension]`` of ``words`` in 8 bits."""
        scales = np.abs(table).max(axis=1) / 127
        codes = np.rint(table / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
        zero = np.zeros((1, table.shape[1]), np.int8)
        rows = {word: at for at, word in enumerate(words, 1)}
        all_scales = np.concatenate([np.zeros(1), scales]).astype(np.float32)
        return WordVectors(rows, np.concatenate([zero, codes]), all_scales)

    def find_row(self, word: str) -> int:
        """The row of ``word`` regardless of case; 0 for an unknown word."""
        return self.rows.get(word.lower(), 0)

    def take(self, rows: Ints) -> Floats:
        """The vectors of ``rows``, ``[row, dimension]``."""
        found: Floats = self.codes[rows] * self.scales[rows, None]
        return found


def save_vectors(vectors: WordVectors, folder: Path, card: Mapping[str, object]) -> None:
    """Write both files of ``vectors``. The same vectors give the same bytes. Raises ``OSError`` if that fails."""
    arrays: Arrays = {"words": pack_words(vectors.rows), "codes": vectors.codes[1:], "scales": vectors.scales[1:]}
    save_model_files(folder, VECTORS_NAME, card, arrays)


def load_vectors(folder: Path) -> WordVectors:
    """The word vectors in ``folder``.

    Raises ``ConfigurationError`` if a file is missing, has another format, or does not match its digest. The array file
    is not opened if the digest differs.
    """
    return load_model_files(folder, VECTORS_NAME, _build_vectors, f"copy it from the packaged models, or {REINSTALL}")


def _build_vectors(_manifest: Mapping[str, object], arrays: Arrays, digest: str) -> WordVectors:
    rows = unpack_words(arrays["words"], 1)
    codes, scales = arrays["codes"].astype(np.int8, copy=False), arrays["scales"].astype(np.float32, copy=False)
    if codes.ndim != 2 or len(rows) != len(codes) or scales.shape != (len(codes),):
        raise ValueError("vectors")
    zero = np.zeros((1, codes.shape[1]), np.int8)
    all_scales = np.concatenate([np.zeros(1, np.float32), scales])
    return WordVectors(rows, np.concatenate([zero, codes]), all_scales, digest)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTokens:
    """The tokens of some texts as rows of the embedding tables. Each distinct word is encoded once.

    ``characters`` ``[word, position]`` has the rows of the characters of each distinct word, 0 after its end.
    ``learned`` and ``published`` ``[word]`` are the rows in the learned and in the published word vectors.
    ``word_index`` ``[token]`` selects the word of each token. ``features`` is ``[token, feature]``.
    """

    characters: Ints
    learned: Ints
    published: Ints
    word_index: Ints
    features: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.word_index)

    def select(self, tokens: slice) -> "EncodedTokens":
        """These tokens, with their words only."""
        if tokens == slice(0, len(self)):
            return self
        present, word_index = np.unique(self.word_index[tokens], return_inverse=True)
        words = (self.characters[present], self.learned[present], self.published[present])
        return EncodedTokens(*words, word_index, self.features[tokens])


@dataclass(frozen=True, slots=True, eq=False)
class InputEncoder:
    """Numbers characters, words and feature values for the network's embedding tables.

    Row 0 means absent; for a feature it also means a value that was not in the training data. Row 1 is a character or
    word that is too rare in the training data. The values of all features share one table.
    """

    characters: Numbering = field(repr=False)
    words: Numbering = field(repr=False)
    features: Mapping[str, Numbering] = field(repr=False)
    vectors: WordVectors | None = field(default=None, repr=False)
    _words: RowTable[str] = field(init=False, repr=False)
    _numbers: FeatureNumbers = field(init=False, repr=False)
    _reader: core.Prepared = field(default_factory=core.Prepared, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_words", RowTable[str](2 + MAX_WORD_CHARACTERS, self._encode_word))
        object.__setattr__(self, "_numbers", FeatureNumbers(self.features))

    @classmethod
    def learn(
        cls,
        documents: Iterable[TokenFeatures],
        features: Sequence[str],
        vectors: WordVectors | None,
        *,
        word: int = 4,
        value: int = 5,
    ) -> "InputEncoder":
        """Numbers for everything that occurs often enough in ``documents``, the most frequent first.

        ``word`` is the fewest occurrences of a word or character, ``value`` those of a feature value. Raises
        ``ConfigurationError`` for an unknown feature.
        """
        characters, words = Counter[str](), Counter[str]()
        values: dict[str, Counter[str]] = defaultdict(Counter)
        for tokens in documents:
            for one in tokens.words:
                characters.update(one)
                words[_normalize_word(one)] += 1
            for name in features:
                values[name].update(tokens.feature(name))
        at, numbered = 1, {}
        for name in features:
            numbered[name] = {v: at + place for place, v in enumerate(_rank(values[name], value))}
            at += len(numbered[name])
        return cls(_number(_rank(characters, word)), _number(_rank(words, word)), numbered, vectors)

    @property
    def table_sizes(self) -> tuple[int, int, int]:
        """The number of rows of the tables of characters, words and feature values."""
        values = 1 + sum(len(numbering) for numbering in self.features.values())
        return FIRST_KNOWN + len(self.characters), FIRST_KNOWN + len(self.words), values

    def encode(self, documents: Sequence[TokenFeatures]) -> EncodedTokens:
        """The tokens of all documents, one after another."""
        features = [self._numbers.encode_rows(tokens, by_token=True) for tokens in documents]
        rows, word_index = self._encode_words(documents)
        longest = int(np.count_nonzero(rows[2:].any(axis=1)))
        return EncodedTokens(rows[2 : 2 + longest].T, rows[0], rows[1], word_index, np.concatenate(features))

    def _encode_words(self, documents: Sequence[TokenFeatures]) -> tuple[Ints, Ints]:
        """The numbers ``[number, word]`` of the words (``_encode_word``), and the word of each token.

        The core encodes the texts in ASCII. A word that other texts have too is then encoded twice.
        """
        views = [tokens.in_core() if tokens.doc.tokens else None for tokens in documents]
        others = [tokens for tokens, view in zip(documents, views, strict=True) if view is None]
        positions: dict[str, int] = {}
        indices = [self._index_words(tokens, positions) for tokens in others]
        rows = self._words.columns(list(positions))[:, : len(positions)]
        if len(others) == len(documents):
            return rows, np.concatenate(indices)
        data, index = self._reader.get(self._build_reader).encode([view for view in views if view is not None])
        index_in_core = np.frombuffer(index, np.int64)
        rows_in_core = np.frombuffer(data, np.int64).reshape(2 + MAX_WORD_CHARACTERS, -1)
        if not others:
            return rows_in_core, index_in_core
        found, at, rest = [], 0, iter(indices)
        for tokens, view in zip(documents, views, strict=True):
            if view is None:
                found.append(next(rest) + rows_in_core.shape[1])
            else:
                found.append(index_in_core[at : at + len(tokens.doc.tokens)])
                at += len(tokens.doc.tokens)
        return np.concatenate([rows_in_core, rows], axis=1), np.concatenate(found)

    def require_valid(self) -> "InputEncoder":
        """This encoder. Raises ``ValueError`` if a feature is unknown or the rows of the values are not consecutive."""
        rows = [row for numbering in self.features.values() for row in numbering.values()]
        if any(name not in TOKEN_FEATURES for name in self.features) or rows != list(range(1, len(rows) + 1)):
            raise ValueError("columns")
        return self

    @staticmethod
    def _index_words(tokens: TokenFeatures, positions: dict[str, int]) -> Ints:
        words, index = tokens.distinct_words
        return np.array([positions.setdefault(word, len(positions)) for word in words], np.int64)[index]

    def _encode_word(self, word: str) -> list[int]:
        """The rows of ``word`` in the learned and in the published word vectors, and of its characters."""
        short = word if len(word) <= MAX_WORD_CHARACTERS else word[:_HALF_WORD] + word[-_HALF_WORD:]
        known = self.characters.get
        return [
            self.words.get(_normalize_word(word), UNKNOWN),
            0 if self.vectors is None else self.vectors.find_row(word),
            *(known(char, UNKNOWN) for char in short),
            *[_ABSENT] * (MAX_WORD_CHARACTERS - len(short)),
        ]

    def _build_reader(self) -> Any:
        published = None if self.vectors is None else self.vectors.rows
        return core.current().WordReader(dict(self.words), published, dict(self.characters), MAX_WORD_CHARACTERS)


def split_paragraphs(tokens: TokenFeatures) -> list[int]:
    """The sizes of the sequences of a text, in tokens: its paragraphs, long ones divided."""
    if (view := tokens.in_core()) is not None:
        return view.split(MAX_SEQUENCE_TOKENS)
    size, found = len(tokens.words), []
    edges = [0, *(at for at in tokens.paragraph_starts() if 0 < at < size), size]
    for start, end in pairwise(edges):
        at = start
        while end - at > MAX_SEQUENCE_TOKENS:
            cut = at + MAX_SEQUENCE_TOKENS
            while cut > at and tokens.lines[cut] == tokens.lines[cut - 1]:
                cut -= 1
            cut = cut if cut > at else at + MAX_SEQUENCE_TOKENS
            found.append(cut - at)
            at = cut
        if end > at:
            found.append(end - at)
    return found


def batch_sequences(sizes: Sequence[int]) -> Iterator[tuple[slice, list[int]]]:
    """Batches of sequences with a bounded number of tokens: the slice of their tokens, and their sizes.

    A longer sequence is a batch of its own.
    """
    some: list[int] = []
    start = end = 0
    for size in sizes:
        if some and end + size - start > _BATCH_TOKENS:
            yield slice(start, end), some
            some, start = [], end
        some.append(size)
        end += size
    if some:
        yield slice(start, end), some


def _normalize_word(word: str) -> str:
    """``word`` in lower case; in a number every digit is 0."""
    low = word.lower()
    return "0" * min(len(low), 8) if low.isdigit() and len(low) > 2 else low


def _rank(counts: Counter[str], least: int) -> list[str]:
    return sorted((one for one, n in counts.items() if one and n >= least), key=lambda one: (-counts[one], one))


def _number(ranked: Sequence[str]) -> dict[str, int]:
    return {one: at for at, one in enumerate(ranked, FIRST_KNOWN)}
