"""Coded values: which of their components are words that a person wrote.

HL7 v2.8.2 chapter 2A.2.12 (CWE) and 2A.2.6 (CNE); CE and CF are their first six components.
"""

from collections.abc import Sequence

from deid_agent.codec.hl7v2 import measures, values
from deid_agent.codec.hl7v2.table import Codes
from deid_agent.codec.hl7v2.wire import BLANK, Fragment

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
    for number, text in enumerate(words, start=1):
        start, at = at, at + len(text) + 1
        if not text or not _is_free(number, text, words):
            continue
        word = text.strip(BLANK)
        if word != values.NULL and not (units and measures.is_unit(word)):
            found.append((f"{path}.{number}", (start, start + len(text))))
    return found


def _is_free(number: int, text: str, words: Sequence[str]) -> bool:
    match number:
        case 1:
            return values.is_prose(text.strip(BLANK)) and not _word(words, 3)
        case 2:
            return not (_word(words, 3) and _word(words, 1))
        case 5:
            return not _word(words, 4)
        case 11:
            return not _word(words, 10)
        case _:
            return number == _ORIGINAL_TEXT or number > _LAST or len(text) > values.LONGEST_CODE


def _word(words: Sequence[str], number: int) -> str:
    return words[number - 1].strip(BLANK) if number <= len(words) else ""
