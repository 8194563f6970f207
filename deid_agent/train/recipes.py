"""How each component is trained, as data. To add a component, add one entry to ``RECIPES``.

The name of a recipe is the name of its model: ``token`` gives ``models/token.json`` and ``models/token.npz``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType

from deid_agent.model import ConfigurationError, PhiType
from deid_agent.nlp import CHARACTER_FAMILIES, Dimensions, Schema
from deid_agent.train.augment import Noise
from deid_agent.train.crf_trainer import CrfSettings
from deid_agent.train.name_filter_trainer import FilterSettings


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The layers of a network and the schedule of its training. The defaults are those of Dernoncourt 2016 section 3.3.

    - ``features``: token features that are read in addition to words and characters.
    - ``published_vectors``: whether words start with published vectors; ``transitions``: whether labels depend on each
      other.
    - ``rate``: the learning rate of the first step; ``clip``: the greatest norm of a gradient.
    - ``batch``: the size of a batch in tokens.
    - ``dropout``: the share of the input values dropped; ``unknown_share``: the share of words whose learned vector is
      replaced by that of an unknown word.
    - ``fraction``: the share of the patients that is used; ``held_out``: the share of those on which an epoch is
      scored; ``patience``: training stops after this number of epochs without a better score.
    - ``least_word``, ``least_value``: the fewest occurrences of a word or a feature value with a vector of its own.
    """

    dimensions: Dimensions = field(default_factory=Dimensions)
    features: tuple[str, ...] = ()
    published_vectors: bool = True
    transitions: bool = True
    epochs: int = 14
    rate: float = 3e-3
    batch: int = 2048
    dropout: float = 0.5
    clip: float = 5.0
    patience: int = 4
    held_out: float = 0.1
    fraction: float = 1.0
    unknown_share: float = 0.2
    least_word: int = 4
    least_value: int = 5
    seed: int = 2016


@dataclass(frozen=True, slots=True)
class NetworkAdaptation:
    """How a trained network goes on with further notes.

    ``weight`` is how often an epoch reads a note of the site; it reads a note of the rehearsal once.
    """

    epochs: int = 4
    rate: float = 1e-3
    weight: int = 2
    dropout: float = 0.5
    clip: float = 5.0
    seed: int = 2016


class NetworkAblation(StrEnum):
    """A part of the network that an ablation removes (Dernoncourt 2016 section 3.7, figure 4)."""

    CHARACTERS = "characters"
    TOKENS = "tokens"
    PRETRAINING = "pre-training"
    TRANSITIONS = "transitions"

    def apply(self, settings: NetworkSettings) -> NetworkSettings:
        """``settings`` without the part."""
        match self:
            case NetworkAblation.CHARACTERS:
                return replace(settings, dimensions=replace(settings.dimensions, character=0))
            case NetworkAblation.TOKENS:
                return replace(settings, dimensions=replace(settings.dimensions, token=0), published_vectors=False)
            case NetworkAblation.PRETRAINING:
                return replace(settings, published_vectors=False)
            case NetworkAblation.TRANSITIONS:
                return replace(settings, transitions=False)


class TrainingExtra(StrEnum):
    """An extra of the package with libraries that only training needs: ``pip install 'deid-agent[...]'``."""

    TRAIN = "train"
    NEURAL = "train-neural"


_MODULES: Mapping[TrainingExtra, Mapping[str, str]] = MappingProxyType(
    {
        TrainingExtra.TRAIN: {"pycrfsuite": "sklearn-crfsuite", "sklearn": "scikit-learn", "scipy": "scikit-learn"},
        TrainingExtra.NEURAL: {"jax": "jax", "optax": "optax"},
    }
)
"""The modules that training imports, and the distribution package of each."""


def require_extra(extra: TrainingExtra = TrainingExtra.TRAIN) -> None:
    """Raise ``ConfigurationError`` with the command to install ``extra`` if one of its libraries is missing."""
    missing = sorted({package for module, package in _MODULES[extra].items() if find_spec(module) is None})
    if missing:
        raise ConfigurationError(
            f"training needs {' and '.join(missing)}, which a plain installation does not include: "
            f"run pip install 'deid-agent[{extra}]' (in a checkout: pip install -e '.[{extra}]'), then train again"
        )


