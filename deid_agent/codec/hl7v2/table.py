"""The field table: what every field of every segment holds, compiled from ``rules/hl7`` once.

``datatypes.toml`` says what components hold, ``segments.toml`` what single fields hold, ``fields.toml`` which
datatypes a field has had in any version. Every name is checked at start: a rule that can't apply is an error.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.sites import Subject


class Leaf(StrEnum):
    """What one value is; ``rules/hl7/datatypes.toml`` describes each."""

    KEEP = "keep"
    CODE = "code"
    NUMBER = "number"
    UNIT = "unit"
    RANGE = "range"
    CODED = "coded"
    TEXT = "text"
    VERBATIM = "verbatim"
    FAMILY = "family"
    GIVEN = "given"
    NAME = "name"
    ID = "id"
    IDTYPE = "idtype"
    AUTHORITY = "authority"
    EQUIPMENT = "equipment"
    USE = "use"
    STREET = "street"
    CITY = "city"
    STATE = "state"
    ZIP = "zip"
    COUNTRY = "country"
    PLACE = "place"
    DATE = "date"
    PHONE = "phone"
    EMAIL = "email"
    HOSPITAL = "hospital"
    ORGANIZATION = "organization"
    ROOM = "room"
    REDACT = "redact"
    ATTACHMENT = "attachment"
    VARIES = "varies"

    __hash__ = str.__hash__  # Enum's own is written in Python; a parse asks for thousands


Part = Leaf | tuple[Leaf | tuple[Leaf, ...], ...]
"""A value, or the parts of a composite one (components, or subcomponents inside a component)."""


_LEAVES = frozenset(leaf.value for leaf in Leaf)
_ROLES = frozenset(subject.value for subject in Subject)
_PHI_TYPES = frozenset(type_.value for type_ in PhiType)


@dataclass(frozen=True, slots=True)
class Rule:
    """How a field is read: its layout, whose it is, and the PHI type of its ids, organisations or redacted values.

    ``other`` is read instead where the value can't be ``part``: senders put a CN where an NDL belongs.
    ``person`` is true where the layout has a family name, ``lone`` what a field is that holds one value
    without separators (None where that takes a longer look), ``plain`` the same where such a value is mostly kept.
    A ``required`` field may not become empty.
    """

    part: Part
    subject: Subject = Subject.OTHER
    type: PhiType | None = None
    other: Part | None = None
    person: bool = False
    lone: Leaf | None = None
    plain: Leaf | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Consecutive segments are one narrative in ``field``, while field ``by`` stays the same."""

    field: int
    by: int | None = None


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes that refine a type: of identifiers, their assigning authorities, and telephone equipment.

    ``systems`` names the code systems whose codes are nobody's, wherever they stand.
    """

    idtype: Mapping[str, PhiType]
    authority: Mapping[str, PhiType]
    equipment: Mapping[str, PhiType]
    systems: re.Pattern[str]

    def system(self, name: str) -> bool:
        """True for the name of a public code system (HL7 table 0396), or an OID below HL7's own arcs of them."""
        return self.systems.fullmatch(name.strip()) is not None


class Table:
    """Rules by segment and field number, and by datatype for OBX-5."""

    def __init__(
        self,
        segments: Mapping[str, tuple[Rule, ...]],
        rest: Mapping[str, Rule],
        joins: Mapping[str, Join],
        observation: Mapping[str, Rule],
        codes: Codes,
        unknown: Rule,
    ) -> None:
        self._segments = segments
        self._rest = rest
        self._unknown = unknown
        self.joins = joins
        self.codes = codes
        self._observation = observation
        self.names = frozenset(segments)
        """The names that ``knows`` says yes to."""

    def knows(self, segment: str) -> bool:
        """True for segments of the standard, and for those that ``segments.toml`` names."""
        return segment in self._segments

    def rules(self, segment: str) -> tuple[tuple[Rule, ...], Rule]:
        """The rules of fields 1, 2, ..., and the rule of every field beyond."""
        return self._segments.get(segment, ()), self._rest.get(segment, self._unknown)

    def observation(self, datatype: str) -> Rule:
        """The rule of an OBX-5 whose OBX-2 says ``datatype``."""
        return self._observation.get(datatype, self._observation[""])


