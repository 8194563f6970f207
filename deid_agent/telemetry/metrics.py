"""The list of all metrics, and the private registry that holds their values."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from deid_agent.model import Reason

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge
    from prometheus_client.core import HistogramMetricFamily

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of ``Registry.exposition``."""


class MetricKind(StrEnum):
    """How the samples of a metric combine: they add up, replace each other, or are counted by bucket."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The definition of one metric. Labels are codes, topics and stages, never values from a message.

    ``known`` lists label values that are exposed at 0 from the start. A counter that first appears at 1 shows no
    increase, so an alert on its rate would miss the first occurrence. Metrics without labels always start at 0.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    known: tuple[tuple[str, ...], ...] = ()


MESSAGES = Metric("deid_messages_total", MetricKind.COUNTER, ("topic", "outcome"), "Records committed, by outcome.")
PROCESS_SECONDS = Metric(
    "deid_process_duration_seconds", MetricKind.HISTOGRAM, (), "Processing time of one record in a worker."
)
STAGE_SECONDS = Metric(
    "deid_stage_duration_seconds", MetricKind.HISTOGRAM, ("stage",), "Processing time of one record, by stage."
)
LAG = Metric(
    "deid_consumer_lag",
    MetricKind.GAUGE,
    ("topic", "partition"),
    "Records between the committed position and the end of the partition.",
)
INFLIGHT = Metric("deid_inflight", MetricKind.GAUGE, ("topic", "partition"), "Records read and not yet committed.")
DEAD_LETTERS = Metric(
    "deid_dlq_total", MetricKind.COUNTER, ("code",), "Dead letters, by reason.", tuple((str(code),) for code in Reason)
)
PHI = Metric("deid_phi_total", MetricKind.COUNTER, ("type",), "Values replaced, by PHI type.")
PATIENTS = Metric(
    "deid_patients_total",
    MetricKind.COUNTER,
    ("listing",),
    "Patients of messages by their listing in the scope table.",
)
RESTARTS = Metric(
    "deid_worker_restarts_total", MetricKind.COUNTER, (), "Workers restarted after they died or passed their deadline."
)
REBALANCES = Metric("deid_rebalances_total", MetricKind.COUNTER, (), "Times that partitions were revoked.")
TXN_ABORTS = Metric("deid_txn_aborts_total", MetricKind.COUNTER, (), "Kafka transactions aborted.")
BROKER_UNREACHABLE = Metric("deid_broker_unreachable", MetricKind.GAUGE, (), "1 while no Kafka broker answers, else 0.")
COMMIT_SECONDS = Metric(
    "deid_commit_duration_seconds",
    MetricKind.HISTOGRAM,
    (),
    "Time to commit one batch: audit, outputs, dead letters and position.",
)
QUEUE = Metric("deid_queue_depth", MetricKind.GAUGE, (), "Records waiting for a worker.")
WORKERS = Metric("deid_workers", MetricKind.GAUGE, ("state",), "Worker processes: up, and wanted.")
READY = Metric("deid_ready", MetricKind.GAUGE, (), "1 if /readyz reports ready, else 0.")
BUILD = Metric(
    "deid_build_info",
    MetricKind.GAUGE,
    ("version", "rules", "models", "policy", "core", "site", "bound"),
    "Always 1. The labels hold the version, the digests of rules, models, policy, site and leak bound, and the core.",
)
FEED_DIFFERS = Metric(
    "deid_feed_differs",
    MetricKind.GAUGE,
    ("topic", "template"),
    "1 while documents differ from the sample of the leak bound, else 0.",
)
MLLP_CONNECTIONS = Metric("deid_mllp_connections", MetricKind.GAUGE, (), "Senders connected over MLLP.")
MLLP_ANSWERS = Metric(
    "deid_mllp_answers_total", MetricKind.COUNTER, ("code",), "Acknowledgments sent to MLLP senders, by MSA-1."
)
MLLP_FAULTS = Metric(
    "deid_mllp_faults_total",
    MetricKind.COUNTER,
    ("code",),
    "MLLP input that was not a message, and connections refused, by reason.",
)
WITNESS = Metric(
    "deid_audit_witness_failing",
    MetricKind.GAUGE,
    ("place",),
    "1 while a witness of the audit does not accept the signed head, else 0.",
)
MLLP_GAVE_WAY = Metric(
    "deid_mllp_gave_way_total",
    MetricKind.COUNTER,
    ("state",),
    "MLLP connections closed for another sender because all were in use, by their state.",
)
SERVICE_REQUESTS = Metric(
    "deid_service_requests_total",
    MetricKind.COUNTER,
    ("route", "status"),
    "Requests to the HTTP interface, by route and status.",
)
SERVICE_CONNECTIONS = Metric("deid_service_connections", MetricKind.GAUGE, (), "Connections to the HTTP interface.")
SERVICE_BYTES = Metric(
    "deid_service_inflight_bytes", MetricKind.GAUGE, (), "Bytes of requests to the HTTP interface in process."
)
SERVICE_JOBS = Metric(
    "deid_service_jobs_total", MetricKind.COUNTER, ("state",), "Ended jobs of the HTTP interface, by their state."
)
SERVICE_JOB_STATES = ("done", "failed", "cancelled")
MLLP_ANSWER_CODES = ("AA", "AE", "AR", "CA", "CE", "CR", "none")
MLLP_FAULT_CODES = ("JUNK", "TOO_LARGE", "RESTARTED", "TORN", "SLOW", "NOT_HL7", "SEVERAL", "CHARSET", "FULL")
MLLP_GAVE_WAY_STATES = ("slow", "unproven", "idle", "long", "share", "busy")
PROJECT_MESSAGES = Metric(
    "deid_project_messages_total", MetricKind.COUNTER, ("project", "outcome"), "Records committed, by project."
)
PROJECT = Metric(
    "deid_project_info",
    MetricKind.GAUGE,
    ("project", "policy", "key", "generation"),
    "Always 1. The labels hold the digest of the policy, the id of the key and its generation.",
)

METRICS: tuple[Metric, ...] = (
    MESSAGES,
    PROCESS_SECONDS,
    STAGE_SECONDS,
    LAG,
    INFLIGHT,
    DEAD_LETTERS,
    PHI,
    PATIENTS,
    RESTARTS,
    REBALANCES,
    TXN_ABORTS,
    BROKER_UNREACHABLE,
    COMMIT_SECONDS,
    QUEUE,
    WORKERS,
    READY,
    BUILD,
    MLLP_CONNECTIONS,
    MLLP_ANSWERS,
    MLLP_FAULTS,
    WITNESS,
    MLLP_GAVE_WAY,
    PROJECT_MESSAGES,
    PROJECT,
    SERVICE_REQUESTS,
    SERVICE_CONNECTIONS,
    SERVICE_BYTES,
    SERVICE_JOBS,
    FEED_DIFFERS,
)
"""Every metric of the agent, in the order of the reference documentation."""

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram buckets in seconds. One more bucket, without a bound, follows them."""


