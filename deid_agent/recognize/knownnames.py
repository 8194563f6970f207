"""The people that a message's structured part names, as ``namefinder`` looks for them.

A person is what one group of facts says: family names, given names, initials.
Nicknames of a given name count like the name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nicknames import NickNamer

from deid_agent.errors import ConfigurationError
from deid_agent.lexicon import Lexicon
from deid_agent.phi import PhiType
from deid_agent.sites import Fact, Kind, Subject
from deid_agent.text import folded

_WORD = re.compile(r"[^\W\d_]+(?:[̀-ͯ][^\W\d_]*)*")


@dataclass(frozen=True, slots=True)
class Words:
    """The word lists that tell names from words (files of ``rules/lexicon``)."""

    common: Lexicon = frozenset()
    particles: Lexicon = frozenset()
    titles: Lexicon = frozenset()
    not_initials: Lexicon = frozenset()
    site_kinds: Lexicon = frozenset()

    @classmethod
    def of(cls, lexicons: Mapping[str, Lexicon]) -> "Words":
        """Raises ``ConfigurationError`` naming a list that is missing."""
        try:
            return cls(*(lexicons[name] for name in _LISTS))
        except KeyError as fault:
            raise ConfigurationError(f"rules/lexicon: known PHI needs the list {fault.args[0]}.txt") from None

    def distinctive(self, word: str) -> bool:
        """True where ``word`` (folded) alone is a name: long enough, no common word, no particle."""
        return len(word) > 2 and word not in self.common and word not in self.particles


_LISTS = ("common", "name-particle", "name-title", "not-initials", "site-kind")


@dataclass(frozen=True, slots=True)
class Person:
    """One person of the structured part: folded name parts, first letters of the given names, names without a blank."""

    type: PhiType
    subject: Subject
    family: frozenset[str] = field(repr=False)
    given: frozenset[str] = field(repr=False)
    initials: tuple[str, ...] = field(repr=False)
    glued: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def source(self) -> str:
        return f"known:{self.subject}-name"


def people(facts: Sequence[Fact], words: Words, *, nicknames: bool = True) -> tuple[Person, ...]:
    """Persons of the facts, one per group, type and subject, in the order of their first fact; namesakes once."""
    groups: dict[tuple[str, PhiType, Subject], list[Fact]] = {}
    for fact in facts:
        if fact.kind in (Kind.FAMILY, Kind.GIVEN, Kind.NAME):
            groups.setdefault((fact.group, fact.type, fact.subject), []).append(fact)
    built = (_person(kind, subject, group, words, nicknames) for (_, kind, subject), group in groups.items())
    return tuple(dict.fromkeys(person for person in built if person.family or person.given))


def _person(kind: PhiType, subject: Subject, facts: Iterable[Fact], words: Words, nicknames: bool) -> Person:
    family: list[str] = []
    given: list[str] = []
    for fact in facts:
        first, last = fact.value, ""
        if fact.kind is Kind.FAMILY:
            first, last = "", fact.value
        elif fact.kind is Kind.NAME:
            last, _, first = fact.value.partition(",")
            if all(folded(word.strip(".,")) in words.titles for word in first.split()):
                first, last = _split(last, words)
        family += _parts(last, words)
        given += _parts(first, words)
    letters = tuple(w[0] for w in given if w[0].isalpha())
    nicks = {nick for word in given if nicknames and len(word) > 2 for nick in _nicknames(word)}
    full = frozenset(w for w in given if len(w) > 1) | frozenset(n for n in nicks if len(n) > 2 and n.isalpha())
    glued = frozenset(_glued(family, given, words))
    return Person(kind, subject, frozenset(w for w in family if len(w) > 1), full, letters, glued)


def _glued(family: Sequence[str], given: Sequence[str], words: Words) -> Iterator[str]:
    """``quixwellzoriana``, ``zorianaquixwell``, ``zquixwell``: what addresses and signs of users make of a name."""
    for last in family:
        for first in given:
            pair = len(first) > 2 and len(last) > 2 and len(first) + len(last) > _GLUED
            if pair and (words.distinctive(first) or words.distinctive(last)):
                yield from (first + last, last + first)
        if given and len(last) > 4 and words.distinctive(last):
            yield given[0][0] + last


_GLUED = 7
"""Letters that two names have more of where they count glued together."""


def _split(name: str, lists: Words) -> tuple[str, str]:
    """Given and family part of a name written in reading order; particles go with the family name."""
    words = [w for w in name.split() if folded(w.strip(".,")) not in lists.titles]
    at = len(words) - 1
    while at > 1 and folded(words[at - 1]) in lists.particles:
        at -= 1
    return " ".join(words[:at]), " ".join(words[at:])


def _parts(name: str, lists: Words) -> Iterator[str]:
    """Folded words of a name; of ``O'Leary`` and ``Al-Rashid`` also the joined form."""
    for chunk in name.split():
        words = [folded(w) for w in _WORD.findall(chunk)]
        # Do, Ma and Pa are family names of Asia: a whole field of two letters is no title
        yield from (w for w in words if w not in lists.titles or (name == chunk and len(w) == 2))
        if len(words) > 1:
            yield "".join(words)


def _nicknames(word: str) -> frozenset[str]:
    return frozenset(str(name) for name in _NAMER.nicknames_of(word))


_NAMER = NickNamer()


def one_edit(a: str, b: str) -> bool:
    """True where one insertion, deletion, substitution or swap of neighbours makes ``a`` of ``b`` (Damerau 1964)."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    rest_a, rest_b = a[head : len(a) - tail], b[head : len(b) - tail]
    return max(len(rest_a), len(rest_b)) == 1 or (len(rest_a) == 2 and rest_a == rest_b[::-1])
