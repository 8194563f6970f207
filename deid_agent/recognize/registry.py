"""The recognizers, and the named systems that combine them with models.

To add a recognizer:

1. Write a class with the interface of ``Recognizer``. Give its spans ``Source(SourceKind.CUSTOM, "<name>")`` and
   declare that source in ``sources``. With the default ``SourceTraits()`` its spans remain beside those of the models
   and under every profile.
2. Add one entry to ``RECOGNIZERS`` below. The recognizer then runs in every recognizer set, and so in every system that
   uses recognizers; list the sets in the entry to restrict it.
3. Add a class to ``tests/contract/test_recognizers.py`` that inherits the contract.

``CONTRIBUTING.md`` has the tests to extend. No other module of the package needs a change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

from deid_agent.measure import load_grammar
from deid_agent.model import (
    BesideModels,
    Confidence,
    ConfigurationError,
    Document,
    PhiType,
    Source,
    SourceTraits,
    Span,
)
from deid_agent.nlp import (
    LOW_CONFIDENCE,
    LOW_CONFIDENCE_NAME,
    CharacterCrf,
    FilteredNames,
    GatedCrf,
    NameFilter,
    NetworkTagger,
    TokenCrf,
    load_crf,
    load_network,
    load_svm,
)
from deid_agent.recognize.consistency import ConsistencyPass
from deid_agent.recognize.glued_text import GluedTextRecognizer
from deid_agent.recognize.known_people import NameLexicons
from deid_agent.recognize.known_phi import KnownRecognizer
from deid_agent.recognize.list_recognizers import DictionaryRecognizer, LoginRecognizer
from deid_agent.recognize.listed_names import ListContexts, ListedNameRecognizer
from deid_agent.recognize.name_contexts import PersonContexts
from deid_agent.recognize.ranking import RankedModels
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.recognize.site_lists import SiteRecognizer
from deid_agent.recognize.tagger import Model, Recognizer, Tagger
from deid_agent.rules import CHECKS, Dictionaries, Rule, RuleScan, Ruleset, SiteRules, load_ruleset, load_words


@dataclass(frozen=True, slots=True)
class PatternRecognizer:
    """All pattern rules of a rule set, in the order of their ids.

    Source: Dehghan 2015 section 2.2, Liu 2015 table 2 (orthographic, lexical and context conditions for each type).
    """

    rules: tuple[Rule, ...] = field(repr=False)
    name: str = "patterns"
    _scan: RuleScan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scan", RuleScan(self.rules))

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source for each rule."""
        return {rule.source: rule.traits for rule in self.rules}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The spans of each rule; two rules may propose the same text."""
        for rule, ranges in zip(self.rules, self._scan.find(doc), strict=True):
            for start, end in ranges:
                yield Span(start, end, rule.types[0], rule.source)


RECOGNIZER_SETS = ("default", "none", "patterns", "known", "dictionary", "patterns-dictionary")
"""The names of recognizer sets. ``none`` has no recognizers."""
_EVERY_SET = frozenset(RECOGNIZER_SETS) - {"none"}


@dataclass(frozen=True, slots=True)
class RegisteredRecognizer:
    """How to build a recognizer, and the sets that it belongs to."""

    build: Callable[[Ruleset], Recognizer]
    sets: frozenset[str] = _EVERY_SET
    needs_site: bool = False
    """The recognizer is there only if the rules have a site folder."""


def _load_dictionaries(rules: Path) -> Dictionaries:
    """The dictionaries in folder ``rules``, read once for the recognizers and the models of a system."""
    files = sorted((rules / "dictionary").glob("*.txt")) + sorted(rules.glob("senses.txt"))
    return _read_dictionaries(rules, tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files))


@lru_cache(maxsize=1)
def _read_dictionaries(rules: Path, files: tuple[tuple[str, int, int], ...]) -> Dictionaries:  # noqa: ARG001
    return Dictionaries.load(rules)


RECOGNIZERS: dict[str, RegisteredRecognizer] = {
    "known": RegisteredRecognizer(
        lambda rules: KnownRecognizer(NameLexicons.of(rules, load_words(rules.folder))),
        frozenset({"default", "known"}),
    ),
    "patterns": RegisteredRecognizer(
        lambda rules: PatternRecognizer(rules.patterns), frozenset({"default", "patterns", "patterns-dictionary"})
    ),
    "dictionary": RegisteredRecognizer(
        lambda rules: DictionaryRecognizer(_load_dictionaries(rules.folder)),
        frozenset({"dictionary", "patterns-dictionary"}),
    ),
    "listed": RegisteredRecognizer(
        lambda rules: ListedNameRecognizer(
            _load_dictionaries(rules.folder),
            ListContexts.of(rules),
            rules.lexicons["listed-term"],
            rules.lexicons["common"] | rules.lexicons["terse-term"],
        ),
        frozenset({"default"}),
    ),
    "glued": RegisteredRecognizer(lambda rules: GluedTextRecognizer.load(rules.lexicons), frozenset({"default"})),
    "logins": RegisteredRecognizer(lambda rules: LoginRecognizer(rules.lexicons["common"]), frozenset({"default"})),
    "site": RegisteredRecognizer(
        lambda rules: SiteRecognizer(
            rules.site or SiteRules(),
            _load_dictionaries(rules.folder),
            ListContexts.of(rules).not_person,
            rules.lexicons["common"],
        ),
        needs_site=True,
    ),
}
"""Every recognizer by name, in the order in which they run."""


def load_rules(rules: Path, sites: Sequence[Path] = ()) -> Ruleset:
    """The rule set in folder ``rules``, with site folders beside it and the built-in checks.

    Raises ``ConfigurationError`` for an invalid rule or list.
    """
    return load_ruleset(rules, CHECKS, sites)


def assemble_recognizers(rules: Ruleset, name: str) -> tuple[Recognizer, ...]:
    """The recognizers of the recognizer set ``name`` over a loaded rule set.

    Raises ``ConfigurationError`` with the names of all sets if there is no such set.
    """
    if name not in RECOGNIZER_SETS:
        raise ConfigurationError(f"unknown recognizer system {name}: one of {', '.join(RECOGNIZER_SETS)}")
    return tuple(
        each.build(rules)
        for each in RECOGNIZERS.values()
        if name in each.sets and (rules.site is not None or not each.needs_site)
    )


class ModelRole(StrEnum):
    """The part that a model of the models folder has in a system."""

    TOKEN = "token"  # noqa: S105 - a word, not a secret
    CHARACTER = "character"
    UNCERTAIN_LINES = "uncertain-lines"  # the character model, for lines in which the token model before it is unsure
    NAMES = "names"  # the name filter, in addition to the other models
    NETWORK = "network"  # the recurrent network, in addition to the other models
    AVERAGE = "average"  # the recurrent network, averaged with the token model before it
    FILTER = "filter"  # the name filter decides about the names of all before it; their other spans are dropped


@dataclass(frozen=True, slots=True)
class TaggerSystem:
    """A recognizer set, models (file names in the models folder) with their roles, and the stages after them.

    - ``models_decide``: the models were trained on the recognizers' spans and overrule them, see ``Tagger``.
    - ``ranked``: of overlapping spans the recognizers' is selected, then that of the first model, see ``RankedModels``.
    - ``rule_types``: only the pattern rules of these types run; with none all do.
    - ``shipped``: the package has the models.
    """

    recognizers: str
    models: tuple[tuple[str, ModelRole], ...] = ()
    consistency: bool = False
    models_decide: bool = False
    ranked: bool = False
    rule_types: frozenset[PhiType] = frozenset()
    shipped: bool = True


_TOKEN = ("token", ModelRole.TOKEN)
_NETWORK = ("network", ModelRole.NETWORK)
_AVERAGED_NETWORK = ("network", ModelRole.AVERAGE)
_CHARACTER = ("character", ModelRole.UNCERTAIN_LINES)
_NAMES = ("names", ModelRole.NAMES)
_LIU_RULES = frozenset({PhiType.PHONE, PhiType.FAX, PhiType.MEDICALRECORD, PhiType.EMAIL, PhiType.IPADDRESS})
"""The types of the rule-based classifier of Liu 2015, table 2."""
_HYBRID = TaggerSystem("default", (_TOKEN, _AVERAGED_NETWORK), consistency=True, models_decide=True)

SYSTEMS: Mapping[str, TaggerSystem] = MappingProxyType(
    {
        "default": _HYBRID,
        "hybrid": _HYBRID,
        "features": TaggerSystem("default", (_TOKEN,), consistency=True, models_decide=True),
        "network": TaggerSystem("default", (_NETWORK,), consistency=True, models_decide=True),
        "union": TaggerSystem("default", (_TOKEN, _NETWORK), consistency=True, models_decide=True),
        "token": TaggerSystem("default", (_TOKEN,), models_decide=True),
        "thorough": TaggerSystem(
            "default", (_TOKEN, _CHARACTER, _NAMES), consistency=True, models_decide=True, shipped=False
        ),
        "rules": TaggerSystem("default", consistency=True),
        "rules-once": TaggerSystem("default"),
        "dehghan2015": TaggerSystem("patterns-dictionary", (("dehghan-token", ModelRole.TOKEN),), consistency=True),
        "zuccon2014": TaggerSystem("patterns", (("zuccon-token", ModelRole.TOKEN),), models_decide=True),
        "liu2015": TaggerSystem(
            "patterns",
            (("liu-character", ModelRole.CHARACTER), ("liu-token", ModelRole.TOKEN)),
            ranked=True,
            rule_types=_LIU_RULES,
        ),
        "dernoncourt2016": TaggerSystem("none", (("dernoncourt-network", ModelRole.NETWORK),)),
        "ferrandez2012": TaggerSystem(
            "patterns-dictionary", (("ferrandez-token", ModelRole.TOKEN), ("ferrandez-names", ModelRole.FILTER))
        ),
        **{name: TaggerSystem(name) for name in RECOGNIZER_SETS if name != "default"},
    }
)
"""The systems that configuration may name: the product's own and the published ones."""