def load(rules: Path) -> Table:
    """The table of the top-level rules folder.

    Raises ``ConfigurationError`` naming the file and the key.
    """
    folder = rules / "hl7"
    datatypes, segments, fields = (_read(folder / f"{n}.toml") for n in ("datatypes", "segments", "fields"))
    compiler = _Compiler(folder / "datatypes.toml", datatypes)
    known, required = (_strings(fields, section, folder / "fields.toml") for section in ("fields", "required"))
    return _compile(compiler, folder / "segments.toml", segments, known, required)


def _compile(
    compiler: "_Compiler",
    origin: Path,
    data: Mapping[str, object],
    fields: Mapping[str, str],
    required: Mapping[str, str],
) -> Table:
    unknown = _strings(data, "unknown", origin)
    if set(unknown) != {"segment", "field"}:
        raise ConfigurationError(f"{origin}: [unknown] must say 'segment' and 'field'")
    beyond = compiler.rule(unknown["field"], f"{origin}: unknown.field")
    segments: dict[str, tuple[Rule, ...]] = {}
    rest: dict[str, Rule] = {}
    joins: dict[str, Join] = {}
    for name in sorted({*fields, *data} - {"unknown"}):
        where = f"{origin}: {name}"
        if len(name) != 3 or not (name.isalnum() and name.isupper()):
            raise ConfigurationError(f"{where}: not a segment name")
        own = data.get(name, {})
        if not isinstance(own, Mapping):
            raise ConfigurationError(f"{where}: must be a table")
        role = compiler.role(own.get("role"), f"{where}.role")
        if "join" in own:
            joins[name] = Join(_number(own["join"], where), _number(own["by"], where) if "by" in own else None)
        words = fields.get(name, "").split()
        default = compiler.rule(str(own["*"]), f"{where}.*", role) if "*" in own else None
        numbers = {_field(k, where, len(words)): v for k, v in own.items() if k not in {"role", "join", "by", "*"}}
        rules = [
            compiler.rule(str(numbers[i]), f"{where}.{i}", role)
            if i in numbers
            else default or compiler.default(words[i - 1], role, f"{name}-{i}")
            for i in range(1, max([len(words), *numbers]) + 1)
        ]
        for word in required.get(name, "").split():
            number = _field(word, f"{origin.with_name('fields.toml')}: required", len(rules))
            rules[number - 1] = replace(rules[number - 1], required=True)
        segments[name] = tuple(rules)
        rest[name] = default or beyond
    return Table(
        MappingProxyType(segments),
        MappingProxyType(rest),
        MappingProxyType(joins),
        compiler.observation(),
        compiler.codes(),
        compiler.rule(unknown["segment"], f"{origin}: unknown.segment"),
    )


