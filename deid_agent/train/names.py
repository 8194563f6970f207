"""Training of the filter of names: which candidates are right, by annotated notes.

Ferrandez 2012 section 3.2.4: an RBF machine of LIBSVM (by scikit-learn, which only this module needs) learns of right
and wrong candidates; thresholds are those of the best F2 under the criterion of section 4.2 (a finding covers the
whole name). They are measured on notes of authors whom the machine has not read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.recognize.candidates import PERSONS, candidates
from deid_agent.recognize.filter import NAME, TEAM, Judged, chosen
from deid_agent.recognize.namefeatures import SCALES, Sight
from deid_agent.recognize.svm import Bits, Floats, Ints, Machine, Machines, Screen, rows_of
from deid_agent.spans import Span
from deid_agent.text import Range
from deid_agent.train.examples import Example

_Marks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """``features`` and ``most`` (training candidates) bound the model; ``kept`` is the share of names that pass the
    screen."""

    cost: float = 4.0
    gamma: float = 0.025
    screen_cost: float = 0.05
    kept: float = 0.997
    features: int = 4000
    least: int = 4
    most: int = 10_000
    folds: int = 2
    seed: int = 2012


@dataclass(frozen=True, slots=True)
class Lesson:
    """One note: its candidates' ranges and features, which of them are right, and of those, which name the team."""

    author: str
    ranges: Sequence[Range] = field(repr=False)
    features: Sequence[frozenset[str]] = field(repr=False)
    right: Sequence[PhiType | None] = field(repr=False)
    gold: Sequence[Span] = field(repr=False)


def lesson(example: Example) -> Lesson:
    """What one note teaches."""
    view = example.view
    found = candidates(view)
    sight = Sight.of(view)
    ranges = [candidate.range(view.doc.tokens) for candidate in found]
    gold = example.gold(PERSONS)
    return Lesson(
        example.note.author,
        ranges,
        [frozenset(sight.features(candidate)) for candidate in found],
        right(ranges, gold),
        gold,
    )


def right(ranges: Sequence[Range], gold: Iterable[Span]) -> list[PhiType | None]:
    """For each name its best candidate: exact, else the shortest that covers it, else what shares most of it."""
    out: list[PhiType | None] = [None] * len(ranges)
    for name in gold:
        fits = [
            ((shared == len(name), shared, a - b), -at)
            for at, (a, b) in enumerate(ranges)
            if (shared := min(b, name.end) - max(a, name.start)) > 0
        ]
        if fits:
            out[-max(fits)[1]] = name.type
    return out


def train_filter(
    examples: Iterable[Example],
    settings: FilterSettings | None = None,
    *,
    name: str = "names",
    card: Mapping[str, object] | None = None,
) -> Machines:
    """The filter that annotated notes teach; the same notes in the same order give the same.

    Raises ``ConfigurationError`` where the notes name too few persons of both kinds.
    """
    chosen_settings = settings or FilterSettings()
    lessons = [lesson(example) for example in examples]
    model = replace(fit(lessons, chosen_settings), name=name)
    thresholds, figures = tuned(lessons, chosen_settings)
    facts = {"candidates": sum(len(each.ranges) for each in lessons), "held_out": figures}
    return replace(model, thresholds=thresholds, card={**(card or {}), **facts})


