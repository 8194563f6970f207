"""The compiled core finds the ranges of every rule that ``Rule.find`` finds, in notes, samples and hostile text."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.growth import growth

from deid_agent import core
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.measure import load_grammar
from deid_agent.model import Document
from deid_agent.recognize.registry import load_rules
from deid_agent.rules import Regexp, Rule, RuleScan
from deid_agent.rules.rule_scan import translate

ROOT = Path(__file__).resolve().parents[3]
needs_core = pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")
WIDE = "é°’–µÀßœſK\u0301\u00a0\u3000李小龙김민수\U0001f600\ud800"
"""Characters that an automaton of bytes may read differently: signs, cases of Unicode, marks, a lone surrogate."""
HOSTILE = (
    *("a1 ", "Aa ", "A", "1", "1/", "1.", "-", " ", "\n", "Dr. ", "(555) ", "1-1-", "x@", "é", "\u0301", "12/31/1999 "),
    *("\x00", "_", "0" * 50 + " ", "John ", "a" * 500 + " ", "MRN: ", "@a.", "\ud800", "李", "Ⅷ", "K", "I. ", "'s "),
)


@cache
def all_rules() -> dict[str, tuple[Rule, ...]]:
    rules = load_rules(ROOT / "rules")
    forms = tuple(form.rule for form in load_grammar(ROOT / "rules").forms)
    return {"patterns": rules.patterns, "vetoes": (*rules.vetoes, *rules.late_vetoes), "forms": forms}


@cache
def notes(part: CorpusPart) -> list[str]:
    return [note.annotated.text for note in select_part(read_corpus(ROOT / "corpus"), part)]


def compare(rules: tuple[Rule, ...], texts: Sequence[str]) -> None:
    scan = RuleScan(rules).prepare()
    for number, text in enumerate(texts):
        doc = Document(text)
        found = [list(ranges) for ranges in scan.find(doc)]
        wrong = [rule.id for rule, ranges in zip(rules, found, strict=True) if ranges != list(rule.find(doc))]
        assert not wrong, f"text {number}"


def samples(rules: tuple[Rule, ...]) -> list[str]:
    return [sample for rule in rules for sample in (*rule.hit, *rule.miss)]


@needs_core
@pytest.mark.parametrize("kind", ["patterns", "vetoes", "forms"])
def test_every_rule_compiles(kind: str) -> None:
    rules = all_rules()[kind]
    assert [rule.id for rule in rules if translate(rule.regexp.pattern) is None] == []
    assert RuleScan(rules)._build().left() == []


@needs_core
@pytest.mark.parametrize("kind", ["patterns", "vetoes", "forms"])
def test_notes(kind: str) -> None:
    compare(all_rules()[kind], notes(CorpusPart.DEV)[::9])


@needs_core
@pytest.mark.parametrize("kind", ["patterns", "vetoes", "forms"])
def test_the_samples_of_all_rules_in_several_texts(kind: str) -> None:
    """Samples of other rules are the near misses of a rule; in each text a part of the ASCII is replaced."""
    draw = random.Random(1)
    parts = [sample for rules in all_rules().values() for sample in samples(rules)]
    draw.shuffle(parts)
    texts = ["\n".join(parts[at : at + 40]) for at in range(0, len(parts), 40)]
    for at in range(0, len(texts), 2):
        places = draw.sample(range(len(texts[at])), len(texts[at]) // 30)
        signs = list(texts[at])
        for place in places:
            signs[place] = draw.choice(WIDE[:-1])
        texts[at] = "".join(signs)
    compare(all_rules()[kind], texts[:: 1 if kind == "vetoes" else 3])


@needs_core
@pytest.mark.parametrize("kind", ["patterns", "vetoes", "forms"])
def test_hostile_text(kind: str) -> None:
    compare(all_rules()[kind], ["", *(part * (6000 // len(part)) for part in HOSTILE)])


@needs_core
@pytest.mark.full
def test_notes_of_every_author() -> None:
    for rules in all_rules().values():
        compare(rules, notes(CorpusPart.ALL)[::20])


PIECES = (
    *(
        "Dr. ",
        "Mrs ",
        "John",
        "O'Brien",
        " ",
        "  ",
        "\n",
        ", ",
        "12/3/19",
        "04-1957",
        "MRN: ",
        "4471902",
        "(555) 555-0100",
    ),
    *(
        "é",
        "’s",
        "\u0301",
        "–",
        "°",
        "a.b@c.org",
        "66 yo",
        "T2N1M0",
        "5 mg",
        "room 4",
        "-",
        ".",
        "/",
        "\t",
        "\u00a0",
        "ſ",
    ),
)


@needs_core
@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=30))
def test_any_text(parts: list[str]) -> None:
    for rules in all_rules().values():
        compare(rules, ["".join(parts)])


def rule(pattern: str) -> Rule:
    made = next(each for each in all_rules()["patterns"] if each.id == "mac-address" or each.check is None)
    return replace(made, regexp=Regexp(f"(?P<phi>{pattern})"), needs=())


PATTERNS = (
    *(r"\s\S", r"\d\D", r"\w\W", r"\ba\b", r"[\s\d]x", r"[^\s]x", r"[[(]x", r"[&~]x", r"[a&&b]", r"[a-]x", r"[-a]x"),
    *(
        r"(?i)k",
        r"(?i)s[a-z]",
        r"(?m:^a$)",
        r"a|ab",
        r"a{2,4}?b?",
        r"\p{L}\p{Han}?",
        r"[[:alpha:]]1",
        r"[]a]",
        r"[^]a]",
    ),
    *(r"\D{2}", r"(?:a|ab)(?:c|bcd)", r"\x{e9}", r"[\D]", r"\Ba", r"x\z", r"\Ax", r"a{0}", r"[+--]"),
)


@needs_core
@pytest.mark.parametrize("pattern", PATTERNS)
def test_syntax_that_differs(pattern: str) -> None:
    draw = random.Random(pattern)
    signs = "aabbcdxxks \v\n\r1_-[](&~+,.]éſK李A" + WIDE
    texts = ["".join(draw.choices(signs, k=40)) for _ in range(60)]
    compare((rule(pattern),), texts)


@needs_core
def test_a_rule_that_does_not_compile_is_left_to_its_reference() -> None:
    assert translate(r"[\D]") is None and translate(r"[]a]") is None and translate(r"\C") is None
    scan = RuleScan((rule("[]a]b"),)).prepare()
    assert scan._build().left() == [0]
    assert [list(ranges) for ranges in scan.find(Document("]b ab"))] == [[(0, 2), (3, 5)]]


@needs_core
def test_an_error_of_a_check_is_not_swallowed() -> None:
    def check(_: str) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RuleScan((replace(rule("a"), check=check),)).prepare().find(Document("a"))
    assert RuleScan(all_rules()["vetoes"]).find(Document("a")) is not None


@needs_core
def test_the_first_short_texts_are_read_by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that reads one line does not wait for the core."""
    built: list[RuleScan] = []
    real = RuleScan._build

    def build(scan: RuleScan) -> object:
        built.append(scan)
        return real(scan)

    monkeypatch.setattr(RuleScan, "_build", build)
    scan = RuleScan((rule("a"),))
    assert [list(ranges) for ranges in scan.find(Document("a b"))] == [[(0, 1)]]
    assert not built
    scan.find(Document("a b " * 1_000))
    assert [list(ranges) for ranges in scan.find(Document("b a"))] == [[(2, 3)]]
    assert built == [scan]


def test_without_the_core_each_rule_finds_by_itself() -> None:
    with core.without_core():
        compare(all_rules()["vetoes"], ["INR 2.5 on 3/4, BiPAP 12/5"])


@needs_core
@pytest.mark.parametrize("part", ["a1 ", "Aa ", "1", "A", "1/", "é", "0" * 50 + " ", "Dr. "])
def test_time_is_linear(part: str) -> None:
    scans = [RuleScan(rules).prepare() for rules in all_rules().values()]

    def read(size: int) -> object:
        return [scan.find(Document(part * (size // len(part)))) for scan in scans]

    assert growth(read, 10_000, 40_000) < 8
