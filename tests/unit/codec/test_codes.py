"""Identifiers in codes and in addresses: the forms that are found, and the codes and addresses that are kept."""

import pytest
from support.fhir import RULES, codec

from deid_agent.codec.codes import AddressNames, has_form_of_identifier, is_long_number, is_snomed_id, load_names

NAMES = load_names(RULES)
ADDRESSES = AddressNames(NAMES, frozenset({"standard.example"}), ("http://hl7.org/", "urn:oid:"))


@pytest.mark.parametrize(
    "code",
    [
        *("DR-40117", "DR40117", "NPI:1234567893", "MRN-40117", "PAT00417", "EMP_00417", "ZK4471190", "44711903"),
        *("N-4471-02", "288-14-9031", "617-555-0143", "j.thornbury@northmail.example", "AB/447119/X"),
    ],
)
def test_a_code_with_the_form_of_an_identifier_is_found(code: str) -> None:
    assert has_form_of_identifier(code)


@pytest.mark.parametrize(
    "code",
    [
        *("GLU", "inpatient", "LAB-CBC", "E11.9", "S52.209A", "J3301", "99213", "2345-7", "LA10394-7", "LP14635-4"),
        *("73211009", "900000000000207008", "00074-3799-13", "C0011849", "1.2.840.10008.6.1.308", "2.1.1.4.1.1"),
        *("c0e3a1de-93ce-4a59-a1ee-cd6ea10b2b55", "P10Y--P15Y:M", "urn:ihe:iti:xdw:2011:workflowDoc", "ICU-3"),
        *("265201", "RSP/2017/01", "HBA1C", "XR-CHEST-2V", "DRG-470", "application/fhir+json", ""),
    ],
)
def test_a_code_of_a_vocabulary_is_kept(code: str) -> None:
    assert not has_form_of_identifier(code)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("73211009", True),
        ("404684003", True),
        ("73211008", False),
        ("44711903", False),
        ("073211009", False),
        ("73211", False),
        ("7321100٩", False),
    ],
)
def test_an_identifier_of_snomed_has_a_partition_and_a_check_digit(number: str, expected: bool) -> None:
    assert is_snomed_id(number) is expected


@pytest.mark.parametrize("text", ["okafor.a", "a_okafor", "Okafor", "ANNA OKAFOR", "anna-okafor", "Okafor^Anna"])
def test_a_name_in_a_code_is_found(text: str) -> None:
    assert NAMES.is_person(text)


@pytest.mark.parametrize(
    "text", ["MASS", "GRAFT", "lab-report", "CT-Head", "US-ABD", "A", "", "Lincoln", "STONE", "ok"]
)
def test_a_common_word_is_not_a_name(text: str) -> None:
    assert not NAMES.is_person(text)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("http://hospital.example/rules/anna-okafor", ["anna-okafor"]),
        ("https://intranet.klinik.example/profiles/Anna_Okaforska", ["Anna_Okaforska"]),
        ("http://hospital.example/AnnaOkafor/rules", ["AnnaOkafor"]),
        ("http://hospital.example/rules/okafor.json", ["okafor.json"]),
        ("http://hospital.example/rules?for=ZK4471190", ["ZK4471190"]),
        ("http://hospital.example/a%2Eokafor/44711903|1.0", ["a%2Eokafor", "44711903"]),
        ("https://anna.okafor.example/rules", ["anna.okafor.example"]),
        ("https://anna@files.example/rules", ["anna@files.example"]),
        ("urn:mrn:44711903", ["44711903"]),
        ("http://hospital.example/rules|okafor", ["okafor"]),
        ("http://hl7.org/fhir/StructureDefinition/Anna-Okafor", []),
        ("https://lab.standard.example/anna-okafor/44711903", []),
        ("http://hospital.example/fhir/StructureDefinition/lab-report|20240131", []),
        ("https://clinic.example/fhir/ValueSet/2.16.840.1.113762.1.4.1", []),
        ("http://fhir.hospital.example/CodeSystem/TumorBoard", []),
        ("urn:oid:2.16.840.1.113883.3.1234567", []),
        ("urn:uuid:c0e3a1de-93ce-4a59-a1ee-cd6ea10b2b55", []),
        ("", []),
    ],
)
def test_the_parts_of_an_address_that_identify_are_found(address: str, parts: list[str]) -> None:
    assert [address[first:last] for first, last in ADDRESSES.find_persons(address)] == parts
    assert ADDRESSES.keeps(address) is (not parts)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("http://hospital.example/staff", True),
        ("http://hospital.example/ids#mrn", True),
        ("urn:hospital:practitioner", True),
        ("http://hospital.example/CodeSystem/provider-qualification", False),
        ("http://hospital.example/patient-class", False),
        ("http://hospital.example/lab", False),
        ("", False),
    ],
)
def test_a_system_may_name_a_register_of_people(system: str, expected: bool) -> None:
    assert codec()._table.names_register(system) is expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4111111111111111", True),
        ("378282246310005", True),
        ("998877665544332", True),
        ("20240101123045", False),
        ("1234567890123", False),
        ("123456789012345678", False),
        ("7321001000119106", False),  # of SNOMED CT
        ("7321041000119108", True),  # the check digits of SNOMED CT and of a card
        ("12345678901234", True),
    ],
)
def test_a_number_of_14_to_17_digits_is_that_of_a_card_unless_it_is_a_date(text: str, found: bool) -> None:
    assert is_long_number(text) is found
