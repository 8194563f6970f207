"""Rows in, rows out: joins, shifts, refusals of single rows."""

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import BUILD, deidentifier, parts, rows_of, shipped, table

from deid_agent.batch.outputs import encode_batch
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.schema import check_policy, check_schema
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import load_policy

pa = pytest.importorskip("pyarrow")
PERSON = {"mrn": "4471902", "name": {"given": "Zyblorq", "family": "Quixwell"}, "birth_date": "1957-04-22"}


def run(maker: RowDeidentifier, columns: dict[str, Any], *contexts: Any, faults: Any = ()) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict(columns)
    check_schema(maker.table, batch.schema)
    out = maker.process(Rows(batch, contexts, faults))
    out.validate(full=True)
    assert out.num_rows == batch.num_rows
    rows: list[dict[str, Any]] = out.to_pylist()
    return rows


def refusal(row: dict[str, Any]) -> tuple[str | None, str | None]:
    assert row["deid"]["build"] == BUILD
    assert (row["deid"]["outcome"] == "refused") == (row["deid"]["reason"] is not None)
    return row["deid"]["reason"], row["deid"]["where"]


def test_tables_join_and_intervals_are_exact() -> None:
    people = [4471902, 7, 1_999_999_999, 310_017]
    days = [date(2019, 3, 4), date(2020, 2, 29), date(1999, 12, 31), date(2012, 1, 1)]
    visits = run(
        shipped("omop/visit_occurrence"),
        {
            "visit_occurrence_id": pa.array([1, 22, 333, 4444], pa.int32()),
            "person_id": pa.array(people, pa.int32()),
            "visit_start_date": pa.array(days),
            "visit_start_datetime": pa.array(
                [datetime(d.year, d.month, d.day, 23, 59) for d in days], pa.timestamp("ns")
            ),
            "visit_end_date": pa.array([d + timedelta(9) for d in days]),
            "visit_concept_id": pa.array([9201] * 4, pa.int32()),
            "preceding_visit_occurrence_id": pa.array([None, 1, 0, 333], pa.int32()),
        },
    )
    measured = run(
        shipped("omop/measurement"),
        {
            "measurement_id": pa.array([10, 11, 12, 13], pa.int64()),
            "person_id": pa.array(people, pa.int32()),
            "visit_occurrence_id": pa.array([1, 22, 333, 4444], pa.int32()),
            "measurement_date": pa.array([d + timedelta(2) for d in days]),
            "value_as_number": [1.5, 2.5, None, -4.25],
            "measurement_source_value": ["K", "NA", "HB", None],
        },
    )
    for visit, value, old in zip(visits, measured, people, strict=True):
        assert (visit["person_id"], visit["visit_occurrence_id"]) == (value["person_id"], value["visit_occurrence_id"])
        assert visit["person_id"] != old
        assert value["measurement_date"] - visit["visit_start_date"] == timedelta(2)
        assert visit["visit_end_date"] - visit["visit_start_date"] == timedelta(9)
        assert visit["visit_start_datetime"] == datetime.combine(
            visit["visit_start_date"], datetime(1, 1, 1, 23, 59).time()
        )
    assert [v["preceding_visit_occurrence_id"] for v in visits] == [
        None, visits[0]["visit_occurrence_id"], 0, visits[2]["visit_occurrence_id"],
    ]  # fmt: skip
    assert len({v["visit_start_date"] - d for v, d in zip(visits, days, strict=True)}) > 1
    assert [m["value_as_number"] for m in measured] == [1.5, 2.5, None, -4.25]
    assert [m["measurement_source_value"] for m in measured] == ["K", "NA", "HB", None]


