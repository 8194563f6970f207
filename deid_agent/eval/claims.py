"""The clinical text that a system alters: words and numbers that are no PHI and lie in a finding."""

from collections.abc import Sequence
from dataclasses import dataclass

from deid_agent.eval.counts import Coverage
from deid_agent.eval.score import Pair
from deid_agent.model import Document


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
