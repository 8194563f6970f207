"""The walk over a resource: the orjson tree and the quotes of its text, in parallel.

Strings and the members of the tree come in document order, so the count of strings passed gives the position of each.
The codec checks beforehand that text and tree have the same number of strings: a duplicate key makes the tree shorter.

A plan is the work of the walk in an object, determined by the type of the object, its elements and the kinds of their
values. A message has few kinds of objects and many of each. A plan lists only the members that may hold PHI and how
many quotes precede each of them, so that all other members cost only their part of the signature.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from deid_agent.codec.fhir.names import ElementNames, blank_name
from deid_agent.codec.fhir.shapes import FhirRule, FhirTable, FhirTreatment, Shape, labelled_rule, labelled_shape
from deid_agent.codec.fhir.sink import FhirFrame, FhirSink, Handler, Object, Scalar
from deid_agent.codec.fhir.tokens import StringIndex
from deid_agent.codec.fhir.treatments import HANDLERS, handle_number
from deid_agent.model import MessageError, PhiType, Reason, Subject, ValueKind

MAX_PLANS = 4096
"""Plans kept between messages; bounds the memory."""
_KEY = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,63}")
_CAPITAL = re.compile(r"[A-Z]")
_COMMENTS = "fhir_comments"  # DSTU2 had them in every element
_CONTAINERS = (dict, list)  # orjson creates no subclass of either
_SELF_CONTAINED = frozenset(
    {"site", "family", "given", "name", "date", "instant", "birth", "stamp", "public", "id", "identifier", "contact"}
)
"""Treatments that determine the type of a value anywhere; the others depend on its form."""
_DATES = frozenset({"date", "instant"})
_CODED = frozenset({"vocabulary", "local-code", "display-of-code"})
"""The treatments of the members of a Coding."""
_SUBJECTS = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
_DEFAULTS = {PhiType.PATIENT: PhiType.MEDICALRECORD}
_SEXES = ("female", "male")
_ROLE_ORDER = (PhiType.DOCTOR, PhiType.PATIENT, PhiType.ORGANIZATION, PhiType.HOSPITAL)

Signature = tuple[object, ...]
_TEXT = FhirTreatment("text")
NAME = FhirRule(_TEXT)
"""The rule of a step that reads the name of a member, instead of its value."""


class Step(NamedTuple):
    """A member that may hold PHI.

    ``skip`` is the number of quotes between the last step and the value. ``child`` is the shape of an object, None if
    the shape is guessed from its members. ``treatment``, ``keeps`` and ``handle`` apply to a string.
    """

    skip: int
    key: str
    suffix: str
    rule: FhirRule
    child: Shape | None
    treatment: FhirTreatment
    keeps: Callable[[str], object] | None
    handle: Handler


@dataclass(frozen=True, slots=True)
class Plan:
    """``rest`` is the number of quotes after the last step; ``bare`` is true if the last value is not a string.

    ``coding`` is the number of all quotes of a Coding, else 0. Most objects of a message
    are such codings, and most are skipped: they have the text of a standard code.
    """

    steps: tuple[Step, ...]
    rest: int
    bare: bool
    coding: int = 0


class Plans:
    """Plans by signature: the shape, the names of the members, the Python types of their values.

    ``known`` outlives a message. It contains only member names of the table, because any other name may be a person's.
    Other objects are planned for one message only.
    """

    def __init__(self, table: FhirTable, names: ElementNames, known: dict[Signature, Plan]) -> None:
        self._table = table
        self.names = names
        self.known = known
        self._own: dict[Signature, Plan] = {}

    def plan(self, signature: Signature, shape: Shape, value: Object) -> Plan:
        """The plan of an object whose signature is not in ``known``."""
        found = self._own.get(signature)
        if found is None:
            found = _make_plan(self._table, self.names, shape, value)
            if not shape.rules or not value.keys() <= shape.rules.keys():
                self._own[signature] = found
            else:
                if len(self.known) >= MAX_PLANS:
                    self.known.clear()
                self.known[signature] = found
        return found


def _make_plan(table: FhirTable, names: ElementNames, shape: Shape, value: Object) -> Plan:
    steps: list[Step] = []
    skip, bare = 0, False
    for place, (key, item) in enumerate(value.items()):
        rule = shape.rules.get(key) or _rule_for_unlisted(table, shape, key)
        treatment, shown = rule.treatment, f".{key}"
        own = key in shape.rules or (key[:1] == "_" and key[1:] in shape.rules)
        if not own and key not in names.known and not names.may_stay(key):
            steps.append(Step(skip, key, ".?", NAME, None, _TEXT, None, partial(_redact_name, blank_name(place))))
            skip, shown = 0, ".?"
        elif not own and not _KEY.fullmatch(key):
            # Only a broken producer writes such a name, and the name may contain PHI.
            steps.append(Step(skip, key, ".?", NAME, None, _TEXT, None, HANDLERS["text"]))
            skip, shown = 0, ".?"
        skip += 2
        bare = not isinstance(item, str | list | dict)
        wanted = treatment is not None if isinstance(item, str) else not bare or _is_number_to_handle(rule, item)
        if wanted:
            child = None if rule.child is table.anything else rule.child
            treatment = treatment or _TEXT
            steps.append(Step(skip, key, shown, rule, child, treatment, treatment.keeps, HANDLERS[treatment.name]))
            skip = 0
        if isinstance(item, str):
            skip += 2
    is_coding = bool(steps) and all(
        step.treatment.name in _CODED and isinstance(value[step.key], str) for step in steps
    )
    return Plan(tuple(steps), skip, bare, coding=sum(step.skip for step in steps) + skip if is_coding else 0)


def _redact_name(
    blank: str, sink: FhirSink, _: FhirTreatment, name: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    sink.site(path, start, end, name, PhiType.IDNUM, frame, ValueKind.REDACT, blank=blank)


def _is_number_to_handle(rule: FhirRule, item: object) -> bool:
    """True for a number in an element that does not keep numbers."""
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    return is_number and not rule.keeps_numbers and rule.treatment is not None


def _rule_for_unlisted(  # noqa: PLR0911 - one arm for each form of a name
    table: FhirTable, shape: Shape, key: str
) -> FhirRule:
    """The rule of an element that its type does not define: ``_x``, a choice type, or an unknown element."""
    if not _KEY.fullmatch(key):
        return table.unknown
    if key[0] == "_":
        base = shape.rules.get(key[1:])
        return table.primitive_extensions.get(
            base.treatment.name if base and base.treatment else "", table.primitive_extension
        )
    for capital in _CAPITAL.finditer(key):
        suffix = key[capital.start() :]
        if suffix in table.shapes and suffix not in table.resources:
            unlisted = FhirRule(table.unknown.treatment, table.shapes[suffix], keeps_numbers=False)
            return labelled_rule(unlisted, shape.meaning, suffix) if shape.meaning is not None else unlisted
        rule = table.primitives.get(suffix[0].lower() + suffix[1:])
        # "zipCode" is no code: only value[x], and dates, whose form is checked, are typed by the name of the element.
        if rule and shape.meaning is not None and key.startswith("value"):
            return labelled_rule(rule, shape.meaning, suffix)
        if rule and rule.treatment and (key.startswith("value") or rule.treatment.name in _DATES):
            return rule
    if shape.rest is not None and key != _COMMENTS:
        return shape.rest
    meaning = None if table.labels.may_name_things(key) else table.labels.of_text(key)
    return table.unknown if meaning is None else labelled_rule(table.unknown, meaning, "")


def count_scalars(tree: Object, max_depth: int) -> int:
    """The number of scalars and keys of a tree.

    Raises ``MessageError(RESOURCE)`` if the tree is deeper than ``max_depth``.
    """
    total = depth = 0
    level: list[object] = [tree]
    while level:
        depth += 1
        if depth == max_depth and any(level):  # their content is one level deeper
            raise MessageError(Reason.RESOURCE, "byte 0", f"nested deeper than {max_depth}")
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                total += 2 * len(node)  # keys and scalars
                inner = [item for item in node.values() if type(item) in _CONTAINERS]
            elif isinstance(node, list):
                total += len(node)
                inner = [item for item in node if type(item) in _CONTAINERS]
            else:  # only the root can be a scalar
                return 1
            total -= len(inner)
            below += inner
        level = below
    return total


class FhirWalk:
    """Walks one resource and adds its sites, narratives and attachments to a sink; used once."""

    def __init__(self, sink: FhirSink, strings: StringIndex, tree: Object, plans: Plans) -> None:
        self._sink = sink
        self._table: FhirTable = sink.table
        self._strings = strings
        self._quotes = strings.at
        self._plans = plans
        self._planned = plans.known
        self._at = 0  # the next quote
        self._bare_before = -1  # the quote before which ``_bare_count`` values without quotes were passed
        self._bare_count = 0
        self._misshapen: dict[FhirTreatment, Shape] = {}
        self._known: dict[str, str] = dict(_entry_types(tree))
        self._contained: dict[str, str] = {}

    def resource(self, value: Object, path: str, frame: FhirFrame | None = None) -> None:
        """Walk a resource; one of a release that the table does not have has the elements that all resources have.

        Raises ``MessageError(UNSUPPORTED)`` for a type that no release has.
        """
        name = value.get("resourceType")
        name = name if isinstance(name, str) else ""
        if name:
            self._plans.names.check_type(name, f"{path}.resourceType")
        shape = self._table.shapes.get(name) if name in self._table.resources else None
        shape = shape or self._table.shapes["DomainResource" if name else "Resource"]
        outer = self._contained
        if "contained" in value:
            self._contained = dict(_contained_types(value))
        self._object(value, shape, path or name, "", self._table.unknown, frame)
        self._contained = outer

    def _object(  # noqa: PLR0912 - the hot loop: one more call for each object costs measurable time
        self, value: Object, shape: Shape, path: str, suffix: str, rule: FhirRule, outer: FhirFrame | None
    ) -> None:
        """Walk an object. Its path is ``path`` plus ``suffix``; they are only joined if the plan has steps."""
        if shape.extension:
            shape = self._table.extension(value.get("url"), shape)
        if shape.labels and (meaning := self._table.meaning_of(value, shape.labels)) is not None:
            shape = labelled_shape(shape, meaning)
        signature = (shape, *value, *map(type, value.values()))
        plan = self._planned.get(signature) or self._plans.plan(signature, shape, value)
        at = self._at
        if plan.coding and self._table.keeps_coding(value.get("system"), value.get("display")):
            at += plan.coding - plan.rest
        elif plan.steps:
            path += suffix
            subject = shape.subject or (Subject.OTHER if outer is None else outer.subject)
            frame = FhirFrame(path, value, subject, path if shape.composite else "", None, rule.default)
            if frame.group and outer is not None and (sex := outer.owner.get("gender")) in _SEXES:
                self._sink.sexes[path] = str(sex)
            if shape.reference:
                self._set_role(frame, rule)
            elif outer is not None and outer.role is not None:
                frame.default = _DEFAULTS.get(outer.role, PhiType.IDNUM)
            sink, quotes = self._sink, self._quotes
            for skip, key, tail, found, child, treatment, keeps, handle in plan.steps:
                at += skip
                item = key if found is NAME else value[key]
                if isinstance(item, str):
                    if keeps is None or not keeps(item):
                        handle(sink, treatment, item, quotes[at] + 1, quotes[at + 1], path + tail, frame)
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
            self._bare_before, self._bare_count = self._at, 1

    def _list(self, items: list[object], rule: FhirRule, path: str, frame: FhirFrame) -> None:
        for index, item in enumerate(items):
            if isinstance(item, dict):
                self._child(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, list):
                self._list(item, rule, f"{path}[{index}]", frame)
            elif isinstance(item, str):
                at = self._at
                self._at = at + 2
                if (treatment := rule.treatment) is not None and not (treatment.keeps and treatment.keeps(item)):
                    start, end = self._quotes[at] + 1, self._quotes[at + 1]
                    HANDLERS[treatment.name](self._sink, treatment, item, start, end, f"{path}[{index}]", frame)
            else:
                self._number(item, rule, f"{path}[{index}]", frame)

    def _number(self, item: object, rule: FhirRule, path: str, frame: FhirFrame) -> None:
        """A number, ``true``, ``false`` or ``null``."""
        if self._bare_before != self._at:
            self._bare_before, self._bare_count = self._at, 0
        nth = self._bare_count
        self._bare_count += 1
        if not rule.keeps_numbers and rule.treatment and isinstance(item, int | float) and not isinstance(item, bool):
            start, end = self._strings.bare(self._at, nth)
            value = self._sink.raw[start:end].decode("ascii")
            handle_number(Scalar(self._sink, rule.treatment, value, start, end, path, frame), item)

    def _child(self, item: Object, rule: FhirRule, path: str, frame: FhirFrame) -> None:
        shape = rule.child or self._guess(item)
        if shape is self._table.nothing and rule.treatment is not None and rule.treatment.name in _SELF_CONTAINED:
            shape = self._shape_of_misshapen(rule.treatment)
        if shape is self._table.anything:
            self.resource(item, path, frame)
        else:
            self._object(item, shape, path, "", rule, frame)

    def _shape_of_misshapen(self, treatment: FhirTreatment) -> Shape:
        """The shape of an object in place of a scalar."""
        found = self._misshapen.get(treatment)
        if found is None:
            found = self._misshapen[treatment] = Shape("?", rest=FhirRule(treatment, None, keeps_numbers=False))
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

    def _set_role(self, frame: FhirFrame, rule: FhirRule) -> None:
        """Set the role of a Reference: by the type of its target, else by the types that its element allows."""
        name = self.target_type(frame.owner)
        if name:
            frame.role = self._table.roles.get(name)
        elif rule.patient and PhiType.PATIENT in rule.targets:
            frame.role = PhiType.PATIENT
        else:
            frame.role = next((role for role in _ROLE_ORDER if role in rule.targets), None)
        if frame.role is not None:
            frame.subject = _SUBJECTS.get(frame.role, Subject.OTHER)

    def target_type(self, reference: Mapping[str, object]) -> str:
        """The resource type of the target of a Reference; empty if it is unknown."""
        address = reference.get("reference")
        name = ""
        if isinstance(address, str) and address:
            known = self._contained if address[0] == "#" else self._known
            name = known.get(address) or self._sink.addresses.resource_type(address)
        given = reference.get("type")
        return name or (given.rpartition("/")[2] if isinstance(given, str) else "")


def _entry_types(tree: Object) -> Iterator[tuple[str, str]]:
    """Full URL and resource type of the entries of a Bundle."""
    entries = tree.get("entry")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(resource := entry.get("resource"), dict):
            url, name = entry.get("fullUrl"), resource.get("resourceType")
            if isinstance(url, str) and isinstance(name, str):
                yield url, name


def _contained_types(resource: Object) -> Iterator[tuple[str, str]]:
    """Local reference and resource type of the contained resources."""
    inside = resource.get("contained")
    for each in inside if isinstance(inside, list) else []:
        if isinstance(each, dict):
            key, name = each.get("id"), each.get("resourceType")
            if isinstance(key, str) and isinstance(name, str):
                yield f"#{key}", name
