"""Finds the initials of the people of a message.

Initials count with full stops (``A.O.``), and without them beside a word that a person goes with: ``pt AO``, ``AO
reports pain``, or before the colon of a speaker at the beginning of a line, unless they are a heading
(``rules/lexicon/heading.txt``). Those of clinicians need a cue: ``dict: SB``, ``SB/mlk``, ``d/w SB``. The words are in
``rules/contexts/initials.toml``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.model import Document, PhiType, Span, Subject, fold_accents
from deid_agent.recognize.boundaries import UPPER
from deid_agent.recognize.known_people import KNOWN_SOURCES, NameLexicons, Person

_DOTTED = re.compile(
    r"(?<![\w.])[^\W\d_]\. ?(?:[^\W\d_]\. ?){0,3}(?:O['’])?[^\W\d_]\.(?!\w)"
    rf"|(?<![\w./-])[{UPPER}]\.(?:[{UPPER}]\.){{0,2}}[{UPPER}](?![\w./-]|['’]\w)"
)
_BARE = re.compile(
    rf"(?<![\w.'’/-])[{UPPER}](?:O['’]|[a-z]{{1,3}}(?=[A-Z](?![^\W_])))?[{UPPER}]{{1,3}}"
    r"(?![\w-]|/(?![a-z]{2,4}[0-9]{0,3}(?![\w/]))|['’](?!s\b)| ?x ?\d)"
)
_APART = re.compile(rf"(?<![\w.'’/-])[{UPPER}] (?:[{UPPER}] ){{0,2}}[{UPPER}](?![\w/-]|['’](?!s\b)| ?[x&+] ?\d?)")
_SPEAKS = re.compile(r"[ \t]?:(?=[ \t]{1,2}\S)")
_TYPED = re.compile(r"[/:](?P<typist>[a-z]{2,4})[0-9]{0,3}(?![\w/])")
_LOWER = re.compile(r"(?<![^\W_])[a-z]{2,4}(?![\w/'’-])")
_SIGNATURE = re.compile(r"(?:[-–—~]|\n|\A)[ \t]?\Z")
_LAST = re.compile(r"[ \t.]{0,3}(?:\r?\n|\Z)")
_REACH = 24


@dataclass(frozen=True)
class InitialsFinder:
    """Finds the initials of ``people``; created once for each set of facts."""

    people: tuple[Person, ...] = field(repr=False)
    lists: NameLexicons = field(repr=False)

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of initials, the given name first and the family name last (``A.O.``, ``A. M. O.``, ``pt AO``)."""
        if not self._by_initials:
            return
        for found in _DOTTED.finditer(doc.text):
            yield from self._people_with(found, Subject.PATIENT)
        for found in _BARE.finditer(doc.text):
            if self._is_patient(found, doc.text):
                yield from self._people_with(found, Subject.PATIENT)
            if self._is_staff(found, doc.text):
                yield from self._people_with(found, Subject.PROVIDER)
        for found in _APART.finditer(doc.text):
            if self.lists.initials.patient.precedes(doc.text, found.start()):
                yield from self._people_with(found, Subject.PATIENT)
        for found in _LOWER.finditer(doc.text):
            if found[0] not in self.lists.common and self.lists.initials.typist.precedes(doc.text, found.start()):
                yield from self._people_with(found, Subject.PROVIDER)
                yield from self._people_with(found, Subject.PATIENT)

    def _is_patient(self, found: re.Match[str], text: str) -> bool:
        """True if bare initials are in the place of a patient."""
        start, end, word = found.start(), found.end(), found[0].lower()
        person, initials = self.lists.person, self.lists.initials
        begins = start == 0 or text[start - 1] == "\n"
        acts = person.act.follows(text, end) or initials.patient_act.follows(text, end)
        who = initials.patient.precedes(text, start)
        if initials.labelled.precedes(text, start):
            return True
        if word in self.lists.common:
            fares = acts or person.condition.follows(text, end)
            return bool(fares and who and not who[0].isupper())
        if acts or who or (begins and (person.condition.follows(text, end) or person.predicate.follows(text, end))):
            return True
        return begins and _SPEAKS.match(text, end) is not None and word not in self.lists.headings

    def _is_staff(self, found: re.Match[str], text: str) -> bool:
        """True if bare initials are in the place of a clinician."""
        start, end, word = found.start(), found.end(), found[0].lower()
        if word in self.lists.common:
            return False
        initials, typed = self.lists.initials, _TYPED.match(text, end) is not None
        if word in self.lists.headings:
            return typed or initials.dictates.precedes(text, start) is not None
        if typed or initials.staff.precedes(text, start) or initials.staff_act.follows(text, end):
            return True
        return bool(_LAST.match(text, end) and _SIGNATURE.search(text, max(0, start - _REACH), start))

    def _people_with(self, found: re.Match[str], subject: Subject) -> Iterator[Span]:
        letters = [fold_accents(c) for c in found[0] if c.isalpha()]
        if "".join(letters) in self.lists.not_initials:
            return
        for person in self._by_initials.get((letters[0], letters[-1]), ()):
            inner = {*person.initials, *(word[0] for word in person.family)}
            if person.subject is subject and ("." in found[0] or inner.issuperset(letters)):
                yield Span(found.start(), found.end(), person.type, KNOWN_SOURCES[person.subject, "initials"])

    @cached_property
    def _by_initials(self) -> Mapping[tuple[str, str], tuple[Person, ...]]:
        """Patients and clinicians by the first letters of given and family name; one for each type and subject."""
        signed: dict[tuple[str, str], dict[tuple[PhiType, Subject], Person]] = {}
        for person in self.people:
            if person.subject in (Subject.PATIENT, Subject.PROVIDER) and person.initials:
                for last in {word[0] for word in person.family}:
                    of = signed.setdefault((person.initials[0], last), {})
                    of.setdefault((person.type, person.subject), person)
        return {letters: tuple(of.values()) for letters, of in signed.items()}
