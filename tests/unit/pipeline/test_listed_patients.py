"""Which scope a document gets: of the scope table, else of the rule."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scope_tables import HOSP, POLICY, SECRET, build, builder, notes, person

from deid_agent.batch.scopes import find_listing
from deid_agent.model import ConfigurationError, Listing, PatientField, PatientIdentifier, PhiType
from deid_agent.pipeline import ListedPatients, NumberSource, ScopeTableFile, Zeros
from deid_agent.pipeline.policy import IdentifierScope

PERSONS = [
    person(310017, "4471902", fhir_id="p100", former="880;881"),
    person(310018, "4471903", city_no="77"),
    person(310019, fhir_id="p9"),
    person(99, "5550001"),
]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> ListedPatients:
    return build(tmp_path_factory.mktemp("t") / "scopes", PERSONS).add_to(POLICY, SECRET)


def mr(value: str, assigner: str = "HOSP", code: str = "MR", **more: Any) -> PatientIdentifier:
    return PatientIdentifier(value, code, (assigner,) if assigner else (), **more)


def logical(value: str) -> PatientIdentifier:
    return PatientIdentifier(value, field=PatientField.LOGICAL)


def key(value: str, column: str = "person_id") -> PatientIdentifier:
    return PatientIdentifier(value, assigners=(column,), field=PatientField.BESIDE)


VISIT = PatientIdentifier("V1", "VN", ("HOSP",), PhiType.ACCOUNT)


@pytest.mark.parametrize(
    ("identifiers", "scope", "listing"),
    [
        ([mr("4471902")], "4471902", "listed"),
        ([VISIT, mr("4471902")], "4471902", "listed"),
        ([mr("004471902")], "4471902", "listed"),
        ([mr("447-19-02", "http://hospital.example/mrn/")], "4471902", "listed"),
        ([PatientIdentifier("4471902", "MR", ("X", "1.2.3.4", "ISO"))], "4471902", "listed"),
        ([mr("4471902", "")], "4471902", "listed"),
        ([mr("880")], "4471902", "listed"),
        ([mr("881", "")], "4471902", "listed"),
        ([logical("p100")], "4471902", "listed"),
        ([key("310017")], "4471902", "listed"),
        ([key(" 310017 ", "PERSON_ID")], "4471902", "listed"),
        ([key("99")], "5550001", "listed"),  # a placeholder as a number, and a person as a key
        ([mr("77", "CITY", "PI")], "4471903", "listed"),
        ([logical("p9")], "PERSON|310019", "listed"),
        ([mr("999001"), logical("p100")], "4471902", "listed"),
        ([mr("4471902"), mr("77", "CITY", "PI")], "4471902", "conflicting"),
        # An unlisted identifier has the scope of the rule.
        ([mr("999001")], "999001", "unlisted"),
        ([mr("4471902", "OTHER")], "4471902", "unlisted"),
        ([mr("77")], "77", "unlisted"),  # not the number of the city
        ([logical("P100")], "P100", "unlisted"),  # ids of FHIR have a case
        ([key("310017", "visit_id")], "310017", "unlisted"),
        ([VISIT], "VISIT|V1", "unlisted"),
        ([mr("UNKNOWN")], None, "unlisted"),
        ([], None, "nobody"),
        # The new number of a merge counts, and the old one alone.
        ([mr("999001"), mr("4471902", field=PatientField.MERGED)], "999001", "unlisted"),
        ([mr("4471902", field=PatientField.MERGED)], "4471902", "listed"),
    ],
)
def test_the_best_listed_identifier_counts(
    identifiers: list[PatientIdentifier], scope: str | None, listing: str, listed: ListedPatients
) -> None:
    for order in (identifiers, identifiers[::-1]):
        found = listed.find(order)
        assert (found.scope, found.listing) == (scope, listing)
    if listing == Listing.UNLISTED:
        assert POLICY.patient.scope(identifiers) == scope


def test_a_listed_number_has_the_scope_that_it_had_without_the_table(listed: ListedPatients) -> None:
    """Data that was published before joins with data after."""
    for number in ("4471902", "4471903"):
        assert listed.scope([mr(number)]) == POLICY.patient.scope([mr(number)])


def test_identities_are_found_as_their_rows(listed: ListedPatients) -> None:
    made = notes()
    assert find_listing(listed, made, "310017", {"mrn": "4471902"}) is Listing.LISTED
    assert find_listing(listed, made, "310017", {}) is Listing.LISTED
    assert find_listing(listed, made, "1", {"mrn": "4471902"}) is Listing.LISTED
    assert find_listing(listed, made, "310018", {"mrn": "4471902"}) is Listing.CONFLICTING
    assert find_listing(listed, made, "1", {"mrn": "2"}) is Listing.UNLISTED


def test_a_source_without_assigners_takes_the_numbers_of_all_others(tmp_path: Path) -> None:
    made = notes(number=[])
    rows = [{"person_id": "1", "mrn": "4471902", "fhir_id": "p1"}]
    found = build(tmp_path / "s", rows, made).add_to(POLICY, SECRET)
    for assigner in ("", "HOSP", "ELSEWHERE"):
        assert found.find([mr("4471902", assigner)]).listing is Listing.LISTED


@pytest.mark.parametrize("zeros", ["", "significant"])
def test_a_number_with_other_zeros_is_not_listed(zeros: str, tmp_path: Path) -> None:
    found = build(tmp_path / "s", PERSONS, notes(zeros)).add_to(POLICY, SECRET)
    other = found.find([mr("004471902")])
    assert other.listing is Listing.UNLISTED
    assert other.scope == ("004471902" if zeros else "4471902"), "significant zeros are kept without the table too"


NUMBER = st.text("0123456789AB-", min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBER, min_size=2, max_size=6, unique=True), st.sampled_from(["", "significant"]))
def test_two_persons_are_never_joined_by_zeros_unless_these_are_padding(numbers: list[str], zeros: str) -> None:
    made = notes(zeros)
    work = builder(made)
    for place, number in enumerate(numbers, 1):
        work.add_row(person(place, number), None, f"row {place}")
    try:
        scopes = work.finish()
    except ConfigurationError as problem:
        assert not any(f" {number} " in str(problem) for number in numbers if len(number) > 2)
        return
    keys = [work.cipher.name(f"column\x1fperson_id\x1f{place}") for place in range(1, len(numbers) + 1)]
    assert len({scopes[each] for each in keys}) == len(numbers)


@given(st.text("0", max_size=3), st.integers(100, 10**9), st.text("0", max_size=3))
def test_zeros_are_padding_only_for_the_source_that_declares_it(one: str, number: int, two: str) -> None:
    for zeros in Zeros:
        rule = ListedPatients.of(POLICY.patient, [NumberSource("hosp", HOSP, zeros)])
        aliases = {rule.name_alias(mr(f"{zeros_}{number}")) for zeros_ in (one, two)}
        assert (len(aliases) == 1) == (one == two or zeros is Zeros.PADDING)


def test_a_policy_that_unlinks_documents_takes_no_table(tmp_path: Path) -> None:
    path = build(tmp_path / "s", PERSONS).path
    with pytest.raises(ConfigurationError, match="unlinks documents"):
        ScopeTableFile.of(path, SECRET, replace(POLICY, identifiers=IdentifierScope.DOCUMENT))
