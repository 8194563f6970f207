"""The free text of one message: fragments are joined to narratives, pieces to documents.

A report is one text over many segments (OBX-5 of one OBX-3, NTE-3), and over the lines into which a sender broke it.

Observations: HL7 v2.8.2 chapter 7.4.2. OBX-2 names the datatype of OBX-5, OBX-3 the observation, OBX-6 and OBX-7 the
units and the reference range of a measurement. Senders also write numbers in text values, and documents without their
description.
"""

from array import array
from collections.abc import Sequence

from deid_agent.codec.hl7v2.charset import Hl7View, unescape, unescape_text
from deid_agent.codec.hl7v2.documents import (
    LONG,
    DocumentCollector,
    DocumentPiece,
    find_document_lines,
    parse_ed,
    undescribed_document,
)
from deid_agent.codec.hl7v2.shapes import free_text_of_coded, is_coded_value
from deid_agent.codec.hl7v2.structure import (
    BLANK,
    NULL,
    Fragment,
    Range,
    Separators,
    ranges_of_words,
    split_at_all_separators,
    split_text,
)
from deid_agent.codec.hl7v2.table import CodeTable, Hl7Rule, Hl7Table, Join
from deid_agent.codec.hl7v2.values import LONGEST_CODE, is_measure, is_range, is_unit
from deid_agent.codec.labels import Labels, has_identity_cue, is_reading
from deid_agent.model import Attachment, LeafRole, MappedText, Narrative

_DATATYPE, _LABEL, _UNITS, _RANGE = 2, 3, 6, 7
_ED = 5
"""Components of an ED; the last holds the data."""


def rule_for_observation(table: Hl7Table, fields: Sequence[str], marks: Separators) -> Hl7Rule:
    """The rule of OBX-5: that of the datatype in OBX-2."""
    return table.observation(first_component(fields, _DATATYPE, marks).strip(BLANK).upper())


def is_measured_value(fields: Sequence[str], text: str, marks: Separators, labels: Labels) -> bool:
    """True if OBX-5 (``text``) is a measurement: by its form, its units, its reference range or its label."""
    if not text or len(text) > LONGEST_CODE:
        return False
    pieces = split_text(text, marks.repetition)
    if all(is_reading(piece.strip(BLANK)) for piece in pieces):
        return len(fields) <= _LABEL or not labels.names_time(fields[_LABEL])
    if not all(is_measure(piece, measured=True) for piece in pieces):
        return False
    units, range_ = (first_component(fields, number, marks).strip(BLANK) for number in (_UNITS, _RANGE))
    if (units not in {"", NULL} and is_unit(units)) or is_range(range_):
        return True
    return all(is_measure(piece) for piece in pieces)


def first_component(fields: Sequence[str], number: int, marks: Separators) -> str:
    """The first component of field ``number``; the whole of an uncoded field, which begins with a separator."""
    if number >= len(fields):
        return ""
    text = fields[number]
    return (text.partition(marks.component)[0] or text) if marks.component else text


