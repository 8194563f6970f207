"""Finds the values of site lists, and the matches of the patterns of a site.

Names of people count in the orders in which notes write them: ``Ruth Keller``, ``R. Keller``, ``Keller, Ruth M``,
``Dr. Keller``, and the family name alone if nothing but a name has that form. Other values count wherever they are
written, but a single ordinary word (``Hope`` for a clinic) only with a capital and a word such as ``at`` beside it.

Models have not seen these spans in training and cannot overrule them. Vetoes and measurements do: ``Parkinson disease``
stays, although a Dr. Parkinson works at the site.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from deid_agent.model import Document, PhiType, Source, SourceKind, SourceTraits, Span, joins_word
from deid_agent.recognize.boundaries import TITLES
from deid_agent.rules import PEOPLE, SKIPPED, Context, Dictionaries, Family, Lexicon, RuleScan, SiteRules, lists_of_tags

_SOURCES: Final = {kind: Source(SourceKind.SITE, kind.value.lower()) for kind in PhiType}
_ALONE: Final = {kind: Source(SourceKind.SITE_NAME, kind.value.lower()) for kind in PEOPLE}
_NAME_LISTS: Final = frozenset({"family", "family-rare", "given-female", "given-male", "nickname"})
_TOWN_LISTS: Final = frozenset({"city", "city-world", "county"})
_PLACE_LISTS: Final = frozenset(
    {"city", "city-world", "county", "state", "country", "hospital", "organization", "hospital-kind"}
)
_SHORTEST_ALONE: Final = 4
_SHORTEST_TERM: Final = 4
"""Letters and digits of a value that counts without a cue: ``4B`` and ``ICU`` are much else."""
_MOST_BETWEEN: Final = 3
"""Middle names and initials between given and family name."""
_STAFF_TITLE = re.compile(
    r"(?<![\w-])(?:Drs?|DR|Doctor|Prof|Professor|Nurse|NURSE|Sister|Matron)\.?[ \t]{1,2}(?:\r?\n[ \t]{0,6})?\Z"
)
_TITLE = re.compile(rf"(?<![\w-])(?:{TITLES}|MR|MRS|MS|Sr)\.?[ \t]{{1,2}}(?:\r?\n[ \t]{{0,6}})?\Z")
_CREDENTIAL = re.compile(
    r",?[ ]{1,2}(?:MD|M\.D\.|DO|D\.O\.|RN|NP|PA-C|PA|PhD|MBBS|LPN|CRNA|LCSW|MSW|DPT|PharmD|FRCP|FRCS|FACS|CNM|ARNP)"
    r"(?![\w-])"
)
_CUE_BEFORE = re.compile(
    r"(?i)(?<![^\W_])(?:at|to|from|in|via|near|outside|the|ward|unit|clinic|hospital|hosp|floor|wing|campus|site|location"
    r"|facility|room|bed|street|lives|staying|admitted|transferred|discharged|referred)[:,]?[ \t]{1,2}\Z"
)
_CUE_AFTER = re.compile(
    r"(?i)[ ](?:ward|unit|clinic|hospital|hosp|floor|wing|campus|site|centre|center|house|building|street|road|lodge)\b"
)
_ACROSS = re.compile(r"\n[^\S\n]*\r?\n")
_REACH: Final = 24


@dataclass(frozen=True, slots=True)
class SiteRecognizer:
    """Finds what the site folders list. ``not_person`` is what follows a name of no person, such as ``forceps``."""

    site: SiteRules = field(repr=False)
    dictionaries: Dictionaries = field(repr=False)
    not_person: Context = field(repr=False)
    common: Lexicon = field(default=frozenset(), repr=False)
    name: str = "site"
    _scan: RuleScan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scan", RuleScan(self.site.patterns))

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """The sources of each list, and one for each pattern of the site. Models overrule none of them."""
        lists = {_SOURCES[kind]: SourceTraits() for kind in (*self.site.lists.names, *self.site.lists.terms)}
        lists |= {_ALONE[kind]: SourceTraits() for kind in self.site.lists.names}
        return lists | {rule.source: SourceTraits(rule.confidence) for rule in self.site.patterns}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The spans of patterns, then those of the lists by position. Time is linear in the text."""
        for rule, ranges in zip(self.site.patterns, self._scan.find(doc), strict=True):
            for start, end in ranges:
                yield Span(start, end, rule.types[0], rule.source)
        lists = self.site.lists
        if not lists.starts:
            return
        words = doc.folded_tokens
        begun = dict.fromkeys(lists.terms, 0)
        for at, word in enumerate(words):
            if word not in lists.starts:
                continue
            before = _word_before(words, at) if lists.names else ""
            for kind, names in lists.names.items():
                for family in names.families(word, before):
                    if found := _Mention(doc, words, at, family).find(self):
                        start, end, form = found
                        sure = form is _Form.WHOLE or (form is _Form.STAFF and kind is PhiType.DOCTOR)
                        yield Span(start, end, kind, (_SOURCES if sure else _ALONE)[kind])
                        break
            for kind, terms in lists.terms.items():
                if at >= begun[kind] and (end := terms.longest(words, at)) and self._is_term(doc, words, at, end):
                    begun[kind] = end
                    yield Span(doc.tokens[at][0], doc.tokens[end - 1][1], kind, _SOURCES[kind])

    def is_only_name(self, word: str) -> bool:
        """Return true if the folded ``word`` is no ordinary word, and in no list but lists of names and towns.

        Many family names are those of a town too, which is PHI as well.
        """
        marked = self.dictionaries.lists_of(word)
        return word not in self.common and marked <= _NAME_LISTS | _TOWN_LISTS  # ``family?`` is a word too

    def is_ordinary(self, word: str) -> bool:
        """Return true if the folded ``word`` is a word, or a name of people: no sure place by itself."""
        return word in self.common or not lists_of_tags(self.dictionaries.lists_of(word)) <= _PLACE_LISTS

    def _is_term(self, doc: Document, words: Sequence[str], first: int, last: int) -> bool:
        """Return true if the tokens ``[first, last)``, which are those of a listed value, are meant as such."""
        start, end = doc.tokens[first][0], doc.tokens[last - 1][1]
        text = doc.text
        if not _is_free(text, start, end) or ("\n" in text[start:end] and _ACROSS.search(text, start, end)):
            return False
        parts = [word for word in words[first:last] if word[0].isalnum()]
        named = [word for word in parts if word[0].isalpha()]
        if not named:
            return True
        size = sum(map(len, parts))
        if len(named) == len(parts) > 1 or (len(parts) > 1 and size >= _SHORTEST_TERM):
            plain = text[start].islower() and all(map(self.is_ordinary, named))
            return not plain or _CUE_BEFORE.search(text, max(0, start - _REACH), start) is not None
        if size >= _SHORTEST_TERM and not self.is_ordinary(named[0]):
            return True
        cue = _CUE_BEFORE.search(text, max(0, start - _REACH), start) or _CUE_AFTER.match(text, end)
        return cue is not None and (text[start].isupper() or text[start].isdigit())


