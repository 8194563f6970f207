"""Recognizer sets, and the effect of a registered recognizer."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.custom_recognizer import check_effect

from deid_agent.model import ConfigurationError
from deid_agent.recognize import registry
from deid_agent.recognize.registry import RECOGNIZER_SETS, SYSTEMS, assemble_recognizers, load_rules
from deid_agent.recognize.resolve import Profile
from deid_agent.rules import Dictionaries, Ruleset

ROOT = Path(__file__).resolve().parents[3]
RULES = load_rules(ROOT / "rules")
SETS = {
    "default": ["known", "patterns", "listed", "glued", "logins"],
    "none": [],
    "patterns": ["patterns"],
    "known": ["known"],
    "dictionary": ["dictionary"],
    "patterns-dictionary": ["patterns", "dictionary"],
}
WITH_RECOGNIZERS = [name for name, system in SYSTEMS.items() if system.recognizers != "none"]
SHIPPED = [
    name for name in WITH_RECOGNIZERS if all((ROOT / "models" / f"{m}.json").is_file() for m, _ in SYSTEMS[name].models)
]
"""Systems whose models are in the package; ``test_systems`` trains the models of the others."""


def test_the_names_of_all_sets() -> None:
    assert list(RECOGNIZER_SETS) == list(SETS)


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_its_recognizers_in_order(name: str) -> None:
    assert [each.name for each in assemble_recognizers(RULES, name)] == SETS[name]


def test_an_unknown_set_lists_the_names() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown recognizer system magic: one of default, none, patterns, known"
    ):
        assemble_recognizers(RULES, "magic")


def test_known_phi_needs_its_word_lists() -> None:
    with pytest.raises(ConfigurationError, match=r"common\.txt"):
        assemble_recognizers(Ruleset(), "known")


@pytest.fixture(scope="module", autouse=True)
def _loaded_once() -> Iterator[None]:
    """Each model and the dictionaries are read once for all systems."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("load_crf", "load_network"):
            patch.setattr(registry, name, cache(getattr(registry, name)))
        patch.setattr(Dictionaries, "load", cache(Dictionaries.load))
        yield


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("system", SHIPPED)
def test_a_registered_recognizer_takes_effect(system: str, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    check_effect(RULES, ROOT / "models", system, profile, monkeypatch)
