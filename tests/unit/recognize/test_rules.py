"""The packaged rules: every sample of every rule, and properties of all rules."""

import re
from pathlib import Path

import pytest

from deid_agent.recognize.registry import load_rules
from deid_agent.rules.ruleset import Rule, Ruleset, check_samples

RULES = Path(__file__).resolve().parents[3] / "rules"
SHIPPED = load_rules(RULES)
ALL = {rule.id: rule for rule in (*SHIPPED.patterns, *SHIPPED.vetoes)}


@pytest.mark.parametrize("name", ALL)
def test_hits_and_misses(name: str) -> None:
    assert check_samples(Ruleset(patterns=(ALL[name],))) == []


@pytest.mark.parametrize("rule", SHIPPED.patterns, ids=lambda rule: rule.id)
def test_the_id_begins_with_the_type(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.id)


def test_every_file_is_loaded() -> None:
    files = [*(RULES / "patterns").iterdir(), *(RULES / "vetoes").iterdir()]
    assert sorted(ALL) == sorted(path.stem for path in files)


def test_every_list_is_used() -> None:
    text = "".join(path.read_text("utf-8") for path in RULES.glob("*/*.toml"))
    in_rules = set(re.findall(r'^(?:stop|beyond|within) = "([a-z-]+)"$', text, re.MULTILINE))
    in_code = {"common", "name-particle", "name-title", "not-initials", "site-kind", "heading", "listed-term"}
    assert set(SHIPPED.lexicons) == in_rules | in_code
