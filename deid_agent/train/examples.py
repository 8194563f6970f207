"""Annotated notes as training examples: documents with features and labels, and padded batches for the network.

JAX compiles a program for each shape of a batch. The lengths of sequences and the number of distinct words of a batch
are therefore rounded up to few values.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deid_agent.eval import Note
from deid_agent.measure import EMPTY_GRAMMAR, Grammar, load_grammar
from deid_agent.model import Document, PhiType, Span
from deid_agent.nlp import (
    MAX_SEQUENCE_TOKENS,
    MAX_WORD_CHARACTERS,
    UNKNOWN,
    EncodedTokens,
    Floats,
    InputEncoder,
    Ints,
    Schema,
    TokenFeatures,
    encode_labels,
    split_paragraphs,
)
from deid_agent.recognize import Profile, Recognizer, Resolver, Tagger, assemble_recognizers, load_rules
from deid_agent.rules import Dictionaries, Ruleset
from deid_agent.train.augment import Augmenter

_Int32 = NDArray[np.int32]


class BatchShapes(NamedTuple):
    """The shapes that batches may have: the lengths of sequences, and the step of the number of distinct words.

    Few shapes mean few compilations and more padding.
    """

    lengths: tuple[int, ...] = (16, 32, 48, 64, 96, MAX_SEQUENCE_TOKENS)
    words: int = 512


MANY_SHAPES = BatchShapes()
FEW_SHAPES = BatchShapes((32, MAX_SEQUENCE_TOKENS), 1024)
"""For a short training, most of whose time would be compilation."""


@dataclass(frozen=True, slots=True)
class Example:
    """One note as a model sees it. ``copy`` is 0 for a note of the corpus, else the number of the synthetic copy."""

    note: Note
    tokens: TokenFeatures = field(repr=False)
    copy: int = 0

    def gold(self, types: Iterable[PhiType] = ()) -> list[Span]:
        """The annotations of ``types``; without types all annotations."""
        wanted = frozenset(types) or frozenset(PhiType)
        return [span for span in self.note.annotated.spans if span.type in wanted]

    def labels(self, schema: Schema, types: Iterable[PhiType] = ()) -> list[str]:
        """The label of each token, for annotations of ``types``."""
        return encode_labels(self.gold(types), self.tokens.doc.tokens, schema)


def draw_share(purpose: str, patient: str) -> float:
    """A number from 0 to 1 that depends on the purpose and the patient only, not on the other patients."""
    return int.from_bytes(hashlib.sha256(f"{purpose}:{patient}".encode()).digest()[:4]) / 2**32


@dataclass(frozen=True, slots=True)
class ExampleReader:
    """Makes examples with the recognizers whose spans the model sees, their resolver, and the dictionaries."""

    recognizers: tuple[Recognizer, ...]
    resolver: Resolver
    dictionaries: Dictionaries = field(repr=False)
    grammar: Grammar = EMPTY_GRAMMAR

    @staticmethod
    def load(rules: Path, recognizers: str) -> "ExampleReader":
        """A reader with the recognizer set ``recognizers``, or with none if it is ``""``.

        Raises ``ConfigurationError`` for an invalid rule or an unknown set.
        """
        loaded: Ruleset = load_rules(rules)
        chosen = assemble_recognizers(loaded, recognizers) if recognizers else ()
        grammar = load_grammar(rules)
        return ExampleReader(
            chosen, Resolver(Profile.RECALL, loaded, grammar=grammar), Dictionaries.load(rules), grammar
        )

    def first_pass(self, doc: Document) -> list[Span]:
        """The spans of the recognizers that a model sees when a message is processed."""
        return Tagger(self.recognizers, self.resolver).first_pass(doc)

    def example(self, note: Note, copy: int = 0) -> Example:
        """``note`` as an example, without facts about the patient: a model learns from text only."""
        doc = Document(note.annotated.text)
        return Example(note, TokenFeatures(doc, self.first_pass(doc), self.dictionaries, grammar=self.grammar), copy)

    def examples(self, notes: Iterable[Note], augmenter: Augmenter, times: int) -> Iterator[Example]:
        """Each note, followed by ``times`` synthetic copies of it."""
        for note in notes:
            yield self.example(note)
            for number in range(1, times + 1):
                if (new := augmenter.make_copy(note, number)) is not note:
                    yield self.example(new, number)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedNote:
    """A note as numbers. ``labels`` ``[token]`` are the indices of the labels, ``sizes`` those of the sequences."""

    tokens: EncodedTokens = field(repr=False)
    labels: Ints = field(repr=False)
    sizes: tuple[int, ...]


class SequenceRange(NamedTuple):
    """A sequence of a note: the index of the note, its first token, its size. A size of 0 is a row of padding."""

    note: int
    first: int
    size: int


class TrainingBatch(NamedTuple):
    """Sequences of one padded length, with each distinct word once.

    ``characters`` ``[word, position]`` and ``learned`` ``[word]`` are rows of embedding tables, ``published``
    ``[word, dimension]`` the published vectors. ``word_index``, ``labels`` and ``mask`` are ``[sequence, token]``; the
    mask is 1 for a token and 0 for padding. ``features`` is ``[sequence, token, feature]``.
    """

    characters: _Int32
    learned: _Int32
    published: Floats
    word_index: _Int32
    features: _Int32
    labels: _Int32
    mask: Floats


def encode_note(
    example: Example, encoder: InputEncoder, label_numbers: dict[str, int], types: Sequence[PhiType]
) -> EncodedNote:
    """The example as numbers; ``label_numbers`` has the index of each label."""
    labels = np.array([label_numbers[label] for label in example.labels(Schema.IO, types)], np.int64)
    return EncodedNote(encoder.encode([example.tokens]), labels, tuple(split_paragraphs(example.tokens)))


def list_sequences(notes: Sequence[EncodedNote]) -> list[SequenceRange]:
    """Every sequence of the notes, in order."""
    found = []
    for at, note in enumerate(notes):
        first = 0
        for size in note.sizes:
            found.append(SequenceRange(at, first, size))
            first += size
    return found


def plan_batches(
    sequences: Sequence[SequenceRange], tokens: int, draw: np.random.Generator, shapes: BatchShapes = MANY_SHAPES
) -> Iterator[tuple[int, list[SequenceRange]]]:
    """The batches of one epoch in random order: the padded length and the sequences of each.

    A batch has at most ``tokens`` tokens with padding, or one sequence.
    """
    batches: list[tuple[int, list[SequenceRange]]] = []
    filling: dict[int, list[SequenceRange]] = {length: [] for length in shapes.lengths}
    for at in draw.permutation(len(sequences)).tolist():
        length = next(one for one in shapes.lengths if one >= sequences[at].size)
        filling[length].append(sequences[at])
        if len(filling[length]) == _batch_rows(length, tokens):
            batches.append((length, filling[length]))
            filling[length] = []
    batches += [(length, left) for length, left in filling.items() if left]
    for at in draw.permutation(len(batches)).tolist():
        length, chosen = batches[at]
        yield length, chosen + [SequenceRange(0, 0, 0)] * (_batch_rows(length, tokens) - len(chosen))


def _batch_rows(length: int, tokens: int) -> int:
    return max(1, tokens // length)


def build_batch(
    notes: Sequence[EncodedNote],
    length: int,
    sequences: Sequence[SequenceRange],
    encoder: InputEncoder,
    unknown_share: float,
    draw: np.random.Generator,
    shapes: BatchShapes = MANY_SHAPES,
) -> TrainingBatch:
    """``sequences`` padded to ``length`` tokens.

    A random share ``unknown_share`` of the words has the learned vector of an unknown word, so that the network learns
    to handle unknown words.
    """
    wide = notes[0].tokens.features.shape[1]
    shape = (len(sequences), length)
    word_index, labels = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    features, mask = np.zeros((*shape, wide), np.int32), np.zeros(shape, np.float32)
    characters, learned, published, offset = [], [], [], 0
    for row, (at, first, size) in enumerate(sequences):
        if not size:
            continue
        one, own = notes[at].tokens, slice(first, first + size)
        distinct, positions = np.unique(one.word_index[own], return_inverse=True)
        word_index[row, :size], offset = positions + offset, offset + len(distinct)
        features[row, :size], labels[row, :size], mask[row, :size] = one.features[own], notes[at].labels[own], 1
        spelled = np.zeros((len(distinct), MAX_WORD_CHARACTERS), np.int32)
        spelled[:, : one.characters.shape[1]] = one.characters[distinct]
        characters.append(spelled)
        learned.append(one.learned[distinct])
        published.append(one.published[distinct])
    # A word of several sequences is spelled once: most of the cost of the character layer is in spelling.
    words = np.concatenate(
        [np.concatenate(characters), np.stack([np.concatenate(learned), np.concatenate(published)], axis=1)], axis=1
    )
    once, positions = np.unique(words, axis=0, return_inverse=True)
    made = np.zeros((-(-len(once) // shapes.words) * shapes.words, words.shape[1]), np.int32)
    made[: len(once)] = once
    made[:, -2] = np.where(draw.random(len(made)) < unknown_share, UNKNOWN, made[:, -2])
    word_index = positions.reshape(-1)[word_index].astype(np.int32)
    known = encoder.vectors
    vectors = np.zeros((len(made), 1), np.float32) if known is None else known.take(made[:, -1].astype(np.int64))
    return TrainingBatch(made[:, :-2], made[:, -2], vectors, word_index, features, labels, mask)
