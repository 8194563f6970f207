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

    values: Column
    at: Ints


_RUN = re.compile(r"(.)\1+")
_DIGIT = re.compile(r"\d")
_LABEL = re.compile(r"([^\W\d_][^\W_]*)[^\w:]{0,3}\Z")
_HEADING = re.compile(r"[ \t]*([A-Z][A-Za-z/&,' -]{2,40}):?[ \t]*\r?\n?\Z")
_EMPTY_LINE = "N"
_ZONE = 8  # lines at either end of a note that hold its letterhead and signature


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
        values = self._senses(_OF_SENSE[name])
        return [values[at] for at in self.kinds[1].tolist()]

    def paragraphs(self) -> list[int]:
        """The tokens behind an empty line: no annotation goes over one, so that chains may be cut there."""
        return [at for at, gap in enumerate(self.column("gap")) if gap == _EMPTY_LINE]

    def compact(self, name: str) -> Column | Spread:
        """As ``column``; what is a function of the word or of its lists is made once for each that is there."""
        if name in _OF_WORD:
            return Spread([_OF_WORD[name](word) for word in self.kinds[0]], self.kinds[1])
        if name in _OF_SENSE:
            return Spread(self._senses(_OF_SENSE[name]), self.kinds[1])
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


def _gaps(view: View) -> Column:
    """What stands before a token: nothing, a blank, a wide gap, a line end, an empty line."""
    text, found, last = view.doc.text, [], 0
    for a, b in view.doc.tokens:
        gap = text[last:a]
        breaks = gap.count("\n")
        found.append("" if not gap else _EMPTY_LINE if breaks > 1 else "n" if breaks else "_" if len(gap) == 1 else "w")
        last = b
    return found


def _line_labels(view: View) -> Column:
    """The last words before the nearest colon to the left in the line; else of the line above, if it ends in one."""
    found, label, line = [], "", -1
    text, tokens, lower = view.doc.text, view.doc.tokens, view.lower
    carried = ""
    for i, word in enumerate(lower):
        if view.line[i] != line:
            carried = label if line >= 0 and i and lower[i - 1] == ":" and view.line[i] == line + 1 else ""
            line, label = view.line[i], ""
        found.append(label or carried)
        if word == ":":
            before = text[max(view.doc.lines[line][0], tokens[i][0] - 40) : tokens[i][0]]
            words = _LABEL.findall(before)
            start = i - 1
            while start > 0 and view.line[start - 1] == line and i - start < 2 and lower[start - 1].isalpha():
                start -= 1
            label = " ".join(lower[start:i]) if words else ""
    return found


def _sections(view: View) -> Column:
    """The heading over a token: the last short line of its own that ends in a colon or is in capitals."""
    text, heads, current = view.doc.text, [], ""
    for a, b in view.doc.lines:
        line = text[a:b]
        if (head := _HEADING.match(line)) and (line.rstrip().endswith(":") or head[1].isupper()):
            current = " ".join(head[1].lower().split()[:2])
        heads.append(current)
    return [heads[at] for at in view.line]


def _line_places(view: View) -> Column:
    """First, second or last of its line, and how long the line is."""
    counts = Counter(view.line)
    found, last, at = [], -1, 0
    for line in view.line:
        at = at + 1 if line == last else 0
        last = line
        size = counts[line]
        place = str(at) if at < 2 else "$" if at == size - 1 else "."
        found.append(f"{place}{'s' if size < 6 else 'm' if size < 16 else 'l'}")
    return found


def _line_cases(view: View) -> Column:
    """How a line is written: all capitals, no capitals, title case, as a sentence."""
    text, cases = view.doc.text, []
    for a, b in view.doc.lines:
        line = text[a:b]
        words = [w for w in line.split() if w[0].isalpha()]
        if not words:
            cases.append("-")
        elif line.isupper():
            cases.append("U")
        elif line.islower():
            cases.append("l")
        else:
            cases.append("T" if sum(w[0].isupper() for w in words) * 4 >= len(words) * 3 else "s")
    return [cases[at] for at in view.line]


def _zones(view: View) -> Column:
    last = len(view.doc.lines) - 1
    return [
        f"h{line // 2}" if line < _ZONE else f"t{(last - line) // 2}" if last - line < _ZONE else "b"
        for line in view.line
    ]


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


def _before(view: View, column: Column) -> Column:
    """What ``column`` has for the last word before each token, signs passed over, in the line."""
    found, last, line = [], "", -1
    for at, word in enumerate(view.words):
        if view.line[at] != line:
            line, last = view.line[at], ""
        found.append(last)
        if word[0].isalnum():
            last = column[at] or "-"
    return found


_CUE = "cue-"
_FAR = 8  # tokens over which a cue is heard


def _cues(view: View, step: int) -> Column:
    """The nearest cue to one side in the line (kin, staff, site, work, home, patient) and how near it is."""
    size = len(view.words)
    found = [""] * size
    cue, distance = "", 0
    order = range(size) if step > 0 else range(size - 1, -1, -1)
    line = -1
    for at in order:
        if view.line[at] != line:
            line, cue = view.line[at], ""
        distance += 1
        if cue and distance <= _FAR:
            found[at] = f"{cue}{1 if distance == 1 else 2 if distance < 4 else 3}"
        kinds = sorted({base(tag)[len(_CUE) :] for tag in view.tags[at] if tag.startswith(_CUE)})
        if kinds:
            cue, distance = "+".join(kinds), 0
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


def _of_word(name: str) -> Callable[[View], Column]:
    return lambda view: _whole(view.kinds, _OF_WORD[name])


def _of_sense(name: str) -> Callable[[View], Column]:
    return lambda view: view.senses(name)


def _of_tags(name: str) -> Callable[[View], Column]:
    return lambda view: _whole(view.meanings, _OF_TAGS[name])


def _whole(kinds: tuple[Sequence[T], Ints], column: Callable[[T], str]) -> Column:
    values = [column(kind) for kind in kinds[0]]
    return [values[at] for at in kinds[1].tolist()]


def _kinds(units: Sequence[T]) -> tuple[Sequence[T], Ints]:
    """Every unit once, and for each unit which of them it is."""
    places: dict[T, int] = {}
    at = np.fromiter((places.setdefault(unit, len(places)) for unit in units), np.int64, len(units))
    return tuple(places), at


COLUMNS: Mapping[str, Callable[[View], Column]] = MappingProxyType(
    {
        **{name: _of_word(name) for name in _OF_WORD},
        "gap": _gaps,
        "rule": lambda view: view.labels,
        "source": _sources,
        "elsewhere": _elsewhere,
        "writing": _writings,
        **{name: _of_tags(name) for name in _OF_TAGS},
        **{name: _of_sense(name) for name in _OF_SENSE},
        "word_before": lambda view: _before(view, view.lower),
        "town_before": lambda view: _before(view, view.column("town")),
        "shape_before": lambda view: _before(view, view.column("shape")),
        "cue_left": lambda view: _cues(view, 1),
        "cue_right": lambda view: _cues(view, -1),
        "label": _line_labels,
        "section": _sections,
        "line_place": _line_places,
        "case": _line_cases,
        "zone": _zones,
        "size": _sizes,
    }
)
"""Every column by name. Names stand in model manifests: one may be added, none may change its meaning."""
