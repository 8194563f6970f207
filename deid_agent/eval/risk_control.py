"""How far models must lean so that a share of leaks may be claimed, and the share that a sample allows.

Source: conformal risk control (Angelopoulos, Bates, Fisch, Lei & Schuster 2022, theorem 1). A patient is one draw:
notes of one patient share names, so they are not exchangeable with the notes of others. The loss of a patient is the
share of the annotations in the patient's notes that leak, between 0 and 1.

The theorem needs a loss that never rises with the lean. A greater lean nearly always finds more, but it may also divide
a name anew, so the losses are replaced by the least curve above them that never rises.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.eval.counts import Coverage, is_leaked
from deid_agent.eval.score import Pair

MOST_LOSS = 1.0
"""The loss of the patient that was not drawn, in the worst case."""


@dataclass(frozen=True, slots=True)
class LeakBound:
    """The leaks in the notes of ``patients``: ``mean`` is the mean share of a patient's annotations that leak.

    A further patient drawn like these leaks at most ``bound``, on average.
    """

    notes: int
    patients: int
    mean: float
    bound: float
    alpha: float

    @property
    def holds(self) -> bool:
        """Whether the bound is at most ``alpha``."""
        return self.bound <= self.alpha

    @property
    def sentence(self) -> str:
        """The claim, in one line."""
        drawn = f"on {self.notes} notes of {self.patients} patients"
        known = f"{drawn} {100 * self.mean:.2f} % of a patient's annotations leak on average"
        if self.holds:
            return f"{known}; a further patient drawn like these leaks at most {100 * self.alpha:.2f} % on average"
        least = f"{100 * self.bound:.2f} %"
        return (
            f"{known}; no claim of {100 * self.alpha:.2f} % may be made: with these patients the least bound is {least}"
        )


def share_leaks(pairs: Sequence[Pair]) -> dict[str, float]:
    """The share of the annotations of each patient that leak. A patient without annotations leaks nothing.

    A note that names no patient is one of its own.
    """
    counts: dict[str, tuple[int, int]] = {}
    for pair in pairs:
        text, gold = pair.note.annotated.text, pair.note.annotated.spans
        covered = Coverage(text, pair.found)
        leaks, of = counts.get(patient := pair.note.patient or pair.note.id, (0, 0))
        counts[patient] = leaks + sum(is_leaked(text, span, covered) for span in gold), of + len(gold)
    return {patient: leaks / of if of else 0.0 for patient, (leaks, of) in counts.items()}


def bound_mean(losses: Sequence[float]) -> float:
    """The most that a further loss is on average: the mean after one more loss of the worst kind."""
    return (math.fsum(losses) + MOST_LOSS) / (len(losses) + 1)


def bound_leaks(pairs: Sequence[Pair], alpha: float) -> LeakBound:
    """The bound after the notes of ``pairs``; ``alpha`` (0 to 1) is the share to claim.

    It holds for patients who are exchangeable with these, not for another site, and only if the system was chosen
    without them.
    """
    losses = list(share_leaks(pairs).values())
    mean = math.fsum(losses) / max(1, len(losses))
    return LeakBound(len(pairs), len(losses), mean, bound_mean(losses), alpha)


@dataclass(frozen=True, slots=True)
class LeanCurve:
    """The loss of each patient at each lean. ``losses`` are ``[patient][lean]``; ``leans`` rise."""

    leans: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...] = field(repr=False)

    @staticmethod
    def of(losses: Mapping[float, Mapping[str, float]]) -> "LeanCurve":
        """The curve of ``losses``, the loss of each patient by lean. Raises ``ValueError`` for other patients."""
        leans = tuple(sorted(losses))
        patients = tuple(sorted(losses[leans[0]])) if leans else ()
        if not patients or any(losses[lean].keys() != set(patients) for lean in leans):
            raise ValueError("a curve needs the same patients at each lean")
        return LeanCurve(leans, tuple(never_rising([losses[lean][each] for lean in leans]) for each in patients))

    @property
    def patients(self) -> int:
        """The number of patients."""
        return len(self.losses)

    def mean(self, at: int) -> float:
        """The mean loss at the lean with this index."""
        return math.fsum(row[at] for row in self.losses) / len(self.losses)

    def bound(self, at: int) -> float:
        """The bound at the lean with this index."""
        return bound_mean([row[at] for row in self.losses])

    def choose(self, alpha: float) -> int | None:
        """The index of the least lean whose bound is at most ``alpha``; None if there is none."""
        return next((at for at in range(len(self.leans)) if self.bound(at) <= alpha), None)

    def least_patients(self, alpha: float) -> int | None:
        """How many patients would allow a claim of ``alpha`` with the losses of these; None if no number does."""
        best = self.mean(len(self.leans) - 1)
        return None if best >= alpha else math.ceil((MOST_LOSS - alpha) / (alpha - best) - 1e-9)


def never_rising(losses: Sequence[float]) -> tuple[float, ...]:
    """The least curve above ``losses`` that never rises: each value is the greatest from there on."""
    found: list[float] = []
    for loss in reversed(losses):
        found.append(max(loss, found[-1]) if found else loss)
    return tuple(reversed(found))
