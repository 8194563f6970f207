"""Streets, cities, states, countries, postal codes and other places; organisations; professions.

Names of places and organisations are replaced word by word. Words that name a kind (Hospital, Street) are kept, numbers
are replaced, and punctuation is unchanged.

A state stays, and a ZIP code stays in its state, so that the parts of an address agree. Cities are invented and so
agree with any state. The large English-speaking countries stay for the same reason. Any other country, people or
language becomes another of its kind.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.lists import SurrogateLists, detect_script, replace_script_word
from deid_agent.surrogate.methods import RESTRICTED_ZIP3
from deid_agent.surrogate.names import draw_name, map_first_letter
from deid_agent.surrogate.numbers import replace_digits, replace_identifier, weave
from deid_agent.surrogate.people import split_affixes
from deid_agent.surrogate.shape import Word, fold, match_case, split_words

_ZIP = re.compile(r"(\d{5})([- ]?)(\d{4})?")
_CANADIAN = re.compile(r"(?i)([A-Z])(\d)([A-Z])(\s?-?)(\d)([A-Z])(\d)")
_BRITISH = re.compile(r"(?i)([A-Z]{1,2})(\d{1,2})([A-Z]?)(\s?)(\d)([ABD-HJLNP-UW-Z]{2})")  # Royal Mail, PAF
_BRITISH_LETTERS = "ABDEFGHJLNPQRSTUWXYZ"
_IRISH = re.compile(r"(?i)([AC-FHKNPRTV-Y])(\d[\dW])(\s?)([AC-FHKNPRTV-Y\d]{4})")  # Eircode
_IRISH_LETTERS = "ACDEFHKNPRTVWXY"
_CANADIAN_LETTERS = "ABCEGHJKLMNPRSTVWXYZ"
_KINDS = (
    "home_countries",
    "countries",
    "peoples",
    "country_codes3",
    "country_codes2",
    "language_codes3",
    "language_codes2",
)
_NUMBER = re.compile(r"(?i)(\d+)((?:st|nd|rd|th)(?![^\W\d_]))?")
_VOWEL = re.compile(r"[AEIOUY]")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Replaces names of one kind. ``kept`` are folded words that stay if another word identifies."""

    key: KeyedHash = field(repr=False)
    lists: SurrogateLists = field(repr=False)
    domain: str = field(repr=False)
    kept: Collection[str] = field(repr=False)
    endings: tuple[str, ...] = field(default=(), repr=False)
    abbreviation_endings: tuple[str, ...] = field(default=(), repr=False)
    initials: int = 5  # most letters of initials that are the whole value in capitals

    def replace(self, value: str) -> str:
        """``value`` with all words replaced that are not kept; the first if all are kept and there is no number."""
        words = [w for w in split_words(value) if not _in_ordinal(value, w)]
        naming = [w for w in words if fold(w.text) not in self.kept]
        if not naming and words and not re.search(r"\d", value):
            naming = words[:1]
        starts = {w.start for w in naming}
        last = naming[-1].start if naming else -1
        out: list[str] = []
        at = 0
        for word in words:
            out.append(self._replace_numbers(value[at : word.start]))
            short = _is_short(word.text, value, self.initials)
            out.append(self._replace_word(word, short, word.start == last) if word.start in starts else word.text)
            at = word.start + len(word.text)
        return "".join([*out, self._replace_numbers(value[at:])])

    def _replace_word(self, word: Word, short: bool, last: bool) -> str:
        script = detect_script(word.text)
        if script is not None:
            return replace_script_word(self.key, self.lists, self.domain, script, word.text, "family")
        if short:
            return self._replace_initials(word.text)
        before, core, after = split_affixes(word.text)
        folded = fold(core)
        if not folded or not folded[0].isalpha():
            return before + match_case(core, map_first_letter(self.key, self.domain, "")) + after
        name = draw_name(self.key, self.lists, self.domain, "family", "en", folded)
        if last and self.endings:
            name += self.endings[self.key.index(len(self.endings), self.domain, "ending", folded)]
        return before + match_case(core, name) + after

    def _replace_initials(self, word: str) -> str:
        """Initials, mapped letter by letter like first letters. A last H or MC stays, as Hospital does."""
        end = next((e for e in self.abbreviation_endings if word.upper().endswith(e) and len(e) < len(word)), "")
        head = word[: len(word) - len(end)]
        new = "".join(match_case(c, map_first_letter(self.key, self.domain, fold(c)[:1].upper())) for c in head)
        return new + word[len(head) :]

    def _replace_numbers(self, text: str) -> str:
        return _NUMBER.sub(lambda m: self._replace_ordinal(m[1], m[2]) if m[2] else self._replace_digits(m[1]), text)

    def _replace_ordinal(self, digits: str, suffix: str) -> str:
        new = self._replace_digits(digits)
        tail = "th" if new[-2:] in ("11", "12", "13") else {"1": "st", "2": "nd", "3": "rd"}.get(new[-1], "th")
        return new + (tail.upper() if suffix.isupper() else tail)

    def _replace_digits(self, digits: str) -> str:
        return replace_digits(self.key, self.domain, digits)


