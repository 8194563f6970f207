"""Rule files: invalid files, and the matching of a rule."""

from pathlib import Path

import pytest

from deid_agent.model import Confidence
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.text import Document
from deid_agent.rules.rule_files import load_ruleset
from deid_agent.rules.ruleset import WINDOW, Rule, Ruleset, check_samples

CHECKS = {"odd": lambda text: int(text) % 2 == 1}


def rule_folder(folder: Path, *lines: str, kind: str = "patterns", name: str = "ward") -> Path:
    """A rules folder with one rule; each of ``lines`` replaces the default line of its key."""
    keys = {
        "id": f'id = "{name}"',
        **({"type": 'type = "IDNUM"'} if kind == "patterns" else {"types": 'types = ["IDNUM"]'}),
        "why": 'why = "a sample"',
        "pattern": "pattern = '''W[0-9]{2,4}'''",
        "hit": 'hit = ["in [[IDNUM|W12]]"]',
        "miss": 'miss = ["in W1"]',
    }
    keys |= {line.split(" =")[0]: line for line in lines}
    for part in ("patterns", "vetoes", "late-vetoes", "lexicon"):
        (folder / part).mkdir(exist_ok=True)
    (folder / "lexicon" / "stops.txt").write_text("md\nm.d\nwas\ni\n", "utf-8")
    (folder / "fragments.toml").write_text("two = '''[0-9]{2}'''\nfour = '''(?&two)(?&two)'''\n", "utf-8")
    (folder / kind / f"{name}.toml").write_text("\n".join(keys.values()) + "\n", "utf-8")
    return folder


def loaded(folder: Path, *lines: str) -> Rule:
    (rule,) = load_ruleset(rule_folder(folder, *lines), CHECKS).patterns
    return rule


def found(rule: Rule, text: str) -> list[str]:
    return [text[a:b] for a, b in rule.find(Document(text))]


def test_a_rule_file(tmp_path: Path) -> None:
    rules = load_ruleset(rule_folder(tmp_path, 'confidence = "low"'), CHECKS)
    (rule,) = rules.patterns
    assert (rule.id, rule.types, rule.confidence) == ("ward", (PhiType.IDNUM,), Confidence.LOW)
    assert {str(source) for source in rules.low} == {"ward"}
    assert rules.vetoes == ()
    assert check_samples(rules) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('id = "other"', "id"),
        ('type = "WIZARD"', "type"),
        ('types = ["IDNUM"]', "types"),
        ('why = ""', "why"),
        ("pattern = '''('''", "pattern"),
        ("pattern = '''(a)b'''", "pattern"),
        ("pattern = '''a*'''", r"pattern: \*"),
        ("pattern = '''a+b'''", r"pattern: \+"),
        ("pattern = '''a{2,}'''", r"pattern: \{2,\}"),
        ("pattern = '''(?=a)b'''", "pattern"),
        ("pattern = '''(?&none)'''", "unknown fragment none"),
        ("before = '''('''", "before"),
        ("not_after = '''.*'''", "not_after"),
        ("check = 'even'", "check: unknown even: one of odd"),
        ("stop = 'words'", "stop: unknown words: one of stops"),
        ("edges = 'sharp'", "edges"),
        ("confidence = 'maybe'", "confidence"),
        ('needs = ["Ward"]', "needs"),
        ("hit = []", "hit"),
        ("hit = 'x'", "hit"),
        ("pattern = 7", "pattern"),
        ("pattern = ''", "pattern: is empty"),
        ("miss = [7]", r"miss\.0: must be a string"),
        ("hit = {}", "hit: must be a list"),
        ("edges = 0", "edges: must be one of 'word', 'digit', 'left' or 'none'"),
        ("colour = 'red'", "unknown key colour"),
        ("=", "is not TOML"),
    ],
)
def test_an_invalid_rule_raises_and_is_named(tmp_path: Path, line: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=key) as fault:
        load_ruleset(rule_folder(tmp_path, line), CHECKS)
    assert "ward.toml" in str(fault.value)
    assert "\n" not in str(fault.value).split("is not TOML")[0]


@pytest.mark.parametrize("key", ["id", "type", "why", "pattern", "hit"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = rule_folder(tmp_path) / "patterns" / "ward.toml"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(f"{key} =")), "utf-8")
    with pytest.raises(ConfigurationError, match=f"ward.toml: {key}: is missing"):
        load_ruleset(tmp_path, CHECKS)


@pytest.mark.parametrize("key", ["edges", "confidence", "check", "stop", "beyond", "before", "not_after"])
def test_an_empty_string_means_a_missing_key(tmp_path: Path, key: str) -> None:
    assert found(loaded(tmp_path, f"{key} = ''"), "W12") == ["W12"]


def test_a_fragment_must_be_a_string(tmp_path: Path) -> None:
    (rule_folder(tmp_path) / "fragments.toml").write_text("two = 2\n", "utf-8")
    with pytest.raises(ConfigurationError, match=r"fragments.toml: two: must be a string"):
        load_ruleset(tmp_path, CHECKS)


def test_a_folder_without_rules_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no folder patterns/"):
        load_ruleset(tmp_path, CHECKS)


