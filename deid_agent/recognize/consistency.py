"""The document-level consistency pass: finds further mentions of values that were found once with a cue.

Source: Dehghan 2015 section 2.4. The spans of the document, and of other documents of the same patient, become a
dictionary without ambiguous terms, and the longest match wins. Each part of a name is searched for; sites and
organizations only as a whole; numbers exactly as written.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.model import (
    CATEGORY,
    Document,
    PhiCategory,
    PhiType,
    Source,
    SourceKind,
    Span,
    fold_accents,
    in_order,
    joins_word,
)
from deid_agent.recognize.boundaries import TITLES, UPPER
from deid_agent.recognize.misspellings import find_misspelt
from deid_agent.recognize.name_contexts import PersonContexts
from deid_agent.rules import Dictionaries, Tags

TaggedDocument = tuple[Document, Sequence[Span]]
"""Another document of the same patient, with its resolved spans."""

_SOURCES = {kind: Source(SourceKind.CONSISTENCY, kind.value) for kind in PhiType}
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_EXACT = frozenset(t for t, c in CATEGORY.items() if c in (PhiCategory.ID, PhiCategory.CONTACT)) | {
    PhiType.USERNAME,
    PhiType.ZIP,
}
_WHOLE = frozenset(
    {
        PhiType.HOSPITAL,
        PhiType.ORGANIZATION,
        PhiType.CITY,
        PhiType.STATE,
        PhiType.COUNTRY,
        PhiType.STREET,
        PhiType.LOCATION_OTHER,
        PhiType.PROFESSION,
    }
)
_WORD = re.compile(r"[^\W\d_]+")
_LONGEST = 24
_SHORTEST_NAME = 3
_SHORTEST_PLACE = 4
_SHORTEST_NUMBER = 5
_OTHER_MEANINGS = frozenset({"common-word", "abbreviation", "drug"})
_RARE_WORD = "rare-word"


_GIVEN_LISTS = frozenset({"given-female", "given-male", "nickname"})
_FREQUENT_LISTS = _GIVEN_LISTS | {"family"}
_NAME_LISTS = _FREQUENT_LISTS | {"family-rare"}
_NO_NEIGHBOUR = frozenset({"common-word", "abbreviation", "drug"})
_NEVER_ACROSS = frozenset({"common-word", "rare-word", "abbreviation", "drug", "eponym", "city", "country", "state"})
_ENGLISH = frozenset({"common-word", "rare-word"})
_PLACES = frozenset({PhiType.CITY, PhiType.STATE, PhiType.COUNTRY})
_SHORTEST_LOWER = 5
_LONGEST_ABBREVIATION = 5
_REACH = 40
_HALF_AFTER = re.compile(rf"(?:[-‐][{UPPER}][^\W\d_]{{1,20}})+(?!\w)")
_BEFORE = re.compile(rf"(?<![\w’'./-])(?P<word>(?!X\b)[{UPPER}][^\W\d_]{{0,20}})(?:(?P<dash>[-‐])|\.?[ ]|\.)\Z")
_GIVEN_AFTER = re.compile(
    rf",[ ]?(?P<word>[{UPPER}][^\W\d_]{{1,20}})(?:-[{UPPER}]\w{{1,20}})?(?:[ ][{UPPER}]\.?)?(?![\w-]|[ ][{UPPER}])"
)
_INITIAL_AFTER = re.compile(r",?[ ][A-EG-LN-Z](?:\.|(?=,))(?![\w.])")
_SUFFIX = re.compile(r"(?:,?[ ](?:Jr\.?|I{2,3}|IV)|[ ]Sr\.?)(?!\w)")
_NAMED_AFTER = re.compile(rf"[ ]\n?[{UPPER}]\w")
_PART_OF = re.compile(r"\b(?:North|South|East|West|First|New|Old|University|Bank)[ ](?:of[ ])?\Z")
_WORD_AFTER = re.compile(rf"[ ](?P<word>[{UPPER}][^\W\d_]{{2,20}})(?![\w-])")
_UNKNOWN_BEFORE = re.compile(rf"(?<![\w’'./-])(?P<word>[{UPPER}][^\W\d_A-Z]{{3,20}})[ ]\Z")
_UNKNOWN_AFTER = re.compile(rf"[ ](?P<word>[{UPPER}][^\W\d_A-Z]{{3,20}})(?![\w’'-])")


_TITLE = re.compile(rf"(?<![\w/])(?:{TITLES}|Doctor|Nurse|Sister)\.?[ ]{{1,2}}(?:\w{{1,20}}\.? )?\Z", re.IGNORECASE)
_CAPITALIZED = re.compile(rf"(?<![\w'’./-])[{UPPER}][^\W\d_A-Z]{{2,20}}(?!\w|-\w|['’](?!s\b))")


class _Node(dict[str, "_Node"]):
    """The next nodes by folded token; ``votes`` count the type and written form of the terms that end here."""

    __slots__ = ("votes",)

    def __init__(self) -> None:
        self.votes: Counter[tuple[PhiType, str]] = Counter()

    def __repr__(self) -> str:
        return f"_Node({len(self)})"


@dataclass(frozen=True, slots=True)
class ConsistencyPass:
    """Finds further mentions of the values of resolved spans, except spans of the low-confidence sources ``low``."""

    dictionaries: Dictionaries = field(repr=False)
    contexts: PersonContexts
    low: frozenset[Source] = field(default=frozenset(), repr=False)

    def find_mentions(self, doc: Document, spans: Sequence[Span], others: Iterable[TaggedDocument] = ()) -> list[Span]:
        """Further spans of ``doc``, disjoint, in order, and outside of its resolved ``spans``.

        Their source is ``again:<type>``. Pure; the time is linear in the length of the documents.
        """
        root = _Node()
        for text_doc, found in ((doc, spans), *others):
            for span in found:
                if span.source not in self.low:
                    self._learn(text_doc.text[span.start : span.end], span.type, root)
        beside = [span for found in spans for span in self._unknown_words_beside(found, doc)]
        again = [*beside, *(self._find(doc, in_order([*spans, *beside]), root) if root else [])]
        again += self._find_titled(doc, in_order([*spans, *again]))
        return [*again, *self._find_misspelt(doc, in_order([*spans, *again]))]

    def _find_misspelt(self, doc: Document, spans: Sequence[Span]) -> Iterator[Span]:
        """Misspelt mentions of the names in ``spans``."""
        for span in find_misspelt(doc, spans, self.dictionaries, self.low):
            yield Span(span.start, span.end, span.type, _SOURCES[span.type])

    def _unknown_words_beside(self, span: Span, doc: Document) -> Iterator[Span]:
        """A capitalized word that is in no list, beside a name of the message's fields, is a name of a relative."""
        if span.type not in _NAMES or span.source.kind is not SourceKind.KNOWN:
            return
        text = doc.text
        found = text[span.start : span.end]
        if not (found[:1].isupper() and found.isalpha() and (len(found) > 3) and not found.isupper()):
            return
        first = max(0, span.start - _REACH)
        before = _UNKNOWN_BEFORE.search(text[first : span.start])
        if before and not self.dictionaries.lists_of(before["word"]):
            yield Span(first + before.start("word"), first + before.end("word"), span.type, _SOURCES[span.type])
        after = _UNKNOWN_AFTER.match(text, span.end)
        if after and not self.dictionaries.lists_of(after["word"]):
            yield Span(after.start("word"), after.end("word"), span.type, _SOURCES[span.type])

    def _find_titled(self, doc: Document, spans: Sequence[Span]) -> Iterator[Span]:
        """Mentions without a title of the people whom ``doc`` also has with one.

        Their surnames may be words (``Marsh``). ``spans`` are disjoint and in order.
        """
        named: dict[str, PhiType] = {}
        for span in spans:
            if span.type in _NAMES and _TITLE.search(doc.text, max(0, span.start - _REACH), span.start):
                words = _CAPITALIZED.findall(doc.text, span.start, span.end)
                named |= {words[-1]: span.type} if words else {}
        if not named:
            return
        at = 0
        for found in _CAPITALIZED.finditer(doc.text):
            while at < len(spans) and spans[at].end <= found.start():
                at += 1
            free = at == len(spans) or found.end() <= spans[at].start
            if free and found[0] in named and self.contexts.acts_like_person(doc.text, found.start(), found.end()):
                kind = named[found[0]]
                yield Span(found.start(), found.end(), kind, _SOURCES[kind])

    def find_names_across(self, texts: Sequence[str], found: Sequence[Sequence[Span]]) -> list[list[Span]]:
        """For each text of one message, further mentions of the names that its other texts introduce.

        A name is introduced by a rule, or it is in a list of names: other findings of models are not repeated.
        ``found`` are the resolved spans of each text. Pure; the time is linear in the texts and in the names.
        """
        root = _Node()
        names: set[str] = set()
        for text, spans in zip(texts, found, strict=True):
            for span in spans:
                if span.type in _NAMES and span.source not in self.low:
                    for word in _WORD.findall(text[span.start : span.end]):
                        if self._is_introduced(word, span.source.kind):
                            _add_term(word, word, span.type, root)
                            names.add(fold_accents(word))
        if not names:
            return [[] for _ in texts]
        folded = [fold_accents(text) for text in texts]
        return [
            self._find(Document(text), spans, root) if any(name in plain for name in names) else []
            for text, plain, spans in zip(texts, folded, found, strict=True)
        ]

    def _is_introduced(self, word: str, kind: SourceKind) -> bool:
        lists = self.dictionaries.lists_of(word)
        if not self._is_name(word) or not lists.isdisjoint(_NEVER_ACROSS):
            return False
        return kind is SourceKind.RULE or not lists.isdisjoint(_NAME_LISTS)

    def _learn(self, term: str, kind: PhiType, root: _Node) -> None:
        if kind in _NAMES:
            if len(_WORD.findall(term)) > 1:
                _add_term(term, term, kind, root)
            for word in _WORD.findall(term):
                if self._is_name(word):
                    _add_term(word, word, kind, root)
        elif (kind in _EXACT and _is_number(term)) or (kind in _WHOLE and self._is_place(term)):
            _add_term(term, term, kind, root)

    def _is_name(self, word: str) -> bool:
        """Return true if a part of a name can mean the person: no ordinary word, abbreviation or drug."""
        return len(word) >= _SHORTEST_NAME and not self._has_other_meaning(self.dictionaries.lists_of(word))

    def _has_other_meaning(self, lists: Tags) -> bool:
        if not lists.isdisjoint(_OTHER_MEANINGS):
            return True
        return _RARE_WORD in lists and lists.isdisjoint(_NAME_LISTS)

    def _is_place(self, term: str) -> bool:
        words = _WORD.findall(term)
        if len(words) == 1:
            lists = self.dictionaries.lists_of(words[0])
            return len(term) >= _SHORTEST_PLACE and lists.isdisjoint(_OTHER_MEANINGS)
        return len(words) > 1

    def _find(self, doc: Document, spans: Sequence[Span], root: _Node) -> list[Span]:
        taken = in_order(spans)
        out: list[Span] = []
        next_taken = 0
        words = doc.folded_tokens
        free = 0  # the first token after the last span
        for at in [at for at, word in enumerate(words) if word in root]:
            if at < free:
                continue
            start = doc.tokens[at][0]
            while next_taken < len(taken) and taken[next_taken].end <= start:
                next_taken += 1
            limit = taken[next_taken].start if next_taken < len(taken) else len(doc)
            last, span = self._match(doc, words, at, root, limit)
            if span is not None:
                left = max(taken[next_taken - 1].end if next_taken else 0, out[-1].end if out else 0)
                out.append(self._extend_name(span, doc, left, limit))
                while last < len(words) and doc.tokens[last][0] < out[-1].end:
                    last += 1
            free = last
        return out

    def _match(
        self, doc: Document, words: Sequence[str], first: int, root: _Node, limit: int
    ) -> tuple[int, Span | None]:
        """The longest term at token ``first`` that ends before ``limit``, and the index of the token after it."""
        node = root.get(words[first])
        at = first + 1
        best: tuple[int, Span | None] = (at, None)
        start = doc.tokens[first][0]
        while node is not None:
            end = doc.tokens[at - 1][1]
            if end > limit:
                break
            if node.votes and (span := self._accept(doc, start, end, node)) is not None:
                best = (at, span)
            node = node.get(words[at]) if at < len(words) and at - first < _LONGEST else None
            at += 1
        return best

    def _accept(self, doc: Document, start: int, end: int, node: _Node) -> Span | None:
        text = doc.text
        if (start and joins_word(text[start - 1])) or (end < len(text) and joins_word(text[end])):
            return None
        found = text[start:end]
        kind = max(node.votes.items(), key=lambda item: (item[1], item[0]))[0][0]
        forms = {form for type_, form in node.votes if type_ is kind}
        right = any(_is_same_form(found, form) for form in forms)
        if kind in _NAMES:
            right = self._is_written_as_name(found, forms)
        elif kind in _PLACES:
            right = (
                right
                and _NAMED_AFTER.match(text, end) is None
                and _PART_OF.search(text, max(0, start - 16), start) is None
            )
        elif kind not in _EXACT:
            right = right or (found[:1].isupper() and len(_WORD.findall(found)) > 1)
        return Span(start, end, kind, _SOURCES[kind]) if right else None

    def _is_written_as_name(self, found: str, forms: set[str]) -> bool:
        """Return true if the word is a name in this form.

        A short word in capitals is an abbreviation unless a list has it as a name. A word in lower case must be long.
        """
        if found.islower():
            return found in forms or (
                len(found) >= _SHORTEST_LOWER and not _ENGLISH & self.dictionaries.lists_of(found)
            )
        if not found.isupper() or len(found) > _LONGEST_ABBREVIATION or not found.isalpha():
            return True
        lists = self.dictionaries.lists_of(found)
        return not lists.isdisjoint(_FREQUENT_LISTS) or not all(form.isupper() for form in forms)

    def _extend_name(self, span: Span, doc: Document, left: int, right: int) -> Span:
        """A name extended by its other half, initials and given names within ``[left, right)``."""
        if span.type not in _NAMES:
            return span
        text = doc.text
        start, end = span.start, span.end
        if found := _HALF_AFTER.match(text, end, right):
            end = found.end()
        while found := _BEFORE.search(text, max(left, start - _REACH), start):
            if not (found["dash"] or len(found["word"]) == 1 or self._is_in_lists(found["word"], _GIVEN_LISTS)):
                break
            start = found.start("word")
        end = self._extended_end(text, start, end, right)
        if found := _SUFFIX.match(text, end, right):
            end = found.end()
        return Span(start, end, span.type, span.source)

    def _extended_end(self, text: str, start: int, end: int, right: int) -> int:
        """The end of the name including a following family name, given name after a comma, or initial."""
        if (found := _WORD_AFTER.match(text, end, right)) and self._is_in_lists(found["word"], _NAME_LISTS):
            return found.end()
        if (found := _GIVEN_AFTER.match(text, end, right)) and self._is_in_lists(found["word"], _GIVEN_LISTS):
            return end if self._is_in_lists(text[start:end], _GIVEN_LISTS) else found.end()
        found = _INITIAL_AFTER.match(text, end, right)
        return found.end() if found else end

    def _is_in_lists(self, word: str, wanted: Tags) -> bool:
        lists = self.dictionaries.lists_of(word)
        return not lists.isdisjoint(wanted) and lists.isdisjoint(_NO_NEIGHBOUR)


def _is_number(term: str) -> bool:
    return sum(c.isdigit() for c in term) >= _SHORTEST_NUMBER or ("@" in term or len(term) > 6)


def _is_same_form(found: str, form: str) -> bool:
    return " ".join(found.split()) == " ".join(form.split())


def _add_term(term: str, form: str, kind: PhiType, root: _Node) -> None:
    node = root
    pieces = [term.lower()] if term.isascii() and term.isalpha() else Document(term).folded_tokens
    if len(pieces) > _LONGEST:
        return
    for piece in pieces:
        node = node.setdefault(piece, _Node())
    node.votes[kind, form] += 1
