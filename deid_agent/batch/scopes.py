"""Makes a scope table from identities: one row a person, whose columns are its aliases.

A row is never guessed about: one that would join two persons, or that cannot be read as it was meant, stops the build
with its place. Aliases and scopes are held as digests and as the scope alone while the table is made.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.batch.table_file import NumberSection
from deid_agent.batch.tables import Table
from deid_agent.model import (
    ConfigurationError,
    Listing,
    PatientChoice,
    PatientField,
    PatientIdentifier,
    RankedIdentifier,
    counted,
    normalize_assigner,
)
from deid_agent.pipeline import MOST_SCOPE, ListedPatients, NumberSource, ScopeCipher, ScopeTable

_SHOWN = 10
_LONGEST = 200
_DECIMAL = re.compile(r"[0-9]+\.0+|[0-9](?:\.[0-9]+)?[eE]\+?[0-9]+")
"""A number that a program has rewritten: 4471902.0 or 4.47E+06 is no longer the number of the person."""
_EARLIER = "the table"


@dataclass(frozen=True, slots=True)
class PersonColumns:
    """The columns with aliases. The number that is the scope of a row in ``run`` is of the first source."""

    key: str
    numbers: tuple[tuple[str, NumberSection], ...]
    references: tuple[str, ...]
    sources: tuple[NumberSource, ...]

    @classmethod
    def of(cls, table: Table) -> "PersonColumns":
        """The columns of a table file. Raises ``ConfigurationError`` if its sources cannot be told apart."""
        if table.person is None:
            raise ConfigurationError(f"table {table.name} has no [identities]: name one that has")
        sections = list(table.numbers)
        own = table.person.scope
        if own is not None and not any(own in section.columns for section in sections):
            sections.append(NumberSection(columns=[own]))
        sections.sort(key=lambda section: own not in section.columns)
        sources: list[NumberSource] = []
        seen: set[str] = set()
        for section in sections:
            names = [*section.columns, *(f"assigner {normalize_assigner(name)}" for name in section.assigners)]
            if not section.assigners and sources:
                raise ConfigurationError(
                    f"table {table.name}: identities.number: {section.columns[0]} needs assigners; only the source "
                    "of the scope may be without"
                )
            if twice := [name for name in names if name in seen or names.count(name) > 1]:
                raise ConfigurationError(f"table {table.name}: identities.number has {twice[0]} twice: join or remove")
            seen.update(names)
            name = normalize_assigner(section.assigners[0]) if section.assigners else ""
            sources.append(NumberSource(name, tuple(section.assigners), section.zeros))
        numbers = tuple((column, section) for section in sections for column in section.columns)
        return cls(table.person.key, numbers, table.references, tuple(sources))

    @property
    def wanted(self) -> set[str]:
        """The columns that a file must have."""
        return {self.key, *(column for column, _ in self.numbers), *self.references}


@dataclass(slots=True)
class ScopeBuilder:
    """The aliases of persons, row by row. ``unusable`` counts numbers that name nobody, such as ``UNKNOWN``."""

    columns: PersonColumns
    rule: ListedPatients
    cipher: ScopeCipher
    merges: int = 0
    unusable: int = 0
    without_number: int = 0
    _persons: dict[bytes, int] = field(default_factory=dict, repr=False)
    _by_scope: dict[str, int] = field(default_factory=dict, repr=False)
    _scopes: list[str] = field(default_factory=list, repr=False)
    _places: list[str] = field(default_factory=list, repr=False)
    _into: dict[int, int] = field(default_factory=dict, repr=False)
    _faults: list[str] = field(default_factory=list, repr=False)
    _count: int = 0

    @classmethod
    def of(cls, columns: PersonColumns, choice: PatientChoice, cipher: ScopeCipher) -> "ScopeBuilder":
        """A builder without persons."""
        return cls(columns, ListedPatients.of(choice, columns.sources), cipher)

    def load(self, table: ScopeTable) -> None:
        """Begin with the aliases of a table. Raises ``ConfigurationError`` if it declares other sources."""
        if [NumberSource.of_json(each) for each in table.head.sources] != list(self.columns.sources):
            raise ConfigurationError(
                "the table was made with other assigners or zeros than the table file declares: make a new one"
            )
        self.merges = table.head.merges
        for name, scope in table.entries():
            person = self._by_scope.get(scope)
            self._persons[name] = self._add_person(scope, _EARLIER) if person is None else person

    def add_row(self, row: Mapping[str, object], fault: str | None, place: str) -> None:
        """Add a person. A fault is kept for ``finish``."""
        try:
            if fault is not None:
                raise _FaultError("" if fault == "row" else fault, "cannot be read")
            self._add(row, place)
        except _FaultError as problem:
            self._keep(place, problem)

    def merge(self, row: Mapping[str, object], fault: str | None, place: str) -> None:
        """Make the person of ``old`` the person of ``new``, whose scope remains. A fault is kept for ``finish``."""
        try:
            if fault is not None:
                raise _FaultError("" if fault == "row" else fault, "cannot be read")
            assigner = _read_cell(row.get("assigner"), "assigner")
            names, scopes = [], []
            for column in ("old", "new"):
                value = _read_cell(row.get(column), column)
                found = PatientIdentifier(value, "MR", (assigner,) if assigner else ())
                alias, ranked = self.rule.name_alias(found), self.rule.rank([found])
                if not ranked or alias is None:
                    why = "names nobody" if not ranked else "is of an assigner that the table file does not declare"
                    raise _FaultError(column, why)
                names.append(self.cipher.name(alias))
                scopes.append(ranked[0].scope)
            if names[0] == names[1]:
                raise _FaultError("old", "is the new number too")
            self._merge(names[0], names[1], scopes[1], place)
        except _FaultError as problem:
            self._keep(place, problem)

    def finish(self) -> dict[bytes, str]:
        """The scope of each alias by its digest. Raises ``ConfigurationError`` with the places of faults."""
        if self._count:
            more = "" if self._count <= _SHOWN else f", and {self._count - _SHOWN} more"
            raise ConfigurationError(f"{counted(self._count, 'fault')}: {'; '.join(self._faults)}{more}")
        if not self._persons:
            raise ConfigurationError("the identities name no person: nothing to write")
        return {name: self._scopes[self._root(person)] for name, person in self._persons.items()}

    @property
    def persons(self) -> int:
        """The persons, merged ones once."""
        return len(self._scopes) - len(self._into)

    def _keep(self, place: str, problem: "_FaultError") -> None:
        self._count += 1
        if len(self._faults) < _SHOWN:
            self._faults.append(f"{place}{f', column {problem.column}' if problem.column else ''}: {problem.why}")

    def _add(self, row: Mapping[str, object], place: str) -> None:
        key = _read_cell(row[self.columns.key], self.columns.key)
        identifiers = list(self._list_identifiers(row, key))
        aliases = [
            (column, self.cipher.name(alias))
            for column, found, _ in identifiers
            if (alias := self.rule.name_alias(found)) is not None
        ]
        if not aliases:
            raise _FaultError(self.columns.key, "the row names nobody")
        person = self._find_known(aliases)
        if person is None:
            # The best number by the rule; of equal ones that of the first column.
            best = min((rank for _, _, rank in identifiers if rank is not None), default=None, key=lambda r: r.rank)
            self.without_number += best is None
            scope = best.scope if best is not None else f"PERSON|{key or aliases[0][1].hex()}"
            person = self._claim(scope, place, aliases[0][0])
        self._places[person] = place
        for _, name in aliases:
            self._persons[name] = person

    def _find_known(self, aliases: Sequence[tuple[str, bytes]]) -> int | None:
        """The person of the table with these aliases. Raises ``_FaultError`` for those of another row, or of two."""
        known: dict[int, str] = {}
        for column, name in aliases:
            if (person := self._persons.get(name)) is not None:
                known.setdefault(self._root(person), column)
        for person, column in known.items():
            if self._places[person] != _EARLIER:
                raise _FaultError(column, f"is a value of {self._places[person]} too: one person has one row")
        if len(known) > 1:
            raise _FaultError(list(known.values())[1], "is of another person in the table: merge them with --merges")
        return next(iter(known), None)

    def _list_identifiers(
        self, row: Mapping[str, object], key: str
    ) -> Iterator[tuple[str, PatientIdentifier, RankedIdentifier | None]]:
        """The identifiers of a row with their columns; numbers with their rank. Those that name nobody are counted."""
        for column, section in self.columns.numbers:
            text = _read_cell(row[column], column)
            for value in text.split(section.separator) if section.separator else [text]:
                if number := value.strip():
                    if _DECIMAL.fullmatch(number):
                        raise _FaultError(column, "is a decimal: write numbers as text")
                    found = PatientIdentifier(number, section.type, tuple(section.assigners))
                    if ranked := self.rule.rank([found]):
                        yield column, found, ranked[0]
                    else:
                        self.unusable += 1
        for column in self.columns.references:
            if value := _read_cell(row[column], column):
                logical = value.removeprefix("Patient/")
                if "/" in logical:
                    raise _FaultError(column, "is an address: write the id alone")
                yield column, PatientIdentifier(logical, field=PatientField.LOGICAL), None
        if key:
            column = self.columns.key
            yield column, PatientIdentifier(key, assigners=(column,), field=PatientField.BESIDE), None

    def _claim(self, scope: str, place: str, column: str) -> int:
        """A new person. Raises ``_FaultError`` if another one has the scope."""
        if len(scope.encode()) > MOST_SCOPE:
            raise _FaultError(column, "is too long")
        if (other := self._by_scope.get(scope)) is not None:
            raise _FaultError(
                column,
                f"differs from that of {self._places[other]} only by zeros, type or assigner, and would join two "
                "persons: declare zeros in the table file, or assigners in [patient] of the policy",
            )
        return self._add_person(scope, place)

    def _add_person(self, scope: str, place: str) -> int:
        self._scopes.append(scope)
        self._places.append(place)
        self._by_scope[scope] = len(self._scopes) - 1
        return len(self._scopes) - 1

    def _merge(self, old: bytes, new: bytes, scope: str, place: str) -> None:
        remains = self._persons.get(new)
        target = self._claim(scope, place, "new") if remains is None else self._root(remains)
        self._persons[new] = target
        former = self._persons.get(old)
        if former is None:
            self._persons[old] = target
        elif (source := self._root(former)) != target:
            self._into[source] = target
        else:
            return
        self.merges += 1

    def _root(self, person: int) -> int:
        while person in self._into:
            person = self._into[person]
        return person


class _FaultError(Exception):
    def __init__(self, column: str, why: str) -> None:
        self.column, self.why = column, why
        super().__init__(f"{column}: {why}")


def _read_cell(value: object, column: str) -> str:
    """The text of a cell. Raises ``_FaultError`` for a value that may have been rewritten, or is no text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _FaultError(column, "is no text and no whole number")
    text = str(value).strip()
    if len(text) > _LONGEST or any(not c.isprintable() for c in text):
        raise _FaultError(column, "is too long" if len(text) > _LONGEST else "has a character that is not printable")
    return text


def check_columns(row: Mapping[str, object], wanted: Iterable[str], place: str) -> None:
    """Raises ``ConfigurationError`` if a column is missing: its aliases would be missing without a trace."""
    if missing := sorted(set(wanted) - set(row)):
        raise ConfigurationError(f"{place}: the file has no column {missing[0]}")


def find_listing(choice: PatientChoice, table: Table, key: str, context: Mapping[str, object]) -> Listing | None:
    """What a scope table has of a person of the identities, as for the rows of that person."""
    number = context.get("mrn")
    found = [PatientIdentifier(number)] if isinstance(number, str) else []
    beside = PatientIdentifier(key, assigners=(table.patient_key,), field=PatientField.BESIDE)
    return choice.find([*found, beside]).listing
