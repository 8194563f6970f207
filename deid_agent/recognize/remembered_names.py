"""Which words of a document are remembered as names of its patient, and which words of another document they are.

Remembered are the words of names that a field of the message states, that a label or title introduces, or that a model
is sure of: after one document if a list of names or no list at all has them, else after two (``name_memory``).

A remembered word is found again as a capitalized word, or in the writing in which it was remembered: always in that
writing if it has at most three letters, or at most five in capitals. A word that lists know as an ordinary word or a
clinical term (Hope, Will, Foley) is a name only beside a title, a word for a person or an act of one. Inside a hard
mark of the grammar no word is a name, inside a soft one only beside such a word.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.measure import Veto, find_covering
from deid_agent.model import (
    Document,
    Fact,
    PhiType,
    Range,
    Source,
    SourceKind,
    Span,
    ValueKind,
    fold_accents,
    in_order,
    joins_word,
)
from deid_agent.recognize.name_contexts import PersonContexts
from deid_agent.recognize.name_memory import NameWord, PatientNames
from deid_agent.recognize.resolve import Resolver
from deid_agent.rules import Dictionaries, list_of_tag

INTRODUCING = frozenset(
    Source(SourceKind.RULE, id_) for id_ in ("patient-label", "patient-title", "doctor-label", "doctor-title")
)
"""Rules whose names are sure enough to be searched for in other documents of the same patient."""
MEMORY_SOURCE = Source(SourceKind.CONSISTENCY, "memory")
"""The source of names that another document of the patient has taught."""
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_NAME_KINDS = frozenset({ValueKind.FAMILY, ValueKind.GIVEN, ValueKind.NAME})
_NAME_LISTS = frozenset({"given-female", "given-male", "nickname", "family", "family-rare"})
_OTHER_MEANINGS = frozenset(
    {"common-word", "abbreviation", "drug", "device", "organism", "gene", "shorthand", "eponym"}
)
_SHORT = 3
_SHORT_CAPITALS = 5


@dataclass(frozen=True, slots=True)
class NameMemoryRules:
    """The rules over the lists of ``dictionaries`` and the vetoes and marks of ``resolver``."""

    dictionaries: Dictionaries = field(repr=False)
    resolver: Resolver
    contexts: PersonContexts

    def select_words(self, doc: Document, spans: Iterable[Span], named: Iterable[Range]) -> Iterator[NameWord]:
        """The words of names to remember. ``named`` are the tokens of ``doc`` that a model is sure of."""
        sure = frozenset(named)
        for span in spans:
            if span.type not in _NAMES:
                continue
            introduced = span.source in INTRODUCING
            for word_range in _words(doc, span):
                if introduced or word_range in sure:
                    word = doc.text[slice(*word_range)]
                    yield from self._forms(word, span.type, proven=introduced or self._is_only_a_name(word))

    def select_fact_words(self, facts: Iterable[Fact]) -> Iterator[NameWord]:
        """The words of the names that the fields of a message state."""
        for fact in facts:
            if fact.type in _NAMES and fact.kind in _NAME_KINDS:
                doc = Document(fact.value)
                for start, end in _words(doc, Span(0, len(fact.value), fact.type, MEMORY_SOURCE)):
                    yield from self._forms(fact.value[start:end], fact.type, proven=True)

    def find(self, doc: Document, spans: Sequence[Span], names: PatientNames) -> list[Span]:
        """The remembered names in ``doc`` outside of its resolved ``spans``, in order, with ``MEMORY_SOURCE``.

        ``spans`` are left as they are, so that a remembered name changes no other replacement.
        """
        if not len(names):
            return []
        taken = in_order(spans)
        found = list(self._propose(doc, taken, names))
        # The resolver may extend a name, for example by a suffix.
        return [span for span in self.resolver.resolve(found, doc) if _is_free(taken, span.start, span.end)]

    def _propose(self, doc: Document, taken: Sequence[Span], names: PatientNames) -> Iterator[Span]:
        candidates = list(self._find_words(doc, taken, names))
        if not candidates:
            return
        marks = self.resolver.grammar.find(doc)
        covering = find_covering(marks, [(span.start, span.end) for span, _ in candidates])
        for (span, certain), mark in zip(candidates, covering, strict=True):
            if mark is not None and mark.veto is Veto.HARD:
                continue
            if (certain and mark is None) or self._is_beside_person(doc.text, span):
                yield span

    def _is_beside_person(self, text: str, span: Span) -> bool:
        return bool(self.contexts.kin.precedes(text, span.start) or self.contexts.act.follows(text, span.end))

    def _find_words(self, doc: Document, taken: Sequence[Span], names: PatientNames) -> Iterator[tuple[Span, bool]]:
        """The remembered words, each with True if it is a name without a word for a person beside it."""
        text = doc.text
        for start, end in doc.tokens:
            if end - start == 1 or not text[start].isalpha() or not _is_free(taken, start, end):
                continue
            if (start and joins_word(text[start - 1])) or (end < len(text) and joins_word(text[end])):
                continue
            type_, certain = self._type_of(text[start:end], names)
            if type_ is not None:
                yield Span(start, end, type_, MEMORY_SOURCE), certain

    def _type_of(self, word: str, names: PatientNames) -> tuple[PhiType | None, bool]:
        """The type of a remembered word, and True if it is a name without a word for a person beside it."""
        capital, ordinary = word[0].isupper(), False
        any_writing = capital and len(word) > _SHORT
        if any_writing and not (word.isupper() and len(word) <= _SHORT_CAPITALS):
            type_ = names.type_of(fold_accents(word))
        else:
            type_ = names.type_of(f"={word}")
            if type_ is None and any_writing:
                type_, ordinary = names.type_of(fold_accents(word)), True
        if type_ is not None and self._has_other_meaning(word):
            return (type_, False) if capital else (None, False)
        return type_, not ordinary

    def _forms(self, word: str, type_: PhiType, *, proven: bool) -> Iterator[NameWord]:
        """The forms of a word of a name that are remembered."""
        folded, lexicons = fold_accents(word), self.resolver.rules.lexicons
        if len(word) < 2 or any(folded in lexicons.get(each, ()) for each in ("name-title", "name-particle")):
            return
        if len(word) > _SHORT:
            yield NameWord(folded, type_, proven)
        if len(word) <= _SHORT or not word.istitle():
            yield NameWord(f"={word}", type_, proven)

    def _is_only_a_name(self, word: str) -> bool:
        """Whether a list of names has the word, or no list has it and it is long enough for a name."""
        lists = self._lists_of(word)
        return not _NAME_LISTS.isdisjoint(lists) or (not lists and len(word) > _SHORT)

    def _has_other_meaning(self, word: str) -> bool:
        lists = self._lists_of(word)
        if not _OTHER_MEANINGS.isdisjoint(lists) or (word.islower() and "rare-word" in lists):
            return True
        not_initials = self.resolver.rules.lexicons.get("not-initials", frozenset())
        return len(word) <= _SHORT and ("state-abbrev" in lists or fold_accents(word) in not_initials)

    def _lists_of(self, word: str) -> frozenset[str]:
        return frozenset(list_of_tag(tag) for tag in self.dictionaries.lists_of(word))


def _is_free(taken: Sequence[Span], start: int, end: int) -> bool:
    """Whether no span of ``taken``, which are disjoint and in order, shares a character with the range."""
    at = bisect_right(taken, start, key=lambda span: span.end)
    return at == len(taken) or taken[at].start >= end


def _words(doc: Document, span: Span) -> Iterator[Range]:
    """The words of ``doc`` inside ``span``."""
    at = bisect_left(doc.tokens, (span.start, 0))
    while at < len(doc.tokens) and doc.tokens[at][1] <= span.end:
        if doc.text[doc.tokens[at][0]].isalpha():
            yield doc.tokens[at]
        at += 1
