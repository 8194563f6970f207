"""Spark: the columns of ``mapInArrow``, and units as tasks of a job. pyspark is imported when it is first used."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.engine_units import UnitResult, UnitWork
from deid_agent.batch.running import UnitTask
from deid_agent.batch.schema import OUTCOME, check_schema, outcome_type
from deid_agent.batch.systems import refuse_key
from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import Table
from deid_agent.model import ConfigurationError, UnsafeError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_POLL_S = 0.2
_OWN_ERROR = re.compile(r"UnsafeError: (unit (?:[0-9a-f]{16}-){1,2}\d{5}: [^\n]{0,200})")


def load_spark(module: str = "pyspark.sql") -> Any:
    """The module. Raises ``ConfigurationError`` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigurationError(
            "Spark needs pyspark, which is not installed; run: pip install 'deid-agent[batch-spark]'"
        ) from None


def make_spark_schema(table: Table, columns: "StructType") -> "StructType":
    """The columns of the output. Raises ``ConfigurationError`` if those of the input do not fit the table file."""
    arrow = load_arrow()
    # Not by pyspark's own functions for this, which are private and differ between versions.
    simple = {
        "void": arrow.null(),
        "string": arrow.string(),
        "tinyint": arrow.int8(),
        "smallint": arrow.int16(),
        "int": arrow.int32(),
        "bigint": arrow.int64(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us", "UTC"),
        "timestamp_ntz": arrow.timestamp("us"),
    }
    other = arrow.binary()  # a type of columns that are kept or dropped
    schema = arrow.schema([(column.name, simple.get(column.dataType.simpleString(), other)) for column in columns])
    check_schema(table, schema)
    types = load_spark("pyspark.sql.types")
    outcome = types.StructType([types.StructField(part.name, types.StringType()) for part in outcome_type()])
    kept = [column for column in columns if table.find_kind(column.name) is not ColumnKind.DROP]
    fields = [types.StructField(column.name, column.dataType) for column in kept]  # each may be null
    found: StructType = types.StructType([*fields, types.StructField(OUTCOME, outcome)])
    return found


@dataclass(frozen=True, slots=True)
class _Results:
    """Adds up the results of tasks, as ``SparkContext.accumulator`` wants it."""

    def zero(self, _: list[UnitResult]) -> list[UnitResult]:
        return []

    def addInPlace(self, results: list[UnitResult], more: list[UnitResult]) -> list[UnitResult]:
        results += more
        return results


@dataclass(frozen=True, slots=True)
class _SparkTask:
    work: UnitWork
    results: Any

    def __call__(self, task: UnitTask) -> None:
        self.results.add([self.work(task)])


class SparkUnits:
    """Runs units as tasks of one job. Their names go to the tasks, and entries come back in an accumulator."""

    def __init__(self) -> None:
        """Join the session of ``spark-submit``, or start one on this machine.

        Raises ``ConfigurationError`` without pyspark, for Spark Connect, and for a key in the settings.
        """
        sql = load_spark()
        refuse_key(os.environ.items(), "the environment")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._joined = sql.SparkSession.getActiveSession() is not None
        self._session = sql.SparkSession.builder.appName("deid-agent batch").getOrCreate()
        try:
            self._context = self._session.sparkContext
        except Exception:  # noqa: BLE001 - the class depends on the version
            raise ConfigurationError(
                "Spark Connect has no tasks: start the run by spark-submit, or use BatchDeidentifier in mapInArrow"
            ) from None
        refuse_key(self._context.getConf().getAll(), "the configuration of Spark")

    def run(self, work: UnitWork, tasks: Sequence[UnitTask]) -> Iterator[UnitResult]:
        """See ``UnitEngine``."""
        arrived: list[UnitResult] = []
        results = self._context.accumulator(arrived, _Results())
        faults: list[str] = []
        group = f"deid-agent batch {work.build}"

        def run_job() -> None:
            try:
                self._context.setJobGroup(group, "units of deid-agent batch")
                self._context.parallelize(tasks, len(tasks)).foreach(_SparkTask(work, results))
            except Exception as error:  # noqa: BLE001 - its text may hold that of others
                faults.append(find_own_error(str(error)) or type(error).__name__)

        job = threading.Thread(target=run_job, daemon=True)
        job.start()
        seen = 0
        try:
            while (running := job.is_alive()) or seen < len(arrived):
                job.join(_POLL_S if running and seen == len(arrived) else 0)
                yield from arrived[seen : (seen := len(arrived))]
        finally:
            if job.is_alive():
                self._context.cancelJobGroup(group)
        if faults:
            raise UnsafeError(f"Spark gave up a task: {faults[0]}: run it again")

    def close(self) -> None:
        """End the session, unless it was there before."""
        if not self._joined:
            self._session.stop()


def find_own_error(text: str) -> str:
    """The text of an ``UnsafeError`` of a task in that of an engine; empty if there is none."""
    found = _OWN_ERROR.search(text)
    return found.group(1) if found else ""
