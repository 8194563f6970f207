"""Refuses a message in which a segment begins inside another because a segment terminator is missing.

Such a line reads as one segment with many fields, and each of them would be read by the wrong rule: a name in MSH-18
would be a charset. HL7 v2.8.2 chapter 2.5.2: a segment ends with a carriage return, which must not be changed.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from string import ascii_uppercase
from types import MappingProxyType

from deid_agent.codec.hl7v2.structure import HEADERS, NULL, Separators, split_text
from deid_agent.codec.hl7v2.table import Hl7Kind, Hl7Rule, Hl7Table, Layout
from deid_agent.codec.hl7v2.texts import rule_for_observation
from deid_agent.codec.hl7v2.values import DATE_KINDS
from deid_agent.model import MessageError, Reason

_CONTROLS = (*range(1, 9), 12, *range(14, 28), 29, 30, 31, 0x85, 0x2028, 0x2029)
_WRITTEN_OUT = MappingProxyType(
    {
        "\\": r"\\(?:[rn]|[xX]0[aAdD]\\?|\.br\\)", "<": r"<(?:CR|LF|cr|lf|br ?/?)>", "[": r"\[CR\]",
        "&": r"&#(?:13|10|[xX]0?[aAdD]);", "%": r"%0[aAdD]", "\xe2": "\xe2\x80[\xa8\xa9]",
        **{chr(code): re.escape(chr(code)) for code in _CONTROLS},
    }
)  # fmt: skip
"""Written-out forms of a segment terminator by their first character: as a log or another format writes it, or as
another control character.