_LEAN = MappingProxyType({Profile.PRECISION: 1.0, Profile.BALANCED: 1.0, Profile.RECALL: 4.8})
"""How far models lean towards PHI: they divide the probability of no PHI by this number."""


def load_tagger(rules: Ruleset, models: Path, name: str, profile: Profile) -> Tagger:
    """The tagger of system ``name`` with all its lists and models loaded.

    Raises ``ConfigurationError`` with all names for an unknown system, or with the model that is missing or changed.
    """
    system = SYSTEMS.get(name)
    if system is None:
        raise ConfigurationError(f"unknown recognizer system {name}: one of {', '.join(SYSTEMS)}")
    _require_models(models, name, system)
    recognizers = _choose_recognizers(rules, system)
    low = frozenset(
        source
        for recognizer in recognizers
        for source, traits in recognizer.sources.items()
        if traits.confidence is Confidence.LOW
    )
    grammar = load_grammar(rules.folder)
    resolver = Resolver(profile, rules, low, grammar)
    if not system.models and not system.consistency:
        return Tagger(recognizers, resolver)
    lists = _load_dictionaries(rules.folder)
    lean = _LEAN[profile] if system.models_decide else 1.0
    loaded: list[Model] = []
    for model, role in system.models:
        match role:
            case ModelRole.TOKEN:
                loaded.append(TokenCrf(load_crf(models, model), lists, lean, grammar=grammar))
            case ModelRole.NETWORK:
                loaded.append(NetworkTagger(load_network(models, model), lists, lean, grammar))
            case ModelRole.AVERAGE:
                token, network = _token_model(loaded), NetworkTagger(load_network(models, model), lists)
                loaded[-1] = replace(token, ensemble=(*token.ensemble, network))
            case ModelRole.CHARACTER:
                loaded.append(CharacterCrf(load_crf(models, model), lists, grammar))
            case ModelRole.UNCERTAIN_LINES:
                loaded[-1] = GatedCrf(_token_model(loaded), CharacterCrf(load_crf(models, model), lists, grammar))
            case ModelRole.NAMES:
                loaded.append(NameFilter(load_svm(models, model), lists))
            case ModelRole.FILTER:
                names = NameFilter(load_svm(models, model), lists)
                recognizers, loaded = _filter_names(recognizers, resolver, names, tuple(loaded)), []
            case unknown:
                assert_never(unknown)
    if system.ranked:
        loaded = [RankedModels(tuple(loaded), keep_rests=profile is Profile.RECALL)]
    consistency = (
        ConsistencyPass(lists, PersonContexts.of(rules), low | {LOW_CONFIDENCE, LOW_CONFIDENCE_NAME})
        if system.consistency
        else None
    )
    return Tagger(recognizers, resolver, tuple(loaded), consistency, system.models_decide)


