"""``rules/cda/elements.toml`` as checked values. An error is a ``ConfigurationError`` that names the key."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from deid_agent.codec.codes import NameReader, load_names
from deid_agent.codec.dates import BirthLabels, load_birth_labels
from deid_agent.codec.markup.elements import binds_namespace, has_usual_prefix
from deid_agent.model import ConfigurationError, DateKind, PhiType, ValueKind

FILE = "cda/elements.toml"


class CdaAction(StrEnum):
    """How a text or the value of an attribute is read, as written in the rule file. SITE has a PHI type."""

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


class CdaEntity(StrEnum):
    """The entity of the nearest participation or role: its names, addresses and identifiers are those of the entity."""

    PATIENT = "patient"
    PROVIDER = "provider"
    ORGANIZATION = "organization"
    PLACE = "place"
    PRODUCT = "product"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CdaTreatment:
    """An action with the PHI type and the kind of the site that it adds (for SITE)."""

    action: CdaAction
    type: PhiType = PhiType.IDNUM
    kind: ValueKind = ValueKind.VALUE


TEXT = CdaTreatment(CdaAction.TEXT)


_LONGEST_CACHED = 64
"""Characters of the longest name of an attribute whose rule is cached."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CdaTable:
    """The rules of elements and attributes, and the lists beside them; compared by identity."""

    entities: Mapping[str, CdaEntity]
    content: Mapping[str, CdaTreatment]
    attributes: Mapping[str, CdaTreatment]
    identifiers: Mapping[str, PhiType]
    roots: Mapping[str, PhiType | None]
    arcs: tuple[tuple[str, PhiType | None], ...]
    fragments: frozenset[str]
    numbers: frozenset[str]
    inline: frozenset[str]
    names: frozenset[str]
    systems: re.Pattern[str]
    births: frozenset[str]
    public: frozenset[str]
    dated: frozenset[str]
    labels_of_birth: BirthLabels
    people: NameReader
    local_systems: re.Pattern[str]

    def read_attribute(self, element: str, name: str) -> tuple[CdaTreatment, bool, bool]:
        """The results of ``attribute``, ``knows_attribute`` and ``may_keep_date``."""
        if element in self.names and len(name) <= _LONGEST_CACHED:
            return self._read_attribute(element, name)
        return self.attribute(element, name), self.knows_attribute(name), self.may_keep_date(element, name)

    @lru_cache(maxsize=2048)  # noqa: B019 - one table for each process
    def _read_attribute(self, element: str, name: str) -> tuple[CdaTreatment, bool, bool]:
        return self.attribute(element, name), self.knows_attribute(name), self.may_keep_date(element, name)

    def may_keep_date(self, element: str, name: str) -> bool:
        """True for an attribute with the version or the name of a code system or of a template."""
        local = "xmlns" if binds_namespace(name) else name.rpartition(":")[2]
        return f"@{local}" in self.dated or f"{element}@{local}" in self.dated

    def date_kind(self, element: str) -> DateKind:
        """The kind of a date in this element, without its label."""
        if element in self.births:
            return DateKind.BIRTH
        return DateKind.PUBLIC if element in self.public else DateKind.EVENT

    def is_public(self, oid: str) -> bool:
        """True for the OID of a public code system; the texts of any other are a sender's own words."""
        return self.systems.fullmatch(oid.strip()) is not None

    def keeps_code(self, system: str, code: str) -> bool:
        """True for a code of a standard, and for one that neither has the form of an identifier nor is a name."""
        return self.is_public(system) or self.local_systems.match(system) is not None or self.people.is_plain_code(code)

    def text(self, parent: str, element: str) -> CdaTreatment:
        """The treatment of text directly inside an element."""
        return self.content.get(f"{parent}/{element}") or self.content.get(element) or TEXT

    def attribute(self, element: str, name: str) -> CdaTreatment:
        """The treatment of the value of an attribute; ``name`` may have a prefix."""
        local = "xmlns" if binds_namespace(name) else name.rpartition(":")[2]
        return self.attributes.get(f"{element}@{local}") or self.attributes.get(f"@{local}") or TEXT

    def knows_attribute(self, name: str) -> bool:
        """True for an attribute name of the table, which a path may contain; any other name could be PHI.

        A prefix of the sender's own could be PHI too.
        """
        return has_usual_prefix(name) and self.has_attribute(name)

    def has_attribute(self, name: str) -> bool:
        """True for an attribute name of the table with any prefix, and for those of XML and of schemas."""
        local = name.rpartition(":")[2]
        return binds_namespace(name) or f"@{local}" in self.attributes or local in _ATTRIBUTES

    def root(self, oid: str) -> tuple[bool, PhiType | None]:
        """Whether the register ``oid`` is known, and the PHI type of its numbers (None if they identify no person)."""
        if oid in self.roots:
            return True, self.roots[oid]
        return next(((True, type_) for arc, type_ in self.arcs if oid.startswith(arc)), (False, None))


