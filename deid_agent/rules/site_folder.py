"""Site folders: lists, rules and removals of one site, beside the shipped rules.

A site folder has ``lists/<TYPE>.txt``, ``patterns/*.toml``, ``vetoes/*.toml`` and ``remove.toml``, each optional.
Nothing of it enters the features of models. The lists hold names of people, so no error quotes a value.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from deid_agent.model import ConfigurationError, PhiType
from deid_agent.rules.files import Lexicon, data_folder, digest_folder, read_toml
from deid_agent.rules.ruleset import Cleared
from deid_agent.rules.site_terms import PEOPLE, NameIndex, SiteLists, TermIndex, index_values, plain_form

SHIPPED: Final = "shipped"
"""The name of the packaged rules in a list of folders."""

RulesGiven = str | Path | Sequence[str | Path] | None
"""The rules as settings, options and programs give them: a folder, or a list whose first element is a folder or
``SHIPPED`` and whose others are site folders. None, or an empty list, is what is packaged."""

_PARTS = ("lists", "patterns", "vetoes", "remove.toml")


@dataclass(frozen=True, slots=True)
class RuleFolders:
    """The folder of the rules, and the site folders beside it."""

    folder: Path
    sites: tuple[Path, ...] = ()


def find_rules(given: RulesGiven = None, environ: Mapping[str, str] = os.environ) -> RuleFolders:
    """The folders of ``given``. Without one, ``$DEID_RULES`` counts, as in ``data_folder``.

    Raises ``ConfigurationError`` for a folder that does not exist, and for a site folder that is not behind the rules.
    """
    parts = (given,) if isinstance(given, str | Path) else tuple(given or ())
    first, sites = (str(parts[0]) if parts else None), tuple(map(Path, parts[1:]))
    folder = data_folder("rules", None, {}) if first == SHIPPED else data_folder("rules", first, environ)
    if _is_site(folder):
        raise ConfigurationError(f"{folder} is a site folder: put {SHIPPED} before it (--rules {SHIPPED} --rules SITE)")
    for at, site in enumerate(sites):
        if not site.is_dir():
            raise ConfigurationError(f"site folder {site}: no such folder; correct the rules")
        if site in sites[:at]:
            raise ConfigurationError(f"site folder {site}: given twice; remove one")
    return RuleFolders(folder, sites)


def _is_site(folder: Path) -> bool:
    whole = (folder / "fragments.toml").exists() or (folder / "dictionary").is_dir() or (folder / "lexicon").is_dir()
    return not whole and ((folder / "lists").is_dir() or (folder / "remove.toml").is_file())


def digest_sites(sites: Sequence[Path]) -> str:
    """SHA-256 (hex) over all site folders in their order."""
    total = hashlib.sha256()
    for site in sites:
        total.update(digest_folder(site).encode())
    return total.hexdigest()


class RemoveFile(BaseModel):
    """The keys of ``remove.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rules: tuple[str, ...] = ()
    """Ids of patterns and vetoes that do not run. Models still read the matches of a pattern."""
    terms: dict[str, tuple[str, ...]] = {}
    """For a type the texts that are not PHI here, unless the message itself gives them."""


_REMOVE = TypeAdapter(RemoveFile)


def check_parts(site: Path) -> None:
    """Raise ``ConfigurationError`` for a file that a site folder does not have."""
    for path in _visible(site):
        if path.name not in _PARTS or path.is_dir() != (path.name != "remove.toml"):
            raise ConfigurationError(f"{path}: unknown: a site folder has lists/, patterns/, vetoes/ and remove.toml")
    for name in ("patterns", "vetoes"):
        for path in _visible(site / name):
            if path.suffix != ".toml" or not path.is_file():
                raise ConfigurationError(f"{path}: unknown: a rule is a file ID.toml")


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder that are not hidden."""
    if folder.is_dir():
        try:
            yield from sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError as problem:
            raise ConfigurationError(f"{folder}: cannot be read ({type(problem).__name__})") from None


def load_lists(sites: Sequence[Path], particles: Lexicon) -> SiteLists:
    """The lists of the site folders. Raises ``ConfigurationError`` with file and line, without the value."""
    found: dict[PhiType, dict[str, list[str]]] = {}
    for site in sites:
        for path in _visible(site / "lists"):
            kind = list_type(path)
            index_values(path, kind, found.setdefault(kind, {}))
    names = {kind: NameIndex(values, particles) for kind, values in found.items() if kind in PEOPLE}
    terms = {kind: TermIndex(values) for kind, values in found.items() if kind not in PEOPLE}
    return SiteLists(MappingProxyType(names), MappingProxyType(terms), frozenset().union(*found.values()))


def list_type(path: Path) -> PhiType:
    """The type of the values of a list file. Raises ``ConfigurationError`` if its name is no type."""
    if path.suffix == ".txt" and path.is_file() and path.stem in list(PhiType):
        return PhiType(path.stem)
    raise ConfigurationError(f"{path}: unknown: a list is a file TYPE.txt, with one of {', '.join(PhiType)}")


def load_removals(sites: Sequence[Path], shipped: frozenset[str]) -> tuple[frozenset[str], Cleared]:
    """The ids of removed rules, and the texts that are no PHI. Raises ``ConfigurationError`` for an unknown id."""
    removed: set[str] = set()
    cleared: dict[PhiType, frozenset[str]] = {}
    for site in sites:
        path = site / "remove.toml"
        if not path.is_file():
            continue
        file = read_toml(path, _REMOVE)
        for number, id_ in enumerate(file.rules, 1):
            if id_ not in shipped:
                raise ConfigurationError(f"{path}: rules: no shipped rule has id number {number}: see rules list")
        removed.update(file.rules)
        for number, (name, terms) in enumerate(file.terms.items(), 1):
            if name not in list(PhiType):  # the name may be a value that was written in the wrong place
                raise ConfigurationError(f"{path}: terms: key {number} is no type: one of {', '.join(PhiType)}")
            kind = PhiType(name)
            if not all(map(plain_form, terms)):
                raise ConfigurationError(f"{path}: terms.{kind}: a text is empty: remove it")
            cleared[kind] = cleared.get(kind, frozenset()) | frozenset(map(plain_form, terms))
    return frozenset(removed), cleared
