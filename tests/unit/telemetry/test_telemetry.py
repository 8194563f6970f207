"""Every event is one log line and a set of samples, and the registry holds their sums."""

import inspect
import json
import logging
import os
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import prometheus_client
import pytest

from deid_agent.model.errors import Reason
from deid_agent.telemetry import events, metrics, transport_events
from deid_agent.telemetry.emit import JsonFormatter, RepeatFilter, Telemetry
from deid_agent.telemetry.metrics import BUCKETS_S, METRICS, Metric, MetricKind, Registry, Sample

ALL = sorted(
    {
        c
        for module in (events, transport_events)
        for _, c in inspect.getmembers(module, inspect.isclass)
        if issubclass(c, events.Event)
    },
    key=lambda c: c.__name__,
)
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
    assert len({m.name for m in METRICS}) == len(METRICS) == 29
    assert {sample.metric for kind in ALL for sample in example(kind).samples()} == set(METRICS)


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


def test_a_foreign_log_line_keeps_its_location_without_its_message() -> None:
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
    registry.add(Sample(metrics.DEAD_LETTERS, 2, ("LEAK",)))
    registry.add(Sample(metrics.DEAD_LETTERS, 1, ("LEAK",)))
    registry.add(Sample(metrics.LAG, 9, ("adt", "0")))
    registry.add(Sample(metrics.LAG, 4, ("adt", "0")))
    assert registry.value(metrics.DEAD_LETTERS, "LEAK") == 3
    assert registry.value(metrics.LAG, "adt", "0") == 4
    assert registry.value(metrics.MESSAGES, "adt", "published") == 0, "a series that does not exist yet"


def test_collect_yields_every_series_in_the_order_of_the_list() -> None:
    registry = Registry()
    registry.add(Sample(metrics.STAGE_SECONDS, 0.2, ("parse",)))
    registry.add(Sample(metrics.STAGE_SECONDS, 0.003, ("guard",)))
    series = [(metric, labels) for metric, labels, _ in registry.collect()]
    assert [metric for metric in METRICS if metric in dict(series)] == list(
        dict.fromkeys(metric for metric, _ in series)
    )
    assert [labels for metric, labels in series if metric is metrics.STAGE_SECONDS] == [("guard",), ("parse",)]
    assert {metric for metric in METRICS if not metric.labels} <= set(dict(series)), "without labels: from the start"


def test_the_exposition_holds_the_metrics_of_the_list_and_no_other() -> None:
    """Neither the library's metrics about the process, nor its ``_created`` series."""
    registry = Registry()
    registry.add(Sample(metrics.COMMIT_SECONDS, 0.2))
    text = registry.exposition().decode()
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert families == [metric.name for metric in METRICS]
    assert 'deid_commit_duration_seconds_bucket{le="0.25"} 1.0' in text
    assert "_created" not in text and "python_info" not in text


def test_two_registries_share_nothing() -> None:
    first, second = Registry(), Registry()
    first.add(Sample(metrics.RESTARTS))
    assert (first.value(metrics.RESTARTS), second.value(metrics.RESTARTS)) == (1, 0)


def test_counters_of_codes_start_at_zero() -> None:
    """A counter that first appears at 1 shows no increase, and an alert would miss it."""
    telemetry = Telemetry()
    started = {(metric.name, labels) for metric, labels, value in telemetry.registry.collect() if value == 0}
    assert {("deid_dlq_total", (code,)) for code in Reason} < started
    assert ("deid_txn_aborts_total", ()) in started
    telemetry.emit(events.PartitionsAssigned(("adt/0", "adt/1")))
    started = {(metric.name, labels) for metric, labels, value in telemetry.registry.collect() if value == 0}
    assert ("deid_messages_total", ("adt", "published")) in started


def test_gauges_of_a_partition_are_removed_with_it() -> None:
    """The last value of a partition that has another owner would alert forever."""
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
        Registry().add(Sample(metrics.DEAD_LETTERS))


def test_kinds_follow_the_names() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.name.endswith("_seconds") == (metric.kind is MetricKind.HISTOGRAM)


def test_a_folder_for_several_processes_has_no_effect(tmp_path: Path) -> None:
    """The library would write label values to files there, and the agent would not start without the folder."""
    script = "from deid_agent.telemetry import Registry; print(len(Registry().exposition()) > 100)"
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "absent")}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_repeated_cause_is_logged_once_a_minute_and_always_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    telemetry = Telemetry(clock=lambda: now[0])
    with caplog.at_level(logging.DEBUG, "deid_agent"):
        for now[0], error in ((0.0, "A"), (1.0, "A"), (2.0, "B"), (59.0, "A"), (61.0, "A")):
            telemetry.emit(transport_events.TransactionAborted("adt", 0, error))
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.DEBUG, logging.WARNING, logging.DEBUG, logging.WARNING]
    assert telemetry.registry.value(metrics.TXN_ABORTS) == 5


def test_lines_of_a_library_are_written_once_a_minute_for_each_place() -> None:
    now = [0.0]
    rare = RepeatFilter(clock=lambda: now[0])

    def line(number: int, **extra: object) -> logging.LogRecord:
        record = logging.LogRecord("aiokafka", logging.ERROR, "/x/conn.py", number, "%s", ("Okonkwo",), None)
        record.__dict__ |= extra
        return record

    assert [rare.filter(line(7)) for _ in range(70)].count(True) == 1
    assert rare.filter(line(8)), "another place"
    assert all(rare.filter(line(9, event=events.AgentFailed("x"))) for _ in range(2)), "our own lines"
    now[0] = 60.0
    assert rare.filter(line(7))


def test_histograms_are_exposed_as_the_library_exposes_its_own() -> None:
    registry = Registry()
    theirs = prometheus_client.CollectorRegistry()
    stage, commit = metrics.STAGE_SECONDS, metrics.COMMIT_SECONDS
    same = {
        metric: prometheus_client.Histogram(metric.name, metric.help, metric.labels, registry=theirs, buckets=BUCKETS_S)
        for metric in (stage, commit)
    }
    for seconds in (0.0, 0.001, 0.0011, 0.25, 0.3, 10.0, 11.0):
        registry.add(Sample(commit, seconds))
        same[commit].observe(seconds)
        for name in ("parse", "edit"):
            registry.add(Sample(stage, seconds, (name,)))
            same[stage].labels(name).observe(seconds)
    expected = set(prometheus_client.generate_latest(theirs).decode().splitlines())
    found = {line for line in registry.exposition().decode().splitlines() if stage.name in line or commit.name in line}
    assert found == expected
    assert len(expected) == 2 * 2 + 3 * (len(BUCKETS_S) + 3)
