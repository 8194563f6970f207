"""The parts of an envelope: places in JSON, the encoding of a message, and the actions of other fields.

A place is a pointer (RFC 6901) in which ``*`` stands for any member or item.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Pointer = tuple[str, ...]
ANY = "*"
_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")


class PayloadEncoding(StrEnum):
    """How a message is written in its place."""

    TEXT = "text"  # a JSON string, or the JSON value itself (a FHIR resource)
    BASE64 = "base64"  # a JSON string of base64; compressed with gzip or not
    GZIP = "gzip"  # the record itself, compressed


class FieldAction(StrEnum):
    """What becomes of a field of an envelope, and of everything below it."""

    KEEP = "keep"  # as it is, searched for identifiers of the message
    DROP = "drop"  # the member is removed; an item too, or it becomes null to keep the numbers of the others
    IDENTIFIER = "identifier"  # a surrogate of the same form
    DATE = "date"  # shifted with the message
    TEXT = "text"  # read like a note


def parse_pointer(text: str) -> Pointer:
    """The tokens of a JSON pointer. Raises ``ValueError`` if it is not empty and does not begin with a slash."""
    if not _POINTER.fullmatch(text):
        raise ValueError('write a JSON pointer such as "/payload/after", or "" for the whole record')
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])


@dataclass(slots=True)
class PlaceNode:
    """The beginning of some pointers. ``pointer`` is the one that ends here.

    ``leads_on`` if a wanted one is longer, ``leads_to_message`` if one of a message is.
    """

    pointer: Pointer | None = None
    leads_on: bool = False
    leads_to_message: bool = False
    below: "dict[str, PlaceNode]" = field(default_factory=dict)


def build_places(fields: Iterable[Pointer], wanted: Collection[Pointer], messages: Sequence[Pointer]) -> "Place":
    """The place of a whole record, for a walk to its fields and messages. All messages are wanted."""
    root = PlaceNode()
    for pointer in (*fields, *messages):
        node = root
        for token in pointer:
            node.leads_to_message = node.leads_to_message or pointer in messages
            node.leads_on = node.leads_to_message or node.leads_on or pointer in wanted
            node = node.below.setdefault(token, PlaceNode())
        node.pointer = pointer
    return Place((root,))


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value in a record.

    ``nodes`` fit it, the one with the later star first. ``path`` is its pointer; a key that no pointer gives is a star,
    because it may be an identifier, and an item is ``*[3]``. ``named`` if a pointer gives its last token.
    """

    nodes: tuple[PlaceNode, ...]
    path: str = ""
    named: bool = True
    depth: int = 0

    @property
    def pointer(self) -> Pointer | None:
        """The most precise pointer to the place."""
        return next((node.pointer for node in self.nodes if node.pointer is not None), None)

    @property
    def leads_on(self) -> bool:
        """True if a wanted pointer leads to something inside the value."""
        return any(node.leads_on for node in self.nodes)

    @property
    def leads_to_message(self) -> bool:
        """True if the place of a message is inside the value."""
        return any(node.leads_to_message for node in self.nodes)

    @property
    def is_above(self) -> bool:
        """True if a pointer leads to something inside the value."""
        return any(node.below for node in self.nodes)

    def step(self, token: str | int) -> "Place":
        """The place of a member, or of the item with this number."""
        nodes: list[PlaceNode] = []
        name, named = str(token), False
        for node in self.nodes:
            if name != ANY and name in node.below:
                nodes.append(node.below[name])
                named = True
            if ANY in node.below:
                nodes.append(node.below[ANY])
        label = name if named else ANY if isinstance(token, str) else f"{ANY}[{token}]"
        path = f"{self.path}/{label.replace('~', '~0').replace('/', '~1')}"
        return Place(tuple(nodes), path, named, self.depth + 1)
