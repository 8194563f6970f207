"""The candidates of the parrot attack: strings of outputs that look like PHI, and how suspicious each is."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import log1p

import numpy as np
from numpy.typing import NDArray

from deid_agent.evidence.learned_finder import CrfFitter, LearnedFinder, learn_finder
from deid_agent.evidence.pairs import TextPair
from deid_agent.model import Document, Range, fold_accents
from deid_agent.rules import Dictionaries

FindRanges = Callable[[Sequence[str]], Sequence[Sequence[Range]]]
"""The PHI that a tagger finds in each text."""
_POSSIBLE = 0.05  # the probability of the learned tagger from which an attacker without labels looks at a token
_MARK = re.compile(r"\[[A-Z][A-Z -]{2,30}\]")
_NAME_LISTS = frozenset({"given-female", "given-male", "family", "family-rare", "city", "hospital"})


class ParrotStrength(StrEnum):
    """The knowledge of the attacker."""

    SOFTWARE = "software"  # labels and candidates come from this program's own tagger
    LABELS = "labels"  # a person labelled all PHI-like strings, as in the publication: the upper bound


class ParrotSignal(StrEnum):
    """A reason to suspect a candidate."""

    UNTAGGED = "untagged"  # the learned tagger does not find it
    UNLISTED = "unlisted"  # its words are in no list of surrogates
    RECURRING = "recurring"  # it occurs at several patients
    COMBINED = "combined"
    REHEARSED = "rehearsed"  # a weighting of traits that the attacker learned on a feed of his own


@dataclass(frozen=True, slots=True)
class ParrotTools:
    """The means of the attacker.

    ``surrogate_words`` are the folded words of the program's public lists; without them an attacker has the words that
    are labelled in the other half.
    """

    fit: CrfFitter
    dictionaries: Dictionaries = field(repr=False)
    find: FindRanges | None = None
    surrogate_words: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class AttackedText:
    """An output with its leaks, as ranges of the output."""

    pair: TextPair = field(repr=False)
    leaks: tuple[Range, ...]

    @classmethod
    def of(cls, pair: TextPair, leaks: Iterable[Range]) -> "AttackedText":
        found = (pair.find_in_output(span) for span in leaks)
        return cls(pair, tuple(each for each in found if each is not None and each[0] < each[1]))

    def all_phi(self) -> list[Range]:
        """Every PHI-like string, as a person sees them: surrogates and leaks alike."""
        return sorted([*((each.begin, each.end) for each in self.pair.replaced if each.begin < each.end), *self.leaks])


@dataclass(frozen=True, slots=True)
class ParrotCandidate:
    """A string that looks like PHI. ``leak`` is the number of leaks in it, ``tagged`` how surely it is found.

    ``traits`` are numbers that describe it, those of its signals first.
    """

    patient: str = field(repr=False)
    leak: int
    tagged: float
    scores: Mapping[ParrotSignal, float] = field(repr=False)
    traits: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A string of an output with the probability of the learned tagger; ``found`` if the program's tagger finds it."""

    text: str = field(repr=False)
    patient: str = field(repr=False)
    leak: int
    probability: float
    found: bool


def find_candidates(
    known: Sequence[AttackedText], attacked: Sequence[AttackedText], tools: ParrotTools, strength: ParrotStrength
) -> list[ParrotCandidate]:
    """The candidates in the outputs of ``attacked``, scored by an attacker who learned from those of ``known``.

    Raises ``NothingToLearnError`` if the attacker finds nothing to label.
    """
    outputs, targets = ([each.pair.output for each in half] for half in (known, attacked))
    find = tools.find if strength is ParrotStrength.SOFTWARE else None
    labels = [each.all_phi() for each in known] if find is None else find(outputs)
    finder = learn_finder(list(zip(outputs, labels, strict=True)), tools.fit, tools.dictionaries)
    # Without the lists the attacker takes the labelled words for surrogates; a few of them are leaks.
    listed = tools.surrogate_words or {
        word for text, ranges in zip(outputs, labels, strict=True) for a, b in ranges for word in _words(text[a:b])
    }
    tagged = None if find is None else [sorted(ranges) for ranges in find(targets)]
    seen = list(_look(attacked, finder, tagged))
    places: dict[str, set[str]] = defaultdict(set)
    for each in seen:
        places[_normal(each.text)].add(each.patient)
    marked = _has_marks([*outputs, *targets])
    made = []
    for each in seen:
        words = [word for word in _words(each.text) if "common-word" not in tools.dictionaries.lists_of(word)]
        unlisted = sum(word not in listed for word in words) / len(words) if words else 0.0
        recurring = log1p(len(places[_normal(each.text)]) - 1)
        untagged = 1 - each.probability if tagged is None else _suspicion(each, marked=marked)
        scores = {
            ParrotSignal.UNTAGGED: untagged,
            ParrotSignal.UNLISTED: unlisted,
            ParrotSignal.RECURRING: recurring,
            ParrotSignal.COMBINED: untagged + unlisted / 2 + recurring / 100,
        }
        tagged_by = each.probability if tagged is None else float(each.found)
        traits = (untagged, unlisted, recurring, *_describe(each.text))
        made.append(ParrotCandidate(each.patient, each.leak, tagged_by, scores, traits))
    return made


