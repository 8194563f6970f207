"""The token model: a CRF over tokens that sees what the rules of the first pass say.

Source: Liu 2015 section 3.2.2, Dehghan 2015 section 2.3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deid_agent.crf.bundle import Bundle
from deid_agent.crf.columns import View
from deid_agent.crf.labels import OUTSIDE, decode
from deid_agent.crf.model import Floats
from deid_agent.dictionary import Dictionaries
from deid_agent.spans import Span
from deid_agent.text import Document

SURE, WEAK = "crf:token", "weak:token"


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Of each token the label of the most probable sequence, the probability of PHI, the likeliest kind of PHI."""

    labels: Sequence[str]
    phi: Floats | None = None
    kinds: Sequence[str] = ()


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
        if not doc.tokens:
            return []
        return self.spans(doc, self.read(View(doc, first, self.dictionaries), doubts=self.least < 1))

    def read(self, view: View, *, doubts: bool) -> Reading:
        """What the model says of a document that has tokens; without ``doubts`` the labels alone."""
        chain = self.bundle.chain
        emissions = chain.emissions(self.bundle.features.of(view))
        best = chain.best(emissions)
        if not doubts:
            return Reading(best)
        marginals = chain.marginals(emissions)
        marginals[:, chain.labels.index(OUTSIDE)] = 0
        kinds = [chain.labels[kind] for kind in marginals.argmax(axis=1).tolist()]
        return Reading(best, marginals.sum(axis=1), kinds)

    def spans(self, doc: Document, reading: Reading) -> list[Span]:
        """The spans of what was read, the weak ones where it holds doubts."""
        found = list(decode(reading.labels, doc.tokens, SURE))
        if reading.phi is not None and self.least < 1:
            likely = (reading.phi >= self.least).tolist()
            weak = [
                kind if yes and label == OUTSIDE else OUTSIDE
                for yes, kind, label in zip(likely, reading.kinds, reading.labels, strict=True)
            ]
            found += decode(weak, doc.tokens, WEAK)
        return found