@pytest.mark.parametrize("kind", ["vetoes", "late-vetoes"])
def test_one_id_for_two_rules(tmp_path: Path, kind: str) -> None:
    rule_folder(tmp_path)
    with pytest.raises(ConfigurationError, match="ward is the id of two rules"):
        load_ruleset(rule_folder(tmp_path, kind=kind), CHECKS)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('hit = ["in W12"]', "hit 1: marks no span"),
        ('hit = ["in [[IDNUM|W12]]", "[[IDNUM|12]]"]', "hit 2"),
        ('hit = ["[[IDNUM|W12]] W13"]', "hit 1: found"),
        ('miss = ["W12"]', "miss 1"),
        ('miss = ["[[DAY|W12]]"]', "miss 1: line 1"),
    ],
)
def test_a_wrong_sample_is_reported(tmp_path: Path, line: str, fault: str) -> None:
    (report,) = check_samples(load_ruleset(rule_folder(tmp_path, line), CHECKS))
    assert report.startswith(f"ward: {fault}")


def test_vetoes_name_several_types(tmp_path: Path) -> None:
    (veto,) = load_ruleset(rule_folder(tmp_path, 'types = ["DATE", "IDNUM"]', kind="vetoes"), CHECKS).vetoes
    assert veto.types == (PhiType.DATE, PhiType.IDNUM)


def test_the_sample_of_a_late_veto_is_tested(tmp_path: Path) -> None:
    rules = load_ruleset(rule_folder(tmp_path, 'miss = ["W12"]', kind="late-vetoes"), CHECKS)
    assert [rule.id for rule in rules.late_vetoes] == ["ward"] and rules.vetoes == ()
    assert [fault.partition(": found")[0] for fault in check_samples(rules)] == ["ward: miss 1"]


@pytest.mark.parametrize(
    ("edges", "text", "hits"),
    [
        ("word", "W12 xW13 W14x (W15)", ["W12", "W15"]),
        ("word", "éW12 W13é W14\u0301 中W15", []),
        ("word", "W12_W13", ["W12", "W13"]),
        ("digit", "xW12x 7W13 W14", ["W12", "W14"]),
        ("left", "xW12 W13x", ["W13"]),
        ("none", "xW12x", ["W12"]),
    ],
)
def test_edges(tmp_path: Path, edges: str, text: str, hits: list[str]) -> None:
    assert found(loaded(tmp_path, f"edges = '{edges}'"), text) == hits


def test_the_span_is_the_group_that_took_part(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "pattern = '''no (?P<phi>[0-9]{2})|(?P<phi2>[0-9]{2}) only'''")
    assert found(rule, "no 12, 13 only, 14") == ["12", "13"]


def test_fragments_use_fragments(tmp_path: Path) -> None:
    assert found(loaded(tmp_path, "pattern = '''(?&four)'''"), "12 1234") == ["1234"]


def test_a_rejected_match_does_not_hide_another(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "pattern = '''[0-9]{2} [0-9]{2}'''", "not_before = '''x '''")
    assert found(rule, "x 11 22 33") == ["22 33"]


def test_conditions_touch_the_span(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "before = '''ward '''", "not_after = ''' beds'''")
    assert found(rule, "ward W12, ward  W13, ward W14 beds, W15") == ["W12"]


def test_conditions_read_a_bounded_window(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "not_before = '''x[^x]{0,900}'''")
    near, far = "x" + " " * (WINDOW - 1) + "W12", "x" + " " * WINDOW + "W12"
    assert found(rule, near) == []
    assert found(rule, far) == ["W12"]


def test_checks_and_needs(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "pattern = '''[0-9]{2}'''", "check = 'odd'", 'needs = ["bed", "ward"]')
    assert found(rule, "WARD 12 13") == ["13"]
    assert found(rule, "room 13") == []


def test_a_stop_word_ends_the_span(tmp_path: Path) -> None:
    rule = loaded(
        tmp_path, "pattern = '''Dr (?P<phi>[A-Z][a-z]{1,9}(?:,? [A-Z][A-Za-z.]{1,9}){0,2})'''", "stop = 'stops'"
    )
    assert found(rule, "Dr Vane, M.D. Dr Oke MD Dr Was") == ["Vane", "Oke"]


def test_an_initial_is_not_a_stop_word(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "pattern = '''[A-Z][.]? [A-Z][a-z]{1,9}'''", "stop = 'stops'")
    assert found(rule, "I. Vane, I Vane, I. Was") == ["I. Vane"]


def test_beyond_requires_one_word_outside_of_the_list(tmp_path: Path) -> None:
    rule = loaded(tmp_path, "pattern = '''[A-Z][a-z]{1,9}(?: [A-Z][a-z]{1,9}){0,2}'''", "beyond = 'stops'")
    assert found(rule, "Was. Md Was. Was Elm.") == ["Was Elm"]


def test_offsets_after_wide_characters(tmp_path: Path) -> None:
    assert found(loaded(tmp_path), "é中🙂 W12 \ud800 W13 𝔸") == ["W12", "W13"]


def test_rules_show_no_samples() -> None:
    assert "W12" not in repr(Ruleset())
