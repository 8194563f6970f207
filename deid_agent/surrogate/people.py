"""The people of a document: decides whom a written name names, so that all forms of a name have one surrogate.

Names of patients and relatives are mapped within the patient, names of staff within the person: the surname of one
clinician reveals nothing about another of the same surname. A bare surname, initials, a nickname or a spelling with one
error belong to the person of the document whom they fit. Persons are compared by folded words (``shape.fold``).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from deid_agent.rules import are_nicknames, find_nicknames
from deid_agent.surrogate.lists import SurrogateLists, detect_script
from deid_agent.surrogate.shape import fold, split_words
from deid_agent.surrogate.spelling import SpellingIndex, one_edit_apart

_MOST_COMPARED = 64
"""Persons of one surname in one document that are compared with a name."""
_SHORTEST_GLUED = 7
_BEFORE = re.compile(r"([^\W\d_]+)(?:\.|,|:|\s(?:is|named|called))?\s*[(\"'“]?\Z")
_AFTER = re.compile(r"\s*(?:,|\(|-|–)\s*(?:(?:the|his|her|their|patient['’]s|pt['’]s)\s+)?([^\W\d_]+)")
_BESIDE = 40


@dataclass(frozen=True, slots=True)
class NamedPerson:
    """A person whom a document names. ``sex`` is "female", "male" or "" (unknown).

    ``staff`` are clinicians; all others belong to the patient. ``certain`` is False for a name that was read from a
    text, which may have particles, titles or credentials.
    """

    given: str = field(repr=False)
    family: str = field(repr=False)
    sex: str = field(default="", repr=False)
    staff: bool = False
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope in which surrogates agree: a document, and its patient if known.

    ``reference`` is the message's own date; "3/4" without a year is read near it. ``people`` are the persons whom the
    document names, and ``known`` are its days. ``day_first`` is True if the document writes 3/4 for the third of April;
    None (unknown) reads it as the fourth of March. ``births`` are the days of birth that the message names, and
    ``today`` is the day on which it was written: the age at that day decides how a birth moves.
    """

    document: str = field(repr=False)
    patient: str | None = field(default=None, repr=False)
    reference: date | None = field(default=None, repr=False)
    people: tuple[NamedPerson, ...] = field(default=(), repr=False)
    day_first: bool | None = field(default=None, repr=False)
    known: tuple[date, ...] = field(default=(), repr=False)
    births: frozenset[date] = field(default=frozenset(), repr=False)
    today: date | None = field(default=None, repr=False)

    @property
    def person(self) -> str:
        """The patient, else the document: the scope of the names of patients and relatives."""
        return f"document:{self.document}" if self.patient is None else f"patient:{self.patient}"


@dataclass(frozen=True, slots=True)
class NameWords:
    """The folded words of one written name; ``initials`` are its single letters in order."""

    given: tuple[str, ...] = field(default=(), repr=False)
    family: tuple[str, ...] = field(default=(), repr=False)
    initials: str = field(default="", repr=False)


@dataclass(slots=True, eq=False)
class Identity:
    """One person in all written forms.

    Equal ``domain`` and spelling give equal surrogates. ``given`` and ``family`` map each known spelling to the one
    that is replaced; ``initials`` are the first letters of the given names.
    """

    domain: str = field(repr=False)
    staff: bool = False
    sex: str = field(default="", repr=False)
    given: dict[str, str] = field(default_factory=dict, repr=False)
    family: dict[str, str] = field(default_factory=dict, repr=False)
    initials: str = field(default="", repr=False)

    def spell_given(self, word: str, *, loose: bool) -> str:
        """The spelling of a given name that is replaced: of a nickname or an error, the name of the person."""
        if word in self.given:
            return self.given[word]
        nick = _nick_of(word, self.given)
        return self.given[nick] if nick else self.given.get(_near(word, self.given, loose=loose), word)

    def spell_family(self, word: str, *, loose: bool) -> str:
        """The spelling of a family name that is replaced."""
        return self.family.get(word) or self.family.get(_near(word, self.family, loose=loose), word)