def test_a_note_moves_with_its_row_and_is_searched_for_the_person() -> None:
    (row,) = run(
        shipped("omop/note"),
        {
            "note_id": [1],
            "person_id": [12],
            "note_date": [date(2019, 3, 4)],
            "note_title": ["Progress note of Quixwell"],
            "note_text": ["Seen 3/4, again on 03/09/2019. zquixwell logged in."],
        },
        PERSON,
    )
    assert refusal(row) == (None, None)
    day = row["note_date"]
    text = row["note_text"]
    assert text.startswith(f"Seen {day.month}/{day.day}, again on {day + timedelta(5):%m/%d/%Y}. ")
    assert "quixwell" not in (text + row["note_title"]).lower()
    assert row["note_title"].startswith("Progress note of ")


def test_a_row_has_the_surrogates_of_a_note_of_that_person() -> None:
    text = "Seen 03/04/2019. Zyblorq Quixwell, MRN 4471902, feels well."
    (row,) = run(shipped("omop/note"), {"note_id": ["n-1"], "person_id": [12], "note_text": [text]}, PERSON)
    from deid_agent.pipeline import facts_from_context  # noqa: PLC0415

    facts = facts_from_context(PERSON)
    assert row["note_text"] == deidentifier().text(text, facts=facts, document="another").text


def test_a_row_has_the_surrogates_of_a_message_of_that_patient() -> None:
    note = "Seen 03/04/2019. Zyblorq Quixwell (MRN 4471902) was seen by Dr. Okafor on 3/9. DOB 04/22/1957."
    message = (
        "MSH|^~\\&|LAB|H|||20190310||ORU^R01|1|P|2.5\rPID|1||4471902^^^HOSP^MR||Quixwell^Zyblorq||19570422|F\r"
        f"OBR|1|||X|||20190304\rOBX|1|TX|N^Note||{note}||||||F|||20190304\r"
    )
    sent = parts().deidentifier().message(message.encode()).payload.decode()
    columns = {"note_id": [1], "person_id": [12], "note_date": [date(2019, 3, 4)], "note_text": [note]}
    (row,) = run(shipped("omop/note"), columns, {**PERSON, "sex": "F"})
    assert f"||{row['note_text']}||||||F|||{row['note_date']:%Y%m%d}\r" in sent
    (number,) = run(rows_of(columns={"mrn": "id"}), {"mrn": pa.array([4471902], pa.int32())})
    assert f"PID|1||{number['mrn']}^^^HOSP^MR|" in sent


def test_a_column_without_values_may_have_the_type_null() -> None:
    columns = {"id": ["a"], "who": ["p"], "text": pa.nulls(1), "at": pa.nulls(1), "code": pa.nulls(1)}
    (row,) = run(rows_of(**OWN), columns)
    assert refusal(row) == (None, None)
    assert row["text"] is None


def test_sentinels_and_null_stay_and_births_move_apart_from_events() -> None:
    rows = run(
        shipped("omop/person"),
        {
            "person_id": [12, 13, 14],
            "year_of_birth": pa.array([1957, 1957, None], pa.int16()),
            "month_of_birth": pa.array([4, None, 4], pa.int16()),
            "day_of_birth": pa.array([22, 3, 2], pa.int16()),
            "birth_datetime": [datetime(1957, 4, 22, 10, 30), datetime(1900, 1, 1), datetime(9999, 12, 31)],
        },
    )
    born = rows[0]["birth_datetime"]
    assert (born.year, born.month, born.day) == tuple(rows[0][f"{n}_of_birth"] for n in ("year", "month", "day"))
    assert born.time() == datetime(1, 1, 1, 10, 30).time() and born.date() != date(1957, 4, 22)
    assert [rows[1][f"{n}_of_birth"] for n in ("month", "day")] == [None, None]
    assert [r["birth_datetime"] for r in rows[1:]] == [datetime(1900, 1, 1), datetime(9999, 12, 31)]
    assert [rows[2][f"{n}_of_birth"] for n in ("year", "month", "day")] == [None] * 3


