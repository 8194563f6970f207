"""The token model: a CRF over tokens that sees what the rules of the first pass say, alone or with other voices.

Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3; models combined as in Dernoncourt 2016 section 3.4, but
by the mean of their probabilities.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from deid_agent.crf.bundle import Bundle
from deid_agent.crf.columns import View
from deid_agent.crf.labels import OUTSIDE, decode
from deid_agent.crf.model import Floats, pieces
from deid_agent.dictionary import Dictionaries
from deid_agent.errors import ConfigurationError
from deid_agent.recognize.value import is_value, witnessed
from deid_agent.spans import Span
from deid_agent.text import Document

Asked = tuple[Document, Sequence[Span]]
"""A document and what its first pass found."""
_BATCH = 2_048  # tokens read at once: bounds the memory
SURE, WEAK = "crf:token", "weak:token"


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Of each token the label of the most probable sequence, the probability of PHI, the likeliest kind of PHI."""

    labels: Sequence[str]
    phi: Floats | None = None
    kinds: Sequence[str] = ()

    @staticmethod
    def of(best: Sequence[str], marginals: Floats, labels: Sequence[str]) -> "Reading":
        """The same of ``marginals`` ``[token, label]``, which are written over."""
        marginals[:, labels.index(OUTSIDE)] = 0
        kinds = [labels[kind] for kind in marginals.argmax(axis=1).tolist()]
        return Reading(best, marginals.sum(axis=1), kinds)


class Speaker(Protocol):
    """Another model of the same tokens and labels, which is heard beside the CRF."""

    @property
    def name(self) -> str:
        """What configuration and reports call it."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it has probabilities of, in order."""

    def speak(self, views: Sequence[View]) -> Floats:
        """The probability of each label for each token of the views, which have tokens: ``[token, label]``."""


@dataclass(frozen=True, slots=True)
class TokenCrf:
    """Proposes the most probable spans; and, as weak ones, tokens that may well be PHI though that is not likeliest.

    ``least`` is the probability of PHI from which on a token is proposed all the same; in a short value the lists must
    know it too. With ``others`` a token's label is the one that is likeliest by the mean of all. Raises
    ``ConfigurationError`` where one of them has other labels.
    """

    bundle: Bundle
    dictionaries: Dictionaries = field(repr=False)
    least: float = 0.3
    others: tuple[Speaker, ...] = ()

    def __post_init__(self) -> None:
        if other := next((each for each in self.others if each.labels != self.bundle.chain.labels), None):
            raise ConfigurationError(
                f"models {self.name} and {other.name} have other labels: train both from the same notes"
            )

    @property
    def name(self) -> str:
        """The model's name, as in the models folder."""
        return self.bundle.name

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """Spans of ``doc``, whose first pass found ``first``."""
        return self.propose_all([(doc, first)])[0]

    def propose_all(self, asked: Sequence[Asked]) -> list[list[Span]]:
        """As ``propose`` of each; short documents cost far less together than one by one."""
        found: list[list[Span]] = [[] for _ in asked]
        doubts = self.least < 1
        for batch in batches([at for at, (doc, _) in enumerate(asked) if doc.tokens], asked):
            kept = bool(self.others) and sum(len(asked[at][0].tokens) for at in batch) <= _BATCH
            views = [View(*asked[at], self.dictionaries, {} if kept else None) for at in batch]
            for at, view, reading in zip(batch, views, self._readings(views, doubts=doubts), strict=True):
                found[at] = self.spans(view.doc, reading)
        return found

    def read(self, view: View, *, doubts: bool) -> Reading:
        """What the model says of a document that has tokens; without ``doubts`` the labels alone."""
        return next(self._readings([view], doubts=doubts))

    def _readings(self, views: Sequence[View], *, doubts: bool) -> Iterator[Reading]:
        chain = self.bundle.chain
        features, places = self.bundle.features.of_all(views)
        emissions = chain.emissions(features)
        if len(views) > 1:  # without what stands between documents
            emissions = np.concatenate([emissions[place] for place in places])
        sizes = [size for view in views for size in pieces(len(view.words), view.paragraphs())]
        marginals = chain.marginals_of_all(emissions, sizes) if doubts or self.others else None
        if self.others:
            emissions = emissions[:0]
        if self.others and marginals is not None:
            for other in self.others:
                marginals += other.speak(views)
            marginals /= 1 + len(self.others)
            best = [chain.labels[at] for at in marginals.argmax(axis=1).tolist()]
        else:
            best = chain.best_of_all(emissions, sizes)
        start = 0
        for view in views:
            own = slice(start, start := start + len(view.words))
            if marginals is None or not doubts:
                yield Reading(best[own])
            else:
                yield Reading.of(best[own], marginals[own], chain.labels)

    def spans(self, doc: Document, reading: Reading) -> list[Span]:
        """The spans of what was read, the weak ones where it holds doubts."""
        return proposals(doc, reading, self.least, self.dictionaries, SURE)


def proposals(doc: Document, reading: Reading, least: float, dictionaries: Dictionaries, source: str) -> list[Span]:
    """The spans of what a model read, of ``source``; and the weak ones, from the probability ``least`` on."""
    found = list(decode(reading.labels, doc.tokens, source))
    if reading.phi is not None and least < 1:
        likely = (reading.phi >= least).tolist()
        weak = [
            kind if yes and label == OUTSIDE else OUTSIDE
            for yes, kind, label in zip(likely, reading.kinds, reading.labels, strict=True)
        ]
        doubted = decode(weak, doc.tokens, WEAK)
        value = is_value(doc)
        found += [span for span in doubted if not value or witnessed(span, doc, dictionaries)]
    return found


def batches(wanted: Iterable[int], asked: Sequence[Asked]) -> Iterator[list[int]]:
    """Documents to read at once, by number: few tokens, or one document."""
    batch: list[int] = []
    size = 0
    for at in wanted:
        if batch and size + len(asked[at][0].tokens) > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += len(asked[at][0].tokens)
    if batch:
        yield batch
