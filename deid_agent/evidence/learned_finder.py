"""A finder that learns from labelled texts: a CRF over tokens that knows two labels, inside of a range and outside.

It sees the words, their forms and the public lists of the project, and no rule: it has learned all findings from the
texts. The training itself is a function of the caller, so this package needs no training library.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from deid_agent.model import ConfigurationError, Document, Range
from deid_agent.nlp import (
    OUTSIDE,
    Crf,
    CrfModel,
    FeatureExtractor,
    Floats,
    Ints,
    Schema,
    TokenFeatures,
    select_templates,
    split_sequence,
)
from deid_agent.rules import Dictionaries

CrfFitter = Callable[[FeatureExtractor, Iterable[tuple[Sequence[Ints], Sequence[str]]]], Crf]
"""Trains a CRF on chains of numbers and labels, such as ``deid_agent.train.train_crf`` with its settings."""
FAMILIES: Final = ("basic", "affix", "ngram", "dictionary", "section", "cue", "position")
INSIDE: Final = "I"


class NothingToLearnError(ConfigurationError):
    """The texts have no labelled range, or nothing else."""


@dataclass(frozen=True, slots=True)
class LearnedFinder:
    """Finds text that resembles the labelled ranges of its training texts."""

    model: CrfModel = field(repr=False)
    dictionaries: Dictionaries = field(repr=False)

    def score(self, text: str) -> tuple[Sequence[Range], Floats]:
        """The tokens of ``text``, and for each the probability that it is inside of a range."""
        tokens = TokenFeatures(Document(text), (), self.dictionaries)
        if not tokens.doc.tokens:
            return (), np.zeros(0, np.float32)
        emissions = self.model.emissions([tokens])
        sizes = split_sequence(len(tokens.doc.tokens), tokens.paragraph_starts())
        inside = self.model.crf.labels.index(INSIDE)
        found: Floats = self.model.crf.marginals_of_sequences(emissions, sizes)[:, inside]
        return tokens.doc.tokens, found

    def find(self, text: str) -> list[Range]:
        """The tokens of ``text`` that are likelier inside of a range than outside."""
        tokens, scores = self.score(text)
        return [token for token, score in zip(tokens, scores.tolist(), strict=True) if score >= 0.5]


def learn_finder(
    texts: Sequence[tuple[str, Sequence[Range]]], fit: CrfFitter, dictionaries: Dictionaries
) -> LearnedFinder:
    """A finder of text like the labelled ranges of ``texts``. The same texts in the same order give the same finder.

    Raises ``NothingToLearnError`` if no text has a labelled range, or none has anything else.
    """
    read = [(TokenFeatures(Document(text), (), dictionaries), ranges) for text, ranges in texts]
    labelled = [(tokens, label_tokens(tokens.doc.tokens, ranges)) for tokens, ranges in read if tokens.doc.tokens]
    if len({label for _, labels in labelled for label in labels}) < 2:
        raise NothingToLearnError("nothing to learn from: the texts have no labelled range, or nothing else")
    extractor = FeatureExtractor.learn(select_templates(FAMILIES), (tokens for tokens, _ in labelled))
    crf = fit(extractor, _chains(extractor, labelled))
    return LearnedFinder(CrfModel("learned", Schema.IO, extractor, crf), dictionaries)


def label_tokens(tokens: Sequence[Range], ranges: Iterable[Range]) -> list[str]:
    """The label of each token: inside if it shares a character with one of ``ranges``."""
    labels, at = [OUTSIDE] * len(tokens), 0
    for begin, end in sorted(ranges):
        while at < len(tokens) and tokens[at][1] <= begin:
            at += 1
        here = at
        while here < len(tokens) and tokens[here][0] < end:
            labels[here] = INSIDE
            here += 1
    return labels


def _chains(
    extractor: FeatureExtractor, labelled: Sequence[tuple[TokenFeatures, Sequence[str]]]
) -> Iterator[tuple[Sequence[Ints], Sequence[str]]]:
    for tokens, labels in labelled:
        features, start = extractor.extract(tokens), 0
        for size in split_sequence(len(labels), tokens.paragraph_starts()):
            own = slice(start, start := start + size)
            yield [numbers[own] for numbers in features], labels[own]
