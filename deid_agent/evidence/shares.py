"""Shares with intervals of resampled patients: the cases of one patient are not independent."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 1000


@dataclass(frozen=True, slots=True)
class SampledShare:
    """A share with the 95 % interval of resampled patients."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """The rounded numbers."""
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def share_of(count: NDArray[np.float64], of: NDArray[np.float64]) -> SampledShare:
    return sampled(np.divide(count, of, out=np.full(len(count), np.nan), where=of > 0))


def sampled(values: NDArray[np.float64]) -> SampledShare:
    kept = values[1:][~np.isnan(values[1:])]
    low, high = np.percentile(kept, [2.5, 97.5]) if len(kept) else (0.0, 1.0)
    value = 0.0 if np.isnan(values[0]) else float(values[0])
    return SampledShare(value, float(low), float(high))


def resample_patients(size: int, seed: int) -> NDArray[np.float64]:
    """How often each patient is drawn, ``[resample, patient]``; in the first row each is drawn once."""
    drawn = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=RESAMPLES)
    return np.vstack([np.ones((1, size)), drawn]).astype(np.float64)
