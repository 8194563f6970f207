"""Features of characters for the character model: those of the character itself, of its neighbours and of its token.

A character belongs to the token that contains it; a blank belongs to the token that follows. Token features are
computed once for each token and shared by its characters. ``word_b`` and ``word_a`` are the features of the token
before and after. Time is linear in the text. Source: Liu 2015 section 3.2.3.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from deid_agent.model import Document, Range, Span
from deid_agent.nlp.labels import Schema, encode_labels
from deid_agent.nlp.templates import FeatureExtractor, combine_at_units, combine_values, parse_template, take_units
from deid_agent.nlp.token_features import FeatureValues, IndexedFeature, Ints, TokenFeatures

MAX_WINDOW_CHARACTERS = 1000
"""The characters of one window; a longer line is divided."""
_TOKEN_END_REACH = 4  # the greatest distance of a character from the ends of its token that is counted
_BLANK_REACH = 20  # how many characters a window may grow to end at a blank
_AFTER, _BEFORE = "_a", "_b"

_GROUPS = ("person", "place", "people", "body", "plain")

CHARACTER_FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "character": (
            *(f"char[{i}]" for i in range(-5, 6)),
            *(f"char[{i}] char[{i + 1}]" for i in range(-3, 3)),
            *(f"char[{i}] char[{i + 1}] char[{i + 2}]" for i in range(-3, 2)),
        ),
        "letter": (
            *(f"letter[{i}]" for i in range(-5, 6)),
            *(f"letter[{i}] letter[{i + 1}]" for i in range(-5, 5)),
            *(f"letter[{i}] letter[{i + 1}] letter[{i + 2}]" for i in range(-5, 4)),
        ),
        "class": (
            *(f"class[{i}]" for i in (-2, -1, 0, 1, 2)),
            *("class[-1] class[0]", "class[0] class[1]", "class[-1] class[0] class[1]"),
            *("class[-2] class[-1] class[0]", "class[0] class[1] class[2]", "spot[0]"),
        ),
        "token": (
            *("word[0]", "word_b[0]", "word_a[0]", "word[0] spot[0]", "word_b[0] word[0]", "word[0] word_a[0]"),
            *("shape_b[0] shape[0]", "shape[0] shape_a[0]", "shape_b[0] shape[0] shape_a[0]", "shape[0] spot[0]"),
            *("word_b[0] shape[0]", "shape[0] word_a[0]", "p3[0]", "s3[0]", "length[0] shape[0]"),
        ),
        "rule": (
            *(f"rule[{i}]" for i in (-5, -1, 0, 1, 5)),
            *("source[0]", "rule[-1] rule[0]", "rule[0] rule[1]", "rule[0] shape[0]"),
        ),
        "second": ("elsewhere[0]", "writing[0]"),
        "dictionary": (
            *(f"{group}[0]" for group in _GROUPS),
            *(f"{group}[0] shape[0]" for group in _GROUPS),
            *("person_b[0]", "person_a[0]", "place_b[0]", "place_a[0]", "body_b[0]", "body_a[0]"),
        ),
        "section": ("label[0]", "label[0] shape[0]", "section[0]"),
        "position": ("case[0] shape[0]", "zone[0] shape[0]"),
    }
)
"""The families of character models. ``letter`` is the bag of characters of Liu 2015: as written, in a window of 5.

