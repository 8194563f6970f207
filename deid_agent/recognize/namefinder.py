"""Finds the people of one message in its narratives.

In the text a *run* is a row of one person's name parts (``Okafor, Ada M.``,
``ada okafor``), and it counts as the name when

* one of its parts is distinctive: three letters or more and neither a common
  word of clinical notes (``rules/lexicon/common.txt``) nor a particle, in any case; or
* it has two different parts, or a part and an initial with a comma or full
  stop, all of them capitalised (``Hope Young``, ``W. May``, ``May, W``); or
* it is one capitalised part right after a name cue (``Mr. May``, ``wife Hope``, ``Name: BROWN``); or
* it stands behind a distinctive given name and one other word, all three in title case (``Henry Level Eighth``).

So ``Will``, ``May``, ``Brown`` or ``Li`` alone are words. A distinctive part of
six letters or more is also found with one letter wrong, missing, doubled or two
swapped, unless the misspelling is itself a common word.

One index from name parts to people is built per message. A narrative looks up
its own words, so that the cost is linear in the words of all narratives however
many people the message names: of a part that many share, one person stands for
all, and two parts beside each other lead to those who have both. Names without a blank
between (``ZorianaQuixwell``) count like names; in lower case they are a USERNAME.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.phi import PhiType
from deid_agent.recognize.knownnames import Person, Words, one_edit
from deid_agent.sites import Subject
from deid_agent.spans import Span
from deid_agent.text import Document, Range, folded

_GAP = re.compile(r"[ \t,.'’\-]{0,4}\r?\n?[ \t]{0,3}|[ \t]{1,8}")
_CUE = re.compile(
    r"(?:\b(?:mr|mrs|ms|miss|mx|dr|prof|master|sir|dame|rev|fr|sr|patient|pt|client|resident|name|re|for|dear|"
    r"mother|mom|mum|father|dad|wife|husband|spouse|partner|son|daughter|brother|sister|aunt|uncle|friend|"
    r"grandmother|grandfather|grandson|granddaughter|cousin|niece|nephew|neighbor|neighbour|"
    r"nurse|rn|attending|surgeon|physician|provider|pcp|resident|signed by|dictated by)\b\.?[:,]?|[:(\"“])[ \t]{0,6}\Z",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(r",?[ \t]{0,2}(?:m\.?d|d\.?o|r\.?n|np|pa-c|ph\.?d)\b", re.IGNORECASE)
_LONGEST = 64
_LETTERS = re.compile(r"[a-z]+")
_DAY = re.compile(r"[ \t]{0,3}\d")
_DOTTED = re.compile(r"(?<![\w.])[^\W\d_]\. ?(?:[^\W\d_]\. ?)?[^\W\d_]\.(?!\w)")
_FIGURES = re.compile(r"\d{1,6}")
_SHARED = 12
"""A part that more people have is looked for once for all of them."""
_FEW = 40
"""So many parts are each looked for before a text is read word by word; more cost less by words."""


@dataclass(frozen=True)
class NameFinder:
    """Finds ``people``; built once per set of facts. ``exact`` as in ``KnownRecognizer``."""

    people: tuple[Person, ...] = field(repr=False)
    lists: Words = field(repr=False)
    exact: bool = False

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of every run that counts as a name; runs of two people may overlap."""
        if not self.people:
            return
        if self.exact and len(self._index) <= _FEW:
            plain = folded(doc.text)
            if not any(part in plain for part in self._index):
                return
        words = [(a, b) for a, b in doc.tokens if doc.text[a].isalpha()]
        plains = [folded(doc.text[a:b]) for a, b in words]
        for person, hits in self._hits(plains).items():
            yield from _Reading(person, doc, self.lists, words, plains, self.exact).runs(sorted(hits))
        if not self.exact:
            yield from self._initials(doc)

    def rules_out(self, doc: Document, *, rows: bool) -> bool:  # noqa: ARG002
        """As ``KnownRecognizer.rules_out``: none of the words is a part of a name."""
        return doc.text.isascii() and self._index.keys().isdisjoint(_LETTERS.findall(doc.lower))

    @cached_property
    def _index(self) -> Mapping[str, tuple[Person, ...]]:
        """The people of each part and of each glued name."""
        index: dict[str, list[Person]] = {}
        for person in self.people:
            for part in person.family | person.given | person.glued:
                index.setdefault(part, []).append(person)
        return {part: tuple(named) for part, named in index.items()}

    @cached_property
    def _anyone(self) -> Mapping[str, tuple[Person, ...]]:
        """Of each part that many share, who stands for them: one for every type and subject."""
        return {part: tuple(_merged(part, named)) for part, named in self._index.items() if len(named) > _SHARED}

    @cached_property
    def _holders(self) -> Mapping[str, frozenset[Person]]:
        return {part: frozenset(self._index[part]) for part in self._anyone}

    @cached_property
    def _near(self) -> Mapping[str, tuple[str, ...]]:
        """Parts that may be misspelled, by themselves and by what is left of them without one letter."""
        near: dict[str, list[str]] = {}
        for part in {part for person in self.people for part in person.family | person.given}:
            if len(part) >= 6 and self.lists.distinctive(part):
                for key in _shortened(part):
                    near.setdefault(key, []).append(part)
        return {key: tuple(parts) for key, parts in near.items()}

    @cached_property
    def _signed(self) -> Mapping[tuple[str, str], tuple[Person, ...]]:
        """Patients by the first letters of their first given name and of a family name; one for all alike."""
        signed: dict[tuple[str, str], dict[tuple[PhiType, str], Person]] = {}
        for person in self.people:
            if person.subject is Subject.PATIENT and person.initials:
                for last in {word[0] for word in person.family}:
                    of = signed.setdefault((person.initials[0], last), {})
                    of.setdefault((person.type, person.source), person)
        return {letters: tuple(of.values()) for letters, of in signed.items()}

    def _hits(self, plains: Sequence[str]) -> Mapping[Person, set[int]]:
        """Who may be named in these words, and by which of them."""
        parts = {word: self._parts(word) for word in dict.fromkeys(plains)}
        parts = {word: own for word, own in parts.items() if own}
        hits: dict[Person, set[int]] = {}
        places = [at for at, word in enumerate(plains) if word in parts]
        for at in places:
            for part in parts[plains[at]]:
                for person in self._anyone.get(part) or self._index[part]:
                    hits.setdefault(person, set()).add(at)
        for at, other in self._beside(places):
            for part in parts[plains[at]]:
                for second in parts[plains[other]]:
                    for person in self._both(part, second):
                        hits.setdefault(person, set()).update((at, other))
        return hits

    @staticmethod
    def _beside(places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Pairs of places that one run may hold next to each other."""
        for n, at in enumerate(places):
            for other in places[n + 1 : n + 3]:
                if other - at <= 2:
                    yield at, other

    def _both(self, part: str, second: str) -> Iterable[Person]:
        """People who have both parts, where one of the parts is shared by many."""
        if part not in self._anyone and second not in self._anyone:
            return ()
        if part in self._anyone and second in self._anyone:
            return self._holders[part] & self._holders[second]
        many, few = (part, second) if part in self._anyone else (second, part)
        return [person for person in self._index[few] if person in self._holders[many]]

    def _parts(self, word: str) -> tuple[str, ...]:
        """The parts that ``word`` says, well spelled or not."""
        exact = (word,) if word in self._index else ()
        if self.exact or len(word) < 5 or word in self.lists.common:
            return exact
        near = {part for key in _shortened(word) for part in self._near.get(key, ())}
        return (*exact, *sorted(part for part in near if _misspelled(word, part)))

    def _initials(self, doc: Document) -> Iterator[Span]:
        """``A.O.`` and ``A. M. O.``: initials with full stops, given first, family last."""
        if not self._signed:
            return
        for found in _DOTTED.finditer(doc.text):
            letters = [folded(c) for c in found.group() if c.isalpha()]
            if "".join(letters) not in self.lists.not_initials:
                for person in self._signed.get((letters[0], letters[-1]), ()):
                    yield Span(found.start(), found.end(), person.type, f"known:{person.subject}-initials")


def _merged(part: str, named: Iterable[Person]) -> Iterator[Person]:
    initials: dict[tuple[PhiType, Subject], set[str]] = {}
    glued: set[str] = set()
    for person in named:
        glued |= person.glued & {part}
        initials.setdefault((person.type, person.subject), set()).update(person.initials)
    for (kind, subject), letters in initials.items():
        yield Person(kind, subject, frozenset({part}), frozenset(), tuple(sorted(letters)), frozenset(glued))


def _shortened(word: str) -> set[str]:
    """``word`` and all that is left of it without one letter: two words one edit apart share one of these.

    Nothing for what is longer than a name: the letters would be as many as its length squared.
    """
    return set() if len(word) > _LONGEST else {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}


def _misspelled(word: str, part: str) -> bool:
    return (word[0] == part[0] or word[:2] == part[1::-1]) and one_edit(word, part)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One person looked for in one text: ``words`` are the ranges of its words, ``plains`` the folded words."""

    person: Person
    doc: Document
    lists: Words
    words: Sequence[Range]
    plains: Sequence[str] = field(repr=False)
    exact: bool = False

    def runs(self, hits: Sequence[int]) -> Iterator[Span]:
        """Spans of the runs around the words ``hits``, which are parts of the name."""
        person, words, text = self.person, self.words, self.doc.text
        named = frozenset(hits)
        at = 0
        while at < len(hits):
            run = [hits[at]]
            while (at := at + 1) < len(hits) and self._goes_on(run[-1], hits[at]):
                run += range(run[-1] + 1, hits[at] + 1)
            run = self._with_initials(run)
            if self._counts(run, {self.plains[place] for place in run if place in named}):
                start, end = words[run[0]][0], words[run[-1]][1]
                login = len(run) == 1 and self.plains[run[0]] in person.glued and text[start:end].islower()
                figures = _FIGURES.match(text, end) if login else None
                kind = PhiType.USERNAME if login else person.type
                yield Span(start, figures.end() if figures else end, kind, person.source)

    def _goes_on(self, last: int, following: int) -> bool:
        """True where the two parts touch, or only an initial or a middle name stands between."""
        if following - last > 2 or not self._touch(last):
            return False
        if following == last + 1:
            return True
        return (self._is_initial(last + 1) and self._touch(last + 1)) or self._is_middle(last + 1)

    def _with_initials(self, run: list[int]) -> list[int]:
        while run[-1] + 1 < len(self.words) and self._is_initial(run[-1] + 1) and self._touch(run[-1]):
            run.append(run[-1] + 1)
        while run[0] > 0 and self._leads(run[0] - 1):
            run.insert(0, run[0] - 1)
        return run

    def _leads(self, at: int) -> bool:
        """True where word ``at`` is an initial, or the O of O'Leary, before the run."""
        a, b = self.words[at]
        if b - a == 1 and self.doc.text[b : b + 1] in ("'", "’") and self.words[at + 1][0] == b + 1:
            return True
        return self._is_initial(at) and self._touch(at)

    def _counts(self, run: Sequence[int], full: set[str]) -> bool:
        if any(self.lists.distinctive(word) for word in full):
            return True
        text, particles = self.doc.text, self.lists.particles
        if not all(text[self.words[at][0]].isupper() for at in run if self.plains[at] not in particles):
            return False
        start, end = self.words[run[0]][0], self.words[run[-1]][1]
        named = full - particles
        if len(named) > 1:
            return True
        if not named:
            return False
        if len(run) > len(full) and re.search(r"[.,]", text[start : end + 1]):
            return True
        return _CUE.search(text, max(0, start - 24), start) is not None or _CREDENTIAL.match(text, end) is not None

    def _is_initial(self, at: int) -> bool:
        a, b = self.words[at]
        return b - a == 1 and self.doc.text[a].isupper() and self.plains[at] in self.person.initials

    def _is_middle(self, at: int) -> bool:
        """True for a word in title case between a given name and a family name that alone is a word (``May``)."""
        given, family = self.plains[at - 1], self.plains[at + 1]
        if self.exact or given not in self.person.given or family not in self.person.family:
            return False
        if self.lists.distinctive(family) or not self.lists.distinctive(given):
            return False
        (start, _), (_, end) = self.words[at - 1], self.words[at + 1]
        parts = self.doc.text[start:end].split()
        titled = len(parts) == 3 and all(len(part) > 1 and part.istitle() and part.isalpha() for part in parts)
        return titled and "\n" not in self.doc.text[start:end] and not _DAY.match(self.doc.text, end)

    def _touch(self, at: int) -> bool:
        """True where only a name's own punctuation stands between word ``at`` and the next."""
        return _GAP.fullmatch(self.doc.text, self.words[at][1], self.words[at + 1][0]) is not None
