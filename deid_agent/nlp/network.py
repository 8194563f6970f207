"""The recurrent network on NumPy arrays: from encoded tokens to a score of each label for each token.

Dernoncourt 2016 section 2.2: the word vector joined to the output of a bidirectional layer over the characters of the
word, a bidirectional layer over the tokens, a hidden layer, and transitions between labels. The cells couple the input
gate to the forget gate as in the paper. They have no peephole connections, which do not improve results (Greff et al.
2017, section V.C). Sequences are processed together, the longest first, so that each step is one matrix product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deid_agent.nlp import compiled
from deid_agent.nlp.crf import Crf
from deid_agent.nlp.network_inputs import EncodedTokens, Floats, InputEncoder, batch_sequences
from deid_agent.nlp.sequences import Schedule
from deid_agent.nlp.token_features import Ints

SIDES = ("forward", "backward")
_GATES = 3  # input, output, candidate


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The width of each layer; 0 removes the layer. A recurrent layer has this width in each direction.

    ``character``, ``token`` and ``feature`` are embeddings of characters, words and feature values; ``spelling`` and
    ``sequence`` are the recurrent layers over the characters of a word and over the tokens of a sequence.
    """

    character: int = 25
    spelling: int = 25
    token: int = 100
    feature: int = 0
    sequence: int = 100
    hidden: int = 100

    @property
    def joined(self) -> int:
        """The width of the joined input of a token."""
        return self.token + (2 * self.spelling if self.character else 0) + self.feature

    def weight_shapes(self, table_sizes: tuple[int, int, int], labels: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight array by name. ``table_sizes`` are those of ``InputEncoder.table_sizes``."""
        found: dict[str, tuple[int, ...]] = {}
        if self.character:
            found["characters"] = (table_sizes[0], self.character)
            found |= _recurrent_shapes("spelling", self.character, self.spelling)
        if self.token:
            found["words"] = (table_sizes[1], self.token)
        if self.feature:
            found["values"] = (table_sizes[2], self.feature)
        found |= _recurrent_shapes("sequence", self.joined, self.sequence)
        found |= {"hidden-w": (2 * self.sequence, self.hidden), "hidden-b": (self.hidden,)}
        found |= {"scores-w": (self.hidden, labels), "scores-b": (labels,), "transitions": (labels, labels)}
        return found


def _recurrent_shapes(name: str, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    gates = _GATES * out
    return {
        f"{name}-{side}-{part}": shape
        for side in SIDES
        for part, shape in (("w", (wide, gates)), ("u", (out, gates)), ("b", (gates,)))
    }


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentLayer:
    """A bidirectional recurrent layer.

    Shapes: ``inputs`` ``[wide, 6 out]``, ``bias`` ``[6 out]``, ``states`` ``[2, out, 3 out]``.
    """

    inputs: Floats
    bias: Floats
    states: Floats

    @staticmethod
    def from_weights(name: str, weights: Mapping[str, Floats]) -> "RecurrentLayer":
        """The layer ``name``. The weights of two gates are halved because sigmoid(x) = (tanh(x / 2) + 1) / 2."""
        w, u, b = ([weights[f"{name}-{side}-{part}"] for side in SIDES] for part in ("w", "u", "b"))
        out = u[0].shape[0]
        half = np.repeat(np.array([0.5, 0.5, 1.0], np.float32), out)
        return RecurrentLayer(
            np.concatenate([one * half for one in w], axis=1),
            np.concatenate([one * half for one in b]),
            np.stack([one * half for one in u]),
        )

    def run(self, inputs: Floats, sizes: Sequence[int]) -> Floats:
        """The states of both directions at each unit, ``[unit, 2 out]``.

        The sequences lie one after another in ``inputs`` ``[unit, wide]``; every size is at least 1.
        """
        schedule, out = Schedule.of(sizes), self.states.shape[1]
        both = np.empty((len(inputs), 2 * out), np.float32)
        both[schedule.units, :out], both[schedule.units_backward, out:] = self._visit(inputs, schedule)
        return both

    def run_to_ends(self, inputs: Floats, sizes: Sequence[int]) -> Floats:
        """The last states of both directions, ``[sequence, 2 out]``; otherwise as ``run``."""
        schedule = Schedule.of(sizes)
        states = self._visit(inputs, schedule)
        firsts = np.cumsum([0, *schedule.live[:-1]])  # of each step
        lasts = firsts[np.asarray(sizes, np.int64)[schedule.order] - 1] + np.arange(len(sizes))
        ended = np.empty((len(sizes), 2 * self.states.shape[1]), np.float32)
        ended[schedule.order] = np.concatenate([states[0, lasts], states[1, lasts]], axis=1)
        return ended

    def _visit(self, inputs: Floats, schedule: Schedule) -> Floats:
        """The states of both directions in the order of the units of ``schedule``, ``[2, unit, out]``."""
        out, live = self.states.shape[1], schedule.live
        driven = inputs @ self.inputs
        driven += self.bias
        gates = np.stack([driven[schedule.units, : _GATES * out], driven[schedule.units_backward, _GATES * out :]])
        states = np.empty((2, len(inputs), out), np.float32)
        state: Floats = np.zeros((2, live[0], out), np.float32)
        cell: Floats = np.zeros_like(state)
        product, change = np.empty((2, live[0], _GATES * out), np.float32), np.empty_like(state)
        start = 0
        for n in live:
            own = slice(start, start := start + n)
            step, added = gates[:, own], change[:, :n]
            step += np.matmul(state[:, :n], self.states, out=product[:, :n])
            np.tanh(step, out=step)
            opened = step[..., : 2 * out]
            opened *= 0.5
            opened += 0.5
            cell = cell[:, :n]
            np.subtract(step[..., 2 * out :], cell, out=added)
            added *= opened[..., :out]
            cell += added
            state = states[:, own]
            np.multiply(opened[..., out:], np.tanh(cell, out=added), out=state)
        return states


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network ready to run. ``weights`` are named as by ``Dimensions.weight_shapes``.

    ``crf`` has the labels and their transitions, and no templates.
    """

    dimensions: Dimensions
    encoder: InputEncoder = field(repr=False)
    weights: Mapping[str, Floats] = field(repr=False)
    crf: Crf = field(repr=False)
    _spelling: RecurrentLayer | None = field(repr=False)
    _sequence: RecurrentLayer = field(repr=False)
    prepared: compiled.Prepared = field(default_factory=compiled.Prepared, init=False, repr=False)

    @staticmethod
    def from_weights(
        dimensions: Dimensions, encoder: InputEncoder, weights: Mapping[str, Floats], labels: Sequence[str]
    ) -> "Network":
        """The network with these weights. Raises ``ValueError`` if an array has a wrong shape or is not finite."""
        shapes = dimensions.weight_shapes(encoder.table_sizes, len(labels))
        if any(name not in weights or weights[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("weights")
        if not all(np.isfinite(weights[name]).all() for name in shapes):
            raise ValueError("weights that are not finite")
        if encoder.vectors is not None and encoder.vectors.codes.shape[1] != dimensions.token:
            raise ValueError("vectors")
        no_rows = np.zeros((0, len(labels)), np.float32)
        crf = Crf(tuple(labels), (), no_rows, weights["scores-b"], weights["transitions"])
        spelling = RecurrentLayer.from_weights("spelling", weights) if dimensions.character else None
        sequence = RecurrentLayer.from_weights("sequence", weights)
        return Network(dimensions, encoder, weights, crf, spelling, sequence)

    @compiled.compiled_by(compiled.network_emissions)
    def emissions(self, tokens: EncodedTokens, sizes: Sequence[int]) -> Floats:
        """The score of each label for each token, ``[token, label]``; ``sizes`` are those of the sequences."""
        found = np.empty((len(tokens), len(self.crf.labels)), np.float32)
        for own, some in batch_sequences(sizes):
            both = self._sequence.run(self._join_inputs(tokens.select(own)), some)
            hidden = np.tanh(both @ self.weights["hidden-w"] + self.weights["hidden-b"])
            found[own] = hidden @ self.weights["scores-w"] + self.weights["scores-b"]
        return found

    @property
    def layers(self) -> tuple[RecurrentLayer | None, RecurrentLayer]:
        """The recurrent layers: over the characters of a word, if there is one, and over tokens."""
        return self._spelling, self._sequence

    def _join_inputs(self, tokens: EncodedTokens) -> Floats:
        """The joined input of each token: ``[token, joined]``."""
        parts = []
        if self.dimensions.token:
            words = self.weights["words"][tokens.learned]
            if self.encoder.vectors is not None:
                words = words + self.encoder.vectors.take(tokens.published)
            parts.append(words)
        if self._spelling is not None:
            parts.append(self._spell_words(self._spelling, tokens.characters))
        joined = np.concatenate(parts, axis=1)[tokens.word_index] if parts else np.empty((len(tokens), 0), np.float32)
        if self.dimensions.feature:
            values = np.zeros((len(tokens), self.dimensions.feature), np.float32)
            found = np.empty_like(values)
            for rows in tokens.features.T:
                values += np.take(self.weights["values"], rows, axis=0, out=found, mode="clip")
            joined = np.concatenate([joined, values], axis=1)
        return joined

    def _spell_words(self, layer: RecurrentLayer, characters: Ints) -> Floats:
        """The last states of the layer over the characters of each word, ``[word, 2 spelling]``."""
        sizes = (characters > 0).sum(axis=1)
        inputs = self.weights["characters"][characters[characters > 0]]
        return layer.run_to_ends(inputs, sizes.tolist())
