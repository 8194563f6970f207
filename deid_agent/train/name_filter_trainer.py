"""Training of the name filter on annotated notes.

Ferrandez 2012 section 3.2.4: a LIBSVM machine with an RBF kernel (from scikit-learn, which only this module needs)
learns from right and wrong candidates. The thresholds are those with the best F2 under the criterion of section 4.2 (a
span covers the whole name), measured on notes of authors that the machine was not trained on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deid_agent.model import ConfigurationError, PhiType, Range, Span
from deid_agent.nlp import (
    CARE_TEAM_CLASSIFIER,
    FAMILY_SCALES,
    NAME_CLASSIFIER,
    PERSONS,
    Bits,
    CandidateFeatures,
    Floats,
    Ints,
    LinearScreen,
    ScoredCandidate,
    SupportVectorMachine,
    SvmModel,
    choose_best,
    encode_rows,
    find_candidates,
)
from deid_agent.train.examples import Example

_Flags = NDArray[np.bool_]
_THRESHOLDS = tuple(round(step / 20, 2) for step in range(-24, 17))
_DEFAULT_THRESHOLDS = {"likely": -0.4, "sure": 0.0}  # without authors to hold out


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The settings of both machines, and the bounds of the model.

    - ``cost`` and ``gamma``: those of the machines; ``screen_cost``: that of the linear screen.
    - ``screen_recall``: the share of names that pass the screen.
    - ``features`` and ``max_candidates``: the limits of the model and of the training candidates of a machine.
    - ``least``: the fewest occurrences of a feature; ``folds``: the number of author groups for the thresholds.
    - ``fraction``: the share of the patients that is used.
    """

    cost: float = 4.0
    gamma: float = 0.025
    screen_cost: float = 0.05
    screen_recall: float = 0.997
    features: int = 4000
    least: int = 4
    max_candidates: int = 10_000
    folds: int = 2
    fraction: float = 1.0
    seed: int = 2012


@dataclass(frozen=True, slots=True)
class CandidateExample:
    """The candidates of one note: their ranges and features, and the type of each that is right (else ``None``)."""

    author: str
    ranges: Sequence[Range] = field(repr=False)
    features: Sequence[frozenset[str]] = field(repr=False)
    right: Sequence[PhiType | None] = field(repr=False)
    gold: Sequence[Span] = field(repr=False)


ScoredNote = tuple[CandidateExample, list[ScoredCandidate]]


def train_filter(
    examples: Iterable[Example],
    settings: FilterSettings | None = None,
    *,
    name: str = "names",
    card: Mapping[str, object] | None = None,
) -> SvmModel:
    """The name filter that fits ``examples``. The same examples in the same order give the same model.

    Raises ``ConfigurationError`` if the notes name too few patients or doctors.
    """
    chosen_settings = settings or FilterSettings()
    notes = [extract_candidates(example) for example in examples]
    model = replace(train_classifiers(notes, chosen_settings), name=name)
    thresholds, figures = choose_thresholds(notes, chosen_settings)
    facts = {"candidates": sum(len(each.ranges) for each in notes), "held_out": figures}
    return replace(model, thresholds=thresholds, card={**(card or {}), **facts})


def extract_candidates(example: Example) -> CandidateExample:
    """The candidates of one note with their features, compared with its annotations."""
    candidates = find_candidates(example.tokens)
    features = CandidateFeatures.from_tokens(example.tokens)
    ranges = [candidate.range(example.tokens.doc.tokens) for candidate in candidates]
    gold = example.gold(PERSONS)
    return CandidateExample(
        example.note.author,
        ranges,
        [frozenset(features.extract(candidate)) for candidate in candidates],
        match_candidates(ranges, gold),
        gold,
    )


def match_candidates(ranges: Sequence[Range], gold: Iterable[Span]) -> list[PhiType | None]:
    """For each range the type of the annotated name that it is the best candidate for, else ``None``.

    The best candidate of a name is the exact one, else the shortest that covers it, else the one with the largest
    overlap.
    """
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


