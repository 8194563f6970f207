"""Values that are measured, not told: figures with comparators, ranges and units.

A number of six figures reads like somebody's number, unless its form or its neighbours say what it measures.
HL7 v2.8.2 chapter 7.4.2.5 to 7.4.2.7 (OBX-5, -6, -7).
"""

import re

_FIGURE = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,3}|[0-9]{1,9})(?:\.[0-9]{1,9})?(?:[eE][-+]?[0-9]{1,2})?"
_PER = (
    r"/ ?(?:[mcdunp]?[Ll]|mcL|10[*^]?[0-9]{0,2}[a-zA-Z]{0,3}|mm3|mm|cumm|[hl]pf|[HL]PF|1\.73 ?m2|m2|[mu]?mol|[kmu]?g|"
    r"min|hr|h|day|d|sec|s|wk|field)"
)
_UNIT = (
    rf"(?:[A-Za-z][A-Za-z0-9*^.\[\]]{{0,11}}|10[*^][0-9]{{1,2}}|[xX]10[*^]?[A-Za-z]?[0-9]{{1,2}})? ?(?:{_PER}){{1,3}}|"
    r"%|[kmu]?g|mcg|[mdu]?[Ll]|mmHg|mm|cm|[mu]?mol|m?Eq|IU|copies|cells|cfu|CFU|fL|pg|ng"
)
_MEASURE = re.compile(rf"(?P<sign>[<>=]{{1,2}} ?)?{_FIGURE}(?P<range> ?(?:-|to) ?{_FIGURE})?(?P<unit> ?(?:{_UNIT}))?")
_CALENDAR = re.compile(r"(?<![0-9])(?:1[89]|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])")
_FEW = 5
_WORD = re.compile(r"[^\s0-9]\S{0,19}|[0-9][0-9.*^]{0,4}\S{0,15}")
_NUMBER = re.compile(r"[0-9]{5}")


def is_measure(text: str, *, measured: bool = False) -> bool:
    """True for one figure or a range of two, with a comparator or a unit or without.

    A figure of five digits or more alone (a postal code has five), or two that may be a telephone number, need
    a comparator, a unit, or ``measured``: somebody said beside it what it measures. Eight digits that are a day
    of the calendar are none.
    """
    text = text.strip(" ")
    found = _MEASURE.fullmatch(text)
    if found is None or _CALENDAR.search(text):
        return False
    alone = not found["sign"] and not found["unit"]
    return measured or not alone or (not found["range"] and sum(c.isdigit() for c in text) < _FEW)


def is_range(text: str) -> bool:
    """True for a reference range that is no more than figures: two of them, or one with a comparator or a unit."""
    return is_measure(text) or (is_measure(text, measured=True) and not text.strip().isdigit())


def is_unit(text: str) -> bool:
    """True for what reads like a unit where a unit belongs: one short word, or more of them without capitals."""
    words = text.split()
    if not words or len(words) > _FEW or _NUMBER.search(text) or not all(_WORD.fullmatch(word) for word in words):
        return False
    return len(words) == 1 or not any(word[0].isupper() for word in words)
