"""The annotated corpus with every gold span replaced by the product's ``Replacer``, and the new positions."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from support.shared import VARIABLE
from support.surrogates import SECRET

from deid_agent.eval.markup import Note, read_corpus
from deid_agent.model.patients import PatientIdentifier
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact
from deid_agent.model.spans import Replacement, Span, splice
from deid_agent.pipeline.facts import facts_from_context, make_scope
from deid_agent.pipeline.policy import Method, Policy, load_policy
from deid_agent.pipeline.replacement import Replacer
from deid_agent.surrogate import Scope, Surrogates

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"


def corpus() -> Path:
    """``corpus/`` of the checkout, else of ``$DEID_SHARED``; skips with the reason if there is neither."""
    candidates = [ROOT / "corpus", Path(os.environ.get(VARIABLE) or ROOT, "corpus")]
    found = next((path for path in candidates if any(path.glob("*.txt"))), None)
    if found is None:
        # Tests that were copied out of a checkout have no corpus. Nothing makes this a failure: a checkout has one.
        pytest.skip(f"no corpus/ in the checkout and {VARIABLE} names no folder with one: nothing to walk")
    return found


@cache
def notes() -> tuple[Note, ...]:
    """Every note of the corpus."""
    return tuple(read_corpus(corpus()))


@dataclass(frozen=True, slots=True)
class Replaced:
    """A note, the surrogate of each gold span, and the same spans in the output."""

    note: Note
    scope: Scope
    facts: tuple[Fact, ...] = field(repr=False)
    values: tuple[str, ...] = field(repr=False)
    output: str = field(repr=False)
    new_spans: tuple[Span, ...]

    def __iter__(self) -> Iterator[tuple[PhiType, str, str]]:
        """Type, original and surrogate of every span."""
        text = self.note.annotated.text
        for span, new in zip(self.note.annotated.spans, self.values, strict=True):
            yield span.type, text[span.start : span.end], new


@cache
def surrogates() -> Surrogates:
    return Surrogates(SECRET, rules=RULES)


@cache
def replaced() -> tuple[Replaced, ...]:
    """Every note with its gold spans replaced, each in a scope of its own, as ``Deidentifier.text`` makes it."""
    replacer = Replacer(load_policy("pseudonymised", RULES), surrogates())
    return tuple(_replaced(note, replacer) for note in notes())


def _replaced(note: Note, replacer: Replacer) -> Replaced:
    text, spans, facts = note.annotated.text, note.annotated.spans, facts_from_context(note.profile)
    today = replacer.find_latest_day(text, spans)
    scope = make_scope(note.id, _patient_scope(note, replacer.policy), facts, today=today)
    scope = replace(scope, people=tuple(dict.fromkeys((*scope.people, *replacer.find_people(text, spans)))))
    values = replacer.replace_findings(text, spans, [Method.SURROGATE] * len(spans), scope)
    new_spans, moved = [], 0
    for span, new in zip(spans, values, strict=True):
        start = span.start + moved
        new_spans.append(Span(start, start + len(new), span.type, span.source))
        moved += len(new) - len(span)
    edits = (Replacement(span.start, span.end, new) for span, new in zip(spans, values, strict=True))
    return Replaced(note, scope, facts, tuple(values), splice(text, edits), tuple(new_spans))


def _patient_scope(note: Note, policy: Policy) -> str | None:
    """The scope that ``Deidentifier`` chooses for the note's patient."""
    mrn = note.profile.get("mrn")
    return policy.patient.scope([PatientIdentifier(str(mrn))] if mrn else []) or policy.patient.scope_of(note.patient)


def patient_of(note: Note) -> str:
    """The identifiers of the note's patient."""
    return str(note.profile.get("mrn") or note.patient)
