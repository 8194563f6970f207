"""One walk over a resource: the orjson tree and the quotes of its text, side by side.

Strings come in document order and so do the members of the tree, so that counting the strings passed is knowing
where each stands. ``tokens.Strings`` proves beforehand that both have the same number: a key that stands twice
in an object makes the tree shorter.
"""

from collections.abc import Iterator, Mapping

from deid_agent.codec.fhir.leaves import TREATMENTS, number
from deid_agent.codec.fhir.plans import NAME, Plans
from deid_agent.codec.fhir.shapes import Leaf, Rule, Shape, Table
from deid_agent.codec.fhir.sink import Frame, Object, Scalar, Sink
from deid_agent.codec.fhir.tokens import Strings
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Subject

_CONTAINERS = (dict, list)  # orjson makes no subclass of either
_OWN = frozenset({"site", "family", "given", "name", "date", "instant", "id", "identifier", "contact"})
"""Treatments that say what a value is wherever it stands; the others need its form."""
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

    def __init__(self, sink: Sink, strings: Strings, tree: Object, plans: Plans) -> None:
        self._sink = sink
        self._table: Table = sink.table
        self._strings = strings
        self._quotes = strings.at
        self._plans = plans
        self._planned = plans.known
        self._at = 0  # the next quote
        self._gap = -1  # the quote before which ``_bare`` values without quotes were passed
        self._bare = 0
        self._misshapen: dict[Leaf, Shape] = {}
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
        self._object(value, shape, path or name, "", self._table.unknown, frame)
        self._contained = outer

    def _object(  # noqa: PLR0912 - what a message's time goes into: one more call for each object is felt
        self, value: Object, shape: Shape, path: str, behind: str, rule: Rule, outer: Frame | None
    ) -> None:
        """An object whose path is ``path`` and ``behind``, put together where anything in it needs a look."""
        if shape.extension:
            shape = self._table.extension(value.get("url"), shape)
        signature = (shape, *value, *map(type, value.values()))
        plan = self._planned.get(signature) or self._plans.make(signature, shape, value)
        at = self._at
        if plan.steps:
            path += behind
            subject = shape.subject or (Subject.OTHER if outer is None else outer.subject)
            frame = Frame(path, value, subject, path if shape.composite else "", None, rule.default)
            if shape.reference:
                self._refer(frame, rule)
            elif outer is not None and outer.role is not None:
                frame.default = _DEFAULTS.get(outer.role, PhiType.IDNUM)
            sink, quotes = self._sink, self._quotes
            for skip, key, tail, found, child, leaf, stays, treat in plan.steps:
                at += skip
                item = key if found is NAME else value[key]
                if isinstance(item, str):
                    if stays is None or not stays(item):
                        treat(sink, leaf, item, quotes[at] + 1, quotes[at + 1], path + tail, frame)
                    continue
                self._at = at
                if isinstance(item, list):
                    if child is not None and len(item) == 1 and isinstance(only := item[0], dict):
                        self._object(only, child, path, tail + "[0]", found, frame)
                    else:
                        self._list(item, found, path + tail, frame)
                elif not isinstance(item, dict):
                    self._number(item, found, path + tail, frame)
                elif child is not None:
                    self._object(item, child, path, tail, found, frame)
                else:
                    self._child(item, found, path + tail, frame)
                at = self._at
            if frame.data is not None:
                sink.attachment(frame)
        self._at = at + plan.rest
        if plan.bare:
            self._gap, self._bare = self._at, 1

    def _list(self, items: list[object], rule: Rule, path: str, frame: Frame) -> None:
        for index, item in enumerate(items):
            if isinstance(item, dict):
                self._child(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, list):
                self._list(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, str):
                at = self._at
                self._at = at + 2
                if (leaf := rule.leaf) is not None and not (leaf.stays and leaf.stays(item)):
                    start, end = self._quotes[at] + 1, self._quotes[at + 1]
                    TREATMENTS[leaf.name](self._sink, leaf, item, start, end, f"{path}[{index}]", frame)
            else:
                self._number(item, rule, f"{path}[{index}]", frame)

    def _number(self, item: object, rule: Rule, path: str, frame: Frame) -> None:
        """A number, ``true``, ``false`` or ``null``."""
        if self._gap != self._at:
            self._gap, self._bare = self._at, 0
        nth = self._bare
        self._bare += 1
        if not rule.numbers_stay and rule.leaf and isinstance(item, int | float) and not isinstance(item, bool):
            start, end = self._strings.bare(self._at, nth)
            value = self._sink.raw[start:end].decode("ascii")
            number(Scalar(self._sink, rule.leaf, value, start, end, path, frame), item)

    def _child(self, item: Object, rule: Rule, path: str, frame: Frame) -> None:
        shape = rule.child or self._guess(item)
        if shape is self._table.nothing and rule.leaf is not None and rule.leaf.name in _OWN:
            shape = self._inside(rule.leaf)
        if shape is self._table.anything:
            self.resource(item, path, frame)
        else:
            self._object(item, shape, path, "", rule, frame)

    def _inside(self, leaf: Leaf) -> Shape:
        """The shape of an object that stands where a scalar belongs."""
        found = self._misshapen.get(leaf)
        if found is None:
            found = self._misshapen[leaf] = Shape("?", rest=Rule(leaf, None, numbers_stay=False))
        return found

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
            name = known.get(address) or self._sink.addresses.type_of(address)
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
