"""How one value is read: its PHI type, from its form, the rule of its field and its neighbors.

Measurements: HL7 v2.8.2 chapter 7.4.2.5 to 7.4.2.7 (OBX-5, -6, -7). Coded values: chapter 2A.2.12 (CWE) and 2A.2.6
(CNE); CE and CF are the first six components of those.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.hl7v2.structure import BLANK
from deid_agent.codec.hl7v2.table import CodeTable, Composite, Hl7Kind, Hl7Rule
from deid_agent.codec.labels import SHORTEST_CUE, Labels, has_identity_cue
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
_STATE, _FLAG, _ANSWER = Hl7Kind.STATE, Hl7Kind.FLAG, Hl7Kind.ANSWER
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
            r"(?=.{0,11}[0-9])(?=.{0,11}[A-Z])(?!(?:[^0-9]*[0-9]){5})[A-Z0-9._-]{1,12}|HL7-?[0-9]{4}|99[A-Z0-9]{1,8}"
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
STATES = r"A[LKZR]|C[AOT]|D[EC]|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EAINSOT]|N[EVHJMYCD]|O[HKR]|RI|S[CD]|T[NX]|UT|V[TA]|W[AVIY]"
TOWN_AND_STATE = re.compile(
    r"(?P<town>[A-Z](?:[A-Z]{2,}|[a-z]{2,})(?:[ .'-]{1,2}[A-Z][A-Za-z]+){0,3}), ?"
    rf"(?P<state>{STATES})(?: +(?P<zip>[0-9]{{5}}(?:-[0-9]{{4}})?))?"
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
FEW = 5
_UNIT_WORD = re.compile(r"[^\s0-9]\S{0,19}|[0-9][0-9.*^]{0,4}\S{0,15}")
_FIVE_DIGITS = re.compile(r"[0-9]{5}")


_SHORTEST_PERSONAL_NUMBER = 8
_PERSONAL_NUMBER = re.compile(
    r"[2-9][0-9]{2}[2-9][0-9]{6}|[A-Z]{1,3}[0-9]{8,12}(?:-[0-9]{1,3})?|[0-9]{3}-[0-9]{2}-[0-9]{4}|"
    r"[1-9][A-Z][A-Z0-9][0-9]-?[A-Z][A-Z0-9][0-9]-?[A-Z]{2}[0-9]{2}"
)
"""A telephone number, the number of an insured person, an SSN or a Medicare number in place of a code."""


def is_personal_number(text: str) -> bool:
    """Whether a code is the number of a person by its form."""
    return len(text) > _SHORTEST_PERSONAL_NUMBER and _PERSONAL_NUMBER.fullmatch(text.strip(BLANK)) is not None


def is_kept(kind: Hl7Kind, text: str) -> bool:
    """True if ``text`` has the form of its kind (a short room, a code, a number), so that it may be kept."""
    if (form := _KEPT_FORMS.get(kind)) is not None:
        fits = form.fullmatch(text.strip(BLANK)) is not None
        fits = fits and not (kind is _NUMBER and is_personal_number(text))
    elif kind is _CODE:
        fits = not is_prose(text) and not is_personal_number(text)
    else:
        fits = len(text) <= (LONGEST_ROOM if kind is _ROOM else LONGEST_CODE)
    return fits and (len(text) < SHORTEST_CUE or not has_identity_cue(text))


def unexpected_kind(kind: Hl7Kind, value: str, labels: Labels) -> Hl7Kind:
    """The kind of a value that does not have the form of its component: a number, a name, a town or text."""
    if value.isalpha():  # one word is neither a number nor a full name
        return kind
    digits = sum(map(str.isdigit, value))
    if kind is _STATE:
        return Hl7Kind.CITY if digits or "@" in value or (" " in value and not labels.is_state(value)) else kind
    if kind in _LIKE_CONTACT and reads_as_contact(value):
        return Hl7Kind.PHONE  # a number in the component of its country code or its use
    if kind in _LIKE_FLAG and "@" not in value and digits >= FEW and digits * 2 > len(value):
        return _ID
    is_person = "@" not in value and labels.reads_as_person(value) and labels.of_text(value) is None
    return Hl7Kind.NAME if is_person else kind


def is_surely_kept(kind: Hl7Kind, text: str) -> bool:
    """True if alphanumeric ``text`` is kept as a code (``CODE``, ``CODED``), ``FLAG``, ``ANSWER`` or ``NUMBER``."""
    if not text.isascii() or len(text) > LONGEST_CODE or is_personal_number(text):
        return False
    if kind is _FLAG:
        return len(text) <= 3
    if kind is _ANSWER:
        return len(text) <= 3 and text == text.upper()
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
    return measured or not alone or (not found["range"] and sum(c.isdigit() for c in text) < FEW)


def is_range(text: str) -> bool:
    """True for a reference range of figures alone: two of them, or one with a comparator or a unit."""
    return is_measure(text) or (is_measure(text, measured=True) and not text.strip().isdigit())


def is_unit(text: str) -> bool:
    """True for the content of a unit field that reads as a unit: one short word, or up to five without capitals."""
    words = text.split()
    if (
        not words
        or len(words) > FEW
        or _FIVE_DIGITS.search(text)
        or not all(_UNIT_WORD.fullmatch(word) for word in words)
    ):
        return False
    return len(words) == 1 or not any(word[0].isupper() for word in words)
