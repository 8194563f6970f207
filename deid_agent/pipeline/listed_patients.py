"""Chooses the scope of a patient by a scope table, else by the rule of the policy.

A table lists aliases: numbers of a source, ids of FHIR resources, keys of rows. A number counts for the source whose
assigner it names, so numbers of two hospitals are apart. What the table does not list has the scope of the rule, and
the rule gives the listed numbers the same scope, so that a patient keeps it when the table learns of the patient.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import orjson

from deid_agent.config import SecretKey
from deid_agent.model import (
    ConfigurationError,
    FoundPatient,
    Listing,
    PatientChoice,
    PatientField,
    PatientIdentifier,
    RankedIdentifier,
    normalize_assigner,
    normalize_identifier,
)
from deid_agent.pipeline.policy import Policy
from deid_agent.pipeline.scope_table import ScopeCipher, ScopeTable, open_table

_MOST_ALIASES = 100
"""Aliases of a document that are looked up: a hostile message may have a million."""
_UUID = re.compile(r"(?i)(?:urn:uuid:)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class Zeros(StrEnum):
    """What leading zeros of the numbers of a source are."""

    PADDING = "padding"  # 004471902 is 4471902
    SIGNIFICANT = "significant"  # two persons
    UNDECLARED = ""
    """A number is looked up as it is written. Two persons whose numbers differ by zeros only are refused."""


@dataclass(frozen=True, slots=True)
class NumberSource:
    """The numbers of one assigner. ``assigners`` are its names; without any, those of every other assigner count."""

    name: str
    assigners: tuple[str, ...] = ()
    zeros: Zeros = Zeros.UNDECLARED

    def as_json(self) -> dict[str, object]:
        """The source as a JSON value."""
        return {"name": self.name, "assigners": self.assigners, "zeros": self.zeros}

    @classmethod
    def of_json(cls, value: Mapping[str, object]) -> "NumberSource":
        """The source of ``as_json``."""
        names = value["assigners"]
        listed = tuple(map(str, names)) if isinstance(names, list) else ()
        return cls(str(value["name"]), listed, Zeros(str(value["zeros"])))


@dataclass(frozen=True, slots=True)
class ListedPatients(PatientChoice):
    """The rule of a policy with a scope table. The first of ``sources`` has the numbers without an assigner."""

    sources: tuple[NumberSource, ...] = ()
    table: ScopeTable | None = field(default=None, repr=False)
    _by_assigner: Mapping[str, NumberSource] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        PatientChoice.__post_init__(self)
        found = {normalize_assigner(name): source for source in self.sources for name in source.assigners}
        object.__setattr__(self, "_by_assigner", found)

    @classmethod
    def of(
        cls, choice: PatientChoice, sources: Sequence[NumberSource], table: ScopeTable | None = None
    ) -> "ListedPatients":
        """The rule with sources."""
        return cls(choice.types, choice.assigners, choice.placeholders, tuple(sources), table)

    def find(self, identifiers: Iterable[PatientIdentifier]) -> FoundPatient:
        """The scope of the best listed identifier, else that of the rule."""
        every = tuple(identifiers)
        ranked = self.rank(every)
        scopes = [
            scope
            for alias in self.list_aliases(every, ranked)
            if self.table is not None and (scope := self.table.find(alias)) is not None
        ]
        if scopes:
            return FoundPatient(scopes[0], Listing.LISTED if len({*scopes}) == 1 else Listing.CONFLICTING)
        if ranked:
            return FoundPatient(ranked[0].scope, Listing.UNLISTED)
        return FoundPatient(None, Listing.UNLISTED if any(each.value.strip() for each in every) else Listing.NOBODY)

    def keeps_zeros(self, found: PatientIdentifier) -> bool:
        """True if the source of a number declares that zeros are significant."""
        source = self._find_source(found)
        return source is not None and source.zeros is Zeros.SIGNIFICANT

    def list_aliases(self, every: Sequence[PatientIdentifier], ranked: Sequence[RankedIdentifier]) -> list[str]:
        """The aliases by which a table may list a patient, the best first.

        The number of a merged record counts only alone: the patient of the message is the one that remains.
        """
        apart = [each for each in ranked if each.identifier.field is not PatientField.MERGED]
        named = [self.name_alias(each.identifier) for each in apart or ranked if each.names_person]
        # A key of a row is no number: 99 is a person there.
        named += [self.name_alias(each) for each in every if _is_key(each)]
        return list(dict.fromkeys(alias for alias in named if alias is not None))[:_MOST_ALIASES]

    def name_alias(self, found: PatientIdentifier) -> str | None:
        """The alias of an identifier of a person; None if its assigner is of no source."""
        if _is_key(found):
            return f"column\x1f{found.assigners[0].strip().lower()}\x1f{found.value.strip()}"
        if found.field is PatientField.LOGICAL:
            uuid = _UUID.fullmatch(found.value.strip())
            return f"reference\x1f\x1f{uuid[1].lower() if uuid else found.value.strip()}"
        if (source := self._find_source(found)) is None:
            return None
        form = normalize_identifier(found.value, keep_zeros=source.zeros is not Zeros.PADDING)
        return f"number\x1f{source.name}\x1f{form}"

    def _find_source(self, found: PatientIdentifier) -> NumberSource | None:
        """The source of a number. A number without an assigner is of the first one."""
        if found.field is PatientField.LOGICAL or _is_key(found) or not self.sources:
            return None
        if not found.assigners:
            return self.sources[0]
        named = (self._by_assigner.get(normalize_assigner(name)) for name in found.assigners)
        others = next((source for source in self.sources if not source.assigners), None)
        return next((source for source in named if source is not None), others)


def _is_key(found: PatientIdentifier) -> bool:
    return found.field is PatientField.BESIDE and bool(found.assigners)


def digest_rule(choice: PatientChoice, cipher: ScopeCipher) -> str:
    """The keyed digest of a rule: a table serves only the policy by whose rule it was made."""
    content = [
        choice.types,
        [[normalize_assigner(a) for a in g] for g in choice.assigners],
        sorted(choice.placeholders),
    ]
    return cipher.digest(orjson.dumps(content)).hex()[:16]


@dataclass(frozen=True, slots=True)
class ScopeTableFile:
    """The file of a table as it was at the start: workers refuse another one, so that all have the same scopes."""

    path: Path
    identity: str

    @classmethod
    def of(cls, path: Path, key: SecretKey, policy: Policy) -> "ScopeTableFile":
        """The file, checked. Raises ``ConfigurationError`` as ``open_table``, or if the policy has another rule."""
        return cls(path, _open(path, key, policy).identity)

    def add_to(self, policy: Policy, key: SecretKey) -> ListedPatients:
        """The rule of the policy with the table. Raises ``ConfigurationError``."""
        table = _open(self.path, key, policy)
        if table.identity != self.identity:
            raise ConfigurationError(f"scope table {self.path}: is another one than at the start: start again")
        sources = [NumberSource.of_json(each) for each in table.head.sources]
        return ListedPatients.of(policy.patient, sources, table)


def _open(path: Path, key: SecretKey, policy: Policy) -> ScopeTable:
    if policy.unlinked:
        raise ConfigurationError(f"scope table {path}: the policy {policy.name} unlinks documents: leave the table out")
    table = open_table(path, key)
    if table.head.rule != digest_rule(policy.patient, ScopeCipher(key.secret)):
        raise ConfigurationError(
            f"scope table {path}: made under another [patient] section than that of policy {policy.name}: make it again"
        )
    return table
