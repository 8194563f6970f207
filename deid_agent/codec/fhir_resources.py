"""The resources in FHIR JSON as byte ranges, and insertions into them. All other bytes are left unchanged.

A resource that is contained in another one is a part of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from deid_agent.codec.json_ranges import JsonRange, read_ranges
from deid_agent.model import Range

_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
_TYPE = re.compile(r"[A-Za-z]{1,64}")
_URN = re.compile(r"urn:(?:uuid:[0-9A-Fa-f-]{36}|oid:[0-9.]{3,128})")
_SYSTEM: Final = "http://terminology.hl7.org/CodeSystem/v3-ObservationValue"
_DISPLAYS: Final = {"PSEUDED": "pseudonymized", "REDACTED": "redacted", "ABSTRED": "abstracted"}
SECURITY_LABELS: Final = tuple(_DISPLAYS)
"""The codes of security labels, in the order in which they are written."""
_CONTAINERS: Final = frozenset({"Bundle", "Parameters"})
_OPEN_BUNDLES: Final = frozenset({"collection", "document", "message", "searchset"})
"""Bundles that may get another entry. In the others each entry is a request, a response or a version."""


@dataclass(frozen=True, slots=True)
class ResourceRange:
    """A resource: its path, its type and its range. ``parent`` is the index of the Bundle or Parameters around it."""

    path: str
    type: str
    value: JsonRange = field(repr=False)
    parent: int | None = None
    full_url: str = field(default="", repr=False)

    @property
    def span(self) -> Range:
        """Its bytes."""
        return self.value.start, self.value.end


def list_resources(raw: bytes) -> list[ResourceRange]:
    """The resource of a JSON text and those in it, each after the one around it. Contained ones are left out."""
    found: list[ResourceRange] = []
    _collect(raw, read_ranges(raw), "", None, "", found)
    return found


def _collect(
    raw: bytes, node: JsonRange | None, path: str, parent: int | None, full_url: str, found: list[ResourceRange]
) -> None:
    members = _members(node)
    name = _text(raw, members.get("resourceType"))
    if node is None or not _TYPE.fullmatch(name):
        return
    own, path = len(found), path or name
    found.append(ResourceRange(path, name, node, parent, full_url))
    if name == "Bundle":
        for entry, at in _items(members.get("entry"), f"{path}.entry"):
            inside = _members(entry)
            url = _text(raw, inside.get("fullUrl"))
            for each, place in _items(inside.get("resource"), f"{at}.resource"):
                _collect(raw, each, place, own, url, found)
            for response, place in _items(inside.get("response"), f"{at}.response"):
                for each, below in _items(_members(response).get("outcome"), f"{place}.outcome"):
                    _collect(raw, each, below, own, "", found)
        for each, place in _items(members.get("issues"), f"{path}.issues"):
            _collect(raw, each, place, own, "", found)
    elif name == "Parameters":
        for each, place in _parameters(members.get("parameter"), f"{path}.parameter"):
            _collect(raw, each, place, own, "", found)


def _parameters(node: JsonRange | None, path: str) -> Iterator[tuple[JsonRange, str]]:
    """The resources of parameters and of their parts."""
    for each, at in _items(node, path):
        members = _members(each)
        yield from _items(members.get("resource"), f"{at}.resource")
        yield from _parameters(members.get("part"), f"{at}.part")


def _members(node: JsonRange | None) -> Mapping[str, JsonRange]:
    return {name: value for name, _, value in (node.members if node is not None else None) or ()}


def _items(node: JsonRange | None, path: str) -> Iterator[tuple[JsonRange, str]]:
    """The items of a list with their paths; a value without a list is one item."""
    if node is None:
        return
    if node.items is None:
        yield node, path
    else:
        for number, item in enumerate(node.items):
            yield item, f"{path}[{number}]"


def _text(raw: bytes, node: JsonRange | None) -> str:
    """The value of a string; empty for any other value."""
    if node is None or raw[node.start : node.start + 1] != b'"':
        return ""
    return str(orjson.loads(raw[node.start : node.end]))


def write_label(code: str) -> bytes:
    """The Coding of a security label."""
    return orjson.dumps({"system": _SYSTEM, "code": code, "display": _DISPLAYS[code]})


def place_labels(raw: bytes, resource: ResourceRange, codes: Iterable[str]) -> tuple[int, bytes] | None:
    """The position and the bytes of an insertion that adds the labels which a resource does not have.

    None if it has them all, or if its ``meta`` or ``meta.security`` has a form that FHIR does not define.
    """
    members = _members(resource.value)
    meta = members.get("meta")
    inside = _members(meta)
    security = inside.get("security")
    known = {
        (_text(raw, coding.get("system")), _text(raw, coding.get("code")))
        for coding in map(_members, (security.items if security is not None else None) or ())
    }
    labels = b",".join(
        write_label(code) for code in SECURITY_LABELS if code in set(codes) and (_SYSTEM, code) not in known
    )
    if not labels:
        return None
    if security is not None:
        return None if security.items is None else _begin(security, labels, security.items)
    added = b'"security":[' + labels + b"]"
    if meta is not None:
        return None if meta.members is None else _begin(meta, added, meta.members)
    return _begin(resource.value, b'"meta":{' + added + b"}", members)


def _begin(node: JsonRange, data: bytes, others: Sequence[object] | Mapping[str, object]) -> tuple[int, bytes]:
    """An insertion at the begin of an object or a list."""
    return node.start + 1, data + b"," if others else data


def list_targets(raw: bytes, resources: Sequence[ResourceRange]) -> list[str]:
    """The references to what a Provenance is about: the resource itself, or those of its Bundle or Parameters.

    A resource that nothing can refer to has none.
    """
    if not resources:
        return []
    named = [each for each in resources if each.parent == 0] if resources[0].type in _CONTAINERS else resources[:1]
    return list(dict.fromkeys(filter(None, (_refer(raw, each) for each in named))))


def _refer(raw: bytes, resource: ResourceRange) -> str:
    """A reference that resolves where the resource is: by a URN if its entry has one, else by its type and id."""
    if _URN.fullmatch(resource.full_url):
        return resource.full_url
    id_ = _text(raw, _members(resource.value).get("id"))
    return f"{resource.type}/{id_}" if _ID.fullmatch(id_) else ""


def place_entry(raw: bytes, bundle: ResourceRange, resource: bytes, full_url: str) -> tuple[int, bytes] | None:
    """The position and the bytes of an insertion that adds a last entry to a Bundle. None if it may get none."""
    members = _members(bundle.value)
    kind, entries = _text(raw, members.get("type")), members.get("entry")
    if bundle.type != "Bundle" or kind not in _OPEN_BUNDLES or entries is None or not entries.items:
        return None
    search = b'"search":{"mode":"include"},' if kind == "searchset" else b""
    entry = b',{"fullUrl":' + orjson.dumps(full_url) + b"," + search + b'"resource":' + resource + b"}"
    return entries.items[-1].end, entry


def insert_all(raw: bytes, insertions: Iterable[tuple[int, bytes]]) -> bytes:
    """``raw`` with the insertions."""
    out, at = list[bytes](), 0
    for position, data in sorted(insertions, key=lambda each: each[0]):
        out += (raw[at:position], data)
        at = position
    return b"".join((*out, raw[at:]))
