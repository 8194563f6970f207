"""OBX: how its value (OBX-5) is read, which its neighbours say.

HL7 v2.8.2 chapter 7.4.2: OBX-2 names the datatype of OBX-5, OBX-3 what was observed, OBX-6 and OBX-7 the units and
the reference range of a measurement. Senders write numbers in text values, and documents without their description.
"""

from collections.abc import Sequence

from deid_agent.codec.hl7v2 import attachment, documents, measures, values
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.table import Rule, Table
from deid_agent.codec.hl7v2.wire import BLANK, Fragment, Range, Separators, leaves, parts, ranges
from deid_agent.sites import Attachment

_DATATYPE, _UNITS, _RANGE = 2, 6, 7
_ED = 5
"""Components of an ED; its last holds the data."""


def rule(table: Table, fields: Sequence[str], marks: Separators) -> Rule:
    """The rule of OBX-5: the one of the datatype that OBX-2 names."""
    return table.observation(first(fields, _DATATYPE, marks).strip(BLANK).upper())


def first(fields: Sequence[str], number: int, marks: Separators) -> str:
    """The first component of field ``number``; of an uncoded field, which begins with a separator, the whole."""
    if number >= len(fields):
        return ""
    text = fields[number]
    return (text.partition(marks.component)[0] or text) if marks.component else text


def is_measured(fields: Sequence[str], text: str, marks: Separators) -> bool:
    """True for a number in OBX-5 that its form, its units or its reference range say to be a measurement."""
    if not text or len(text) > values.LONGEST_CODE:
        return False
    pieces = parts(text, marks.repetition)
    if not all(measures.is_measure(piece, measured=True) for piece in pieces):
        return False
    units, range_ = (first(fields, number, marks).strip(BLANK) for number in (_UNITS, _RANGE))
    if (units not in {"", values.NULL} and measures.is_unit(units)) or measures.is_range(range_):
        return True
    return all(measures.is_measure(piece) for piece in pieces)


def document(
    view: View, words: Sequence[str], at: int, path: str, marks: Separators, key: tuple[str, str]
) -> tuple[documents.Piece | Attachment | None, list[Fragment]]:
    """An ED whose first component begins at character ``at``: its document or a piece of one, and what is text in it.

    ``key`` says which pieces belong together. One with less than five components is a document without its
    description, or none at all.
    """
    pieces = ranges(words, at)
    if len(pieces) < _ED:
        if not any(len(word) >= attachment.LONG for word in words):
            return None, _texts(view, pieces, path, marks)
        whole = pieces[0][0], pieces[-1][1]
        return documents.bare(view, [whole], [plain(view, *whole, marks)], path), []
    found = None
    if read := attachment.piece(view, pieces, marks, key):
        value, declared, encoding, alike = read
        label = (pieces[1][0], pieces[2][1])
        found = documents.Piece(f"{path}.{_ED}", pieces[4], value, alike, label, declared, encoding)
    source = [(a, b) for a, b in pieces[:1] if b - a >= attachment.LONG]
    return found, _texts(view, source + pieces[_ED:], path, marks)


def _texts(view: View, pieces: Sequence[Range], path: str, marks: Separators) -> list[Fragment]:
    return [(path, leaf) for a, b in pieces if a < b for leaf in leaves(view.text, a, b, marks)]
