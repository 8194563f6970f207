"""Builds ``rules/fhir/elements.json``: the type of every element of every supported FHIR version.

    python .ci/build_fhir_table.py rules/fhir/elements.json

The types are read from the annotations of the models of the ``fhir.resources`` package (R4B, R5, STU3), which are not
imported. If versions disagree about a primitive type, the stricter type is used; if they disagree about a complex type,
the element has both (``CodeableReference|Reference``). Only this script needs ``fhir.resources``; the agent reads the
table.

Source: FHIR R4B, R5 and STU3, resource and datatype definitions.
"""

import ast
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deid_agent.model.errors import ConfigurationError

STRICTNESS = (
    "xhtml", "base64Binary", "id", "uuid", "instant", "dateTime", "date", "markdown", "string", "url", "uri",
    "canonical", "oid", "code", "time", "decimal", "integer64", "integer", "unsignedInt", "positiveInt", "boolean",
)  # fmt: skip
"""Primitive types from the strictest treatment to the most lenient."""

_PEOPLE = frozenset(
    {
        *("Patient", "RelatedPerson", "Person", "Practitioner", "PractitionerRole"),
        *("Organization", "Location", "HealthcareService"),
    }
)
_BASES = frozenset({"Base", "FHIRAbstractModel", "FHIRAbstractBase"})
_ANY = frozenset({"Resource", "DomainResource"})
_VERSIONS = ("", "R4B", "STU3")

Table = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of a model with one of its types; ``targets`` are the resource types that a reference may name."""

    owner: str
    name: str
    type: str
    targets: frozenset[str]


def build_table(models: Path) -> Table:
    """Type name to element name to type; the key ``""`` names the base type.

    ``models`` is the folder of the ``fhir.resources`` package.
    """
    types: dict[str, dict[str, set[str]]] = {}
    targets: dict[tuple[str, str], set[str]] = {}
    bases: dict[str, str] = {}
    for version in _VERSIONS:
        for path in sorted((models / version).glob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if not isinstance(node, ast.ClassDef):
                    continue
                if node.bases:
                    bases.setdefault(node.name, ast.unparse(node.bases[0]).rpartition(".")[2])
                elements = types.setdefault(node.name, {})
                for element in _elements(node):
                    elements.setdefault(element.name, set()).add(element.type)
                    targets.setdefault((node.name, element.name), set()).update(element.targets)
    table: Table = {}
    for owner in sorted(types):
        base = bases.get(owner, "")
        row = {} if base in _BASES or base not in types else {"": base}
        row |= {name: _unite_types(found, targets[owner, name]) for name, found in sorted(types[owner].items())}
        if row:
            table[owner] = row
    return table


def _elements(node: ast.ClassDef) -> Iterator[_Element]:
    for item in node.body:
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Call)):
            continue
        options = {word.arg: word.value for word in item.value.keywords}
        alias = options.get("alias")
        if not (isinstance(alias, ast.Constant) and isinstance(alias.value, str)) or alias.value.startswith("_"):
            continue
        for name in _type_names(item.annotation):
            yield _Element(node.name, alias.value, name, frozenset(_reference_targets(options)))


def _type_names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name == "bool":
            yield "boolean"
        elif name.endswith("Type"):
            bare = name.removesuffix("Type")
            primitive = bare[:1].lower() + bare[1:]
            if bare == "FHIRPrimitiveExtension":
                yield "Element"
            elif bare == "Base64Binary":
                yield "base64Binary"
            elif bare == "ElementOrResource" or bare in _ANY:
                yield "Resource"
            else:
                yield primitive if primitive in STRICTNESS else bare


def _reference_targets(options: dict[str | None, ast.expr]) -> Iterator[str]:
    extra = options.get("json_schema_extra")
    if isinstance(extra, ast.Dict):
        for key, value in zip(extra.keys, extra.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "enum_reference_types" and isinstance(value, ast.List):
                yield from (str(item.value) for item in value.elts if isinstance(item, ast.Constant))


def _unite_types(found: Iterable[str], targets: set[str]) -> str:
    names = set(found)
    primitives = sorted(names & set(STRICTNESS), key=STRICTNESS.index)
    complexes = sorted(names - set(STRICTNESS))
    people = ",".join(sorted(targets & _PEOPLE))
    marked = [
        f"{name}({people})" if people and name in {"Reference", "CodeableReference"} else name for name in complexes
    ]
    return "|".join([*primitives[:1], *marked])


def render_table(table: Table) -> str:
    """The content of the file: one type per line, so that a diff shows single types."""
    lines = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def models_folder() -> Path:
    """The folder of ``fhir.resources``. Raises ``ConfigurationError`` if it is not installed."""
    spec = importlib.util.find_spec("fhir.resources")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError("fhir.resources is not installed: install the development extras")
    return Path(next(iter(spec.submodule_search_locations)))


def main(arguments: list[str]) -> int:
    """Write the table to the path that is the only argument."""
    if len(arguments) != 1:
        raise ConfigurationError("name one file to write, as in rules/fhir/elements.json")
    Path(arguments[0]).write_text(render_table(build_table(models_folder())), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
