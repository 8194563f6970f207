"""The kinds of dates in messages and notes: known dates of birth, and the form of technical times."""

import re
from datetime import date, datetime

import pytest
from support.corpus import RULES

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import DateKind, Site, Subject, ValueKind
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.facts import (
    collect_facts,
    facts_from_context,
    find_births,
    find_message_date,
    find_written_date,
)
from deid_agent.pipeline.policy import Method, compile_policy
from deid_agent.pipeline.policy_dates import Risk
from deid_agent.pipeline.replacement import Replacer
from deid_agent.surrogate import Scope, Surrogates

FACTS = facts_from_context({"birth_date": "1957-04-22"})


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    policy = compile_policy({"name": "t", "default": "surrogate"}, "t")
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=policy, system="rules").deidentifier(notes_only=True)


def site(value: str, kind: DateKind, subject: Subject = Subject.OTHER, path: str = "X-1") -> Site:
    return Site(path, 0, 1, PhiType.DATE, subject=subject, value=value, blank="", date_kind=kind)


def test_births_of_everyone_are_facts_and_events_are_not() -> None:
    sites = [
        site("19570422", DateKind.BIRTH, Subject.PATIENT),
        site("19310506", DateKind.BIRTH),
        site("20240311", DateKind.EVENT),
        site("20240312", DateKind.EVENT, Subject.PATIENT),  # a death
    ]
    facts = collect_facts(sites)
    assert {fact.value for fact in facts} == {"19570422", "19310506", "20240312"}
    assert find_births(facts) == {date(1957, 4, 22), date(1931, 5, 6)}


def test_a_message_is_written_on_its_technical_date() -> None:
    sites = [site("20240311", DateKind.EVENT), site("20500101", DateKind.EVENT), site("20240312", DateKind.TECHNICAL)]
    assert find_written_date(sites) == date(2024, 3, 12)
    assert find_written_date(sites[:2]) == find_message_date(sites[:2]) == date(2050, 1, 1)
    assert find_message_date([site("20240313", DateKind.BIRTH)]) is None


def days(text: str) -> list[date]:
    return [datetime.strptime(found, "%m/%d/%Y").date() for found in re.findall(r"\d+/\d+/\d{4}", text)]


def test_a_birth_of_the_context_is_a_birth_in_every_note(deidentifier: Deidentifier) -> None:
    notes = [f"Seen 3/{n}/2024. She says 4/22/1957 and April 1957." for n in range(2, 12)]
    new = [deidentifier.text(note, facts=FACTS, document=f"d{n}", patient="P1").text for n, note in enumerate(notes)]
    births = {days(text)[1] for text in new}
    assert len(births) == 1
    (born,) = births
    assert 2 <= abs((born - date(1957, 4, 22)).days) <= 182
    assert all(f"{born:%B %Y}" in text for text in new)


def test_a_labelled_birth_date_is_known_in_the_rest_of_its_note(deidentifier: Deidentifier) -> None:
    text = deidentifier.text(
        "DOB: 4/22/1957. Seen 3/4/2024. She gave 4/22/1957 again.", document="d", patient="P1"
    ).text
    first, seen, again = days(text)
    assert first == again
    assert (first - date(1957, 4, 22)) != (seen - date(2024, 3, 4))


def test_the_birth_of_the_mother_is_another_birth(deidentifier: Deidentifier) -> None:
    text = "DOB: 4/22/1957. Mother born 5/6/1931. Seen 3/4/2024, last 3/1/2024."
    born, mother, seen, last = days(deidentifier.text(text, facts=FACTS, document="d", patient="P1").text)
    shift = date(2024, 3, 4) - seen
    assert date(2024, 3, 1) - last == shift
    assert len({date(1957, 4, 22) - born, date(1931, 5, 6) - mother, shift}) == 3


def test_the_ages_of_a_note_are_those_at_its_latest_day(deidentifier: Deidentifier) -> None:
    newborn = "Born 3/4/2024, day of life 5 today, 3/9/2024."
    born, today = days(deidentifier.text(newborn, document="d", patient="P1").text)
    assert (today - born).days == 5


