"""Spans that a list says alone: Dehghan's dictionary taggers and Ferrandez' look-up of names.

Dehghan 2015 section 2.2: places, sites, organisations and jobs by lists without the ambiguous terms; here an ambiguous
term counts behind a cue. Ferrandez 2012 section 3.2.2: every word of a list of names is a candidate, unless it
is a common word without an initial capital; recall comes first, so the source of a name found so is of low confidence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from deid_agent.dictionary import AMBIGUOUS, Dictionaries, Entry, Tags, base
from deid_agent.phi import PhiType
from deid_agent.spans import Span
from deid_agent.text import Document, Range, glued

LOW = frozenset({"lexicon:name"})
"""Sources that say too little alone: a single word of a list of names."""

_TYPES = {
    "state": PhiType.STATE,
    "state-abbrev": PhiType.STATE,
    "country": PhiType.COUNTRY,
    "nationality": PhiType.COUNTRY,
    "language": PhiType.COUNTRY,
    "county": PhiType.CITY,
    "city": PhiType.CITY,
    "city-world": PhiType.CITY,
    "hospital": PhiType.HOSPITAL,
    "organization": PhiType.ORGANIZATION,
    "profession": PhiType.PROFESSION,
    "holiday": PhiType.DATE,
}
_PLACES = frozenset({"state", "country", "nationality", "language", "county", "city", "city-world"})
_CAPITAL = frozenset({*_PLACES, "hospital", "organization", "holiday"})
_GIVEN = frozenset({"given-female", "given-male", "nickname"})
_NAMES = _GIVEN | {"family"}
_NO_NAME = frozenset({"common-word", "abbreviation", "eponym", "drug", "nationality", "language"})
_ENGLISH = frozenset({"common-word", "rare-word"})
_REACH = 24
_PLACE_CUE = re.compile(
    r"\b(?:(?:in|from|near|outside|visiting|resident of|(?:moved|went|flew|drove|returned|travel\w{0,4}) to|speaks?)"
    r"|(?:language|country|city|town|county|state|nationality|interpreter)[:/])\s\Z",
    re.IGNORECASE,
)
_JOB_CUE = re.compile(
    r"\b(?:as an?|retired|former|occupation:?|employment:?|works?:?|worked|job:?|is an?|was an?|ex-?|profession:?)\s\Z",
    re.IGNORECASE,
)
_STATE_CUE = re.compile(r"(?P<word>[^\W\d_]+),\s\Z")
_POSTAL_BEHIND = re.compile(r"\s+(?:\d{5}|[A-Z]\d[A-Z])")
_DEGREES = frozenset({"MD", "PA", "DO", "ND", "MS", "MA", "RN", "DC"})
_SIZE = re.compile(r"\d[ ]?\Z")
_STATE_BEHIND = re.compile(r",\s(?:[A-Z]{2}|[A-Z][a-z]{3,12})\b")
_CAPITAL_BEHIND = re.compile(r"[ ](?:[A-Z][a-z]|[A-Z]{3})")
_CAPITAL_BEFORE = re.compile(r"(?:\b[A-Z][a-z]+(?: of)?|[A-Z]{2,}|-)[ ]?\Z")


@dataclass(frozen=True, slots=True)
class DictionaryRecognizer:
    """Proposes places, sites, organisations, jobs, holidays and names of the lists."""

    lists: Dictionaries = field(repr=False)
    name: str = "dictionary"

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Spans of listed terms; several for one place where several lists hold it."""
        last = -1
        for entry in self.lists.entries(doc):
            start, end = entry.range(doc)
            if (start and glued(doc.text[start - 1])) or (end < len(doc) and glued(doc.text[end])):
                continue
            for name in sorted(entry.lists):
                kind = _TYPES.get(base(name))
                if kind is not None and self._stands(doc, (start, end), entry, name):
                    yield Span(start, end, kind, f"lexicon:{base(name)}")
            if entry.first > last and (behind := self._name(doc, entry)):
                last = behind - 1
                several = behind - entry.first > 1
                stop = doc.tokens[last][1]
                yield Span(start, stop, PhiType.PATIENT, "lexicon:names" if several else "lexicon:name")

    def _stands(self, doc: Document, place: Range, entry: Entry, name: str) -> bool:
        """Whether a term of list ``name`` at ``place`` counts; an ambiguous one only with its cue."""
        start, end = place
        text = doc.text
        which = base(name)
        capital = text[start].isupper()
        before = text[max(0, start - _REACH) : start]
        if which == "state-abbrev":
            return text[start:end].isupper() and self._after_city(before, text[end : end + 8], text[start:end])
        if which == "profession":
            several = entry.last - entry.first > 1
            sure = several and not name.endswith(AMBIGUOUS)
            return sure or _JOB_CUE.search(before) is not None
        if which in _CAPITAL and not capital:
            return (
                which in ("organization", "holiday") and not name.endswith(AMBIGUOUS) and self._no_word(text[start:end])
            )
        if which in _PLACES and (_within_a_name(text, start, end) or _SIZE.search(before)):
            return False
        if which in ("city", "city-world") and (entry.last - entry.first == 1 or name.endswith(AMBIGUOUS)):
            other = not _NAMES.isdisjoint({base(n) for n in entry.lists}) or name.endswith(AMBIGUOUS)
            cue = _PLACE_CUE.search(before) is not None or _STATE_BEHIND.match(text, end) is not None
            return cue or not (other or _NO_NAME & entry.lists)
        return not name.endswith(AMBIGUOUS) or (which in _PLACES and _PLACE_CUE.search(before) is not None)

    def _after_city(self, before: str, behind: str, code: str) -> bool:
        """A state's code: behind a comma, and before a postal code or behind a city (a degree stands behind names)."""
        found = _STATE_CUE.search(before)
        if found is None:
            return False
        city = any(base(name) == "city" for name in self.lists.lists_of(found["word"]))
        return _POSTAL_BEHIND.match(behind) is not None or (city and code not in _DEGREES)

    def _no_word(self, term: str) -> bool:
        return self.lists.lists_of(term).isdisjoint(_ENGLISH)

    def _name(self, doc: Document, entry: Entry) -> int:
        """The token behind the name that begins here: names of the lists, with initials between; 0 for none."""
        at = entry.first
        if entry.last - at != 1 or not self._is_name(doc, at, entry.lists):
            return 0
        at += 1
        end = at
        while at < len(doc.tokens) and doc.text[doc.tokens[at - 1][1] : doc.tokens[at][0]] in ("", " "):
            start, stop = doc.tokens[at]
            word = doc.text[start:stop]
            if self._is_name(doc, at, self.lists.lists_of(word)):
                end = at + 1
            elif not (word in (".", "-") or (len(word) == 1 and word.isupper())):
                break
            at += 1
        return end

    def _is_name(self, doc: Document, at: int, lists: Tags) -> bool:
        """Ferrandez: in a list of names, and not a common word without an initial capital."""
        start, stop = doc.tokens[at]
        if stop - start < 3 or lists.isdisjoint(_NAMES) or not lists.isdisjoint(_NO_NAME):
            return False
        if any(name.endswith(AMBIGUOUS) for name in lists if base(name) in _NAMES):
            return False
        return doc.text[start].isupper() or lists.isdisjoint(_ENGLISH)


def _within_a_name(text: str, start: int, end: int) -> bool:
    """A place beside a capitalised word is part of a larger name: Ohio Street, Bank of America."""
    before = _CAPITAL_BEFORE.search(text[max(0, start - _REACH) : start])
    return _CAPITAL_BEHIND.match(text, end) is not None or before is not None
