"""Names of people: every written form in, the same form out.

A name is replaced word by word, so that order, commas, quotes, hyphens, case and
line breaks stand as they stood. Given and family names are mapped apart and without
regard to where they stand: "Okafor, Ada" and "Mr. Okafor" agree. Every surrogate begins with the keyed
image of its original's first letter (one permutation of letters per person scope), so
"A.O." and "A. Okafor" agree with both, with no shared state and nobody to ask. An elided letter stays
(O'Brien, d'Angelo) and the rest is mapped, so OBRIEN and "O Brien" agree with it: in the whole feed for the names
of the list ``elided``, for others where the message's own people have the apostrophe.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from deid_agent.sites import Kind
from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import ANY, Lists
from deid_agent.surrogate.scripts import script_of, script_word
from deid_agent.surrogate.shape import fold, in_case_of
from deid_agent.surrogate.words import Word, words_of

_LETTERS = "BCDEFGHJKLMNPRST"  # with enough names of every part; "Ms A", "A Kim RN" would be read as an article
_ENOUGH = 5
_TYPIST = re.compile(r"[b-df-hj-np-tv-xz]{3}")  # RA/plk: who dictated and who typed


class Role(Enum):
    KEEP = "keep"
    GIVEN = "given"
    FAMILY = "family"
    INITIALS = "initials"


@dataclass(frozen=True, slots=True)
class Namer:
    """Names of one person scope and type. ``people`` are (given, family) pairs known from the message."""

    key: Key = field(repr=False)
    lists: Lists = field(repr=False)
    domain: str = field(repr=False)
    people: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    clinician: bool = False
    told: bool = True  # by the structure, which has no particle, title or credential for a whole name
    given: frozenset[str] = field(init=False, repr=False)
    family: frozenset[str] = field(init=False, repr=False)
    elided: frozenset[str] = field(init=False, repr=False)  # of the message's people: obrien for O'Brien
    lone: frozenset[str] = field(init=False, repr=False)  # whole names of theirs: Le is no particle where it is one
    longer: Mapping[str, tuple[str, ...]] = field(
        init=False, repr=False
    )  # names of five letters and more, by the first

    def __post_init__(self) -> None:
        # Once per message: asking every person about every word would be quadratic in a bundle of thousands.
        names = [name for pair in self.people for name in pair]
        elided = frozenset(before + core for name in names for before, core in _tokens(name) if before)
        object.__setattr__(self, "elided", elided)
        object.__setattr__(self, "lone", self._lone() if self.told else frozenset())
        parts = [(sorted(self._tokens(family)), sorted(self._tokens(given))) for given, family in self.people]
        longer: dict[str, dict[str, None]] = {}
        for token in (token for families, givens in parts for token in (*families, *givens) if len(token) >= 5):
            longer.setdefault(token[0], {})[token] = None
        object.__setattr__(self, "family", frozenset(token for families, _ in parts for token in families))
        object.__setattr__(self, "given", frozenset(token for _, givens in parts for token in givens))
        object.__setattr__(self, "longer", {first: tuple(tokens) for first, tokens in longer.items()})

    def name(self, value: str, kind: Kind) -> str:
        """``value`` with every word that names someone replaced; differs from it where it has a letter."""
        words = words_of(value)
        if not words:
            return value
        roles = self._roles(value, words, kind)
        if all(role is Role.KEEP for role in roles):
            roles = [Role.FAMILY] * len(words)
        whole = len(words) == 1 and kind not in (Kind.FAMILY, Kind.GIVEN)
        out: list[str] = []
        at = 0
        for word, role in zip(words, roles, strict=True):
            out += (value[at : word.start], self._replaced(word.text, role, whole=whole))
            at = word.start + len(word.text)
        return "".join([*out, value[at:]])

    def _lone(self) -> frozenset[str]:
        """Family names of one word, and given names of one that could be taken for a particle alone."""
        families = {fold(family) for _, family in self.people if len(words_of(family)) == 1}
        givens = {fold(given) for given, _ in self.people if len(words_of(given)) == 1}
        return frozenset((families - self.lists.sets["baby"]) | (givens & self.lists.sets["particles"]))

    def _tokens(self, name: str) -> frozenset[str]:
        return frozenset(core if before or not self._is_elided(core) else core[1:] for before, core in _tokens(name))

    def _parted(self, word: str) -> tuple[str, str, str]:
        """``core_of``; the first letter of OBRIEN is a prefix as that of O'Brien is."""
        before, core, after = core_of(word)
        if not before and self._is_elided(fold(core)):
            return core[:1], core[1:], after
        return before, core, after

    def _is_elided(self, folded: str) -> bool:
        return folded in self.elided or folded in self.lists.sets["elided"]

    def letter(self, letter: str) -> str:
        """The image of a first letter, a capital."""
        plain = fold(letter)[:1].upper()
        return image(self.key, self.domain, plain)

    def _roles(self, value: str, words: Sequence[Word], kind: Kind) -> list[Role]:
        fixed = [self._fixed(value, words, n, kind) for n in range(len(words))]
        open_words = [n for n, role in enumerate(fixed) if role is None]
        comma = value.find(",")
        after = [n for n in open_words if words[n].start > comma] if comma > 0 else []
        initials = any(role is Role.INITIALS and words[n].start > comma for n, role in enumerate(fixed))
        reversed_form = comma > 0 and bool(after or initials)
        roles: list[Role] = []
        for n, role in enumerate(fixed):
            if role is not None:
                roles.append(role)
            elif kind is Kind.FAMILY or kind is Kind.GIVEN:
                roles.append(Role.FAMILY if kind is Kind.FAMILY else Role.GIVEN)
            elif reversed_form:
                known = self._known_role(fold(self._parted(words[n].text)[1]))  # the next line's name beside this one's
                roles.append(known or (Role.FAMILY if words[n].start < comma else Role.GIVEN))
            elif words[n].joined and n and fixed[n - 1] is None:  # one name with the word before the hyphen
                roles.append(roles[-1])
            else:
                roles.append(self._by_place(words, open_words, n))
        return roles

    def _fixed(self, value: str, words: Sequence[Word], n: int, kind: Kind) -> Role | None:
        """The role that a word has by its own form, None where its place decides."""
        if self._names_nobody(value, words, n, kind):
            return Role.KEEP
        word, folded = words[n].text, fold(words[n].text)
        if len(word) == 1 and n + 1 < len(words) and value[words[n].start + 1 : words[n + 1].start] == " ":
            if word in "Óó":  # Ó Súilleabháin
                return Role.KEEP
            following = core_of(words[n + 1].text)[1]
            if self._is_elided(folded + fold(following)):  # O Brien
                return Role.KEEP
        letters = len(word) == 1 and script_of(word) is None
        short = _looks_like_initials(word) or (self.clinician and _TYPIST.fullmatch(word) is not None)
        if letters or (len(words) == 1 and short and not self._is_listed(folded)):
            return Role.INITIALS
        return None

    def _names_nobody(self, value: str, words: Sequence[Word], n: int, kind: Kind) -> bool:
        """True for titles, suffixes, credentials and particles that are no name: only beside a word that is one."""
        word, folded, count = words[n].text, fold(words[n].text), len(words)
        sets = self.lists.sets
        if count == 1 or folded in self.lone:
            return False
        if folded in sets["baby"] or (n == 0 and folded in sets["titles"] and not self._is_given(folded)):
            return True
        if n > 0 and (folded in sets["suffixes"] or self._is_credential(word, value[: words[n].start])):
            return True
        if folded not in sets["particles"] or n + 1 == count or _comma_between(value, words[n], words[n + 1]):
            return False
        in_family = kind is Kind.FAMILY or "," in value[words[n].start :]
        return word.islower() or n > 0 or in_family or folded in self.family or not self._is_given(folded)

    def _is_credential(self, word: str, before: str) -> bool:
        if word in self.lists.sets["credentials"]:
            return True
        weak = word in self.lists.sets["weak_credentials"]
        return weak and ("," in before or not before.isupper())

    def _by_place(self, words: Sequence[Word], open_words: Sequence[int], n: int) -> Role:
        """The part that a word has by where it stands in a name without a comma."""
        folded, whole = fold(words[n].text), fold("".join(core_of(words[n].text)[:2]))
        given, family = self._is_given(folded), self._is_family(folded) or self._is_elided(whole)
        first = open_words[0]
        last = next(m for m in reversed(open_words) if not words[m].joined or m == first)
        known = self._known_role(fold(self._parted(words[n].text)[1]))
        if known is not None:
            return known
        if first == last:  # "J. Okafor", "Mr. Okafor", a clinician by surname; a patient by first name
            beside = any(not words[m].joined for m in range(len(words)) if m != n)
            is_family = beside or self.clinician or (family and not given)
        elif script_of(words[first].text) in ("han", "hangul", "kana") or self._family_first(words, first, last):
            is_family = n == first
        else:
            is_family = n == last or (n != first and not words[n].quoted and family and not given)
        return Role.FAMILY if is_family else Role.GIVEN

    def _family_first(self, words: Sequence[Word], first: int, last: int) -> bool:
        head, tail = fold(words[first].text), fold(words[last].text)
        return self._is_family(head) and not self._is_given(head) and self._is_given(tail) and not self._is_family(tail)

    def _known_role(self, folded: str) -> Role | None:
        """The part that the message's own people have this word in, where it is one of them only."""
        folded = self._spelt(folded)
        given, family = folded in self.given, folded in self.family
        if given == family:
            return None
        return Role.GIVEN if given else Role.FAMILY

    def _is_given(self, folded: str) -> bool:
        return self.lists.has("female", folded) or self.lists.has("male", folded)

    def _is_family(self, folded: str) -> bool:
        return self.lists.has("family", folded)

    def _is_listed(self, folded: str) -> bool:
        return self._is_given(folded) or self._is_family(folded) or folded in self.given or folded in self.family

    def _replaced(self, word: str, role: Role, *, whole: bool) -> str:
        script = script_of(word)
        if role is Role.KEEP:
            return word
        if script is not None:
            part = "whole" if whole else "family" if role is Role.FAMILY else "given"
            return script_word(self.key, self.lists, self.domain, script, word, part)
        if role is Role.INITIALS:
            return "".join(in_case_of(c, self.letter(c)) if c.isalpha() else c for c in word)
        before, core, after = self._parted(word)
        folded = self._spelt(fold(core))
        if not folded or not folded[0].isalpha():
            return before + in_case_of(core, self.letter("")) + after
        part = "family" if role is Role.FAMILY else self._gender(folded)
        origin = self.lists.origin_of.get((part, folded), "en")
        return before + in_case_of(core, drawn(self.key, self.lists, self.domain, part, origin, folded)) + after

    def _gender(self, folded: str) -> str:
        """By the lists, English use first; by the ending or by key where they do not say."""
        female, male = (self.lists.origin_of.get((part, folded)) for part in ("female", "male"))
        for known in (lambda origin: origin == "en", lambda origin: origin is not None):
            if known(female) != known(male):
                return "female" if known(female) else "male"
        return "female" if folded.endswith("a") or self.key.index(2, self.domain, "gender", folded) else "male"

    def _spelt(self, folded: str) -> str:
        """The spelling that the message's people have, where this word is one typing error away from it."""
        if len(folded) < 5 or not self.people or self._is_listed(folded):
            return folded
        near = (token for token in self.longer.get(folded[0], ()) if one_edit_apart(token, folded))
        return next(near, folded)


