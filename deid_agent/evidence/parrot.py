"""The parrot attack: a reader of a feed trains a tagger on it, and takes for a leak what that tagger does not find.

Source: Carrell et al. 2019, "The machine giveth and the machine taketh away". Surrogates are where the defender's
tagger found something, so a tagger that learns from the outputs learns what the defender finds. PHI that it does not
expect is likely what the defender missed. Their attacker found 68 % of the leaks, with about as many wrong guesses as
right ones.

The patients are divided into two halves. The attacker learns from one half and attacks the other, both ways round, so
each text is attacked by a tagger that saw no text of its patient. The attacker ranks all candidates, strings that look
like PHI, by each of several signals. A success is a share of leaks among as many guesses as there are leaks; chance is
the share of leaks among the candidates. The truth comes from a reviewed sample, or from planted leaks.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import log1p
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deid_agent.evidence.feeds import Leaks, draw_share
from deid_agent.evidence.learned_finder import CrfFitter, LearnedFinder, learn_finder
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.shares import SampledShare, resample_patients, sampled, share_of
from deid_agent.model import Document, Range, fold_accents
from deid_agent.rules import Dictionaries

FindRanges = Callable[[Sequence[str]], Sequence[Sequence[Range]]]
"""The PHI that a tagger finds in each text."""
LEAST_PATIENTS: Final = 4
_POSSIBLE = 0.05  # the probability of the learned tagger from which an attacker without labels looks at a token
_NAME_LISTS = frozenset({"given-female", "given-male", "family", "family-rare", "city", "hospital"})


class ParrotStrength(StrEnum):
    """The knowledge of the attacker."""

    SOFTWARE = "software"  # labels and candidates come from this program's own tagger
    LABELS = "labels"  # a person labelled all PHI-like strings, as in the publication: the upper bound


class ParrotSignal(StrEnum):
    """What makes a candidate suspicious."""

    UNTAGGED = "untagged"  # the learned tagger does not find it
    UNLISTED = "unlisted"  # its words are in no list of surrogates, and no surrogate of the other half
    RECURRING = "recurring"  # it occurs at several patients
    COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class ParrotTools:
    """The means of the attacker. ``surrogate_words`` are the folded words of the program's public lists."""

    fit: CrfFitter
    dictionaries: Dictionaries = field(repr=False)
    find: FindRanges | None = None
    surrogate_words: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class SignalResult:
    """The success of one signal: ``found`` of the leaks with ``guesses`` guesses, and how it ranks leaks.

    ``ranking`` is the probability that a leak is ranked before another candidate: 0.5 is chance, 1 is perfect.
    """

    signal: str
    guesses: int
    found: int
    share: SampledShare
    precision: SampledShare
    ranking: SampledShare

    def as_json(self) -> dict[str, object]:
        """The members as JSON."""
        return {
            "signal": self.signal,
            "guesses": self.guesses,
            "found": self.found,
            "share_of_leaks": self.share.as_json(),
            "precision": self.precision.as_json(),
            "ranking": self.ranking.as_json(),
        }


@dataclass(frozen=True, slots=True)
class ParrotResult:
    """The attack on a feed. ``chance`` is the precision of guesses at random; ``absent`` the reason for no attack.

    ``seen`` leaks are among the candidates. ``published_rule`` guesses that all is a leak which the learned tagger
    does not find; the other signals have as many guesses as there are leaks.
    """

    strength: str
    patients: int
    notes: int
    candidates: int
    leaks: int
    seen: int
    chance: float
    published_rule: SignalResult | None = None
    signals: tuple[SignalResult, ...] = ()
    absent: str = ""

    @property
    def best(self) -> SignalResult | None:
        """The signal that finds most."""
        return max(self.signals, key=lambda each: (each.found, each.ranking.value), default=None)

    def as_json(self) -> dict[str, object]:
        """The members as JSON, without any text of the feed."""
        return {
            "strength": self.strength,
            "patients": self.patients,
            "notes": self.notes,
            "candidates": self.candidates,
            "leaks": self.leaks,
            "leaks_among_candidates": self.seen,
            "chance": round(self.chance, 4),
            "published_rule": self.published_rule.as_json() if self.published_rule else None,
            "signals": [each.as_json() for each in self.signals],
            **({"absent": self.absent} if self.absent else {}),
        }


