"""The grammar of measurements: forms of ``rules/measures``, and the marks that they set in a document.

A mark says what a stretch of text is: a score, a dose, a diagnosis code. Models read the marks as features. A mark also
protects its text from alteration: a *hard* mark removes every span inside it, as a veto does; inside a *soft* mark a
model must find PHI likelier than no PHI, under every profile. Kinds whose forms touch hardly any annotation of the
corpus are hard. ``tests/unit/measure`` counts that. A hard mark whose neighbours are those of an identifier is soft:
after a label such as ``MRN``, after a title, before ``-year-old``.

A TOML file holds the forms of one kind. ``MeasureFile`` and ``FormFile`` define the keys; the rules for patterns are
those of ``deid_agent.rules``. Time is linear in the text.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from deid_agent.model import ConfigurationError, Document, Range, fold_accents
from deid_agent.rules import CHECKS, Rule, RuleCompiler, RuleFile, RuleScan, read_terms, read_toml

_MARKUP = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


class MeasureKind(StrEnum):
    """What a mark measures or names. The value is the stem of the file with its forms."""

    SCORE = "score"  # a named scale with a value in its range
    GESTATION = "gestation"  # gestational age, gravidity and parity
    DURATION = "duration"  # a number with a unit of time that is no age
    VITAL = "vital"  # vital signs and ventilator settings
    LABORATORY = "laboratory"  # analytes with results, pairs and trends
    DOSE = "dose"  # strengths, frequencies, rates
    QUANTITY = "quantity"  # a number with another unit
    POSITION = "position"  # a level, lead, tooth, page, image or day of a numbered list
    CODE = "code"  # diagnosis and procedure codes, variants, catalogue numbers
    SIDE = "side"  # a letter that is a side or a group
    WORD = "word"  # words that only look like a date or a name
    INSTRUMENT = "instrument"  # instruments, sutures, catheters with their sizes
    TERM = "term"  # organisms and named signs, tests, diseases
    MASK = "mask"  # what another program wrote in place of PHI


class Veto(StrEnum):
    """How a mark protects its text: ``hard`` from every span, ``soft`` from spans that are less likely than not."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class Mark:
    """The characters ``[start, end)`` of a document and what they measure."""

    start: int
    end: int
    kind: MeasureKind
    veto: Veto


class FormFile(RuleFile):
    """One form of a kind. Samples mark the text of the form with ``[[...]]``."""

    veto: Veto | None = None
    """The veto of this form, if it is not that of the file."""
    after_list: str = ""
    """A list of ``rules/dictionary``: the word before the form must be in it, and in no list of given names."""