def image(key: Key, domain: str, letter: str) -> str:
    """The letter that surrogates of names with this first letter begin with; never the letter itself."""
    return _images(key, domain).get(letter) or _LETTERS[key.index(len(_LETTERS), domain, "letter", letter)]


@lru_cache(maxsize=8192)
def _images(key: Key, domain: str) -> Mapping[str, str]:
    """A cyclic permutation of the letters (Sattolo 1986): one cycle, so no letter stays."""
    choice = key.number(domain, "letters")
    letters = list(_LETTERS)
    for last in range(len(letters) - 1, 0, -1):
        choice, at = divmod(choice, last)
        letters[last], letters[at] = letters[at], letters[last]
    return dict(zip(_LETTERS, letters, strict=True))


@lru_cache(maxsize=65_536)
def drawn(key: Key, lists: Lists, domain: str, part: str, origin: str, folded: str) -> str:
    """A name of that part and origin, of about that length, that begins with the image of the first letter."""
    choice = _candidates(lists, part, origin, image(key, domain, folded[0].upper()), length_class(folded))
    return choice[key.index(len(choice), domain, part, folded)]


@lru_cache(maxsize=8192)
def _candidates(lists: Lists, part: str, origin: str, letter: str, length: int) -> tuple[str, ...]:
    """Names of the origin that begin so and are about so long; the wider net where too few are."""
    for source in (origin, "en", ANY):
        begun = lists.pools[source, part].by_letter.get(letter, ())
        alike = tuple(word for word in begun if length_class(word) == length)
        if len(alike) >= _ENOUGH:
            return alike
        if len(begun) >= _ENOUGH:
            return begun
    return lists.pools["en", part].words


