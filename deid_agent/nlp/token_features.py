"""Features of tokens: named sequences of short strings, one string for each token.

``""`` means that a feature is absent. Features depend only on the document and the spans of the first pass (the
recognizers that run before the model), so training and tagging see the same values. Time is linear in the text.
Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3, Ferrandez 2012 section 3.2.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from deid_agent import core
from deid_agent.measure import EMPTY_GRAMMAR, Grammar, Mark, Veto, find_covering
from deid_agent.model import ConfigurationError, Document, Span
from deid_agent.nlp.labels import Schema, encode_labels, find_sources
from deid_agent.nlp.line_features import (
    find_gaps,
    find_line_cases,
    find_line_labels,
    find_line_positions,
    find_paragraph_starts,
    find_previous_words,
    find_sections,
    find_sentences,
    find_zones,
)
from deid_agent.nlp.word_features import (
    PREVIOUS_TAGS_FEATURES,
    PREVIOUS_WORD_FEATURES,
    SENSE_FEATURES,
    TAG_FEATURES,
    WORD_FEATURES,
)
from deid_agent.rules import NO_SENSE, Dictionaries, Sense, Tags, list_of_tag

FeatureValues = Sequence[str]
"""The value of one feature for each unit, in order."""
Ints = NDArray[np.int64]
IN_SOFT_MARK, IN_HARD_MARK = 1, 2
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class IndexedFeature:
    """A feature whose values are stored once: unit ``i`` has the value ``values[index[i]]``.

    ``index`` has the shape ``[unit]``.
    """

    values: FeatureValues = field(repr=False)
    index: Ints

    def expand(self) -> list[str]:
        """The value of every unit."""
        return [self.values[at] for at in self.index.tolist()]


class TextView(Protocol):
    """A text in the core, with its tokens and what the first pass found."""

    def paragraph_starts(self) -> list[int]: ...
    def split(self, most: int) -> list[int]: ...
    def marked(self) -> bytes: ...


@dataclass
class TokenFeatures:
    """The tokens of one document and the features that models read; intermediate results are computed once.

    With a ``cache`` computed features are kept, so that a second model can read them. Training holds many documents and
    goes without a cache.
    """

    doc: Document
    first_pass: Sequence[Span]
    dictionaries: Dictionaries
    cache: dict[str, FeatureValues] | None = field(default=None, repr=False)
    grammar: Grammar = EMPTY_GRAMMAR
    _indexed: dict[str, IndexedFeature] = field(default_factory=dict, init=False, repr=False)
    _in_core: core.Prepared = field(default_factory=core.Prepared, init=False, repr=False, compare=False)

    @cached_property
    def words(self) -> list[str]:
        """The text of each token."""
        return list(self.doc.pieces(self.doc.tokens))

    @cached_property
    def lower(self) -> list[str]:
        """The text of each token in lower case."""
        return [word.lower() for word in self.words]

    @cached_property
    def lines(self) -> list[int]:
        """The number of the line of each token."""
        return cast(list[int], self._line_index.tolist())

    @cached_property
    def labels(self) -> list[str]:
        """The label that the first pass gives to each token."""
        return encode_labels(self.first_pass, self.doc.tokens, Schema.BIO)

    @cached_property
    def tags(self) -> tuple[Tags, ...]:
        """The lists of each token."""
        return self.dictionaries.tag_tokens(self.doc)

    @cached_property
    def distinct_words(self) -> tuple[Sequence[str], Ints]:
        """The distinct words, and the index of the word of each token."""
        return _index(self.words)

    @cached_property
    def distinct_tags(self) -> tuple[Sequence[Tags], Ints]:
        """The distinct sets of lists, and the index of the set of each token."""
        return _index(self.tags)

    @cached_property
    def distinct_senses(self) -> list[Sense]:
        """The sense of each distinct word."""
        known = self.dictionaries.senses.get
        return [known(word.lower(), NO_SENSE) for word in self.distinct_words[0]]

    @cached_property
    def marks(self) -> list[Mark | None]:
        """For each token the mark of the grammar that covers it."""
        return list(find_covering(self.grammar.find(self.doc), self.doc.tokens))

    def marked(self) -> NDArray[np.uint8]:
        """For each token ``IN_HARD_MARK``, ``IN_SOFT_MARK``, or 0 if no mark covers it, ``[token]``."""
        if self.doc.tokens and (view := self.in_core()) is not None:
            return np.frombuffer(view.marked(), np.uint8)
        codes = (0 if m is None else IN_HARD_MARK if m.veto is Veto.HARD else IN_SOFT_MARK for m in self.marks)
        return np.fromiter(codes, np.uint8, len(self.marks))

    @cached_property
    def _line_index(self) -> Ints:
        starts, firsts = [a for a, _ in self.doc.lines], [a for a, _ in self.doc.tokens]
        return np.searchsorted(starts, firsts, side="right") - 1

    @cached_property
    def _previous(self) -> Ints:
        return find_previous_words(self.words, self.lines)

    def in_core(self) -> TextView | None:
        """The text in the core; None if the core is not in use or the text is not ASCII."""
        if not core.is_used() or not self.doc.text.isascii():
            return None
        return self._in_core.get(self._build_view)

    def _build_view(self) -> TextView:
        spans = [(s.start, s.end, s.type.value, str(s.source)) for s in self.first_pass]
        marks = [(m.start, m.end, m.kind.value, m.veto is Veto.HARD) for m in self.grammar.find(self.doc)]
        found: TextView = core.current().TextView(self.doc.text, spans, marks, _find_speakers(self.doc), self.tags)
        return found

    def feature(self, name: str) -> FeatureValues:
        """The values of the feature ``name``. Raises ``ConfigurationError`` if there is no such feature."""
        if self.cache is not None and name in self.cache:
            return self.cache[name]
        if name not in TOKEN_FEATURES:
            raise ConfigurationError(f"unknown feature {name}: features are {', '.join(TOKEN_FEATURES)}")
        values = TOKEN_FEATURES[name](self)
        if self.cache is not None:
            self.cache[name] = values
        return values

    def indexed_feature(self, name: str) -> FeatureValues | IndexedFeature:
        """The same values as ``feature``, indexed if cached or dependent on the word, its lists or its line alone."""
        if name in self._indexed:
            return self._indexed[name]
        found: FeatureValues | IndexedFeature
        if name in WORD_FEATURES:
            found = _apply(WORD_FEATURES[name], *self.distinct_words)
        elif name in SENSE_FEATURES:
            found = _apply(SENSE_FEATURES[name], self.distinct_senses, self.distinct_words[1])
        elif name in TAG_FEATURES:
            found = _apply(TAG_FEATURES[name], *self.distinct_tags)
        elif name in PREVIOUS_WORD_FEATURES:
            words, index = self.distinct_words
            found = _apply(PREVIOUS_WORD_FEATURES[name], words, self.index_before(index))
        elif name in PREVIOUS_TAGS_FEATURES:
            tags, index = self.distinct_tags
            found = _apply(PREVIOUS_TAGS_FEATURES[name], tags, self.index_before(index))
        elif name in _LINE_FEATURES:
            found = IndexedFeature(_LINE_FEATURES[name](self.doc), self._line_index)
        elif self.cache is None:
            return self.feature(name)
        else:
            found = IndexedFeature(*_index(self.feature(name)))
        if self.cache is not None:
            self._indexed[name] = found
        return found

    def index_before(self, index: Ints) -> Ints:
        """``index`` of the last word before each token in its line, without punctuation; -1 if there is none."""
        return np.where(self._previous < 0, -1, index[self._previous]) if len(index) else index

    def paragraph_starts(self) -> list[int]:
        """The indices of tokens that follow an empty line. No annotation crosses one, so chains may be cut there."""
        view = self.in_core()
        return find_paragraph_starts(self.doc) if view is None else view.paragraph_starts()


def _index(units: Sequence[H]) -> tuple[Sequence[H], Ints]:
    """The distinct units, and for each unit the index of its value among them."""
    positions: defaultdict[H, int] = defaultdict()
    positions.default_factory = positions.__len__
    index = np.fromiter(map(positions.__getitem__, units), np.int64, len(units))
    return tuple(positions), index


def _apply(value_of: Callable[[T], str], units: Sequence[T], index: Ints) -> IndexedFeature:
    """``value_of`` of each unit; index -1 has no value."""
    return IndexedFeature([*map(value_of, units), ""], index)


_LINE_FEATURES: Mapping[str, Callable[[Document], Sequence[str]]] = MappingProxyType(
    {"section": find_sections, "case": find_line_cases, "zone": find_zones}
)

# Features of the document and the first pass

_SIZES = (3, 8, 20, 60)
_CUE = "cue-"
_CUE_REACH = 8  # the greatest distance from a cue, in tokens


def _size_classes(tokens: TokenFeatures) -> FeatureValues:
    """The length class of a short text: a field of a message is no note, and its first line is no letterhead."""
    step = bisect_left(_SIZES, len(tokens.words))
    return [f"{step}" if step < len(_SIZES) else ""] * len(tokens.words)


def _types_elsewhere(tokens: TokenFeatures) -> FeatureValues:
    """The types that the first pass gives to other occurrences of the same word."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(tokens.lower, tokens.labels, strict=True):
        if label != "O" and len(word) > 2 and word.isalpha():
            seen[word][label[2:]] += 1
    found = [""] * len(tokens.words)
    for at, word in enumerate(tokens.lower):
        if word in seen:
            own = tokens.labels[at][2:]
            found[at] = "/".join(sorted(kind for kind, times in seen[word].items() if times > (own == kind)))
    return found


