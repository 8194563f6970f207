"""Iceberg tables: the data files of a snapshot, and the table that a run writes. pyiceberg is imported on first use.

The outputs of a run are the data files of the table, and each is added by a commit of its own. The unit is in the
properties of the snapshot, so that a commit that came before a kill is not made again.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deid_agent.agent import sync_folder
from deid_agent.batch.layouts import (
    ColumnPlace,
    DataFile,
    Layout,
    find_data_file,
    find_local,
    hide_faults,
    plain_schema,
)
from deid_agent.batch.manifest import UnitEntry, sync_file
from deid_agent.model import ConfigurationError, UnsafeError

if TYPE_CHECKING:
    import pyarrow as pa

ADDRESS = "iceberg:"
METADATA_FILE = ".metadata.json"
METADATA = "metadata"
"""The folder of the metadata, in the folder of the outputs."""
_BUILD, _UNIT, _DIGEST = "deid.build", "deid.unit", "deid.digest"
_TRIES = 3
_PROPERTIES = {
    # A commit writes the whole metadata anew, and there is one for each unit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}


def load_iceberg(module: str) -> Any:
    """A module of pyiceberg. Raises ``ConfigurationError`` with the command that installs it."""
    try:
        found = import_module(f"pyiceberg.{module}")
    except ImportError:
        raise ConfigurationError(
            "Iceberg tables need pyiceberg, which is not installed; run: pip install 'deid-agent[batch-iceberg]'"
        ) from None
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # its warnings are about statistics
    return found


def _open(address: str) -> tuple[Any, str]:
    """The table of an address or of a metadata file, and its name. Raises ``ConfigurationError``."""
    if address.endswith(METADATA_FILE):
        static = load_iceberg("table").StaticTable
        with hide_faults("cannot be read as the metadata of an Iceberg table"):
            table = static.from_metadata(str(Path(address).absolute()))
            return table, str(table.location()).rstrip("/").rpartition("/")[2]
    catalog, name = _open_catalog(address.removeprefix(ADDRESS))
    with hide_faults("the Iceberg table cannot be loaded; correct its name CATALOG.NAMESPACE.TABLE"):
        return catalog.load_table(name), name


def _open_catalog(address: str) -> tuple[Any, str]:
    """A catalog of the configuration of pyiceberg, and the name of a table in it. Raises ``ConfigurationError``."""
    catalog, _, name = address.partition(".")
    if not catalog or not name.partition(".")[2]:
        raise ConfigurationError("an Iceberg table is named CATALOG.NAMESPACE.TABLE")
    load = load_iceberg("catalog").load_catalog
    with hide_faults("the Iceberg catalog cannot be opened; see ~/.pyiceberg.yaml"):  # an address may hold a password
        return load(catalog), name


def list_iceberg(address: str, snapshot: int | None) -> list[DataFile]:
    """The data files of a snapshot of a table, of the current one if none is given, in the order of their names.

    Raises ``ConfigurationError`` if it cannot be opened, or has rows that its data files alone do not state.
    """
    table, name = _open(address)
    with hide_faults("the metadata of the Iceberg table cannot be read"):
        found = table.current_snapshot() if snapshot is None else table.metadata.snapshot_by_id(snapshot)
        if found is None:
            if snapshot is not None:
                raise ConfigurationError(f"the Iceberg table has no snapshot {snapshot}: correct --table-version")
            return []
        schema = {each.schema_id: each for each in table.metadata.schemas}.get(found.schema_id, table.schema())
        columns = plain_schema(load_iceberg("io.pyarrow").schema_to_pyarrow(schema, include_field_ids=False))
        places = tuple(_find_places(table, schema))
        pinned = f"iceberg snapshot {found.snapshot_id} of {table.metadata.table_uuid}"
        root = find_local(table.location(), Path())
        files = []
        for task in _plan(table, found.snapshot_id):
            layout = Layout(pinned, name, str(root), columns, places, _find_constants(table, schema, task.file))
            path = str(task.file.file_path)
            files.append(DataFile(find_data_file(path, root), path, layout))
        return sorted(files, key=lambda file: file.name)


def _plan(table: Any, snapshot: int) -> list[Any]:
    """The data files of a snapshot. Raises ``ConfigurationError`` for rows that delete files remove."""
    with hide_faults("the files of the Iceberg table cannot be listed"):
        tasks = list(table.scan(snapshot_id=snapshot).plan_files())
    if any(task.delete_files for task in tasks):
        raise ConfigurationError(
            "has rows that delete files or deletion vectors remove, which are not read: rewrite the data files "
            "(rewrite_data_files with delete-file-threshold 1), and name that snapshot"
        )
    if any(str(task.file.file_format).rpartition(".")[2].upper() != "PARQUET" for task in tasks):
        raise ConfigurationError("has data files of other formats than Parquet, which are not read")
    return tasks


def _find_places(table: Any, schema: Any) -> Iterator[ColumnPlace]:
    mapping = table.name_mapping()
    names = {} if mapping is None else {each.field_id: tuple(each.names) for each in mapping.root}
    for column in schema.fields:
        yield ColumnPlace(names.get(column.field_id, ()), column.field_id, bool(column.required))


def _find_constants(table: Any, schema: Any, file: Any) -> dict[str, object]:
    """The values of columns that a data file may lack: defaults of the table, and those of its partition."""
    names = {column.field_id: column.name for column in schema.fields}
    constants = {column.name: column.initial_default for column in schema.fields if column.initial_default is not None}
    for place, each in enumerate(table.specs()[file.spec_id].fields):
        if str(each.transform) == "identity" and each.source_id in names:
            constants[names[each.source_id]] = file.partition[place]
    return constants


@dataclass(slots=True)
class IcebergOutput:
    """The Iceberg table of a run, whose files are in the folder of its outputs. Implements ``OutputTable``."""

    folder: Path
    table: Any
    _added: dict[str, str] = field(default_factory=dict)
    _synced: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, address: str, folder: Path, build: str, schema: "pa.Schema") -> "IcebergOutput":
        """The table of this name; it is made if there is none. Raises ``ConfigurationError`` for one of others."""
        catalog, name = _open_catalog(address)
        location = f"file://{folder.resolve()}"
        if (folder / METADATA).is_symlink():
            raise ConfigurationError(f"OUT: {METADATA} is a link: it may be that of an input; name another folder")
        properties = {_BUILD: build, **_PROPERTIES}
        with hide_faults("--to: the Iceberg table cannot be made; is there its namespace?"):
            if catalog.table_exists(name):
                table = catalog.load_table(name)
            else:
                table = catalog.create_table(name, schema, location, properties=properties)
        if table.properties.get(_BUILD) != build or table.location() != location:
            raise ConfigurationError("--to is an Iceberg table that this run does not write: name another")
        found = load_iceberg("io.pyarrow").schema_to_pyarrow(table.schema(), include_field_ids=False)
        if plain_schema(found) != plain_schema(schema):
            raise ConfigurationError("--to: the table has other columns than the inputs: name another table")
        return cls(folder, table)

    def commit(self, entry: UnitEntry) -> None:
        """Add the output of a unit. Nothing happens if it was added before."""
        fault = ""
        for _ in range(_TRIES):
            try:
                self.table.refresh()
                self._added |= _list_units(self.table)
                if entry.unit not in self._added:
                    properties = {_UNIT: entry.unit, _DIGEST: entry.digest}
                    path = f"file://{self.folder.resolve() / entry.file}"
                    self.table.add_files([path], snapshot_properties=properties)
                    self._added[entry.unit] = entry.digest
                self._sync()
                break
            except Exception as error:  # noqa: BLE001 - its text may quote addresses with passwords
                fault = type(error).__name__
        else:
            raise UnsafeError(f"--to: the table takes no commit ({fault}): run it again")
        if self._added[entry.unit] != entry.digest:
            raise ConfigurationError(
                "--to: the table has another output of a unit: an input changed; use another table"
            )

    def _sync(self) -> None:
        """Make the metadata durable before the manifest names the unit: pyiceberg does not."""
        folder = self.folder / METADATA
        for path in folder.iterdir():
            if path.name not in self._synced and path.is_file():
                sync_file(path)
                self._synced.add(path.name)
        sync_folder(folder)


def _list_units(table: Any) -> dict[str, str]:
    """The units of the present table, with the digest of each. A snapshot that was rolled back does not count."""
    snapshots = {each.snapshot_id: each for each in table.metadata.snapshots}
    units = {}
    at = table.current_snapshot()
    while at is not None:
        known = at.summary.additional_properties if at.summary is not None else {}
        if _UNIT in known:
            units[known[_UNIT]] = known.get(_DIGEST, "")
        at = snapshots.get(at.parent_snapshot_id)
    return units


def compare_iceberg(address: str, folder: Path, build: str, units: Collection[UnitEntry]) -> str:
    """The difference between the current snapshot of the table and the manifest; empty if there is none.

    Raises ``ConfigurationError`` if the table cannot be opened.
    """
    table, _ = _open(address)
    if table.properties.get(_BUILD) != build:
        return "is not the table of this run"
    current = table.current_snapshot()
    named = []
    try:
        for task in _plan(table, current.snapshot_id) if current is not None else ():
            path = find_local(str(task.file.file_path), folder)
            name = path.name if path.parent.resolve() == folder.resolve() else ""
            named.append((name, task.file.file_size_in_bytes, task.file.record_count))
    except ConfigurationError as problem:
        return str(problem)
    stated = [(entry.file, (folder / entry.file).stat().st_size, entry.rows) for entry in units if entry.is_in(folder)]
    return "" if sorted(named) == sorted(stated) else "names other files, sizes or counts than the manifest"
