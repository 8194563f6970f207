"""Stages of one message: each moment counts once."""

from collections.abc import Iterator
from itertools import count

import pytest
from support.corpus import RULES

from deid_agent import policy
from deid_agent.key import DEMO
from deid_agent.laps import Laps
from deid_agent.wiring import Workshop


def test_inner_stages_are_taken_from_outer_ones() -> None:
    ticks: Iterator[int] = count()
    laps = Laps(lambda: float(next(ticks)))
    with laps.of("edit"):
        with laps.of("parse"):
            pass
        with laps.of("surrogate"), laps.of("recognize"):
            pass
    assert dict(laps.timings) == {"edit": 3, "parse": 1, "surrogate": 2, "recognize": 1}


def test_a_stage_that_fails_is_over() -> None:
    ticks: Iterator[int] = count()
    laps = Laps(lambda: float(next(ticks)))
    with pytest.raises(KeyError), laps.of("parse"):
        raise KeyError
    with laps.of("edit"):
        pass
    assert dict(laps.timings) == {"parse": 1, "edit": 1}


def test_what_others_do_meanwhile_counts_by_its_share_alone() -> None:
    ticks: Iterator[int] = count()
    laps = Laps(lambda: float(next(ticks)))
    with laps.of("edit"):  # 0
        laps.leave()  # 1
        for _ in range(100):
            next(ticks)
        laps.back("recognize", 0.25)  # 102
    assert dict(laps.timings) == {"edit": 2, "recognize": 0.25}


def test_every_stage_of_a_message_is_told() -> None:
    rules = RULES
    made = Workshop(rules=rules, key=DEMO, policy=policy.load("pseudonymised", rules), system="rules").deidentifier()
    note = "MSH|^~\\&|A|B|C|D|20240318||ORU^R01|1|P|2.5.1\rPID|1||77||Okafor^Ada\rOBX|1|TX|1||Ada Okafor came.||||||F\r"
    done = made.message(note.encode())
    spent = dict(done.timings)
    assert set(spent) == {"edit", "parse", "recognize", "surrogate", "guard"}
    assert all(seconds > 0 for seconds in spent.values())