def _spellings(tokens: TokenFeatures) -> FeatureValues:
    """How often a word occurs in the document, at most 3, after ``l`` if it also occurs in lower case."""
    counts = Counter(tokens.words)
    found = {}
    for word, times in counts.items():
        low = word.lower()
        also = "l" if word != low and low in counts else ""
        found[word] = f"{also}{min(times, 3)}" if word[0].isalpha() else ""
    return [found[word] for word in tokens.words]


@lru_cache(maxsize=4_096)
def cue_kinds(tags: Tags) -> str:
    """The kinds of context that a word is a cue for: kin, staff, site, work, home, patient."""
    return "+".join(sorted({list_of_tag(tag)[len(_CUE) :] for tag in tags if tag.startswith(_CUE)}))


_SPEAKER = re.compile(
    r"(?m)^[ \t]*(?:\[?[0-9][0-9:./ -]{2,17}(?:[AaPp]\.?[Mm]\.?)?\]?[ \t]{1,3})?([^\W\d_][\w.'’-]{0,15}):(?!\d)"
)


def _find_speakers(doc: Document) -> tuple[list[int], set[str]] | None:
    """Where words begin lines before a colon, and the words in lower case; None unless a word begins two lines."""
    found = [(one.start(1), one[1].lower()) for one in _SPEAKER.finditer(doc.text)]
    again = {word for word, times in Counter(word for _, word in found).items() if times > 1}
    return ([start for start, word in found if word in again], again) if again else None


