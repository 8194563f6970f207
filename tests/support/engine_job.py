"""One run of everything on a real engine, for tests/system/engines: ``python -m support.engine_job spark FOLDER``.

It writes its results to ``FOLDER/seen.json``. A start of an engine costs many seconds, so all tests of one share a run.
A row kills its worker, on Spark one hangs it, and the first attempt of one unit kills its task.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from support.keys import KEY
from support.killer_rows import HANGER, KILLER, DyingFactory
from support.scope_tables import build

from deid_agent.agent import Factory, WorkerSettings
from deid_agent.app import WorkerFactory
from deid_agent.batch import BatchDeidentifier, Table, running
from deid_agent.batch.engine_units import UnitResult, UnitWork
from deid_agent.batch.jobs import RowWorkerFactory
from deid_agent.batch.running import UnitTask
from deid_agent.cli import batch, batch_engines, main

FILES, ROWS = 3, 24
OPTIONS = ("--table", "omop/note", "--system", "rules")
_STARTS, _DEATHS = "starts", "deaths"
_DEADLINE_S = 10.0
"""How long a row hangs, twice in each run: long enough for the other rows on a busy machine."""


@dataclass(frozen=True, slots=True)
class DyingWork(UnitWork):
    """The work of a unit, whose worker dies at ``KILLER``, and whose task dies once."""

    def __call__(self, task: UnitTask) -> UnitResult:
        if task.unit.source.number == 1:
            with (Path(self.folder).parent / _DEATHS).open("a") as file:
                file.write("task\n")
            if (Path(self.folder).parent / _DEATHS).read_text() == "task\n":
                os.kill(os.getpid(), signal.SIGKILL)
        # super() without arguments does not work in a class with slots.
        return UnitWork.__call__(self, task)

    def make_factory(self, parts: WorkerFactory) -> Factory:
        made = UnitWork.make_factory(self, parts)
        assert isinstance(made, RowWorkerFactory)
        return DyingFactory(made, Path(self.folder).parent / _STARTS)


def _make_dying(starts: Path, *parts: Any) -> DyingFactory:
    return DyingFactory(RowWorkerFactory(*parts), starts)


def write_inputs(folder: Path, *, hangs: bool) -> None:
    """Notes of a patient in files that bear the name of the patient, known persons, a scope table, and a key."""
    (folder / "in").mkdir()
    (folder / "plain").mkdir()
    for number in range(FILES):
        first = number * ROWS
        texts = [f"Note {n}. Zyblorq Quixwell, MRN 4471902, 3/4/2019. Call 740-555-0183." for n in range(ROWS)]
        if number == 1:
            texts[7] = f"{KILLER} Quixwell"
        if number == 2 and hangs:
            texts[5] = f"{HANGER} Quixwell"
        columns = {
            "note_id": pa.array(range(first + 1, first + ROWS + 1), pa.int32()),
            "person_id": pa.array([1001 + n % 2 for n in range(ROWS)], pa.int64()),
            "note_date": pa.array([date(2019, 3, 1 + n) for n in range(ROWS)]),
            "note_datetime": pa.array([datetime(2019, 3, 1 + n, 23, 30, tzinfo=UTC) for n in range(ROWS)]),
            "note_title": ["Letter to Quixwell"] * ROWS,
            "note_text": texts,
        }
        pq.write_table(pa.table(columns), folder / "in" / f"Quixwell-{number}.parquet")
        # For readers of the engine itself: Ray Data writes the names of files into its logs.
        pq.write_table(pa.table(columns), folder / "plain" / f"{number}.parquet")
    # The second identity is malformed: texts of that person are refused.
    (folder / "persons.csv").write_text(
        "person_id,mrn,given,family,birth_date\n1001,4471902,Zyblorq,Quixwell,1957-04-22\n1002,,,,Quixwell\n"
    )
    build(folder / "scopes", [{"person_id": 1001, "mrn": "4471902"}], Table.load("omop/note"))
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)


def run_units(folder: Path, out: str, *more: str, mounted: bool = True) -> dict[str, Any]:
    """``batch run`` in this process, with the key of a file or of the environment."""
    known = ["--identities", str(folder / "persons.csv"), "--scope-table", str(folder / "scopes")]
    places = [str(folder / "in"), str(folder / out), *known]
    key = ["--key-file", str(folder / "key")] if mounted else []
    done = CliRunner().invoke(main, ["batch", "run", *places, *key, *OPTIONS, *more])
    return {"code": done.exit_code, "output": done.output}


def deidentifier_arguments(folder: Path) -> dict[str, Any]:
    """The arguments of ``BatchDeidentifier``."""
    names = {"key_file": "key", "identities": "persons.csv", "scope_table": "scopes"}
    files = {argument: str(folder / name) for argument, name in names.items()}
    return {"table": Table.load("omop/note"), "system": "rules", **files}


def describe_fault(work: Callable[[], object]) -> str:
    """The exception of ``work``, as a driver would log it; empty if there is none."""
    try:
        work()
    except Exception:  # noqa: BLE001 - it depends on the engine
        return traceback.format_exc()
    return ""


def run_spark(folder: Path) -> dict[str, Any]:
    """Data frames, units, and settings that are refused."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    (folder / "events").mkdir()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = import_module("pyspark.sql").SparkSession.builder.master("local[2,3]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    seen: dict[str, Any] = {"units": run_units(folder, "engine", "--engine", "spark")}
    seen["again"] = run_units(folder, "engine", "--engine", "spark")
    arguments = deidentifier_arguments(folder)
    table, frame = arguments["table"], session.read.parquet(str(folder / "plain"))

    def read(**changes: object) -> Any:
        made = BatchDeidentifier(**{**arguments, **changes})
        return frame.mapInArrow(made.batches, table.spark_schema(frame.schema)).toArrow()

    pq.write_table(read(), folder / "frames.parquet")
    seen["no key"] = describe_fault(partial(read, key_file=str(folder / "none")))
    seen["wrong columns"] = describe_fault(lambda: Table.load("omop/person").spark_schema(frame.schema))
    session.sparkContext._conf.set("spark.executorEnv.DEID_KEY", KEY.hex())
    seen["key in settings"] = run_units(folder, "refused", "--engine", "spark")
    session.stop()
    return seen


