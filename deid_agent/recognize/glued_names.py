"""Finds names that are cut by line ends or that touch other words.

A *form* is a name part of at least six letters that is distinctive (``NameLexicons.is_distinctive``), or two parts of
one person side by side. A form counts in these cases, whatever its case:

* Line ends, blanks, hyphens before them, or component separators cut it, and one of its pieces is no common word.
* A line of another text (a comment) stands between its two pieces.
* A single blank or full stop separates each two of its letters.
* It touches other letters on one side or on both, and they are labels (``patientname``, ``dob``), other names of the
  message, or at least three letters if the form has at least eight.
* It follows prepositions and conjunctions that Hebrew and Arabic write as one word with it. There three letters do.

A name in Thai, Lao, Khmer or Burmese, which have no blanks between words, counts anywhere if it has at least four
characters or is a whole name; a shorter one after a title or alone.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from deid_agent.model import Document, NormalText, Span, fold_accents
from deid_agent.recognize.cut_words import (
    LONGEST_FORM,
    PIECE,
    FoldedText,
    TextWithoutCuts,
    compact_letters,
    disjoint,
    find_all,
    find_form,
    fold_letters,
    is_letter,
    letters_after,
    letters_before,
)
from deid_agent.recognize.known_people import NameLexicons, Person
from deid_agent.recognize.many_words import ManyWords
from deid_agent.rules import Regexp

_SHORTEST = 6
_LONG = 8
_FEW_FORMS = 40
_MOST_IN_SEARCH = 8_000
_LONGEST_COMMENT = 80
_LINE = re.compile("\n")
_LABELS = (
    *("patient", "patients", "pt", "name", "lastname", "firstname", "surname", "family", "middle", "last", "first"),
    *("dob", "born", "birth", "birthdate", "date", "mrn", "id", "number", "ssn", "sex", "gender", "male", "female"),
    *(
        "phone",
        "tel",
        "fax",
        "address",
        "street",
        "city",
        "zip",
        "doctor",
        "physician",
        "dr",
        "mr",
        "mrs",
        "ms",
        "miss",
    ),
    *("baby", "boy", "girl", "infant", "newborn", "twin", "twina", "twinb", "bb", "bg", "jr", "iii", "pid"),
    *("note", "notes", "report", "scan", "ct", "mri", "xray", "pdf", "letter", "chart", "file", "photo", "image"),
    *("md", "rn", "nurse", "provider", "attending", "referring", "mother", "father", "spouse", "wife", "husband"),
)
_LABELLED = re.compile(rf"(?:{'|'.join(sorted(_LABELS, key=len, reverse=True))})+")
_DERIVED = frozenset({"ism", "isms", "ian", "ians", "oid", "ist", "ists"})
"""The ends of words that a name has become part of: ``parkinsonism``, ``Freudian``."""
_PREFIXES = (
    (re.compile("[\u05d0-\u05ea]"), re.compile("[\u05d5\u05d4\u05d1\u05dc\u05de\u05e9\u05db]{1,3}")),
    (re.compile("[\u0620-\u064a]"), re.compile("[\u0648\u0641]?[\u0628\u0644\u0643]?(?:\u0627\u0644)?")),
)
"""Hebrew and Arabic: a letter, and the particles that are written as one word with a name after them."""
_SHORTEST_PREFIXED = 3
_SOUTHERN = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_BLANKS = re.compile(rf"(?<={_SOUTHERN.pattern})[ \t\r\n]{{1,8}}(?={_SOUTHERN.pattern})")
_THAI_TITLE = re.compile(
    r"(?:\u0e19\u0e32\u0e22|\u0e19\u0e32\u0e07|\u0e2a\u0e32\u0e27|\u0e04\u0e38\u0e13|\u0e19\.\u0e2a\.|\u0e14\.[\u0e0a\u0e0d]\.|\u0e1e\u0e0d?\.)\s?\Z"
)


@dataclass(frozen=True)
class GluedNameFinder:
    """Finds ``people``; created once for each set of facts."""

    people: tuple[Person, ...] = field(repr=False)
    lists: NameLexicons = field(repr=False)
    with_comments: bool = True
    """A comment may cut a name: it is a line of the text."""

    def find_in(self, text: str, writing: NormalText | None) -> Iterator[Span]:
        """The spans in ``text``, as ranges of the text that ``writing`` is a form of."""
        for start, end, person in (*self._cut_or_glued(text), *self._without_blanks(text)):
            first, last = (start, end) if writing is None else writing.source(start, end)
            yield Span(first, last, person.type, person.source)

    def proves_absence(self, doc: Document) -> bool:
        """Return true if the ASCII text contains no form, even cut or glued."""
        if not doc.text.isascii():
            return False
        return not self._may_occur(doc.compact)

    def _may_occur(self, compact: str) -> bool:
        if self._search is not None and compact.isascii():
            return self._search.search(compact.encode()) is not None
        if len(self._forms) > _FEW_FORMS:
            return self._many.occur_in(compact)
        return any(form in compact for form in self._forms)

    @cached_property
    def _many(self) -> ManyWords:
        return ManyWords.of(self._forms)

    @cached_property
    def _forms(self) -> Mapping[str, Person]:
        """Each form with the first person who has it."""
        forms: dict[str, Person] = {}
        for person in self.people:
            for part in person.family | person.given:
                least = _SHORTEST if part.isascii() or _prefixes_of(part) is None else _SHORTEST_PREFIXED
                if least <= len(part) <= LONGEST_FORM and _is_word(part) and self.lists.is_distinctive(part):
                    forms.setdefault(part, person)
            for name in person.joined:
                if _SHORTEST <= len(name) <= LONGEST_FORM and _is_word(name):
                    forms.setdefault(name, person)
        return {form: forms[form] for form in sorted(forms, key=lambda form: (-len(form), form))}

    @cached_property
    def _search(self) -> Regexp | None:
        """One search for all forms of ASCII letters, if they are many."""
        forms = [form for form in self._forms if form.isascii()]
        few_enough = sum(map(len, forms)) <= _MOST_IN_SEARCH  # RE2 takes the number of letters as a factor beyond it
        return Regexp("|".join(forms)) if len(forms) > _FEW_FORMS and few_enough else None

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for person in self.people for part in person.family | person.given if len(part) > 2)

    def _cut_or_glued(self, text: str) -> Iterator[tuple[int, int, Person]]:
        folded = fold_letters(text)
        places = FoldedText(text, folded)
        for first, last, form in self._apart(folded) if self.with_comments else ():
            yield *places.source(first, last), self._short_forms[form]
        if not self._forms:
            return
        for first, last, form in self._around_lines(folded) if self.with_comments else ():
            yield *places.source(first, last), self._forms[form]
        compact = compact_letters(text, folded)
        if not self._may_occur(compact):
            return
        taken = bytearray(len(folded))
        uncut, whole = TextWithoutCuts(folded, (), ()), None
        in_compact = in_folded = None
        if len(self._forms) > _FEW_FORMS:
            in_compact, in_folded = self._many.places(compact), self._many.places(folded)
        for form, person in self._forms.items():
            if form not in (compact if in_compact is None else in_compact):
                continue
            if in_compact is None or in_folded is None:
                may_be_cut, here = compact.count(form) > folded.count(form), None
            else:
                here = in_folded.get(form, [])
                may_be_cut = len(in_compact[form]) > len(here)
            if may_be_cut and whole is None:
                whole = TextWithoutCuts.of(folded)
            found = (
                disjoint((at, at + len(form)) for at in here)
                if here is not None and not may_be_cut
                else find_form(form, folded, whole if may_be_cut and whole else uncut)
            )
            for start, end in found:
                if 0 in taken[start:end] and self._counts(folded, start, end, form):
                    taken[start:end] = b"1" * (end - start)
                    yield *places.source(start, end), person

    def _apart(self, folded: str) -> Iterator[tuple[int, int, str]]:
        """Short names whose letters blanks or full stops divide: ``K o s``."""
        if len(self._short_forms) > _FEW_FORMS:
            return
        for form in self._short_forms:
            for separator in (" ", ". ", ".") if len(form) > _SHORTEST_PREFIXED else (" ",):
                apart = separator.join(form)
                for at in find_all(apart, folded):
                    if not letters_before(folded, at) and not letters_after(folded, at + len(apart)):
                        yield at, at + len(apart), form

    @cached_property
    def _short_forms(self) -> Mapping[str, Person]:
        """Each distinctive name that is too short for the other forms."""
        return {
            part: person
            for person in self.people
            for part in sorted(person.family | person.given)
            if 2 < len(part) < _SHORTEST and part.isalpha() and self.lists.is_distinctive(part)
        }

    def _around_lines(self, folded: str) -> Iterator[tuple[int, int, str]]:
        """Forms whose two pieces end one line and begin the next but one: a comment cuts the name."""
        ends = [found.start() for found in _LINE.finditer(folded)]
        for before, after in pairwise(ends):
            if not 1 < after - before <= _LONGEST_COMMENT or not is_letter(folded[before - 1 : before] or " "):
                continue
            left, right = letters_before(folded, before), letters_after(folded, after + 1)
            if left + right in self._forms and left and right and not {left, right} <= self.lists.common:
                yield before - len(left), after + 1 + len(right), left + right

    def _counts(self, folded: str, start: int, end: int, form: str) -> bool:
        left, right = letters_before(folded, start), letters_after(folded, end)
        pieces = PIECE.findall(folded, start, end)
        if len(pieces) > 1 and len(form) >= _SHORTEST:
            if len(pieces) == len(form):
                return not left and not right
            # A name beside a letter is a name and an initial or, in "Okafor C5", a letter of something else.
            beside_letter = len(pieces) == 2 and min(map(len, pieces)) == 1 and not self._parts.isdisjoint(pieces)
            return (
                not beside_letter
                and not all(piece in self.lists.common for piece in pieces)
                and (not left + right or "\n" in folded[start:end])
                and all(self._may_touch(rest, form) for rest in (left, right) if rest)
            )
        if left and not right and _is_prefixed(form, left):
            return True
        if left and right in self.lists.common and len(right) > 2 and self._may_touch(left, form):
            return left + form + right not in self.lists.common
        whole = not left and not right  # the other finders know its context
        if len(form) < _SHORTEST or whole or (not left and right in _DERIVED):
            return False
        return left + form + right not in self.lists.common and all(
            self._may_touch(rest, form) for rest in (left, right) if rest
        )

    def _may_touch(self, rest: str, form: str) -> bool:
        if len(form) >= _LONG and len(rest) >= 3:
            return True
        for part in self._parts_in(rest):
            rest = rest.replace(part, "name")
        return _LABELLED.fullmatch(rest) is not None

    def _parts_in(self, rest: str) -> Iterable[str]:
        """The parts of names in ``rest``, which has few letters: longer ones first."""
        if len(self._parts) <= _FEW_FORMS:
            parts = [part for part in self._parts if part in rest]
        else:
            ends = range(len(rest) + 1)
            parts = list(self._parts.intersection(rest[at:end] for end in ends for at in range(end - 2)))
        return sorted(parts, key=lambda part: (-len(part), part))

    @cached_property
    def _unspaced(self) -> Mapping[str, tuple[Person, bool]]:
        """Names in southern scripts, with their person; true if they count anywhere."""
        forms: dict[str, tuple[Person, bool]] = {}
        for person in self.people:
            family, given = (
                [part for part in sorted(parts) if _SOUTHERN.match(part)] for parts in (person.family, person.given)
            )
            for part in (*family, *given):
                forms.setdefault(part, (person, len(part) >= 4))
            for a, b in ((a, b) for a in family for b in given):
                forms[a + b] = forms[b + a] = (person, True)
        return {form: forms[form] for form in sorted(forms, key=lambda form: (-len(form), form))}

    def _without_blanks(self, text: str) -> Iterator[tuple[int, int, Person]]:
        """Names in southern scripts, over blanks and line ends."""
        if text.isascii() or not self._unspaced:
            return
        places = [(c, at) for at, each in enumerate(text) for c in fold_accents(each)]
        for found in reversed(list(_BLANKS.finditer("".join(c for c, _ in places)))):
            del places[found.start() : found.end()]
        folded = "".join(c for c, _ in places)
        for form, (person, anywhere) in self._unspaced.items():
            at = folded.find(form)
            while at >= 0:
                start, end = places[at][1], places[at + len(form) - 1][1] + 1
                if anywhere or _stands_alone(text, start, end):
                    yield start, end, person
                at = folded.find(form, at + 1)


def _stands_alone(text: str, start: int, end: int) -> bool:
    if _THAI_TITLE.search(text, max(0, start - 8), start):
        return True
    return not text[start - 1 : start].isalpha() and not text[end : end + 1].isalpha()


def _is_prefixed(form: str, left: str) -> bool:
    """True if ``left`` is written as one word with a name after it."""
    prefixes = None if left.isascii() else _prefixes_of(form)
    return prefixes is not None and prefixes.fullmatch(left) is not None


def _prefixes_of(word: str) -> re.Pattern[str] | None:
    return next((prefixes for letter, prefixes in _PREFIXES if letter.match(word)), None)


def _is_word(part: str) -> bool:
    return part.isalpha() or all(c.isalpha() or unicodedata.category(c)[0] == "M" for c in part)