def takes_lean(name: str) -> bool:
    """Whether a system has a model with a threshold, see ``lean_models``."""
    system = SYSTEMS.get(name)
    leaning = {ModelRole.TOKEN, ModelRole.NETWORK}
    return system is not None and system.models_decide and any(role in leaning for _, role in system.models)


def lean_models(tagger: Tagger, lean: float) -> Tagger:
    """The tagger with models that divide the probability of no PHI by ``lean``."""
    return replace(tagger, models=tuple(_lean_model(model, lean) for model in tagger.models))


def _lean_model(model: Model, lean: float) -> Model:
    if isinstance(model, GatedCrf):
        return replace(model, token=replace(model.token, lean=lean))
    return replace(model, lean=lean) if isinstance(model, TokenCrf | NetworkTagger) else model


def _require_models(models: Path, name: str, system: TaggerSystem) -> None:
    """Raise ``ConfigurationError`` with the commands that train the missing models of ``system``."""
    missing = [model for model, _ in system.models if not (models / f"{model}.json").is_file()]
    if missing:
        commands = " and ".join(f"deid-agent train {model} --corpus NOTES --out {models}" for model in missing)
        raise ConfigurationError(
            f"system {name} needs {' and '.join(missing)}, not in the models folder {models}: run {commands}"
        )


