"""Tables in the memory of an engine: Arrow batches in, sanitized Arrow batches out.

A pipeline of Spark, Ray or Beam calls ``BatchDeidentifier``. It holds a table file and paths; the system is
loaded at the first row, once in a process. A fault in a row is a refused row: the errors of engines quote rows, so
none leaves it but ``ConfigurationError``, which names settings and columns.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from deid_agent.app import WorkerFactory
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.identities import Identities, list_patients, read_identities
from deid_agent.batch.outputs import OutputFormat
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.schema import RefusedRows, check_schema, make_output_schema
from deid_agent.batch.sources import CHUNK_ROWS, make_source
from deid_agent.batch.systems import EngineSystem, make_head, plain_rules, require_build
from deid_agent.batch.tables import Table
from deid_agent.model import ConfigurationError, DeidError, Reason, describe_exception
from deid_agent.pipeline import Deidentifier
from deid_agent.rules import RulesGiven

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The loaded system of a process for a table."""

    rows: RowDeidentifier
    identities: Identities

    def deidentify(self, batch: "pa.RecordBatch", refused: RefusedRows) -> Iterator["pa.RecordBatch"]:
        """The sanitized rows. Rows that fail together are tried alone."""
        try:
            done = self._process(batch)
        except Exception:  # noqa: BLE001 - the boundary: its text may quote a row, and the engine would log it
            done = None
        if done is not None and done.num_rows == batch.num_rows and done.schema == refused.schema:
            yield done
        elif batch.num_rows == 1:
            yield refused.make(Reason.INTERNAL, "row")
        else:
            for n in range(batch.num_rows):
                yield from self.deidentify(batch.slice(n, 1), refused)

    def _process(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        found = [self.identities.find_json(patient) for patient in list_patients(self.rows.table, batch)]
        contexts = [None if context is None else orjson.loads(context) for context in found]
        return self.rows.process(Rows(batch, contexts))


_LOADED: dict[tuple[object, ...], _Loaded] = {}
"""By process, table and settings. A forked process loads its own."""
_SYSTEMS: dict[tuple[int, EngineSystem], tuple[WorkerFactory, Deidentifier]] = {}
"""Those of the tables: a system takes 220 MB, and a pipeline has several tables."""
_LOADING = threading.Lock()


@dataclass(frozen=True)
class BatchDeidentifier:
    """De-identifies Arrow batches of one table. It is small and may be pickled: it holds no key and no model.

    The arguments are those of ``deid-agent batch run``. ``key_file`` is a path in each process of the engine; without
    it, each takes its ``$DEID_KEY_FILE``. ``identities`` is a file of known persons there, read whole by each process.
    A process whose build differs from ``build``, if given, refuses to start.
    """

    table: Table
    _: KW_ONLY
    key_file: str | Path | None = None
    demo_key: bool = False
    policy: str = "research"
    profile: str = "recall"
    system: str = "default"
    rules: RulesGiven = None
    models: str | Path | None = None
    identities: str | Path | None = None
    scope_table: str | Path | None = None
    budget: str | Path | None = None
    build: str | None = None

    def __call__(self, batch: Any) -> Any:
        """The sanitized rows of a ``RecordBatch`` or a ``Table``, in the same form.

        Raises ``ConfigurationError`` if the columns do not fit the table file, or if nothing can be loaded.
        """
        pa = load_arrow()
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise ConfigurationError('give Arrow batches: mapInArrow in Spark, batch_format="pyarrow" in Ray')
        if not batch.num_rows and not batch.num_columns:
            return batch  # engines make batches of nothing, without columns
        check_schema(self.table, batch.schema)
        schema = make_output_schema(self.table, batch.schema)
        done: list[Any] = []
        if batch.num_rows:
            loaded = self._load()
            refused = RefusedRows(schema, loaded.rows.build)
            for part in [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches():
                for first in range(0, part.num_rows, CHUNK_ROWS):
                    done += loaded.deidentify(part.slice(first, CHUNK_ROWS), refused)
        if isinstance(batch, pa.RecordBatch):
            return pa.concat_batches(done) if done else pa.RecordBatch.from_pylist([], schema=schema)
        return pa.Table.from_batches(done, schema=schema)

    def batches(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """The sanitized batches of a partition, for ``DataFrame.mapInArrow`` of Spark."""
        for batch in batches:
            yield self(batch)

    def load(self) -> str:
        """Load the system of this process now, and return the build. The first row does this otherwise."""
        return self._load().rows.build

    def _load(self) -> _Loaded:
        fault: ConfigurationError
        given = {**vars(self), "table": self.table.digest, "rules": plain_rules(self.rules)}
        known = (os.getpid(), *given.values())
        with _LOADING:
            if known in _LOADED:
                return _LOADED[known]
            try:
                _LOADED[known] = made = self._make()
                return made
            except DeidError as problem:
                fault = ConfigurationError(str(problem))
            except Exception as problem:  # noqa: BLE001 - the boundary
                fault = ConfigurationError(f"the system cannot be loaded: {describe_exception(problem)}")
        raise fault  # not inside the handler: the error would carry the other one with it

    def _make(self) -> _Loaded:
        load_arrow().set_cpu_count(1)
        given = {name: getattr(self, name) for name in ("key_file", "models", "scope_table", "budget")}
        paths = {name: None if path is None else str(path) for name, path in given.items()}
        system = EngineSystem(
            demo_key=self.demo_key,
            policy=self.policy,
            profile=self.profile,
            system=self.system,
            rules=plain_rules(self.rules),
            **paths,
        )
        if (os.getpid(), system) not in _SYSTEMS:
            made = system.make_parts()
            _SYSTEMS[os.getpid(), system] = made, made.deidentifier(notes_only=True)
        parts, deidentifier = _SYSTEMS[os.getpid(), system]
        build = make_head(self.table, parts, OutputFormat.PARQUET).build
        require_build(self.build or build, build)
        known = Identities()
        if self.identities is not None:
            if self.table.person is None:
                raise ConfigurationError(f"table {self.table.name} has no [identities]: leave out identities")
            known = read_identities(make_source(Path(self.identities)), self.table.person)
        return _Loaded(RowDeidentifier.of(self.table, deidentifier, build), known)
