"""The resources in FHIR JSON as byte ranges, and insertions into them. All other bytes are left unchanged.

A resource that is contained in another one is a part of it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from deid_agent.model import Range

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+[{}\[\]]", re.DOTALL)
_MEMBER = re.compile(rb"[ \t\r\n,]*+(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+")
_BETWEEN = re.compile(rb"[ \t\r\n,]*+")
_SCALAR = re.compile(_STRING + rb"|[-0-9tfn][-+.0-9A-Za-z]*+")
_OBJECT, _LIST, _QUOTE = b'{["'
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
_TYPE = re.compile(r"[A-Za-z]{1,64}")
_URN = re.compile(r"urn:(?:uuid:[0-9A-Fa-f-]{36}|oid:[0-9.]{3,128})")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/%-]{1,2000}")
_SYSTEM: Final = "http://terminology.hl7.org/CodeSystem/v3-ObservationValue"
_DISPLAYS: Final = {"PSEUDED": "pseudonymized", "REDACTED": "redacted", "ABSTRED": "abstracted"}
DATA_ABSENT_REASON: Final = "http://hl7.org/fhir/StructureDefinition/data-absent-reason"
"""The extension that states why a value is absent."""
SECURITY_LABELS: Final = tuple(_DISPLAYS)
"""The codes of security labels, in the order in which they are written."""
_CONTAINERS: Final = frozenset({"Bundle", "Parameters"})
_OPEN_BUNDLES: Final = frozenset({"collection", "document", "message", "searchset"})
"""Bundles that may get another entry. In the others each entry is a request, a response or a version."""


class JsonText:
    """The objects and lists of a JSON text that ``orjson`` has accepted, read where they are asked for.

    Only the brackets are matched beforehand: most of a Bundle is inside of resources, which need not be read.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._ends: dict[int, int] = {}
        opened: list[int] = []
        for found in _BRACKET.finditer(raw):
            end = found.end()
            if raw[end - 1] in b"{[":
                opened.append(end - 1)
            else:
                self._ends[opened.pop()] = end

    def root(self) -> Range:
        """The range of the text without the white space around it."""
        start = min(self._ends, default=0)
        return start, self._ends.get(start, 0)

    def members(self, span: Range | None) -> Mapping[str, Range]:
        """The values of an object by name; none for any other value."""
        found: dict[str, Range] = {}
        if span is not None and self.raw[span[0]] == _OBJECT:
            at = span[0] + 1
            while member := _MEMBER.match(self.raw, at):
                at = self._end(member.end())
                name = member[1]
                found[orjson.loads(name) if b"\\" in name else name[1:-1].decode()] = member.end(), at
        return found

    def items(self, span: Range | None) -> list[Range] | None:
        """The items of a list; None for any other value."""
        if span is None or self.raw[span[0]] != _LIST:
            return None
        found = list[Range]()
        at = _BETWEEN.match(self.raw, span[0] + 1).end()  # type: ignore[union-attr]  # it matches nothing too
        while at < span[1] - 1:
            end = self._end(at)
            found.append((at, end))
            at = _BETWEEN.match(self.raw, end).end()  # type: ignore[union-attr]
        return found

    def text(self, span: Range | None) -> str:
        """The value of a string; empty for any other value."""
        if span is None or self.raw[span[0]] != _QUOTE:
            return ""
        return str(orjson.loads(self.raw[slice(*span)]))

    def _end(self, start: int) -> int:
        if start in self._ends:
            return self._ends[start]
        scalar = _SCALAR.match(self.raw, start)
        return scalar.end() if scalar else start


@dataclass(frozen=True, slots=True)
class ResourceRange:
    """A resource: its path, its type, its bytes and its members. ``parent`` is the index of the one around it."""

    path: str
    type: str
    span: Range
    members: Mapping[str, Range] = field(repr=False)
    json: JsonText = field(repr=False)
    parent: int | None = None
    full_url: str = field(default="", repr=False)


def list_resources(raw: bytes) -> list[ResourceRange]:
    """The resource of a JSON text and those in it, each after the one around it. Contained ones are left out."""
    found: list[ResourceRange] = []
    json = JsonText(raw)
    _collect(json, json.root(), "", None, "", found)
    return found


def _collect(
    json: JsonText, span: Range, path: str, parent: int | None, full_url: str, found: list[ResourceRange]
) -> None:
    members = json.members(span)
    name = json.text(members.get("resourceType"))
    if not _TYPE.fullmatch(name):
        return
    own, path = len(found), path or name
    found.append(ResourceRange(path, name, span, members, json, parent, full_url))
    if name == "Bundle":
        for entry, at in _items(json, members.get("entry"), f"{path}.entry"):
            inside = json.members(entry)
            url = json.text(inside.get("fullUrl"))
            for each, place in _items(json, inside.get("resource"), f"{at}.resource"):
                _collect(json, each, place, own, url, found)
            for response, place in _items(json, inside.get("response"), f"{at}.response"):
                for each, below in _items(json, json.members(response).get("outcome"), f"{place}.outcome"):
                    _collect(json, each, below, own, "", found)
        for each, place in _items(json, members.get("issues"), f"{path}.issues"):
            _collect(json, each, place, own, "", found)
    elif name == "Parameters":
        for each, place in _parameters(json, members.get("parameter"), f"{path}.parameter"):
            _collect(json, each, place, own, "", found)


