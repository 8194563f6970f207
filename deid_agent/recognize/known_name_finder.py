"""Finds the people of a message in its narratives.

A *run* is a sequence of name parts of one person in the text (``Okafor, Ada M.``, ``ada okafor``). A run counts as the
name in these cases:

* One of its parts is distinctive: it has at least three letters and is neither a common word of clinical notes
  (``rules/lexicon/common.txt``) nor a particle. The case does not matter.
* It has two different parts, or a part and an initial with a comma or full stop, all of them capitalized (``Hope
  Young``, ``W. May``, ``May, W``).
* It is one capitalized part directly after a name cue (``Mr. May``, ``wife Hope``, ``Name: BROWN``), or before a verb
  of speech (``Bill denies pain``), or with a possessive (``Long's wound``) unless a sign or a disease follows, or a
  given name that begins a line and a speech (``Bill: no pain``), or beside its other half (``Long/Grace``).
* It has a letter that is not ASCII, as the name has (``Åsa``).
* It follows a distinctive given name and one other word, all three in title case (``Henry Level Eighth``).

``Will``, ``May``, ``Brown`` and ``Li`` alone are therefore words. A distinctive part of at least six letters is also
found with one letter wrong, missing or doubled, or with two letters transposed, unless that is a common word. One of
five letters is found with one more letter or with two transposed, and any name of at least four letters beside another
part of its person. A part of at least four letters is also found in the plural (``the Okafors``).

``known_initials`` finds their initials.

One index from name parts to people is built for each message, and each narrative looks up its own words in it. The cost
is linear in the words of all narratives and independent of the number of people: one person represents all who share a
frequent part, and two adjacent parts lead to the people who have both. Names joined without a blank
(``ZorianaQuixwell``) count as names; in lower case they are a USERNAME.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.model import Document, PhiType, Range, Span, Subject, fold_accents
from deid_agent.recognize.known_compounds import CompoundFinder
from deid_agent.recognize.known_initials import InitialsFinder
from deid_agent.recognize.known_people import NameLexicons, Person
from deid_agent.recognize.many_words import ManyWords
from deid_agent.recognize.misspellings import MisspellingIndex, is_one_edit_apart

_GAP = re.compile(r"[ \t,.'‘’`´\-]{0,4}\r?\n?[ \t]{0,3}|[ \t]{1,8}")
_BETWEEN_PARTS = re.compile(r"[ \t,.:/|^_()\"*'’\-]{1,4}")
_SHORTEST_BESIDE = 4
_SHORTEST_PLURAL = 3
_LETTERS = re.compile(r"[a-z]+")
_MIXED = re.compile(r"[A-Z]?[a-z]+[A-Z][A-Za-z]*|[A-Z]{2,}[a-z][A-Za-z]*")
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DAY = re.compile(r"[ \t]{0,3}\d")
_ENDING = re.compile(r"['’ʻ`](?![sS]\b)(?:[a-z]{1,3}|[A-Z]{1,3})(?!\w)")
"""The last syllable of a name with a glottal stop: Ng'ang'a."""
_SPEAKS = re.compile(r"[ \t]?:[ \t]{0,2}[\"“'A-Za-z]")
_DIGITS = re.compile(r"\d{1,6}")
_REACH = 24
_MANY_PARTS = 40
_MANY_PEOPLE = 12
"""A part that more people than this share is searched for once for all of them."""
_FEW_PARTS = 40
"""Up to this number of parts, each is searched for before a text is split into words; for more, words are faster."""


@dataclass(frozen=True)
class NameFinder:
    """Finds ``people``; created once for each set of facts. For ``exact`` see ``KnownRecognizer``."""

    people: tuple[Person, ...] = field(repr=False)
    lists: NameLexicons = field(repr=False)
    exact: bool = False

    def find(self, doc: Document) -> Iterator[Span]:
        """The spans of all runs that count as a name. Runs of two people may overlap."""
        if not self.people:
            return
        if self.exact and len(self._index) <= _FEW_PARTS:
            plain = fold_accents(doc.text)
            if not any(part in plain for part in self._index):
                return
        words = [(a, b) for a, b in doc.tokens if doc.text[a].isalpha()]
        folded = [fold_accents(doc.text[a:b]) for a, b in words]
        covered = bytearray(len(doc.text))
        for person, hits in self._hits(folded).items():
            hits |= set(self._misspelt_beside(doc, words, folded, person, hits))
            for span in _PersonSearch(person, doc, self.lists, words, folded, self.exact).runs(sorted(hits)):
                covered[span.start : span.end] = b"1" * (span.end - span.start)
                yield span
        if not self.exact:
            for span in self._compounds.find(doc, words, folded):
                if 0 in covered[span.start : span.end]:
                    yield span
            yield from self._initials.find(doc)

    def proves_absence(self, doc: Document, *, in_rows: bool) -> bool:  # noqa: ARG002
        """Return true if no word is a part of a name, see ``KnownRecognizer.proves_absence``."""
        if not doc.text.isascii() or not self._index.keys().isdisjoint(_LETTERS.findall(doc.lower)):
            return False
        if len(self._index) > _FEW_PARTS:
            if not self._words.occur_in(doc.compact):
                return True
        elif not any(word in doc.compact for word in self._index):
            return True
        mixed = set(_MIXED.findall(doc.text))  # words that ``separate_glued_words`` divides
        return not any(piece.lower() in self._index for word in mixed for piece in _PIECES.findall(word))

    @cached_property
    def _words(self) -> ManyWords:
        return ManyWords.of(self._index)

    @cached_property
    def _initials(self) -> InitialsFinder:
        return InitialsFinder(self.people, self.lists)

    @cached_property
    def _compounds(self) -> CompoundFinder:
        return CompoundFinder(self.people, self.lists)

    @cached_property
    def _index(self) -> Mapping[str, tuple[Person, ...]]:
        """The people of each part and of each joined name."""
        index: dict[str, list[Person]] = {}
        for person in self.people:
            for part in person.family | person.given | person.joined:
                index.setdefault(part, []).append(person)
        return {part: tuple(named) for part, named in index.items()}

    @cached_property
    def _representatives(self) -> Mapping[str, tuple[Person, ...]]:
        """For each part that many people share, one representative for each type and subject."""
        return {
            part: tuple(_merge_people(part, named)) for part, named in self._index.items() if len(named) > _MANY_PEOPLE
        }

    @cached_property
    def _holders(self) -> Mapping[str, frozenset[Person]]:
        return {part: frozenset(self._index[part]) for part in self._representatives}

    def _hits(self, folded: Sequence[str]) -> Mapping[Person, set[int]]:
        """The people that these words may name, with the indexes of the words."""
        parts = {word: self._parts_of(word) for word in dict.fromkeys(folded)}
        parts = {word: own for word, own in parts.items() if own}
        hits: dict[Person, set[int]] = {}
        places = [at for at, word in enumerate(folded) if word in parts]
        for at in places:
            for part in parts[folded[at]]:
                for person in self._representatives.get(part) or self._index[part]:
                    hits.setdefault(person, set()).add(at)
        for at, other in self._adjacent(places):
            for part in parts[folded[at]]:
                for second in parts[folded[other]]:
                    for person in self._people_with_both(part, second):
                        hits.setdefault(person, set()).update((at, other))
        return hits

    @staticmethod
    def _adjacent(places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Pairs of indexes that can be neighbours in a run."""
        for n, at in enumerate(places):
            for other in places[n + 1 : n + 3]:
                if other - at <= 2:
                    yield at, other

    def _people_with_both(self, part: str, second: str) -> Iterable[Person]:
        """The people who have both parts, if many people share one of the parts."""
        if part not in self._representatives and second not in self._representatives:
            return ()
        if part in self._representatives and second in self._representatives:
            return self._holders[part] & self._holders[second]
        many, few = (part, second) if part in self._representatives else (second, part)
        return [person for person in self._index[few] if person in self._holders[many]]

    def _parts_of(self, word: str) -> tuple[str, ...]:
        """The name parts that ``word`` spells, correctly or not."""
        exact: tuple[str, ...] = (word,) if word in self._index else ()
        if len(word) > _SHORTEST_PLURAL and word[-1] == "s" and word not in self.lists.common:
            exact += tuple(
                part for part in (word[:-1], word[:-2]) if part in self._index and self._has_plural(part, word)
            )
        if self.exact or len(word) < _SHORTEST_BESIDE or word in self.lists.common:
            return exact
        found = self._misspellings.parts_of(word)
        return (*exact, *sorted(found.difference(exact)))

    @cached_property
    def _misspellings(self) -> MisspellingIndex:
        return MisspellingIndex(frozenset(self._index), self._single_parts, self.lists)

    @cached_property
    def _single_parts(self) -> frozenset[str]:
        return frozenset(part for person in self.people for part in person.family | person.given)

    def _has_plural(self, part: str, word: str) -> bool:
        sure = len(part) >= _SHORTEST_BESIDE or self.lists.is_unknown(word)
        return sure and self.lists.is_distinctive(part)

    def _misspelt_beside(
        self, doc: Document, words: Sequence[Range], folded: Sequence[str], person: Person, hits: set[int]
    ) -> Iterator[int]:
        """The indexes of words that misspell a part of the person directly beside another part."""
        parts = person.family | person.given
        if len(parts) > _MANY_PARTS:
            return
        for at, other in ((hit + step, hit) for hit in hits for step in (-1, 1) if 0 <= hit + step < len(words)):
            word = folded[at]
            if at in hits or len(word) < _SHORTEST_BESIDE - 1 or word in self.lists.common:
                continue
            if not self.lists.is_distinctive(folded[other]):  # "will fret" is not Will Fred
                continue
            near = (part for part in parts if len(part) >= _SHORTEST_BESIDE and is_one_edit_apart(word, part))
            if any(part != folded[other] for part in near):
                first, second = sorted((at, other))
                if _GAP.fullmatch(doc.text, words[first][1], words[second][0]):
                    yield at


