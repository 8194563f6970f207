"""Identifiers in values that are usually kept: codes of a sender's own system, and the path of an address.

A code is kept unless it has the form of an identifier. Nobody can distinguish ``GLU`` from initials, so the rules are
about forms that ordinary codes do not have: long numbers, a title before a number, a mail address, listed names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from deid_agent.codec.dates import find_dates, has_date, is_typed_date
from deid_agent.codec.labels import has_identity_cue
from deid_agent.model import Range
from deid_agent.rules import CHECKS, read_terms

_NAMES = ("given-female", "given-male", "family")
_RARE = "family-rare"
_COMMON = ("dictionary/common-word", "lexicon/common", "lexicon/not-name", "dictionary/abbreviation")
_TERMS = (
    "rare-word", "drug", "organism", "device", "gene", "eponym", "city", "city-world", "county", "country", "state",
    "language", "nationality", "profession", "hospital", "hospital-kind", "organization", "organization-kind",
)  # fmt: skip
_UUID = re.compile(r"(?:urn:uuid:)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_DOTTED = re.compile(r"(?:urn:oid:)?[0-9]{1,40}(?:\.[0-9]{1,40})+|[0-9]{1,3}(?:[.,][0-9]+)?")
_PUBLIC_FORM = re.compile(
    r"(?:LA|LP|LL)?[0-9]{1,7}-[0-9]|[0-9]{4,5}-[0-9]{3,4}-[0-9]{1,2}|C[0-9]{7}|P[0-9YMDTHS-]+.*|[A-Z]{4}_[A-Z]{2}[0-9]{6}(?:[A-Z]{2}[0-9]{0,2})?"
)
"""Numbers of LOINC, NDC and UMLS, durations of ISO 8601, and artifacts of HL7 v3."""
_DIGEST = re.compile(r"[A-Za-z0-9+/]{27}=|[A-Za-z0-9+/]{43}=|[0-9a-f]{40}|[0-9a-f]{64}")
_PREFIXED = re.compile(
    r"(?i)(?:dr|doc|md|phys|pract?|prov|staff|emp|npi|mrn|mr|pat|pt|pid|ssn|acct|usr|user|nurse|rn|arzt|lanr)"
    r"(?:[-_.:#/ ]?[0-9]{4,}[A-Za-z]?|[-_:#/][0-9]{3,})"
)
_STREET = re.compile(r"(?<![\w.])[0-9]{1,5} [A-Z][a-z]+ [A-Z][a-z]")
_ACCOUNT = re.compile(r"[^\s@]+@[^\s@]+")
_SEGMENT = re.compile(r"[^/?#&=|:;,]+")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://([^/?#|]*)")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[^\s'\"()=,;]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_DAY = re.compile(
    r"(?:[A-Za-z]{2,12}[/_.-])?(?:19|20)[0-9]{2}-?(?:0[1-9]|1[0-2])(?:-?(?:0[1-9]|[12][0-9]|3[01]))?|[A-Za-z]{2,12}[/_.-](?:19|20)[0-9]{2}(?:[/_.-][0-9]{1,2}){0,2}"
)
_VERSION = re.compile(r"\|[^|/]*\Z")
_RELEASE = re.compile(r"[vV]?[0-9]+(?:[.-][0-9A-Za-z]+)*")
_LONG_NUMBER = re.compile(r"[0-9]{14,17}")
_FEW_LETTERS, _SHORTEST_NAME = 2, 5
_LETTERS_OF_A_NAME = 0.7
_DIGITS_WITH_LETTERS, _DIGITS = 6, 7
"""Digits from which a code is an identifier: with letters, and alone (HCPCS has five, MDC six)."""
_SHORTEST_PART = 4
_CHECK = (
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip
_PRODUCT = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321", "6598710432", "7659821043",
    "8765932104", "9876543210",
)  # fmt: skip
HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://([A-Za-z0-9.-]{1,253})(?=[/:?#|]|\Z)")


@lru_cache(maxsize=8192)
def has_form_of_identifier(code: str) -> bool:
    """True for a code that no vocabulary would have: a long number, a title with a number, a phone, a mail address.

    Identifiers of SNOMED CT (by their check digit), LOINC and NDC, UUIDs, OIDs, outlines (1.2.3) and digests are codes.
    Dates do not count.
    """
    code = _without_dates(code)
    if len(code) < 4 or _UUID.fullmatch(code) or _DOTTED.fullmatch(code) or _DIGEST.fullmatch(code):
        return False
    if _ACCOUNT.fullmatch(code) or has_identity_cue(code):
        return True
    digits = sum(map(str.isdigit, code))
    if digits < 3 or _PUBLIC_FORM.fullmatch(code):
        return False
    if _PREFIXED.fullmatch(code):
        return True
    if code.isdigit():
        return digits >= _DIGITS and not is_snomed_id(code)
    return digits >= _DIGITS_WITH_LETTERS and _DAY.fullmatch(code) is None and ":" not in code and len(code) <= 32


def _without_dates(code: str) -> str:
    """The rest of a code with dates, which move as dates."""
    if not has_date(code):
        return code
    parts, at = [], 0
    for start, end in find_dates(code):
        parts.append(code[at:start])
        at = end
    return "".join((*parts, code[at:]))


def is_snomed_id(code: str) -> bool:
    """True for an identifier of SNOMED CT: 6 to 18 digits, a known partition, a check digit (Verhoeff)."""
    if not (6 <= len(code) <= 18 and code.isascii() and code.isdigit() and code[0] != "0"):
        return False
    if code[-3:-1] not in {"00", "01", "02", "10", "11", "12"}:
        return False
    check = 0
    for place, digit in enumerate(reversed(code)):
        check = int(_PRODUCT[check][int(_CHECK[place % 8][int(digit)])])
    return check == 0


def is_long_number(text: str) -> bool:
    """True for 14 to 17 digits that are no date and no identifier of SNOMED CT; a payment card also if it is both."""
    if _LONG_NUMBER.fullmatch(text) is None or is_typed_date(text):
        return False
    return not is_snomed_id(text) or CHECKS["luhn"](text)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NameReader:
    """Finds names of persons in codes and in addresses; compared by identity.

    ``single`` are listed names that are no other word, ``names`` listed names that are no common word, ``common`` the
    common words, and ``plain`` those of them that nobody is called (not "will").
    """

    single: frozenset[str]
    names: frozenset[str]
    common: frozenset[str]
    plain: frozenset[str] = frozenset()

    @lru_cache(maxsize=4096)  # noqa: B019 - one reader for each process
    def is_person(self, text: str) -> bool:
        """True for one listed name, for names only (``anna-okafor``), and for a name and initials (``okafor.a``)."""
        found = [word.lower() for word in _LETTERS.findall(text)]
        if not found or len(found) > 4 or sum(map(len, found)) < _LETTERS_OF_A_NAME * len(text):
            return False
        if len(found) == 1:
            return found[0] in self.single and len(found[0]) >= _SHORTEST_NAME
        long = [word for word in found if len(word) > 1]
        return any(len(word) > 3 for word in long) and self.names.issuperset(long)

    @lru_cache(maxsize=8192)  # noqa: B019 - one reader for each process
    def is_plain_code(self, value: str) -> bool:
        """True for a code without white space that neither has the form of an identifier nor is a name."""
        return (
            len(value.split(None, 1)) < 2
            and not has_form_of_identifier(value)
            and not self.is_person(value)
            and ("://" not in value or not self.find_persons(value))
        )

    @lru_cache(maxsize=4096)  # noqa: B019 - one reader for each process
    def is_plain_label(self, text: str) -> bool:
        """True for a text or a code without an identifier, a name and a cue of identity. Days are versions."""
        words = _WORDS.findall(text)
        return not (
            has_identity_cue(text)
            or _STREET.search(text) is not None
            or any(has_form_of_identifier(word) and not _DAY.fullmatch(word) for word in words)
            or self.is_person(text)
            or ("://" in text and bool(self.find_persons(text)))
        )

    def has_person(self, text: str) -> bool:
        """As ``is_person``, also for a listed name beside one that no list has (``anna-szczepanska``)."""
        if self.is_person(text):
            return True
        found = [word.lower() for word in _LETTERS.findall(text)]
        return (
            2 <= len(found) <= 4
            and any(word in self.names and len(word) > 3 for word in found)
            and self.common.isdisjoint(found)
            and all(len(word) > _FEW_LETTERS or len(word) == 1 for word in found)
        )

    def find_persons(self, address: str) -> tuple[Range, ...]:
        """The parts of an address that name a person or have the form of an identifier, its host only if it is a name.

        Not for the addresses of standards: they name inventors, and releases by date.
        """
        if _UUID.fullmatch(address) or _DOTTED.fullmatch(address):
            return ()
        version = _VERSION.search(address)
        end = version.start() if version and _RELEASE.fullmatch(version[0][1:]) else len(address)
        host = _AUTHORITY.match(address, 0, end)
        found = [each.span() for each in _SEGMENT.finditer(address, host.end() if host else 0, end)]
        parts = [(first, last) for first, last in found if self._identifies(address[first:last])]
        names = pairwise(host[1].split(".")[:-1]) if host else ()
        if host and ("@" in host[0] or any(self.is_person("-".join(pair)) for pair in names)):
            parts.insert(0, host.span(1))
        return tuple(parts)

    def _identifies(self, segment: str) -> bool:
        text = unquote(segment).replace("+", " ")
        if len(text) < _SHORTEST_PART:
            return False
        stem = text.rpartition(".")[0] if "." in text[-5:] else text
        if has_form_of_identifier(text) or has_form_of_identifier(stem):
            return True
        return self.has_person(_HUMP.sub("-", text))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AddressNames:
    """Finds the parts of an address that identify a person, unless it is that of a standard; compared by identity.

    ``hosts`` are the hosts of standards and registers, ``vocabularies`` the beginnings of their other names.
    """

    people: NameReader
    hosts: frozenset[str]
    vocabularies: tuple[str, ...]

    @lru_cache(maxsize=1024)  # noqa: B019 - one object for each process
    def is_standard(self, address: str) -> bool:
        """True for an address of a standard or of a public register."""
        host = HOST.match(address)
        return address.startswith(self.vocabularies) or (host is not None and is_below(host[1], self.hosts))

    @lru_cache(maxsize=4096)  # noqa: B019 - one object for each process
    def find_persons(self, address: str) -> tuple[Range, ...]:
        """The characters of the parts that identify a person. A canonical URL may be formed of anything."""
        return () if self.is_standard(address) else self.people.find_persons(address)

    def keeps(self, address: str) -> bool:
        """True for the name of a system or of a definition in which no part identifies a person."""
        return address.isascii() and " " not in address and not self.find_persons(address)


def is_below(host: str, names: frozenset[str]) -> bool:
    """True if ``host`` is one of ``names`` or below one."""
    labels = host.lower().split(".")
    return any(".".join(labels[at:]) in names for at in range(len(labels)))


@lru_cache(maxsize=4)
def load_names(rules: Path) -> NameReader:
    """The names of ``rules/dictionary`` that are no other words; empty if the lists are missing."""
    common = _read_all(rules, _COMMON)
    lists = [f"dictionary/{name}" for name in _NAMES]
    names = _read_all(rules, lists) - common
    rare = _read_all(rules, [f"dictionary/{_RARE}"]) - common
    terms = _read_all(rules, [f"dictionary/{name}" for name in _TERMS])
    return NameReader(names - terms, names | rare, common, common - _read_all(rules, lists, ambiguous=True))


def _read_all(rules: Path, names: Iterable[str], *, ambiguous: bool = False) -> frozenset[str]:
    """The terms of all lists. A name that is an ordinary word too is ambiguous: it is no evidence in a code."""
    paths = (rules / f"{name}.txt" for name in names)
    return frozenset[str]().union(*(read_terms(path, ambiguous=ambiguous) for path in paths if path.is_file()))