class ComponentKind(StrEnum):
    """The kind of a component; ``components`` has a trainer for each kind."""

    TOKEN = "token"  # noqa: S105 - a word, not a secret
    CHARACTER = "character"
    FILTER = "filter"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train one component.

    - ``families`` and ``templates``: the feature families of a CRF and its templates outside of them.
    - ``schema``: the label schema; ``None`` for a name filter.
    - ``recognizers``: the recognizer set whose spans the model sees; with ``""`` it sees the text only.
    - ``types``: the types that it learns; with none it learns all.
    - ``augment``: the number of synthetic copies of each note, made with ``noise``.
    - ``around`` and ``share``: a character model learns from the windows of ``around`` characters on both sides of PHI,
      and from each ``share``-th line besides. A model that tags whole lines must learn from whole lines, and from all.
    - ``candidates``: the token model whose spans a name filter sees beside those of the recognizers.
    """

    description: str
    kind: ComponentKind
    schema: Schema | None = None
    families: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    settings: CrfSettings | FilterSettings | NetworkSettings = field(default_factory=CrfSettings)
    recognizers: str = ""
    types: tuple[PhiType, ...] = ()
    augment: int = 0
    noise: Noise = field(default_factory=Noise)
    around: int = 30
    share: int = 6
    candidates: str = ""


WHOLE_LINES = 1_000
"""As ``around`` of a recipe: the windows are whole lines."""
_NEAR = range(-2, 3)
_NETWORK_FEATURES = (
    *("shape", "length", "gap", "rule", "source", "elsewhere", "writing", "person", "place", "people", "body", "plain"),
    *("region", "town", "land", "job", "first", "last", "firm", "clinic", "cue_left", "cue_right", "label", "section"),
    *("case", "zone", "line_place", "size", "measure", "measure_edge", "clinical", "speaker"),
)
"""The token features that the product's network reads in addition to words and characters."""

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "token": Recipe(
            "the product's token model: uses the findings of rules and dictionaries",
            ComponentKind.TOKEN,
            Schema.IO,
            (
                *("basic", "affix", "ngram", "rule", "second", "dictionary", "section", "position", "size"),
                *("cue", "bag", "meaning", "sense", "measure"),
            ),
            settings=CrfSettings(l1=0.3, l2=0.2, iterations=80),
            recognizers="default",
        ),
        "character": Recipe(
            "the product's character model: repairs boundaries inside tokens",
            ComponentKind.CHARACTER,
            Schema.EDGES,
            tuple(CHARACTER_FAMILIES),
            settings=CrfSettings(l1=0.1, l2=0.05, iterations=40, least=3),
            recognizers="default",
        ),
        "names": Recipe(
            "the product's name filter: accepts or rejects candidates for names of persons",
            ComponentKind.FILTER,
            settings=FilterSettings(),
            recognizers="default",
        ),
        "ferrandez-names": Recipe(
            "the name filter of Ferrandez 2012, section 3.2.4: judges candidates of rules, lists and a token model",
            ComponentKind.FILTER,
            settings=FilterSettings(max_candidates=5_000, fraction=0.4),
            recognizers="patterns-dictionary",
            candidates="ferrandez-token",
        ),
        "ferrandez-token": Recipe(
            "the CRF of Ferrandez 2012, section 3.2.3: names of persons, no rules, lists of names and common words",
            ComponentKind.TOKEN,
            Schema.IO,
            ("basic", "affix", "ngram", "position"),
            (
                *(f"{feature}[{at}]" for feature in ("person", "plain") for at in _NEAR),
                *("person[0] shape[0]", "plain[0] shape[0]", "person[0] person[1]", "person[-1] person[0]"),
            ),
            settings=CrfSettings(l1=0.3, l2=0.2, iterations=30, fraction=0.5),
            types=(PhiType.PATIENT, PhiType.DOCTOR),
        ),
        "network": Recipe(
            "the product's recurrent network: words, characters, and the findings of rules and dictionaries",
            ComponentKind.NETWORK,
            Schema.IO,
            settings=NetworkSettings(Dimensions(feature=64), _NETWORK_FEATURES),
            recognizers="default",
        ),
        "dernoncourt-network": Recipe(
            "the recurrent network of Dernoncourt 2016, section 2.2: words and characters, no rules, no lists",
            ComponentKind.NETWORK,
            Schema.IO,
            settings=NetworkSettings(epochs=10),
        ),
        "dehghan-token": Recipe(
            "the learned part of Dehghan 2015, section 2.3: I-O, no rules, lists of places and professions",
            ComponentKind.TOKEN,
            Schema.IO,
            ("basic", "ngram", "position"),
            tuple(f"{feature}[{at}]" for feature in ("place", "people") for at in _NEAR),
            settings=CrfSettings(l1=0.3, l2=0.2, iterations=40),
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
            "Anonym of Zuccon 2014, section 3: words, shapes, n-grams, bags, positions and patterns, no lists",
            ComponentKind.TOKEN,
            Schema.IO,
            ("basic", "affix", "ngram", "bag", "position", "rule"),
            settings=CrfSettings(l1=0.3, l2=0.2, iterations=35),
            recognizers="patterns",
        ),
        "liu-token": Recipe(
            "the token-level classifier of Liu 2015, section 3.2.2: BIO, no rules",
            ComponentKind.TOKEN,
            Schema.BIO,
            ("basic", "affix", "ngram", "section", "sense"),
            (
                *("word[-2] word[-1] word[0]", "word[-1] word[0] word[1]", "word[0] word[1] word[2]"),
                *("p5[0]", "s5[0]", "sentence[0]"),
                *(f"place[{at}]" for at in _NEAR),
                *(f"{feature}[{at}]" for feature in ("person", "body") for at in (-1, 0, 1)),
            ),
            settings=CrfSettings(l1=0.3, l2=0.2, iterations=30, fraction=0.4),
        ),
        "liu-character": Recipe(
            "the character-level classifier of Liu 2015, section 3.2.3: BIOES with the edges of a category, no rules",
            ComponentKind.CHARACTER,
            Schema.EDGES,
            ("letter", "token", "section"),
            (
                *("place[0]", "place_b[0]", "place_a[0]", "sentence[0]"),
                *("sense[0]", "sense_field[0]", "sense_field_b[0]", "sense_field_a[0]"),
                *(f"{feature}[0]" for feature in ("person", "person_b", "person_a", "body")),
            ),
            settings=CrfSettings(l1=0.1, l2=0.05, iterations=40, least=3, fraction=0.5),
            around=WHOLE_LINES,
            share=1,
        ),
    }
)

SHIPPED = ("token", "network")
"""The components of the default system, which ``make models`` trains."""

PUBLISHED = (
    "dehghan-token",
    "zuccon-token",
    "liu-character",
    "liu-token",
    "ferrandez-token",
    "ferrandez-names",
    "dernoncourt-network",
)
"""The components of the published systems. ``models/`` has them too."""


def find_recipe(name: str) -> Recipe:
    """The recipe ``name``. Raises ``ConfigurationError`` with all names if there is no such recipe."""
    found = RECIPES.get(name)
    if found is None:
        raise ConfigurationError(f"unknown component {name}: one of {', '.join(RECIPES)}")
    return found
