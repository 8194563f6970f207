"""The lean for a budget of leaks: the bound holds over repeated draws, and only with its correction and by patient."""

import random
from collections.abc import Sequence

import pytest

from deid_agent.eval import LeanCurve, Note, Pair, bound_leaks, share_leaks
from deid_agent.eval import risk_control as risk_control_module
from deid_agent.eval.risk_control import never_rising
from deid_agent.model import parse_annotated

LEANS = tuple(1.0 + step for step in range(60))
DRAWS = 800


def pair(gold: str, found: str, patient: str, note: str = "") -> Pair:
    annotated, proposed = parse_annotated(gold), parse_annotated(found)
    return Pair(Note(note or patient, "", "", patient, annotated, {}), tuple(proposed.spans))


def curve_of(thresholds: Sequence[float], notes: int = 1) -> LeanCurve:
    """Patients of whom everything leaks below a lean of their own, each with ``notes`` draws."""
    rows = [tuple(float(step / len(LEANS) < each) for step in range(1, len(LEANS) + 1)) for each in thresholds]
    return LeanCurve(LEANS, tuple(row for row in rows for _ in range(notes)))


def mean_risk(alpha: float, patients: int, notes: int = 1) -> float:
    """The true share that leaks for the chosen lean, on average over samples; without a claim nothing is published.

    The population is known: at the lean with the index k a share of 1 - (k + 1) / 60 leaks.
    """
    rng, total = random.Random(20221), 0.0
    for _ in range(DRAWS):
        at = curve_of([rng.random() for _ in range(patients)], notes).choose(alpha)
        total += 0.0 if at is None else 1 - (at + 1) / len(LEANS)
    return total / DRAWS


@pytest.mark.parametrize(("alpha", "patients"), [(0.1, 20), (0.2, 12)])
def test_the_bound_holds_over_repeated_random_samples(alpha: float, patients: int) -> None:
    risk = mean_risk(alpha, patients)
    assert 0.5 * alpha < risk <= alpha, "it holds, and it is not empty"


def test_without_its_correction_the_bound_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(risk_control_module, "MOST_LOSS", 0.0)
    assert mean_risk(0.1, 20) > 0.1


def test_notes_as_units_would_break_the_bound() -> None:
    assert mean_risk(0.1, 8, notes=5) > 0.1, "5 notes of one patient are no 5 draws"
    assert mean_risk(0.1, 8) <= 0.1


def test_notes_of_a_patient_are_one_draw() -> None:
    found = [pair("[[PATIENT|Ada]] came", "[[PATIENT|Ada]] came", "p", f"n{at}") for at in range(3)]
    missed = pair("[[PATIENT|Ada]] left", "Ada left", "p", "n4")
    other = pair("no PHI", "no PHI", "q")
    assert share_leaks([*found, missed, other]) == {"p": 0.25, "q": 0.0}
    assert bound_leaks([*found, missed, other], 0.5).bound == pytest.approx(1.25 / 3)


def test_a_loss_that_rises_again_counts_before_too() -> None:
    assert never_rising([0.5, 0.1, 0.3, 0.0]) == (0.5, 0.3, 0.3, 0.0)
    curve = LeanCurve.of({1.0: {"p": 0.0}, 2.0: {"p": 0.4}})
    assert curve.losses == ((0.4, 0.4),)


def test_other_patients_at_another_lean_are_an_error() -> None:
    with pytest.raises(ValueError, match="same patients"):
        LeanCurve.of({1.0: {"p": 0.0}, 2.0: {"q": 0.0}})


@pytest.mark.parametrize(
    ("losses", "alpha", "patients"),
    [
        ([0.0] * 49, 0.01, 99),
        ([0.02] * 50, 0.04, 48),
        ([0.02] * 50, 0.02, None),
    ],
)
def test_the_patients_that_a_budget_needs(losses: list[float], alpha: float, patients: int | None) -> None:
    curve = LeanCurve((1.0,), tuple((each,) for each in losses))
    assert curve.least_patients(alpha) == patients
    if patients is not None:
        mean = losses[0]
        enough, fewer = ((n * mean + 1) / (n + 1) for n in (patients, patients - 1))
        assert enough <= alpha + 1e-12 < fewer


def test_fifty_notes_with_2_percent_missed_certify_nothing_under_3_9_percent() -> None:
    curve = LeanCurve((1.0,), ((0.02,),) * 50)
    assert curve.choose(0.039) is None
    assert curve.choose(0.04) == 0
