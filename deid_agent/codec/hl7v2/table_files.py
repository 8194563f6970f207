"""Compiles the field table from ``rules/hl7``, once at start.

``datatypes.toml`` defines the content of components, ``segments.toml`` that of single fields, and ``fields.toml`` lists
the datatypes that a field has had in any version. All names are checked: a rule that cannot apply is an error.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from deid_agent.codec.hl7v2.table import CodeTable, Composite, Hl7Kind, Hl7Rule, Hl7Table, Join, Layout, Stranger
from deid_agent.model import ConfigurationError, PhiType, Subject
from deid_agent.rules import load_toml

_KINDS = frozenset(kind.value for kind in Hl7Kind)
_KEEPING = (
    *("coded", "unit", "XON", "EI", "EIP", "CM_PAIR", "CX", "CK", "CM_PAT_ID", "PLN", "DLN", "AUI", "HD", "HDF"),
    *("ANSWER", "SEX", "MO", "CP", "CQ", "PAIRS", "DIN", "DLD", "ICD", "CCD", "OCD", "NR", "DR"),
)
_STRANGERS: Mapping[str, Stranger] = MappingProxyType(
    {
        **dict.fromkeys(
            ("CODE", "NUMBER", "TIME", "TS", "BIRTH", "STAMP", "PUBLIC", "FC", "code", "number", "date", "keep"),
            Stranger.NUMBERED,
        ),
        **dict.fromkeys(_KEEPING, Stranger.CODED),
        **dict.fromkeys(("XTN", "TN", "PL", "TQ"), Stranger.LISTED),
        "text": Stranger.WRITTEN,
    }
)
"""By layout. In a layout that is not listed, every part of a value is replaced or read."""
_SUBJECTS = frozenset(subject.value for subject in Subject)
_PHI_TYPES = frozenset(type_.value for type_ in PhiType)
_USUALLY_KEPT = frozenset({Hl7Kind.ANSWER, Hl7Kind.CODE, Hl7Kind.CODED, Hl7Kind.FLAG, Hl7Kind.LABEL, Hl7Kind.NUMBER})


def load_hl7_table(rules: Path) -> Hl7Table:
    """The table compiled from the rules folder ``rules``.

    Raises ``ConfigurationError`` that names the file and the key.
    """
    folder = rules / "hl7"
    datatypes, segments, fields = (load_toml(folder / f"{n}.toml") for n in ("datatypes", "segments", "fields"))
    compiler = _Compiler(folder / "datatypes.toml", datatypes)
    known, required = (_strings(fields, section, folder / "fields.toml") for section in ("fields", "required"))
    groups = _strings(fields, "groups", folder / "fields.toml") if "groups" in fields else {}
    names = frozenset(groups.get("names", "").split())
    return _compile(compiler, folder / "segments.toml", segments, known, required, names)


def _compile(
    compiler: "_Compiler",
    origin: Path,
    data: Mapping[str, object],
    fields: Mapping[str, str],
    required: Mapping[str, str],
    groups: frozenset[str],
) -> Hl7Table:
    unknown = _strings(data, "unknown", origin)
    if set(unknown) != {"segment", "field"}:
        raise ConfigurationError(f"{origin}: [unknown] must have the keys 'segment' and 'field', and no others")
    beyond = compiler.rule(unknown["field"], f"{origin}: unknown.field")
    segments: dict[str, tuple[Hl7Rule, ...]] = {}
    rest: dict[str, Hl7Rule] = {}
    joins: dict[str, Join] = {}
    for name in sorted({*fields, *data} - {"unknown"}):
        where = f"{origin}: {name}"
        if len(name) != 3 or not (name.isalnum() and name.isupper()):
            raise ConfigurationError(f"{where}: not a segment name; use three capital letters or digits")
        own = data.get(name, {})
        if not isinstance(own, Mapping):
            raise ConfigurationError(f"{where}: must be a table")
        role = compiler.role(own.get("role"), f"{where}.role")
        if "join" in own:
            by = _join_number(own["by"], where) if "by" in own else None
            joins[name] = Join(_join_number(own["join"], where), by)
        words = fields.get(name, "").split()
        default = compiler.rule(str(own["*"]), f"{where}.*", role) if "*" in own else None
        numbers = {
            _field_number(k, where, len(words)): v
            for k, v in own.items()
            if k not in {"role", "join", "by", "words", "*"}
        }
        # A field that neither the standard nor the table names is unknown, and is never kept unread.
        rules = [
            compiler.rule(str(numbers[i]), f"{where}.{i}", role)
            if i in numbers
            else default or (compiler.field(words[i - 1], role, f"{name}-{i}") if i <= len(words) else beyond)
            for i in range(1, max([len(words), *numbers]) + 1)
        ]
        for word in str(own.get("words", "")).split():
            number = _field_number(word, f"{where}.words", len(rules))
            rules[number - 1] = replace(rules[number - 1], tabled=False)
        for word in required.get(name, "").split():
            number = _field_number(word, f"{origin.with_name('fields.toml')}: required", len(rules))
            rules[number - 1] = replace(rules[number - 1], required=True)
        segments[name] = tuple(rules)
        rest[name] = default or beyond
    return Hl7Table(
        MappingProxyType(segments),
        MappingProxyType(rest),
        MappingProxyType(joins),
        compiler.observation(),
        compiler.codes(),
        compiler.rule(unknown["segment"], f"{origin}: unknown.segment"),
        compiler.layouts,
        groups,
    )


class _Compiler:
    """The checked content of ``datatypes.toml``; compiles rule strings to rules."""

    def __init__(self, origin: Path, data: Mapping[str, object]) -> None:
        self._origin = origin
        self._data = data
        for unknown in set(data) - {"layout", "default", "observation", "idtype", "authority", "equipment", "system"}:
            raise ConfigurationError(f"{origin}: unknown table [{unknown}]")
        self._layouts = {name: text.split() for name, text in _strings(data, "layout", origin).items()}
        self.layouts = {
            name: self._composite(words, f"{origin}: layout.{name}") for name, words in self._layouts.items()
        }
        default = _strings(data, "default", origin)
        self._order = {name: rank for rank, name in enumerate(default)}
        self._defaults = {name: (text, f"{origin}: default.{name}") for name, text in default.items()}
        self._tabled = (self.layouts["CODE"], self.layouts["FC"])
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

    def default(self, word: str, role: Subject | None, where: str) -> Hl7Rule:
        """The rule of a field that has had the datatypes ``A/B``: the strictest of theirs, the last in the file."""
        for name in word.split("/"):
            if name not in self._order:
                raise ConfigurationError(f"{self._origin}: default.{name} is missing; {where} has this datatype")
        return self.rule(*self._defaults[max(word.split("/"), key=self._order.__getitem__)], role)

    def field(self, word: str, role: Subject | None, where: str) -> Hl7Rule:
        """The rule of a field. The codes of tables (ID, IS) are short: a long number is that of a record."""
        rule, types = self.default(word, role, where), set(word.split("/"))
        if rule.layout == self.layouts["ANSWER"]:
            return replace(rule, tabled=True)
        coded = rule.layout is Hl7Kind.CODED and "IS" in types
        tabled = coded or (rule.layout in self._tabled and not types.isdisjoint({"ID", "IS"}))
        # A class whose date has no digit is a name: Okafor^Ada.
        other = "PN" if rule.layout is self.layouts["FC"] else "RESOURCE"
        return replace(rule, alternative=self.layouts[other], tabled=True) if tabled else rule

    def observation(self) -> Mapping[str, Hl7Rule]:
        own = {
            name: self.rule(text, f"{self._origin}: observation.{name}")
            for name, text in _strings(self._data, "observation", self._origin).items()
        }
        if "" not in own:
            raise ConfigurationError(f'{self._origin}: observation: add an entry for the empty type, ""')
        defaults = {name: self.rule(*entry) for name, entry in self._defaults.items()}
        return MappingProxyType({**defaults, **own})

    def codes(self) -> CodeTable:
        system = _strings(self._data, "system", self._origin)
        try:
            systems = re.compile("|".join(system.values()), re.IGNORECASE)
        except re.error as problem:
            raise ConfigurationError(f"{self._origin}: system: {problem}") from None
        return CodeTable(self._types("idtype"), self._types("authority"), self._types("equipment"), systems)

    def _types(self, section: str) -> Mapping[str, PhiType]:
        try:
            return MappingProxyType({k: PhiType(v) for k, v in _strings(self._data, section, self._origin).items()})
        except ValueError as problem:
            raise ConfigurationError(f"{self._origin}: {section}: {problem}") from None

    def _rule(self, text: str, where: str, role: Subject | None = None) -> Hl7Rule:
        names, *words = text.split() or [""]
        first, _, second = names.partition("/")
        type_: PhiType | None = None
        for word in words:
            if word in _SUBJECTS:
                role = Subject(word)
            elif word in _PHI_TYPES:
                type_ = PhiType(word)
            else:
                raise ConfigurationError(f"{where}: {word!r} is neither a role nor a PHI type")
        layout = self._layout(first, where)
        alternative = self._layout(second, where) if second else None
        person = _has_family_name(layout)
        fallback = Subject.PATIENT if person or layout is Hl7Kind.NAME else Subject.OTHER
        single = _single_kind(layout, alternative)
        usually_kept = single if single in _USUALLY_KEPT else None
        stranger = _STRANGERS.get(first)
        return Hl7Rule(layout, role or fallback, type_, alternative, person, single, usually_kept, stranger=stranger)

    def _layout(self, name: str, where: str) -> Layout:
        if name in self.layouts:
            return self.layouts[name]
        if name in _KINDS:
            return Hl7Kind(name)
        raise ConfigurationError(f"{where}: {name!r} is neither a layout nor one of {', '.join(Hl7Kind)}")

    def _composite(self, words: list[str], where: str) -> Composite:
        return tuple(
            self._subcomponents(word[1:-1], where)
            if word.startswith("{") and word.endswith("}")
            else _kind(word, where)
            for word in words
        )

    def _subcomponents(self, name: str, where: str) -> tuple[Hl7Kind, ...]:
        if name not in self._layouts:
            raise ConfigurationError(f"{where}: {name!r} is not a layout")
        # Two levels only: HL7 has no separator for a third.
        return tuple(_kind(word, f"{where}: {name}") for word in self._layouts[name])


def _kind(word: str, where: str) -> Hl7Kind:
    if word not in _KINDS or word == Hl7Kind.VARIES:
        raise ConfigurationError(f"{where}: {word!r} is not one of {', '.join(Hl7Kind)}")
    return Hl7Kind(word)


def _single_kind(layout: Layout, alternative: Layout | None) -> Hl7Kind | None:
    """The kind of a field of this layout that holds one value without separators; None if it depends on the value."""
    if alternative is None and layout in {Hl7Kind.CODED, Hl7Kind.LABEL, Hl7Kind.UNIT, Hl7Kind.RANGE}:
        return layout if isinstance(layout, Hl7Kind) else None
    first: Layout = layout
    while not isinstance(first, Hl7Kind):
        first = first[0]
    return None if alternative is not None or first in {Hl7Kind.CODED, Hl7Kind.ATTACHMENT, Hl7Kind.VARIES} else first


def _has_family_name(layout: Layout) -> bool:
    kinds = (layout,) if isinstance(layout, Hl7Kind) else layout
    return any(kind is Hl7Kind.FAMILY if isinstance(kind, Hl7Kind) else _has_family_name(kind) for kind in kinds)


def _strings(data: Mapping[str, object], section: str, origin: Path) -> dict[str, str]:
    table = data.get(section)
    if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
        raise ConfigurationError(f"{origin}: [{section}] must be a table of strings")
    return {str(k): str(v) for k, v in table.items()}


def _field_number(key: str, where: str, known: int) -> int:
    if not key.isdecimal() or not 1 <= int(key) <= 200:
        raise ConfigurationError(f"{where}.{key}: not a field number; allowed words: role, join, by, words, *")
    if known and int(key) > known:
        raise ConfigurationError(f"{where}.{key}: the segment has {known} fields")
    return int(key)


def _join_number(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{where}: 'join' and 'by' must be field numbers")
    return value
