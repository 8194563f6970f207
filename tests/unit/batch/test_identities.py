"""Identities: contexts of persons by key, and the rows that cannot be used."""

from pathlib import Path

import orjson
import pytest
from support.tables import RULES

from deid_agent.batch.identities import Identities, PatientMatches, describe_malformed, match_patients, read_identities
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import Unit, make_source
from deid_agent.batch.tables import load_table
from deid_agent.model import ConfigurationError, MessageError
from deid_agent.pipeline import facts_from_context

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
PERSON = load_table("omop/note", RULES).person
HEAD = "person_id,MRN,given,family,birth_date,zip,other\n"


def write(tmp_path: Path, text: str, name: str = "p.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_person_has_the_context_of_its_columns(tmp_path: Path) -> None:
    assert PERSON is not None
    found = read_identities(
        make_source(write(tmp_path, HEAD + " 12 ,4471902,Zyblorq,Quixwell,1957-04-22,02139,x\n")), PERSON
    )
    assert {key: orjson.loads(value) for key, value in found.contexts.items()} == {
        "12": {
            "mrn": "4471902",
            "name": {"given": "Zyblorq", "family": "Quixwell"},
            "birth_date": "1957-04-22",
            "address": {"zip": "02139"},
        }
    }
    assert found.find(12) is not None and found.find("13") is None and found.find(None) is None
    assert "Quixwell" not in repr(found)
    assert describe_malformed(found) == "none malformed"


def test_malformed_rows_are_named_by_number(tmp_path: Path) -> None:
    assert PERSON is not None
    text = HEAD + "1,,,,Quixwell,,\n2,a\n,,,,,,\n3,,A,B,1957,,\n"
    found = read_identities(make_source(write(tmp_path, text)), PERSON)
    assert found.malformed == ("row 1: birth_date", "row 2: row")
    assert list(found.contexts) == ["1", "3"]
    # Row 2 may be of any other patient, whose name is then not known.
    assert found.torn and found.find(None) is None
    for patient in (2, "4"):
        with pytest.raises(MessageError):
            facts_from_context(orjson.loads(orjson.dumps(found.find(patient))))


def test_identities_and_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    table = load_table("omop/note", RULES)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("person_id,note_text\n1,x\n 2,x\n,x\n7,x\nbroken\n7,x\n")
    (tmp_path / "in" / "b.jsonl").write_text('{"person_id": 3}\n{"person_id": 8}\n{"note_text": "x"}\n{\n')
    people = pa.array([4, None, 9, 4], pa.int64())
    pq.write_table(pa.table({"PERSON_ID": people, "note_text": ["x"] * 4}), tmp_path / "in" / "c.parquet")
    (tmp_path / "in" / "d.parquet").write_bytes(b"Quixwell is no file of this format")
    sources, _ = list_sources([tmp_path / "in"])
    units = [Unit(source, 0, 1) for source in sources]
    found = Identities({str(number): b"{}" for number in range(1, 7)})
    assert match_patients(units, table, found) == PatientMatches(unmatched=3, no_identity=4)
    assert match_patients(units, table, Identities()) == PatientMatches()


@pytest.mark.parametrize("column", ["person_id", "mrn", "zip"])
def test_a_number_that_a_program_has_rewritten_is_refused(column: str, tmp_path: Path) -> None:
    assert PERSON is not None
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"person_id": [12], "family": ["Quixwell"]} | {column: [4471902.0]}), path)
    with pytest.raises(ConfigurationError, match=f"row 1, column {column}: is no text, whole number or date") as caught:
        read_identities(make_source(path), PERSON)
    assert "4471902" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("p.csv", HEAD + "1,,A,B,,,\n1,,A,Quixwell,,,\n", "row 2 has the key of an earlier row"),
        ("p.csv", "mrn\n1\n", "no column person_id"),
        ("p.csv", HEAD + '1,"Quixwell\n', "a quote is not closed"),
        ("p.parquet", "Quixwell", "cannot be read"),
        ("p.txt", "Quixwell", "not a Parquet, CSV or NDJSON file by its name"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_a_value(
    name: str, text: str, error: str, tmp_path: Path
) -> None:
    assert PERSON is not None
    with pytest.raises(ConfigurationError) as caught:
        read_identities(make_source(write(tmp_path, text, name)), PERSON)
    assert error in str(caught.value)
    assert "Quixwell" not in str(caught.value)