def _look(
    attacked: Sequence[AttackedText], finder: LearnedFinder, tagged: Sequence[Sequence[Range]] | None
) -> Iterator[_Seen]:
    """The strings that the attacker looks at; ``tagged`` are the findings of the program's tagger, if he uses it."""
    for number, each in enumerate(attacked):
        text = each.pair.output
        tokens, scores = finder.score(text)
        own = () if tagged is None else tagged[number]
        for span in each.all_phi() if tagged is None else _look_like_phi(text, tokens, scores, own, finder):
            first = bisect_right(tokens, span[0], key=lambda token: token[1])
            last = bisect_left(tokens, span[1], key=lambda token: token[0])
            inside = [float(scores[at]) for at in range(first, last) if text[tokens[at][0]].isalnum()]
            leaks = sum(a < span[1] and span[0] < b for a, b in each.leaks)
            probability = float(np.mean(inside)) if inside else 0.0
            yield _Seen(text[slice(*span)], each.pair.patient, leaks, probability, _touches(own, span))


def _describe(text: str) -> tuple[float, ...]:
    """The length, the number of words, the shares of digits and capitals, and whether it begins with a small letter."""
    size = max(1, len(text))
    digits, capitals = sum(map(str.isdigit, text)) / size, sum(map(str.isupper, text)) / size
    return log1p(size), log1p(len(text.split())), digits, capitals, float(text[:1].islower())


def _suspicion(each: _Seen, *, marked: bool) -> float:
    """How suspicious a string is to an attacker with the program's tagger."""
    if marked:  # nothing is replaced by a value: a finding is a leak
        return each.probability + each.found
    # The program has likely replaced the findings of its tagger. The rest comes first, its likeliest PHI before all.
    return (1 - each.probability) / 2 if each.found else 1 + each.probability


def _look_like_phi(
    text: str, tokens: Sequence[Range], scores: NDArray[np.float32], tagged: Sequence[Range], finder: LearnedFinder
) -> list[Range]:
    """The strings that an attacker without labels looks at: findings, likely tokens, and names of the lists."""
    found = sorted(tagged)
    lists_of = finder.dictionaries.lists_of
    loose: list[Range] = []
    for (begin, end), score in zip(tokens, scores.tolist(), strict=True):
        word = text[begin:end]
        if _touches(found, (begin, end)) or not word[0].isalnum():
            continue
        held = lists_of(word) if word[0].isupper() else frozenset()
        if score >= _POSSIBLE or (held & _NAME_LISTS and "common-word" not in held):
            if loose and text[loose[-1][1] : begin] in {" ", "-", "/"}:
                loose[-1] = (loose[-1][0], end)
            else:
                loose.append((begin, end))
    return sorted([*found, *loose])


def _has_marks(outputs: Sequence[str]) -> bool:
    """True if most outputs have marks such as ``[DATE]``, as any reader sees."""
    return 2 * sum(_MARK.search(text) is not None for text in outputs) > len(outputs)


def _touches(ranges: Sequence[Range], span: Range) -> bool:
    """True if one of ``ranges``, in order and disjoint, shares a character with ``span``."""
    at = bisect_right(ranges, span[0], key=lambda each: each[1])
    return at < len(ranges) and ranges[at][0] < span[1]


def _words(text: str) -> list[str]:
    doc = Document(text)
    return [fold_accents(text[a:b]) for a, b in doc.tokens if text[a].isalpha() and b - a > 2]


def _normal(text: str) -> str:
    return " ".join(fold_accents(text).split())
