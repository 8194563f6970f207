"""Named recognizer sets."""

from pathlib import Path

import pytest

from deid_agent.errors import ConfigurationError
from deid_agent.recognize.registry import SYSTEMS, assemble, load_rules
from deid_agent.ruleset import Ruleset

RULES = Path(__file__).resolve().parents[3] / "rules"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_is_its_recognizers_in_order(system: str) -> None:
    assert tuple(r.name for r in assemble(load_rules(RULES), system)) == SYSTEMS[system]


def test_an_unknown_system_lists_the_names() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown recognizer system magic: one of default, none, patterns, known"
    ):
        assemble(load_rules(RULES), "magic")


def test_known_phi_needs_its_word_lists() -> None:
    with pytest.raises(ConfigurationError, match=r"common\.txt"):
        assemble(Ruleset(), "known")
