"""Finds the initials of the people of a message, and the words around a name that say that it is a person.

Initials count with full stops (``A.O.``), and without them beside a word that a person goes with: ``pt AO``, ``AO
reports pain``. Those of clinicians need a cue: ``dict: SB``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.model import Document, PhiType, Span, Subject, fold_accents
from deid_agent.recognize.known_people import KNOWN_SOURCES, NameLexicons, Person

ACTS = re.compile(
    r"[ \t]{1,2}(?:(?:said|says|reports|reported|states|stated|denies|denied|feels|complains|complained|wants|lives"
    r"|asked|told|agrees|refuses|refused|came)\b|c/o\b|at (?:the )?bedside\b)"
)
"""Acts of a person, after the name."""
FARES = re.compile(
    r"[ \t]{1,2}(?:passed (?:her|his|their)|managed|managing|eating|ate|drinking|tolerat(?:ed|ing)|walked|walking|slept"
    r"|sleeping|ambulat(?:ed|ing)|mobili[sz](?:ed|ing)|voiding|resting|reviewed|transferred|settled|appears|looks"
    r"|remains|requests|requested|declin(?:ed|ing|es)|keen|comfortable|stable|afebrile|tearful|counselled|discharged"
    r"|admitted|woke|awake|alert|seen|back from|home (?:today|tomorrow)|on (?:room air|[0-9]))\b"
)
"""The condition of a person, after the name. It counts only at the beginning of a line: "long sitting" is a posture."""
_DOTTED = re.compile(r"(?<![\w.])[^\W\d_]\. ?(?:[^\W\d_]\. ?){0,3}(?:O['’])?[^\W\d_]\.(?!\w)")
_BARE = re.compile(
    r"(?<![\w.'’/-])[A-Z](?:O['’]|[a-z]{1,3}(?=[A-Z](?![^\W_])))?[A-Z]{1,3}(?![\w/-]|['’](?!s\b)| ?x ?\d)"
)
_SEEN = re.compile(
    r"[ \t]{1,2}(?:seen|resting|called|tolerated|felt|is a|was seen)\b"
    r"|['’]s (?:husband|wife|mother|father|mom|dad|son|daughter|brother|sister|family|partner|spouse|parents?)\b"
)
_WHO = re.compile(r"\b(?:pt|patient|mr|mrs|ms|miss|client|resident|subj(?:ect)?|re)\.?:?[ \t]{1,2}\(?\Z", re.IGNORECASE)
_WHO_SIGNS = re.compile(
    r"\b(?:dict(?:ated)?(?: by)?|signed(?: by)?|author|typed by|d|dr|attending|surgeon)[.:]?[ \t]{1,2}\Z", re.IGNORECASE
)
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
            if found[0].lower() in self.lists.common:
                continue
            start, end = max(0, found.start() - _REACH), found.end()
            begins = found.start() == 0 or doc.text[found.start() - 1] == "\n"
            if (
                ACTS.match(doc.text, end)
                or _SEEN.match(doc.text, end)
                or (begins and FARES.match(doc.text, end))
                or _WHO.search(doc.text, start, found.start())
            ):
                yield from self._people_with(found, Subject.PATIENT)
            if _WHO_SIGNS.search(doc.text, start, found.start()):
                yield from self._people_with(found, Subject.PROVIDER)

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
        """Patients and clinicians by the first letters of a given and a family name, one for each type and subject."""
        signed: dict[tuple[str, str], dict[tuple[PhiType, Subject], Person]] = {}
        for person in self.people:
            if person.subject in (Subject.PATIENT, Subject.PROVIDER) and person.initials:
                for last in {word[0] for word in person.family}:
                    of = signed.setdefault((person.initials[0], last), {})
                    of.setdefault((person.type, person.subject), person)
        return {letters: tuple(of.values()) for letters, of in signed.items()}
