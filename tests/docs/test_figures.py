"""Figures that stand on several pages are the same on all of them, and those of what is shipped."""

import json
import re
from pathlib import Path

import pytest

from deid_agent.config import AgentSettings
from deid_agent.recognize.checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
CARD = (ROOT / "models" / "README.md").read_text("utf-8")
FIGURE = r"([\d.]+) \(([\d.]+) to ([\d.]+)\)"


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def card(profile: str) -> tuple[str, str]:
    """What ``models/README.md`` says of the default under a profile: leaked, and precision whatever type covers."""
    (section,) = re.findall(rf"^## The default under `{profile}`\n(.*?)(?=^## |\Z)", CARD, re.MULTILINE | re.DOTALL)
    leaked = re.search(rf"^Leaked, of the annotations: {FIGURE}\.$", section, re.MULTILINE)
    covered = re.search(rf"^\| binary HIPAA token, covered by any type \| ({FIGURE}) ", section, re.MULTILINE)
    assert leaked and covered
    value, low, high = (f"{100 * float(number):.1f}" for number in leaked.groups())
    return f"{value} % ({low} to {high})", covered[1]


@pytest.mark.parametrize(("profile", "named"), [("recall", "`recall`, the default"), ("balanced", "`balanced`")])
def test_a_profile_leaks_what_its_card_says(profile: str, named: str) -> None:
    assert "| {} | {} | {} |".format(named, *card(profile)) in page("deploy/profiles.md")


@pytest.mark.parametrize("name", ["README.md", "deploy/limits.md"])
def test_the_front_pages_say_what_the_card_of_the_default_says(name: str) -> None:
    text = " ".join(page(name).split())
    assert f"{card('recall')[0].partition(' (')[0]} of the annotations" in text
    (alarms,) = re.findall(r"^False alarms, .*: ([\d.]+) of 1,000 words\.$", CARD, re.MULTILINE)
    assert f"In plain medical prose {alarms} of 1,000 words" in text


def test_the_demonstration_replaces_as_many_on_every_page() -> None:
    """The README's table is compared with a run elsewhere; the bytes of its audit differ by some digits of times."""
    rows = re.findall(r"^\d\d-\S+ +(?:published|dead lettered) +(\d+) ", page("README.md"), re.MULTILINE)
    assert len(rows) == 6
    assert f"{sum(map(int, rows))} values replaced" in page("deploy/sizing.md")


def test_what_sizing_and_containers_count_is_there() -> None:
    assert f"after `agent.attempts` ({AgentSettings().attempts}) tries" in page("deploy/sizing.md")
    panels = json.loads(page("deploy/grafana/dashboard.json"))["panels"]
    told = page("deploy/containers.md")
    assert f"the dashboard's {sum(len(panel['targets']) for panel in panels)} queries parse" in told
    assert f"`{page('deploy/prometheus/alerts.yaml').count('- alert:')} rules found`" in told


def test_the_page_on_rules_names_every_check() -> None:
    (told,) = re.findall(r"^Checks: (.*?)\n\n", page("deploy/rules.md"), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", told)) == set(CHECKS)