def attack_feed(
    pairs: Sequence[TextPair],
    leaks: Leaks,
    tools: ParrotTools,
    strength: ParrotStrength = ParrotStrength.LABELS,
    seed: int = 1,
) -> ParrotResult:
    """The success of the attacker on the outputs of ``pairs``. Ids of notes are unique.

    ``leaks`` is what the attacker looks for; only outputs are read to find it. With too few patients, or without a
    leak or a replaced range, the result has no figures and the reason. Raises ``ValueError`` for ``SOFTWARE`` without a
    tagger.
    """
    if strength is ParrotStrength.SOFTWARE and tools.find is None:
        raise ValueError("an attacker with this software needs its tagger")
    feed = [_Attacked.of(pair, leaks.get(pair.note, ())) for pair in pairs]
    patients = sorted({each.pair.patient for each in feed})
    total = sum(len(each.leaks) for each in feed)
    empty = ParrotResult(strength, len(patients), len(feed), 0, total, 0, 0.0)
    if len(patients) < LEAST_PATIENTS:
        return replace(empty, absent=f"needs {LEAST_PATIENTS} patients")
    if not total:
        return replace(empty, absent="no leak is known")
    first = set(_shuffle(patients, seed)[::2])
    halves = [[each for each in feed if (each.pair.patient in first) is side] for side in (True, False)]
    if not all(any(each.pair.replaced for each in half) for half in halves):
        return replace(empty, absent="nothing is replaced at half of the patients")
    candidates = [
        candidate
        for known, attacked in (halves, halves[::-1])
        for candidate in _find_candidates(known, attacked, tools, strength)
    ]
    return _measure(empty, candidates, patients, seed)


@dataclass(frozen=True, slots=True)
class _Attacked:
    """An output with its leaks, as ranges of the output."""

    pair: TextPair = field(repr=False)
    leaks: tuple[Range, ...]

    @classmethod
    def of(cls, pair: TextPair, leaks: Iterable[Range]) -> "_Attacked":
        found = (pair.find_in_output(span) for span in leaks)
        return cls(pair, tuple(each for each in found if each is not None and each[0] < each[1]))

    def all_phi(self) -> list[Range]:
        """Every PHI-like string, as a person sees them: surrogates and leaks alike."""
        return sorted([*((each.begin, each.end) for each in self.pair.replaced if each.begin < each.end), *self.leaks])


@dataclass(frozen=True, slots=True)
class _Candidate:
    patient: str
    leak: int
    """The number of leaks that it covers."""
    tagged: float
    scores: Mapping[ParrotSignal, float] = field(repr=False)


def _find_candidates(
    known: Sequence[_Attacked], attacked: Sequence[_Attacked], tools: ParrotTools, strength: ParrotStrength
) -> list[_Candidate]:
    """The candidates in the outputs of ``attacked``, scored by an attacker who learned from those of ``known``."""
    outputs = [each.pair.output for each in known]
    if strength is ParrotStrength.LABELS or tools.find is None:
        labels: Sequence[Sequence[Range]] = [each.all_phi() for each in known]
    else:
        labels = tools.find(outputs)
    finder = learn_finder(list(zip(outputs, labels, strict=True)), tools.fit, tools.dictionaries)
    seen = {word for text, ranges in zip(outputs, labels, strict=True) for a, b in ranges for word in _words(text[a:b])}
    found = (
        None
        if strength is ParrotStrength.LABELS or tools.find is None
        else tools.find([each.pair.output for each in attacked])
    )
    rows: list[tuple[_Attacked, Range, float, bool]] = []
    for number, each in enumerate(attacked):
        tokens, scores = finder.score(each.pair.output)
        tagged = () if found is None else sorted(found[number])
        ranges = each.all_phi() if found is None else _look_like_phi(each.pair.output, tokens, scores, tagged, finder)
        for span in ranges:
            inside = [float(s) for t, s in zip(*_within(tokens, scores, span), strict=True) if _has_alnum(each, t)]
            here = found is None or _touches(tagged, span)
            rows.append((each, span, float(np.mean(inside)) if inside else 0.0, here))
    places: dict[str, set[str]] = defaultdict(set)
    for each, span, _, _ in rows:
        places[_normal(each.pair.output[span[0] : span[1]])].add(each.pair.patient)
    made = []
    for each, span, probability, here in rows:
        text = each.pair.output[span[0] : span[1]]
        words = [w for w in _words(text) if "common-word" not in tools.dictionaries.lists_of(w)]
        unlisted = sum(w not in tools.surrogate_words and w not in seen for w in words) / len(words) if words else 0.0
        recurring = log1p(len(places[_normal(text)]) - 1)
        # What the program's own tagger finds in the output it has likely replaced: the rest comes first, by how much it
        # looks like PHI.
        untagged = 1 - probability if found is None else (1 - probability) / 2 if here else 1 + probability
        made.append(
            _Candidate(
                each.pair.patient,
                sum(a < span[1] and span[0] < b for a, b in each.leaks),
                probability if found is None else float(here),
                {
                    ParrotSignal.UNTAGGED: untagged,
                    ParrotSignal.UNLISTED: unlisted,
                    ParrotSignal.RECURRING: recurring,
                    ParrotSignal.COMBINED: untagged + unlisted / 2 + recurring / 100,
                },
            )
        )
    return made


