"""FHIR JSON: any resource of any version, as messages with their sites.

A resource is never serialized again: edits are byte ranges of the payload.
Source: FHIR R5, 2.1.6 (Resource formats), RFC 8259; NDJSON as in FHIR Bulk Data Access.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import orjson

from deid_agent.codec.dates import take_dates
from deid_agent.codec.fhir.dapl import DaplForm, DaplOptions
from deid_agent.codec.fhir.dates import BLANK_DATE, find_dates_of_elements, mark_births
from deid_agent.codec.fhir.names import ElementNames
from deid_agent.codec.fhir.patients import find_patient, text_of
from deid_agent.codec.fhir.selection import FhirSelector, load_required
from deid_agent.codec.fhir.sink import FhirSink, Object
from deid_agent.codec.fhir.table import load_fhir_table
from deid_agent.codec.fhir.tokens import (
    FhirLeafReader,
    StringIndex,
    check_value_count,
    count_quotes,
    scalar_ranges,
)
from deid_agent.codec.fhir.walk import FhirWalk, Plan, Plans, Signature, count_scalars
from deid_agent.model import (
    Attachment,
    ConfigurationError,
    Dropped,
    MessageError,
    Narrative,
    PatientIdentifier,
    PublishedPaths,
    Reason,
    Site,
)

_BOM = b"\xef\xbb\xbf"
_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_DEEPEST = 250
_SMALL = 20_000
"""Bytes of a payload up to which its brackets are counted faster than its depth is measured."""


@dataclass(frozen=True, slots=True)
class FhirMessage:
    """A parsed resource; implements ``Message``.

    Paths are FHIRPath-like and 0-based: ``Bundle.entry[2].resource.name[0].family``.
    """

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patients: tuple[PatientIdentifier, ...] = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    narratives: tuple[Narrative, ...] = field(repr=False)
    attachments: tuple[Attachment, ...] = field(repr=False)
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as the content of a JSON string: escaped, in UTF-8, non-ASCII characters unescaped."""
        return orjson.dumps(text)[1:-1]


class FhirCodec:
    """Implements ``Codec`` for FHIR JSON.

    Holds the tables of ``rules/fhir``. Between messages it keeps plans, which contain no value of a message.
    """

    name = "fhir"

    def __init__(self, rules: Path, *, max_depth: int = 128, max_values: int = 2_000_000) -> None:
        """Reads ``rules/fhir``. Raises ``ConfigurationError`` that names the file and the key."""
        self._table = load_fhir_table(rules)
        self._names = ElementNames.of(self._table)
        self._required = load_required(rules)
        self._selector = FhirSelector(self._table, self._required)
        self._plans: dict[Signature, Plan] = {}
        if max_depth > _DEEPEST:
            raise ConfigurationError(f"max_depth {max_depth}: orjson writes no deeper; name at most {_DEEPEST}")
        self._max_depth = max_depth
        self._max_values = max_values

    @property
    def resources(self) -> frozenset[str]:
        """The resource types of all FHIR releases in the tables."""
        return self._table.resources

    def make_dapl_form(self, options: DaplOptions) -> DaplForm:
        """The output shape of DAPL, with the tables of this codec."""
        return DaplForm(self._table, self._required, options)

    def detect(self, raw: bytes) -> bool:
        """True if the first byte that is not white space is ``{``."""
        return _FIRST.match(raw) is not None

    def parse(self, raw: bytes) -> list[FhirMessage]:
        """The resources of one payload: one JSON object, or one object per line (NDJSON).

        Raises ``MessageError``: MALFORMED for invalid JSON or a duplicate key, UNSUPPORTED for JSON that is not a
        resource or of a type that no release of FHIR has, RESOURCE past the bounds.
        """
        return [self._parse_resource(part, tree) for part, tree in _iter_trees(raw)]

    def parse_leaves(self, raw: bytes) -> list[Narrative]:
        """Every string and number of every resource. Raises as ``parse``."""
        trees = [self._check_resource(tree)[0] for _, tree in _iter_trees(raw)]
        expected = sum(count_scalars(tree, self._max_depth) for tree in trees)
        spans = scalar_ranges(raw, self._max_values)
        if len(spans) != expected:
            raise MessageError(Reason.MALFORMED, "byte 0", "a key occurs twice in an object")
        reader = FhirLeafReader(self._table, self._names, raw, spans)
        found = [leaf for tree in trees for leaf in reader.resource(tree)]
        return sorted(found, key=lambda leaf: leaf.mapped.starts[0] if leaf.mapped.text else 0)

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:
        """See ``selection``. Raises ``MessageError(UNSUPPORTED)`` if the resource cannot be published in part."""
        return self._selector.find_unlisted(raw, listed)

    def _parse_resource(self, raw: bytes, found: object) -> FhirMessage:
        tree, name = self._check_resource(found)
        strings = self._index_strings(raw, tree)
        sink = FhirSink(raw, self._table)
        walk = FhirWalk(sink, strings, tree, Plans(self._table, self._names, self._plans))
        walk.resource(tree, name)
        dates, narratives = take_dates(sorted(sink.narratives, key=lambda n: n.mapped.starts[0]))
        attachments = sorted(sink.attachments, key=attrgetter("start"))
        sites = sorted((*sink.sites, *(d._replace(blank=BLANK_DATE) for d in dates)), key=attrgetter("start"))
        if found := find_dates_of_elements(self._table, strings, raw, sites, narratives, attachments):
            paths = {leaf.mapped.starts[0]: leaf.path for leaf in self.parse_leaves(raw) if leaf.mapped.text}
            kept = (site._replace(path=paths.get(at, site.path)) for at, site in found)
            sites = sorted((*sites, *kept), key=attrgetter("start"))
        return FhirMessage(
            sink.raw,
            _identity(sink.raw, tree),
            find_patient(sink, tree, walk.target_type),
            mark_births(self._table, tree, sites),
            tuple(narratives),
            tuple(attachments),
            sink.sexes,
        )

    def _check_resource(self, tree: object) -> tuple[Object, str]:
        """The tree as an object, and its type. Raises ``MessageError(UNSUPPORTED)`` if it is not a resource."""
        if not isinstance(tree, dict):
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "not a JSON object")
        name = tree.get("resourceType")
        if not isinstance(name, str):
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "no name of a resource type")
        self._names.check_type(name, "resourceType")
        return tree, name

    def _index_strings(self, raw: bytes, tree: Object) -> StringIndex:
        """The strings of the text, checked to be those of the tree: the tree lacks the value of a duplicate key.

        Exact counts are slow. They are taken only if a cheaper upper bound exceeds the limit.
        """
        strings = StringIndex(raw)
        small = len(raw) < _SMALL and raw.count(b"{") + raw.count(b"[") < self._max_depth
        if not small and strings.depth() >= self._max_depth:
            count_scalars(tree, self._max_depth)
        if len(raw) > self._max_values and strings.max_values() > self._max_values:
            check_value_count(raw, self._max_values)
        if strings.quotes != count_quotes(orjson.dumps(tree)):
            at = _find_duplicate_key(raw, scalar_ranges(raw, self._max_values), tree)
            raise MessageError(Reason.MALFORMED, f"byte {at}", "a key occurs twice in an object")
        return strings