def _in_ordinal(value: str, word: Word) -> bool:
    return word.text.lower() in ("st", "nd", "rd", "th") and word.start > 0 and value[word.start - 1].isdigit()


def _is_short(word: str, value: str, alone: int) -> bool:
    """True for initials: one letter, or up to five capitals.

    In a value that is all capitals, only capitals without a vowel are initials, or up to ``alone`` capitals that are
    the whole value.
    """
    if len(word) == 1:
        return True
    if len(word) > 5 or not word.isascii() or not word.isupper():
        return False
    return not value.isupper() or not _VOWEL.search(word) or (word == value and len(word) <= alone)


def replace_profession(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """Another profession from the list, in the same number (singular, plural) and case."""
    names = lists.phrases["professions"]
    folded = fold(value)
    singular = folded.removesuffix("s")
    at = key.index(len(names), "profession", scope, folded)
    new = names[at] if fold(names[at]) not in (folded, singular) else names[(at + 1) % len(names)]
    if folded.endswith("s") and not folded.endswith("ss"):
        new = new[:-3] + "men" if new.endswith("man") else new + ("es" if new.endswith("s") else "s")
    if value.isupper():
        return new.upper()
    if value[:1].isupper():
        return new.title() if all(w[:1].isupper() for w in value.split()) else new.capitalize()
    return new


_PAYERS = ("public_payers", "state_payers", "payers")


def replace_organization(key: KeyedHash, lists: SurrogateLists, value: str) -> str:
    """Another name of the same kind: Hospital, Clinic, Church and School stay, other words and numbers change.

    The map is the same in the whole feed, so that a facility has one name in all messages. First letters are mapped
    like the letters of abbreviations, so an abbreviation has the initials of its surrogate. A payer of a whole country
    or state becomes another one (Medicaid for Medicare), so that a number beside it is still read as a policy number.
    """
    if (payer := _payer_map(key, lists).get(fold(value))) is not None:
        listed = any(
            value in lists.phrases[kind] for kind in _PAYERS
        )  # AHCCCS is an abbreviation, not a name in capitals
        return payer if listed else payer.upper() if value.isupper() else payer.lower() if value.islower() else payer
    endings = tuple(sorted(lists.sets["abbreviation_endings"], key=lambda e: (-len(e), e)))
    kept = lists.sets["kind_words"]
    return Phrase(key, lists, "organization", kept, abbreviation_endings=endings).replace(value)


@lru_cache(maxsize=4)
def _payer_map(key: KeyedHash, lists: SurrogateLists) -> Mapping[str, str]:
    """Each payer, folded, with another of its list: a rotation by a keyed step, so that no two become one."""
    out: dict[str, str] = {}
    for names in (lists.phrases[kind] for kind in _PAYERS):
        step = 1 + key.index(len(names) - 1, "payer")
        out |= {fold(name): names[(n + step) % len(names)] for n, name in enumerate(names)}
    return out


def replace_street(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """Another street. The number of digits, the kind of street, direction and unit stay; name and numbers change."""
    kept, words = lists.sets["street_kept"], split_words(value)
    if all(fold(word.text) in kept for word in words):
        kept -= {next((fold(a.text) for a, b in pairwise(words) if _is_street_name(lists, value, a, b)), "")}
    return Phrase(key, lists, f"street:{scope}", kept).replace(value)


def _is_street_name(lists: SurrogateLists, value: str, word: Word, following: Word) -> bool:
    """True for Park in 12 Park Ave: a kind of street that is a name because another word follows it."""
    beside = value[word.start + len(word.text) : following.start] == " "
    return beside and fold(word.text) in lists.sets["street_names"]


def replace_city(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """An invented town. Saint, Port, New, County and similar words stay. LA is read as initials, KARAK as a town."""
    endings = tuple(sorted(lists.sets["city_endings"]))
    return Phrase(key, lists, f"city:{scope}", lists.sets["city_kept"], endings, initials=3).replace(value)


def replace_place(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """Another place. Park, bridge, island and PO box stay; names and numbers change."""
    return Phrase(key, lists, f"place:{scope}", lists.sets["location_kept"]).replace(value)


def replace_country(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """Another country, people, language or code from the same list."""
    folded = fold(value)
    kind = _list_by_name(lists).get(folded) or _guess_list(value)
    if kind == "home_countries":
        return value
    names = lists.phrases[kind]
    at = key.index(len(names), "country", kind, scope, folded)
    new = names[at] if fold(names[at]) != folded else names[(at + 1) % len(names)]
    if kind in ("countries", "peoples"):
        return new.upper() if value.isupper() and len(value) > 1 else new.lower() if value.islower() else new
    return new.upper() if value.isupper() else new.lower()


@lru_cache(maxsize=4)
def _list_by_name(lists: SurrogateLists) -> Mapping[str, str]:
    """The list of each folded name: the first of ``_KINDS`` that has it."""
    return {fold(name): kind for kind in reversed(_KINDS) for name in lists.phrases[kind]}


@lru_cache(maxsize=4)
def _by_prefix(lists: SurrogateLists) -> Mapping[str, tuple[str, ...]]:
    """For each ZIP prefix the prefixes of its state that are not restricted."""
    out: dict[str, tuple[str, ...]] = {}
    for ranges in lists.tables["zip3"].values():
        prefixes = _prefixes(ranges)
        chosen = tuple(p for p in prefixes if p not in RESTRICTED_ZIP3)
        out |= dict.fromkeys(prefixes, chosen or tuple(prefixes))
    return out


def _guess_list(value: str) -> str:
    if len(value) in (2, 3) and value.isascii() and value.isalpha() and not value.istitle():
        return f"{'country' if value.isupper() else 'language'}_codes{len(value)}"
    return "peoples" if fold(value).endswith(("ese", "ish", "ian", "an", "i", "ic", "ole")) else "countries"


def replace_postal_code(key: KeyedHash, lists: SurrogateLists, scope: str, value: str) -> str:
    """A postal code of the same form.

    An American one stays in its state, a Canadian one in its province, and a British one gets an area that exists.
    Prefixes of small populations are not chosen if the state has another.
    """
    if found := _ZIP.fullmatch(value):
        new = _zip5(key, lists, scope, found[1])
        return new + found[2] + (replace_digits(key, f"zip4:{scope}", found[3]) if found[3] else "")
    if found := _CANADIAN.fullmatch(value):
        return _canadian(key, scope, found)
    if found := _BRITISH.fullmatch(value):
        return weave(value, _british(key, lists, scope, found))
    if found := _IRISH.fullmatch(value):
        return weave(value, _irish(key, scope, found))
    if len(value) > 1 and value.isdigit() and value.isascii():
        return value[0] + replace_digits(key, f"postal:{scope}", value[1:])
    return replace_identifier(key, value, "postal")


def _zip5(key: KeyedHash, lists: SurrogateLists, scope: str, digits: str) -> str:
    open_prefixes = _by_prefix(lists).get(digits[:3], ())
    if not open_prefixes:
        return replace_digits(key, f"postal:{scope}", digits)
    choice = key.number("zip", scope, digits)
    new = f"{open_prefixes[choice % len(open_prefixes)]}{choice // len(open_prefixes) % 99 + 1:02d}"
    return new if new != digits else f"{new[:3]}{int(new[3:]) % 99 + 1:02d}"


def _prefixes(ranges: str) -> list[str]:
    """The prefixes of ``010-012 017``: 010 011 012 017."""
    out: list[str] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        out += [f"{n:03d}" for n in range(int(first), int(last or first) + 1)]
    return out


def _canadian(key: KeyedHash, scope: str, found: "re.Match[str]") -> str:
    choice = key.number("postal", scope, fold(found[0]))
    digits = [choice // 10**n % 10 for n in range(3)]
    letters = [_CANADIAN_LETTERS[choice // 1000 // 20**n % 20] for n in range(2)]
    if str(digits[0]) == found[2]:
        digits[0] = (digits[0] + 1) % 10
    cased = [new.lower() if old.islower() else new for new, old in zip(letters, found.group(3, 6), strict=True)]
    return f"{found[1]}{digits[0]}{cased[0]}{found[4]}{digits[1]}{cased[1]}{digits[2]}"


def _british(key: KeyedHash, lists: SurrogateLists, scope: str, found: "re.Match[str]") -> str:
    """Another area with the same number of letters, another district, another inward code."""
    area, choice = found[1].upper(), key.number("postal", scope, fold(found[0]))
    areas = [name for name in lists.phrases["uk_areas"] if len(name) == len(area) and name != area]
    new = areas[key.index(len(areas), "area", scope, area)] + replace_digits(key, f"district:{scope}", found[2])
    new += _BRITISH_LETTERS[choice % 20] if found[3] else ""
    return new + str(choice // 20 % 10) + _BRITISH_LETTERS[choice // 200 % 20] + _BRITISH_LETTERS[choice // 4000 % 20]


def _irish(key: KeyedHash, scope: str, found: "re.Match[str]") -> str:
    """Another routing key, and another end with letters and digits in the same positions."""
    choice = key.number("postal", scope, fold(found[0]))
    letters = [_IRISH_LETTERS[(choice // 15**n) % 15] for n in range(5)]
    first = letters[0] if letters[0] != found[1].upper() else _IRISH_LETTERS[_IRISH_LETTERS.index(letters[0]) - 1]
    figures = iter(f"{key.index(10**6, 'eircode', scope, fold(found[0])):06d}")
    end = iter(letters[1:])
    rest = "".join("W" if c in "Ww" else next(figures) for c in found[2])
    return first + rest + "".join(next(figures) if c.isdigit() else next(end) for c in found[4])
