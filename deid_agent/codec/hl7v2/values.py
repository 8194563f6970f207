"""One value of a known kind to a ``Site``: its PHI type, from the value, its field's rule and its neighbours."""

import re
from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.hl7v2.table import Codes, Leaf, Rule
from deid_agent.codec.hl7v2.wire import BLANK
from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.sites import Kind, Subject

_TYPES = MappingProxyType(
    {
        Leaf.STREET: PhiType.STREET,
        Leaf.CITY: PhiType.CITY,
        Leaf.STATE: PhiType.STATE,
        Leaf.ZIP: PhiType.ZIP,
        Leaf.COUNTRY: PhiType.COUNTRY,
        Leaf.PLACE: PhiType.LOCATION_OTHER,
        Leaf.DATE: PhiType.DATE,
        Leaf.HOSPITAL: PhiType.HOSPITAL,
        Leaf.ROOM: PhiType.HOSPITAL,
    }
)
_KINDS = MappingProxyType({Leaf.FAMILY: Kind.FAMILY, Leaf.GIVEN: Kind.GIVEN, Leaf.NAME: Kind.NAME})
# Asking an enumeration for a member is slow; these are asked for with every value.
_NUMBER, _CODE, _ROOM, _ID, _IDTYPE, _AUTHORITY = (
    Leaf.NUMBER, Leaf.CODE, Leaf.ROOM, Leaf.ID, Leaf.IDTYPE, Leaf.AUTHORITY,
)  # fmt: skip
_DAY, _DOCTOR, _PATIENT, _PROVIDER, _VALUE = (
    PhiType.DATE, PhiType.DOCTOR, PhiType.PATIENT, Subject.PROVIDER, Kind.VALUE,
)  # fmt: skip
_OF_PROVIDERS = frozenset({PhiType.LICENSE, PhiType.SSN})
_GENERIC = frozenset({PhiType.IDNUM, PhiType.MEDICALRECORD})
_HINTS = frozenset({Leaf.IDTYPE, Leaf.AUTHORITY, Leaf.EQUIPMENT, Leaf.USE})
_FIGURES = re.compile(r"(?:[ -@\[-`{-~]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])){1,32}")
TOWN = re.compile(
    r"(?P<town>[A-Z](?:[A-Z]{2,}|[a-z]{2,})(?:[ .'-]{1,2}[A-Z][A-Za-z]+){0,3}), ?"
    r"(?P<state>A[LKZR]|C[AOT]|D[EC]|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EAINSOT]|N[EVHJMYCD]|O[HKR]|RI|S[CD]|T[NX]|UT|V[TA]|"
    r"W[AVIY])(?: +(?P<zip>[0-9]{5}(?:-[0-9]{4})?))?"
)
"""A town and a state of the USA as a whole value. Not MD and PA: those are doctors more often."""
ROOM = 6
"""A room, bed or floor up to so many characters says nothing about a person and is kept."""
NULL = '""'
LONGEST_CODE = 199
"""No code of any table is longer; what is, is read as text."""


def is_kept(leaf: Leaf, text: str) -> bool:
    """True where a value of a kind that is kept is short enough, code or number enough, to be one."""
    if leaf is _NUMBER:
        return _FIGURES.fullmatch(text) is not None
    if leaf is _CODE:
        return not is_prose(text)
    return len(text) <= (ROOM if leaf is _ROOM else LONGEST_CODE)


def placeholder(type_: PhiType) -> str:
    """What a redacted value of a required field becomes."""
    return "1900" if type_ is _DAY else "REDACTED"


def is_local(system: str) -> bool:
    """True where a coded value names no code system, or its sender's own (HL7 table 0396: L, 99xxx)."""
    system = system.strip(BLANK).upper()
    return system in {"", NULL, "L", "LOCAL"} or system.startswith("99")


def is_plain(leaf: Leaf, text: str) -> bool:
    """True where a letters-and-digits ``text`` is surely kept as a code (``CODE``, ``CODED``) or as a ``NUMBER``."""
    if not text.isascii() or len(text) > LONGEST_CODE:
        return False
    return leaf is not _NUMBER or (text.isdigit() and len(text) <= 32)


def is_prose(text: str) -> bool:
    """True for what no code of a table looks like: white space inside, letters beyond ASCII, or too long."""
    return " " in text.strip(BLANK) or not text.isascii() or len(text) > LONGEST_CODE


@lru_cache(maxsize=512)
def hint_parts(part: tuple[Leaf | tuple[Leaf, ...], ...]) -> tuple[tuple[int, Leaf], ...]:
    """Which parts of a composite tell what its other parts are; the surest first."""
    found = ((i, p) for i, p in enumerate(part) if isinstance(p, Leaf) and p in _HINTS)
    order = (Leaf.IDTYPE, Leaf.AUTHORITY, Leaf.EQUIPMENT, Leaf.USE)
    return tuple(sorted(found, key=lambda item: order.index(item[1])))


def hint(leaf: Leaf, words: Sequence[str], codes: Codes) -> PhiType | None:
    """What a neighbour says: an identifier type code, an authority (its namespace or its OID), an equipment type."""
    known = codes.idtype if leaf is _IDTYPE else codes.authority if leaf is _AUTHORITY else codes.equipment
    return next((known[word] for word in words if word in known), None)


def classify(leaf: Leaf, value: str, rule: Rule, told: PhiType | None) -> tuple[PhiType, Kind]:
    """PHI type and kind of a value that is not kept."""
    if (type_ := _TYPES.get(leaf)) is not None:
        return type_, _VALUE
    if leaf is _ID and rule.person and told is None and _reads_as_name(value):
        leaf = Leaf.NAME  # senders without a provider directory put the name where the number belongs
    if (kind := _KINDS.get(leaf)) is not None:
        return (_DOCTOR if rule.subject is _PROVIDER else _PATIENT), kind
    if leaf is _ID:
        return _identifier(rule, told), _VALUE
    if leaf is Leaf.REDACT:
        return rule.type or PhiType.IDNUM, Kind.REDACT
    if leaf is Leaf.ORGANIZATION:
        return _of(rule, PhiCategory.LOCATION) or PhiType.ORGANIZATION, _VALUE
    return _contact(leaf, value, told), _VALUE


def _identifier(rule: Rule, told: PhiType | None) -> PhiType:
    """A field that holds one sort of identifier only is believed over the code beside the value."""
    if rule.subject is _PROVIDER and told not in _OF_PROVIDERS:
        told = None
    named = _of(rule, PhiCategory.ID)
    return named if named and named not in _GENERIC else told or named or PhiType.IDNUM


def _reads_as_name(value: str) -> bool:
    return any(c in value.strip() for c in " ,") and not any(c.isdigit() for c in value)


def _of(rule: Rule, category: PhiCategory) -> PhiType | None:
    return rule.type if rule.type and CATEGORY[rule.type] is category else None


def reads_as_contact(value: str) -> bool:
    """True for what can be dialled, mailed or opened; words in a telephone field are text."""
    digits = sum(c.isdigit() for c in value)
    return digits * 2 >= len(value) or digits >= 5 or "@" in value or "://" in value or value[:4].lower() == "www."


def _contact(leaf: Leaf, value: str, told: PhiType | None) -> PhiType:
    if "@" in value:
        return PhiType.EMAIL
    if "://" in value or value[:4].lower() == "www.":
        return PhiType.URL
    if told is PhiType.FAX or (told and leaf is Leaf.EMAIL):
        return told
    return PhiType.PHONE
