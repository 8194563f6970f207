"""Surrogates of places, sites and payers."""

import re

import pytest
from support.surrogates import SCOPE, replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules import data_folder
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.methods import RESTRICTED_ZIP3

MADE = surrogates()
LISTS = load_lists(data_folder("rules"))


def test_an_organisation_is_one_in_the_whole_feed_and_initials_follow_it() -> None:
    full = replace(MADE, PhiType.HOSPITAL, "Roper Bend Hospital")
    assert full == replace(MADE, PhiType.HOSPITAL, "Roper Bend Hospital", scope=Scope("other"))
    first, second, _ = full.split()
    assert replace(MADE, PhiType.HOSPITAL, "RBH") == f"{first[0]}{second[0]}H"


def test_zip_and_state_agree_for_every_prefix() -> None:
    states = {p: state for state, ranges in LISTS.tables["zip3"].items() for p in _prefixes(ranges)}
    for prefix, state in states.items():
        new = replace(MADE, PhiType.ZIP, f"{prefix}17")
        assert states[new[:3]] == state
        if any(p not in RESTRICTED_ZIP3 for p, s in states.items() if s == state):
            assert new[:3] not in RESTRICTED_ZIP3


def _prefixes(ranges: str) -> list[str]:
    parts = [part.split("-") for part in ranges.split()]
    return [f"{n:03d}" for part in parts for n in range(int(part[0]), int(part[-1]) + 1)]


@pytest.mark.parametrize(
    ("value", "like"),
    [
        ("45 Park Ave", "[1-9][0-9] (?!Park)[A-Z][a-z]+ Ave"),
        ("12 N Hill St", "[1-9][0-9] N (?!Hill)[A-Z][a-z]+ St"),
        ("South Street", "(?!South)[A-Z][a-z]+ Street"),
        ("388 East 700 North", "(?!388)[0-9]{3} East (?!700)[0-9]{3} North"),
        ("RR 2 Box 118", "RR [13-9] Box (?!118)[0-9]{3}"),
        ("146-01 45th Ave", "(?!146)[0-9]{3}-0[2-9] (?!45)[1-9][0-9](?:st|nd|rd|th) Ave"),
        ("1455 7th Avenue, 2nd Floor", "(?!1455)[0-9]{4} [1-9](?:st|nd|rd|th) Avenue, [1-9](?:st|nd|rd|th) Floor"),
        ("1 Valley Rd", "[2-9] [A-Z][a-z]+ Rd"),
        ("725 Mt. Rushmore Rd", "[1-9][0-9]{2} Mt[.] [A-Z][A-Za-z]+ Rd"),
    ],
)
def test_streets_lose_name_and_every_number(value: str, like: str) -> None:
    """A street named after a kind of street; numbers beside an ordinal; no house is number 0."""
    for number in range(30):
        made = Surrogates(b"a secret of streets %d" % number)
        assert re.fullmatch(like, replace(made, PhiType.STREET, value)), value


@pytest.mark.parametrize("word", ["Methodist", "Baptist", "Dialysis", "Retreat", "Assisted Living"])
def test_the_kind_of_a_site_is_kept(word: str) -> None:
    new = replace(MADE, PhiType.HOSPITAL, f"Whetstone {word}")
    assert new.endswith(f" {word}")
    assert "Whetstone" not in new


def test_a_kind_alone_is_a_name() -> None:
    assert replace(MADE, PhiType.HOSPITAL, "Methodist") != "Methodist"
    assert not replace(MADE, PhiType.HOSPITAL, "Baptist Hospital").startswith("Baptist")


@pytest.mark.parametrize("kind", ["payers", "public_payers", "state_payers"])
def test_a_payer_of_a_country_becomes_another_of_them(kind: str) -> None:
    payers = LISTS.phrases[kind]
    made = [replace(MADE, PhiType.ORGANIZATION, payer) for payer in payers]
    assert sorted(made) == sorted(payers)
    assert all(new != old for new, old in zip(made, payers, strict=True))
    assert replace(MADE, PhiType.ORGANIZATION, payers[0].upper()) == made[0].upper()


def test_a_second_address_in_one_value_is_replaced() -> None:
    new = MADE.replace(PhiType.EMAIL, "ada.vane@x.org okafor@y.org", kind=ValueKind.VALUE, scope=SCOPE)
    assert "okafor" not in new
    assert "y.org" not in new


@pytest.mark.parametrize("town", ["Karak", "Ponce", "Bauan", "Rome"])
def test_a_short_town_in_capitals_is_the_same_town(town: str) -> None:
    assert replace(MADE, PhiType.CITY, town.upper()) == replace(MADE, PhiType.CITY, town).upper()
    assert len(replace(MADE, PhiType.CITY, "NYC")) == 3


def test_initials_and_mount_agree_in_a_site_and_in_its_line_in_capitals() -> None:
    for site in ("Kinnaird TB Services", "Mt Tyson Hospital", "Mount Tyson Hospital"):
        new = replace(MADE, PhiType.HOSPITAL, site)
        assert replace(MADE, PhiType.HOSPITAL, site.upper()) == new.upper()
        assert not {"tyson", "kinnaird", "tb"} & set(new.lower().split())


@pytest.mark.parametrize("kind", ["Road Surgery", "Street Surgery", "Base Hospital", "Polyclinic"])
def test_the_kind_of_a_site_is_kept_beside_its_name(kind: str) -> None:
    """Picton Road Surgery and PICTON ROAD SURGERY are found again as a site, and name another road."""
    for written in (str, str.upper):
        new = replace(MADE, PhiType.HOSPITAL, written(f"Picton {kind}"))
        assert new.endswith(written(kind))
        assert "picton" not in new.lower()


def test_a_kind_that_is_also_a_surname_is_replaced() -> None:
    assert "Chu" not in replace(MADE, PhiType.HOSPITAL, "Chu & Park Dental")
    assert "Lane" not in replace(MADE, PhiType.HOSPITAL, "Ada Lane Clinic")
