"""The feeds of a running agent against the samples of their bounds: two windows in a row, state over restarts."""

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.bounds import make_bound, make_document
from support.recording import Recording

from deid_agent.agent import Processed
from deid_agent.app import NOTE, BoundFile
from deid_agent.cli.drift_monitor import MOST_FEEDS, NOT_COVERED, OTHER, DriftMonitor, read_states
from deid_agent.http import History
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import DriftNotWritten, FeedAsSampled, FeedDiffers, metrics

BOUND = make_bound()
OTHER_RATES = {"DATE": 0.2, "DOCTOR": 0.1, "PATIENT": 9.0}


def monitor(telemetry: Recording, path: Path | None = None, **bounds: BoundFile | None) -> DriftMonitor:
    return DriftMonitor(BOUND, bounds, telemetry, 50, path)


def feed(to: DriftMonitor, count: int, seed: int = 1, rates: Mapping[str, float] | None = None, **given: str) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        document = make_document(rng, **({} if rates is None else {"rates": rates}), **given)  # type: ignore[arg-type]
        to.add(Processed(b"", document=document))


def test_a_feed_like_the_sample_gives_no_alert() -> None:
    telemetry = Recording()
    feed(monitor(telemetry), 200)
    assert [type(each) for each in telemetry.events] == [FeedAsSampled] * 4
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 0


def test_two_windows_in_a_row_that_differ_are_an_alert_until_one_is_like_the_sample() -> None:
    telemetry = Recording()
    watched = monitor(telemetry)
    feed(watched, 50, rates=OTHER_RATES)
    (first,) = telemetry.events
    assert isinstance(first, FeedAsSampled)
    assert first.features
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 0
    feed(watched, 50, 2, OTHER_RATES)
    alert = telemetry.events[-1]
    assert isinstance(alert, FeedDiffers)
    assert (alert.topic, alert.template, alert.documents, alert.windows) == ("adt", NOTE, 50, 2)
    assert "type:PATIENT" in alert.features
    assert alert.psi > 0.25
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 1
    feed(watched, 50, 3)
    assert isinstance(telemetry.events[-1], FeedAsSampled)
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 0


def test_feeds_are_apart() -> None:
    telemetry = Recording()
    watched = monitor(telemetry)
    for seed in (1, 2):
        feed(watched, 50, seed, source="adt")
        feed(watched, 50, seed, OTHER_RATES, source="notes")
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "notes", NOTE) == 1
    assert History(telemetry.registry, lambda: 0.0).totals()["feeds"] == [
        {"topic": "adt", "template": NOTE, "differs": False},
        {"topic": "notes", "template": NOTE, "differs": True},
    ]
    assert telemetry.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 0


def test_a_patient_counts_once_in_a_window() -> None:
    telemetry = Recording()
    watched = monitor(telemetry)
    feed(watched, 200, rates=OTHER_RATES, patient="digest-of-one")
    assert not telemetry.events


def test_topics_of_a_project_without_a_bound_are_not_compared() -> None:
    telemetry = Recording()
    feed(monitor(telemetry, adt=None), 200, rates=OTHER_RATES)
    assert not telemetry.events


def test_no_message_names_a_feed_or_makes_them_many() -> None:
    telemetry = Recording()
    watched = monitor(telemetry)
    for number in range(3 * MOST_FEEDS):
        feed(watched, 1, number, template=f"Okafor{number}", source=f"t{number}")
    names = {each.template for each in watched._feeds.values()}
    assert len(watched._feeds) <= MOST_FEEDS + 1
    assert names == {OTHER, BOUND.digest}


def test_the_state_is_continued_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"

    async def run(seed: int, count: int) -> Recording:
        telemetry = Recording()
        watched = monitor(telemetry, path)
        async with watched.kept_written():
            feed(watched, count, seed, OTHER_RATES, patient="")
        return telemetry

    asyncio.run(run(1, 80))
    (state,) = read_states(path)
    assert (state.compared, state.run, state.documents, state.differs) == (1, 1, 30, False)
    telemetry = asyncio.run(run(2, 20))
    assert isinstance(telemetry.events[-1], FeedDiffers)
    (state,) = read_states(path)
    assert state.differs
    assert state.remark.endswith(NOT_COVERED)
    assert [each.name for each in tmp_path.iterdir()] == ["drift.json"]
    again = asyncio.run(run(3, 0))
    assert again.registry.value(metrics.FEED_DIFFERS, "adt", NOTE) == 1, "an alert outlives a restart"


def test_the_file_holds_counts_and_no_patient(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watched = monitor(Recording(), path)
    feed(watched, 10, patient="c0ffee")
    watched.write()
    assert "c0ffee" not in path.read_text("utf-8")


def test_the_state_of_another_sample_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watched = monitor(Recording(), path)
    feed(watched, 60, rates=OTHER_RATES)
    watched.write()
    renewed = DriftMonitor(make_bound(seed=8), {}, Recording(), 50, path)
    assert not renewed._feeds


@pytest.mark.parametrize("data", [b" ", b"{}", b"[]", b"\xff", b'{"format":1,"feeds":[{"topic":"a"}]}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "drift.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"drift\.file: .*: is not a file of these comparisons"):
        monitor(Recording(), path)


def test_an_empty_file_of_a_lost_host_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    path.write_bytes(b"")
    watched = monitor(Recording(), path)
    feed(watched, 3)
    watched.write()
    assert read_states(path)


def test_a_file_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such folder"):
        monitor(Recording(), tmp_path / "none" / "drift.json")


def test_a_window_of_another_shape_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watched = monitor(Recording(), path)
    feed(watched, 10)
    watched.write()
    content = json.loads(path.read_bytes())
    content["feeds"][0]["window"] = [[1, 2]]
    path.write_bytes(json.dumps(content).encode())
    feed(monitor(Recording(), path), 60)


def test_a_window_that_was_edited_by_hand_is_begun_anew_and_its_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watched = monitor(Recording(), path)
    feed(watched, 60)
    watched.write()
    content = json.loads(path.read_bytes())
    for documents in (0, 49, 10**9):
        content["feeds"][0]["documents"] = documents
        path.write_text(json.dumps(content), "utf-8")
        (state,) = monitor(Recording(), path)._feeds.values()
        assert (state.documents, state.compared, sum(map(sum, state.window))) == (0, 1, 0)
    content["feeds"][0]["features"] = ["Mrs. Zyblorq"]
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ConfigurationError, match="is not a file of these comparisons") as caught:
        monitor(Recording(), path)
    assert "Zyblorq" not in str(caught.value)


def test_a_full_disk_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    telemetry = Recording()
    (tmp_path / "state").mkdir()
    watched = monitor(telemetry, tmp_path / "state" / "drift.json")
    feed(watched, 3)
    (tmp_path / "state").rmdir()
    watched.write()
    assert isinstance(telemetry.events[-1], DriftNotWritten)
    (tmp_path / "state").mkdir()
    watched.write()
    assert read_states(tmp_path / "state" / "drift.json")