def _merge_people(part: str, named: Iterable[Person]) -> Iterator[Person]:
    initials: dict[tuple[PhiType, Subject], set[str]] = {}
    joined: set[str] = set()
    for person in named:
        joined |= person.joined & {part}
        initials.setdefault((person.type, person.subject), set()).update(person.initials)
    for (kind, subject), letters in initials.items():
        yield Person(kind, subject, frozenset({part}), frozenset(), tuple(sorted(letters)), frozenset(joined))


@dataclass(frozen=True, slots=True)
class _PersonSearch:
    """The search for one person in one text: ``words`` are the ranges of its words, ``folded`` the folded words."""

    person: Person
    doc: Document
    lists: NameLexicons
    words: Sequence[Range]
    folded: Sequence[str] = field(repr=False)
    exact: bool = False

    def runs(self, hits: Sequence[int]) -> Iterator[Span]:
        """The spans of the runs around the words ``hits``, which are parts of the name."""
        person, words, text = self.person, self.words, self.doc.text
        named = frozenset(hits)
        at = 0
        while at < len(hits):
            run = [hits[at]]
            while (at := at + 1) < len(hits) and self._continues(run[-1], hits[at]):
                run += range(run[-1] + 1, hits[at] + 1)
            run = self._with_initials(run)
            if self._counts_as_name(run, {self.folded[place] for place in run if place in named}) or (
                self._is_beside_part(run, named)
            ):
                start, end = words[run[0]][0], words[run[-1]][1]
                login = len(run) == 1 and self.folded[run[0]] in person.joined and text[start:end].islower()
                if (ending := _ENDING.match(text, end)) and "'" in fold_accents(text[start:end]).replace("’", "'"):
                    end = ending.end()
                digits = _DIGITS.match(text, end) if login else None
                kind = PhiType.USERNAME if login else person.type
                yield Span(start, digits.end() if digits else end, kind, person.source)

    def _continues(self, last: int, following: int) -> bool:
        """Return true if the parts are adjacent, or only an initial or a middle name separates them."""
        if following - last > 2 or not self._is_adjacent_to_next(last):
            return False
        if following == last + 1:
            return True
        return (self._is_initial(last + 1) and self._is_adjacent_to_next(last + 1)) or self._is_middle(last + 1)

    def _with_initials(self, run: list[int]) -> list[int]:
        while run[-1] + 1 < len(self.words) and self._follows_run(run[-1] + 1):
            run.append(run[-1] + 1)
        while run[0] > 0 and self._precedes_run(run[0] - 1):
            run.insert(0, run[0] - 1)
        return run

    def _follows_run(self, at: int) -> bool:
        """Return true if word ``at`` after the run is an initial on the same line, and no part of a term."""
        if not (self._is_initial(at) and self._is_adjacent_to_next(at - 1)):
            return False
        text, (start, end) = self.doc.text, self.words[at]
        return "\n" not in text[self.words[at - 1][1] : start] and self.lists.person.ends_initial(text, end)

    def _precedes_run(self, at: int) -> bool:
        """Return true if word ``at`` before the run is an initial or the O of O'Leary."""
        a, b = self.words[at]
        if b - a == 1 and self.doc.text[b : b + 1] in ("'", "’") and self.words[at + 1][0] == b + 1:
            return True
        return self._is_initial(at) and (
            self._is_adjacent_to_next(at) or self.doc.text[b : self.words[at + 1][0]] == "_"
        )

    def _counts_as_name(self, run: Sequence[int], full: set[str]) -> bool:
        if any(self.lists.is_distinctive(word) for word in full):
            return True
        text, particles = self.doc.text, self.lists.particles
        if not all(text[self.words[at][0]].isupper() for at in run if self.folded[at] not in particles):
            return False
        named = full - particles
        if not named and self.person.family <= particles:
            named = full & self.person.family  # a family called Do
        if len(named) != 1:
            return len(named) > 1
        start, end = self.words[run[0]][0], self.words[run[-1]][1]
        initials = len(run) > len(full) and re.search(r"[.,]", text[start : end + 1]) is not None
        marked = any(not text[slice(*self.words[at])].isascii() for at in run)
        return initials or marked or self._is_in_context(start, end, named)

    def _is_beside_part(self, run: Sequence[int], hits: frozenset[int]) -> bool:
        """Return true if the capitalized run is one half of ``Long/Grace``, ``Park (Ji-woo)``, ``Vo_Hien``."""
        text, person = self.doc.text, self.person
        if not text[self.words[run[0]][0]].isupper():
            return False
        for first, second in ((run[0] - 1, run[0]), (run[-1], run[-1] + 1)):
            if {first, second} <= hits and _BETWEEN_PARTS.fullmatch(text, self.words[first][1], self.words[second][0]):
                halves = self.folded[first], self.folded[second]
                other = halves[0] if second == run[0] else halves[1]
                sure = other not in self.lists.common or text[self.words[first][1] : self.words[second][0]] == "^"
                if sure and any(a in person.given and b in person.family for a, b in (halves, halves[::-1])):
                    return True
        return False

    def _is_in_context(self, start: int, end: int, named: set[str]) -> bool:
        """Return true if the words around a capitalized name are those around a person."""
        text = self.doc.text
        if end - start == 2 and text[start:end].isupper() and self._is_short_nickname(text[start:end].lower()):
            return False
        if self._acts(start, end, named):
            return True
        return self.lists.person.is_named(text, start, end)

    def _is_short_nickname(self, word: str) -> bool:
        """Return true for ``ed`` of Edward: ED in capitals is a department."""
        return any(len(given) > 2 and word in self.lists.nicknames_of(given) for given in self.person.given)

    def _acts(self, start: int, end: int, named: set[str]) -> bool:
        """Return true if the words around a capitalized name say that it does something, or it begins a speech."""
        text = self.doc.text
        if self.exact:
            return False
        contexts = self.lists.person
        if contexts.acts_like_person(text, start, end):
            return True
        if end - start > 2 and text[start:end].isupper():
            return False
        if contexts.owns.follows(text, end) or contexts.act.follows(text, end):
            return True
        if start > 0 and text[start - 1] != "\n":
            return False
        answers = contexts.answers.follows(text, end) is not None and not any(map(contexts.section.is_word, named))
        speaks = answers or (named <= self.person.given and _SPEAKS.match(text, end) is not None)
        return speaks or contexts.condition.follows(text, end) is not None or contexts.has_task(text, start, end)

    def _is_initial(self, at: int) -> bool:
        (a, b), text = self.words[at], self.doc.text
        if b - a > 1 or not (text[a].isupper() or self._is_lower_initial(a, b)):
            return False
        if self.folded[at] in self.person.initials:
            return True
        is_alone = text[b : b + 1] == "." and not text[a - 1 : a].isalnum() and text[a - 1 : a] != "?"
        return is_alone and any(self.folded[at] == word[0] for word in self.person.family)

    def _is_lower_initial(self, start: int, end: int) -> bool:
        """Return true for ``s`` in ``gurpreet s.`` and ``p`` in ``p_karimi``."""
        text = self.doc.text
        return text[end : end + 1] == "." or text[end : end + 1] == "_" or text[start - 1 : start] == "_"

    def _is_middle(self, at: int) -> bool:
        """Return true for a word in title case between a given name and a family name; it may be a word (``May``)."""
        given, family = self.folded[at - 1], self.folded[at + 1]
        if self.exact or given not in self.person.given or family not in self.person.family:
            return False
        if self.lists.is_distinctive(family) or not self.lists.is_distinctive(given):
            return False
        (start, _), (_, end) = self.words[at - 1], self.words[at + 1]
        parts = self.doc.text[start:end].split()
        titled = len(parts) == 3 and all(len(part) > 1 and part.istitle() and part.isalpha() for part in parts)
        return titled and "\n" not in self.doc.text[start:end] and not _DAY.match(self.doc.text, end)

    def _is_adjacent_to_next(self, at: int) -> bool:
        """Return true if only punctuation of names separates word ``at`` from the next word."""
        return _GAP.fullmatch(self.doc.text, self.words[at][1], self.words[at + 1][0]) is not None
