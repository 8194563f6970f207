"""The systems that configuration may name: which recognizers, which models, whether there is a second pass.

``default`` is the product's own. The published systems are made of the same parts: a system is one line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from deid_agent.crf import bundle
from deid_agent.dictionary import Dictionaries
from deid_agent.errors import ConfigurationError
from deid_agent.recognize import registry
from deid_agent.recognize.secondpass import SecondPass
from deid_agent.recognize.tokencrf import TokenCrf
from deid_agent.resolve import Profile, Resolver
from deid_agent.ruleset import Ruleset
from deid_agent.tagger import Model, Tagger


@dataclass(frozen=True, slots=True)
class System:
    """``recognizers`` is a set of the registry, ``models`` are names of files in the models folder."""

    recognizers: str
    models: tuple[str, ...] = ()
    again: bool = False


SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        "default": System("default", again=True),
        "rules": System("default"),
        "hybrid": System("default", ("token",), again=True),
        "token": System("default", ("token",)),
        **{name: System(name) for name in registry.SYSTEMS if name != "default"},
    }
)


def tagger(rules: Ruleset, models: Path, name: str, profile: Profile) -> Tagger:
    """The tagger of that name, everything loaded and checked.

    Raises ``ConfigurationError`` listing the names for an unknown one, or naming the model that is missing or changed.
    """
    system = SYSTEMS.get(name)
    if system is None:
        raise ConfigurationError(f"unknown recognizer system {name}: one of {', '.join(SYSTEMS)}")
    lists = Dictionaries.load(rules.folder) if system.models or system.again else None
    loaded: list[Model] = []
    again = None
    if lists is not None:
        loaded = [TokenCrf(bundle.load(models, model), lists, _LEAST[profile]) for model in system.models]
        again = SecondPass(lists, low=rules.low) if system.again else None
    recognizers = registry.assemble(rules, system.recognizers)
    union = profile is Profile.RECALL
    return Tagger(recognizers, Resolver(profile, rules), tuple(loaded), again, union)


_LEAST = MappingProxyType({Profile.PRECISION: 1.0, Profile.BALANCED: 1.0, Profile.RECALL: 0.2})
"""From which probability on a token that is likelier no PHI is proposed all the same."""
