"""What may be claimed after an evaluation: a bound on leaks in further notes, and the clinical text that is altered.

Source of the bound: conformal risk control (Angelopoulos et al. 2022, theorem 1), for the share of the annotations of a
note that leak, which lies between 0 and 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deid_agent.eval.counts import Coverage, is_leaked
from deid_agent.eval.score import Pair
from deid_agent.model import Document


@dataclass(frozen=True, slots=True)
class LeakBound:
    """The leaks of ``notes`` notes: ``mean`` is the mean share of a note's annotations that leak.

    ``bound`` is what a further note leaks at most, on average, if it is drawn like these notes.
    """

    notes: int
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
        known = f"on {self.notes} notes {100 * self.mean:.2f} % of a note's annotations leak on average"
        if self.holds:
            return f"{known}; a further note that is drawn like these leaks at most {100 * self.alpha:.2f} % on average"
        least = f"{100 * self.bound:.2f} %"
        return f"{known}; no claim of {100 * self.alpha:.2f} % may be made: with these notes the least bound is {least}"


def bound_leaks(pairs: Sequence[Pair], alpha: float) -> LeakBound:
    """The bound after the notes of ``pairs``; ``alpha`` (0 to 1) is the share to claim.

    The bound is ``(sum of the shares + 1) / (notes + 1)``. It holds for notes that are exchangeable with these, not for
    another site, and only if the system was chosen without them. A note without annotations leaks nothing.
    """
    shares = []
    for pair in pairs:
        text, gold = pair.note.annotated.text, pair.note.annotated.spans
        covered = Coverage(text, pair.found)
        leaks = sum(is_leaked(text, span, covered) for span in gold)
        shares.append(leaks / len(gold) if gold else 0.0)
    total = sum(shares)
    return LeakBound(len(shares), total / max(1, len(shares)), (total + 1) / (len(shares) + 1), alpha)


@dataclass(frozen=True, slots=True)
class Altered:
    """Tokens that are no PHI and lie in a finding: ``words`` without digits, ``numbers`` with digits, of ``tokens``."""

    tokens: int
    words: int
    numbers: int

    @property
    def words_per_thousand(self) -> float:
        """Altered words of 1,000 tokens."""
        return 1000 * self.words / max(1, self.tokens)

    @property
    def numbers_per_thousand(self) -> float:
        """Altered numbers of 1,000 tokens."""
        return 1000 * self.numbers / max(1, self.tokens)


def count_altered(pairs: Sequence[Pair]) -> Altered:
    """Count the tokens with a letter or digit that a finding touches and no annotation does."""
    tokens = words = numbers = 0
    for pair in pairs:
        text = pair.note.annotated.text
        gold, found = Coverage(text, pair.note.annotated.spans), Coverage(text, pair.found)
        for start, end in Document(text).tokens:
            token = text[start:end]
            if not token[0].isalnum():
                continue
            tokens += 1
            if found.touches(start, end) and not gold.touches(start, end):
                numbers += token[0].isdigit()
                words += not token[0].isdigit()
    return Altered(tokens, words, numbers)