def length_class(word: str) -> int:
    """0 up to four letters, 1 up to seven, 2 above."""
    return 0 if len(word) <= 4 else 1 if len(word) <= 7 else 2


def one_edit_apart(a: str, b: str) -> bool:
    """True where one insertion, deletion, substitution or swap of neighbours makes ``a`` into ``b``."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    left, right = a[start:], b[start:]
    if len(left) == len(right):
        swapped = left[1::-1] + left[2:] if len(left) > 1 else left
        return left[1:] == right[1:] or swapped == right
    return left[1:] == right or left == right[1:]


@lru_cache(maxsize=8192)
def _tokens(name: str) -> frozenset[tuple[str, str]]:
    """The words of a name, folded: an elided letter and the rest, or nothing and the whole."""
    words = [core_of(word.text) for word in words_of(name) if len(word.text) > 1]
    return frozenset((fold(before), fold(core)) for before, core, _ in words)


def core_of(word: str) -> tuple[str, str, str]:
    """A prefix with its apostrophe (O'Brien, d'Angelo), the name, a possessive ending."""
    start = 2 if len(word) > 2 and word[1] in "'’ʻʼ`" and word[0] in "OoDdLlMmNn" else 0
    end = len(word) - 2 if len(word) > start + 2 and word[-2] in "'’" and word[-1] in "sS" else len(word)
    return word[:start], word[start:end], word[end:]


def _comma_between(value: str, word: Word, following: Word) -> bool:
    return "," in value[word.start + len(word.text) : following.start]


def _looks_like_initials(word: str) -> bool:
    return len(word) <= 3 and word.isascii() and (word.isupper() or (len(word) == 2 and word.islower()))
