"""Streets, cities, states, countries, postal codes and other places.

A state stays (by policy) and a ZIP code stays in its state, so that the parts of an
address agree; cities are invented, and so agree with any state. The big English-speaking
countries stay for the same reason; every other country, people or language becomes another of its kind.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.methods import RESTRICTED_ZIP3
from deid_agent.surrogate.numbers import identifier, other_digits, weave
from deid_agent.surrogate.phrases import Phrase
from deid_agent.surrogate.shape import fold
from deid_agent.surrogate.words import Word, words_of

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


def street(key: Key, lists: Lists, scope: str, value: str) -> str:
    """Number of digits, kind of street, direction and unit stay; name and numbers are others."""
    kept, words = lists.sets["street_kept"], words_of(value)
    if all(fold(word.text) in kept for word in words):
        kept -= {next((fold(a.text) for a, b in pairwise(words) if _names(lists, value, a, b)), "")}
    return Phrase(key, lists, f"street:{scope}", kept).replaced(value)


def _names(lists: Lists, value: str, word: Word, following: Word) -> bool:
    """True for the Park of 12 Park Ave: a kind of street that a word right behind it makes a name."""
    beside = value[word.start + len(word.text) : following.start] == " "
    return beside and fold(word.text) in lists.sets["street_names"]


def city(key: Key, lists: Lists, scope: str, value: str) -> str:
    """An invented town; Saint, Port, New, County and the like stay. LA is initials, KARAK in capitals a town."""
    endings = tuple(sorted(lists.sets["city_endings"]))
    return Phrase(key, lists, f"city:{scope}", lists.sets["city_kept"], endings, initials=3).replaced(value)


def other_place(key: Key, lists: Lists, scope: str, value: str) -> str:
    """Park, bridge, island, PO box stay; names and numbers are others."""
    return Phrase(key, lists, f"place:{scope}", lists.sets["location_kept"]).replaced(value)


def country(key: Key, lists: Lists, scope: str, value: str) -> str:
    """Another country, people, language or code: of the list in which this one stands."""
    folded = fold(value)
    kind = _kinds(lists).get(folded) or _guess(value)
    if kind == "home_countries":
        return value
    names = lists.phrases[kind]
    at = key.index(len(names), "country", kind, scope, folded)
    new = names[at] if fold(names[at]) != folded else names[(at + 1) % len(names)]
    if kind in ("countries", "peoples"):
        return new.upper() if value.isupper() and len(value) > 1 else new.lower() if value.islower() else new
    return new.upper() if value.isupper() else new.lower()


@lru_cache(maxsize=4)
def _kinds(lists: Lists) -> Mapping[str, str]:
    """The list in which every folded name stands, the first of ``_KINDS`` that has it."""
    return {fold(name): kind for kind in reversed(_KINDS) for name in lists.phrases[kind]}


@lru_cache(maxsize=4)
def _by_prefix(lists: Lists) -> Mapping[str, tuple[str, ...]]:
    """For every ZIP prefix the open prefixes of its state."""
    out: dict[str, tuple[str, ...]] = {}
    for ranges in lists.tables["zip3"].values():
        prefixes = _prefixes(ranges)
        chosen = tuple(p for p in prefixes if p not in RESTRICTED_ZIP3)
        out |= dict.fromkeys(prefixes, chosen or tuple(prefixes))
    return out


def _guess(value: str) -> str:
    if len(value) in (2, 3) and value.isascii() and value.isalpha() and not value.istitle():
        return f"{'country' if value.isupper() else 'language'}_codes{len(value)}"
    return "peoples" if fold(value).endswith(("ese", "ish", "ian", "an", "i", "ic", "ole")) else "countries"


def postal_code(key: Key, lists: Lists, scope: str, value: str) -> str:
    """A code of the same form; an American one in the same state, a Canadian one in the same province, a British one
    in an area that exists.

    Prefixes of small populations are never chosen where the state has another.
    """
    if found := _ZIP.fullmatch(value):
        new = _zip5(key, lists, scope, found[1])
        return new + found[2] + (other_digits(key, f"zip4:{scope}", found[3]) if found[3] else "")
    if found := _CANADIAN.fullmatch(value):
        return _canadian(key, scope, found)
    if found := _BRITISH.fullmatch(value):
        return weave(value, _british(key, lists, scope, found))
    if found := _IRISH.fullmatch(value):
        return weave(value, _irish(key, scope, found))
    if len(value) > 1 and value.isdigit() and value.isascii():
        return value[0] + other_digits(key, f"postal:{scope}", value[1:])
    return identifier(key, value, "postal")


def _zip5(key: Key, lists: Lists, scope: str, digits: str) -> str:
    open_prefixes = _by_prefix(lists).get(digits[:3], ())
    if not open_prefixes:
        return other_digits(key, f"postal:{scope}", digits)
    choice = key.number("zip", scope, digits)
    new = f"{open_prefixes[choice % len(open_prefixes)]}{choice // len(open_prefixes) % 99 + 1:02d}"
    return new if new != digits else f"{new[:3]}{int(new[3:]) % 99 + 1:02d}"


def _prefixes(ranges: str) -> list[str]:
    """``010-012 017`` as 010 011 012 017."""
    out: list[str] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        out += [f"{n:03d}" for n in range(int(first), int(last or first) + 1)]
    return out


def _canadian(key: Key, scope: str, found: "re.Match[str]") -> str:
    choice = key.number("postal", scope, fold(found[0]))
    digits = [choice // 10**n % 10 for n in range(3)]
    letters = [_CANADIAN_LETTERS[choice // 1000 // 20**n % 20] for n in range(2)]
    if str(digits[0]) == found[2]:
        digits[0] = (digits[0] + 1) % 10
    cased = [new.lower() if old.islower() else new for new, old in zip(letters, found.group(3, 6), strict=True)]
    return f"{found[1]}{digits[0]}{cased[0]}{found[4]}{digits[1]}{cased[1]}{digits[2]}"


def _british(key: Key, lists: Lists, scope: str, found: "re.Match[str]") -> str:
    """Another area of as many letters, another district, another end."""
    area, choice = found[1].upper(), key.number("postal", scope, fold(found[0]))
    areas = [name for name in lists.phrases["uk_areas"] if len(name) == len(area) and name != area]
    new = areas[key.index(len(areas), "area", scope, area)] + other_digits(key, f"district:{scope}", found[2])
    new += _BRITISH_LETTERS[choice % 20] if found[3] else ""
    return new + str(choice // 20 % 10) + _BRITISH_LETTERS[choice // 200 % 20] + _BRITISH_LETTERS[choice // 4000 % 20]


def _irish(key: Key, scope: str, found: "re.Match[str]") -> str:
    """Another routing key, another end with letters and figures where they were."""
    choice = key.number("postal", scope, fold(found[0]))
    letters = [_IRISH_LETTERS[(choice // 15**n) % 15] for n in range(5)]
    first = letters[0] if letters[0] != found[1].upper() else _IRISH_LETTERS[_IRISH_LETTERS.index(letters[0]) - 1]
    figures = iter(f"{key.index(10**6, 'eircode', scope, fold(found[0])):06d}")
    end = iter(letters[1:])
    rest = "".join("W" if c in "Ww" else next(figures) for c in found[2])
    return first + rest + "".join(next(figures) if c.isdigit() else next(end) for c in found[4])
