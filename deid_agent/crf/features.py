"""Features of a model: templates over columns, gathered in families that can be switched.

A template names columns at offsets from a token, ``word[-1] word[0]``. The values of a column are numbered, and a
feature is one number made of those of its values: 0 where one of them is nothing or was never seen. Families are
those of the papers, so that their ablations can be run again. Source: Liu 2015 section 3.2.2 and Table 5,
Dehghan 2015 section 2.3, Dernoncourt 2016 section 2.1.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

import numpy as np

from deid_agent.crf.columns import Column, Ints, Spread
from deid_agent.errors import ConfigurationError

Vocabulary = Mapping[str, Mapping[str, int]]

_PART = re.compile(r"([a-z]\w*)\[(-?\d)\]")
_EDGE = 1  # the number of what stands before the first and behind the last token
_BITS = 20  # a column has fewer than a million values, a template up to three columns


class Seen(Protocol):
    """A document as a model sees it: columns over its units, tokens or characters."""

    def column(self, name: str) -> Column | Spread:
        """One value for each unit. Raises ``ConfigurationError`` for a name that is none of its columns."""

    def compact(self, name: str) -> Column | Spread:
        """The same values, shared by units where that is possible."""


FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "basic": (
            *(f"word[{i}]" for i in (-3, -2, -1, 0, 1, 2, 3)),
            *(f"shape[{i}]" for i in (-2, -1, 0, 1, 2)),
            *("full[0]", "length[0]", "gap[0]", "gap[1]"),
        ),
        "affix": (
            *(f"{c}[0]" for c in ("p1", "p2", "p3", "p4", "s1", "s2", "s3", "s4")),
            *("s3[-1]", "s3[1]", "p3[1]"),
        ),
        "ngram": (
            *("word[-1] word[0]", "word[0] word[1]", "word[-2] word[-1]", "word[1] word[2]"),
            *("shape[-1] shape[0]", "shape[0] shape[1]", "shape[-1] shape[0] shape[1]", "word[-1] shape[0]"),
            *("shape[0] word[1]", "word[-2] word[-1] shape[0]", "gap[0] shape[0] gap[1]"),
        ),
        "rule": (
            *(f"rule[{i}]" for i in (-2, -1, 0, 1, 2)),
            *("source[0]", "rule[-1] rule[0]", "rule[0] rule[1]", "rule[0] shape[0]", "rule[-1] word[-1] shape[0]"),
        ),
        "second": ("elsewhere[0]", "elsewhere[-1]", "elsewhere[1]", "writing[0]", "elsewhere[0] rule[0]"),
        "dictionary": (
            *(f"{c}[{i}]" for c in ("person", "place", "people", "body", "plain") for i in (-2, -1, 0, 1, 2)),
            *(f"{c}[0] shape[0]" for c in ("person", "place", "people", "body", "plain")),
            *("person[-1] person[0]", "person[0] person[1]", "person[0] plain[0]", "person[0] place[0]"),
            *("person[0] word[-1]", "person[0] word[1]", "place[0] word[-1]", "place[0] place[1]"),
            *("body[0] body[1]", "body[1] shape[0]", "body[2] shape[0] shape[1]", "plain[0] shape[0] word[-1]"),
        ),
        "section": ("label[0]", "label[0] shape[0]", "label[-1]", "section[0]", "label[0] place[0]"),
        "cue": (
            *("cue_left[0]", "cue_right[0]", "cue_left[0] shape[0]", "cue_right[0] shape[0]"),
            *("cue_left[0] person[0]", "cue_left[0] plain[0]", "cue_left[0] cue_right[0] shape[0]"),
        ),
        "meaning": (
            *(
                f"{c}[{i}]"
                for c in ("region", "town", "land", "job", "first", "last", "firm", "clinic")
                for i in (0, 1)
            ),
            *(f"{c}[0] shape[0]" for c in ("region", "town", "land", "job", "first", "last", "firm", "clinic")),
            *(f"{c}[0] word_before[0]" for c in ("region", "town", "land", "job", "first", "last")),
            *(f"{c}[0] word[1]" for c in ("region", "town", "land", "job")),
            *("region[0] town_before[0]", "region[0] town_before[0] shape[0]", "region[0] shape[0] shape[1]"),
            *(
                "region[0] shape_before[0] shape[0]",
                "town[0] region[1]",
                "town[0] region[2]",
                "town[0] word[1] region[2]",
            ),
            *("word_before[0]", "word_before[0] shape[0]", "shape_before[0] shape[0]", "first[0] last[1]"),
            *("first[0] last[2]", "last[0] first[2]", "first[-1] last[0]", "first[0] shape[1]", "last[0] shape[-1]"),
        ),
        "bag": (
            *(f"left: word[{i}]" for i in (-7, -6, -5, -4, -3, -2)),
            *(f"right: word[{i}]" for i in (2, 3, 4, 5)),
        ),
        "sense": (
            "sense[0]",
            *(f"sense_group[{i}]" for i in (-1, 0, 1)),
            *(f"sense_field[{i}]" for i in (-2, -1, 0, 1, 2)),
            *("sense[0] shape[0]", "sense_group[0] shape[0]", "sense_field[0] shape[0]"),
            *("sense_field[-1] shape[0]", "sense_field[1] shape[0]", "sense_group[-1] sense_group[0]"),
            *("sense_group[0] sense_group[1]", "sense_field[-1] sense_field[0] shape[0]"),
            *("sense_field[0] sense_field[1] shape[0]", "sense_field[-1] sense_field[1] shape[0]"),
        ),
        "size": (
            "size[0]",
            "size[0] shape[0]",
            "size[0] case[0]",
            "size[0] line_place[0]",
            "size[0] word[0]",
            "size[0] gap[0]",
        ),
        "position": (
            "line_place[0]",
            "case[0]",
            "zone[0]",
            "case[0] shape[0]",
            "zone[0] shape[0]",
            "line_place[0] shape[0]",
        ),
    }
)


def groups(templates: Sequence[str]) -> list[int]:
    """For each template the first that it shares its weights with: of a bag (``left: word[-4]``), else itself."""
    first: dict[str, int] = {}
    return [first.setdefault(t.partition(": ")[0] if ": " in t else t, at) for at, t in enumerate(templates)]


def templates_of(families: Iterable[str], known: Mapping[str, tuple[str, ...]] = FAMILIES) -> tuple[str, ...]:
    """The templates of chosen families; raises ``ConfigurationError`` listing the families for an unknown one."""
    chosen = list(families)
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigurationError(f"unknown feature family {unknown[0]}: one of {', '.join(known)}")
    return tuple(template for name in chosen for template in known[name])


@dataclass(frozen=True, slots=True)
class Features:
    """Templates with the numbers of the values that their columns had in training."""

    templates: tuple[str, ...]
    vocabulary: Vocabulary = field(repr=False)

    @classmethod
    def learn(cls, templates: tuple[str, ...], views: Iterable[Seen], *, least: int = 2) -> "Features":
        """Numbers for every value that stands at least so often in the views, the most frequent first.

        A value that units share counts once for them all: a word, not its characters.
        """
        names = _columns(templates)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for view in views:
            for name in names:
                column = view.column(name)
                if isinstance(column, Spread):
                    counts[name].update(column.values[at] for at in np.unique(column.at).tolist())
                else:
                    counts[name].update(column)
        kept = {
            name: sorted((v for v, n in counts[name].items() if v and n >= least), key=lambda v: (-counts[name][v], v))
            for name in names
        }
        return cls(templates, {name: {value: at for at, value in enumerate(kept[name], _EDGE + 1)} for name in names})

    def of(self, view: Seen) -> list[Ints]:
        """For each template its feature of each unit, as a number; 0: none."""
        return list(self._each(self.numbered(view)))

    def of_all(self, views: Sequence[Seen]) -> tuple[Iterator[Ints], list[slice]]:
        """As ``of`` for several documents at once, and where the units of each lie.

        Between them stand as many edges as a template can see: no document sees another. Features are made template by
        template as they are asked for: those of a long text are never there all at once.
        """
        if len(views) == 1:
            alone = self.numbered(views[0])
            return self._each(alone), [slice(0, len(next(iter(alone.values()))))]
        edge = np.full(max(abs(at) for t in self.templates for _, at in parts(t)), _EDGE, np.int64)
        each = [self.numbered(view) for view in views]
        made = {name: np.concatenate([p for one in each for p in (one[name], edge)]) for name in each[0]}
        sizes = [len(next(iter(one.values()))) for one in each]
        starts = np.cumsum([0, *(size + len(edge) for size in sizes[:-1])]).tolist()
        places = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        return self._each(made), places

    def _each(self, made: Mapping[str, Ints]) -> Iterator[Ints]:
        """Template by template its feature of each unit."""
        return (joined([_shift(made[name], at) for name, at in parts(t)]) for t in self.templates)

    def numbered(self, view: Seen) -> dict[str, Ints]:
        """The columns of the templates, each value as its number; 0 for one that training never saw."""
        return {name: self.numbers(name, view.compact(name)) for name in _columns(self.templates)}

    def numbers(self, name: str, column: Column | Spread) -> Ints:
        """The values of a column as numbers; 0 for one that training never saw."""
        known = self.vocabulary[name].get
        if isinstance(column, Spread):
            return np.array([known(value, 0) for value in column.values], np.int64)[column.at]
        return np.fromiter((known(value, 0) for value in column), np.int64, len(column))


def combined(template: str, numbered: Mapping[str, Ints], units: Ints) -> Ints:
    """The feature of ``template`` of chosen units alone; the columns are whole."""
    return joined([at_units(numbered[name], units + offset) for name, offset in parts(template)])


def at_units(column: Ints, units: Ints) -> Ints:
    """The numbers of a whole column at units; those beyond its ends have the number of an edge."""
    inside = (units >= 0) & (units < len(column))
    if inside.all():
        return column[units]
    return np.where(inside, column[np.clip(units, 0, len(column) - 1)], _EDGE)


def joined(columns: list[Ints]) -> Ints:
    """One feature made of the values of several columns; 0 where one of them is nothing."""
    if len(columns) == 1:
        return columns[0]
    key, whole = columns[0], columns[0] != 0
    for column in columns[1:]:
        key = (key << _BITS) | column
        whole &= column != 0
    return np.where(whole, key, 0)


@lru_cache(maxsize=1024)
def parts(template: str) -> tuple[tuple[str, int], ...]:
    """The columns of a template with their offsets; raises ``ConfigurationError`` for what names no column."""
    written = template.partition(": ")[2] or template
    matches = [_PART.fullmatch(part) for part in written.split(" ")]
    found = tuple((match[1], int(match[2])) for match in matches if match is not None)
    if len(found) < len(matches):
        raise ConfigurationError(f"unknown feature template {template}: write columns at offsets, as word[-1] word[0]")
    return found


def _columns(templates: Iterable[str]) -> list[str]:
    return sorted({name for template in templates for name, _ in parts(template)})


def _shift(column: Ints, offset: int) -> Ints:
    """``column`` seen from a token: its value ``offset`` places on."""
    if offset == 0:
        return column
    out = np.full(len(column), _EDGE, np.int64)
    if offset < 0:
        out[-offset:] = column[:offset]
    else:
        out[:-offset] = column[offset:]
    return out
