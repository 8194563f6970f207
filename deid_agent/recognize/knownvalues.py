"""Numbers, phrases and dates that the message's structured part gives, found in its narrative.

Numbers are compared by letters and digits alone: punctuation, single blanks
and leading zeros do not matter. Of one with other signs (``447:190``) the whole
is looked for as it is written, too. A number counts when

* it has six letters and digits or more, or four with a letter among them, at least one of them a digit and
  not a common word with one or two figures (``chest``, ``body-height``, ``phase2``); or
* it has four or five digits and a label touches it (``MRN 4471``, ``#12345``), or it is a postal code.

Phrases (street lines, towns, facilities) are compared word by word, case and
accents aside, street types by their abbreviation. A phrase of one word counts
alone unless it is shorter than four letters or a common word; such a word
never does. A facility is also found without its last kind word.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar

from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.recognize.knownnames import Words
from deid_agent.recognize.writtendates import dates_in, read_fact
from deid_agent.sites import Fact, Subject
from deid_agent.spans import Span
from deid_agent.text import Document, folded

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
_PHRASE_WORD = re.compile(r"[^\W\d_]+|\d+")
_SEPARATORS = re.compile(r"[ \-./()+_]{0,3}")
_PLAIN_NUMBER = re.compile(r"[0-9A-Za-z \-./()+_]*")
_STREET_WORDS: Mapping[str, str] = {
    "street": "st", "avenue": "ave", "av": "ave", "road": "rd", "drive": "dr", "lane": "ln", "court": "ct",
    "boulevard": "blvd", "place": "pl", "terrace": "ter", "circle": "cir", "highway": "hwy", "parkway": "pkwy",
    "square": "sq", "apartment": "apt", "suite": "ste", "floor": "fl", "building": "bldg", "north": "n",
    "south": "s", "east": "e", "west": "w", "saint": "st", "mount": "mt", "fort": "ft",
}  # fmt: skip
_NUMBERS = frozenset(
    t for t, c in CATEGORY.items() if c is PhiCategory.ID or t in (PhiType.PHONE, PhiType.FAX, PhiType.ZIP)
)
_FEW = 12
_LONG = 8
_LITERAL = frozenset({PhiType.EMAIL, PhiType.URL, PhiType.IPADDRESS, PhiType.USERNAME})
_PHRASES = frozenset(
    {
        PhiType.STREET, PhiType.CITY, PhiType.STATE, PhiType.COUNTRY, PhiType.HOSPITAL, PhiType.ORGANIZATION,
        PhiType.LOCATION_OTHER, PhiType.PROFESSION,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Said:
    """What is looked for of a fact: type and source of its spans."""

    type: PhiType
    subject: Subject

    def span(self, start: int, end: int, form: str) -> Span:
        return Span(start, end, self.type, f"known:{self.subject}-{form}")


_Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueFinder:
    """Finds the values of one message; built once per set of facts.

    Everything is looked up by what the narrative holds, so that the cost is linear in the narratives.
    """

    lists: Words = field(repr=False)
    days: Mapping[date, _Said] = field(repr=False)
    numbers: Mapping[str, Sequence[tuple[str, _Said]]] = field(repr=False)  # by the last four signs
    literals: Mapping[str, Sequence[tuple[str, _Said]]] = field(repr=False)  # by the run of signs that fewest share
    phrases: Mapping[_Phrase, Sequence[tuple[_Phrase, _Said]]] = field(repr=False)  # by their first two words
    exact: bool = False

    @classmethod
    def of(cls, facts: Sequence[Fact], lists: Words, exact: bool = False) -> "ValueFinder":
        """The finder of these facts; ``exact`` as in ``KnownRecognizer``."""
        said = [(fact.value, _Said(fact.type, fact.subject)) for fact in facts]
        numbers = [(_squeeze(value), of) for value, of in said if of.type in _NUMBERS and not _is_word(value, lists)]
        literals = [(value.strip().lower(), of) for value, of in said if of.type in _LITERAL or _is_odd(value, of)]
        forms = ((form, of) for value, of in said if of.type in _PHRASES for form in _variants(value, of.type, lists))
        return cls(
            lists,
            {day: of for value, of in said if of.type is PhiType.DATE and (day := read_fact(value))},
            _grouped((key[-4:], (key, of)) for key, of in numbers),
            _by_rarest((value, of) for value, of in literals if len(value) > 3 and value not in lists.common),
            _grouped((form[:2], (form, of)) for form, of in forms),
            exact,
        )

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of every value that the text repeats."""
        yield from self._dates(doc)
        yield from self._numbers(doc)
        yield from self._literals(doc)
        yield from self._phrases(doc)

    def rules_out(self, doc: Document, *, rows: bool) -> bool:
        """As ``KnownRecognizer.rules_out``: a number needs no label for that, a phrase all of its words somewhere."""
        if any(value in doc.lower for values in self.literals.values() for value, _ in values):
            return False
        if self.phrases:
            words = {_STREET_WORDS.get(word, word) for word in set(_WORDS.findall(doc.lower))}
            said = [form for forms in self.phrases.values() for form, _ in forms if words.issuperset(form)]
            if said and (not rows or _in_rows(said, doc)):
                return False
        return doc.text.isascii() and not self._may_count(doc) and next(self._dates(doc), None) is None

    def _may_count(self, doc: Document) -> bool:
        """True where a number stands, or the last four signs of a social security number."""
        letters = _OTHERS.sub("", doc.text).upper() if self.numbers else ""
        squeezed: Squeezed | None = None
        for tail, values in self.numbers.items():
            if tail not in letters:
                continue
            squeezed = squeezed or Squeezed.of(doc)
            for key, of in values:
                core = key.lstrip("0") if len(key.lstrip("0")) >= 4 else key
                if of.type is PhiType.SSN or (len(core) >= 4 and next(self._placed(core, of, squeezed, doc), None)):
                    return True
        return False

    def _placed(self, core: str, of: _Said, squeezed: "Squeezed", doc: Document) -> Iterator[tuple[int, int]]:
        glued = self.exact and len(core) >= _LONG and of.subject is Subject.PATIENT and core.isdigit()
        return squeezed.find(core, doc.text, glued=glued)

    def _dates(self, doc: Document) -> Iterator[Span]:
        if not self.days:
            return
        for written in dates_in(doc):
            said = min(written.readings & self.days.keys(), default=None)
            if said is not None:
                yield self.days[said].span(written.start, written.end, "date")

    def _numbers(self, doc: Document) -> Iterator[Span]:
        if not self.numbers:
            return
        letters = _OTHERS.sub("", doc.text).upper()
        if len(self.numbers) > _FEW:
            # Of many numbers in one pass over the text, by their last four signs.
            tails = {letters[i : i + 4] for i in range(len(letters) - 3)} & self.numbers.keys()
        else:
            tails = {tail for tail in self.numbers if tail in letters}
        if not tails:
            return
        squeezed = Squeezed.of(doc)
        for key, of in (each for tail in sorted(tails) for each in self.numbers[tail]):
            core = key.lstrip("0") if len(key.lstrip("0")) >= 4 else key
            if len(core) >= 4:
                for start, end in self._placed(core, of, squeezed, doc):
                    if self._stands(of.type, core, doc.text, start):
                        yield of.span(start, end, "number")
            if of.type is PhiType.SSN and len(key) == 9:
                for start, end in squeezed.find(key[-4:], doc.text):
                    if _MASKED.search(doc.text, max(0, start - 16), start):
                        yield of.span(start, end, "number")

    def _stands(self, kind: PhiType, core: str, text: str, start: int) -> bool:
        if len(core) >= 6 or kind is PhiType.ZIP or not core.isdigit():
            return True
        return _LABEL.search(text, max(0, start - 16), start) is not None

    def _literals(self, doc: Document) -> Iterator[Span]:
        if not self.literals:
            return
        for run in sorted(set(_RUN.findall(doc.lower)) & self.literals.keys()):
            for value, of in self.literals[run]:
                at = doc.lower.find(value)
                while at >= 0:
                    end = at + len(value)
                    if not _alnum(doc.text, at - 1) and not _alnum(doc.text, end):
                        yield of.span(at, end, "value")
                    at = doc.lower.find(value, end)

    def _phrases(self, doc: Document) -> Iterator[Span]:
        if not self.phrases:
            return
        words = [(a, b) for a, b in doc.tokens if doc.text[a].isalnum()]
        texts = [_plain(doc.text[a:b]) for a, b in words]
        found: list[tuple[int, int, _Said]] = []
        for at in range(len(texts)):
            for start in (tuple(texts[at : at + 2]), (texts[at],)):
                for phrase, of in self.phrases.get(start, ()):
                    last = at + len(phrase) - 1
                    if tuple(texts[at : last + 1]) == phrase and _near(doc.text, words, at, last):
                        found.append((at, last, of))
        taken: dict[_Said, set[int]] = {}
        for at, last, of in sorted(found, key=lambda each: each[0] - each[1]):
            inside = set(range(at, last + 1))
            if not inside <= taken.setdefault(of, set()):
                taken[of] |= inside
                yield of.span(words[at][0], words[last][1], "place")