class _Compiler:
    """``datatypes.toml``, checked; turns rule strings into rules."""

    def __init__(self, origin: Path, data: Mapping[str, object]) -> None:
        self._origin = origin
        self._data = data
        for unknown in set(data) - {"layout", "default", "observation", "idtype", "authority", "equipment", "system"}:
            raise ConfigurationError(f"{origin}: unknown table [{unknown}]")
        self._layouts = {name: text.split() for name, text in _strings(data, "layout", origin).items()}
        self._parts = {name: self._part(words, f"{origin}: layout.{name}") for name, words in self._layouts.items()}
        default = _strings(data, "default", origin)
        self._order = {name: rank for rank, name in enumerate(default)}
        self._defaults = {name: (text, f"{origin}: default.{name}") for name, text in default.items()}
        self.rule = lru_cache(maxsize=4096)(self._rule)
        for name in default:
            self.rule(*self._defaults[name])

    def role(self, word: object, where: str) -> Subject | None:
        if word is None:
            return None
        try:
            return Subject(str(word))
        except ValueError:
            raise ConfigurationError(f"{where}: {word!r} is not one of {', '.join(Subject)}") from None

    def default(self, word: str, role: Subject | None, where: str) -> Rule:
        """The rule of a field that has had the datatypes ``A/B``: the strictest, which is the last in the file."""
        for name in word.split("/"):
            if name not in self._order:
                raise ConfigurationError(f"{self._origin}: default.{name}: missing, and {where} has it")
        return self.rule(*self._defaults[max(word.split("/"), key=self._order.__getitem__)], role)

    def observation(self) -> Mapping[str, Rule]:
        own = {
            name: self.rule(text, f"{self._origin}: observation.{name}")
            for name, text in _strings(self._data, "observation", self._origin).items()
        }
        if "" not in own:
            raise ConfigurationError(f"{self._origin}: observation: needs an entry for the empty type")
        every = {name: self.rule(*entry) for name, entry in self._defaults.items()}
        return MappingProxyType({**every, **own})

    def codes(self) -> Codes:
        system = _strings(self._data, "system", self._origin)
        try:
            systems = re.compile("|".join(system.values()), re.IGNORECASE)
        except re.error as problem:
            raise ConfigurationError(f"{self._origin}: system: {problem}") from None
        return Codes(self._types("idtype"), self._types("authority"), self._types("equipment"), systems)

    def _types(self, section: str) -> Mapping[str, PhiType]:
        try:
            return MappingProxyType({k: PhiType(v) for k, v in _strings(self._data, section, self._origin).items()})
        except ValueError as problem:
            raise ConfigurationError(f"{self._origin}: {section}: {problem}") from None

    def _rule(self, text: str, where: str, role: Subject | None = None) -> Rule:
        layout, *words = text.split() or [""]
        first, _, second = layout.partition("/")
        type_: PhiType | None = None
        for word in words:
            if word in _ROLES:
                role = Subject(word)
            elif word in _PHI_TYPES:
                type_ = PhiType(word)
            else:
                raise ConfigurationError(f"{where}: {word!r} is neither a role nor a PHI type")
        part = self._named(first, where)
        other = self._named(second, where) if second else None
        person = _names_someone(part)
        fallback = Subject.PATIENT if person or part is Leaf.NAME else Subject.OTHER
        lone = _lone(part, other)
        plain = lone if lone in {Leaf.CODE, Leaf.CODED, Leaf.NUMBER} else None
        return Rule(part, role or fallback, type_, other, person, lone, plain)

    def _named(self, name: str, where: str) -> Part:
        if name in self._parts:
            return self._parts[name]
        if name in _LEAVES:
            return Leaf(name)
        raise ConfigurationError(f"{where}: {name!r} is neither a layout nor one of {', '.join(Leaf)}")

    def _part(self, words: list[str], where: str) -> tuple[Leaf | tuple[Leaf, ...], ...]:
        return tuple(
            self._flat(word[1:-1], where) if word.startswith("{") and word.endswith("}") else _leaf(word, where)
            for word in words
        )

    def _flat(self, name: str, where: str) -> tuple[Leaf, ...]:
        if name not in self._layouts:
            raise ConfigurationError(f"{where}: {name!r} is not a layout")
        # Two levels only: HL7 has no separator for a third.
        return tuple(_leaf(word, f"{where}: {name}") for word in self._layouts[name])


def _leaf(word: str, where: str) -> Leaf:
    if word not in _LEAVES or word == Leaf.VARIES:
        raise ConfigurationError(f"{where}: {word!r} is not one of {', '.join(Leaf)}")
    return Leaf(word)


def _lone(part: Part, other: Part | None) -> Leaf | None:
    if part in {Leaf.CODED, Leaf.UNIT, Leaf.RANGE}:
        return part if isinstance(part, Leaf) else None
    first: Part = part
    while not isinstance(first, Leaf):
        first = first[0]
    return None if other is not None or first in {Leaf.CODED, Leaf.ATTACHMENT, Leaf.VARIES} else first


def _names_someone(part: Part) -> bool:
    leaves = (part,) if isinstance(part, Leaf) else part
    return any(p is Leaf.FAMILY if isinstance(p, Leaf) else _names_someone(p) for p in leaves)


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path}: not TOML: {problem}") from None


def _strings(data: Mapping[str, object], section: str, origin: Path) -> dict[str, str]:
    table = data.get(section)
    if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
        raise ConfigurationError(f"{origin}: [{section}] must be a table of strings")
    return {str(k): str(v) for k, v in table.items()}


def _field(key: str, where: str, known: int) -> int:
    if not key.isdecimal() or not 1 <= int(key) <= 200:
        raise ConfigurationError(f"{where}.{key}: not a field number; allowed words: role, join, by, *")
    if known and int(key) > known:
        raise ConfigurationError(f"{where}.{key}: the segment has {known} fields")
    return int(key)


def _number(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{where}: 'join' and 'by' must be field numbers")
    return value
