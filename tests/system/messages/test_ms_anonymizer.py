"""Before and after pairs of another tool: every difference has a documented reason, and none is out of date."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.shared import shared

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy

ROOT = Path(__file__).resolve().parents[3]
CASES = tomllib.loads((ROOT / "tests" / "cases" / "ms-anonymizer.toml").read_text("utf-8"))["difference"]
Difference = tuple[str, str, str]


def leaves(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from leaves(value, f"{path}.{name}" if path else name)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, f"{path}[{index}]")
    else:
        yield path, node


def fate(before: dict[str, object], after: dict[str, object], path: str, gone: str) -> str:
    if path not in before:
        return "added" if path in after else "absent"
    return gone if path not in after else "same" if after[path] == before[path] else "changed"


def differences() -> Iterator[Difference]:
    rules = ROOT / "rules"
    ours = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules)).deidentifier()
    for target in sorted(shared("messages", "fhir", "ms-anonymizer").glob("*-target.json")):
        source = target.with_name(target.name.replace("-target", ""))
        if not source.exists():  # some targets have no source
            continue
        raw = source.read_bytes()
        payloads = (raw, target.read_bytes(), ours.message(raw).payload)
        before, theirs, mine = (dict(leaves(json.loads(payload))) for payload in payloads)
        for path in before | theirs | mine:
            one, two = (fate(before, after, path, "removed") for after in (theirs, mine))
            if one != two:
                yield re.sub(r"\[\d+\]", "", path), one, two


def test_the_differences_equal_the_list() -> None:
    listed = {(element, case["theirs"], case["ours"]) for case in CASES for element in case["elements"]}
    assert set(differences()) == listed


def test_every_difference_has_a_reason() -> None:
    assert all(case["why"].endswith(".") for case in CASES)
