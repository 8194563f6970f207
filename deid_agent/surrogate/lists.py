"""The word lists that surrogates are drawn from, and names in scripts other than Latin.

The default names are the files of ``rules/surrogate/names``: a frozen copy of what Faker's providers hold. A policy may
name other Faker locales or providers, which are read when the policy is loaded (docs/decisions/0015). A surrogate is an
index into these lists, so a changed list changes surrogates. ``SurrogateLists.digest`` identifies them.
"""

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from types import MappingProxyType

from deid_agent.model import ConfigurationError
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.shape import fold, fold_all, match_case

PARTS = ("female", "male", "family")
ANY = "any"  # the pool of all origins in Latin letters together
SITE = "site"  # the pool of the locales and providers that the policy names


@dataclass(frozen=True, eq=False)
class Pool:
    """Names of one origin and part."""

    words: tuple[str, ...]
    latin: bool = True

    @cached_property
    def by_letter(self) -> Mapping[str, tuple[str, ...]]:
        """The names by first letter; empty for scripts other than Latin."""
        letters: dict[str, list[str]] = {}
        for word, folded in zip(self.words, fold_all(self.words), strict=True) if self.latin else ():
            letters.setdefault(folded[0].upper(), []).append(word)
        return MappingProxyType({letter: tuple(found) for letter, found in letters.items()})


@dataclass(frozen=True, slots=True, eq=False)
class SurrogateLists:
    """All lists. Objects compare by identity.

    ``pools`` has the names by origin and part, without names that are ordinary words. ``origin_of`` has the origin by
    part and folded name, ordinary words included. From the other files, texts are ``sets`` of words, arrays are
    ``phrases`` in their order, and tables are ``tables``.
    """

    pools: Mapping[tuple[str, str], Pool] = field(repr=False)
    origin_of: Mapping[tuple[str, str], str] = field(repr=False)
    sets: Mapping[str, frozenset[str]] = field(repr=False)
    phrases: Mapping[str, tuple[str, ...]] = field(repr=False)
    tables: Mapping[str, Mapping[str, str]] = field(repr=False)
    digest: str
    names_digest: str = ""
    """SHA-256 (hex) of the names of the policy's locales and providers; empty if it names none."""

    def has(self, part: str, folded: str) -> bool:
        """True if some list of that part has the name."""
        return (part, folded) in self.origin_of


@lru_cache(maxsize=4)
def load_lists(rules: Path, locales: tuple[str, ...] = (), providers: tuple[str, ...] = ()) -> SurrogateLists:
    """The lists in ``rules/surrogate``, with the names of Faker ``locales`` and ``providers`` instead if there are any.

    Raises ``ConfigurationError`` with the file that is missing or invalid, and for an unknown locale or provider.
    """
    folder = rules / "surrogate"
    digest = sha256()
    sets: dict[str, frozenset[str]] = {}
    phrases: dict[str, tuple[str, ...]] = {}
    tables: dict[str, Mapping[str, str]] = {}
    for path in sorted(folder.glob("*.toml")):
        for name, value in _read(path, digest.update).items():
            if isinstance(value, dict):
                tables[name] = MappingProxyType({str(k): str(v) for k, v in value.items()})
            elif isinstance(value, list):
                phrases[name] = tuple(str(item) for item in value)
            else:
                found = str(value).split()
                sets[name] = frozenset([*found, *(fold(w) for w in found if not w.isascii() or not w.isalnum())])
    pools: dict[tuple[str, str], Pool] = {}
    origin_of: dict[tuple[str, str], str] = {}
    ordinary = sets.get("ordinary", frozenset())
    for path in sorted((folder / "names").glob("*.toml")):
        data, origin = _read(path, digest.update), path.stem
        latin = data.get("script") == "latin"
        for part in PARTS:
            words = tuple(_read_words(path, data, part))
            folded = fold_all(words)
            drawn = tuple(w for w, f in zip(words, folded, strict=True) if f not in ordinary) if latin else words
            pools[origin, part] = Pool(drawn, latin)
            # American family names include the frequent Spanish and Vietnamese names, so "en" is their origin. If
            # Nguyen became another Vietnamese name, a reader would guess it from its surrogate in four of ten cases.
            if origin == "en":
                origin_of.update(dict.fromkeys(zip(repeat(part), folded), origin))
            else:
                for key in zip(repeat(part), folded):
                    origin_of.setdefault(key, origin)
    if not pools:
        raise ConfigurationError(
            f"{folder / 'names'} has no lists of names for surrogates: point rules to the packaged folder"
        )
    if not sets:
        raise ConfigurationError(f"{folder} has no lists for surrogates: point rules to the packaged folder")
    _add_common_pools(pools)
    names_digest = _add_provider_pools(pools, locales, providers, ordinary) if locales or providers else ""
    digest.update(names_digest.encode())
    return SurrogateLists(
        MappingProxyType(pools),
        MappingProxyType(origin_of),
        MappingProxyType(sets),
        MappingProxyType(phrases),
        MappingProxyType(tables),
        digest.hexdigest(),
        names_digest,
    )