def train_classifiers(notes: Sequence[CandidateExample], settings: FilterSettings) -> SvmModel:
    """A model with the screen and both machines, without a name and thresholds.

    Raises ``ConfigurationError`` if there are fewer than two names of patients, of doctors, or other candidates.
    """
    counts = Counter(feature for each in notes for features in each.features for feature in features)
    ranked = sorted((f for f, n in counts.items() if n >= settings.least), key=lambda f: (-counts[f], f))
    vocabulary = {feature: at for at, feature in enumerate(ranked[: settings.features])}
    scales = np.array([FAMILY_SCALES.get(f.partition("=")[0], 1.0) for f in vocabulary], np.float32)
    rows = encode_rows((features for each in notes for features in each.features), vocabulary)
    types = [kind for each in notes for kind in each.right]
    names = np.array([kind is not None for kind in types], np.bool_)
    team = np.array([kind is PhiType.DOCTOR for kind in types], np.bool_)
    if min(names.sum(), (~names).sum(), team.sum(), (names & ~team).sum()) < 2:
        raise ConfigurationError("too few names of patients and of doctors to learn from: give more annotated notes")
    bits = np.zeros((len(rows), len(vocabulary)), np.uint8)
    for at, numbers in enumerate(rows):
        bits[at, numbers] = 1
    screen, margins = _train_screen(bits, names, scales, settings)
    passing = _sample(_select_passing(margins, names), names, settings.max_candidates, settings.seed)
    persons = _sample(np.flatnonzero(names), team, settings.max_candidates // 3, settings.seed)
    classifiers = {
        NAME_CLASSIFIER: _train_machine(bits[passing], names[passing], scales, settings),
        CARE_TEAM_CLASSIFIER: _train_machine(bits[persons], team[persons], scales, settings),
    }
    return SvmModel("", vocabulary, scales, screen, classifiers, {})


def _train_screen(bits: Bits, names: _Flags, scales: Floats, settings: FilterSettings) -> tuple[LinearScreen, Floats]:
    """The screen, and the margin of each candidate above its threshold, ``[candidate]``."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415 - comes with scikit-learn
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - only training needs it

    matrix = csr_matrix(bits * scales)
    found = LinearSVC(C=settings.screen_cost, random_state=settings.seed).fit(matrix, names)
    margins = found.decision_function(matrix)
    limit = float(np.quantile(margins[names], 1 - settings.screen_recall))
    weights = found.coef_[0].astype(np.float32) * scales
    return LinearScreen(weights, float(found.intercept_[0]) - limit), margins - limit


def _select_passing(margins: Floats, names: _Flags) -> Ints:
    """The indices of candidates that pass the screen, with at least as many wrong ones as there are names."""
    wrong = np.flatnonzero(~names)
    nearest = wrong[np.argsort(-margins[wrong], kind="stable")][: int(names.sum())]
    return np.union1d(np.flatnonzero(margins >= 0), nearest)


def _sample(candidates: Ints, positive: _Flags, most: int, seed: int) -> Ints:
    """At most ``most`` of ``candidates``, in order, drawn at random; positive ones are kept first, up to half."""
    if len(candidates) <= most:
        return candidates
    draw = np.random.default_rng(seed)
    good, bad = (draw.permutation(candidates[positive[candidates] == wanted]) for wanted in (True, False))
    good = good[: most // 2 if len(bad) >= most // 2 else most - len(bad)]
    return np.sort(np.concatenate([good, bad[: most - len(good)]]))


def _train_machine(bits: Bits, positive: _Flags, scales: Floats, settings: FilterSettings) -> SupportVectorMachine:
    from scipy.sparse import csr_matrix  # noqa: PLC0415
    from sklearn.svm import SVC  # noqa: PLC0415

    found = SVC(C=settings.cost, gamma=settings.gamma, cache_size=600).fit(csr_matrix(bits * scales), positive)
    duals = np.asarray(found.dual_coef_.todense(), np.float32)[0]
    return SupportVectorMachine(bits[found.support_], duals, settings.gamma, float(found.intercept_[0]), scales)


def choose_thresholds(
    notes: Sequence[CandidateExample], settings: FilterSettings
) -> tuple[dict[str, float], dict[str, object]]:
    """The thresholds, and their figures on notes of authors that the model was not trained on.

    ``likely`` has the best F2 of covered names, ``sure`` the best F1 of exact names.
    """
    authors = sorted({each.author for each in notes})
    scored: list[ScoredNote] = []
    for fold in range(min(settings.folds, len(authors))):
        held = frozenset(authors[fold :: settings.folds])
        rest = [each for each in notes if each.author not in held]
        if rest:
            model = train_classifiers(rest, settings)
            scored += [(each, _score_note(model, each)) for each in notes if each.author in held]
    if not scored:
        return dict(_DEFAULT_THRESHOLDS), {}
    figures = {threshold: _score_threshold(scored, threshold) for threshold in _THRESHOLDS}
    likely = max(_THRESHOLDS, key=lambda threshold: (figures[threshold]["f2"], -abs(threshold)))
    sure = max(likely, max(_THRESHOLDS, key=lambda threshold: (figures[threshold]["exact_f1"], -abs(threshold))))
    facts: dict[str, object] = {"authors": authors, "likely": figures[likely], "sure": figures[sure]}
    return {"likely": likely, "sure": sure}, facts


def _score_note(model: SvmModel, note: CandidateExample) -> list[ScoredCandidate]:
    """As ``NameFilter.score_candidates``, for candidates whose features are known."""
    rows = model.encode(note.features)
    passed = model.screen.passes(rows).tolist()
    kept = [(place, row) for place, row, yes in zip(note.ranges, rows, passed, strict=True) if yes]
    scores = model.classifier(NAME_CLASSIFIER).decide([row for _, row in kept]).tolist()
    return [ScoredCandidate(a, b, score, row) for ((a, b), row), score in zip(kept, scores, strict=True)]


def _score_threshold(scored: Sequence[ScoredNote], threshold: float) -> dict[str, float]:
    return score_names([(each.gold, [(c.start, c.end) for c in choose_best(cs, threshold)]) for each, cs in scored])


def score_names(pairs: Iterable[tuple[Sequence[Span], Sequence[Range]]]) -> dict[str, float]:
    """Precision, recall and F2 of covered names, and F1 of exact ones, regardless of their type.

    ``pairs`` has the annotated names and the found ranges of each note.
    """
    found = gold = good = covered = exact = 0
    for names, ranges in pairs:
        found, gold = found + len(ranges), gold + len(names)
        good += sum(any(a <= name.start and name.end <= b for name in names) for a, b in ranges)
        covered += sum(any(a <= name.start and name.end <= b for a, b in ranges) for name in names)
        exact += len(set(ranges) & {(name.start, name.end) for name in names})
    p, r = good / max(1, found), covered / max(1, gold)
    return {
        "precision": round(p, 4),
        "recall": round(r, 4),
        "f2": round(5 * p * r / max(1e-9, 4 * p + r), 4),
        "exact_f1": round(2 * exact / max(1, found + gold), 4),
    }
