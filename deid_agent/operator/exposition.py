"""Our registry in Prometheus' text form 0.0.4, written by its own library."""

from collections.abc import Iterable
from itertools import accumulate, groupby

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from deid_agent.telemetry.metrics import BUCKETS_S, Histogram, Registry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (*map(str, BUCKETS_S), "+Inf")


class Exposition(Collector):
    """Reads ``registry`` when it is asked, and no global registry: nothing of a library is told by accident."""

    def __init__(self, registry: Registry) -> None:
        self._values = registry
        self._own = CollectorRegistry(auto_describe=False)
        self._own.register(self)

    def text(self) -> bytes:
        """Every metric that has a value, as it is now."""
        return generate_latest(self._own)

    def collect(self) -> Iterable[Metric]:
        """See ``Collector.collect``."""
        for metric, group in groupby(self._values.collect(), key=lambda item: item[0]):
            counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for _, labels, value in group:
                if isinstance(value, Histogram):
                    buckets = list(zip(_BOUNDS, accumulate(map(float, value.counts)), strict=True))
                    histogram.add_metric(labels, buckets, value.sum)
                elif metric.name.endswith("_total"):
                    counter.add_metric(labels, value)
                else:
                    gauge.add_metric(labels, value)
            yield next(family for family in (counter, gauge, histogram) if family.samples)
