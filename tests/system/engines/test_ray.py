"""``batch`` on a real Ray: units as tasks, rows in ``map_batches``, and the logs of Ray."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import EngineRun, require, run_job

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def logs() -> Iterator[Path]:
    """The folder of Ray, whose path has to be short: it has sockets."""
    require("ray")
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> EngineRun:
    """One start of Ray: it costs more than all rows."""
    environ = {
        "RAY_TMPDIR": str(logs),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    return run_job("ray", tmp_path_factory.mktemp("ray"), **environ)


def test_units_have_the_bytes_of_a_local_run(run: EngineRun) -> None:
    assert (run.seen["local"]["code"], run.seen["units"]["code"]) == (1, 1), run.seen["units"]
    assert run.read_outputs("engine") == run.read_outputs("local")
    assert len(run.read_outputs("local")) == 6, "outputs and their audit parts"
    assert run.seen["verify"]["code"] == 0 and "sound: 3 units, 72 rows" in run.seen["verify"]["output"]
    assert run.seen["again"]["output"].count("was done") == 3, "the manifest names each unit"


def test_a_task_that_dies_is_tried_again_and_a_row_that_kills_is_refused(run: EngineRun) -> None:
    assert (run.folder / "deaths").read_text() == "task\n" * 2
    assert [row["deid"]["reason"] for row in run.read_rows("engine")].count("POISON") == 1


def test_rows_of_a_data_set_equal_those_of_a_local_run(run: EngineRun) -> None:
    run.check_frames()


def test_a_key_in_the_settings_is_refused(run: EngineRun) -> None:
    assert run.seen["key in environment"]["code"] == 2
    assert "DEID_KEY is in the environment" in run.seen["key in environment"]["output"]


def test_faults_name_the_remedy(run: EngineRun) -> None:
    assert "ConfigurationError: key file" in run.seen["no key"]
    assert "columns are not declared in the table file" in run.seen["wrong columns"]


def test_originals_are_in_no_log(run: EngineRun, logs: Path) -> None:
    assert list(logs.rglob("*.log")), "there are logs"
    run.check_canaries(logs)