def _choose_recognizers(rules: Ruleset, system: TaggerSystem) -> tuple[Recognizer, ...]:
    """The recognizers of ``system``, with the pattern rules of its types only."""
    found = assemble_recognizers(rules, system.recognizers)
    if not system.rule_types:
        return found
    return tuple(
        replace(each, rules=tuple(rule for rule in each.rules if rule.types[0] in system.rule_types))
        if isinstance(each, PatternRecognizer)
        else each
        for each in found
    )


def _token_model(loaded: list[Model]) -> TokenCrf:
    """The last loaded model, which must be a token model."""
    if not loaded or not isinstance(loaded[-1], TokenCrf):
        raise ConfigurationError("a model that refines the token model must follow it in the system's list of models")
    return loaded[-1]


def _filter_names(
    recognizers: tuple[Recognizer, ...], resolver: Resolver, names: NameFilter, models: tuple[Model, ...]
) -> tuple[Recognizer, ...]:
    """The name filter in place of the recognizers and models whose spans it has learned to judge; the others remain."""
    others = tuple(each for each in recognizers if _remains_beside_models(each))
    judged = tuple(each for each in recognizers if not _remains_beside_models(each))
    return (FilteredNames(Tagger(judged, resolver, models).find, names), *others)


def _remains_beside_models(recognizer: Recognizer) -> bool:
    traits = recognizer.sources.values()
    return not traits or any(each.beside_models is BesideModels.ALWAYS for each in traits)
