"""Finds names that an export or a scan glued to a label or a title: ``PatientNameOkaforAda``, ``DrHolmbergNote``.

A token of letters is read a second time, divided before each capital that follows a letter in lower case. The words
after a label or title of a person are a name up to the next word that is common. ``McDonald`` and ``DeBakey`` stay one
word.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.model import BesideModels, Document, PhiType, Range, Source, SourceKind, SourceTraits, Span
from deid_agent.rules import Lexicon

GLUED_SOURCE = Source(SourceKind.CUSTOM, "glued")
_MIXED = re.compile(r"(?<![\w-])(?:[^\W\d_]|['’](?=[^\W\d_]))+(?![^\W\d]|-)")
_JOINT = re.compile(r"[^\W\d_A-ZÀ-ÖØ-Þ]['’]?[A-ZÀ-ÖØ-Þ]|[A-ZÀ-ÖØ-Þ]{3}(?:[^\W\d_A-ZÀ-ÖØ-Þ]|['’])")
"""Each glued word has one. Few words do, and the search for it is much faster than the search for words."""
_PIECE = re.compile(
    r"(?:NAME|SURNAME|PATIENT|PT|DR|MR|MRS|MS|MISS|BABY|BB|BG|DOB|MRN|SEX|LAST|FIRST|BBoy|BGirl)(?=[A-Z](?![A-Z]))|"
    r"(?:(?:Mc|Mac|Fitz|De|Le|La|Van|Von|Di|Du|Da|Al|El|O['’]|D['’]|[A-Z]['’])(?=[A-Z]))?[^\W\d_](?:[^\W\d_A-ZÀ-ÖØ-Þ]|['’-](?=\w))*"
)
_BLANK = re.compile(r"\s")
_KIN_AT_END = re.compile(
    r"(?:wife|husband|spouse|partner|mother|father|mom|mum|dad|son|daughter|dtr|brother|sister|aunt|uncle|niece|nephew"
    r"|cousin|grandson|granddaughter|friend|neighbou?r)s?\Z"
)
"""What a word ends with before the name of a relative: ``withhusbandDmitri``."""
_LABEL_BEFORE = re.compile(
    r"(?i)(?:name|patient|by|signed|electronically|attending|physician|provider)[ \t]?[:=][ \t]?\Z"
)


@dataclass(frozen=True, slots=True)
class GluedTextRecognizer:
    """Finds glued names. ``staff`` and ``patients`` are titles and labels, ``plain`` words that are no names."""

    staff: Lexicon = field(repr=False)
    patients: Lexicon = field(repr=False)
    plain: Lexicon = field(repr=False)
    name: str = "glued"

    @staticmethod
    def load(lexicons: Mapping[str, Lexicon]) -> "GluedTextRecognizer":
        """The recognizer with the word lists of ``rules/lexicon``."""
        staff = lexicons["glued-staff"]
        return GluedTextRecognizer(
            staff, lexicons["glued-patient"], lexicons["glued-not-name"] | staff | lexicons["common"]
        )

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source; its spans remain beside those of models."""
        return {GLUED_SOURCE: SourceTraits(beside_models=BesideModels.ALWAYS)}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The names in ``doc``. Time is linear in the text."""
        end = 0
        for joint in _JOINT.finditer(doc.text):
            if joint.start() < end:
                continue
            start, end = _word_around(doc.text, *joint.span())
            for found in _MIXED.finditer(doc.text, start, end):
                pieces = list(_PIECE.finditer(doc.text, found.start(), found.end()))
                if len(pieces) > 1 and pieces[0].start() == found.start():
                    yield from self._names(pieces, doc.text)

    def _names(self, pieces: list[re.Match[str]], text: str) -> Iterator[Span]:
        kind: PhiType | None = None
        if _LABEL_BEFORE.search(text, max(0, pieces[0].start() - 20), pieces[0].start()):
            kind = PhiType.PATIENT
        start = end = -1
        for piece in pieces:
            word = piece[0].lower()
            if kind is not None and piece[0][0].isupper() and len(word) > 1 and word not in self.plain:
                start, end = (piece.start() if start < 0 else start), piece.end()
                continue
            if kind is not None and start >= 0:
                yield Span(start, end, kind, GLUED_SOURCE)
                start = -1
            if word in self.staff:
                kind = PhiType.DOCTOR
            elif word in self.patients or _KIN_AT_END.search(word):
                kind = PhiType.PATIENT
            elif word not in {"name", "last", "first", "by"}:
                kind = None
        if kind is not None and start >= 0:
            yield Span(start, end, kind, GLUED_SOURCE)


def _word_around(text: str, start: int, end: int) -> Range:
    """The characters around ``[start, end)`` up to white space."""
    while start and not text[start - 1].isspace():
        start -= 1
    blank = _BLANK.search(text, end)
    return start, blank.start() if blank else len(text)
