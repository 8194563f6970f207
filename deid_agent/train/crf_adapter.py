"""Adaptation of a trained CRF to further notes: its weights move as far from the trained ones as the notes justify.

The objective is the likelihood of the site's annotations and a Gaussian prior whose mean are the trained weights
(Chelba and Acero 2004, maximum a posteriori adaptation). In the notes of the rehearsal the target is the mean of the
annotations and of the probabilities that the CRF gave before (Li and Hoiem 2016, learning without forgetting): it has
learned these annotations already, and with them alone it would become too sure of itself and miss more. Values and
template instances that only the new notes have begin at weight 0. Transitions and affinities stay. L-BFGS of SciPy
minimizes; it is imported when an adaptation starts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deid_agent.model import PhiType
from deid_agent.nlp import (
    OUTSIDE,
    Crf,
    CrfModel,
    FeatureExtractor,
    Ints,
    Schedule,
    WeightTable,
    split_sequence,
    weight_groups,
)
from deid_agent.train.crf_trainer import Progress, ignore_progress
from deid_agent.train.examples import Example

_Numbers = NDArray[np.float64]
_LEAST_CHANGE = 0.01  # a weight that moved less keeps its value: the file stays small
_KEPT_PAIRS = 5  # of changes and gradients, in L-BFGS: bounds memory


@dataclass(frozen=True, slots=True)
class CrfAdaptation:
    """How far a CRF may move.

    - ``prior``: the precision of the prior. The greater it is, the closer the weights stay to the trained ones.
    - ``weight``: how often a note of the site counts; a note of the rehearsal counts once.
    - ``least``: the fewest tokens with PHI of the site that a new template instance needs to have a weight.
    """

    prior: float = 100.0
    weight: float = 2.0
    iterations: int = 15
    least: int = 2


def adapt_crf(
    base: CrfModel,
    site: Sequence[Example],
    rehearsal: Sequence[Example],
    settings: CrfAdaptation,
    progress: Progress = ignore_progress,
) -> CrfModel:
    """``base`` after it has read ``site`` and ``rehearsal``. The same examples in the same order give the same CRF."""
    extractor = _extend_vocabulary(base.extractor, site)
    own = [_number_units(extractor, base, example) for example in site]
    crf = _extend_tables(base.crf, weight_groups(extractor.templates), own, settings.least)
    again = (_number_units(extractor, base, example) for example in rehearsal)
    fitted = _fit(crf, _Data.build(crf, chain(own, again)), sum(len(one.labels) for one in own), settings, progress)
    return replace(base, extractor=extractor, crf=fitted, digest="", card={})


def blend_crf(base: CrfModel, adapted: CrfModel, share: float) -> CrfModel:
    """The CRF at ``share`` (0 to 1) of the way from ``base`` to ``adapted``, which was adapted from it."""
    old, new = base.crf, adapted.crf
    before = np.zeros_like(new.weights)
    for known, table in zip(old.tables, new.tables, strict=True):
        rows = table.first + table.numbers.searchsorted(known.numbers)
        before[rows] = old.weights[known.first : known.first + len(known.numbers)]
    weights = before + np.float32(share) * (new.weights - before)
    return replace(
        adapted, crf=replace(new, weights=weights, bias=old.bias + np.float32(share) * (new.bias - old.bias))
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """The tokens of one note: the numbers of each template ``[template, token]``, the labels, the sizes of chains."""

    numbers: Sequence[Ints] = field(repr=False)
    labels: Ints = field(repr=False)
    sizes: list[int]


def _number_units(extractor: FeatureExtractor, base: CrfModel, example: Example) -> _Units:
    index = {label: at for at, label in enumerate(base.crf.labels)}
    labels = np.array([index[label] for label in example.labels(base.schema, list_types(index))], np.int64)
    sizes = split_sequence(len(labels), example.tokens.paragraph_starts())
    return _Units(extractor.extract(example.tokens), labels, sizes)


def list_types(labels: Iterable[str]) -> tuple[PhiType, ...]:
    """The types that a model with ``labels`` can find."""
    return tuple(sorted({PhiType(label.partition("-")[2]) for label in labels if label != OUTSIDE}))


def _extend_vocabulary(extractor: FeatureExtractor, site: Sequence[Example]) -> FeatureExtractor:
    """The extractor with the values of the site's notes behind those that it has: no known value changes its number."""
    learned = FeatureExtractor.learn(extractor.templates, (example.tokens for example in site)).vocabulary
    return FeatureExtractor(
        extractor.templates, {name: _append(known, learned[name]) for name, known in extractor.vocabulary.items()}
    )


def _append(known: Mapping[str, int], learned: Mapping[str, int]) -> dict[str, int]:
    found, first = dict(known), max(known.values(), default=1) + 1
    return found | {value: at for at, value in enumerate((v for v in learned if v not in known), first)}