def run_ray(folder: Path) -> dict[str, Any]:
    """The same on Ray."""
    ray, data = import_module("ray"), import_module("ray.data")
    temp = os.environ["RAY_TMPDIR"]
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=temp, log_to_driver=True)
    seen: dict[str, Any] = {"units": run_units(folder, "engine", "--engine", "ray")}
    seen["again"] = run_units(folder, "engine", "--engine", "ray")
    arguments = deidentifier_arguments(folder)

    def read(**changes: object) -> pa.Table:
        made = data.read_parquet(str(folder / "plain")).map_batches(
            BatchDeidentifier,
            fn_constructor_kwargs={**arguments, **changes},
            batch_format="pyarrow",
            batch_size=64,
            concurrency=1,
        )
        return pa.concat_tables([ray.get(ref) for ref in made.to_arrow_refs()])

    pq.write_table(read(), folder / "frames.parquet")
    seen["no key"] = describe_fault(partial(read, key_file=str(folder / "none")))
    seen["wrong columns"] = describe_fault(partial(read, table=Table.load("omop/person")))
    ray.shutdown()
    return seen


def run_all(engine: str, folder: Path) -> None:
    """The runs of a local machine and of the engine."""
    write_inputs(folder, hangs=engine == "spark")
    seen: dict[str, Any] = {}
    # By name: the commands do not export the classes that they use.
    vars(batch)["RowWorkerFactory"] = partial(_make_dying, folder / "local starts")
    vars(running)["_DEADLINE_S"] = _DEADLINE_S
    seen["local"] = run_units(folder, "local")
    vars(batch_engines)["UnitWork"] = partial(DyingWork, settings=WorkerSettings(_DEADLINE_S, attempts=1))
    os.environ["DEID_KEY"] = KEY.hex()
    seen["key in environment"] = run_units(folder, "refused", "--engine", engine, mounted=False)
    del os.environ["DEID_KEY"]
    seen |= run_spark(folder) if engine == "spark" else run_ray(folder)
    done = CliRunner().invoke(main, ["batch", "verify", str(folder / "engine")])
    seen["verify"] = {"code": done.exit_code, "output": done.output}
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    run_all(sys.argv[1], Path(sys.argv[2]))