``character`` is smaller: it reads no letter case, and fewer combinations.
"""


@dataclass(slots=True)
class CharacterFeatures:
    """The features of the characters of one document, which has at least one token.

    ``token_index`` has the index of the token that each character belongs to, ``[character]``.
    """

    tokens: TokenFeatures
    token_index: Ints = field(init=False, repr=False)
    _codes: NDArray[np.uint32] = field(init=False, repr=False)
    _features: dict[str, IndexedFeature] = field(init=False, repr=False)
    _token_features: dict[str, FeatureValues] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        doc = self.tokens.doc
        ends = np.array([end for _, end in doc.tokens], np.int64)
        self.token_index = np.minimum(np.searchsorted(ends, np.arange(len(doc)), side="right"), len(ends) - 1)
        self._codes = np.frombuffer(doc.text.encode("utf-32-le", "surrogatepass"), np.uint32)
        self._features, self._token_features = {}, {}

    def feature(self, name: str) -> IndexedFeature:
        """The feature ``name``, computed once. Raises ``ConfigurationError`` if there is no such feature."""
        if name not in self._features:
            own = _CHARACTER_FEATURES.get(name)
            self._features[name] = own(self) if own is not None else self._token_feature(name)
        return self._features[name]

    def indexed_feature(self, name: str) -> IndexedFeature:
        """The same as ``feature``: a character feature is always indexed."""
        return self.feature(name)

    def map_characters(self, value_of: Callable[[str], str]) -> IndexedFeature:
        """``value_of`` applied to each character."""
        codes, index = np.unique(self._codes, return_inverse=True)
        return IndexedFeature([value_of(chr(code)) for code in codes.tolist()], index)

    def _token_feature(self, name: str) -> IndexedFeature:
        """A feature of the character's token, or of the token before or after; ``""`` beyond the ends."""
        move = {_BEFORE: -1, _AFTER: 1}.get(name[-2:], 0)
        name = name[:-2] if move else name
        values = self._token_features.get(name)
        if values is None:
            values = self._token_features[name] = self.tokens.feature(name)
        return IndexedFeature([*values, ""], self.token_index + move)  # both -1 and the token count select the last


def _fold_character(char: str) -> str:
    """``char`` in lower case; all digits, all control characters and all half surrogates become one character each."""
    if char.isdigit():
        return "0"
    if char in "\r\n":
        return "\n"
    if char.isspace():
        return " "
    if not char.isprintable():
        return "\x00"
    low = char.lower()
    return low if len(low) == 1 else char


def _plain_character(char: str) -> str:
    """``char`` as written; white space is a blank, and characters that have no glyph are one character."""
    return " " if char.isspace() else char if char.isprintable() else "\x00"


def _character_class(char: str) -> str:
    if char.isalpha():
        return "X" if char.isupper() else "x"
    found = _fold_character(char)
    return found if found in "0\n \x00" or char.isascii() else "?"


def _positions_in_token(characters: CharacterFeatures) -> IndexedFeature:
    """The position of a character in its token, counted from both ends; ``-`` between tokens."""
    tokens = np.array(characters.tokens.doc.tokens, np.int64)[characters.token_index]
    here = np.arange(len(characters.token_index))
    before, after = here - tokens[:, 0], tokens[:, 1] - 1 - here
    wide = _TOKEN_END_REACH + 1
    index = np.minimum(before, _TOKEN_END_REACH) * wide + np.minimum(after, _TOKEN_END_REACH)
    values = [f"{a}/{b}" for a in range(wide) for b in range(wide)]
    return IndexedFeature([*values, "-"], np.where((before >= 0) & (after >= 0), index, len(values)))


def _first_pass_labels(characters: CharacterFeatures) -> IndexedFeature:
    """The spans of the first pass as BIOES labels of characters; ``O`` outside is a value too."""
    names: dict[str, int] = {"O": 0}
    index = np.zeros(len(characters.token_index), np.int64)
    for span in characters.tokens.first_pass:
        inside, begin, end, single = (names.setdefault(f"{p}-{span.type}", len(names)) for p in "IBES")
        index[span.start : span.end] = inside
        index[span.start], index[span.end - 1] = begin, end
        if len(span) == 1:
            index[span.start] = single
    return IndexedFeature(list(names), index)


_CHARACTER_FEATURES: Mapping[str, Callable[[CharacterFeatures], IndexedFeature]] = MappingProxyType(
    {
        "char": lambda characters: characters.map_characters(_fold_character),
        "letter": lambda characters: characters.map_characters(_plain_character),
        "class": lambda characters: characters.map_characters(_character_class),
        "spot": _positions_in_token,
        "rule": _first_pass_labels,
    }
)


