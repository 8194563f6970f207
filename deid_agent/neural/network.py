"""The network on arrays: characters and words through recurrent layers to a score of each label for each token.

Dernoncourt 2016 section 2.2: a word's vector joined to what a bidirectional layer reads of its characters, a
bidirectional layer over the tokens, a hidden layer, and transitions between labels. The cells couple the input gate
with what is forgotten, as the paper's do, and go without its peepholes, which add nothing (Greff et al. 2017, section
V.C). Sequences are walked together, longest first, so that a step is one product of matrices.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deid_agent.crf.columns import Ints
from deid_agent.crf.model import Chain, together
from deid_agent.neural.inputs import Inputs, Reading
from deid_agent.neural.vectors import Floats

SIDES = ("forward", "backward")
_GATES = 3  # input, output, candidate
_TOKENS = 2_048  # read at once: bounds the memory


@dataclass(frozen=True, slots=True)
class Dimensions:
    """How wide each layer is; 0: the network goes without that layer. Recurrent layers are so wide on either side."""

    character: int = 25
    spelling: int = 25
    token: int = 100
    column: int = 0
    sequence: int = 100
    hidden: int = 100

    @property
    def joined(self) -> int:
        """Of all that is told of a token."""
        return self.token + (2 * self.spelling if self.character else 0) + self.column

    def shapes(self, rows: tuple[int, int, int], labels: int) -> dict[str, tuple[int, ...]]:
        """Each array of the network by name. ``rows`` are those of ``Inputs.rows``."""
        found: dict[str, tuple[int, ...]] = {}
        if self.character:
            found["characters"] = (rows[0], self.character)
            found |= _layer("spelling", self.character, self.spelling)
        if self.token:
            found["words"] = (rows[1], self.token)
        if self.column:
            found["values"] = (rows[2], self.column)
        found |= _layer("sequence", self.joined, self.sequence)
        found |= {"hidden-w": (2 * self.sequence, self.hidden), "hidden-b": (self.hidden,)}
        found |= {"scores-w": (self.hidden, labels), "scores-b": (labels,), "transitions": (labels, labels)}
        return found


def _layer(name: str, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    gates = _GATES * out
    return {
        f"{name}-{side}-{part}": shape
        for side in SIDES
        for part, shape in (("w", (wide, gates)), ("u", (out, gates)), ("b", (gates,)))
    }


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A bidirectional recurrent layer: weights of the input ``[wide, 6 out]``, of the state ``[2, out, 3 out]``."""

    inputs: Floats
    bias: Floats
    states: Floats

    @staticmethod
    def of(name: str, weights: Mapping[str, Floats]) -> "Layer":
        """The weights of two gates are halved: a sigmoid is a hyperbolic tangent of half of its argument."""
        w, u, b = ([weights[f"{name}-{side}-{part}"] for side in SIDES] for part in ("w", "u", "b"))
        out = u[0].shape[0]
        half = np.repeat(np.array([0.5, 0.5, 1.0], np.float32), out)
        return Layer(
            np.concatenate([one * half for one in w], axis=1),
            np.concatenate([one * half for one in b]),
            np.stack([one * half for one in u]),
        )

    def walk(self, seen: Floats, sizes: Sequence[int]) -> tuple[Floats, Floats]:
        """Sequences that lie one behind another in ``seen``: both states at each unit, and both last states of each.

        Shapes ``[unit, 2 out]`` and ``[sequence, 2 out]``. Every size is at least 1.
        """
        order, starts, live = together(sizes)
        ends = starts + np.asarray(sizes, np.int64)[order] - 1
        way = [np.concatenate([starts[:n] + at for at, n in enumerate(live)])]
        way.append(np.concatenate([ends[:n] - at for at, n in enumerate(live)]))
        out = self.states.shape[1]
        told = seen @ self.inputs + self.bias
        gates = np.stack([told[way[0], : _GATES * out], told[way[1], _GATES * out :]])
        states = np.zeros((2, len(seen), out), np.float32)
        state: Floats = np.zeros((2, len(starts), out), np.float32)
        cell: Floats = np.zeros_like(state)
        last: Floats = np.zeros((2, len(starts), out), np.float32)
        start = 0
        for n in live:
            own = slice(start, start := start + n)
            step = gates[:, own]
            step += np.matmul(state[:, :n], self.states)
            np.tanh(step, out=step)
            opened = step[..., : 2 * out]
            opened *= 0.5
            opened += 0.5
            cell = cell[:, :n]
            cell += opened[..., :out] * (step[..., 2 * out :] - cell)
            state = opened[..., out:] * np.tanh(cell)
            states[:, own] = state
            last[:, :n] = state
        both = np.empty((len(seen), 2 * out), np.float32)
        both[way[0], :out], both[way[1], out:] = states
        ended = np.empty((len(starts), 2 * out), np.float32)
        ended[order] = np.concatenate([last[0], last[1]], axis=1)
        return both, ended


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """``weights`` as ``Dimensions.shapes`` names them; ``chain`` has the labels and their transitions alone."""

    dimensions: Dimensions
    inputs: Inputs = field(repr=False)
    weights: Mapping[str, Floats] = field(repr=False)
    chain: Chain = field(repr=False)
    _spelling: Layer | None = field(repr=False)
    _sequence: Layer = field(repr=False)

    @staticmethod
    def of(dimensions: Dimensions, inputs: Inputs, weights: Mapping[str, Floats], labels: Sequence[str]) -> "Network":
        """Raises ``ValueError`` where an array has not the shape that the dimensions ask for, or is no number."""
        shapes = dimensions.shapes(inputs.rows, len(labels))
        if any(name not in weights or weights[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("weights")
        if not all(np.isfinite(weights[name]).all() for name in shapes):
            raise ValueError("weights that are no numbers")
        if inputs.vectors is not None and inputs.vectors.codes.shape[1] != dimensions.token:
            raise ValueError("vectors")
        chain = Chain(tuple(labels), (), np.zeros((0, len(labels)), np.float32), weights["scores-b"],
                      weights["transitions"])  # fmt: skip
        spelling = Layer.of("spelling", weights) if dimensions.character else None
        return Network(dimensions, inputs, weights, chain, spelling, Layer.of("sequence", weights))

    def emissions(self, reading: Reading, sizes: Sequence[int]) -> Floats:
        """The score of each label for each token, ``[token, label]``; ``sizes`` are those of the sequences."""
        found = np.empty((len(reading), len(self.chain.labels)), np.float32)
        for own, some in groups(sizes):
            both, _ = self._sequence.walk(self._joined(reading.part(own)), some)
            hidden = np.tanh(both @ self.weights["hidden-w"] + self.weights["hidden-b"])
            found[own] = hidden @ self.weights["scores-w"] + self.weights["scores-b"]
        return found

    def _joined(self, reading: Reading) -> Floats:
        """What is told of each token: ``[token, joined]``."""
        parts = []
        if self.dimensions.token:
            words = self.weights["words"][reading.learned]
            if self.inputs.vectors is not None:
                words = words + self.inputs.vectors.take(reading.frozen)
            parts.append(words)
        if self._spelling is not None:
            parts.append(self._spelled(self._spelling, reading.letters))
        joined = np.concatenate(parts, axis=1)[reading.kinds] if parts else np.empty((len(reading), 0), np.float32)
        if self.dimensions.column:
            values = np.zeros((len(reading), self.dimensions.column), np.float32)
            for column in reading.columns.T:
                values += self.weights["values"][column]
            joined = np.concatenate([joined, values], axis=1)
        return joined

    def _spelled(self, layer: Layer, letters: Ints) -> Floats:
        sizes = (letters > 0).sum(axis=1)
        seen = self.weights["characters"][letters[letters > 0]]
        return layer.walk(seen, sizes.tolist())[1]


def groups(sizes: Sequence[int]) -> Iterator[tuple[slice, list[int]]]:
    """Sequences to read at once, few tokens or one sequence: where they lie, and their sizes."""
    some: list[int] = []
    start = end = 0
    for size in sizes:
        if some and end + size - start > _TOKENS:
            yield slice(start, end), some
            some, start = [], end
        some.append(size)
        end += size
    if some:
        yield slice(start, end), some