class TextCollector:
    """Collects free text and documents segment by segment, and joins those that continue over segments."""

    def __init__(self, codes: CodeTable, view: Hl7View, marks: Separators) -> None:
        self._codes = codes
        self._view = view
        self._marks = marks
        self._narratives: list[tuple[int, Narrative]] = []
        self._attachments: list[Attachment] = []
        self._documents = DocumentCollector(view)
        self._run: tuple[tuple[str, str], list[Fragment]] | None = None
        self._name = ""
        self._fields: Sequence[str] = ()
        self._join: Join | None = None

    def begin_segment(self, name: str, fields: Sequence[str], joined: Join | None) -> None:
        """Begin a segment. If its text is not ``joined`` over segments, the texts before it end."""
        if joined is None:
            self.end_all()
        self._name, self._fields, self._join = name, fields, joined

    def set_separators(self, marks: Separators) -> None:
        """Use ``marks`` from here on. The texts before end: they are written with the old separators."""
        self.end_all()
        self._marks = marks

    def add_text(self, fragments: Sequence[Fragment], role: LeafRole = LeafRole.TEXT) -> None:
        """Add one complete text. The text of a LABEL with a cue of identity is a TEXT."""
        if not fragments:
            return
        if len(fragments) > 1 or fragments[0][1][1] - fragments[0][1][0] >= LONG:
            fragments = self._take_documents(fragments)
        mapped = _join_fragments(self._view, [piece for _, piece in fragments], self._marks) if fragments else None
        if mapped is not None:
            role = LeafRole.TEXT if role is LeafRole.LABEL and has_identity_cue(mapped.text) else role
            self._narratives.append((fragments[0][1][0], Narrative(fragments[0][0], mapped, role)))

    def continue_text(self, text: str, at: int, path: str) -> None:
        """Add a field that continues the text of the segment before it, if both have the same continuation key."""
        self._end_documents()
        key = self._continuation_key()
        if self._run is None or self._run[0] != key:
            self.end_text()
            self._run = (key, [])
        run = self._run[1]
        for number, piece in enumerate(split_text(text, self._marks.repetition), start=1):
            words = split_text(piece, self._marks.component)
            if len(words) > 2 and is_coded_value(words, self._codes):
                run += free_text_of_coded(words, at, f"{path}[{number}]", self._codes)
            else:
                run.append((f"{path}[{number}]", (at, at + len(piece))))
            at += len(piece) + 1

    def add_unnamed_line(self, a: int, b: int, path: str) -> None:
        """Add a line without a segment name, or an ADD: it continues the text before it (a report's line breaks)."""
        pieces = split_at_all_separators(self._view.text, a, b, self._marks)
        if self._documents.continue_with(path, pieces[0], self._view.text[slice(*pieces[0])]):
            del pieces[0]
        fragments = [(path, piece) for piece in pieces]
        if self._run is not None:
            self._run[1].extend(fragments)
        else:
            self.add_text(fragments)

    def add_ed(self, words: Sequence[str], at: int, path: str) -> list[Fragment]:
        """Add the ED with components ``words``, the first at character ``at``; returns its free text."""
        found, rest = self._read_ed(words, at, path)
        if isinstance(found, Attachment):
            self._attachments.append(found)
        elif found is not None:
            self._documents.add(found)
        return rest

    def skip_number(self) -> None:
        """A number among the lines of a report: it ends the documents before it, but not the text."""
        self._end_documents()

    def end_text(self) -> None:
        """End the text that continues over segments."""
        if self._run is not None:
            self.add_text(self._run[1])
            self._run = None

    def end_all(self) -> None:
        """End the text and the documents that continue over segments."""
        self.end_text()
        self._end_documents()

    def finish(self) -> tuple[tuple[Narrative, ...], tuple[Attachment, ...]]:
        """All narratives and attachments in byte order."""
        self.end_all()
        narratives = sorted(self._narratives, key=lambda item: item[0])
        return tuple(n for _, n in narratives), tuple(sorted(self._attachments, key=lambda a: a.start))

    def _end_documents(self) -> None:
        if self._documents:
            self._attachments += self._documents.take(f"text{self._marks.component}plain".encode())

    def _continuation_key(self) -> tuple[str, str]:
        """Segment name and observation (OBX-3): equal for the pieces of one text or document."""
        by = self._join.by if self._join is not None else None
        return self._name, first_component(self._fields, by, self._marks) if by else ""

    def _read_ed(
        self, words: Sequence[str], at: int, path: str
    ) -> tuple[DocumentPiece | Attachment | None, list[Fragment]]:
        """The document of an ED or a piece of one, and its free text.

        An ED with fewer than five components is a document without its description, or no document.
        """
        view, marks = self._view, self._marks
        pieces = ranges_of_words(words, at)
        if len(pieces) < _ED:
            if not any(len(word) >= LONG for word in words):
                return None, self._fragments(pieces, path)
            whole = pieces[0][0], pieces[-1][1]
            return undescribed_document(view, [whole], [unescape_text(view, *whole, marks)], path), []
        found = None
        if ed := parse_ed(view, pieces, marks, self._continuation_key()):
            label = (pieces[1][0], pieces[2][1])
            found = DocumentPiece(f"{path}.{_ED}", pieces[4], ed.data, ed.key, label, ed.media_type, ed.encoding)
        source = [(a, b) for a, b in pieces[:1] if b - a >= LONG]
        return found, self._fragments(source + pieces[_ED:], path)

    def _fragments(self, pieces: Sequence[Range], path: str) -> list[Fragment]:
        text = self._view.text
        return [(path, part) for a, b in pieces if a < b for part in split_at_all_separators(text, a, b, self._marks)]

    def _take_documents(self, fragments: Sequence[Fragment]) -> Sequence[Fragment]:
        """Collect the documents among ``fragments`` as attachments; returns the fragments that are text."""
        text = self._view.text
        if sum(b - a for _, (a, b) in fragments) < LONG or not any(
            " " not in text[a : min(a + 20, b)] for _, (a, b) in fragments if b - a >= 20
        ):
            return fragments
        lines = [unescape_text(self._view, *piece, self._marks) for _, piece in fragments]
        rest: list[Fragment] = []
        at = 0
        for start, end in find_document_lines(lines):
            rest += fragments[at:start]
            spans = [piece for _, piece in fragments[start:end]]
            self._attachments.append(undescribed_document(self._view, spans, lines[start:end], fragments[start][0]))
            at = end
        return [*rest, *fragments[at:]]


