"""``batch`` with real Delta tables: versions, layouts, commits that are made once, and the content of the log."""

import json
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import require
from support.lakes import Lake, find_canaries, notes, without_build, write_delta_log

from deid_agent.batch.running import BatchRun


@pytest.fixture
def delta() -> Any:
    require("deltalake")
    return import_module("deltalake")


@pytest.fixture
def lake(tmp_path: Path, delta: Any) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def source(lake: Lake, delta: Any) -> Path:
    """A table of two versions: a partition with an odd name, then a column more."""
    path = lake.folder / "the notes"
    wards = ["a b%/ü=", None, "Quixwell"]
    delta.write_deltalake(path, notes(1, 4, ward=wards), partition_by=["ward"])
    delta.write_deltalake(path, notes(4, 6, ward=["c", "c"], score=[1.5, 2.5]), mode="append", schema_mode="merge")
    return path


def read(delta: Any, path: Path, version: int | None = None) -> list[dict[str, Any]]:
    return without_build(delta.DeltaTable(path, version=version).to_pyarrow_table().to_pylist())


def test_a_version_is_read_with_its_partitions_and_the_columns_of_older_files(
    lake: Lake, delta: Any, source: Path
) -> None:
    planned = lake.batch("plan", source)
    assert planned.exit_code == 0
    assert (
        "inputs     4 files, 4 units, 5 rows" in planned.stdout and "version    delta version 1 of " in planned.stdout
    )
    done = lake.run(source, "out", "--format", "delta")
    assert done.exit_code == 0, done.output
    whole = delta.DeltaTable(source).to_pyarrow_table()
    assert read(delta, lake.folder / "out") == lake.read_expected(whole)
    assert {row["ward"] for row in read(delta, lake.folder / "out")} == {"a b%/ü=", None, "Quixwell", "c"}
    status = lake.batch("status", lake.folder / "out")
    assert "units      4\nversion    delta version 1 of " in status.stdout
    first = lake.run(source, "first", "--table-version", "0")
    assert first.exit_code == 0 and first.stdout.count("done ") == 3
    assert pq.read_schema(next((lake.folder / "first").glob("part-*"))).names == [
        "note_id",
        "person_id",
        "text",
        "ward",
        "deid",
    ]


def test_a_table_that_changed_is_refused_or_followed(lake: Lake, delta: Any, source: Path) -> None:
    options = ("--format", "delta")
    assert lake.run(source, "out", *options).exit_code == 0
    delta.write_deltalake(source, notes(6, 8, ward=["d", "d"]), mode="append", schema_mode="merge")
    refused = lake.run(source, "out", *options)
    assert refused.exit_code == 2 and "give --table-version to go on with that one, or --again" in refused.stderr
    assert lake.run(source, "out", *options, "--table-version", "1").exit_code == 0
    followed = lake.run(source, "out", *options, "--again")
    assert followed.exit_code == 0 and followed.stdout.count("was done") == 4
    assert lake.run(source, "out", *options).exit_code == 0, "the outputs are those of the new version"
    assert len(read(delta, lake.folder / "out")) == 7
    delta.DeltaTable(source).delete("note_id = 6")
    for more in ((), ("--again",)):
        refused = lake.run(source, "out", *options, *more)
        assert refused.exit_code == 2
        assert ("its old versions keep them" if more else "give --table-version") in refused.stderr
    assert lake.batch("verify", lake.folder / "out").exit_code == 0
    files = lake.folder / "files"
    assert lake.run(source, "files", "--table-version", "2").exit_code == 0
    assert lake.run(source, "files", "--again").exit_code == 0
    assert sum(pq.read_table(path).num_rows for path in files.glob("part-*")) == 6, "of files the former are removed"
    assert lake.batch("verify", files).exit_code == 0


def test_a_kill_between_commit_and_line_doubles_nothing(lake: Lake, delta: Any, source: Path) -> None:
    lake.kill_before_line(source, "--format", "delta")
    assert len(read(delta, lake.folder / "out")) > 0, "the commit was made"
    assert lake.run(source, "out", "--format", "delta").exit_code == 0
    table = delta.DeltaTable(lake.folder / "out")
    assert table.version() == 4, "one commit for each of four units"
    assert table.to_pyarrow_table().num_rows == 5
    assert lake.batch("verify", lake.folder / "out").exit_code == 0


