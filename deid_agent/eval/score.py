"""Computes precision, recall and F from the counts of notes, with intervals from resampling patients.

A resample draws as many patients as there are, with replacement, and sums their counts. The interval holds the middle
95 % of the figures of 1,000 resamples. Patients are drawn, and not notes, because notes of one patient share names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deid_agent.eval.counts import NEEDS_TEXT, TYPE_COUNTS, Criterion, NoteCounts, count_note
from deid_agent.eval.markup import Note
from deid_agent.model import CATEGORY, PhiCategory, PhiType, Span

RESAMPLES = 1000
SEED = 20140
Numbers = NDArray[np.float64]
_CRITERIA = tuple(Criterion)
_TYPES = tuple(PhiType)


@dataclass(frozen=True, slots=True)
class Pair:
    """A note and the findings in it."""

    note: Note
    found: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prf:
    """Precision, recall and their weighted harmonic mean, with the four sums that they are computed from."""

    precision: Figure
    recall: Figure
    f: Figure
    beta: int
    sums: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class TypeScore:
    """The score of a type or category: spans under the strict criterion, tokens, and leaked spans."""

    strict: Prf
    token: Prf
    covered: Figure
    leaked: Figure
    gold: int
    found: int
    leaks: int


@dataclass(frozen=True, slots=True)
class Scores:
    """The counts of every note, which its methods sum over all notes or any group of them."""

    pairs: tuple[Pair, ...] = field(repr=False)
    with_text: bool
    criteria: Numbers = field(repr=False)
    """Shape: notes, criteria, 4."""
    macro: Numbers = field(repr=False)
    """Same shape: the note's precision and 1, its recall and 1. A pair is zeros if the note has nothing to count."""
    types: Numbers = field(repr=False)
    """Shape: notes, types, fields of ``TypeCounts``."""
    words: int
    _weights: Numbers = field(repr=False)
    """Shape: resamples + 1, notes. How often the note's patient was drawn; the first row is all ones."""

    def prf(self, criterion: Criterion, *, macro: bool = False, only: Sequence[bool] | None = None) -> Prf:
        """Return the score of one criterion over all notes, or over those that ``only`` marks."""
        table = (self.macro if macro else self.criteria)[:, _CRITERIA.index(criterion), :]
        return _prf(self._sums(table, only), criterion.beta)

    def leaked(self, only: Sequence[bool] | None = None) -> Figure:
        """Return the share of gold spans that leak."""
        sums = self._sums(self.types.sum(axis=1), only)
        return _ratio(sums[:, 7], sums[:, 2])

    def type_score(self, types: Iterable[PhiType]) -> TypeScore:
        """Return the score of one type or of several together. A span is right only if its type is exactly right."""
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
        """Return the score of every type that was annotated or found, in the order of ``PhiType``."""
        seen = self.types[:, :, 1:3].sum(axis=(0, 2)) > 0
        return {kind: self.type_score([kind]) for kind, present in zip(_TYPES, seen, strict=True) if present}

    def by_category(self) -> dict[PhiCategory, TypeScore]:
        """Return the score of every category that was annotated or found, in the order of ``PhiCategory``."""
        out = {c: self.type_score(t for t in _TYPES if CATEGORY[t] is c) for c in PhiCategory}
        return {c: score for c, score in out.items() if score.gold or score.found}

    def applicable(self) -> tuple[Criterion, ...]:
        """Return the criteria that can be computed: without texts, only those that compare spans."""
        return tuple(c for c in _CRITERIA if self.with_text or c not in NEEDS_TEXT)

    def groups(self, key: Callable[[Note], str]) -> Mapping[str, list[bool]]:
        """Group notes by ``key``: marks for ``only`` by key, sorted. Notes with an empty key are in no group."""
        names = [key(pair.note) for pair in self.pairs]
        return {name: [n == name for n in names] for name in sorted(set(names) - {""})}

    def _sums(self, table: Numbers, only: Sequence[bool] | None) -> Numbers:
        marks = slice(None) if only is None else np.array(only, dtype=bool)
        return self._weights[:, marks] @ table[marks]


def score_notes(pairs: Iterable[Pair], *, resamples: int = RESAMPLES, seed: int = SEED) -> Scores:
    """Count every note. The result does not depend on the order of the notes or of their spans."""
    ordered = tuple(sorted(pairs, key=lambda p: (p.note.patient, p.note.id)))
    counted = [count_note(p.note.annotated.text, p.note.annotated.spans, p.found) for p in ordered]
    shape = (len(ordered), len(_CRITERIA), 4)
    criteria = np.array([[c.criteria[k] for k in _CRITERIA] for c in counted], dtype=np.float64).reshape(shape)
    return Scores(
        pairs=ordered,
        with_text=all(p.note.annotated.text or not (p.note.annotated.spans or p.found) for p in ordered),
        criteria=criteria,
        macro=_score_notes_alone(criteria),
        types=_type_counts(counted),
        words=sum(c.words for c in counted),
        _weights=_draw_patients([p.note.patient or p.note.id for p in ordered], resamples, seed),
    )


