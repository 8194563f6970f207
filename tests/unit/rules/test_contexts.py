"""Contexts of names: files, errors, samples."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from deid_agent.model import ConfigurationError
from deid_agent.recognize.name_contexts import PersonContexts
from deid_agent.rules import Context, Ruleset, check_contexts, select_contexts
from deid_agent.rules.contexts import load_contexts

RULES = Path(__file__).resolve().parents[3] / "rules"
KEYS = {
    "why": '"x"',
    "place": '"after"',
    "words": "[' sleeps']",
    "hit": '["[[PATIENT|May]] sleeps"]',
    "miss": '["in [[PATIENT|May]]"]',
}


@dataclass(frozen=True)
class One:
    """A recognizer with one context."""

    asleep: Context


def folder(path: Path, **keys: str) -> Path:
    (path / "contexts").mkdir()
    lines = [f"{key} = {value}" for key, value in (KEYS | keys).items() if value]
    (path / "contexts" / "ward.toml").write_text("[asleep]\n" + "\n".join(lines), "utf-8")
    return path


def test_a_context_is_selected_by_the_name_of_a_field(tmp_path: Path) -> None:
    contexts = load_contexts(folder(tmp_path))
    asleep = select_contexts(contexts, "ward", One).asleep
    assert asleep.follows("May sleeps", 3)
    assert not asleep.follows("May Sleeps", 3)
    assert list(check_contexts(contexts)) == []


@pytest.mark.parametrize(
    ("place", "words", "sample"),
    [
        ("before", "['sleeps ']", "it sleeps [[PATIENT|May]]"),
        ("before", "['a', 'sleeps ']", "sleeps [[PATIENT|May]]"),
        ("word", "['May', 'June']", "[[PATIENT|June]]"),
    ],
)
def test_each_place(tmp_path: Path, place: str, words: str, sample: str) -> None:
    contexts = load_contexts(
        folder(tmp_path, place=f'"{place}"', words=words, hit=f'["{sample}"]', miss='["[[CITY|X]]"]')
    )
    assert list(check_contexts(contexts)) == []


def test_lead_tail_and_case_hold_for_all_words(tmp_path: Path) -> None:
    contexts = load_contexts(
        folder(
            tmp_path, words="['sleeps', 'eats']", lead="' '", tail="'!'", any_case="true", hit='["[[CITY|X]] EATS!"]'
        )
    )
    assert list(check_contexts(contexts)) == []
    assert not contexts["ward"]["asleep"].follows("X EATS.", 1)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"words": "[' {1,}']"}, r"ward.toml: asleep: \{1,\} has no upper bound: write \{m,n\}"),
        ({"words": "['x+']"}, r"ward.toml: asleep: \+ has no upper bound"),
        ({"words": "['(']"}, "ward.toml: asleep: does not compile"),
        ({"words": "[]"}, "ward.toml: asleep.words: is empty: give at least one"),
        ({"place": '"inside"'}, "ward.toml: asleep.place"),
        ({"wrods": "['x']"}, "ward.toml: unknown key asleep.wrods: correct or remove it"),
        ({"hit": ""}, "ward.toml: asleep.hit: is missing: add it"),
    ],
)
def test_a_faulty_file_is_named_with_its_key(tmp_path: Path, keys: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        load_contexts(folder(tmp_path, **keys))


def test_a_missing_and_an_unknown_context_are_named(tmp_path: Path) -> None:
    contexts = load_contexts(folder(tmp_path))
    with pytest.raises(ConfigurationError, match=r"contexts/person.toml: missing: copy it"):
        PersonContexts.of(Ruleset(contexts=contexts))
    with pytest.raises(ConfigurationError, match=r"contexts/person.toml: (act|asleep): (missing|unknown)"):
        PersonContexts.of(Ruleset(contexts={"person": contexts["ward"]}))


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"hit": '["in [[PATIENT|May]]"]'}, "hit 1: the marked name is not in the context"),
        ({"miss": '["in [[PATIENT|May]]", "[[PATIENT|May]] sleeps"]'}, "miss 2: the marked name is in the context"),
        ({"hit": '["May sleeps"]'}, "hit 1: marks no name"),
        ({"hit": '["[[DAY|May]] sleeps"]'}, "hit 1: line 1"),
    ],
)
def test_a_wrong_sample_is_reported(tmp_path: Path, keys: dict[str, str], fault: str) -> None:
    (report,) = check_contexts(load_contexts(folder(tmp_path, **keys)))
    assert report.startswith(f"contexts/ward: asleep: {fault}")


def test_the_samples_of_the_shipped_contexts() -> None:
    contexts = load_contexts(RULES)
    assert sum(map(len, contexts.values())) > 30
    assert list(check_contexts(contexts)) == []
