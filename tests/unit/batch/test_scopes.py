"""Scope tables from identities: refusals by place, merges, and one patient in messages and rows."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.keys import KEY
from support.scope_tables import POLICY, SECRET, build, builder, notes, person
from support.tables import BUILD, parts, table

from deid_agent.agent import Job, Processed
from deid_agent.agent.worker_frames import decode_result, encode_result
from deid_agent.app import AuditDigester, JobRunner
from deid_agent.batch.jobs import count_listings
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.scopes import PersonColumns, ScopeBuilder
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import Deidentifier, ScopeCipher, open_table
from deid_agent.pipeline.policy import PatientSection

pa = pytest.importorskip("pyarrow")
QUIXWELL = person(310017, "4471902", fhir_id="p100", former="0880;881")


def check(*rows: Mapping[str, object], made: Any = None) -> str:
    """The error of a build from these rows."""
    work = builder(made or notes())
    for number, row in enumerate(rows, 1):
        work.add_row(row, None, f"row {number}")
    with pytest.raises(ConfigurationError) as caught:
        work.finish()
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (person(310017, "5"), "row 2, column person_id: is a value of row 1 too"),
        (person(2, "4471902"), "row 2, column mrn: is a value of row 1 too"),
        (person(2, "447-19-02"), "row 2, column mrn: is a value of row 1 too"),
        (person(2, "04471902"), "row 2, column mrn: is a value of row 1 too"),
        (person(2, "5", former="7; 0880"), "row 2, column former: is a value of row 1 too"),
        (person(2, "5", fhir_id="p100"), "row 2, column fhir_id: is a value of row 1 too"),
        (person(2, fhir_id="Patient/p100"), "row 2, column fhir_id: is a value of row 1 too"),
        (person(2, "5", fhir_id="http://h/Patient/p7"), "row 2, column fhir_id: is an address"),
        (person(2, city_no="4471902"), "row 2, column city_no: differs from that of row 1 only by zeros, type or"),
        (person(2, 4471902.0), "row 2, column mrn: is no text and no whole number"),
        (person(2, "4471902.0"), "row 2, column mrn: is a decimal"),
        (person(2, "4.47E+06"), "row 2, column mrn: is a decimal"),
        (person(2, True), "row 2, column mrn: is no text"),
        (person(2, b"Quixwell"), "row 2, column mrn: is no text"),
        (person(2, "44\x0071"), "row 2, column mrn: has a character that is not printable"),
        (person(2, "44\udc80"), "row 2, column mrn: has a character that is not printable"),
        (person(2, "4" * 201), "row 2, column mrn: is too long"),
        (person(2, "\U00020000\U00020001" * 100), "row 2, column mrn: is too long"),
        (person(None), "row 2, column person_id: the row names nobody"),
        (person(" ", "UNKNOWN"), "row 2, column person_id: the row names nobody"),
    ],
)
def test_a_row_that_cannot_be_one_person_is_named_by_place(row: Mapping[str, object], error: str) -> None:
    found = check(QUIXWELL, row)
    assert error in found and found.startswith("1 fault: ")
    assert "4471902" not in found.replace("row", "") and "Quixwell" not in found and "p100" not in found


def test_ten_faults_are_shown() -> None:
    found = check(*[person(n, "4471902") for n in range(20)])
    assert found.startswith("19 faults: row 2, ") and found.endswith("row 11, column mrn: is a value of row 1 too: "
        "one person has one row, and 9 more")  # fmt: skip


def test_zeros_that_nobody_declared_are_refused_only_if_they_matter() -> None:
    made = notes("")
    assert "differs from that of row 1 only by zeros" in check(person(1, "42"), person(2, "0042"), made=made)
    work = builder(made)
    work.add_row(person(1, "0042"), None, "row 1")
    assert set(work.finish().values()) == {"42"}


def test_numbers_of_two_hospitals_are_apart_if_the_policy_ranks_them(tmp_path: Path) -> None:
    rows = [person(1, "4471902"), person(2, city_no="4471902")]
    assert "assigners in [patient] of the policy" in check(*rows)
    ranked = replace(POLICY, patient=PatientSection(assigners=[["HOSP"], ["CITY"]]).choice())
    found = build(tmp_path / "s", rows, policy=ranked)
    assert {scope for _, scope in open_table(found.path, SECRET).entries()} == {"4471902", "CITY|4471902"}


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ([{"columns": ["mrn"], "assigners": ["A"]}, {"columns": ["mrn"], "assigners": ["B"]}], "mrn twice"),
        ([{"columns": ["mrn"], "assigners": ["A"]}, {"columns": ["x"], "assigners": ["a "]}], "assigner a twice"),
        ([{"columns": ["x", "x"], "assigners": ["A"]}], "x twice"),
        ([{"columns": ["mrn"]}, {"columns": ["x"]}], "x needs assigners"),
        ([{"columns": ["x"]}], "x needs assigners"),
    ],
)
def test_sources_with_one_assigner_are_refused(numbers: list[dict[str, object]], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        PersonColumns.of(notes(number=numbers))


def test_a_table_without_identities_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"has no \[identities\]"):
        PersonColumns.of(table(columns={"a": "id"}))


def reopened(path: Path, zeros: str = "padding") -> ScopeBuilder:
    work = builder(notes(zeros))
    work.load(open_table(path, SECRET))
    return work


def alias(number: str) -> bytes:
    return ScopeCipher(KEY).name(f"number\x1fhosp\x1f{number}")


def test_a_table_is_extended(tmp_path: Path) -> None:
    path = build(tmp_path / "s", [QUIXWELL]).path
    with pytest.raises(ConfigurationError, match="other assigners or zeros"):
        reopened(path, "significant")
    work = reopened(path)
    work.add_row({**QUIXWELL, "former": "882"}, None, "row 1")
    work.add_row(person(5, "990"), None, "row 2")
    done = work.finish()
    assert (done[alias("880")], done[alias("882")], done[alias("990")]) == ("4471902", "4471902", "990")
    assert work.persons == 2
    work.add_row(person(310017, "77"), None, "row 3")
    with pytest.raises(ConfigurationError, match="row 3, column person_id: is a value of row 1 too"):
        work.finish()
    joins = reopened(path)
    joins.add_row(person(6, "991"), None, "row 1")
    joins.load(open_table(build(tmp_path / "t", [person(7, "993")]).path, SECRET))
    joins.add_row(person(310017, "993"), None, "row 2")
    with pytest.raises(ConfigurationError, match=r"row 2, column person_id: is of another person in the table: merge"):
        joins.finish()


def test_merges_keep_the_scope_of_the_new_number(tmp_path: Path) -> None:
    work = reopened(build(tmp_path / "s", [QUIXWELL, person(2, "990"), person(3, "991")]).path)
    for number, (old, new) in enumerate(
        [("4471902", "990"), ("990", "00991"), ("4471902", "991"), ("555", "991"), ("556", "557")], 1
    ):
        work.merge({"old": old, "new": new, "assigner": "HOSP"}, None, f"merges row {number}")
    done = work.finish()
    assert {done[alias(n)] for n in ("4471902", "880", "990", "991", "555")} == {"991"}
    assert done[ScopeCipher(KEY).name("reference\x1f\x1fp100")] == "991"
    assert (done[alias("556")], done[alias("557")]) == ("557", "557")
    assert (work.persons, work.merges) == (2, 4)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"old": "5", "new": "05"}, "merges row 1, column old: is the new number too"),
        ({"old": "5", "new": None}, "merges row 1, column new: names nobody"),
        ({"old": "UNKNOWN", "new": "5"}, "merges row 1, column old: names nobody"),
        ({"old": "5", "new": "6", "assigner": "ELSEWHERE"}, "column old: is of an assigner that the table file does"),
        ({"old": 5.0, "new": "6"}, "merges row 1, column old: is no text"),
    ],
)
def test_a_merge_without_two_persons_is_refused(row: Mapping[str, object], error: str, tmp_path: Path) -> None:
    work = reopened(build(tmp_path / "s", [QUIXWELL]).path)
    work.merge(row, None, "merges row 1")
    with pytest.raises(ConfigurationError, match=error):
        work.finish()


TEXT = "Seen 03/04/2019 (MRN 4471902)."
SUBJECT = {"reference": "Patient/p100"}
REFERENCE = {"resourceType": "DocumentReference", "subject": SUBJECT, "date": "2019-03-04T10:00:00Z"}


def oru(numbers: str) -> bytes:
    return (
        f"MSH|^~\\&|LAB|H|||20190310||ORU^R01|1|P|2.5\rPID|1||{numbers}||Quixwell^Zyblorq\r"
        f"OBR|1|||X|||20190304\rOBX|1|TX|N^Note||{TEXT}||||||F\r"
    ).encode()


MESSAGES = {
    "the record number": oru("4471902^^^HOSP^MR"),
    "a visit number first": oru("V1^^^HOSP^VN~4471902^^^HOSP^MR"),
    "padded": oru("004471902^^^HOSP^MR"),
    "a former number": oru("881^^^HOSP^MR"),
    "a reference": json.dumps(REFERENCE).encode(),
}


def read_days(made: Deidentifier) -> tuple[dict[str, int], set[str]]:
    """The days by which the dates of each form moved, and the surrogates of the record number."""
    days, numbers = {}, set()
    for name, message in MESSAGES.items():
        out = made.message(message).payload.decode()
        found = re.search(r"OBR\|1\|\|\|X\|\|\|(\d{8})|\"date\": \"(\d{4}-\d\d-\d\d)", out)
        assert found is not None
        days[name] = (date.fromisoformat(found[1] or found[2]) - date(2019, 3, 4)).days
        numbers.update(re.findall(r"MRN (\d+)", out))
        numbers.update(number.lstrip("0") for number in re.findall(r"\|\|(?:[^|]*~)?(\d+)\^\^\^HOSP\^MR", out)[:1]
                       if name != "a former number")  # fmt: skip
    rows = RowDeidentifier.of(notes(), made, BUILD)
    columns = {"note_id": [1], "person_id": [310017], "note_date": [date(2019, 3, 4)], "note_text": [TEXT]}
    output, counts = rows.process_counted(Rows(pa.RecordBatch.from_pydict(columns)))
    (row,) = output.to_pylist()
    days["a row of the person"] = (row["note_date"] - date(2019, 3, 4)).days
    numbers.update(re.findall(r"MRN (\d+)", row["note_text"]))
    assert count_listings(counts) == ({} if made.values.policy.patient is POLICY.patient else {"listed": 1})
    return days, numbers


@pytest.fixture(scope="module")
def plain() -> Deidentifier:
    return replace(parts(), policy=POLICY).deidentifier()


def test_without_a_table_the_forms_have_four_shifts(plain: Deidentifier) -> None:
    days, _ = read_days(plain)
    assert len({days[name] for name in ("the record number", "a visit number first", "padded")}) == 1
    assert len(set(days.values())) == 4


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Deidentifier:
    path = build(tmp_path_factory.mktemp("t") / "scopes", [QUIXWELL, person(2, "990")])
    return replace(parts(), policy=POLICY, scopes=path).deidentifier()


def test_with_a_table_all_forms_of_a_person_have_one_shift_and_one_surrogate(
    plain: Deidentifier, listed: Deidentifier
) -> None:
    days, numbers = read_days(listed)
    assert set(days.values()) == {read_days(plain)[0]["the record number"]}, days
    assert len(numbers) == 1, numbers


def test_a_worker_counts_patients_by_their_listing(listed: Deidentifier) -> None:
    process = JobRunner(listed, AuditDigester(SECRET), 1 << 20)
    for message, listing in [
        (MESSAGES["a reference"], "listed"),
        (oru("999001^^^HOSP^MR"), "unlisted"),
        (oru(""), "nobody"),
    ]:
        result = process(Job(message))
        assert isinstance(result, Processed)
        assert result.patients == ((listing, 1),)
        assert decode_result(encode_result(1, result, 0)) == result
