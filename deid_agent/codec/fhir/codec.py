"""FHIR JSON, any resource of any version: bytes in, messages with their sites out.

Nothing is ever serialised again: what changes are byte ranges of the payload as
it came. Source: FHIR R5, 2.1.6 (Resource formats), RFC 8259; NDJSON as in FHIR Bulk Data Access.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import orjson

from deid_agent.codec.fhir.compiled import load
from deid_agent.codec.fhir.every import Every, Names
from deid_agent.codec.fhir.message import FhirMessage, message
from deid_agent.codec.fhir.plans import Plan, Plans, Signature
from deid_agent.codec.fhir.sink import Object, Sink
from deid_agent.codec.fhir.tokens import Strings, bounded, quotes, scalars
from deid_agent.codec.fhir.walk import Walk, measure
from deid_agent.errors import ConfigurationError, MessageError, Reason
from deid_agent.sites import Narrative

_BOM = b"\xef\xbb\xbf"
_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_DEEPEST = 250
_TYPE = re.compile(r"[A-Za-z]{1,64}")


class FhirCodec:
    """Parses FHIR JSON. Holds the tables of ``rules/fhir``; what stays of a message is how its objects were planned."""

    name = "fhir"

    def __init__(self, rules: Path, *, max_depth: int = 128, max_values: int = 2_000_000) -> None:
        self._table = load(rules)
        self._names = Names.of(self._table)
        self._plans: dict[Signature, Plan] = {}
        if max_depth > _DEEPEST:
            raise ConfigurationError(f"max_depth {max_depth}: orjson writes no deeper; name at most {_DEEPEST}")
        self._max_depth = max_depth
        self._max_values = max_values

    @property
    def resources(self) -> frozenset[str]:
        """The types of resources, of all releases that the tables know."""
        return self._table.resources

    def detect(self, raw: bytes) -> bool:
        """True where the first byte that is no white space is ``{``."""
        return _FIRST.match(raw) is not None

    def parse(self, raw: bytes) -> list[FhirMessage]:
        """The resources of one payload: one JSON object, or one on each line (NDJSON).

        Raises ``MessageError``: MALFORMED for what is no JSON or has a key twice,
        UNSUPPORTED for JSON that is no resource, RESOURCE past the bounds.
        """
        return [self._message(part, tree) for part, tree in _trees(raw)]

    def leaves(self, raw: bytes) -> list[Narrative]:
        """Every string and number of every resource; raises as ``parse``."""
        trees = [self._resource(tree)[0] for _, tree in _trees(raw)]
        expected = sum(measure(tree, self._max_depth) for tree in trees)
        spans = scalars(raw, self._max_values)
        if len(spans) != expected:
            raise MessageError(Reason.MALFORMED, "byte 0", "a key stands twice in an object")
        every = Every(self._table, self._names, raw, spans)
        found = [leaf for tree in trees for leaf in every.resource(tree)]
        return sorted(found, key=_first_byte)

    def _resource(self, tree: object) -> tuple[Object, str]:
        """The tree as an object, and its resource type."""
        if not isinstance(tree, dict):
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "not a JSON object")
        name = tree.get("resourceType")
        if not isinstance(name, str) or not _TYPE.fullmatch(name):
            raise MessageError(Reason.UNSUPPORTED, "resourceType", "no name of a resource type")
        return tree, name

    def _strings(self, raw: bytes, tree: Object) -> Strings:
        """The strings of the text, proved to be those of the tree: what stands twice is missing in the tree.

        The exact counts are slow: they are taken where a cheaper one can not rule out that a bound is passed.
        """
        strings = Strings(raw)
        if strings.depth() >= self._max_depth:
            measure(tree, self._max_depth)
        if len(raw) > self._max_values and strings.most() > self._max_values:
            bounded(raw, self._max_values)
        if strings.quotes != quotes(orjson.dumps(tree)):
            where = f"byte {_doubled(raw, scalars(raw, self._max_values), tree)}"
            raise MessageError(Reason.MALFORMED, where, "a key stands twice in an object")
        return strings

    def _message(self, raw: bytes, found: object) -> FhirMessage:
        tree, name = self._resource(found)
        strings = self._strings(raw, tree)
        sink = Sink(raw, self._table)
        walk = Walk(sink, strings, tree, Plans(self._table, self._plans))
        walk.resource(tree, name)
        return message(sink, tree, walk.target)


def _loads(raw: bytes) -> object:
    found: object = orjson.loads(raw[3:] if raw.startswith(_BOM) else raw)
    return found


def _trees(raw: bytes) -> Iterator[tuple[bytes, object]]:
    """One JSON text, or one on each line: its bytes and what it says."""
    try:
        tree = _loads(raw)
    except orjson.JSONDecodeError as problem:
        lines = _lines(raw)
        if len(lines) < 2:
            raise _malformed(raw, problem) from None
    else:
        yield raw, tree
        return
    at = 0
    for line in lines:
        try:
            tree = _loads(line)
        except orjson.JSONDecodeError as problem:
            raise _malformed(line, problem, at) from None
        yield line, tree
        at += len(line)


def _first_byte(leaf: Narrative) -> int:
    return leaf.mapped.starts[0] if leaf.mapped.text else 0


def _lines(raw: bytes) -> list[bytes]:
    """Lines that begin with ``{``, each with the white space behind it; nothing where another line is among them."""
    starts: list[int] = []
    for line in _LINE.finditer(raw):
        if line[0].strip() in {b"", _BOM}:
            continue
        if not _FIRST.match(line[0]):
            return []
        starts.append(line.start())
    return [raw[a:b] for a, b in pairwise([0, *starts[1:], len(raw)])]


def _malformed(raw: bytes, problem: orjson.JSONDecodeError, at: int = 0) -> MessageError:
    """The place of a fault. orjson counts characters and knows none where the bytes are no UTF-8."""
    try:
        bom = len(_BOM) if raw.startswith(_BOM) else 0
        at += bom + len(raw[bom:].decode("utf-8")[: problem.pos].encode("utf-8"))
        return MessageError(Reason.MALFORMED, f"byte {at}", "not JSON")
    except UnicodeDecodeError as fault:
        return MessageError(Reason.MALFORMED, f"byte {at + fault.start}", "not UTF-8")


def _doubled(raw: bytes, spans: list[tuple[int, int]], tree: Object) -> int:
    """The byte where the text and the tree part: at or shortly behind the doubled key."""
    for (start, end), (is_key, value) in zip(spans, _in_order(tree), strict=False):
        if is_key != (raw[end:].lstrip()[:1] == b":") or orjson.loads(raw[start:end]) != value:
            return start
    return spans[-1][0]


def _in_order(node: object) -> Iterator[tuple[bool, object]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield True, key
            yield from _in_order(value)
    elif isinstance(node, list):
        for value in node:
            yield from _in_order(value)
    else:
        yield False, node
