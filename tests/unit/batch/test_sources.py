"""Inputs: types are declared, a broken row is one refused row, and no error has a value."""

import gzip
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest
from support.tables import table

from deid_agent.batch.outputs import OutputFormat, check_format
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import InputFile, RowChunk, list_units, read_chunks, read_schema
from deid_agent.batch.tables import Table
from deid_agent.batch.text_files import UnreadableError
from deid_agent.model import ConfigurationError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TABLE = table(columns={"id": "id", "who": "id", "text": "text", "n": "keep"}, types={"id": "int32"})
HEAD = b"ID,who,text\r\n"


def write(path: Path, data: bytes) -> InputFile:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    ((source,), _) = list_sources([path])
    return source


def read(source: InputFile, shape: Table = TABLE, known: Container[str] | None = None) -> list[RowChunk]:
    schema = read_schema(source, shape)
    return [chunk for unit in list_units(source, 1) for chunk in read_chunks(unit, shape, schema, known)]


def rows(source: InputFile, shape: Table = TABLE, known: Container[str] | None = None) -> list[tuple[Any, ...]]:
    found = []
    for chunk in read(source, shape, known):
        columns = [array.to_pylist() for array in chunk.batch.columns]
        found += [(fault, *row) for fault, row in zip(chunk.faults, zip(*columns, strict=True), strict=True)]
    return found


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_has_declared_types_only(name: str, tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + HEAD + b'7,0012,"two\r\nlines, ""quoted"""\r\n-1,,\r\n\r\n2147483647,1e3,TRUE\r\n'
    assert rows(write(tmp_path / name, data)) == [
        (None, 7, "0012", 'two\r\nlines, "quoted"'),
        (None, -1, None, None),
        (None, 2147483647, "1e3", "TRUE"),
    ]


def test_a_broken_row_of_csv_is_one_fault(tmp_path: Path) -> None:
    data = HEAD + b'1,a\n2,"b"c,d\n3,\xff,x\n2147483648,y,z\n 5,y,z\n6,ok,ok\n'
    assert [(row[0], row[1]) for row in rows(write(tmp_path / "a.csv", data))] == [
        ("row", None),
        ("row", None),
        ("who", 3),
        ("id", None),
        ("id", None),
        (None, 6),
    ]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('"He said "hi",\n7,Quixwell, left"\n', 2),
        ('"5" tall,\n7,Quixwell, left\n8,Quixwell,x\nhome"\n', 4),
        ('"5" tall,\n7,Quixwell,left\n"\n', 3),
    ],
)
@pytest.mark.parametrize("after", ["8,b,c\n9,b,c\n", '8,b,"c\nd"\n9,b,c\n'])
def test_the_lines_of_a_broken_text_are_refused(text: str, refused: int, after: str, tmp_path: Path) -> None:
    """A note with a quote that is not doubled: its lines would be cells of columns that are kept."""
    found = rows(write(tmp_path / "a.csv", HEAD + f"1,a,{text}{after}".encode()))
    assert not [row for row in found if "Quixwell" in str(row)]
    assert [row[0] for row in found[:-2]] == ["row"] * len(found[:-2])
    assert len(found[:-2]) == refused or found[-2:] == [("row", None, None, None)] * 2
    assert [row[1] for row in found if row[0] is None][-1:] == [9]


NOTES = table(
    row={"document": "id", "patient": "who", "reference": "day"},
    columns={"id": "id", "who": "id", "day": "date", "ward": "keep", "text": "text"},
    types={"id": "int64", "who": "int64"},
)
NOTE_HEAD = b"id,who,day,ward,text\n1,31,2019-03-04,W1,first\n"


@pytest.mark.parametrize(
    "line",
    [
        b"Quixwell,went,home,with,friends\n",  # no numbers where they should be
        b"7,Quixwell,2019-03-04,Quixwell,x\n",
        b"7,31,Quixwell,Quixwell,x\n",
        b",,,Quixwell,seen\n",  # nothing that shows a record
    ],
)
def test_cells_decide_about_lines_after_a_broken_text(line: bytes, tmp_path: Path) -> None:
    data = NOTE_HEAD + b'2,31,2019-03-05,W1,"He said "hi".\n' + line + b"3,31,2019-03-06,W2,last\n"
    found = rows(write(tmp_path / "a.csv", data), NOTES)
    assert [row[:2] for row in found] == [(None, 1), ("row", None), ("row", None), (None, 3)]
    assert "Quixwell" not in str(found)