def _is_word(number: str, lists: Words) -> bool:
    """True for an identifier of letters alone or of a common word and a short number: ``body-height``, ``Phase2``."""
    signs = _squeeze(number)
    figures = sum(c.isdigit() for c in signs)
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", number)]
    return not figures or (figures < 3 and any(len(word) > 2 and word in lists.common for word in words))


def _is_odd(value: str, of: _Said) -> bool:
    """True for an identifier with signs that comparing letters and digits alone would not see: ``447:190``."""
    if of.type not in _NUMBERS or _PLAIN_NUMBER.fullmatch(value.strip()):
        return False
    signs = [c for c in value if c.isalnum()]
    figures = sum(c.isdigit() for c in signs)
    return figures > 0 and (len(signs) > 4 or (len(signs) == 4 and figures < 4))


def _grouped(pairs: Iterable[tuple[_K, _V]]) -> Mapping[_K, Sequence[_V]]:
    """Values by key, each once, in order."""
    groups: dict[_K, dict[_V, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in groups.items()}


def _by_rarest(pairs: Iterable[tuple[str, _Said]]) -> Mapping[str, Sequence[tuple[str, _Said]]]:
    """Values by that run of letters and digits which fewest of them hold: not by ``https`` or a domain."""
    values = [(value, of, _RUN.findall(value)) for value, of in pairs]
    shared = Counter(run for _, _, runs in values for run in set(runs))
    return _grouped((min(runs, key=lambda run: shared[run]), (value, of)) for value, of, runs in values if runs)


def _variants(value: str, kind: PhiType, lists: Words) -> Iterator[_Phrase]:
    """The phrase, and shorter forms of it that still name it."""
    whole = tuple(_plain(word) for word in _PHRASE_WORD.findall(value))
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
    yield from (form for form in dict.fromkeys(forms) if form and _says_enough(form, lists))


def _says_enough(form: _Phrase, lists: Words) -> bool:
    if len(form) == 1:
        return len(form[0]) > 3 and not form[0].isdigit() and form[0] not in lists.common
    return any(word not in lists.common and not word.isdigit() for word in form) or len(form) > 2


def _near(text: str, words: list[tuple[int, int]], at: int, last: int) -> bool:
    """True where nothing but a blank, a comma, a dash, a stop or one line break parts the words."""
    return all(_BETWEEN.fullmatch(text, words[i][1], words[i + 1][0]) for i in range(at, last))


_WORDS = re.compile(r"[a-z]+|[0-9]+")
_BETWEEN = re.compile(r"[ \t,.'’#&\-]{0,4}\r?\n?[ \t]{0,4}")


def _in_rows(forms: Iterable[_Phrase], doc: Document) -> bool:
    """True where one of the phrases stands in the (ASCII) text, as ``ValueFinder._phrases`` finds it."""
    words = [found.span() for found in _WORDS.finditer(doc.lower)]
    texts = [_STREET_WORDS.get(word, word) for a, b in words for word in (doc.lower[a:b],)]
    for form in forms:
        for at in (at for at, word in enumerate(texts) if word == form[0]):
            last = at + len(form) - 1
            if tuple(texts[at : last + 1]) == form and _near(doc.text, words, at, last):
                return True
    return False


def _plain(word: str) -> str:
    word = folded(word)
    return _STREET_WORDS.get(word, word)


def _squeeze(text: str) -> str:
    return "".join(c for c in text.upper() if c.isascii() and c.isalnum())


def _alnum(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isalnum()


@dataclass(frozen=True, slots=True)
class Squeezed:
    """A text without punctuation and blanks: ``letters[i]`` stands at ``at[i]`` of the text."""

    letters: str = field(repr=False)
    at: list[int] = field(repr=False)

    @classmethod
    def of(cls, doc: Document) -> "Squeezed":
        at = [m.start() for m in _ASCII_ALNUM.finditer(doc.text)]
        return cls("".join(doc.text[i] for i in at).upper(), at)

    def find(self, core: str, text: str, *, glued: bool = False) -> Iterator[tuple[int, int]]:
        """Ranges of ``text`` that say ``core`` with light punctuation, leading zeros included.

        Glued to nothing of its own kind (digit, letter), unless ``glued``: then as a part of a longer number too.
        """
        found = self.letters.find(core)
        while found >= 0:
            last = found + len(core) - 1
            if self._plain(text, found, last):
                first = found
                while (
                    not glued
                    and first > 0
                    and self.letters[first - 1] == "0"
                    and self.at[first] - self.at[first - 1] == 1
                ):
                    first -= 1
                start, end = self.at[first], self.at[last] + 1
                alone = not (_joined(text, start - 1, core[0]) or _joined(text, end, core[-1]))
                alone = alone and not _decimal(text, start, end)
                if alone or glued:
                    yield start, end
            found = self.letters.find(core, found + 1)

    def _plain(self, text: str, first: int, last: int) -> bool:
        at = self.at
        return at[last] - at[first] <= 2 * (last - first) + 6 and all(
            at[i + 1] - at[i] == 1 or _SEPARATORS.fullmatch(text, at[i] + 1, at[i + 1]) for i in range(first, last)
        )


_OTHERS = re.compile(r"[^0-9A-Za-z]+")
_ASCII_ALNUM = re.compile(r"[0-9A-Za-z]")


def _digit(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isdigit()


def _joined(text: str, at: int, edge: str) -> bool:
    """True where the sign beside the number would go on with it: a digit, or a letter beside its own letter."""
    return _digit(text, at) or (edge.isalpha() and 0 <= at < len(text) and text[at].isalpha())


def _decimal(text: str, start: int, end: int) -> bool:
    """True where the number is one side of a decimal point."""
    return (text[max(0, start - 1) : start] == "." and _digit(text, start - 2)) or (
        text[end : end + 1] == "." and _digit(text, end + 1)
    )
