"""Table files: their keys, and the shipped ones."""

import pickle
from pathlib import Path

import pytest
from support.tables import RULES, table

from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import list_tables, load_table
from deid_agent.model import ConfigurationError
from deid_agent.rules.files import READ_BY_MODELS


def test_every_shipped_table_loads() -> None:
    names = list_tables(RULES)
    assert {"omop/note", "omop/person", "mimic-iv-note/discharge", "i2b2/observation_fact"} <= set(names)
    loaded = [load_table(name, RULES) for name in names]
    assert all(each.document in each.columns for each in loaded)


def test_models_do_not_read_the_tables() -> None:
    assert "tables" not in READ_BY_MODELS


def test_no_shipped_table_keeps_a_column_that_names_somebody() -> None:
    for name in list_tables(RULES):
        columns = load_table(name, RULES).columns
        kept = {column for column, made in columns.items() if made.kind is ColumnKind.KEEP}
        assert not [
            c for c in kept if c.endswith(("_source_value", "_text", "_name", "_blob", "_date")) and c != "field_name"
        ]
        ids = {c for c in columns if c.endswith("_id") and not c.endswith("concept_id")}
        assert {columns[c].kind for c in ids} <= {ColumnKind.ID, ColumnKind.TEMPLATE, ColumnKind.DROP}


def test_a_table_holds_no_key_and_is_pickled() -> None:
    loaded = load_table("omop/note", RULES)
    assert pickle.loads(pickle.dumps(loaded)) == loaded  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"columns": {"a": "value"}}, "columns.a: name a PHI type as the kind, such as PHONE"),
        ({"columns": {"a": "DATE"}}, "columns.a: write kind date"),
        ({"columns": {"a": "DOCTOR"}}, 'a clinician has role = "provider"'),
        ({"columns": {"a": "template"}}, "columns.a: kind template and the key template come together"),
        ({"columns": {"a": {"kind": "template", "template": "{b}-{c}"}, "b": "id"}}, "c of the template is not in col"),
        ({"columns": {"a": {"kind": "template", "template": "{b}"}, "b": "text"}}, "must be of kind id or keep"),
        ({"columns": {"a": {"kind": "id", "birth": True}}}, "columns.a: birth = true is for kind date"),
        ({"columns": {"a": "date-parts"}}, "date-parts: a must be in columns as date-parts, and in one date"),
        ({"columns": {"a": "id"}, "row": {"patient": "b"}}, "row.patient: b is not in columns: declare it"),
        ({"columns": {"a": "id"}, "row": {"reference": "a"}}, "row.reference: a is not of kind date"),
        ({"columns": {"a": "id"}, "types": {"b": "int64"}}, "types: b is not in columns: declare it"),
        ({"columns": {"a": "id"}, "when": {"a": {"kind": "text", "column": "b", "in": ["T"]}}}, "when.a: b is not in"),
        (
            {"columns": {"a": "id", "b": "keep"}, "when": {"a": {"kind": "drop", "column": "b", "in": ["T"]}}},
            "when.a: kind drop cannot depend on a value",
        ),
    ],
)
def test_a_contradiction_is_refused(keys: dict[str, object], error: str) -> None:
    with pytest.raises(ConfigurationError, match=r"own\.toml") as caught:
        table(**keys)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[columns]\na = 'name'\nb = 'nonsense'\n", "columns.b"),
        ("[columns]\n", "columns"),
        ("[columns]\na = { kind = 'template', template = '{a}{b}' }\n", "must join columns by punctuation"),
        ("[columns]\na = 'id'\n[row]\nundeclared = 'keep'\n", "row.undeclared"),
        ("[columns]\na = 'id'\n[colums]\n", "unknown key colums"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_table(str(path), RULES)
    assert error in str(caught.value)


def test_an_unknown_table_names_the_shipped_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no such table file; .*omop/note"):
        load_table("omop/nothing", RULES)


def test_names_of_columns_have_no_case() -> None:
    made = table(columns={"PATIENT_NUM": "id", "Start": "date"}, row={"patient": "Patient_Num", "reference": "START"})
    assert made.patient == "patient_num"
    assert made.find_kind("Patient_NUM") is ColumnKind.ID
    assert made.find_kind("other") is None


def test_the_table_file_of_the_page_loads(tmp_path: Path) -> None:
    page = (RULES.parent / "docs" / "backfill.md").read_text("utf-8")
    (tmp_path / "letters.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    made = load_table(str(tmp_path / "letters.toml"), RULES)
    assert made.name == "letters"
    assert made.person is not None and made.columns["letter_id"].parts == ("pat_no", "seq")
