"""Annotated notes as batches of a network's training: sequences of like length, padded to a length of few.

A program of the training framework is compiled for each shape, so there are few shapes: lengths of sequences, and how
many different words a batch has, are rounded up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf.columns import Ints
from deid_agent.crf.labels import Schema
from deid_agent.neural.inputs import LONGEST, LONGEST_WORD, UNKNOWN, Inputs, Reading, sequences
from deid_agent.neural.vectors import Floats
from deid_agent.phi import PhiType
from deid_agent.train.examples import Example

_LENGTHS = (16, 32, 48, 64, 96, LONGEST)
_KINDS = 512  # a batch has a multiple of so many different words
Piece = tuple[int, int, int]
"""A sequence: its lesson, its first token, its size."""
_Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """A note as numbers, with the number of the label of each token and the sizes of its sequences."""

    reading: Reading = field(repr=False)
    labels: Ints = field(repr=False)
    sizes: tuple[int, ...]


class Batch(NamedTuple):
    """Sequences of one padded length. ``kinds``, ``labels`` and ``mask`` are ``[sequence, token]``.

    ``columns`` has the columns behind them; ``letters`` is ``[kind, place]``, ``learned`` ``[kind]`` and ``frozen``
    ``[kind, dimension]``.
    """

    letters: _Int32
    learned: _Int32
    frozen: Floats
    kinds: _Int32
    columns: _Int32
    labels: _Int32
    mask: Floats


def lesson(example: Example, inputs: Inputs, numbers: dict[str, int], types: Sequence[PhiType]) -> Lesson:
    """The example as numbers; ``numbers`` has that of each label."""
    labels = np.array([numbers[label] for label in example.labels(Schema.IO, types)], np.int64)
    return Lesson(inputs.read([example.view]), labels, tuple(sequences(example.view)))


def pieces_of(lessons: Sequence[Lesson]) -> list[Piece]:
    """Every sequence of the lessons, in order."""
    found = []
    for at, one in enumerate(lessons):
        first = 0
        for size in one.sizes:
            found.append((at, first, size))
            first += size
    return found


def plan(pieces: Sequence[Piece], tokens: int, draw: np.random.Generator) -> Iterator[tuple[int, list[Piece]]]:
    """The batches of one epoch, each with its padded length: sequences by lot, as many as ``tokens`` allow."""
    batches: list[tuple[int, list[Piece]]] = []
    filling: dict[int, list[Piece]] = {length: [] for length in _LENGTHS}
    for at in draw.permutation(len(pieces)).tolist():
        length = next(one for one in _LENGTHS if one >= pieces[at][2])
        filling[length].append(pieces[at])
        if len(filling[length]) == _rows(length, tokens):
            batches.append((length, filling[length]))
            filling[length] = []
    batches += [(length, left) for length, left in filling.items() if left]
    for at in draw.permutation(len(batches)).tolist():
        length, chosen = batches[at]
        yield length, chosen + [(0, 0, 0)] * (_rows(length, tokens) - len(chosen))


def _rows(length: int, tokens: int) -> int:
    return max(1, tokens // length)


def batch_of(
    lessons: Sequence[Lesson],
    length: int,
    pieces: Sequence[Piece],
    inputs: Inputs,
    unknown: float,
    draw: np.random.Generator,
) -> Batch:
    """The sequences padded to ``length``; one of size 0 is padding as a whole.

    By lot the share ``unknown`` of words lacks its learned row, so that the network learns what to do without one.
    """
    wide = lessons[0].reading.columns.shape[1]
    shape = (len(pieces), length)
    kinds, labels = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    columns, mask = np.zeros((*shape, wide), np.int32), np.zeros(shape, np.float32)
    letters, learned, frozen, offset = [], [], [], 0
    for row, (at, first, size) in enumerate(pieces):
        if not size:
            continue
        one, own = lessons[at].reading, slice(first, first + size)
        different, places = np.unique(one.kinds[own], return_inverse=True)
        kinds[row, :size], offset = places + offset, offset + len(different)
        columns[row, :size], labels[row, :size], mask[row, :size] = one.columns[own], lessons[at].labels[own], 1
        spelled = np.zeros((len(different), LONGEST_WORD), np.int32)
        spelled[:, : one.letters.shape[1]] = one.letters[different]
        letters.append(spelled)
        learned.append(one.learned[different])
        frozen.append(one.frozen[different])
    # The same word of several sequences is spelled once: that is most of what the characters cost.
    words = np.concatenate(
        [np.concatenate(letters), np.stack([np.concatenate(learned), np.concatenate(frozen)], axis=1)], axis=1
    )
    once, places = np.unique(words, axis=0, return_inverse=True)
    made = np.zeros((-(-len(once) // _KINDS) * _KINDS, words.shape[1]), np.int32)
    made[: len(once)] = once
    made[:, -2] = np.where(draw.random(len(made)) < unknown, UNKNOWN, made[:, -2])
    kinds = places.reshape(-1)[kinds].astype(np.int32)
    known = inputs.vectors
    vectors = np.zeros((len(made), 1), np.float32) if known is None else known.take(made[:, -1].astype(np.int64))
    return Batch(made[:, :-2], made[:, -2], vectors, kinds, columns, labels, mask)
