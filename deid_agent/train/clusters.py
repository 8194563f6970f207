"""Words that stand among the same words, gathered: what a rare word is like is learned from frequent ones.

Vectors are rows of the truncated SVD of positive pointwise mutual information within two tokens, weighted by the root
of the singular values (Levy & Goldberg 2014); clusters are those of spherical k-means. Only numpy, the same for the
same text and seed. They take the place of Brown clusters in Liu 2015, section 3.2.2.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WINDOW = 2
_ROUNDS = 30


def clusters(
    texts: Iterable[Sequence[str]], *, count: int = 200, dimensions: int = 64, least: int = 3, seed: int = 0
) -> dict[str, int]:
    """The cluster, from 0, of every word that stands ``least`` times in texts of folded words.

    Fewer clusters where there are fewer words.
    """
    whole = [list(text) for text in texts]
    counts = Counter(word for text in whole for word in text)
    words = sorted((w for w, n in counts.items() if n >= least), key=lambda w: (-counts[w], w))
    if len(words) <= count:
        return {word: at for at, word in enumerate(words)}
    rng = np.random.default_rng(seed)
    vectors = _reduced(_information(whole, {word: at for at, word in enumerate(words)}), dimensions, rng)
    return dict(zip(words, _means(vectors, count, rng).tolist(), strict=True))


def _information(texts: Sequence[Sequence[str]], place: dict[str, int]) -> Floats:
    """Positive pointwise mutual information of words and their neighbours, contexts smoothed by the power 0.75."""
    size = len(place)
    table = np.zeros((size, size))
    for text in texts:
        at = np.array([place.get(word, -1) for word in text], np.int64)
        for step in range(1, _WINDOW + 1):
            left, right = at[:-step], at[step:]
            both = (left >= 0) & (right >= 0)
            np.add.at(table, (left[both], right[both]), 1.0)
    table += table.T
    rows = table.sum(axis=1)
    columns = rows**0.75
    columns /= max(columns.sum(), 1.0)
    expected = np.outer(rows, columns)
    ratio = np.divide(table, expected, out=np.ones_like(table), where=table > 0)
    found: Floats = np.maximum(np.log(ratio), 0.0)
    return found


def _reduced(table: Floats, dimensions: int, rng: np.random.Generator) -> Floats:
    """Rows of the truncated SVD, of length 1 (Halko 2011: random range, two power iterations)."""
    width = min(dimensions + 10, len(table))
    basis = np.linalg.qr(table @ rng.standard_normal((len(table), width)))[0]
    for _ in range(2):
        basis = np.linalg.qr(table @ (table.T @ basis))[0]
    left, weights, _ = np.linalg.svd(basis.T @ table, full_matrices=False)
    vectors = (basis @ left * np.sqrt(weights))[:, :dimensions]
    found: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return found


def _means(vectors: Floats, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    centres = vectors[rng.choice(len(vectors), count, replace=False)]
    nearest = np.zeros(len(vectors), np.int64)
    for _ in range(_ROUNDS):
        nearest = (vectors @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
    return nearest
