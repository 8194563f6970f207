"""``BatchDeidentifier`` in a pipeline of Beam, as docs/engines.md has it. apache-beam is in no lock file."""

from pathlib import Path
from typing import Any

import pytest
from support.keys import KEY

from deid_agent.batch import BatchDeidentifier, Table, make_output_schema

pytestmark = pytest.mark.full
beam: Any = pytest.importorskip("apache_beam", reason="apache-beam is not installed")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.filterwarnings("ignore")
def test_files_pass_through_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "in").mkdir()
    columns = {"note_id": pa.array(range(1, 61), pa.int32()), "person_id": pa.array([9] * 60, pa.int64())}
    table = pa.table(columns | {"note_text": ["Zyblorq came. Dr. Okafor, 3/4/2019."] * 60})
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=20)
    notes = Table.load("omop/note")
    made = BatchDeidentifier(notes, key_file=tmp_path / "key", system="rules")
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | beam.io.ReadFromParquetBatched(str(tmp_path / "in" / "*.parquet"))
            | beam.Map(made)
            | beam.io.WriteToParquetBatched(str(tmp_path / "out"), make_output_schema(notes, table.schema))
        )
    rows = [row for path in sorted(tmp_path.glob("out-*")) for row in pq.read_table(path).to_pylist()]
    assert sorted(rows, key=str) == sorted(made(table).to_pylist(), key=str)
    assert len(rows) == 60 and "Okafor" not in str(rows)
