"""Sums of counts to precision, recall and F, with intervals by resampling patients.

A resample draws as many patients as there are, with replacement, and sums their counts; the interval is what holds the
middle 95 % of the figures of 1,000 resamples. Patients and not notes are drawn, for notes of one patient share names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deid_agent.eval.counts import NEEDS_TEXT, TYPE_COLUMNS, Counted, Criterion, count
from deid_agent.eval.markup import Note
from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.spans import Span

RESAMPLES = 1000
SEED = 20140
Numbers = NDArray[np.float64]
_CRITERIA = tuple(Criterion)
_TYPES = tuple(PhiType)


@dataclass(frozen=True, slots=True)
class Pair:
    """A note and what was found in it."""

    note: Note
    found: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio and the interval that holds it with 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prf:
    """Precision, recall and their weighted harmonic mean, with the four sums that they are made of."""

    precision: Figure
    recall: Figure
    f: Figure
    beta: int
    sums: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class TypeScore:
    """One type or category: spans under the strict criterion, tokens, and what leaks."""

    strict: Prf
    token: Prf
    covered: Figure
    leaked: Figure
    gold: int
    found: int
    leaks: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Counts of every note, ready to be summed over any group of them."""

    pairs: tuple[Pair, ...] = field(repr=False)
    with_text: bool
    criteria: Numbers = field(repr=False)
    """Notes by criteria by four."""
    macro: Numbers = field(repr=False)
    """The same shape: precision of the note and 1, recall of the note and 1; zeros where there was nothing to do."""
    types: Numbers = field(repr=False)
    """Notes by types by the columns of ``TypeCounts``."""
    words: int
    _weights: Numbers = field(repr=False)
    """Resamples by notes: how often the note's patient was drawn; the first row is all ones."""

    def prf(self, criterion: Criterion, *, macro: bool = False, only: Sequence[bool] | None = None) -> Prf:
        """One criterion over all notes, or over those that ``only`` marks."""
        table = (self.macro if macro else self.criteria)[:, _CRITERIA.index(criterion), :]
        return _prf(self._sums(table, only), criterion.beta)

    def leaked(self, only: Sequence[bool] | None = None) -> Figure:
        """Leaked spans as a share of gold ones."""
        sums = self._sums(self.types.sum(axis=1), only)
        return _ratio(sums[:, 7], sums[:, 2])

    def type_score(self, types: Iterable[PhiType]) -> TypeScore:
        """One type, or several as one: a span is right under its own type only."""
        chosen = [_TYPES.index(kind) for kind in types]
        sums = self._sums(self.types[:, chosen, :].sum(axis=1), None)
        return TypeScore(
            strict=_prf(sums[:, [0, 1, 0, 2]], 1),
            token=_prf(sums[:, [3, 4, 3, 5]], 1),
            covered=_ratio(sums[:, 6], sums[:, 5]),
            leaked=_ratio(sums[:, 7], sums[:, 2]),
            gold=int(sums[0, 2]),
            found=int(sums[0, 1]),
            leaks=int(sums[0, 7]),
        )

    def by_type(self) -> dict[PhiType, TypeScore]:
        """Every type that was annotated or found, in the order of the label set."""
        seen = self.types[:, :, 1:3].sum(axis=(0, 2)) > 0
        return {kind: self.type_score([kind]) for kind, there in zip(_TYPES, seen, strict=True) if there}

    def by_category(self) -> dict[PhiCategory, TypeScore]:
        """The same by category."""
        out = {c: self.type_score(t for t in _TYPES if CATEGORY[t] is c) for c in PhiCategory}
        return {c: score for c, score in out.items() if score.gold or score.found}

    def applicable(self) -> tuple[Criterion, ...]:
        """The criteria that can be told: without texts only those of spans."""
        return tuple(c for c in _CRITERIA if self.with_text or c not in NEEDS_TEXT)

    def groups(self, key: Callable[[Note], str]) -> Mapping[str, list[bool]]:
        """Notes by what ``key`` says of them, as marks for ``only``; empty keys are left out."""
        names = [key(pair.note) for pair in self.pairs]
        return {name: [n == name for n in names] for name in sorted(set(names) - {""})}

    def _sums(self, table: Numbers, only: Sequence[bool] | None) -> Numbers:
        marks = slice(None) if only is None else np.array(only, dtype=bool)
        return self._weights[:, marks] @ table[marks]


def score(pairs: Iterable[Pair], *, resamples: int = RESAMPLES, seed: int = SEED) -> Scores:
    """Count every note. The result depends neither on the order of notes nor on that of their spans."""
    done = tuple(sorted(pairs, key=lambda p: (p.note.patient, p.note.id)))
    counted = [count(p.note.annotated.text, p.note.annotated.spans, p.found) for p in done]
    shape = (len(done), len(_CRITERIA), 4)
    criteria = np.array([[c.criteria[k] for k in _CRITERIA] for c in counted], dtype=np.float64).reshape(shape)
    return Scores(
        pairs=done,
        with_text=all(p.note.annotated.text or not (p.note.annotated.spans or p.found) for p in done),
        criteria=criteria,
        macro=_per_note(criteria),
        types=_types(counted),
        words=sum(c.words for c in counted),
        _weights=_drawn([p.note.patient or p.note.id for p in done], resamples, seed),
    )


def _types(counted: Sequence[Counted]) -> Numbers:
    out = np.zeros((len(counted), len(_TYPES), TYPE_COLUMNS))
    for at, one in enumerate(counted):
        for kind, sums in one.types.items():
            out[at, _TYPES.index(kind)] = sums.row()
    return out


def _per_note(criteria: Numbers) -> Numbers:
    """Precision and recall of each note. The script of 2014 counts a note without a span on either side as 0 and 0;
    there every note has some. Here such a note has nothing to say and is left out of the mean."""
    there = ((criteria[:, :, 1] + criteria[:, :, 3]) > 0).astype(np.float64)
    precision = criteria[:, :, 0] / np.maximum(criteria[:, :, 1], 1)
    recall = criteria[:, :, 2] / np.maximum(criteria[:, :, 3], 1)
    wanted = there.copy()  # of HIPAA types alone, while what was found are all types
    covered = _CRITERIA.index(Criterion.BINARY_COVERED)
    wanted[:, covered] = criteria[:, covered, 3] > 0
    return np.stack([precision, there, recall, wanted], axis=2)


def _drawn(patients: Sequence[str], resamples: int, seed: int) -> Numbers:
    names = sorted(set(patients))
    if not names:
        return np.ones((resamples + 1, 0))
    draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    weights = np.vstack([np.ones((1, len(names))), draws])
    place = {name: at for at, name in enumerate(names)}
    return weights[:, [place[p] for p in patients]]


def _ratio(above: Numbers, below: Numbers) -> Figure:
    return _figure(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def _figure(values: Numbers) -> Figure:
    low, high = np.percentile(values[1:], [2.5, 97.5]) if len(values) > 1 else (values[0], values[0])
    return Figure(float(values[0]), float(low), float(high))


def _prf(sums: Numbers, beta: int) -> Prf:
    """``sums`` is resamples by four; what has nothing below is 0, as in the script of 2014."""
    p = np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)
    r = np.divide(sums[:, 2], sums[:, 3], out=np.zeros(len(sums)), where=sums[:, 3] > 0)
    below = beta**2 * p + r
    f = np.divide((1 + beta**2) * p * r, below, out=np.zeros(len(sums)), where=below > 0)
    a, b, c, d = (float(n) for n in sums[0])
    return Prf(_figure(p), _figure(r), _figure(f), beta, (a, b, c, d))
