"""Names of people, replaced in any written form.

A name is replaced word by word, so order, commas, quotes, hyphens, case and line breaks are kept. Given and family
names are mapped separately and independent of their position: "Okafor, Ada" and "Mr. Okafor" agree. Every surrogate
begins with the keyed image of the original's first letter. There is one permutation of letters for the patient with all
relatives and one for each clinician, never one for a feed. So "A.O." and "A. Okafor" agree with both. An elided letter
stays (O'Brien, d'Angelo) and the rest is mapped, so OBRIEN and "O Brien" agree with it: in the whole feed for the names
in the list ``elided``, for other names if the message's own people have the apostrophe.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from deid_agent.model import ValueKind
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.lists import ANY, SITE, SurrogateLists, detect_script, replace_script_word
from deid_agent.surrogate.people import Identity, NamedPerson, NameWords, People, split_affixes
from deid_agent.surrogate.shape import Word, fold, match_case, split_words

_LETTERS = "BCDEFGHJKLMNPRST"  # enough names begin with each; A would be read as an article
_ENOUGH = 5
_GIVEN_PARTICLES = frozenset({"del", "della"})  # given names, too, that the lists of surrogates do not have
_TYPIST = re.compile(r"[b-df-hj-np-tv-xz]{3}")  # RA/plk: initials of author and typist


class NameRole(Enum):
    """The part of a name that a word is."""

    KEEP = "keep"
    GIVEN = "given"
    FAMILY = "family"
    INITIALS = "initials"


@dataclass(frozen=True, slots=True)
class Namer:
    """Replaces the names of one document. ``clinician``: the values are typed as names of staff."""

    key: KeyedHash = field(repr=False)
    lists: SurrogateLists = field(repr=False)
    people: People = field(repr=False)
    clinician: bool = False

    def replace_name(self, value: str, kind: ValueKind, person: NamedPerson | None = None) -> str:
        """``value`` with every word replaced that names a person. It differs from ``value`` if that has a letter.

        ``person`` is the person of the document whose name it is, if the caller knows.
        """
        words = split_words(value)
        if not words:
            return value
        roles = self._roles(value, words, kind)
        if all(role is NameRole.KEEP for role in roles):
            roles = [NameRole.FAMILY] * len(words)
        whole = len(words) == 1 and kind not in (ValueKind.FAMILY, ValueKind.GIVEN)
        who, loose = self._identify(words, roles, person)
        out: list[str] = []
        at = 0
        for word, role in zip(words, roles, strict=True):
            out += (value[at : word.start], self._replace_word(word.text, role, who, loose=loose, whole=whole))
            at = word.start + len(word.text)
        return "".join([*out, value[at:]])

    def read_person(self, value: str) -> NamedPerson:
        """Given and family names of a name as it is written, without titles, particles and credentials."""
        words = split_words(value)
        roles = self._roles(value, words, ValueKind.NAME)
        parts = {
            role: " ".join(
                split_affixes(w.text)[0] + split_affixes(w.text)[1]
                for w, r in zip(words, roles, strict=True)
                if r is role
            )
            for role in (NameRole.GIVEN, NameRole.FAMILY, NameRole.INITIALS)
        }
        given = f"{parts[NameRole.GIVEN]} {parts[NameRole.INITIALS]}".strip()
        return NamedPerson(given, parts[NameRole.FAMILY], self._sex_by_title(words), self.clinician, certain=False)

    def _sex_by_title(self, words: Sequence[Word]) -> str:
        title = fold(words[0].text) if words else ""
        return next((sex for sex in ("female", "male") if title in self.lists.sets[f"{sex}_words"]), "")

    def _identify(
        self, words: Sequence[Word], roles: Sequence[NameRole], person: NamedPerson | None
    ) -> tuple[Identity, bool]:
        """The person whom the value names, and True if one of its words is exactly a name of that person."""
        if person is not None and (known := self.people.identity_of(person)):
            return known, True
        parts: dict[NameRole, list[str]] = {role: [] for role in NameRole}
        for word, role in zip(words, roles, strict=True):
            parts[role].append(fold(self._split_elision(word.text)[1] if role is not NameRole.INITIALS else word.text))
        given, family = (tuple(filter(None, parts[role])) for role in (NameRole.GIVEN, NameRole.FAMILY))
        name = NameWords(given, family, "".join(parts[NameRole.INITIALS]))
        glued = next(filter(None, map(self.people.glued, (*family, *given))), None)
        who = glued[0] if glued else None
        who = who or self.people.find(name, staff=self.clinician) or self.people.unknown(name, staff=self.clinician)
        return who, any(w in who.given or w in who.family for w in (*given, *family))

    def _split_elision(self, word: str) -> tuple[str, str, str]:
        """As ``split_affixes``. The first letter of OBRIEN is a prefix like that of O'Brien."""
        before, core, after = split_affixes(word)
        if not before and self.people.is_elided(fold(core)):
            return core[:1], core[1:], after
        return before, core, after

    def _roles(self, value: str, words: Sequence[Word], kind: ValueKind) -> list[NameRole]:
        fixed = [self._role_by_form(value, words, n, kind) for n in range(len(words))]
        open_words = [n for n, role in enumerate(fixed) if role is None]
        comma = value.find(",")
        after = [n for n in open_words if words[n].start > comma] if comma > 0 else []
        initials = any(role is NameRole.INITIALS and words[n].start > comma for n, role in enumerate(fixed))
        reversed_form = comma > 0 and bool(after or initials)
        roles: list[NameRole] = []
        for n, role in enumerate(fixed):
            if role is not None:
                roles.append(role)
            elif kind is ValueKind.FAMILY or kind is ValueKind.GIVEN:
                roles.append(NameRole.FAMILY if kind is ValueKind.FAMILY else NameRole.GIVEN)
            elif reversed_form:
                known = self._known_role(
                    fold(self._split_elision(words[n].text)[1])
                )  # a name of the next line may follow
                roles.append(known or (NameRole.FAMILY if words[n].start < comma else NameRole.GIVEN))
            elif words[n].joined and n and fixed[n - 1] is None:  # one name with the word before the hyphen
                roles.append(roles[-1])
            else:
                roles.append(self._role_by_position(words, open_words, n))
        return roles

    def _role_by_form(self, value: str, words: Sequence[Word], n: int, kind: ValueKind) -> NameRole | None:
        """The role of a word by its form; None if its position decides."""
        if self._is_affix(value, words, n, kind):
            return NameRole.KEEP
        word, folded = words[n].text, fold(words[n].text)
        if len(word) == 1 and n + 1 < len(words) and value[words[n].start + 1 : words[n + 1].start] == " ":
            if word in "Óó":  # Ó Súilleabháin
                return NameRole.KEEP
            following = split_affixes(words[n + 1].text)[1]
            if self.people.is_elided(folded + fold(following)):  # O Brien
                return NameRole.KEEP
        letters = len(word) == 1 and detect_script(word) is None
        short = _looks_like_initials(word) or (self.clinician and _TYPIST.fullmatch(word) is not None)
        if letters or (len(words) == 1 and short and not self._is_listed(folded)):
            return NameRole.INITIALS
        return None

    def _is_affix(self, value: str, words: Sequence[Word], n: int, kind: ValueKind) -> bool:
        """True for titles, suffixes, credentials and particles. They are kept only beside a word that is a name."""
        word, folded, count = words[n].text, fold(words[n].text), len(words)
        sets = self.lists.sets
        if count == 1 or folded in self.people.lone:
            return False
        if folded in sets["baby"] or (n == 0 and folded in sets["titles"] and not self._is_given(folded)):
            return True
        if n > 0 and (folded in sets["suffixes"] or self._is_credential(word, value[: words[n].start])):
            return True
        if len(word) == 1 and word.isupper():  # the E of "Ada E. Okafor" is no "e" as in "Costa e Silva"
            return False
        if folded not in sets["particles"] or n + 1 == count or _comma_between(value, words[n], words[n + 1]):
            return False
        in_family = kind is ValueKind.FAMILY or "," in value[words[n].start :]
        given = folded in _GIVEN_PARTICLES or self._is_given(folded)
        return word.islower() or n > 0 or in_family or folded in self.people.family or not given

    def _is_credential(self, word: str, before: str) -> bool:
        if word in self.lists.sets["credentials"]:
            return True
        weak = word in self.lists.sets["weak_credentials"]
        return weak and ("," in before or not before.isupper())

    def _role_by_position(self, words: Sequence[Word], open_words: Sequence[int], n: int) -> NameRole:
        """The role of a word by its position in a name without a comma."""
        folded, whole = fold(words[n].text), fold("".join(split_affixes(words[n].text)[:2]))
        given, family = self._is_given(folded), self._is_family(folded) or self.people.is_elided(whole)
        first = open_words[0]
        last = next(m for m in reversed(open_words) if not words[m].joined or m == first)
        known = self._known_role(fold(self._split_elision(words[n].text)[1]))
        if known is not None:
            return known
        if (
            first == last
        ):  # "J. Okafor", "Mr. Okafor"; a single name is a surname for clinicians, a first name for patients
            beside = any(not words[m].joined for m in range(len(words)) if m != n)
            is_family = beside or self.clinician or (family and not given)
        elif detect_script(words[first].text) in ("han", "hangul", "kana") or self._family_first(words, first, last):
            is_family = n == first
        else:
            is_family = n == last or (n != first and not words[n].quoted and family and not given)
        return NameRole.FAMILY if is_family else NameRole.GIVEN

    def _family_first(self, words: Sequence[Word], first: int, last: int) -> bool:
        head, tail = fold(words[first].text), fold(words[last].text)
        return self._is_family(head) and not self._is_given(head) and self._is_given(tail) and not self._is_family(tail)

    def _known_role(self, folded: str) -> NameRole | None:
        """The role of a word among the message's own people; None if it is none or both of given and family name."""
        folded = self.people.correct_spelling(folded)
        given, family = self.people.is_given(folded), folded in self.people.family
        if given == family:
            return None
        return NameRole.GIVEN if given else NameRole.FAMILY

    def _is_given(self, folded: str) -> bool:
        return self.lists.has("female", folded) or self.lists.has("male", folded)

    def _is_family(self, folded: str) -> bool:
        return self.lists.has("family", folded)

    def _is_listed(self, folded: str) -> bool:
        return (
            self._is_given(folded)
            or self._is_family(folded)
            or folded in self.people.given
            or folded in self.people.family
        )

    def _replace_word(self, word: str, role: NameRole, who: Identity, *, loose: bool, whole: bool) -> str:
        script = detect_script(word)
        if role is NameRole.KEEP:
            return word
        if script is not None:
            part = "whole" if whole else "family" if role is NameRole.FAMILY else "given"
            return replace_script_word(self.key, self.lists, who.domain, script, word, part, who.sex)
        if role is NameRole.INITIALS:
            return "".join(match_case(c, self._map_letter(c, who)) if c.isalpha() else c for c in word)
        before, core, after = self._split_elision(word)
        folded = fold(core)
        if not folded or not folded[0].isalpha():
            return before + match_case(core, self._map_letter("", who)) + after
        if (
            (glued := self.people.glued(folded))
            and len(core) == len(folded)
            and folded not in who.given.keys() | who.family.keys()
        ):
            return before + self._replace_glued(core, *glued) + after
        is_family = role is NameRole.FAMILY
        if (folded in who.family) != (folded in who.given):
            is_family = folded in who.family
        folded = who.spell_family(folded, loose=loose) if is_family else who.spell_given(folded, loose=loose)
        return before + match_case(core, self._draw(folded, who, is_family=is_family)) + after

    def _replace_glued(self, word: str, who: Identity, names: tuple[str, str], family_first: bool) -> str:
        """Two names without a space: PAPADOPOULOSKYRIAKI, PapadopoulosKyriaki."""
        at = len(names[0])
        cut = (word[:at], word[at:])
        drawn = (self._draw(name, who, is_family=family_first == (n == 0)) for n, name in enumerate(names))
        return "".join(match_case(part, name) for part, name in zip(cut, drawn, strict=True))

    def _draw(self, folded: str, who: Identity, *, is_family: bool) -> str:
        part = "family" if is_family else who.sex or self._gender(folded, who)
        origins = (self.lists.origin_of.get((each, folded)) for each in (part, "female", "male"))
        origin = next(filter(None, origins if not is_family else list(origins)[:1]), "en")
        return draw_name(self.key, self.lists, who.domain, part, origin, folded)

    def _map_letter(self, letter: str, who: Identity) -> str:
        """The surrogate of a first letter, a capital."""
        return map_first_letter(self.key, who.domain, fold(letter)[:1].upper())

    def _gender(self, folded: str, who: Identity) -> str:
        """The gender of a given name: by the lists, English use first, else by its ending, else by key."""
        female, male = (self.lists.origin_of.get((part, folded)) for part in ("female", "male"))
        for known in (lambda origin: origin == "en", lambda origin: origin is not None):
            if known(female) != known(male):
                return "female" if known(female) else "male"
        return "female" if folded.endswith("a") or self.key.index(2, who.domain, "gender", folded) else "male"


