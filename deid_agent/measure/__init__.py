"""What a stretch of clinical text measures: scores, doses, codes and the like, found before anyone asks whether it is
PHI."""

from deid_agent.measure.grammar import (
    EMPTY_GRAMMAR,
    Grammar,
    Mark,
    MeasureKind,
    Veto,
    check_forms,
    find_covering,
    load_grammar,
)

__all__ = [
    "EMPTY_GRAMMAR",
    "Grammar",
    "Mark",
    "MeasureKind",
    "Veto",
    "check_forms",
    "find_covering",
    "load_grammar",
]
