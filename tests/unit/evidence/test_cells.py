"""Quasi-identifiers that outputs have left."""

import pytest
from support.evidence import pair_of

from deid_agent.evidence import TextPair
from deid_agent.evidence.cells import count_quasi_identifiers
from deid_agent.evidence.figures import EvidenceSection
from deid_agent.evidence.messages import read_message
from deid_agent.evidence.utility import ClinicalTerms

JOBS = ClinicalTerms.of(["beekeeper", "harbor pilot", "teacher"])
NOTE = "Mr. Quibble, {age} years old, works as a harbor pilot. Seen 3/4/2019. Lives in Town, OH 03601."


def report(pairs: list[TextPair], *, coarse_dates: bool = False) -> EvidenceSection:
    return count_quasi_identifiers(pairs, [], JOBS, {"036"}, coarse_dates=coarse_dates)


def counts(section: EvidenceSection) -> dict[str, tuple[int, int]]:
    return {each.name.removeprefix("patients whose outputs have "): (each.count, each.of) for each in section.figures}


def test_values_that_outputs_have_unchanged_are_counted() -> None:
    original = NOTE.format(age=93)
    found = counts(report([pair_of(original, original.replace("Quibble", "Harper"))]))
    assert found["a full date that is unchanged"] == (1, 1)
    assert found["an age over 89"] == (1, 1)
    assert found["a ZIP code of an area of few people"] == (1, 1)
    assert found["a profession unchanged"] == (1, 1)
    assert found["left professions of fewer than 5 patients"] == (1, 1)
    assert found["patients in cells of fewer than 5 by sex, age and ZIP area"] == (1, 1)


def test_values_that_are_replaced_are_not_left() -> None:
    output = "Mr. Harper, 90 years old, works as a teacher. Seen 5/9/2018. Lives in Burg, OH 44131."
    found = counts(report([pair_of(NOTE.format(age=93), output)]))
    assert [name for name, (count, _) in found.items() if count] == ["any full date, also a shifted one"]


def test_a_full_date_is_finer_than_a_policy_that_coarsens() -> None:
    pair = pair_of("Seen 3/4/2019.", "Seen 5/9/2018.")
    assert counts(report([pair], coarse_dates=True))["a full date, which is finer than the policy"] == (1, 1)
    pair = pair_of("Seen 3/4/2019.", "Seen 2019.")
    assert counts(report([pair], coarse_dates=True))["a full date, which is finer than the policy"] == (0, 1)


def test_a_code_with_the_same_first_digits_is_left() -> None:
    assert counts(report([pair_of("Town, OH 03601", "Town, OH 03600")]))["a ZIP code of an area of few people"] == (
        1,
        1,
    )


@pytest.mark.parametrize(("patients", "small", "larger"), [(4, 4, 4), (5, 0, 5), (10, 0, 10), (11, 0, 0)])
def test_cells_below_their_size_are_counted_over_patients(patients: int, small: int, larger: int) -> None:
    text = "Aged 44, seen today."
    pairs = [pair_of(text, text, f"n{n}", f"p{n // 2}") for n in range(2 * patients)]
    section = report(pairs)
    found = counts(section)
    remark = next(each.remark for each in section.figures if each.name.startswith("patients in cells of fewer than 5"))
    assert remark == f"{int(small > 0)} of 1 cells"
    assert found["patients in cells of fewer than 5 by sex and age"] == (small, patients)
    assert found["patients in cells of fewer than 11 by sex and age"] == (larger, patients)


def test_members_of_messages_are_compared() -> None:
    before = "MSH|^~\\&|A|B\rPID|1||4471||Q^Z||19500203|M|||1 Road^^Town^OH^90210"
    after = "MSH|^~\\&|A|B\rPID|1||9023||H^M||19500203|M|||2 Lane^^Burg^OH^90288"
    one, other = read_message(before.encode()), read_message(after.encode())
    found = counts(count_quasi_identifiers([], [("p", one, other)], JOBS, {"036"}))
    assert found["the birth date unchanged"] == (1, 1)
    assert found["the sex"] == (1, 1)
    assert found["the first three digits of the ZIP code"] == (1, 1)
    assert found["a ZIP code of an area of few people"] == (0, 1), "902 has many"
    moved = read_message(after.replace("19500203", "19491107").replace("90288", "10417").encode())
    found = counts(count_quasi_identifiers([], [("p", one, moved)], JOBS, ()))
    assert found["the birth date unchanged"] == found["the first three digits of the ZIP code"] == (0, 1)


def test_no_value_is_in_the_section() -> None:
    original = NOTE.format(age=93)
    text = str(report([pair_of(original, original)]).as_json())
    assert not [value for value in ("Quibble", "93", "pilot", "3/4", "036") if value in text]