def test_composite_ids_join_in_both_tables() -> None:
    columns = {"note_id": ["10000032-DS-21", "0-DS-1"], "subject_id": pa.array([10000032, 0], pa.int32())}
    notes = run(
        shipped("mimic-iv-note/discharge"),
        {**columns, "note_type": ["DS"] * 2, "note_seq": [21, 1], "text": ["Seen 3/4.", "x"]},
    )
    details = run(
        shipped("mimic-iv-note/discharge_detail"),
        {**columns, "field_name": ["author"] * 2, "field_value": ["Dr. Okafor", None], "field_ordinal": [1, 2]},
    )
    assert [n["note_id"] for n in notes] == [d["note_id"] for d in details]
    assert notes[0]["note_id"] == f"{notes[0]['subject_id']}-DS-21"
    assert notes[0]["subject_id"] != 10000032
    assert notes[1]["note_id"] == "0-DS-1"
    assert "Okafor" not in details[0]["field_value"]


def test_a_condition_decides_about_a_column() -> None:
    rows = run(
        shipped("i2b2/observation_fact"),
        {
            "ENCOUNTER_NUM": [1, 2],
            "PATIENT_NUM": [5, 5],
            "VALTYPE_CD": ["T", "N"],
            "TVAL_CHAR": ["Dr. Okafor called", "E"],
            "UPDATE_DATE": [date(2020, 1, 1)] * 2,
        },
    )
    assert "UPDATE_DATE" not in rows[0]
    assert "Okafor" not in rows[0]["TVAL_CHAR"] and rows[0]["TVAL_CHAR"].endswith(" called")
    assert rows[1]["TVAL_CHAR"] == "E"


OWN = {
    "row": {"document": "id", "patient": "who"},
    "columns": {
        "id": "id", "who": "id", "at": "date", "given": "given", "family": "family", "phone": "PHONE",
        "code": "keep-guarded", "text": "text", "n": "keep", "age": "AGE",
    },
}  # fmt: skip


def test_a_fault_refuses_its_row_only() -> None:
    rows = run(
        rows_of(**OWN),
        {
            "id": ["a1", "a2", "a3", "a4"],
            "who": ["p1", "p2", "p3", "p4"],
            "at": pa.array([0, 10**17, 1, 2], pa.timestamp("s")),
            "family": ["Quixwell", "Vrondel", "Plomfi", None],
            "text": ["Quixwell came.", "Vrondel came.", "x" * 1_000_001, "Seen 3/4/2019."],
            "code": ["C-1", "C-2", "C-3", "C-4"],
            "n": [1, 2, 3, 4],
        },
        None,
        None,
        None,
        {"unknown": "Vrondel"},
    )
    assert [refusal(row) for row in rows] == [
        (None, None),
        ("MALFORMED", "at"),
        ("RESOURCE", "text"),
        ("MALFORMED", "identities"),
    ]
    assert [row["n"] for row in rows] == [1, 2, 3, 4]
    assert [row["text"] is None for row in rows] == [False, True, True, True]
    assert [row["code"] for row in rows] == ["C-1", None, None, None]
    assert rows[1]["at"] is None and rows[2]["at"] is not None
    assert all(row["id"][1:] != f"{n}" for n, row in enumerate(rows, 1))
    assert not any(name in str(rows) for name in ("Quixwell", "Vrondel", "Plomfi"))


@pytest.mark.parametrize("value", ["T", " t ", "T   "])
def test_a_padded_value_decides_as_the_plain_one(value: str) -> None:
    maker = rows_of(
        columns={"type": "drop", "val": "keep"}, when={"val": {"kind": "text", "column": "type", "in": ["T"]}}
    )
    rows = run(maker, {"type": [value, "N"], "val": ["Dr. Okafor", "Dr. Okafor"]})
    assert "Okafor" not in rows[0]["val"] and rows[1]["val"] == "Dr. Okafor"


def test_a_number_may_decide_about_a_column() -> None:
    maker = rows_of(
        columns={"type": "keep", "val": "keep"}, when={"val": {"kind": "text", "column": "type", "in": ["7"]}}
    )
    (row,) = run(maker, {"type": [7], "val": ["Dr. Okafor"]})
    assert "Okafor" not in row["val"]


