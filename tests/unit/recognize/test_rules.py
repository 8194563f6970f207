"""The packaged rules: every sample of every rule, and properties of all rules."""

import re
from bisect import bisect_right
from collections import Counter
from pathlib import Path

import pytest

from deid_agent.eval.markup import read_corpus
from deid_agent.model import Document
from deid_agent.recognize.registry import load_rules
from deid_agent.rules.ruleset import Rule, Ruleset, check_samples

RULES = Path(__file__).resolve().parents[3] / "rules"
SHIPPED = load_rules(RULES)
UNDER_VETOES = 14
"""Annotations of the corpus inside a veto of their type, of 84,000: no model can save them. Never raise it."""
ALL = {rule.id: rule for rule in (*SHIPPED.patterns, *SHIPPED.vetoes, *SHIPPED.late_vetoes)}


@pytest.mark.parametrize("name", ALL)
def test_hits_and_misses(name: str) -> None:
    assert check_samples(Ruleset(patterns=(ALL[name],))) == []


@pytest.mark.parametrize("rule", SHIPPED.patterns, ids=lambda rule: rule.id)
def test_the_id_begins_with_the_type(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.id)


def test_every_file_is_loaded() -> None:
    files = [path for kind in ("patterns", "vetoes", "late-vetoes") for path in (RULES / kind).iterdir()]
    assert sorted(ALL) == sorted(path.stem for path in files)


def test_every_list_is_used() -> None:
    text = "".join(path.read_text("utf-8") for path in RULES.glob("*/*.toml"))
    in_rules = set(re.findall(r'^(?:stop|beyond|within) = "([a-z-]+)"$', text, re.MULTILINE))
    in_code = {"common", "name-particle", "name-title", "not-initials", "site-kind", "heading", "listed-term"}
    in_code |= {"glued-staff", "glued-patient", "glued-not-name"}
    assert set(SHIPPED.lexicons) == in_rules | in_code


@pytest.mark.parametrize(("kind", "most"), [("vetoes", UNDER_VETOES), ("late-vetoes", 0)])
def test_vetoes_leave_the_annotations_of_the_corpus_alone(kind: str, most: int) -> None:
    covered: Counter[str] = Counter()
    for note in read_corpus(RULES.parent / "corpus"):
        doc = Document(note.annotated.text)
        for veto in SHIPPED.vetoes if kind == "vetoes" else SHIPPED.late_vetoes:
            spans = [span for span in note.annotated.spans if span.type in veto.types]
            ranges = list(veto.find(doc)) if spans else []
            for span in spans:
                at = bisect_right(ranges, span.start, key=lambda each: each[0]) - 1
                covered[veto.id] += at >= 0 and span.end <= ranges[at][1]
    assert covered.total() <= most, +covered