def test_a_record_of_an_unknown_patient_in_a_broken_text_is_refused(tmp_path: Path) -> None:
    hidden = b"7,99,2019-03-04,Quixwell,x\n"
    data = NOTE_HEAD + b'2,31,2019-03-05,W1,"He said "hi".\n' + hidden + b"3,31,2019-03-06,W2,last\n"
    source = write(tmp_path / "a.csv", data)
    assert [row[1] for row in rows(source, NOTES, {"31"})] == [1, None, None, 3]
    # Without identities it is a record like others.
    assert [row[1] for row in rows(source, NOTES)] == [1, None, 7, 3]


@pytest.mark.parametrize("known", [None, {"31", "32"}])
def test_records_that_a_quote_has_hidden_in_a_text_are_refused_with_it(
    known: Container[str] | None, tmp_path: Path
) -> None:
    swallowed = b'2,31,2019-03-05,W1,"not closed\n3,32,2019-03-06,Quixwell,hidden\n4,32,2019-03-07,W1,"\n'
    data = NOTE_HEAD + swallowed + b"5,31,2019-03-08,W1,last\n"
    found = rows(write(tmp_path / "a.csv", data), NOTES, known)
    assert [row[:2] for row in found] == [(None, 1), *[("row", None)] * 3, (None, 5)]
    # A list of numbers in a note is none of them.
    listed = b'2,31,2019-03-05,W1,"took\n1,2,or,3,daily\n5,10,mg,and,15\nBP, 120, 80, ok, yes\n"\n'
    (first, second) = rows(write(tmp_path / "b.csv", NOTE_HEAD + listed), NOTES, known)
    assert (first[0], second[0]) == (None, None)


def test_a_member_twice_refuses_the_line(tmp_path: Path) -> None:
    found = rows(write(tmp_path / "a.ndjson", b'{"id": 1, "who": "a", "who": "b"}\n{"id": 2}\n'))
    assert [row[:2] for row in found] == [("line", None), (None, 2)]


def test_a_quote_that_is_not_closed_refuses_the_file(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", HEAD + b'1,a,"Quixwell\n' + b"2,b,c\n" * 50)
    with pytest.raises(UnreadableError, match=r"^row 3: a quote is not closed$|^row 2: a quote is not closed$"):
        read(source)


def test_one_torn_line_of_ndjson_is_one_fault(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "WHO": "0012", "text": "a"}',
        b'{"id": 2, "who": "Quixw',
        b'{"id": 3, "n": 12345678901234567890123}',
        b'{"id": 4, "n": 1.10}',
        b'{"id": 1.5, "who": "x"}',
        b'{"id": 5, "text": {"a": 1}}',
        b'{"id": 6, "text": "\\ud800"}',
        b'{"id": 7, "ID": 8}',
        b"[" * 100_000,
        b'{"id": 9, "n": true}',
    ]
    found = rows(write(tmp_path / "a.ndjson", b"\n".join(lines) + b"\n\n"))
    assert [(row[0], row[1], row[4]) for row in found] == [
        (None, 1, None),
        ("line", None, None),
        (None, 3, "12345678901234567890123"),
        (None, 4, "1.10"),
        ("id", None, None),
        ("text", 5, None),
        ("text", 6, None),
        ("line", None, None),
        ("line", None, None),
        (None, 9, "true"),
    ]
    assert found[0][2] == "0012"


