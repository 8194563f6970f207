"""The token model: a CRF over tokens that sees what the rules of the first pass say.

Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deid_agent.crf.bundle import Bundle
from deid_agent.crf.columns import View
from deid_agent.crf.labels import OUTSIDE, decode
from deid_agent.dictionary import Dictionaries
from deid_agent.spans import Span
from deid_agent.text import Document

SURE, WEAK = "crf:token", "crf:token-weak"


@dataclass(frozen=True, slots=True)
class TokenCrf:
    """Proposes the most probable spans; and, as weak ones, tokens that may well be PHI though that is not likeliest.

    ``least`` is the probability of PHI from which on a token is proposed all the same.
    """

    bundle: Bundle
    dictionaries: Dictionaries = field(repr=False)
    least: float = 0.3

    @property
    def name(self) -> str:
        """The model's name, as in the models folder."""
        return self.bundle.name

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """Spans of ``doc``, whose first pass found ``first``."""
        tokens = doc.tokens
        if not tokens:
            return []
        chain = self.bundle.chain
        emissions = chain.emissions(self.bundle.features.of(View(doc, first, self.dictionaries)))
        best = chain.best(emissions)
        found = list(decode(best, tokens, SURE))
        if self.least < 1:
            marginals = chain.marginals(emissions)
            outside = chain.labels.index(OUTSIDE)
            marginals[:, outside] = 0
            likely = (marginals.sum(axis=1) >= self.least).tolist()
            kinds = marginals.argmax(axis=1).tolist()
            weak = [
                chain.labels[kind] if yes and label == OUTSIDE else OUTSIDE
                for yes, kind, label in zip(likely, kinds, best, strict=True)
            ]
            found += decode(weak, tokens, WEAK)
        return found
