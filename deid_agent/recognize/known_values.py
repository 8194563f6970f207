"""Finds numbers, phrases and dates of the structured part of a message in its narratives.

Numbers are compared by their letters and digits: punctuation, single blanks and leading zeros do not matter. A number
with other characters (``447:190``) is also searched for exactly as written. A number counts in these cases:

* It has at least six letters and digits, or four if one is a letter; at least one is a digit; and it is not a common
  word with one or two digits (``chest``, ``body-height``, ``phase2``).
* It has four or five digits and directly follows a label (``MRN 4471``, ``#12345``), or it is a postal code.
* It has one to three characters, or only letters, and directly follows a label of identity (``MRN 12``).
* It has at least five letters and no digit, and both the fact and the text have it in capitals.

Phrases (street lines, towns, facilities) are compared word by word without case and accents, and street types by their
abbreviation. A phrase of one word counts only if it has at least four letters and is no common word. A facility is also
found without its last word if that names its kind.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar

from deid_agent.model import CATEGORY, Document, Fact, PhiCategory, PhiType, Span, Subject, ValueKind, fold_accents
from deid_agent.recognize.known_people import KNOWN_SOURCES, NameLexicons
from deid_agent.recognize.written_values import CompactText, find_dates, parse_fact_date, separate_glued_words

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)
_LABEL = re.compile(
    r"(?:#|\b(?:no|num|number|id|ids|mrn?|mr|acct|account|ref|visit|chart|file|unit|case|order|code|card|enc|csn|fin)"
    r"\b)[\s:.#]{0,5}\Z",
    re.IGNORECASE,
)
_MASKED = re.compile(
    r"(?:[x*•]{2,4}[- ]?){1,2}\Z|(?:last|final) (?:4|four)[\s:(]{0,5}\Z|end(?:s|ing)(?: in)? \Z", re.IGNORECASE
)
_RUN = re.compile(r"[^\W_]+")
_IDENTITY = re.compile(
    r"(?-i:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?:mrn|mr ?#|mr no\.?|medical record(?: (?:no|number|num|id))?"
    r"|(?:patient|pat|pt|member|subscriber|person)[ _-]?(?:id|no|number|identifier)|pid|acct|account(?: (?:no|number))?"
    r"|chart(?: (?:no|number))?|csn|hospital no|record (?:no|number)|ssn|fin)(?: ?(?:is|#|no\.?|number|num|id))?"
    r"[ \t.:#=]{0,5}(?P<id>[0-9a-z][0-9a-z\-]{0,15})(?![^\W_])",
    re.IGNORECASE,
)
_IDENTITY_START = re.compile(
    r"m(?=rn|r ?#|r no|edical record|ember)|p(?=at|t|erson|id)|s(?=ubscriber|sn)|a(?=cct|ccount)|c(?=hart|sn)"
    r"|h(?=ospital no)|r(?=ecord n)|f(?=in)"
)
"""Each label of identity, in lower case, begins so. A pattern that begins with a character is searched for faster."""
_FEWEST_ASCII = 3
_LONG_WORD = 5
"""An id of at least so many capitals counts without a label, in capitals."""
_PHRASE_WORD = re.compile(r"[^\W\d_]+|\d+")
_PLAIN_NUMBER = re.compile(r"[0-9A-Za-z \-./()+_]*")
_STREET_WORDS: Mapping[str, str] = {
    "street": "st", "avenue": "ave", "av": "ave", "road": "rd", "drive": "dr", "lane": "ln", "court": "ct",
    "boulevard": "blvd", "place": "pl", "terrace": "ter", "circle": "cir", "highway": "hwy", "parkway": "pkwy",
    "square": "sq", "apartment": "apt", "suite": "ste", "floor": "fl", "building": "bldg", "north": "n",
    "south": "s", "east": "e", "west": "w", "saint": "st", "mount": "mt", "fort": "ft",
}  # fmt: skip
_SHORT_STREET_WORDS = frozenset(_STREET_WORDS.values())
_NUMBERS = frozenset(
    t for t, c in CATEGORY.items() if c is PhiCategory.ID or t in (PhiType.PHONE, PhiType.FAX, PhiType.ZIP)
)
_IDS = frozenset(t for t, c in CATEGORY.items() if c is PhiCategory.ID)
_FEW_NUMBERS = 12
_LONG_NUMBER = 8
_LITERAL = frozenset({PhiType.EMAIL, PhiType.URL, PhiType.IPADDRESS, PhiType.USERNAME})
_PHRASES = frozenset(
    {
        PhiType.STREET, PhiType.CITY, PhiType.STATE, PhiType.COUNTRY, PhiType.HOSPITAL, PhiType.ORGANIZATION,
        PhiType.LOCATION_OTHER, PhiType.PROFESSION,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _FactType:
    """The type of the spans of a fact, and the subject of the fact."""

    type: PhiType
    subject: Subject

    def span(self, start: int, end: int, form: str) -> Span:
        return Span(start, end, self.type, KNOWN_SOURCES[self.subject, form])


_Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueFinder:
    """Finds the values of one message; created once for each set of facts.

    The words of a narrative are looked up in indexes of the values, so that the cost is linear in the narratives.
    """

    lists: NameLexicons = field(repr=False)
    days: Mapping[date, _FactType] = field(repr=False)
    numbers: Mapping[str, Sequence[tuple[str, _FactType]]] = field(repr=False)  # by their last four characters
    literals: Mapping[str, Sequence[tuple[str, _FactType]]] = field(repr=False)  # by their rarest run
    phrases: Mapping[_Phrase, Sequence[tuple[_Phrase, _FactType]]] = field(repr=False)  # by their first two words
    labelled: Mapping[str, _FactType] = field(repr=False)  # short ids, and ids of letters only
    exact: bool = False

    @classmethod
    def from_facts(cls, facts: Sequence[Fact], lists: NameLexicons, exact: bool = False) -> "ValueFinder":
        """The finder of these facts. For ``exact`` see ``KnownRecognizer``."""
        typed = [(fact.value, _FactType(fact.type, fact.subject)) for fact in facts]
        numbers = [
            (_compact_number(value), of) for value, of in typed if of.type in _NUMBERS and not _is_word(value, lists)
        ]
        literals = [(value.strip().lower(), of) for value, of in typed if of.type in _LITERAL or _is_odd(value, of)]
        literals += ((name, of) for fact, (_, of) in zip(facts, typed, strict=True) for name in _lossy_names(fact))
        forms = ((form, of) for value, of in typed if of.type in _PHRASES for form in _variants(value, of.type, lists))
        return cls(
            lists,
            {day: of for value, of in typed if of.type is PhiType.DATE and (day := parse_fact_date(value))},
            _grouped((key[-4:], (key, of)) for key, of in numbers),
            _by_rarest((value, of) for value, of in literals if len(value) > 3 and value not in lists.common),
            _grouped((form[:2], (form, of)) for form, of in forms),
            {key: of for value, of in typed if of.type in _IDS for key in _labelled_forms(value, of, lists)},
            exact,
        )

    def find(self, doc: Document) -> Iterator[Span]:
        """The spans of every value in the text."""
        yield from self._find_labelled(doc)
        yield from self._find_dates(doc)
        yield from self._find_numbers(doc)
        yield from self._find_literals(doc)
        yield from self._find_phrases(doc)

    def proves_absence(self, doc: Document, *, in_rows: bool) -> bool:
        """See ``KnownRecognizer.proves_absence``.

        A number needs no label to be present, and a phrase needs only its words.
        """
        if any(value in doc.lower for values in self.literals.values() for value, _ in values):
            return False
        if next(self._find_labelled(doc), None) is not None:
            return False
        if self.phrases:
            words = {_STREET_WORDS.get(word, word) for word in set(_WORDS.findall(doc.lower))}
            typed = [form for forms in self.phrases.values() for form, _ in forms if words.issuperset(form)]
            if typed and (not in_rows or _contains_any(typed, doc)):
                return False
            glued = [form for forms in self.phrases.values() for form, _ in forms if _longest(form) in doc.compact]
            if glued and (apart := separate_glued_words(doc.text)) and _contains_any(glued, Document(apart.text)):
                return False
        return doc.text.isascii() and not self._may_count(doc) and next(self._find_dates(doc), None) is None

    def _may_count(self, doc: Document) -> bool:
        """Return true if a number occurs, or the last four digits of a social security number."""
        letters = doc.compact.upper() if self.numbers else ""
        compact: CompactText | None = None
        for tail, values in self.numbers.items():
            if tail not in letters:
                continue
            for key, of in values:
                core = key.lstrip("0") if len(key.lstrip("0")) >= 4 else key
                if of.type is PhiType.SSN:
                    return True
                if len(core) < 4 or (core not in letters and doc.text.isascii()):
                    continue
                compact = compact or CompactText.from_document(doc)
                if next(self._find_number(core, of, compact, doc), None):
                    return True
        return False

    def _find_number(self, core: str, of: _FactType, compact: CompactText, doc: Document) -> Iterator[tuple[int, int]]:
        partial = self.exact and len(core) >= _LONG_NUMBER and of.subject is Subject.PATIENT and core.isdigit()
        return compact.find(core, doc.text, partial=partial)

    def _find_dates(self, doc: Document) -> Iterator[Span]:
        if not self.days:
            return
        for written in find_dates(doc):
            typed = min(written.readings & self.days.keys(), default=None)
            if typed is not None:
                yield self.days[typed].span(written.start, written.end, "date")

    def _find_numbers(self, doc: Document) -> Iterator[Span]:
        if not self.numbers:
            return
        letters = doc.compact.upper()
        if len(self.numbers) > _FEW_NUMBERS:
            # Many numbers are found in one pass over the text, by their last four characters.
            tails = {letters[i : i + 4] for i in range(len(letters) - 3)} & self.numbers.keys()
        else:
            tails = {tail for tail in self.numbers if tail in letters}
        if not tails:
            return
        compact = CompactText.from_document(doc)
        for key, of in (each for tail in sorted(tails) for each in self.numbers[tail]):
            core = key.lstrip("0") if len(key.lstrip("0")) >= 4 else key
            if len(core) >= 4:
                for start, end in self._find_number(core, of, compact, doc):
                    if self._is_in_context(of.type, core, doc.text, start):
                        yield of.span(start, end, "number")
            if of.type is PhiType.SSN and len(key) == 9:
                for start, end in compact.find(key[-4:], doc.text):
                    if _MASKED.search(doc.text, max(0, start - 16), start):
                        yield of.span(start, end, "number")

    def _is_in_context(self, kind: PhiType, core: str, text: str, start: int) -> bool:
        if len(core) >= 6 or kind is PhiType.ZIP or not core.isdigit():
            return True
        return _LABEL.search(text, max(0, start - 16), start) is not None

    def _find_labelled(self, doc: Document) -> Iterator[Span]:
        if not self.labelled:
            return
        for found in self._labels_of_identity(doc):
            of = self.labelled.get(_compact_number(found["id"]).lstrip("0") or found["id"])
            if of is not None:
                yield of.span(*found.span("id"), "number")
        for key, of in self.labelled.items():
            if len(key) >= _LONG_WORD and key.isalpha() and key.lower() in doc.compact:
                for found in re.finditer(rf"(?<![^\W_]){key}(?![^\W_])", doc.text):
                    yield of.span(*found.span(), "number")

    def _labels_of_identity(self, doc: Document) -> Iterator["re.Match[str]"]:
        """The labels of identity with an id beside them. In ASCII text without one of the ids there are none."""
        if not doc.text.isascii():
            yield from _IDENTITY.finditer(doc.text)
        elif any(key.lower() in doc.compact for key in self.labelled):
            end = 0
            for start in _IDENTITY_START.finditer(doc.lower):
                if start.start() >= end and (found := _IDENTITY.match(doc.text, start.start())):
                    yield found
                    end = found.end()

    def _find_literals(self, doc: Document) -> Iterator[Span]:
        if not self.literals:
            return
        for run in sorted(set(_RUN.findall(doc.lower)) & self.literals.keys()):
            for value, of in self.literals[run]:
                at = doc.lower.find(value)
                while at >= 0:
                    end = at + len(value)
                    if not _is_alnum_at(doc.text, at - 1) and not _is_alnum_at(doc.text, end):
                        yield of.span(at, end, "value")
                    at = doc.lower.find(value, end)

    def _may_begin_phrase(self, doc: Document) -> bool:
        """Return false if no phrase begins in the ASCII text."""
        if not doc.text.isascii():
            return True
        return any(key[0] in doc.lower or key[0] in _SHORT_STREET_WORDS for key in self.phrases)

    def _find_phrases(self, doc: Document) -> Iterator[Span]:
        if not self.phrases or not self._may_begin_phrase(doc):
            return
        words = [(a, b) for a, b in doc.tokens if doc.text[a].isalnum()]
        if doc.text.isascii():
            texts = [_STREET_WORDS.get(word, word) for a, b in words for word in (doc.lower[a:b],)]
        else:
            texts = [_fold_word(doc.text[a:b]) for a, b in words]
        found: list[tuple[int, int, _FactType]] = []
        firsts = {key[0] for key in self.phrases}
        for at in [at for at, text in enumerate(texts) if text in firsts]:
            for start in (tuple(texts[at : at + 2]), (texts[at],)):
                for phrase, of in self.phrases.get(start, ()):
                    last = at + len(phrase) - 1
                    if tuple(texts[at : last + 1]) == phrase and _are_adjacent(doc.text, words, at, last):
                        found.append((at, last, of))
        taken: dict[_FactType, set[int]] = {}
        for at, last, of in sorted(found, key=lambda each: each[0] - each[1]):
            inside = set(range(at, last + 1))
            if not inside <= taken.setdefault(of, set()):
                taken[of] |= inside
                yield of.span(words[at][0], words[last][1], "place")


def _lossy_names(fact: Fact) -> Iterator[str]:
    """A name in Latin script as a system writes it that has no letters with accents: ``M?ller``."""
    if fact.kind not in (ValueKind.FAMILY, ValueKind.GIVEN) or fact.value.isascii():
        return
    name = fact.value.strip().lower()
    if sum(map(str.isascii, name)) >= _FEWEST_ASCII:
        for sign in ("?", "\ufffd"):
            yield "".join(c if c.isascii() else sign for c in name)


def _labelled_forms(value: str, of: _FactType, lists: NameLexicons) -> Iterator[str]:
    """An id that counts only beside a label of identity: of one to three characters, or of letters only."""
    key = _compact_number(value).lstrip("0")
    if of.subject is Subject.OTHER or not key or value.strip().lower() in lists.common:
        return
    if (len(key) < 4 and any(c.isdigit() for c in key)) or (
        len(key) > 1 and key.isalpha() and (of.type is not PhiType.IDNUM or value.strip().isupper())
    ):
        yield key


def _is_word(number: str, lists: NameLexicons) -> bool:
    """Return true for an identifier of letters only, or of a common word and a short number (``Phase2``)."""
    characters = _compact_number(number)
    digits = sum(c.isdigit() for c in characters)
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", number)]
    return not digits or (digits < 3 and any(len(word) > 2 and word in lists.common for word in words))


def _is_odd(value: str, of: _FactType) -> bool:
    """Return true for an identifier with characters that the comparison of letters and digits ignores: ``447:190``."""
    if of.type not in _NUMBERS or _PLAIN_NUMBER.fullmatch(value.strip()):
        return False
    characters = [c for c in value if c.isalnum()]
    digits = sum(c.isdigit() for c in characters)
    return digits > 0 and (len(characters) > 4 or (len(characters) == 4 and digits < 4))


def _grouped(pairs: Iterable[tuple[_K, _V]]) -> Mapping[_K, Sequence[_V]]:
    """The values of each key, without repetition, in order."""
    groups: dict[_K, dict[_V, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in groups.items()}


def _by_rarest(pairs: Iterable[tuple[str, _FactType]]) -> Mapping[str, Sequence[tuple[str, _FactType]]]:
    """Values by the run of letters and digits that the fewest values have in common: not ``https`` or a domain."""
    values = [(value, of, _RUN.findall(value)) for value, of in pairs]
    shared = Counter(run for _, _, runs in values for run in set(runs))
    return _grouped((min(runs, key=lambda run: shared[run]), (value, of)) for value, of, runs in values if runs)


def _variants(value: str, kind: PhiType, lists: NameLexicons) -> Iterator[_Phrase]:
    """The phrase, and shorter forms that still identify it."""
    whole = tuple(_fold_word(word) for word in _PHRASE_WORD.findall(value))
    forms = [whole]
    if kind is PhiType.STREET:
        forms += [whole[:at] for at in range(3, len(whole)) if whole[at] in ("apt", "ste", "unit", "fl", "bldg")]
        forms += [form[1:] for form in list(forms) if form and form[0].isdigit()]
        forms += [form[2:] for form in list(forms) if len(form) > 3 and form[0].isdigit() and len(form[1]) == 1]
    elif kind in (PhiType.HOSPITAL, PhiType.ORGANIZATION):
        short = whole
        while len(short) > 1 and short[-1] in lists.site_kinds:
            short = short[:-1]
        forms.append(short)
    yield from (form for form in dict.fromkeys(forms) if form and _is_specific(form, lists))


def _is_specific(form: _Phrase, lists: NameLexicons) -> bool:
    if len(form) == 1:
        return len(form[0]) > 3 and not form[0].isdigit() and form[0] not in lists.common
    return any(word not in lists.common and not word.isdigit() for word in form) or len(form) > 2


def _are_adjacent(text: str, words: list[tuple[int, int]], at: int, last: int) -> bool:
    """Return true if only blanks, punctuation or one line break separate the words."""
    return all(_BETWEEN.fullmatch(text, words[i][1], words[i + 1][0]) for i in range(at, last))


_WORDS = re.compile(r"[a-z]+|[0-9]+")
_BETWEEN = re.compile(r"[ \t,.'’#&\-]{0,4}\r?\n?[ \t]{0,4}")


def _longest(form: _Phrase) -> str:
    """The longest word of a phrase that has no other writing."""
    return max((word for word in form if word not in _SHORT_STREET_WORDS), key=len, default="")


def _contains_any(forms: Iterable[_Phrase], doc: Document) -> bool:
    """Return true if the ASCII text contains one of the phrases, compared as in ``ValueFinder._find_phrases``."""
    words = [found.span() for found in _WORDS.finditer(doc.lower)]
    texts = [_STREET_WORDS.get(word, word) for a, b in words for word in (doc.lower[a:b],)]
    for form in forms:
        for at in (at for at, word in enumerate(texts) if word == form[0]):
            last = at + len(form) - 1
            if tuple(texts[at : last + 1]) == form and _are_adjacent(doc.text, words, at, last):
                return True
    return False


def _fold_word(word: str) -> str:
    word = fold_accents(word)
    return _STREET_WORDS.get(word, word)


def _compact_number(text: str) -> str:
    if text.isascii():
        return "".join(filter(str.isalnum, text.upper()))
    return "".join(c for c in text.upper() if c.isascii() and c.isalnum())


def _is_alnum_at(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isalnum()
