"""The second pass: what was found once with a cue is found again without one.

Dehghan 2015 section 2.4: findings of the first pass become a dictionary of this document (and of others of the
same patient), ambiguous terms are filtered, and the longest match wins. Names count by their parts too, sites and
organisations whole only, numbers as they stand.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deid_agent.boundaries import UPPER
from deid_agent.dictionary import Dictionaries, Tags
from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.spans import Span, in_order
from deid_agent.text import Document, folded, glued

Tagged = tuple[Document, Sequence[Span]]
"""Another document of the same patient and its resolved spans."""

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
_OTHER_MEANINGS = frozenset({"common-word", "abbreviation", "eponym", "drug"})
_RARE_WORD = "rare-word"


_GIVEN_LISTS = frozenset({"given-female", "given-male", "nickname"})
_FREQUENT_LISTS = _GIVEN_LISTS | {"family"}
_NAME_LISTS = _FREQUENT_LISTS | {"family-rare"}
_NO_NEIGHBOUR = frozenset({"common-word", "abbreviation", "drug"})
_ENGLISH = frozenset({"common-word", "rare-word"})
_PLACES = frozenset({PhiType.CITY, PhiType.STATE, PhiType.COUNTRY})
_SHORTEST_LOWER = 5
_LONGEST_ABBREVIATION = 5
_REACH = 40
_HALF_BEHIND = re.compile(rf"(?:[-‐][{UPPER}][^\W\d_]{{1,20}})+(?!\w)")
_BEFORE = re.compile(rf"(?<![\w’'./-])(?P<word>(?!X\b)[{UPPER}][^\W\d_]{{0,20}})(?:(?P<dash>[-‐])|\.?[ ]|\.)\Z")
_GIVEN_BEHIND = re.compile(
    rf",[ ]?(?P<word>[{UPPER}][^\W\d_]{{1,20}})(?:-[{UPPER}]\w{{1,20}})?(?:[ ][{UPPER}]\.?)?(?![\w-]|[ ][{UPPER}])"
)
_INITIAL_BEHIND = re.compile(r",?[ ][A-EG-LN-Z](?:\.|(?=,))(?![\w.])")
_SUFFIX = re.compile(r"(?:,?[ ](?:Jr\.?|I{2,3}|IV)|[ ]Sr\.?)(?!\w)")
_NAMED_AFTER = re.compile(rf"[ ]\n?[{UPPER}]\w")
_PART_OF = re.compile(r"\b(?:North|South|East|West|First|New|Old|University|Bank)[ ](?:of[ ])?\Z")
_WORD_BEHIND = re.compile(rf"[ ](?P<word>[{UPPER}][^\W\d_]{{2,20}})(?![\w-])")


class _Node(dict[str, "_Node"]):
    """What may follow, by folded token; ``votes`` say which types the term that ends here had."""

    __slots__ = ("votes",)

    def __init__(self) -> None:
        self.votes: Counter[tuple[PhiType, str]] = Counter()

    def __repr__(self) -> str:
        return f"_Node({len(self)})"


@dataclass(frozen=True, slots=True)
class SecondPass:
    """Finds again what first-pass spans hold. ``low`` are sources whose findings are not sure enough to be repeated."""

    dictionaries: Dictionaries = field(repr=False)
    low: frozenset[str] = field(default=frozenset(), repr=False)

    def second_pass(self, doc: Document, spans: Sequence[Span], others: Iterable[Tagged] = ()) -> list[Span]:
        """Further spans, disjoint, in order, apart from ``spans``; source ``again:<type>``.

        ``spans`` are the resolved ones of ``doc``. Pure; linear in the length of the documents.
        """
        root = _Node()
        for text_doc, found in ((doc, spans), *others):
            for span in found:
                if span.source not in self.low:
                    self._learn(text_doc.text[span.start : span.end], span.type, root)
        return self._find(doc, spans, root) if root else []

    def _learn(self, term: str, kind: PhiType, root: _Node) -> None:
        if kind in _NAMES:
            if len(_WORD.findall(term)) > 1:
                _plant(term, term, kind, root)
            for word in _WORD.findall(term):
                if self._is_name(word):
                    _plant(word, word, kind, root)
        elif (kind in _EXACT and _is_number(term)) or (kind in _WHOLE and self._is_place(term)):
            _plant(term, term, kind, root)

    def _is_name(self, word: str) -> bool:
        """Whether a part of a name may stand for the person: no ordinary word, abbreviation, eponym or drug."""
        return len(word) >= _SHORTEST_NAME and not self._means_more(self.dictionaries.lists_of(word))

    def _means_more(self, lists: Tags) -> bool:
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
        words = [folded(word) for word in doc.pieces(doc.tokens)]
        at = 0
        while at < len(words):
            start = doc.tokens[at][0]
            while next_taken < len(taken) and taken[next_taken].end <= start:
                next_taken += 1
            limit = taken[next_taken].start if next_taken < len(taken) else len(doc)
            last, span = self._match(doc, words, at, root, limit)
            if span is not None:
                left = max(taken[next_taken - 1].end if next_taken else 0, out[-1].end if out else 0)
                out.append(self._grown(span, doc, left, limit))
                while last < len(words) and doc.tokens[last][0] < out[-1].end:
                    last += 1
            at = max(at + 1, last)
        return out

    def _match(
        self, doc: Document, words: Sequence[str], first: int, root: _Node, limit: int
    ) -> tuple[int, Span | None]:
        """The longest term at token ``first`` that ends before ``limit``, and the token behind it."""
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
        if (start and glued(text[start - 1])) or (end < len(text) and glued(text[end])):
            return None
        found = text[start:end]
        kind = max(node.votes.items(), key=lambda item: (item[1], item[0]))[0][0]
        forms = {form for type_, form in node.votes if type_ is kind}
        right = any(_same(found, form) for form in forms)
        if kind in _NAMES:
            right = self._stands_as_name(found, forms)
        elif kind in _PLACES:
            right = (
                right
                and _NAMED_AFTER.match(text, end) is None
                and _PART_OF.search(text, max(0, start - 16), start) is None
            )
        elif kind not in _EXACT:
            right = right or (found[:1].isupper() and len(_WORD.findall(found)) > 1)
        return Span(start, end, kind, f"again:{kind}") if right else None

    def _stands_as_name(self, found: str, forms: set[str]) -> bool:
        """In capitals a short word is an abbreviation unless a list knows the name; in lower case it needs length."""
        if found.islower():
            return found in forms or (
                len(found) >= _SHORTEST_LOWER and not _ENGLISH & self.dictionaries.lists_of(found)
            )
        if not found.isupper() or len(found) > _LONGEST_ABBREVIATION or not found.isalpha():
            return True
        lists = self.dictionaries.lists_of(found)
        return not lists.isdisjoint(_FREQUENT_LISTS) or not all(form.isupper() for form in forms)

    def _grown(self, span: Span, doc: Document, left: int, right: int) -> Span:
        """A name with its other half, initials and given names as far as ``[left, right)`` holds them."""
        if span.type not in _NAMES:
            return span
        text = doc.text
        start, end = span.start, span.end
        if found := _HALF_BEHIND.match(text, end, right):
            end = found.end()
        while found := _BEFORE.search(text, max(left, start - _REACH), start):
            if not (found["dash"] or len(found["word"]) == 1 or self._listed(found["word"], _GIVEN_LISTS)):
                break
            start = found.start("word")
        end = self._end_behind(text, start, end, right)
        if found := _SUFFIX.match(text, end, right):
            end = found.end()
        return Span(start, end, span.type, span.source)

    def _end_behind(self, text: str, start: int, end: int, right: int) -> int:
        """The end with a family name, a given name behind a comma, or an initial that follows."""
        if (found := _WORD_BEHIND.match(text, end, right)) and self._listed(found["word"], _NAME_LISTS):
            return found.end()
        if (found := _GIVEN_BEHIND.match(text, end, right)) and self._listed(found["word"], _GIVEN_LISTS):
            return end if self._listed(text[start:end], _GIVEN_LISTS) else found.end()
        found = _INITIAL_BEHIND.match(text, end, right)
        return found.end() if found else end

    def _listed(self, word: str, wanted: Tags) -> bool:
        lists = self.dictionaries.lists_of(word)
        return not lists.isdisjoint(wanted) and lists.isdisjoint(_NO_NEIGHBOUR)


def _is_number(term: str) -> bool:
    return sum(c.isdigit() for c in term) >= _SHORTEST_NUMBER or ("@" in term or len(term) > 6)


def _same(found: str, form: str) -> bool:
    return " ".join(found.split()) == " ".join(form.split())


def _plant(term: str, form: str, kind: PhiType, root: _Node) -> None:
    node = root
    pieces = [folded(piece) for piece in Document(term).pieces(Document(term).tokens)]
    if len(pieces) > _LONGEST:
        return
    for piece in pieces:
        node = node.setdefault(piece, _Node())
    node.votes[kind, form] += 1
