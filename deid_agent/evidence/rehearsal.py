"""An attacker who rehearses: he runs the program on annotated notes of his own, and learns how its leaks look there.

A logistic regression weights the traits of candidates: those of the signals, and simple ones of their form. It is the
strongest attacker here, because this program and its models are public.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deid_agent.evidence.parrot_candidates import ParrotCandidate

_STEPS = 25
_PENALTY = 1.0


@dataclass(frozen=True, slots=True)
class LeakWeights:
    """The weight of each trait, after its mean is subtracted and its deviation divided out."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def score(self, candidate: ParrotCandidate) -> float:
        """The logarithm of the odds that a candidate is a leak, up to a constant."""
        traits = zip(candidate.traits, self.means, self.deviations, self.weights, strict=True)
        return sum((trait - mean) / deviation * weight for trait, mean, deviation, weight in traits)


def learn_traits(candidates: Sequence[ParrotCandidate]) -> LeakWeights:
    """The weights that tell leaks from other candidates best (Newton's method, with a penalty on their squares).

    Without a leak, or without another candidate, all weights are 0.
    """
    traits = np.array([each.traits for each in candidates], np.float64).reshape(len(candidates), -1)
    leak = np.array([each.leak > 0 for each in candidates], np.float64)
    if not len(leak) or leak.all() or not leak.any():
        size = traits.shape[1] if len(leak) else 0
        return LeakWeights((0.0,) * size, (0.0,) * size, (1.0,) * size)
    means, deviations = traits.mean(axis=0), traits.std(axis=0)
    deviations[deviations == 0] = 1
    rows = np.column_stack([np.ones(len(leak)), (traits - means) / deviations])
    weights = _fit(rows, leak)
    return LeakWeights(*(tuple(map(float, each)) for each in (weights[1:], means, deviations)))


def _fit(rows: NDArray[np.float64], leak: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.zeros(rows.shape[1])
    penalty = np.full(len(weights), _PENALTY)
    penalty[0] = 1e-6  # the constant
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (leak - chance) - penalty * weights
        bend = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        weights = weights + np.linalg.solve(bend, slope)
    return weights
