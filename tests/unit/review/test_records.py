"""Agreement of two decisions, against values computed by hand; the rules about decisions, for any order of saves."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.http import DeskError, NoteState
from deid_agent.model import ANNOTATION, PhiType, Span
from deid_agent.review import Agreement, compare
from deid_agent.review.desk import decide, find_state
from deid_agent.review.records import Decision, NoteDecisions

TEXT = "Ann Lee saw Bo Day on Monday in Troy today again"


def spans(*found: tuple[str, PhiType]) -> list[Span]:
    return [Span(TEXT.index(part), TEXT.index(part) + len(part), kind, ANNOTATION) for part, kind in found]


def test_strict_f1_and_kappa_have_the_values_of_their_definitions() -> None:
    a = spans(("Ann Lee", PhiType.PATIENT), ("Bo Day", PhiType.DOCTOR), ("Monday", PhiType.DATE))
    b = spans(("Ann", PhiType.PATIENT), ("Bo Day", PhiType.DOCTOR), ("Troy", PhiType.CITY))
    found = compare(TEXT, a, b)
    assert found.strict_f1 == pytest.approx(2 / 6)
    # Of 11 tokens 8 are equal: Ann, Bo and Day, and 5 of no PHI. Labels of a: 6 none, 2, 2, 1; of b: 7 none, 1, 2, 1.
    expected = (6 * 7 + 2 * 1 + 2 * 2) / 121
    assert found.kappa == pytest.approx((8 / 11 - expected) / (1 - expected))
    assert (found + found).kappa == pytest.approx(found.kappa)
    assert compare(TEXT, b, a).kappa == pytest.approx(found.kappa)


def test_equal_decisions_agree_fully_also_without_any_span() -> None:
    one = spans(("Ann Lee", PhiType.PATIENT))
    assert (compare(TEXT, one, one).strict_f1, compare(TEXT, one, one).kappa) == (1.0, 1.0)
    assert (compare(TEXT, [], []).strict_f1, compare(TEXT, [], []).kappa) == (1.0, 1.0)
    assert (Agreement().strict_f1, Agreement().kappa) == (1.0, 1.0)


def test_chance_alone_has_no_kappa() -> None:
    everything = [Span(0, len(TEXT), PhiType.DATE, ANNOTATION)]
    assert compare(TEXT, everything, []).kappa == pytest.approx(0.0)
    assert compare(TEXT, everything, []).strict_f1 == pytest.approx(0.0)


WHO = ("anna", "ben", "cara")


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(WHO), st.integers(0, 2), st.booleans()), max_size=12),
)
def test_gold_and_finished_decisions_never_change(count: int, saved: list[tuple[str, int, bool]]) -> None:
    choices = [(), *((Span(0, end, PhiType.PATIENT, ANNOTATION),) for end in (3, 7))]
    decisions = NoteDecisions()
    for who, choice, finished in saved:
        if who not in WHO[:count]:
            continue
        before = decisions
        with suppress(DeskError):
            decisions = decide(before, who, Decision(choices[choice], finished), count)
        assert before.gold() is None or decisions == before
        assert set(before.finished) <= set(decisions.finished)
        assert len(decisions.finished) <= 2
        assert before.is_disputed or set(decisions.third) == set(before.third), "only disputed notes are adjudicated"
        states = {find_state(decisions, each) for each in WHO[:count]}
        assert (NoteState.AGREED in states) == (decisions.gold() is not None)
        assert (decisions.gold() is None) or states == {NoteState.AGREED}
