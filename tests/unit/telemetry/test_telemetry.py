import inspect
import json
import logging
from dataclasses import fields, is_dataclass

import pytest

from deid_agent.errors import Reason
from deid_agent.telemetry import events, metrics
from deid_agent.telemetry.emit import JsonFormatter, Telemetry
from deid_agent.telemetry.metrics import BUCKETS_S, METRICS, Metric, MetricKind, Registry, Sample

ALL = [c for _, c in inspect.getmembers(events, inspect.isclass) if issubclass(c, events.Event)]
EXAMPLES = {
    "str": "code",
    "int": 3,
    "bool": True,
    "int | None": 3,
    "float": 0.5,
    "tuple[str, ...]": ("a/0",),
    "tuple[tuple[str, float], ...]": (("parse", 0.5),),
    "tuple[tuple[str, int], ...]": (("DATE", 2),),
}


def example(kind: type[events.Event]) -> events.Event:
    types = {f.name: f.type for f in fields(kind)}
    return kind(
        **{
            n: EXAMPLES[str(getattr(t, "__name__", t) if isinstance(t, type) and not hasattr(t, "__args__") else t)]
            for n, t in types.items()
        }
    )


def test_every_metric_is_in_the_list_once_and_has_an_event() -> None:
    named = [m for m in vars(metrics).values() if isinstance(m, Metric)]
    assert sorted(m.name for m in named) == sorted(m.name for m in METRICS)
    assert len({m.name for m in METRICS}) == len(METRICS) == 18
    told = {sample.metric for kind in ALL for sample in example(kind).samples()}
    assert told == set(METRICS)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_counts_and_becomes_one_line(kind: type[events.Event]) -> None:
    assert is_dataclass(kind)
    event = example(kind)
    Telemetry().emit(event)
    record = logging.LogRecord("deid_agent", kind.level, "", 0, kind.__name__, (), None)
    record.event = event
    line = JsonFormatter(clock=lambda: 1.5).format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert read["event"] == kind.__name__
    assert set(read) == {"time", "level", "event"} | {f.name for f in fields(kind)}


def test_a_foreign_line_keeps_its_place_and_loses_its_message() -> None:
    try:
        raise ValueError("Okonkwo")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("aiokafka", logging.ERROR, "/x/consumer.py", 12, "key %s", ("Okonkwo",), info)
    read = json.loads(JsonFormatter(clock=lambda: 1.5).format(record))
    assert read == {
        "time": 1.5,
        "level": "error",
        "event": "Foreign",
        "logger": "aiokafka",
        "place": "consumer.py:12",
        "error": "ValueError",
    }


def test_an_event_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "deid_agent"):
        Telemetry().emit(events.AgentStopped("requested", 2))
        Telemetry().emit(events.RecordProcessed("adt/0/1", 0.1, 1))
    assert [getattr(r, "event", None) for r in caplog.records] == [events.AgentStopped("requested", 2)]


def test_the_registry_adds_up() -> None:
    registry = Registry()
    for value in (0.0005, 0.001, 0.3, 99):
        registry.add(Sample(metrics.PROCESS_SECONDS, value))
    histogram = registry.histogram(metrics.PROCESS_SECONDS)
    assert (histogram.count, histogram.counts[0], histogram.counts[-1]) == (4, 2, 1)
    assert histogram.counts[BUCKETS_S.index(0.5)] == 1
    assert histogram.sum == pytest.approx(99.3015)
    registry.add(Sample(metrics.LETTERS, 2, ("LEAK",)))
    registry.add(Sample(metrics.LETTERS, 1, ("LEAK",)))
    registry.add(Sample(metrics.LAG, 9, ("adt", "0")))
    registry.add(Sample(metrics.LAG, 4, ("adt", "0")))
    assert registry.value(metrics.LETTERS, "LEAK") == 3
    assert registry.value(metrics.LAG, "adt", "0") == 4
    assert [metric.name for metric, _, value in registry.collect() if value] == [
        "deid_process_duration_seconds",
        "deid_consumer_lag",
        "deid_dlq_total",
    ]


def test_counters_of_codes_stand_at_zero_from_the_start() -> None:
    """A counter that first appears at 1 has no rise that an alert could see."""
    telemetry = Telemetry()
    started = {(metric.name, labels) for metric, labels, value in telemetry.registry.collect() if value == 0}
    assert {("deid_dlq_total", (code,)) for code in Reason} < started
    assert ("deid_txn_aborts_total", ()) in started
    telemetry.emit(events.PartitionsAssigned(("adt/0", "adt/1")))
    started = {(metric.name, labels) for metric, labels, value in telemetry.registry.collect() if value == 0}
    assert ("deid_messages_total", ("adt", "published")) in started


def test_gauges_of_a_partition_go_with_it() -> None:
    """A last value of a partition that has another owner would alarm for ever."""
    telemetry = Telemetry()
    for number in (0, 1):
        telemetry.emit(events.Gauged("adt", number, inflight=3, lag=9))
    telemetry.emit(events.PartitionsRevoked(("adt/0",), 3))
    left = {(metric, labels) for metric, labels, value in telemetry.registry.collect() if value in (3, 9)}
    assert left == {(metrics.LAG, ("adt", "1")), (metrics.INFLIGHT, ("adt", "1"))}
    telemetry.emit(events.Gauged("adt", 1, inflight=3, lag=None))
    left = {(metric, labels) for metric, labels, value in telemetry.registry.collect() if value in (3, 9)}
    assert left == {(metrics.INFLIGHT, ("adt", "1"))}


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="deid_dlq_total takes labels"):
        Registry().add(Sample(metrics.LETTERS))


def test_kinds_follow_the_names() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.name.endswith("_seconds") == (metric.kind is MetricKind.HISTOGRAM)