def _iter_trees(raw: bytes) -> Iterator[tuple[bytes, object]]:
    """The bytes and the value of one JSON text, or of one text per line."""
    try:
        tree = _load_json(raw)
    except orjson.JSONDecodeError as problem:
        lines = _split_lines(raw)
        if len(lines) < 2:
            raise _malformed(raw, problem) from None
    else:
        yield raw, tree
        return
    at = 0
    for line in lines:
        try:
            tree = _load_json(line)
        except orjson.JSONDecodeError as problem:
            raise _malformed(line, problem, at) from None
        yield line, tree
        at += len(line)


def _load_json(raw: bytes) -> object:
    found: object = orjson.loads(raw[3:] if raw.startswith(_BOM) else raw)
    return found


def _split_lines(raw: bytes) -> list[bytes]:
    """Lines that begin with ``{``, each with the white space after it; empty if there is any other line."""
    starts: list[int] = []
    for line in _LINE.finditer(raw):
        if line[0].strip() in {b"", _BOM}:
            continue
        if not _FIRST.match(line[0]):
            return []
        starts.append(line.start())
    return [raw[a:b] for a, b in pairwise([0, *starts[1:], len(raw)])]


def _malformed(raw: bytes, problem: orjson.JSONDecodeError, at: int = 0) -> MessageError:
    """The error at the byte of ``problem``. orjson counts characters, and gives no position for invalid UTF-8."""
    try:
        bom = len(_BOM) if raw.startswith(_BOM) else 0
        at += bom + len(raw[bom:].decode("utf-8")[: problem.pos].encode("utf-8"))
        return MessageError(Reason.MALFORMED, f"byte {at}", "not JSON")
    except UnicodeDecodeError as fault:
        return MessageError(Reason.MALFORMED, f"byte {at + fault.start}", "not UTF-8")


def _find_duplicate_key(raw: bytes, spans: list[tuple[int, int]], tree: Object) -> int:
    """The byte at which text and tree differ: the duplicate key, or shortly after it."""
    for (start, end), (is_key, value) in zip(spans, _keys_and_scalars(tree), strict=False):
        if is_key != (raw[end:].lstrip()[:1] == b":") or orjson.loads(raw[start:end]) != value:
            return start
    return spans[-1][0]


def _keys_and_scalars(node: object) -> Iterator[tuple[bool, object]]:
    """The keys (True) and scalars (False) of a tree in document order."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield True, key
            yield from _keys_and_scalars(value)
    elif isinstance(node, list):
        for value in node:
            yield from _keys_and_scalars(value)
    else:
        yield False, node


def _identity(raw: bytes, tree: Object) -> str:
    """``Patient/123``; for a Bundle without an id its identifier; else a digest of the bytes."""
    name, key = tree.get("resourceType"), tree.get("id")
    if not text_of(key) and name == "Bundle" and isinstance(given := tree.get("identifier"), dict):
        key = given.get("value")
    if isinstance(name, str) and isinstance(key, str) and key:
        return f"{name}/{key}"
    return hashlib.sha256(raw).hexdigest()
