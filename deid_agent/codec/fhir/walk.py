"""One walk over a resource: the orjson tree and the byte ranges of its scalars, side by side.

The ranges come in document order and so do the members of the tree, so that
each scalar takes the next range. ``measure`` proves beforehand that both have
the same number: a key that stands twice in an object makes the tree shorter.
"""

import re
from collections.abc import Iterator, Mapping

from deid_agent.codec.fhir.leaves import TREATMENTS, number
from deid_agent.codec.fhir.shapes import Leaf, Rule, Shape, Table
from deid_agent.codec.fhir.sink import Frame, Object, Scalar, Sink
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Subject

_KEY = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,63}")
_TEXT = Leaf("text")
_CAPITAL = re.compile(r"[A-Z]")
_COMMENTS = "fhir_comments"  # DSTU2 had them in every element
_OWN = frozenset({"site", "family", "given", "name", "date", "instant", "id", "identifier", "contact"})
"""Treatments that say what a value is wherever it stands; the others need its form."""
_CONTAINERS = (dict, list)  # orjson makes no subclass of either
_SUBJECTS = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
_DEFAULTS = {PhiType.PATIENT: PhiType.MEDICALRECORD}
_ROLE_ORDER = (PhiType.DOCTOR, PhiType.PATIENT, PhiType.ORGANIZATION, PhiType.HOSPITAL)


def measure(tree: Object, max_depth: int) -> int:
    """How many scalars and keys a tree has.

    Raises ``MessageError(RESOURCE)`` where it is deeper than ``max_depth``.
    """
    total = depth = 0
    level: list[object] = [tree]
    while level:
        depth += 1
        if depth == max_depth and any(level):  # what they hold is one level deeper
            raise MessageError(Reason.RESOURCE, "byte 0", f"nested deeper than {max_depth}")
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                total += 2 * len(node)  # keys, and what is no container below
                inner = [item for item in node.values() if type(item) in _CONTAINERS]
            elif isinstance(node, list):
                total += len(node)
                inner = [item for item in node if type(item) in _CONTAINERS]
            else:  # no container: only the root can be one
                return 1
            total -= len(inner)
            below += inner
        level = below
    return total