def _read(path: Path, note: Callable[[bytes], None]) -> dict[str, object]:
    try:
        raw = path.read_bytes()
        data: dict[str, object] = tomllib.loads(raw.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not readable as TOML: restore the packaged file") from error
    note(raw)
    return data


def _read_words(path: Path, data: Mapping[str, object], part: str) -> list[str]:
    value = data.get(part)
    if not isinstance(value, str) or not value.split():
        raise ConfigurationError(f"{path}: {part} must be a text of names: restore the packaged file")
    return value.split()


def list_words(lists: SurrogateLists) -> frozenset[str]:
    """The folded words of the names and phrases that surrogates are drawn from."""
    texts = [
        *(word for pool in lists.pools.values() for word in pool.words),
        *(p for f in lists.phrases.values() for p in f),
    ]
    return frozenset(word for text in texts for word in re.findall(r"[^\W\d_]+", fold(text)))


def _add_common_pools(pools: dict[tuple[str, str], Pool]) -> None:
    for part in PARTS:
        merged = (pool.words for (_, p), pool in pools.items() if p == part and pool.latin)
        pools[ANY, part] = Pool(tuple(sorted(set().union(*merged))))


# Names of Faker's providers

_ELEMENTS = {
    "female": ("first_names_female",),
    "male": ("first_names_male",),
    "family": ("last_names", "last_names_male", "unisex_last_names"),
}
_UNISEX = ("first_names",)
_METHODS = {"female": "first_name_female", "male": "first_name_male", "family": "last_name"}
_DRAWS = 4096
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")
_LATIN_WORD = re.compile(r"[^\W\d_]{2,}")
_FEWEST = 20


def _add_provider_pools(
    pools: dict[tuple[str, str], Pool], locales: Sequence[str], providers: Sequence[str], ordinary: frozenset[str]
) -> str:
    """Add the names of locales and providers; their digest. Names in another script replace the pool of that script."""
    digest = sha256()
    classes = [(f"locale {name}", _load_locale(name)) for name in locales]
    classes += [(f"provider {name}", _load_provider(name)) for name in providers]
    for part in PARTS:
        found = {word for name, provider in classes for word in _names_of(name, provider, part)}
        by_script: dict[str | None, list[str]] = {}
        for word in sorted(found):
            by_script.setdefault(detect_script(word), []).append(word)
        digest.update(f"{part}:{' '.join(sorted(found))}\n".encode())
        for script, words in by_script.items():
            if script is None:
                kept = tuple(word for word in words if _LATIN_WORD.fullmatch(word) and fold(word) not in ordinary)
                pools[SITE, part] = Pool(kept)
            else:
                pools[script, part] = Pool(tuple(words), latin=False)
    return digest.hexdigest()


def pin_names(rules: Path, locales: tuple[str, ...], providers: tuple[str, ...], expected: str) -> str:
    """The digest of the names of locales and providers; empty if there are none.

    Raises ``ConfigurationError`` as ``load_lists``, and if the digest does not begin with ``expected``.
    """
    digest = load_lists(rules, locales, providers).names_digest if locales or providers else ""
    if not digest.startswith(expected):
        raise ConfigurationError(
            f"[surrogates] digest: the names of these locales and providers have the digest {digest[:16]}, so names "
            "would not join with those published before; install the former release of Faker or of the provider, or "
            "accept the new names with this digest"
        )
    return digest


def _load_locale(locale: str) -> type:
    """Faker's provider of names of a locale."""
    package = importlib.import_module("faker.providers.person")
    if _LOCALE.fullmatch(locale) and any(module.name == locale for module in pkgutil.iter_modules(package.__path__)):
        provider: type = importlib.import_module(f"faker.providers.person.{locale}").Provider
        return provider
    known = ", ".join(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))
    raise ConfigurationError(f"[surrogates] locales: Faker has no names of {locale!r}; use one of {known}")


def _load_provider(name: str) -> type:
    """The class that ``package.module:Class`` names."""
    module, _, attribute = name.partition(":")
    advice = "write package.module:Class, and install the package beside deid-agent (PYTHONPATH for a single file)"
    try:
        found = getattr(importlib.import_module(module), attribute) if module and attribute else None
    except (ImportError, AttributeError) as fault:
        raise ConfigurationError(f"[surrogates] providers: {name!r}: {fault}; {advice}") from None
    if not isinstance(found, type):
        raise ConfigurationError(f"[surrogates] providers: {name!r} is not a class; {advice}")
    return found


