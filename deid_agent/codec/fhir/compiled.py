"""``rules/fhir`` read once and joined to one rule per element.

``elements.json`` (generated, see ``build_table``) says which type an element has,
``types.toml`` what becomes of each type's leaves. A word in either that nothing
stands for stops the start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from deid_agent.codec.fhir.reading import Toml, listed, phi, read_json, read_toml, section, words
from deid_agent.codec.fhir.shapes import Guess, Leaf, Rule, Shape, Table
from deid_agent.codec.fhir.whole import STAYS
from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.sites import Kind, Subject

_PLAIN: Mapping[str, PhiType] = {
    "text": PhiType.IDNUM,
    "unknown": PhiType.IDNUM,
    "number": PhiType.IDNUM,
    "code": PhiType.IDNUM,
    "time": PhiType.DATE,
    "date": PhiType.DATE,
    "instant": PhiType.DATE,
    "id": PhiType.IDNUM,
    "reference": PhiType.IDNUM,
    "search": PhiType.IDNUM,
    "uri": PhiType.URL,
    "canonical": PhiType.URL,
    "identifier": PhiType.IDNUM,
    "contact": PhiType.PHONE,
    "display": PhiType.PATIENT,
    "link": PhiType.URL,
    "xhtml": PhiType.IDNUM,
    "data": PhiType.BIOID,
    "mark": PhiType.IDNUM,
    "family": PhiType.PATIENT,
    "given": PhiType.PATIENT,
    "name": PhiType.PATIENT,
    "age": PhiType.AGE,
}
"""The treatments, and the type of a bare number that stands where a string belongs."""
_NUMBERS_STAY = frozenset({"number", "code"})
_COMPOSITES = frozenset({"HumanName", "Address", "ContactPoint", "Identifier", "Reference"})
_ABSTRACT = {"Resource", "DomainResource", "CanonicalResource", "MetadataResource"}


def load(rules: Path) -> Table:
    """The compiled table of ``rules/fhir``.

    Raises ``ConfigurationError`` where a file is missing or a word in it means nothing.
    """
    elements = read_json(rules / "fhir" / "elements.json")
    return _Builder(elements, read_toml(rules / "fhir" / "types.toml")).table()


class _Builder:
    def __init__(self, elements: Mapping[str, Mapping[str, str]], conf: Toml) -> None:
        self._elements = elements
        self._conf = conf
        self._types = {name: words(row, f"types.{name}") for name, row in section(conf, "types").items()}
        self._primitive = words(conf.get("primitive", {}), "primitive")
        self._roles = phi(conf.get("reference", {}), "reference")
        self._defaults = phi(section(conf, "identifier").get("element", {}), "identifier.element")
        self._scalars = words(conf.get("scalar", {}), "scalar")
        self._patient = listed(section(conf, "patient"), "elements")
        self._subjects = {name: _subject(word) for name, word in words(conf.get("subject", {}), "subject").items()}
        self._own = str(section(conf, "uri").get("own", ""))
        vocabularies = listed(section(conf, "uri"), "keep")
        self._stays = {**STAYS, "uri": lambda value: value.startswith(vocabularies)}
        self._rows: dict[str, dict[str, str]] = {}
        self._words: dict[str, dict[str, str]] = {}
        self._shapes: dict[str, Shape] = {}
        self._unknown = Rule(Leaf("unknown"), None, numbers_stay=False)
        self._anything = Shape("")

    def table(self) -> Table:
        for name in self._elements:
            self._flatten(name)
        self._check()
        for name in self._elements:
            self._shape(name)
        resources = frozenset(n for n in self._elements if self._is_resource(n)) - _ABSTRACT
        identifier, uri, xhtml = (section(self._conf, name) for name in ("identifier", "uri", "xhtml"))
        return Table(
            shapes=self._shapes,
            resources=resources,
            definitions=frozenset(name for name in resources if self._defines(name)),
            primitives={name: self._rule("", name, name) for name in self._primitive},
            anything=self._anything,
            nothing=Shape("?"),
            unknown=self._unknown,
            primitive_extension=Rule(self._unknown.leaf, self._shape("Element"), numbers_stay=False),
            extensions=self._extensions(),
            roles=self._roles,
            patient_elements=self._patient,
            identifier_types=phi(identifier.get("type", {}), "identifier.type"),
            identifier_labels=phi(identifier.get("label", {}), "identifier.label"),
            identifier_systems=phi(identifier.get("system", {}), "identifier.system"),
            identifier_elements=self._defaults,
            vocabularies=listed(uri, "keep"),
            queries={k: leaf(v, "query") for k, v in words(self._conf.get("query", {}), "query").items()},
            inline=frozenset(listed(xhtml, "inline")),
            tags=frozenset([*listed(xhtml, "inline"), *listed(xhtml, "blocks")]),
            text_attributes=frozenset(listed(xhtml, "text")),
            link_attributes=frozenset(listed(xhtml, "link")),
            guesses=tuple(self._guesses()),
        )

    def _flatten(self, name: str) -> dict[str, str]:
        """All elements of a type, its base's too; the treatments that types.toml names for them beside it."""
        if name not in self._rows:
            row = self._elements.get(name)
            if row is None:
                raise ConfigurationError(f"elements.json: type {name} is not defined; build the file anew")
            base = row.get("", "")
            inherited = self._flatten(base) if base else {}
            self._rows[name] = inherited | {k: v for k, v in row.items() if k}
            self._words[name] = self._words.get(base, {}) | self._types.get(name, {})
        return self._rows[name]

    def _check(self) -> None:
        for name, named in self._types.items():
            for element in named:
                if element not in self._rows.get(name, {}):
                    raise ConfigurationError(f"types.toml: no version of FHIR knows {name}.{element}; correct the name")
        for name in self._scalars:
            if name not in self._rows:
                raise ConfigurationError(f"types.toml: scalar: no version of FHIR knows {name}; correct the name")
        for wanted in {
            part.split("(")[0] for row in self._rows.values() for spec in row.values() for part in spec.split("|")
        }:
            if wanted not in self._elements and wanted not in self._primitive:
                raise ConfigurationError(f"types.toml: [primitive] says nothing about {wanted}; add it")

    def _shape(self, name: str) -> Shape:
        if name in self._shapes:
            return self._shapes[name]
        parts = name.split("|")
        rest = self._scalar(parts, PhiType.IDNUM)
        shape = self._shapes[name] = Shape(
            name,
            composite=bool(_COMPOSITES & set(parts)),
            reference="Reference" in parts,
            extension=name == "Extension",
            resource=self._is_resource(name),
            rest=Rule(rest, None, numbers_stay=False) if rest else None,
        )
        if shape.resource:
            shape.subject = self._subjects.get(name, Subject.OTHER)
        specs: dict[str, list[str]] = {}
        for part in parts:
            for element, spec in self._rows[part].items():
                specs.setdefault(element, []).append(spec)
        for element, found in specs.items():
            shape.rules[element] = self._rule(name, element, "|".join(found))
        if shape.resource:
            shape.rules["resourceType"] = Rule(Leaf("code"))
        return shape

    def _rule(self, owner: str, element: str, spec: str) -> Rule:
        names = list(dict.fromkeys(part.partition("(")[0] for part in spec.split("|")))
        primitives = [n for n in names if n in self._primitive]
        complexes = sorted(n for n in names if n not in self._primitive)
        word = next((w for o in owner.split("|") if (w := self._words.get(o, {}).get(element))), None)
        if word is None and primitives:
            # Where one version has a dateTime and another an instant, what an instant needs is right for both.
            word = self._primitive["instant" if "instant" in primitives else primitives[0]]
            if element == self._own and word == "uri" and self._defines(owner):
                word = "keep"
        child = None
        if "Resource" in complexes:
            child = self._anything
        elif complexes:
            child = self._shape("|".join(complexes))
        default = self._defaults.get(f"{owner}.{element}", PhiType.IDNUM)
        misshapen = self._scalar(complexes, default) or self._unknown.leaf
        found = leaf(word, f"types.{owner}.{element}") if word else misshapen
        if found is not None and (stays := self._stays.get(found.name)):
            found = replace(found, stays=stays)
        targets = {
            self._roles[t]
            for part in spec.split("|")
            for t in part.partition("(")[2].rstrip(")").split(",")
            if t in self._roles
        }
        return Rule(
            found,
            child,
            numbers_stay=found is None or found.name in _NUMBERS_STAY,
            targets=tuple(sorted(targets)),
            patient=element in self._patient,
            default=default,
        )

    def _scalar(self, types: Iterable[str], default: PhiType) -> Leaf | None:
        """What a string is that stands where an object of one of ``types`` belongs, or inside of it unnamed."""
        name = next((t for t in types if t in self._scalars), "")
        word = self._scalars.get(name, "")
        if word == "identifier":  # without its siblings nothing but the element tells the type
            return Leaf("site", default)
        return leaf(word, f"scalar.{name}") if word else None

    def _defines(self, name: str) -> bool:
        """True for canonical resources: their ``url`` is a name, not a place."""
        row = self._rows.get(name, {})
        return self._own in row and ("experimental" in row or "publisher" in row)

    def _is_resource(self, name: str) -> bool:
        while name and name != "Resource":
            name = self._elements.get(name, {}).get("", "")
        return bool(name)

    def _extensions(self) -> dict[str, Shape]:
        """For every extension with a treatment of its own a variant of ``Extension``."""
        plain = self._shape("Extension")
        out: dict[str, Shape] = {}
        for url, word in words(self._conf.get("extension", {}), "extension").items():
            found = leaf(word, f"extension.{url}")
            shape = out[url] = Shape("Extension", extension=True, rules=dict(plain.rules))
            for element, rule in plain.rules.items():
                if element.startswith("value"):
                    shape.rules[element] = Rule(found, rule.child, found is None, rule.targets)
        return out

    def _guesses(self) -> Iterable[Guess]:
        for row in cast(list[Toml], self._conf.get("guess", [])):
            name = str(row.get("type", ""))
            if name not in self._shapes:
                raise ConfigurationError(f"types.toml: [[guess]] names the unknown type {name}; correct it")
            sets = (frozenset(listed(row, key)) for key in ("all", "any", "system"))
            yield Guess(name, *sets)


def leaf(word: str, where: str) -> Leaf | None:
    """The treatment that a word of ``types.toml`` names; None for ``keep``.

    Raises ``ConfigurationError`` where it names none.
    """
    if word == "keep":
        return None
    if word in _PLAIN:
        return Leaf(word, _PLAIN[word])
    type_, _, kind = word.partition(" ")
    try:
        return Leaf("site", PhiType(type_), Kind(kind or "value"))
    except ValueError:
        raise ConfigurationError(
            f"types.toml: {where} = {word!r} names no treatment; see the head of the file"
        ) from None


def _subject(word: str) -> Subject:
    try:
        return Subject(word)
    except ValueError:
        raise ConfigurationError(f"types.toml: subject: {word!r}; name patient, provider or other") from None
