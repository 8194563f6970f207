"""A trained linear-chain CRF as arrays: emissions, best labels and marginals, without the training library.

Source: Lafferty et al. 2001; forward and backward recursion on scaled probabilities (Rabiner 1989, section V.A).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf.columns import Ints
from deid_agent.crf.features import Features, groups

Floats = NDArray[np.float32]

_FEW = 1 << 16  # numbers below that are looked up in an array: those of templates of one column
_MOST = 0.2  # the share of units with a feature over which adding to all of them is faster
_EXPONENT = 80.0  # of e: what a float32 holds either way, with room
LONGEST = 2048
"""Units of one chain: a longer text is read in pieces, so that memory has a bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The features of one template that have weights: their numbers in order, and the first one's row."""

    numbers: Ints
    first: int
    _direct: Ints | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        direct = None
        if len(self.numbers) and self.numbers[-1] < _FEW:
            direct = np.zeros(self.numbers[-1] + 2, np.int64)
            direct[self.numbers] = np.arange(self.first, self.first + len(self.numbers))
        object.__setattr__(self, "_direct", direct)

    def rows(self, features: Ints) -> Ints:
        """The row of weights of each feature; row 0 holds zeros, for features without weights."""
        if self._direct is not None:
            return self._direct[np.minimum(features, len(self._direct) - 1)]
        if not len(self.numbers):
            return np.zeros(len(features), np.int64)
        at = np.minimum(np.searchsorted(self.numbers, features), len(self.numbers) - 1)
        return np.where(self.numbers[at] == features, at + self.first, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Labels, one table for each template, weights ``[row, label]``, bias ``[label]``, transitions ``[from, to]``."""

    labels: tuple[str, ...]
    tables: tuple[Table, ...] = field(repr=False)
    weights: Floats = field(repr=False)
    bias: Floats = field(repr=False)
    transitions: Floats = field(repr=False)

    def emissions(self, features: Iterable[Ints]) -> Floats:
        """The score of each label for each unit, ``[unit, label]``; ``features`` may be made one by one."""
        out, found = np.empty((0, 0), np.float32), np.empty((0, 0), np.float32)
        for at, (table, numbers) in enumerate(zip(self.tables, features, strict=True)):
            if not at:
                out, found = np.tile(self.bias, (len(numbers), 1)), np.empty((len(numbers), len(self.bias)), np.float32)
            units = np.flatnonzero(numbers)
            if len(units) > _MOST * len(numbers):
                out += np.take(self.weights, table.rows(numbers), axis=0, out=found, mode="clip")
                continue
            rows = table.rows(numbers[units])
            known = np.flatnonzero(rows)
            out[units[known]] += self.weights[rows[known]]
        if not self.tables:
            raise ValueError("a chain without features")
        return out

    def partial(self, template: int, features: Ints) -> Floats:
        """What the features of one template alone say: ``[unit, label]``."""
        table = self.tables[template]
        found: Floats = self.weights[table.rows(features)]
        return found

    def best_of_all(self, emissions: Floats, sizes: Sequence[int]) -> list[str]:
        """As ``best`` of each of several sequences that lie one behind another, all walked at once."""
        if not sizes:
            return []
        _, starts, live = together(sizes)
        into = np.ascontiguousarray(self.transitions.T)
        scores = np.empty_like(emissions)
        scores[starts] = score = emissions[starts]
        for at in range(1, len(live)):
            units = starts[: live[at]] + at
            score = (score[: live[at], None, :] + into).max(axis=2) + emissions[units]
            scores[units] = score
        # The way back is found again from the scores: cheaper than to keep it for the labels that no path takes.
        states = np.empty(len(emissions), np.int64)
        last = np.zeros(0, np.int64)
        for at in range(len(live) - 1, -1, -1):
            units = starts[: live[at]] + at
            before = scores[units]
            before[: len(last)] += into[last]
            states[units] = last = before.argmax(axis=1)
        return [self.labels[s] for s in states.tolist()]

    def best(self, emissions: Floats) -> list[str]:
        """The most probable sequence of labels (Viterbi)."""
        return self.best_of_all(emissions, pieces(len(emissions)))

    def marginals(self, emissions: Floats) -> Floats:
        """The probability of each label at each unit: ``[unit, label]``, rows sum to 1."""
        return self.marginals_of_all(emissions, pieces(len(emissions)))

    def marginals_of_all(self, emissions: Floats, sizes: Sequence[int]) -> Floats:
        """As ``marginals`` of each of several sequences that lie one behind another, all walked at once."""
        if not sizes:
            return emissions
        order, starts, live = together(sizes)
        # Scaled every few steps: how many can pass before the smallest or largest path leaves the range of a float32.
        few = max(1, int(_EXPONENT / (float(np.abs(self.transitions).max()) + np.log(len(self.labels)))))
        here = np.exp(emissions - emissions.max(axis=1, keepdims=True))
        over = np.exp(self.transitions)
        back = np.ascontiguousarray(over.T)
        forward, backward = np.empty_like(here), np.empty_like(here)
        state = here[starts] / here[starts].sum(axis=1, keepdims=True)
        forward[starts] = state
        for at in range(1, len(live)):
            units = starts[: live[at]] + at
            state = (state[: live[at]] @ over) * here[units]
            if at % few == 0:
                state /= state.sum(axis=1, keepdims=True)
            forward[units] = state
        ends = starts + np.asarray(sizes, np.int64)[order] - 1
        backward[ends] = 1.0
        for at in range(len(live) - 1, 0, -1):
            units = starts[: live[at]] + at
            state = (backward[units] * here[units]) @ back
            if at % few == 0:
                state /= state.sum(axis=1, keepdims=True)
            backward[units - 1] = state
        forward /= forward.sum(axis=1, keepdims=True)
        backward /= backward.sum(axis=1, keepdims=True)
        both: Floats = forward * backward
        both /= both.sum(axis=1, keepdims=True)
        return both


def chain(
    features: Features,
    labels: Sequence[str],
    states: Mapping[tuple[int, int], Mapping[str, float]],
    bias: Mapping[str, float],
    transitions: Mapping[tuple[str, str], float],
) -> Chain:
    """A chain of what training found: weights by template and number, by label."""
    index = {label: at for at, label in enumerate(labels)}
    by_template: list[list[int]] = [[] for _ in features.templates]
    for template, number in states:
        by_template[template].append(number)
    weights = np.zeros((1 + len(states), len(index)), np.float32)
    tables: list[Table] = []
    row = 1
    for template, (numbers, first_one) in enumerate(zip(by_template, groups(features.templates), strict=True)):
        if first_one != template:
            tables.append(tables[first_one])
            continue
        numbers.sort()
        tables.append(Table(np.array(numbers, np.int64), row))
        for number in numbers:
            for label, weight in states[template, number].items():
                weights[row, index[label]] = weight
            row += 1
    moves = np.zeros((len(index), len(index)), np.float32)
    for (before, after), weight in transitions.items():
        moves[index[before], index[after]] = weight
    first = np.array([bias.get(label, 0.0) for label in labels], np.float32)
    return Chain(tuple(labels), tuple(tables), weights, first, moves)


def together(sizes: Sequence[int]) -> tuple[Ints, Ints, list[int]]:
    """The order of sequences, longest first; where each starts, in that order; how many are longer than each step."""
    order = np.array(sorted(range(len(sizes)), key=lambda at: -sizes[at]), np.int64)
    ends = np.cumsum(sizes, dtype=np.int64)
    lengths = np.asarray(sizes, np.int64)[order]
    live = np.searchsorted(-lengths, -np.arange(lengths[0]), side="left")
    return order, (ends - np.asarray(sizes, np.int64))[order], live.tolist()


def pieces(size: int, cuts: Iterable[int] = ()) -> list[int]:
    """The sizes of the chains that so many units are read in: cut before the units ``cuts``, and where too long."""
    edges = sorted(
        {0, size, *cuts} | {at for a, b in pairwise(sorted({0, size, *cuts})) for at in range(a, b, LONGEST)}
    )
    return [b - a for a, b in pairwise(edges)]