def test_a_row_without_its_patient_publishes_no_date() -> None:
    columns = {"id": ["a", "b"], "who": [None, "p"], "at": [date(2019, 3, 4)] * 2, "text": ["x", "y"], "n": [1, 2]}
    rows = run(rows_of(**OWN), columns, faults=["who", "text"])
    assert [row["at"] is None for row in rows] == [True, False]
    assert [refusal(row) for row in rows] == [("MALFORMED", "who"), ("MALFORMED", "text")]
    assert [row["n"] for row in rows] == [1, 2]


def test_a_malformed_identity_moves_dates_by_its_record_number() -> None:
    columns = {"id": ["a", "a"], "who": ["p", "p"], "at": [date(2019, 3, 4)] * 2}
    rows = run(rows_of(**OWN), columns, PERSON, {**PERSON, "birth_date": "nonsense"})
    assert rows[0]["at"] == rows[1]["at"]
    assert refusal(rows[1]) == ("MALFORMED", "identities.birth_date")


def test_names_of_a_row_agree_with_its_text_and_its_codes() -> None:
    (row,) = run(
        rows_of(**OWN),
        {
            "id": ["d"], "who": ["p"], "given": ["Zyblorq"], "family": ["Quixwell"], "phone": ["740-555-0183"],
            "age": pa.array([93], pa.int8()), "code": ["WARD/QUIXWELL"], "text": ["Zyblorq Quixwell, 740 555 0183"],
        },
    )  # fmt: skip
    assert f"{row['given']} {row['family']}" in row["text"]
    assert "QUIXWELL" not in row["code"] and row["code"].startswith("WARD/")
    assert "0183" not in row["text"] + row["phone"]
    assert row["age"] == 90


def test_a_string_that_is_not_utf8_refuses_its_row() -> None:
    data = pa.array([b"ok 3/4/2019", b"Quixwell \xff"], pa.binary()).cast(pa.binary())
    text = pa.StringArray.from_buffers(2, *data.buffers()[1:])
    for column in ("text", "given", "kept"):
        maker = rows_of(**{**OWN, "columns": {**OWN["columns"], "kept": "keep"}})
        rows = run(maker, {"id": ["a", "b"], "who": ["p", "p"], column: text})
        assert [refusal(row) for row in rows] == [(None, None), ("MALFORMED", column)]
        assert rows[1][column] is None


def test_a_dropped_column_is_not_read() -> None:
    text = pa.StringArray.from_buffers(1, *pa.array([b"\xff"], pa.binary()).buffers()[1:])
    (row,) = run(rows_of(columns={"id": "id", "deid": "drop"}), {"id": ["a"], "deid": text})
    assert refusal(row) == (None, None)
    assert set(row) == {"id", "deid"}


def test_grouping_and_order_of_rows_change_nothing() -> None:
    maker = rows_of(**OWN)
    texts = [f"Note {n}. Seen 03/{n + 1:02d}/2019 by Dr. Okafor, MRN 44719{n:02}." for n in range(20)]
    columns = {"id": [f"n{n}" for n in range(20)], "who": [f"p{n % 3}" for n in range(20)], "text": texts}
    together = run(maker, columns)
    alone = [run(maker, {name: values[n : n + 1] for name, values in columns.items()})[0] for n in reversed(range(20))]
    assert together == alone[::-1]


CELLS = {
    "id": st.none() | st.text(max_size=8), "who": st.none() | st.text(max_size=8),
    "at": st.none() | st.integers(-(2**63), 2**63 - 1), "given": st.none() | st.text(max_size=8),
    "family": st.none() | st.text(max_size=8), "phone": st.none() | st.text(max_size=8),
    "code": st.none() | st.text(max_size=8), "text": st.none() | st.text(max_size=12),
    "age": st.none() | st.integers(-128, 127), "n": st.none() | st.integers(0, 5),
}  # fmt: skip
TYPES = {"at": pa.timestamp("us"), "age": pa.int8(), "n": pa.int32()}


