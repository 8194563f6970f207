"""FHIR JSON written as FHIR XML, for tests that compare both syntaxes. Independent of the codec."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from xml.sax.saxutils import quoteattr

from support.fhir import RULES, codec

from deid_agent.codec.fhir import FhirXmlCodec, FhirXmlTypes
from deid_agent.codec.markup.document import MarkupMessage

NAMESPACE = 'xmlns="http://hl7.org/fhir"'
_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")


class NoXmlError(Exception):
    """The JSON has no counterpart in XML."""


@lru_cache(maxsize=1)
def xml_codec() -> FhirXmlCodec:
    return FhirXmlCodec(codec(), FhirXmlTypes(RULES))


def parsed_xml(text: str | bytes) -> MarkupMessage:
    """The one message of a resource."""
    (message,) = xml_codec().parse(text.encode() if isinstance(text, str) else text)
    return message


def to_xml(resource: str) -> str:
    """A resource in JSON as XML. Raises ``NoXmlError`` for JSON that FHIR does not write."""
    tree = json.loads(resource, parse_float=str, parse_int=str)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _resource(tree, f" {NAMESPACE}")


def _resource(tree: object, more: str = "") -> str:
    if not isinstance(tree, dict) or not isinstance(name := tree.get("resourceType"), str):
        raise NoXmlError
    members = {key: value for key, value in tree.items() if key != "resourceType"}
    return f"<{name}{more}>{''.join(_members(members))}</{name}>"


def _members(members: Mapping[str, object]) -> Iterator[str]:
    done = set()
    for key in members:
        name = key.removeprefix("_")
        if not _NAME.fullmatch(key) or key == "fhir_comments":
            raise NoXmlError
        if name not in done:
            done.add(name)
            values, extras = _items(members.get(name)), _items(members.get(f"_{name}"))
            for at in range(max(len(values), len(extras))):
                yield _element(name, *(items[at] if at < len(items) else None for items in (values, extras)))


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _element(name: str, value: object, extra: object) -> str:
    if isinstance(value, list) or (extra is not None and not isinstance(extra, dict)):
        raise NoXmlError
    if name == "div" and isinstance(value, str):
        if not value.startswith("<div") or not value.rstrip().endswith("</div>"):
            raise NoXmlError
        return value
    if isinstance(value, dict):
        if extra is not None:
            raise NoXmlError
        if "resourceType" in value:
            return f"<{name}>{_resource(value)}</{name}>"
    inside = dict(value if isinstance(value, dict) else extra or {})
    attributes = ""
    for key in ("id", "url") if "extension" in name.lower() else ("id",):
        if isinstance(inside.get(key), str):
            attributes += f" {key}={quoteattr(str(inside.pop(key)))}"
    if isinstance(value, bool):
        attributes += f' value="{str(value).lower()}"'
    elif isinstance(value, str):
        attributes += f" value={quoteattr(value, {chr(10): '&#10;', chr(13): '&#13;', chr(9): '&#9;'})}"
    return f"<{name}{attributes}>{''.join(_members(inside))}</{name}>"