def _names_of(name: str, provider: type, part: str) -> frozenset[str]:
    """The names of one part. Raises ``ConfigurationError`` if there are too few to hide anyone among them."""
    raw = read_elements(provider, _ELEMENTS[part]) or (() if part == "family" else read_elements(provider, _UNISEX))
    words = clean_names(raw or _draw_names(provider, _METHODS[part]))
    if len(words) < _FEWEST:
        attributes = " or ".join((_ELEMENTS[part][0], f"{_METHODS[part]}()"))
        raise ConfigurationError(
            f"[surrogates] {name}: {len(words)} names of one word for {part}; give at least {_FEWEST} in {attributes}"
        )
    return words


def read_elements(provider: type, attributes: Iterable[str]) -> tuple[str, ...]:
    """The elements of a Faker provider in these attributes, weights ignored, without those of Faker's base class."""
    found: dict[str, None] = {}
    for attribute in attributes:
        owners = (vars(owner) for owner in provider.__mro__ if owner.__module__ != "faker.providers.person")
        found.update(dict.fromkeys(next((own[attribute] for own in owners if attribute in own), ())))
    return tuple(found)


def clean_names(names: Iterable[str]) -> frozenset[str]:
    """The names that are one word, in title case."""
    stripped = (name.strip().title() if name.isupper() and name.isascii() else name.strip() for name in names)
    return frozenset(name for name in stripped if name and len(name.split()) == 1 and name[0].isalpha())


def _draw_names(provider: type, method: str) -> list[str]:
    """The names that a method gives in 4,096 draws with a fixed seed, which is no secret."""
    generator = importlib.import_module("faker.generator").Generator()
    generator.seed_instance(0)
    draw = getattr(provider(generator), method, None)
    return [str(draw()) for _ in range(_DRAWS)] if draw is not None else []


# Names in scripts other than Latin

_RANGES = (
    ("greek", 0x0370, 0x03FF),
    ("cyrillic", 0x0400, 0x052F),
    ("armenian", 0x0530, 0x058F),
    ("hebrew", 0x0590, 0x05FF),
    ("arabic", 0x0600, 0x077F),
    ("devanagari", 0x0900, 0x097F),
    ("bengali", 0x0980, 0x09FF),
    ("gujarati", 0x0A80, 0x0AFF),
    ("tamil", 0x0B80, 0x0BFF),
    ("thai", 0x0E00, 0x0E7F),
    ("georgian", 0x10A0, 0x10FF),
    ("hangul", 0x1100, 0x11FF),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x9FFF),
    ("hangul", 0xAC00, 0xD7AF),
)


def detect_script(word: str) -> str | None:
    """The script of the word's first letter; None for Latin and for scripts without a list."""
    point = ord(word[0]) if word else 0
    if point < 0x0370:
        return None
    return next((name for name, first, last in _RANGES if first <= point <= last), None)


def replace_script_word(
    key: KeyedHash, lists: SurrogateLists, domain: str, script: str, word: str, part: str, sex: str = ""
) -> str:
    """A name in that script. ``part`` is family, given, or whole (family and given name without a space).

    ``sex`` is female, male or empty; then the given name decides.
    """
    if part == "whole" and script in ("han", "hangul") and len(word) > 1:
        double = len(word) > 2 and lists.has("family", fold(word[:2]))
        cut = 2 if double else 1
        family = _draw_script_word(key, lists, domain, script, "family", word[:cut])
        return family + _draw_script_word(
            key, lists, domain, script, sex or _gender(key, lists, domain, word[cut:]), word[cut:]
        )
    if part == "whole":
        part = "family" if lists.has("family", fold(word)) else "given"
    gender = part if part == "family" else sex or _gender(key, lists, domain, word)
    return _draw_script_word(key, lists, domain, script, gender, word)


def _gender(key: KeyedHash, lists: SurrogateLists, domain: str, word: str) -> str:
    folded = fold(word)
    female, male = lists.has("female", folded), lists.has("male", folded)
    if female != male:
        return "female" if female else "male"
    return ("female", "male")[key.index(2, domain, "gender", folded)]


@lru_cache(maxsize=8192)
def _draw_script_word(key: KeyedHash, lists: SurrogateLists, domain: str, script: str, part: str, word: str) -> str:
    pool = lists.pools[script, part].words
    folded = fold(word)
    alike = [name for name in pool if len(name) == len(word)]
    choice = alike if len(alike) > 1 else list(pool)
    at = key.index(len(choice), domain, part, folded)
    new = choice[at]
    return match_case(word, new if fold(new) != folded else choice[(at + 1) % len(choice)])
