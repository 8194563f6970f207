"""Training and application of a component of any kind."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import assert_never

import numpy as np

from deid_agent.eval import Pair
from deid_agent.model import ConfigurationError, PhiType
from deid_agent.nlp import (
    CHARACTER_FAMILIES,
    CharacterCrf,
    CharacterFeatures,
    CrfModel,
    FeatureExtractor,
    Floats,
    Ints,
    NameFilter,
    NetworkModel,
    NetworkTagger,
    Schema,
    SvmModel,
    TokenCrf,
    TokenFeatures,
    build_character_examples,
    load_vectors,
    select_templates,
    split_sequence,
)
from deid_agent.recognize import Model, Resolver, Tagger
from deid_agent.rules import data_folder
from deid_agent.train.card import TrainedModel
from deid_agent.train.crf_trainer import CrfSettings, Progress, ignore_progress, train_crf
from deid_agent.train.examples import Example, ExampleReader
from deid_agent.train.name_filter_trainer import FilterSettings, train_filter
from deid_agent.train.recipes import ComponentKind, NetworkSettings, Recipe


def train_component(
    name: str,
    recipe: Recipe,
    examples: Sequence[Example],
    progress: Progress = ignore_progress,
    *,
    per_type: bool = False,
) -> tuple[TrainedModel, ...]:
    """One model, or with ``per_type`` one for each type (Dehghan 2015 section 2.3), named ``<name>-<type>``.

    The same examples in the same order give the same models. Raises ``ConfigurationError`` if there is nothing to
    learn, or if the component cannot be trained for each type.
    """
    seen = {span.type for example in examples for span in example.note.annotated.spans}
    types = [kind for kind in recipe.types or PhiType if kind in seen]
    if not types:
        raise ConfigurationError(f"{name}: no note has an annotation to learn from: use an annotated corpus")
    if not per_type:
        return (_train_model(name, recipe, examples, types, progress),)
    if recipe.kind in {ComponentKind.FILTER, ComponentKind.NETWORK}:
        raise ConfigurationError(f"{name}: a {recipe.kind} is one model for all types: remove --per-type")
    return tuple(_train_model(f"{name}-{kind.lower()}", recipe, examples, [kind], progress) for kind in types)


def _train_model(
    name: str, recipe: Recipe, examples: Sequence[Example], types: Sequence[PhiType], progress: Progress
) -> TrainedModel:
    chains: Iterable[tuple[Sequence[Ints], Sequence[str]]]
    schema, settings = recipe.schema, recipe.settings
    match recipe.kind, settings, schema:
        case ComponentKind.FILTER, FilterSettings(), _:
            return train_filter(examples, settings, name=name)
        case ComponentKind.NETWORK, NetworkSettings(), Schema.IO:
            from deid_agent.train.network_trainer import train_network  # noqa: PLC0415 - imports JAX

            vectors = load_vectors(data_folder("models")) if settings.published_vectors else None
            return train_network(name, examples, types, settings, vectors, progress)
        case ComponentKind.TOKEN, CrfSettings(), Schema():
            templates = (*select_templates(recipe.families), *recipe.templates)
            extractor = FeatureExtractor.learn(templates, (example.tokens for example in examples))
            chains = (
                chain
                for e in examples
                for chain in _split_chains(extractor.extract(e.tokens), e.labels(schema, types), e.tokens)
            )
            crf = train_crf(extractor, chains, settings, progress)
            labels = (
                own for e in examples for own in _split_labels(e.labels(schema, types), e.tokens.paragraph_starts())
            )
            return CrfModel(name, schema, extractor, crf, affinities=count_affinities(labels, crf.labels))
        case ComponentKind.CHARACTER, CrfSettings(), Schema():
            templates = (*select_templates(recipe.families, CHARACTER_FAMILIES), *recipe.templates)
            documents = (CharacterFeatures(e.tokens) for e in examples if e.tokens.words)
            extractor = FeatureExtractor.learn(templates, documents)
            annotated = ((e.tokens, e.gold(types)) for e in examples)
            chains = build_character_examples(annotated, extractor, around=recipe.around, share=recipe.share)
        case _:
            raise ConfigurationError(f"recipe {name}: the settings or the schema do not fit a {recipe.kind} component")
    return CrfModel(name, schema, extractor, train_crf(extractor, chains, settings, progress))


@dataclass(frozen=True, slots=True)
class CandidateModels:
    """Token models whose spans a name filter sees, each trained on one half of the patients.

    A filter that learned from the spans of a model in that model's own training notes would trust it too much. So the
    model of the other half reads each note.
    """

    reader: ExampleReader
    models: tuple[TokenCrf, TokenCrf]
    first: frozenset[str]
    """The patients of the first half, whose notes the first model learned from."""

    @staticmethod
    def train(name: str, recipe: Recipe, reader: ExampleReader, examples: Sequence[Example]) -> "CandidateModels":
        """The models of both halves of the patients of ``examples``."""
        first = frozenset(sorted({each.note.patient for each in examples})[::2])
        halves = ([e for e in examples if (e.note.patient in first) is half] for half in (True, False))
        one, two = (TokenCrf(_train_half(name, recipe, half), reader.dictionaries) for half in halves)
        return CandidateModels(reader, (one, two), first)

    def add_spans(self, examples: Iterable[Example]) -> list[Example]:
        """``examples`` with the spans of the model that did not learn from the patient in their first pass."""
        taggers = [Tagger(self.reader.recognizers, self.reader.resolver, (model,)) for model in self.models]
        return [self._add(each, taggers[each.note.patient in self.first]) for each in examples]

    def _add(self, example: Example, tagger: Tagger) -> Example:
        doc = example.tokens.doc
        return replace(
            example,
            tokens=TokenFeatures(doc, tagger.find(doc), self.reader.dictionaries, grammar=self.reader.grammar),
        )


def _train_half(name: str, recipe: Recipe, examples: Sequence[Example]) -> CrfModel:
    (model,) = train_component(name, recipe, examples)
    if not isinstance(model, CrfModel):
        raise ConfigurationError(f"recipe {name}: the candidates of a name filter come from a token component")
    return model


AFFINITY_WEIGHT = 0.1
"""The weight of an affinity beside the logarithm of a probability. Measured on dev: 0.1 is better than 0.2 and 0.35."""
_SMOOTHING = 0.05


def count_affinities(sequences: Iterable[Sequence[str]], labels: Sequence[str]) -> Floats:
    """How much likelier each label is after each other label than anywhere, ``[from label, to label]``.

    The logarithm of that ratio (pointwise mutual information), smoothed, times ``AFFINITY_WEIGHT``.
    """
    index = {label: at for at, label in enumerate(labels)}
    counts = np.full((len(labels), len(labels)), _SMOOTHING)
    for sequence in sequences:
        for before, after in pairwise(sequence):
            counts[index[before], index[after]] += 1
    conditional = counts / counts.sum(axis=1, keepdims=True)
    found: Floats = (AFFINITY_WEIGHT * np.log(conditional / (counts.sum(axis=0) / counts.sum()))).astype(np.float32)
    return found


def _split_labels(labels: Sequence[str], starts: Sequence[int]) -> Iterator[Sequence[str]]:
    start = 0
    for size in split_sequence(len(labels), starts):
        yield labels[start : start + size]
        start += size


def _split_chains(
    features: Sequence[Ints], labels: Sequence[str], tokens: TokenFeatures
) -> Iterator[tuple[Sequence[Ints], Sequence[str]]]:
    """The chains that the model will read a note in: its paragraphs."""
    start = 0
    for size in split_sequence(len(labels), tokens.paragraph_starts()):
        own = slice(start, start := start + size)
        yield [numbers[own] for numbers in features], labels[own]


def tag_with_component(
    recipe: Recipe,
    trained: Sequence[TrainedModel],
    reader: ExampleReader,
    examples: Sequence[Example],
    resolver: Resolver,
) -> list[Pair]:
    """The spans that the models alone find in the notes, without those of the first pass."""
    models = [_build_tagger(recipe, each, reader) for each in trained]
    pairs = []
    for example in examples:
        doc, first_pass = example.tokens.doc, example.tokens.first_pass
        found = [span for model in models for span in model.propose_all([(doc, first_pass)])[0]]
        pairs.append(Pair(example.note, tuple(resolver.resolve(found, doc))))
    return pairs


def _build_tagger(recipe: Recipe, trained: TrainedModel, reader: ExampleReader) -> Model:
    match trained:
        case SvmModel():
            return NameFilter(trained, reader.dictionaries)
        case NetworkModel():
            return NetworkTagger(trained, reader.dictionaries, grammar=reader.grammar)
        case CrfModel():
            if recipe.kind is ComponentKind.CHARACTER:
                return CharacterCrf(trained, reader.dictionaries, reader.grammar)
            return TokenCrf(trained, reader.dictionaries, grammar=reader.grammar)
        case unknown:
            assert_never(unknown)
