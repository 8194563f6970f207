"""The suites of invented lines: clinical facts stay, names go. ``support.suites`` prints the tables."""

import pytest
from support.suites import PARTS, check_facts, check_names, load_default, read_lines

from deid_agent.recognize import Tagger

ALTERED_LINES = {"seen": 0.105, "unseen": 0.06, "stranger": 0.07, "dense": 0.108}
"""The share of lines without PHI in which the default changes anything. The aim is 0.03. Lower it; never raise it."""
ALTERED_FACTS = {"seen": 0.024, "unseen": 0.021, "stranger": 0.012, "dense": 0.012}
"""The share of facts that the default changes. The aim is 0.02."""
LEAKED_NAMES = {"seen": 0.024, "unseen": 0.03, "stranger": 0.044}
"""The share of names in hard places that leak. The aim is 0.03."""
LEAKED_KNOWN_NAMES = 0.0
"""The same, if the message names the person. The aim is none."""


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return load_default()


@pytest.mark.parametrize("part", PARTS["integrity"])
def test_clinical_facts_stay(part: str, tagger: Tagger) -> None:
    result = check_facts(read_lines(f"integrity-{part}"), tagger)
    assert result.lost_line_count <= ALTERED_LINES[part] * result.lines.total(), result.table()
    assert result.lost <= ALTERED_FACTS[part] * result.marked, result.table()


@pytest.mark.parametrize("part", PARTS["hard-names"])
def test_names_in_hard_places_go(part: str, tagger: Tagger) -> None:
    result = check_names(read_lines(f"hard-names-{part}"), tagger)
    assert result.lost <= LEAKED_NAMES[part] * result.marked, result.table()


def test_names_that_the_message_states_go(tagger: Tagger) -> None:
    lines = [line for part in PARTS["hard-names"] for line in read_lines(f"hard-names-{part}") if line.context]
    result = check_names(lines, tagger)
    assert result.lost <= LEAKED_KNOWN_NAMES * result.marked, result.table()
