"""Every scalar of a payload with the bytes it stands for, kept ones too: what the leak guard reads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.codec.fhir import xhtml
from deid_agent.codec.fhir.shapes import Shape, Table
from deid_agent.codec.fhir.tokens import characters
from deid_agent.mapped import MappedText
from deid_agent.sites import Narrative, Role

Range = tuple[int, int]

_FIXED = frozenset({"keep", "code", "canonical"})
_ENCODED = frozenset({"data", "blob", "content", "hash"})
_CODED = frozenset({"code", "display", "version"})
_VERSIONS = frozenset({"etag", "versionId", "ifMatch", "ifNoneMatch"})
"""Kept, but a server may make them of anything."""


@dataclass(frozen=True, slots=True)
class Names:
    """Element names of all types: ``known`` in any, ``fixed`` where no type has anything but a code in it."""

    known: frozenset[str] = field(repr=False)
    fixed: frozenset[str] = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> "Names":
        leafs: dict[str, set[str]] = {}
        for shape in _shapes(table):
            for name, rule in shape.rules.items():
                words = leafs.setdefault(name, set())
                if rule.leaf is not None or rule.child is None:
                    words.add(rule.leaf.name if rule.leaf is not None else "keep")
        codes = frozenset(name for name, words in leafs.items() if words and words <= _FIXED)
        return cls(
            frozenset(leafs) | {"resourceType", "fhir_comments"},
            codes - _CODED - _VERSIONS | {"resourceType", "system"},
        )


def _shapes(table: Table) -> Iterator[Shape]:
    """All shapes, those of backbone elements too."""
    seen: set[int] = set()
    todo = list(table.shapes.values())
    while todo:
        shape = todo.pop()
        if id(shape) not in seen:
            seen.add(id(shape))
            yield shape
            todo += [rule.child for rule in shape.rules.values() if rule.child is not None]


class Every:
    """Walks the trees of one payload beside the byte ranges of their scalars; used once."""

    def __init__(self, table: Table, names: Names, raw: bytes, spans: list[Range]) -> None:
        self._table = table
        self._names = names
        self._raw = raw
        self._next: Callable[[], Range] = iter(spans).__next__

    def resource(self, tree: Mapping[str, object]) -> Iterator[Narrative]:
        """The leaves of the next tree of the payload."""
        yield from self._object(tree, str(tree.get("resourceType", "")))

    def _object(self, node: Mapping[str, object], path: str) -> Iterator[Narrative]:
        found = node.get("system")  # one of the public: in its own a sender may code anything
        system = isinstance(found, str) and found.startswith(self._table.vocabularies)
        for key, value in node.items():
            start, end = self._next()
            where = f"{path}.{key}"
            bare = key[1:] if key[:1] == "_" else key
            if bare not in self._names.known and not self._is_choice(bare):
                where = f"{path}.?"
                yield self._narrative(where, key, start + 1, end - 1, Role.KEY)
            yield from self._value(value, where, key, self._role(bare, system=system))

    def _is_choice(self, key: str) -> bool:
        """True for ``valueQuantity`` and its like: an element's name and the name of a type."""
        at = next((i for i, c in enumerate(key) if c.isupper()), 0)
        return at > 0 and (key[at:] in self._table.shapes or key[at].lower() + key[at + 1 :] in self._table.primitives)

    def _role(self, key: str, *, system: bool) -> Role:
        if key in self._names.fixed:
            return Role.CODE
        if system and key in _CODED:
            return Role.LABEL if key == "display" else Role.CODE
        return Role.TEXT

    def _value(self, value: object, path: str, key: str, role: Role) -> Iterator[Narrative]:
        if isinstance(value, dict):
            yield from self._object(value, path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._value(item, f"{path}[{index}]", key, role)
        else:
            start, end = self._next()
            if isinstance(value, str):
                if len(value) > 1 and key not in _ENCODED:
                    yield from self._string(value, start + 1, end - 1, path, key, role)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                text = self._raw[start:end].decode("ascii")
                yield Narrative(path, MappedText(text, range(start, end), range(start + 1, end + 1)), Role.CODE)

    def _string(self, value: str, start: int, end: int, path: str, key: str, role: Role) -> Iterator[Narrative]:
        if key != "div":
            yield self._narrative(path, value, start, end, role)
            return
        starts, ends = characters(self._raw, start, end, len(value))
        mapped, attributes = xhtml.read(value, starts, ends, inline=self._table.inline, tags=self._table.tags)
        yield Narrative(path, mapped)
        for found in attributes:
            if found.name.startswith("xmlns") or found.name in {"class", "style"}:
                continue
            text, _ = xhtml.read(found.value, starts, ends, offset=found.start, quoted=True)
            yield Narrative(f"{path}/@{found.name}", text)

    def _narrative(self, path: str, value: str, start: int, end: int, role: Role) -> Narrative:
        return Narrative(path, MappedText(value, *characters(self._raw, start, end, len(value))), role)
