"""Linear-chain CRF: decoding and marginals on NumPy arrays, without the training library, and its stored form.

Source: Lafferty et al. 2001; forward and backward recursion on scaled probabilities (Rabiner 1989, section V.A).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deid_agent.nlp import compiled
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.model_files import (
    AnyArray,
    Arrays,
    load_model_files,
    pack_words,
    read_strings,
    save_model_files,
    unpack_words,
)
from deid_agent.nlp.sequences import Schedule, split_sequence
from deid_agent.nlp.templates import FeatureExtractor, FeatureSource, parse_template, weight_groups
from deid_agent.nlp.token_features import Ints

Floats = NDArray[np.float32]

_DIRECT_LIMIT = 1 << 16  # numbers below are looked up in an array: those of templates of one feature
_DENSE_SHARE = 0.2  # if more units than this have a template's feature, adding to all units is faster
_UNITS_AT_ONCE = 32  # whose scores of all templates are in memory together
_MAX_EXPONENT = 80.0  # of e: stays inside the range of a float32 in both directions, with a margin


@dataclass(frozen=True, slots=True, eq=False)
class WeightTable:
    """The template instances that have weights: their numbers, sorted, and the weight row of the first one.

    ``direct`` has the row of each number if the numbers are small; a larger number has the last, which is 0.
    """

    numbers: Ints
    first: int
    direct: Ints | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        direct = None
        if len(self.numbers) and self.numbers[-1] < _DIRECT_LIMIT:
            direct = np.zeros(self.numbers[-1] + 2, np.int64)
            direct[self.numbers] = np.arange(self.first, self.first + len(self.numbers))
        object.__setattr__(self, "direct", direct)

    def find_rows(self, numbers: Ints) -> Ints:
        """The weight row of each number, ``[unit]``. Row 0 has zero weights, for numbers without weights."""
        if self.direct is not None:
            return self.direct.take(numbers, mode="clip")
        if not len(self.numbers):
            return np.zeros(len(numbers), np.int64)
        at = self.numbers.searchsorted(numbers)
        found = self.numbers.take(at, mode="clip") == numbers
        at += self.first
        at *= found
        return at


@dataclass(frozen=True, slots=True, eq=False)
class _DirectRows:
    """The tables without a search as one array ``rows``.

    That of template ``templates[i]`` begins at ``firsts[i]``, and its largest number is ``lasts[i]``. ``others`` are
    the templates whose tables are searched.
    """

    templates: Ints
    others: list[int]
    rows: Ints
    firsts: Ints
    lasts: Ints

    @staticmethod
    def join(tables: Sequence[WeightTable]) -> "_DirectRows":
        found = [(at, table.direct) for at, table in enumerate(tables) if table.direct is not None]
        sizes = np.array([len(rows) for _, rows in found], np.int64)
        return _DirectRows(
            np.array([at for at, _ in found], np.int64),
            [at for at, table in enumerate(tables) if table.direct is None],
            np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in found)]),
            (np.cumsum(sizes) - sizes)[:, None],
            sizes[:, None] - 1,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Crf:
    """Labels, one weight table for each template, and the weights.

    Shapes: ``weights`` ``[row, label]``, ``bias`` ``[label]``, ``transitions`` ``[from label, to label]``.
    """

    labels: tuple[str, ...]
    tables: tuple[WeightTable, ...] = field(repr=False)
    weights: Floats = field(repr=False)
    bias: Floats = field(repr=False)
    transitions: Floats = field(repr=False)
    _direct: "_DirectRows" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_direct", _DirectRows.join(self.tables))

    def emissions(self, features: Iterable[Ints]) -> Floats:
        """The score of each label for each unit, ``[unit, label]``.

        ``features`` has one array ``[unit]`` for each template, and may produce them one at a time. One array
        ``[template, unit]`` gives the same scores, faster if it has few units. Raises ``ValueError`` if the CRF has no
        templates.
        """
        if isinstance(features, np.ndarray):
            return self._emissions_at_once(features)
        out, found = np.empty((0, 0), np.float32), np.empty((0, 0), np.float32)
        for at, (table, numbers) in enumerate(zip(self.tables, features, strict=True)):
            if not at:
                out, found = np.tile(self.bias, (len(numbers), 1)), np.empty((len(numbers), len(self.bias)), np.float32)
            count = np.count_nonzero(numbers)
            if count > _DENSE_SHARE * len(numbers):
                out += self.weights.take(table.find_rows(numbers), axis=0, out=found, mode="clip")
            elif count:
                (units,) = numbers.nonzero()
                out[units] += self.weights[table.find_rows(numbers[units])]
        if not self.tables:
            raise ValueError("a CRF without templates has no emissions")
        return out

    def _emissions_at_once(self, numbers: Ints) -> Floats:
        rows = np.zeros(numbers.shape, np.int64)
        direct = self._direct
        rows[direct.templates] = direct.rows.take(
            np.minimum(numbers[direct.templates], direct.lasts) + direct.firsts, mode="clip"
        )
        present = np.count_nonzero(numbers, axis=1)
        for at in direct.others:
            if present[at]:
                rows[at] = self.tables[at].find_rows(numbers[at])
        rows = rows[np.count_nonzero(rows, axis=1) > 0]
        out = np.empty((len(numbers[0]), len(self.bias)), np.float32)
        scores = np.empty((1 + len(rows), _UNITS_AT_ONCE, len(self.bias)), np.float32)
        scores[0] = self.bias
        for start in range(0, len(out), _UNITS_AT_ONCE):
            own = rows[:, start : start + _UNITS_AT_ONCE]
            found = scores[:, : own.shape[1]]
            found[1:] = self.weights.take(own, axis=0)
            np.add.reduce(found, axis=0, out=out[start : start + _UNITS_AT_ONCE])  # in the order of the templates
        return out

    def template_scores(self, template: int, numbers: Ints) -> Floats:
        """The scores of one template alone, ``[unit, label]``; ``template`` is its index."""
        found: Floats = self.weights[self.tables[template].find_rows(numbers)]
        return found

    def decode(self, emissions: Floats) -> list[str]:
        """The most probable label sequence (Viterbi) of one text, cut into chains if it is long."""
        return self.decode_sequences(emissions, split_sequence(len(emissions)))

    @compiled.compiled_by(compiled.best_labels)
    def decode_sequences(self, emissions: Floats, sizes: Sequence[int]) -> list[str]:
        """The most probable labels of several sequences, computed together.

        The sequences lie one after another in ``emissions`` ``[unit, label]``; ``sizes`` are their lengths.
        """
        if not sizes:
            return []
        schedule = Schedule.of(sizes)
        live, into = schedule.live, np.ascontiguousarray(self.transitions.T)
        scores = emissions[schedule.units]
        last = 0
        for at in range(1, len(live)):
            n, start = live[at], last + live[at - 1]
            scores[start : start + n] += (scores[last : last + n, None, :] + into).max(axis=2)
            last = start
        # The path back is recomputed from the scores. That is cheaper than storing it for labels on no path.
        path = np.empty(len(emissions), np.int64)
        after = np.zeros(0, np.int64)
        for at in range(len(live) - 1, -1, -1):
            before = scores[last : last + live[at]]
            before[: len(after)] += into[after]
            path[last : last + live[at]] = after = before.argmax(axis=1)
            last -= live[at - 1] if at else 0
        states = np.empty_like(path)
        states[schedule.units] = path
        return [self.labels[s] for s in states.tolist()]

    def marginals(self, emissions: Floats) -> Floats:
        """The probability of each label for each unit of one text, ``[unit, label]``; rows sum to 1."""
        return self.marginals_of_sequences(emissions, split_sequence(len(emissions)))

    @compiled.compiled_by(compiled.marginals)
    def marginals_of_sequences(self, emissions: Floats, sizes: Sequence[int]) -> Floats:
        """The probabilities of several sequences, ``[unit, label]``, computed together.

        The sequences lie one after another in ``emissions`` ``[unit, label]``; ``sizes`` are their lengths.
        """
        if not sizes:
            return emissions
        schedule = Schedule.of(sizes)
        live, visited = schedule.live, schedule.units
        # States are scaled every few steps, before the smallest or largest path can leave the range of a float32.
        few = max(1, int(_MAX_EXPONENT / (float(np.abs(self.transitions).max()) + np.log(len(self.labels)))))
        here = np.exp(emissions - emissions.max(axis=1, keepdims=True))[visited]
        over = np.exp(self.transitions)
        back = np.ascontiguousarray(over.T)
        forward, backward = np.empty_like(here), np.ones_like(here)
        forward[: live[0]] = here[: live[0]] / here[: live[0]].sum(axis=1, keepdims=True)
        last = 0
        for at in range(1, len(live)):
            n, start = live[at], last + live[at - 1]
            state = forward[start : start + n]
            np.matmul(forward[last : last + n], over, out=state)
            state *= here[start : start + n]
            if at % few == 0:
                state /= state.sum(axis=1, keepdims=True)
            last = start
        for at in range(len(live) - 1, 0, -1):
            n, start = live[at], last - live[at - 1]
            state = backward[start : start + n]
            np.matmul(backward[last : last + n] * here[last : last + n], back, out=state)
            if at % few == 0:
                state /= state.sum(axis=1, keepdims=True)
            last = start
        forward /= forward.sum(axis=1, keepdims=True)
        backward /= backward.sum(axis=1, keepdims=True)
        forward *= backward
        forward /= forward.sum(axis=1, keepdims=True)
        both: Floats = np.empty_like(forward)
        both[visited] = forward
        return both


def build_crf(
    extractor: FeatureExtractor,
    labels: Sequence[str],
    states: Mapping[tuple[int, int], Mapping[str, float]],
    bias: Mapping[str, float],
    transitions: Mapping[tuple[str, str], float],
) -> Crf:
    """A CRF from trained weights.

    ``states`` has the weights of each label by template index and number, ``bias`` those of the labels, and
    ``transitions`` those of pairs of labels. A missing weight is 0.
    """
    index = {label: at for at, label in enumerate(labels)}
    by_template: list[list[int]] = [[] for _ in extractor.templates]
    for template, number in states:
        by_template[template].append(number)
    weights = np.zeros((1 + len(states), len(index)), np.float32)
    tables: list[WeightTable] = []
    row = 1
    for template, (numbers, group) in enumerate(zip(by_template, weight_groups(extractor.templates), strict=True)):
        if group != template:
            tables.append(tables[group])
            continue
        numbers.sort()
        tables.append(WeightTable(np.array(numbers, np.int64), row))
        for number in numbers:
            for label, weight in states[template, number].items():
                weights[row, index[label]] = weight
            row += 1
    moves = np.zeros((len(index), len(index)), np.float32)
    for (before, after), weight in transitions.items():
        moves[index[before], index[after]] = weight
    label_bias = np.array([bias.get(label, 0.0) for label in labels], np.float32)
    return Crf(tuple(labels), tuple(tables), weights, label_bias, moves)


@dataclass(frozen=True, slots=True, eq=False)
class CrfModel:
    """A CRF with its feature extractor, and the card that describes its training. ``digest`` is that of its arrays.

    ``affinities`` ``[from label, to label]`` are those of ``SequenceDecoder``, counted on the training labels; zeros if
    the model has none.
    """

    name: str
    schema: Schema
    extractor: FeatureExtractor = field(repr=False)
    crf: Crf = field(repr=False)
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""
    affinities: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32), repr=False)
    prepared: compiled.Prepared = field(default_factory=compiled.Prepared, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.affinities.size:
            object.__setattr__(self, "affinities", np.zeros_like(self.crf.transitions))

    @compiled.compiled_by(compiled.template_emissions)
    def emissions(self, documents: Sequence[FeatureSource]) -> Floats:
        """The score of each label for each unit of all documents, one after another, ``[unit, label]``."""
        features, slices = self.extractor.extract_all(documents)
        emissions = self.crf.emissions(features)
        if len(documents) > 1:  # drop the edge units between documents
            emissions = np.concatenate([emissions[own] for own in slices])
        return emissions


def save_crf(model: CrfModel, folder: Path) -> None:
    """Write both files of ``model``. The same model gives the same bytes. Raises ``OSError`` if that fails."""
    extractor, crf = model.extractor, model.crf
    arrays: dict[str, AnyArray] = {
        "weights": crf.weights.astype(np.float16),
        "bias": crf.bias,
        "transitions": crf.transitions,
        "affinities": model.affinities.astype(np.float32),
        "firsts": np.array([table.first for table in crf.tables], np.int64),
    }
    for at, table in enumerate(crf.tables):
        arrays[f"numbers{at}"] = table.numbers
    for name, values in extractor.vocabulary.items():
        arrays[f"values-{name}"] = pack_words(values)
    manifest = {
        "schema": model.schema.value,
        "labels": list(crf.labels),
        "templates": list(extractor.templates),
        **model.card,
    }
    save_model_files(folder, model.name, manifest, arrays)


def load_crf(folder: Path, name: str) -> CrfModel:
    """The CRF model ``name`` of ``folder``.

    Raises ``ConfigurationError`` if a file is missing, has another format, or does not match its digest. The array file
    is not opened if the digest differs.
    """
    return load_model_files(folder, name, _build_model)


def _build_model(manifest: Mapping[str, object], arrays: Arrays, digest: str) -> CrfModel:
    templates = tuple(read_strings(manifest, "templates"))
    vocabulary = {key[7:]: unpack_words(array, 2) for key, array in arrays.items() if key.startswith("values-")}
    if any(feature not in vocabulary for t in templates for feature, _ in parse_template(t)):
        raise ValueError("templates")
    tables = tuple(
        WeightTable(arrays[f"numbers{at}"].astype(np.int64, copy=False), int(first))
        for at, first in enumerate(arrays["firsts"])
    )
    weights, bias, moves = (arrays[key].astype(np.float32) for key in ("weights", "bias", "transitions"))
    crf = Crf(tuple(read_strings(manifest, "labels")), tables, weights, bias, moves)
    schema = Schema(str(manifest.get("schema")))
    affinities = np.asarray(arrays["affinities"] if "affinities" in arrays else np.zeros_like(moves), np.float32)
    extractor = FeatureExtractor(templates, vocabulary)
    return CrfModel(str(manifest["name"]), schema, extractor, crf, manifest, digest, affinities)
