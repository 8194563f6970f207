"""The parts of an address that identify: ids in references, values of a search string.

``Patient/123``, ``https://host/fhir/Patient/123/_history/1``, ``urn:uuid:...``, ``#p1``
and ``Patient?identifier=system|123`` all name a resource; only the id is taken, so that
one map over ids keeps every reference working.
Source: FHIR R5, 2.3.0.3 (Reference), 3.2.0.1 (RESTful URLs), 3.2.1.5 (search parameters).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_URN = "urn:uuid:"
_NAMESPACE = re.compile(r"urn:[A-Za-z0-9-]{1,32}:")
_PLAIN = re.compile(r"([A-Z][A-Za-z]+)/([A-Za-z0-9.-]+)")  # most references are no more
_ID = re.compile(r"[A-Za-z0-9.-]+")
_NAME = re.compile(r"[A-Z][A-Za-z]{1,63}")
_FILE = re.compile(
    r"(?<=[A-Za-z0-9])\.(?:pdf|rtf|txt|xml|json|html?|docx?|csv|jpe?g|png|gif|tiff?|dcm|dicom|hl7|cda|zip|mp[34]|wav)\Z",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"[^/]+")
_PARAMETER = re.compile(r"([^&=?#]++)(?:=([^&#]*+))?")
_VALUE = re.compile(r"[^,]+")
_BAR = re.compile(r"\||%7[cC]")


class Part(NamedTuple):
    """Characters ``[start, end)`` of an address; ``parameter`` is empty for an id.

    ``system`` is what stands before the bar of a token (``system|value``).
    """

    start: int
    end: int
    parameter: str = ""
    system: str = ""


class Addresses:
    """``parts`` and ``type_of`` for the addresses of one message, each worked out once.

    A Bundle says ``Patient/1`` a thousand times, and a thousand others that differ in nothing but the id: an address
    that ends in a slash and an id is read by what stands before (``_Before``).
    """

    def __init__(self, resources: frozenset[str]) -> None:
        self._resources = resources
        self._ids: dict[str, tuple[int, int] | None] = {}
        self._parts: dict[str, list[Part]] = {}
        self._types: dict[str, str] = {}
        self._before: dict[str, _Before] = {}

    def id_at(self, address: str) -> tuple[int, int] | None:
        """The characters of the id at the end of an address that has nothing else, as nearly all have."""
        found = self._ids.get(address)
        if found is not None or address in self._ids:
            return found
        before, key = self._split(address)
        if before is not None and before.one:
            end = len(address)
            found = end - len(key), stem(address, end) if "." in key else end
        self._ids[address] = found
        return found

    def parts(self, address: str) -> list[Part]:
        """As the function of that name."""
        found = self._parts.get(address)
        if found is None:
            found = self._parts[address] = parts(address, self._resources)
        return found

    def type_of(self, address: str) -> str:
        """As the function of that name."""
        found = self._types.get(address)
        if found is None:
            before, _ = self._split(address)
            found = before.type if before is not None else type_of(address, self._resources)
            self._types[address] = found
        return found

    def _split(self, address: str) -> "tuple[_Before | None, str]":
        base, slash, key = address.rpartition("/")
        if not slash or not _ID.fullmatch(key):
            return None, ""
        before = self._before.get(base)
        if before is None:
            # No rule of this module looks at the letters of an id, so that any id tells what all would.
            any_id, end = f"{base}/0", len(base) + 2
            one = parts(any_id, self._resources) == [Part(end - 1, end)]
            before = self._before[base] = _Before(one, type_of(any_id, self._resources))
        return before, key


class _Before(NamedTuple):
    """What stands before an id: whether the id is all that identifies there, and the resource type that is named."""

    one: bool
    type: str


def parts(value: str, resources: frozenset[str]) -> list[Part]:
    """The identifying parts of ``value``, in order; empty where it is no address of a resource."""
    if (plain := _PLAIN.fullmatch(value)) and plain[1] in resources:
        return [Part(plain.start(2), stem(value, plain.end(2)))]
    if value.startswith(_URN):
        end = _first(value, "#|?", len(_URN))
        return [Part(len(_URN), end)] if end > len(_URN) else []
    if value.startswith("#"):
        return [Part(1, len(value))] if len(value) > 1 else []
    if value.startswith("urn:"):
        return []
    path_end = _first(value, "?#|", 0)
    found = list(_ids(value, path_end, resources))
    if path_end < len(value) and value[path_end] == "?":
        found += search(value, path_end + 1, _first(value, "#", path_end))
    if found and (mark := value.find("#", path_end)) >= 0 and mark + 1 < len(value):
        found.append(Part(mark + 1, len(value)))
    return found


def search(value: str, start: int = 0, end: int | None = None) -> Iterator[Part]:
    """The values of a search string that stands at ``[start, end)``."""
    for parameter in _PARAMETER.finditer(value, start, len(value) if end is None else end):
        name = parameter[1].rpartition(".")[2].partition(":")[0] if parameter[2] is not None else ""
        for item in _VALUE.finditer(value, *parameter.span(1 if parameter[2] is None else 2)):
            bars = [bar.span() for bar in _BAR.finditer(value, *item.span())]
            first = bars[-1][1] if bars else item.start()
            if first < item.end():
                yield Part(first, item.end(), name or "_id", value[item.start() : bars[-1][0]] if bars else "")


def type_of(value: str, resources: frozenset[str]) -> str:
    """The resource type that an address names, or an empty string."""
    words = re.split(r"[?#|]", value, maxsplit=1)[0].split("/")
    known = [a for a, b in zip(words, [*words[1:], ""], strict=True) if a in resources and (b or "?" in value)]
    return known[-1] if known else ""


def stem(value: str, end: int) -> int:
    """Where an id that ends at ``end`` ends without the extension of a file: ``123.pdf`` names what ``123`` names."""
    found = _FILE.search(value, max(end - 6, 0), end)
    return found.start() if found else end


def tail(value: str) -> int:
    """Where the identifying part of an identifier's value starts: behind ``urn:uuid:`` and its like, or a path."""
    if urn := _NAMESPACE.match(value):
        return urn.end() if urn.end() < len(value) else 0
    if "://" in value:
        last = max(value.rfind(mark) for mark in "/=#") + 1
        return last if last < len(value) else 0
    return 0


def _ids(value: str, end: int, resources: frozenset[str]) -> Iterator[Part]:
    host = value.find("://", 0, end)
    words = [match.span() for match in _SEGMENT.finditer(value, host + 3 if host >= 0 else 0, end)]
    names = [value[a:b] for a, b in words]
    known = [i for i, name in enumerate(names[:-1]) if name in resources]
    if not known and len(words) >= 2 and _NAME.fullmatch(names[-2]):
        known = [len(words) - 2]
    taken = -1
    for i in known:
        if i > taken and names[i + 1][0] not in "$_":
            taken = i + 1
            yield Part(words[taken][0], stem(value, words[taken][1]))


def _first(value: str, marks: str, start: int) -> int:
    found = [at for mark in marks if (at := value.find(mark, start)) >= 0]
    return min(found, default=len(value))
