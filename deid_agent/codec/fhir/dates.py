"""The dates of a resource that no element announces: dates in kept values, bare numbers, and births by their labels."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from deid_agent.codec.dates import find_kept_dates
from deid_agent.codec.fhir.shapes import FhirTable
from deid_agent.codec.fhir.tokens import StringIndex
from deid_agent.model import Attachment, DateKind, Narrative, PhiType, Site

BLANK_DATE = "1900-01-01"
"""Replaces a date of which nothing may remain."""
_BARE = re.compile(rb"[-0-9tfn][-+.0-9A-Za-z]*+")
_BIRTH_ELEMENT = re.compile(r"\._?(?:birth|born)[A-Z]")
_ESCAPE = re.compile(r"\\(?:u00(2[d-fD-F]|3[0-9])|.)")
_STEP = re.compile(r"\w+|\[(\d+)\]")
_LABELS = ("text", "name", "url", "linkId", "display", "code", "definition")
_WRITTEN = frozenset({"versionId", "etag", "ifMatch", "ifNoneMatch"})
_UNITS = frozenset({"unit", "currency", "code"})


def find_dates_of_elements(
    table: FhirTable,
    strings: StringIndex,
    raw: bytes,
    sites: Sequence[Site],
    narratives: Sequence[Narrative],
    attachments: Sequence[Attachment],
) -> list[tuple[int, Site]]:
    """The dates in kept values, and the bare numbers that are dates, unless the element may keep them.

    Each is a site, with the first byte of its value. The path of the site is the name of the element.
    """
    text, starts = _unescape_figures(raw)
    found = []
    for first, last in find_kept_dates(text, starts, sites, narratives, attachments):
        start, end = (first, last) if starts is None else (starts[first], starts[last])
        member = _member_at(strings, raw, start)
        if member is None or _may_keep_date(table, raw, member, (start, end)):
            continue
        kind = DateKind.TECHNICAL if member.name in _WRITTEN else DateKind.EVENT
        blank = BLANK_DATE if member.quoted else BLANK_DATE.replace("-", "")
        site = Site(member.name, start, end, PhiType.DATE, value=text[first:last], blank=blank, date_kind=kind)
        found.append((member.start, site))
    return found


def _unescape_figures(raw: bytes) -> tuple[str, Sequence[int] | None]:
    """``raw`` with the characters of a date unescaped, and the first byte of each; None if it has no such escape."""
    text = raw.decode("latin-1")
    if "\\" not in text or "\\u00" not in text:  # the search for one character is faster
        return text, None
    parts: list[str] = []
    starts, at = array("Q"), 0
    for escape in _ESCAPE.finditer(text):
        if escape[1]:
            parts += (text[at : escape.start()], chr(int(escape[1], 16)))
            starts.extend(range(at, escape.start() + 1))
            at = escape.end()
    starts.extend(range(at, len(text) + 1))
    return "".join((*parts, text[at:])), starts


def mark_births(table: FhirTable, tree: Mapping[str, object], sites: Iterable[Site]) -> tuple[Site, ...]:
    """The sites, with kind BIRTH for dates of birth by the name of an element or by the label beside the value."""
    day, event = PhiType.DATE, DateKind.EVENT  # a member lookup for each site would take longer than the rest
    return tuple(
        [
            site._replace(date_kind=DateKind.BIRTH)
            if site.type is day and site.date_kind is event and _is_birth(table, tree, site.path)
            else site
            for site in sites
        ]
    )


def _is_birth(table: FhirTable, tree: Mapping[str, object], path: str) -> bool:
    if ("birth" in path or "born" in path) and _BIRTH_ELEMENT.search(path):
        return True
    if ".value" not in path or not path.rpartition(".")[2].startswith("value"):
        return False
    return any(map(table.births.is_birth, _labels_of(tree, path)))


def _labels_of(tree: Mapping[str, object], path: str) -> list[str]:
    """The labels of the value at ``path``: those of the nearest object around it that has any."""
    around: list[Mapping[str, object]] = []
    node: object = tree
    for step in _STEP.finditer(path.partition(".")[2]):
        if isinstance(node, dict):
            around.append(node)
            node = node.get(step[0])
        elif isinstance(node, list) and step[1]:
            node = node[int(step[1])] if int(step[1]) < len(node) else None
    found: list[str] = []
    for owner in reversed(around):
        found += (text for name in _LABELS if (text := _text(owner, name)))
        code = owner.get("code")
        if isinstance(code, dict):
            codings = [code, *_codings(code)]
            found += (text for each in codings for name in _LABELS if (text := _text(each, name)))
        if found and not (len(found) == 1 and found[0] == owner.get("url") and ":" not in found[0]):
            break  # a bare name is an extension inside an extension
    return [label.rpartition("/")[2] for label in found]


def _text(owner: Mapping[str, object], name: str) -> str:
    found = owner.get(name)
    return found if isinstance(found, str) else ""


def _codings(concept: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = concept.get("coding")
    return [coding for coding in found if isinstance(coding, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class _Member:
    """A value of the text: the name of its element, its bytes without quotes, and the bytes of the innermost object."""

    name: str
    start: int
    end: int
    owner: tuple[int, int]
    quoted: bool


def _member_at(strings: StringIndex, raw: bytes, byte: int) -> _Member | None:
    """The string or bare value that contains ``byte``; None in the name of a member."""
    quotes = strings.at
    after = bisect_right(quotes, byte)
    quoted = after % 2 == 1
    if quoted:
        start, end = quotes[after - 1] + 1, quotes[after]
        if raw[end + 1 : quotes[min(after + 1, strings.quotes)]].lstrip()[:1] == b":":
            return None
    else:
        bare = next(each for each in _BARE.finditer(raw, quotes[after - 1] + 1 if after else 0) if each.end() > byte)
        start, end = bare.span()
    name = ""
    for close in range((after - 2 if quoted else after - 1), 0, -2):
        if raw[quotes[close] + 1 : quotes[close] + 12].lstrip()[:1] == b":":  # not a value before it in a list
            name = raw[quotes[close - 1] + 1 : quotes[close]].decode("utf-8", "replace")
            break
    return _Member(name, start, end, (raw.rfind(b"{", 0, start), raw.find(b"}", end) + 1), quoted)


def _may_keep_date(table: FhirTable, raw: bytes, member: _Member, span: tuple[int, int]) -> bool:
    """True for versions, URIs, codes of vocabularies, sizes, and numbers with a unit."""
    value = raw[member.start : member.end]
    if member.name in table.dated or b"://" in value or value.startswith(b"urn:"):
        return True
    if member.quoted and member.name != "code":
        return False
    try:
        owner = orjson.loads(raw[slice(*member.owner)])
    except orjson.JSONDecodeError:  # an object with objects inside
        owner = {}
    if member.quoted:
        return table.is_public_system(owner.get("system"))
    measured = member.name == "value" and not _UNITS.isdisjoint(owner)
    return measured or member.name == "size" or span != (member.start, member.end)