@dataclass(frozen=True, slots=True)
class RatioChange:
    """A ratio of the same notes before and after, the 95 % interval of its change, and how surely it is worse.

    ``worse`` is the share of the resamples in which it is worse, from 0 to 1.
    """

    before: float
    after: float
    low: float
    high: float
    worse: float

    @property
    def value(self) -> float:
        """The change of the ratio itself."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems over the same notes. Every resample draws the same patients for both."""

    notes: int
    patients: int
    strict: RatioChange
    leaked: RatioChange
    alarms: tuple[int, int]
    """Findings that touch no annotation, before and after."""


def compare_pairs(before: Iterable[Pair], after: Iterable[Pair]) -> Comparison:
    """Compare the findings of two systems in the same notes. Raises ``ValueError`` if the notes differ."""
    ordered = [sorted(pairs, key=lambda p: (p.note.patient, p.note.id)) for pairs in (before, after)]
    if [p.note for p in ordered[0]] != [p.note for p in ordered[1]]:
        raise ValueError("two systems are compared over the same notes")
    old, new = (score_notes(pairs) for pairs in ordered)
    strict = [_strict_ratios(scores) for scores in (old, new)]
    leaked = [_leak_ratios(scores) for scores in (old, new)]
    patients = {p.note.patient or p.note.id for p in ordered[0]}
    return Comparison(
        len(ordered[0]),
        len(patients),
        _change(*strict, better=1),
        _change(*leaked, better=-1),
        (count_alarms(ordered[0]), count_alarms(ordered[1])),
    )


def count_alarms(pairs: Iterable[Pair]) -> int:
    """The findings that touch no annotation."""
    return sum(
        not any(span.start < gold.end and gold.start < span.end for gold in pair.note.annotated.spans)
        for pair in pairs
        for span in pair.found
    )


def _strict_ratios(scores: Scores) -> Numbers:
    sums = scores._weights @ scores.criteria[:, _CRITERIA.index(Criterion.STRICT), :]
    right = sums[:, 0] + sums[:, 2]
    found: Numbers = np.divide(right, sums[:, 1] + sums[:, 3], out=np.zeros(len(sums)), where=right > 0)
    return found


def _leak_ratios(scores: Scores) -> Numbers:
    sums = scores._weights @ scores.types.sum(axis=1)
    found: Numbers = np.divide(sums[:, 7], sums[:, 2], out=np.zeros(len(sums)), where=sums[:, 2] > 0)
    return found


def _change(before: Numbers, after: Numbers, *, better: int) -> RatioChange:
    change = after - before
    low, high = np.percentile(change[1:], [2.5, 97.5])
    return RatioChange(
        float(before[0]), float(after[0]), float(low), float(high), float((better * change[1:] < 0).mean())
    )


def _type_counts(counted: Sequence[NoteCounts]) -> Numbers:
    out = np.zeros((len(counted), len(_TYPES), TYPE_COUNTS))
    for at, one in enumerate(counted):
        for kind, sums in one.types.items():
            out[at, _TYPES.index(kind)] = sums.row()
    return out


def _score_notes_alone(criteria: Numbers) -> Numbers:
    """Return the precision and recall of each note, in the shape of ``Scores.macro``.

    The 2014 script counts a note without spans on either side as 0 and 0; every note of its corpus has some. Here such
    a note is left out of the mean.
    """
    counted = ((criteria[:, :, 1] + criteria[:, :, 3]) > 0).astype(np.float64)
    precision = criteria[:, :, 0] / np.maximum(criteria[:, :, 1], 1)
    recall = criteria[:, :, 2] / np.maximum(criteria[:, :, 3], 1)
    # For binary-covered the gold tokens are of HIPAA types only, but the found tokens are of all types.
    has_gold = counted.copy()
    covered = _CRITERIA.index(Criterion.BINARY_COVERED)
    has_gold[:, covered] = criteria[:, covered, 3] > 0
    return np.stack([precision, counted, recall, has_gold], axis=2)


def _draw_patients(patients: Sequence[str], resamples: int, seed: int) -> Numbers:
    names = sorted(set(patients))
    if not names:
        return np.ones((resamples + 1, 0))
    draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    weights = np.vstack([np.ones((1, len(names))), draws])
    column = {name: at for at, name in enumerate(names)}
    return weights[:, [column[p] for p in patients]]


def _ratio(numerator: Numbers, denominator: Numbers) -> Figure:
    return _figure(np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0))


def _figure(values: Numbers) -> Figure:
    low, high = np.percentile(values[1:], [2.5, 97.5]) if len(values) > 1 else (values[0], values[0])
    return Figure(float(values[0]), float(low), float(high))


def _prf(sums: Numbers, beta: int) -> Prf:
    """Compute a score from sums of shape (resamples + 1, 4). As in the 2014 script, a ratio with denominator 0 is 0."""
    p = np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)
    r = np.divide(sums[:, 2], sums[:, 3], out=np.zeros(len(sums)), where=sums[:, 3] > 0)
    denominator = beta**2 * p + r
    f = np.divide((1 + beta**2) * p * r, denominator, out=np.zeros(len(sums)), where=denominator > 0)
    a, b, c, d = (float(n) for n in sums[0])
    return Prf(_figure(p), _figure(r), _figure(f), beta, (a, b, c, d))
