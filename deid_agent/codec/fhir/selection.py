"""The members of a FHIR resource that an allow-list policy does not publish.

Paths begin with the type of the innermost resource: ``Observation.code`` is that member of every Observation, also in a
Bundle and in ``contained``. A listed path publishes the members below it that FHIR defines, except extensions and other
resources. Without being listed stay ``resourceType``, ``Bundle.type`` and what encloses a published member. A resource
of which nothing is published is removed; the message is refused if that is its root, or if a required member would go.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.codec.fhir.shapes import FhirTable, Shape
from deid_agent.codec.json_ranges import JsonRange, read_ranges
from deid_agent.model import ConfigurationError, Dropped, MessageError, PublishedPaths, Reason

_APART = frozenset({"extension", "modifierExtension", "contained", "fhir_comments"})
"""Members that a path above them does not list: they may hold anything."""
_CONTAINERS = frozenset({"Bundle", "Parameters"})
"""Types that are published for the resources in them."""
_STRUCTURE = frozenset({"Bundle.type"})
_ANY = "[x]"
_CAPITAL = re.compile(r"[A-Z]")


@dataclass(frozen=True, slots=True)
class _Child:
    """A member or an item: its range, its path, and the ranges to drop inside it. None: it goes as a whole."""

    start: int
    end: int
    path: str
    inside: list[Dropped] | None


class FhirSelector:
    """Finds the unlisted members of resources. ``required`` has the required members of each type."""

    def __init__(self, table: FhirTable, required: Mapping[str, tuple[str, ...]]) -> None:
        self._table = table
        self._required = required

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> list[Dropped]:
        """The ranges of one resource that are not published.

        Raises ``MessageError(UNSUPPORTED)`` if nothing would remain, or a required member would go.
        """
        found = _Selection(self._table, self._required, raw, listed).resource(read_ranges(raw))
        if found is None:
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "the policy publishes nothing of this resource")
        return found


@dataclass(frozen=True, slots=True)
class _Selection:
    """One search. The methods return the ranges to drop inside a value, or None if the value goes as a whole."""

    table: FhirTable
    required: Mapping[str, tuple[str, ...]]
    raw: bytes = field(repr=False)
    listed: PublishedPaths

    def resource(self, node: JsonRange) -> list[Dropped] | None:
        """A resource: its paths begin with its type."""
        name = self._resource_type(node)
        if name not in _CONTAINERS and not self.listed.leads(name):
            return None
        return self._object(node, self.table.shapes[name], name, covered=False)

    def _resource_type(self, node: JsonRange) -> str:
        for key, _, value in node.members or ():
            if key == "resourceType" and self.raw[value.start : value.start + 1] == b'"':
                name = str(json.loads(self.raw[value.start : value.end]))
                return name if name in self.table.resources else ""
        return ""

    def _object(self, node: JsonRange, shape: Shape, path: str, *, covered: bool) -> list[Dropped] | None:
        children: list[_Child] = []
        structure = set()
        for key, start, value in node.members or ():
            shown = f"{path}.{key}" if key in shape.rules or self._type_of_choice(key) else f"{path}.?"
            if key == "resourceType" or shown in _STRUCTURE:
                structure.add(key)
                children.append(_Child(start, value.end, shown, []))
            else:
                inside = self._member(key, value, shape, shown, covered=covered)
                children.append(_Child(start, value.end, shown, inside))
        kept = {key for (key, _, _), c in zip(node.members or (), children, strict=True) if c.inside is not None}
        names = {key for key, _, _ in node.members or ()}
        if kept <= structure or (self._encloses(shape) and "resource" in names - kept):
            return None
        self._check_required(shape, path, names, kept)
        return _drop_children(children)

    def _encloses(self, shape: Shape) -> bool:
        """True for an entry of a Bundle and for a parameter: it goes with its resource."""
        rule = shape.rules.get("resource")
        return rule is not None and rule.child is self.table.anything

    def _check_required(self, shape: Shape, path: str, names: set[str], kept: set[str]) -> None:
        for member in self.required.get(shape.name, ()):
            present = {name for name in names if _is_member(name.lstrip("_"), member)}
            if present and not any(_is_member(name, member) for name in kept):
                raise MessageError(
                    Reason.UNSUPPORTED, f"{path}.{member}", "FHIR requires it, and the policy does not publish it"
                )

    def _member(self, key: str, value: JsonRange, shape: Shape, path: str, *, covered: bool) -> list[Dropped] | None:
        rule = shape.rules.get(key)
        child = rule.child if rule is not None else self._type_of_choice(key)
        if rule is None and child is None:
            return None
        inner = self.listed.lists(path) or (covered and key not in _APART)
        if child is self.table.anything:
            return self._values(value, child, path, covered=False)
        if not inner and not self.listed.leads(path) and (child is None or not self._encloses(child)):
            return None
        return self._values(value, child, path, covered=inner)

    def _type_of_choice(self, key: str) -> Shape | None:
        """The shape of ``valueQuantity`` in an element that does not define it."""
        found = (self.table.shapes.get(key[capital.start() :]) for capital in _CAPITAL.finditer(key))
        return next((shape for shape in found if shape is not None and not shape.resource), None)

    def _values(self, value: JsonRange, shape: Shape | None, path: str, *, covered: bool) -> list[Dropped] | None:
        """A value, or a list of values of one member."""
        if value.items is None:
            return self._value(value, shape, path, covered=covered)
        items = [
            _Child(item.start, item.end, path, self._value(item, shape, path, covered=covered)) for item in value.items
        ]
        return _drop_children(items) if any(item.inside is not None for item in items) else None

    def _value(self, value: JsonRange, shape: Shape | None, path: str, *, covered: bool) -> list[Dropped] | None:
        if value.members is None:
            return [] if covered and value.items is None else None
        if shape is self.table.anything or self._resource_type(value):
            return self.resource(value)
        return None if shape is None else self._object(value, shape, path, covered=covered)


def _drop_children(children: list[_Child]) -> list[Dropped]:
    """The ranges to drop of an object or a list that keeps a child. Each takes one comma with it."""
    found: list[Dropped] = []
    before: int | None = None
    gone: list[_Child] = []
    for child in children:
        if child.inside is None:
            gone.append(child)
            continue
        found += _run(gone, before, child.start)
        found += child.inside
        before, gone = child.end, []
    return [*found, *_run(gone, before, None)]


def _run(gone: list[_Child], before: int | None, after: int | None) -> Iterator[Dropped]:
    """Neighbours that go: each with the comma before it, or with the one after it if it is the first."""
    for number, child in enumerate(gone):
        if before is not None:
            yield Dropped(child.path, before if number == 0 else gone[number - 1].end, child.end)
        elif after is not None:
            yield Dropped(child.path, child.start, gone[number + 1].start if number + 1 < len(gone) else after)


def _is_member(name: str, member: str) -> bool:
    """True if ``name`` is the required ``member``, or one of the choice ``member``."""
    base = member.removesuffix(_ANY)
    return name == member or (base != member and name.startswith(base) and name[len(base) : len(base) + 1].isupper())


def load_required(rules: Path) -> dict[str, tuple[str, ...]]:
    """The required members of each type, from ``rules/fhir/required.json``. Raises ``ConfigurationError``."""
    path = rules / "fhir" / "required.json"
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigurationError(
            f"{path}: {type(problem).__name__}; build it with .ci/build_fhir_required.py"
        ) from None
    if not isinstance(found, dict) or not all(isinstance(row, str) for row in found.values()):
        raise ConfigurationError(f"{path}: not a table of words; build it with .ci/build_fhir_required.py")
    return {str(name): tuple(str(row).split()) for name, row in found.items()}