class People:
    """The persons of one document. ``patient`` is the domain of the patient and all relatives.

    A person who is named as a patient or relative and as staff is one identity. Building it is linear in the number of
    persons; finding a name compares it with at most 64 of them.
    """

    def __init__(self, people: Sequence[NamedPerson], lists: SurrogateLists, patient: str) -> None:
        self._lists = lists
        self._patient = patient
        names = [name for person in people for name in (person.given, person.family)]
        self.elided = frozenset(before + core for name in names for before, core in fold_words(name) if before)
        """Names with an apostrophe, without it: obrien for O'Brien."""
        self.lone = self._find_lone_names([person for person in people if person.certain])
        """Names of one word: Le is not a particle if it is one of them."""
        self.given: set[str] = set()
        self.family: set[str] = set()
        self._nicknames: frozenset[str] | None = None
        self._longer = SpellingIndex()
        """Names of four or more letters."""
        self._by_family: dict[str, list[Identity]] = {}
        self._by_given: dict[str, list[Identity]] = {}
        self._all: list[Identity] = []
        self._of: dict[NamedPerson, Identity] = {}
        self._glued: dict[str, tuple[Identity, tuple[str, str], bool]] = {}
        words = self._read_all(people)
        for person, own in sorted(words, key=lambda item: (item[0].staff, not item[1].given)):
            if own.given or own.family:
                self._add(person, own)

    def identity_of(self, person: NamedPerson) -> Identity | None:
        """The identity of a person of the document."""
        return self._of.get(person)

    def glued(self, word: str) -> tuple[Identity, tuple[str, str], bool] | None:
        """The person whose two names are written as one word, both names in order, and True if the family is first."""
        return self._glued.get(word)

    def find(self, name: NameWords, *, staff: bool) -> Identity | None:
        """The person whom ``name`` fits best; None if it fits none. ``staff``: the text names a clinician."""
        best, found = 0, None
        for identity in self._candidates(name):
            score = 2 * self._fit(identity, name)
            if score and score + (identity.staff == staff) > best:
                best, found = score + (identity.staff == staff), identity
        return found

    def unknown(self, name: NameWords, *, staff: bool) -> Identity:
        """An identity for a name that no person of the document has."""
        return Identity(_staff_domain(name) if staff else self._patient, staff)

    def correct_spelling(self, word: str) -> str:
        """The spelling of the document's people if ``word`` is one typing error away from it, else ``word``."""
        if len(word) < 5 or not len(self._longer) or self._is_listed(word):
            return word
        return next((own for own in self._longer.find(word) if len(own) > 4), word)

    def is_given(self, folded: str) -> bool:
        """True for a given name of the document's people, or a nickname of one."""
        if folded in self.given:
            return True
        if self._nicknames is None:
            self._nicknames = frozenset(nick for name in self.given for nick in find_nicknames(name))
        return folded in self._nicknames or not self.given.isdisjoint(find_nicknames(folded))

    def is_elided(self, folded: str) -> bool:
        """True for a name whose first letter is elided: obrien."""
        return folded in self.elided or folded in self._lists.sets["elided"]

    def _is_listed(self, word: str) -> bool:
        known = any(self._lists.has(part, word) for part in ("female", "male", "family"))
        return known or word in self.given or word in self.family

    def _find_lone_names(self, people: Sequence[NamedPerson]) -> frozenset[str]:
        """Family names of one word, and given names that are also particles: Del, or Von of the given names Von Ray.

        So is the last given name of a field with a capital letter: Van of Larry Van Moen.
        """
        families = {fold(person.family) for person in people if len(split_words(person.family)) == 1}
        named = [(person, split_words(person.given)) for person in people]
        givens = {fold(words[0].text) for person, words in named if len(words) == 1 or (words and person.certain)}
        givens |= {
            fold(words[-1].text) for person, words in named if person.certain and words and words[-1].text[0].isupper()
        }
        return frozenset((families - self._lists.sets["baby"]) | (givens & self._lists.sets["particles"]))

    def _read_all(self, people: Sequence[NamedPerson]) -> list[tuple[NamedPerson, NameWords]]:
        """All persons with their words: "Mr. Maldonado Ortiz" has no given name if both are family names of a field."""
        words = [(person, self._read(person)) for person in people]
        given = {word for person, own in words if person.certain for word in own.given}
        family = {word for person, own in words if person.certain for word in own.family} - given
        for n, (person, own) in enumerate(words):
            if not person.certain and not family.isdisjoint(own.given):
                moved = tuple(word for word in own.given if word in family)
                rest = tuple(word for word in own.given if word not in family)
                words[n] = person, NameWords(rest, moved + own.family, own.initials)
        return words

    def _read(self, person: NamedPerson) -> NameWords:
        given = tuple(
            core if before or not self.is_elided(core) else core[1:] for before, core in fold_words(person.given)
        )
        family = tuple(
            core if before or not self.is_elided(core) else core[1:] for before, core in fold_words(person.family)
        )
        letters = [fold(word.text)[:1] for word in split_words(person.given) if not detect_script(word.text)]
        return NameWords(given, family, "".join(letters))

    def _add(self, person: NamedPerson, own: NameWords) -> None:
        identity = self._find_same(person, own)
        if identity is None:
            sets = self._lists.sets
            affixes = sets["particles"] | sets["suffixes"] | sets["titles"]
            core = tuple(word for word in own.family if word not in affixes) or own.family
            key = NameWords(own.given, core, own.initials)
            identity = Identity(_staff_domain(key) if person.staff else self._patient, person.staff, person.sex)
            self._all.append(identity)
        self._of[person] = identity
        identity.sex = identity.sex or person.sex
        identity.initials += "".join(letter for letter in own.initials if letter not in identity.initials)
        for words, table, index, known in (
            (own.given, identity.given, self._by_given, self.given),
            (own.family, identity.family, self._by_family, self.family),
        ):
            spell = identity.spell_given if table is identity.given else identity.spell_family
            fresh = {
                word: word if self._is_listed(word) else spell(word, loose=True) for word in words if word not in table
            }
            if table is identity.given:
                fresh |= {word: spell(word, loose=False) for word in fresh if _nick_of(word, table) is not None}
            table.update(fresh)
            for word in words:
                known.add(word)
                if len(word) > 3:
                    self._longer.add(word)
                if word in fresh:
                    index.setdefault(word, []).append(identity)
        self._add_glued(identity, own)

    def _add_glued(self, identity: Identity, own: NameWords) -> None:
        if not own.given or not own.family:
            return
        first, last = own.given[0], "".join(own.family)
        for word, order, reverse in ((last + first, (last, first), True), (first + last, (first, last), False)):
            if len(word) >= _SHORTEST_GLUED or not word.isascii():
                self._glued.setdefault(word, (identity, order, reverse))

    def _find_same(self, person: NamedPerson, own: NameWords) -> Identity | None:
        """The identity that another form of this person's name has."""
        index = self._by_family if own.family else self._by_given
        for word in own.family or own.given:
            for other in index.get(word, ())[:_MOST_COMPARED]:
                if person.sex and other.sex and person.sex != other.sex:
                    continue
                same = other.staff == person.staff
                if own.given and own.given[0] in other.given and (same or set(own.family) <= other.family.keys()):
                    return other
                if same and own.given and _nick_of(own.given[0], other.given) is not None:
                    return other
                if same and not own.given and (not own.initials or own.initials[0] in other.initials):
                    return other
                listed = own.given and any(self._lists.has(part, own.given[0]) for part in ("female", "male"))
                if same and own.given and not listed and _near(own.given[0], other.given, loose=True):
                    return other
        return None

    def _candidates(self, name: NameWords) -> Iterable[Identity]:
        """The identities that share a word with ``name``, exactly or with one typing error, each once."""
        found: dict[int, Identity] = {}
        words = [(word, self._by_family) for word in name.family] + [(word, self._by_given) for word in name.given]
        for word, index in words:
            for near in (word, *self._longer.find(word)):
                for identity in index.get(near, ())[:_MOST_COMPARED]:
                    found[id(identity)] = identity
        if not name.family:  # nicknames and initials share no word with the person
            for identity in self._all[:_MOST_COMPARED]:
                found[id(identity)] = identity
        return found.values()

    def _fit(self, identity: Identity, name: NameWords) -> int:
        """How well the name fits the person; 0: not at all."""
        exact = any(word in identity.given for word in name.given)
        family = 0
        if name.family:
            if any(word in identity.family for word in name.family):
                family = 4
            elif any(self._is_misspelt(word, identity.family, loose=exact) for word in name.family):
                family = 2
            else:
                return 0
        if name.given:
            given = 4 if exact else self._fit_given(identity, name.given, loose=family == 4, family=family > 0)
            return family + given if given else 0
        if name.initials and name.family:
            return family + 1 if not identity.initials or name.initials[0] in identity.initials else 0
        own = identity.initials + "".join(word[0] for word in identity.family)
        return family + int(len(name.initials) > 1 and all(letter in own for letter in name.initials))

    def _fit_given(self, identity: Identity, given: Sequence[str], *, loose: bool, family: bool) -> int:
        """How well given names fit that are not exactly those of the person."""
        if _nick_of(given[0], identity.given) is not None:
            return 3
        if any(self._is_misspelt(word, identity.given, loose=loose) for word in given):
            return 2
        return int(not identity.given and family and (not identity.initials or given[0][0] in identity.initials))

    def _is_misspelt(self, word: str, known: Mapping[str, str], *, loose: bool) -> bool:
        return (loose or not self._is_listed(word)) and bool(_near(word, known, loose=loose))


