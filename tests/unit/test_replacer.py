"""A generalized year is seen from the message's own time."""

from datetime import date
from pathlib import Path

from support.surrogates import surrogates

from deid_agent import policy
from deid_agent.phi import PhiType
from deid_agent.policy import Method
from deid_agent.replacer import Replacer
from deid_agent.sites import Kind, Site, Subject
from deid_agent.surrogate import Scope

RULES = Path(__file__).resolve().parents[2] / "rules"
OF_2024 = Scope("d", reference=date(2024, 3, 11))


def replacer() -> Replacer:
    return Replacer(policy.load("safe-harbor", RULES), surrogates(), year=2026)


def born(value: str, kind: Kind = Kind.VALUE) -> Site:
    return Site("PID-7", 0, len(value), PhiType.DATE, kind=kind, subject=Subject.PATIENT, value=value)


def test_a_birth_year_of_someone_over_89_is_no_longer_told() -> None:
    made = replacer()
    assert made.value(born("19200719"), Method.GENERALIZE, OF_2024) == "1934"
    assert made.value(born("19350719"), Method.GENERALIZE, OF_2024) == "1935"
    assert made.value(born("19350719"), Method.GENERALIZE, Scope("d")) == "1936"
    instant = born("1920-07-19T00:00:00Z", Kind.INSTANT)
    assert made.value(instant, Method.GENERALIZE, OF_2024) == "1934-01-01T00:00:00Z"
    assert made.finding(PhiType.DATE, "4/22/1920", Method.GENERALIZE, OF_2024) == "1934"
