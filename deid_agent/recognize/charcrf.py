"""The character model: mends boundaries that tokens lose, alone or where the token model is in doubt.

Source: Liu 2015 sections 3.2.3 and 3.4.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from deid_agent.crf.bundle import Bundle
from deid_agent.crf.characters import Characters, Chosen, lines, windows
from deid_agent.crf.columns import View
from deid_agent.crf.labels import decode_edges
from deid_agent.crf.model import Floats
from deid_agent.dictionary import Dictionaries
from deid_agent.recognize.tokencrf import Asked, TokenCrf
from deid_agent.spans import Span
from deid_agent.text import Document, Range

SOURCE = "char-crf:character"
_TWO_WORDS = re.compile(r"[^\W\d_A-Z][A-Z]")  # a capital behind a small letter
_HARDLY = 0.002
_BATCH = 8_192  # characters read at once: bounds the memory


@dataclass(frozen=True, slots=True)
class CharacterCrf:
    """Proposes the most probable spans over characters, of whole lines or of chosen windows alone."""

    bundle: Bundle
    dictionaries: Dictionaries = field(repr=False)

    @property
    def name(self) -> str:
        """The model's name, as in the models folder."""
        return self.bundle.name

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """Spans of ``doc``, whose first pass found ``first``; none crosses a line end."""
        return self.within(View(doc, first, self.dictionaries), lines(doc)) if doc.tokens else []

    def propose_all(self, asked: Sequence[Asked]) -> list[list[Span]]:
        """As ``propose`` of each."""
        return [list(self.propose(doc, first)) for doc, first in asked]

    def within(self, view: View, chosen: Sequence[Range]) -> list[Span]:
        """Spans inside the chosen windows of a document that has tokens; windows are disjoint and not empty."""
        if not chosen:
            return []
        characters = Characters(view)
        found: list[Span] = []
        for batch in _batches(chosen):
            units = np.concatenate([np.arange(start, end) for start, end in batch])
            emissions = self._emissions(Chosen(self.bundle.features, characters, units))
            labels = self.bundle.chain.best_of_all(emissions, [end - start for start, end in batch])
            at = 0
            for start, end in batch:
                size = end - start
                if any(label != "O" for label in labels[at : at + size]):
                    places = [(c, c + 1) for c in range(start, end)]
                    found += decode_edges(labels[at : at + size], places, SOURCE)
                at += size
        return found

    def _emissions(self, chosen: Chosen) -> Floats:
        """Emissions of the units; what is the same for all characters of a token is summed once for each token."""
        chain = self.bundle.chain
        shared = np.tile(chain.bias, (len(chosen.heads), 1))
        own = np.zeros((len(chosen.units), len(chain.labels)), np.float32)
        for at, template in enumerate(self.bundle.features.templates):
            numbers, is_shared = chosen.of(template)
            (shared if is_shared else own)[:] += chain.partial(at, numbers)
        own += shared[chosen.back]
        return own


@dataclass(frozen=True, slots=True)
class GatedCrf:
    """The token model, and the character model only where the token model is in doubt.

    In doubt: a token whose probability of PHI lies between ``low`` and ``high``, and one that may hold two words, such
    as ``HospitalProblems``, unless it is hardly PHI. The character model reads ``around`` characters to both sides.
    """

    token: TokenCrf
    character: CharacterCrf
    low: float = 0.1
    high: float = 0.9
    around: int = 20

    @property
    def name(self) -> str:
        """Both models' names."""
        return f"{self.token.name}+{self.character.name}"

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """What the token model proposes, and what the character model finds at its doubts."""
        if not doc.tokens:
            return []
        view = View(doc, first, self.token.dictionaries, {})
        reading = self.token.read(view, doubts=True)
        phi = reading.phi if reading.phi is not None else np.ones(len(doc.tokens), np.float32)
        doubted = (phi > self.low) & (phi < self.high)
        for at in np.flatnonzero(phi > _HARDLY).tolist():
            doubted[at] |= _TWO_WORDS.search(view.words[at]) is not None
        ranges = [doc.tokens[at] for at in np.flatnonzero(doubted).tolist()]
        found = self.character.within(view, windows(doc, ranges, self.around))
        return [*self.token.spans(doc, reading), *_touching(found, ranges)]

    def propose_all(self, asked: Sequence[Asked]) -> list[list[Span]]:
        """As ``propose`` of each."""
        return [list(self.propose(doc, first)) for doc, first in asked]


def _touching(spans: Sequence[Span], ranges: Sequence[Range]) -> Iterator[Span]:
    """The spans that share a character with a range; both are disjoint and in order."""
    at = 0
    for span in spans:
        while at < len(ranges) and ranges[at][1] <= span.start:
            at += 1
        if at < len(ranges) and ranges[at][0] < span.end:
            yield span


def _batches(chosen: Sequence[Range]) -> Iterator[list[Range]]:
    batch: list[Range] = []
    size = 0
    for window in chosen:
        if batch and size + window[1] - window[0] > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(window)
        size += window[1] - window[0]
    if batch:
        yield batch
