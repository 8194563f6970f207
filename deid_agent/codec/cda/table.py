"""``rules/cda/elements.toml`` as checked values; every fault is one ``ConfigurationError`` that says where."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.sites import Kind

FILE = "cda/elements.toml"


class Do(StrEnum):
    """What becomes of a text or of the value of an attribute; SITE comes with a type."""

    KEEP = "keep"
    CODE = "code"
    LABEL = "label"
    KEY = "key"
    TEXT = "text"
    BLOCK = "block"
    FAMILY = "family"
    GIVEN = "given"
    NAME = "name"
    VALUE = "value"
    ROOT = "root"
    EXTENSION = "extension"
    CONTACT = "contact"
    LINK = "link"
    ADDRESS = "address"
    SITE = "site"


class Whose(StrEnum):
    """Who or what the nearest participation or role is about."""

    PATIENT = "patient"
    PROVIDER = "provider"
    ORGANIZATION = "organization"
    PLACE = "place"
    PRODUCT = "product"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Treatment:
    do: Do
    type: PhiType = PhiType.IDNUM
    kind: Kind = Kind.VALUE


TEXT = Treatment(Do.TEXT)


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Everything a walk asks."""

    whose: Mapping[str, Whose]
    content: Mapping[str, Treatment]
    attributes: Mapping[str, Treatment]
    identifiers: Mapping[str, PhiType]
    roots: Mapping[str, PhiType | None]
    arcs: tuple[tuple[str, PhiType | None], ...]
    fragments: frozenset[str]
    numbers: frozenset[str]
    inline: frozenset[str]
    names: frozenset[str]

    def text(self, parent: str, element: str) -> Treatment:
        """What text directly inside of an element is."""
        return self.content.get(f"{parent}/{element}") or self.content.get(element) or TEXT

    def attribute(self, element: str, name: str) -> Treatment:
        """What the value of an attribute is; ``name`` may have a prefix."""
        local = "xmlns" if name.startswith("xmlns") else name.rpartition(":")[2]
        return self.attributes.get(f"{element}@{local}") or self.attributes.get(f"@{local}") or TEXT

    def knows_attribute(self, name: str) -> bool:
        """True for names of the table: a path may show them."""
        return name.startswith("xmlns") or f"@{name.rpartition(':')[2]}" in self.attributes or name in _SEEN

    def root(self, oid: str) -> tuple[bool, PhiType | None]:
        """Whether a register is known, and what its numbers are (None: nobody's)."""
        if oid in self.roots:
            return True, self.roots[oid]
        return next(((True, type_) for arc, type_ in self.arcs if oid.startswith(arc)), (False, None))


_SEEN = frozenset({"assigningAuthorityName"})


def load(rules: Path) -> Table:
    """The table. Raises ``ConfigurationError`` that names the file and the key."""
    path = rules / FILE
    try:
        conf = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem if isinstance(problem, ValueError) else "cannot be read"
        raise ConfigurationError(f"{path}: {reason}") from None
    known = {
        "whose", "content", "attributes", "identifiers", "roots", "arcs", "roots_of_documents", "structure",
    }  # fmt: skip
    if unknown := set(conf) - known:
        raise ConfigurationError(f"{FILE}: unknown section {sorted(unknown)[0]}; known: {', '.join(sorted(known))}")
    content = {key: _treatment(word, f"content.{key}") for key, word in _words(conf, "content").items()}
    attributes = {key: _treatment(word, f"attributes.{key}") for key, word in _words(conf, "attributes").items()}
    whose = {key: _whose(word, f"whose.{key}") for key, word in _words(conf, "whose").items()}
    numbers, names = _list(conf, "structure", "numbers"), _list(conf, "structure", "names")
    inline, fragments = _list(conf, "structure", "inline"), _list(conf, "roots_of_documents", "names")
    vocabulary = {key.rpartition("/")[2].partition("@")[0] for key in (*content, *attributes, *whose)} - {""}
    return Table(
        whose,
        content,
        attributes,
        {key: _type(word, f"identifiers.{key}") for key, word in _words(conf, "identifiers").items()},
        {key: _kept(word, f"roots.{key}") for key, word in _words(conf, "roots").items()},
        tuple((key, _kept(word, f"arcs.{key}")) for key, word in _words(conf, "arcs").items()),
        fragments,
        numbers,
        frozenset(name.lower() for name in inline),
        frozenset(vocabulary | names | numbers | inline | fragments),
    )


def _words(conf: Mapping[str, object], name: str) -> dict[str, str]:
    found = conf.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(word, str) for word in found.values()):
        raise ConfigurationError(f"{FILE}: {name} must be a table of words")
    return found


def _list(conf: Mapping[str, object], section: str, name: str) -> frozenset[str]:
    table = conf.get(section)
    found = table.get(name) if isinstance(table, dict) else None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ConfigurationError(f"{FILE}: {section}.{name} must be a list of names")
    return frozenset(found)


def _treatment(word: str, where: str) -> Treatment:
    first, _, second = word.partition(" ")
    if first in set(Do) - {Do.SITE} and not second:
        return Treatment(Do(first))
    if second not in {"", "redact"}:
        raise ConfigurationError(f"{FILE}: {where}: {second!r} behind a type; only redact may stand there")
    return Treatment(Do.SITE, _type(first, where), Kind.REDACT if second else Kind.VALUE)


def _type(word: str, where: str) -> PhiType:
    try:
        return PhiType(word)
    except ValueError:
        raise ConfigurationError(f"{FILE}: {where}: {word!r} is no treatment and no PHI type") from None


def _kept(word: str, where: str) -> PhiType | None:
    return None if word == "keep" else _type(word, where)


def _whose(word: str, where: str) -> Whose:
    try:
        return Whose(word)
    except ValueError:
        raise ConfigurationError(f"{FILE}: {where}: {word!r}: not one of {', '.join(Whose)}") from None