def test_a_holiday_beside_a_birth_becomes_its_weekday(deidentifier: Deidentifier) -> None:
    text = deidentifier.text("Born on Christmas, 12/25/1957. Seen 3/4/2024.", document="d", patient="P1").text
    assert f"{days(text)[0]:%A}".lower() in text.lower()
    assert "christmas" not in text.lower()


def replacer(**dates: object) -> Replacer:
    policy = compile_policy({"name": "t", "default": "surrogate", "dates": dates}, "t")
    return Replacer(policy, Surrogates(b"key of the tests of kinds", dates=policy.dates))


SENT = "20240313134009.1234+0100"
SCOPE = Scope("D1", "P1", today=date(2024, 3, 13), births=frozenset({date(1957, 4, 22)}))


@pytest.mark.parametrize(
    ("technical", "new"),
    [
        ("day", "20240313000000.0000+0000"),
        ("week", "20240311000000.0000+0000"),
        ("year", "20240101000000.0000+0000"),
        ("drop", ""),
    ],
)
def test_technical_times_follow_the_policy(technical: str, new: str) -> None:
    made = replacer(technical=technical)
    assert made.replace_site(site(SENT, DateKind.TECHNICAL), Method.SURROGATE, SCOPE) == new
    event = made.replace_site(site(SENT, DateKind.EVENT), Method.SURROGATE, SCOPE)
    assert event == replacer().replace_site(site(SENT, DateKind.TECHNICAL), Method.SURROGATE, SCOPE)
    assert event.endswith("134009.1234+0100")
    assert made.replace_site(site("not a time", DateKind.TECHNICAL), Method.SURROGATE, SCOPE) == ""


def test_a_technical_instant_remains_an_instant() -> None:
    value = "2024-03-13T00:40:09.500+01:00"
    instant = site(value, DateKind.TECHNICAL)._replace(kind=ValueKind.INSTANT)
    new = replacer(technical="week").replace_site(instant, Method.SURROGATE, SCOPE)
    assert datetime.fromisoformat(new).utcoffset() is not None
    assert replacer().replace_site(instant, Method.GENERALIZE, SCOPE) == "2024-01-01T00:00:00Z"


def test_a_field_of_events_that_repeats_the_birth_of_an_adult_moves_with_it() -> None:
    made = replacer()
    birth = made.replace_site(site("19570422", DateKind.BIRTH), Method.SURROGATE, SCOPE)
    assert made.replace_site(site("19570422", DateKind.EVENT), Method.SURROGATE, SCOPE) == birth
    child = Scope("D1", "P1", today=date(1958, 3, 13), births=SCOPE.births)
    apart = {made.replace_site(site("19570422", kind), Method.SURROGATE, child) for kind in DateKind}
    assert len(apart) == 2, "the admission of a child on its birth date is an event"


@pytest.mark.parametrize("types", [{}, {"DATE": "surrogate"}])
def test_bases_of_documents_are_refused_while_identifiers_join_them(types: dict[str, str]) -> None:
    file: dict[str, object] = {"name": "t", "default": "surrogate", "types": types, "dates": {"base": "document"}}
    with pytest.raises(ConfigurationError, match=r't: dates\.base is "document".*acknowledge'):
        compile_policy(file, "t")
    file["dates"] = {"base": "document", "acknowledge": ["linked-bases"]}
    bounds = compile_policy(file, "t").date_bounds
    assert (bounds.births, bounds.risks) == (0, frozenset({Risk.LINKED_BASES}))
    assert "linked-bases" in str(bounds)


def test_bases_of_documents_are_accepted_if_nothing_joins_them() -> None:
    policy = compile_policy(
        {
            "name": "t",
            "default": "mask",
            "types": {"DATE": "surrogate"},
            "dates": {"base": "document"},
            "record": {"key": "drop"},
        },
        "t",
    )
    assert policy.date_bounds.births == 362
    assert not policy.date_bounds.risks
    assert not compile_policy({"name": "t", "default": "keep"}, "t").date_bounds.shifted
