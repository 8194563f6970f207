"""A few of the kills of tests/bench/kill_backfill.py: of the parent and of workers, while a table is written."""

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.batch_kills import LOCAL, LOCAL_DELTA, KilledRuns, write_inputs

pytestmark = pytest.mark.full


def test_a_run_that_is_killed_has_the_bytes_of_another(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_inputs(tmp_path, 6, 20)
    runs = KilledRuns(tmp_path, random.Random(5))
    runs.kill(LOCAL_DELTA if find_spec("deltalake") else LOCAL, 3)
    assert not runs.faults and sum(runs.killed.values()) == 3
    assert runs.gave_up == 0
