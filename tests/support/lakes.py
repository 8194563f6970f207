"""Delta and Iceberg tables for the tests of ``batch``: notes of a patient, and runs of the commands in this process."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from support.keys import KEY
from support.tables import deidentifier

from deid_agent.agent import InlineExecutor, Process
from deid_agent.app import WorkerFactory
from deid_agent.batch import Table
from deid_agent.batch.audit_parts import Digests, RowAuditor
from deid_agent.batch.jobs import RowWorker
from deid_agent.batch.manifest import OpenManifest
from deid_agent.batch.rows import RowDeidentifier
from deid_agent.cli import batch, main

CANARIES = ("Quixwell", "4471902", "740-555-0183")
TABLE = """
row = { document = "note_id", patient = "person_id" }
columns = { note_id = "id", person_id = "id", text = "text", ward = "keep", seen = "date", score = "keep" }
"""


@dataclass(frozen=True)
class _InProcess:
    """The worker of a run, with the de-identifier that all tests share."""

    parts: WorkerFactory
    table: Table
    build: str

    def __call__(self) -> Process:
        rows = RowDeidentifier.of(self.table, deidentifier(), self.build)
        return RowWorker(rows, RowAuditor(Digests(self.parts.key), self.table.document))


@contextmanager
def _inline() -> Iterator[None]:
    with (
        patch("deid_agent.batch.running.WorkerPool", lambda made, *_: InlineExecutor(made)),
        patch.dict(vars(batch), RowWorkerFactory=_InProcess),
    ):
        yield


@dataclass(frozen=True)
class Lake:
    """A folder with a key and a table file, in which commands run."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Lake":
        (folder / "key").write_bytes(KEY)
        (folder / "key").chmod(0o600)
        (folder / "own.toml").write_text(TABLE)
        return cls(folder)

    def batch(self, command: str, *args: object) -> Result:
        """A command with the table file, except for those that read a folder of outputs."""
        own = ["--table", self.folder / "own.toml", "--key-file", self.folder / "key", "--system", "rules"]
        with _inline():
            more = own if command in {"plan", "run"} else []
            return CliRunner().invoke(main, ["batch", command, *map(str, (*args, *more))])

    def run(self, source: object, out: object = "out", *args: object) -> Result:
        """``batch run`` into a folder beside the key."""
        return self.batch("run", source, self.folder / str(out), *args)

    def refuse(self, text: str, source: object, *args: object, out: object = "out") -> None:
        """A run that is refused with this text, and writes nothing."""
        before = sorted((self.folder / str(out)).rglob("*"))
        done = self.run(source, out, *args)
        assert done.exit_code == 2 and text in done.stderr, done.output
        assert not find_canaries(done.output)
        assert sorted((self.folder / str(out)).rglob("*")) == before

    def kill_before_line(self, source: object, *args: object) -> None:
        """A run that is killed between its first commit and the line of the manifest for it."""

        class KilledError(BaseException):
            pass

        with patch.object(OpenManifest, "add", side_effect=KilledError), pytest.raises(KilledError):
            self.run(source, "out", *args)

    def read_expected(self, notes: pa.Table) -> list[dict[str, Any]]:
        """The rows of a run over these rows as a Parquet file, apart from their build."""
        (self.folder / "plain").mkdir(exist_ok=True)
        pq.write_table(notes, self.folder / "plain" / "notes.parquet")
        assert self.run(self.folder / "plain", "plain out").exit_code == 0
        return without_build(
            row for f in (self.folder / "plain out").glob("part-*") for row in pq.read_table(f).to_pylist()
        )

    def list_texts(self, out: Path) -> dict[str, str]:
        """All that a run has written, names included."""
        files = [path for path in out.rglob("*") if path.is_file()]
        return {str(path.relative_to(out)): path.read_bytes().decode("latin-1") for path in files} | {
            "names": str(files)
        }


def without_build(rows: Any) -> list[dict[str, Any]]:
    """Rows in the order of their values, apart from their build."""
    return sorted(({**row, "deid": {**row["deid"], "build": ""}} for row in rows), key=str)


def find_canaries(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


def notes(first: int, last: int, **more: Sequence[object] | pa.Array) -> pa.Table:
    """Notes of a patient, whose names and numbers are canaries."""
    numbers = range(first, last)
    columns: dict[str, Any] = {
        "note_id": pa.array(numbers, pa.int32()),
        "person_id": pa.array([4471902] * len(numbers), pa.int64()),
        "text": [f"Note {n}: Ms. Quixwell slept since 3/4/2019. Call 740-555-0183." for n in numbers],
    }
    return pa.table(columns | more)


def write_delta_log(folder: Path, columns: Sequence[Mapping[str, object]], **parts: Any) -> None:
    """The log of one version that names ``folder/f.parquet``, for features that deltalake does not write.

    ``parts``: ``features``, ``configuration``, ``partition`` (by physical names), ``add``.
    """
    features = parts.get("features", [])
    size = (folder / "f.parquet").stat().st_size
    add = {"path": "f.parquet", "partitionValues": parts.get("partition", {}), "size": size, "modificationTime": 1}
    partitions = parts.get("partition_columns", [])
    metadata = {
        "id": "9f2c1a3e-1111-4222-8333-123456789abc",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(columns)}),
        "partitionColumns": partitions,
        "configuration": parts.get("configuration", {}),
        "createdTime": 1,
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    lines = [
        {"protocol": protocol if features else {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
        {"add": {**add, "dataChange": True, "stats": '{"numRecords": 2}', **parts.get("add", {})}},
    ]
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))


def make_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog named ``lab`` in the configuration of pyiceberg, with the namespace ``clinic``."""
    for name in [name for name in os.environ if name.startswith("PYICEBERG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__WAREHOUSE", f"file://{folder}/the warehouse")
    module = import_module("pyiceberg.catalog")
    # It reads the environment once.
    monkeypatch.setattr(module, "_ENV_CONFIG", import_module("pyiceberg.utils.config").Config())
    catalog = module.load_catalog("lab")
    catalog.create_namespace("clinic")
    return catalog