@settings(max_examples=60)
@given(st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=4), st.booleans())
def test_no_exception_leaves_the_function(rows: list[dict[str, Any]], encoded: bool) -> None:
    columns = {name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in CELLS}
    if encoded:
        columns["family"] = columns["family"].dictionary_encode()
    done = run(rows_of(**OWN), columns)
    assert [row["n"] for row in done] == [row["n"] for row in rows]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"id": ["a"], "who": ["p"], "Quixwell": ["x"]}, "1 of 3 columns are not declared in the table file (place 3)"),
        ({"id": ["a"]}, "column who of [row] is not in the input"),
        ({"id": ["a"], "who": ["p"], "text": [1]}, "column text: kind text needs strings"),
        ({"id": [1.5], "who": ["p"]}, "column id: kind id needs strings or whole numbers"),
        ({"id": ["a"], "who": ["p"], "at": [5]}, "column at: kind date needs dates, timestamps or strings"),
        ({"id": ["a"], "ID": ["b"], "who": ["p"]}, "column id occurs twice"),
        ({"id": ["a"], "who": ["p"], "text": [["x"]]}, "column text: kind text needs strings"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_without_a_value(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_schema(table(**OWN), pa.RecordBatch.from_pydict(columns).schema)
    assert error in str(caught.value)
    assert "Quixwell" not in str(caught.value)


@pytest.mark.parametrize("name", ["pseudonymised", "unlinked", "safe-harbor", "minimum"])
def test_only_a_policy_under_which_tables_join_is_accepted(name: str) -> None:
    from support.tables import RULES  # noqa: PLC0415

    with pytest.raises(ConfigurationError, match="use research"):
        check_policy(table(**OWN), load_policy(name, RULES))
    check_policy(table(**OWN), load_policy("research", RULES))


def test_a_row_without_a_patient_has_the_scope_of_its_document() -> None:
    rows = run(
        rows_of(**OWN),
        {"id": ["a", "b", "c"], "who": pa.array([None] * 3, pa.string()), "at": [date(2019, 3, 4)] * 3},
    )
    assert len({row["at"] for row in rows}) == 3
    assert {refusal(row) for row in rows} == {(None, None)}


def test_a_row_that_is_refused_at_its_end_has_no_text() -> None:
    """A time at the bound of its type cannot be moved: found when the column is made, after the texts are read."""
    people = list("abcdefgh")
    batch = pa.RecordBatch.from_pydict(
        {
            "n": people,
            "who": people,
            "day": pa.array([1 - 2**63, 0] * 4, pa.int64()).view(pa.timestamp("ns")),
            "text": ["Seen well."] * len(people),
        }
    )
    maker = rows_of(
        columns={"n": "id", "who": "id", "day": "date", "text": "text"}, row={"document": "n", "patient": "who"}
    )
    out, counts = maker.process_counted(Rows(batch))
    found = zip(out.column("deid").to_pylist(), out.column("text").to_pylist(), counts, strict=True)
    texts = {(row["reason"], row["where"]): (text, bool(count.words)) for row, text, count in found}
    assert texts == {(None, None): ("Seen well.", True), ("INTERNAL", "day"): (None, False)}


@pytest.mark.parametrize(
    "make",
    [
        pa.list_,
        pa.large_list,
        lambda field: pa.list_(field, 1),
        lambda field: pa.struct([field]),
        lambda field: pa.map_(pa.string(), field),
        lambda field: pa.list_(pa.struct([field])),
    ],
)
def test_metadata_inside_a_type_is_left_out(make: Any) -> None:
    type_ = make(pa.field("value", pa.int64(), metadata={"who": "Quixwell"}))
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, type_)], schema=pa.schema([pa.field("V", type_)]))
    made = rows_of(columns={"v": "keep"}).process(Rows(batch))
    assert made.schema.field("V").type == type_
    assert "Quixwell" not in made.schema.to_string(show_schema_metadata=True)
    assert b"Quixwell" not in encode_batch(made)
