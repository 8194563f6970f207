"""The last hour of the metrics, in memory, for the plots of the overview page."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deid_agent.telemetry import BUCKETS_S, HistogramValue, Metric, Registry, metrics

SAMPLE_INTERVAL_S = 5.0
_MAX_POINTS = 180
_MAX_TYPES = 8
QUANTILES = (0.5, 0.95, 0.99)

Counts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HistorySample:
    """The metrics at one moment. ``buckets`` count the processing times of records, for all topics together."""

    at: float
    outcomes: Counts
    phi: Counts
    buckets: tuple[int, ...]
    lag: Counts
    inflight: Counts
    queue: float


@dataclass(slots=True)
class History:
    """Samples of ``registry``, newest last: an hour of them at one each 5 s. ``clock`` returns seconds since 1970."""

    registry: Registry
    clock: Callable[[], float]
    samples: deque[HistorySample] = field(default_factory=lambda: deque(maxlen=721), repr=False)

    def take_sample(self) -> None:
        """Add a sample of the metrics as they are now."""
        values = _Values(self.registry)
        self.samples.append(
            HistorySample(
                at=self.clock(),
                outcomes=values.sums(metrics.MESSAGES, 1),
                phi=values.sums(metrics.PHI, 0),
                buckets=tuple(values.histogram(metrics.PROCESS_SECONDS).counts),
                lag=values.numbers(metrics.LAG),
                inflight=values.numbers(metrics.INFLIGHT),
                queue=values.number(metrics.QUEUE),
            )
        )

    def series(self, minutes: float) -> dict[str, object]:
        """The plots of the last ``minutes``, at most 180 points. Each point covers the time since the previous one."""
        since = self.clock() - 60 * minutes
        chosen = _thin_out([sample for sample in self.samples if sample.at >= since])
        steps = list(pairwise(chosen))
        types = _most_frequent(chosen[0].phi, chosen[-1].phi) if chosen else []
        streams = sorted({name for sample in chosen for name in sample.lag})
        return {
            "at": [round(after.at, 1) for _, after in steps],
            "throughput": {
                name: [_rate(a, b, a.outcomes.get(name, 0.0), b.outcomes.get(name, 0.0)) for a, b in steps]
                for name in ("published", "dead_lettered", "suppressed")
            },
            "latency": {
                f"p{round(100 * share)}": [_quantile_between(a.buckets, b.buckets, share) for a, b in steps]
                for share in QUANTILES
            },
            "lag": {name: [after.lag.get(name) for _, after in steps] for name in streams},
            "queue": [after.queue for _, after in steps],
            "phi": {
                **{name: [_rate(a, b, a.phi.get(name, 0), b.phi.get(name, 0), 60) for a, b in steps] for name in types},
                "other": [_rate(a, b, _sum_others(a.phi, types), _sum_others(b.phi, types), 60) for a, b in steps],
            },
        }

    def totals(self) -> dict[str, object]:
        """The values since the start of the process."""
        values = _Values(self.registry)
        latency = [
            ("whole record", values.histogram(metrics.PROCESS_SECONDS)),
            *((labels[0], histogram) for labels, histogram in values.histograms(metrics.STAGE_SECONDS)),
            ("commit of one batch", values.histogram(metrics.COMMIT_SECONDS)),
        ]
        return {
            "messages": [
                {"topic": labels[0], "outcome": labels[1], "count": value}
                for labels, value in values.of(metrics.MESSAGES)
            ],
            "phi": values.numbers(metrics.PHI),
            "dead_letters": values.numbers(metrics.DEAD_LETTERS),
            "lag": values.numbers(metrics.LAG),
            "inflight": values.numbers(metrics.INFLIGHT),
            "queue": values.number(metrics.QUEUE),
            "workers": {state: values.number(metrics.WORKERS, state) for state in ("up", "wanted")},
            "restarts": values.number(metrics.RESTARTS),
            "rebalances": values.number(metrics.REBALANCES),
            "aborts": values.number(metrics.TXN_ABORTS),
            "feeds": [
                {"topic": labels[0], "template": labels[1], "differs": value == 1}
                for labels, value in values.of(metrics.FEED_DIFFERS)
            ],
            "latency": [
                {"stage": name, "count": h.count, **{f"p{round(100 * q)}": quantile(h.counts, q) for q in QUANTILES}}
                for name, h in latency
            ],
        }


class _Values:
    """All series of a registry at one moment, by metric."""

    def __init__(self, registry: Registry) -> None:
        self._numbers: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[Metric, dict[tuple[str, ...], HistogramValue]] = {}
        for metric, labels, value in registry.collect():
            if isinstance(value, HistogramValue):
                self._histograms.setdefault(metric, {})[labels] = value
            else:
                self._numbers.setdefault(metric, {})[labels] = value

    def of(self, metric: Metric) -> Iterable[tuple[tuple[str, ...], float]]:
        """The series of a counter or gauge, by labels."""
        return self._numbers.get(metric, {}).items()

    def number(self, metric: Metric, *labels: str) -> float:
        """One counter or gauge; 0.0 without a sample."""
        return self._numbers.get(metric, {}).get(labels, 0.0)

    def numbers(self, metric: Metric) -> dict[str, float]:
        """The series of a counter or gauge, by their labels joined with a slash."""
        return {"/".join(labels): value for labels, value in self.of(metric)}

    def sums(self, metric: Metric, label: int) -> dict[str, float]:
        """The series of a counter, added up by the label with this index."""
        sums: dict[str, float] = {}
        for labels, value in self.of(metric):
            sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def histogram(self, metric: Metric) -> HistogramValue:
        """The histogram of a metric without labels."""
        return self._histograms.get(metric, {}).get((), HistogramValue())

    def histograms(self, metric: Metric) -> Iterable[tuple[tuple[str, ...], HistogramValue]]:
        """The series of a histogram, by labels."""
        return self._histograms.get(metric, {}).items()


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The time in seconds below which ``share`` of the observations lie; None without observations.

    Observations are assumed to be evenly distributed within their bucket. For the bucket without an upper bound the
    result is its lower bound, which means "at least".
    """
    total = sum(counts)
    if not total:
        return None
    wanted, seen = share * total, 0
    for number, count in enumerate(counts):
        if count and seen + count >= wanted:
            if number >= len(BUCKETS_S):
                break
            low = BUCKETS_S[number - 1] if number else 0.0
            return round(low + (BUCKETS_S[number] - low) * (wanted - seen) / count, 6)
        seen += count
    return BUCKETS_S[-1]


def _quantile_between(before: Sequence[int], after: Sequence[int], share: float) -> float | None:
    return quantile([b - a for a, b in zip(before, after, strict=True)], share)


def _rate(before: HistorySample, after: HistorySample, first: float, last: float, per_s: float = 1.0) -> float:
    return round(per_s * max(0.0, last - first) / max(after.at - before.at, 1e-3), 3)


def _thin_out(samples: Sequence[HistorySample]) -> list[HistorySample]:
    """At most ``_MAX_POINTS`` steps, including the newest sample.

    Omitted samples lose nothing: the difference between two counters contains all increments in between.
    """
    every = max(1, -(-(len(samples) - 1) // _MAX_POINTS))
    return list(samples[::-1][::every])[::-1]


def _most_frequent(first: Counts, last: Counts) -> list[str]:
    grown = {name: count - first.get(name, 0.0) for name, count in last.items()}
    return sorted((name for name in grown if grown[name] > 0), key=lambda name: (-grown[name], name))[:_MAX_TYPES]


def _sum_others(counts: Counts, types: Iterable[str]) -> float:
    return sum(counts.values()) - sum(counts.get(name, 0.0) for name in types)
