"""What a token model sees of each token: named columns of short strings, one string for each token.

``""`` says that a column has nothing for a token. Columns are functions of the document and the first pass alone,
so that training and tagging see the same. Time is linear in the text.
Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3, Ferrandez 2012 section 3.2.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf import lines
from deid_agent.crf.labels import Schema, encode
from deid_agent.dictionary import Dictionaries, Tags, base
from deid_agent.errors import ConfigurationError
from deid_agent.senses import NO_SENSE
from deid_agent.spans import Span
from deid_agent.text import Document

Column = Sequence[str]
Ints = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A column whose units share values: the value of unit ``i`` is ``values[at[i]]``."""

    values: Column = field(repr=False)
    at: Ints

    def whole(self) -> list[str]:
        """The value of every unit."""
        return [self.values[at] for at in self.at.tolist()]


_RUN = re.compile(r"(.)\1+")
_DIGIT = re.compile(r"\d")


@dataclass(slots=True)
class View:
    """One document as columns see it; what several of them need is made once.

    With ``kept`` columns stay there for a second model to read; training, which holds many views, goes without.
    """

    doc: Document
    first: Sequence[Span]
    dictionaries: Dictionaries
    kept: dict[str, Column] | None = field(default=None, repr=False)
    words: list[str] = field(init=False, repr=False)
    lower: list[str] = field(init=False, repr=False)
    line: list[int] = field(init=False, repr=False)
    labels: list[str] = field(init=False, repr=False)
    tags: Sequence[Tags] = field(init=False, repr=False)
    kinds: tuple[Sequence[str], Ints] = field(init=False, repr=False)
    meanings: tuple[Sequence[Tags], Ints] = field(init=False, repr=False)
    last: Ints | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        text, tokens = self.doc.text, self.doc.tokens
        self.words = [text[a:b] for a, b in tokens]
        self.lower = [word.lower() for word in self.words]
        starts = [a for a, _ in self.doc.lines]
        self.line = [bisect_right(starts, a) - 1 for a, _ in tokens]
        self.labels = encode(self.first, tokens, Schema.BIO)
        self.tags = self.dictionaries.tags(self.doc)
        self.kinds, self.meanings = _kinds(self.words), _kinds(self.tags)

    def column(self, name: str) -> Column:
        """The column of that name. Raises ``ConfigurationError`` where there is none."""
        if self.kept is not None and name in self.kept:
            return self.kept[name]
        if name not in COLUMNS:
            raise ConfigurationError(f"unknown column {name}: columns are {', '.join(COLUMNS)}")
        made = COLUMNS[name](self)
        if self.kept is not None:
            self.kept[name] = made
        return made

    def _senses(self, level: int) -> list[str]:
        known = self.dictionaries.senses.get
        return [known(word.lower(), NO_SENSE)[level] for word in self.kinds[0]]

    def senses(self, name: str) -> Column:
        """The field, group or sense of each word, as the column's name says."""
        return Spread(self._senses(_OF_SENSE[name]), self.kinds[1]).whole()

    def paragraphs(self) -> list[int]:
        """The tokens behind an empty line: no annotation goes over one, so that chains may be cut there."""
        return lines.paragraphs(self.doc)

    def before(self, kinds: tuple[Sequence[T], Ints], column: Callable[[T], str]) -> Spread:
        """What ``column`` has for the last word before each token, signs passed over, in the line."""
        if self.last is None:
            self.last = lines.words_before(self.words, self.line)
        values = [column(kind) or "-" for kind in kinds[0]]
        at = kinds[1][self.last] if len(self.words) else kinds[1]
        return Spread([*values, ""], np.where(self.last < 0, len(values), at))

    def compact(self, name: str) -> Column | Spread:
        """As ``column``; what is a function of the word or of its lists is made once for each that is there."""
        if name in _OF_WORD:
            return Spread([_OF_WORD[name](word) for word in self.kinds[0]], self.kinds[1])
        if name in _OF_SENSE:
            return Spread(self._senses(_OF_SENSE[name]), self.kinds[1])
        if name in _BEFORE:
            return _BEFORE[name](self)
        if name in _OF_LINE:
            return Spread(_OF_LINE[name](self.doc), np.array(self.line, np.int64))
        if name in _OF_TAGS:
            return Spread([_OF_TAGS[name](tags) for tags in self.meanings[0]], self.meanings[1])
        return self.column(name)


