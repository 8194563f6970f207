"""Delta tables: the data files of a version, and the table that a run writes. deltalake is imported on first use.

The outputs of a run are the data files of the table, and each is added by a commit of its own. The commit has a
transaction identifier of the protocol for the unit, so that one that came before a kill is not made again.
"""

import json
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deid_agent.agent import sync_folder
from deid_agent.batch.arrow import load_arrow
from deid_agent.batch.layouts import ColumnPlace, DataFile, Layout, find_data_file, hide_faults, plain_schema
from deid_agent.batch.manifest import UnitEntry, sync_file
from deid_agent.model import ConfigurationError, UnsafeError

if TYPE_CHECKING:
    import pyarrow as pa

DELTA_LOG = "_delta_log"
_READ = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Reader features that need nothing of us, or that are handled or refused here."""
_PHYSICAL, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_WRITTEN = "deid-agent build "
_FEATURE = re.compile(r"Feature '(\w{1,40})' is not supported")


def load_delta() -> Any:
    """The module. Raises ``ConfigurationError`` with the command that installs it."""
    try:
        return import_module("deltalake")
    except ImportError:
        raise ConfigurationError(
            "Delta tables need deltalake, which is not installed; run: pip install 'deid-agent[batch-delta]'"
        ) from None


def _open(root: Path, version: int | None = None) -> Any:
    delta = load_delta()
    which = "" if version is None else f" at version {version}"
    with hide_faults(f"cannot be opened as a Delta table{which}"):
        try:
            return delta.DeltaTable(root.absolute().as_posix(), version=version)
        except delta.exceptions.DeltaError as error:
            if (feature := _FEATURE.search(str(error))) is None:
                raise
            name = feature.group(1)
        raise ConfigurationError(f"needs features of Delta that are not read: {name}")


def list_delta(root: Path, version: int | None) -> list[DataFile]:
    """The data files of a version of a table, of its last one if none is given, in the order of their names.

    Raises ``ConfigurationError`` if it cannot be opened, or has rows that its data files alone do not state.
    """
    table = _open(root)
    if version is not None and version != table.version():
        if version > table.version():  # deltalake would look for all versions up to that one
            raise ConfigurationError(f"has no version {version}: the last one is {table.version()}")
        table = _open(root, version)
    with hide_faults("the log of the Delta table cannot be read"):
        protocol, metadata = table.protocol(), table.metadata()
        if unknown := {*(protocol.reader_features or ())} - _READ:
            raise ConfigurationError(f"needs features of Delta that are not read: {', '.join(sorted(unknown))}")
        pinned = f"delta version {table.version()} of {metadata.id}"
        schema = plain_schema(load_arrow().schema(table.schema().to_arrow()))
        partitions = set(metadata.partition_columns)
        mode = metadata.configuration.get("delta.columnMapping.mode", "none")
        places = tuple(
            ColumnPlace() if each["name"] in partitions else _find_place(each, mode)
            for each in json.loads(table.schema().to_json())["fields"]
        )
        _refuse_deletions(table)
        name = root.resolve().name
        files = []
        for path, constants in _list_actions(table, partitions):
            layout = Layout(pinned, name, str(root), schema, places, constants)
            # The log has paths as in an address.
            files.append(DataFile(find_data_file(unquote(path), root), path, layout))
        return sorted(files, key=lambda file: file.name)


def _find_place(column: dict[str, Any], mode: str) -> ColumnPlace:
    known = column.get("metadata") or {}
    required = not column.get("nullable", True)
    if mode == "id":
        return ColumnPlace(id=int(known[_ID]), required=required)
    return ColumnPlace((str(known[_PHYSICAL]) if mode == "name" else column["name"],), required=required)


def _refuse_deletions(table: Any) -> None:
    """Raises ``ConfigurationError`` if rows of the data files are deleted: they would be published."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return
    try:
        deleted = load_arrow().table(table.deletion_vectors()).num_rows
    except Exception:  # noqa: BLE001 - what cannot be looked up counts as there
        deleted = 1
    if deleted:
        raise ConfigurationError(
            "has rows that deletion vectors delete, which are not read: rewrite the files (REORG TABLE ... APPLY "
            "(PURGE)), and name that version"
        )