def map_first_letter(key: KeyedHash, domain: str, letter: str) -> str:
    """The first letter of the surrogates of names with this first letter; never the letter itself."""
    return _letter_map(key, domain).get(letter) or _LETTERS[key.index(len(_LETTERS), domain, "letter", letter)]


@lru_cache(maxsize=8192)
def _letter_map(key: KeyedHash, domain: str) -> Mapping[str, str]:
    """A cyclic permutation of the letters (Sattolo 1986): one cycle, so no letter maps to itself."""
    choice = key.number(domain, "letters")
    letters = list(_LETTERS)
    for last in range(len(letters) - 1, 0, -1):
        choice, at = divmod(choice, last)
        letters[last], letters[at] = letters[at], letters[last]
    return dict(zip(_LETTERS, letters, strict=True))


@lru_cache(maxsize=65_536)
def draw_name(key: KeyedHash, lists: SurrogateLists, domain: str, part: str, origin: str, folded: str) -> str:
    """A name of that part and origin, of a similar length, that begins with the image of the first letter."""
    choice = _candidates(lists, part, origin, map_first_letter(key, domain, folded[0].upper()), classify_length(folded))
    return choice[key.index(len(choice), domain, part, folded)]


@lru_cache(maxsize=8192)
def _candidates(lists: SurrogateLists, part: str, origin: str, letter: str, length: int) -> tuple[str, ...]:
    """Names of the origin with this first letter and length class; from wider lists if there are too few."""
    own = (SITE,) if (SITE, part) in lists.pools else (origin,)
    for source in (*own, "en", ANY):
        begun = lists.pools[source, part].by_letter.get(letter, ())
        alike = tuple(word for word in begun if classify_length(word) == length)
        if len(alike) >= _ENOUGH:
            return alike
        if len(begun) >= _ENOUGH:
            return begun
    return lists.pools["en", part].words


def classify_length(word: str) -> int:
    """The length class: 0 for up to four letters, 1 for up to seven, 2 for more."""
    return 0 if len(word) <= 4 else 1 if len(word) <= 7 else 2


def _comma_between(value: str, word: Word, following: Word) -> bool:
    return "," in value[word.start + len(word.text) : following.start]


def _looks_like_initials(word: str) -> bool:
    return len(word) <= 3 and word.isascii() and (word.isupper() or (len(word) == 2 and word.islower()))