_ATTRIBUTES = frozenset({"assigningAuthorityName", "space", "lang", "noNamespaceSchemaLocation"})


def load_cda_table(rules: Path) -> CdaTable:
    """The table of ``rules``. Raises ``ConfigurationError`` that names the file and the key."""
    path = rules / FILE
    try:
        conf = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem if isinstance(problem, ValueError) else "cannot be read"
        raise ConfigurationError(f"{path}: {reason}") from None
    known = {
        "whose", "content", "attributes", "identifiers", "roots", "arcs", "roots_of_documents", "structure",
        "code_systems", "dates",
    }  # fmt: skip
    if unknown := set(conf) - known:
        raise ConfigurationError(f"{FILE}: unknown section {sorted(unknown)[0]}; known: {', '.join(sorted(known))}")
    content = {key: _treatment(word, f"content.{key}") for key, word in _words(conf, "content").items()}
    attributes = {key: _treatment(word, f"attributes.{key}") for key, word in _words(conf, "attributes").items()}
    entities = {key: _entity(word, f"whose.{key}") for key, word in _words(conf, "whose").items()}
    numbers, names = _list(conf, "structure", "numbers"), _list(conf, "structure", "names")
    inline, fragments = _list(conf, "structure", "inline"), _list(conf, "roots_of_documents", "names")
    vocabulary = {key.rpartition("/")[2].partition("@")[0] for key in (*content, *attributes, *entities)} - {""}
    return CdaTable(
        entities,
        content,
        attributes,
        {key: _type(word, f"identifiers.{key}") for key, word in _words(conf, "identifiers").items()},
        {key: _type_unless_kept(word, f"roots.{key}") for key, word in _words(conf, "roots").items()},
        tuple((key, _type_unless_kept(word, f"arcs.{key}")) for key, word in _words(conf, "arcs").items()),
        fragments,
        numbers,
        frozenset(name.lower() for name in inline),
        frozenset(vocabulary | names | numbers | inline | fragments),
        re.compile(str(conf.get("code_systems", {}).get("oid", ""))),
        _list(conf, "dates", "birth"),
        _list(conf, "dates", "public"),
        _list(conf, "dates", "keep"),
        load_birth_labels(rules),
        load_names(rules),
        re.compile(str(conf.get("code_systems", {}).get("numbers", ""))),
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


def _treatment(word: str, where: str) -> CdaTreatment:
    first, _, second = word.partition(" ")
    if first in set(CdaAction) - {CdaAction.SITE} and not second:
        return CdaTreatment(CdaAction(first))
    if second not in {"", "redact"}:
        raise ConfigurationError(f"{FILE}: {where}: {second!r} after a type; only 'redact' may follow")
    return CdaTreatment(CdaAction.SITE, _type(first, where), ValueKind.REDACT if second else ValueKind.VALUE)


def _type(word: str, where: str) -> PhiType:
    try:
        return PhiType(word)
    except ValueError:
        raise ConfigurationError(f"{FILE}: {where}: {word!r} is neither a treatment nor a PHI type") from None


def _type_unless_kept(word: str, where: str) -> PhiType | None:
    return None if word == "keep" else _type(word, where)


def _entity(word: str, where: str) -> CdaEntity:
    try:
        return CdaEntity(word)
    except ValueError:
        raise ConfigurationError(f"{FILE}: {where}: {word!r}: not one of {', '.join(CdaEntity)}") from None
