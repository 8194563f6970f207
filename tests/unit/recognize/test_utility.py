"""Clinical text that other tools replace by mistake stays, and PHI beside it goes. ``support.utility`` prints tables.

``tests/cases/utility/known-gaps.toml`` lists the mistakes of the default system. It is exact: a repaired case is taken
off the list, and none is added.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.suites import load_default
from support.utility import FOLDER, Outcome, check_cases, read_cases

from deid_agent.recognize import Profile

ROOT = Path(__file__).resolve().parents[3]
GAPS: Mapping[str, Mapping[str, list[str] | int]] = tomllib.loads((FOLDER / "known-gaps.toml").read_text("utf-8"))


@pytest.fixture(scope="module", params=list(Profile))
def profile(request: pytest.FixtureRequest) -> Profile:
    return Profile(request.param)


@pytest.fixture(scope="module")
def outcomes(profile: Profile) -> list[Outcome]:
    return check_cases(load_default(profile))


def ids(outcomes: list[Outcome]) -> list[str]:
    return sorted(each.case.id for each in outcomes)


def test_only_known_cases_are_altered(profile: Profile, outcomes: list[Outcome]) -> None:
    altered = [each for each in outcomes if each.altered]
    assert ids([each for each in altered if not each.case.blind]) == GAPS[profile]["altered"]
    assert sum(each.case.blind for each in altered) == GAPS[profile]["altered_blind"]


def test_phi_beside_a_term_goes(profile: Profile, outcomes: list[Outcome]) -> None:
    leaked = [each for each in outcomes if each.leaked]
    assert ids([each for each in leaked if not each.case.blind]) == GAPS[profile]["leaked"]
    assert sum(each.case.blind for each in leaked) == GAPS[profile]["leaked_blind"]


@pytest.mark.parametrize("profile", list(Profile))
def test_the_page_on_profiles_has_the_counts(profile: Profile) -> None:
    gaps, cases = GAPS[profile], read_cases()
    altered, leaked = gaps["altered"], gaps["leaked"]
    assert isinstance(altered, list) and isinstance(leaked, list)
    leaks = len(leaked) + int(str(gaps["leaked_blind"]))
    page = (ROOT / "docs" / "profiles.md").read_text("utf-8")
    assert f"| `{profile}` | {len(altered)} | {gaps['altered_blind']} | {leaks} |\n" in page
    blind = sum(case.blind for case in cases)
    with_phi = sum(bool(case.phi) for case in cases)
    assert f"of {len(cases) - blind} | Altered, of the {blind} blind | Leaks, of {with_phi} |" in page


def test_the_cases_are_many_and_keeping_everything_solves_few() -> None:
    cases = read_cases()
    assert len(cases) >= 990 and len({case.id for case in cases}) == len(cases)
    assert len({case.text for case in cases}) == len(cases)
    assert all(case.keep for case in cases)
    assert sum(bool(case.phi) for case in cases) >= 0.3 * len(cases)
    assert 0.45 * len(cases) <= sum(case.blind for case in cases) <= 0.55 * len(cases)
    assert len({case.kind for case in cases}) >= 15