Most texts contain few of these characters, so the check is cheap.
"""
_LAST_THREE = itemgetter(slice(-3, None))
_DATE = re.compile(r"(?:1[89]|20)[0-9]{6}(?:[0-9]{2,6}(?:\.[0-9]+)?(?:[-+][0-9]{4})?)?")
_COUNT = re.compile(r"[0-9]{1,4}")
_FREE: frozenset[Layout | None] = frozenset({Hl7Kind.TEXT, Hl7Kind.VERBATIM, (Hl7Kind.TEXT,)})
_SYSTEMS = frozenset({3, 6, 12})
"""Components of a coded value that name a code system."""
_LOCAL_SYSTEM = re.compile(r"(?<![A-Za-z0-9._-])(?:99|L[-_.])?[A-Z][A-Z0-9]{2}\Z")
_SEX = frozenset({"F", "M", "O", "U", "A", "N"})
_ORDER_CONTROL = (
    "AF CA CH CN CP CR DC DE DF DR FU HD HR LI MC NA NR NW OC OD OE OF OH OK OP OR PA PR PY RA RC RD RE RF RL RO RP RQ "
    "RR RU SC SN SQ SR SS UA UC UD UF UH UM UN UR UX XO XR XX"
)
_STATUS = frozenset({"C", "D", "F", "I", "N", "O", "P", "R", "S", "U", "V", "W", "X"})
_CODE_FIELDS = MappingProxyType(
    {
        ("EVN", 1): frozenset(f"{letter}{number:02}" for letter in ascii_uppercase for number in range(1, 100)),
        ("GT1", 9): _SEX,
        ("MSA", 1): frozenset({"AA", "AE", "AR", "CA", "CE", "CR"}),
        ("NK1", 15): _SEX,
        ("NTE", 4): frozenset({"1R", "2R", "AI", "DR", "GI", "GR", "PI", "RE"}),
        ("OBR", 25): _STATUS,
        ("OBX", 2): frozenset({"CE", "CWE", "DT", "ED", "FT", "ID", "IS", "NM", "SN", "ST", "TM", "TS", "DTM", "TX"}),
        ("OBX", 11): _STATUS,
        ("ORC", 1): frozenset(_ORDER_CONTROL.split()),
        ("PID", 8): _SEX,
        ("PV1", 2): frozenset({"B", "E", "I", "O", "P", "R"}),
    }
)
"""Coded fields that distinguish a segment from another: HL7 tables 0001, 0003, 0004, 0008, 0085, 0119, 0123, 0125,
0364."""


def refuse_written_out_terminator(text: str, marks: Separators, table: Hl7Table) -> None:
    """Raise ``MessageError(MALFORMED)`` if a written-out segment terminator precedes the name of a segment."""
    for opening in _WRITTEN_OUT:
        if opening in text:
            for found in _written_out_pattern(opening, marks.field).finditer(text):
                if found[1][0] == "Z" or found[1] in HEADERS or table.knows(found[1]):
                    raise _missing_terminator(f"byte {found.start()}")


@lru_cache(maxsize=1024)
def _written_out_pattern(opening: str, field: str) -> re.Pattern[str]:
    return re.compile(rf"{_WRITTEN_OUT[opening]}[ \t]*([A-Z][A-Z0-9]{{2}}){re.escape(field)}")


def refuse_missing_terminator(
    name: str, path: str, fields: Sequence[str], offset: int, marks: Separators, table: Hl7Table
) -> None:
    """Raise ``MessageError(MALFORMED)`` if a field of a segment ends with the name of a segment that begins there.

    Many words end with such a name (LONDON, CONTROL). A segment begins there only if the values after the name fit the
    fields of that segment better than those of this one. ``fields[0]`` is the segment name; ``offset`` is 1 in headers.
    """
    if table.names.isdisjoint(map(_LAST_THREE, fields[1:])):
        return
    rules, _ = table.rules(name)
    suspects = [
        at
        for at in range(1, len(fields))
        if fields[at][-3:] in table.names and not _ends_with_local_system(fields[at], marks)
    ]
    for at, until in zip(suspects, [*suspects[1:], len(fields) - 1], strict=False):
        before, other, values = fields[at][:-3], fields[at][-3:], fields[at + 1 : until + 1]
        if not any(values):
            continue
        number = at + offset
        if other in HEADERS:
            begins = not any(c.isalnum() for c in values[0]) and len(values[0]) > 1
        else:
            there = _fit(other, table.rules(other)[0], 1, values, marks)
            there += before in _codes_of_field(name, number)  # F, the last value of an OBX, and NTE
            there += 2 * (other == name and _counts_on(fields[1], values[0]))
            here = _fit(name, rules, number + 1, values, marks)
            layout = rules[number - 1].layout if number <= len(rules) else None
            if layout is Hl7Kind.VARIES:
                layout = rule_for_observation(table, fields, marks).layout
            is_component = before[-1:] in {marks.component, marks.subcomponent, marks.repetition}
            before = "" if is_component or _ends_with_system(fields[at], marks) else before
            begins = _begins_segment(before, there, here, free=layout in _FREE)
        if begins:
            raise _missing_terminator(f"{path}-{number}")


def _begins_segment(before: str, there: int, here: int, *, free: bool) -> bool:
    """Decide from the text ``before`` the name, and from how well the values after it fit ``there`` and ``here``.

    If the values are not conclusive, the name begins a segment if the text before it does not end with a letter
    ("2.5EVN"). In free text it never does, because free text may mention a PID.
    """
    if there > 0:
        return there > here
    return there == 0 >= here and not free and before != "" and not before[-1].isalpha()


def _ends_with_local_system(field: str, marks: Separators) -> bool:
    """True if the last component of a coded value is the name of a code system: 99LOC, L-LOC or a bare DRG.

    HL7 table 0396 reserves 99zzz for local ones, and zzz may equal the name of a segment.
    """
    return _ends_with_system(field, marks) and _LOCAL_SYSTEM.search(field) is not None


def _ends_with_system(field: str, marks: Separators) -> bool:
    """True if the last component of ``field`` has the place of a code system in a coded value, and no white space."""
    if not marks.component:
        return False
    words = split_text(field, marks.repetition)[-1].split(marks.component)
    if marks.subcomponent and marks.subcomponent in words[-1]:
        words = words[-1].split(marks.subcomponent)
    return len(words) in _SYSTEMS and bool(words[0]) and " " not in words[-1]


def _counts_on(first: str, second: str) -> bool:
    """True if set ID ``second`` is the successor of set ID ``first``."""
    return _COUNT.fullmatch(first) is not None and second == str(int(first) + 1)


def _codes_of_field(name: str, number: int) -> frozenset[str]:
    return _CODE_FIELDS.get((name, number), frozenset())


def _fit(name: str, rules: Sequence[Hl7Rule], number: int, values: Sequence[str], marks: Separators) -> int:
    """The count of ``values`` whose form fits the fields from ``number`` on, less twice the count that do not fit."""
    known = rules[number - 1 :]
    found = [
        fits
        for order, (rule, value) in enumerate(zip(known, values, strict=False), start=number)
        if (fits := _fits(rule, _codes_of_field(name, order), value, marks)) is not None
    ]
    beyond = sum(1 for value in values[len(known) :] if value) if rules else 0
    return sum(1 if fits else -2 for fits in found) - 2 * beyond


def _fits(rule: Hl7Rule, codes: frozenset[str], value: str, marks: Separators) -> bool | None:
    """Whether a value fits its field; None if its form is not conclusive."""
    first = value.partition(marks.component)[0].strip() if marks.component else value.strip()
    if not first or first == NULL:
        return None
    if first in codes:
        return True
    if rule.single is Hl7Kind.NUMBER and (_COUNT.fullmatch(first) or any(c.isalpha() for c in first)):
        return _COUNT.fullmatch(first) is not None
    if rule.single in DATE_KINDS and (_DATE.fullmatch(first) or not first[0].isdigit()):
        return _DATE.fullmatch(first) is not None
    return False if rule.single is Hl7Kind.CODE and (" " in first or len(first) > 20) else None


def _missing_terminator(coordinates: str) -> MessageError:
    return MessageError(Reason.MALFORMED, coordinates, "a segment begins inside another: its terminator is missing")
