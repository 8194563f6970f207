"""Formats that are learned from samples."""

import random
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deid_agent.model import ConfigurationError, Document, PhiType
from deid_agent.rules import CHECKS, PatternFile, Rule, RuleCompiler, data_folder, find_clash, learn_format
from deid_agent.rules.rule_files import load_ruleset
from deid_agent.rules.ruleset import Ruleset, check_samples

RULES = data_folder("rules", environ={})
COMPILER = RuleCompiler.for_folder(RULES, CHECKS)
Make = Callable[[random.Random], str]


def samples(make: Make, count: int = 25) -> list[str]:
    chance = random.Random(5)
    return list(dict.fromkeys(make(chance) for _ in range(3 * count)))[:count]


def compiled(given: list[str], label: str = "") -> Rule:
    text = learn_format(given, label).rule_file("our-id", PhiType.IDNUM, set(given))
    assert not any(each in text for each in given)
    return COMPILER.compile(Path("our-id.toml"), PatternFile.model_validate(tomllib.loads(text)))


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (lambda c: f"HN-{c.randrange(10000):04}-{c.randrange(10, 99)}", "HN-[0-9]{4}-[0-9]{2}"),
        (lambda c: f"{c.choice('ABC')}{c.choice('XYZ')}{c.randrange(1000, 99999)}", "[A-Z]{2}[0-9]{4,5}"),
        (lambda c: f"{c.choice(['Ab', 'cd'])}.{c.randrange(10000, 99999)}/7", r"[A-Za-z]{2}\.[0-9]{5}/7"),
        (lambda c: f"w{c.randrange(1000, 9999)}+x", r"w[0-9]{4}\+x"),
    ],
)
def test_runs_become_classes_and_shared_text_stays(make: Make, pattern: str) -> None:
    given = samples(make)
    assert learn_format(given).pattern == pattern
    rule = compiled(given)
    assert check_samples(Ruleset(patterns=(rule,))) == []
    for each in given:
        assert list(rule.find(Document(f"see {each}, then")))
        assert not list(rule.find(Document(f"see {each}5x")))


def test_a_number_needs_a_label() -> None:
    given = samples(lambda chance: f"{chance.randrange(10**6, 10**7)}")
    with pytest.raises(ConfigurationError, match="the format is a number: results and doses have it too; give --label"):
        learn_format(given)
    rule = compiled(given, "pager code")
    assert check_samples(Ruleset(patterns=(rule,))) == []
    for text in ("Pager code 1234567", "pager  code: 1234567", "PAGER CODE no. 1234567", "pager code #1234567"):
        assert len(list(rule.find(Document(text)))) == 1, text
    for text in ("platelets 1234567", "pager codes 1234567", "pager code 12345678"):
        assert not list(rule.find(Document(text))), text


@pytest.mark.parametrize(
    ("given", "label", "expected"),
    [
        ([f"12-{n}" for n in range(1000, 1040)], "", "is a number"),
        ([f"HN-{n}" for n in range(1000, 1019)], "", "19 different samples: give at least 20"),
        (["HN-1000"] * 40, "", "1 different samples"),
        ([f"HN-{n}" for n in range(1000, 1020)] + ["HN1000"], "", "the samples have 2 forms"),
        ([f"HN-{n}" for n in range(1000, 1020)] + ["HN/1000"], "", "different signs in one place"),
        ([f"H{n}" for n in range(10, 40)], "", "too wide"),
        ([chr(97 + n) + "bcde" for n in range(25)], "", "too wide"),
        ([f"{chr(65 + n)}{100 + n}" for n in range(25)], "", "too wide"),
        ([f"HN-{10**n}{m}" for n in range(8) for m in range(5)], "", "differ too much in length"),
        ([f"HN-{n}'''" for n in range(1000, 1030)], "", "sample 1: write up to"),
        ([f"HN-{n}é" for n in range(1000, 1030)], "", "sample 1: write up to"),
        ([f"{'9' * 80}{n}" for n in range(1000, 1030)], "x", "sample 1: write up to"),
        ([f"HN-{n}" for n in range(1000, 1030)], "(?i:x)", "--label: write a word or two"),
    ],
)
def test_refusals(given: list[str], label: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as fault:
        learn_format(given, label)
    assert expected in str(fault.value)
    assert "HN-1000" not in str(fault.value)


def test_a_format_of_which_all_values_are_given_is_refused() -> None:
    given = [f"QXV{n:04}" for n in range(10_000)]
    with pytest.raises(ConfigurationError, match="nearly all values"):
        learn_format(given).rule_file("a", PhiType.IDNUM, set(given))


def test_a_format_of_clinical_texts_clashes() -> None:
    rule = compiled(samples(lambda chance: f"QXV-{chance.randrange(10**6):06}"))
    assert find_clash(rule, load_ruleset(RULES, CHECKS), ["fusion C4-C5"]) == ""
    assert find_clash(rule, Ruleset(), ["lot QXV-123456"]) == "a sample of a measurement"
    other = replace(rule, id="other", hit=(), miss=("lot QXV-123456",))
    assert find_clash(rule, Ruleset(patterns=(other,)), []) == "a sample of the rule other"
    veto = replace(rule, id="veto", hit=("lot [[IDNUM|QXV-123456]]",))
    assert find_clash(rule, Ruleset(vetoes=(veto,)), []) == "a sample of the veto veto"


def test_a_format_may_match_an_example_that_a_veto_misses() -> None:
    rule = compiled(samples(lambda chance: f"PJN{chance.randrange(10**6):06}"))
    spared = replace(rule, id="veto", hit=(), miss=("ICD PJN447190",))
    assert find_clash(rule, Ruleset(vetoes=(spared,)), []) == ""
    assert find_clash(rule, load_ruleset(RULES, CHECKS), []) == ""
