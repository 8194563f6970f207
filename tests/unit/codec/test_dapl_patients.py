"""Patients in the output shape of HL7's DAPL: ages, addresses, sex, race and ethnicity."""

import json
from datetime import date

import pytest
from support.dapl import (
    AGE,
    BUNDLE,
    DAY,
    PATIENT,
    PROFILE,
    absent,
    by_id,
    extension,
    listed,
    shaped,
)
from support.fhir import bundle

from deid_agent.codec.fhir import find_ages
from deid_agent.codec.fhir.dapl_ages import MASKED, UNKNOWN, Age
from deid_agent.model import LeftOutError


def ages(resource: object, day: date = DAY) -> list[Age]:
    """The ages that the output of this resource shows."""
    return list(find_ages(json.dumps(resource).encode(), day).values())


@pytest.mark.parametrize(
    ("address", "code", "reason"),
    [
        ({"postalCode": "902"}, "90200", ""),
        ({"postalCode": "90210"}, "90200", ""),
        ({"postalCode": "90210-1234", "country": "us"}, "90200", ""),
        ({"postalCode": "000"}, "00000", "masked"),
        ({"postalCode": "036"}, "00000", "masked"),
        ({"postalCode": "03601"}, "00000", "masked"),
        ({"postalCode": ""}, "00000", "masked"),
        ({"postalCode": "560001"}, "00000", "masked"),
        ({"postalCode": "902", "country": "DE"}, "00000", "masked"),
        ({"postalCode": "９０２"}, "00000", "masked"),
        ({"postalCode": 90210}, "00000", "masked"),
        ({"state": "KY"}, "00000", "unknown"),
        (None, "00000", "unknown"),
    ],
)
def test_a_postal_code(address: dict[str, object] | None, code: str, reason: str) -> None:
    (made,) = listed(shaped({**PATIENT, **({} if address is None else {"address": [address]})}), "address")
    assert made["postalCode"] == code
    assert made.get("_postalCode") == (absent(reason) if reason else None)


def test_one_address_remains() -> None:
    given = [
        {"use": "old", "postalCode": "10001"},
        {"use": "home", "postalCode": "20001", "period": {"end": "2019"}},
        {"use": "work", "postalCode": "30301"},
        {"use": "home", "postalCode": "40205", "period": {"start": "2019"}, "city": "Ashford", "district": "Boyd"},
    ]
    assert shaped({**PATIENT, "address": given})["address"] == [{"use": "home", "postalCode": "40200"}]


def test_patients_of_restricted_areas_are_left_out_with_their_resources() -> None:
    few = {**PATIENT, "id": "few", "address": [{"postalCode": "000"}]}
    other = {**PATIENT, "id": "other", "address": [{"postalCode": "902"}]}
    of_few = {"resourceType": "Condition", "id": "c1", "subject": {"reference": "http://x/Patient/few"}}
    of_other = {
        "resourceType": "Observation",
        "id": "o",
        "subject": {"reference": "Patient/other"},
        "performer": [{"reference": "Patient/few"}],
    }
    kin = {"resourceType": "RelatedPerson", "id": "k", "patient": {"reference": "Patient/few/_history/2"}}
    cover = {
        "resourceType": "Coverage",
        "id": "v",
        "beneficiary": {"reference": "Patient/other"},
        "payor": [{"reference": "RelatedPerson/k"}],
    }
    made = by_id(shaped(bundle(few, other, of_few, of_other, kin, cover), drops=True))
    assert set(made) == {"other", "o", "v"}
    assert "performer" not in made["o"]
    assert made["v"]["payor"] == [absent("masked")]
    assert set(by_id(shaped(bundle(few, other, of_few, of_other, kin, cover)))) == {"few", "other", "c1", "o", "k", "v"}
    with pytest.raises(LeftOutError):
        shaped(few, drops=True)
    with pytest.raises(LeftOutError, match="nothing"):
        shaped(bundle(few, of_few), drops=True)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-birthsex", "valueCode": "M"}, "M"),
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-sex", "valueCode": "248152002"}, "F"),
        (
            {
                "url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-sex",
                "valueCoding": {"system": "http://snomed.info/sct", "code": "248153007"},
            },
            None,  # R4 of US Core has a code
        ),
        ({"url": "http://hl7.org/fhir/us/core/StructureDefinition/us-core-birthsex", "valueCode": "UNK"}, None),
        ({"url": f"{PROFILE}dapl-sex-extension", "valueCode": "F"}, "F"),
        ({"url": f"{PROFILE}dapl-sex-extension", "valueCode": "Quixwell"}, None),
    ],
)
def test_the_sex_of_us_core(given: dict[str, object], made: str | None) -> None:
    found = shaped({**PATIENT, "extension": [given]})["extension"]
    assert isinstance(found, list)
    sexes = [each["valueCode"] for each in found if each["url"] == f"{PROFILE}dapl-sex-extension"]
    assert sexes == ([made] if made else [])


