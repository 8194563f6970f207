"""CRF models as taggers: over tokens, over characters, and the character model for uncertain tokens only.

The token model also sees the spans of the first pass, the recognizers that run before it. Its probabilities may be
averaged with those of other models. Source: Liu 2015 sections 3.2.2, 3.2.3 and 3.4, Dehghan 2015 section 2.3; models
combined as in Dernoncourt 2016 section 3.4, but by the mean of their probabilities.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Protocol

import numpy as np

from deid_agent.measure import EMPTY_GRAMMAR, Grammar
from deid_agent.model import ConfigurationError, Document, PhiType, Range, Source, SourceKind, Span
from deid_agent.nlp.character_features import CharacterFeatures, SelectedCharacters, find_windows, line_windows
from deid_agent.nlp.crf import CrfModel, Floats
from deid_agent.nlp.labels import OUTSIDE, decode_edge_labels, decode_labels
from deid_agent.nlp.sequence_decoder import NAME_LISTS, SequenceDecoder
from deid_agent.nlp.sequences import split_sequence
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules import Dictionaries

FirstPass = tuple[Document, Sequence[Span]]
"""A document with the resolved spans of its first pass."""
LOW_CONFIDENCE = Source(SourceKind.LOW_CONFIDENCE, "token")
TOKEN_SOURCE = Source(SourceKind.TOKEN_MODEL, "token")
CHARACTER_SOURCE = Source(SourceKind.CHARACTER_MODEL, "character")
SURE_NAME = 0.9
"""The probability from which a token is certainly part of a person's name."""
PROSE_WORDS = 8
"""The fewest words of prose. On messages by others most low-confidence spans of shorter texts are wrong."""
_MAX_VALUE_TOKENS = 64  # a longer text is no short value: it may be a page of dates
_NAME_TYPES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_BATCH_TOKENS = 2_048  # tokens of one batch: bounds memory
_BATCH_CHARACTERS = 8_192  # characters of one batch: bounds memory
_TWO_WORDS = re.compile(r"[^\W\d_A-Z][A-Z]")  # a capital after a lower-case letter
_HARDLY_PHI = 0.002


# Short values. A field, a table cell or an answer of a few words has no context, and a model of notes takes codes and
# units for names there. A low-confidence span remains only if the lists know each word as a name of a person or place.


def is_short_value(doc: Document) -> bool:
    """Whether ``doc`` is short and has fewer words than prose. A word begins with a letter."""
    if len(doc.tokens) > _MAX_VALUE_TOKENS:
        return False
    words = (True for start, _ in doc.tokens if doc.text[start].isalpha())
    return sum(islice(words, PROSE_WORDS)) < PROSE_WORDS


def has_listed_names_only(span: Span, doc: Document, lists: Dictionaries) -> bool:
    """Whether ``lists`` know each word of ``span`` as a name and not as a common word."""
    words = [doc.text[start:end] for start, end in doc.tokens if span.start <= start and end <= span.end]
    return all(_is_listed_name(word, lists) for word in words if word[0].isalnum())


def _is_listed_name(word: str, lists: Dictionaries) -> bool:
    held = lists.lists_of(word)
    return "common-word" not in held and not NAME_LISTS.isdisjoint(held)


# Token models


@dataclass(frozen=True, slots=True, eq=False)
class TokenPrediction:
    """One label for each token of a document.

    ``phi`` ``[token]`` is the probability of PHI; ``likely`` is true for each token that is PHI by its likeliest label.
    Both are ``None`` if the model gave no probabilities. ``named`` is true for each token that is part of a person's
    name with a probability of at least ``SURE_NAME``.
    """

    labels: Sequence[str]
    phi: Floats | None = None
    likely: Sequence[bool] | None = None
    named: Sequence[bool] = ()


class ProbabilitySource(Protocol):
    """Another model of the same tokens and labels, whose probabilities are averaged with those of the CRF."""

    @property
    def name(self) -> str:
        """The name in configuration and reports."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the probabilities."""

    def marginals(self, documents: Sequence[TokenFeatures]) -> Floats:
        """The probability of each label for each token of all documents, ``[token, label]``.

        Every document has at least one token.
        """