def test_a_unit_with_another_output_than_the_table_has_is_refused(
    lake: Lake, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.folder / "in.parquet"
    pq.write_table(notes(1, 3), path)
    with monkeypatch.context() as patched:
        patched.setattr(BatchRun, "finish", lambda run, _, entry: run.output.commit(entry))
        assert lake.run(path, "out", "--format", "delta").exit_code == 0
    pq.write_table(notes(3, 6), path)
    changed = lake.run(path, "out", "--format", "delta")
    assert changed.exit_code == 2 and "the table has another output of a unit" in changed.stderr
    assert delta.DeltaTable(lake.folder / "out").version() == 1


def test_an_output_in_an_input_is_refused_by_any_name(lake: Lake, delta: Any, source: Path) -> None:
    (lake.folder / "link").symlink_to(source)
    for out in ("the notes", "link", "link/inner", "the notes/../the notes", "."):
        lake.refuse("OUT is an input, or one is inside the other", source, "--format", "delta", out=out)
        lake.refuse("OUT is an input, or one is inside the other", lake.folder / "link", "--format", "delta", out=out)
    (lake.folder / "out").mkdir()
    (lake.folder / "out" / "_delta_log").symlink_to(source / "_delta_log")
    lake.refuse("the log of a table that this run does not write", source, "--format", "delta")
    delta.write_deltalake(lake.folder / "other", notes(1, 2))
    for more in ((), ("--format", "delta")):
        lake.refuse("the log of a table that this run does not write", source, *more, out="other")
    assert delta.DeltaTable(source).version() == 1 and delta.DeltaTable(lake.folder / "other").version() == 0
    clone, shallow = lake.folder / "clone", lake.folder / "shallow"
    for folder in (clone, shallow):
        folder.mkdir()
        pq.write_table(notes(1, 3), folder / "f.parquet")
    columns = [column("note_id", "integer"), column("person_id", "long"), column("text", "string")]
    write_delta_log(shallow, columns, add={"path": (clone / "f.parquet").as_uri()})
    lake.refuse("OUT has data files of an input", shallow, out="clone")
    assert lake.run(shallow, "of another folder").exit_code == 0


def column(name: str, type_: str, number: int = 0) -> dict[str, object]:
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": type_, "nullable": True, "metadata": mapped if number else {}}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_widened_types_and_old_points_in_time_are_read(mode: str, lake: Lake, delta: Any) -> None:
    path = lake.folder / "mapped"
    path.mkdir()
    last = datetime(9999, 12, 31, tzinfo=UTC)
    rows = notes(1, 3).append_column("x", pa.array([7, 8], pa.int16()))
    rows = rows.append_column("seen", pa.array([last, datetime(2019, 3, 4, tzinfo=UTC)], pa.timestamp("us")))
    names = ["col-1", "col-2", "col-3", "col-4", "col-5"]
    fields = [
        f.with_name(n).with_metadata({"PARQUET:field_id": n[-1]}) for f, n in zip(rows.schema, names, strict=True)
    ]
    pq.write_table(pa.table(rows.columns, pa.schema(fields)), path / "f.parquet", use_deprecated_int96_timestamps=True)
    columns = [
        column("note_id", "integer", 1),
        column("person_id", "long", 2),
        column("text", "string", 3),
        column("score", "long", 4),
        column("seen", "timestamp", 5),
        column("ward", "string", 6),
    ]
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "6"}
    write_delta_log(
        path,
        columns,
        configuration=configuration,
        partition={"col-6": "W 1"},
        partition_columns=["ward"],
        features=["columnMapping", "typeWidening"],
    )
    done = lake.run(path, "out")
    assert done.exit_code == 0, done.output
    found = pq.read_table(next((lake.folder / "out").glob("part-*"))).to_pylist()
    assert [(row["score"], row["ward"]) for row in found] == [(7, "W 1"), (8, "W 1")]
    assert found[0]["seen"] == last, "a placeholder stays as it is"
    assert found[1]["seen"].year < 2019 and not find_canaries(str(found))


def test_rows_that_a_deletion_vector_deletes_and_unknown_features_are_refused(lake: Lake, delta: Any) -> None:
    for number, (features, add, text) in enumerate(
        [
            (
                ["deletionVectors"],
                {
                    "deletionVector": {
                        "storageType": "p",
                        "pathOrInlineDv": "/none",
                        "offset": 1,
                        "sizeInBytes": 9,
                        "cardinality": 1,
                    }
                },
                "deletion vectors delete",
            ),
            (["rowWobble"], {}, "needs features of Delta that are not read: rowWobble"),
            (["deletionVectors"], {}, ""),
            ([], {"path": "s3://bucket/Quixwell.parquet"}, "data files in an object store"),
        ]
    ):
        path = lake.folder / f"table {number}"
        path.mkdir()
        pq.write_table(notes(1, 3), path / "f.parquet")
        columns = [column("note_id", "integer"), column("person_id", "long"), column("text", "string")]
        write_delta_log(path, columns, features=features, add=add)
        if text:
            lake.refuse(text, path)
        else:
            assert lake.run(path, "none deleted").exit_code == 0


