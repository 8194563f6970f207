"""From examples to models, kind by kind."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from deid_agent import resources
from deid_agent.crf import characters
from deid_agent.crf.bundle import Bundle
from deid_agent.crf.characters import CHARACTER_FAMILIES, Characters
from deid_agent.crf.columns import Ints, View
from deid_agent.crf.features import Features, templates_of
from deid_agent.crf.labels import Schema
from deid_agent.crf.model import pieces
from deid_agent.crf.train import Progress, Settings, fit, silent
from deid_agent.errors import ConfigurationError
from deid_agent.eval.score import Pair
from deid_agent.neural import vectors
from deid_agent.neural.bundle import NetworkBundle
from deid_agent.phi import PhiType
from deid_agent.recognize.charcrf import CharacterCrf
from deid_agent.recognize.filter import NameFilter
from deid_agent.recognize.network import NetworkTagger
from deid_agent.recognize.svm import Machines
from deid_agent.recognize.tokencrf import TokenCrf
from deid_agent.resolve import Resolver
from deid_agent.tagger import Model
from deid_agent.train import network
from deid_agent.train.examples import Example, Reader
from deid_agent.train.names import FilterSettings, train_filter
from deid_agent.train.recipes import Kind, Recipe
from deid_agent.train.settings import NetworkSettings
from deid_agent.train.store import Trained


def train(
    name: str, recipe: Recipe, examples: Sequence[Example], progress: Progress = silent, *, per_type: bool = False
) -> tuple[Trained, ...]:
    """One model, or with ``per_type`` one for each type (Dehghan 2015 section 2.3), named ``<name>-<type>``.

    The same examples in the same order give the same models. Raises ``ConfigurationError`` where there is nothing to
    learn.
    """
    seen = {span.type for example in examples for span in example.note.annotated.spans}
    types = [kind for kind in recipe.types or PhiType if kind in seen]
    if not types:
        raise ConfigurationError(f"{name}: no note has an annotation to learn from: give an annotated corpus")
    if not per_type:
        return (_one(name, recipe, examples, types, progress),)
    if recipe.kind in {Kind.FILTER, Kind.NETWORK}:
        raise ConfigurationError(f"{name}: a {recipe.kind} is one model for all types: leave out --per-type")
    return tuple(_one(f"{name}-{kind.lower()}", recipe, examples, [kind], progress) for kind in types)


def _one(
    name: str, recipe: Recipe, examples: Sequence[Example], types: Sequence[PhiType], progress: Progress
) -> Trained:
    units: Iterable[tuple[Sequence[Ints], Sequence[str]]]
    schema, settings = recipe.schema, recipe.settings
    match recipe.kind, settings, schema:
        case Kind.FILTER, FilterSettings(), _:
            return train_filter(examples, settings, name=name)
        case Kind.NETWORK, NetworkSettings(), Schema.IO:
            known = vectors.load(resources.folder("models")) if settings.frozen else None
            return network.fit(name, examples, types, settings, known, progress)
        case Kind.TOKEN, Settings(), Schema():
            templates = (*templates_of(recipe.families), *recipe.templates)
            features = Features.learn(templates, (example.view for example in examples))
            units = (chain for e in examples for chain in _chains(features.of(e.view), e.labels(schema, types), e.view))
        case Kind.CHARACTER, Settings(), Schema():
            templates = (*templates_of(recipe.families, CHARACTER_FAMILIES), *recipe.templates)
            features = Features.learn(templates, (Characters(e.view) for e in examples if e.view.words))
            views = ((e.view, e.gold(types)) for e in examples)
            units = characters.examples(views, features, around=recipe.around, share=recipe.share)
        case _:
            raise ConfigurationError(f"recipe {name}: its settings or schema are those of another kind")
    return Bundle(name, schema, features, fit(features, units, settings, progress))


def _chains(
    features: Sequence[Ints], labels: Sequence[str], view: View
) -> Iterator[tuple[Sequence[Ints], Sequence[str]]]:
    """A note as the chains that the model will read it in: its paragraphs."""
    start = 0
    for size in pieces(len(labels), view.paragraphs()):
        own = slice(start, start := start + size)
        yield [column[own] for column in features], labels[own]


def tagged(
    recipe: Recipe, trained: Sequence[Trained], reader: Reader, examples: Sequence[Example], resolver: Resolver
) -> list[Pair]:
    """What the models alone find in notes, without what the first pass found."""
    models = [_model(recipe, each, reader) for each in trained]
    pairs = []
    for example in examples:
        doc, first = example.view.doc, example.view.first
        found = [span for model in models for span in model.propose_all([(doc, first)])[0]]
        pairs.append(Pair(example.note, tuple(resolver.resolve(found, doc))))
    return pairs


def _model(recipe: Recipe, trained: Trained, reader: Reader) -> Model:
    match trained:
        case Machines():
            return NameFilter(trained, reader.dictionaries)
        case NetworkBundle():
            return NetworkTagger(trained, reader.dictionaries, 1.0)
        case Bundle():
            if recipe.kind is Kind.CHARACTER:
                return CharacterCrf(trained, reader.dictionaries)
            return TokenCrf(trained, reader.dictionaries, 1.0)
        case unknown:
            assert_never(unknown)
