"""Lists the inputs of a run: files, and the data files of Delta and Iceberg tables."""

from collections.abc import Iterable
from pathlib import Path

from deid_agent.batch.delta_tables import DELTA_LOG, list_delta
from deid_agent.batch.iceberg_tables import ADDRESS, METADATA_FILE, list_iceberg
from deid_agent.batch.layouts import DataFile
from deid_agent.batch.sources import FileFormat, InputFile, find_format
from deid_agent.batch.text_files import list_files
from deid_agent.model import ConfigurationError


def list_sources(paths: Iterable[Path], version: int | None = None) -> tuple[list[InputFile], int]:
    """The files of the inputs by name, and the number of files of other formats, which are left out.

    ``version`` is that of the only table among them.

    Raises ``ConfigurationError`` if there is none, if a path does not exist, if two have one name, or if a folder is a
    partition: its name is then a value of a column, which would be lost.
    """
    found: dict[tuple[str, str], InputFile] = {}
    tables: set[str] = set()
    others = 0
    for place, root in enumerate(paths, 1):
        if (listed := _list_table(root, place, version)) is not None:
            names = {(each.layout.table, each.name): _make_input(each) for each in listed}
            if tables & {table for table, _ in names} or (version is not None and tables):
                raise ConfigurationError(f"path {place}: is a second table: run each alone, into an OUT of its own")
            tables |= {table for table, _ in names}
            found |= names
            continue
        if not root.exists():
            raise ConfigurationError(f"path {place}: no such file or folder; correct the path")
        files = [root] if root.is_file() else list_files(root, f"path {place}")
        if root.is_dir():
            _refuse_tables((path.relative_to(root).as_posix() for path in files), place)
        for path in files:
            name = path.name if root.is_file() else path.relative_to(root).as_posix()
            parts = name.split("/")
            if root.is_dir() and any(part.startswith((".", "_")) for part in parts):
                continue
            if any("=" in part for part in parts[:-1]):
                raise ConfigurationError(
                    f"path {place}: has partition folders (column=value), which are not read: write the column into "
                    "the files"
                )
            if (format_ := find_format(path)) is None:
                others += 1
                continue
            if ("", name) in found:
                raise ConfigurationError(f"path {place}: has a file of the same name as an earlier path: rename one")
            found["", name] = InputFile(0, name, path, format_)
    if not found:
        raise ConfigurationError("no Parquet, CSV or NDJSON file in the inputs; correct the path")
    if version is not None and not tables:
        raise ConfigurationError("--table-version: no input is a Delta or Iceberg table: leave it out")
    numbered = enumerate((source for _, source in sorted(found.items(), key=lambda each: each[0])), 1)
    return [InputFile(number, each.name, each.path, each.format, each.layout) for number, each in numbered], others


def _make_input(file: DataFile) -> InputFile:
    return InputFile(0, file.name, file.path, FileFormat.PARQUET, file.layout)


def _list_table(root: Path, place: int, version: int | None) -> list[DataFile] | None:
    """The data files of a table; None for a path that is none."""
    address = str(root)
    try:
        if address.startswith(ADDRESS) or address.endswith(METADATA_FILE):
            return list_iceberg(address, version)
        if (root / DELTA_LOG).is_dir():
            return list_delta(root, version)
    except ConfigurationError as problem:
        raise ConfigurationError(f"path {place}: {problem}") from None
    return None


def _refuse_tables(names: Iterable[str], place: int) -> None:
    """Raises ``ConfigurationError`` for a file of a table: its folder also has files of older versions."""
    for name in names:
        if DELTA_LOG in name.split("/")[:-1]:
            raise ConfigurationError(f"path {place}: has a Delta table in it: name the folder of the table alone")
        if name.endswith(METADATA_FILE):
            raise ConfigurationError(
                f"path {place}: has an Iceberg table in it, whose folder also has files of older snapshots: name "
                f"{ADDRESS}CATALOG.NAMESPACE.TABLE, or the newest {METADATA_FILE}"
            )
