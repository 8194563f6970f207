"""The parts of an address that identify: ids in references, values in search strings.

``Patient/123``, ``https://host/fhir/Patient/123/_history/1``, ``urn:uuid:...``, ``#p1`` and
``Patient?identifier=system|123`` are all addresses of a resource. Only the id is a part, so that a consistent mapping
of ids keeps every reference valid.
Source: FHIR R5, 2.3.0.3 (Reference), 3.2.0.1 (RESTful URLs), 3.2.1.5 (search parameters).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

_URN = "urn:uuid:"
_NAMESPACES = re.compile(r"(?:urn:[A-Za-z0-9-]{1,32}:)+", re.IGNORECASE)
_PLAIN = re.compile(r"([A-Z][A-Za-z]+)/([A-Za-z0-9.-]+)")  # the form of most references
_ID = re.compile(r"[A-Za-z0-9.-]+")
_NAME = re.compile(r"[A-Z][A-Za-z]{1,63}")
_FILE = re.compile(
    r"(?<=[A-Za-z0-9])\.(?:pdf|rtf|txt|xml|json|html?|docx?|csv|jpe?g|png|gif|tiff?|dcm|dicom|hl7|cda|zip|mp[34]|wav)\Z",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_SEGMENT = re.compile(r"[^/]+")
_PARAMETER = re.compile(r"([^&=?#]++)(?:=([^&#]*+))?")
_VALUE = re.compile(r"[^,]+")
_BAR = re.compile(r"\||%7[cC]")
_END_OF_PATH = re.compile(r"[?#|]")

Range = tuple[int, int]


class UriPart(NamedTuple):
    """Characters ``[start, end)`` of an address; ``parameter`` is empty for an id.

    ``system`` is the text before the bar of a token (``system|value``).
    """

    start: int
    end: int
    parameter: str = ""
    system: str = ""


class AddressReader:
    """Reads the addresses of one message, each once.

    A Bundle contains ``Patient/1`` a thousand times, and a thousand addresses that differ only in the id. An address
    that ends with a slash and an id is therefore read by the part before them (``_AddressBase``).
    """

    def __init__(
        self,
        resources: frozenset[str],
        definitions: frozenset[str] = frozenset(),
        find_host: Callable[[str], Range | None] = lambda _: None,
        find_persons: Callable[[str], Sequence[Range]] = lambda _: (),
    ) -> None:
        """``find_host`` returns the characters of the host in an address that names the site, ``find_persons`` those of
        its parts that name a person.
        """
        self._resources = resources
        self._find_persons = find_persons
        self._find_host = find_host
        self._definitions = definitions
        self._defined: dict[str, bool] = {}
        self._may_define: dict[str, bool] = {}
        self._simple: dict[str, tuple[Range, Range | None] | None] = {}
        self._parts: dict[str, list[UriPart]] = {}
        self._types: dict[str, str] = {}
        self._bases: dict[str, _AddressBase] = {}

    def simple(self, address: str) -> tuple[Range, Range | None] | None:
        """The characters of the id and of the host of an address that ends with its only identifying part.

        None for any other address, and for the address of a definition.
        """
        found = self._simple.get(address)
        if found is not None or address in self._simple:
            return found
        known, key = self._split(address)
        if known is not None and known.one and known.type not in self._definitions:
            end = len(address)
            at = end - len(key), end_without_extension(address, end) if "." in key else end
            found = at, known.host
        self._simple[address] = found
        return found

    def parts(self, address: str) -> list[UriPart]:
        """As ``identifying_parts``."""
        found = self._parts.get(address)
        if found is None:
            found = self._parts[address] = identifying_parts(address, self._resources)
        return found

    def resource_type(self, address: str) -> str:
        """As ``resource_type_of``."""
        found = self._types.get(address)
        if found is None:
            known, _ = self._split(address)
            found = known.type if known is not None else resource_type_of(address, self._resources)
            self._types[address] = found
        return found

    def names_definition(self, address: str) -> bool:
        """True for the address of a definition (``Questionnaire/gcs``): it identifies no person.

        False if the address also has an id of another resource, or a search string.
        """
        found = self._defined.get(address)
        if found is None:
            base = address.rpartition("/")[0]
            named = self._may_define.get(base)
            if named is None:  # a message has few of them, and a thousand ids
                named = self._may_define[base] = not self._definitions.isdisjoint(_WORD.findall(base))
            named = named and self.resource_type(address) in self._definitions
            found = self._defined[address] = named and "?" not in address and len(self.parts(address)) == 1
        return found

    def _split(self, address: str) -> "tuple[_AddressBase | None, str]":
        base, slash, key = address.rpartition("/")
        if not slash or not _ID.fullmatch(key):
            return None, ""
        known = self._bases.get(base)
        if known is None and base in self._resources:  # a relative reference, as most are
            known = self._bases[base] = _AddressBase(one=True, type=base, host=None)
        elif known is None:
            # No rule of this module depends on the letters of an id, so any id gives the result for all.
            any_id, end = f"{base}/0", len(base) + 2
            one = identifying_parts(any_id, self._resources) == [UriPart(end - 1, end)] and not self._find_persons(base)
            host = self._find_host(any_id) if "://" in base else None
            known = self._bases[base] = _AddressBase(one, resource_type_of(any_id, self._resources), host)
        return known, key


class _AddressBase(NamedTuple):
    """The part of an address before its id. ``one`` is true if the id is the only identifying part; ``type`` is the
    resource type that the address names, and ``host`` has the characters of its host, if that names the site."""

    one: bool
    type: str
    host: Range | None


def identifying_parts(value: str, resources: frozenset[str]) -> list[UriPart]:
    """The identifying parts of ``value``, in order; empty if it is not the address of a resource."""
    if (plain := _PLAIN.fullmatch(value)) and plain[1] in resources:
        return [UriPart(plain.start(2), end_without_extension(value, plain.end(2)))]
    if value.startswith(_URN):
        end = _first_of(value, "#|?", len(_URN))
        return [UriPart(len(_URN), end)] if end > len(_URN) else []
    if value.startswith("#"):
        return [UriPart(1, len(value))] if len(value) > 1 else []
    if value.startswith("urn:"):
        return []
    path_end = _first_of(value, "?#|", 0)
    found = list(_ids(value, path_end, resources))
    if path_end < len(value) and value[path_end] == "?":
        found += search_parts(value, path_end + 1, _first_of(value, "#", path_end))
    if found and (mark := value.find("#", path_end)) >= 0 and mark + 1 < len(value):
        found.append(UriPart(mark + 1, len(value)))
    return found


def search_parts(value: str, start: int = 0, end: int | None = None) -> Iterator[UriPart]:
    """The values of the search string at ``[start, end)``."""
    for parameter in _PARAMETER.finditer(value, start, len(value) if end is None else end):
        name = parameter[1].rpartition(".")[2].partition(":")[0] if parameter[2] is not None else ""
        for item in _VALUE.finditer(value, *parameter.span(1 if parameter[2] is None else 2)):
            bars = [bar.span() for bar in _BAR.finditer(value, *item.span())]
            first = bars[-1][1] if bars else item.start()
            if first < item.end():
                yield UriPart(first, item.end(), name or "_id", value[item.start() : bars[-1][0]] if bars else "")


def resource_type_of(value: str, resources: frozenset[str]) -> str:
    """The resource type that an address names; empty if it names none."""
    words = _END_OF_PATH.split(value, maxsplit=1)[0].split("/")
    known = [a for a, b in zip(words, [*words[1:], ""], strict=True) if a in resources and (b or "?" in value)]
    return known[-1] if known else ""


def end_without_extension(value: str, end: int) -> int:
    """The end of an id without a file extension; ``end`` if it has none. ``123.pdf`` and ``123`` have one id."""
    found = _FILE.search(value, max(end - 6, 0), end)
    return found.start() if found else end


def is_namespace(value: str) -> bool:
    """Return true for ``urn:uuid:`` and the like without an identifier. Replaced, it would change every other URN."""
    return _NAMESPACES.fullmatch(value) is not None


def identifier_start(value: str) -> int:
    """The start of the identifying part of an identifier's value: after ``urn:uuid:`` and the like, or after a path."""
    if urn := _NAMESPACES.match(value):
        return urn.end() if urn.end() < len(value) else 0
    if "://" in value:
        last = max(value.rfind(mark) for mark in "/=#") + 1
        return last if last < len(value) else 0
    return 0


def _ids(value: str, end: int, resources: frozenset[str]) -> Iterator[UriPart]:
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
            yield UriPart(words[taken][0], end_without_extension(value, words[taken][1]))


def _first_of(value: str, marks: str, start: int) -> int:
    found = [at for mark in marks if (at := value.find(mark, start)) >= 0]
    return min(found, default=len(value))
