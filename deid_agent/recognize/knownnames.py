"""Names that the message's structured part gives, found in its narrative.

A person is what one group of facts says: family names, given names, initials.
In the text a *run* is a row of that person's parts (``Okafor, Ada M.``,
``ada okafor``), and it counts as the name when

* one of its parts is distinctive: three letters or more and neither a common
  word of clinical notes (``rules/lexicon/common.txt``) nor a particle, in any case; or
* it has two different parts, or a part and an initial with a comma or full
  stop, all of them capitalised (``Hope Young``, ``W. May``, ``May, W``); or
* it is one capitalised part right after a name cue (``Mr. May``, ``wife Hope``, ``Name: BROWN``).

So ``Will``, ``May``, ``Brown`` or ``Li`` alone are words. Nicknames of a given
name count like the name; a distinctive part of six letters or more is also
found with one letter wrong, missing, doubled or two swapped, unless the
misspelling is itself a common word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nicknames import NickNamer

from deid_agent.errors import ConfigurationError
from deid_agent.lexicon import Lexicon
from deid_agent.phi import PhiType
from deid_agent.sites import Fact, Kind, Subject
from deid_agent.spans import Span
from deid_agent.text import Document, folded

_WORD = re.compile(r"[^\W\d_]+(?:[̀-ͯ][^\W\d_]*)*")
_GAP = re.compile(r"[ \t,.'’\-]{0,4}\r?\n?[ \t]{0,3}|[ \t]{1,8}")
_CUE = re.compile(
    r"(?:\b(?:mr|mrs|ms|miss|mx|dr|prof|master|sir|dame|rev|fr|sr|patient|pt|client|resident|name|re|for|dear|"
    r"mother|mom|mum|father|dad|wife|husband|spouse|partner|son|daughter|brother|sister|aunt|uncle|friend|"
    r"grandmother|grandfather|grandson|granddaughter|cousin|niece|nephew|neighbor|neighbour|"
    r"nurse|rn|attending|surgeon|physician|provider|pcp|resident|signed by|dictated by)\b\.?[:,]?|[:(\"“])[ \t]{0,6}\Z",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(r",?[ \t]{0,2}(?:m\.?d|d\.?o|r\.?n|np|pa-c|ph\.?d)\b", re.IGNORECASE)


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


_LISTS = ("common", "name-particle", "name-title", "not-initials", "site-kind")


@dataclass(frozen=True, slots=True)
class Person:
    """One person of the structured part: folded name parts and first letters of the given names."""

    type: PhiType
    subject: Subject
    family: frozenset[str] = field(repr=False)
    given: frozenset[str] = field(repr=False)
    initials: tuple[str, ...] = field(repr=False)

    @property
    def source(self) -> str:
        return f"known:{self.subject}-name"


def people(facts: Sequence[Fact], words: Words, *, nicknames: bool = True) -> tuple[Person, ...]:
    """Persons of the facts, one per group, type and subject, in the order of their first fact."""
    groups: dict[tuple[str, PhiType, Subject], list[Fact]] = {}
    for fact in facts:
        if fact.kind in (Kind.FAMILY, Kind.GIVEN, Kind.NAME):
            groups.setdefault((fact.group, fact.type, fact.subject), []).append(fact)
    built = (_person(kind, subject, group, words, nicknames) for (_, kind, subject), group in groups.items())
    return tuple(person for person in built if person.family or person.given)


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
    return Person(kind, subject, frozenset(w for w in family if len(w) > 1), full, letters)


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
        yield from (w for w in words if w not in lists.titles)
        if len(words) > 1:
            yield "".join(words)


def _nicknames(word: str) -> frozenset[str]:
    return frozenset(str(name) for name in _NAMER.nicknames_of(word))


_NAMER = NickNamer()
_FEW = 40
"""So many people are each looked for before the text is read word by word; more cost less by words."""


@dataclass(frozen=True, slots=True)
class NameFinder:
    """Finds the people of one message; built once per set of facts."""

    people: tuple[Person, ...] = field(repr=False)
    lists: Words = field(repr=False)
    exact: bool = False

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of every run that counts as a name; runs of two people may overlap."""
        people = self.people
        if self.exact and len(people) <= _FEW:
            plain = folded(doc.text)
            people = tuple(p for p in people if any(part in plain for part in p.family | p.given))
        if not people:
            return
        words = [(a, b) for a, b in doc.tokens if doc.text[a].isalpha()]
        index: dict[str, list[int]] = {}
        for at, (a, b) in enumerate(words):
            index.setdefault(folded(doc.text[a:b]), []).append(at)
        for person in people:
            yield from self._runs(person, doc, words, index)
            if person.subject is Subject.PATIENT and not self.exact:
                yield from _initials(person, doc, self.lists)

    def _runs(
        self, person: Person, doc: Document, words: list[tuple[int, int]], index: Mapping[str, list[int]]
    ) -> Iterator[Span]:
        parts = person.family | person.given
        spelled = set(parts)
        if not self.exact:
            spelled |= {w for w in index if w not in parts and self._misspelled(w, parts)}
        hits = sorted(at for word in spelled for at in index.get(word, ()))
        at = 0
        while at < len(hits):
            run = [hits[at]]
            while (at := at + 1) < len(hits) and self._goes_on(person, doc, words, run[-1], hits[at]):
                run += range(run[-1] + 1, hits[at] + 1)
            run = self._with_initials(person, doc, words, run)
            if self._counts(spelled, doc, words, run):
                yield Span(words[run[0]][0], words[run[-1]][1], person.type, person.source)

    def _goes_on(self, person: Person, doc: Document, words: list[tuple[int, int]], last: int, following: int) -> bool:
        """True where the two parts touch, or only an initial of the same person stands between."""
        if following - last > 2 or not _touch(doc, words, last):
            return False
        return following == last + 1 or (_is_initial(person, doc, words[last + 1]) and _touch(doc, words, last + 1))

    def _with_initials(self, person: Person, doc: Document, words: list[tuple[int, int]], run: list[int]) -> list[int]:
        while run[-1] + 1 < len(words) and _is_initial(person, doc, words[run[-1] + 1]) and _touch(doc, words, run[-1]):
            run.append(run[-1] + 1)
        while run[0] > 0 and self._leads(person, doc, words, run[0] - 1):
            run.insert(0, run[0] - 1)
        return run

    def _leads(self, person: Person, doc: Document, words: list[tuple[int, int]], at: int) -> bool:
        """True where word ``at`` is an initial, or the O of O'Leary, before the run."""
        a, b = words[at]
        if b - a == 1 and doc.text[b : b + 1] in ("'", "’") and words[at + 1][0] == b + 1:
            return True
        return _is_initial(person, doc, words[at]) and _touch(doc, words, at)

    def _counts(
        self, parts: frozenset[str] | set[str], doc: Document, words: list[tuple[int, int]], run: list[int]
    ) -> bool:
        texts = [doc.text[words[at][0] : words[at][1]] for at in run]
        full = {folded(t) for t in texts} & parts
        if any(self._distinctive(word) for word in full):
            return True
        if not all(t[0].isupper() for t in texts if folded(t) not in self.lists.particles):
            return False
        start, end = words[run[0]][0], words[run[-1]][1]
        named = full - self.lists.particles
        if len(named) > 1:
            return True
        if not named:
            return False
        if len(texts) > len(full) and re.search(r"[.,]", doc.text[start : end + 1]):
            return True
        return _CUE.search(doc.text, max(0, start - 24), start) is not None or (
            _CREDENTIAL.match(doc.text, end) is not None
        )

    def _distinctive(self, word: str) -> bool:
        return len(word) > 2 and word not in self.lists.common and word not in self.lists.particles

    def _misspelled(self, word: str, parts: frozenset[str]) -> bool:
        if len(word) < 5 or word in self.lists.common:
            return False
        return any(
            len(part) >= 6
            and (word[0] == part[0] or word[:2] == part[1::-1])
            and abs(len(part) - len(word)) < 2
            and self._distinctive(part)
            and one_edit(word, part)
            for part in parts
        )


def _is_initial(person: Person, doc: Document, word: tuple[int, int]) -> bool:
    a, b = word
    return b - a == 1 and doc.text[a].isupper() and folded(doc.text[a:b]) in person.initials


def _touch(doc: Document, words: list[tuple[int, int]], at: int) -> bool:
    """True where only a name's own punctuation stands between word ``at`` and the next."""
    return _GAP.fullmatch(doc.text, words[at][1], words[at + 1][0]) is not None


def _initials(person: Person, doc: Document, lists: Words) -> Iterator[Span]:
    """``A.O.`` and ``A. M. O.``: capital initials with full stops, given first, family last."""
    last = {word[0] for word in person.family if len(word) > 1}
    if not person.initials or not last:
        return
    first = person.initials[0]
    for found in _DOTTED.finditer(doc.text):
        letters = [folded(c) for c in found.group() if c.isalpha()]
        if letters[0] == first and letters[-1] in last and "".join(letters) not in lists.not_initials:
            yield Span(found.start(), found.end(), person.type, f"known:{person.subject}-initials")


_DOTTED = re.compile(r"(?<![\w.])[^\W\d_]\. ?(?:[^\W\d_]\. ?)?[^\W\d_]\.(?!\w)")


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
