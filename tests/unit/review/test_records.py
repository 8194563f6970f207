"""Agreement of two decisions, against values computed by hand."""

import pytest

from deid_agent.model import ANNOTATION, PhiType, Span
from deid_agent.review import Agreement, compare

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
