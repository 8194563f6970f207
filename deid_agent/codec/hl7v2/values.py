"""How one value is read: its PHI type, from its form, the rule of its field and its neighbors.

Measurements: HL7 v2.8.2 chapter 7.4.2.5 to 7.4.2.7 (OBX-5, -6, -7). Coded values: chapter 2A.2.12 (CWE) and 2A.2.6
(CNE); CE and CF are the first six components of those.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.hl7v2.structure import BLANK, NULL, Fragment, Separators, split_text
from deid_agent.codec.hl7v2.table import CodeTable, Composite, Hl7Kind, Hl7Rule
from deid_agent.codec.labels import SHORTEST_CUE, Labels, has_identity_cue, is_reading
from deid_agent.model import (
    CATEGORY,
    DateKind,
    PhiCategory,
    PhiType,
    Subject,
    ValueKind,
)

DATE_KINDS: Mapping[Hl7Kind, DateKind] = MappingProxyType(
    {
        Hl7Kind.DATE: DateKind.EVENT,
        Hl7Kind.BIRTH: DateKind.BIRTH,
        Hl7Kind.STAMP: DateKind.TECHNICAL,
        Hl7Kind.PUBLIC: DateKind.PUBLIC,
    }
)
"""The kinds of values that are dates."""
_TYPES = MappingProxyType(
    {
        Hl7Kind.STREET: PhiType.STREET,
        Hl7Kind.CITY: PhiType.CITY,
        Hl7Kind.STATE: PhiType.STATE,
        Hl7Kind.ZIP: PhiType.ZIP,
        Hl7Kind.COUNTRY: PhiType.COUNTRY,
        Hl7Kind.PLACE: PhiType.LOCATION_OTHER,
        **dict.fromkeys(DATE_KINDS, PhiType.DATE),
        Hl7Kind.HOSPITAL: PhiType.HOSPITAL,
        Hl7Kind.ROOM: PhiType.HOSPITAL,
    }
)
_FORMS = MappingProxyType(
    {
        Hl7Kind.FAMILY: ValueKind.FAMILY,
        Hl7Kind.GIVEN: ValueKind.GIVEN,
        Hl7Kind.AFFIX: ValueKind.GIVEN,
        Hl7Kind.NAME: ValueKind.NAME,
    }
)
# A lookup of an enumeration member is slow, and these are needed for every value.
_NUMBER, _CODE, _ROOM, _ID, _IDTYPE, _AUTHORITY = (
    Hl7Kind.NUMBER, Hl7Kind.CODE, Hl7Kind.ROOM, Hl7Kind.ID, Hl7Kind.IDTYPE, Hl7Kind.AUTHORITY,
)  # fmt: skip
_DAY, _DOCTOR, _PATIENT, _PROVIDER, _VALUE = (
    PhiType.DATE, PhiType.DOCTOR, PhiType.PATIENT, Subject.PROVIDER, ValueKind.VALUE,
)  # fmt: skip
_STATE, _FLAG = Hl7Kind.STATE, Hl7Kind.FLAG
_LIKE_CONTACT = frozenset({Hl7Kind.DIAL, Hl7Kind.USE, Hl7Kind.EQUIPMENT})
_LIKE_FLAG = frozenset({Hl7Kind.FLAG, Hl7Kind.IDTYPE, Hl7Kind.AUTHORITY})
UNEXPECTED = _LIKE_CONTACT | _LIKE_FLAG | {_STATE}
"""Kinds whose values may have another form than the component expects."""
_PROVIDER_TYPES = frozenset({PhiType.LICENSE, PhiType.SSN})
_GENERIC_TYPES = frozenset({PhiType.IDNUM, PhiType.MEDICALRECORD})
_HINTS = (Hl7Kind.IDTYPE, Hl7Kind.AUTHORITY, Hl7Kind.EQUIPMENT, Hl7Kind.USE)
"""Components that refine the type of the others; the most reliable first."""
_FIGURES = re.compile(r"(?:[ -@\[-`{-~]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])){1,32}")
_KEPT_FORMS = MappingProxyType(
    {
        Hl7Kind.NUMBER: _FIGURES,
        Hl7Kind.FLAG: re.compile(
            r"[A-Z0-9./-]{1,4}|[A-Z]{5}|[A-Za-z0-9]{1,3}|\W{1,5}|"
            r"(?=.{0,11}[0-9])(?=.{0,11}[A-Z])[A-Z0-9._-]{1,12}"
        ),
        Hl7Kind.IDTYPE: re.compile(r"[A-Za-z0-9_./-]{1,6}|[A-Za-z_./ -]{1,40}"),
        Hl7Kind.AUTHORITY: re.compile(r"(?![0-9]{7,}$)\S{1,199}"),
        Hl7Kind.AFFIX: re.compile(
            r"[^\W\d_]{1,3}\.?|(?:[^\W\d_]{1,5}[., ]{1,2}){1,4}(?:[^\W\d_]{1,4}\.?)?|"
            r"[A-Z]{1,5}(?:[-/ ,]{1,2}[A-Z]{1,5}){0,3}|"
            r"(?i:prof|professor|doctor|miss|mister|madam|sister|father|rev|reverend|hon|capt|captain|frau|herr|senora?|"
            r"junior|senior|2nd|3rd|4th|pharmd?|nurse|rabbi|imam|pastor|dame|lady|lord|hons?|b\.?sc\.?|m\.?sc\.?)[. ]?",
        ),
        Hl7Kind.DIAL: re.compile(r"\+?[0-9]{1,4}"),
        Hl7Kind.USE: re.compile(r"[A-Za-z]{1,4}"),
        Hl7Kind.EQUIPMENT: re.compile(
            r"(?i:[A-Z]{1,4}|internet|x\.400|e-?mail|phone|telephone|mobile|cell|pager|beeper)"
        ),
    }
)
_STATES = (
    r"A[LKZR]|C[AOT]|D[EC]|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EAINSOT]|N[EVHJMYCD]|O[HKR]|RI|S[CD]|T[NX]|UT|V[TA]|W[AVIY]"
)
_STATE_CODE = re.compile(rf"{_STATES}|MD|PA|PR")
TOWN_AND_STATE = re.compile(
    r"(?P<town>[A-Z](?:[A-Z]{2,}|[a-z]{2,})(?:[ .'-]{1,2}[A-Z][A-Za-z]+){0,3}), ?"
    rf"(?P<state>{_STATES})(?: +(?P<zip>[0-9]{{5}}(?:-[0-9]{{4}})?))?"
)
"""A town and a state of the USA as a whole value. MD and PA are excluded: more often they are titles of a person."""
LONGEST_ROOM = 6
"""A room, bed or floor of at most this many characters identifies no person and is kept."""
LONGEST_CODE = 199
"""No code of any table is longer. A longer value is read as text."""

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
_UNIT_WORD = re.compile(r"[^\s0-9]\S{0,19}|[0-9][0-9.*^]{0,4}\S{0,15}")
_FIVE_DIGITS = re.compile(r"[0-9]{5}")

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


_SHORTEST_PERSONAL_NUMBER = 8
_PERSONAL_NUMBER = re.compile(
    r"[2-9][0-9]{2}[2-9][0-9]{6}|[A-Z]{1,3}[0-9]{8,12}(?:-[0-9]{1,3})?|[0-9]{3}-[0-9]{2}-[0-9]{4}|"
    r"[1-9][A-Z][A-Z0-9][0-9]-?[A-Z][A-Z0-9][0-9]-?[A-Z]{2}[0-9]{2}"
)
"""A telephone number, the number of an insured person, an SSN or a Medicare number in place of a code."""


def _is_personal_number(text: str) -> bool:
    return len(text) > _SHORTEST_PERSONAL_NUMBER and _PERSONAL_NUMBER.fullmatch(text.strip(BLANK)) is not None


_TIMESTAMP = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[0-9]{4}){0,2}(?![0-9])")
_RECORD_NUMBER = re.compile(r"[A-Z]{0,4}-?[0-9]{6,15}|[0-9]{2,4}-[0-9]{5,9}")


def is_kept(kind: Hl7Kind, text: str) -> bool:
    """True if ``text`` has the form of its kind (a short room, a code, a number), so that it may be kept."""
    if (form := _KEPT_FORMS.get(kind)) is not None:
        fits = form.fullmatch(text.strip(BLANK)) is not None
        fits = fits and not (kind is _NUMBER and _is_personal_number(text))
    elif kind is _CODE:
        fits = not is_prose(text) and not _is_personal_number(text)
    else:
        fits = len(text) <= (LONGEST_ROOM if kind is _ROOM else LONGEST_CODE)
    return fits and (len(text) < SHORTEST_CUE or not has_identity_cue(text))


is_short_kept = lru_cache(maxsize=8192)(is_kept)
"""``is_kept`` for a short value. Flags, types and assigning authorities are the same in every message."""


def unexpected_kind(kind: Hl7Kind, value: str, labels: Labels) -> Hl7Kind:
    """The kind of a value that does not have the form of its component: a number, a name, a town or text."""
    if value.isalpha():  # one word is neither a number nor a full name
        return kind
    digits = sum(map(str.isdigit, value))
    if kind is _STATE:
        return Hl7Kind.CITY if digits or "@" in value or (" " in value and not labels.is_state(value)) else kind
    if kind in _LIKE_CONTACT and reads_as_contact(value):
        return Hl7Kind.PHONE  # a number in the component of its country code or its use
    if kind in _LIKE_FLAG and "@" not in value and digits >= _FEW and digits * 2 > len(value):
        return _ID
    is_person = "@" not in value and labels.reads_as_person(value) and labels.of_text(value) is None
    return Hl7Kind.NAME if is_person else kind


def is_surely_kept(kind: Hl7Kind, text: str) -> bool:
    """True if alphanumeric ``text`` is kept as a code (``CODE``, ``CODED``), ``FLAG`` or ``NUMBER`` in any case."""
    if not text.isascii() or len(text) > LONGEST_CODE or _is_personal_number(text):
        return False
    if kind is _FLAG:
        return len(text) <= 3
    return kind is not _NUMBER or (text.isdigit() and len(text) <= 32)


def placeholder_for(type_: PhiType) -> str:
    """The value that replaces a redacted value of a required field."""
    return "1900" if type_ is _DAY else "REDACTED"


def is_prose(text: str) -> bool:
    """True for text that cannot be a code: inner white space, letters beyond ASCII, or more than ``LONGEST_CODE``."""
    return " " in text.strip(BLANK) or not text.isascii() or len(text) > LONGEST_CODE


@lru_cache(maxsize=512)
def hint_components(layout: Composite) -> tuple[tuple[int, Hl7Kind], ...]:
    """Index and kind of the components that refine the type of the others; the most reliable first."""
    found = ((i, kind) for i, kind in enumerate(layout) if isinstance(kind, Hl7Kind) and kind in _HINTS)
    return tuple(sorted(found, key=lambda item: _HINTS.index(item[1])))


def hinted_type(kind: Hl7Kind, words: Sequence[str], codes: CodeTable) -> PhiType | None:
    """The PHI type named by an identifier type code, an authority (its namespace or OID) or an equipment type."""
    known = codes.idtype if kind is _IDTYPE else codes.authority if kind is _AUTHORITY else codes.equipment
    return next((known[word] for word in words if word in known), None)


def classify_value(kind: Hl7Kind, value: str, rule: Hl7Rule, hinted: PhiType | None) -> tuple[PhiType, ValueKind]:
    """PHI type and form of a value that is not kept; ``hinted`` is the type that its neighbors name."""
    if (type_ := _TYPES.get(kind)) is not None:
        return type_, _VALUE
    if kind is _ID and rule.person and hinted is None and _reads_as_name(value):
        kind = Hl7Kind.NAME  # senders without a provider directory write the name in place of the number
    if (form := _FORMS.get(kind)) is not None:
        return (_DOCTOR if rule.subject is _PROVIDER else _PATIENT), form
    if kind is _ID:
        return _identifier_type(rule, hinted), _VALUE
    if kind is Hl7Kind.REDACT:
        return rule.type or PhiType.IDNUM, ValueKind.REDACT
    if kind is Hl7Kind.ORGANIZATION:
        return _rule_type(rule, PhiCategory.LOCATION) or PhiType.ORGANIZATION, _VALUE
    return _contact_type(kind, value, hinted), _VALUE


def _identifier_type(rule: Hl7Rule, hinted: PhiType | None) -> PhiType:
    """A rule for one specific sort of identifier takes precedence over the code beside the value."""
    if rule.subject is _PROVIDER and hinted not in _PROVIDER_TYPES:
        hinted = None
    named = _rule_type(rule, PhiCategory.ID)
    return named if named and named not in _GENERIC_TYPES else hinted or named or PhiType.IDNUM


def _reads_as_name(value: str) -> bool:
    value = value.strip()
    return (" " in value or "," in value) and not any(map(str.isdigit, value))


def _rule_type(rule: Hl7Rule, category: PhiCategory) -> PhiType | None:
    return rule.type if rule.type and CATEGORY[rule.type] is category else None


def reads_as_contact(value: str) -> bool:
    """True for a telephone number, a mail address or a URL; words in a telephone field are text."""
    digits = sum(map(str.isdigit, value))
    return digits * 2 >= len(value) or digits >= 5 or "@" in value or "://" in value or value[:4].lower() == "www."


def _contact_type(kind: Hl7Kind, value: str, hinted: PhiType | None) -> PhiType:
    if "@" in value:
        return PhiType.EMAIL
    if "://" in value or value[:4].lower() == "www.":
        return PhiType.URL
    if hinted is PhiType.FAX or (hinted and kind is Hl7Kind.EMAIL):
        return hinted
    return PhiType.PHONE


def is_measure(text: str, *, measured: bool = False) -> bool:
    """True for a measurement: one figure or a range of two, optionally with a comparator or a unit.

    A single figure of five or more digits (a postal code has five), and a range that may be a telephone number,
    need a comparator, a unit, or ``measured``: the neighbors of the value name its unit or its reference range.
    Without those a six-digit figure may be somebody's number. Eight digits that form a date are no measurement.
    """
    text = text.strip(" ")
    found = _MEASURE.fullmatch(text)
    if found is None or _CALENDAR.search(text):
        return False
    alone = not found["sign"] and not found["unit"]
    return measured or not alone or (not found["range"] and sum(c.isdigit() for c in text) < _FEW)


def is_range(text: str) -> bool:
    """True for a reference range of figures alone: two of them, or one with a comparator or a unit."""
    return is_measure(text) or (is_measure(text, measured=True) and not text.strip().isdigit())


def is_unit(text: str) -> bool:
    """True for the content of a unit field that reads as a unit: one short word, or up to five without capitals."""
    words = text.split()
    if (
        not words
        or len(words) > _FEW
        or _FIVE_DIGITS.search(text)
        or not all(_UNIT_WORD.fullmatch(word) for word in words)
    ):
        return False
    return len(words) == 1 or not any(word[0].isupper() for word in words)


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
    return mixed or len(given) >= _FEW


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
    words: Sequence[str], at: int, path: str, codes: CodeTable, *, units: bool = False, inner: bool = False
) -> list[Fragment]:
    """The components of a coded value that a person wrote: its free text.

    ``words`` are the components; the first begins at character ``at``. The text of a code is free text unless the code
    is one of a public code system, and even then if it has a cue of identity (a date, a telephone number, a title). The
    original text always is. A code is free text if it is prose, or a word of a system that is not public. With
    ``units``, units of measure never are. With ``inner`` (a part of a composite), a long number is text.
    """
    numbers = _free_components(tuple(words), codes, units, inner)
    if not numbers:
        return []
    found: list[Fragment] = []
    for number, text in enumerate(words, start=1):
        if number in numbers:
            found.append((f"{path}.{number}", (at, at + len(text))))
        at += len(text) + 1
    return found


@lru_cache(maxsize=64)
def coded_field_check(marks: Separators, codes: CodeTable) -> Callable[[str, bool], bool]:
    """A function of a coded field (of units, if its second argument is true) that is true if it has no free text."""

    @lru_cache(maxsize=8192)  # one string as the key: a field that is mostly the same costs one lookup
    def has_no_text(text: str, units: bool) -> bool:
        repetitions = filter(None, split_text(text, marks.repetition))
        coded = (tuple(split_text(each, marks.component)) for each in repetitions)
        if marks.subcomponent and marks.subcomponent in text and _has_inner_person(text, marks, codes):
            return False
        return not any(_free_components(words, codes, units, False) for words in coded)

    return has_no_text


def _has_inner_person(text: str, marks: Separators, codes: CodeTable) -> bool:
    return any(
        is_person_shape(split_text(each, marks.subcomponent), codes, coded=True)
        for each in split_text(text, marks.repetition)
    )


@lru_cache(maxsize=8192)  # the same tests, units and flags are in every message
def _free_components(
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
                free = free or (_component(words, system) == "" and _is_personal_number(text))
                free = free or (inner and not public and len(text) >= _MANY and text.isdigit())
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
