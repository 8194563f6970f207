"""Finds the names that a misspelt word means.

A distinctive part of at least six letters is found with one letter wrong, missing or doubled, or with two letters
transposed. One of five letters is found with one more letter or with two transposed, and with any other single error if
no dictionary has the word. Two errors count in a word of eight letters that no dictionary has, and letters that a scan
confuses in any such word.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.recognize.known_people import NameLexicons, count_edits, is_one_edit_apart, without_each_letter

_SHORTEST_MISSPELT, _EASILY_MISSPELT = 5, 6
_SHORTEST_ALIKE = 4
_LONG_MISSPELT = 8
_LONGEST = 24
_MANY_PARTS = 40
_LONG_REST = 5
"""A name without its first letter is still the name if so many letters remain."""


@dataclass(frozen=True)
class MisspellingIndex:
    """The misspellings of ``parts`` of names; ``names`` are also whole names without blanks."""

    names: frozenset[str] = field(repr=False)
    parts: frozenset[str] = field(repr=False)
    lists: NameLexicons = field(repr=False)

    def parts_of(self, word: str) -> set[str]:
        """The parts that the folded ``word``, which is no common word, misspells."""
        near = {part for key in without_each_letter(word) for part in self._misspellable.get(key, ())}
        unknown = self.lists.is_unknown(word)
        found = {
            part
            for part in near
            if _is_misspelling(word, part) or (unknown and word[1:] != part and is_one_edit_apart(word, part))
        }
        if unknown:
            found.update(self._alike.get(_read_alike(word), ()))
            if _LONG_MISSPELT - 2 <= len(word) <= _LONGEST:
                found.update(self._twice_misspelt(word))
        return found

    @cached_property
    def _misspellable(self) -> Mapping[str, tuple[str, ...]]:
        """The parts that may be misspelled, indexed by the part and by the part without one of its letters."""
        near: dict[str, list[str]] = {}
        for part in self.parts:
            if len(part) >= _SHORTEST_MISSPELT and self.lists.is_distinctive(part):
                for key in without_each_letter(part):
                    near.setdefault(key, []).append(part)
        return {key: tuple(parts) for key, parts in near.items()}

    def _twice_misspelt(self, word: str) -> Iterator[str]:
        """The long parts that are two edits from an unknown word: ``Castelraegh``."""
        for part in self._long_parts.get(word[0], ()):
            if abs(len(part) - len(word)) <= 2 and count_edits(word, part) <= 2:
                yield part

    @cached_property
    def _alike(self) -> Mapping[str, tuple[str, ...]]:
        """The distinctive parts by the form in which letters that look alike are one letter."""
        alike: dict[str, list[str]] = {}
        for part in self.names:
            if len(part) >= _SHORTEST_ALIKE and self.lists.is_distinctive(part):
                alike.setdefault(_read_alike(part), []).append(part)
        return {key: tuple(parts) for key, parts in alike.items()}

    @cached_property
    def _long_parts(self) -> Mapping[str, tuple[str, ...]]:
        """The long distinctive parts by their first letter."""
        parts: dict[str, list[str]] = {}
        for part in sorted(self.parts):
            if _LONG_MISSPELT <= len(part) <= _LONGEST and self.lists.is_distinctive(part):
                parts.setdefault(part[0], []).append(part)
        return {letter: tuple(own) for letter, own in parts.items() if len(own) <= _MANY_PARTS}


def _read_alike(word: str) -> str:
    """``word`` with one letter for those that a scan confuses: ``Femandez``, ``OIsen``."""
    return word.replace("rn", "m").replace("vv", "w").replace("cl", "d").replace("i", "l")


def _is_misspelling(word: str, part: str) -> bool:
    if len(part) < _EASILY_MISSPELT and len(word) <= len(part) and sorted(word) != sorted(part):
        return False
    if len(part) > _EASILY_MISSPELT and len(word) == len(part) and word[1:] == part[1:]:
        return True
    begins_alike = word[0] == part[0] or word[:2] == part[1::-1] or (word == part[1:] and len(word) >= _LONG_REST)
    return begins_alike and is_one_edit_apart(word, part)
