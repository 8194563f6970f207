"""FHIR XML as FHIR JSON: the rendering that ``FhirCodec`` reads, with each value mapped to the XML.

A member of JSON is an attribute, or all elements of one name. A primitive value with an id or extensions becomes two
members (``birthDate`` and ``_birthDate``). An unknown attribute becomes a member, and text in place of the attribute
``value`` becomes the value, so that no value is lost.
Source: FHIR R5, 2.1.6 (Resource formats): XML and JSON representations of resources.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from deid_agent.codec.fhir.xml_types import FhirXmlTypes, XmlMember
from deid_agent.codec.markup.document import MarkupView
from deid_agent.codec.markup.elements import XmlElement, read_attribute, read_token
from deid_agent.codec.markup.readable import Attribute
from deid_agent.codec.rendering import Rendering
from deid_agent.model import LeafRole, MappedText, MessageError, Narrative, Reason

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RESERVED = "resourceType"
_ANY = "Resource"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][-+]?[0-9]{1,2})?")
_LITERALS = frozenset({"true", "false"})
_ONE_BYTE = re.compile(r"[ !#-\[\]-~]*")
"""Characters that JSON writes as one byte."""


class _Item(NamedTuple):
    """One value of a member, at characters ``[start, end)``: a scalar, an object, or neither.

    ``extra`` has the id and the extensions of a primitive value.
    """

    start: int
    end: int
    scalar: MappedText | None = None
    content: XmlElement | None = None
    extra: XmlElement | None = None
    resource: bool = False


class FhirXmlRenderer:
    """Renders one resource; used once.

    ``loose`` is text beside the values of elements, ``names`` the types of resources that no version knows, by their
    rendered byte.
    """

    def __init__(self, view: MarkupView, types: FhirXmlTypes) -> None:
        self.rendering = Rendering()
        self.loose: list[Narrative] = []
        self.names: dict[int, Narrative] = {}
        self._view = view
        self._types = types

    def resource(self, element: XmlElement, path: str = "") -> None:
        """Write a resource as an object."""
        self.rendering.write(b'{"resourceType":"')
        name = self._view.mapped(element.first, element.first + len(element.name))
        if not self._types.knows(element.name):
            self.names[len(self.rendering)] = Narrative("?", name, LeafRole.KEY)
        self.rendering.write_value(name.text.encode(), _sizes(name.text), name.starts, name.ends)
        self.rendering.write(b'"')
        types = (element.name,) if self._types.knows(element.name) else ("DomainResource",)
        self._note_texts(element, path or types[0])
        self._members(element, types, path or types[0], first=False, skipped="")
        self.rendering.write(b"}")

    def _object(self, element: XmlElement, types: tuple[str, ...], path: str) -> None:
        self.rendering.write(b"{")
        self._members(element, types, path, first=True)
        self.rendering.write(b"}")

    def _members(
        self, element: XmlElement, types: tuple[str, ...], path: str, *, first: bool, skipped: str = "value"
    ) -> None:
        """Write the members of an object. ``skipped`` is the attribute that is its value."""
        for name, found in self._collect(element, skipped).items():
            known = self._types.member(types, name)
            shown = f"{path}.{name}" if known.types or known.primitive else f"{path}.?"
            items = [item for each in found for item in self._items(each, known, shown)]
            if any(item.scalar is not None or item.content is not None for item in items):
                first = self._member(name, found[0], items, known, shown, first=first)
            if any(item.extra is not None for item in items):
                extras = [
                    _Item(item.start, item.end, content=item.extra) if item.extra else _Item(item.start, item.end)
                    for item in items
                ]
                own = XmlMember(("Element",), "", known.repeats)
                alone = [item.scalar is None for item in items]
                first = self._member(f"_{name}", found[0], extras, own, shown, first=first, units=alone)

    def _collect(self, element: XmlElement, skipped: str) -> Mapping[str, list[XmlElement | Attribute]]:
        """The attributes and elements that are not the value of the element, by name, in order."""
        found: dict[str, list[XmlElement | Attribute]] = {}
        for attribute in element.attributes:
            if attribute.name != skipped:
                name = self._checked(attribute.name.rpartition(":")[2], attribute.start)
                found.setdefault(name, []).append(attribute)
        for child in element.children:
            found.setdefault(self._checked(child.name, child.first), []).append(child)
        return found

    def _checked(self, name: str, at: int) -> str:
        if not _NAME.fullmatch(name) or name == _RESERVED:
            where = f"byte {self._view.starts[at]}"
            raise MessageError(Reason.UNSUPPORTED, where, "a name that no element of FHIR has")
        return name

    def _items(self, found: XmlElement | Attribute, known: XmlMember, path: str) -> Sequence[_Item]:
        """The values of one attribute or element. A resource is wrapped in an element that is no value itself."""
        if isinstance(found, Attribute):
            return [_Item(*self._attribute_range(found), read_attribute(self._view, found))]
        span = found.start, found.end
        if found.markup:
            return [_Item(*span, self._view.mapped(*span))]
        resources = [child for child in found.children if child.name[:1].isupper()]
        if resources and (_ANY in known.types or not (known.types or known.primitive)):
            if len(resources) < len(found.children) or found.attributes:
                where = f"byte {self._view.starts[found.start]}"
                raise MessageError(Reason.UNSUPPORTED, where, "a resource beside other elements")
            self._note_texts(found, path)
            return [_Item(*span, content=each, resource=True) for each in resources]
        value = found.attribute("value")
        scalar: MappedText | None = None
        if value is not None:
            scalar = read_attribute(self._view, value)
            self._note_texts(found, path)
        elif len(found.texts) > 1 and (known.primitive or not found.children):
            where = f"byte {self._view.starts[found.start]}"
            raise MessageError(Reason.UNSUPPORTED, where, "a value that is divided by a comment, CDATA or an element")
        elif len(found.texts) == 1 and (known.primitive or not found.children):
            scalar = read_token(self._view, found.texts[0])
        else:
            self._note_texts(found, path)
        more = found if found.children or len(found.attributes) > (value is not None) else None
        if scalar is not None or (known.primitive and not known.types):
            return [_Item(*span, scalar, extra=more)]
        return [_Item(*span, content=more)]

    def _attribute_range(self, attribute: Attribute) -> tuple[int, int]:
        """The characters of an attribute with the white space before it."""
        start = self._name_start(attribute)
        while self._view.text[start - 1].isspace():
            start -= 1
        return start, attribute.end + 1

    def _name_start(self, attribute: Attribute) -> int:
        return self._view.text.rindex(attribute.name, 0, attribute.start)

    def _note_texts(self, element: XmlElement, path: str) -> None:
        """Keep the text of an element that is no value: people read it."""
        self.loose += (Narrative(f"{path}/text()", read_token(self._view, token)) for token in element.texts)

    def _member(
        self,
        name: str,
        source: XmlElement | Attribute,
        items: Sequence[_Item],
        known: XmlMember,
        path: str,
        *,
        first: bool,
        units: Sequence[bool] | None = None,
    ) -> bool:
        """Write a member. ``units`` are the items that go with their element if the policy does not publish them.

        Returns False: the next member is not the first.
        """
        out = self.rendering
        out.write(b"" if first else b",")
        begin = len(out)
        out.write(b'"')
        self._write_key(name, source)
        out.write(b'":')
        repeats = known.repeats or len(items) > 1
        out.write(b"[" if repeats else b"")
        for number, item in enumerate(items):
            out.write(b"," if number else b"")
            start = len(out) if repeats else begin
            self._write_item(item, known, path)
            if (item.scalar is not None or item.content is not None) and (units is None or units[number]):
                out.add_unit(start, self._view.span(item.start, item.end))
        out.write(b"]" if repeats else b"")
        return False

    def _write_key(self, name: str, source: XmlElement | Attribute) -> None:
        """Write a key. The ``_`` before a name has no byte in the XML."""
        local = name.removeprefix("_")
        if isinstance(source, XmlElement):
            at = source.first
        else:
            at = self._name_start(source) + len(source.name) - len(local)
        mapped = self._view.mapped(at, at + len(local))
        starts, ends = list(mapped.starts), list(mapped.ends)
        if name != local:
            starts, ends = [starts[0], *starts], [starts[0], *ends]
        self.rendering.write_value(name.encode(), None, starts, ends)

    def _write_item(self, item: _Item, known: XmlMember, path: str) -> None:
        out = self.rendering
        if item.content is not None and item.resource:
            self.resource(item.content, path)
        elif item.content is not None:
            self._object(item.content, known.types, path)
        elif item.scalar is None:
            out.write(b"null")
        elif (known.is_number and _NUMBER.fullmatch(item.scalar.text)) or (
            known.primitive == "boolean" and item.scalar.text in _LITERALS
        ):
            out.write_value(item.scalar.text.encode(), None, item.scalar.starts, item.scalar.ends)
        else:
            text = item.scalar.text
            out.write(b'"')
            out.write_value(orjson.dumps(text)[1:-1], _sizes(text), item.scalar.starts, item.scalar.ends)
            out.write(b'"')


def _sizes(text: str) -> Sequence[int] | None:
    """The number of bytes of each character in JSON; None if each is one byte."""
    return None if _ONE_BYTE.fullmatch(text) else [len(orjson.dumps(char)) - 2 for char in text]