@lru_cache(maxsize=65_536)
def shape(word: str) -> str:
    """Capitals as X, other letters as x, digits as 0; other signs as they are."""
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)


@lru_cache(maxsize=65_536)
def _short(word: str) -> str:
    return _RUN.sub(r"\1+", shape(word))


@lru_cache(maxsize=65_536)
def _digitless(word: str) -> str:
    return _DIGIT.sub("0", word) if len(word) > 2 else word


_SIZES = (3, 8, 20, 60)


def _sizes(view: View) -> Column:
    """How short a text is, in steps: a value of a message is no note, and its first line no letterhead."""
    step = bisect_left(_SIZES, len(view.words))
    return [f"{step}" if step < len(_SIZES) else ""] * len(view.words)


def _sources(view: View) -> Column:
    """The rule that found a token in the first pass."""
    found = [""] * len(view.words)
    at = 0
    for span in view.first:
        while at < len(found) and view.doc.tokens[at][1] <= span.start:
            at += 1
        while at < len(found) and view.doc.tokens[at][0] < span.end:
            found[at] = span.source
            at += 1
    return found


def _elsewhere(view: View) -> Column:
    """What the first pass says of the same word at other places of the document."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(view.lower, view.labels, strict=True):
        if label != "O" and len(word) > 2 and word.isalpha():
            seen[word][label[2:]] += 1
    found = []
    for word, label in zip(view.lower, view.labels, strict=True):
        types = seen.get(word)
        others = [t for t, n in types.items() if n > (label[2:] == t)] if types else []
        found.append("/".join(sorted(others)))
    return found


def _writings(view: View) -> Column:
    """Whether a capitalized word stands in lower case too in the document, and how often it stands."""
    counts = Counter(view.words)
    found = []
    for word, low in zip(view.words, view.lower, strict=True):
        if not word[0].isalpha():
            found.append("")
        else:
            times = min(counts[word], 3)
            found.append(f"{'l' if word != low and counts[low] else ''}{times}")
    return found


_GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "person": frozenset({"given-female", "given-male", "nickname", "family", "family-rare"}),
        "place": frozenset({"city", "city-world", "county", "country", "state", "state-abbrev"}),
        "people": frozenset({"nationality", "language", "profession", "holiday"}),
        "body": frozenset({"hospital", "hospital-kind", "organization", "organization-kind"}),
        "plain": frozenset({"common-word", "drug", "eponym"}),
    }
)
"""Lists that are read together: each group is a column."""


def _tags(tags: Tags, lists: frozenset[str]) -> str:
    """Those of the lists that hold a token, with its place in the term."""
    return " ".join(sorted(tag for tag in tags if base(tag) in lists))


_MEANINGS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "region": frozenset({"state", "state-abbrev"}),
        "town": frozenset({"city", "city-world", "county"}),
        "land": frozenset({"country", "nationality", "language"}),
        "job": frozenset({"profession"}),
        "first": frozenset({"given-female", "given-male", "nickname"}),
        "last": frozenset({"family"}),
        "firm": frozenset({"organization"}),
        "clinic": frozenset({"hospital"}),
    }
)
"""Lists that mean one thing: whether a word stands in any, whatever else it may be, is a column of its own."""


def _meant(tags: Tags, lists: frozenset[str]) -> str:
    """The place of a token in a term of those lists (U, B, I), ambiguous or not."""
    return min((tag[-1] for tag in tags if base(tag) in lists), default="")


_CUE = "cue-"
_FAR = 8  # tokens over which a cue is heard


@lru_cache(maxsize=4_096)
def _cue(tags: Tags) -> str:
    """What a word is a cue for: kin, staff, site, work, home, patient."""
    return "+".join(sorted({base(tag)[len(_CUE) :] for tag in tags if tag.startswith(_CUE)}))


def _cues(view: View, step: int) -> Column:
    """The nearest cue to one side in the line and how near it is: ``step`` 1 for those to the left."""
    cues, size = _whole(view.meanings, _cue), len(view.words)
    found = [""] * size
    for at in [at for at, cue in enumerate(cues) if cue]:
        cue, line = cues[at], view.line[at]
        for distance in range(1, _FAR + 1):
            place = at + step * distance
            if not 0 <= place < size or view.line[place] != line:
                break
            found[place] = f"{cue}{1 if distance == 1 else 2 if distance < 4 else 3}"
            if cues[place]:
                break
    return found


_OF_WORD: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "word": lambda word: _digitless(word.lower()),
        "shape": _short,
        "full": shape,
        "p1": lambda word: word.lower()[:1],
        "p2": lambda word: word.lower()[:2],
        "p3": lambda word: word.lower()[:3],
        "p4": lambda word: word.lower()[:4],
        "s1": lambda word: word.lower()[-1:],
        "s2": lambda word: word.lower()[-2:],
        "s3": lambda word: word.lower()[-3:],
        "s4": lambda word: word.lower()[-4:],
        "length": lambda word: str(min(len(word), 12)),
    }
)
"""Columns that are a function of the word alone."""

_OF_SENSE: Mapping[str, int] = MappingProxyType({"sense_field": 0, "sense_group": 1, "sense": 2})
"""Columns of words that are used alike, from the widest to the narrowest."""

_OF_TAGS: Mapping[str, Callable[[Tags], str]] = MappingProxyType(
    {
        **{name: lru_cache(maxsize=4_096)(partial(_tags, lists=lists)) for name, lists in _GROUPS.items()},
        **{name: lru_cache(maxsize=4_096)(partial(_meant, lists=lists)) for name, lists in _MEANINGS.items()},
    }
)
"""Columns that are a function of the lists that hold the word."""


_BEFORE: Mapping[str, Callable[[View], Spread]] = MappingProxyType(
    {
        "word_before": lambda view: view.before(view.kinds, str.lower),
        "shape_before": lambda view: view.before(view.kinds, _short),
        "town_before": lambda view: view.before(view.meanings, _OF_TAGS["town"]),
    }
)
"""Columns that are a function of the last word before a token."""


def _of_word(name: str) -> Callable[[View], Column]:
    return lambda view: _whole(view.kinds, _OF_WORD[name])


def _of_sense(name: str) -> Callable[[View], Column]:
    return lambda view: view.senses(name)


def _of_tags(name: str) -> Callable[[View], Column]:
    return lambda view: _whole(view.meanings, _OF_TAGS[name])


_OF_LINE: Mapping[str, Callable[[Document], Sequence[str]]] = MappingProxyType(
    {"section": lines.sections, "case": lines.cases, "zone": lines.zones}
)
"""Columns that are a function of the line alone."""


def _of_line(name: str) -> Callable[[View], Column]:
    return lambda view: Spread(_OF_LINE[name](view.doc), np.array(view.line, np.int64)).whole()


def _of_before(name: str) -> Callable[[View], Column]:
    return lambda view: _BEFORE[name](view).whole()


def _whole(kinds: tuple[Sequence[T], Ints], column: Callable[[T], str]) -> Column:
    return Spread([column(kind) for kind in kinds[0]], kinds[1]).whole()


def _kinds(units: Sequence[T]) -> tuple[Sequence[T], Ints]:
    """Every unit once, and for each unit which of them it is."""
    places: dict[T, int] = {}
    at = np.fromiter((places.setdefault(unit, len(places)) for unit in units), np.int64, len(units))
    return tuple(places), at


COLUMNS: Mapping[str, Callable[[View], Column]] = MappingProxyType(
    {
        **{name: _of_word(name) for name in _OF_WORD},
        "gap": lambda view: lines.gaps(view.doc),
        "rule": lambda view: view.labels,
        "source": _sources,
        "elsewhere": _elsewhere,
        "writing": _writings,
        **{name: _of_tags(name) for name in _OF_TAGS},
        **{name: _of_sense(name) for name in _OF_SENSE},
        **{name: _of_before(name) for name in _BEFORE},
        "cue_left": lambda view: _cues(view, 1),
        "cue_right": lambda view: _cues(view, -1),
        "label": lambda view: lines.labels(view.doc, view.lower, view.line),
        **{name: _of_line(name) for name in _OF_LINE},
        "line_place": lambda view: lines.places(view.line),
        "size": _sizes,
    }
)
"""Every column by name. Names stand in model manifests: one may be added, none may change its meaning."""
