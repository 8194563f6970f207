"""Persons, towns and identifiers that senders wrote into a coded value (CWE), or in place of one.

A family and a given name in place of a code and its text, a full name as a text, or a code that ``codes`` reads as a
name, a town or an identifier. The components of coded values: HL7 v2.8.2 chapter 2A.2.12.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import MappingProxyType

from deid_agent.codec.hl7v2.codes import LONGEST_NAME, CodeWords, is_affix, is_name_form, lower_parts
from deid_agent.codec.hl7v2.shapes import free_components, is_person_shape, read_utf8, shape_of_stranger
from deid_agent.codec.hl7v2.structure import BLANK, NULL, Separators, split_text
from deid_agent.codec.hl7v2.table import Hl7Kind, Layout
from deid_agent.model import fold_accents

_TEXTS = frozenset({2, 5, 9, 11})
_SYSTEM_OF_CODE = MappingProxyType({1: 3, 4: 6, 10: 12})
_LONG_NUMBER = 6
"""Digits of a number in place of a unit that is an identifier."""
_FLAG, _KEEP = Hl7Kind.FLAG, Hl7Kind.KEEP
Misplaced = tuple[int, Hl7Kind]
"""The number of a component, and the kind as which it is read."""


@lru_cache(maxsize=64)
def coded_field_check(marks: Separators, words: CodeWords) -> Callable[[str, Layout, bool], bool]:
    """A function of a coded field, its layout and ``tabled`` that is true if it has no free text and no person."""
    codes = words.systems

    @lru_cache(maxsize=8192)  # a field that is mostly the same costs one lookup
    def has_no_text(text: str, layout: Layout, tabled: bool) -> bool:
        units = layout is Hl7Kind.UNIT
        inner = marks.subcomponent if marks.subcomponent in text else ""
        for each in filter(None, split_text(text, marks.repetition)):
            parts = tuple(split_text(each, marks.component))
            if free_components(parts, codes, units, False):
                return False
            if inner and is_person_shape(each.split(inner), codes, coded=True):
                return False
            if layout is not Hl7Kind.LABEL and find_misplaced(words, parts, tabled, units):
                return False
            if len(parts) > 2 and (is_person_shape(parts, codes, coded=True) or shape_of_stranger(parts, codes)):
                return False
        return True

    return has_no_text


@lru_cache(maxsize=8192)
def find_misplaced(
    lists: CodeWords, words: tuple[str, ...], tabled: bool, units: bool, inner: bool = False
) -> tuple[Misplaced, ...]:
    """The components ``words`` of a coded value that name or number a person, with their kinds.

    With ``inner``, the value is a component of a person, an address or an identifier.
    """
    if person := find_person(lists, words, units):
        return person
    found = []
    for number, text in enumerate(words, start=1):
        if (text := text.strip(BLANK)) in {"", NULL}:
            continue
        if " " in text or number in _TEXTS:
            explained = number in _TEXTS and _is_explained(lists, words, number)
            if not explained and lists.is_person_text(text, inner or tabled):
                found.append((number, Hl7Kind.NAME))
            continue
        system = _SYSTEM_OF_CODE.get(number)
        if system is None:
            public = lists.systems.is_public_system(text)
            kind = None if public else lists.kind_of_part(_FLAG if inner else _KEEP, text)
            if kind is not None and (inner or kind is Hl7Kind.NAME):
                found.append((number, kind))
            continue
        named = words[system - 1].strip(BLANK) if system <= len(words) else ""
        if lists.systems.is_public_system(named):
            continue
        if inner:
            kind = lists.kind_of_part(_FLAG, text)
        else:
            kind = _kind_of_unit(lists, text) if units else lists.kind_of_code(text, tabled)
        # The number of a local code that a text explains is that of a thing in a list of the site.
        explained = number < len(words) and words[number].strip(BLANK) != ""
        if kind is Hl7Kind.ID and (named or explained) and not tabled and not units:
            continue
        if kind is not None:
            found.append((number, kind))
    return tuple(found)


def _is_explained(lists: CodeWords, words: tuple[str, ...], number: int) -> bool:
    """True for the text of a code of a public system."""
    system = _SYSTEM_OF_CODE.get(number - 1, 0)
    return 0 < system <= len(words) and lists.systems.is_public_system(words[system - 1].strip(BLANK))


@lru_cache(maxsize=8192)
def find_person(  # noqa: PLR0911 - each test excludes another sort of code
    lists: CodeWords, words: tuple[str, ...], units: bool
) -> tuple[Misplaced, ...]:
    """The components of a family and a given name in place of a code and its text, and initials after them.

    Also those of a login of such a name before them: ``tgraves^Graves^Tobias``.
    """
    if login := find_login(words):
        return login
    if len(words) < 2 or any(len(word) > LONGEST_NAME for word in words[:2]):
        return ()
    rest = words[2:]
    if any(not is_affix(word) for word in rest[:1]) or (rest and lists.systems.is_public_system(rest[0])):
        return ()
    family, given = (read_utf8(word).strip(BLANK) for word in words[:2])
    if not (is_name_form(family) and is_name_form(given)):
        return ()
    low, other = fold_accents(family), fold_accents(given)
    if low.startswith(other) or other.startswith(low) or (units and (low in lists.units or other in lists.units)):
        return ()
    if not lists.eponyms.isdisjoint(lower_parts(family)) and not lists.people & {other}:
        return ()
    known = [_is_surname(lists, each) for each in (family, given)]
    common = [not lists.words.isdisjoint(lower_parts(each)) for each in (family, given)]
    if not any(known) or (common[1] and not (known[0] and _is_listed_anyway(lists, given))):
        return ()
    if common[0] and not (known[1] and _is_listed_anyway(lists, family)):
        return ()
    found = [(1, Hl7Kind.FAMILY), (2, Hl7Kind.GIVEN)]
    if rest and rest[0].strip(BLANK):
        found.append((3, Hl7Kind.GIVEN))
    return tuple(found)


def find_login(words: Sequence[str]) -> tuple[Misplaced, ...]:
    """The components of a login, and the family and the given name that it is built from."""
    if len(words) < 3 or not (is_name_form(words[1]) and is_name_form(words[2])):
        return ()
    if not words[0].islower() or words[0] != words[2][0].lower() + words[1].lower():
        return ()
    return ((1, Hl7Kind.ID), (2, Hl7Kind.FAMILY), (3, Hl7Kind.GIVEN))


def _kind_of_unit(lists: CodeWords, text: str) -> Hl7Kind | None:
    if text.casefold() in lists.units:
        return None
    if len(text) >= _LONG_NUMBER and text.isdigit() and text.strip("0") not in {"", "1"}:
        return Hl7Kind.ID
    found = lists.kind_of_code(text, False)
    if found is None and text.istitle() and text.casefold() in lists.places and text.casefold() not in lists.words:
        return Hl7Kind.CITY
    return found


def _is_surname(lists: CodeWords, word: str) -> bool:
    parts = lower_parts(word)
    return lists.words.isdisjoint(parts) and not lists.surnames.isdisjoint(parts)


def _is_listed_anyway(lists: CodeWords, word: str) -> bool:
    return not lists.people.isdisjoint(lower_parts(word))