class Sample(NamedTuple):
    """A change of one metric: an increment of a counter, the new value of a gauge, an observation of a histogram."""

    metric: Metric
    value: float = 1.0
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class HistogramValue:
    """Observations by bucket. ``counts`` has one entry for each bound of ``BUCKETS_S``, and one more."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum: float = 0.0

    def observe(self, value: float) -> None:
        """Count one observation. A bucket includes its upper bound."""
        self.counts[bisect_left(BUCKETS_S, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)


class Registry:
    """The metrics of ``METRICS`` as ``prometheus_client`` objects.

    They belong to a private ``CollectorRegistry``: the process-wide default registry of the library also holds
    metrics about the Python process, which are not exposed. Histograms are counted here and given to the library when
    they are read: its ``observe`` compares every bound and locks every bucket, and three are observed for each record.
    Only the event loop observes them.
    """

    def __init__(self) -> None:
        # Imported here because the library takes 60 ms to load. Worker processes and the commands that only transform
        # a text import this module and never make a registry.
        # With one of these variables the library writes label values to files of that folder, and fails without it.
        for variable in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"):
            os.environ.pop(variable, None)
        import prometheus_client as library  # noqa: PLC0415

        # Otherwise each counter and histogram gets a second series with the time of its creation.
        library.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation here
        self._collectors = library.CollectorRegistry(auto_describe=False)
        self._write_exposition = library.generate_latest
        self._families: dict[Metric, Counter | Gauge] = {}
        self._histograms: dict[Metric, dict[tuple[str, ...], HistogramValue]] = {}
        self._updates: dict[tuple[Metric, tuple[str, ...]], Callable[[float], None]] = {}
        for metric in METRICS:
            name, text, labels = metric.name, metric.help, metric.labels
            match metric.kind:
                case MetricKind.COUNTER:
                    self._families[metric] = library.Counter(name, text, labels, registry=self._collectors)
                case MetricKind.GAUGE:
                    self._families[metric] = library.Gauge(name, text, labels, registry=self._collectors)
                case MetricKind.HISTOGRAM:
                    self._histograms[metric] = {}
                    self._collectors.register(_HistogramCollector(metric, self._histograms[metric]))
            for known in metric.known or (() if metric.labels else ((),)):
                self._update_of(metric, known)

    def add(self, sample: Sample) -> None:
        """Apply one sample. Raises ``ValueError`` if its labels are not those of the metric."""
        # The lookup of a series by its labels takes a lock and several checks, so its update method is kept.
        update = self._updates.get((sample.metric, sample.labels)) or self._update_of(sample.metric, sample.labels)
        update(sample.value)

    def forget(self, metric: Metric, *labels: str) -> None:
        """Remove one gauge. The last value of a revoked partition would otherwise be exposed, and alarm, for ever."""
        if self._updates.pop((metric, labels), None) is not None:
            self._families[metric].remove(*labels)

    def value(self, metric: Metric, *labels: str) -> float:
        """The value of a counter or gauge; 0.0 before its first sample."""
        return self._collectors.get_sample_value(metric.name, dict(zip(metric.labels, labels, strict=True))) or 0.0

    def histogram(self, metric: Metric, *labels: str) -> HistogramValue:
        """The value of a histogram; empty before its first sample."""
        found = self._histograms[metric].get(labels, HistogramValue())
        return HistogramValue(list(found.counts), found.sum)

    def collect(self) -> Iterator[tuple[Metric, tuple[str, ...], float | HistogramValue]]:
        """Yield every series with its value, in the order of ``METRICS`` and then of its labels."""
        for metric in METRICS:
            values: Mapping[tuple[str, ...], float | HistogramValue]
            if metric.kind is MetricKind.HISTOGRAM:
                values = {labels: self.histogram(metric, *labels) for labels in self._histograms[metric]}
            else:
                values = dict(self._read(metric))
            for labels in sorted(values):
                yield metric, labels, values[labels]

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format 0.0.4."""
        return self._write_exposition(self._collectors)

    def _update_of(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        """The method that applies a value to one series. The series is created if it does not exist."""
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} takes labels {metric.labels}")
        update: Callable[[float], None]
        if metric.kind is MetricKind.HISTOGRAM:
            update = self._histograms[metric].setdefault(labels, HistogramValue()).observe
        else:
            family = self._families[metric]
            series: object = family.labels(*labels) if labels else family
            update = getattr(series, _UPDATES[metric.kind])
        self._updates[metric, labels] = update
        return update

    def _read(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """The samples of a counter or gauge: the label values, the value."""
        for family in self._families[metric].collect():
            for sample in family.samples:
                labels = tuple(sample.labels[name] for name in metric.labels)
                yield labels, sample.value


@dataclass(frozen=True, slots=True, eq=False)
class _HistogramCollector:
    """Gives the series of one histogram to the library, in the order of their labels."""

    metric: Metric
    series: Mapping[tuple[str, ...], HistogramValue]

    def collect(self) -> Iterator["HistogramMetricFamily"]:
        """The family of the library, whose buckets are cumulative."""
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - see ``Registry``

        family = HistogramMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)
        bounds = (*(str(bound) for bound in BUCKETS_S), "+Inf")
        for labels in sorted(self.series):
            found = self.series[labels]
            buckets = list(zip(bounds, map(float, accumulate(found.counts)), strict=True))
            family.add_metric(labels, buckets, found.sum)
        yield family


_UPDATES = {MetricKind.COUNTER: "inc", MetricKind.GAUGE: "set"}
