"""One code, type or word as a name, a town or an identifier, by the lists and forms of ``rules/hl7/codes.toml``.

A code that no public code system names is a few capitals, digits, or a word of the clinic. A listed name that is no
such word, two names side by side, and the form of a licence are none of these.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from deid_agent.codec.codes import is_long_number
from deid_agent.codec.dates import is_typed_date
from deid_agent.codec.hl7v2.shapes import read_utf8
from deid_agent.codec.hl7v2.structure import BLANK
from deid_agent.codec.hl7v2.table import CodeTable, Hl7Kind
from deid_agent.codec.hl7v2.values import is_kept
from deid_agent.model import ConfigurationError, fold_accents
from deid_agent.rules import load_toml, read_terms

_SHORTEST_NAME = 3
LONGEST_NAME = 40
_CAPITALS = 4
"""Letters of the shortest word in capitals that is read as a name; fewer are an abbreviation."""
_MANY = 6
"""Digits of an answer that is an identifier, and letters of the longest type of an identifier."""
_DAY = 8
_SHORT_ANSWER = re.compile(r"[A-Z0-9]{1,3}|[a-z]{1,2}|[0-9]{1,4}|[A-Z]{2,4}_[A-Z]{2,4}|CD:[0-9]{1,12}|\W{1,5}")
"""Also the internal number of a code, as a large vendor writes it."""
_CAPITAL_WORD = re.compile(r"(?=.{0,20}[AEIOUY])[A-Z]{5,40}")
_WORD = re.compile(r"[^\W\d_]+(?:['’`-][^\W\d_]+)*")
_PARTS = re.compile(r"[^\W\d_]+")
_PARTICLES = frozenset(
    {"de", "del", "della", "di", "da", "dos", "la", "le", "van", "von", "den", "der", "el", "al", "bin", "st"}
)
_LONG = 7
"""Digits of a number that is no code of a table."""
_VERY_LONG = 9
"""Digits of a number that is no name of a system."""
_NUMBER = re.compile(r"(?!HL7)[A-Z]{0,4}-?[0-9]{2,12}-?[A-Z0-9]{0,9}")
_PLATE = re.compile(r"([A-Z]{3})[- ]?[0-9]{4}|([A-Z]{2}) [0-9]{4} [A-Z]")
_SERIAL = re.compile(r"[A-Z]{1,4}-[0-9]{3,8}-[A-Z]{1,4}[0-9]{2,8}")
"""A number in place of the name of a system."""
_FILE = "codes.toml"
_FLAG = Hl7Kind.FLAG
_UNNAMED = frozenset({Hl7Kind.NUMBER, Hl7Kind.ROOM, Hl7Kind.AFFIX})
"""Kinds of which no value that fits is a name."""
_NAMED_AFTER = frozenset({Hl7Kind.KEEP, Hl7Kind.AUTHORITY})


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CodeWords:
    """The vocabulary of codes; immutable, compared by identity. The answers to the last values are cached."""

    systems: CodeTable
    identifier: re.Pattern[str]
    prefixes: frozenset[str]
    words: frozenset[str]
    units: frozenset[str]
    answers: frozenset[str]
    people: frozenset[str]
    surnames: frozenset[str]
    places: frozenset[str]
    eponyms: frozenset[str]
    organizations: frozenset[str]
    published: frozenset[str]

    @lru_cache(maxsize=8192)  # noqa: B019 - one vocabulary for each process
    def kind_of_code(  # noqa: PLR0911 - one arm for each form
        self, code: str, tabled: bool
    ) -> Hl7Kind | None:
        """The kind of a code of no public code system that names or numbers a person; None for any other code.

        In a field for the codes of an administrative table (``tabled``) also a town, and a word in mixed case that no
        list has: there are no clinical words in it.
        """
        code = read_utf8(code).strip(BLANK)
        if not _SHORTEST_NAME <= len(code) <= LONGEST_NAME:
            return None
        if self.is_identifier(code):
            return Hl7Kind.ID
        if not _WORD.fullmatch(code) or code.islower():
            return None
        parts = lower_parts(code)
        if not self.words.isdisjoint(parts):
            return None
        capitals = code.isupper()
        # A rare surname in capitals may be an abbreviation of the clinic.
        people = self.surnames if tabled or not capitals else self.people
        listed = not people.isdisjoint(parts) and (not capitals or len(code) >= _CAPITALS)
        if listed and (tabled or (self.places.isdisjoint(parts) and self.eponyms.isdisjoint(parts))):
            return Hl7Kind.NAME
        if not tabled or len(code) < _CAPITALS:
            return None
        if not self.places.isdisjoint(parts):
            return Hl7Kind.CITY
        return Hl7Kind.NAME if code.istitle() and code.isascii() else None

    def is_abbreviation(self, text: str) -> bool:
        """True for two to four capitals that are a word of the vocabulary or no listed name."""
        if not (1 < len(text) <= _CAPITALS and text.isascii() and text.isalpha() and text.isupper()):
            return False
        word = text.lower()
        return word in self.words or word not in self.surnames

    def is_common_word(self, text: str) -> bool:
        """True for a word in small letters that is in the vocabulary and no name."""
        return text.isalpha() and text.islower() and text in self.words and text not in self.surnames

    def is_identifier(self, code: str) -> bool:
        """True for the form of an identifier (a licence, a DEA number) that does not begin like a local code."""
        if self.identifier.fullmatch(code) is None:
            return False
        return code.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ").rstrip("0123456789-") not in self.prefixes

    @lru_cache(maxsize=8192)  # noqa: B019
    def kind_of_part(  # noqa: PLR0911 - one arm for each form
        self, kind: Hl7Kind, text: str
    ) -> Hl7Kind | None:
        """The kind of a kept component (a flag, a type, an authority) that names or numbers a person; None if none.

        The names of authorities and of systems are often those of towns and of founders.
        """
        strict = kind not in _NAMED_AFTER
        text = text.strip(BLANK)
        if " " in text:
            return Hl7Kind.NAME if self._is_full_name(read_utf8(text), strict) else None
        digits = sum(map(str.isdigit, text))
        if digits == len(text) and (digits >= _VERY_LONG or (digits >= _LONG and not is_typed_date(text))):
            return Hl7Kind.ID
        if kind is Hl7Kind.KEEP and _SERIAL.fullmatch(text):
            return Hl7Kind.ID
        if strict and digits > _CAPITALS and _NUMBER.fullmatch(text) and not is_typed_date(text):
            return Hl7Kind.ID
        found = self.kind_of_code(text, strict)
        if found is Hl7Kind.ID and not strict and "-" in text:
            return None
        if (
            found is None
            and strict
            and _CAPITAL_WORD.fullmatch(text)
            and (kind is not Hl7Kind.IDTYPE or len(text) > _MANY)
            and text.lower() not in self.words
        ):
            return Hl7Kind.NAME if text not in self.prefixes else None
        if found is Hl7Kind.NAME and not strict and not self.organizations.isdisjoint(lower_parts(text)):
            return None
        return found

    def kind_of_word(self, text: str, strict: bool, tabled: bool, local: bool) -> Hl7Kind | None:
        """The kind of a whole text that is a name; None for any other, which recognizers read.

        ``strict`` is true in a component without free text, ``local`` in a segment of a site.
        """
        text = text.strip(BLANK)
        if len(text) > LONGEST_NAME:
            return None
        if local and (is_long_number(text) or self._is_plate(text)):
            return Hl7Kind.ID
        if " " in text:
            return Hl7Kind.NAME if self.is_person_text(text, strict or tabled or local) else None
        if not text.replace("-", "").replace("'", "").isalpha():
            return None
        found = self.kind_of_part(_FLAG, text) if strict else self.kind_of_code(text, tabled)
        if found is None and local and len(text) >= _CAPITALS and not text.islower():
            parts = lower_parts(text)
            known = self.words.isdisjoint(parts) and self.eponyms.isdisjoint(parts)
            found = Hl7Kind.NAME if known and not self.surnames.isdisjoint(parts) else None
        return found

    def _is_plate(self, text: str) -> bool:
        """True for the form of a licence plate that does not begin like a local code: ``KJE-1726``, ``QX 7712 B``."""
        found = _PLATE.fullmatch(text)
        letters = (found[1] or found[2]) if found is not None else ""
        return letters != "" and letters not in self.prefixes and letters.lower() not in self.words

    def _is_full_name(self, text: str, strict: bool) -> bool:
        """True for two to four names, of which one (in the name of a system: each) is listed, or is no common word."""
        words = text.replace(",", " ").split()
        if not 2 <= len(words) <= 4 or not all(is_affix(word) or is_name_form(word) for word in words):
            return False
        words = [word for word in words if not is_affix(word) and word.casefold() not in _PARTICLES]
        if not words or any(not self.organizations.isdisjoint(lower_parts(word)) for word in words):
            return False
        listed = [self._is_listed(word) for word in words]
        if not strict:
            parts = [part for word in words for part in lower_parts(word)]
            # BARRETT, ESOPHAGUS: with a clinical word, or an eponym alone, it is a term
            named = any(
                found and self.eponyms.isdisjoint(lower_parts(word)) for word, found in zip(words, listed, strict=True)
            )
            return len(words) > 1 and (all(listed) or ("," in text and named and self.words.isdisjoint(parts)))
        if any(not self.words.isdisjoint(lower_parts(word)) for word in words):
            return "," in text and any(listed)
        if any(word.isupper() and len(word) <= _CAPITALS for word in words) and not text.isupper():
            return False  # the name of a system and an abbreviation
        return any(listed) or not text.isupper() or all(len(word) > _CAPITALS for word in words)

    def is_person_text(self, text: str, strict: bool) -> bool:
        """True for a full name of which every word is listed, or (``strict``) in which no word is a common one."""
        if " " not in text or len(text) > LONGEST_NAME:
            return False
        text = read_utf8(text)
        if strict or "," in text:
            return self._is_full_name(text, strict)
        parts = [part for word in text.split() if not is_affix(word) for part in lower_parts(word)]
        return (
            self._is_full_name(text, True)
            and len(parts) > 1
            and all(part in self.surnames or part in _PARTICLES for part in parts)
            and self.eponyms.isdisjoint(parts)
        )

    def _is_listed(self, word: str) -> bool:
        """True if a part of ``word`` is a listed name and none is a word of the vocabulary."""
        parts = lower_parts(word)
        return self.words.isdisjoint(parts) and not self.people.isdisjoint(parts)

    @lru_cache(maxsize=2048)  # noqa: B019
    def kind_of_answer(self, text: str) -> Hl7Kind | None:
        """The kind of a value for an indicator or a sex; None if it is one: a short code, or words of ``answers``."""
        text = read_utf8(text).strip(BLANK)
        digits = sum(map(str.isdigit, text))
        if _SHORT_ANSWER.fullmatch(text) or (digits == 0 and self.answers.issuperset(lower_parts(text))):
            return None
        if is_typed_date(text) and len(text) >= _DAY:
            return Hl7Kind.DATE
        return Hl7Kind.ID if digits >= _MANY and digits * 2 > len(text) else Hl7Kind.REDACT

    def read_as(self, kind: Hl7Kind, text: str, tabled: bool = False) -> Hl7Kind | None:
        """The kind as which a value of a kind that is mostly kept is read; None if it is kept."""
        if not is_kept(kind, text):
            return kind
        if len(text) < _SHORTEST_NAME or kind in _UNNAMED:
            return None
        return self.kind_of_code(text, tabled) if kind is Hl7Kind.CODE else self.kind_of_part(kind, text)


@lru_cache(maxsize=64)
def kept_value_reader(words: CodeWords) -> Callable[[Hl7Kind, str, bool], Hl7Kind | None]:
    """``CodeWords.read_as`` for short values. Flags, types and assigning authorities are the same in every message."""
    return lru_cache(maxsize=8192)(words.read_as)


def is_name_form(word: str) -> bool:
    """True for a word of at least three letters that begins with a capital, also one with a hyphen or apostrophe."""
    return len(word) >= _SHORTEST_NAME and word[0].isupper() and _WORD.fullmatch(word) is not None


def lower_parts(word: str) -> list[str]:
    """The words of ``word`` as the lists have them: in lower case and without accents."""
    return [fold_accents(part) for part in _PARTS.findall(word)]


def is_affix(word: str) -> bool:
    """True for nothing or an initial."""
    return len(word.strip(BLANK).rstrip(".")) <= 1


def load_code_words(rules: Path, systems: CodeTable) -> CodeWords:
    """The vocabulary of ``rules/hl7/codes.toml``. Raises ``ConfigurationError`` that names the file and the key."""
    path = rules / "hl7" / _FILE
    data = load_toml(path)
    keys = (
        "identifier",
        "prefixes",
        "words",
        "units",
        "answers",
        "people",
        "surnames",
        "places",
        "vocabulary",
        "eponyms",
        "organizations",
        "published",
    )
    if problem := set(data) ^ set(keys) or {k for k in keys if not isinstance(data[k], str)}:
        raise ConfigurationError(f"{path}: {min(problem)}: the keys are {', '.join(keys)}, each a string")
    texts = {key: str(data[key]) for key in keys}
    try:
        identifier = re.compile(texts["identifier"])
    except re.error as problem:
        raise ConfigurationError(f"{path}: identifier: {problem}") from None

    def listed(key: str) -> frozenset[str]:
        return frozenset().union(*(read_terms(rules / "dictionary" / f"{name}.txt") for name in texts[key].split()))

    return CodeWords(
        systems=systems,
        identifier=identifier,
        prefixes=frozenset(texts["prefixes"].split()),
        words=listed("vocabulary") | frozenset(texts["words"].split()),
        units=frozenset(texts["units"].split()),
        answers=frozenset(texts["answers"].split()),
        people=listed("people"),
        surnames=listed("people") | listed("surnames"),
        places=listed("places"),
        eponyms=listed("eponyms"),
        published=frozenset(texts["published"].split()),
        organizations=frozenset(word for term in listed("organizations") for word in term.split()),
    )
