"""Coded values: which of their components are words that a person wrote.

HL7 v2.8.2 chapter 2A.2.12 (CWE) and 2A.2.6 (CNE); CE and CF are their first six components.
"""

from collections.abc import Sequence

from deid_agent.codec.hl7v2 import measures, values
from deid_agent.codec.hl7v2.table import Codes
from deid_agent.codec.hl7v2.wire import BLANK, Fragment

_TEXT_OF_CODE = (5, 11)
_ORIGINAL_TEXT = 9
_LAST = 22
"""A CWE has no more components."""


def is_coded(words: Sequence[str], codes: Codes) -> bool:
    """True where a text is a coded value in fact: a code, its text and the name of a public code system."""
    if len(words) < 3 or not codes.system(words[2]):
        return False
    code = words[0].strip(BLANK)
    return code != "" and not values.is_prose(code)


def texts(words: Sequence[str], at: int, path: str, *, units: bool = False) -> list[Fragment]:
    """The components ``words``, of which the first begins at character ``at``, that are free text.

    A code's own text is where no code and system stand beside it; the original text always. ``units`` of measure
    are none, coded or not.
    """
    found: list[Fragment] = []
    code, system = words[0].strip(BLANK), _word(words, 3)
    for number, text in enumerate(words, start=1):
        start, at = at, at + len(text) + 1
        if not text:
            continue
        if number == 1:
            free = not system and values.is_prose(code)
        elif number == 2:
            free = not (system and code)
        elif number in _TEXT_OF_CODE:
            free = not _word(words, number - 1)
        else:
            free = number == _ORIGINAL_TEXT or number > _LAST or len(text) > values.LONGEST_CODE
        if free and (word := text.strip(BLANK)) != values.NULL and not (units and measures.is_unit(word)):
            found.append((f"{path}.{number}", (start, start + len(text))))
    return found


def _word(words: Sequence[str], number: int) -> str:
    return words[number - 1].strip(BLANK) if number <= len(words) else ""
