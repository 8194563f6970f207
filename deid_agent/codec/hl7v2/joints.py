"""A segment that begins inside of another: the end of the one before was lost on its way.

Such a line reads as one segment with many fields, of which each would be read by the wrong rule: a name in MSH-18
is a charset. HL7 v2.8.2 chapter 2.5.2: a segment ends with a carriage return, which may not be changed.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from string import ascii_uppercase
from types import MappingProxyType

from deid_agent.codec.hl7v2 import observation
from deid_agent.codec.hl7v2.table import Leaf, Part, Rule, Table
from deid_agent.codec.hl7v2.values import NULL
from deid_agent.codec.hl7v2.wire import HEADERS, Separators
from deid_agent.errors import MessageError, Reason

_CONTROLS = (*range(1, 9), 12, *range(14, 28), 29, 30, 31, 0x85, 0x2028, 0x2029)
_SHOWN = MappingProxyType(
    {
        "\\": r"\\(?:[rn]|[xX]0[aAdD]\\?|\.br\\)", "<": r"<(?:CR|LF|cr|lf|br ?/?)>", "[": r"\[CR\]",
        "&": r"&#(?:13|10|[xX]0?[aAdD]);", "%": r"%0[aAdD]", "\xe2": "\xe2\x80[\xa8\xa9]",
        **{chr(code): re.escape(chr(code)) for code in _CONTROLS},
    }
)  # fmt: skip
"""How a lost end looks, by its first character: written out by a log or another format, or another control character.

A text mostly has few of these characters, which is cheap to ask.
"""
_END = itemgetter(slice(-3, None))
_DATE = re.compile(r"(?:1[89]|20)[0-9]{6}(?:[0-9]{2,6}(?:\.[0-9]+)?(?:[-+][0-9]{4})?)?")
_COUNT = re.compile(r"[0-9]{1,4}")
_FREE: frozenset[Part | None] = frozenset({Leaf.TEXT, Leaf.VERBATIM, (Leaf.TEXT,)})
_SEX = frozenset({"F", "M", "O", "U", "A", "N"})
_ORDER_CONTROL = (
    "AF CA CH CN CP CR DC DE DF DR FU HD HR LI MC NA NR NW OC OD OE OF OH OK OP OR PA PR PY RA RC RD RE RF RL RO RP RQ "
    "RR RU SC SN SQ SR SS UA UC UD UF UH UM UN UR UX XO XR XX"
)
_STATUS = frozenset({"C", "D", "F", "I", "N", "O", "P", "R", "S", "U", "V", "W", "X"})
_TABLES = MappingProxyType(
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
"""Fields of codes that tell a segment from another: HL7 tables 0001, 0003, 0004, 0008, 0085, 0119, 0123, 0125, 0364."""


@lru_cache(maxsize=1024)
def _shown(opening: str, field: str) -> re.Pattern[str]:
    return re.compile(rf"{_SHOWN[opening]}[ \t]*([A-Z][A-Z0-9]{{2}}){re.escape(field)}")


def refuse_shown(text: str, marks: Separators, table: Table) -> None:
    """Raises ``MessageError(MALFORMED)`` where a written-out line end stands before the name of a segment."""
    for opening in _SHOWN:
        if opening in text:
            for found in _shown(opening, marks.field).finditer(text):
                if found[1][0] == "Z" or found[1] in HEADERS or table.knows(found[1]):
                    raise _malformed(f"byte {found.start()}")


def refuse(name: str, path: str, fields: Sequence[str], offset: int, marks: Separators, table: Table) -> None:
    """Raises ``MessageError(MALFORMED)`` where a field of a segment ends with the name of another one.

    Many words do (LONDON, CONTROL): what follows must fit the fields of that other segment better than those of
    this one. ``fields[0]`` is the segment's name, ``offset`` 1 in headers.
    """
    if table.names.isdisjoint(map(_END, fields[1:])):
        return
    rules, _ = table.rules(name)
    places = [at for at in range(1, len(fields)) if fields[at][-3:] in table.names]
    for at, until in zip(places, [*places[1:], len(fields) - 1], strict=True):
        before, other, values = fields[at][:-3], fields[at][-3:], fields[at + 1 : until + 1]
        if not any(values):
            continue
        number = at + offset
        if other in HEADERS:
            begins = not any(c.isalnum() for c in values[0]) and len(values[0]) > 1
        else:
            there = _fit(other, table.rules(other)[0], 1, values, marks)
            there += before in _codes(name, number)  # F, the last value of an OBX, and NTE
            there += 2 * (other == name and _counts_on(fields[1], values[0]))
            here = _fit(name, rules, number + 1, values, marks)
            part = rules[number - 1].part if number <= len(rules) else None
            if part is Leaf.VARIES:
                part = observation.rule(table, fields, marks).part
            begins = _begins(before, there, here, free=part in _FREE)
        if begins:
            raise _malformed(f"{path}-{number}")


def _begins(before: str, there: int, here: int, *, free: bool) -> bool:
    """``before`` is what stands before the name; ``there`` and ``here`` how well the values after it fit.

    Where they tell nothing, a name is one behind what is no word ("2.5EVN"), but never in free text, which may
    speak of a PID.
    """
    if there > 0:
        return there > here
    return there == 0 >= here and not free and before != "" and not before[-1].isalpha()


def _counts_on(first: str, second: str) -> bool:
    """True for two set ids of which one comes after the other."""
    return _COUNT.fullmatch(first) is not None and second == str(int(first) + 1)


def _codes(name: str, number: int) -> frozenset[str]:
    return _TABLES.get((name, number), frozenset())


def _fit(name: str, rules: Sequence[Rule], number: int, values: Sequence[str], marks: Separators) -> int:
    """How many of ``values`` fit the fields from ``number`` on by their form, less twice those that do not."""
    known = rules[number - 1 :]
    found = [
        fits
        for order, (rule, value) in enumerate(zip(known, values, strict=False), start=number)
        if (fits := _fits(rule, _codes(name, order), value, marks)) is not None
    ]
    beyond = sum(1 for value in values[len(known) :] if value) if rules else 0
    return sum(1 if fits else -2 for fits in found) - 2 * beyond


def _fits(rule: Rule, codes: frozenset[str], value: str, marks: Separators) -> bool | None:
    """Whether a value fits its field; None where its form tells nothing."""
    first = value.partition(marks.component)[0].strip() if marks.component else value.strip()
    if not first or first == NULL:
        return None
    if first in codes:
        return True
    if rule.lone is Leaf.NUMBER and (_COUNT.fullmatch(first) or any(c.isalpha() for c in first)):
        return _COUNT.fullmatch(first) is not None
    if rule.lone is Leaf.DATE and (_DATE.fullmatch(first) or not first[0].isdigit()):
        return _DATE.fullmatch(first) is not None
    return False if rule.lone is Leaf.CODE and (" " in first or len(first) > 20) else None


def _malformed(where: str) -> MessageError:
    return MessageError(Reason.MALFORMED, where, "a segment begins inside of another: the end of that one was lost")
