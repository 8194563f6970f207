"""What a policy may do to a value other than give it a surrogate. All pure, none keyed."""

import re

from deid_agent.phi import PhiType
from deid_agent.surrogate.ages import OLDEST, is_over_89
from deid_agent.surrogate.calendars import Shift
from deid_agent.surrogate.numeric_dates import numeric_date

RESTRICTED_ZIP3 = frozenset(
    [
        "036",
        "059",
        "063",
        "102",
        "203",
        "556",
        "692",
        "790",
        "821",
        "823",
        "830",
        "831",
        "878",
        "879",
        "884",
        "890",
        "893",
    ]
)
"""ZIP prefixes with 20,000 people or fewer: OCR guidance on 45 CFR 164.514(b), census of 2000."""

_YEAR = re.compile(r"(?<!\d)(?:1[89]|20|21)\d\d(?!\d)")
_STRUCTURED = re.compile(r"(\d{4})(?:(?:\d\d){0,5}(?:\.\d+)?(?:[+-]\d{4})?|-\d\d(?:-\d\d(?:T.*)?)?)", re.DOTALL)
_SHORT_YEAR = re.compile(r"['’](\d\d)(?!\d)")


def redact(type_: PhiType) -> str:  # noqa: ARG001 - the policy calls every method alike
    """Nothing: the value is taken out."""
    return ""


def mask(type_: PhiType) -> str:
    """``[**DATE**]``: that something stood here, and of which type. Holds no character that HL7 or FHIR reserves."""
    return f"[**{type_}**]"


def generalize(type_: PhiType, value: str, *, blank: str | None = None, now: int | None = None) -> str:
    """The least identifying form that HIPAA Safe Harbor lets stand, else ``blank`` (the mask by default).

    A date becomes its year, a ZIP code its first three digits (000 for small populations),
    an age over 89 "90 or older"; younger ages, states and countries stay.
    A year tells an age over 89 where it lies 90 or more before ``now``, the year of the message (45 CFR
    164.514(b)(2)(i)(C)): all such years become one, the ninetieth before ``now``, which the rule calls "a single
    category of age 90 or older" and which a typed field can hold. Without ``now`` they stay.
    """
    none = mask(type_) if blank is None else blank
    core = value.strip()
    match type_:
        case PhiType.DATE:
            year = _year(core)
            if year and now is not None and int(year) < now - OLDEST:
                return f"{now - OLDEST:04d}"
            return year or none
        case PhiType.ZIP:
            found = re.fullmatch(r"(\d{3})\d{2}(?:[- ]?\d{4})?", core)
            return ("000" if found[1] in RESTRICTED_ZIP3 else found[1]) if found else none
        case PhiType.AGE:
            return "90 or older" if is_over_89(core) else value
        case PhiType.STATE | PhiType.COUNTRY:
            return value
        case _:
            return none


def _year(text: str) -> str | None:
    """The year, four digits, where the date names one."""
    if (found := _STRUCTURED.fullmatch(text)) and 1800 <= int(found[1]) < 2200 and len(text) != 6:
        return found[1]
    unmoved = Shift(0)
    if (date := numeric_date(text, unmoved)) and (date.whole or _YEAR.search(text) or len(text) == 6):
        return f"{date.day.year:04d}"
    if found := _YEAR.search(text):
        return found[0]
    if found := _SHORT_YEAR.search(text):
        return f"{unmoved.full_year(int(found[1])):04d}"
    return None
