"""One message on its way through: what is known of it, the scope of its surrogates, and what was done so far."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent.changes import Observer, Page
from deid_agent.codec.base import Codec
from deid_agent.context import days_of
from deid_agent.laps import Laps
from deid_agent.replacer import Codes
from deid_agent.sites import Fact, Kind, Message, Remark
from deid_agent.surrogate import Scope

Notes = Counter[tuple[str, str, str, str]]
"""How often a place, a type, a method and a source stood together in a change."""


@dataclass(frozen=True, slots=True)
class Case:
    """One message, alone or within another.

    ``guarded`` are the facts that must not be in the output; those of its attachments join on the way.
    """

    codec: Codec
    message: Message
    facts: tuple[Fact, ...]
    scope: Scope
    notes: Notes
    nesting: int
    guarded: list[Fact] = field(repr=False)
    codes: Codes
    laps: Laps
    seen: Observer | None = None
    page: Page | None = None


def observed(case: Case, seen: Observer | None, path: str) -> Case:
    """The case with a page of its own where somebody looks on."""
    return case if seen is None else replace(case, seen=seen, page=seen.page(path, case.message.raw))


def remarks_of(notes: Mapping[tuple[str, str, str, str], int]) -> tuple[Remark, ...]:
    """One remark for all changes of a kind at a place."""
    return tuple(Remark(*what, count=count) for what, count in notes.items())


def scope_of(document: str, patient: str | None, facts: tuple[Fact, ...], reference: date | None = None) -> Scope:
    """The scope of a document's surrogates, with the days and the people that ``facts`` tell."""
    known = days_of(facts) + ((reference,) if reference else ())
    return Scope(document=document, patient=patient, reference=reference, people=_people(facts), known=known)


def _people(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Given and family name of every person the structure names, so that initials can follow."""
    parts: dict[str, dict[Kind, str]] = {}
    for fact in facts:
        if fact.kind in {Kind.GIVEN, Kind.FAMILY}:
            parts.setdefault(fact.group, {}).setdefault(fact.kind, fact.value)
    return tuple((p.get(Kind.GIVEN, ""), p.get(Kind.FAMILY, "")) for p in parts.values())