def _extend_tables(crf: Crf, groups: Sequence[int], site: Sequence[_Units], least: int) -> Crf:
    """The CRF with rows of zeros for the template instances at PHI of the site that have no weights yet."""
    outside = crf.labels.index(OUTSIDE)
    counts: list[Counter[int]] = [Counter() for _ in groups]
    for units in site:
        phi = units.labels != outside
        for numbers, group in zip(units.numbers, groups, strict=True):
            counts[group].update(numbers[phi].tolist())
    tables: list[WeightTable] = []
    rows: list[Any] = [crf.weights[:1]]
    first = 1
    for at, (table, group) in enumerate(zip(crf.tables, groups, strict=True)):
        if group != at:
            tables.append(tables[group])
            continue
        often = np.array(sorted(n for n, count in counts[at].items() if n and count >= least), np.int64)
        new = np.setdiff1d(often, table.numbers)
        numbers = np.concatenate([table.numbers, new])
        order = np.argsort(numbers, kind="stable")
        known = crf.weights[table.first : table.first + len(table.numbers)]
        rows.append(np.concatenate([known, np.zeros((len(new), len(crf.labels)), np.float32)])[order])
        tables.append(WeightTable(numbers[order], first))
        first += len(numbers)
    return Crf(crf.labels, tuple(tables), np.concatenate(rows), crf.bias, crf.transitions)


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
    """All tokens as a sparse matrix ``[token, active row]``, whose last column is the bias.

    ``active`` are the rows of the weights that occur.
    """

    matrix: Any
    active: Ints
    labels: Ints
    sizes: list[int]

    @staticmethod
    def build(crf: Crf, notes: Iterable[_Units]) -> "_Data":
        from scipy.sparse import csr_matrix  # noqa: PLC0415 - only training needs it

        tokens, rows, labels, sizes, first = [], [], [], [], 0
        for note in notes:
            labels.append(note.labels)
            sizes += [size for size in note.sizes if size]
            for table, numbers in zip(crf.tables, note.numbers, strict=True):
                (at,) = numbers.nonzero()
                found = table.find_rows(numbers[at])
                tokens.append((at[found > 0] + first).astype(np.int32))
                rows.append(found[found > 0].astype(np.int32))
            first += len(note.labels)
        bias = len(crf.weights)  # the row of the bias
        tokens.append(np.arange(first, dtype=np.int32))
        rows.append(np.full(first, bias, np.int32))
        active, columns = np.unique(np.concatenate(rows), return_inverse=True)
        ones = np.ones(len(columns))
        matrix = csr_matrix((ones, (np.concatenate(tokens), columns)), shape=(first, len(active)))
        return _Data(matrix, active[:-1].astype(np.int64), np.concatenate(labels), sizes)


def _fit(crf: Crf, data: _Data, learned: int, settings: CrfAdaptation, progress: Progress) -> Crf:
    """The CRF that fits the labels of the first ``learned`` tokens, and its own probabilities for the others."""
    from scipy.optimize import minimize  # noqa: PLC0415

    start = np.vstack([crf.weights[data.active], crf.bias[None]]).astype(np.float64)
    labels_only = Crf(crf.labels, (), np.zeros((0, len(crf.labels)), np.float32), crf.bias, crf.transitions)
    before = labels_only.marginals_of_sequences((data.matrix @ start).astype(np.float32), data.sizes)
    gold = np.eye(len(crf.labels))[data.labels]
    targets = np.where(np.arange(len(gold))[:, None] < learned, gold, (before + gold) / 2)
    weights = np.where(np.arange(len(gold)) < learned, settings.weight, 1.0)
    moves = crf.transitions.astype(np.float64)
    firsts = np.cumsum([0, *data.sizes[:-1]])
    turned = data.matrix.T.tocsr()
    done = 0

    def measure(flat: _Numbers) -> tuple[float, _Numbers]:
        change = flat.reshape(start.shape)
        scores = data.matrix @ (start + change)
        wrong = labels_only.marginals_of_sequences(scores.astype(np.float32), data.sizes) - targets
        wrong *= weights[:, None]
        gradient = turned @ wrong + settings.prior * change
        likely = weights @ (scores * targets).sum(axis=1)  # without transitions, which stay
        lost = weights[firsts] @ _log_partitions(scores, data.sizes, moves) - likely
        return float(lost + settings.prior / 2 * (change * change).sum()), gradient.ravel()

    def count(_flat: _Numbers) -> None:
        nonlocal done
        done += 1
        progress(done, settings.iterations)

    options = {"maxiter": settings.iterations, "maxcor": _KEPT_PAIRS}
    found = minimize(measure, np.zeros(start.size), jac=True, method="L-BFGS-B", callback=count, options=options)
    change = np.where(np.abs(found.x) < _LEAST_CHANGE, 0, found.x).reshape(start.shape)
    moved = crf.weights.copy()
    moved[data.active] += change[:-1].astype(np.float32)
    return replace(crf, weights=moved, bias=(crf.bias + change[-1]).astype(np.float32))


def _log_partitions(scores: _Numbers, sizes: Sequence[int], moves: _Numbers) -> _Numbers:
    """The logarithm of the sum over all label sequences of each chain, ``[chain]``; every size is at least 1."""
    schedule = Schedule.of(sizes)
    over, ordered = np.exp(moves), scores[schedule.units]
    state, at = ordered[: schedule.live[0]].copy(), schedule.live[0]
    for n in schedule.live[1:]:
        top = state[:n].max(axis=1, keepdims=True)
        state[:n] = np.log(np.exp(state[:n] - top) @ over) + top + ordered[at : at + n]
        at += n
    top = state.max(axis=1, keepdims=True)
    found = np.empty(len(sizes))
    found[schedule.order] = (np.log(np.exp(state - top).sum(axis=1, keepdims=True)) + top)[:, 0]
    return found