def fit(lessons: Sequence[Lesson], settings: FilterSettings) -> Machines:
    """Screen and machines, without thresholds."""
    counts = Counter(feature for each in lessons for features in each.features for feature in features)
    ranked = sorted((f for f, n in counts.items() if n >= settings.least), key=lambda f: (-counts[f], f))
    vocabulary = {feature: at for at, feature in enumerate(ranked[: settings.features])}
    scales = np.array([SCALES.get(f.partition("=")[0], 1.0) for f in vocabulary], np.float32)
    rows = rows_of((features for each in lessons for features in each.features), vocabulary)
    types = [kind for each in lessons for kind in each.right]
    names = np.array([kind is not None for kind in types], np.bool_)
    team = np.array([kind is PhiType.DOCTOR for kind in types], np.bool_)
    if min(names.sum(), (~names).sum(), team.sum(), (names & ~team).sum()) < 2:
        raise ConfigurationError("too few names of patients and of doctors to learn from: give more annotated notes")
    bits = np.zeros((len(rows), len(vocabulary)), np.uint8)
    for at, numbers in enumerate(rows):
        bits[at, numbers] = 1
    screen, margins = _screen(bits, names, scales, settings)
    inside = _few(_passing(margins, names), names, settings)
    persons = _few(np.flatnonzero(names), team, replace(settings, most=settings.most // 3))
    machines = {
        NAME: _machine(bits[inside], names[inside], scales, settings),
        TEAM: _machine(bits[persons], team[persons], scales, settings),
    }
    return Machines("", vocabulary, scales, screen, machines, {})


def _screen(bits: Bits, names: _Marks, scales: Floats, settings: FilterSettings) -> tuple[Screen, Floats]:
    from scipy.sparse import csr_matrix  # noqa: PLC0415 - comes with scikit-learn
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - only training needs it

    matrix = csr_matrix(bits * scales)
    found = LinearSVC(C=settings.screen_cost, random_state=settings.seed).fit(matrix, names)
    margins = found.decision_function(matrix)
    limit = float(np.quantile(margins[names], 1 - settings.kept))
    weights = found.coef_[0].astype(np.float32) * scales
    return Screen(weights, float(found.intercept_[0]) - limit), margins - limit


def _passing(margins: Floats, names: _Marks) -> Ints:
    """What the screen lets pass, and the nearest wrong candidates where it lets pass fewer of them than names."""
    wrong = np.flatnonzero(~names)
    nearest = wrong[np.argsort(-margins[wrong], kind="stable")][: int(names.sum())]
    return np.union1d(np.flatnonzero(margins >= 0), nearest)


def _few(places: Ints, yes: _Marks, settings: FilterSettings) -> Ints:
    """At most ``most`` of these, in order; of what must go, the wrong ones by lot go first."""
    if len(places) <= settings.most:
        return places
    draw = np.random.default_rng(settings.seed)
    good, bad = (draw.permutation(places[yes[places] == wanted]) for wanted in (True, False))
    good = good[: settings.most // 2 if len(bad) >= settings.most // 2 else settings.most - len(bad)]
    return np.sort(np.concatenate([good, bad[: settings.most - len(good)]]))


def _machine(bits: Bits, yes: _Marks, scales: Floats, settings: FilterSettings) -> Machine:
    from scipy.sparse import csr_matrix  # noqa: PLC0415
    from sklearn.svm import SVC  # noqa: PLC0415

    found = SVC(C=settings.cost, gamma=settings.gamma, cache_size=600).fit(csr_matrix(bits * scales), yes)
    duals = np.asarray(found.dual_coef_.todense(), np.float32)[0]
    return Machine(bits[found.support_], duals, settings.gamma, float(found.intercept_[0]), scales)


Scored = tuple[Lesson, list[Judged]]


def judged(model: Machines, each: Lesson) -> list[Judged]:
    """As ``NameFilter.judge``, of a lesson."""
    rows = rows_of(each.features, model.vocabulary)
    passed = model.screen.passes(rows).tolist()
    kept = [(place, row) for place, row, yes in zip(each.ranges, rows, passed, strict=True) if yes]
    scores = model.machines[NAME].decide([row for _, row in kept]).tolist()
    return [Judged(a, b, score, row) for ((a, b), row), score in zip(kept, scores, strict=True)]


def tuned(lessons: Sequence[Lesson], settings: FilterSettings) -> tuple[dict[str, float], dict[str, object]]:
    """Thresholds and what they reach on notes of other authors than those learned from.

    ``likely`` has the best F2 of covered names, ``sure`` the best F1 of exact ones.
    """
    authors = sorted({each.author for each in lessons})
    scored: list[Scored] = []
    for fold in range(min(settings.folds, len(authors))):
        held = frozenset(authors[fold :: settings.folds])
        rest = [each for each in lessons if each.author not in held]
        if rest:
            model = fit(rest, settings)
            scored += [(each, judged(model, each)) for each in lessons if each.author in held]
    if not scored:
        return {"likely": -0.4, "sure": 0.0}, {}
    steps = [round(step / 20, 2) for step in range(-24, 17)]
    figures = {step: figures_of(scored, step) for step in steps}
    likely = max(steps, key=lambda step: (figures[step]["f2"], -abs(step)))
    sure = max(likely, max(steps, key=lambda step: (figures[step]["exact_f1"], -abs(step))))
    told: dict[str, object] = {"authors": authors, "likely": figures[likely], "sure": figures[sure]}
    return {"likely": likely, "sure": sure}, told


def figures_of(scored: Sequence[Scored], least: float) -> dict[str, float]:
    """Precision, recall and F2 of covered names, and F1 of exact ones, whatever their type."""
    return prf([(each.gold, [(j.start, j.end) for j in chosen(js, least)]) for each, js in scored])


def prf(pairs: Iterable[tuple[Sequence[Span], Sequence[Range]]]) -> dict[str, float]:
    """The figures of findings against annotated names."""
    found = gold = good = covered = exact = 0
    for names, places in pairs:
        found, gold = found + len(places), gold + len(names)
        good += sum(any(a <= name.start and name.end <= b for name in names) for a, b in places)
        covered += sum(any(a <= name.start and name.end <= b for a, b in places) for name in names)
        exact += len(set(places) & {(name.start, name.end) for name in names})
    p, r = good / max(1, found), covered / max(1, gold)
    return {
        "precision": round(p, 4),
        "recall": round(r, 4),
        "f2": round(5 * p * r / max(1e-9, 4 * p + r), 4),
        "exact_f1": round(2 * exact / max(1, found + gold), 4),
    }
