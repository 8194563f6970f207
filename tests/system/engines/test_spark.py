"""``batch`` on a real Spark: units as tasks, rows in ``mapInArrow``, and the logs of Spark."""

import pytest
from support.engines import EngineRun, require, run_job

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> EngineRun:
    """One session: a start of Spark costs more than all rows."""
    require("pyspark")
    return run_job("spark", tmp_path_factory.mktemp("spark"))


def test_units_have_the_bytes_of_a_local_run(run: EngineRun) -> None:
    assert (run.seen["local"]["code"], run.seen["units"]["code"]) == (1, 1), run.seen["units"]
    assert run.read_outputs("engine") == run.read_outputs("local")
    assert len(run.read_outputs("local")) == 6, "outputs and their audit parts"
    assert run.seen["verify"]["code"] == 0 and "sound: 3 units, 72 rows" in run.seen["verify"]["output"]
    assert not list((run.folder / "engine").glob(".*")), "nothing unfinished is left"
    assert run.seen["again"]["output"].count("was done") == 3, "the manifest names each unit"


def test_a_task_that_dies_is_tried_again(run: EngineRun) -> None:
    assert (run.folder / "deaths").read_text() == "task\n" * 2


def test_a_row_that_kills_and_one_that_hangs_are_refused_once_each(run: EngineRun) -> None:
    rows = run.read_rows("engine")
    assert len(rows) == 72
    assert [row["deid"]["reason"] for row in rows].count("POISON") == 2
    # One worker for each unit, and two restarts for each of the rows.
    assert (run.folder / "starts").read_text().count("start") == 7


def test_rows_of_a_data_frame_equal_those_of_a_local_run(run: EngineRun) -> None:
    run.check_frames()


def test_a_key_in_the_settings_is_refused(run: EngineRun) -> None:
    for place, name in (("key in settings", "the configuration of Spark"), ("key in environment", "the environment")):
        assert run.seen[place]["code"] == 2
        assert f"DEID_KEY is in {name}" in run.seen[place]["output"]
    assert not (run.folder / "refused").exists()


def test_faults_name_the_remedy(run: EngineRun) -> None:
    assert "ConfigurationError: key file" in run.seen["no key"]
    assert "columns are not declared in the table file" in run.seen["wrong columns"]


def test_originals_are_in_no_log(run: EngineRun) -> None:
    run.check_canaries(run.folder / "events")
    events = list((run.folder / "events").rglob("*"))
    assert sum(path.stat().st_size for path in events if path.is_file()) > 10_000, "there is an event log"
