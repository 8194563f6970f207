"""Features that depend only on the word of a token, on its sense, or on the lists that contain it.

Each is a function of the word, the sense or the tags. Model manifests contain the names: one may be added, none may
change its meaning. Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3, Ferrandez 2012 section 3.2.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from types import MappingProxyType

from deid_agent.rules import Sense, Tags, list_of_tag

# Features of the word alone

_RUN = re.compile(r"(.)\1+")
_DIGIT = re.compile(r"\d")


@lru_cache(maxsize=65_536)
def word_shape(word: str) -> str:
    """``word`` with X for a capital, x for another letter and 0 for a digit; other characters are unchanged."""
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)


@lru_cache(maxsize=65_536)
def _short_shape(word: str) -> str:
    return _RUN.sub(r"\1+", word_shape(word))


@lru_cache(maxsize=65_536)
def _mask_digits(word: str) -> str:
    return _DIGIT.sub("0", word) if len(word) > 2 else word


WORD_FEATURES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "word": lambda word: _mask_digits(word.lower()),
        "shape": _short_shape,
        "full": word_shape,
        "p1": lambda word: word.lower()[:1],
        "p2": lambda word: word.lower()[:2],
        "p3": lambda word: word.lower()[:3],
        "p4": lambda word: word.lower()[:4],
        "p5": lambda word: word.lower()[:5],
        "s1": lambda word: word.lower()[-1:],
        "s2": lambda word: word.lower()[-2:],
        "s3": lambda word: word.lower()[-3:],
        "s4": lambda word: word.lower()[-4:],
        "s5": lambda word: word.lower()[-5:],
        "length": lambda word: str(min(len(word), 12)),
    }
)
SENSE_FEATURES: Mapping[str, Callable[[Sense], str]] = MappingProxyType(
    {"sense_field": itemgetter(0), "sense_group": itemgetter(1), "sense": itemgetter(2)}
)
"""Classes of words that are used alike, from the widest to the narrowest."""

# Features of the lists that contain the word

_LIST_GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "person": frozenset({"given-female", "given-male", "nickname", "family", "family-rare"}),
        "place": frozenset({"city", "city-world", "county", "country", "state", "state-abbrev"}),
        "people": frozenset({"nationality", "language", "profession", "holiday"}),
        "body": frozenset({"hospital", "hospital-kind", "organization", "organization-kind"}),
        "plain": frozenset({"common-word", "drug", "eponym"}),
        "clinical": frozenset({"device", "organism", "gene", "shorthand"}),
    }
)
"""Lists that are combined in one feature: the value names the lists and the position in the term."""

_LIST_MEANINGS: Mapping[str, frozenset[str]] = MappingProxyType(
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
"""Lists with the same meaning: the value is the position in the term, even if the word is ambiguous."""


def _join_tags(tags: Tags, lists: frozenset[str]) -> str:
    """The tags that belong to ``lists``. A tag names the list and the position in the term."""
    return " ".join(sorted(tag for tag in tags if list_of_tag(tag) in lists))


def _term_position(tags: Tags, lists: frozenset[str]) -> str:
    """The position of a token in a term of ``lists``: U, B or I."""
    return min((tag[-1] for tag in tags if list_of_tag(tag) in lists), default="")


TAG_FEATURES: Mapping[str, Callable[[Tags], str]] = MappingProxyType(
    {
        **{name: lru_cache(maxsize=4_096)(partial(_join_tags, lists=lists)) for name, lists in _LIST_GROUPS.items()},
        **{
            name: lru_cache(maxsize=4_096)(partial(_term_position, lists=lists))
            for name, lists in _LIST_MEANINGS.items()
        },
    }
)
PREVIOUS_WORD_FEATURES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"word_before": str.lower, "shape_before": _short_shape}
)
PREVIOUS_TAGS_FEATURES: Mapping[str, Callable[[Tags], str]] = MappingProxyType(
    {"town_before": lambda tags: TAG_FEATURES["town"](tags) or "-"}
)
