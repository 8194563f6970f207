"""``batch`` with real Iceberg tables: snapshots, layouts, commits that are made once, the content of the metadata."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import require
from support.lakes import Lake, find_canaries, make_catalog, notes, without_build

from deid_agent.batch import iceberg_tables

INPUT, TO = "iceberg:lab.clinic.notes", ("--format", "iceberg", "--to", "lab.clinic.clean")
# Deprecations inside of pyiceberg, and its connection to SQLite, which it closes with the process.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    require("pyiceberg")
    require("sqlalchemy")
    return Lake.make(tmp_path)


@pytest.fixture
def catalog(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    return make_catalog(lake.folder, monkeypatch)


@pytest.fixture
def source(catalog: Any) -> Any:
    """A table with partitions by a value, in which later a column was renamed, one made wider and one added."""
    types = import_module("pyiceberg.types")
    first = notes(1, 4, ward=["a b%/ü=", None, "Quixwell"]).rename_columns(["note_id", "person_id", "old text", "ward"])
    table = catalog.create_table("clinic.notes", first.schema)
    with table.update_spec() as update:
        update.add_identity("ward")
    table.append(first)
    with table.update_schema() as update:
        update.rename_column("old text", "text")
        update.update_column("note_id", types.LongType())
        update.add_column("score", types.DoubleType())
    later = notes(4, 6, ward=["c", "c"], score=[1.5, 2.5])
    table.append(later.set_column(0, "note_id", later["note_id"].cast(pa.int64())))
    return table


def read(catalog: Any, name: str = "clinic.clean") -> list[dict[str, Any]]:
    return without_build(catalog.load_table(name).scan().to_arrow().to_pylist())


def test_a_snapshot_is_read_with_its_partitions_and_the_columns_of_older_files(
    lake: Lake, catalog: Any, source: Any
) -> None:
    planned = lake.batch("plan", INPUT)
    assert planned.exit_code == 0
    assert "inputs     4 files, 4 units, 5 rows\nversion    iceberg snapshot " in planned.stdout
    done = lake.run(INPUT, "out", *TO)
    assert done.exit_code == 0, done.output
    assert read(catalog) == lake.read_expected(source.scan().to_arrow())
    first = str(source.metadata.snapshots[0].snapshot_id)
    static = lake.run(source.metadata_location.removeprefix("file://"), "first", "--table-version", first)
    assert static.exit_code == 2 and "columns are not declared" in static.stderr, "its columns are those of then"


def test_files_without_ids_are_read_by_the_names_of_the_table(lake: Lake, catalog: Any) -> None:
    whole = notes(1, 3, ward=["w", "w"])
    pq.write_table(whole.drop_columns("ward"), lake.folder / "added.parquet")
    table = catalog.create_table("clinic.notes", whole.schema)
    with table.update_spec() as update:
        update.add_identity("ward")
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    partition = import_module("pyiceberg.typedef").Record("w")
    files = import_module("pyiceberg.manifest")
    file = files.DataFile.from_args(
        content=files.DataFileContent.DATA,
        file_path=f"file://{lake.folder}/added.parquet",
        file_format=files.FileFormat.PARQUET,
        partition=partition,
        record_count=2,
        file_size_in_bytes=(lake.folder / "added.parquet").stat().st_size,
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    done = lake.run(INPUT, "out")
    assert done.exit_code == 0, done.output
    found = pq.read_table(next((lake.folder / "out").glob("part-*"))).to_pylist()
    assert [row["ward"] for row in found] == ["w", "w"], "of the partition, since the file has no such column"
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    bare = lake.run(INPUT, "bare")
    assert bare.exit_code == 1 and "has no field ids, which the table needs" in bare.stderr


def test_a_table_that_changed_is_refused_or_followed(lake: Lake, catalog: Any, source: Any) -> None:
    assert lake.run(INPUT, "out", *TO).exit_code == 0
    old = str(source.current_snapshot().snapshot_id)
    more = notes(6, 8, ward=["d", "d"], score=[1.0, 2.0])
    source.append(more.set_column(0, "note_id", more["note_id"].cast(pa.int64())))
    refused = lake.run(INPUT, "out", *TO)
    assert refused.exit_code == 2 and "give --table-version to go on with that one, or --again" in refused.stderr
    assert lake.run(INPUT, "out", *TO, "--table-version", old).exit_code == 0
    followed = lake.run(INPUT, "out", *TO, "--again")
    assert followed.exit_code == 0 and followed.stdout.count("was done") == 4
    assert len(read(catalog)) == 7
    source.delete("note_id = 6")
    refused = lake.run(INPUT, "out", *TO, "--again")
    assert refused.exit_code == 2 and "its old versions keep them" in refused.stderr
    assert lake.batch("verify", lake.folder / "out", *TO[2:]).exit_code == 0


def test_a_kill_between_commit_and_line_doubles_nothing(lake: Lake, catalog: Any, source: Any) -> None:
    lake.kill_before_line(INPUT, *TO)
    assert len(catalog.load_table("clinic.clean").metadata.snapshots) == 1, "the commit was made"
    assert lake.run(INPUT, "out", *TO).exit_code == 0
    table = catalog.load_table("clinic.clean")
    assert len(table.metadata.snapshots) == 4, "one commit for each of four units"
    assert table.scan().to_arrow().num_rows == 5
    assert lake.batch("verify", lake.folder / "out", *TO[2:]).exit_code == 0


def test_a_commit_that_was_rolled_back_is_not_in_the_table(lake: Lake, catalog: Any, source: Any) -> None:
    assert lake.run(INPUT, "out", *TO).exit_code == 0
    table = catalog.load_table("clinic.clean")
    snapshots = table.metadata.snapshots
    assert len(iceberg_tables._list_units(table)) == 4
    table.metadata = table.metadata.model_copy(update={"current_snapshot_id": snapshots[1].snapshot_id})
    assert len(iceberg_tables._list_units(table)) == 2


def test_an_output_in_an_input_and_a_table_of_others_are_refused(lake: Lake, catalog: Any, source: Any) -> None:
    place = Path(source.location().removeprefix("file://"))
    (lake.folder / "link").symlink_to(place)
    static = source.metadata_location.removeprefix("file://")
    for address in (INPUT, static):
        for out in (place, "link", place / "data" / "out", place.parent):
            lake.refuse("OUT is an input, or one is inside the other", address, *TO, out=out)
    for to in ("lab.clinic.notes", "lab.clinic.other"):
        catalog.create_table_if_not_exists("clinic.other", notes(1, 2).schema)
        done = lake.run(INPUT, "out", *TO[:3], to)
        assert done.exit_code == 2 and "--to is an Iceberg table that this run does not write" in done.stderr
    assert not list((lake.folder / "out").glob("part-*"))
    (lake.folder / "log").mkdir()
    (lake.folder / "log" / "metadata").symlink_to(place / "metadata")
    lake.refuse("the log of a table that this run does not write", INPUT, *TO, out="log")
    assert len(source.refresh().metadata.snapshots) == 2


def test_calls_that_do_not_fit_are_refused(lake: Lake, catalog: Any, source: Any) -> None:
    lake.refuse("no snapshot 5: correct --table-version", INPUT, "--table-version", "5")
    lake.refuse("CATALOG.NAMESPACE.TABLE (NoSuchTableError)", "iceberg:lab.clinic.none")
    lake.refuse(
        "the Iceberg catalog cannot be opened; see ~/.pyiceberg.yaml (ValueError)", "iceberg:nowhere.clinic.notes"
    )
    lake.refuse("is named CATALOG.NAMESPACE.TABLE", "iceberg:lab.notes")
    lake.refuse("cannot be read as the metadata of an Iceberg table", lake.folder / "Quixwell.metadata.json")
    lake.refuse("has an Iceberg table in it", Path(source.location().removeprefix("file://")))
    lake.refuse("--format iceberg and --to come together", INPUT, "--to", "lab.clinic.clean")
    done = lake.run(INPUT, "out", "--format", "iceberg", "--to", "lab.no_namespace.clean")
    assert done.exit_code == 2 and "is there its namespace" in done.stderr


def test_metadata_that_cannot_be_read_is_refused_without_its_text(
    lake: Lake, catalog: Any, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(source.metadata_location.removeprefix("file://"))
    whole = path.read_text()
    for text in (
        '{"Quixwell": 1}',
        "Quixwell",
        whole.replace('"long"', '"Quixwell"'),
        whole.replace("snap-", "Quixwell-"),
    ):
        path.write_text(text)
        for address in (INPUT, path):
            done = lake.run(address, "out")
            assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.output
            assert not find_canaries(done.output)
    path.write_text(whole)
    module = import_module("pyiceberg.catalog")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__URI", "postgresql+psycopg2://user:Quixwell@127.0.0.1:9/none")
    monkeypatch.setattr(module, "_ENV_CONFIG", import_module("pyiceberg.utils.config").Config())
    lake.refuse("the Iceberg catalog cannot be opened", INPUT)


@pytest.mark.parametrize(
    ("deletes", "format_", "text"),
    [
        ({"a delete file"}, "PARQUET", "delete files or deletion vectors remove"),
        (set(), "ORC", "data files of other formats than Parquet"),
    ],
)
def test_rows_that_the_data_files_do_not_state_are_refused(
    deletes: set[str], format_: str, text: str, lake: Lake, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg writes no such files, so the list of files is another."""
    file = SimpleNamespace(file_path="/none", file_format=f"FileFormat.{format_}")
    task = SimpleNamespace(file=file, delete_files=deletes)
    monkeypatch.setattr(import_module("pyiceberg.table").DataScan, "plan_files", lambda _: [task])
    lake.refuse(text, INPUT)


def test_the_metadata_and_the_footers_hold_no_original(lake: Lake, catalog: Any) -> None:
    plain = notes(1, 4)
    catalog.create_table("clinic.notes", plain.schema).append(plain)
    assert lake.run(INPUT, "out", *TO).exit_code == 0
    texts = lake.list_texts(lake.folder / "out")
    assert len([name for name in texts if name.startswith("metadata/")]) >= 4
    assert not {name: found for name, text in texts.items() if (found := find_canaries(text))}


def test_verify_compares_the_table_with_the_manifest(lake: Lake, catalog: Any, source: Any) -> None:
    out = lake.folder / "out"
    assert lake.run(INPUT, "out", *TO).exit_code == 0
    assert "name it with --to" in lake.batch("verify", out).stderr
    assert lake.batch("verify", out, *TO[2:]).exit_code == 0
    other = lake.batch("verify", out, "--to", "lab.clinic.notes")
    assert other.exit_code == 1 and "metadata: OUTPUT: the table is not the table of this run" in other.stdout
    catalog.load_table("clinic.clean").delete("note_id < 0 or note_id >= 0")
    found = lake.batch("verify", out, *TO[2:])
    assert found.exit_code == 1 and "metadata: OUTPUT: the table names other files" in found.stdout