@pytest.mark.parametrize(
    ("born", "day", "age"),
    [
        ("1957-04-22", date(2024, 4, 21), Age(66)),
        ("1957-04-22", date(2024, 4, 22), Age(67)),
        ("1960-02-29", date(2023, 2, 28), Age(62)),
        ("1934-05-06", date(2024, 5, 5), Age(89)),
        ("1934-05-06", date(2024, 5, 6), Age(90)),
        ("1900-01-01", DAY, Age(90)),
        ("1934", DAY, Age(90)),
        ("1934-06", DAY, Age(89)),
        ("2024-06-01", DAY, Age(0)),
        ("2024-06-01T03:04:05Z", DAY, Age(0)),
        ("unknown", DAY, UNKNOWN),
        ("", DAY, UNKNOWN),
        (1957, DAY, UNKNOWN),
        (None, DAY, UNKNOWN),
    ],
)
def test_an_age(born: object, day: date, age: Age) -> None:
    assert ages({**PATIENT, "birthDate": born}, day) == [age]


@pytest.mark.parametrize(
    ("born", "period", "age"),
    [
        ("1957-04-22", {"start": "2020-04-21T23:00:00Z"}, Age(62)),
        ("1957-04-22", {"start": "2020"}, Age(63)),
        ("1957-04-22", {"end": "2020-05-01"}, Age(63)),
        ("1957-04-22", {}, UNKNOWN),
        ("1933-04-22", {"start": "2020-05-01"}, MASKED),  # 87 in 2020 is over 89 in the year of the message
        (None, {"start": "2020-05-01"}, UNKNOWN),
    ],
)
@pytest.mark.parametrize("reference", ["Patient/p", "http://x/fhir/Patient/p/_history/3", "urn:uuid:1"])
def test_the_age_at_an_encounter(born: object, period: object, age: Age, reference: str) -> None:
    encounter = {"resourceType": "Encounter", "subject": {"reference": reference}, "period": period}
    tree = {
        "resourceType": "Bundle",
        "entry": [None, {"resource": encounter}, {"fullUrl": "urn:uuid:1", "resource": {**PATIENT, "birthDate": born}}],
    }
    assert find_ages(json.dumps(tree).encode(), DAY)[0,] == age


@pytest.mark.parametrize(
    ("quantity", "age"),
    [
        ({"value": 36, "code": "a"}, Age(36)),
        ({"value": 90, "comparator": ">=", "code": "a"}, Age(90)),
        ({"value": 93, "code": "a"}, Age(90)),
        ({"value": 36, "comparator": ">=", "code": "a"}, UNKNOWN),
        ({"value": 36, "code": "mo"}, UNKNOWN),
        ({"value": -1, "code": "a"}, UNKNOWN),
        ({"value": "Quixwell", "code": "a"}, UNKNOWN),
    ],
)
def test_an_age_that_was_given(quantity: object, age: Age) -> None:
    given = {"resourceType": "Patient", "extension": [{"url": AGE, "valueQuantity": quantity}]}
    assert ages(given) == [age]
    assert json.dumps(extension(shaped(given), AGE)).count("Quixwell") == 0


def test_an_age_is_written_as_dapl_has_it() -> None:
    unit = {"unit": "yr", "system": "http://unitsofmeasure.org", "code": "a"}
    assert extension(shaped(PATIENT), AGE)["valueQuantity"] == {"value": 67, **unit}
    old = extension(shaped({**PATIENT, "birthDate": "1931-11-08"}), AGE)
    assert old["valueQuantity"] == {"value": 90, "comparator": ">=", **unit}
    assert extension(shaped({"resourceType": "Patient"}), AGE)["valueQuantity"] == absent("unknown")


def test_ethnicity_has_no_details_and_race_stays() -> None:
    made = by_id(shaped(BUNDLE.read_bytes()))
    core = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
    for name, code in (("race", "2054-5"), ("ethnicity", "2135-2")):
        inside = extension(made["p-1"], f"{core}{name}")["extension"]
        assert isinstance(inside, list)
        assert [each["url"] for each in inside] == ["ombCategory", "text"]
        assert inside[0]["valueCoding"]["code"] == code


def test_no_encounter_reveals_an_age_over_89_if_the_message_is_older() -> None:
    """An age of 89 in one year and of 90 in the next would give the year of birth."""
    visits = [
        {"resourceType": "Encounter", "id": f"e{year}", "status": "finished", "class": {"code": "IMP"}}
        | {"subject": {"reference": "Patient/p"}, "period": {"start": f"{year}-06-01"}}
        for year in (2022, 2023)
    ]
    raw = json.dumps(bundle({**PATIENT, "birthDate": "1933-05-01"}, *visits)).encode()
    assert find_ages(raw, date(2020, 1, 1)) == {(0,): Age(86), (1,): MASKED, (2,): MASKED}


@pytest.mark.parametrize("born", ["1934-13-01", "1934-12-32", "1934-00-00"])
def test_a_day_of_birth_that_does_not_exist_makes_nobody_younger(born: str) -> None:
    raw = json.dumps({**PATIENT, "birthDate": born}).encode()
    assert find_ages(raw, date(2024, 12, 31)) == {(): Age(90)}
