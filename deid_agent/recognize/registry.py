"""The recognizer sets that configuration may name. A new kind is one module, its test and one line here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from deid_agent import rulefile
from deid_agent.dictionary import Dictionaries
from deid_agent.errors import ConfigurationError
from deid_agent.recognize.base import Recognizer
from deid_agent.recognize.checks import CHECKS
from deid_agent.recognize.dictionaries import DictionaryRecognizer
from deid_agent.recognize.known import KnownRecognizer
from deid_agent.recognize.knownnames import Words
from deid_agent.recognize.logins import LoginRecognizer
from deid_agent.recognize.pattern import PatternRecognizer
from deid_agent.ruleset import Ruleset

_KINDS: Mapping[str, Callable[[Ruleset], Recognizer]] = MappingProxyType(
    {
        "known": lambda rules: KnownRecognizer(Words.of(rules.lexicons)),
        "patterns": lambda rules: PatternRecognizer(rules.patterns),
        "dictionary": lambda rules: DictionaryRecognizer(Dictionaries.load(rules.folder)),
        "logins": lambda rules: LoginRecognizer(rules.lexicons["common"]),
    }
)

SYSTEMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "default": ("known", "patterns", "logins"),
        "none": (),
        "patterns": ("patterns",),
        "known": ("known",),
        "dictionary": ("dictionary",),
        "patterns-dictionary": ("patterns", "dictionary"),
    }
)
"""Names a user may choose and the recognizers that each switches on, in order."""


def load_rules(rules: Path) -> Ruleset:
    """The rule set under ``rules``, with our checks. Raises ``ConfigurationError`` for a bad rule."""
    return rulefile.load(rules, CHECKS)


def assemble(rules: Ruleset, system: str) -> tuple[Recognizer, ...]:
    """The recognizers of ``system`` over a loaded rule set.

    Raises ``ConfigurationError`` listing the names for an unknown one.
    """
    if system not in SYSTEMS:
        raise ConfigurationError(f"unknown recognizer system {system}: one of {', '.join(SYSTEMS)}")
    return tuple(_KINDS[kind](rules) for kind in SYSTEMS[system])
