"""Rows in the memory of an engine: no key is sent, one load a process, no exception that quotes a row."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.keys import KEY
from support.scope_tables import build
from support.tables import BUILD, deidentifier, parts, shipped

from deid_agent.batch import BatchDeidentifier, BatchRun, Digests, OutputFormat, RowWorkerFactory, Table, frames
from deid_agent.batch.engine_units import UnitWork
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.systems import EngineSystem, make_head, refuse_key
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError

pa = pytest.importorskip("pyarrow")
ROOT = Path(__file__).resolve().parents[3]
TABLE = Table.load("omop/note")
CANARY = "Zyblorq"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


@pytest.fixture
def made(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> BatchDeidentifier:
    """One whose system was loaded before, by the other tests of this folder."""
    monkeypatch.setattr(frames, "_LOADED", {})
    monkeypatch.setattr(frames, "_SYSTEMS", {})
    loaded = deidentifier()
    monkeypatch.setattr("deid_agent.app.WorkerFactory.deidentifier", lambda *_, **__: loaded)
    return BatchDeidentifier(TABLE, key_file=key_file, system="rules")


def batch(rows: int, text: str = "Dr. Okafor came 3/4/2019.") -> Any:
    numbers = {"note_id": pa.array(range(1, rows + 1), pa.int32()), "person_id": pa.array([9] * rows, pa.int64())}
    return pa.record_batch(numbers | {"note_text": [f"{n}. {text}" for n in range(rows)]})


def test_rows_are_those_of_a_local_run_in_batches_and_tables(made: BatchDeidentifier) -> None:
    rows = batch(150)
    local = shipped("omop/note").process(Rows(rows)).to_pylist()
    done = made(rows)
    assert isinstance(done, pa.RecordBatch)
    assert [row | {"deid": None} for row in done.to_pylist()] == [row | {"deid": None} for row in local]
    assert {row["deid"]["build"] for row in done.to_pylist()} == {made.load()}
    table = made(pa.Table.from_batches([rows.slice(0, 70), rows.slice(70)]))
    assert isinstance(table, pa.Table) and table.to_pylist() == done.to_pylist()
    assert list(made.batches([rows.slice(0, 5), rows.slice(5, 5)]))[1].to_pylist() == done.to_pylist()[5:10]


def test_nothing_is_loaded_without_a_row_and_then_once(made: BatchDeidentifier) -> None:
    assert made(batch(0)).schema == made(batch(0).slice(0)).schema
    assert made(pa.table({})).num_columns == 0
    assert not frames._LOADED
    assert made(batch(1)).num_rows == 1
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
    assert again(batch(1)).num_rows == 1
    assert len(frames._LOADED) == 1 and next(iter(frames._LOADED))[0] == os.getpid()
    other = replace(made, table=Table.load("omop/note_nlp"))
    assert other.load() != made.load()
    assert (len(frames._LOADED), len(frames._SYSTEMS)) == (2, 1), "tables share a system"


def test_known_persons_are_found(made: BatchDeidentifier, tmp_path: Path) -> None:
    (tmp_path / "persons.csv").write_text("person_id,mrn,family,birth_date\n9,4471902,Quixwell,1957-04-22\n8,,,x\n")
    known = replace(made, identities=tmp_path / "persons.csv")
    assert "quixwell" in str(made(batch(1, "came with quixwell")).to_pylist())
    assert "quixwell" not in str(known(batch(1, "came with quixwell")).to_pylist())


def test_a_scope_table_decides_the_patients_and_is_part_of_the_build(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_LOADED", {})
    monkeypatch.setattr(frames, "_SYSTEMS", {})
    scopes = build(tmp_path / "scopes", [{"person_id": 9, "mrn": "4471902"}], TABLE)
    listed = BatchDeidentifier(TABLE, key_file=key_file, system="rules", scope_table=tmp_path / "scopes")
    heads = [make_head(TABLE, each, OutputFormat.PARQUET) for each in (parts(), replace(parts(), scopes=scopes))]
    assert listed.load() == heads[1].build != heads[0].build
    texts = [each["note_text"][0].as_py() for each in (listed(batch(1)), shipped("omop/note").process(Rows(batch(1))))]
    assert texts[0] != texts[1], "the dates move by the days of the record number"


def test_a_fault_refuses_its_row_only(made: BatchDeidentifier, monkeypatch: pytest.MonkeyPatch) -> None:
    own = RowDeidentifier.process

    def process(self: RowDeidentifier, rows: Rows) -> Any:
        if CANARY in str(rows.batch.to_pylist()):
            raise RuntimeError(f"cannot read {rows.batch.to_pylist()}")
        return own(self, rows)

    monkeypatch.setattr(RowDeidentifier, "process", process)
    rows = pa.concat_batches([batch(70), batch(1, CANARY), batch(3)])
    done = made(rows).to_pylist()
    assert [row["deid"]["reason"] for row in done] == [None] * 70 + ["INTERNAL"] + [None] * 3
    assert done[70]["note_text"] is None and done[70]["note_id"] is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"key_file": "none"}, "key file none: cannot be read"),
        ({"demo_key": True}, "demo_key and key_file exclude each other"),
        ({"policy": "pseudonymised"}, "use research"),
        ({"build": "0" * 16}, "the run has build 0000000000000000: the version, rules, models, policy, key or scope"),
        ({"identities": "none"}, "identities: no such file"),
        ({"scope_table": "none"}, "scope table none: cannot be read"),
        ({"rules": "none"}, "rules folder none: no such folder"),
    ],
)
def test_a_missing_file_or_other_build_is_named(changes: dict[str, Any], error: str, made: BatchDeidentifier) -> None:
    with pytest.raises(ConfigurationError, match=error) as refused:
        replace(made, **changes)(batch(1, CANARY))
    assert refused.value.__context__ is None and CANARY not in str(refused.value)


def test_an_unexpected_fault_of_a_load_has_no_text(made: BatchDeidentifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(frames, "make_head", fail)
    with pytest.raises(ConfigurationError, match=r"cannot be loaded: RuntimeError at test_frames.py:\d+$") as refused:
        made(batch(1))
    assert refused.value.__context__ is None


def test_other_rows_than_declared_are_refused_without_a_value(made: BatchDeidentifier) -> None:
    with pytest.raises(ConfigurationError, match=r"1 of 4 columns are not declared in the table file \(place 4\)"):
        made(batch(1).append_column(CANARY, pa.array([CANARY])))
    with pytest.raises(ConfigurationError, match="give Arrow batches: mapInArrow in Spark"):
        made({"note_text": [CANARY]})


def test_a_key_in_the_environment_is_refused(made: BatchDeidentifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    with pytest.raises(ConfigurationError, match="DEID_KEY is in the environment: an engine writes") as refused:
        made(batch(1))
    assert KEY.hex() not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("spark.executorEnv.DEID_KEY", "ab", True),
        ("spark.yarn.appMasterEnv.DEID_KEY", "ab", True),
        ("spark.driver.extraJavaOptions", "-Xmx1g -DDEID_KEY=ab", True),
        ("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"DEID_KEY": "ab"}}}', True),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.executorEnv.DEID_KEY=ab pyspark-shell", True),
        ("spark.executorEnv.DEID_KEY_FILE", "/mnt/deid.key", False),
        ("spark.executorEnv.MY_DEID_KEY_DATE", "2026", False),
        ("spark.executorEnv.DEID_KEY", "", False),
    ],
)
def test_settings_that_hold_a_key_are_found(name: str, value: str, found: bool) -> None:
    if found:
        with pytest.raises(ConfigurationError, match="DEID_KEY is in the settings"):
            refuse_key([("a", 1), (name, value)], "the settings")
    else:
        refuse_key([("a", 1), (name, value)], "the settings")


def test_objects_with_the_key_are_not_pickled_and_name_the_remedy() -> None:
    key = SecretKey(KEY)
    run = BatchRun(TABLE, BUILD, Path(), OutputFormat.PARQUET, Digests(key))
    for held in (key, parts(), RowWorkerFactory(parts(), TABLE, BUILD), Digests(key), run):
        with pytest.raises(TypeError, match=r"from a mounted file, as deid_agent\.batch\.BatchDeidentifier"):
            pickle.dumps(held)
    with pytest.raises(TypeError, match="holds a secret and is not pickled: load one in each process"):
        pickle.dumps(shipped("omop/note"))


def test_objects_that_are_sent_hold_paths_and_no_key(made: BatchDeidentifier) -> None:
    work = UnitWork(TABLE, EngineSystem(key_file=str(made.key_file)), BUILD, "out", OutputFormat.CSV, 32)
    for sent in (made, work):
        data = pickle.dumps(sent)
        assert KEY not in data and len(data) < 10_000
        assert pickle.loads(data) == sent  # noqa: S301 - our own bytes


def test_blas_has_one_thread_also_if_numpy_was_there_before() -> None:
    program = (
        "import os, re, ctypes, numpy\n"
        "from deid_agent.batch.systems import EngineSystem\n"
        "EngineSystem(demo_key=True).make_parts()\n"
        "path = re.search(r'/\\S*openblas\\S*', open('/proc/self/maps').read())\n"
        "library = ctypes.CDLL(path.group()) if path else None\n"
        "get = getattr(library, 'scipy_openblas_get_num_threads64_', lambda: 1)\n"
        "print(get(), os.environ['OPENBLAS_NUM_THREADS'])"
    )
    kept = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    environ = {**kept, "OMP_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "1 1\n", done.stderr
