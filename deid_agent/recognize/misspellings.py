"""Misspelt names: the distance of two words, the names of a message in error, and misspelt repeats in a document.

Names of the message. A distinctive part of at least six letters is found with one letter wrong, missing or doubled, or
with two letters transposed. One of five letters is found with one more letter or with two transposed, and with any
other single error if no dictionary has the word. Two errors count in a word of eight letters that no dictionary has,
and letters that a scan confuses in any such word.

Repeats (``Featherstone`` and later ``Fetherstone``). A word counts that is in no list, or only in lists of names, and
that is one edit from a name of at least six letters, or two edits from one of at least nine that begins alike.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from deid_agent.model import Document, PhiType, Source, Span, fold_accents
from deid_agent.recognize.known_people import NameLexicons
from deid_agent.rules import Dictionaries, lists_of_tags

_SHORTEST_MISSPELT, _EASILY_MISSPELT = 5, 6
_SHORTEST_ALIKE = 4
_LONG_MISSPELT = 8
_LONGEST = 24
_MANY_PARTS = 40
_LONG_REST = 5
"""A name without its first letter is still the name if so many letters remain."""
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_NAME_LISTS = frozenset({"given-female", "given-male", "nickname", "family", "family-rare"})
_OTHER_MEANINGS = frozenset({"common-word", "abbreviation", "drug"})
_WORD = re.compile(r"(?<![\w'’@.-])[^\W\d_]{5,24}(?![\w@])")
_DOUBLED = re.compile(r"(.)\1")
_SHORTEST, _LONG = 6, 9
_MOST_NAMES = 400


def without_each_letter(word: str) -> set[str]:
    """``word``, and ``word`` without each one of its letters. Two words one edit apart have one of these in common.

    The result is empty for a word longer than any name: its size would be the square of the length.
    """
    return set() if len(word) > _LONGEST else {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}


def is_one_edit_apart(a: str, b: str) -> bool:
    """Return true if one insertion, deletion, substitution or transposition changes ``b`` to ``a`` (Damerau 1964)."""
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


def count_edits(a: str, b: str) -> int:
    """The number of insertions, deletions, substitutions and transpositions that change ``b`` to ``a``."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, last = row, before
        row = [i]
        for j, other in enumerate(b, 1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]


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
            found.update(part for part in {_DOUBLED.sub(r"\1", word)} & self.parts if len(part) >= _SHORTEST_ALIKE)
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


def find_misspelt(doc: Document, spans: Sequence[Span], lists: Dictionaries, low: frozenset[Source]) -> Iterator[Span]:
    """The misspelt names in ``doc`` outside of its ``spans``, which are disjoint and in order; those of ``low`` give
    no names. The source of a span is that of the name. Time is linear in the text.
    """
    names: dict[str, Span] = {}
    for span in spans:
        if span.type in _NAMES and span.source not in low:
            for word in _WORD.findall(doc.text[span.start : span.end]):
                name = fold_accents(word)
                if len(name) >= _SHORTEST and _OTHER_MEANINGS.isdisjoint(lists_of_tags(lists.lists_of(name))):
                    names.setdefault(name, span)
    if not 0 < len(names) <= _MOST_NAMES:
        return
    near: dict[str, list[str]] = {}
    for name in names:
        for key in without_each_letter(name):
            near.setdefault(key, []).append(name)
    ends = _ends_of(names)
    meaning = cache(partial(_meaning, near=near, names=names, lists=lists))
    at = 0
    fold = str.lower if doc.text.isascii() else fold_accents
    for found in _WORD.finditer(doc.text):
        word = fold(found[0])
        if ends.isdisjoint((word[:2], word[-2:], word[:1])):
            continue
        while at < len(spans) and spans[at].end <= found.start():
            at += 1
        if at < len(spans) and spans[at].start < found.end():
            continue
        if name := meaning(word):
            yield Span(found.start(), found.end(), names[name].type, names[name].source)


def _ends_of(names: Iterable[str]) -> set[str]:
    """The first two and the last two letters of each name, and the first letter of a long one.

    A misspelling has one of them: one edit leaves either two letters as they are, two edits of a long name the first.
    """
    ends = {end for name in names for end in (name[:2], name[-2:])}
    return ends | {name[0] for name in names if len(name) >= _LONG}


def _meaning(word: str, near: dict[str, list[str]], names: dict[str, Span], lists: Dictionaries) -> str:
    """The name that ``word`` misspells, or an empty text."""
    close = {name for key in without_each_letter(word) for name in near.get(key, ()) if is_one_edit_apart(word, name)}
    if not close and len(word) >= _LONG - 2:
        close = {
            name
            for name in names
            if len(name) >= _LONG
            and name[0] == word[0]
            and abs(len(name) - len(word)) <= 2
            and count_edits(name, word) <= 2
        }
    if not close or not _is_only_a_name(word, lists):
        return ""
    return min(close)


def _is_only_a_name(word: str, lists: Dictionaries) -> bool:
    return lists_of_tags(lists.lists_of(word)) <= _NAME_LISTS
