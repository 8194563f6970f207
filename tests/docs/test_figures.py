"""Figures on several pages agree with each other and with the shipped models, rules and settings."""

import json
import re
from pathlib import Path

import pytest

from deid_agent.config import AgentSettings
from deid_agent.rules.checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
CARD = (ROOT / "models" / "README.md").read_text("utf-8")
FIGURE = r"([\d.]+) \(([\d.]+) to ([\d.]+)\)"


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def card(profile: str) -> tuple[str, str]:
    """Two figures of the default system in ``models/README.md``: leaked annotations, and precision of any type."""
    (section,) = re.findall(rf"^## The default under `{profile}`\n(.*?)(?=^## |\Z)", CARD, re.MULTILINE | re.DOTALL)
    leaked = re.search(rf"^Leaked, of the annotations: {FIGURE}\.$", section, re.MULTILINE)
    covered = re.search(rf"^\| binary HIPAA token, covered by any type \| ({FIGURE}) ", section, re.MULTILINE)
    assert leaked and covered
    value, low, high = (f"{100 * float(number):.1f}" for number in leaked.groups())
    return f"{value} % ({low} to {high})", covered[1]


@pytest.mark.parametrize(("profile", "named"), [("recall", "`recall`, the default"), ("balanced", "`balanced`")])
def test_the_figures_of_a_profile_are_those_of_its_card(profile: str, named: str) -> None:
    assert "| {} | {} | {} |".format(named, *card(profile)) in page("docs/profiles.md")


@pytest.mark.parametrize("name", ["README.md", "docs/limits.md"])
def test_the_front_pages_have_the_figures_of_the_default(name: str) -> None:
    text = " ".join(page(name).split())
    assert f"{card('recall')[0].partition(' (')[0]} of the annotations" in text
    (alarms,) = re.findall(r"^False alarms, .*: ([\d.]+) of 1,000 words\.$", CARD, re.MULTILINE)
    assert f"In plain medical prose {alarms} of 1,000 words" in text


def test_the_number_of_replacements_is_the_same_on_every_page() -> None:
    """Another test compares the table of the README with a run; the size of the audit varies with the times."""
    rows = re.findall(r"^\d\d-\S+ +(?:published|dead lettered) +(\d+) ", page("README.md"), re.MULTILINE)
    assert len(rows) == 6
    assert f"{sum(map(int, rows))} values replaced" in page("docs/sizing.md")


def test_the_counts_of_sizing_and_containers_are_current() -> None:
    assert f"after `agent.attempts` ({AgentSettings().attempts}) tries" in page("docs/sizing.md")
    panels = json.loads(page("deploy/grafana/dashboard.json"))["panels"]
    text = page("docs/containers.md")
    rules = page("deploy/prometheus/alerts.yaml").count("- alert:")
    queries = sum(len(panel["targets"]) for panel in panels)
    assert f"all {rules} rules and the dashboard's {queries} queries parse" in text


def test_readme_counts_the_pattern_rules() -> None:
    assert f"by {len(list((ROOT / 'rules/patterns').glob('*.toml')))} pattern rules" in page("README.md")


def test_the_page_on_rules_names_every_check() -> None:
    (listed,) = re.findall(r"^Checks: (.*?)\n\n", page("docs/rules.md"), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", listed)) == set(CHECKS)
