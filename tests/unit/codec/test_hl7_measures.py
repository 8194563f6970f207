"""Figures that are measurements, and numbers that may be identifiers: both sides of each form."""

import pytest

from deid_agent.codec.hl7v2.values import is_measure, is_range, is_unit


@pytest.mark.parametrize(
    "text",
    [
        "12.5", "-3", "9999", "<200", ">= 350000", "350000 /uL", "350,000 copies/mL", "150000-450000 /uL", "40 %",
        "1.2e6 cells", "3.5 - 5.0 g/dL", "90 mL/min/1.73m2", "12 x10E3/uL", "7 mmol/L",
    ],
)  # fmt: skip
def test_only_values_in_the_form_of_a_measurement_are_measurements(text: str) -> None:
    assert is_measure(text)


@pytest.mark.parametrize("text", ["22030", "350000", "555-1234", "150000 to 450000", "8831207"])
def test_a_single_number_needs_a_unit_or_a_range(text: str) -> None:
    assert not is_measure(text)
    assert is_measure(text, measured=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "20240304", "> 20240304", "20240304-20240309", "3/4/2019", "2019-03-04", "123-45-6789", "1234567890",
        "95 years old", "12 Elm St", "7 MRN", "350000 of Okafor", "4417 Hollow", "12:30", "١٢٣٤٥٦",
    ],
)  # fmt: skip
def test_dates_addresses_and_words_are_not_measurements(text: str) -> None:
    assert not is_measure(text, measured=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("150000-450000", True), ("150000 to 450000", True), ("<450000", True), ("4.5", True), ("350000 /uL", True),
        ("8831207", False), ("NEGATIVE", False), ("20190304-20190309", False), ("123-45-6789", False),
    ],
)  # fmt: skip
def test_a_range_is_two_numbers_or_a_bound(text: str, *, expected: bool) -> None:
    assert is_range(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mg/hr", True), ("/uL", True), ("10*3/uL", True), ("mL/min/1.73m2", True), ("mg per hour", True), ("%", True),
        ("", False), ("Ada Okafor", False), ("12345678", False), ("8831207/mL", False),
        ("see the note of Dr Okafor", False),
    ],
)  # fmt: skip
def test_a_unit_is_short_and_not_a_name(text: str, *, expected: bool) -> None:
    assert is_unit(text) is expected
