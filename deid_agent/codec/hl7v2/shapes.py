"""The shape of a whole field: a person, an address, a number of staff, a coded value or text, whatever its rule says.

Coded values: HL7 v2.8.2 chapter 2A.2.12 (CWE) and 2A.2.6 (CNE); CE and CF are the first six components of those.
"""

import re
from collections.abc import Container, Sequence
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.hl7v2.structure import BLANK, NULL, Fragment
from deid_agent.codec.hl7v2.table import CodeTable, Composite, Hl7Kind, Hl7Rule, Stranger
from deid_agent.codec.hl7v2.values import DATE_KINDS, FEW, LONGEST_CODE, STATES, is_personal_number, is_prose, is_unit
from deid_agent.codec.labels import Labels, has_identity_cue, is_reading

_STATE_CODE = re.compile(rf"{STATES}|MD|PA|PR")
_CODE_OF_CODED = frozenset({1, 4, 10})
_CODE_OF_TEXT = MappingProxyType({2: 1, 5: 4, 11: 10})
_SYSTEM_OF = MappingProxyType({1: 3, 2: 3, 4: 6, 5: 6, 10: 12, 11: 12})
"""CWE: the component that names the code system of a code or a text (HL7 v2.8.2 chapter 2A.2.12)."""
SYSTEMS_OF_CODED = frozenset({3, 6, 7, 8, 12})
"""Components of a coded value that name a code system or its version."""
_ORIGINAL_TEXT = 9
_MANY = 7
_LAST = 22
"""A CWE has no more components."""
_TIMESTAMP = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[0-9]{4}){0,2}(?![0-9])")
_RECORD_NUMBER = re.compile(r"[A-Z]{0,4}-?[0-9]{6,15}|[0-9]{2,4}-[0-9]{5,9}")


def layout_of_repetition(rule: Hl7Rule, words: Sequence[str]) -> Composite:
    """The layout of a repetition; the alternative layout of the rule if the components cannot have the first."""
    layout = rule.layout
    if isinstance(layout, Hl7Kind):
        return (layout,) * len(words)
    if (
        isinstance(rule.alternative, tuple)
        and len(layout) > 1
        and (
            len(words) > len(layout)
            or any(
                kind in DATE_KINDS and word and not any(map(str.isdigit, word))
                for kind, word in zip(layout, words, strict=False)
            )
        )
    ):
        return rule.alternative
    return layout


def is_coded_value(words: Sequence[str], codes: CodeTable) -> bool:
    """True if the components ``words`` of a text field are a coded value: a code, its text, a public code system."""
    if len(words) < 3 or not codes.is_public_system(words[2]):
        return False
    code = words[0].strip(BLANK)
    return code != "" and not is_prose(code)


def is_person_shape(words: Sequence[str], codes: CodeTable, *, coded: bool) -> bool:
    """True for a number or nothing, a family name and a given name: a person in a field for a code, number or date.

    If the field is for a code with its text (``coded``), the third component may be a code system: it is none if it is
    in mixed case, is not public, and the first is a number.
    """
    if len(words) < 3:
        return False
    number, family, given = (read_utf8(word).strip(BLANK) for word in words[:3])
    if not (_FAMILY_WORD.fullmatch(family) and _FAMILY_WORD.fullmatch(given)) or codes.is_public_system(given):
        return False
    if number and not (len(number) <= LONGEST_STAFF_NUMBER and _STAFF_NUMBER.fullmatch(number)):
        return False
    mixed = given[1:] != given[1:].upper() and family[1:] != family[1:].upper()
    if coded:
        return (
            mixed
            and " " not in family + given
            and given.casefold() not in _NO_GIVEN
            and (number == "" or number.isdigit())
        )
    return mixed or len(given) >= FEW


def is_stranger_person(stranger: Stranger, words: Sequence[str], codes: CodeTable, labels: Labels) -> bool:
    """True if a field that holds no person has one: ``4471^Okafor^Ada``."""
    if len(words) < 3:
        return False
    if stranger is Stranger.NUMBERED:
        return is_person_shape(words, codes, coded=False)
    if stranger is Stranger.CODED:
        return is_person_shape(words, codes, coded=True)
    if not words[0].strip(BLANK).isalnum():
        return False
    if stranger is Stranger.WRITTEN and is_person_shape(words, codes, coded=True):
        return True
    return labels.lists_name(words[2]) and is_person_shape(words, codes, coded=False)


