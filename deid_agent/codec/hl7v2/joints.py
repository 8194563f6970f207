"""A segment that begins inside of another: the end of the one before was lost on its way.

Such a line reads as one segment with many fields, of which each would be read by the wrong rule: a name in MSH-18
is a charset. HL7 v2.8.2 chapter 2.5.2: a segment ends with a carriage return, which may not be changed.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType

from deid_agent.codec.hl7v2.table import Leaf, Rule, Table
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
    places = [at for at in range(1, len(fields)) if fields[at][-3:] in table.names]
    for at, until in zip(places, [*places[1:], len(fields) - 1], strict=True):
        other, values = fields[at][-3:], fields[at + 1 : until + 1]
        if not any(values):
            continue
        if other in HEADERS:
            begins = not any(c.isalnum() for c in values[0]) and len(values[0]) > 1
        else:
            rules, rest = table.rules(name)
            here = _fit([*rules[at + offset :], *[rest] * len(values)], values, marks)
            begins = _begins(fields[at][:-3], _fit(table.rules(other)[0], values, marks), here)
        if begins:
            raise _malformed(f"{path}-{at + offset}")


def _begins(before: str, there: tuple[int, int], here: tuple[int, int]) -> bool:
    """``before`` is what stands before the name; ``there`` and ``here`` how many values fit, and how many do not."""
    gain, loss = there[0] - 2 * there[1], here[0] - 2 * here[1]
    if gain > 0:
        return gain > loss
    return gain == 0 >= loss and before != "" and not before[-1].isalpha()  # no word: "2.5EVN"


def _fit(rules: Sequence[Rule], values: Sequence[str], marks: Separators) -> tuple[int, int]:
    found = list(_marks(rules, values, marks))
    beyond = sum(1 for value in values[len(rules) :] if value)
    return sum(found), sum(1 for fits in found if not fits) + beyond


def _marks(rules: Sequence[Rule], values: Sequence[str], marks: Separators) -> Iterator[bool]:
    """For each value whose form tells something whether it fits."""
    for rule, value in zip(rules, values, strict=False):
        first = value.partition(marks.component)[0].strip() if marks.component else value.strip()
        if not first or first == '""':
            continue
        if rule.lone is Leaf.NUMBER and (_COUNT.fullmatch(first) or any(c.isalpha() for c in first)):
            yield _COUNT.fullmatch(first) is not None
        elif rule.lone is Leaf.DATE and (_DATE.fullmatch(first) or not first[0].isdigit()):
            yield _DATE.fullmatch(first) is not None
        elif rule.lone is Leaf.CODE and (" " in first or len(first) > 20):
            yield False


def _malformed(where: str) -> MessageError:
    return MessageError(Reason.MALFORMED, where, "a segment begins inside of another: the end of that one was lost")
