"""The independent check of clinical content."""

import json

import pytest
from support.evidence import pair_of

from deid_agent.evidence.figures import EvidenceFigure
from deid_agent.evidence.messages import compare_results, read_message
from deid_agent.evidence.utility import (
    ItemCounts,
    count_common,
    find_dates,
    find_negations,
    find_quantities,
    load_clinical_terms,
    measure_utility,
)

NOTE = (
    "Mr. Zoltan Quibble seen 3/4/2019 and 3/18/2019 for congestive heart failure, Hunt-Hess 2, left hip pain. No "
    "fever, denies chest pain. Lisinopril 10 mg, then 20 mg; BP 120/80 mmHg."
)
SANITIZED = NOTE.replace("Zoltan Quibble", "Martin Harper").replace("3/4/", "5/11/").replace("3/18/", "5/25/")
MESSAGE = (
    "MSH|^~\\&|A|B|C|D|2019||ORU^R01|1|P|2.5\rPID|1||4471^^^A||Quibble^Zoltan||19500203|M|||1 Road^^Town^OH^90210\r"
    "OBX|1|NM|2345-7^Glucose||5.4|mmol/L|3-6\rOBX|2|CE|1^X||A^Positive^L\rOBX|3|TX|1^X||Seen by Quibble.\r"
)


def figures(original: str, output: str) -> dict[str, EvidenceFigure]:
    section = measure_utility([pair_of(original, output)], load_clinical_terms())
    return {each.name: each for each in section.figures}


def test_content_beside_replaced_values_is_preserved() -> None:
    found = figures(NOTE, SANITIZED)
    assert {name: (each.count, each.of) for name, each in found.items()} == {
        "clinical terms": (7, 7),
        "numbers with units": (3, 3),
        "sides of the body": (1, 1),
        "negations": (2, 2),
        "intervals between dates": (1, 1),
        "intervals of less than 5 years": (1, 1),
        "texts with all of these, long intervals apart": (1, 1),
    }


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("congestive heart failure", "Harper", "clinical terms"),
        ("Hunt-Hess", "Mott-Lane", "clinical terms"),
        ("10 mg", "12 mg", "numbers with units"),
        ("120/80 mmHg", "120/80 mg", "numbers with units"),
        ("10 mg, then 20 mg", "20 mg, then 10 mg", "numbers with units"),
        ("left", "right", "sides of the body"),
        ("No fever", "No Harper", "negations"),
        ("denies", "reports", "negations"),
        ("5/25/2019", "5/26/2019", "intervals of less than 5 years"),
        ("5/25/2019", "2019", "intervals of less than 5 years"),
    ],
)
def test_each_change_of_content_is_counted(before: str, after: str, name: str) -> None:
    assert before in SANITIZED
    found = figures(NOTE, SANITIZED.replace(before, after))
    assert found[name].count == found[name].of - 1
    assert found["texts with all of these, long intervals apart"].count == 0


def test_items_that_only_the_output_has_are_counted() -> None:
    assert figures("Seen by Quibble.", "Seen by Parkinson on 5 mg.")["clinical terms"].remark == "1 added"


def test_a_longer_term_is_one_item() -> None:
    assert load_clinical_terms().find("Congestive  heart\nfailure; heart failure") == [
        "congestive heart failure",
        "heart failure",
    ]


def test_quantities_and_negations_are_those_of_the_text() -> None:
    assert find_quantities("1.5 g/dL 98% 12mg 5 mgx v2.5 mg/dL") == ["1.5 g/dL", "98 %", "12 mg"]
    assert find_negations("No fever; not Quibble; without   pain") == ["no fever", "not", "without pain"]


def test_days_of_no_calendar_are_left_out() -> None:
    assert [str(day) for day in find_dates("2/30/2019, 2019-02-03, Feb 3, 2019, 3 May 2019, 31/12/2019, 1/2/19")] == [
        "2019-02-03",
        "2019-02-03",
        "2019-05-03",
        "2019-12-31",
        "2019-01-02",
    ]


def test_the_order_of_day_and_month_is_that_of_the_text() -> None:
    """Read with the month first, 5/3 to 6/3 is an interval of a month, and so would be its shifted form by chance."""
    found = figures("on 01/02/2019 and 09/02/2019", "on 25/04/2019 and 03/05/2019")
    assert found["intervals between dates"].count == 1


def test_intervals_to_a_birth_are_long_and_counted_apart() -> None:
    found = figures("Born 3/4/1950, seen 3/4/2019, then 3/9/2019.", "Born 5/1/1950, seen 5/11/2018, then 5/16/2018.")
    assert (found["intervals between dates"].count, found["intervals between dates"].of) == (1, 2)
    assert (found["intervals of less than 5 years"].count, found["intervals of less than 5 years"].of) == (1, 1)
    assert found["texts with all of these, long intervals apart"].count == 1


def test_common_items_are_counted_in_order() -> None:
    assert count_common([1, 2, 3, 4], [1, 3, 2, 4]) == 3
    assert count_common([], [1]) == 0
    long = list(range(3000))
    assert count_common([*long, 1], [2, *long[::-1]]) >= 3000, "very long lists are compared without their order"


def results(before: str, after: str) -> tuple[int, int, int]:
    counts = ItemCounts()
    compare_results(read_message(before.encode()), read_message(after.encode()), counts)
    return counts.preserved, counts.originals, counts.added


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [("Quibble", "Harper", 2), ("5.4", "5.40", 1), ("mmol/L", "mg/dL", 1), ("3-6", "3-7", 1), ("A^Pos", "B^Pos", 1)],
)
def test_results_of_hl7_are_compared_by_place(before: str, after: str, count: int) -> None:
    assert results(MESSAGE, MESSAGE.replace(before, after)) == (count, 2, 0)


def test_results_of_fhir_are_compared_by_path() -> None:
    bundle = json.dumps(
        {
            "resourceType": "Bundle",
            "entry": [
                {"resource": {"resourceType": "Observation", "valueQuantity": {"value": 5.4, "unit": "mg"}}},
                {"resource": {"resourceType": "Observation", "component": [{"valueQuantity": {"value": 7}}]}},
            ],
        }
    )
    assert results(bundle, bundle) == (2, 2, 0)
    assert results(bundle, bundle.replace("5.4", "5.5")) == (1, 2, 0)
    assert results(bundle, bundle.replace('"mg"', '"g"')) == (1, 2, 0)


def test_texts_and_people_of_messages_are_read() -> None:
    facts = read_message(MESSAGE.encode())
    assert facts.texts == ("Seen by Quibble.",)
    (person,) = facts.people
    assert (person.id, person.sex, person.birth, person.postal_codes) == ("4471", "male", "19500203", ("90210",))
    assert "Quibble" not in repr(facts)


@pytest.mark.parametrize(
    "payload", [b"", b"MSH", b"MSH|", b"{", b'{"resourceType": 5}', b"\xff\xfe{}", b'{"resourceType":' + b"[" * 20_000]
)
def test_other_payloads_have_no_results(payload: bytes) -> None:
    assert not read_message(payload).results


@pytest.mark.parametrize(
    "text",
    ["<" * 200_000, "1," * 200_000, "1/" * 200_000, "jan " * 100_000, "no " * 100_000, "1" + " " * 300_000 + "mg"],
)
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    payload = json.dumps({"resourceType": "Basic", "text": {"div": text}}).encode()
    assert read_message(payload).is_message
    figures(text, text)
