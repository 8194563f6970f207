"""The columns of a data frame after ``mapInArrow``. Needs pyspark, but no Java."""

from typing import Any

import pytest

from deid_agent.batch import Table
from deid_agent.model import ConfigurationError

pytest.importorskip("pyarrow")
types: Any = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: make engines")
TABLE = Table.load("omop/note")


def schema(**columns: object) -> Any:
    return types.StructType([types.StructField(name, type_, False) for name, type_ in columns.items()])


def test_columns_keep_their_types_and_may_be_null() -> None:
    columns = {
        "Note_ID": types.LongType(),
        "person_id": types.IntegerType(),
        "note_date": types.DateType(),
        "note_datetime": types.TimestampType(),
        "note_text": types.StringType(),
        "encoding_concept_id": types.DecimalType(10, 0),
        "language_concept_id": types.ArrayType(types.IntegerType()),
    }
    found = TABLE.spark_schema(schema(**columns))
    assert {field.name: field.dataType for field in found.fields[:-1]} == columns
    assert found.fields[-1].simpleString() == "deid:struct<outcome:string,reason:string,where:string,build:string>"
    assert all(field.nullable for field in found.fields)


def test_columns_that_do_not_fit_are_refused() -> None:
    ids = {"note_id": types.LongType(), "person_id": types.LongType()}
    with pytest.raises(ConfigurationError, match="column note_text: kind text needs strings"):
        TABLE.spark_schema(schema(**ids, note_text=types.BinaryType()))
    with pytest.raises(ConfigurationError, match=r"1 of 3 columns are not declared in the table file \(place 3\)"):
        TABLE.spark_schema(schema(**ids, Quixwell=types.StringType()))
