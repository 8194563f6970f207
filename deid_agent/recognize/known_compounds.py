"""Finds names of several words however their words are divided: ``O‘Leary``, ``vn der Berg``, ``d souza``.

The letters of adjacent words are joined and compared with the joined letters of the name. One letter may be wrong,
missing, doubled or transposed. At least one word must be a word of the name, and one must be no common word.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.model import Document, Range, Span, fold_accents
from deid_agent.recognize.boundaries import UPPER
from deid_agent.recognize.known_people import APOSTROPHES, NameLexicons, Person
from deid_agent.recognize.misspellings import is_one_edit_apart, without_each_letter

_GAP = re.compile(
    r"[ \t]{0,2}['\u02b9-\u02bf\u2018\u2019\u2032`´.\-\u2010\u2011\u2013_]?[ \t]{0,2}(?:\r?\n[ \t]{0,4})?"
)
_INITIAL_AFTER = re.compile(rf",[ ]?(?P<letter>[{UPPER}])(?![\w'’])|[ ](?P<last>[{UPPER}])\.")
_SHORTEST = 5
_SHORTEST_MISSPELT = 6
_LONGEST = 48


@dataclass(frozen=True)
class CompoundFinder:
    """Finds the names of several words of ``people``; created once for each set of facts."""

    people: tuple[Person, ...] = field(repr=False)
    lists: NameLexicons = field(repr=False)

    def find(self, doc: Document, words: Sequence[Range], folded: Sequence[str]) -> Iterator[Span]:
        """The spans of the names in ``doc``, whose words are ``words``; the longest at each place."""
        if not self._wholes:
            return
        plain = [word if word.isascii() else APOSTROPHES.sub("", word) for word in folded]
        taken = -1
        for at, word in enumerate(plain):
            if at <= taken or not (word in self._pieces or word != folded[at]):
                continue
            best: tuple[int, int, Person] | None = None
            for first in range(max(taken + 1, at - self._most + 1), at + 1):
                for last in range(max(at, first), min(len(words), first + self._most)):
                    if best and last - first <= best[1] - best[0]:
                        continue
                    if person := self._named(doc, words, plain, first, last):
                        best = first, last, person
            if best:
                first, taken, person = best
                end = words[taken][1]
                initial = _INITIAL_AFTER.match(doc.text, end)
                letter = fold_accents(initial["letter"] or initial["last"]) if initial else ""
                if (
                    initial
                    and letter in person.initials
                    and self.lists.person.ends_initial(doc.text, initial.end(initial.lastgroup or 0))
                ):
                    end = initial.end()
                yield Span(words[first][0], end, person.type, person.source)

    def _named(
        self, doc: Document, words: Sequence[Range], plain: Sequence[str], first: int, last: int
    ) -> Person | None:
        """The person whose name the words ``first`` to ``last`` spell."""
        name = "".join(plain[first : last + 1])
        possessive = plain[last] == "s" and doc.text[words[last][0] - 1] in "'’"
        if possessive or not _SHORTEST <= len(name) <= _LONGEST:
            return None
        if all(word in self.lists.common or word in self.lists.particles for word in plain[first : last + 1]):
            return None
        if not all(_GAP.fullmatch(doc.text, words[n][1], words[n + 1][0]) for n in range(first, last)):
            return None
        keys = without_each_letter(name) if len(name) >= _SHORTEST_MISSPELT - 1 and name not in self._wholes else ()
        near = (whole for key in keys for whole in self._near.get(key, ()) if is_one_edit_apart(name, whole))
        return self._wholes.get(next(near, name))

    @cached_property
    def _wholes(self) -> Mapping[str, Person]:
        """The joined letters of each name of several words, with the first person who has it."""
        wholes: dict[str, Person] = {}
        for person in self.people:
            for compound in sorted(person.compounds):
                whole = "".join(compound)
                if _SHORTEST <= len(whole) <= _LONGEST and whole not in self.lists.common:
                    wholes.setdefault(whole, person)
        return wholes

    @cached_property
    def _most(self) -> int:
        """The most words of a name in the text: one of its words may be divided."""
        return max(len(compound) for person in self.people for compound in person.compounds) + 1

    @cached_property
    def _pieces(self) -> frozenset[str]:
        return frozenset(word for person in self.people for compound in person.compounds for word in compound)

    @cached_property
    def _near(self) -> Mapping[str, tuple[str, ...]]:
        near: dict[str, list[str]] = {}
        for whole in self._wholes:
            for key in without_each_letter(whole) if len(whole) >= _SHORTEST_MISSPELT else ():
                near.setdefault(key, []).append(whole)
        return {key: tuple(wholes) for key, wholes in near.items()}
