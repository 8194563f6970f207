"""Links between the Patients of an export: one person has one shift, from whichever line it is found."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.bulk_exports import (
    MRN,
    PATIENTS,
    Resource,
    document,
    line,
    note,
    patient,
    read,
    text_of,
    worker,
    write_export,
)

from deid_agent.batch.bulk_identities import IdentityWriter
from deid_agent.batch.bulk_links import MOST_LINKED, LinkCounts

DAY = date(2019, 3, 9)


def linked(key: str, *others: str, kind: str = "seealso", mrn: str = "") -> Resource:
    links = [{"other": {"reference": other}, "type": kind} for other in others]
    return patient(key, f"Name{key}", "Quixwell", mrn or f"55{key[1:]}", "1957-04-22", link=links)


def encounter(key: str) -> Resource:
    return {
        "resourceType": "Encounter",
        "id": "e1",
        "status": "finished",
        "class": {"code": "AMB"},
        "subject": {"reference": f"Patient/{key}"},
        "period": {"start": str(DAY)},
    }


def shifts(folder: Path, resources: list[Resource], *keys: str) -> list[int]:
    """The days by which the dates of an encounter of each Patient move."""
    export = write_export(folder, {"A.ndjson": resources})
    with worker(export) as made:
        results = [read(each) for each in made.process([line(encounter(key)) for key in keys])]
    return [(date.fromisoformat(each["period"]["start"]) - DAY).days for each in results]


def count(folder: Path, *resources: Resource) -> LinkCounts:
    with IdentityWriter(folder) as identities:
        for each in resources:
            identities.add(line(each))
        identities.finish()
        return identities.links


@pytest.mark.parametrize("kind", ["seealso", "refer", "replaces", "replaced-by"])
def test_two_records_of_one_person_have_one_shift(kind: str, tmp_path: Path) -> None:
    alone = [linked("p100"), linked("p101"), linked("p102")]
    before = shifts(tmp_path / "alone", alone, "p100", "p101", "p102")
    assert len(set(before)) == 3
    found = [linked("p100", "Patient/p101", kind=kind), *alone[1:]]
    one, two, other = shifts(tmp_path / "in", found, "p100", "p101", "p102")
    assert one == two and other == before[2]
    # The record that remains gives the shift: that of the feed.
    if kind == "replaced-by":
        assert one == before[1]
    turned = shifts(tmp_path / "turned", found[::-1], "p101", "p100")
    assert turned == [one, one]


def test_chains_cycles_and_absent_records_are_harmless(tmp_path: Path) -> None:
    found = [
        linked("p100", "Patient/p101", "Patient/p100"),
        linked("p101", "https://fhir.example/Patient/p102/_history/3"),
        linked("p102", "Patient/p100", "Patient/gone", "RelatedPerson/x"),
        linked("p103", "Patient/gone"),
        {**linked("p104"), "link": "Quixwell"},
        {**linked("p105"), "link": [7, {"other": 3}, {"other": {"reference": 4}}, None]},
    ]
    keys = [str(each["id"]) for each in found]
    made = shifts(tmp_path / "in", found, *keys)
    assert len({*made[:3]}) == 1 and len({*made}) == 4
    assert count(tmp_path, *found) == LinkCounts(6, 2, 1, 3, 0)


def test_a_link_by_a_number_needs_its_system(tmp_path: Path) -> None:
    def by_number(number: str, **system: str) -> Resource:
        link = {"other": {"identifier": {"value": number, **system}}, "type": "seealso"}
        return {**linked("p100"), "link": [link]}

    others = [linked("p101"), linked("p102")]
    for found, joined in ((by_number("55101"), False), (by_number("55101", system=MRN), True)):
        one, two, _ = shifts(tmp_path / str(joined), [found, *others], "p100", "p101", "p102")
        assert (one == two) is joined


def test_a_person_joins_its_patients_unless_it_is_unsure(tmp_path: Path) -> None:
    def person(*targets: str, **more: Any) -> Resource:
        links = [{"target": {"reference": each}, **more} for each in targets]
        return {"resourceType": "Person", "id": "x1", "name": [{"family": "Brumwick"}], "link": links}

    plain = [linked("p100"), linked("p101")]
    joined = [*plain, person("Patient/p100", "Patient/p101", assurance="level3")]
    one, two = shifts(tmp_path / "in", joined, "p100", "p101")
    assert one == two
    # Its other name is known, and its own dates move with them.
    with worker(tmp_path / "in") as made:
        letter = document("n1", "Patient/p101", note("brumwick and namep100 came."))
        moved, own = made.process([line(letter), line({**joined[2], "birthDate": "1957-04-22"})])
        (record,) = made.process([line({**plain[0]})])
    assert not {"brumwick", "namep100"} & set(text_of(read(moved)).split())
    assert read(own)["birthDate"] == read(record)["birthDate"]
    one, two = shifts(
        tmp_path / "unsure", [*plain, person("Patient/p100", "Patient/p101", assurance="level1")], "p100", "p101"
    )
    assert one != two
    assert count(tmp_path, *joined) == LinkCounts(2, 0, 1, 2, 0)


def test_a_group_that_is_too_large_is_followed_by_none_of_its_members(tmp_path: Path) -> None:
    many = [linked(f"p{n}", "Patient/p0") for n in range(MOST_LINKED + 1)]
    assert count(tmp_path, *many) == LinkCounts(MOST_LINKED + 1, 0, 0, 0, MOST_LINKED + 1)
    found = shifts(tmp_path / "in", many, "p0", "p1", "p2", "p3")
    assert len(set(found)) == 4
    assert count(tmp_path, *many[:MOST_LINKED]).patients == MOST_LINKED
    assert count(tmp_path, *PATIENTS) == LinkCounts()