def _parameters(json: JsonText, span: Range | None, path: str) -> Iterator[tuple[Range, str]]:
    """The resources of parameters and of their parts."""
    for each, at in _items(json, span, path):
        members = json.members(each)
        yield from _items(json, members.get("resource"), f"{at}.resource")
        yield from _parameters(json, members.get("part"), f"{at}.part")


def _items(json: JsonText, span: Range | None, path: str) -> Iterator[tuple[Range, str]]:
    """The items of a list with their paths; a value that is no list is one item."""
    if span is None:
        return
    items = json.items(span)
    if items is None:
        yield span, path
    else:
        yield from ((item, f"{path}[{number}]") for number, item in enumerate(items))


def write_label(code: str) -> bytes:
    """The Coding of a security label."""
    return orjson.dumps({"system": _SYSTEM, "code": code, "display": _DISPLAYS[code]})


_CODINGS: Final = {code: write_label(code) for code in SECURITY_LABELS}


def place_labels(resource: ResourceRange, codes: Collection[str]) -> tuple[int, bytes] | None:
    """The position and the bytes of an insertion that adds the labels which a resource does not have.

    None if it has them all, or if its ``meta`` or ``meta.security`` has a form that FHIR does not define.
    """
    if not codes:
        return None
    json, meta = resource.json, resource.members.get("meta")
    inside = json.members(meta)
    security = inside.get("security")
    known = json.items(security)
    written = {_read_coding(json, each) for each in known or ()}
    labels = b",".join(coding for code, coding in _CODINGS.items() if code in codes and (_SYSTEM, code) not in written)
    if not labels:
        return None
    if security is not None:
        return None if known is None else insert_first(security, labels, more=bool(known))
    added = b'"security":[' + labels + b"]"
    if meta is not None:
        return insert_first(meta, added, more=bool(inside)) if json.raw[meta[0]] == _OBJECT else None
    return insert_first(resource.span, b'"meta":{' + added + b"}", more=True)


def _read_coding(json: JsonText, span: Range) -> tuple[str, str]:
    members = json.members(span)
    return json.text(members.get("system")), json.text(members.get("code"))


def insert_first(span: Range, data: bytes, *, more: bool) -> tuple[int, bytes]:
    """An insertion at the begin of an object or a list; ``more`` is true if it is not empty."""
    return span[0] + 1, data + b"," if more else data


def list_targets(resources: Sequence[ResourceRange]) -> list[str]:
    """The references to what a Provenance is about: the resource itself, or those of its Bundle or Parameters.

    A resource that nothing can refer to has none.
    """
    if not resources:
        return []
    named = [each for each in resources if each.parent == 0] if resources[0].type in _CONTAINERS else resources[:1]
    return list(dict.fromkeys(filter(None, map(_refer, named))))


def _refer(resource: ResourceRange) -> str:
    """A reference that resolves where the resource is: by a URN if its entry has one, else by its type and id."""
    if _URN.fullmatch(resource.full_url):
        return resource.full_url
    id_ = resource.json.text(resource.members.get("id"))
    return f"{resource.type}/{id_}" if _ID.fullmatch(id_) else ""


def find_base(resources: Sequence[ResourceRange]) -> str:
    """The address under which the entries of a Bundle are: that of the first one with such an address, else empty.

    A relative reference is resolved against the address of the entry that holds it.
    """
    for each in resources:
        end = f"/{each.type}/{each.json.text(each.members.get('id'))}"
        if each.parent == 0 and _ADDRESS.fullmatch(each.full_url) and each.full_url.endswith(end):
            return each.full_url.removesuffix(end)
    return ""


def place_entry(bundle: ResourceRange, resource: bytes, full_url: str) -> tuple[int, bytes] | None:
    """The position and the bytes of an insertion that adds a last entry to a Bundle. None if it may get none."""
    kind, entries = bundle.json.text(bundle.members.get("type")), bundle.json.items(bundle.members.get("entry"))
    if bundle.type != "Bundle" or kind not in _OPEN_BUNDLES or not entries:
        return None
    search = b'"search":{"mode":"include"},' if kind == "searchset" else b""
    entry = b',{"fullUrl":' + orjson.dumps(full_url) + b"," + search + b'"resource":' + resource + b"}"
    return entries[-1][1], entry


def insert_all(raw: bytes, insertions: Iterable[tuple[int, bytes]]) -> bytes:
    """``raw`` with the insertions."""
    out, at = list[bytes](), 0
    for position, data in sorted(insertions, key=lambda each: each[0]):
        out += (raw[at:position], data)
        at = position
    return b"".join((*out, raw[at:]))