def _word_before(words: Sequence[str], at: int) -> str:
    """The token before token ``at``, without the signs that may divide a name; empty if there is none."""
    for back in range(at - 1, max(-1, at - 2 - _MOST_BETWEEN), -1):
        if words[back] not in SKIPPED:
            return words[back]
    return ""


def _is_free(text: str, start: int, end: int) -> bool:
    """Return true if no letter or digit touches the ends."""
    return not (start and joins_word(text[start - 1])) and not (end < len(text) and joins_word(text[end]))


class _Form(Enum):
    """What a mention has besides the family name."""

    WHOLE = "whole"  # a given name or an initial
    STAFF = "staff"  # a title or a credential of staff
    ALONE = "alone"  # nothing, or a title that patients have too


@dataclass(frozen=True, slots=True)
class _Mention:
    """A possible mention of a family whose name ends with token ``last``."""

    doc: Document = field(repr=False)
    words: Sequence[str] = field(repr=False)
    last: int
    family: Family = field(repr=False)

    def find(self, lists: SiteRecognizer) -> "tuple[int, int, _Form] | None":
        """The characters of the name and its form; None if the token is no name of this family."""
        first = self._first_of_family()
        if first is None:
            return None
        text, tokens = self.doc.text, self.doc.tokens
        start, end = tokens[first][0], tokens[self.last][1]
        if not _is_free(text, start, end):
            return None
        capital = text[tokens[self.last][0]].isupper()
        ordinary = not lists.is_only_name(self.words[self.last])
        reach = max(0, start - _REACH)
        staff = capital and bool(_STAFF_TITLE.search(text, reach, start) or _CREDENTIAL.match(text, end))
        titled = staff or (capital and _TITLE.search(text, reach, start) is not None)
        before, whole = self._given_before(first, capital, lists)
        if before is not None and not whole and ordinary and not titled:
            before = before if text[tokens[before][1] : tokens[before][1] + 1] == "." else None
        after = self._given_after(capital) if before is None else None
        if before is not None or after is not None:
            begin, final = first if before is None else before, self.last if after is None else after
            if not capital and ordinary and not lists.is_only_name(self.words[begin if begin < first else final]):
                return None  # "will may": two words
            return tokens[begin][0], tokens[final][1], _Form.WHOLE
        if titled or (capital and not ordinary and self._counts_alone(end, lists)):
            return start, end, _Form.STAFF if staff else _Form.ALONE
        return None

    def _first_of_family(self) -> int | None:
        """The first token of the family name; None if its other words do not precede its last one."""
        at = self.last
        for word in reversed(self.family.words[:-1]):
            at, limit = at - 1, at - 1 - _MOST_BETWEEN
            while at > max(0, limit) and self.words[at] in SKIPPED:
                at -= 1
            if at < 0 or self.words[at] != word:
                return None
        return at

    def _given_before(self, first: int, capital: bool, lists: SiteRecognizer) -> tuple[int | None, bool]:
        """The token at which a listed given name or initial begins before the family name, and whether it is whole."""
        text, tokens = self.doc.text, self.doc.tokens
        begin: int | None = None
        listed = False
        at, right, between = first - 1, tokens[first][0], 0
        while at >= 0 and between <= _MOST_BETWEEN:
            start, end = tokens[at]
            gap, word = text[end:right], self.words[at]
            if len(gap) > 3 or gap.count("\n") > 1 or gap.strip():
                break
            if word in SKIPPED:
                if gap and word != ".":
                    break
            elif word in self.family.given and _is_free(text, start, end):
                if begin is not None and not text[start].isupper() and not lists.is_only_name(word):
                    break  # "as per oona zyltrak", although a Per Zyltrak is listed
                begin, listed = at, True
                between += 1
            elif len(word) == 1 and word.isalpha() and text[start].isupper() and capital:
                begin = at if word in self.family.initials and _is_free(text, start, end) else begin
                between += 1
            elif capital and word.isalpha() and text[start].isupper() and not listed:
                between += 1  # a middle name, or the second half of a given name
            else:
                break
            if word == "." and (at == 0 or len(self.words[at - 1]) != 1):
                break
            at, right = at - 1, start
        return begin, listed

    def _given_after(self, capital: bool) -> int | None:
        """The last token of the given names after the family name: ``Keller, Ruth M``, ``KELLER RUTH``."""
        text, tokens, words = self.doc.text, self.doc.tokens, self.words
        at = self.last + 1
        comma = at < len(words) and words[at] == ","
        at += comma
        if at >= len(words):
            return None
        start, end = tokens[at]
        gap = text[tokens[self.last][1] : start].replace(",", "", 1)
        if len(gap) > 2 or gap.strip() or "\n" in gap or not (gap or comma):
            return None
        upper = text[start].isupper()
        whole = words[at] in self.family.given and (comma or (capital and upper))
        initial = comma and capital and upper and words[at] in self.family.initials
        if not (whole or initial) or not _is_free(text, start, end):
            return None
        while at + 1 < len(words) and (words[at + 1] in self.family.given or len(words[at + 1]) == 1):
            start, end = tokens[at + 1]
            if text[tokens[at][1] : start] not in (" ", "-") or not text[start].isupper():
                break
            if not _is_free(text, start, end):
                break
            at += 1
        return at

    def _counts_alone(self, end: int, lists: SiteRecognizer) -> bool:
        """Return true for a family name that is long enough, and that is not the name of a sign or an instrument."""
        text = self.doc.text
        if len(self.words[self.last]) < _SHORTEST_ALONE or lists.not_person.follows(text, end):
            return False
        return not (text[end : end + 1] in SKIPPED - {".", "'", "’"} and text[end + 1 : end + 2].islower())