def shape_of_stranger(words: Sequence[str], codes: CodeTable) -> str:
    """The layout of an address, a telephone number, an identifier or a name in a field for another; else empty."""
    if _is_address_shape(words):
        return "XAD"
    count = len(words)
    if words[1].strip().upper() in _USES or (count > 5 and words[2].strip().upper() in codes.equipment):
        parts = (words[0], *(_component(words, number) for number in (4, 7, 12)))
        if any("@" in part or sum(map(str.isdigit, part)) >= _MANY for part in parts):
            return "XTN"
    if count > 4 and words[3] and words[4].strip().upper() in codes.idtype and any(map(str.isdigit, words[0])):
        return "CX" if not words[1].strip() or len(words[1].strip()) == 1 else ""
    if count > 6 and words[6].strip() in _NAME_TYPES and not any(map(str.isdigit, "".join(words[:7]))):
        return "XPN" if all(_FAMILY_WORD.fullmatch(read_utf8(word).strip(BLANK)) for word in words[:2]) else ""
    return ""


def _is_address_shape(words: Sequence[str]) -> bool:
    """True for a street with a number, a town, and a postal code or nothing more."""
    street, town = words[0].strip(BLANK), words[2].strip(BLANK)
    if not (_STREET.search(street) and _TOWN.fullmatch(read_utf8(town))):
        return False
    postcode = _component(words, 5)
    if postcode:
        return _POSTCODE.fullmatch(postcode) is not None
    return words[1].strip(BLANK) == "" and not any(word.strip(BLANK) for word in words[5:])


_USES = frozenset({"PRN", "ORN", "WPN", "VHN", "ASN", "EMR", "NET", "BPN", "PRS"})
"""HL7 table 0201."""
_NAME_TYPES = frozenset({"L", "D", "M", "N", "A", "B", "C", "P", "S", "T", "I"})
"""HL7 table 0200."""


def kind_in_address(fields: Sequence[str], at: int) -> Hl7Kind | None:
    """The kind of field ``at`` of a local segment, if it is a town or a postal code around a state of the USA."""
    for state, kind in ((at + 1, Hl7Kind.CITY), (at - 1, Hl7Kind.ZIP)):
        if 1 < state < len(fields) - 1 and _STATE_CODE.fullmatch(fields[state].strip()):
            town, postcode = fields[state - 1].strip(), fields[state + 1].strip()
            if _TOWN.fullmatch(town) and _ZIP.fullmatch(postcode):
                return kind
    return None


_ZIP = re.compile(r"[0-9]{5}(?:-?[0-9]{4})?")
_STREET = re.compile(r"^[0-9]{1,5}[A-Za-z]?[ ,/-][^0-9]{3}|[^\W\d_]{3}[^0-9]{0,30} [0-9]{1,5}[A-Za-z]?\b")
_TOWN = re.compile(r"[^\W\d_](?:[^\W\d_]|[ .'’-]){1,39}")
_POSTCODE = re.compile(
    r"[0-9]{4,6}(?:-[0-9]{3,4})?|[0-9]{3,4} ?[0-9A-Z]{2}|"
    r"[A-Z]{1,2}[0-9][A-Z0-9]? ?[0-9][A-Z]{2}|[A-Z][0-9][A-Z] ?[0-9][A-Z][0-9]"
)
SHORTEST_STAFF_NUMBER, LONGEST_STAFF_NUMBER = 6, 12
_STAFF_NUMBER = re.compile(r"(?=[^0-9]{0,11}[0-9])[^\W_]+(?:-[^\W_]+){0,3}")
_FAMILY_WORD = re.compile(r"[^\W\d_a-z](?:[^\W\d_]|['’\-](?=[^\W\d_])|[ ](?=[^\W\d_a-z])){1,39}")
_NO_GIVEN = frozenset({"local", "other", "unknown", "internal", "custom", "none", "final", "active", "test", "user"})
"""Words in the place of a code system that name a local one."""