def _list_actions(table: Any, partitions: Collection[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """The path of each data file, and the values of its partition in the types of the table."""
    pa = load_arrow()
    found = pa.table(table.get_add_actions(flatten=False))
    rows = found.column("path").to_pylist()
    values = found.column("partition").to_pylist() if "partition" in found.column_names else [{}] * len(rows)
    for path, own in zip(rows, values, strict=True):
        yield path, {name: own.get(name) for name in partitions}


@dataclass(frozen=True, slots=True)
class DeltaOutput:
    """The Delta table of a run, in the folder of its outputs. Implements ``OutputTable``."""

    folder: Path
    build: str
    table: Any

    @classmethod
    def open(cls, folder: Path, build: str, schema: "pa.Schema") -> "DeltaOutput":
        """The table in the folder; it is made if there is none. Raises ``ConfigurationError`` for one of others."""
        delta = load_delta()
        log = folder / DELTA_LOG
        if log.is_symlink():
            raise ConfigurationError(f"OUT: {DELTA_LOG} is a link: it may be that of an input; name another folder")
        if not delta.DeltaTable.is_deltatable(folder.absolute().as_posix()):
            with hide_faults("OUT: the table cannot be made"):
                wanted = delta.Schema.from_arrow(schema)
                delta.DeltaTable.create(folder.absolute().as_posix(), wanted, description=_WRITTEN + build)
            _sync_log(folder, 0)
        table = _open(folder)
        if table.metadata().description != _WRITTEN + build:
            raise ConfigurationError("OUT has a Delta table that this run does not write: name another folder")
        if plain_schema(load_arrow().schema(table.schema().to_arrow())) != plain_schema(schema):
            raise ConfigurationError("OUT: the table has other columns than the inputs: name another folder")
        return cls(folder, build, table)

    def commit(self, entry: UnitEntry) -> None:
        """Add the output of a unit. Nothing happens if it was added before."""
        delta = load_delta()
        with hide_faults("OUT: the table cannot be read; run it again", UnsafeError):
            self.table.update_incremental()
        # The identifier is that of the unit, and its version the digest of the output.
        name, version = f"deid-agent/{self.build}/{entry.unit}", int(entry.digest[:12], 16)
        found = self.table.transaction_version(name)
        if found == version:
            return
        if found is not None:
            raise ConfigurationError(
                "OUT: the table has another output of a unit: an input changed; use another folder"
            )
        size = (self.folder / entry.file).stat()
        # Bounds of columns are left out: they would be in the log of all versions.
        stats = json.dumps({"numRecords": entry.rows})
        add = delta.transaction.AddAction(entry.file, size.st_size, {}, size.st_mtime_ns // 1_000_000, True, stats)
        once = delta.CommitProperties(app_transactions=[delta.Transaction(name, version, time.time_ns() // 1_000_000)])
        with hide_faults("OUT: the table takes no commit; run it again", UnsafeError):
            self.table.create_write_transaction([add], "append", self.table.schema(), commit_properties=once)
            self.table.update_incremental()
        _sync_log(self.folder, self.table.version())


def _sync_log(folder: Path, version: int) -> None:
    """Make a commit durable before the manifest names its unit: deltalake does not."""
    log = folder / DELTA_LOG
    path = log / f"{version:020d}.json"
    if path.exists():  # else it is in a checkpoint already
        sync_file(path)
    sync_folder(log)
    sync_folder(folder)


def compare_delta(folder: Path, units: Collection[UnitEntry]) -> str:
    """The difference between the last version of the table and the manifest; empty if there is none."""
    try:
        with hide_faults("the log"):
            table = _open(folder)
            _refuse_deletions(table)
            found = load_arrow().table(table.get_add_actions(flatten=True)).to_pylist()
            named = sorted((unquote(each["path"]), each["size_bytes"], each["num_records"]) for each in found)
    except ConfigurationError:
        return "cannot be read, or has deleted rows"
    stated = sorted((entry.file, _size(folder / entry.file), entry.rows) for entry in units)
    return "" if named == stated else "names other files, sizes or counts than the manifest"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
