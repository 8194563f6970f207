"""The parrot attack: a reader of a feed trains a tagger on it, and takes PHI that this tagger does not find for leaks.

Source: Carrell et al. 2019, "The machine giveth and the machine taketh away". Surrogates are where the defender's
tagger found something, so a tagger that learns from the outputs learns to find the same. PHI that it does not expect is
likely PHI that the defender missed. Their attacker found 68 % of the leaks, with about as many wrong guesses as
right ones.

The patients are divided into two halves. The attacker learns from one half and attacks the other, both ways round, so
each text is attacked by a tagger that saw no text of its patient. The attacker ranks all candidates, strings that look
like PHI, by each of several signals. A success is a share of leaks among as many guesses as there are leaks; chance is
the share of leaks among the candidates. The truth comes from a reviewed sample, or from planted leaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deid_agent.evidence.feeds import Leaks, draw_share, split_patients
from deid_agent.evidence.learned_finder import NothingToLearnError
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.parrot_candidates import (
    AttackedText,
    ParrotCandidate,
    ParrotSignal,
    ParrotStrength,
    ParrotTools,
    find_candidates,
)
from deid_agent.evidence.rehearsal import LeakWeights, learn_traits
from deid_agent.evidence.shares import SampledShare, resample_patients, sampled, share_of

LEAST_PATIENTS: Final = 4


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
    rehearsal: LeakWeights | None = None,
) -> ParrotResult:
    """The success of the attacker on the outputs of ``pairs``, who may have rehearsed. Ids of notes are unique.

    The attacker looks for ``leaks``, and reads outputs only. With too few patients, or without a
    leak or a replaced range, the result has no figures and the reason. Raises ``ValueError`` for ``SOFTWARE`` without a
    tagger.
    """
    if strength is ParrotStrength.SOFTWARE and tools.find is None:
        raise ValueError("an attacker with this software needs its tagger")
    feed = [AttackedText.of(pair, leaks.get(pair.note, ())) for pair in pairs]
    patients = sorted({each.pair.patient for each in feed})
    total = sum(len(each.leaks) for each in feed)
    empty = ParrotResult(strength, len(patients), len(feed), 0, total, 0, 0.0)
    if len(patients) < LEAST_PATIENTS:
        return replace(empty, absent=f"needs {LEAST_PATIENTS} patients")
    if not total:
        return replace(empty, absent="no leak is known")
    halves = [[feed[at] for at in half] for half in split_patients(pairs, seed)]
    if not all(any(each.pair.replaced for each in half) for half in halves):
        return replace(empty, absent="nothing is replaced at half of the patients")
    try:
        found = _attack_halves(halves, tools, strength)
    except NothingToLearnError as problem:
        return replace(empty, absent=str(problem))
    if rehearsal is not None:
        found = [replace(each, scores={**each.scores, ParrotSignal.REHEARSED: rehearsal.score(each)}) for each in found]
    return _measure(empty, found, patients, seed)


def rehearse(
    pairs: Sequence[TextPair],
    leaks: Leaks,
    tools: ParrotTools,
    strength: ParrotStrength = ParrotStrength.LABELS,
    seed: int = 1,
) -> LeakWeights:
    """The weights that an attacker learns from an attack on a feed of his own, of which he knows the leaks.

    Raises ``NothingToLearnError`` if nothing is replaced at half of its patients.
    """
    feed = [AttackedText.of(pair, leaks.get(pair.note, ())) for pair in pairs]
    halves = [[feed[at] for at in half] for half in split_patients(pairs, seed)]
    return learn_traits(_attack_halves(halves, tools, strength))


def _attack_halves(
    halves: Sequence[Sequence[AttackedText]], tools: ParrotTools, strength: ParrotStrength
) -> list[ParrotCandidate]:
    return [
        candidate
        for known, attacked in (halves, halves[::-1])
        for candidate in find_candidates(known, attacked, tools, strength)
    ]


def _measure(empty: ParrotResult, found: Sequence[ParrotCandidate], patients: Sequence[str], seed: int) -> ParrotResult:
    number = {patient: at for at, patient in enumerate(patients)}
    place = np.array([number[each.patient] for each in found], np.int64)
    leak = np.array([each.leak for each in found], np.int64)
    order = np.array([draw_share(f"{seed}:{at}") for at in range(len(found))])  # equal scores are in random order
    weights = resample_patients(len(patients), seed)
    guesses = min(empty.leaks, len(found))
    results = []
    for signal in found[0].scores if found else ():
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
    """The probability that a leak has a higher score than another candidate; equal scores count half.

    It is chance if there is no leak among the candidates, or nothing else.
    """
    if leak.all() or not leak.any():
        return SampledShare(0.5, 0.0, 1.0)
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
