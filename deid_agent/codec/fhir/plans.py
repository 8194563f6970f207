"""Plans: what a walk does in an object, told by the object's type, its elements and the kinds of their values.

A message holds few kinds of objects and many of each. A plan names only the members that need a look and how
many quotes stand before each, so that all others cost nothing but their place in the signature.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from deid_agent.codec.fhir.leaves import TREATMENTS
from deid_agent.codec.fhir.shapes import Leaf, Rule, Shape, Table
from deid_agent.codec.fhir.sink import Object
from deid_agent.codec.fhir.whole import Treatment

_KEY = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,63}")
_CAPITAL = re.compile(r"[A-Z]")
_COMMENTS = "fhir_comments"  # DSTU2 had them in every element
MOST = 4096
"""Plans kept between messages: memory has a bound whatever comes."""

Signature = tuple[object, ...]
_TEXT = Leaf("text")
NAME = Rule(_TEXT)
"""The rule of a step that reads the name of a member as text, not its value."""


class Step(NamedTuple):
    """A member that needs a look.

    ``skip`` is how many quotes stand between the last step and the value; ``child`` is the shape of an object there,
    None where its members must tell; ``leaf``, ``stays`` and ``treat`` are what becomes of a string.
    """

    skip: int
    key: str
    tail: str
    rule: Rule
    child: Shape | None
    leaf: Leaf
    stays: Callable[[str], object] | None
    treat: Treatment


@dataclass(frozen=True, slots=True)
class Plan:
    """``rest`` counts the quotes behind the last step; ``bare`` says that the last value is no string."""

    steps: tuple[Step, ...]
    rest: int
    bare: bool


class Plans:
    """Plans by signature: the shape, the names of the members, the Python types of their values.

    ``known`` outlives a message, so that no name may stand in it that the table does not have: it may be a
    person's. What else a message has is planned for that message alone.
    """

    def __init__(self, table: Table, known: dict[Signature, Plan]) -> None:
        self._table = table
        self.known = known
        self._own: dict[Signature, Plan] = {}

    def make(self, signature: Signature, shape: Shape, value: Object) -> Plan:
        """The plan of an object whose signature is not ``known``."""
        found = self._own.get(signature)
        if found is None:
            found = _plan(self._table, shape, value)
            if not shape.rules or not value.keys() <= shape.rules.keys():
                self._own[signature] = found
            else:
                if len(self.known) >= MOST:
                    self.known.clear()
                self.known[signature] = found
        return found


def _plan(table: Table, shape: Shape, value: Object) -> Plan:
    steps: list[Step] = []
    skip, bare = 0, False
    for key, item in value.items():
        rule = shape.rules.get(key) or unlisted(table, shape, key)
        leaf = rule.leaf
        if not _KEY.fullmatch(key):
            # Only a broken producer writes such a name, and what it writes there may be a person's.
            steps.append(Step(skip, key, ".?", NAME, None, _TEXT, None, TREATMENTS["text"]))
            skip = 0
        skip += 2
        bare = not isinstance(item, str | list | dict)
        wanted = leaf is not None if isinstance(item, str) else not bare or _counts(rule, item)
        if wanted:
            child = None if rule.child is table.anything else rule.child
            leaf = leaf or _TEXT
            steps.append(Step(skip, key, f".{key}", rule, child, leaf, leaf.stays, TREATMENTS[leaf.name]))
            skip = 0
        if isinstance(item, str):
            skip += 2
    return Plan(tuple(steps), skip, bare)


def _counts(rule: Rule, item: object) -> bool:
    """True for a number that may have to go."""
    return (
        not rule.numbers_stay and rule.leaf is not None and isinstance(item, int | float) and not isinstance(item, bool)
    )


def unlisted(table: Table, shape: Shape, key: str) -> Rule:
    """The rule of an element that its type does not have: ``_x``, a choice type, or anything."""
    if not _KEY.fullmatch(key):
        return table.unknown
    if key[0] == "_":
        return table.primitive_extension
    for capital in _CAPITAL.finditer(key):
        suffix = key[capital.start() :]
        if suffix in table.shapes and suffix not in table.resources:
            return Rule(table.unknown.leaf, table.shapes[suffix], numbers_stay=False)
        rule = table.primitives.get(suffix[0].lower() + suffix[1:])
        # "zipCode" is no code: only value[x] and dates, which prove themselves, go by their name.
        if rule and rule.leaf and (key.startswith("value") or rule.leaf.name in {"date", "instant"}):
            return rule
    if shape.rest is not None and key != _COMMENTS:
        return shape.rest
    return table.unknown
