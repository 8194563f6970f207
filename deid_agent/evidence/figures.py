"""The figures of a report: shares with exact binomial bounds, or with the intervals of resampled patients.

Every figure is a number of cases among others, so a report has no value of a note. The bounds are those of Clopper and
Pearson (1934): they hold for each number of cases, also for none and for all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

SMALLEST_GROUP: Final = 11
"""Groups of fewer patients get no figure: an interval would be as wide as the scale, and a member might be known."""
RESAMPLES: Final = 1000
NO_INTERVAL: Final = "no interval: all patients are alike"
"""The remark of a share whose resamples all agree, such as that of no leak: an interval of one point would be wrong."""
_CONFIDENCE = 0.95
_STEPS = 200
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class EvidenceFigure:
    """``count`` cases of ``of``. Without a ``value`` there was nothing to count, or ``remark`` names the reason.

    ``low`` and ``high`` hold the true share in 95 of 100 samples; None if the figure is a count of all there is.
    """

    name: str
    count: int
    of: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    remark: str = ""

    def as_json(self) -> dict[str, object]:
        """The members as JSON, rounded so that the bytes do not depend on the machine."""
        found: dict[str, object] = {"name": self.name, "count": self.count, "of": self.of}
        for name in ("value", "low", "high"):
            number: float | None = getattr(self, name)
            found[name] = None if number is None else round(number, 6)
        return found | ({"remark": self.remark} if self.remark else {})


@dataclass(frozen=True, slots=True)
class EvidenceSection:
    """Figures that one method made. ``limit`` is a sentence about the conclusions that they do not allow.

    ``absent`` is the reason if there are no figures. ``facts`` are further numbers and names, never values of notes.
    """

    id: str
    title: str
    method: str
    limit: str
    figures: tuple[EvidenceFigure, ...] = ()
    findings: tuple[str, ...] = ()
    facts: Mapping[str, object] | None = None
    absent: str = ""

    def as_json(self) -> dict[str, object]:
        """The section as JSON."""
        return {
            "id": self.id,
            "title": self.title,
            "method": self.method,
            "does_not_show": self.limit,
            **({"absent": self.absent} if self.absent else {}),
            "findings": list(self.findings),
            **({"facts": dict(self.facts)} if self.facts else {}),
            "figures": [each.as_json() for each in self.figures],
        }


def count_share(name: str, count: int, of: int, remark: str = "") -> EvidenceFigure:
    """The share of cases in all there is: no interval, because nothing was sampled."""
    return EvidenceFigure(name, count, of, count / of if of else None, remark=remark)


def bound_share(name: str, count: int, of: int, remark: str = "") -> EvidenceFigure:
    """The share of cases in a sample, with its exact 95 % interval."""
    if not of:
        return EvidenceFigure(name, 0, 0, remark=remark or "none in the sample")
    low, high = exact_interval(count, of)
    return EvidenceFigure(name, count, of, count / of, low, high, remark)


def exact_interval(count: int, of: int, confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """The two-sided interval of Clopper and Pearson for ``count`` cases in ``of`` independent trials.

    Raises ``ValueError`` if there can be no such cases.
    """
    if not 0 <= count <= of or not of or not 0 < confidence < 1:
        raise ValueError("cases and trials do not fit")
    tail = (1 - confidence) / 2
    low = _beta_quantile(tail, count, of - count + 1) if count else 0.0
    high = _beta_quantile(1 - tail, count + 1, of - count) if count < of else 1.0
    return low, high


def most_likely_share(count: int, of: int, confidence: float = _CONFIDENCE) -> float:
    """The one-sided upper bound: a sample with at most ``count`` cases would be rarer than ``1 - confidence`` above it.

    Without a case it is about ``3 / of``, never zero.
    """
    if not 0 <= count <= of or not of:
        raise ValueError("cases and trials do not fit")
    return _beta_quantile(confidence, count + 1, of - count) if count < of else 1.0


def percent(share: float, *, up: bool = False, down: bool = False) -> str:
    """A share in percent with one digit, or two below 1 %. ``up`` and ``down`` are the rounding of a bound.

    Only none is shown as 0 %, and only all as 100 %.
    """
    value = 100 * share
    digits = 2 if value < 1 else 1
    unit = 10**digits
    if down or (not up and 100 - 0.5 / unit <= value < 100):
        shown = math.floor(value * unit + 1e-9) / unit
    elif up or 0 < value < 0.5 / unit:
        shown = math.ceil(value * unit - 1e-9) / unit
    else:
        shown = round(value, digits)
    return f"{shown:.{digits}f} %"


def _beta_quantile(share: float, a: float, b: float) -> float:
    """The point below which a beta variable lies with probability ``share``, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _beta_below(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_below(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - _beta_below(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for n in range(1, 10_000):
        for term in (
            n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)),
            -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)),
        ):
            d = 1 + term * d
            c = 1 + term / c
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            result *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * result / a


@dataclass(frozen=True, slots=True)
class PatientCounts:
    """The cases of each patient, in one order: ``count[i]`` of ``of[i]``."""

    count: NDArray[np.float64]
    of: NDArray[np.float64]

    @classmethod
    def gather(cls, rows: Sequence[tuple[int, int]]) -> "PatientCounts":
        """The counts of patients."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 2)
        return cls(table[:, 0], table[:, 1])

    @property
    def vary(self) -> bool:
        """Whether the shares of patients differ. If not, all resamples agree, which shows nothing."""
        known = self.of > 0
        return len({*(self.count[known] / self.of[known]).tolist()}) > 1

    def resample(self, seed: int) -> NDArray[np.float64]:
        """The shares of ``RESAMPLES`` samples of as many patients, drawn with replacement; nan if one has no trial."""
        draw, size = np.random.default_rng(seed), len(self.of)
        shares = np.full(RESAMPLES, np.nan)
        for at in range(RESAMPLES if size else 0):
            drawn = draw.integers(0, size, size)
            trials = float(self.of[drawn].sum())
            if trials:
                shares[at] = float(self.count[drawn].sum()) / trials
        return shares


def resampled_share(name: str, counts: PatientCounts, seed: int, remark: str = "") -> EvidenceFigure:
    """The share with the interval of resampled patients: the cases of one patient are not independent."""
    count, of = int(counts.count.sum()), int(counts.of.sum())
    if not of:
        return EvidenceFigure(name, 0, 0, remark=remark or "none in the sample")
    if not counts.vary:
        return EvidenceFigure(name, count, of, count / of, remark=", ".join(filter(None, (remark, NO_INTERVAL))))
    low, high = _middle(counts.resample(seed))
    return EvidenceFigure(name, count, of, count / of, low, high, remark)


def resampled_difference(name: str, one: PatientCounts, other: PatientCounts, seed: int) -> EvidenceFigure:
    """The share of ``one`` less that of ``other``, with the interval of both resampled. ``count`` is in ``one``."""
    count, of = int(one.count.sum()), int(one.of.sum())
    rest = int(other.of.sum())
    if not of or not rest:
        return EvidenceFigure(name, count, of, remark="nothing to compare with")
    difference = count / of - float(other.count.sum()) / rest
    if not (one.vary and other.vary):
        return EvidenceFigure(name, count, of, difference, remark=NO_INTERVAL)
    low, high = _middle(one.resample(seed) - other.resample(seed + 1))
    return EvidenceFigure(name, count, of, difference, low, high)


def _middle(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """The bounds of the middle 95 %; None if no resample had a trial."""
    kept = values[~np.isnan(values)]
    if not len(kept):
        return None, None
    low, high = np.percentile(kept, [2.5, 97.5])
    return float(low), float(high)
