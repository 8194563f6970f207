"""How each component is trained, as data: a component more is one entry here.

A recipe's name is the model's name: ``token`` gives ``models/token.json`` and ``models/token.npz``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from deid_agent.crf.characters import CHARACTER_FAMILIES
from deid_agent.crf.labels import Schema
from deid_agent.crf.train import Settings
from deid_agent.errors import ConfigurationError
from deid_agent.neural.network import Dimensions
from deid_agent.phi import PhiType
from deid_agent.train.augment import Noise
from deid_agent.train.names import FilterSettings
from deid_agent.train.settings import NetworkSettings


class Kind(StrEnum):
    """What a component is; each kind has a trainer in ``components``."""

    TOKEN = "token"  # noqa: S105 - a word, not a secret
    CHARACTER = "character"
    FILTER = "filter"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Recipe:
    """``recognizers`` names the set of the registry whose findings the model sees; "": it sees the text alone.

    ``templates`` are features beside those of the families; a filter and a network
    have neither; a filter has no schema. ``types`` are what it
    learns, none: all. ``augment`` is how many new notes each note gives. A character model learns from what is
    ``around`` PHI, in characters, and from each ``share``-th line besides.
    """

    says: str
    kind: Kind
    schema: Schema | None = None
    families: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    settings: Settings | FilterSettings | NetworkSettings = field(default_factory=Settings)
    recognizers: str = ""
    types: tuple[PhiType, ...] = ()
    augment: int = 0
    noise: Noise = field(default_factory=Noise)
    around: int = 30
    share: int = 6


_NEAR = range(-2, 3)
_COLUMNS = (
    *("shape", "length", "gap", "rule", "source", "elsewhere", "writing", "person", "place", "people", "body", "plain"),
    *("region", "town", "land", "job", "first", "last", "firm", "clinic", "cue_left", "cue_right", "label", "section"),
    *("case", "zone", "line_place", "size"),
)
"""What the product's network reads beside words and characters: columns of the token model."""

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "token": Recipe(
            "the product's token model: sees what rules and dictionaries say",
            Kind.TOKEN,
            Schema.IO,
            (
                *("basic", "affix", "ngram", "rule", "second", "dictionary", "section", "position", "size"),
                *("cue", "bag", "meaning", "sense"),
            ),
            settings=Settings(l1=0.3, l2=0.2, iterations=80),
            recognizers="default",
        ),
        "character": Recipe(
            "the product's character model: mends the boundaries that tokens lose",
            Kind.CHARACTER,
            Schema.EDGES,
            tuple(CHARACTER_FAMILIES),
            settings=Settings(l1=0.1, l2=0.05, iterations=40, least=3),
            recognizers="default",
        ),
        "names": Recipe(
            "the filter of names, Ferrandez 2012, section 3.2: which candidates are names of persons",
            Kind.FILTER,
            settings=FilterSettings(),
            recognizers="default",
        ),
        "network": Recipe(
            "the product's recurrent network: words, characters, and what rules and dictionaries say",
            Kind.NETWORK,
            Schema.IO,
            settings=NetworkSettings(Dimensions(column=64), _COLUMNS),
            recognizers="default",
        ),
        "dernoncourt-network": Recipe(
            "the recurrent network of Dernoncourt 2016, section 2.2: words and characters, no rules, no lists",
            Kind.NETWORK,
            Schema.IO,
            settings=NetworkSettings(),
        ),
        "dehghan-token": Recipe(
            "the learned part of Dehghan 2015, section 2.3: I-O, without rules, lists of places and jobs",
            Kind.TOKEN,
            Schema.IO,
            ("basic", "ngram", "position"),
            tuple(f"{column}[{at}]" for column in ("place", "people") for at in _NEAR),
            types=(
                PhiType.CITY,
                PhiType.DATE,
                PhiType.HOSPITAL,
                PhiType.ORGANIZATION,
                PhiType.PROFESSION,
                PhiType.PATIENT,
                PhiType.DOCTOR,
            ),
        ),
        "zuccon-token": Recipe(
            "Anonym of Zuccon 2014, section 3: words, shapes, n-grams, positions and patterns, no lists",
            Kind.TOKEN,
            Schema.IO,
            ("basic", "affix", "ngram", "position", "rule"),
            recognizers="patterns",
        ),
        "liu-token": Recipe(
            "the token-level classifier of Liu 2015, section 3.2.2: BIO, no rules, lists of places alone",
            Kind.TOKEN,
            Schema.BIO,
            ("basic", "affix", "ngram", "section"),
            tuple(f"place[{at}]" for at in _NEAR),
        ),
        "liu-character": Recipe(
            "the character-level classifier of Liu 2015, section 3.2.3: no rules, lists of places alone",
            Kind.CHARACTER,
            Schema.EDGES,
            ("character", "token", "section"),
            ("place[0]", "place_b[0]", "place_a[0]"),
            settings=Settings(l1=0.1, l2=0.05, iterations=40, least=3),
        ),
    }
)

SHIPPED = ("token", "network")
"""What ``models/`` holds and ``make models`` trains."""


def recipe(name: str) -> Recipe:
    """Raises ``ConfigurationError`` listing the names for an unknown one."""
    found = RECIPES.get(name)
    if found is None:
        raise ConfigurationError(f"unknown component {name}: one of {', '.join(RECIPES)}")
    return found
