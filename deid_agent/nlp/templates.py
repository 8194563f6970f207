"""Feature templates of the CRF models, gathered in families that can be switched on and off.

A template names features at offsets from a unit, such as ``word[-1] word[0]``. Each value of a feature has a number,
and an instance of a template is one number combined from those of its values: 0 if one of the values is absent or was
not in the training data. The families are those of the papers, so that their ablations can be repeated.
Source: Liu 2015 section 3.2.2 and Table 5, Dehghan 2015 section 2.3, Dernoncourt 2016 section 2.1.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deid_agent.model import ConfigurationError
from deid_agent.nlp.feature_numbers import FeatureNumbers, number_values
from deid_agent.nlp.token_features import FeatureValues, IndexedFeature, Ints, TokenFeatures

Vocabulary = Mapping[str, Mapping[str, int]]
"""For each feature the number of each known value."""

_TEMPLATE_PART = re.compile(r"([a-z]\w*)\[(-?\d)\]")
_EDGE = 1  # the number of every value before the first and after the last unit
FEW_UNITS = 640
"""Of up to so many units the numbers of all templates are computed at once: the calls would cost more than the work."""
_BITS = 20  # a feature has fewer than a million values, a template up to three features


class FeatureSource(Protocol):
    """A document as features over its units, which are tokens or characters."""

    def feature(self, name: str) -> FeatureValues | IndexedFeature:
        """One value for each unit. Raises ``ConfigurationError`` if there is no such feature."""

    def indexed_feature(self, name: str) -> FeatureValues | IndexedFeature:
        """The same values, indexed if that is cheaper."""


TOKEN_FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
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
        "measure": (
            *(f"measure[{i}]" for i in (-1, 0, 1)),
            *("measure[0] measure_edge[0]", "measure[0] shape[0]", "measure[0] word[0]", "measure[-1] shape[0]"),
            *("measure[1] shape[0]", "measure[0] rule[0]", "measure[0] gap[0] shape[0]"),
            *(f"clinical[{i}]" for i in (-1, 0, 1)),
            *("clinical[0] shape[0]", "clinical[0] person[0]", "clinical[0] plain[0]", "clinical[1] shape[0]"),
            *("speaker[0]", "speaker[0] shape[0]"),
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


def weight_groups(templates: Sequence[str]) -> list[int]:
    """For each template the index of the first template that shares its weights.

    Templates of one bag (``left: word[-4]``) share their weights; any other template has its own.
    """
    first: dict[str, int] = {}
    return [first.setdefault(t.partition(": ")[0] if ": " in t else t, at) for at, t in enumerate(templates)]


def select_templates(families: Iterable[str], known: Mapping[str, tuple[str, ...]] = TOKEN_FAMILIES) -> tuple[str, ...]:
    """The templates of ``families``. Raises ``ConfigurationError`` with all names if a family is unknown."""
    chosen = list(families)
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigurationError(f"unknown feature family {unknown[0]}: one of {', '.join(known)}")
    return tuple(template for name in chosen for template in known[name])


@dataclass(frozen=True, slots=True)
class FeatureExtractor:
    """Turns documents into numbers: templates, and the numbers of the feature values that training has seen."""

    templates: tuple[str, ...]
    vocabulary: Vocabulary = field(repr=False)
    _numbers: FeatureNumbers = field(init=False, repr=False, compare=False)
    _reach: int = field(init=False, repr=False, compare=False)
    _parts: tuple[tuple[Ints, Ints], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names, parsed = _feature_names(self.templates), [parse_template(t) for t in self.templates]
        reach = max((abs(at) for parts in parsed for _, at in parts), default=0)
        # Every template with three features: a missing one is the row after those of the features, which is all 0.
        full = [
            [(len(names), 0)] * (3 - len(parts)) + [(names.index(name), at) for name, at in parts] for parts in parsed
        ]
        places = np.array(full, np.int64).reshape(len(full), 3, 2)
        object.__setattr__(self, "_numbers", FeatureNumbers({name: self.vocabulary[name] for name in names}))
        object.__setattr__(self, "_reach", reach)
        object.__setattr__(self, "_parts", tuple((places[:, at, 0], places[:, at, 1] + reach) for at in range(3)))

    @classmethod
    def learn(
        cls, templates: tuple[str, ...], documents: Iterable[FeatureSource], *, least: int = 2
    ) -> "FeatureExtractor":
        """An extractor that knows every value that occurs at least ``least`` times, the most frequent first.

        A value that several units share counts once for them all: a word counts once, not once for each character.
        """
        names = _feature_names(templates)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for document in documents:
            for name in names:
                feature = document.feature(name)
                if isinstance(feature, IndexedFeature):
                    counts[name].update(feature.values[at] for at in np.unique(feature.index).tolist())
                else:
                    counts[name].update(feature)
        kept = {
            name: sorted((v for v, n in counts[name].items() if v and n >= least), key=lambda v: (-counts[name][v], v))
            for name in names
        }
        return cls(templates, {name: {value: at for at, value in enumerate(kept[name], _EDGE + 1)} for name in names})

    def extract(self, document: FeatureSource) -> list[Ints]:
        """For each template an array ``[unit]`` of numbers; 0 means that the template does not apply."""
        return list(self._apply_templates(self.encode_features(document)))

    def extract_all(self, documents: Sequence[FeatureSource]) -> tuple[Iterable[Ints], list[slice]]:
        """The result of ``extract`` for all documents, one after another, and the slice of each document.

        Between two documents are as many edge units as a template can reach, so no document sees another. Up to
        ``FEW_UNITS`` units give one array ``[template, unit]``. The arrays of more units are made one template at a
        time as the iterator advances: those of a long text are never in memory together.
        """
        if len(documents) == 1:
            alone = self.encode_features(documents[0])
            return self._apply_templates(alone), [slice(0, len(next(iter(alone.values()))))]
        edge = np.full(self._reach, _EDGE, np.int64)
        encoded = [self.encode_features(document) for document in documents]
        joined = {name: np.concatenate([p for one in encoded for p in (one[name], edge)]) for name in encoded[0]}
        sizes = [len(next(iter(one.values()))) for one in encoded]
        starts = np.cumsum([0, *(size + len(edge) for size in sizes[:-1])]).tolist()
        slices = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        return self._apply_templates(joined), slices

    def _apply_templates(self, encoded: Mapping[str, Ints]) -> Iterable[Ints]:
        few = self.templates and 0 < len(next(iter(encoded.values()))) <= FEW_UNITS
        return self._apply_at_once(encoded) if few else self._apply_one_by_one(encoded)

    def _apply_at_once(self, encoded: Mapping[str, Ints]) -> Ints:
        names = _feature_names(self.templates)
        size = len(encoded[names[0]])
        padded = np.full((len(names) + 1, size + 2 * self._reach), _EDGE, np.int64)
        for at, name in enumerate(names):
            padded[at, self._reach : self._reach + size] = encoded[name]
        padded[padded == 0] = -1  # as in ``_apply_one_by_one``
        padded[-1] = 0
        shifted = sliding_window_view(padded, size, axis=1)
        first, *others = (shifted[part] for part in self._parts)
        for values in others:
            first <<= _BITS
            first |= values
        return np.maximum(first, 0, out=first)

    def _apply_one_by_one(self, encoded: Mapping[str, Ints]) -> Iterator[Ints]:
        size, edge = len(next(iter(encoded.values()), ())), np.full(self._reach, _EDGE, np.int64)
        # An absent value is -1 here: a number that is combined with it is negative whatever the other values are. Half
        # the width of the numbers halves the memory of a long text; so does giving up ``encoded``.
        padded = {
            name: np.concatenate([edge, np.where(values == 0, -1, values), edge]).astype(np.int32)
            for name, values in encoded.items()
        }
        del encoded
        for template in self.templates:
            (first, *others) = (padded[name][self._reach + at :][:size] for name, at in parse_template(template))
            key = first.astype(np.int64)
            for values in others:
                key <<= _BITS
                key |= values
            yield np.maximum(key, 0)

    def encode_features(self, document: FeatureSource) -> dict[str, Ints]:
        """For each feature of the templates the number of its value, ``[unit]``; 0 for an unknown value."""
        if isinstance(document, TokenFeatures):
            return self._numbers.encode(document)
        names = _feature_names(self.templates)
        return {name: self.encode_values(name, document.indexed_feature(name)) for name in names}

    def encode_rows(self, document: FeatureSource) -> NDArray[np.int32]:
        """The same numbers in 32 bits, ``[feature, unit]``; the features are in the order of their names."""
        if isinstance(document, TokenFeatures):
            return self._numbers.encode_rows(document)
        found = self.encode_features(document)
        return np.array([found[name] for name in _feature_names(self.templates)], np.int32)

    def encode_values(self, name: str, values: FeatureValues | IndexedFeature) -> Ints:
        """The numbers of ``values`` of the feature ``name``, ``[unit]``; 0 for an unknown value."""
        return number_values(self.vocabulary[name], values)


def combine_at_units(template: str, encoded: Mapping[str, Ints], units: Ints) -> Ints:
    """The numbers of ``template`` at ``units`` only, ``[unit]``; ``encoded`` has the features of all units."""
    return combine_values([take_units(encoded[name], units + offset) for name, offset in parse_template(template)])


def take_units(encoded: Ints, units: Ints) -> Ints:
    """The elements of ``encoded`` at ``units``; a unit outside the document has the number of an edge."""
    inside = (units >= 0) & (units < len(encoded))
    if inside.all():
        return encoded[units]
    return np.where(inside, encoded[np.clip(units, 0, len(encoded) - 1)], _EDGE)


def combine_values(arrays: list[Ints]) -> Ints:
    """One number for each unit from those of up to three features, ``[unit]``; 0 if one of them is 0."""
    if len(arrays) == 1:
        return arrays[0]
    key, is_complete = arrays[0], arrays[0] != 0
    for values in arrays[1:]:
        key = (key << _BITS) | values
        is_complete &= values != 0
    return np.where(is_complete, key, 0)


@lru_cache(maxsize=1024)
def parse_template(template: str) -> tuple[tuple[str, int], ...]:
    """The features of a template with their offsets. Raises ``ConfigurationError`` if the syntax is wrong."""
    written = template.partition(": ")[2] or template
    matches = [_TEMPLATE_PART.fullmatch(part) for part in written.split(" ")]
    found = tuple((match[1], int(match[2])) for match in matches if match is not None)
    if len(found) < len(matches):
        raise ConfigurationError(
            f"invalid feature template {template}: write features with offsets, such as word[-1] word[0]"
        )
    return found


def _feature_names(templates: Iterable[str]) -> list[str]:
    return sorted({name for template in templates for name, _ in parse_template(template)})
