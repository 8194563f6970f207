"""The seconds of a message by stage: each moment counts once."""

from collections.abc import Iterator
from itertools import count

import pytest
from support.corpus import RULES

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.timings import Timings, format_time
from deid_agent.pipeline.policy import load_policy


def test_an_inner_stage_does_not_count_for_the_outer_one() -> None:
    ticks: Iterator[int] = count()
    timings = Timings(lambda: float(next(ticks)))
    with timings.measure("edit"):
        with timings.measure("parse"):
            pass
        with timings.measure("surrogate"), timings.measure("recognize"):
            pass
    assert dict(timings.seconds_by_stage) == {"edit": 3, "parse": 1, "surrogate": 2, "recognize": 1}


def test_a_stage_ends_with_an_exception() -> None:
    ticks: Iterator[int] = count()
    timings = Timings(lambda: float(next(ticks)))
    with pytest.raises(KeyError), timings.measure("parse"):
        raise KeyError
    with timings.measure("edit"):
        pass
    assert dict(timings.seconds_by_stage) == {"parse": 1, "edit": 1}


def test_seconds_measured_elsewhere_can_be_added() -> None:
    ticks: Iterator[int] = count()
    timings = Timings(lambda: float(next(ticks)))
    timings.add("recognize", 0.25)
    with timings.measure("edit"):
        timings.add("recognize", 0.5)
    assert timings.seconds_by_stage == (("recognize", 0.75), ("edit", 1))


def test_a_message_has_the_seconds_of_every_stage() -> None:
    rules = RULES
    made = WorkerFactory(
        rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules), system="rules"
    ).deidentifier()
    note = "MSH|^~\\&|A|B|C|D|20240318||ORU^R01|1|P|2.5.1\rPID|1||77||Okafor^Ada\rOBX|1|TX|1||Ada Okafor came.||||||F\r"
    done = made.message(note.encode())
    spent = dict(done.timings)
    assert set(spent) == {"edit", "parse", "recognize", "surrogate", "guard"}
    assert all(seconds > 0 for seconds in spent.values())


def test_times_are_iso_8601_in_utc() -> None:
    assert format_time(1795478399.9) == "2026-11-23T23:59:59Z"
    assert format_time(1795478399.25, "milliseconds") == "2026-11-23T23:59:59.250Z"
    assert format_time(1e30) == "?"
