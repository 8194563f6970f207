"""JSON of a FHIR resource read by byte ranges and written from them, for the output shape of DAPL."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from deid_agent.codec.fhir_resources import DATA_ABSENT_REASON
from deid_agent.codec.json_ranges import JsonRange

Members = Mapping[str, JsonRange]


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Reads values of one JSON text. A value of another kind than asked for is an empty one."""

    raw: bytes = field(repr=False)

    def slice(self, node: JsonRange) -> bytes:
        """The bytes of a value."""
        return self.raw[node.start : node.end]

    def scalars(self, members: Members, names: Iterable[str]) -> dict[str, bytes]:
        """The bytes of these members, except for lists and objects, which may hold anything."""
        found = ((name, members[name]) for name in names if name in members)
        return {name: self.slice(node) for name, node in found if node.is_scalar}

    def text(self, node: JsonRange | None) -> str:
        """The value of a string."""
        if node is None or self.raw[node.start : node.start + 1] != b'"':
            return ""
        return str(orjson.loads(self.slice(node)))

    def type(self, node: JsonRange) -> str:
        """The type of a resource."""
        return self.text(members_of(node).get("resourceType"))

    def objects(self, node: JsonRange | None) -> list[JsonRange]:
        """The objects of a list."""
        return [] if node is None or node.items is None else [each for each in node.items if each.members is not None]

    def codes(self, node: JsonRange | None) -> Iterator[str]:
        """The codes of a CodeableConcept, or of a list of them."""
        if node is not None:
            for each in node.items or [node]:
                for coding in self.objects(members_of(each).get("coding")):
                    if code := self.text(members_of(coding).get("code")):
                        yield code

    def reasons(self, extensions: JsonRange | None) -> list[bytes]:
        """The extensions of a list that state why a value is absent."""
        found = (members_of(each) for each in self.objects(extensions))
        codes = [self.text(each.get("valueCode")) for each in found if self.text(each.get("url")) == DATA_ABSENT_REASON]
        return [write_absent(code) for code in codes if code.isascii() and code.replace("-", "").isalpha()]


def members_of(node: JsonRange | None) -> Members:
    """The members of an object by name."""
    return {} if node is None else {key: value for key, _, value in node.members or ()}


def write_object(members: Mapping[str, bytes]) -> bytes:
    """An object of written values."""
    return b"{" + b",".join(write_string(key) + b":" + value for key, value in members.items()) + b"}"


def write_list(items: list[bytes]) -> bytes:
    """A list of written values."""
    return b"[" + b",".join(items) + b"]"


def write_string(text: str) -> bytes:
    """A string in UTF-8."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


def write_absent(reason: str) -> bytes:
    """The extension that states why a value is absent."""
    return write_object({"url": write_string(DATA_ABSENT_REASON), "valueCode": write_string(reason)})


def write_absence(reason: str) -> bytes:
    """An element without a value, with the reason."""
    return write_object({"extension": write_list([write_absent(reason)])})
