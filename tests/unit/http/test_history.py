"""The plots: rates between two samples, and quantiles of the histogram."""

import pytest

from deid_agent.http.history import History, quantile
from deid_agent.telemetry import events
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.metrics import BUCKETS_S


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rates_quantiles_and_lag_of_each_step(clock: Clock) -> None:
    telemetry = Telemetry()
    history = History(telemetry.registry, clock)
    history.take_sample()
    for _ in range(20):
        telemetry.emit(events.RecordProcessed("adt/0/1", 0.03, 1, (("parse", 0.01),), (("DATE", 3), ("ZIP", 1))))
    telemetry.emit(events.BatchCommitted("adt", 0, 20, 18, 0, 2, 0.2))
    telemetry.emit(events.Gauged("adt", 0, 4, 7))
    clock.now += 10
    history.take_sample()
    clock.now += 10
    telemetry.emit(events.PartitionsRevoked(("adt/0",), 0))
    history.take_sample()
    shown = history.series(15)
    assert shown["at"] == [1_000_010.0, 1_000_020.0]
    assert shown["throughput"] == {"published": [1.8, 0.0], "dead_lettered": [0.2, 0.0], "suppressed": [0.0, 0.0]}
    assert shown["latency"] == {"p50": [0.0375, None], "p95": [0.04875, None], "p99": [0.04975, None]}
    assert shown["lag"] == {"adt/0": [7, None]}, "the lag of a revoked partition is absent, not zero"
    assert shown["phi"] == {"DATE": [360.0, 0.0], "ZIP": [120.0, 0.0], "other": [0.0, 0.0]}
    totals = history.totals()
    assert totals["phi"] == {"DATE": 60.0, "ZIP": 20.0}
    latency = totals["latency"]
    assert isinstance(latency, list) and [one["stage"] for one in latency] == [
        "whole record",
        "parse",
        "commit of one batch",
    ]


def test_an_hour_is_kept_and_thinned_with_the_newest_in_it(clock: Clock) -> None:
    telemetry = Telemetry()
    history = History(telemetry.registry, clock)
    for _ in range(1000):
        telemetry.emit(events.BatchCommitted("adt", 0, 1, 10, 0, 0, 0.1))
        history.take_sample()
        clock.now += 5
    shown = history.series(60)
    at, throughput = shown["at"], shown["throughput"]
    assert isinstance(at, list) and isinstance(throughput, dict)
    assert len(at) <= 180 and at[-1] == clock.now - 5
    assert set(throughput["published"]) == {2.0}, "no count is lost if samples are omitted"
    assert len(history.samples) == 721


def test_an_empty_history_has_no_series(clock: Clock) -> None:
    history = History(Telemetry().registry, clock)
    assert history.series(5)["at"] == []
    history.take_sample()
    assert history.series(5)["at"] == []


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ([0] * 14, 0.5, None),
        ([4] + [0] * 13, 0.5, 0.0005),
        ([0] * 13 + [3], 0.99, 10.0),
        ([1, 1] + [0] * 12, 0.5, 0.001),
    ],
)
def test_a_quantile_is_interpolated_linearly_in_its_bucket(
    counts: list[int], share: float, wanted: float | None
) -> None:
    assert len(counts) == len(BUCKETS_S) + 1
    assert quantile(counts, share) == wanted


def test_only_the_most_frequent_types_have_a_separate_series(clock: Clock) -> None:
    telemetry = Telemetry()
    history = History(telemetry.registry, clock)
    history.take_sample()
    telemetry.emit(events.RecordProcessed("adt/0/1", 0.03, 1, (), tuple((f"T{n:02}", n) for n in range(1, 13))))
    clock.now += 60
    history.take_sample()
    phi = history.series(5)["phi"]
    assert isinstance(phi, dict)
    assert list(phi) == [*(f"T{n:02}" for n in range(12, 4, -1)), "other"]
    assert phi["other"] == [10.0]