def _join_fragments(view: Hl7View, fragments: Sequence[Range], marks: Separators) -> MappedText | None:
    """The fragments as lines of one text; the line breaks between them are structure without bytes.

    None if the text is blank. Costs 16 bytes of memory per character, and none for one plain fragment.
    """
    if len(fragments) == 1:
        a, b = fragments[0]
        own = view.text[a:b]
        if own.isascii() and view.starts is None and marks.escape and marks.escape not in own and own != NULL:
            return MappedText(own, range(a, b), range(a + 1, b + 1)) if own.strip() else None
        view.span(a, b)
        chunk = unescape(view, a, a if own == NULL else b, marks)
        return MappedText(chunk.text, chunk.starts, chunk.ends) if chunk.text.strip() else None
    if (plain := _join_plain(view, fragments, marks)) is not None:
        return plain if plain.text.strip() else None
    chunks = []
    for a, b in fragments:
        view.span(a, b)
        end = a if view.text[a:b] == NULL else b
        chunks.append((view.span(a, a)[0], unescape(view, a, end, marks)))
    if not any(chunk.text.strip() for _, chunk in chunks):
        return None
    text: list[str] = []
    starts, ends, breaks, length = array("Q"), array("Q"), [], 0
    for number, (at, chunk) in enumerate(chunks):
        if number:
            text.append("\n")
            starts.append(at)
            ends.append(at)
            breaks.append(length)
            length += 1
        text.append(chunk.text)
        starts.extend(chunk.starts)
        ends.extend(chunk.ends)
        length += len(chunk.text)
    return MappedText("".join(text), starts, ends, frozenset(breaks))


def _join_plain(view: Hl7View, fragments: Sequence[Range], marks: Separators) -> MappedText | None:
    """As ``_join_fragments`` for fragments of ASCII letters without escape sequences; None if one has others."""
    pieces = [view.text[a:b] for a, b in fragments]
    text = "\n".join(pieces)
    if view.starts is not None or not marks.escape or marks.escape in text or not text.isascii() or NULL in pieces:
        return None
    starts, ends, breaks = array("Q"), array("Q"), []
    for number, (a, b) in enumerate(fragments):
        if number:
            breaks.append(len(starts))
            starts.append(a)
            ends.append(a)
        starts.extend(range(a, b))
        ends.extend(range(a + 1, b + 1))
    return MappedText(text, starts, ends, frozenset(breaks))
