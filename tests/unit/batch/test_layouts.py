"""Data files of tables as rows of a version, the types of tables, and places that are one."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deid_agent.batch.layouts import ColumnPlace, Layout, find_data_file, find_local, is_same_place, may_become
from deid_agent.batch.outputs import OutputFormat, UnitFile, written_schema
from deid_agent.batch.text_files import UnreadableError
from deid_agent.model import ConfigurationError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
CANARY = "Quixwell"


def layout(columns: dict[str, Any], *places: ColumnPlace, **constants: object) -> Layout:
    return Layout("delta version 1 of x", CANARY, f"/{CANARY}", pa.schema(columns), places, constants)


def test_columns_are_found_by_id_or_name_and_missing_ones_are_constant_or_null() -> None:
    ids = pa.schema(
        [pa.field(name, pa.int32(), metadata={"PARQUET:field_id": n}) for name, n in (("x", "2"), ("a", "1"))]
    )
    wanted = layout(
        {"a": pa.int64(), "b": pa.string(), "c": pa.string()}, *(ColumnPlace((), n) for n in (2, 7, 8)), b="w"
    )
    made = wanted.fit(ids)(pa.record_batch([[5, 6], [7, 8]], ids))
    assert made.to_pylist() == [{"a": 5, "b": "w", "c": None}, {"a": 6, "b": "w", "c": None}]
    assert made.schema == wanted.schema
    named = layout({"a": pa.string()}, ColumnPlace(("old", "a")))
    for found in ("old", "a", "A"):
        assert named.fit(pa.schema({found: pa.large_string()}))(pa.record_batch({found: ["v"]})).to_pylist() == [
            {"a": "v"}
        ]
    assert CANARY not in repr(wanted) and "w" not in repr(wanted)


@pytest.mark.parametrize(
    ("place", "found", "fault"),
    [
        (ColumnPlace(("b",), required=True), {"a": "int64"}, "lacks column 1 of the table, which has no nulls"),
        (ColumnPlace((), 4), {"a": "int64"}, "has no field ids"),
        (ColumnPlace(("a",)), {"A": "int64", "a ": "int64", "Aa": "int64"}, ""),
        (ColumnPlace(("a", "b")), {"a": "int64", "b": "int64"}, "has a column of the table twice"),
        (ColumnPlace(("a",)), {"a": "string"}, "column 1 has another type"),
        (ColumnPlace(("a",)), {"a": "double"}, "column 1 has another type"),
    ],
)
def test_a_file_that_does_not_fit_its_table_is_unreadable(
    place: ColumnPlace, found: dict[str, str], fault: str
) -> None:
    wanted = layout({"a": pa.int64()}, place)
    schema = pa.schema({name: pa.type_for_alias(type_) for name, type_ in found.items()})
    if not fault:
        wanted.fit(schema)
        return
    with pytest.raises(UnreadableError, match=fault):
        wanted.fit(schema)


def test_only_types_that_keep_each_value_may_become_others() -> None:
    zone = pa.timestamp("us", "UTC")
    allowed = [
        (pa.int16(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("ns"), zone),
        (pa.decimal128(5, 2), pa.decimal128(9, 2)),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.list_(pa.large_string()), pa.large_list(pa.string())),
    ]
    assert all(may_become(old, new) for old, new in allowed)
    refused = [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.uint32(), pa.int64()),
        (pa.date32(), zone),
        (pa.string(), pa.date32()),
        (zone, pa.timestamp("us")),
        (pa.struct({"a": pa.string()}), pa.struct({"b": pa.string()})),
    ]
    assert not any(may_become(old, new) for old, new in refused)


def test_the_digest_of_a_data_file_depends_on_its_table() -> None:
    plain = layout({"a": pa.string()}, ColumnPlace(("a",)))
    others = [
        plain.digest("other content"),
        layout({"a": pa.string()}, ColumnPlace(("a",)), a="w").digest("content"),
        layout({"b": pa.string()}, ColumnPlace(("a",))).digest("content"),
        layout({"a": pa.large_string()}, ColumnPlace(("a",))).digest("content"),
        layout({"a": pa.string()}, ColumnPlace(("a",), 3)).digest("content"),
    ]
    assert len({plain.digest("content"), *others}) == 6
    later = Layout("delta version 2 of x", "t", "r", plain.schema, plain.places)
    assert later.digest("content") == plain.digest("content"), "a file that two versions have is one"


def test_paths_of_data_files() -> None:
    root = Path("/tables/notes")
    assert find_local("a b#?%20.parquet", root) == root / "a b#?%20.parquet"
    for address in ("file:///x/a#b%20", "file:/x/a#b%20", "file://localhost/x/a#b%20", "/x/a#b%20"):
        assert find_local(address, root) == Path("/x/a#b%20")
    for address in ("s3://bucket/x", "hdfs://host/x", "file://host/x"):
        with pytest.raises(ConfigurationError, match="in an object store") as caught:
            find_local(address, root)
        assert "bucket" not in str(caught.value)


def test_a_name_that_no_file_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names a data file that cannot be"):
        find_local("a\0b", Path("/tables"))


def test_a_data_file_is_a_plain_file_of_the_table(tmp_path: Path) -> None:
    """The open of a pipe would wait for ever; a relative path that leads out is no path of a table."""
    (tmp_path / "t" / "a").mkdir(parents=True)
    (tmp_path / "t" / "a" / "f").touch()
    os.mkfifo(tmp_path / "t" / "pipe")
    root = tmp_path / "t"
    assert find_data_file("a/f", root) == root / "a" / "f"
    assert find_data_file("..f", root) == root / "..f", "its open finds that it is missing"
    assert find_data_file("f" * 5000, root).parent == root
    for name in ("pipe", "a", str(root / "pipe"), f"file://{root}/pipe", "/dev/null", "../t/a/f", "a/../a/f"):
        with pytest.raises(ConfigurationError, match="names a data file") as caught:
            find_data_file(name, root)
        assert str(root) not in str(caught.value)


def test_one_place_has_many_names(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    a = tmp_path / "a"
    for other in (
        a,
        tmp_path / "link",
        tmp_path / "link" / "b",
        a / "new",
        tmp_path / "link" / "new" / "er",
        a / ".." / "a",
    ):
        assert is_same_place(a, other) and is_same_place(other, a)
    for other in (tmp_path / "other", tmp_path / "new", tmp_path / "ab"):
        assert not is_same_place(a, other)


def test_columns_of_a_table_are_written_in_types_that_keep_each_value(tmp_path: Path) -> None:
    second = datetime(2019, 3, 4, 5, 6, 7, tzinfo=UTC)
    schema = pa.schema(
        {"a": pa.uint16(), "b": pa.timestamp("ms", "Europe/Berlin"), "c": pa.null(), "d": pa.large_string()}
    )
    assert written_schema(OutputFormat.PARQUET, schema) == schema
    file = UnitFile(tmp_path, "part-a.parquet", schema, OutputFormat.DELTA)
    with file:
        file.write(pa.RecordBatch.from_pylist([{"a": 65535, "b": second, "d": "x"}], schema), ends_group=True)
        file.finish()
    found = pq.read_table(tmp_path / "part-a.parquet")
    assert [str(column.type) for column in found.schema] == ["int32", "timestamp[us, tz=UTC]", "string", "string"]
    assert found.to_pylist() == [{"a": 65535, "b": second, "c": None, "d": "x"}]


def test_a_value_that_a_table_cannot_hold_makes_its_unit_unreadable(tmp_path: Path) -> None:
    file = UnitFile(tmp_path, "part-a.parquet", pa.schema({"a": pa.timestamp("ns")}), OutputFormat.ICEBERG)
    with file, pytest.raises(UnreadableError, match=r"^cannot be read \(ArrowInvalid\)$"):
        file.write(pa.record_batch({"a": pa.array([1], pa.timestamp("ns"))}), ends_group=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("format_", "name", "type_"),
    [
        ("delta", "a", pa.uint64()),
        ("iceberg", "a", pa.list_(pa.uint64())),
        ("delta", "a", pa.time64("us")),
        ("delta", "a", pa.struct({"x": pa.float16()})),
        ("iceberg", "a", pa.map_(pa.string(), pa.duration("s"))),
        ("delta", "a b", pa.string()),
    ],
)
def test_a_column_that_a_table_cannot_have_is_refused(format_: str, name: str, type_: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"column {name}: "):
        written_schema(OutputFormat(format_), pa.schema({name: type_}))