def test_calls_that_do_not_fit_are_refused(lake: Lake, delta: Any, source: Path) -> None:
    pq.write_table(notes(1, 2), lake.folder / "notes.parquet")
    odd = notes(1, 2, score=pa.array([1], pa.uint64()))
    (lake.folder / "odd").mkdir()
    pq.write_table(odd, lake.folder / "odd" / "odd.parquet")
    lake.refuse("has no version 9: the last one is 1", source, "--table-version", "9")
    lake.refuse("has no version 9223372036854775807", source, "--table-version", str((1 << 63) - 1))
    lake.refuse("is not in the range", source, "--table-version", str(1 << 63))
    lake.refuse("no input is a Delta or Iceberg table", lake.folder / "notes.parquet", "--table-version", "0")
    (lake.folder / "in").mkdir()
    source.rename(lake.folder / "in" / "notes")
    lake.refuse("has a Delta table in it: name the folder", lake.folder / "in")
    source = lake.folder / "in" / "notes"
    for paths, text in (
        ((source, source), "path 2: is a second table"),
        ((source, lake.folder / "notes.parquet"), "has other columns than the inputs before"),
    ):
        done = lake.batch("run", *paths, lake.folder / "out", "--format", "delta")
        assert done.exit_code == 2 and text in done.stderr
    lake.refuse("a delta table has no type for uint64", lake.folder / "odd", "--format", "delta")
    lake.refuse("--format iceberg and --to come together", source, "--format", "iceberg")


@pytest.mark.parametrize(
    "line",
    [
        b"Quixwell",
        b'{"metaData":{"id":"Quixwell"}}',
        b'{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}',
        b'{"add":{"path":"%FF%00","partitionValues":{"ward":"Quixwell"},"size":-1,"modificationTime":1,"dataChange":true}}',
        b'{"add":{"path":"\xff"}}',
        b"[" * 9000,
    ],
)
def test_a_log_that_cannot_be_read_is_refused_without_its_text(
    line: bytes, lake: Lake, delta: Any, source: Path
) -> None:
    (source / "_delta_log" / f"{2:020d}.json").write_bytes(line)
    done = lake.run(source, "out")
    assert done.exit_code in {1, 2} and isinstance(done.exception, SystemExit), done.output
    assert not find_canaries(done.output)
    assert "path 1: " in done.stderr


def test_a_data_file_that_is_gone_is_refused_alone(lake: Lake, delta: Any, source: Path) -> None:
    next(source.rglob("ward=c/*.parquet")).unlink()
    done = lake.run(source, "out", "--format", "delta")
    assert done.exit_code == 1 and "cannot be read (FileNotFoundError)" in done.stderr
    assert len(read(delta, lake.folder / "out")) == 3
    assert not find_canaries(done.output)


def test_the_log_and_the_footers_hold_no_original_and_no_bounds(lake: Lake, delta: Any, source: Path) -> None:
    assert find_canaries((source / "_delta_log" / f"{1:020d}.json").read_text()), "the log of the input has bounds"
    known = delta.DeltaTable(source).to_pyarrow_table().set_column(3, "ward", pa.array(["w"] * 5))
    delta.write_deltalake(lake.folder / "plain wards", known.drop_columns("score"))
    assert lake.run(lake.folder / "plain wards", "out", "--format", "delta").exit_code == 0
    texts = lake.list_texts(lake.folder / "out")
    assert len(texts) > 5 and not {name: found for name, text in texts.items() if (found := find_canaries(text))}
    stats = [
        json.loads(line)["add"]["stats"] for line in texts[f"_delta_log/{1:020d}.json"].splitlines() if '"add"' in line
    ]
    assert stats == ['{"numRecords": 5}']


def test_verify_compares_the_table_with_the_manifest(lake: Lake, delta: Any, source: Path) -> None:
    out = lake.folder / "out"
    assert lake.run(source, "out", "--format", "delta").exit_code == 0
    assert lake.batch("verify", out).exit_code == 0
    assert "leave it out" in lake.batch("verify", out, "--to", "a.b.c").stderr
    delta.write_deltalake(out, delta.DeltaTable(out).to_pyarrow_table().slice(0, 1), mode="append")
    found = lake.batch("verify", out)
    assert found.exit_code == 1
    assert "_delta_log: OUTPUT: the table names other files, sizes or counts than the manifest" in found.stdout
    for path in (out / "_delta_log").iterdir():
        path.unlink()
    assert "_delta_log: OUTPUT: the table cannot be read" in lake.batch("verify", out).stdout
