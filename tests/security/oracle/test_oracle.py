"""Known identifiers, planted by an oracle that shares no code with the agent, do not survive in their own message."""

import base64
from collections.abc import Iterable
from urllib.parse import quote

import pytest
from support.oracle.__main__ import judge, load_sanitizer, messages_of
from support.oracle.carriers import make_message
from support.oracle.hostile import score
from support.oracle.judge import find_survivors, list_cases
from support.oracle.search import Reading, fold

from deid_agent.model import Fact, Site
from deid_agent.pipeline import applying, planning
from deid_agent.pipeline.facts import collect_facts

SEED = 20
QUICK = 400


@pytest.mark.parametrize(
    "text",
    [
        "Mr. Achterberg came",
        "ACHTERBERG",
        "Ａｃｈｔｅｒｂｅｒｇ",
        "Ach\u00adter\u200bberg",
        "Ach-\r\nterberg",
        "NTE|1|L|Achter\rNTE|2|L|berg",
        "OBX|1|TX|1^C^LN||Achter||||||F\rOBX|2|TX|1^C^LN||berg||||||F",
        "Ach<b>ter</b>berg",
        "Ach<!-- -->terberg",
        "Ach\\.br\\terberg",
        "\\X416368\\terberg",
        "&#65;chter&#x62;erg",
        "&amp;#65;chterberg",
        quote("the Ächterberg").replace("%C3%84", "A"),
        "%41chterberg",
        '"\\u0041chterberg"',
        base64.b64encode(b"seen: Achterberg.").decode(),
        base64.b64encode(base64.b64encode(b"seen: Achterberg.")).decode(),
        "Âchtérberg",
    ],
)
def test_the_search_reads_every_form(text: str) -> None:
    assert Reading(text.encode()).holds(fold("Achterberg"))
    assert not Reading(text.replace("ch", "x").encode()).holds(fold("Achterbergen"))


@pytest.mark.parametrize(
    "text", ["٤٨٢١٣٧٧", "۴۸۲۱۳۷۷", "४८२१३७७", "๔๘๒๑๓๗๗", "４８２１３７７", "482-1377", "48 213 77"]
)
def test_the_search_reads_the_digits_of_every_script(text: str) -> None:
    assert Reading(f"MRN {text}.".encode()).holds("4821377")


def test_short_needles_are_whole_words() -> None:
    assert Reading(b"bed 4711, ward").holds("4711")
    assert not Reading(b"order 947112").holds("4711")


def test_the_search_reads_the_declared_charset() -> None:
    assert Reading("Кузнечихина".encode("iso8859-5"), "iso8859-5").holds(fold("Кузнечихина"))


def test_messages_depend_on_seed_and_number_alone() -> None:
    assert [make_message(7, n).render() for n in range(6)] == [make_message(7, n).render() for n in range(6)]
    assert make_message(7, 1).render() != make_message(8, 1).render()


def test_the_untouched_message_fails_every_case() -> None:
    for number in range(40):
        message = make_message(SEED, number)
        cases = list(list_cases(message, SEED, number))
        assert find_survivors(message, cases, message.render()) != []
        missed = set(cases) - set(find_survivors(message, cases, message.render()))
        assert not missed, [case.names for case in missed]


def test_a_name_that_the_agent_overlooks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognition that misses one family name of each message: that of the patient."""
    hidden = {make_message(SEED, number).people["patient"].family for number in range(12)}

    def forget(sites: Iterable[Site], namespace: str = "") -> tuple[Fact, ...]:
        return tuple(fact for fact in collect_facts(sites, namespace) if fact.value not in hidden)

    before = {case for case in judge(SEED, 0, 12).survivors if (case.role, case.kind) == ("patient", "name")}
    for module in (planning, applying):
        monkeypatch.setattr(module, "collect_facts", forget)
    after = {case for case in judge(SEED, 0, 12).survivors if (case.role, case.kind) == ("patient", "name")}
    assert after > before
    assert {case.writing for case in after - before} & {"plain", "upper", "reversed", "family alone", "given alone"}


def test_no_structured_identifier_survives() -> None:
    tally = judge(SEED, 0, messages_of(QUICK))
    assert [case.names for case in tally.survivors if case.plant < 0] == []


FULL = 100_000
NARRATIVE_OPEN = 0.001
"""Share of the identifiers planted in narratives that survive, of which the promise is none. Never raise it."""


@pytest.mark.full
def test_known_identifiers_over_writings_scripts_charsets_and_encodings(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the table of each class. Structured identifiers: none survives."""
    tally = judge(SEED, 0, messages_of(FULL))
    with capsys.disabled():
        print(tally.table())  # noqa: T201
    structured = [case.names for case in tally.survivors if case.plant < 0]
    assert structured == []
    assert tally.refused.total() * 100 <= tally.messages
    assert len(tally.survivors) <= NARRATIVE_OPEN * tally.total


STRUCTURED_OPEN = 0
"""Survivors of the hostile messages in structure that are not fixed. Never raise it."""


def test_hostile_messages() -> None:
    """The figures of the identifiers planted in 108 hostile messages, beside their bounds."""
    result = score(load_sanitizer(0), load_sanitizer(1))
    assert result.refused == []
    assert result.structured + result.narrative > 2200
    assert len(result.narrative_lost) * 100 < result.narrative, result.narrative_lost
    assert len(result.structured_lost) <= STRUCTURED_OPEN, result.structured_lost


def test_the_score_of_untouched_messages_is_a_total_loss() -> None:
    result = score(list, list)
    assert (len(result.structured_lost), len(result.narrative_lost)) == (result.structured, result.narrative)