def _look_like_phi(
    text: str, tokens: Sequence[Range], scores: NDArray[np.float32], tagged: Sequence[Range], finder: LearnedFinder
) -> list[Range]:
    """The strings that an attacker without labels looks at: findings, likely tokens, and names of the lists."""
    found = sorted(tagged)
    lists_of = finder.dictionaries.lists_of
    loose: list[Range] = []
    for (begin, end), score in zip(tokens, scores.tolist(), strict=True):
        word = text[begin:end]
        if _touches(found, (begin, end)) or not word[0].isalnum():
            continue
        held = lists_of(word) if word[0].isupper() else frozenset()
        if score >= _POSSIBLE or (held & _NAME_LISTS and "common-word" not in held):
            if loose and text[loose[-1][1] : begin] in {" ", "-", "/"}:
                loose[-1] = (loose[-1][0], end)
            else:
                loose.append((begin, end))
    return sorted([*found, *loose])


def _within(
    tokens: Sequence[Range], scores: NDArray[np.float32], span: Range
) -> tuple[Sequence[Range], NDArray[np.float32]]:
    first = bisect_right(tokens, span[0], key=lambda token: token[1])
    last = bisect_left(tokens, span[1], key=lambda token: token[0])
    return tokens[first:last], scores[first:last]


def _touches(ranges: Sequence[Range], span: Range) -> bool:
    """True if one of ``ranges``, in order and disjoint, shares a character with ``span``."""
    at = bisect_right(ranges, span[0], key=lambda each: each[1])
    return at < len(ranges) and ranges[at][0] < span[1]


def _has_alnum(each: _Attacked, token: Range) -> bool:
    return each.pair.output[token[0]].isalnum()


def _words(text: str) -> list[str]:
    doc = Document(text)
    return [fold_accents(text[a:b]) for a, b in doc.tokens if text[a].isalpha() and b - a > 2]


def _normal(text: str) -> str:
    return " ".join(fold_accents(text).split())


def _measure(empty: ParrotResult, found: Sequence[_Candidate], patients: Sequence[str], seed: int) -> ParrotResult:
    number = {patient: at for at, patient in enumerate(patients)}
    place = np.array([number[each.patient] for each in found], np.int64)
    leak = np.array([each.leak for each in found], np.int64)
    order = np.array([draw_share(f"{seed}:{at}") for at in range(len(found))])  # equal scores are in random order
    weights = resample_patients(len(patients), seed)
    guesses = min(empty.leaks, len(found))
    results = []
    for signal in ParrotSignal:
        scores = np.array([each.scores[signal] for each in found], np.float64)
        chosen = np.zeros(len(found), bool)
        chosen[np.lexsort((order, -scores))[:guesses]] = True
        results.append(_judge(signal, chosen, scores, leak, place, weights, empty.leaks))
    untagged = np.array([each.tagged < 0.5 for each in found], bool)
    published = _judge("published", untagged, untagged.astype(np.float64), leak, place, weights, empty.leaks)
    return replace(
        empty,
        candidates=len(found),
        seen=int(leak.sum()),
        chance=float((leak > 0).mean()) if len(leak) else 0.0,
        published_rule=published,
        signals=tuple(results),
    )


def _judge(
    signal: str,
    chosen: NDArray[np.bool_],
    scores: NDArray[np.float64],
    leak: NDArray[np.int64],
    place: NDArray[np.int64],
    weights: NDArray[np.float64],
    total: int,
) -> SignalResult:
    """The success of the guesses ``chosen``. Leaks that are no candidates are never found."""
    size = weights.shape[1]
    found = np.bincount(place, np.where(chosen, leak, 0), size)
    right = np.bincount(place, chosen & (leak > 0), size)
    guessed = np.bincount(place, chosen, size)
    leaks = np.bincount(place, leak, size)
    missing = total - int(leak.sum())
    return SignalResult(
        str(signal),
        int(chosen.sum()),
        int(found.sum()),
        share_of(weights @ found, weights @ leaks + missing),
        share_of(weights @ right, weights @ guessed),
        _rank(scores, leak > 0, place, weights),
    )


def _rank(
    scores: NDArray[np.float64], leak: NDArray[np.bool_], place: NDArray[np.int64], weights: NDArray[np.float64]
) -> SampledShare:
    """The probability that a leak has a higher score than another candidate; equal scores count half."""
    _, level = np.unique(scores, return_inverse=True)
    values = []
    for row in weights:
        own = row[place]
        good = np.bincount(level, np.where(leak, own, 0))
        bad = np.bincount(level, np.where(leak, 0, own))
        below = np.cumsum(bad) - bad / 2
        both = good.sum() * bad.sum()
        values.append(float(good @ below / both) if both else np.nan)
    return sampled(np.array(values))


def _shuffle(names: Sequence[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: (draw_share(f"{seed}:{name}"), name))
