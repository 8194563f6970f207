"""The word lists that surrogates are drawn from: ``rules/surrogate``, read once, frozen.

A surrogate is an index into these lists, so a changed list changes surrogates:
``Lists.digest`` belongs into the configuration digest of the audit.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from deid_agent.errors import ConfigurationError
from deid_agent.surrogate.shape import fold

PARTS = ("female", "male", "family")
ANY = "any"  # the pool of all origins in Latin letters together


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Names of one origin and part. ``by_letter`` is empty for scripts other than Latin."""

    words: tuple[str, ...]
    by_letter: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """All lists; two objects are equal only where they are one.

    ``pools`` is keyed by origin and part, without names that are ordinary words; ``origin_of`` by part and folded
    name, with them. Of the other files, texts became ``sets`` of words, arrays ``phrases`` in their order, tables
    ``tables``.
    """

    pools: Mapping[tuple[str, str], Pool] = field(repr=False)
    origin_of: Mapping[tuple[str, str], str] = field(repr=False)
    sets: Mapping[str, frozenset[str]] = field(repr=False)
    phrases: Mapping[str, tuple[str, ...]] = field(repr=False)
    tables: Mapping[str, Mapping[str, str]] = field(repr=False)
    digest: str

    def has(self, part: str, folded: str) -> bool:
        """True where a name stands in some list of that part."""
        return (part, folded) in self.origin_of


@lru_cache(maxsize=4)
def load(rules: Path) -> Lists:
    """The lists under ``rules/surrogate``. Raises ``ConfigurationError`` naming the file that is missing or wrong."""
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
    origins: dict[tuple[str, str], list[str]] = {}
    ordinary = sets.get("ordinary", frozenset())
    for path in sorted((folder / "names").glob("*.toml")):
        data = _read(path, digest.update)
        latin = data.get("script") == "latin"
        for part in PARTS:
            words = tuple(_words(path, data, part))
            drawn = tuple(word for word in words if fold(word) not in ordinary) if latin else words
            pools[path.stem, part] = Pool(drawn, _by_letter(drawn) if latin else MappingProxyType({}))
            for word in words:
                origins.setdefault((part, fold(word)), []).append(path.stem)
    if not pools:
        raise ConfigurationError(f"{folder / 'names'} holds no surrogate lists of names: point rules to a whole folder")
    if not sets:
        raise ConfigurationError(f"{folder} holds no surrogate lists: point rules to the packaged folder")
    _add_any(pools)
    return Lists(
        MappingProxyType(pools),
        MappingProxyType({name: _chief(name[0], found) for name, found in origins.items()}),
        MappingProxyType(sets),
        MappingProxyType(phrases),
        MappingProxyType(tables),
        digest.hexdigest(),
    )


def _chief(part: str, origins: list[str]) -> str:
    """The origin that a name of several counts as; American family names include Spanish and Vietnamese ones."""
    first = ("vi", "es", "en") if part == "family" else ("en",)
    return next((origin for origin in first if origin in origins), origins[0])


def _read(path: Path, note: Callable[[bytes], None]) -> dict[str, object]:
    try:
        raw = path.read_bytes()
        data: dict[str, object] = tomllib.loads(raw.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not readable as TOML: restore the packaged file") from error
    note(raw)
    return data


def _words(path: Path, data: Mapping[str, object], part: str) -> list[str]:
    value = data.get(part)
    if not isinstance(value, str) or not value.split():
        raise ConfigurationError(f"{path}: {part} must be a text of names: restore the packaged file")
    return value.split()


def _by_letter(words: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    letters: dict[str, list[str]] = {}
    for word in words:
        letters.setdefault(fold(word)[0].upper(), []).append(word)
    return MappingProxyType({letter: tuple(found) for letter, found in letters.items()})


def _add_any(pools: dict[tuple[str, str], Pool]) -> None:
    for part in PARTS:
        merged = (pool.words for (_, p), pool in sorted(pools.items()) if p == part and pool.by_letter)
        words = tuple(sorted({word for pool in merged for word in pool}))
        pools[ANY, part] = Pool(words, _by_letter(words))
