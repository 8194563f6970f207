"""Finds capitalized words that the lists have as a name and as nothing else: ``Ottoline``, ``Annelise``.

A given name counts anywhere: of 100 such words in clinical notes 98 are a name. A family name names instruments, scores
and procedures too (``Bair Hugger``, ``Silverman 3``), so it counts only with the ending of one (``Gunnarsdottir``), or
in a place of a list: after a bed, a room or a time, or before a side of the body. A word in no list needs such an
ending, or both a place before and one after.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

from deid_agent.model import BesideModels, Document, PhiType, Source, SourceKind, SourceTraits, Span, fold_accents
from deid_agent.recognize.boundaries import UPPER
from deid_agent.rules import Context, Dictionaries, Lexicon, Ruleset, lists_of_tags, select_contexts

_SOURCE = Source(SourceKind.DICTIONARY, "listed-name")
_WORD = re.compile(rf"(?<![\w'’./-])[{UPPER}](?:[^\W\d_A-Z]{{3,20}}|[{UPPER}]{{4,20}})(?![\w/]|['’][a-rt-z]|-[a-z])")
_GIVEN = frozenset({"given-female", "given-male", "nickname"})
_NAMES = _GIVEN | {"family", "family-rare"}
_SHORTEST_SURNAME = 6


_NEVER = frozenset({"drug", "device", "organism", "abbreviation", "shorthand", "gene"})
_LINE_BEFORE = re.compile(r"(?:\A|\n[ \t]{0,4})(?:[-*•][ ]|[0-9]{1,2}[.):][ ])?\Z")
_NEXT = re.compile(r"[;,][ ]\Z")


@dataclass(frozen=True, slots=True)
class ListContexts:
    """The contexts of listed names (``rules/contexts/listed-names.toml``)."""

    not_person: Context
    family_ending: Context
    term_ending: Context
    place: Context
    side: Context
    state: Context
    capitals: Context
    reading: Context
    refuses: Context

    @staticmethod
    def of(rules: Ruleset) -> "ListContexts":
        """The contexts of a rule set. Raises ``ConfigurationError`` if it lacks one."""
        return select_contexts(rules.contexts, "listed-names", ListContexts)

    def counts(self, lists: Set[str], found: re.Match[str], text: str) -> bool:
        """Return true for a given name, the ending of a family name, or the place of a patient in a list of a ward."""
        if "family" not in lists and not lists.isdisjoint(_GIVEN):
            return True
        if len(found[0]) >= _SHORTEST_SURNAME and self.family_ending.is_word(found[0].lower()):
            return True
        before = self.place.precedes(text, found.start()) is not None
        after = self.side.follows(text, found.end()) is not None
        return (before and after) or (bool(lists) and (before or after))


@dataclass(frozen=True, slots=True)
class ListedNameRecognizer:
    """Finds the names. Under the recall profile its spans remain although a model reads the same text."""

    lists: Dictionaries = field(repr=False)
    contexts: ListContexts
    terms: Lexicon = field(default=frozenset(), repr=False)
    common: Lexicon = field(default=frozenset(), repr=False)
    name: str = "listed"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source."""
        return {_SOURCE: SourceTraits(beside_models=BesideModels.RECALL)}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The names in ``doc``. Time is linear in the text."""
        for found in _WORD.finditer(doc.text):
            lists = lists_of_tags(self.lists.lists_of(found[0]))
            if self._is_in_list_of_ward(found, lists, doc.text):
                yield Span(found.start(), found.end(), PhiType.PATIENT, _SOURCE)
                continue
            other = not lists <= _NAMES or fold_accents(found[0]) in self.terms
            if other or self.contexts.not_person.follows(doc.text, found.end()):
                continue
            if self.contexts.counts(lists, found, doc.text):
                yield Span(found.start(), found.end(), PhiType.PATIENT, _SOURCE)

    def _is_in_list_of_ward(self, found: re.Match[str], lists: Set[str], text: str) -> bool:
        """Return true for a possible name at the beginning of a line of a list of patients."""
        if (lists and lists.isdisjoint(_NAMES)) or not lists.isdisjoint(_NEVER) or found[0].lower() in self.common:
            return False
        if not lists and self.contexts.term_ending.is_word(found[0].lower()):
            return False
        start, end = found.start(), found.end()
        if self.contexts.reading.follows(text, end) and _NEXT.search(text, max(0, start - 2), start):
            return True
        if _LINE_BEFORE.search(text, max(0, start - 8), start) is None:
            return False
        state = self.contexts.capitals if found[0].isupper() else self.contexts.state
        if state.follows(text, end):
            return True
        return bool(lists) and self.contexts.refuses.follows(text, end) is not None


_TERMS = frozenset({"common-word", "rare-word", "drug", "device", "organism", "abbreviation", "shorthand"})
_OTHER_MEANINGS = _TERMS | {"eponym"}
_FREQUENT = _GIVEN | {"family"}
_LETTERS = re.compile(r"[^\W\d_]{2,40}")


def is_clinical_term(text: str, lists: Dictionaries) -> bool:
    """True if a word of ``text`` is a term of the lists and no name, and no word of it is only a name.

    ``STENT, DES`` is a term in the form of a name; ``STENT, JOHANNA`` is a name.
    """
    held = [lists_of_tags(lists.lists_of(word)) for word in _LETTERS.findall(text)]
    only_name = any(each & _FREQUENT and not each & _OTHER_MEANINGS for each in held)
    return not only_name and any(each & _TERMS and not each & _FREQUENT for each in held)