class Walk:
    """Reads one resource into a sink; used once."""

    def __init__(self, sink: Sink, spans: list[tuple[int, int]], tree: Object) -> None:
        self._sink = sink
        self._table: Table = sink.table
        self._next = iter(spans).__next__
        self._known: dict[str, str] = dict(_entries(tree))
        self._contained: dict[str, str] = {}

    def resource(self, value: Object, path: str, frame: Frame | None = None) -> None:
        """A resource of any type; one that no version knows has the elements that all have."""
        name = value.get("resourceType")
        name = name if isinstance(name, str) else ""
        shape = self._table.shapes.get(name) if name in self._table.resources else None
        shape = shape or self._table.shapes["DomainResource" if name else "Resource"]
        outer = self._contained
        if "contained" in value:
            self._contained = dict(_contained(value))
        self._object(value, shape, path or name, self._table.unknown, frame)
        self._contained = outer

    def _object(self, value: Object, shape: Shape, path: str, rule: Rule, outer: Frame | None) -> None:
        if shape.extension:
            url = value.get("url")
            shape = self._table.extensions.get(url, shape) if isinstance(url, str) else shape
        subject = shape.subject or (outer.subject if outer else Subject.OTHER)
        frame = Frame(path, value, subject, path if shape.composite else "", default=rule.default)
        if shape.reference:
            self._refer(frame, rule)
        elif outer is not None and outer.role is not None:
            frame.default = _DEFAULTS.get(outer.role, PhiType.IDNUM)
        take, sink, rules = self._next, self._sink, shape.rules
        for key, item in value.items():
            start, end = take()
            found = rules.get(key) or self._unlisted(key, start, end, frame, shape)
            if isinstance(item, str):
                start, end = take()
                if (leaf := found.leaf) is not None and not (leaf.stays and leaf.stays(item)):
                    TREATMENTS[leaf.name](Scalar(sink, leaf, item, start + 1, end - 1, f"{path}.{key}", frame))
            elif isinstance(item, list):
                self._list(item, found, f"{path}.{key}", frame)
            elif isinstance(item, dict):
                self._child(item, found, f"{path}.{key}", frame)
            else:
                self._number(item, found, f"{path}.{key}", frame)
        if frame.data is not None:
            sink.attachment(frame)

    def _list(self, items: list[object], rule: Rule, path: str, frame: Frame) -> None:
        for index, item in enumerate(items):
            if isinstance(item, dict):
                self._child(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, list):
                self._list(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, str):
                start, end = self._next()
                if (leaf := rule.leaf) is not None and not (leaf.stays and leaf.stays(item)):
                    where = f"{path}[{index}]"
                    TREATMENTS[leaf.name](Scalar(self._sink, leaf, item, start + 1, end - 1, where, frame))
            else:
                self._number(item, rule, f"{path}[{index}]", frame)

    def _number(self, item: object, rule: Rule, path: str, frame: Frame) -> None:
        """A number, ``true``, ``false`` or ``null``."""
        start, end = self._next()
        if not rule.numbers_stay and rule.leaf and isinstance(item, int | float) and not isinstance(item, bool):
            value = self._sink.raw[start:end].decode("ascii")
            number(Scalar(self._sink, rule.leaf, value, start, end, path, frame), item)

    def _child(self, item: Object, rule: Rule, path: str, frame: Frame) -> None:
        shape = rule.child or self._guess(item)
        if shape is self._table.nothing and rule.leaf is not None and rule.leaf.name in _OWN:
            shape = Shape("?", rest=Rule(rule.leaf, None, numbers_stay=False))  # an object where a scalar belongs
        if shape is self._table.anything:
            self.resource(item, path, frame)
        else:
            self._object(item, shape, path, rule, frame)

    def _unlisted(self, key: str, start: int, end: int, frame: Frame, shape: Shape) -> Rule:
        """The rule of an element that its type does not have: ``_x``, a choice type, or anything."""
        if not _KEY.fullmatch(key):
            # Only a broken producer writes such a name, and what it writes there may be a person's.
            Scalar(self._sink, _TEXT, key, start + 1, end - 1, f"{frame.path}.?", frame).text()
            return self._table.unknown
        if key[0] == "_":
            return self._table.primitive_extension
        for capital in _CAPITAL.finditer(key):
            suffix = key[capital.start() :]
            if suffix in self._table.shapes and suffix not in self._table.resources:
                return Rule(self._table.unknown.leaf, self._table.shapes[suffix], numbers_stay=False)
            rule = self._table.primitives.get(suffix[0].lower() + suffix[1:])
            # "zipCode" is no code: only value[x] and dates, which prove themselves, go by their name.
            if rule and rule.leaf and (key.startswith("value") or rule.leaf.name in {"date", "instant"}):
                return rule
        if shape.rest is not None and key != _COMMENTS:
            return shape.rest
        return self._table.unknown

    def _guess(self, item: Object) -> Shape:
        if isinstance(item.get("resourceType"), str):
            return self._table.anything
        for guess in self._table.guesses:
            if guess.all <= item.keys() and (not guess.any or not guess.any.isdisjoint(item)):
                system = item.get("system")
                if not guess.system or (isinstance(system, str) and system in guess.system):
                    return self._table.shapes[guess.type]
        return self._table.nothing

    def _refer(self, frame: Frame, rule: Rule) -> None:
        """What a Reference names: by the type it points to, else by the types its element allows."""
        name = self.target(frame.owner)
        if name:
            frame.role = self._table.roles.get(name)
        elif rule.patient and PhiType.PATIENT in rule.targets:
            frame.role = PhiType.PATIENT
        else:
            frame.role = next((role for role in _ROLE_ORDER if role in rule.targets), None)
        if frame.role is not None:
            frame.subject = _SUBJECTS.get(frame.role, Subject.OTHER)

    def target(self, reference: Mapping[str, object]) -> str:
        """The resource type that a Reference points to, or an empty string."""
        address = reference.get("reference")
        name = ""
        if isinstance(address, str) and address:
            known = self._contained if address[0] == "#" else self._known
            name = known.get(address) or self._sink.type_of(address)
        given = reference.get("type")
        return name or (given.rpartition("/")[2] if isinstance(given, str) else "")


def _entries(tree: Object) -> Iterator[tuple[str, str]]:
    """Full URLs of a Bundle's entries, and the types behind them."""
    entries = tree.get("entry")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(resource := entry.get("resource"), dict):
            url, name = entry.get("fullUrl"), resource.get("resourceType")
            if isinstance(url, str) and isinstance(name, str):
                yield url, name


def _contained(resource: Object) -> Iterator[tuple[str, str]]:
    inside = resource.get("contained")
    for each in inside if isinstance(inside, list) else []:
        if isinstance(each, dict):
            key, name = each.get("id"), each.get("resourceType")
            if isinstance(key, str) and isinstance(name, str):
                yield f"#{key}", name
