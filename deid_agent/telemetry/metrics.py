"""Every metric by name, and the registry that keeps their values in memory."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from deid_agent.errors import Reason


class MetricKind(StrEnum):
    """How a metric's samples add up."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the list; ``labels`` are codes, topics and stages, never values of a message.

    ``known`` are the labels that stand at 0 from the start: a counter that first appears at 1 has no rise that an
    alert could see.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    known: tuple[tuple[str, ...], ...] = ()


MESSAGES = Metric("deid_messages_total", MetricKind.COUNTER, ("topic", "outcome"), "Records settled, by outcome.")
PROCESS_SECONDS = Metric(
    "deid_process_duration_seconds", MetricKind.HISTOGRAM, (), "Work on one record inside a worker."
)
STAGE_SECONDS = Metric("deid_stage_duration_seconds", MetricKind.HISTOGRAM, ("stage",), "Work on one record, by stage.")
LAG = Metric("deid_consumer_lag", MetricKind.GAUGE, ("topic", "partition"), "Records between the position and the end.")
INFLIGHT = Metric("deid_inflight", MetricKind.GAUGE, ("topic", "partition"), "Records taken and not yet settled.")
LETTERS = Metric(
    "deid_dlq_total", MetricKind.COUNTER, ("code",), "Dead letters, by reason.", tuple((str(code),) for code in Reason)
)
PHI = Metric("deid_phi_total", MetricKind.COUNTER, ("type",), "Values replaced, by type of PHI.")
RESTARTS = Metric(
    "deid_worker_restarts_total", MetricKind.COUNTER, (), "Workers killed or lost and started again.", ((),)
)
REBALANCES = Metric("deid_rebalances_total", MetricKind.COUNTER, (), "Assignments taken away.", ((),))
TXN_ABORTS = Metric(
    "deid_txn_aborts_total", MetricKind.COUNTER, (), "Transactions that were given up and made anew.", ((),)
)
SETTLE_SECONDS = Metric(
    "deid_settle_duration_seconds", MetricKind.HISTOGRAM, (), "One batch: audit, outputs, dead letters and position."
)
QUEUE = Metric("deid_queue_depth", MetricKind.GAUGE, (), "Records waiting for a worker.")
WORKERS = Metric("deid_workers", MetricKind.GAUGE, ("state",), "Worker processes: up, and wanted.")
READY = Metric("deid_ready", MetricKind.GAUGE, (), "1 where /readyz says yes, else 0.", ((),))
BUILD = Metric(
    "deid_build_info", MetricKind.GAUGE, ("version", "rules", "models", "policy"), "Always 1; what runs, by digest."
)
MLLP_CONNECTIONS = Metric("deid_mllp_connections", MetricKind.GAUGE, (), "Senders connected over MLLP.")
MLLP_ANSWERS = Metric("deid_mllp_answers_total", MetricKind.COUNTER, ("code",), "Answers to senders, by MSA-1.")
MLLP_FAULTS = Metric(
    "deid_mllp_faults_total", MetricKind.COUNTER, ("code",), "What came over MLLP and was no message, by reason."
)
MLLP_ANSWER_CODES = ("AA", "AE", "AR", "CA", "CE", "CR", "none")
MLLP_FAULT_CODES = ("JUNK", "TOO_LARGE", "RESTARTED", "TORN", "SLOW", "NOT_HL7", "SEVERAL", "CHARSET", "FULL")

METRICS: tuple[Metric, ...] = (
    MESSAGES,
    PROCESS_SECONDS,
    STAGE_SECONDS,
    LAG,
    INFLIGHT,
    LETTERS,
    PHI,
    RESTARTS,
    REBALANCES,
    TXN_ABORTS,
    SETTLE_SECONDS,
    QUEUE,
    WORKERS,
    READY,
    BUILD,
    MLLP_CONNECTIONS,
    MLLP_ANSWERS,
    MLLP_FAULTS,
)
"""All there are; the documentation includes this list."""

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of histogram buckets, in seconds; the last bucket is open."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A change of one metric: added to a counter, put into a gauge, observed by a histogram."""

    metric: Metric
    value: float = 1.0
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Histogram:
    """Observations by bucket; ``counts`` has one more entry than ``BUCKETS_S``."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


class Registry:
    """Values of all metrics. One thread writes; reading from another may see a sample late, never torn."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Metric, tuple[str, ...]], float] = {
            (metric, labels): 0.0 for metric in METRICS for labels in metric.known
        }
        self._histograms: dict[tuple[Metric, tuple[str, ...]], Histogram] = {}

    def add(self, sample: Sample) -> None:
        """Apply one sample. ``ValueError`` where its labels are not those of the metric."""
        if len(sample.labels) != len(sample.metric.labels):
            raise ValueError(f"{sample.metric.name} takes labels {sample.metric.labels}")
        key = (sample.metric, sample.labels)
        match sample.metric.kind:
            case MetricKind.COUNTER:
                self._numbers[key] = self._numbers.get(key, 0.0) + sample.value
            case MetricKind.GAUGE:
                self._numbers[key] = sample.value
            case MetricKind.HISTOGRAM:
                histogram = self._histograms.setdefault(key, Histogram())
                histogram.counts[bisect_left(BUCKETS_S, sample.value)] += 1
                histogram.sum += sample.value

    def forget(self, metric: Metric, *labels: str) -> None:
        """Let one gauge go: of a partition that has another owner a last value would stand, and alarm, for ever."""
        self._numbers.pop((metric, labels), None)

    def value(self, metric: Metric, *labels: str) -> float:
        """A counter or gauge; 0.0 before its first sample."""
        return self._numbers.get((metric, labels), 0.0)

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """A histogram; empty before its first sample."""
        return self._histograms.get((metric, labels), Histogram())

    def collect(self) -> Iterator[tuple[Metric, tuple[str, ...], float | Histogram]]:
        """Everything there is, in the order of ``METRICS``: what an exporter walks."""
        values: dict[tuple[Metric, tuple[str, ...]], float | Histogram] = {**self._numbers, **self._histograms}
        for metric in METRICS:
            for key in sorted((k for k in values if k[0] == metric), key=lambda k: k[1]):
                yield metric, key[1], values[key]
