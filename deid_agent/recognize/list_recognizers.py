"""Recognizers that use lists alone: dictionary terms and logins.

Dehghan 2015 section 2.2 finds places, sites, organizations and jobs with lists that contain no ambiguous terms; here an
ambiguous term counts after a cue. Ferrandez 2012 section 3.2.2 makes every word of a list of names a candidate unless
it is a common word without an initial capital.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.model import BesideModels, Document, PhiType, Range, Source, SourceKind, SourceTraits, Span, joins_word
from deid_agent.rules import AMBIGUOUS, Dictionaries, DictionaryEntry, Lexicon, Tags, list_of_tag

_ONE_NAME = Source(SourceKind.DICTIONARY, "name")
_SEVERAL_NAMES = Source(SourceKind.DICTIONARY, "names")
_OVERRULED = SourceTraits(beside_models=BesideModels.NEVER)

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
_SOURCES = {name: Source(SourceKind.DICTIONARY, name) for name in _TYPES}
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
_POSTAL_AFTER = re.compile(r"\s+(?:\d{5}|[A-Z]\d[A-Z])")
_DEGREES = frozenset({"MD", "PA", "DO", "ND", "MS", "MA", "RN", "DC"})
_SIZE = re.compile(r"\d[ ]?\Z")
_STATE_AFTER = re.compile(r",\s(?:[A-Z]{2}|[A-Z][a-z]{3,12})\b")
_CAPITAL_AFTER = re.compile(r"[ ](?:[A-Z][a-z]|[A-Z]{3})")
_CAPITAL_BEFORE = re.compile(r"(?:\b[A-Z][a-z]+(?: of)?|[A-Z]{2,}|-)[ ]?\Z")


@dataclass(frozen=True, slots=True)
class DictionaryRecognizer:
    """Proposes the places, sites, organizations, jobs, holidays and names that the lists contain."""

    lists: Dictionaries = field(repr=False)
    name: str = "dictionary"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source for each list of places, sites, organizations, jobs and holidays, and two for names."""
        return dict.fromkeys((*_SOURCES.values(), _ONE_NAME, _SEVERAL_NAMES), _OVERRULED)

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The spans of listed terms, one for each list that contains the term."""
        last = -1
        for entry in self.lists.find_entries(doc):
            start, end = entry.range(doc)
            if (start and joins_word(doc.text[start - 1])) or (end < len(doc) and joins_word(doc.text[end])):
                continue
            for name in sorted(entry.lists):
                kind = _TYPES.get(list_of_tag(name))
                if kind is not None and self._is_match(doc, (start, end), entry, name):
                    yield Span(start, end, kind, _SOURCES[list_of_tag(name)])
            if entry.first > last and (after := self._name(doc, entry)):
                last = after - 1
                several = after - entry.first > 1
                stop = doc.tokens[last][1]
                yield Span(start, stop, PhiType.PATIENT, _SEVERAL_NAMES if several else _ONE_NAME)

    def _is_match(self, doc: Document, place: Range, entry: DictionaryEntry, name: str) -> bool:
        """Return true if a term of list ``name`` in ``place`` counts. An ambiguous term needs a cue."""
        start, end = place
        text = doc.text
        which = list_of_tag(name)
        capital = text[start].isupper()
        before = text[max(0, start - _REACH) : start]
        if which == "state-abbrev":
            return text[start:end].isupper() and self._is_state_code(before, text[end : end + 8], text[start:end])
        if which == "profession":
            several = entry.last - entry.first > 1
            sure = several and not name.endswith(AMBIGUOUS)
            return sure or _JOB_CUE.search(before) is not None
        if which in _CAPITAL and not capital:
            return (
                which in ("organization", "holiday")
                and not name.endswith(AMBIGUOUS)
                and self._is_no_word(text[start:end])
            )
        if which in _PLACES and (_within_a_name(text, start, end) or _SIZE.search(before)):
            return False
        if which in ("city", "city-world") and (entry.last - entry.first == 1 or name.endswith(AMBIGUOUS)):
            other = not _NAMES.isdisjoint({list_of_tag(n) for n in entry.lists}) or name.endswith(AMBIGUOUS)
            cue = _PLACE_CUE.search(before) is not None or _STATE_AFTER.match(text, end) is not None
            return cue or not (other or _NO_NAME & entry.lists)
        return not name.endswith(AMBIGUOUS) or (which in _PLACES and _PLACE_CUE.search(before) is not None)

    def _is_state_code(self, before: str, after: str, code: str) -> bool:
        """Return true for a state code after a comma that follows a city or precedes a postal code.

        After a name, MD or PA is a degree.
        """
        found = _STATE_CUE.search(before)
        if found is None:
            return False
        city = any(list_of_tag(name) == "city" for name in self.lists.lists_of(found["word"]))
        return _POSTAL_AFTER.match(after) is not None or (city and code not in _DEGREES)

    def _is_no_word(self, term: str) -> bool:
        return self.lists.lists_of(term).isdisjoint(_ENGLISH)

    def _name(self, doc: Document, entry: DictionaryEntry) -> int:
        """The index of the token after the name that begins here (listed names, initials between them), or 0."""
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
        """Return true for a listed name that is no common word without an initial capital (Ferrandez 2012)."""
        start, stop = doc.tokens[at]
        if stop - start < 3 or lists.isdisjoint(_NAMES) or not lists.isdisjoint(_NO_NAME):
            return False
        if any(name.endswith(AMBIGUOUS) for name in lists if list_of_tag(name) in _NAMES):
            return False
        return doc.text[start].isupper() or lists.isdisjoint(_ENGLISH)


def _within_a_name(text: str, start: int, end: int) -> bool:
    """Return true for a place next to a capitalized word, which makes it part of a longer name (Ohio Street)."""
    before = _CAPITAL_BEFORE.search(text[max(0, start - _REACH) : start])
    return _CAPITAL_AFTER.match(text, end) is not None or before is not None


_LOGIN_SOURCE = Source(SourceKind.LOGIN, "name")
_STEM = 4
_LOGIN = re.compile(r"(?<![\w@./-])([a-z]{5,14}|[A-Z]{6,14})(?:[0-9]{1,4}|[_.][a-z0-9]{1,5})?(?![\w@-]|\.\w)")
_NAME = re.compile(r"(?<!\w)[A-Z][A-Za-z]{3,20}(?!\w)")


@dataclass(frozen=True, slots=True)
class LoginRecognizer:
    """Proposes logins that are built from a name of the same note: ``tpfluger``, ``arosenth``, ``mroybal2``.

    Hospitals build logins from one or two initials and the family name, often shortened and numbered. A login is a word
    in lower case or capitals that is no common word and consists of one or two letters and the first four or more
    letters of a capitalized word of the note. Source: the annotation guidelines, names in detail (initial and surname
    joined in lower case are USERNAME).
    """

    common: Lexicon = field(repr=False)
    name: str = "logins"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source; models overrule it."""
        return {_LOGIN_SOURCE: _OVERRULED}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The logins that contain a name of the same document."""
        stems: dict[str, set[str]] = {}
        for found in _NAME.finditer(doc.text):
            word = found.group().lower()
            if word not in self.common:
                stems.setdefault(word[:_STEM], set()).add(word)
        if not stems:
            return
        for found in _LOGIN.finditer(doc.text):
            if self._contains_name(found[1].lower(), stems):
                yield Span(found.start(), found.end(), PhiType.USERNAME, _LOGIN_SOURCE)

    def _contains_name(self, login: str, stems: dict[str, set[str]]) -> bool:
        named = any(
            name.startswith(login[skip:]) for skip in (1, 2) for name in stems.get(login[skip : skip + _STEM], ())
        )
        return named and login not in self.common
