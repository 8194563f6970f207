"""The last hour of the metrics, in memory: what the plots of the overview show. Counts and codes alone."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deid_agent.telemetry import metrics
from deid_agent.telemetry.metrics import BUCKETS_S, Histogram, Metric, Registry

EVERY_S = 5.0
_POINTS = 180
_TYPES = 8
QUANTILES = (0.5, 0.95, 0.99)

Counts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """The registry at one moment. ``buckets`` are those of a record's work, whatever its topic."""

    at: float
    outcomes: Counts
    phi: Counts
    buckets: tuple[int, ...]
    lag: Counts
    inflight: Counts
    queue: float


@dataclass(slots=True)
class History:
    """Samples of ``registry``, the newest last; ``clock`` gives seconds since 1970. An hour at one each 5 s."""

    registry: Registry
    clock: Callable[[], float]
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=721), repr=False)

    def take(self) -> None:
        """One more sample. Called on the loop, which alone writes the registry: it is never torn."""
        values = self.registry
        self.samples.append(
            Sample(
                at=self.clock(),
                outcomes=_summed(values, metrics.MESSAGES, 1),
                phi=_summed(values, metrics.PHI, 0),
                buckets=tuple(values.histogram(metrics.PROCESS_SECONDS).counts),
                lag=_labelled(values, metrics.LAG),
                inflight=_labelled(values, metrics.INFLIGHT),
                queue=values.value(metrics.QUEUE),
            )
        )

    def series(self, minutes: float) -> dict[str, object]:
        """The plots of the last ``minutes``: at most 180 points, each over what happened since the one before."""
        since = self.clock() - 60 * minutes
        chosen = _thinned([sample for sample in self.samples if sample.at >= since])
        steps = list(pairwise(chosen))
        kinds = _most(chosen[0].phi, chosen[-1].phi) if chosen else []
        streams = sorted({name for sample in chosen for name in sample.lag})
        return {
            "at": [round(after.at, 1) for _, after in steps],
            "throughput": {
                name: [_rate(a, b, a.outcomes.get(name, 0.0), b.outcomes.get(name, 0.0)) for a, b in steps]
                for name in ("published", "dead_lettered", "suppressed")
            },
            "latency": {
                f"p{round(100 * share)}": [_between(a.buckets, b.buckets, share) for a, b in steps]
                for share in QUANTILES
            },
            "lag": {name: [after.lag.get(name) for _, after in steps] for name in streams},
            "queue": [after.queue for _, after in steps],
            "phi": {
                **{kind: [_rate(a, b, a.phi.get(kind, 0), b.phi.get(kind, 0), 60) for a, b in steps] for kind in kinds},
                "other": [_rate(a, b, _rest(a.phi, kinds), _rest(b.phi, kinds), 60) for a, b in steps],
            },
        }

    def totals(self) -> dict[str, object]:
        """The numbers since the start of the process."""
        values = self.registry
        stages = [(labels[0], h) for m, labels, h in _of(values, metrics.STAGE_SECONDS) if isinstance(h, Histogram)]
        latency = [
            ("whole record", values.histogram(metrics.PROCESS_SECONDS)),
            *stages,
            ("one batch settled", values.histogram(metrics.SETTLE_SECONDS)),
        ]
        return {
            "messages": [
                {"topic": labels[0], "outcome": labels[1], "count": value}
                for _, labels, value in _of(values, metrics.MESSAGES)
            ],
            "phi": _labelled(values, metrics.PHI),
            "letters": _labelled(values, metrics.LETTERS),
            "lag": _labelled(values, metrics.LAG),
            "inflight": _labelled(values, metrics.INFLIGHT),
            "queue": values.value(metrics.QUEUE),
            "workers": {state: values.value(metrics.WORKERS, state) for state in ("up", "wanted")},
            "restarts": values.value(metrics.RESTARTS),
            "rebalances": values.value(metrics.REBALANCES),
            "aborts": values.value(metrics.TXN_ABORTS),
            "latency": [
                {"stage": name, "count": h.count, **{f"p{round(100 * q)}": quantile(h.counts, q) for q in QUANTILES}}
                for name, h in latency
            ],
        }


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Seconds below which ``share`` of the observations lie, by straight lines inside of buckets; None without any.

    What lies in the open bucket is told as its lower bound: "at least".
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


def _between(before: Sequence[int], after: Sequence[int], share: float) -> float | None:
    return quantile([b - a for a, b in zip(before, after, strict=True)], share)


def _rate(before: Sample, after: Sample, first: float, last: float, per_s: float = 1.0) -> float:
    return round(per_s * max(0.0, last - first) / max(after.at - before.at, 1e-3), 3)


def _thinned(samples: Sequence[Sample]) -> list[Sample]:
    """At most ``_POINTS`` steps, the newest among them; counters need no mean, the next difference holds all."""
    every = max(1, -(-(len(samples) - 1) // _POINTS))
    return list(samples[::-1][::every])[::-1]


def _most(first: Counts, last: Counts) -> list[str]:
    grown = {kind: count - first.get(kind, 0.0) for kind, count in last.items()}
    return sorted((kind for kind in grown if grown[kind] > 0), key=lambda kind: (-grown[kind], kind))[:_TYPES]


def _rest(counts: Counts, kinds: Iterable[str]) -> float:
    return sum(counts.values()) - sum(counts.get(kind, 0.0) for kind in kinds)


def _of(values: Registry, metric: Metric) -> list[tuple[Metric, tuple[str, ...], float | Histogram]]:
    return [item for item in values.collect() if item[0] is metric]


def _labelled(values: Registry, metric: Metric) -> dict[str, float]:
    found = _of(values, metric)
    return {"/".join(labels): value for _, labels, value in found if not isinstance(value, Histogram)}


def _summed(values: Registry, metric: Metric, label: int) -> dict[str, float]:
    out: dict[str, float] = {}
    for _, labels, value in _of(values, metric):
        if not isinstance(value, Histogram):
            out[labels[label]] = out.get(labels[label], 0.0) + value
    return out
