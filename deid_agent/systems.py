"""The systems that configuration may name: which recognizers, which models, whether there is a second pass.

``default`` is the product's own. The published systems are made of the same parts: a system is one line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

from deid_agent.crf import bundle
from deid_agent.dictionary import Dictionaries
from deid_agent.errors import ConfigurationError
from deid_agent.neural import bundle as networks
from deid_agent.recognize import registry, svm
from deid_agent.recognize.charcrf import CharacterCrf, GatedCrf
from deid_agent.recognize.filter import WEAK as WEAK_NAME
from deid_agent.recognize.filter import FilteredNames, NameFilter
from deid_agent.recognize.network import NetworkTagger
from deid_agent.recognize.secondpass import SecondPass
from deid_agent.recognize.tokencrf import WEAK, TokenCrf
from deid_agent.resolve import Profile, Resolver
from deid_agent.ruleset import Ruleset
from deid_agent.tagger import Model, Tagger


class Part(StrEnum):
    """How a model of the models folder takes part."""

    TOKEN = "token"  # noqa: S105 - a word, not a secret
    CHARACTER = "character"
    DOUBTS = "doubts"  # the character model, where the token model before it is in doubt
    NAMES = "names"  # names that the filter finds, beside what others find
    NETWORK = "network"  # the recurrent network, beside what others find
    MEAN = "mean"  # the recurrent network as a second voice of the token model before it
    FILTER = "filter"  # it decides of the names of the first pass: nothing else of that is kept


@dataclass(frozen=True, slots=True)
class System:
    """``recognizers`` is a set of the registry; ``models`` are names of files in the models folder.

    ``speaks`` says that the models have seen what the recognizers found: where precision counts, they speak for them.
    """

    recognizers: str
    models: tuple[tuple[str, Part], ...] = ()
    again: bool = False
    speaks: bool = False


_TOKEN = ("token", Part.TOKEN)
_DOUBTS = ("character", Part.DOUBTS)
_NAMES = ("names", Part.NAMES)
_NETWORK = ("network", Part.NETWORK)
_FEATURES = System("default", (_TOKEN,), again=True, speaks=True)
_HYBRID = System("default", (_TOKEN, ("network", Part.MEAN)), again=True, speaks=True)


SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        "default": _HYBRID,
        "hybrid": _HYBRID,
        "features": _FEATURES,
        "network": System("default", (_NETWORK,), again=True, speaks=True),
        "union": System("default", (_TOKEN, _NETWORK), again=True, speaks=True),
        "token": System("default", (_TOKEN,), speaks=True),
        "thorough": System("default", (_TOKEN, _DOUBTS, _NAMES), again=True, speaks=True),
        "rules": System("default", again=True),
        "rules-once": System("default"),
        "dehghan2015": System("patterns-dictionary", (("dehghan-token", Part.TOKEN),), again=True),
        "zuccon2014": System("patterns", (("zuccon-token", Part.TOKEN),)),
        "liu2015": System("patterns", (("liu-character", Part.CHARACTER), ("liu-token", Part.TOKEN))),
        "dernoncourt2016": System("none", (("dernoncourt-network", Part.NETWORK),)),
        "ferrandez2012": System("patterns-dictionary", (("names", Part.FILTER),)),
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
    recognizers, resolver = registry.assemble(rules, system.recognizers), Resolver(profile, rules)
    loaded: list[Model] = []
    if lists is None:
        return Tagger(recognizers, resolver)
    for model, kind in system.models:
        match kind:
            case Part.TOKEN:
                least = _LEAST[profile] if system.speaks else 1.0
                loaded.append(TokenCrf(bundle.load(models, model), lists, least))
            case Part.NETWORK:
                least = _LEAST[profile] if system.speaks else 1.0
                loaded.append(NetworkTagger(networks.load(models, model), lists, least))
            case Part.MEAN:
                loaded[-1:] = [_heard(loaded[-1], NetworkTagger(networks.load(models, model), lists))]
            case Part.CHARACTER:
                loaded.append(CharacterCrf(bundle.load(models, model), lists))
            case Part.DOUBTS:
                loaded[-1:] = [_gated(loaded[-1], CharacterCrf(bundle.load(models, model), lists))]
            case Part.NAMES:
                loaded.append(NameFilter(svm.load(models, model), lists))
            case Part.FILTER:
                first = Tagger(recognizers, resolver).find
                recognizers = (FilteredNames(first, NameFilter(svm.load(models, model), lists)),)
            case unknown:
                assert_never(unknown)
    again = SecondPass(lists, low=rules.low | {WEAK, WEAK_NAME}) if system.again else None
    beside = rules.certain if profile is Profile.RECALL else frozenset[str]()
    return Tagger(recognizers, resolver, tuple(loaded), again, beside if system.speaks else None)


def _heard(token: Model, network: NetworkTagger) -> Model:
    if not isinstance(token, TokenCrf):
        raise ConfigurationError("a network that is a second voice stands behind the token model")
    return replace(token, others=(*token.others, network))


def _gated(token: Model, character: CharacterCrf) -> Model:
    if not isinstance(token, TokenCrf):
        raise ConfigurationError("a character model that reads doubts stands behind the token model that has them")
    return GatedCrf(token, character)


_LEAST = MappingProxyType({Profile.PRECISION: 1.0, Profile.BALANCED: 1.0, Profile.RECALL: 0.15})
"""From which probability on a token that is likelier no PHI is proposed all the same."""