def test_an_undeclared_member_is_refused_and_not_named(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", b'{"id": 1}\n{"id": 2, "Quixwell": 1}\n')
    with pytest.raises(ConfigurationError, match=r"^line 2: a member is not declared"):
        read_schema(source, TABLE)
    late = write(tmp_path / "b.jsonl", b'{"id": 1}\n' * 1000 + b'{"id": 2, "Quixwell": 1}\n')
    assert rows(late)[-1] == ("undeclared", None, None, None, None)


def test_row_groups_become_units(tmp_path: Path) -> None:
    data = pa.table({"id": pa.array(range(1000), pa.int32()), "text": [f"note {n}" for n in range(1000)]})
    pq.write_table(data, tmp_path / "a.parquet", row_group_size=300)
    ((source,), others) = list_sources([tmp_path])
    assert others == 0
    assert [(unit.first, unit.last) for unit in list_units(source, 1)] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    (unit,) = list_units(source, 1 << 30)
    assert (unit.first, unit.last) == (0, 4)
    chunks = list(read_chunks(unit, TABLE, read_schema(source, TABLE)))
    assert pa.Table.from_batches([chunk.batch for chunk in chunks]) == data
    assert sum(chunk.ends_group for chunk in chunks) == 4


def test_a_large_chunk_is_divided(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x" * 500_000] * 30}), tmp_path / "a.parquet")
    ((source,), _) = list_sources([tmp_path])
    sizes = [chunk.batch.num_rows for chunk in read(source)]
    assert sum(sizes) == 30 and max(sizes) <= 8


@pytest.mark.parametrize(("data", "count"), [(HEAD, 0), (HEAD[:-2], 0), (HEAD + b"\r\n\n", 0), (HEAD + b"1,2,3", 1)])
def test_a_file_without_rows_has_none(data: bytes, count: int, tmp_path: Path) -> None:
    assert len(rows(write(tmp_path / "a.csv", data))) == count


def test_a_file_without_a_header_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="has no header line"):
        read(write(tmp_path / "a.csv", b""))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.gz"])
def test_a_file_that_cannot_be_read_is_named_by_a_class(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"Quixwell is no file of this format")
    ((source,), _) = list_sources([tmp_path])
    with pytest.raises(UnreadableError, match=r"^cannot be read \(\w+\)$"):
        read(source)


def test_folders_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("b.csv", "sub/a.jsonl", "read.txt", ".hidden.csv", "_SUCCESS", "_temporary/0.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    sources, others = list_sources([tmp_path])
    assert [source.name for source in sources] == ["b.csv", "sub/a.jsonl"]
    assert others == 1
    assert "a.jsonl" not in repr(sources)


def test_a_hidden_file_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / "_a.csv").touch()
    ((source,), _) = list_sources([tmp_path / "_a.csv"])
    assert source.name == "_a.csv"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("notes/_delta_log/00.json", "path 1: has a Delta table in it"),
        ("metadata/v1.metadata.json", "path 1: has an Iceberg table in it"),
    ],
)
def test_the_files_of_a_versioned_table_are_refused(name: str, error: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ConfigurationError, match=error):
        list_sources([tmp_path])


@pytest.mark.parametrize(
    ("path", "module", "extra"),
    [("table", "deltalake", "delta"), ("iceberg:lab.clinic.notes", "pyiceberg.catalog", "iceberg")],
)
def test_a_missing_library_of_a_table_is_named(
    path: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"path 1: .*pip install 'deid-agent\[batch-{extra}\]'"):
        list_sources([Path(path)])


def test_partition_folders_and_missing_files_are_refused_without_their_names(tmp_path: Path) -> None:
    (tmp_path / "mrn=4471902").mkdir()
    (tmp_path / "mrn=4471902" / "a.csv").touch()
    (tmp_path / "Quixwell").mkdir()
    for paths, error in (
        ([tmp_path], "path 1: has partition folders"),
        ([tmp_path / "Quixwell"], "no Parquet, CSV or NDJSON file"),
        ([tmp_path / "Quixwell.csv"], "path 1: no such file or folder"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            list_sources(paths)
        assert error in str(caught.value)
        assert not any(name in str(caught.value) for name in ("4471902", "Quixwell"))


@pytest.mark.parametrize("name", ["2019", "2019.csv"])
def test_a_link_that_is_not_followed_is_not_left_out_without_a_trace(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "Quixwell").mkdir()
    write(tmp_path / "in" / "a.csv", HEAD)
    (tmp_path / "in" / f"_{name}").symlink_to(tmp_path / "Quixwell")
    assert len(list_sources([tmp_path / "in"])[0]) == 1
    target = tmp_path / "Quixwell" / ("gone.csv" if name.endswith(".csv") else "")
    (tmp_path / "in" / name).symlink_to(target)
    with pytest.raises(ConfigurationError, match="path 1: has a link") as caught:
        list_sources([tmp_path / "in"])
    assert "2019" not in str(caught.value) and "Quixwell" not in str(caught.value)


def test_csv_takes_no_bytes() -> None:
    schema = pa.schema([pa.field("X", pa.binary())])
    check_format(OutputFormat.PARQUET, schema)
    with pytest.raises(ConfigurationError, match="column x: CSV has no bytes"):
        check_format(OutputFormat.CSV, schema)