def _staff_domain(name: NameWords) -> str:
    """The domain of a clinician: by family name and first given name, else by what is written."""
    first = name.given[0] if name.given else name.initials if not name.family else name.initials[:1]
    return f"staff:{''.join(name.family)} {first}"


def _nick_of(word: str, known: Collection[str]) -> str | None:
    """The known name of which ``word`` is a nickname, or the other way round; None if they are too many to compare."""
    if len(known) > _MOST_COMPARED:
        return None
    return next((own for own in known if are_nicknames(own, word)), None)


def _near(word: str, known: Collection[str], *, loose: bool) -> str:
    """The known word that is one typing error away; empty if there is none, or if they are too many to compare.

    ``loose`` accepts words of four letters.
    """
    if len(word) < (4 if loose else 5) or len(known) > _MOST_COMPARED:
        return ""
    return next((own for own in known if own[0] == word[0] and len(own) > 3 and one_edit_apart(own, word)), "")


@lru_cache(maxsize=8192)
def fold_words(name: str) -> tuple[tuple[str, str], ...]:
    """The words of a name in order, folded, as an elided letter (or an empty text) and the rest; no single letters."""
    kept = (word.text for word in split_words(name) if len(word.text) > 1 or detect_script(word.text))
    words = ((fold(before), fold(core)) for before, core, _ in map(split_affixes, kept))
    return tuple((before, core) for before, core in words if core)


def split_affixes(word: str) -> tuple[str, str, str]:
    """Split a word into a prefix with its apostrophe (O'Brien, d'Angelo), the name, and a possessive ending."""
    start = 2 if len(word) > 2 and word[1] in "'’ʻʼ`" and word[0] in "OoDdLlMmNn" else 0
    end = len(word) - 2 if len(word) > start + 2 and word[-2] in "'’" and word[-1] in "sS" else len(word)
    return word[:start], word[start:end], word[end:]


def fold_neighbours(text: str, start: int, end: int) -> frozenset[str]:
    """The folded words beside ``text[start:end]`` that may be a title or kinship: "mother Ada", "Ada, his wife"."""
    found = (_BEFORE.search(text[max(0, start - _BESIDE) : start]), _AFTER.match(text, end, end + _BESIDE))
    return frozenset(fold(match[1]) for match in found if match)
