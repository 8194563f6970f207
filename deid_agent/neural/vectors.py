"""Published word vectors, eight bits for each number: what a word means before any note was read.

``models/vectors.npz`` holds them, made by ``.ci/freeze_vectors.py`` from GloVe (Pennington et al. 2014). Each row has a
scale of its own. Row 0 is zero: that of every word which is not there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf import files
from deid_agent.crf.columns import Ints

Floats = NDArray[np.float32]
NAME = "vectors"
_SEPARATOR = "\x1f"  # between words; no token holds it: it is white space to the tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """``rows`` has the row of each word in small letters; a vector is its row of ``codes`` times its scale."""

    rows: Mapping[str, int] = field(repr=False)
    codes: NDArray[np.int8] = field(repr=False)
    scales: Floats = field(repr=False)
    digest: str = ""

    @staticmethod
    def of(words: Sequence[str], table: Floats) -> "Vectors":
        """Vectors ``[word, dimension]`` in eight bits."""
        scales = np.abs(table).max(axis=1) / 127
        codes = np.rint(table / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
        zero = np.zeros((1, table.shape[1]), np.int8)
        rows = {word: at for at, word in enumerate(words, 1)}
        return Vectors(rows, np.concatenate([zero, codes]), np.concatenate([np.zeros(1), scales]).astype(np.float32))

    def numbers(self, words: Iterable[str]) -> Ints:
        """The row of each word, whatever its case; 0 for one that is not there."""
        known = self.rows.get
        return np.array([known(word.lower(), 0) for word in words], np.int64)

    def take(self, rows: Ints) -> Floats:
        """The vectors of those rows, ``[row, dimension]``."""
        found: Floats = self.codes[rows] * self.scales[rows, None]
        return found


def save(vectors: Vectors, folder: Path, card: Mapping[str, object]) -> None:
    """Both files; the same vectors give the same bytes. Raises ``OSError`` where the disk takes them not."""
    words = np.frombuffer(_SEPARATOR.join(vectors.rows).encode(), np.uint8)
    arrays: files.Arrays = {"words": words, "codes": vectors.codes[1:], "scales": vectors.scales[1:]}
    files.save(folder, NAME, card, arrays)


def load(folder: Path) -> Vectors:
    """The vectors of that folder.

    Raises ``ConfigurationError`` where a file is missing, is of another format, or where the digest differs; the
    arrays are not opened then.
    """
    return files.load(folder, NAME, _opened)


def _opened(_manifest: Mapping[str, object], arrays: files.Arrays, digest: str) -> Vectors:
    words = arrays["words"].tobytes().decode("utf-8").split(_SEPARATOR)
    codes, scales = arrays["codes"].astype(np.int8), arrays["scales"].astype(np.float32)
    if codes.ndim != 2 or len(words) != len(codes) or scales.shape != (len(codes),):
        raise ValueError("vectors")
    zero = np.zeros((1, codes.shape[1]), np.int8)
    rows = {word: at for at, word in enumerate(words, 1)}
    return Vectors(rows, np.concatenate([zero, codes]), np.concatenate([np.zeros(1, np.float32), scales]), digest)