def _speakers(tokens: TokenFeatures) -> FeatureValues:
    """Words that begin two lines before a colon, as speakers of a chat do: ``turn`` there, ``name`` elsewhere."""
    speakers = _find_speakers(tokens.doc)
    if speakers is None:
        return [""] * len(tokens.words)
    turns = frozenset(speakers[0])
    return [
        "turn" if start in turns else "name" if word in speakers[1] else ""
        for (start, _), word in zip(tokens.doc.tokens, tokens.lower, strict=True)
    ]


def _nearest_cues(tokens: TokenFeatures, step: int) -> FeatureValues:
    """The nearest cue in the line with its distance class; ``step`` is 1 for cues to the left, -1 to the right."""
    cues, size = _map_distinct(tokens.distinct_tags, cue_kinds), len(tokens.words)
    found = [""] * size
    for at in [at for at, cue in enumerate(cues) if cue]:
        cue, line = cues[at], tokens.lines[at]
        for distance in range(1, _CUE_REACH + 1):
            place = at + step * distance
            if not 0 <= place < size or tokens.lines[place] != line:
                break
            found[place] = f"{cue}{1 if distance == 1 else 2 if distance < 4 else 3}"
            if cues[place]:
                break
    return found


def _measures(tokens: TokenFeatures) -> FeatureValues:
    """The kind of the mark that covers a token."""
    return ["" if mark is None else mark.kind.value for mark in tokens.marks]


def _measure_edges(tokens: TokenFeatures) -> FeatureValues:
    """The position of a token in its mark: B, I, E or S."""
    found = []
    for (start, end), mark in zip(tokens.doc.tokens, tokens.marks, strict=True):
        if mark is None:
            found.append("")
        else:
            first, last = start <= mark.start, end >= mark.end
            found.append("S" if first and last else "B" if first else "E" if last else "I")
    return found


# All features by name


def _map_distinct(distinct: tuple[Sequence[T], Ints], value_of: Callable[[T], str]) -> FeatureValues:
    return IndexedFeature([value_of(unit) for unit in distinct[0]], distinct[1]).expand()


def _expanded(name: str) -> Callable[[TokenFeatures], FeatureValues]:
    def expand(tokens: TokenFeatures) -> FeatureValues:
        feature = tokens.indexed_feature(name)
        return feature.expand() if isinstance(feature, IndexedFeature) else feature

    return expand


TOKEN_FEATURES: Mapping[str, Callable[[TokenFeatures], FeatureValues]] = MappingProxyType(
    {
        **{name: _expanded(name) for name in WORD_FEATURES},
        "gap": lambda tokens: find_gaps(tokens.doc),
        "rule": lambda tokens: tokens.labels,
        "source": lambda tokens: find_sources(tokens.first_pass, tokens.doc.tokens),
        "elsewhere": _types_elsewhere,
        "writing": _spellings,
        **{name: _expanded(name) for name in TAG_FEATURES},
        **{name: _expanded(name) for name in SENSE_FEATURES},
        **{name: _expanded(name) for name in (*PREVIOUS_WORD_FEATURES, *PREVIOUS_TAGS_FEATURES)},
        "cue_left": lambda tokens: _nearest_cues(tokens, 1),
        "cue_right": lambda tokens: _nearest_cues(tokens, -1),
        "label": lambda tokens: find_line_labels(tokens.doc, tokens.lower, tokens.lines),
        **{name: _expanded(name) for name in _LINE_FEATURES},
        "line_place": lambda tokens: find_line_positions(tokens.lines),
        "sentence": lambda tokens: find_sentences(tokens.words, tokens.lines),
        "size": _size_classes,
        "speaker": _speakers,
        "measure": _measures,
        "measure_edge": _measure_edges,
    }
)
"""Every feature by name. Model manifests contain these names: one may be added, none may change its meaning."""