@dataclass(frozen=True, slots=True)
class SelectedCharacters:
    """The template numbers of some characters of a document, computed once for each token if possible.

    ``units`` are the positions of the characters. ``heads`` has one of them for each token, and
    ``head_index`` the index into ``heads`` for each unit.
    """

    extractor: FeatureExtractor
    characters: CharacterFeatures
    units: Ints
    heads: Ints = field(init=False)
    head_index: Ints = field(init=False)
    _unit_values: dict[str, Ints] = field(init=False, default_factory=dict)
    _head_values: dict[str, Ints] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        _, first, index = np.unique(self.characters.token_index[self.units], return_index=True, return_inverse=True)
        object.__setattr__(self, "heads", self.units[first])
        object.__setattr__(self, "head_index", index)

    def extract(self, template: str) -> tuple[Ints, bool]:
        """The numbers of ``template``, and whether they are those of ``heads``: ``[head]``, else ``[unit]``.

        They are numbered as by ``FeatureExtractor.extract``.
        """
        parts = parse_template(template)
        if all(_is_token_feature(name, offset) for name, offset in parts):
            return combine_values([self._encode_heads(name) for name, _ in parts]), True
        return combine_values([self._encode_units(name, offset) for name, offset in parts]), False

    def _encode_heads(self, name: str) -> Ints:
        if name not in self._head_values:
            feature = self.characters.feature(name)
            values = [feature.values[at] for at in feature.index[self.heads].tolist()]
            self._head_values[name] = self.extractor.encode_values(name, values)
        return self._head_values[name]

    def _encode_units(self, name: str, offset: int) -> Ints:
        if _is_token_feature(name, offset):
            return self._encode_heads(name)[self.head_index]
        if name not in self._unit_values:
            self._unit_values[name] = self.extractor.encode_values(name, self.characters.feature(name))
        return take_units(self._unit_values[name], self.units + offset)


def _is_token_feature(name: str, offset: int) -> bool:
    """Whether all characters of a token have the same value."""
    return name not in _CHARACTER_FEATURES and offset == 0


def find_windows(doc: Document, ranges: Sequence[Range], around: int) -> list[Range]:
    """Disjoint parts of lines, in order, that contain ``ranges`` with ``around`` characters on both sides.

    A window ends at a blank if there is one near, and has at most ``MAX_WINDOW_CHARACTERS`` characters and no line end.
    """
    text = doc.text
    merged: list[list[int]] = []
    starts = [start for start, _ in doc.lines]
    for start, end in ranges:
        first, last = _line_at(doc, starts, start)
        a, b = max(first, start - around), min(last, max(end, start + 1) + around)
        while a > first and start - a < around + _BLANK_REACH and not text[a - 1].isspace():
            a -= 1
        while b < last and b - end < around + _BLANK_REACH and not text[b].isspace():
            b += 1
        if merged and a <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], b)
        elif a < b:
            merged.append([a, b])
    return [window for a, b in merged for window in _divide(a, b)]


def line_windows(doc: Document) -> list[Range]:
    """All lines as windows, without their line ends."""
    return [window for line in doc.lines for window in _divide(*_strip_line_end(doc, line))]


def _line_at(doc: Document, starts: Sequence[int], at: int) -> Range:
    return _strip_line_end(doc, doc.lines[bisect_right(starts, at) - 1])


def _strip_line_end(doc: Document, line: Range) -> Range:
    start, end = line
    while end > start and doc.text[end - 1] in "\r\n":
        end -= 1
    return start, end


def _divide(start: int, end: int) -> Iterator[Range]:
    return ((at, min(end, at + MAX_WINDOW_CHARACTERS)) for at in range(start, end, MAX_WINDOW_CHARACTERS))


def build_character_examples(
    documents: Iterable[tuple[TokenFeatures, Sequence[Span]]], extractor: FeatureExtractor, *, around: int, share: int
) -> Iterator[tuple[list[Ints], list[str]]]:
    """Training chains of the character model: the numbers of each template, ``[character]``, and the labels.

    ``documents`` are tokens with their annotations. The chains are the windows around annotations and first-pass spans,
    and every ``share``-th line besides. Most other text is plainly not PHI and would only cost time; tagging reads the
    same windows.
    """
    count = 0
    for tokens, gold in documents:
        doc = tokens.doc
        if not doc.tokens:
            continue
        ranges = sorted({(s.start, s.end) for s in (*gold, *tokens.first_pass)})
        chosen = set(find_windows(doc, ranges, around))
        for line in line_windows(doc):
            count += 1
            if count % share == 0 and not any(a < line[1] and line[0] < b for a, b in chosen):
                chosen.add(line)
        encoded = extractor.encode_features(CharacterFeatures(tokens))
        for start, end in sorted(chosen):
            units = np.arange(start, end)
            labels = encode_labels(gold, [(at, at + 1) for at in range(start, end)], Schema.EDGES)
            yield [combine_at_units(t, encoded, units) for t in extractor.templates], labels