class MeasureFile(BaseModel):
    """The forms of one kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    why: str = Field(min_length=1)
    veto: Veto
    form: tuple[FormFile, ...] = Field(min_length=1)


_FILE = TypeAdapter(MeasureFile)


@dataclass(frozen=True, slots=True)
class Form:
    """A compiled form."""

    kind: MeasureKind
    veto: Veto
    rule: Rule = field(repr=False)
    words_before: frozenset[str] | None = field(default=None, repr=False)

    def find(self, doc: Document) -> Iterator[Range]:
        """The ranges of the form in ``doc``, in order."""
        return self.select(doc, self.rule.find(doc))

    def select(self, doc: Document, ranges: Iterable[Range]) -> Iterator[Range]:
        """Those of the ranges of the rule that the form has: after a word of its list."""
        for start, end in ranges:
            if self.words_before is None or _word_before(doc, start) in self.words_before:
                yield start, end


_LAST_WORD = re.compile(r"([^\W\d_][\w'’-]*)(?: (?:XR|XL|ER|SR|CR|LA|DS|HCT|HFA|[Pp][Oo]|[Ii][Vv]|held|was|now))? ?\Z")


def _word_before(doc: Document, start: int) -> str:
    found = _LAST_WORD.search(doc.text, max(0, start - 40), start)
    return fold_accents(found[1]) if found else ""


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """All forms. An empty grammar sets no marks."""

    forms: tuple[Form, ...] = field(default=(), repr=False)
    _scan: RuleScan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scan", RuleScan(tuple(form.rule for form in self.forms)))

    def find(self, doc: Document) -> tuple[Mark, ...]:
        """The marks of ``doc``, disjoint and in order. Of two marks that overlap the longer one counts.

        They are computed once for each document.
        """
        return doc.view(self, self._find) if self.forms else ()

    def _find(self, doc: Document) -> tuple[Mark, ...]:
        found = [
            Mark(start, end, form.kind, _weigh(doc.text, start, end, form))
            for form, ranges in zip(self.forms, self._scan.find(doc), strict=True)
            if ranges
            for start, end in form.select(doc, ranges)
        ]
        found.sort(key=lambda mark: (mark.start - mark.end, mark.start, mark.veto, mark.kind))
        chosen: list[Mark] = []
        for mark in found:
            at = bisect_left(chosen, mark.start, key=lambda other: other.start)
            if at and chosen[at - 1].end > mark.start:
                continue
            if at < len(chosen) and chosen[at].start < mark.end:
                continue
            chosen.insert(at, mark)
        return tuple(chosen)


EMPTY_GRAMMAR = Grammar()

# An adversary, or an unlucky note, writes an identifier in the form of a measurement: "MRN T2N1M0", "Dr. R Foot",
# "Norton 93 yo", "12 French Street". Its neighbours show what it is.

_BEFORE = 40
_LABEL = re.compile(
    r"(?i)(?:\A|(?<=[^a-z]))(?:mrn|mr ?(?:#|no\b|num)|med(?:ical)? rec(?:ord)?|chart|acct|account|ssn|phone|ph|tel"
    r"|telephone|fax|(?:cell|mobile)(?:[:#]| phone)|pager|beeper|ext|extension|call|dial|questions?|desk|zip(?: ?code)?"
    r"|post ?code|postal code|ids?|csn|fin|har|encounter|member|policy|subscriber|licen[cs]e|lic|dea|npi|login|badge"
    r"|user(?: ?name)?|room|rm|bed|apt|apartment|unit|suite|ste|nhs|nhi|chi|uhid|urn|hrn|umrn|passport|claim|serial|sn"
    r"|(?:hospital|hosp|patient|pt|record|case|accession) (?:no|num|number|id))"
    r"(?:[.: ]{0,2}(?:no|num|number|is|was|code)\b)?[\].:#= \t(-]{0,4}[0-9() .+-]{0,16}\Z"
)
_BIRTH = re.compile(
    r"(?i)(?:\A|(?<=[^a-z]))(?:dob|d\.o\.b\.|birth(?: ?date|day)?|born|aged?)(?: (?:is|was|on|in|over|about))?"
    r"[.:= \t(-]{0,3}[0-9/.-]{0,6}\Z"
)
_PERSON = re.compile(
    r"(?i)(?:\A|[^a-z])(?:mr|mrs|ms|miss|mx|dr|drs|doctor|prof|professor|nurse|sister|rev|sir|lady|signed|initials|initialed"
    r"|attending|resident|seen by|name|mother|father|daughter|son|wife|husband|brother|aunt|uncle)\.?:?[ \t]{1,2}"
    r"(?:[a-z]\.? )?\Z"
)
_AGE = re.compile(r"(?i)-year|[ -]{0,2}(?:y/o|y\.? ?o\b|yo[mf]?\b|y(?:ea)?rs?[ -]{1,2}(?:old|of age)|(?:old|of age)\b)")
_MONTH = re.compile(r"(?i)[ -]?(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)[a-z]{0,6}\b")
_DEGREE = re.compile(r",? ?(?:MD|M\.D|RN|NP|PA-C|PhD|LPN|CNM|DDS|FACS|MBBS)\b")
_STREET = re.compile(
    r"(?i)(?:st|nd|rd|th)?(?: {1,2}[a-z]{2,12})? {1,2}(?:street|road|avenue|ave|lane|boulevard|blvd|terrace|crescent"
    r"|highway|parkway|st\b(?!['’.]? ?[0-9a-z]))"
)


def _weigh(text: str, start: int, end: int, form: Form) -> Veto:
    """The veto of ``form``; soft instead of hard if the neighbours of ``[start, end)`` are those of an identifier."""
    if form.veto is Veto.SOFT or form.kind is MeasureKind.MASK:
        return form.veto
    first = max(0, start - _BEFORE)
    doubtful = (
        _LABEL.search(text, first, start)
        or (form.kind is not MeasureKind.GESTATION and _BIRTH.search(text, first, start))
        or _AGE.match(text, end)
        or (text[start].isdigit() and _STREET.match(text, end))
        or (text[end - 1].isdigit() and _MONTH.match(text, end))
        or (text[start].isalpha() and (_PERSON.search(text, first, start) or _DEGREE.match(text, end)))
    )
    return Veto.SOFT if doubtful else Veto.HARD


def load_grammar(rules: Path) -> Grammar:
    """The grammar in the folder ``measures`` of ``rules``; empty if there is no such folder.

    Raises ``ConfigurationError`` with the file and the key for an invalid file.
    """
    compiler = RuleCompiler.for_folder(rules, CHECKS)
    forms: list[Form] = []
    lists: dict[str, frozenset[str] | None] = {"": None}
    for kind in MeasureKind:
        path = rules / "measures" / f"{kind.value}.toml"
        if path.exists():
            file = read_toml(path, _FILE)
            for each in file.form:
                if each.after_list not in lists:
                    lists[each.after_list] = _load_list(rules, path, each.after_list)
                rule, veto = compiler.compile(path, each), each.veto or file.veto
                forms.append(Form(kind, veto, rule, lists[each.after_list]))
    return Grammar(tuple(forms))


_GIVEN_NAMES = ("given-female", "given-male", "nickname")
"""Yasmin is a drug and a person: "Yasmin 93" is an age."""


def _load_list(rules: Path, path: Path, name: str) -> frozenset[str]:
    if name not in {file.stem for file in (rules / "dictionary").glob("*.txt")}:
        raise ConfigurationError(f"{path}: after_list: no list {name} in {rules / 'dictionary'}")
    terms = read_terms(rules / "dictionary" / f"{name}.txt")
    names = (rules / "dictionary" / f"{name}.txt" for name in _GIVEN_NAMES)
    return terms.difference(*(read_terms(path) for path in names if path.exists()))


def check_forms(grammar: Grammar) -> list[str]:
    """One line for each sample that a form gets wrong: the kind, the id of the form, the key and the number."""
    return [
        f"{form.kind}: {form.rule.id}: {key} {number}: found {found}, wanted {wanted}"
        for form in grammar.forms
        for key, samples in (("hit", form.rule.hit), ("miss", form.rule.miss))
        for number, sample in enumerate(samples, 1)
        for text, wanted in [_read_sample(sample)]
        for found in [list(form.find(Document(text)))]
        if found != wanted or (key == "hit") != bool(wanted)
    ]


def _read_sample(sample: str) -> tuple[str, list[Range]]:
    parts, ranges, size = [], [], 0
    for at, part in enumerate(_MARKUP.split(sample)):
        if at % 2:
            ranges.append((size, size + len(part)))
        parts.append(part)
        size += len(part)
    return "".join(parts), ranges


def find_covering(marks: Sequence[Mark], ranges: Sequence[Range]) -> Iterator[Mark | None]:
    """For each range the mark that shares a character with it, if there is one; both are disjoint and in order."""
    at = 0
    for start, end in ranges:
        while at < len(marks) and marks[at].end <= start:
            at += 1
        yield marks[at] if at < len(marks) and marks[at].start < end else None
