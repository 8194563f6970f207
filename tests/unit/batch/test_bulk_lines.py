"""The lines of a FHIR bulk export: the persons of all files, one refusal for one line, joins."""

import stat
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.bulk_exports import (
    BINARY,
    CANARIES,
    DOCTOR,
    DOCUMENTS,
    ENCOUNTERS,
    FILES,
    MRN,
    NPI,
    PATIENTS,
    TEXT,
    Resource,
    document,
    line,
    messages,
    note,
    patient,
    read,
    text_of,
    worker,
    write_export,
)
from support.fhir import bundle
from support.scope_tables import build, person
from support.tables import parts

from deid_agent.batch.bulk_identities import IdentityWriter, list_references
from deid_agent.batch.bulk_lines import LineResult, decode_lines, decode_results, encode_lines, encode_results
from deid_agent.model import Reason


def process(folder: Path, *resources: Resource) -> list[Any]:
    with worker(folder) as made:
        return [read(result) for result in made.process([line(each) for each in resources])]


def in_bundle(*resources: Resource) -> list[Any]:
    found: list[Any] = orjson.loads(messages().message(line(bundle(*resources))).payload)["entry"]
    return [entry["resource"] for entry in found]


def test_a_line_gets_the_surrogates_and_dates_of_a_bundle_with_its_patient(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    made = process(export, PATIENTS[0], DOCTOR, DOCUMENTS[0])
    assert made == in_bundle(PATIENTS[0], DOCTOR, DOCUMENTS[0])
    text = text_of(made[2])
    assert not [canary for canary in CANARIES if canary.lower() in text.lower()]
    assert made[0]["name"][0]["family"] in text and made[1]["name"][0]["family"].lower() in text


def test_identifiers_and_intervals_join_over_files(tmp_path: Path) -> None:
    made = process(write_export(tmp_path / "in"), *PATIENTS, *ENCOUNTERS)
    ids = [each["id"] for each in made[:3]]
    shifts: dict[str, set[int]] = {}
    for before, after in zip(ENCOUNTERS, made[3:], strict=True):
        assert after["subject"]["reference"].removeprefix("Patient/") == ids[int(str(before["id"])[1:]) % 3]
        days = date.fromisoformat(after["period"]["start"]) - date.fromisoformat(before["period"]["start"])
        shifts.setdefault(after["subject"]["reference"], set()).add(days.days)
    assert [len(found) for found in shifts.values()] == [1, 1, 1]
    shift = (date.fromisoformat(made[3]["period"]["start"]) - date(2019, 3, 1)).days
    # A message of the feed with the record number has the same shift.
    head = "MSH|^~\\&|A|B|C|D|20190301||ADT^A01|1|P|2.5\rPID|1||4471902^^^H^MR||Quixwell^Zyblorq\r"
    feed = f"{head}PV1{'|' * 44}20190301\r".encode()
    moved = messages().message(feed).payload.decode()
    admitted = moved.split("PV1|")[1].strip().rpartition("|")[2]
    assert (date.fromisoformat(admitted[:8]) - date(2019, 3, 1)).days == shift


@pytest.mark.parametrize(
    "reference",
    [
        "https://fhir.example/r4/Patient/p100",
        "Patient/p100/_history/3",
        "Patient?identifier=http://hospital.example/mrn|4471902",
        "Patient?identifier=http%3A%2F%2Fhospital.example%2Fmrn%7C4471902",
        "Patient?identifier=4471902",
        "Patient?identifier=|4471902",
        "Patient?_id=p100",
        "Patient/p100/",
        "https://fhir.example/r4/Patient/p100?_format=json",
        " Patient/p100",
        "Patient/p100#x",
    ],
)
def test_a_reference_of_any_form_finds_the_patient(reference: str, tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    plain, other = process(export, DOCUMENTS[0], document("n1", reference, note(TEXT)))
    assert text_of(other) == text_of(plain)
    assert other["date"] == plain["date"]


@pytest.mark.parametrize("key", ["p_100", "p" * 70, "p:10", "p%7C1", "0F-1"])
def test_an_id_with_other_signs_than_fhir_allows_finds_the_patient(key: str, tmp_path: Path) -> None:
    export = write_export(tmp_path / "in", {"Patient.ndjson": [{**PATIENTS[0], "id": key}]})
    made = process(
        export, *(document("n1", each, note("Seen by quixwell.")) for each in (f"Patient/{key}", f"urn:uuid:{key}"))
    )
    assert not [each for each in made if "quixwell" in text_of(each)]


@pytest.mark.parametrize(
    "subject",
    [
        {"identifier": {"value": "4471902"}},
        {"reference": "https://elsewhere.example/77", "identifier": {"system": MRN, "value": "4471902"}},
        {"reference": "Patient/other", "identifier": {"system": MRN, "value": "4471902"}},
    ],
)
def test_a_number_beside_a_reference_or_without_a_system_finds_the_patient(subject: Resource, tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    many = [{"identifier": {"value": str(n)}} for n in range(40)]
    letter = document("n1", "", note("Seen by quixwell."), author={"identifier": {"value": "1"}})
    (made,) = process(export, {**letter, "author": many, "subject": subject})
    assert "quixwell" not in text_of(made)


def test_a_patient_in_a_bundle_is_known(tmp_path: Path) -> None:
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": PATIENTS[0]}, {}, 3]}
    export = write_export(tmp_path / "in", {"All.ndjson": [bundle]})
    (made,) = process(export, DOCUMENTS[0])
    assert "quixwell" not in text_of(made).lower()


@pytest.mark.parametrize(
    "bad",
    [
        line({**PATIENTS[0], "id": 100}),
        line(PATIENTS[0])[:-1] + b',"id":"other"}',
        line(PATIENTS[0])[:-1] + b',"resourceType":"Basic"}',
        b"[" + line(PATIENTS[0]) + b"]",
        line(PATIENTS[0])[40:],
        line(PATIENTS[0]).decode().encode("utf-16"),
    ],
)
def test_a_line_that_may_be_a_patient_refuses_the_lines_of_unknown_patients(bad: bytes, tmp_path: Path) -> None:
    export = write_export(tmp_path / "in", {"Patient.ndjson": PATIENTS[1:]})
    with (export / "Patient.ndjson").open("ab") as file:
        file.write(bad + b"\n")
    with worker(export) as made:
        results = made.process([line(DOCUMENTS[0]), line(DOCUMENTS[1])])
    assert [each.reason for each in results] == ["MALFORMED", ""]


def test_escaped_slashes_and_the_search_of_a_practitioner_find_the_person(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    searched = document("n1", "Patient/p100", note(TEXT), f"Practitioner?identifier={NPI}|9999900498")
    by_number = document(
        "n1", "Patient/p100", note(TEXT), author={"identifier": {"system": NPI, "value": "9999900498"}}
    )
    escaped = line(DOCUMENTS[0]).replace(b"Patient/", rb"Patient\/")
    with worker(export) as made:
        plain, *others = [
            read(result) for result in made.process([line(DOCUMENTS[0]), line(searched), line(by_number), escaped])
        ]
    assert [text_of(each) for each in others] == [text_of(plain)] * 3


def test_a_uuid_finds_the_person_of_any_type() -> None:
    found = list(list_references({"subject": {"reference": "urn:uuid:0f-1"}}))
    assert ("Patient", "0f-1") in found and ("Practitioner", "0f-1") in found


def test_a_role_and_a_relative_lead_to_their_names(tmp_path: Path) -> None:
    role = {"resourceType": "PractitionerRole", "id": "r1", "practitioner": {"reference": "Practitioner/d7"}}
    aunt = {
        "resourceType": "RelatedPerson",
        "id": "a1",
        "patient": {"reference": "Patient/p100"},
        "name": [{"family": "Brumwick", "given": ["Odalys"]}],
    }
    export = write_export(tmp_path / "in", {**FILES, "PractitionerRole.ndjson": [role], "Relative.ndjson": [aunt]})
    letter = document("n9", "Patient/p100", note("brumwick brought her; okoribe saw them."), "PractitionerRole/r1")
    (made,) = process(export, letter)
    assert "brumwick" not in text_of(made) and "okoribe" not in text_of(made)


def test_a_binary_has_the_patient_and_the_date_of_the_document_that_refers_to_it(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    parent, binary, inline = process(
        export, DOCUMENTS[2], BINARY, document("n8", "Patient/p100", note(text_of(BINARY)))
    )
    assert parent["content"][0]["attachment"]["url"] == f"Binary/{binary['id']}"
    assert text_of(binary) == text_of(inline)
    assert "quixwell" not in text_of(binary)


def test_all_versions_of_a_patient_are_known(tmp_path: Path) -> None:
    married = patient("p101", "Bede", "Wrexley", "4471903", "1960-01-02")
    export = write_export(tmp_path / "in", {**FILES, "Patient-2.ndjson": [married]})
    old, new, made = process(
        export, PATIENTS[1], married, document("n4", "Patient/p101", note("wrexley, once vrondel"))
    )
    assert old["birthDate"] == new["birthDate"]
    assert not {"wrexley", "vrondel"} & set(text_of(made).replace(",", "").split())


def test_a_refused_line_is_a_code_and_the_others_go_on(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    good = line(DOCUMENTS[1])
    bad = [
        line(DOCUMENTS[0])[:-9],
        b"Quixwell|Zyblorq",
        b"[1]",
        b'{"resourceType":"Patient","id":"1","id":"2"}',
        b'{"resourceType":"Quix well"}',
        b"\xff{}",
        b'{"resourceType":"Patient","name":[{"family":"\xff"}]}',
        b"{" * 1000,
        b"null",
    ]
    with worker(export) as made:
        results = made.process([good, *bad, good])
        assert results[0] == results[-1] and not results[0].reason
        assert {each.reason for each in results[1:-1]} <= {"MALFORMED", "UNSUPPORTED", "RESOURCE"}
        assert not any(each.content for each in results[1:-1])
        # A line is the same alone.
        assert made.process([good]) == results[:1]


def test_a_patient_that_cannot_be_read_refuses_the_lines_that_may_be_about_it(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in", {**FILES, "Patient.ndjson": PATIENTS[1:]})
    with worker(export) as made:
        (known,) = made.process([line(DOCUMENTS[0])])
    assert known.unknown_patient and not known.reason
    with (export / "Patient.ndjson").open("ab") as file:
        file.write(line(PATIENTS[0])[:-20] + b"\n")
    with worker(export) as made:
        results = made.process([line(DOCUMENTS[0]), line(DOCUMENTS[1])])
    assert [each.reason for each in results] == ["MALFORMED", ""]
    # One that is JSON but no resource that can be read has an id: only its own lines are refused.
    twice = b'{"resourceType":"Patient","id":"p100","gender":"male","gender":"male"}\n'
    (export / "Patient.ndjson").write_bytes(twice + line(PATIENTS[1]) + b"\n")
    with worker(export) as made:
        results = made.process([line(DOCUMENTS[0]), line(DOCUMENTS[1])])
    assert [each.reason for each in results] == ["MALFORMED", ""]


def test_thousands_of_versions_of_a_person_refuse_its_lines(tmp_path: Path) -> None:
    many = [patient("p100", f"Zyblorq{n}", "Quixwell", "4471902", "1957-04-22") for n in range(40)]
    with worker(write_export(tmp_path / "in", {**FILES, "Patient.ndjson": many})) as made:
        (result,) = made.process([line(DOCUMENTS[0])])
    assert result.reason == Reason.RESOURCE


def test_a_line_is_counted_by_the_listing_of_its_patient(tmp_path: Path) -> None:
    scopes = build(tmp_path / "scopes", [person(1, "4471902", fhir_id="p100")])
    listed = replace(parts(), scopes=scopes).deidentifier()
    with worker(write_export(tmp_path / "in")) as made:
        plain = made.process([line(DOCUMENTS[0])])
        results = replace(made, deidentifier=listed).process([line(DOCUMENTS[0]), line(DOCUMENTS[1]), line(DOCTOR)])
    assert [each.listing for each in (*plain, *results)] == ["", "", "unlisted", ""]


def test_the_order_of_files_and_lines_does_not_matter(tmp_path: Path) -> None:
    one = process(write_export(tmp_path / "in"), *PATIENTS, *DOCUMENTS, BINARY)
    turned = {f"{9 - n}.ndjson": list(reversed(each)) for n, each in enumerate(FILES.values())}
    assert process(write_export(tmp_path / "turned", turned), *PATIENTS, *DOCUMENTS, BINARY) == one


def test_the_file_of_identities_is_sealed_and_removed(tmp_path: Path) -> None:
    left = tmp_path / ".identities-1.unfinished"
    left.write_bytes(b"of a killed process")
    with IdentityWriter(tmp_path) as identities:
        for each in PATIENTS:
            identities.add(line(each))
        key = identities.finish()
        data = key.path.read_bytes()
        assert stat.S_IMODE(key.path.stat().st_mode) == 0o600
        assert not [canary for canary in CANARIES if canary.encode() in data]
        assert not left.exists()
        assert "secret" not in repr(key)
    assert not list(tmp_path.iterdir())


def test_jobs_and_answers_are_read_back() -> None:
    given = [b"{}", b"", "ü\0".encode()]
    assert decode_lines(encode_lines(given)) == given
    results = [
        LineResult(b"{}", "Patient"),
        LineResult(reason="POISON"),
        LineResult(b"x", "", "", True, "unlisted", "Patient/1", 7, 2, (("Patient.id", "IDNUM", "surrogate", "x", 1),)),
    ]
    assert decode_results(encode_results(results)) == results