def is_staff_number(words: Sequence[str], codes: CodeTable) -> bool:
    """True if the code of a coded value is the number of a person or a thing: six digits, of no public code system."""
    code = words[0].strip(BLANK)
    digits = sum(map(str.isdigit, code))
    if digits < SHORTEST_STAFF_NUMBER or _TIMESTAMP.match(code):
        return False
    named = _component(words, 3)
    fits = (len(code) <= LONGEST_STAFF_NUMBER and code.isalnum()) or _RECORD_NUMBER.fullmatch(code) is not None
    return fits and not (named and codes.is_public_system(named))


def free_text_of_coded(
    words: Sequence[str],
    at: int,
    path: str,
    codes: CodeTable,
    *,
    units: bool = False,
    inner: bool = False,
    skip: Container[int] = (),
) -> list[Fragment]:
    """The components of a coded value that a person wrote: its free text.

    ``words`` are the components; the first begins at character ``at``. The text of a code is free text unless the code
    is one of a public code system, and even then if it has a cue of identity (a date, a telephone number, a title). The
    original text always is. A code is free text if it is prose, or a word of a system that is not public. With
    ``units``, units of measure never are. With ``inner`` (a part of a composite), a long number is text. The components
    with the numbers in ``skip`` are read otherwise.
    """
    numbers = free_components(tuple(words), codes, units, inner)
    if not numbers:
        return []
    found: list[Fragment] = []
    for number, text in enumerate(words, start=1):
        if number in numbers and number not in skip:
            found.append((f"{path}.{number}", (at, at + len(text))))
        at += len(text) + 1
    return found


@lru_cache(maxsize=8192)  # the same tests, units and flags are in every message
def free_components(
    words: tuple[str, ...],
    codes: CodeTable,
    units: bool,
    inner: bool,
) -> tuple[int, ...]:
    """The numbers of the components of a coded value that are free text."""
    words = tuple(map(read_utf8, words))
    found = []
    count = len(words)
    for number, text in enumerate(words, start=1):
        if not text or (number in SYSTEMS_OF_CODED and len(text) <= LONGEST_CODE and not has_identity_cue(text)):
            continue
        system = _SYSTEM_OF.get(number)
        if system is None:
            free = number == _ORIGINAL_TEXT or number > _LAST or len(text) > LONGEST_CODE or has_identity_cue(text)
        else:
            public = system <= count and codes.is_public_system(words[system - 1])
            if number in _CODE_OF_CODED:
                free = is_prose(text) or has_identity_cue(text) or (not public and reads_as_word(text, words, number))
                free = free or (_component(words, system) == "" and is_personal_number(text))
                free = free or (inner and not public and len(text) >= _MANY and text.isdigit())
            elif (
                text == words[number - 2] and text.isupper() and len(text) < _MANY and not reads_as_word(text, words, 1)
            ):
                free = False  # the code is its own text
            else:
                free = not (public and _component(words, _CODE_OF_TEXT[number])) or has_identity_cue(text)
        if (
            free
            and (word := text.strip(BLANK)) != NULL
            and not (units and is_unit(word) and not has_identity_cue(word))
            and not is_reading(word)
        ):
            found.append(number)
    return tuple(found)


def read_utf8(text: str) -> str:
    """UTF-8 that was decoded byte by byte as latin-1, decoded; any other text as it is."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def reads_as_word(code: str, words: Sequence[str], number: int) -> bool:
    """True if a code of a system that is not public is a word of a person and not an abbreviation.

    A word in mixed case is one, and so is a word in capitals that no text explains.
    """
    code = code.strip(BLANK)
    if len(code) < 3 or not code.isalpha():
        return False
    return code.istitle() or (
        len(code) > 4 and code.isupper() and _component(words, number + 1) == "" and len(words) > 1
    )


def _component(words: Sequence[str], number: int) -> str:
    return words[number - 1].strip(BLANK) if number <= len(words) else ""