@dataclass(frozen=True, slots=True)
class TokenCrf:
    """The token model: proposes the most probable spans, and with ``lean`` above 1 also low-confidence spans.

    A span is low-confidence if no token of it is PHI by its likeliest label; in a short value the lists must also know
    its words as names. With an ``ensemble`` the probabilities are the mean of all models. Raises
    ``ConfigurationError`` if a model of it has other labels.
    """

    model: CrfModel
    dictionaries: Dictionaries = field(repr=False)
    lean: float = 1.0
    ensemble: tuple[ProbabilitySource, ...] = ()
    grammar: Grammar = EMPTY_GRAMMAR

    def __post_init__(self) -> None:
        if other := next((each for each in self.ensemble if each.labels != self.model.crf.labels), None):
            raise ConfigurationError(
                f"models {self.name} and {other.name} have different labels: train both from the same notes"
            )

    @property
    def name(self) -> str:
        """The model's name in the models folder."""
        return self.model.name

    def propose(self, doc: Document, first_pass: Sequence[Span]) -> Iterable[Span]:
        """The spans of ``doc``, given those of its first pass."""
        return self.propose_all([(doc, first_pass)])[0]

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The spans of each document. A batch of short documents is much faster than one call for each."""
        return [spans for spans, _ in self.propose_with_names(asked)]

    def propose_with_names(self, asked: Sequence[FirstPass]) -> list[tuple[list[Span], list[Range]]]:
        """The spans of each document, and its tokens that are certainly parts of names of persons."""
        found: list[tuple[list[Span], list[Range]]] = [([], []) for _ in asked]
        for batch in batch_documents([at for at, (doc, _) in enumerate(asked) if doc.tokens], asked):
            cached = bool(self.ensemble) and sum(len(asked[at][0].tokens) for at in batch) <= _BATCH_TOKENS
            documents = [
                TokenFeatures(*asked[at], self.dictionaries, {} if cached else None, self.grammar) for at in batch
            ]
            for at, tokens, prediction in zip(batch, documents, self._predict_all(documents), strict=True):
                named = list(compress(tokens.doc.tokens, prediction.named))
                found[at] = self.build_spans(tokens.doc, prediction), named
        return found

    def predict(self, doc: Document, first_pass: Sequence[Span]) -> tuple[TokenFeatures, TokenPrediction]:
        """The features of a document with at least one token, and the prediction with probabilities."""
        tokens = TokenFeatures(doc, first_pass, self.dictionaries, {}, self.grammar)
        return tokens, next(self._predict_all([tokens], probabilities=True))

    def build_spans(self, doc: Document, prediction: TokenPrediction) -> list[Span]:
        """The spans of ``prediction``, with low-confidence spans if it has probabilities."""
        return build_spans(doc, prediction, self.dictionaries, TOKEN_SOURCE)

    def _predict_all(
        self, documents: Sequence[TokenFeatures], *, probabilities: bool = False
    ) -> Iterator[TokenPrediction]:
        crf = self.model.crf
        emissions = self.model.emissions(documents)
        sizes = [
            size for tokens in documents for size in split_sequence(len(tokens.doc.tokens), tokens.paragraph_starts())
        ]
        if not self.ensemble and self.lean == 1 and not probabilities:
            return divide_prediction(documents, crf.decode_sequences(emissions, sizes))
        marginals = crf.marginals_of_sequences(emissions, sizes)
        for other in self.ensemble:
            marginals += other.marginals(documents)
        marginals /= 1 + len(self.ensemble)
        if self.ensemble or self.lean != 1:
            best = SequenceDecoder(crf.labels, self.model.affinities, self.lean).decode(marginals, sizes, documents)
        else:
            best = crf.decode_sequences(emissions, sizes)
        return divide_prediction(documents, best, marginals, crf.labels)


def divide_prediction(
    documents: Sequence[TokenFeatures],
    best: Sequence[str],
    marginals: Floats | None = None,
    labels: Sequence[str] = (),
) -> Iterator[TokenPrediction]:
    """The prediction of each document; ``marginals`` are ``[token, label]`` in the order of ``labels``."""
    outside = 0 if marginals is None else labels.index(OUTSIDE)
    names = [at for at, label in enumerate(labels) if label.partition("-")[2] in _NAME_TYPES]
    start = 0
    for tokens in documents:
        own = slice(start, start := start + len(tokens.doc.tokens))
        if marginals is None:
            yield TokenPrediction(best[own])
        else:
            likely = (marginals[own].argmax(axis=1) != outside).tolist()
            named = (marginals[own, names].sum(axis=1) >= SURE_NAME).tolist()
            yield TokenPrediction(best[own], 1 - marginals[own, outside], likely, named)


def build_spans(doc: Document, prediction: TokenPrediction, dictionaries: Dictionaries, source: Source) -> list[Span]:
    """The spans of a token model's prediction, with ``source``, or with ``LOW_CONFIDENCE`` if no token is likely PHI.

    A low-confidence span in a short value remains only if the lists know its words as names.
    """
    spans = list(decode_labels(prediction.labels, doc.tokens, source))
    if prediction.likely is None:
        return spans
    starts = [start for start, _ in doc.tokens]
    found, is_short = [], is_short_value(doc)
    for span in spans:
        if any(prediction.likely[bisect_left(starts, span.start) : bisect_left(starts, span.end)]):
            found.append(span)
        elif not is_short or has_listed_names_only(span, doc, dictionaries):
            found.append(Span(span.start, span.end, span.type, LOW_CONFIDENCE))
    return found


def batch_documents(wanted: Iterable[int], asked: Sequence[FirstPass]) -> Iterator[list[int]]:
    """The indices ``wanted`` in batches with a bounded number of tokens; a longer document is a batch of its own."""
    batch: list[int] = []
    size = 0
    for at in wanted:
        if batch and size + len(asked[at][0].tokens) > _BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += len(asked[at][0].tokens)
    if batch:
        yield batch


# Character models


@dataclass(frozen=True, slots=True)
class CharacterCrf:
    """The character model: proposes the most probable spans of characters, in whole lines or in chosen windows."""

    model: CrfModel
    dictionaries: Dictionaries = field(repr=False)
    grammar: Grammar = EMPTY_GRAMMAR

    @property
    def name(self) -> str:
        """The model's name in the models folder."""
        return self.model.name

    def propose(self, doc: Document, first_pass: Sequence[Span]) -> Iterable[Span]:
        """The spans of ``doc``, given those of its first pass; none crosses a line end."""
        if not doc.tokens:
            return []
        tokens = TokenFeatures(doc, first_pass, self.dictionaries, grammar=self.grammar)
        return self.find_in_windows(tokens, line_windows(doc))

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The result of ``propose`` for each document."""
        return [list(self.propose(doc, first_pass)) for doc, first_pass in asked]

    def find_in_windows(self, tokens: TokenFeatures, windows: Sequence[Range]) -> list[Span]:
        """The spans inside ``windows``, which are disjoint and not empty; the document has at least one token."""
        if not windows:
            return []
        characters = CharacterFeatures(tokens)
        found: list[Span] = []
        for batch in _batch_windows(windows):
            units = np.concatenate([np.arange(start, end) for start, end in batch])
            emissions = self._emissions(SelectedCharacters(self.model.extractor, characters, units))
            labels = self.model.crf.decode_sequences(emissions, [end - start for start, end in batch])
            at = 0
            for start, end in batch:
                size = end - start
                if any(label != OUTSIDE for label in labels[at : at + size]):
                    positions = [(c, c + 1) for c in range(start, end)]
                    found += decode_edge_labels(labels[at : at + size], positions, CHARACTER_SOURCE)
                at += size
        return found

    def _emissions(self, selected: SelectedCharacters) -> Floats:
        """The emissions ``[unit, label]``. Templates of token features are summed once for each token."""
        crf = self.model.crf
        shared = np.tile(crf.bias, (len(selected.heads), 1))
        own = np.zeros((len(selected.units), len(crf.labels)), np.float32)
        for at, template in enumerate(self.model.extractor.templates):
            numbers, is_shared = selected.extract(template)
            (shared if is_shared else own)[:] += crf.template_scores(at, numbers)
        own += shared[selected.head_index]
        return own


@dataclass(frozen=True, slots=True)
class GatedCrf:
    """The token model, and the character model around the tokens that the token model is uncertain about.

    A token is uncertain if its probability of PHI is between ``low`` and ``high``, or if it may be two words such as
    ``HospitalProblems`` and its probability of PHI is not negligible. The character model reads ``around`` characters
    on both sides.
    """

    token: TokenCrf
    character: CharacterCrf
    low: float = 0.1
    high: float = 0.9
    around: int = 20

    @property
    def name(self) -> str:
        """The names of both models."""
        return f"{self.token.name}+{self.character.name}"

    def propose(self, doc: Document, first_pass: Sequence[Span]) -> Iterable[Span]:
        """The spans of the token model, and those of the character model at uncertain tokens."""
        if not doc.tokens:
            return []
        tokens, prediction = self.token.predict(doc, first_pass)
        phi = prediction.phi if prediction.phi is not None else np.ones(len(doc.tokens), np.float32)
        uncertain = (phi > self.low) & (phi < self.high)
        for at in np.flatnonzero(phi > _HARDLY_PHI).tolist():
            uncertain[at] |= _TWO_WORDS.search(tokens.words[at]) is not None
        ranges = [doc.tokens[at] for at in np.flatnonzero(uncertain).tolist()]
        found = self.character.find_in_windows(tokens, find_windows(doc, ranges, self.around))
        return [*self.token.build_spans(doc, prediction), *_overlapping(found, ranges)]

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The result of ``propose`` for each document."""
        return [list(self.propose(doc, first_pass)) for doc, first_pass in asked]


def _overlapping(spans: Sequence[Span], ranges: Sequence[Range]) -> Iterator[Span]:
    """The spans that share a character with a range; both are disjoint and in order."""
    at = 0
    for span in spans:
        while at < len(ranges) and ranges[at][1] <= span.start:
            at += 1
        if at < len(ranges) and ranges[at][0] < span.end:
            yield span


def _batch_windows(windows: Sequence[Range]) -> Iterator[list[Range]]:
    batch: list[Range] = []
    size = 0
    for window in windows:
        if batch and size + window[1] - window[0] > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(window)
        size += window[1] - window[0]
    if batch:
        yield batch
