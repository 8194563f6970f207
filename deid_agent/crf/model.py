"""A trained linear-chain CRF as arrays: emissions, best labels and marginals, without the training library.

Source: Lafferty et al. 2001; forward and backward recursion on scaled probabilities (Rabiner 1989, section V.A).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf.features import Features, Ints, groups

Floats = NDArray[np.float32]

LONGEST = 2048
"""Units of one chain: a longer text is read in pieces, so that memory has a bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The features of one template that have weights: their numbers in order, and the first one's row."""

    numbers: Ints
    first: int

    def rows(self, features: Ints) -> Ints:
        """The row of weights of each feature; row 0 holds zeros, for features without weights."""
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

    def emissions(self, features: Sequence[Ints]) -> Floats:
        """The score of each label for each unit: ``[unit, label]``."""
        out = np.tile(self.bias, (len(features[0]), 1))
        for table, numbers in zip(self.tables, features, strict=True):
            out += self.weights[table.rows(numbers)]
        return out

    def partial(self, template: int, features: Ints) -> Floats:
        """What the features of one template alone say: ``[unit, label]``."""
        table = self.tables[template]
        found: Floats = self.weights[table.rows(features)]
        return found

    def best_of_all(self, emissions: Floats, sizes: Sequence[int]) -> list[str]:
        """As ``best`` of each of several sequences that lie one behind another, all walked at once."""
        order = sorted(range(len(sizes)), key=lambda at: -sizes[at])
        lengths = np.array([sizes[at] for at in order], np.int64)
        starts = (np.cumsum(sizes) - sizes)[order]
        live = np.searchsorted(-lengths, -np.arange(lengths[0]), side="left").tolist()  # sequences longer than that
        steps = np.zeros(emissions.shape, np.uint8 if len(self.labels) < 256 else np.int64)
        into = np.ascontiguousarray(self.transitions.T)
        score = emissions[starts]
        for at in range(1, len(live)):
            count = live[at]
            units = starts[:count] + at
            paths = score[:count, None, :] + into
            steps[units] = paths.argmax(axis=2)
            score[:count] = paths.max(axis=2) + emissions[units]
        states = np.empty(len(emissions), np.int64)
        state = score.argmax(axis=1)
        for at in range(len(live) - 1, -1, -1):
            units = starts[: live[at]] + at
            states[units] = state[: live[at]]
            state[: live[at]] = steps[units, state[: live[at]]]
        return [self.labels[s] for s in states.tolist()]

    def best(self, emissions: Floats) -> list[str]:
        """The most probable sequence of labels (Viterbi)."""
        found: list[str] = []
        for piece in _pieces(emissions):
            found += self._best(piece)
        return found

    def _best(self, emissions: Floats) -> list[str]:
        steps = np.empty(emissions.shape, np.int64)
        into = np.ascontiguousarray(self.transitions.T)
        columns = np.arange(len(self.labels))
        score = emissions[0]
        for at in range(1, len(emissions)):
            paths = into + score
            step = paths.argmax(axis=1)
            steps[at] = step
            score = paths[columns, step] + emissions[at]
        state = int(score.argmax())
        states = [state]
        for at in range(len(emissions) - 1, 0, -1):
            state = int(steps[at, state])
            states.append(state)
        return [self.labels[s] for s in reversed(states)]

    def marginals(self, emissions: Floats) -> Floats:
        """The probability of each label at each unit: ``[unit, label]``, rows sum to 1."""
        if not len(emissions):
            return emissions
        return np.concatenate([self._marginals(piece) for piece in _pieces(emissions)])

    def _marginals(self, emissions: Floats) -> Floats:
        here = np.exp(emissions - emissions.max(axis=1, keepdims=True))
        over = np.exp(self.transitions)
        back = np.ascontiguousarray(over.T)
        forward, backward = np.empty_like(here), np.empty_like(here)
        state = here[0] / here[0].sum()
        forward[0] = state
        for at in range(1, len(here)):
            state = (state @ over) * here[at]
            state /= state.sum()
            forward[at] = state
        state = np.ones(here.shape[1], np.float32)
        backward[-1] = state
        for at in range(len(here) - 1, 0, -1):
            state = (state * here[at]) @ back
            state /= state.sum()
            backward[at - 1] = state
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


def _pieces(emissions: Floats) -> Iterator[Floats]:
    """The rows in pieces of bounded length."""
    return (emissions[at : at + LONGEST] for at in range(0, len(emissions), LONGEST))
